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
use crate::base::AtOnce;
use crate::base::Result;
use crate::data::batch::KeyRange;
use crate::data::item::Item;
use crate::engine::{ContainerState, Engine, Handle, Reader, Scan, SnapshotPin};

/// The most items in a chunk: enough to make the cost of each call small per item.
const MOST_ITEMS: usize = 128;

/// A chunk ends with the item that brings its keys and values to this many bytes.
const FULL_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forwards,
    Backwards,
}

/// A position in a range of a container, between two items. It lends the items after it or before it, a chunk at a
/// time.
///
/// It sees what was written before the cursor was created, or before its snapshot was taken, and nothing later. Which
/// items are live is judged when their chunk is returned.
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
    items: Vec<Item>,
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
    pub(crate) fn new(engine: &Handle, reader: &Reader<'_>, range: KeyRange) -> Cursor {
        let pin = match reader.snapshot {
            Some(pin) => pin.clone(),
            None => Arc::new(engine.snapshot()),
        };
        Cursor {
            gap: Some(range.from.clone()),
            range,
            scan: None,
            items: vec![],
            state: reader.state.clone(),
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
        self.items.clear();
        // Put back only on success: a failed scan cannot continue.
        let mut scan = match self.scan.take() {
            Some((its, scan)) if its == direction => scan,
            _ => self.scan_from_gap(direction)?,
        };
        let mut bytes = 0;
        while self.items.len() < MOST_ITEMS && bytes < FULL_BYTES {
            let item = match direction {
                Direction::Forwards => scan.next(),
                Direction::Backwards => scan.next_back(),
            };
            let Some(item) = item.transpose()? else {
                break;
            };
            bytes += item.key().len() + item.value().len();
            self.items.push(item);
        }
        self.scan = Some((direction, scan));
        let Some(last) = self.items.last() else {
            return Ok(None);
        };
        self.gap = Some(match direction {
            Direction::Forwards => [last.key(), &[0]].concat(),
            Direction::Backwards => last.key().to_vec(),
        });
        Ok(Some(Chunk { items: &self.items }))
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
        let reader = Reader {
            state: &self.state,
            snapshot: Some(&self.pin),
        };
        Engine::scan(&self.engine, &reader, left)
    }
}

/// Judges again what a cursor read before.
#[cfg(feature = "tokio")]
pub struct Judge {
    state: Arc<ContainerState>,
    engine: Handle,
}

#[cfg(feature = "tokio")]
impl Judge {
    /// The item is live still.
    pub fn is_live(&self, item: &Item) -> bool {
        self.engine.is_live(&self.state, item)
    }

    /// The same without waiting.
    pub fn is_live_at_once(&self, item: &Item) -> AtOnce<bool> {
        self.engine.is_live_at_once(&self.state, item)
    }
}

/// For a cursor that is moved between threads, and whose items are handed out one by one.
#[cfg(feature = "tokio")]
impl Cursor {
    /// Goes to where this direction begins.
    pub(crate) fn begin(&mut self, is_backwards: bool) {
        self.stand((!is_backwards).then(Vec::new));
    }

    /// What [`Cursor::next_chunk`] lends, or [`Cursor::prev_chunk`]; nothing where nothing is left.
    pub(crate) fn items(&mut self, is_backwards: bool) -> Result<Vec<Item>> {
        match is_backwards {
            true => self.prev_chunk()?,
            false => self.next_chunk()?,
        };
        Ok(std::mem::take(&mut self.items))
    }

    /// For what it reads.
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
    items: &'a [Item],
}

impl fmt::Debug for Chunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.items).finish()
    }
}

impl<'a> Chunk<'a> {
    /// The number of items: at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Keys and values, in the order of the cursor's direction.
    pub fn iter(&self) -> ChunkIter<'a> {
        ChunkIter {
            items: self.items.iter(),
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
#[derive(Clone, Debug)]
#[must_use = "an iterator does nothing by itself"]
pub struct ChunkIter<'a> {
    items: std::slice::Iter<'a, Item>,
}

fn lent(item: &Item) -> (&[u8], &[u8]) {
    (item.key(), item.value())
}

impl<'a> Iterator for ChunkIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.items.next().map(lent)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl DoubleEndedIterator for ChunkIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.items.next_back().map(lent)
    }
}

impl ExactSizeIterator for ChunkIter<'_> {}

impl std::iter::FusedIterator for ChunkIter<'_> {}
