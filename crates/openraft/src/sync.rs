//! Locks of what models play (tests/leader_time.rs), which put the model checker's in their place.

pub use std::sync::{Arc, Mutex, MutexGuard};
