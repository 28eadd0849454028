//! Answers of a database about itself: reports, estimates, explanations, its changes and its expirations.

pub mod report;
pub mod due;
pub mod why;
pub mod disk_usage;
pub mod changes;
pub mod feed;
pub mod watch;
#[cfg(feature = "metrics")]
pub mod metrics;
