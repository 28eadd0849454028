//! Documents.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::{Bytes, Item, Version};
use twox_hash::XxHash3_64;

use crate::error::{Error, ErrorKind, Result};
use crate::partition_key::{ItemKey, encoded_len};
use crate::resource_id::ResourceId;

/// A document as it was written, and what the engine knows of it.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// The write that it is of: its etag.
    pub version: Version,
    /// When it was written, to the millisecond; `_ts` is this in seconds.
    pub written_at: SystemTime,
    /// When it expires, by the settings of now.
    pub expires_at: Option<SystemTime>,
    pub(crate) container: ResourceId,
    pub(crate) key: ItemKey,
    pub(crate) body: Bytes,
}

impl Document {
    /// The document that an item of a container with so many partition key paths is.
    pub(crate) fn of_item(item: Item, container: ResourceId, paths: usize) -> Result<Document> {
        let (key, id) = (
            ItemKey::from_slice(item.key()),
            id_in(item.key(), paths)?.to_owned(),
        );
        Ok(Document::of_key(item, container, key, id))
    }

    /// The same of an item of which key and id are known.
    pub(crate) fn of_key(item: Item, container: ResourceId, key: ItemKey, id: String) -> Document {
        Document {
            id,
            version: item.version(),
            written_at: item.written_at(),
            expires_at: item.expires_at(),
            container,
            key,
            body: item.into_value().into_bytes(),
        }
    }

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
        rid_of(self.container, &self.key)
    }

    /// Its `_ts`: when it was written, in whole seconds since 1970, rounded down.
    #[must_use]
    pub fn ts(&self) -> u64 {
        seconds(self.written_at)
    }

    /// Its `_self`.
    #[must_use]
    pub fn self_link(&self) -> String {
        let (container, document) = (self.container, self.rid());
        let database = container.database();
        format!("dbs/{database}/colls/{container}/docs/{document}/")
    }

    /// Appends the JSON with `_rid`, `_self`, `_etag`, `_attachments` and `_ts` at its end.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let body = self.body.trim_ascii();
        let inner = body.strip_suffix(b"}").unwrap_or(body).trim_ascii_end();
        out.reserve(inner.len() + 256);
        out.extend_from_slice(inner);
        if !inner.ends_with(b"{") {
            out.push(b',');
        }
        let (rid, link, version, ts) = (self.rid(), self.self_link(), self.version, self.ts());
        let written = write!(
            out,
            "\"_rid\":\"{rid}\",\"_self\":\"{link}\",\"_etag\":\"\\\"{version}\\\"\",\"_attachments\":\"attachments/\",\"_ts\":{ts}}}"
        );
        written.expect("memory takes all that is written");
    }

    /// The JSON with system properties.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = vec![];
        self.write_json(&mut json);
        String::from_utf8(json).expect("a body was checked when it was written")
    }
}

/// The id at the end of an item's key.
pub fn id_in(key: &[u8], paths: usize) -> Result<&str> {
    let id = encoded_len(key, paths).and_then(|at| std::str::from_utf8(&key[at..]).ok());
    id.ok_or_else(|| {
        let key = key.escape_ascii();
        Error::new(
            ErrorKind::InternalServerError,
            format!("The item b\"{key}\" is no document: something else wrote it."),
        )
    })
}

/// The resource id of the document of this key. The highest four bits of its last byte are those that Cosmos DB gives
/// documents, by which its clients tell them from other resources.
pub fn rid_of(container: ResourceId, key: &[u8]) -> ResourceId {
    let mut own = XxHash3_64::oneshot(key).to_le_bytes();
    own[7] &= 0x0f;
    container.child(&own)
}

/// Whole seconds since 1970.
pub fn seconds(moment: SystemTime) -> u64 {
    moment
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
