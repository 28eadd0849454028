//! Ebbtide is an embeddable storage engine for data with a deadline.

#![allow(dead_code, unused_imports)]

// The order of these lines is the architecture: a module imports only from modules above its own line.
mod coding;
mod error;
mod hash;
mod types;
// rules
mod batch;
mod expiry;
mod merge;
mod record;
// world
mod env;
// shelves
mod wal;
