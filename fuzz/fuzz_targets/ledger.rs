#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ebbtide_fuzz::ledger(data));
