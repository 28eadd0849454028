//! Lines of JSON, as the command `ebbtide` writes and reads them; dates; what is typed; and, with the feature `parquet`, copies in Parquet files.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod calendar;
pub mod given;
pub mod json;
#[cfg(feature = "parquet")]
pub mod lake;
