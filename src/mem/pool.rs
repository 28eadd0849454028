//! Memory that the arenas of a database share: chunks that one gave back are the next one's, and a spare is ready for who
//! must not fail.
//!
//! ```text
//! arenas     take ──> kept, or the system ──> in use          give ──> kept, as many as `bytes_max` allows ──> the system
//! a writer   prepare ──> spare: room that was asked for, untouched ──> taken from where the system refuses
//! ```
//!
//! Invariants:
//! * What is kept and what is in use are, together, at most about twice `bytes_max`: one memtable that is full and one
//!   that fills.
//! * A chunk is in one place: kept, or with one arena. A spare is shared by the arenas that have a part of it; each part is
//!   given once.
//! * Nothing here touches what lies in a chunk.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{self, Error};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::env::Chunk;

/// The largest chunk that is shared, and the smallest that the system takes back at once; with a quarter of what is there
/// already as the size of the next, an arena is at most about a quarter larger than its content.
pub const CHUNK_MAX: usize = Chunk::MAPPED_LEAST;

/// The system did not give so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub usize);

impl Refused {
    /// As the engine says it.
    #[cold]
    pub fn error(self) -> Error {
        Error::out_of_memory(self.0)
    }
}

/// A writer that fills a memtable in this time takes every chunk again.
const TRIM_AFTER: Duration = Duration::from_secs(5);

/// The least room of a spare: for any write of the usual size.
const SPARE_MIN: usize = 256 << 10;

/// Of one database.
///
/// * Full-sized chunks that arenas gave back, for the next ones: their pages need not be asked for again, which costs as
///   much as an insert. What nobody took for a while goes back to the system, and so does what would be, with those in
///   use, more than one memtable that is full and one that fills.
/// * The *spare*: room that has been asked for and not been touched, so that it takes no memory yet. Who has logged a write
///   must be able to insert it; so there is room for it in the spare before it is logged. A spare is used only where the
///   system gives nothing else.
#[derive(Debug)]
pub struct Pool {
    kept: Mutex<Kept>,
    bytes_max: usize,
    /// Copy of the room in the spare, to look at without waiting.
    spare_room: AtomicUsize,
    /// Bytes of retired arenas that somebody holds.
    pinned: AtomicUsize,
    /// The system seems to give nothing.
    #[cfg(test)]
    pub refuses: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    chunks: Vec<Chunk>,
    /// Full-sized chunks that arenas have.
    in_use: usize,
    /// The fewest of them since the last [`Pool::trim`].
    least: usize,
    trimmed: Duration,
    spare: Option<Spare>,
}

#[derive(Debug)]
struct Spare {
    chunk: Arc<Chunk>,
    /// Up to here it is used.
    used: usize,
}

impl Pool {
    /// An empty pool that keeps up to `bytes_max`.
    pub fn new(bytes_max: usize) -> Pool {
        Pool {
            kept: Mutex::default(),
            bytes_max,
            spare_room: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
            #[cfg(test)]
            refuses: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// The most bytes that it keeps.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes of arenas that were given up and that somebody holds.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// An arena of so many bytes was given up, and somebody holds it.
    pub fn pin(&self, bytes: usize) {
        self.pinned.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It went.
    pub fn unpin(&self, bytes: usize) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that it keeps now, but for the spare.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.kept.lock().chunks.len() * CHUNK_MAX
    }

    /// Makes sure that what takes `room` bytes at the most can be put into arenas whatever the system says. The caller is
    /// the one who does so.
    #[inline]
    pub fn prepare(&self, room: usize) -> error::Result<()> {
        if self.spare_room.load(Ordering::Relaxed) >= room {
            return Ok(());
        }
        self.renew_spare(room.max(SPARE_MIN))
            .map_err(Refused::error)
    }

    #[cold]
    fn renew_spare(&self, room: usize) -> Result<(), Refused> {
        let chunk = Arc::new(self.ask(room)?);
        self.kept.lock().spare = Some(Spare { chunk, used: 0 });
        self.spare_room.store(room, Ordering::Relaxed);
        Ok(())
    }

    /// Room for `len` bytes in the spare.
    pub fn take_spare(&self, len: usize) -> Result<(Arc<Chunk>, NonNull<u8>), Refused> {
        let mut kept = self.kept.lock();
        let spare = kept.spare.as_mut().ok_or(Refused(len))?;
        let at = spare.used;
        let used = (at + len).next_multiple_of(Chunk::ALIGN);
        let size = spare.chunk.len();
        if used > size {
            return Err(Refused(len));
        }
        spare.used = used;
        self.spare_room.store(size - used, Ordering::Relaxed);
        Ok((spare.chunk.clone(), spare.chunk.at(at)))
    }

    /// Gives back to the system what nobody took for [`TRIM_AFTER`], and a spare that is larger than usual.
    pub fn trim(&self, now: Duration) {
        let mut kept = self.kept.lock();
        if now < kept.trimmed + TRIM_AFTER {
            return;
        }
        kept.trimmed = now;
        let needless = std::mem::take(&mut kept.least);
        let stay = kept.chunks.len() - needless;
        let gone = kept.chunks.split_off(stay);
        kept.least = stay;
        let is_large = |spare: &mut Spare| spare.chunk.len() > SPARE_MIN;
        let spare = kept.spare.take_if(is_large);
        if spare.is_some() {
            self.spare_room.store(0, Ordering::Relaxed);
        }
        drop(kept);
        drop((gone, spare));
    }

    /// Takes back an arena's chunks; some of them are kept.
    pub fn give(&self, returned: &mut Vec<Chunk>) {
        let full_sized = returned.extract_if(.., |chunk| chunk.len() == CHUNK_MAX);
        let mut full_sized: Vec<Chunk> = full_sized.collect();
        let mut kept = self.kept.lock();
        kept.in_use -= full_sized.len();
        let most = self.bytes_max / CHUNK_MAX;
        let beside = (2 * most).saturating_sub(kept.in_use).min(most);
        let room = beside.saturating_sub(kept.chunks.len());
        let stay = full_sized.len().min(room);
        kept.chunks.extend(full_sized.drain(..stay));
        // The rest takes time to give back: after the lock.
        drop(kept);
    }

    /// A full-sized chunk.
    pub fn take(&self) -> Result<Chunk, Refused> {
        let mut kept = self.kept.lock();
        let chunk = kept.chunks.pop();
        kept.least = kept.least.min(kept.chunks.len());
        kept.in_use += 1;
        drop(kept);
        match chunk {
            Some(chunk) => Ok(chunk),
            None => self
                .ask(CHUNK_MAX)
                .inspect_err(|_| self.kept.lock().in_use -= 1),
        }
    }

    /// A chunk from the system.
    pub fn ask(&self, len: usize) -> Result<Chunk, Refused> {
        #[cfg(test)]
        if self.refuses.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Refused(len));
        }
        Chunk::new(len).ok_or(Refused(len))
    }
}
