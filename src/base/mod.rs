//! Basic types that every layer uses: no I/O, no clock, no threads of its own. This folder has what depends on nothing
//! else: ids, times, ttls, errors, encodings of integers, the header of a record, and the atomics and locks that a
//! model checker can replace; and prefetching.

pub mod ids;
pub mod time;
pub mod ttl;
pub mod file_name;
pub mod sync;
pub mod error;
pub mod io_error;
pub mod text;
pub mod patience;
pub mod coding;
pub mod hash;
pub mod prefetch;
pub mod counters;
pub mod record;
pub mod spans;

pub use error::{Error, Result};
pub use ids::{ContainerId, HIGHEST_NUMBER, Seq, TableId};
#[cfg(feature = "tokio")]
pub use patience::Unready;
pub use patience::{AtOnce, Attempt, Now, Patience, Wait};
pub use prefetch::{prefetch, prefetch_first, prefetch_last, prefetch_lines};
pub use time::{Timestamp, millis_up};
pub use ttl::{Countdown, DefaultTtl, ItemTtl, MAX_TTL_MILLIS, Ttl, lifetime_millis};
