//! Cursors: read a range in chunks of borrowed items, in both directions.
//!
//! ```text
//! keys of the range      a   b   c   d   e   f
//! a cursor stands in a gap         ^               seek("d"), or after b and c were handed out
//! next_chunk                         d   e ..      and the gap moves behind what was handed out
//! prev_chunk               ..  b   c               last one first; the gap moves before it
//! ```
//!
//! Invariants:
//!
//! 1. The gap is one key (or the end of all keys): smaller keys are before the gap, all others after it. It moves only
//!    when a chunk is returned or by a seek, so an error leaves the cursor where it was.
//! 2. An open scan is over the rest of the range in its direction; a seek or a change of direction drops it.
//! 3. Items are taken from the scan in the call that returns them, and so judged in it; none is kept for the next call.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "tokio")]
use crate::base::Patience;
use crate::base::{Result, Wait};
use crate::data::batch::KeyRange;
#[cfg(feature = "tokio")]
use crate::data::item::Item;
use crate::data::lend::lent::{Lent, LentIter};
use crate::engine::{ContainerState, Handle, ReadPoint, Scan, SnapshotPin};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forwards,
    Backwards,
}

impl Direction {
    /// The gap behind an item, in this direction.
    fn gap_behind(self, key: &[u8]) -> Vec<u8> {
        match self {
            Direction::Forwards => [key, &[0]].concat(),
            Direction::Backwards => key.to_vec(),
        }
    }
}

/// A position in a range of a container, between two items. It lends the items after it or before it, a chunk at a
/// time.
///
/// It sees the writes from before the cursor was created, or before its snapshot was taken, and none later. Which items
/// are live is judged when their chunk is returned.
///
/// ```
/// use ebbtide::Database;
///
/// let folder = tempfile::tempdir()?;
/// let words = Database::open(folder.path())?.container("words")?;
/// ["ant", "bee", "cat", "dog"].iter().try_for_each(|word| words.put(word, "1"))?;
///
/// let mut cursor = words.cursor(..);
/// cursor.seek("b");
/// let mut seen = vec![];
/// while let Some(chunk) = cursor.next_chunk()? {
///     seen.extend(chunk.iter().map(|(key, _)| key.to_vec())); // lent: what is to stay is copied
/// }
/// assert_eq!(seen, [b"bee", b"cat", b"dog"]);
/// let chunk = cursor.prev_chunk()?.unwrap(); // back again, last one first
/// assert_eq!(chunk.iter().next(), Some((&b"dog"[..], &b"1"[..])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "items are read when they are asked for"]
pub struct Cursor {
    range: KeyRange,
    /// Its position; `None` for the end of all keys.
    gap: Option<Vec<u8>>,
    scan: Option<(Direction, Scan)>,
    /// The last chunk.
    lent: Lent,
    state: Arc<ContainerState>,
    pin: Arc<SnapshotPin>,
    engine: Handle,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("container", &self.state.name())
            .finish_non_exhaustive()
    }
}

impl Cursor {
    pub(crate) fn new(
        engine: &Handle,
        (state, pin): (&Arc<ContainerState>, Option<&Arc<SnapshotPin>>),
        range: KeyRange,
    ) -> Cursor {
        let pin = match pin {
            Some(pin) => pin.clone(),
            None => Arc::new(engine.snapshot()),
        };
        Cursor {
            gap: Some(range.from.clone()),
            range,
            scan: None,
            lent: Lent::default(),
            state: state.clone(),
            pin,
            engine: engine.clone(),
        }
    }

    /// Goes before the first item whose key is at or above this one: [`Cursor::next_chunk`] starts with that item, and
    /// [`Cursor::prev_chunk`] with the one before it. A key below the range means its start, one above it its end.
    /// Reads nothing.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.stand(Some(key.as_ref().to_vec()));
    }

    /// Goes after the last item of the range.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let words = Database::open(folder.path())?.container("words")?;
    /// ["ant", "bee", "cat"].iter().try_for_each(|word| words.put(word, ""))?;
    /// let mut cursor = words.cursor(.."c");
    /// cursor.seek_to_end();
    /// let last = cursor.prev_chunk()?.unwrap();
    /// assert_eq!(last.iter().next(), Some((&b"bee"[..], &b""[..])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seek_to_end(&mut self) {
        self.stand(None);
    }

    /// Goes anywhere in the range.
    fn stand(&mut self, gap: Option<Vec<u8>>) {
        let gap = match (gap, &self.range.to) {
            (Some(gap), Some(to)) => Some(gap.min(to.clone())),
            (gap, to) => gap.or_else(|| to.clone()),
        };
        self.gap = gap.map(|gap| gap.max(self.range.from.clone()));
        self.scan = None;
    }

    /// The next items, in the order of keys: as many as fit in a chunk, or `None` if none is left in the range. Each of
    /// them was live at a moment of this call.
    ///
    /// # Errors
    /// Damage or a failed read of a file, or a closed handle. The cursor stays where it was.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk<'_>>> {
        self.chunk(Direction::Forwards)
    }

    /// Like [`Cursor::next_chunk`], for the items before, the last one first.
    pub fn prev_chunk(&mut self) -> Result<Option<Chunk<'_>>> {
        self.chunk(Direction::Backwards)
    }

    fn chunk(&mut self, direction: Direction) -> Result<Option<Chunk<'_>>> {
        let mut scan = self.take_scan(direction)?;
        match direction {
            Direction::Forwards => scan.lend_next(&mut self.lent)?,
            Direction::Backwards => scan.lend_next_back(&mut self.lent)?,
        }
        self.scan = Some((direction, scan));
        let Some((last, _)) = self.lent.last() else {
            return Ok(None);
        };
        self.gap = Some(direction.gap_behind(last));
        Ok(Some(Chunk { lent: &self.lent }))
    }

    /// A scan in this direction, to be put back only on success: a failed one cannot continue.
    fn take_scan(&mut self, direction: Direction) -> Result<Scan> {
        match self.scan.take() {
            Some((its, scan)) if its == direction => Ok(scan),
            _ => self.scan_from_gap(direction),
        }
    }

    fn scan_from_gap(&self, direction: Direction) -> Result<Scan> {
        let (range, gap) = (&self.range, &self.gap);
        let left = match direction {
            Direction::Forwards => KeyRange {
                // Nothing is after the end of all keys.
                from: gap.clone().unwrap_or_default(),
                to: gap.as_ref().map_or(Some(vec![]), |_| range.to.clone()),
            },
            Direction::Backwards => KeyRange {
                from: range.from.clone(),
                to: gap.clone(),
            },
        };
        let point = ReadPoint::<Wait>::new(&self.engine, &self.state, Some(&self.pin))?;
        Ok(point.scan(&self.engine, left))
    }
}

/// Judges again the items that a cursor read before.
#[cfg(feature = "tokio")]
pub struct Judge {
    state: Arc<ContainerState>,
    engine: Handle,
}

#[cfg(feature = "tokio")]
impl Judge {
    /// Whether the item is still live.
    pub fn is_live<P: Patience>(&self, item: &Item) -> Result<bool, P::Failure> {
        self.engine.is_live::<P>(&self.state, item)
    }
}

/// For a cursor that is moved between threads, and whose items are handed out one by one.
#[cfg(feature = "tokio")]
impl Cursor {
    /// Goes to where this direction begins.
    pub(crate) fn begin(&mut self, is_backwards: bool) {
        self.stand((!is_backwards).then(Vec::new));
    }

    /// The items that [`Cursor::next_chunk`] would lend, or [`Cursor::prev_chunk`]; none if none is left.
    pub(crate) fn items(&mut self, is_backwards: bool) -> Result<Vec<Item>> {
        let direction = match is_backwards {
            true => Direction::Backwards,
            false => Direction::Forwards,
        };
        let mut scan = self.take_scan(direction)?;
        let items = scan.chunk_of_items(is_backwards)?;
        self.scan = Some((direction, scan));
        if let Some(last) = items.last() {
            self.gap = Some(direction.gap_behind(last.key()));
        }
        Ok(items)
    }

    /// A judge of the items that it reads.
    pub(crate) fn judge(&self) -> Judge {
        Judge {
            state: self.state.clone(),
            engine: self.engine.clone(),
        }
    }
}

/// Items that a [`Cursor`] lends until its next call.
#[derive(Clone, Copy)]
pub struct Chunk<'a> {
    lent: &'a Lent,
}

impl fmt::Debug for Chunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Chunk<'a> {
    /// The number of items: at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.lent.len()
    }

    /// Keys and values, in the order of the cursor's direction.
    pub fn iter(&self) -> ChunkIter<'a> {
        ChunkIter {
            items: self.lent.iter(),
        }
    }
}

impl<'a> IntoIterator for Chunk<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = ChunkIter<'a>;

    fn into_iter(self) -> ChunkIter<'a> {
        self.iter()
    }
}

/// The keys and values of a [`Chunk`].
#[derive(Clone)]
#[must_use = "an iterator does nothing by itself"]
pub struct ChunkIter<'a> {
    items: LentIter<'a>,
}

impl fmt::Debug for ChunkIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkIter")
            .field("left", &self.items.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Iterator for ChunkIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.items.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, f: F) -> B {
        self.items.fold(init, f)
    }
}

impl DoubleEndedIterator for ChunkIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.items.next_back()
    }
}

impl ExactSizeIterator for ChunkIter<'_> {}

impl std::iter::FusedIterator for ChunkIter<'_> {}
