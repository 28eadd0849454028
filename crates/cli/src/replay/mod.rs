//! `ebbtide replay`: runs a trace of a real cache against a database, and reports the costs. Every answer is judged by
//! what the trace had written before; it fails when one was wrong.

mod made;
mod pace;
mod player;
mod report;
mod trace;
mod oracle;

use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{ContainerOptions, Database, DefaultTtl};

use crate::arguments::Replay;
use crate::failure::{Failure, Outcome};
use crate::folder::Folder;
use crate::input::Lines;
use crate::show;
use pace::Pace;
use player::Player;
use report::{Report, Samples};
use trace::Step;

/// The time between two readings of the statistics, which take some milliseconds.
const LOOK: Duration = Duration::from_millis(100);

pub fn run(settings: &Replay, json: bool) -> Outcome {
    let mut lines = Lines::open(&settings.file)?;
    let pace = Pace::parse(&settings.speed)?;
    let folder = Folder::prepare(settings.dir.as_deref(), "replay")?;
    let db = pace
        .options()
        .memtable_bytes(usize::try_from(settings.memtable).unwrap_or(usize::MAX))
        .reclaim_within(pace.shortened(settings.reclaim_within))
        .open(&folder.path)?;
    // Without a default, only the trace's own ttls apply.
    let options = ContainerOptions::new()
        .default_ttl(DefaultTtl::NoDefault)
        .or_change();
    let container = db.container_with(&settings.container, options)?;
    let mut replay = Run {
        db: &db,
        player: Player::new(container, pace, settings.fill_on_miss),
        samples: Samples::default(),
        looked: Instant::now(),
        first: None,
        last: 0,
        latest: Duration::ZERO,
    };
    let done = replay.play(&mut lines, settings);
    let skipped = lines.end();
    let report = replay.end(skipped);
    db.close()?;
    done?;
    report.print(json)?;
    match report.broken().as_slice() {
        [] => Ok(()),
        broken => Err(Failure::Refused(format!("broken: {}", broken.join("; ")))),
    }
}

/// A replay in progress.
struct Run<'a> {
    db: &'a Database,
    player: Player,
    samples: Samples,
    looked: Instant,
    /// The first timestamp, and when its operation was run.
    first: Option<(u64, Instant)>,
    /// The last timestamp.
    last: u64,
    /// The largest delay of an operation.
    latest: Duration,
}

impl Run<'_> {
    fn play(&mut self, lines: &mut Lines, settings: &Replay) -> Outcome {
        let limit = settings.limit.unwrap_or(u64::MAX);
        while self.player.played < limit
            && let Some((number, line)) = lines.next()?
        {
            let step = Step::parse(line).and_then(|step| self.in_order(step));
            match step {
                Ok(step) => {
                    self.wait(step.timestamp, lines);
                    let played = self.player.play(&step);
                    played.map_err(|error| Failure::Refused(format!("line {number}: {error}")))?;
                }
                Err(why) if settings.skip_bad => lines.skip(number, &why),
                Err(why) => {
                    let before = show::count(self.player.played);
                    return Err(Failure::Refused(format!(
                        "line {number}: {why} ({before} operations before it were played)"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Time runs backwards neither in a cache nor in its replay.
    fn in_order(&self, step: Step) -> Result<Step, String> {
        match step.timestamp {
            timestamp if timestamp < self.last => Err(format!(
                "timestamp {timestamp} is not allowed: {} came before it",
                self.last
            )),
            _ => Ok(step),
        }
    }

    /// Waits until the moment has come. Operations of the same second, which is the resolution of a trace, follow each
    /// other without a wait.
    fn wait(&mut self, timestamp: u64, lines: &Lines) {
        let (first, begun) = *self.first.get_or_insert((timestamp, Instant::now()));
        self.last = timestamp;
        let since = Duration::from_secs(timestamp - first);
        loop {
            if self.looked.elapsed() >= LOOK {
                self.look(lines);
            }
            let left = self.player.pace.wait_for(since, begun.elapsed());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(LOOK));
        }
        let lateness = self.player.pace.lateness(since, begun.elapsed());
        self.latest = self.latest.max(lateness);
    }

    fn look(&mut self, lines: &Lines) {
        self.samples.add(&self.db.stats());
        if !lines.bar.is_hidden() {
            lines.bar.set_message(format!(
                "{} of {}",
                show::counted(self.player.played, "operation"),
                show::time(self.trace_time()),
            ));
            lines.bar.tick();
        }
        self.looked = Instant::now();
    }

    fn trace_time(&self) -> Duration {
        let first = self.first.map_or(self.last, |(first, _)| first);
        Duration::from_secs(self.last - first)
    }

    fn end(mut self, skipped: u64) -> Report {
        let took = self
            .first
            .map_or(Duration::ZERO, |(_, begun)| begun.elapsed());
        let stats = self.db.stats();
        self.samples.add(&stats);
        Report {
            trace_time: self.trace_time(),
            player: self.player,
            samples: self.samples,
            took,
            latest: self.latest,
            skipped,
            stats,
        }
    }
}
