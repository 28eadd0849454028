//! Partition keys.

use crate::error::Result;

/// One level of a partition key.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionKeyPart {
    /// The document has no such member.
    Undefined,
    /// `null`.
    Null,
    /// `false` or `true`.
    Bool(bool),
    /// A number, as Cosmos DB has them: a double.
    Number(f64),
    /// A string.
    String(String),
}

/// The partition key of a document: as many parts as its container has paths. With fewer it is a prefix, which a
/// [`Scope`](crate::Scope) and a delete by partition key may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionKey {
    parts: Vec<PartitionKeyPart>,
}

impl PartitionKey {
    /// From its parts.
    #[must_use]
    pub fn new(parts: Vec<PartitionKeyPart>) -> PartitionKey {
        PartitionKey { parts }
    }

    /// From the JSON array of the header `x-ms-documentdb-partitionkey`; `{}` in it is undefined.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): no array of strings, numbers, booleans, nulls and `{}`.
    pub fn from_json(json: &str) -> Result<PartitionKey> {
        let _ = json;
        todo!()
    }

    /// As the header has it.
    #[must_use]
    pub fn to_json(&self) -> String {
        todo!()
    }

    /// Its parts.
    #[must_use]
    pub fn parts(&self) -> &[PartitionKeyPart] {
        &self.parts
    }

    /// Bytes that are ordered as Cosmos DB orders these types, and begin with those of each prefix.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }
}

impl From<&str> for PartitionKey {
    fn from(part: &str) -> PartitionKey {
        PartitionKey::new(vec![PartitionKeyPart::String(part.to_owned())])
    }
}
