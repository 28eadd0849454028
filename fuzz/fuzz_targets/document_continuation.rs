#![no_main]

#[path = "../documents/container.rs"]
mod container;
#[path = "../documents/continuation.rs"]
mod continuation;

libfuzzer_sys::fuzz_target!(|data: &[u8]| continuation::document_continuation(data));
