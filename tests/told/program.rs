//! News for others: readers of expirations and changes, followers, listeners, metrics.

mod changes;
mod feed;
mod follow;
mod listener;
mod metrics;
mod traces;
mod waiting;
mod watch;
