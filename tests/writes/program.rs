//! Writes: batches, conditions, transactions, commands, loads, quotas, indexes.

mod bank;
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
mod ranges;
mod transaction_calls;
mod transactions;
