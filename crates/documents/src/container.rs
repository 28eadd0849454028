//! A container of documents.

use std::sync::Arc;

use ebbtide::{AtOnce, ExpiryCursor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::batch::{BatchOperation, BatchResult};
use crate::definition::ContainerDefinition;
use crate::document::Document;
use crate::error::Result;
use crate::etag::Conditions;
use crate::feed::{ChangeFeedPage, ChangeStart, EndsPage};
use crate::page::{Continuation, Page, QueryPage, Scope};
use crate::partition_key::PartitionKey;
use crate::patch::Patch;
use crate::query::QueryLimits;
use crate::resource_id::ResourceId;

/// A container of documents. Clone: one more handle.
#[derive(Clone)]
pub struct Container {
    items: ebbtide::Container,
}

#[allow(unused_variables)]
impl Container {
    /// Its definition as of now.
    #[must_use]
    pub fn definition(&self) -> Arc<ContainerDefinition> {
        todo!()
    }

    /// Its `_rid`.
    #[must_use]
    pub fn rid(&self) -> ResourceId {
        todo!()
    }

    /// Its definition with system properties.
    #[must_use]
    pub fn to_json(&self) -> String {
        todo!()
    }

    /// The engine's container, which has the documents as items.
    #[must_use]
    pub fn items(&self) -> &ebbtide::Container {
        &self.items
    }

    /// The partition key of a document.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): it is no document.
    pub fn partition_key_of(&self, body: &[u8]) -> Result<PartitionKey> {
        todo!()
    }

    /// The id of the document of this `_rid`, by a search among the keys of its partition.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn id_of(&self, key: &PartitionKey, rid: &ResourceId) -> Result<String> {
        todo!()
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn read(&self, key: &PartitionKey, id: &str) -> Result<Document> {
        todo!()
    }

    /// As [`Container::read`], without waiting for the disk.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn try_read(&self, key: &PartitionKey, id: &str) -> Result<AtOnce<Document>> {
        todo!()
    }

    /// Reads a document and restarts its countdown; it gets a new version.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn read_and_touch(&self, key: &PartitionKey, id: &str) -> Result<Document> {
        todo!()
    }

    /// Restarts the countdown of a document.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`PreconditionFailed`](crate::ErrorKind::PreconditionFailed).
    pub fn touch(&self, key: &PartitionKey, id: &str, conditions: &Conditions) -> Result<Document> {
        todo!()
    }

    /// Creates a document.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict), [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn create(&self, key: &PartitionKey, body: &[u8]) -> Result<Document> {
        todo!()
    }

    /// Writes a document, whether it is there or not. True: it was not.
    ///
    /// # Errors
    /// [`PreconditionFailed`](crate::ErrorKind::PreconditionFailed), [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn upsert(
        &self,
        key: &PartitionKey,
        body: &[u8],
        conditions: &Conditions,
    ) -> Result<(Document, bool)> {
        todo!()
    }

    /// Replaces a document.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`PreconditionFailed`](crate::ErrorKind::PreconditionFailed),
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn replace(
        &self,
        key: &PartitionKey,
        id: &str,
        body: &[u8],
        conditions: &Conditions,
    ) -> Result<Document> {
        todo!()
    }

    /// Changes parts of a document.
    ///
    /// # Errors
    /// As [`Container::replace`].
    pub fn patch(
        &self,
        key: &PartitionKey,
        id: &str,
        patch: &Patch,
        conditions: &Conditions,
    ) -> Result<Document> {
        todo!()
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`PreconditionFailed`](crate::ErrorKind::PreconditionFailed).
    pub fn delete(&self, key: &PartitionKey, id: &str, conditions: &Conditions) -> Result<()> {
        todo!()
    }

    /// Does up to 100 operations on the documents of one partition key, all or none.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest), [`RequestEntityTooLarge`](crate::ErrorKind::RequestEntityTooLarge). An operation
    /// that is refused is no error of this call: its result says so, and that of all others is 424.
    pub fn batch(
        &self,
        key: &PartitionKey,
        operations: &[BatchOperation],
    ) -> Result<Vec<BatchResult>> {
        todo!()
    }

    /// Deletes the documents of a partition key, or of a prefix of one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn delete_partition(&self, key: &PartitionKey) -> Result<()> {
        todo!()
    }

    /// A page of up to `limit` documents.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): a continuation of something else.
    pub fn list(&self, scope: &Scope, limit: usize, from: Option<&Continuation>) -> Result<Page> {
        todo!()
    }

    /// A page of the rows of a query.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn query(
        &self,
        text: &str,
        parameters: &[(String, Value)],
        scope: &Scope,
        limits: &QueryLimits,
        from: Option<&Continuation>,
    ) -> Result<QueryPage> {
        todo!()
    }

    /// A page of up to `limit` documents in the order of their versions.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn changes(&self, from: &ChangeStart, limit: usize) -> Result<ChangeFeedPage> {
        todo!()
    }

    /// A page of up to `limit` documents that have expired.
    ///
    /// # Errors
    /// [`Gone`](crate::ErrorKind::Gone).
    pub fn ends(&self, from: &ExpiryCursor, limit: usize) -> Result<EndsPage> {
        todo!()
    }

    /// As [`Container::read`], as a value of Rust.
    ///
    /// # Errors
    /// Also [`BadRequest`](crate::ErrorKind::BadRequest): the document is none of these.
    pub fn read_as<T: DeserializeOwned>(&self, key: &PartitionKey, id: &str) -> Result<T> {
        todo!()
    }

    /// As [`Container::create`], of a value of Rust; its partition key is taken from it.
    ///
    /// # Errors
    /// Those of [`Container::create`].
    pub fn create_as<T: Serialize + ?Sized>(&self, value: &T) -> Result<Document> {
        todo!()
    }

    /// As [`Container::upsert`], of a value of Rust; its partition key is taken from it.
    ///
    /// # Errors
    /// Those of [`Container::upsert`].
    pub fn upsert_as<T: Serialize + ?Sized>(&self, value: &T) -> Result<(Document, bool)> {
        todo!()
    }

    /// All rows of a query, as values of Rust.
    ///
    /// # Errors
    /// Those of [`Container::query`].
    pub fn query_as<T: DeserializeOwned>(
        &self,
        text: &str,
        parameters: &[(String, Value)],
        scope: &Scope,
    ) -> Result<Vec<T>> {
        todo!()
    }
}
