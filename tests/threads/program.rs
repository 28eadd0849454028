//! Threads and tasks, at once, and the end of each.

mod closing;
mod concurrency;
mod last_handle;
mod linearizable;
mod order;
mod panics;
mod resting;
mod tokio;
mod tokio_transactions;
