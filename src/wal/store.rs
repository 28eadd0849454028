//! Where an appended frame is stored.
//!
//! A [`Store`] takes frames in the order of their positions; a frame it has taken survives a killed process. It may
//! hold frames outside the segments until it is drained. Only frames in the segments can be synced.

use crate::base::Result;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::env::{RING_WORD, Ring};
use crate::wal::frame::{NO_SYNC, SYNCS_AT, SyncedNote};
use crate::wal::segments::{Segment, Segments};

/// Takes frames.
pub enum Store {
    /// Writes every frame into its segment at once. No database uses it. Its files are those of any log without a ring,
    /// and a manifest may name it: tests and models use it where the ring is not their subject.
    Direct,
    /// Takes frames into a ring first.
    Ring(Buffered),
}

impl Store {
    /// Stores a frame, in two slices, that starts at `position` and belongs to `segment`, the newest of `segments`.
    /// After an error nothing is stored, and the next frame may start at the same position.
    #[inline]
    pub fn append(
        &self,
        segments: &Segments,
        segment: &Segment,
        position: u64,
        frame: [&[u8]; 2],
    ) -> Result<()> {
        match self {
            Store::Direct => write_frame(segment, position, frame),
            Store::Ring(ring) => ring.append(segments, segment, position, frame),
        }
    }

    /// A frame of so many bytes from `position` on is taken without a call to the system.
    pub fn takes_at_once(&self, position: u64, len: u64) -> bool {
        match self {
            Store::Direct => false,
            Store::Ring(ring) => ring.has_room(position, len),
        }
    }

    /// Copies all frames taken before the call into the segments' files.
    pub fn drain(&self, segments: &Segments) -> Result<()> {
        match self {
            Store::Direct => Ok(()),
            Store::Ring(ring) => ring.drain(segments),
        }
    }

    /// Notes how far the log is durable, where recovery finds it if it can. Called by one thread at a time.
    pub fn note_synced(&self, note: SyncedNote) {
        if let Store::Ring(ring) = self {
            ring.note_synced(note);
        }
    }

    /// Notes that a sync of a segment begins. It counts as under way until it has succeeded.
    pub fn sync_begins(&self) {
        if let Store::Ring(ring) = self {
            ring.note_syncs(|under_way| under_way + 1);
        }
    }

    /// Notes that such a sync has succeeded.
    pub fn sync_succeeded(&self) {
        if let Store::Ring(ring) = self {
            ring.note_syncs(|under_way| under_way - 1);
        }
    }

    /// Whether a drain is due.
    #[inline]
    pub fn wants_drain(&self) -> bool {
        match self {
            Store::Direct => false,
            Store::Ring(ring) => ring.wants_drain(),
        }
    }
}

/// The length of a frame in two slices.
pub fn frame_len(frame: [&[u8]; 2]) -> u64 {
    (frame[0].len() + frame[1].len()) as u64
}

fn write_frame(segment: &Segment, position: u64, [front, back]: [&[u8]; 2]) -> Result<()> {
    segment.write(position, front)?;
    if !back.is_empty() {
        segment.write(position + front.len() as u64, back)?;
    }
    Ok(())
}

/// The largest write into a segment.
const DRAIN_BYTES: usize = 256 << 10;

/// Takes frames into a ring file, from which a drain copies them into the segments by large writes.
///
/// ```text
/// position     drained              taken           drained + ring
///    ...........|####################|...............|
///    in segments  only in the ring     free
/// ```
///
/// Behind the ring is a note of how far the log is synced. It is stored after that sync, but not synced itself: it
/// survives a killed process, and after a power cut the note that is left, this one or an older one, is true. Beside it
/// stands how many syncs are under way or have failed. By that an open after a kill sees whether the system may have
/// reported a failed sync to the killed process, and so will not report it again (keep.rs).
///
/// The byte of position p is stored at p modulo the ring's length. `drained` and `taken` stand between frames, and
/// `drained` moves only when all bytes up to it are in the segments: so at every moment a frame is whole in the
/// segments or whole in the ring. Before `drained` moves, the bytes in the ring are zeroed, so records of released
/// segments are in no file. One thread appends, and any thread drains; a drain touches the bytes from `drained` to
/// `taken` and an append the free bytes, so they never meet.
pub struct Buffered {
    ring: Box<dyn Ring>,
    ring_len: u64,
    taken: AtomicU64,
    drained: AtomicU64,
    /// How many syncs are under way or have failed, as it stands behind the ring.
    syncs: Mutex<u32>,
    /// Held to drain.
    buffer: Mutex<Vec<u8>>,
}

impl Buffered {
    /// A ring for an empty log that starts at this position. There is room for a note behind its `ring_len` bytes,
    /// which says that no sync is under way.
    pub fn new(ring: Box<dyn Ring>, ring_len: usize, start: u64) -> Buffered {
        assert!(ring_len > 0, "a ring has room");
        Buffered {
            ring,
            ring_len: ring_len as u64,
            taken: AtomicU64::new(start),
            drained: AtomicU64::new(start),
            syncs: Mutex::new(0),
            buffer: Mutex::new(vec![0; DRAIN_BYTES.min(ring_len)]),
        }
    }

    /// The offset of a position in the ring, and how many of `len` bytes fit before the ring's end.
    fn place(&self, position: u64, len: usize) -> (usize, usize) {
        let at = (position % self.ring_len) as usize;
        (at, len.min(self.ring_len as usize - at))
    }

    fn store(&self, position: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (at, fits) = self.place(position, bytes.len());
        self.ring.store(at, &bytes[..fits]);
        if fits < bytes.len() {
            self.ring.store(0, &bytes[fits..]);
        }
    }

    fn drain_locked(&self, buffer: &mut [u8], segments: &Segments) -> Result<()> {
        let taken = self.taken.load(Ordering::Acquire);
        let mut position = self.drained.load(Ordering::Relaxed);
        while position < taken {
            let len = buffer.len().min((taken - position) as usize);
            let (at, len) = self.place(position, len);
            self.ring.load(at, &mut buffer[..len]);
            segments.write(position, &buffer[..len])?;
            position += len as u64;
        }
        self.clear(taken);
        self.drained.store(taken, Ordering::Release);
        Ok(())
    }

    /// Zeroes the ring from `drained` to `taken`, after all of it is in the segments: a written part may end within
    /// a frame, which is then whole only in the ring.
    fn clear(&self, taken: u64) {
        static ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut position = self.drained.load(Ordering::Relaxed);
        while position < taken {
            let len = ZEROS.len().min((taken - position) as usize);
            let (at, len) = self.place(position, len);
            self.ring.store(at, &ZEROS[..len]);
            position += len as u64;
        }
    }

    /// Whether a frame goes past the ring: one that would fill it, or that is as large as the largest write of a drain
    /// while the ring is empty: it would be copied in and out, and written no sooner.
    fn goes_past(&self, position: u64, len: u64) -> bool {
        let is_empty = || self.drained.load(Ordering::Acquire) == position;
        len > self.ring_len / 2 || (len >= DRAIN_BYTES as u64 && is_empty())
    }

    /// Writes a frame into its segment at once.
    fn append_past_the_ring(
        &self,
        segments: &Segments,
        segment: &Segment,
        position: u64,
        frame: [&[u8]; 2],
    ) -> Result<()> {
        let mut buffer = self.buffer.lock();
        self.drain_locked(&mut buffer, segments)?;
        write_frame(segment, position, frame)?;
        let end = position + frame_len(frame);
        self.taken.store(end, Ordering::Release);
        self.drained.store(end, Ordering::Release);
        Ok(())
    }

    /// Whether a frame that ends there leaves what is not drained, and a word more.
    #[inline]
    fn is_free_up_to(&self, end: u64) -> bool {
        end + RING_WORD as u64 - self.drained.load(Ordering::Acquire) <= self.ring_len
    }

    #[inline]
    fn append(
        &self,
        segments: &Segments,
        segment: &Segment,
        position: u64,
        frame: [&[u8]; 2],
    ) -> Result<()> {
        let end = position + frame_len(frame);
        if self.goes_past(position, end - position) {
            return self.append_past_the_ring(segments, segment, position, frame);
        }
        if !self.is_free_up_to(end) {
            self.drain(segments)?;
        }
        let [front, back] = frame;
        let at = (position % self.ring_len) as usize;
        let last_word = (at + front.len() + back.len()).next_multiple_of(RING_WORD);
        if last_word <= self.ring_len as usize {
            self.ring.append(at, front, back);
        } else {
            self.store(position, front);
            self.store(position + front.len() as u64, back);
        }
        self.taken.store(end, Ordering::Release);
        Ok(())
    }

    fn has_room(&self, position: u64, len: u64) -> bool {
        !self.goes_past(position, len) && self.is_free_up_to(position + len)
    }

    fn drain(&self, segments: &Segments) -> Result<()> {
        self.drain_locked(&mut self.buffer.lock(), segments)
    }

    fn note_synced(&self, note: SyncedNote) {
        self.ring.store(self.ring_len as usize, &note.encode());
    }

    fn note_syncs(&self, change: impl FnOnce(u32) -> u32) {
        let mut syncs = self.syncs.lock();
        *syncs = change(*syncs);
        let at = self.ring_len as usize + SYNCS_AT;
        self.ring.store(at, &(NO_SYNC + *syncs).to_le_bytes());
    }

    #[inline]
    fn wants_drain(&self) -> bool {
        let (taken, drained) = (
            self.taken.load(Ordering::Relaxed),
            self.drained.load(Ordering::Relaxed),
        );
        taken.saturating_sub(drained) > self.ring_len / 2
    }
}
