//! The public face, as programs of others use it. Published with the library: nothing here needs the rest of the
//! repository.

mod api;
mod api_md;
mod derive;
mod face;
mod fixture;
mod handles;
mod retention;
mod smoke;
mod temporary;
mod traits;
mod typed;
mod typed_lifetimes;
mod typed_transactions;
