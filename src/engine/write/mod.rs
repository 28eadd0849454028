//! Writes: admission, preparation, what a write relies on, the commit, conditions, transactions, changes of what containers are, bulk
//! loads, quotas, and the time where the program gives it.

pub mod admit;
pub mod writes;
pub mod prepared;
pub mod deciding;
pub mod observed;
pub mod state_changes;
pub mod replaced;
pub mod seal;
pub mod commit;
pub mod update;
pub mod upsert;
pub mod differing;
pub mod conditional;
pub mod read_set;
pub mod transaction;
pub mod create;
pub mod quota;
pub mod bulk;
pub mod given_time;
