//! Lists and their pages.

use crate::document::Document;
use crate::partition_key::PartitionKey;

/// The documents that a list or query reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// A partition key or a prefix of it; without parts: all.
    pub partition_key: PartitionKey,
    /// The beginning of the ids, where the partition key is whole.
    pub id_prefix: String,
}

impl Scope {
    /// All documents of the container.
    #[must_use]
    pub fn everything() -> Scope {
        Scope::default()
    }

    /// Those of a partition key, or of a prefix of one.
    #[must_use]
    pub fn partition(partition_key: PartitionKey) -> Scope {
        Scope {
            partition_key,
            id_prefix: String::new(),
        }
    }
}

/// Where a list or query goes on: plain data, to be stored by any format of serde.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Continuation {
    pub(crate) after: String,
    pub(crate) skip: u64,
    pub(crate) emitted: u64,
}

/// A page of documents, in the order of partition keys and ids.
#[derive(Clone, Debug)]
pub struct Page {
    /// The documents.
    pub documents: Vec<Document>,
    /// Where the next page goes on; `None` at the end.
    pub continuation: Option<Continuation>,
}

/// A page of rows of a query.
#[derive(Clone, Debug)]
pub struct QueryPage {
    /// The rows as JSON.
    pub rows: Vec<String>,
    /// Where the next page goes on; `None` at the end.
    pub continuation: Option<Continuation>,
}
