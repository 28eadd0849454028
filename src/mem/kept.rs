//! The bytes of a record in memory for longer than a borrow: copied, or with the memtable that holds them.

#![allow(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;

use super::arena::Stored;
use super::tree::Tree;
use crate::base::{Error, Result as Answer};

/// Up to this length a copy is faster than keeping the tree alive.
const COPY_LEAST: usize = 512;
/// Keeping the tree alive keeps all of its memory. So bytes up to this fraction (1/64) of the tree's full size are
/// copied: then held memory is never many times what was asked for.
const COPY_SHARE: usize = 64;

/// The bytes of a record in `tree`.
///
/// # Safety
/// The record is in the arena of this tree.
pub unsafe fn keep(tree: &Arc<Tree>, stored: Stored<'_>, part: PartOf) -> Answer<Bytes> {
    let bytes = part(stored);
    if bytes.len() <= COPY_LEAST {
        return Ok(Bytes::copy_from_slice(bytes));
    }
    if bytes.len() <= tree.bytes_max() / COPY_SHARE {
        let mut copy = vec![];
        copy.try_reserve_exact(bytes.len())
            .map_err(|_| Error::out_of_memory(bytes.len()))?;
        copy.extend_from_slice(bytes);
        return Ok(copy.into());
    }
    // SAFETY: `Kept` holds the tree as long as the record, by the caller's promise, and lends it no longer than itself.
    let stored = unsafe { stored.detach() };
    Ok(Bytes::from_owner(Kept {
        stored,
        part,
        _tree: tree.clone(),
    }))
}

/// Which bytes of a record.
pub type PartOf = for<'a> fn(Stored<'a>) -> &'a [u8];

struct Kept {
    stored: Stored<'static>,
    part: PartOf,
    _tree: Arc<Tree>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        (self.part)(self.stored)
    }
}
