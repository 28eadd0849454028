//! Databases of containers of JSON documents over an [Ebbtide](ebbtide) database, by the rules of Azure Cosmos DB.
//!
//! Imports point up: a module imports from those above its own `mod` line.

mod error;
mod resource_id;
mod etag;
mod partition_key;
mod definition;
mod document;
mod patch;
pub mod query;
mod batch;
mod page;
mod feed;
mod container;
mod documents;

pub use batch::{BatchOperation, BatchResult};
pub use container::Container;
pub use definition::{ContainerDefinition, Indexing, IndexingMode};
pub use document::Document;
pub use documents::{DatabaseInfo, Documents};
pub use error::{Error, ErrorKind, Result};
pub use etag::{Conditions, Etag};
pub use feed::{ChangeFeedPage, ChangeStart, ChangeStartAt, End, EndsPage};
pub use page::{Continuation, Page, QueryPage, Scope};
pub use partition_key::{PartitionKey, PartitionKeyPart};
pub use patch::{Patch, PatchOperation};
pub use query::QueryLimits;
pub use resource_id::ResourceId;
