//! Expiry: the rule by which items are gone, and what is known of many items at once.

mod rule;
mod census;

pub use census::{Census, Spread, Tally};
pub use rule::{DefaultMillis, Judge, Settings, stored_ttl_until, ttl_millis};
