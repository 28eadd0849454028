//! Keeps the log that an open finds, in place of logging anew what it holds: the next chain continues it.
//!
//! ```text
//! found    000005.wal 000006.wal | zeros    000005.ring: the last frames    000007.wal: allocated ahead
//! kept     000005.wal 000006.wal                                            000008.wal 000008.ring: the new chain
//!          ^ first             ^ end: from there on zeros                   ^ begins at the position `end`
//! ```
//!
//! The manifest then names both: the *prefix* by its chain, first segment and end, and the new chain with its ring. The
//! memtables into which the prefix was replayed need its segments, which are released, stale and relogged like those of
//! any chain (engine/jobs/log_gc.rs). With the last of them the manifest forgets the prefix.
//!
//! **Why it lasts.** When the manifest names the prefix, all of it is durable up to its end:
//!
//! 1. Replay has just found every frame whole. Frames that only the ring has are copied into their segments, whose room
//!    is allocated. Then the segments are synced, from the one up to whose end the log was known to be synced. The folder
//!    is synced with the first segment of the new chain. The manifest comes after that.
//! 2. A sync that succeeds proves that only if no sync has failed before: the system tells of a failure once, and may
//!    have dropped the bytes that it could not write, while reads still see them. So the ring says how many syncs have
//!    begun and not succeeded (store.rs). That number outlives a killed process, as the system's cache of the segments
//!    does; after a power cut both are read from the device. If a sync may have failed, nothing is kept. An open counts
//!    its own first sync in the ring before that sync, so each log is kept at the first try or not at all. Where a full
//!    disk does not even take these four bytes, which replace others, the open goes on without a new log, and fails if
//!    its sync does; the next open does not know of that failure alone.
//!
//! **Why a crash at any moment is replayed in order.** Until the manifest has its name, the one before it counts, and with
//! it the old chain with its ring, in which nothing has changed but that frames are in their segments, too: a second open
//! finds the same frames, whatever a power cut left of the copies. From then on a replay reads the prefix up to its end
//! and goes on in the new chain, whose first segment starts at that position.
//!
//! **Why nothing behind the end comes to life.** Replay stops at the position that the manifest names, and the new
//! chain's frames have another identity. Besides, only zeros follow: a log that ends in a torn frame, or in any other
//! bytes, is logged anew. The segment that was allocated ahead and the ring are removed.
//!
//! **Why nothing expired stays.** A log is kept only if replay has brought in all of its frames: then nothing in it is
//! stale, and a memtable whose items expire releases its segments in time, as always.
//!
//! **One at a time.** An open that finds a prefix logs anew. Otherwise a process that is killed at once each time would
//! leave a segment each time. A log that was closed is logged anew too: it holds little.

use std::ops::Range;
use std::path::Path;

use crate::base::{Result, file_name};
use crate::env::{Fs, ReadAt};
use crate::wal::chain::{LogStart, Prefix, ring_name};
use crate::wal::folder::Folder;
use crate::wal::frame::{
    HEADER_LEN, NO_SYNC, RING_TAIL_LEN, SYNCED_NOTE_LEN, SYNCS_AT, SyncedNote,
};
use crate::wal::replay::Replayed;
use crate::wal::segments::{Kept, Segment};

/// Makes a log durable that was just replayed and that nobody writes, up to its end, so that a new chain may continue it;
/// `None` if it cannot be kept. The folder is not synced.
pub fn keep(fs: &dyn Fs, dir: &Path, log: &LogStart, found: &Replayed) -> Result<Option<Kept>> {
    let is_whole = !found.clean && found.torn.is_none() && found.ends_in_zeros;
    let Some(number) = log.ring.filter(|_| is_whole && log.prefix.is_none()) else {
        return Ok(None);
    };
    let ring = OldRing::of(fs, dir, number)?;
    if ring.syncs()? != NO_SYNC {
        return Ok(None);
    }
    let synced = ring.synced(log.chain)?;
    doubt_syncs(fs, dir, log)?;
    let folder = Folder::new(fs, dir);
    let (mut segments, mut unsynced) = (vec![], vec![]);
    for summary in found.segments.iter().filter(|of| of.bytes > 0) {
        let Some(header) = folder.peek(log.chain, summary.number)? else {
            return Ok(None);
        };
        let header = *header.header();
        let path = dir.join(file_name::segment(header.number));
        let file = fs.open(&path)?;
        let end = header.start + summary.bytes;
        for only in &found.in_ring {
            let (from, to) = (only.start.max(header.start), only.end.min(end));
            let offset = HEADER_LEN as u64 + from.saturating_sub(header.start);
            ring.each(from..to, &mut |at, bytes| file.write_at(offset + at, bytes))?;
        }
        if end > synced {
            unsynced.push(segments.len());
        }
        segments.push(Segment::kept(header, path, file)?);
    }
    unsynced.iter().for_each(|at| segments[*at].start_writing());
    unsynced.iter().try_for_each(|at| segments[*at].sync())?;
    let prefix = Prefix {
        chain: log.chain,
        first: log.first,
        end: found.end,
    };
    Ok((!segments.is_empty()).then_some(Kept { prefix, segments }))
}

/// Says of a log that a sync of it may have failed, before one does that nobody else is told of.
pub fn doubt_syncs(fs: &dyn Fs, dir: &Path, log: &LogStart) -> Result<()> {
    let Some(number) = log.ring else {
        return Ok(());
    };
    let path = dir.join(ring_name(number));
    let Some(len) = fs.len(&path)? else {
        return Ok(());
    };
    let at = (len + SYNCS_AT as u64).saturating_sub(RING_TAIL_LEN as u64);
    fs.open(&path)?.write_at(at, &0u32.to_le_bytes())
}

/// The ring of a log that nobody writes.
struct OldRing {
    file: Box<dyn ReadAt>,
    /// Bytes of frames.
    len: u64,
}

impl OldRing {
    fn of(fs: &dyn Fs, dir: &Path, number: u64) -> Result<OldRing> {
        let path = dir.join(ring_name(number));
        let file = fs.reader(&path)?;
        let len = fs.len(&path)?.unwrap_or_default();
        let len = len.saturating_sub(RING_TAIL_LEN as u64);
        Ok(OldRing { file, len })
    }

    fn syncs(&self) -> Result<u32> {
        let bytes = self.file.read_at(self.len + SYNCS_AT as u64, 4)?;
        Ok(bytes
            .first_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    /// Up to where the log is known to be synced.
    fn synced(&self, chain: u64) -> Result<u64> {
        let bytes = self.file.read_at(self.len, SYNCED_NOTE_LEN)?;
        Ok(SyncedNote::decode(chain, &bytes).map_or(0, |note| note.position))
    }

    /// Shows the bytes of these positions, at most a lap, in one part or two: each with its distance from the first.
    fn each(
        &self,
        positions: Range<u64>,
        show: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut position = positions.start;
        while position < positions.end {
            let at = position % self.len;
            let len = (positions.end - position).min(self.len - at);
            show(
                position - positions.start,
                &self.file.read_at(at, len as usize)?,
            )?;
            position += len;
        }
        Ok(())
    }
}
