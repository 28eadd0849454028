//! Databases of containers of JSON documents over an [Ebbtide](ebbtide) database, by the rules of Azure Cosmos DB: a document's
//! `ttl` and a container's `defaultTtl`, etags, partition keys, patches, transactional batches, queries, a change feed. A
//! library, in one process with the program: no server, and nothing to wait for but the disk.
//!
//! ```
//! use std::time::Duration;
//! use ebbtide::{ManualClock, Options};
//! use ebbtide_documents::{ContainerDefinition, Documents, PartitionKey};
//!
//! let clock = ManualClock::new(1_800_000_000_000);
//! let documents = Documents::with(Options::new().clock(clock.clone()).open_temporary()?)?;
//! documents.create_database("site")?;
//! let definition = br#"{"id": "sessions", "partitionKey": {"paths": ["/user"]}, "defaultTtl": 1800}"#;
//! let sessions = documents.create_container("site", ContainerDefinition::from_json(definition)?)?;
//!
//! let ada = PartitionKey::from("ada");
//! sessions.create(&ada, br#"{"id": "s-1", "user": "ada"}"#)?; // lives for the container's 1 800 seconds
//! sessions.create(&ada, br#"{"id": "s-2", "user": "ada", "ttl": 60}"#)?;
//! clock.advance(Duration::from_secs(60));
//! assert_eq!(sessions.read(&ada, "s-2").unwrap_err().status(), 404);
//! assert_eq!(sessions.read_and_touch(&ada, "s-1")?.ts(), 1_800_000_060);
//! assert!(sessions.create(&ada, br#"{"id": "s-3", "user": "ada", "ttl": 0}"#).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Time to live
//!
//! | `ttl` | `defaultTtl` missing or null | `defaultTtl` -1 | `defaultTtl` n |
//! | --- | --- | --- | --- |
//! | missing | never expires | never expires | n seconds after its last write |
//! | -1 | never expires | never expires | never expires |
//! | m | never expires; m counts once the container's is on | m seconds after its last write | m seconds after its last write |
//!
//! n and m are 1 to 2 147 483 647. Any other `ttl` is refused with 400, and nothing is stored. A document is gone for every
//! call in the millisecond in which it expires: it is not read, listed, queried or told of, a `create` of its id succeeds, and
//! no etag matches it. Another `defaultTtl` counts at once for all that is there; what has expired stays gone. Indexing mode
//! `none` and a `defaultTtl` do not go together; `lazy` is `consistent`.
//!
//! # What is stored
//!
//! A document is an item of the engine: its key is its partition key and id, its value the JSON as it was written, without
//! the system's members (`_rid`, `_self`, `_etag`, `_attachments`, `_ts`). No other byte changes: not the digits of a
//! number, nor the order of members. Its etag is the item's [`Version`](ebbtide::Version). A container of documents is a
//! container of the engine, named by its resource id; the catalog is the container `documents`, written in the same batch.
//!
//! Of each path that the container's `indexingPolicy` names, as `/customer/id/?`, there is an index: entries in another
//! container of the engine, written in the batch that writes the document, with its ttl. Queries use it for equality, ranges
//! and ORDER BY, and answer what they answer without it.
//!
//! # Other than in Cosmos DB
//!
//! * An upsert with If-Match of a document that is not there is 412, and does not create it.
//! * A list, and the rows of a query without ORDER BY, are in the order of partition keys and ids.
//! * No unique keys, stored procedures, triggers or user-defined functions.
//!
//! Nothing here is asynchronous; [`Container::try_read`], [`Container::try_create`] and
//! [`Container::try_upsert`] answer without waiting for the disk, or not at all.

mod error;
mod resource_id;
mod etag;
mod json;
mod partition_key;
mod key_range;
mod store;
mod body;
mod definition;
mod document;
pub mod query;
mod predicate;
mod patch;
mod last_pass;
mod catalog;
mod entry;
mod indexes;
mod container;
mod held;
mod upkeep;
mod write;
mod at_once;
mod typed;
mod batch;
mod page;
mod narrow;
mod reading;
mod lookup;
mod search;
mod feed;
mod index_changes;
mod documents;
mod databases;
mod handles;
mod records;

pub use batch::{BatchOperation, BatchResult};
pub use catalog::DatabaseInfo;
pub use container::Container;
pub use definition::{ContainerDefinition, Indexing, IndexingMode};
pub use document::Document;
pub use documents::Documents;
pub use error::{Error, ErrorKind, Result};
pub use etag::{Conditions, Etag};
pub use feed::{ChangeFeedPage, End, EndsPage};
pub use last_pass::{ChangeStart, ChangeStartAt};
pub use page::{Continuation, Page, Scope};
pub use partition_key::{PartitionKey, PartitionKeyPart};
pub use patch::{Patch, PatchOperation};
pub use query::QueryLimits;
pub use records::Records;
pub use resource_id::ResourceId;
pub use search::QueryPage;
pub use store::{Commit, Committed, ContainerSettings, Replica, Write};
