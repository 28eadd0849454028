//! Lines of JSON, as the command `ebbtide` writes and reads them; dates; and, with the feature `parquet`, copies in Parquet files.

pub mod calendar;
pub mod json;
#[cfg(feature = "parquet")]
pub mod lake;
