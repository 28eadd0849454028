//! Documents.

use std::time::SystemTime;

use ebbtide::{Bytes, Version};

use crate::resource_id::ResourceId;

/// A document as it was written, and what the engine knows of it.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Which write it was: its etag.
    pub version: Version,
    /// When it was written, to the millisecond; `_ts` is this in seconds.
    pub written_at: SystemTime,
    /// When it expires, by the settings of now.
    pub expires_at: Option<SystemTime>,
    pub(crate) container: ResourceId,
    pub(crate) key: Bytes,
    pub(crate) body: Bytes,
}

impl Document {
    /// The JSON as it was written, without system properties.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Its etag, with quotation marks.
    #[must_use]
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.version)
    }

    /// Its `_rid`.
    #[must_use]
    pub fn rid(&self) -> ResourceId {
        todo!()
    }

    /// Its `_ts`.
    #[must_use]
    pub fn ts(&self) -> u64 {
        todo!()
    }

    /// Its `_self`.
    #[must_use]
    pub fn self_link(&self) -> String {
        todo!()
    }

    /// Appends the JSON with `_rid`, `_self`, `_etag`, `_attachments` and `_ts`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }

    /// The JSON with system properties.
    #[must_use]
    pub fn to_json(&self) -> String {
        todo!()
    }
}
