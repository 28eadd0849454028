//! The load, and the oracle of every answer.
//!
//! Each worker has its own sessions, so it knows between which readings of the clock each was written, and so between
//! which moments it expires. It judges every answer by that alone (crate::tally).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{Clock, Container, Item, Result, Ttl, Value};

use super::meter::Meter;
use super::session;
use crate::clock::{Time, millis};
use crate::random::Random;
use crate::tally::{Tally, Window};

/// How long sessions live.
#[derive(Clone, Copy)]
pub struct Lifetimes {
    /// The container's default, for a third of them.
    pub default: Duration,
    pub shortest: Duration,
    pub longest: Duration,
}

/// State shared by all workers.
pub struct Stage {
    pub sessions: Container,
    pub time: Time,
    pub lifetimes: Lifetimes,
    pub meter: Meter,
    pub stop: AtomicBool,
    pub operations_a_second: u64,
}

/// A session as its worker knows it. An ended session stays, and its key is read like the others, until another session
/// takes its place.
#[derive(Clone, Copy)]
struct Session {
    id: u64,
    version: u32,
    /// `None`: it inherits the default.
    ttl: Option<Duration>,
    /// It was last written between these two readings of the clock.
    written: Window,
    ended: bool,
}

/// Three ways to ask for a session.
enum Answer {
    Contains(bool),
    Item(Option<Item>),
    Value(Option<Value>),
}

/// The result of a worker.
#[derive(Default)]
pub struct Left {
    pub tally: Tally,
    /// The keys it used.
    pub keys: Vec<String>,
    /// When the live sessions expire.
    pub expiries: Vec<u64>,
}

impl Left {
    pub fn add(&mut self, other: Left) {
        self.tally.add(other.tally);
        self.keys.extend(other.keys);
        self.expiries.extend(other.expiries);
    }
}

pub struct Worker<'a> {
    stage: &'a Stage,
    random: Random,
    sessions: Vec<Session>,
    /// Indices in `sessions` of ended sessions.
    ended: Vec<usize>,
    /// Moments at which the session at an index may have to be ended.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Receives the expiry of each expired session.
    expired: Sender<u64>,
    tally: Tally,
}

impl<'a> Worker<'a> {
    pub fn new(stage: &'a Stage, seed: u64, expired: Sender<u64>) -> Self {
        Worker {
            stage,
            random: Random::new(seed),
            sessions: vec![],
            ended: vec![],
            due: BinaryHeap::new(),
            expired,
            tally: Tally::default(),
        }
    }

    /// Works at an even pace until it is told to stop; does not catch up when it falls behind.
    pub fn run(mut self) -> Result<Left> {
        const TICK: Duration = Duration::from_millis(2);
        let in_a_tick = self.stage.operations_a_second * TICK.as_millis() as u64 / 1_000;
        let mut next = Instant::now();
        while !self.stage.stop.load(Ordering::Relaxed) {
            for _ in 0..in_a_tick {
                self.operate()?;
            }
            self.end_expired()?;
            next = (next + TICK).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let alive = (0..self.sessions.len()).filter(|&at| !self.sessions[at].ended);
        Ok(Left {
            tally: self.tally,
            keys: self
                .sessions
                .iter()
                .map(|session| session::key(session.id))
                .collect(),
            expiries: alive.map(|at| self.expiry(at).1).collect(),
        })
    }

    /// A third writes, two thirds read: what a session store sees.
    fn operate(&mut self) -> Result<()> {
        let at = match self.sessions.len() {
            0 => return self.log_in(),
            len => self.random.below(len as u64) as usize,
        };
        match self.random.below(100) {
            0..14 => self.log_in(),
            14..21 => self.touch(at),
            21..28 => self.refresh(at),
            28..34 => self.log_out(at),
            _ => self.read(at),
        }
    }

    /// A new session; sometimes under the key of an ended one, which must not conflict.
    fn log_in(&mut self) -> Result<()> {
        let ended = self.ended.pop();
        let (id, version) = match ended {
            Some(at) if self.random.below(16) == 0 => {
                (self.sessions[at].id, self.sessions[at].version + 1)
            }
            _ => (self.random.next(), 0),
        };
        let ttl = self.lifetime();
        let (key, value) = (session::key(id), session::value(id, version));
        let (created, written) = self.write(|sessions| sessions.create(key, value, as_ttl(ttl)))?;
        self.tally.wrong += u64::from(!created);
        let session = Session {
            id,
            version,
            ttl,
            written,
            ended: false,
        };
        let at = match ended {
            Some(at) => at,
            None => {
                self.sessions.push(session);
                self.sessions.len() - 1
            }
        };
        self.keep(at, session);
        Ok(())
    }

    /// Extends the session unchanged.
    fn touch(&mut self, at: usize) -> Result<()> {
        let session = self.sessions[at];
        let key = session::key(session.id);
        let (touched, written) = self.write(|sessions| sessions.touch(key))?;
        self.judge(at, touched, written);
        if touched {
            self.keep(at, Session { written, ..session });
        }
        Ok(())
    }

    /// Extends the session with another value, and perhaps another lifetime.
    fn refresh(&mut self, at: usize) -> Result<()> {
        let session = self.sessions[at];
        if session.ended {
            return self.read(at);
        }
        let (version, ttl) = (session.version + 1, self.lifetime());
        let (key, value) = (
            session::key(session.id),
            session::value(session.id, version),
        );
        let ((), written) =
            self.write(|sessions| sessions.put_with_ttl(key, value, as_ttl(ttl)))?;
        self.keep(
            at,
            Session {
                version,
                ttl,
                written,
                ..session
            },
        );
        Ok(())
    }

    fn log_out(&mut self, at: usize) -> Result<()> {
        if self.sessions[at].ended {
            return self.read(at);
        }
        let key = session::key(self.sessions[at].id);
        self.write(|sessions| sessions.delete(key))?;
        self.end(at);
        self.read(at)
    }

    fn read(&mut self, at: usize) -> Result<()> {
        let (key, sessions) = (session::key(self.sessions[at].id), &self.stage.sessions);
        let kind = self.random.below(8);
        let begun = self.stage.time.elapsed();
        let answer = match kind {
            0 => Answer::Contains(sessions.contains(key)?),
            1 | 2 => Answer::Item(sessions.item(key)?),
            _ => Answer::Value(sessions.get(key)?),
        };
        let done = self.stage.time.elapsed();
        self.stage.meter.get(done - begun);
        let (found, is_right) = match answer {
            Answer::Contains(found) => (found, true),
            Answer::Item(None) | Answer::Value(None) => (false, true),
            Answer::Item(Some(item)) => (true, self.is_as_written(at, &item)),
            Answer::Value(Some(value)) => (true, value == self.value(at)),
        };
        self.judge(at, found, self.window(begun, done));
        self.tally.wrong += u64::from(!is_right);
        Ok(())
    }

    /// Ends the sessions whose time is over, after a last read of each key.
    fn end_expired(&mut self) -> Result<()> {
        let now = self.stage.time.wall();
        while let Some(&Reverse((moment, at))) = self.due.peek()
            && moment <= now
        {
            self.due.pop();
            let expiry = self.expiry(at).1;
            if !self.sessions[at].ended && expiry <= now {
                self.read(at)?;
                self.end(at);
                // No receiver is left when the demo ends early.
                let _ = self.expired.send(expiry);
            }
        }
        Ok(())
    }

    fn end(&mut self, at: usize) {
        self.sessions[at].ended = true;
        self.ended.push(at);
    }

    fn keep(&mut self, at: usize, session: Session) {
        self.sessions[at] = session;
        self.due.push(Reverse((self.expiry(at).1, at)));
    }

    /// The moments between which a session expires.
    fn expiry(&self, at: usize) -> Window {
        let session = &self.sessions[at];
        let ttl = session
            .ttl
            .unwrap_or(self.stage.lifetimes.default)
            .as_millis() as u64;
        (session.written.0 + ttl, session.written.1 + ttl)
    }

    fn judge(&mut self, at: usize, found: bool, window: Window) {
        let expiry = (!self.sessions[at].ended).then(|| self.expiry(at));
        self.tally.judge(found, expiry, window);
    }

    fn is_as_written(&self, at: usize, item: &Item) -> bool {
        let session = &self.sessions[at];
        let (from, to) = session.written;
        *item.value() == self.value(at)
            && item.ttl() == as_ttl(session.ttl)
            && (from..=to).contains(&millis(item.written_at()))
    }

    fn value(&self, at: usize) -> String {
        session::value(self.sessions[at].id, self.sessions[at].version)
    }

    /// A third inherits the default.
    fn lifetime(&mut self) -> Option<Duration> {
        let Lifetimes {
            shortest, longest, ..
        } = self.stage.lifetimes;
        let spread = (longest - shortest).as_millis() as u64;
        let millis = self.random.below(spread + 1);
        (self.random.below(3) > 0).then(|| shortest + Duration::from_millis(millis))
    }

    fn write<T>(&self, write: impl FnOnce(&Container) -> Result<T>) -> Result<(T, Window)> {
        let begun = self.stage.time.elapsed();
        let written = write(&self.stage.sessions)?;
        let done = self.stage.time.elapsed();
        self.stage.meter.put(done - begun);
        Ok((written, self.window(begun, done)))
    }

    fn window(&self, begun: Duration, done: Duration) -> Window {
        (self.stage.time.at(begun), self.stage.time.at(done))
    }
}

fn as_ttl(lifetime: Option<Duration>) -> Ttl {
    lifetime.map_or(Ttl::Inherit, Ttl::After)
}

/// Iterates over all sessions again and again, forwards and backwards: each item that an iterator returns must be live
/// at the moment it was asked for, however long ago the iterator was created.
pub fn walk(stage: &Stage) -> Result<Tally> {
    const STEP: usize = 256;
    const REST: Duration = Duration::from_millis(10);
    let mut tally = Tally::default();
    let mut backwards = false;
    while !stage.stop.load(Ordering::Relaxed) {
        let mut items = stage.sessions.iter();
        for step in 1.. {
            let asked = stage.time.wall();
            let next = if backwards {
                items.next_back()
            } else {
                items.next()
            };
            let Some(item) = next.transpose()? else {
                break;
            };
            let ttl = match item.ttl() {
                Ttl::After(ttl) => ttl,
                _ => stage.lifetimes.default,
            };
            let expiry = millis(item.written_at()) + ttl.as_millis() as u64;
            tally.reads += 1;
            tally.expired_returned += u64::from(expiry <= asked);
            tally.wrong += u64::from(item.expires_at().map(millis) != Some(expiry));
            if step % STEP == 0 {
                if stage.stop.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(REST);
            }
        }
        backwards = !backwards;
        thread::sleep(REST);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use ebbtide::{Database, DefaultTtl, ManualClock, Options};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A stage whose database has its own clock, and whose sessions all live equally long.
    fn stage(
        clock: impl Clock + 'static,
        time: Time,
        lifetime: Duration,
    ) -> (tempfile::TempDir, Database, Stage) {
        let folder = tempfile::tempdir().unwrap();
        let db = Options::new().clock(clock).open(folder.path()).unwrap();
        let sessions = db.container("sessions").unwrap();
        sessions
            .set_default_ttl(DefaultTtl::After(lifetime))
            .unwrap();
        let stage = Stage {
            sessions,
            time,
            lifetimes: Lifetimes {
                default: lifetime,
                shortest: lifetime,
                longest: lifetime,
            },
            meter: Meter::new(),
            stop: AtomicBool::new(false),
            operations_a_second: 0,
        };
        (folder, db, stage)
    }

    #[test]
    fn an_honest_database_passes() {
        let time = Time::start();
        let (_folder, _db, stage) = stage(time, time, Duration::from_millis(50));
        let mut worker = Worker::new(&stage, 1, channel().0);
        for _ in 0..2_000 {
            worker.operate().unwrap();
        }
        thread::sleep(Duration::from_millis(51));
        worker.end_expired().unwrap();
        let Tally {
            reads,
            expired_returned,
            lost,
            wrong,
        } = worker.tally;
        assert!(reads > 1_000);
        assert_eq!((expired_returned, lost, wrong), (0, 0, 0));
        assert!(worker.sessions.iter().all(|session| session.ended));
    }

    #[test]
    fn an_expired_item_that_is_returned_is_seen() {
        let time = Time::start();
        // For this database, no time passes.
        let clock = ManualClock::new(time.wall());
        let (_folder, _db, stage) = stage(clock, time, Duration::from_millis(50));
        let mut worker = Worker::new(&stage, 1, channel().0);
        for _ in 0..10 {
            worker.log_in().unwrap();
        }
        thread::sleep(Duration::from_millis(51));
        worker.end_expired().unwrap();
        assert_eq!((worker.tally.expired_returned, worker.tally.lost), (10, 0));
    }

    #[test]
    fn a_live_item_that_is_missing_is_seen() {
        let time = Time::start();
        let (_folder, _db, stage) = stage(time, time, HOUR);
        let mut worker = Worker::new(&stage, 1, channel().0);
        worker.log_in().unwrap();
        stage
            .sessions
            .delete(session::key(worker.sessions[0].id))
            .unwrap();
        worker.read(0).unwrap();
        worker.touch(0).unwrap();
        assert_eq!((worker.tally.expired_returned, worker.tally.lost), (0, 2));
    }

    #[test]
    fn an_answer_unlike_what_was_written_is_seen() {
        let time = Time::start();
        let (_folder, _db, stage) = stage(time, time, HOUR);
        let mut worker = Worker::new(&stage, 1, channel().0);
        worker.log_in().unwrap();
        stage
            .sessions
            .put(session::key(worker.sessions[0].id), "another")
            .unwrap();
        for _ in 0..100 {
            worker.read(0).unwrap();
        }
        assert!(worker.tally.wrong > 50);
        assert_eq!((worker.tally.expired_returned, worker.tally.lost), (0, 0));
    }
}
