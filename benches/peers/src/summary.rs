//! The messages of a child: its order, its samples of every half second, and its summary at the end.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::book::Verdict;
use crate::engines::{Kind, OwnFigures};
use crate::latency::Tail;
use crate::loads::{Choice, Load, PUT_BYTES};
use crate::machine::Usage;

/// The task of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The engine.
    pub engine: Kind,
    /// The load.
    pub load: Choice,
    /// As fast as it goes, instead of at the load's rate.
    pub closed: bool,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// How soon after its expiry an item's bytes should be off the disk, in seconds.
    pub reclaim_within: u64,
    /// Where the database goes: an empty folder.
    pub folder: PathBuf,
    /// Where the samples go, a JSON object a line.
    pub samples: PathBuf,
    /// Where the summary goes, a JSON object.
    pub summary: PathBuf,
    /// The number of the round.
    pub round: u32,
}

/// The state of things, every half second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Since the load began.
    pub seconds: f64,
    /// Allocated bytes of the folder.
    pub disk_bytes: u64,
    /// Live bytes by the driver's books.
    pub live_bytes: u64,
    /// The share of the disk that is not live data: expired, superseded, log, structure.
    pub garbage: f64,
    /// Bytes that the process wrote, by the system's account, since it began.
    pub written_bytes: u64,
    /// Its memory that is not a file's; the driver's books are in it.
    pub anonymous_bytes: u64,
    /// The engine's own figures.
    pub own: OwnFigures,
    /// Bytes put since the load began.
    pub put_bytes: u64,
    /// Cores that other processes, or the machine's host, used in this half second.
    pub other_cores: f64,
    /// Latencies of the puts in this half second.
    pub put: Tail,
    /// Latencies of the gets in this half second.
    pub get: Tail,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The order that it answers.
    pub order: Order,
    /// Seconds of load.
    pub seconds: u64,
    /// Seconds of silence.
    pub silence: u64,
    /// Figures count from this second of the load on.
    pub warmup: u64,
    /// Why from then.
    pub warmup_rule: String,
    /// Mean of the live bytes after warm-up.
    pub live_bytes: f64,
    /// Mean of disk to live after warm-up.
    pub space_mean: f64,
    /// The worst of disk to live after warm-up.
    pub space_worst: f64,
    /// Bytes written per byte put between warm-up and the end of the load, by the system's account.
    pub written_steady: f64,
    /// The same over everything, fill and silence included.
    pub written_whole: f64,
    /// The same over everything, by the engine's own account.
    pub written_own: Option<f64>,
    /// Latencies of puts after warm-up.
    pub put: Tail,
    /// Latencies of gets after warm-up.
    pub get: Tail,
    /// How late the driver itself woke.
    pub wake: Tail,
    /// Operations a second, over the whole load.
    pub rate: f64,
    /// Cores that this process used during the load, the driver's threads included.
    pub own_cores: f64,
    /// Cores that other processes, or the machine's host, used during the load: figures were taken beside them.
    pub other_cores: f64,
    /// Operations that were due but not begun when the load was over.
    pub unserved: u64,
    /// Allocated bytes at the end of silence.
    pub end_disk_bytes: u64,
    /// Live bytes at the end of silence.
    pub end_live_bytes: u64,
    /// The engine's own figures at the end of silence.
    pub end_own: OwnFigures,
    /// The most memory that was not a file's; the driver's books are in it.
    pub anonymous_bytes: u64,
    /// The most sorted runs after warm-up.
    #[serde(default)]
    pub runs_most: Option<u64>,
    /// The most seconds by which expired bytes on disk missed their deadline, from the start of the load to the end.
    #[serde(default)]
    pub overdue_most: Option<f64>,
    /// How the gets were answered.
    pub answers: Answers,
}

/// How the gets were answered.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Answers {
    /// Right.
    pub right: u64,
    /// Either answer was right.
    pub open: u64,
    /// A live item was missing.
    pub missing: u64,
    /// An expired item was returned.
    pub expired: u64,
    /// Another item's value was returned.
    pub wrong: u64,
}

impl Answers {
    /// Wrong ones of all kinds.
    pub fn faults(&self) -> u64 {
        self.missing + self.expired + self.wrong
    }

    /// Counts others too.
    pub fn add(&mut self, other: &Answers) {
        self.right += other.right;
        self.open += other.open;
        self.missing += other.missing;
        self.expired += other.expired;
        self.wrong += other.wrong;
    }

    /// Counts one.
    pub fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Right => self.right += 1,
            Verdict::Open => self.open += 1,
            Verdict::Missing => self.missing += 1,
            Verdict::Expired => self.expired += 1,
            Verdict::Wrong => self.wrong += 1,
        }
    }
}

/// The findings of the driving threads.
#[derive(Default)]
pub struct Driven {
    /// When the last operation was done, since the load began.
    pub seconds: f64,
    /// Of the processors.
    pub usage: Option<Usage>,
    /// Puts done.
    pub puts: u64,
    /// Gets done.
    pub gets: u64,
    /// Operations that were due but not begun.
    pub unserved: u64,
    /// How the gets were answered.
    pub answers: Answers,
}

/// The findings of the sampling thread.
pub struct Watched {
    /// Of load and silence.
    pub samples: Vec<Sample>,
    /// Latencies of puts after warm-up.
    pub put: Tail,
    /// Latencies of gets after warm-up.
    pub get: Tail,
    /// How late the driver itself woke.
    pub wake: Tail,
}

impl Summary {
    /// Of a run: after `filled` puts, what its threads found.
    pub fn of(
        order: &Order,
        load: &Load,
        filled: u64,
        driven: &Driven,
        watched: &Watched,
    ) -> Result<Summary> {
        let samples = &watched.samples;
        let counted = load.warmup as f64..=driven.seconds;
        let steady = samples.iter().filter(|s| counted.contains(&s.seconds));
        let steady: Vec<&Sample> = steady.collect();
        let (Some(from), Some(to), Some(end)) = (steady.first(), steady.last(), samples.last())
        else {
            return Err("the load is too short for a figure".into());
        };
        let put_all = ((filled + driven.puts) * PUT_BYTES) as f64;
        let put_steady = (to.put_bytes - from.put_bytes).max(1) as f64;
        Ok(Summary {
            order: order.clone(),
            seconds: load.seconds,
            silence: load.silence,
            warmup: load.warmup,
            warmup_rule: load.warmup_rule.to_owned(),
            live_bytes: mean(steady.iter().map(|s| s.live_bytes as f64)),
            space_mean: mean(steady.iter().map(|s| s.space())),
            space_worst: steady.iter().map(|s| s.space()).fold(0.0, f64::max),
            written_steady: (to.written_bytes - from.written_bytes) as f64 / put_steady,
            written_whole: end.written_bytes as f64 / put_all,
            written_own: end.own.written_bytes.map(|bytes| bytes as f64 / put_all),
            put: watched.put,
            get: watched.get,
            wake: watched.wake,
            rate: (driven.puts + driven.gets) as f64 / driven.seconds,
            own_cores: driven.usage.map_or(0.0, |usage| usage.own_cores),
            other_cores: driven.usage.map_or(0.0, |usage| usage.other_cores),
            unserved: driven.unserved,
            end_disk_bytes: end.disk_bytes,
            end_live_bytes: end.live_bytes,
            end_own: end.own.clone(),
            anonymous_bytes: samples.iter().map(|s| s.anonymous_bytes).max().unwrap_or(0),
            runs_most: steady.iter().filter_map(|s| s.own.runs).max(),
            overdue_most: samples
                .iter()
                .filter_map(|s| s.own.overdue_s)
                .reduce(f64::max),
            answers: driven.answers,
        })
    }
}

impl Sample {
    /// Disk against live.
    fn space(&self) -> f64 {
        self.disk_bytes as f64 / self.live_bytes.max(1) as f64
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}
