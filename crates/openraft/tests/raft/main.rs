//! The tests of log, state and leadership, as openraft and programs on it see them. Each file has the tests of one promise. They are
//! one program because linking one takes longer than most of them run.

// Errors are openraft's, of the size that it gives them.
#![allow(clippy::result_large_err)]

mod apply;
mod cluster;
mod common;
mod containers;
mod formats;
mod leader_time;
mod reading;
mod storage;
mod suite;

/// The locks of src/log_time.rs where leader_time.rs builds it: those of the model checker.
mod sync {
    pub use std::sync::Arc;

    pub use loom::sync::{Mutex, MutexGuard};
}
