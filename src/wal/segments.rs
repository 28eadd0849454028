//! The files of one chain: prepared ahead, begun, written, synced, removed.
//!
//! ```text
//! live                                  prepared
//! 000006.wal 000007.wal 000008.wal      000009.wal
//!            stale      grows           blocks reserved, not begun: not yet of the chain
//! ```
//!
//! A file's name is made durable by the first sync that concerns it, and not before: until then nothing in it was
//! promised. A segment is released only when all of it is synced, and a released file is removed, never used again: so
//! behind the frames of a segment there are only zeros, and what nobody needs is in no file. A segment is *stale* from
//! the moment at which the first of its frames is needed no more, while others still are.
//!
//! Locks: `older` is held to remove files, `pool` to reserve blocks, `live` only to look and to change the list, and
//! last, as is `pinned`. An append that begins a segment waits for `pool`, never for `older`: removing takes its time.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::{Error, Result, Seq, Timestamp, file_name};
use crate::env::{Dir, File, Fs};
use crate::wal::frame::{HEADER_LEN, Position, SegmentHeader};

/// The log that belongs to a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStart {
    /// The identity of the chain: segments and a ring of another one are not of this database, or of another time of it.
    pub chain: u64,
    /// The first segment that is needed.
    pub first: u64,
    /// The number in the name of its ring; absent: it never had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<u64>,
}

/// The ring of the chain that begins with this segment.
pub fn ring_name(first_segment: u64) -> String {
    format!("{first_segment:06}.ring")
}

/// The number in a ring's name.
pub fn parse_ring(name: &str) -> Option<u64> {
    file_name::parse_segment(&format!("{}.wal", name.strip_suffix(".ring")?))
}

/// The names of the files that a manifest names with a log.
pub fn log_files(log: &LogStart) -> Vec<String> {
    let ring = log.ring.map(ring_name);
    [file_name::segment(log.first)]
        .into_iter()
        .chain(ring)
        .collect()
}

/// Whether a segment of this chain is in the folder; nothing where no segment says of which chain it is.
pub fn holds_chain(fs: &dyn Fs, dir: &Path, log: &LogStart) -> Result<Option<bool>> {
    let mut found = None;
    if !fs.is_dir(dir) {
        return Ok(found);
    }
    for name in fs.list(dir)? {
        if file_name::parse_segment(&name).is_none() {
            continue;
        }
        // One that is too short, or cannot be read, says nothing.
        let file = fs.reader(&dir.join(&name));
        if let Ok(bytes) = file.and_then(|file| file.read_at(0, HEADER_LEN))
            && let Ok(header) = SegmentHeader::decode(&bytes)
        {
            let is_one = header.identity == log.chain;
            found = Some(is_one || found == Some(true));
        }
    }
    Ok(found)
}

/// Removes what there is of a chain that no manifest names, as far as that is possible.
pub fn remove_chain(fs: &dyn Fs, dir: &Path, first_segment: u64) {
    let number = |name: &str| file_name::parse_segment(name).or_else(|| parse_ring(name));
    for name in fs.list(dir).unwrap_or_default() {
        if number(&name).is_some_and(|number| number >= first_segment) {
            let _ = fs.remove(&dir.join(name));
        }
    }
}

/// Removes the segments below a number, and the rings if they are to go, as far as that is possible: how many files. No
/// manifest names them any more.
pub fn remove_before(fs: &dyn Fs, dir: &Path, number: u64, rings: bool) -> usize {
    let goes = |name: &str| {
        let ring = parse_ring(name).filter(|_| rings);
        let found = file_name::parse_segment(name).or(ring);
        found.is_some_and(|found| found < number)
    };
    let names = fs.list(dir).unwrap_or_default().into_iter();
    let gone = names.filter(|name| goes(name) && fs.remove(&dir.join(name)).is_ok());
    gone.count()
}

/// Makes every chain in the folder durable, as far as it is there.
pub fn sync_chain(fs: &dyn Fs, dir: &Path) -> Result<()> {
    for name in fs.list(dir)? {
        if file_name::parse_segment(&name).is_some() || parse_ring(&name).is_some() {
            fs.open(&dir.join(name))?.sync()?;
        }
    }
    fs.sync_dir(dir)
}

/// A segment of the chain.
pub struct Segment {
    pub header: SegmentHeader,
    /// The size of the file.
    file_len: u64,
    file: Box<dyn File>,
    path: PathBuf,
    /// A [`Timestamp`]; its maximum while every frame is needed.
    stale_since: AtomicU64,
    /// Header and name are.
    durable: AtomicBool,
}

impl Segment {
    /// The position at which the file is full.
    pub fn full_at(&self) -> u64 {
        self.header.start + self.file_len - HEADER_LEN as u64
    }

    /// Writes bytes of the log from `position` on, all of which belong to this segment.
    pub fn write(&self, position: u64, bytes: &[u8]) -> Result<()> {
        let offset = HEADER_LEN as u64 + position - self.header.start;
        self.file.write_at(offset, bytes)
    }
}

/// What a live segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// In the file's name.
    pub number: u64,
    /// The size of the file.
    pub bytes: u64,
    /// Its header and its name are durable, so that a manifest may name it as the first one.
    pub durable: bool,
    /// The position of its first frame.
    pub start: Position,
    /// All that was written before it has lower sequence numbers.
    pub base_seq: Seq,
    /// Since when it has held a frame that is needed no more; [`Timestamp::MAX`] while it holds none.
    pub stale_since: Timestamp,
}

struct Prepared {
    path: PathBuf,
    file: Box<dyn File>,
    len: u64,
}

struct Pool {
    /// The number of the segment that is begun next.
    next: u64,
    /// Its file and those behind it, as far as they are made.
    prepared: VecDeque<Prepared>,
    /// So many are to be.
    wanted: usize,
    /// Their room is lent.
    lent: bool,
}

/// Where no more segments than this find room, one is kept that is not begun: what gives back room may need some first.
const SHORT_OF_ROOM: u64 = 16;

/// Room of segments that were prepared, lent until this is dropped.
pub struct LentSegments<'a>(&'a Segments);

impl Drop for LentSegments<'_> {
    fn drop(&mut self) {
        self.0.pool.lock().lent = false;
    }
}

/// What keeps segments that nobody needs.
#[derive(Default)]
struct Pinned {
    /// Those from these numbers on stay.
    from: Vec<u64>,
    /// Those below this number are to be given up.
    given_up: u64,
}

/// All segments of one chain.
pub struct Segments {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// The same, held open.
    names: Box<dyn Dir>,
    segment_bytes: u64,
    first: u64,
    /// The size of the next one.
    next_bytes: AtomicU64,
    /// The last segment that was to be begun found no room.
    is_refused: AtomicBool,
    /// As many are prepared as are wanted, to look at without waiting.
    is_prepared: AtomicBool,
    /// Names of files from before this chain.
    older: Mutex<Vec<String>>,
    pool: Mutex<Pool>,
    live: Mutex<VecDeque<Arc<Segment>>>,
    pinned: Mutex<Pinned>,
}

impl Segments {
    /// The chain that begins with file `first`, which is not there yet.
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

    /// The size of a segment's file.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Reserves the file of the next segment, so that beginning it need not wait for that.
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

    /// Makes files until there are so many; the first one with blocks for `len` bytes.
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

    /// How much room [`Segments::lend_next`] gives back, in bytes.
    pub fn lendable(&self) -> u64 {
        self.pool
            .lock()
            .prepared
            .iter()
            .map(|prepared| prepared.len)
            .sum()
    }

    /// Gives back the room of the segments that are prepared, for what will free more than that; until it is done none is
    /// begun, which would take it.
    pub fn lend_next(&self) -> LentSegments<'_> {
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

    /// Nothing is left for [`Segments::prepare`] to do.
    pub fn is_prepared(&self) -> bool {
        self.is_prepared.load(Ordering::Relaxed)
    }

    /// The next segment may be begun though it is the last one ahead: nothing of the log is needed. Where there is none
    /// ahead, it is a small one.
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

    /// The last segment that was to be begun found no room.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// A file of this number, with blocks for `len` bytes.
    fn make(&self, number: u64, len: u64) -> Result<Prepared> {
        let path = self.dir.join(file_name::segment(number));
        // What an attempt before this one left is taken up.
        let file = if self.fs.len(&path)?.is_some() {
            self.fs.open(&path)?
        } else {
            self.fs.create(&path)?
        };
        if let Err(error) = file.allocate(len) {
            // Gives back what was reserved before the room ran out. If that fails too, the next attempt finds the file.
            let _ = self.fs.remove(&path);
            return Err(error);
        }
        Ok(Prepared { path, file, len })
    }

    /// Begins the next segment: for a first frame of `frame_len` bytes. Its number is put into `header`.
    pub fn begin(&self, header: SegmentHeader, frame_len: u64) -> Result<Arc<Segment>> {
        let needed = HEADER_LEN as u64 + frame_len;
        let usual = self.next_bytes.load(Ordering::Relaxed);
        let begun = self.begin_file(header, needed.max(usual))?;
        self.next_bytes.store(self.segment_bytes, Ordering::Relaxed);
        Ok(begun)
    }

    /// The same, in a file of at least `len` bytes.
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
        let grown = if prepared.len < len {
            prepared.file.allocate(len)
        } else {
            Ok(())
        };
        if let Err(error) = grown.and_then(|()| prepared.file.write_at(0, &header.encode())) {
            pool.prepared.push_front(prepared);
            return Err(error);
        }
        prepared.len = prepared.len.max(len);
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

    /// Writes bytes of the log from `position` on, over as many segments as they belong to.
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

    /// Makes the log durable from `from`, up to where it is already, to `to`.
    pub fn sync(&self, from: u64, to: u64) -> Result<()> {
        let live: Vec<Arc<Segment>> = self.live.lock().iter().cloned().collect();
        let is_durable = |segment: &Segment| segment.durable.load(Ordering::Acquire);
        let concerned = live.iter().enumerate().filter(|(index, segment)| {
            let end = live.get(index + 1).map(|next| next.header.start);
            segment.header.start < to && (!is_durable(segment) || end.is_none_or(|end| from < end))
        });
        let concerned: Vec<&Arc<Segment>> = concerned.map(|(_, segment)| segment).collect();
        if concerned.len() > 1 {
            // The device writes them side by side then, not one after the other.
            for segment in &concerned {
                segment.file.start_writing(0, segment.file_len);
            }
        }
        let mut new = vec![];
        for segment in concerned {
            segment.file.sync()?;
            new.extend((!is_durable(segment)).then_some(segment));
        }
        self.sync_names(&new)
    }

    /// The files of these segments are synced: now their names.
    fn sync_names(&self, segments: &[&Arc<Segment>]) -> Result<()> {
        if !segments.is_empty() {
            self.names.sync()?;
        }
        for segment in segments {
            segment.durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the newest segment durable though it may have no frame yet.
    pub fn sync_newest(&self) -> Result<()> {
        let newest = self.live.lock().back().cloned().expect("one was begun");
        if newest.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        newest.file.sync()?;
        self.sync_names(&[&newest])
    }

    /// From `now` on, frames in these segments are needed no more.
    pub fn mark_stale(&self, numbers: RangeInclusive<u64>, now: Timestamp) {
        let live = self.live.lock();
        let stale = live
            .iter()
            .filter(|segment| numbers.contains(&segment.header.number));
        for segment in stale {
            segment.stale_since.fetch_min(now.0, Ordering::Relaxed);
        }
    }

    /// The live segments, oldest first.
    pub fn info(&self) -> Vec<SegmentInfo> {
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

    /// Segments from this number on stay, until as many calls of [`Segments::unpin_from`] say otherwise.
    pub fn pin_from(&self, first: u64) {
        self.pinned.lock().from.push(first);
    }

    /// Says below which number segments are to be given up meanwhile.
    pub fn unpin_from(&self, first: u64) -> u64 {
        let mut pinned = self.pinned.lock();
        let at = pinned.from.iter().position(|from| *from == first);
        pinned.from.swap_remove(at.expect("it was pinned"));
        pinned.given_up
    }

    /// Gives up all files from before this chain, which the manifest durably names.
    pub fn release_older(&self) -> Result<()> {
        self.release_before(self.first, 0)
    }

    /// Gives up the segments below `number`, of this chain those that end at or below `synced`, and, when `number` is of
    /// this chain, all files from before it; but none that is pinned. Stops at the first failure; what it missed goes with
    /// the next call.
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
