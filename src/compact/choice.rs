//! Input and output of the compaction picker: goals, and the next job with its reason.

use std::fmt;

use crate::base::{TableId, Timestamp};
use crate::catalog::RunId;

/// The picker's input besides the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goals {
    /// The number of runs that a container settles at.
    pub max_runs: usize,
    /// See `Options::reclaim_within`, in milliseconds.
    pub reclaim_within: u64,
    /// See `Options::reclaim_strict`.
    pub reclaim_strict: bool,
    /// See `Options::memtable_bytes`: the size of a young run.
    pub memtable_bytes: u64,
    /// From 0, as lazy as is worth it, to 1, when there is nothing else to do or the disk is full.
    pub eager: f64,
    /// The bytes worth rewriting to have one run less, because of the work that scans had with the current runs.
    pub scan_credit: u64,
    /// The bytes worth rewriting to have fewer dead records, because of those that scans passed.
    pub paid_by_passing: u64,
}

/// The reason for a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Expired bytes near their deadline.
    OnTime {
        /// The oldest expiry.
        expired: Timestamp,
        /// When its bytes must be gone.
        deadline: Timestamp,
    },
    /// There are too many runs.
    FewRuns {
        /// How many there are.
        of: usize,
        /// The cost for each run less: bytes rewritten, and bytes held past their end.
        price: u64,
    },
    /// Scans had as much work with the runs as a merge to fewer costs.
    Scans {
        /// How many there are.
        of: usize,
        /// The cost for each run less: bytes rewritten, and bytes held past their end.
        price: u64,
    },
    /// Expired bytes.
    Expired {
        /// How many there are in the inputs.
        bytes: u64,
    },
    /// Superseded bytes.
    Superseded {
        /// Bytes freed for each byte that survives.
        worth: f64,
    },
    /// There are too many range deletes.
    RangeDeletes {
        /// How many there are.
        of: usize,
    },
    /// Scans passed so many dead records that to rewrite these bytes costs no more.
    Passing {
        /// The bytes of the inputs.
        bytes: u64,
    },
    /// The user asked for compaction.
    Asked,
}

/// Priorities; a more urgent job may interrupt a less urgent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Young runs are merged; otherwise reads and then writes would slow down.
    Young,
    /// A deadline is near.
    Due,
    /// Everything else.
    Deep,
}

/// A rewrite of tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewrite {
    /// The tables.
    pub tables: Vec<TableId>,
    /// Whether dated output is cut into slots; otherwise everything goes to one run.
    pub cut: bool,
    /// Its priority.
    pub urgency: Urgency,
    /// The reason, for reports.
    pub why: Why,
}

/// The next job.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Remove these obsolete tables from the catalogue.
    Drop(Vec<TableId>),
    /// Join these runs into one in the catalogue, which lists their tables together.
    Join(Vec<RunId>),
    /// Rewrite these tables.
    Merge(Rewrite),
    /// Nothing now.
    Rest {
        /// When a job will be due if nobody writes, as far as the runs tell.
        until: Option<Timestamp>,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::OnTime { expired, deadline } => {
                write!(
                    f,
                    "on time: expired {} ms before it is due",
                    deadline.since(*expired)
                )
            }
            Why::FewRuns { of, price } => {
                write!(f, "few runs: of {of}, each one less for {price} bytes")
            }
            Why::Scans { of, price } => {
                write!(f, "scans: of {of} runs, each one less for {price} bytes")
            }
            Why::Expired { bytes } => write!(f, "little garbage: {bytes} bytes expired"),
            Why::Superseded { worth } => write!(
                f,
                "little garbage: {worth:.2} bytes superseded for each that survives"
            ),
            Why::RangeDeletes { of } => write!(f, "few range deletes: of {of}"),
            Why::Passing { bytes } => write!(f, "dead records: scans paid for {bytes} bytes"),
            Why::Asked => write!(f, "asked for"),
        }
    }
}
