//! Internals for tests and fuzz targets of the engine, with the feature `unstable-internals`; not part of the public API, and
//! free to change.

use crate::Container;

pub use crate::base::Wait;
pub use crate::base::coding::{ByteReader, Malformed, put_frame, put_varint, read_frame};
pub use crate::base::hash::hash_key;
pub use crate::base::record::{Base, Header, Kind, RecordRef};
pub use crate::base::{ContainerId, ItemTtl, Seq, TableId, Timestamp};
pub use crate::catalog::{Catalogue, parse as parse_manifest};
pub use crate::data::batch::{Op, Ops, WriteTtl};
pub use crate::data::cursor::{Cursor, Position, Seek};
pub use crate::data::relogged::{Relogged, relogged};
pub use crate::engine::{repair as repair_with, verify_in};
pub use crate::env::{
    Call, Dir, Disk, FailedSync, Fault, FaultPlan, File, Fs, Lock, LockKind, ReadAt, Ring, Room,
    Sim, Survivors, pretend_memory_is_short,
};
pub use crate::expiry::{
    Census, DefaultMillis, Expire, ExpiryHistogram, ExpiryView, Settings, Tally,
};
pub use crate::table::{BlockCache, Expected, Table, TableBuilder, TableMeta, TableOptions};
pub use crate::wal::{FrameHeader, FrameKind, Log, LogOptions, PayloadCrc, replay};

/// Flips a bit of a key's newest record in memory, as failing memory would. False: none is there.
pub fn flip_in_memory(container: &Container, key: &[u8], bit: usize) -> bool {
    let engine = container.engine();
    engine.flip_in_memory(container.state(), key, bit)
}

/// The decoders of file parts, without the checksums before them, for fuzzing.
pub mod pieces {
    pub use crate::table::{Footer, Index, Layout, Share, Trailer, build_filter, may_contain};
    pub use crate::wal::{Decoder, Encoder, FrameHead, SegmentHeader};
}

/// The compaction picker, which `examples/policy.rs` simulates.
pub mod policy {
    pub use crate::catalog::{Facts, RunFacts, RunId, TableFacts};
    pub use crate::compact::{
        Choice, Decision, Goals, OlderVersions, Rewrite, Urgency, Verdict, Why, decide, guards,
        parts, pick, plan,
    };
    pub use crate::table::{Collector, Sampled, Statistics};
}
