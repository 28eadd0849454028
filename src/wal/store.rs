//! Where a frame goes when it is appended.
//!
//! A [`Store`] takes frames in the order of their positions; what it has taken survives a killed process. It may keep
//! them beside the segments until it is told to bring them in. Only what lies in the segments can be synced.

use crate::base::Result;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::env::Ring;
use crate::wal::frame::SyncedNote;
use crate::wal::segments::{Segment, Segments};

/// Takes frames.
pub enum Store {
    /// Writes every frame into its segment at once. No database has such a log. Its files are those of any log, but for the
    /// ring, and a manifest may name it: tests and models use it where the ring is not what they look at.
    Direct,
    /// Takes frames into a ring first.
    Ring(Buffered),
}

impl Store {
    /// Takes the frame, of two pieces, that starts at `position` and belongs to `segment`, the newest of `segments`. After
    /// an error nothing was taken, and the next frame may start at the same position.
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

    /// Brings all that was taken before the call into the segments' files.
    pub fn drain(&self, segments: &Segments) -> Result<()> {
        match self {
            Store::Direct => Ok(()),
            Store::Ring(ring) => ring.drain(segments),
        }
    }

    /// Notes how far the log is durable, where recovery finds it if it can. One thread at a time.
    pub fn note_synced(&self, note: SyncedNote) {
        if let Store::Ring(ring) = self {
            ring.note_synced(note);
        }
    }

    /// It would be well to drain soon.
    pub fn wants_drain(&self) -> bool {
        match self {
            Store::Direct => false,
            Store::Ring(ring) => ring.wants_drain(),
        }
    }
}

/// Bytes of a frame's two pieces.
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

/// Takes frames into a ring file, from which they are brought into the segments by large writes.
///
/// ```text
/// position     drained              taken           drained + ring
///    ...........|####################|...............|
///    in segments  only in the ring     free
/// ```
///
/// Behind the ring stands how far the log is synced. It is stored when that is so, and not synced itself: a killed
/// process leaves it, and what a power cut leaves of it is true.
///
/// The byte of position p stands at p modulo the ring's length. Both marks stand between frames, and `drained` moves
/// only when all up to it lies in the segments: so a frame lies whole in the segments or whole in the ring, at every
/// moment. Then its bytes in the ring are zeroed, before `drained` moves: what the segments have given up is in no file.
/// One thread appends, any thread drains; a drain touches what lies from `drained` to `taken`, and an append what is
/// free, so they never meet.
pub struct Buffered {
    ring: Box<dyn Ring>,
    ring_len: u64,
    taken: AtomicU64,
    drained: AtomicU64,
    /// Held to drain.
    buffer: Mutex<Vec<u8>>,
}

impl Buffered {
    /// Over an empty log. Behind `ring_len` bytes there is room for a note.
    pub fn new(ring: Box<dyn Ring>, ring_len: usize) -> Buffered {
        assert!(ring_len > 0, "a ring has room");
        Buffered {
            ring,
            ring_len: ring_len as u64,
            taken: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            buffer: Mutex::new(vec![0; DRAIN_BYTES.min(ring_len)]),
        }
    }

    /// Where a position lies in the ring, and how much of `len` bytes fits before the ring's end.
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

    /// Zeroes the ring from `drained` to `taken`. Nothing before all of it is in the segments: a stretch that was written
    /// may end within a frame, which then is whole in the ring alone.
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

    /// Into the segment at once: what would fill the ring.
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

    fn append(
        &self,
        segments: &Segments,
        segment: &Segment,
        position: u64,
        frame: [&[u8]; 2],
    ) -> Result<()> {
        let end = position + frame_len(frame);
        if end - position > self.ring_len / 2 {
            return self.append_past_the_ring(segments, segment, position, frame);
        }
        if end - self.drained.load(Ordering::Acquire) > self.ring_len {
            self.drain(segments)?;
        }
        let [front, back] = frame;
        self.store(position, front);
        self.store(position + front.len() as u64, back);
        self.taken.store(end, Ordering::Release);
        Ok(())
    }

    fn drain(&self, segments: &Segments) -> Result<()> {
        self.drain_locked(&mut self.buffer.lock(), segments)
    }

    fn note_synced(&self, note: SyncedNote) {
        self.ring.store(self.ring_len as usize, &note.encode());
    }

    fn wants_drain(&self) -> bool {
        let (taken, drained) = (
            self.taken.load(Ordering::Relaxed),
            self.drained.load(Ordering::Relaxed),
        );
        taken.saturating_sub(drained) > self.ring_len / 2
    }
}
