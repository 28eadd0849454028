//! One look at a database that is followed.

use std::time::{Instant, SystemTime};

use ebbtide::{ContainerStats, Database, RunInfo, Stats};

use crate::failure::Outcome;
use crate::report::film::{Film, Frame, Written};

pub struct TopSample {
    pub now: SystemTime,
    pub stats: Stats,
    pub last_version: u64,
    /// By name.
    pub containers: Vec<Of>,
    /// The last edits, newest first.
    pub edits: Vec<Frame>,
    written: Written,
    taken: Instant,
    /// Since the look before; none in the first.
    pub rates: Option<Rates>,
}

pub struct Of {
    pub name: String,
    pub stats: ContainerStats,
    /// Those that end first come first.
    pub runs: Vec<RunInfo>,
}

/// Per second.
#[derive(Clone, Copy)]
pub struct Rates {
    pub writes: f64,
    pub logged: f64,
    pub flushed: f64,
    pub merged: f64,
    pub dropped: f64,
}

/// So many edits are kept.
const EDITS: usize = 40;

impl TopSample {
    pub fn of(db: &Database, before: Option<&TopSample>) -> Outcome<TopSample> {
        let film = Film::of(db, &str::to_owned)?;
        let written = film
            .frames
            .last()
            .map(|frame| frame.written)
            .unwrap_or_default();
        let mut containers = vec![];
        for name in db.containers() {
            let container = db.container(&name)?;
            let mut runs = container.runs();
            runs.sort_by_key(|run| (run.end.is_none(), run.end, run.id));
            let stats = container.stats();
            containers.push(Of { name, stats, runs });
        }
        let mut reading = TopSample {
            now: db.now(),
            stats: db.stats(),
            last_version: db.last_version().as_u64(),
            containers,
            edits: film.frames.into_iter().rev().take(EDITS).collect(),
            written,
            taken: Instant::now(),
            rates: None,
        };
        reading.rates = before.map(|before| reading.since(before));
        Ok(reading)
    }

    /// The rates since an earlier reading. A counter falls where a new manifest or log was begun: its rate is then
    /// shown as 0.
    fn since(&self, before: &TopSample) -> Rates {
        let seconds = (self.taken - before.taken).as_secs_f64().max(1e-3);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let (now, then) = (&self.written, &before.written);
        Rates {
            writes: rate(self.last_version, before.last_version),
            logged: rate(self.stats.bytes_logged, before.stats.bytes_logged),
            flushed: rate(now.flushed, then.flushed),
            merged: rate(now.merged, then.merged),
            dropped: rate(now.dropped, then.dropped),
        }
    }
}
