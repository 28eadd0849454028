//! Expiry: the rule by which items expire, and statistics of many items at once.

mod command;
mod life;
mod past;
mod rule;
mod standing;
mod ends;
mod older_copy;
mod census;
mod histogram;
mod ttl_classes;

pub use census::{Census, OVERSIZED_LEAST, Tally, is_oversized};
pub use command::{Command, Commands, Expire};
pub use ends::{Cause, Ending, Reason};
pub use histogram::{ExpiryHistogram, ExpiryHistograms};
pub use life::Life;
pub use rule::{
    DefaultMillis, ExpiryCheck, ExpiryView, ExpiryViews, Settings, SettingsChange,
    stored_ttl_until, ttl_millis,
};
