//! Locks of what models play (tests/models.rs), which put the model checker's in their place.

pub use std::sync::{Arc, Mutex, MutexGuard};
