//! `ebbtide demo`: a session store under load, and its disk space after the load ends. Every answer is judged by what
//! the demo itself wrote and when. It fails when a promise was broken, and reports separately a promise kept late
//! because the machine did not run the threads that keep it.

mod load;
mod meter;
mod report;
mod session;
pub mod spark;
mod starved;
mod watch;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use ebbtide::{Clock, ContainerOptions, Database, DefaultTtl, Options, Stats};

use crate::arguments::Demo;
use crate::clock::{Time, millis};
use crate::failure::{Failure, Outcome};
use crate::folder::Folder;
use crate::tally::Tally;
use load::{Left, Lifetimes, Stage, Worker};
use meter::Meter;
use report::{Report, Reporter, Second};
use starved::Starved;
use watch::Watch;

const WORKERS: u64 = 2;
/// For each worker: a rate that two cores sustain easily, together with the database's own work.
const OPERATIONS_A_SECOND: u64 = 25_000;
/// Small, like the lifetimes, so that half a minute shows what a day shows elsewhere.
const MEMTABLE_BYTES: usize = 4 << 20;
/// A check may come this late on a busy machine without a broken promise.
const GRACE: Duration = Duration::from_secs(1);
/// The time between two readings of the statistics.
const LOOK: Duration = Duration::from_millis(50);

pub fn run(settings: &Demo, json: bool) -> Outcome {
    let folder = Folder::prepare(settings.dir.as_deref(), "demo")?;
    let scale = Scale::of(settings.seconds);
    let time = Time::start();
    let db = Options::new()
        .memtable_bytes(MEMTABLE_BYTES)
        .reclaim_within(scale.reclaim_within)
        .clock(time)
        .open(&folder.path)?;
    let default = DefaultTtl::After(scale.lifetimes.default);
    let options = ContainerOptions::new().default_ttl(default).or_change();
    let stage = Stage {
        sessions: db.container_with("sessions", options)?,
        time,
        lifetimes: scale.lifetimes,
        meter: Meter::new(),
        stop: AtomicBool::new(false),
        operations_a_second: OPERATIONS_A_SECOND,
    };
    let mut show = Show {
        db: &db,
        stage: &stage,
        watch: Watch::default(),
        starved: Starved::default(),
        reporter: Reporter::new(json),
        highest_ratio: 0.0,
    };
    show.reporter.opening(&folder.path, settings, &scale)?;
    let left = show.load(settings)?;
    let report = show.drain(left, &scale)?;
    let in_folder = bytes_below(&folder.path);
    db.close()?;
    show.reporter.closing(&report, in_folder)?;
    match (report.broken().as_slice(), report.late()) {
        ([], None) => Ok(()),
        ([], Some(late)) => Err(Failure::Late(late)),
        (broken, _) => Err(Failure::Refused(format!("broken: {}", broken.join("; ")))),
    }
}

/// Times scaled to the length of the demo: at 30 s and more, lifetimes of 5 to 20 s.
struct Scale {
    lifetimes: Lifetimes,
    reclaim_within: Duration,
}

impl Scale {
    fn of(seconds: u64) -> Scale {
        let part = seconds.min(30) as f64 / 30.0;
        let of = |seconds: f64| Duration::from_millis((seconds * part * 1_000.0) as u64);
        let lifetimes = Lifetimes {
            shortest: of(5.0),
            default: of(10.0),
            longest: of(20.0),
        };
        Scale {
            lifetimes,
            reclaim_within: of(2.0).max(Duration::from_secs(1)),
        }
    }

    /// The promised time from expiry to removal.
    fn removed_within(&self) -> Duration {
        self.reclaim_within.max(self.lifetimes.longest / 8)
    }
}

/// The demo as it runs.
struct Show<'a> {
    db: &'a Database,
    stage: &'a Stage,
    watch: Watch,
    starved: Starved,
    reporter: Reporter,
    /// The highest ratio of bytes in tables to live bytes, after the first sessions have expired.
    highest_ratio: f64,
}

impl Show<'_> {
    /// Runs the load and watches.
    fn load(&mut self, settings: &Demo) -> Outcome<Left> {
        let (sender, expired) = channel();
        let until = Duration::from_secs(settings.seconds);
        let stage = self.stage;
        thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|number| {
                    let expired = sender.clone();
                    let seed = settings.seed.wrapping_mul(WORKERS).wrapping_add(number);
                    scope.spawn(move || {
                        until_failure(stage, || Worker::new(stage, seed, expired).run())
                    })
                })
                .collect();
            let walker = scope.spawn(|| until_failure(stage, || load::walk(stage)));
            let shown = self.look_on(&expired, until);
            stage.stop.store(true, Ordering::Relaxed);
            let mut all = Left::default();
            for worker in workers {
                all.add(joined(worker)?);
            }
            all.tally.add(joined(walker)?);
            all.expiries.extend(expired.try_iter());
            shown.map(|()| all)
        })
    }

    /// Prints a line a second until `end`, or until a worker has failed.
    fn look_on(&mut self, expired: &Receiver<u64>, end: Duration) -> Outcome {
        let time = self.stage.time;
        let steady = self.stage.lifetimes.longest;
        let mut before = self.stage.meter.read();
        for second in 1.. {
            let until = Duration::from_secs(second);
            let stats = loop {
                expired
                    .try_iter()
                    .for_each(|moment| self.watch.expires(moment));
                let stats = self.look();
                if stats.live_bytes > 0 && time.elapsed() >= steady {
                    let ratio = stats.table_bytes as f64 / stats.live_bytes as f64;
                    self.highest_ratio = self.highest_ratio.max(ratio);
                }
                if time.elapsed() >= until {
                    break stats;
                }
                thread::sleep(LOOK);
            };
            let now = self.stage.meter.read();
            let load = Some(now.since(&before));
            before = now;
            self.reporter.second(&Second {
                at: time.elapsed(),
                stats,
                load,
            })?;
            if time.elapsed() >= end || self.stage.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// No operations from here on, until no table is left or none should be.
    fn drain(&mut self, left: Left, scale: &Scale) -> Outcome<Report> {
        let time = self.stage.time;
        let at_end = self.db.stats();
        self.reporter.resting()?;
        for &moment in &left.expiries {
            self.watch.expires(moment);
        }
        let last = left.expiries.iter().copied().max().unwrap_or(0);
        let deadline = last + (scale.removed_within() + GRACE).as_millis() as u64;
        let began = time.elapsed();
        let mut next_line = began + Duration::from_secs(1);
        let (stats, emptied) = loop {
            let now = time.wall();
            let stats = self.look();
            let emptied =
                now >= last && stats.table_bytes == 0 && stats.oldest_unreclaimed.is_none();
            if emptied || now > deadline + self.starved.since(last) {
                break (stats, emptied);
            }
            if time.elapsed() >= next_line {
                next_line += Duration::from_secs(1);
                self.reporter.second(&Second {
                    at: time.elapsed(),
                    stats,
                    load: None,
                })?;
            }
            thread::sleep(LOOK);
        };
        self.reporter.second(&Second {
            at: time.elapsed(),
            stats: stats.clone(),
            load: None,
        })?;
        let tally = self.last_look(left)?;
        Ok(Report {
            tally,
            highest_ratio: self.highest_ratio,
            removed: self.watch.removed(),
            removal_p50: self.watch.quantile(0.5),
            removal_longest: self.watch.longest(),
            removal_longest_let_run: self.watch.longest_let_run(),
            removed_within: scale.removed_within(),
            emptied: emptied.then(|| time.elapsed() - began),
            at_end,
            stats,
        })
    }

    /// Reads every known key that was ever used, one by one and by a scan: nothing may be there.
    fn last_look(&self, left: Left) -> Outcome<Tally> {
        let mut tally = left.tally;
        for key in &left.keys {
            tally.reads += 1;
            tally.expired_returned += u64::from(self.stage.sessions.contains(key)?);
        }
        for item in self.stage.sessions.iter() {
            item?;
            tally.reads += 1;
            tally.expired_returned += 1;
        }
        Ok(tally)
    }

    fn look(&mut self) -> Stats {
        let asked = self.stage.time.wall();
        let stats = self.db.stats();
        let oldest = stats.oldest_unreclaimed.map(millis);
        let answered = self.stage.time.wall();
        self.starved.look(answered);
        let starved = |moment| self.starved.since(moment);
        self.watch.look(oldest, (asked, answered), starved);
        stats
    }
}

/// Stops the other workers when one fails.
fn until_failure<T>(
    stage: &Stage,
    work: impl FnOnce() -> ebbtide::Result<T>,
) -> ebbtide::Result<T> {
    let done = work();
    if done.is_err() {
        stage.stop.store(true, Ordering::Relaxed);
    }
    done
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, ebbtide::Result<T>>) -> ebbtide::Result<T> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The bytes of all files below a folder.
fn bytes_below(folder: &Path) -> u64 {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        // It was removed meanwhile.
        Err(_) => 0,
    });
    bytes.sum()
}
