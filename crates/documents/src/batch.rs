//! Transactional batches.

use crate::document::Document;
use crate::error::Result;
use crate::etag::Conditions;
use crate::patch::Patch;

/// One operation of a batch.
#[derive(Clone, Debug)]
pub enum BatchOperation {
    /// Creates a document.
    Create(Vec<u8>),
    /// Writes a document, whether it is there or not.
    Upsert(Vec<u8>, Conditions),
    /// Replaces the document of this id.
    Replace(String, Vec<u8>, Conditions),
    /// Reads a document.
    Read(String, Conditions),
    /// Deletes a document.
    Delete(String, Conditions),
    /// Patches a document.
    Patch(String, Patch, Conditions),
}

/// The result of one operation.
#[derive(Clone, Debug)]
pub struct BatchResult {
    /// The status of HTTP: 200, 201, 204, that of the error, or 424 where another operation failed.
    pub status: u16,
    /// The sub-status of the error, or 0.
    pub sub_status: u32,
    /// The document that was read or written.
    pub document: Option<Document>,
    /// The error's sentence.
    pub message: Option<String>,
}

impl BatchOperation {
    /// The operations of the body of a batch request.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn from_json(json: &[u8]) -> Result<Vec<BatchOperation>> {
        let _ = json;
        todo!()
    }
}
