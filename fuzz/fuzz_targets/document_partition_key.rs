#![no_main]

#[path = "../documents/container.rs"]
mod container;
#[path = "../documents/partition_key.rs"]
mod partition_key;

libfuzzer_sys::fuzz_target!(|data: &[u8]| partition_key::document_partition_key(data));
