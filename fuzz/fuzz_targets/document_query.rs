#![no_main]

#[path = "../documents/query.rs"]
mod query;

libfuzzer_sys::fuzz_target!(|data: &[u8]| query::document_query(data));
