#![no_main]

#[path = "../documents/container.rs"]
mod container;
#[path = "../documents/patch.rs"]
mod patch;

libfuzzer_sys::fuzz_target!(|data: &[u8]| patch::document_patch(data));
