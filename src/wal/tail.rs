//! Reading a chain beside the process that writes it, and going on where the last reading ended. Nothing is written.
//!
//! ```text
//! writer     store into the ring -> write into the segment -> zero in the ring -> sync -> note behind the ring
//! reader     copy of the ring, with the note              -> copy of a segment -> copy of the next one ...
//! ```
//!
//! * **No gap.** A frame is in its segment before it leaves the ring, and the ring is read before the segments. So
//!   every frame that was acknowledged before the reading is found, in one or the other. A frame that is being stored
//!   does not match its checksum, which covers chain, segment and position: the reading ends before it.
//! * **Nothing that the catalogue does not go with.** A frame tells the last edit that was durable when it was
//!   written. The reading ends before the first frame that has seen a later edit than the catalogue beside which it
//!   is read.
//! * **A prefix has its end in the manifest**, and is read up to there, then the chain (keep.rs). Nobody writes it any
//!   more.
//! * **No end that was none.** Segments are removed from the first on, when a later edit says so. If the segment at
//!   which the reading began has its name still when it is over, none was missing behind it.
//! * **No damage that was none.** The note is read before the segments, so what it says was synced is there. A
//!   reading that ends before it, or before what the manifest knows to be synced, is an error. Where the writer had
//!   moved on, the next reading ends elsewhere; the same error again is damage.

use std::path::Path;

use crate::base::{Error, Result, Seq, Timestamp};
use crate::env::Fs;
use crate::wal::chain::{LogStart, ring_name};
use crate::wal::folder::{Folder, Loaded, Ring};
use crate::wal::frame::{FrameKind, HEADER_LEN, Position, RING_TAIL_LEN, SegmentHeader};
use crate::wal::replay::{Frame, frame_at};

/// Up to where a chain was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailPosition {
    /// The number of the segment.
    pub segment: u64,
    /// The next frame's.
    pub position: Position,
}

/// The result of a reading.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Where it ended.
    pub place: TailPosition,
    /// The highest sequence number; 0 when there was no frame.
    pub last_seq: Seq,
    /// The highest settled time.
    pub time_high_water: Timestamp,
    /// Frames follow that have seen a later edit.
    pub is_cut: bool,
}

/// Shows the frames of a chain, from its first segment on or from a place in it, up to its end or to the first that
/// has seen an edit after `edit`. `synced` is how far the manifest knows the log to be synced.
pub fn tail(
    fs: &dyn Fs,
    dir: &Path,
    log: &LogStart,
    from: Option<TailPosition>,
    (edit, synced): (u64, Position),
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<Tail> {
    let ring = Ring::of_chain(fs, dir, log)?;
    ring.check()?;
    let folder = Folder::new(fs, dir);
    let first = from.map_or(log.oldest(), |place| place.segment);
    let (chain, _) = log.chain_of(first);
    let mut segment = folder.first(&LogStart {
        chain,
        first,
        ..*log
    })?;
    let start = Position(segment.header().start);
    let mut out = Tail {
        place: from.unwrap_or(TailPosition {
            segment: first,
            position: start,
        }),
        last_seq: Seq(0),
        time_high_water: Timestamp(0),
        is_cut: false,
    };
    while show(&segment, &ring, (log, edit), &mut out, visit)? {
        let end = out.place.position;
        let next = match log.chain_of(segment.header().number) {
            (_, Some(until)) if end == until => Some(folder.first(log)?),
            _ => folder.next(segment.header())?,
        };
        match next {
            Some(next) if next.header().start == out.place.position.0 => {
                out.is_cut = next.header().edit > edit;
                out.place.segment = next.header().number;
                let read = std::mem::replace(&mut segment, next);
                folder.spare.set(read.bytes);
            }
            _ => break,
        }
    }
    if fs.len(&folder.path(first))?.is_none() {
        let what = "the log segment is missing";
        return Err(Error::corruption(folder.path(first), 0, what));
    }
    let noted = ring.note.map_or(0, |note| note.position);
    let known = if out.is_cut { 0 } else { noted };
    expect_end(&segment, out.place.position.0, known.max(synced.0))?;
    Ok(out)
}

/// Refuses an end before the position up to which the log is known to be synced.
fn expect_end(segment: &Loaded, end: u64, synced: u64) -> Result<()> {
    if end >= synced {
        return Ok(());
    }
    let what = format!(
        "the log ends here, but it was synced up to its position {synced}, which is {} bytes later",
        synced - end
    );
    let offset = segment.offset_of(end);
    Err(Error::corruption(segment.path(), offset, what))
}

/// Shows the frames of one segment; false when the reading is over.
fn show(
    segment: &Loaded,
    ring: &Ring,
    (log, edit): (&LogStart, u64),
    out: &mut Tail,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<bool> {
    if out.is_cut {
        return Ok(false);
    }
    let (_, until) = log.chain_of(segment.header().number);
    while until.is_none_or(|until| out.place.position < until)
        && let Some((found, _)) = frame_at(segment, ring, out.place.position.0)
    {
        let header = found.header;
        if header.edit > edit {
            out.is_cut = true;
            return Ok(false);
        }
        visit(&Frame {
            header,
            payload: found.payload,
            path: segment.path(),
            offset: segment.offset_of(out.place.position.0),
        })?;
        out.last_seq = out.last_seq.max(header.last_seq);
        out.time_high_water = out.time_high_water.max(header.settled);
        out.place.position.0 += found.len as u64;
        if header.kind == FrameKind::End {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Nothing was appended behind a place: for a few bytes. A false answer may be wrong.
pub fn is_at_end(fs: &dyn Fs, dir: &Path, log: &LogStart, place: TailPosition) -> bool {
    // No frame and no segment begins with a zero.
    let byte_at = |path: &Path, offset: u64| -> Option<u8> {
        let bytes = fs.reader(path).and_then(|file| file.read_at(offset, 1));
        Some(bytes.ok()?[0])
    };
    let in_ring = || {
        let Some(number) = log.ring else {
            return Some(0);
        };
        let path = dir.join(ring_name(number));
        let len = fs.len(&path).ok()??.checked_sub(RING_TAIL_LEN as u64)?;
        byte_at(&path, place.position.0.checked_rem(len)?)
    };
    let folder = Folder::new(fs, dir);
    let in_segment = || {
        let offset = offset_in(fs, &folder.path(place.segment), log, place)?;
        let path = folder.path(place.segment);
        match offset < fs.len(&path).ok()?? {
            true => byte_at(&path, offset),
            false => Some(0),
        }
    };
    let in_next = || {
        let path = folder.path(place.segment + 1);
        match fs.len(&path).ok()? {
            Some(1..) => byte_at(&path, 0),
            _ => Some(0),
        }
    };
    // In this order, as a frame moves.
    in_ring() == Some(0) && in_segment() == Some(0) && in_next() == Some(0)
}

/// Where a position lies in its segment's file, if that is the one that was read.
fn offset_in(fs: &dyn Fs, path: &Path, log: &LogStart, place: TailPosition) -> Option<u64> {
    let bytes = fs.reader(path).ok()?.read_at(0, HEADER_LEN).ok()?;
    let header = SegmentHeader::decode(&bytes).ok()?;
    let is_it = (header.identity, header.number) == (log.chain, place.segment);
    let behind = place.position.0.checked_sub(header.start)?;
    is_it.then_some(HEADER_LEN as u64 + behind)
}
