//! The sources and the documents hold to what is said of them.

mod architecture;
mod guide;
mod public_api;
