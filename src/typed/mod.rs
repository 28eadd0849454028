//! Typed containers: keys and values of the program's own types, over a [`Container`](crate::Container) of bytes.
//!
//! ```text
//! TypedContainer, TypedView     container.rs, view.rs   the methods of the container that each stands on
//! TypedBatch                    batch.rs                writes of a batch
//! TypedTransaction              transaction.rs          the methods of the container, in a transaction
//! TypedChanges, TypedExpirations  feeds.rs              what changes, and what expires
//! TypedKey                      key.rs                  keys as bytes, in the same order
//! TypedValue, Json              value.rs                values as bytes
//! ```
//!
//! Invariants:
//!
//! 1. This is a layer over the public face alone: it keeps no state, and what it stores is an item like any other.
//! 2. The bytes of a key and the key say the same: each key has one spelling, and the order of bytes is the order of keys. So
//!    a range of keys is a range of bytes.
//! 3. Stored bytes that are no key or value of the type are an error that names the container and the key; nothing that was
//!    called for is done by half.

pub mod key;
pub mod value;
pub mod item;
pub mod read;
pub mod write;
pub mod container;
mod get_with;
pub mod view;
pub mod batch;
pub mod transaction;
pub mod feeds;
