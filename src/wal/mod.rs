//! The write-ahead log: acknowledged writes that are not in a table yet.
//!
//! A *log* is a chain of segment files, `NNNNNN.wal`, with consecutive numbers. Every open of the database starts a new
//! chain, above every number in the folder. The manifest names it ([`LogStart`]) by its identity, by the segment at
//! which replay starts, and by its ring. Segments and rings of another chain are refused, and so is a log without its
//! ring. An open may keep the log that it finds: then the new chain continues it, and the manifest names it as the new
//! one's *prefix*, with its end (keep.rs).
//!
//! ```text
//! position   0 ............ s1 ................. s2 ........ end
//! chain      | segment 7    | segment 8          | segment 9      a segment says where it starts, and so where the one
//!                                                                 before it ends; what lies behind is no part of it
//! ```
//!
//! A *position* counts the bytes of all frames of the chain before it, and only rises. Every frame's checksum includes
//! its position, the chain's identity and the segment's number: so bytes left from an earlier lap of the ring, or
//! written by a failed append, are never taken for a frame.
//!
//! **Order.** A frame is acknowledged only when every earlier one is complete, because the [`Appender`] has one owner,
//! the commit lock. An acknowledged frame survives a killed process. After [`Log::sync_to`] it survives a power cut.
//!
//! **The end.** The first byte that is not part of a frame ends the log. Every frame carries a *watermark*: up to where
//! the log was known to be synced when it was written. Recovery searches everything behind the end for a frame whose
//! watermark is beyond the end. If there is one, durable bytes are damaged, which is an error. If there is none, this
//! is the torn tail of a power cut, and what is missing was never synced. The last synced group of frames has no frame
//! behind it, so a note in the ring's file says how far the log was synced; the note itself is not synced.
//! [`Appender::close`] syncs, then writes and syncs an end mark. The manifest also records how far the log was synced
//! before its last edit, and a log that ends before that is damaged. So damage in the last synced group passes for a
//! torn tail only if a power cut took the note and no edit came since.
//!
//! **Garbage.** A segment is removed when no frame in it is needed; files are not reused, and the ring is zeroed where
//! its frames have been drained. So a stale frame is on disk only in a segment that also holds a needed one. The engine
//! sees since when ([`SegmentInfo::stale_since`]), and moves the needed frames.
//!
//! **Full disks.** A segment's blocks are reserved before its first frame; if there is no room, only that append fails.

mod frame;
mod chain;
mod segments;
mod store;
mod group;
mod writer;
mod folder;
mod replay;
mod tail;
mod drain;
mod keep;

pub use chain::{
    LogStart, end_segment, holds_chain, log_files, parse_ring, remove_before, remove_chain,
    sync_chain,
};
pub use drain::{drain_ring, remove_rings};
pub use frame::{
    Decoder, Encoder, FrameHead, FrameHeader, FrameKind, HEADER_LEN as SEGMENT_HEADER_LEN,
    PayloadCrc, Position, SegmentHeader, SyncedNote,
};
pub use keep::{doubt_syncs, keep};
pub use replay::{Frame, Replayed, SegmentSummary, replay, salvage, salvage_ahead};
pub use segments::{Kept, SegmentInfo};
pub use tail::{Tail, TailPosition, is_at_end, tail};
pub use writer::{Appender, Log, LogOptions, SegmentPin};

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;
