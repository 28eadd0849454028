//! Expiry: the rule by which items are gone, and what is known of many items at once.

mod life;
mod rule;
mod census;
mod spread;
mod lanes;

pub use census::{Census, HEAVY_LEAST, Tally, is_heavy};
pub use life::Life;
pub use rule::{DefaultMillis, Glance, Judge, Judges, Settings, stored_ttl_until, ttl_millis};
pub use spread::{Spread, Spreads};
