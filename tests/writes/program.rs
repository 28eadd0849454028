//! Writes: batches, conditions, transactions, commands, loads, quotas, indexes.

mod batches;
mod bulk;
mod conditions;
mod expire;
mod get_with;
mod indexed;
mod indexed_histories;
mod lifetimes;
mod put_if;
mod quota;
mod quota_histories;
mod ranges;
mod transaction_calls;
mod transaction_histories;
mod transactions;
