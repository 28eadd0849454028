//! Ebbtide is an embeddable storage engine for data with a deadline.

// The order of these lines is the architecture: a module imports only from modules above its own line.
mod coding;
#![allow(missing_docs)]
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
