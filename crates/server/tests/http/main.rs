//! The routes over a real socket, without an SDK.

mod batches;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod documents;
mod edges;
mod feeds;
mod killed;
mod operation;
mod page;
mod partitions;
mod queries;
mod ttl;
