//! What threads and tasks do at once, and where each of them ends.

mod concurrency;
mod last_handle;
mod linearizable;
mod order;
mod panics;
mod shutdown;
mod tokio;
