//! Ebbtide databases on several machines: every item ends in the same millisecond on each of them.

#![forbid(unsafe_code)]

#[cfg_attr(not(test), allow(dead_code))]
mod net;

pub use net::Tls;
