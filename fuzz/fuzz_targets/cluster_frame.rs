#![no_main]

#[allow(dead_code)]
#[path = "../../crates/cluster/src/net/frame.rs"]
mod frame;
#[path = "../cluster/frame.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::cluster_frame(data));
