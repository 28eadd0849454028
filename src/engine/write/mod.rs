//! Writes: admission, preparation, the reads that a write relies on, the commit, conditions, transactions, changes of
//! settings, bulk loads, quotas.

pub mod admit;
pub mod writes;
pub mod prepared;
pub mod observed;
pub mod settings;
pub mod commit;
pub mod update;
pub mod conditional;
pub mod read_set;
pub mod create;
pub mod quota;
pub mod bulk;
