//! Items that a scan lends: places in bytes that are held together, so an item costs neither a reference count nor an
//! allocation.
//!
//! ```text
//! owners   block 17 of a run | a block of another run | a large value ...
//! copied   key | value | key | key | value ...                 from memtables, and the keys of large values
//! places   (owner 1, 40..56..156)  (owner 2, 9..25..125)  (copied, 0..16..116)  (owner 3, key in copied) ...
//! ```

use bytes::Bytes;

use crate::base::Seq;
use crate::base::record::MAX_VALUE_LEN;
use crate::data::item::Pair;
use crate::expiry::ExpiryView;

/// Longer keys and values of memtables are held, not copied.
const COPY_MOST: usize = 512;

/// What is known to be shown, without a look at each record.
#[derive(Clone, Debug)]
pub struct LendView {
    /// Later writes are not seen.
    pub max: Seq,
    /// With settings of now, at a moment that is no earlier than now: what is live by it is shown.
    pub later: ExpiryView,
    /// The number of this call among those of its scan: answers that hold for one call are kept under it.
    pub call: u64,
}

/// What a call that lends asks a source for.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// What is known to be shown.
    pub view: &'a LendView,
    /// The last key that was decided about: older versions of it are not shown.
    pub decided: &'a [u8],
    /// Only smaller keys (in backward iteration, only greater ones).
    pub bound: Option<&'a [u8]>,
    /// Unread records that may hide others are older than this.
    pub above: Seq,
}

/// Where a source stands after it lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It lent nothing, and has not moved: what it is on must be looked at.
    Same,
    /// On the last record that was decided about.
    OnLast,
    /// On the record after that one.
    Behind,
}

impl Stand {
    /// Where a source stands that is not on a record that was decided about.
    #[inline]
    pub fn behind(has_moved: bool) -> Stand {
        match has_moved {
            true => Stand::Behind,
            false => Stand::Same,
        }
    }
}

/// An item: `key_at..value_at` is its key, `value_at..end` its value.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// 0: copied. Otherwise one more than the index of the owner.
    owner: u32,
    key_at: u32,
    value_at: u32,
    /// [`APART`], which is in no bytes: the owner is the value, and the key is copied.
    end: u32,
}

const APART: u32 = u32::MAX;

/// The items of a call, in the order in which they were reached.
#[derive(Debug, Default)]
pub struct Lent {
    owners: Vec<Bytes>,
    copied: Vec<u8>,
    places: Vec<Place>,
    /// The bytes of keys and values.
    bytes: usize,
    most: usize,
    full_bytes: usize,
}

impl Lent {
    /// Empties it, for a call that lends up to `most` items, or as many as bring keys and values to `full_bytes`.
    pub fn begin(&mut self, most: usize, full_bytes: usize) {
        self.owners.clear();
        self.copied.clear();
        self.places.clear();
        self.bytes = 0;
        (self.most, self.full_bytes) = (most, full_bytes);
    }

    /// The number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether nothing more is to be added.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.places.len() >= self.most || self.bytes >= self.full_bytes
    }

    /// Key and value of the last item.
    #[inline]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.get(self.places.len().checked_sub(1)?)
    }

    /// Key and value of an item.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let place = self.places.get(index)?;
        let (key_at, value_at) = (place.key_at as usize, place.value_at as usize);
        let owner = match self.owners.get((place.owner as usize).wrapping_sub(1)) {
            Some(owner) => &owner[..],
            None => &self.copied[..],
        };
        match owner.get(key_at..place.end as usize) {
            Some(piece) => piece.split_at_checked(value_at - key_at),
            None => Some((self.copied.get(key_at..value_at)?, owner)),
        }
    }

    /// Holds these bytes; returns the number by which [`Lent::push`] knows them.
    pub fn hold(&mut self, bytes: Bytes) -> u32 {
        self.owners.push(bytes);
        self.owners.len() as u32
    }

    /// Adds an item in the bytes that `owner` is the number of: the key begins at `key_at`, the value behind it.
    #[inline(always)]
    pub fn push(&mut self, owner: u32, key_at: usize, value_at: usize, end: usize) {
        debug_assert!(key_at < value_at && value_at <= end && end < APART as usize);
        self.bytes += end - key_at;
        self.places.push(Place {
            owner,
            key_at: key_at as u32,
            value_at: value_at as u32,
            end: end as u32,
        });
    }

    /// Takes back all items but so many.
    pub fn forget_from(&mut self, index: usize) {
        while self.places.len() > index {
            let item = self.last();
            self.bytes -= item.map_or(0, |(key, value)| key.len() + value.len());
            self.places.pop();
        }
    }

    /// Adds an item that was read whole.
    pub fn push_pair(&mut self, pair: Pair) {
        let key_len = pair.key().len();
        match pair.into_piece() {
            Ok(piece) if piece.len() > COPY_MOST => {
                let end = piece.len();
                let owner = self.hold(piece);
                self.push(owner, 0, key_len, end);
            }
            Ok(piece) => self.copy(&piece[..key_len], &piece[key_len..]),
            Err((key, value)) => self.push_apart(&key, value),
        }
    }

    fn copy(&mut self, key: &[u8], value: &[u8]) {
        let at = self.copied.len();
        self.copied.extend_from_slice(key);
        self.copied.extend_from_slice(value);
        self.push(0, at, at + key.len(), at + key.len() + value.len());
    }

    /// Adds an item whose value is all of `value`.
    fn push_apart(&mut self, key: &[u8], value: Bytes) {
        const { assert!(MAX_VALUE_LEN < APART as usize) };
        let key_at = self.copied.len() as u32;
        self.copied.extend_from_slice(key);
        self.bytes += key.len() + value.len();
        let owner = self.hold(value);
        self.places.push(Place {
            owner,
            key_at,
            value_at: self.copied.len() as u32,
            end: APART,
        });
    }
}
