//! Lines of JSON, as the command `ebbtide` writes and reads them.

pub mod json;
