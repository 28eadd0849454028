//! What the policy is asked for and what it answers: goals, and the next job with its reason.

use std::fmt;

use crate::base::{TableId, Timestamp};
use crate::catalog::RunId;

/// What the policy is given besides the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goals {
    /// How many runs a container settles at.
    pub max_runs: usize,
    /// See `Options::reclaim_within`, in milliseconds.
    pub reclaim_within: u64,
    /// See `Options::reclaim_strict`.
    pub reclaim_strict: bool,
    /// See `Options::memtable_bytes`: what a young run has.
    pub memtable_bytes: u64,
    /// From 0, as lazy as pays, to 1: nothing else is to be done, or the disk is full.
    pub eager: f64,
    /// The bytes that may be rewritten for each run less, because scans had as much work with the runs that are there.
    pub paid_by_scans: u64,
}

/// Why a job is done, in bytes and numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// An expiry nears its deadline.
    OnTime {
        /// The oldest one.
        expired: Timestamp,
        /// When its bytes are to be gone.
        deadline: Timestamp,
    },
    /// There are too many runs.
    FewRuns {
        /// How many there are.
        of: usize,
        /// Bytes rewritten, and held past their end, for each run less.
        price: u64,
    },
    /// Scans have had as much work with the runs as it takes to have fewer.
    Scans {
        /// How many there are.
        of: usize,
        /// Bytes rewritten, and held past their end, for each run less.
        price: u64,
    },
    /// Expired bytes.
    Expired {
        /// How many there are in what is rewritten.
        bytes: u64,
    },
    /// Superseded bytes.
    Superseded {
        /// For each byte that survives.
        worth: f64,
    },
    /// There are too many range deletes.
    RangeDeletes {
        /// How many there are.
        of: usize,
    },
    /// Somebody asked for everything to be done.
    Asked,
}

/// What goes before what; a job may be interrupted for a more urgent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Young runs are merged, or reads and then writes suffer.
    Young,
    /// A deadline nears.
    Due,
    /// All else.
    Deep,
}

/// Tables that are read and written anew.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewrite {
    /// Which.
    pub tables: Vec<TableId>,
    /// Whether dated output is cut into slots; otherwise all goes to one run.
    pub cut: bool,
    /// What may interrupt it.
    pub urgency: Urgency,
    /// For those who ask.
    pub why: Why,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// These tables matter no more: the catalogue forgets them.
    Drop(Vec<TableId>),
    /// These runs become one: the catalogue lists their tables together.
    Join(Vec<RunId>),
    /// These tables are read and written anew.
    Merge(Rewrite),
    /// Nothing now.
    Rest {
        /// When something falls due if nobody writes, as far as the runs can tell.
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
            Why::Asked => write!(f, "asked for"),
        }
    }
}
