//! The bytes of a record in memory for longer than a borrow: copied, or with the memtable that holds them.
//!
//! Invariant: kept bytes hold the owner of their record's arena.

#![allow(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;

use super::arena::Stored;
use crate::base::{Error, Result as Answer};

/// Up to this length a copy is faster than keeping the owner alive.
const COPY_LEAST: usize = 512;
/// Keeping the owner alive keeps all of its memory. So bytes up to this fraction (1/64) of its full size are
/// copied: then held memory is never many times what was asked for.
const COPY_SHARE: usize = 64;

/// The bytes of a record in the arena of an owner that is expected to grow to so many bytes.
///
/// # Safety
/// The record's arena lives as long as this owner.
pub unsafe fn keep<T: Send + Sync + 'static>(
    owner: &Arc<T>,
    bytes_max: usize,
    stored: Stored<'_>,
    part: PartOf,
) -> Answer<Bytes> {
    let bytes = part(stored);
    if bytes.len() <= COPY_LEAST {
        return Ok(Bytes::copy_from_slice(bytes));
    }
    if bytes.len() <= bytes_max / COPY_SHARE {
        let mut copy = vec![];
        copy.try_reserve_exact(bytes.len())
            .map_err(|_| Error::out_of_memory(bytes.len()))?;
        copy.extend_from_slice(bytes);
        return Ok(copy.into());
    }
    // SAFETY: by the caller's promise the record lives as long as the owner, which `Kept` holds, and lends no longer than
    // itself.
    let stored = unsafe { stored.detach() };
    Ok(Bytes::from_owner(Kept {
        stored,
        part,
        _owner: owner.clone(),
    }))
}

/// A part of a record.
pub type PartOf = for<'a> fn(Stored<'a>) -> &'a [u8];

struct Kept<T> {
    stored: Stored<'static>,
    part: PartOf,
    _owner: Arc<T>,
}

impl<T> AsRef<[u8]> for Kept<T> {
    fn as_ref(&self) -> &[u8] {
        (self.part)(self.stored)
    }
}
