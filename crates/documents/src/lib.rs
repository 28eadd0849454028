//! Databases of containers of JSON documents over an [Ebbtide](ebbtide) database, by the rules of Azure Cosmos DB.
//!
//! Imports point up: a module imports from those above its own `mod` line.

mod error;
mod resource_id;
mod etag;
mod json;
mod partition_key;
mod key_range;
mod body;
mod definition;
mod document;
pub mod query;
mod predicate;
mod patch;
mod last_pass;
mod container;
mod typed;
mod batch;
mod page;
mod narrow;
mod search;
mod feed;
mod documents;

pub use batch::{BatchOperation, BatchResult};
pub use container::Container;
pub use definition::{ContainerDefinition, Indexing, IndexingMode};
pub use document::Document;
pub use documents::{DatabaseInfo, Documents};
pub use error::{Error, ErrorKind, Result};
pub use etag::{Conditions, Etag};
pub use feed::{ChangeFeedPage, End, EndsPage};
pub use last_pass::{ChangeStart, ChangeStartAt};
pub use page::{Continuation, Page, Scope};
pub use partition_key::{PartitionKey, PartitionKeyPart};
pub use patch::{Patch, PatchOperation};
pub use query::QueryLimits;
pub use resource_id::ResourceId;
pub use search::QueryPage;
