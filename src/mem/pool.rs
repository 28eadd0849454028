//! A memory pool shared by the arenas of a database: chunks that one arena returns are reused by the next, and a spare
//! is ready for inserts that must not fail.
//!
//! ```text
//! arenas     take ──> kept, or the system ──> in use          give ──> kept, as many as `bytes_max` allows ──> the system
//! an open    while_populated: the system ──> kept, with all pages, a few ahead of the arenas
//! a writer   prepare ──> spare: room that was asked for, untouched ──> taken from where the system refuses
//! ```
//!
//! Invariants:
//! * Kept chunks and chunks in use together are at most about twice `bytes_max`: a full memtable and one that fills.
//! * A chunk is in one place: kept, or in one arena. A spare is shared by the arenas that have a part of it; each part
//!   is given out once.
//! * The spare is made, renewed and freed only under the lock under which a writer prepares, logs and inserts (the
//!   engine's commit lock). So what was prepared is there until it is inserted.
//! * The pool does not touch the contents of a chunk: that the system provides its pages changes nothing that is used.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{self, Error};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::env::{Chunk, Signal, beside};

/// The largest chunk that is pooled, and the smallest that the system takes back at once. Since the next chunk has a
/// quarter of the arena's size, an arena is at most about a quarter larger than its contents.
pub const CHUNK_MAX: usize = Chunk::MAPPED_LEAST;

/// The system refused to allocate this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub usize);

impl Refused {
    /// The engine's error for it.
    #[cold]
    pub fn error(self) -> Error {
        Error::out_of_memory(self.0)
    }
}

/// A writer that fills a memtable in this time uses every chunk again.
const TRIM_AFTER: Duration = Duration::from_secs(5);

/// The least room of a spare: enough for any write of the usual size.
const SPARE_MIN: usize = 256 << 10;

/// How many chunks with all pages are kept ready by [`Pool::while_populated`]: the system provides one in 0.3 ms, and a
/// load fills one in 1.5 ms, on a processor of its own each (2026-11-25). Three bridge some ms without a processor.
const AHEAD: usize = 3;

/// The pool of one database.
///
/// * Full-sized chunks that arenas returned are kept for the next ones: their pages are mapped already, which saves
///   about the cost of an insert. Chunks that nobody used for a while are freed, and so are those that, with the ones
///   in use, exceed a full memtable and one that fills.
/// * The *spare* is allocated and untouched, so it takes no memory yet. A write that was logged must get into the
///   memtable, so before it is logged there is room for it in the spare. The spare is used only when the system refuses
///   other memory.
#[derive(Debug)]
pub struct Pool {
    kept: Mutex<Kept>,
    bytes_max: usize,
    /// Whether reads check the records in its memory.
    paranoid: bool,
    /// Copy of the room in the spare, readable without the lock.
    spare_room: AtomicUsize,
    /// Bytes of retired arenas that are still held.
    pinned: AtomicUsize,
    /// Makes the system refuse all memory.
    #[cfg(test)]
    pub refuses: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    chunks: Vec<Chunk>,
    /// Full-sized chunks in arenas.
    in_use: usize,
    /// The lowest count of them since the last [`Pool::trim`].
    least: usize,
    trimmed: Duration,
    spare: Option<Spare>,
    /// Wakes the thread that populates chunks when one was taken; `None` when there is no such thread.
    taken: Option<Arc<Signal>>,
}

impl Kept {
    /// How many more chunks are kept, of a pool that keeps up to `bytes_max`.
    fn room(&self, bytes_max: usize) -> usize {
        let most = bytes_max / CHUNK_MAX;
        let beside = (2 * most).saturating_sub(self.in_use).min(most);
        beside.saturating_sub(self.chunks.len())
    }
}

#[derive(Debug)]
struct Spare {
    chunk: Arc<Chunk>,
    /// The used part.
    used: usize,
}

impl Spare {
    fn is_large(&self) -> bool {
        self.chunk.len() > SPARE_MIN
    }
}

impl Pool {
    /// Whether reads check the records in its memory.
    pub fn is_paranoid(&self) -> bool {
        self.paranoid
    }

    /// One whose records are checked when they are read, or not.
    pub fn paranoid(self, paranoid: bool) -> Pool {
        Pool { paranoid, ..self }
    }

    /// An empty pool that keeps up to `bytes_max`.
    pub fn new(bytes_max: usize) -> Pool {
        Pool {
            kept: Mutex::default(),
            bytes_max,
            paranoid: false,
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

    /// Bytes of retired arenas that are still held.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Adds a retired arena that is still held.
    pub fn pin(&self, bytes: usize) {
        self.pinned.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts it.
    pub fn unpin(&self, bytes: usize) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that it keeps now, without the spare.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.kept.lock().chunks.len() * CHUNK_MAX
    }

    /// Ensures that up to `room` bytes can be put into arenas even if the system refuses memory. Called by the thread
    /// that will do so.
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

    /// Frees what nobody used for [`TRIM_AFTER`], but for the spare. Returns whether that is larger than usual, so that
    /// [`Pool::take_large_spare`] should free it.
    #[must_use = "a large spare is given back by its owner"]
    pub fn trim(&self, now: Duration) -> bool {
        let mut kept = self.kept.lock();
        if now < kept.trimmed + TRIM_AFTER {
            return false;
        }
        kept.trimmed = now;
        let needless = std::mem::take(&mut kept.least);
        let stay = kept.chunks.len() - needless;
        let gone = kept.chunks.split_off(stay);
        kept.least = stay;
        let has_large_spare = kept.spare.as_ref().is_some_and(Spare::is_large);
        drop(kept);
        drop(gone);
        has_large_spare
    }

    /// Takes out the spare if it is larger than usual. The caller holds the lock under which callers of
    /// [`Pool::prepare`] insert: else a writer might find no room for a write that it has logged. The caller drops the
    /// spare after that lock, because dropping takes time.
    pub fn take_large_spare(&self) -> Option<Arc<Chunk>> {
        let spare = self.kept.lock().spare.take_if(|spare| spare.is_large())?;
        self.spare_room.store(0, Ordering::Relaxed);
        Some(spare.chunk)
    }

    /// Takes back an arena's chunks, and keeps some of them.
    pub fn give(&self, returned: &mut Vec<Chunk>) {
        let full_sized = returned.extract_if(.., |chunk| chunk.len() == CHUNK_MAX);
        let mut full_sized: Vec<Chunk> = full_sized.collect();
        let mut kept = self.kept.lock();
        kept.in_use -= full_sized.len();
        let stay = full_sized.len().min(kept.room(self.bytes_max));
        kept.chunks.extend(full_sized.drain(..stay));
        // Freeing the rest is slow, so it comes after the lock.
        drop(kept);
    }

    /// Does `work`, which fills arenas faster than the system provides single pages. Once it has taken a full-sized
    /// chunk, another thread keeps [`AHEAD`] of them ready. Chunks that are left are freed. One thread at a time calls
    /// this.
    pub fn while_populated<T>(&self, work: impl FnOnce() -> T) -> T {
        let taken = Arc::new(Signal::default());
        self.kept.lock().taken = Some(taken.clone());
        let end = || {
            self.kept.lock().taken = None;
            taken.notify();
        };
        let done = beside("ebbtide-pages", || self.populate(&taken), end, work);
        let left = std::mem::take(&mut self.kept.lock().chunks);
        drop(left);
        done
    }

    fn populate(&self, taken: &Signal) {
        loop {
            taken.wait(Duration::MAX);
            loop {
                let kept = self.kept.lock();
                if kept.taken.is_none() {
                    return;
                }
                if kept.chunks.len() >= AHEAD || kept.room(self.bytes_max) == 0 {
                    break;
                }
                drop(kept);
                // Where the system refuses memory, the next writer that needs some gets the error.
                let Ok(chunk) = self.ask(CHUNK_MAX) else {
                    break;
                };
                chunk.populate();
                self.kept.lock().chunks.push(chunk);
            }
        }
    }

    /// A full-sized chunk.
    pub fn take(&self) -> Result<Chunk, Refused> {
        let mut kept = self.kept.lock();
        let chunk = kept.chunks.pop();
        kept.least = kept.least.min(kept.chunks.len());
        kept.in_use += 1;
        if let Some(taken) = &kept.taken {
            taken.notify();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::give_way;

    /// Goal: chunks are ready before they are taken, never more than [`AHEAD`] or than the pool keeps, and none is left.
    /// Method: takes from a large pool and from one of two chunks, and looks until the thread has done its part.
    #[test]
    #[cfg_attr(miri, ignore = "takes megabytes")]
    fn a_few_chunks_are_populated_ahead() {
        for (most, ready) in [(64, AHEAD), (2, 2)] {
            let pool = Pool::new(most * CHUNK_MAX);
            let taken = pool.while_populated(|| {
                assert_eq!(pool.bytes(), 0, "none was taken");
                let first = pool.take().unwrap();
                let mut taken = vec![];
                for _ in 0..2 * AHEAD {
                    let in_use = 1 + taken.len();
                    let ready = ready.min((2 * most).saturating_sub(in_use));
                    while pool.bytes() < ready * CHUNK_MAX {
                        give_way();
                    }
                    for _ in 0..100 {
                        give_way();
                        assert!(pool.bytes() <= ready * CHUNK_MAX, "{in_use}");
                    }
                    let is_ready = ready > 0;
                    let chunk = pool.take().unwrap();
                    assert!(chunk.is_populated() == is_ready || !cfg!(target_os = "linux"));
                    taken.push(chunk);
                }
                taken.push(first);
                taken
            });
            assert_eq!(pool.bytes(), 0);
            assert!(pool.kept.lock().taken.is_none());
            pool.give(&mut { taken });
            assert_eq!(pool.bytes(), most.min(1 + 2 * AHEAD) * CHUNK_MAX);
        }
    }
}
