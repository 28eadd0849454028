//! The segment files of one chain: prepared ahead, begun, written, synced, removed.
//!
//! ```text
//! live                                  prepared
//! 000006.wal 000007.wal 000008.wal      000009.wal
//!            stale      grows           blocks reserved, not begun: not yet of the chain
//! ```
//!
//! A file's name is made durable by the first sync of the file, not before: until then nothing in it was promised. A
//! segment is released only when all of it is synced, and a released file is removed, never reused. So only zeros
//! follow the frames of a segment, and records of released segments are in no file. A segment is *stale* from the
//! moment at which one of its frames is no longer needed, while others are. It is *in use* until it is to be released;
//! a pin, or a sync that is not done, may keep it longer, and then it is nothing that a flush could free.
//!
//! Locks: `older` is held to remove files, `pool` to reserve blocks, `live` only to read and change the list. `live`
//! and `pinned` are taken last. An append that begins a segment may wait for `pool`, never for `older`, because
//! removing is slow.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::{Error, Result, Seq, Timestamp, file_name};
use crate::env::{Dir, File, Fs};
use crate::wal::chain::{Prefix, parse_ring};
use crate::wal::frame::{HEADER_LEN, Position, SegmentHeader};

/// Bytes of a segment's file that are no frames: its header, twice.
const SEGMENT_OVERHEAD: u64 = 2 * HEADER_LEN as u64;

/// A segment of the chain.
pub struct Segment {
    pub header: SegmentHeader,
    /// The size of the file.
    file_len: u64,
    file: Box<dyn File>,
    path: PathBuf,
    /// A [`Timestamp`]; the maximum while every frame is needed.
    stale_since: AtomicU64,
    /// Whether header and name are durable.
    durable: AtomicBool,
}

impl Segment {
    /// A segment of an earlier chain, whose name is durable before a manifest names it here. Nobody writes it.
    pub fn kept(header: SegmentHeader, path: PathBuf, file: Box<dyn File>) -> Result<Segment> {
        Ok(Segment {
            header,
            file_len: file.len()?,
            file,
            path,
            stale_since: AtomicU64::new(Timestamp::MAX.0),
            durable: AtomicBool::new(true),
        })
    }

    /// Begins to write it to the device.
    pub fn start_writing(&self) {
        self.file.start_writing(0, self.file_len);
    }

    /// Makes what was written into it durable, but not its name.
    pub fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    /// The position at which the file is full.
    pub fn full_at(&self) -> u64 {
        self.header.start + self.file_len - SEGMENT_OVERHEAD
    }

    /// Writes bytes of the log from `position` on, all of which belong to this segment.
    pub fn write(&self, position: u64, bytes: &[u8]) -> Result<()> {
        let offset = HEADER_LEN as u64 + position - self.header.start;
        self.file.write_at(offset, bytes)
    }
}

/// The log of before, of which a new chain is the continuation.
pub struct Kept {
    /// How a manifest names it.
    pub prefix: Prefix,
    /// Its segments, oldest first: at least one.
    pub segments: Vec<Segment>,
}

impl Kept {
    /// The numbers of its segments.
    pub fn numbers(&self) -> RangeInclusive<u64> {
        let last = self.segments.last().expect("it has a segment");
        self.prefix.first..=last.header.number
    }
}

/// Summary of a live segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The number in the file's name.
    pub number: u64,
    /// The size of the file.
    pub bytes: u64,
    /// Whether its header and name are durable, so that a manifest may name it as the first one.
    pub durable: bool,
    /// The position of its first frame.
    pub start: Position,
    /// All earlier writes have lower sequence numbers.
    pub base_seq: Seq,
    /// When the first of its frames became stale; [`Timestamp::MAX`] if none is.
    pub stale_since: Timestamp,
}

struct Prepared {
    path: PathBuf,
    file: Box<dyn File>,
    len: u64,
}

impl Prepared {
    /// Makes it at least `len` bytes long, and writes the header to both ends.
    fn begin(&mut self, header: &SegmentHeader, len: u64) -> Result<()> {
        if self.len < len {
            self.file.allocate(len)?;
            self.len = len;
        }
        let header = header.encode();
        self.file.write_at(0, &header)?;
        self.file.write_at(self.len - HEADER_LEN as u64, &header)
    }
}

struct Pool {
    /// The number of the next segment to be begun.
    next: u64,
    /// Its file and those after it, as far as they are prepared.
    prepared: VecDeque<Prepared>,
    /// How many files are to be prepared.
    wanted: usize,
    /// Whether their room is lent.
    lent: bool,
}

/// If there is room for no more than this many segments, one is kept that no write begins: a job that frees room may
/// need some first.
const SHORT_OF_ROOM: u64 = 16;

/// Lends the room of prepared segments until it is dropped.
pub struct LentSegments<'a>(&'a Segments);

impl Drop for LentSegments<'_> {
    fn drop(&mut self) {
        self.0.pool.lock().lent = false;
    }
}

/// Pins, which keep segments that are no longer needed.
#[derive(Default)]
struct Pinned {
    /// Segments from each of these numbers on stay.
    from: Vec<u64>,
    /// Segments below this number are to be released.
    given_up: u64,
}

/// All segments of one chain, behind those of an earlier one that it continues.
pub struct Segments {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// The folder, held open.
    names: Box<dyn Dir>,
    segment_bytes: u64,
    /// The number of the first one of all.
    first: u64,
    /// The size of the next file.
    next_bytes: AtomicU64,
    /// Whether there was no room for the last segment that was to be begun.
    is_refused: AtomicBool,
    /// Whether as many are prepared as are wanted; readable without waiting for the lock.
    is_prepared: AtomicBool,
    /// Names of files from before this chain, without those of the segments that were kept.
    older: Mutex<Vec<String>>,
    pool: Mutex<Pool>,
    live: Mutex<VecDeque<Arc<Segment>>>,
    pinned: Mutex<Pinned>,
}

impl Segments {
    /// The chain that begins with file `first`, which does not exist yet.
    pub fn new(fs: Arc<dyn Fs>, dir: &Path, segment_bytes: u64, first: u64) -> Result<Segments> {
        let older = |name: &String| {
            let number = file_name::parse_segment(name).or_else(|| parse_ring(name));
            number.is_some_and(|number| number < first)
        };
        let older = fs.list(dir)?.into_iter().filter(older).collect();
        let pool = Pool {
            next: first,
            prepared: VecDeque::new(),
            wanted: 1,
            lent: false,
        };
        let names = fs.open_dir(dir)?;
        Ok(Segments {
            fs,
            names,
            dir: dir.to_owned(),
            segment_bytes,
            first,
            next_bytes: AtomicU64::new(segment_bytes),
            is_refused: AtomicBool::new(false),
            is_prepared: AtomicBool::new(false),
            older: Mutex::new(older),
            pool: Mutex::new(pool),
            live: Mutex::new(VecDeque::new()),
            pinned: Mutex::default(),
        })
    }

    /// The same chain, as the continuation of the kept segments of an earlier one.
    pub fn behind(mut self, kept: Kept) -> Segments {
        let numbers = kept.numbers();
        let stays = |name: &String| {
            let number = file_name::parse_segment(name);
            number.is_some_and(|number| numbers.contains(&number))
        };
        self.first = *numbers.start();
        self.older.lock().retain(|name| !stays(name));
        self.live
            .lock()
            .extend(kept.segments.into_iter().map(Arc::new));
        self
    }

    /// The size of a segment's file.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Reserves the file of the next segment, so that beginning it need not wait.
    pub fn prepare(&self) -> Result<()> {
        let free = self.fs.room(&self.dir)?.free;
        let mut pool = self.pool.lock();
        if pool.lent {
            return Ok(());
        }
        pool.wanted = 1 + usize::from(free < SHORT_OF_ROOM * self.segment_bytes);
        let wanted = pool.wanted;
        self.fill(&mut pool, wanted, self.segment_bytes)?;
        self.is_prepared.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Creates files until `wanted` are prepared; the first one with blocks for `len` bytes.
    fn fill(&self, pool: &mut Pool, wanted: usize, len: u64) -> Result<()> {
        while pool.prepared.len() < wanted {
            let number = pool.next + pool.prepared.len() as u64;
            let len = if pool.prepared.is_empty() {
                len
            } else {
                self.segment_bytes
            };
            let made = self.make(number, len)?;
            pool.prepared.push_back(made);
        }
        Ok(())
    }

    /// How much room [`Segments::lend_prepared`] frees, in bytes.
    pub fn lendable(&self) -> u64 {
        self.pool
            .lock()
            .prepared
            .iter()
            .map(|prepared| prepared.len)
            .sum()
    }

    /// Lends the room of the prepared segments to work that will free more. No segment, which would take the room, is
    /// begun until that is done.
    pub fn lend_prepared(&self) -> LentSegments<'_> {
        let mut pool = self.pool.lock();
        pool.lent = true;
        self.is_prepared.store(false, Ordering::Relaxed);
        // From the last one, so that no number is left out.
        while let Some(prepared) = pool.prepared.pop_back() {
            let _ = self.fs.remove(&prepared.path);
        }
        let _ = self.names.sync();
        LentSegments(self)
    }

    /// Whether [`Segments::prepare`] has nothing to do.
    pub fn is_prepared(&self) -> bool {
        self.is_prepared.load(Ordering::Relaxed)
    }

    /// Allows the last prepared segment to be begun, because nothing of the log is needed. If none is prepared, the
    /// next one is a small one.
    pub fn spend_next(&self) -> Result<()> {
        let free = self.fs.room(&self.dir)?.free;
        let mut pool = self.pool.lock();
        pool.wanted = 1;
        if pool.prepared.is_empty() {
            let small = (free / 2).min(self.segment_bytes);
            self.next_bytes.store(small, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether there was no room for the last segment that was to be begun.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Creates a file of this number, with blocks for `len` bytes.
    fn make(&self, number: u64, len: u64) -> Result<Prepared> {
        let path = self.dir.join(file_name::segment(number));
        // Continues with a file that an earlier attempt left, at its length: the header is at its end, too.
        let there = self.fs.len(&path)?;
        let file = match there {
            Some(_) => self.fs.open(&path)?,
            None => self.fs.create(&path)?,
        };
        let len = len.max(there.unwrap_or(0));
        if let Err(error) = file.allocate(len) {
            // Frees what was reserved before the room ran out. If that fails too, the next attempt finds the file.
            let _ = self.fs.remove(&path);
            return Err(error);
        }
        Ok(Prepared { path, file, len })
    }

    /// Begins the next segment for a first frame of `frame_len` bytes. Sets its number in `header`.
    pub fn begin(&self, header: SegmentHeader, frame_len: u64) -> Result<Arc<Segment>> {
        let needed = SEGMENT_OVERHEAD + frame_len;
        let usual = self.next_bytes.load(Ordering::Relaxed);
        let begun = self.begin_file(header, needed.max(usual))?;
        self.next_bytes.store(self.segment_bytes, Ordering::Relaxed);
        Ok(begun)
    }

    /// Begins the next segment in a file of at least `len` bytes.
    pub fn begin_file(&self, mut header: SegmentHeader, len: u64) -> Result<Arc<Segment>> {
        let mut pool = self.pool.lock();
        if pool.lent {
            let path = self.dir.join(file_name::segment(pool.next));
            return Err(Error::io("allocate", &path, ErrorKind::StorageFull.into()));
        }
        let wanted = pool.wanted;
        let filled = self.fill(&mut pool, wanted, len);
        let is_refused = filled.as_ref().is_err_and(Error::is_full);
        self.is_refused.store(is_refused, Ordering::Relaxed);
        filled?;
        let mut prepared = pool.prepared.pop_front().expect("at least one is wanted");
        header.number = pool.next;
        if let Err(error) = prepared.begin(&header, len) {
            pool.prepared.push_front(prepared);
            return Err(error);
        }
        pool.next += 1;
        self.is_prepared.store(false, Ordering::Relaxed);
        let segment = Arc::new(Segment {
            header,
            file_len: prepared.len,
            file: prepared.file,
            path: prepared.path,
            stale_since: AtomicU64::new(Timestamp::MAX.0),
            durable: AtomicBool::new(false),
        });
        self.live.lock().push_back(Arc::clone(&segment));
        Ok(segment)
    }

    /// Writes bytes of the log from `position` on, into the segments that they belong to.
    pub fn write(&self, mut position: u64, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (segment, end) = self.holding(position);
            let here = end.map_or(bytes.len(), |end| {
                bytes.len().min((end - position) as usize)
            });
            segment.write(position, &bytes[..here])?;
            position += here as u64;
            bytes = &bytes[here..];
        }
        Ok(())
    }

    /// The segment of a position, and where the next one starts.
    fn holding(&self, position: u64) -> (Arc<Segment>, Option<u64>) {
        let live = self.live.lock();
        let after = live.partition_point(|segment| segment.header.start <= position);
        let segment = &live[after.checked_sub(1).expect("a position of the chain")];
        (
            Arc::clone(segment),
            live.get(after).map(|next| next.header.start),
        )
    }

    /// Makes the log durable from `from`, up to which it is durable already, to `to`.
    pub fn sync(&self, from: u64, to: u64) -> Result<()> {
        let live: Vec<Arc<Segment>> = self.live.lock().iter().cloned().collect();
        let is_durable = |segment: &Segment| segment.durable.load(Ordering::Acquire);
        let concerned = live.iter().enumerate().filter(|(index, segment)| {
            let end = live.get(index + 1).map(|next| next.header.start);
            segment.header.start < to && (!is_durable(segment) || end.is_none_or(|end| from < end))
        });
        let concerned: Vec<&Arc<Segment>> = concerned.map(|(_, segment)| segment).collect();
        if concerned.len() > 1 {
            // The device then writes them in parallel, not one after the other.
            for segment in &concerned {
                segment.start_writing();
            }
        }
        let mut new = vec![];
        for segment in concerned {
            segment.sync()?;
            new.extend((!is_durable(segment)).then_some(segment));
        }
        self.sync_names(&new)
    }

    /// Syncs the names of these segments, whose files are synced.
    fn sync_names(&self, segments: &[&Arc<Segment>]) -> Result<()> {
        if !segments.is_empty() {
            self.names.sync()?;
        }
        for segment in segments {
            segment.durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the newest segment durable, even if it has no frame yet.
    pub fn sync_newest(&self) -> Result<()> {
        let newest = self.live.lock().back().cloned().expect("one was begun");
        if newest.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        newest.sync()?;
        self.sync_names(&[&newest])
    }

    /// Marks these segments as holding stale frames from `now` on.
    pub fn mark_stale(&self, numbers: RangeInclusive<u64>, now: Timestamp) {
        let live = self.live.lock();
        let stale = live
            .iter()
            .filter(|segment| numbers.contains(&segment.header.number));
        for segment in stale {
            segment.stale_since.fetch_min(now.0, Ordering::Relaxed);
        }
    }

    /// The segments that may be needed, oldest first: without those that were to be released and are still there, for
    /// a pin, or until they are synced.
    pub fn in_use(&self) -> Vec<SegmentInfo> {
        let given_up = self.pinned.lock().given_up;
        let mut segments = self.all();
        segments.retain(|segment| segment.number >= given_up);
        segments
    }

    /// All segments that are there, oldest first.
    pub fn all(&self) -> Vec<SegmentInfo> {
        let live = self.live.lock();
        let info = |segment: &Arc<Segment>| SegmentInfo {
            number: segment.header.number,
            bytes: segment.file_len,
            durable: segment.durable.load(Ordering::Acquire),
            start: Position(segment.header.start),
            base_seq: segment.header.base_seq,
            stale_since: Timestamp(segment.stale_since.load(Ordering::Relaxed)),
        };
        live.iter().map(info).collect()
    }

    /// Keeps the segments from this number on, until a matching call of [`Segments::unpin_from`].
    pub fn pin_from(&self, first: u64) {
        self.pinned.lock().from.push(first);
    }

    /// Pins alone keep the segments below this number.
    pub fn kept_below(&self) -> u64 {
        let pinned = self.pinned.lock();
        match pinned.from.is_empty() {
            true => 0,
            false => pinned.given_up,
        }
    }

    /// Ends a pin; returns the number below which segments were released meanwhile.
    pub fn unpin_from(&self, first: u64) -> u64 {
        let mut pinned = self.pinned.lock();
        let at = pinned.from.iter().position(|from| *from == first);
        pinned.from.swap_remove(at.expect("it was pinned"));
        pinned.given_up
    }

    /// Removes all files from before this chain, which the manifest durably names.
    pub fn release_older(&self) -> Result<()> {
        self.release_before(self.first, 0)
    }

    /// Removes what an earlier release could not remove.
    pub fn release_rest(&self, synced: u64) -> Result<()> {
        let given_up = self.pinned.lock().given_up;
        self.release_before(given_up, synced)
    }

    /// Removes the segments below `number`: those of this chain that end at or below `synced`, and, if `number` is of
    /// this chain, all files from before it; but none that is pinned. Stops at the first failure; the next call removes
    /// the rest.
    pub fn release_before(&self, number: u64, synced: u64) -> Result<()> {
        let number = {
            let mut pinned = self.pinned.lock();
            pinned.given_up = pinned.given_up.max(number);
            let stays = pinned.from.iter().min();
            stays.map_or(number, |stays| number.min(*stays))
        };
        let mut older = self.older.lock();
        while number >= self.first
            && let Some(name) = older.last()
        {
            self.fs.remove(&self.dir.join(name))?;
            older.pop();
        }
        loop {
            let oldest = {
                let live = self.live.lock();
                match (live.front(), live.get(1)) {
                    (Some(oldest), Some(next))
                        if oldest.header.number < number && next.header.start <= synced =>
                    {
                        Arc::clone(oldest)
                    }
                    _ => return Ok(()),
                }
            };
            self.fs.remove(&oldest.path)?;
            self.live.lock().pop_front();
        }
    }
}
