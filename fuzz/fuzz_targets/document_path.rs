#![no_main]

#[path = "../documents/container.rs"]
mod container;
#[path = "../documents/path.rs"]
mod path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| path::document_path(data));
