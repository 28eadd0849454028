//! Secondary indexes: containers whose items can be found by something else than their key, over the public face alone.
//!
//! ```text
//! IndexedContainer        container.rs     items and indexes; the builder
//! its methods             write.rs         each write is a transaction of one call
//! IndexedTransaction      transaction.rs   writes of items with their entries
//! Index                   lookup.rs        items by index key
//!                         upkeep.rs        the state of an index, its default ttl, building it
//!                         entry.rs         entries as keys and values
//!
//! sessions        s-1 -> ada               written at t, ttl 30 m
//! sessions#user   ada 0 1 s-1 -> nothing   written at t, ttl 30 m      one batch, so one end
//! ```
//!
//! Invariants:
//!
//! 1. A live item that was written through the helper has an entry for each of its index keys, with the item's `written_at`
//!    and ttl, in a container with the same default. So both end in the same millisecond, whatever ends them. transaction.rs tells
//!    of one exception.
//! 2. A lookup believes no entry: it reads the item, at the same moment, and asks the index function again. So an entry
//!    without its item, as writes past the helper leave some, costs time and no answer.
//! 3. An index answers once its stored state is the one that its definition and the items' default ask for. If it is not,
//!    as in a new index, or when the items' default was changed past the helper, the first call builds it.
//! 4. Nothing is kept in memory but the lock that lets one thread of a handle build. Two handles on one index agree.

pub mod entry;
pub mod container;
pub mod transaction;
pub mod write;
pub mod upkeep;
pub mod lookup;
