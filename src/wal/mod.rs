//! The write-ahead log: what was acknowledged and is not in a table yet.
//!
//! A *log* is a chain of segment files, `NNNNNN.wal`, whose numbers rise by one. Every opening of the database starts a
//! new chain, above every number in the folder; the manifest names it ([`LogStart`]): by its identity, by the segment at
//! which replay starts, and by its ring. Segments and rings of another chain are refused, and so is a log without its ring.
//!
//! ```text
//! position   0 ............ s1 ................. s2 ........ end
//! chain      | segment 7    | segment 8          | segment 9      a segment says where it starts, and so where the one
//!                                                                 before it ends; what lies behind is no part of it
//! ```
//!
//! A *position* counts the bytes of all frames of the chain before it. It only rises, and with the chain's identity and
//! the segment's number it is part of every frame's checksum: bytes left over from an earlier lap of the ring, or written
//! by an append that failed, are never taken for a frame.
//!
//! **Order.** A frame is acknowledged only when every earlier one is complete: an [`Appender`] has one owner, the commit
//! lock. Acknowledged means: survives a killed process. [`Log::sync_to`] makes it survive a power cut.
//!
//! **The end.** The first byte that is no frame ends the log, over all later segments. Every frame carries a *watermark*,
//! up to where the log was known to be synced when it was written. Recovery searches what lies behind the end for a frame
//! whose watermark is beyond it: found, something that was durable is damaged, and that is an error; not found, it is the
//! torn tail of a power cut, and nobody was promised what is missing. The frames that were synced last have none behind
//! them: for these the ring's file says how far the log was synced. That is not synced itself. [`Appender::close`] syncs,
//! then writes and syncs an end mark. The manifest says how far the log was synced before its last edit: a log that ends
//! before that is damaged. Only where a power cut took what the ring's file said, and no edit came since, can damage in the
//! group of frames synced last not be told from a torn tail.
//!
//! **What is needed no more.** A segment is removed when nothing in it is needed; files are not used again, and the ring
//! is zeroed where its frames have come into segments. So a frame that no memtable needs lies in no file but a segment
//! that also holds one that is needed: the engine is told since when ([`SegmentInfo::stale_since`]), and moves that one.
//!
//! **Full disks.** A segment's blocks are reserved before its first frame; no room is an error of that one append.

mod frame;
mod segments;
mod store;
mod writer;
mod folder;
mod replay;
mod drain;

pub use drain::{drain_ring, remove_rings};
pub use frame::{
    Decoder, Encoder, FrameHeader, FrameKind, HEADER_LEN as SEGMENT_HEADER_LEN, PayloadCrc,
    Position, SegmentHeader, SyncedNote,
};
pub use replay::{Frame, Replayed, SegmentSummary, replay, salvage};
pub use segments::{
    LogStart, SegmentInfo, holds_chain, log_files, remove_before, remove_chain, sync_chain,
};
pub use writer::{Appender, Log, LogOptions, SegmentPin};

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;
