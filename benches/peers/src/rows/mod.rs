//! The rows of a table: plain work on a population of items, as fast as it goes, the same on each engine.
//!
//! ```text
//!   round 1   fill      ebbtide  rocksdb  fjall  redb  lmdb       a process each, one after the other
//!             compact   rocksdb  fjall  redb  lmdb  ebbtide       on the folder that its engine filled
//!             get       ...
//!   round 2   fill      ...                                       in new folders
//! ```
//!
//! All items carry a lifetime, and none of them ends meanwhile: what every engine pays for having lifetimes is in its
//! figures, what reclaiming costs is not.

pub mod chart;
mod child;
mod items;
pub mod parent;
pub mod table;

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::engines::{Kind, OwnFigures};
use crate::latency::Tail;
use crate::summary::Answers;

pub use child::{leave, run};
pub use items::{KEY_BYTES_MAX, KEY_BYTES_MIN, VALUE_BYTES_MIN};

/// The rows by name, in the order in which they are worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// Puts all items into an empty database, in random order
    Fill,
    /// The engine's own full compaction
    Compact,
    /// Gets of items that are there, each as likely
    Get,
    /// Gets of items that are there, zipfian
    GetZipfian,
    /// Gets of items that are not there
    GetAbsent,
    /// Gets of 16 items that are there by one call, each as likely, counted in items
    GetMany,
    /// The same of items that are not there
    GetManyAbsent,
    /// Scans of 100 items from anywhere, after the compaction
    Scan,
    /// Scans of 100 items that are lent to a callback, after the compaction
    Lent,
    /// Scans of everything, counted in items
    ScanAll,
    /// The same, lent to a callback
    LentAll,
    /// Scans of 100 items that are lent by chunks, after the compaction
    Chunks,
    /// Scans of everything, lent by chunks, counted in items
    ChunksAll,
    /// Scans of 100 items over 8 runs that overlap, where an engine has runs
    ScanRuns,
    /// The same, lent to a callback
    LentRuns,
    /// Scans of everything over 8 runs, lent to a callback, counted in items
    LentAllRuns,
    /// Two gets and two puts of items that are there in one transaction
    Transact,
    /// Puts over items that are there, each as likely
    Overwrite,
    /// Half gets, half puts, zipfian
    Half,
    /// 95 gets and 5 puts of a hundred, zipfian
    Most,
    /// Puts that survive a power cut
    Synced,
    /// 50 % gets, 50 % puts, zipfian
    YcsbA,
    /// 95 % gets, 5 % puts, zipfian
    YcsbB,
    /// Gets, zipfian
    YcsbC,
    /// 95 % gets, of new items most of all; 5 % new ones
    YcsbD,
    /// 95 % scans of 1 to 100 items, zipfian; 5 % new ones
    YcsbE,
    /// 50 % gets, 50 % gets with a put of the same item, zipfian
    YcsbF,
    /// Opening after a kill, until the first get is answered
    Reopen,
}

/// A thread's next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Gets an item.
    Get,
    /// Puts an item that is there.
    Put,
    /// Puts a new one.
    Insert,
    /// Gets an item and puts it.
    Modify,
    /// Gets several items by one call.
    GetMany,
    /// Gets items and puts others in a transaction.
    Transact,
    /// Shows 100 items from one on.
    Scan,
    /// Shows 1 to 100 of them.
    ScanSome,
    /// Shows all.
    ScanAll,
}

/// How a scan shows its items, where an engine has several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanMethod {
    /// By an iterator that gives them.
    Given,
    /// By a callback that they are lent to.
    Lent,
    /// By chunks that are lent.
    Chunks,
}

/// The set of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Each as likely.
    Uniform,
    /// Few of them most of the time, and these lie anywhere.
    Zipfian,
    /// The newest most of the time.
    Latest,
    /// Such as are not there.
    Absent,
}

impl Row {
    /// For a person to read.
    pub fn title(self) -> &'static str {
        match self {
            Row::Fill => "fill, random order",
            Row::Compact => "full compaction",
            Row::Get => "get, present, uniform",
            Row::GetZipfian => "get, present, zipfian",
            Row::GetAbsent => "get, absent",
            Row::GetMany => "get 16 by one call, present, items",
            Row::GetManyAbsent => "get 16 by one call, absent, items",
            Row::Transact => "transaction, 2 gets and 2 puts",
            Row::Scan => "scan of 100, settled",
            Row::Lent => "scan of 100, settled, lent",
            Row::ScanAll => "full scan, items",
            Row::LentAll => "full scan, lent, items",
            Row::Chunks => "scan of 100, settled, lent by chunks",
            Row::ChunksAll => "full scan, lent by chunks, items",
            Row::ScanRuns => "scan of 100, 8 runs",
            Row::LentRuns => "scan of 100, 8 runs, lent",
            Row::LentAllRuns => "full scan, 8 runs, lent, items",
            Row::Overwrite => "overwrite, random",
            Row::Half => "half reads, half writes, zipfian",
            Row::Most => "95 % reads, zipfian",
            Row::Synced => "synced puts",
            Row::YcsbA => "YCSB A",
            Row::YcsbB => "YCSB B",
            Row::YcsbC => "YCSB C",
            Row::YcsbD => "YCSB D",
            Row::YcsbE => "YCSB E",
            Row::YcsbF => "YCSB F",
            Row::Reopen => "reopen after a kill",
        }
    }

    /// How many threads work at it unless others are asked for.
    pub fn usual_threads(self) -> &'static [u32] {
        match self {
            Row::Get => &[1, 2],
            Row::Half | Row::Most => &[2],
            Row::Synced => &[1, 16],
            _ => &[1],
        }
    }

    /// Whether other numbers of threads can be asked for.
    pub fn takes_threads(self) -> bool {
        let scans_all = self.operation(0) == Operation::ScanAll;
        let is_other = matches!(self, Row::Fill | Row::Compact | Row::Synced | Row::Reopen);
        !self.keeps_runs() && !scans_all && !is_other
    }

    /// Whether it is about 8 runs, which no compaction touches.
    pub fn keeps_runs(self) -> bool {
        matches!(self, Row::ScanRuns | Row::LentRuns | Row::LentAllRuns)
    }

    /// How its scans show items.
    pub fn way(self) -> ScanMethod {
        match self {
            Row::Lent | Row::LentAll | Row::LentRuns | Row::LentAllRuns => ScanMethod::Lent,
            Row::Chunks | Row::ChunksAll => ScanMethod::Chunks,
            _ => ScanMethod::Given,
        }
    }

    /// Whether its figure is the time that it takes.
    pub fn is_timed(self) -> bool {
        matches!(self, Row::Compact | Row::Reopen)
    }

    /// Whether engines are compared by it: a full compaction is not the same work for each.
    pub fn is_compared(self) -> bool {
        self != Row::Compact
    }

    /// The operation that a number below 100 stands for.
    fn operation(self, percent: u64) -> Operation {
        match self {
            Row::Fill => Operation::Insert,
            Row::Overwrite | Row::Synced => Operation::Put,
            Row::Half | Row::YcsbA if percent < 50 => Operation::Put,
            Row::Most | Row::YcsbB if percent < 5 => Operation::Put,
            Row::YcsbD | Row::YcsbE if percent < 5 => Operation::Insert,
            Row::YcsbE => Operation::ScanSome,
            Row::YcsbF if percent < 50 => Operation::Modify,
            Row::Scan | Row::ScanRuns | Row::Lent | Row::LentRuns | Row::Chunks => Operation::Scan,
            Row::ScanAll | Row::LentAll | Row::LentAllRuns | Row::ChunksAll => Operation::ScanAll,
            Row::GetMany | Row::GetManyAbsent => Operation::GetMany,
            Row::Transact => Operation::Transact,
            _ => Operation::Get,
        }
    }

    fn over(self) -> Over {
        match self {
            Row::GetAbsent | Row::GetManyAbsent => Over::Absent,
            Row::YcsbD => Over::Latest,
            Row::GetZipfian | Row::Half | Row::Most => Over::Zipfian,
            Row::YcsbA | Row::YcsbB | Row::YcsbC | Row::YcsbE | Row::YcsbF => Over::Zipfian,
            _ => Over::Uniform,
        }
    }

    /// One operation of so many is timed, so that reading the clock costs a fast engine nothing.
    fn timed_of(self) -> u64 {
        match self.operation(50) {
            Operation::Scan | Operation::ScanSome | Operation::ScanAll => 1,
            _ if self == Row::Synced => 1,
            _ => 8,
        }
    }
}

/// One engine at one row, in a process of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The engine.
    pub engine: Kind,
    /// The row.
    pub row: Row,
    /// How many threads work at it.
    pub threads: u32,
    /// The number of the round.
    pub round: u32,
    /// The scale of all rows.
    pub scale: Scale,
    /// The engine's folder in this round: empty for those rows that fill it.
    pub folder: PathBuf,
}

/// The settings that all rows and engines of one call share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// How many items there are.
    pub items: u64,
    /// Bytes of a key.
    pub key_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Values can be compressed to a half, and engines that compress do.
    pub lz4: bool,
    /// Seconds that a row goes on for.
    pub seconds: f64,
    /// Bytes of a memtable.
    pub memtable_bytes: u64,
    /// Bytes of the block cache; `None`: four times the data.
    pub cache_bytes: Option<u64>,
    /// Another population of the same kind.
    pub seed: u64,
}

/// The result of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The order that it answers.
    pub order: Order,
    /// Operations done; items, where everything is scanned.
    pub operations: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// How long one took.
    pub latency: Tail,
    /// How they were answered, and how the scan before them was.
    pub answers: Answers,
    /// Seconds that opening took.
    pub open_seconds: f64,
    /// Allocated bytes of the folder after it.
    pub disk_bytes: u64,
    /// Bytes that the process wrote meanwhile, by the system's account.
    pub written_bytes: u64,
    /// Memory after it that was not a file's.
    pub anonymous_bytes: u64,
    /// The most memory that was resident, mapped files included.
    pub resident_bytes: u64,
    /// Cores that other processes, or the machine's host, used meanwhile.
    pub other_cores: f64,
    /// The engine's own figures after it.
    pub own: OwnFigures,
}

impl Outcome {
    /// How much was done in a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}
