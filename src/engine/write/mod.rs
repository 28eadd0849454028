//! Writes: admission, preparation, the commit with its conditions, transactions, changes of settings, bulk loads, quotas.

pub mod admit;
pub mod writes;
pub mod prepared;
pub mod commit;
pub mod conditional;
pub mod read_set;
pub mod create;
// Single writes and updates without waiting are for tasks alone.
#[cfg_attr(not(feature = "tokio"), allow(dead_code))]
pub mod at_once;
pub mod quota;
pub mod bulk;
