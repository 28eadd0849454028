//! The findings of a replay: frames, segments and the end of the log.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::base::coding::Malformed;
use crate::base::{Error, Seq, Timestamp};
use crate::wal::frame::{FrameHeader, Position};

/// A frame passed to the caller.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The frame without its payload.
    pub header: FrameHeader,
    /// The payload.
    pub payload: &'a [u8],
    /// The file of its segment.
    pub path: &'a Path,
    /// Its offset in that file.
    pub offset: u64,
}

impl Frame<'_> {
    /// The error for a payload whose checksum is right and whose contents are invalid.
    pub fn corruption(&self, malformed: &Malformed) -> Error {
        let what = format!("in the log frame that starts here, {malformed}");
        Error::corruption(self.path, self.offset, what)
    }
}

/// Summary of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// The number in the file's name.
    pub number: u64,
    /// The highest sequence number in it; 0 when it has no frame.
    pub last_seq: Seq,
    /// Bytes of its frames.
    pub bytes: u64,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The highest sequence number; 0 when there was no frame.
    pub last_seq: Seq,
    /// The highest settled time.
    pub time_high_water: Timestamp,
    /// The highest number of an edit in a frame: a manifest that ends before it is damaged.
    pub edit: u64,
    /// Whether the log was closed and is complete.
    pub clean: bool,
    /// Where a frame was begun but not completed: the torn tail of a power cut.
    pub torn: Option<(PathBuf, u64)>,
    /// A number above every file in the folder, and above the first segment's: the next chain may start with it.
    pub next_segment: u64,
    /// The end of its frames.
    pub end: Position,
    /// The segments of the chain up to its end.
    pub segments: Vec<SegmentSummary>,
    /// The positions of the frames that only the ring has.
    pub in_ring: Vec<Range<u64>>,
    /// Whether nothing follows the end in its segment.
    pub ends_in_zeros: bool,
}
