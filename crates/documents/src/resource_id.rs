//! Resource ids.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64;

use crate::error::{Error, Result};

/// The `_rid` of a database (4 bytes), a container (8) or a document (16): those of a container begin with those of its
/// database. As text it is base64 with `-` for `/`, as Cosmos DB writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    bytes: [u8; 16],
    len: u8,
}

impl ResourceId {
    /// From 4, 8 or 16 bytes.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): another number of bytes.
    pub fn from_bytes(from: &[u8]) -> Result<ResourceId> {
        if !matches!(from.len(), 4 | 8 | 16) {
            let message = format!("A resource id has 4, 8 or 16 bytes, not {}.", from.len());
            return Err(Error::bad_request(message));
        }
        let mut bytes = [0; 16];
        bytes[..from.len()].copy_from_slice(from);
        let len = from.len() as u8;
        Ok(ResourceId { bytes, len })
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// That of its database.
    #[must_use]
    pub fn database(&self) -> ResourceId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.bytes[..4]);
        ResourceId { bytes, len: 4 }
    }

    /// Of a container in this database, or of a document in this container: its bytes and these.
    pub(crate) fn child(&self, own: &[u8]) -> ResourceId {
        let parent = usize::from(self.len);
        let mut bytes = self.bytes;
        bytes[parent..parent + own.len()].copy_from_slice(own);
        let len = self.len + own.len() as u8;
        ResourceId { bytes, len }
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = BASE64.encode(self.as_bytes()).replace('/', "-");
        f.write_str(&text)
    }
}

impl FromStr for ResourceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<ResourceId> {
        let bytes = BASE64
            .decode(text.replace('-', "/").as_bytes())
            .map_err(|_| Error::bad_request(format!("{text:?} is no resource id.")))?;
        ResourceId::from_bytes(&bytes)
    }
}
