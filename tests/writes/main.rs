//! Writes: batches, conditions, transactions, commands, loads, quotas.

mod batches;
mod bulk;
mod conditions;
mod expire;
mod get_with;
mod lifetimes;
mod quota;
mod quota_histories;
mod ranges;
mod transaction_calls;
mod transaction_histories;
mod transactions;
