//! Runs one operation after the other, each by the library's call for it, and judges its answer.

use std::time::Instant;

use ebbtide::{Container, Result, Ttl, Update, Value};

use super::made;
use super::oracle::{NEVER, Oracle, Written};
use super::pace::Pace;
use super::trace::{Kind, Step};
use crate::histogram::Histogram;
use crate::tally::{Tally, Window};

/// Operations of one kind.
#[derive(Clone, Copy, Default)]
pub struct Count {
    pub played: u64,
    /// Operations that hit, stored or changed an item; for deletes, all, because they do not tell.
    pub done: u64,
}

pub struct Player {
    container: Container,
    pub pace: Pace,
    fill_on_miss: bool,
    oracle: Oracle,
    /// The number of the current operation of the trace.
    pub played: u64,
    /// By [`Kind`].
    pub counts: [Count; Kind::ALL.len()],
    /// Puts that followed a miss.
    pub fills: u64,
    pub tally: Tally,
    pub reads: Histogram,
    /// All operations that may write.
    pub writes: Histogram,
}

impl Player {
    pub fn new(container: Container, pace: Pace, fill_on_miss: bool) -> Player {
        Player {
            container,
            pace,
            fill_on_miss,
            oracle: Oracle::default(),
            played: 0,
            counts: Default::default(),
            fills: 0,
            tally: Tally::default(),
            reads: Histogram::new(),
            writes: Histogram::new(),
        }
    }

    /// Runs the next operation, whose moment has come.
    pub fn play(&mut self, step: &Step) -> Result<()> {
        self.played += 1;
        let done = match step.kind {
            Kind::Get | Kind::Gets => self.get(step)?,
            Kind::Set => self.set(step)?,
            Kind::Add => self.store(step, false)?,
            Kind::Replace | Kind::Cas => self.store(step, true)?,
            Kind::Append | Kind::Prepend => self.change(step, step.value_len)?,
            Kind::Incr | Kind::Decr => self.change(step, 0)?,
            Kind::Delete => self.delete(step)?,
        };
        let count = &mut self.counts[step.kind as usize];
        count.played += 1;
        count.done += u64::from(done);
        Ok(())
    }

    fn get(&mut self, step: &Step) -> Result<bool> {
        let (value, window) = self.timed(&self.reads, |container| container.get(&step.key))?;
        let last = self.oracle.last(&step.key);
        self.judge(value.as_ref(), last, window);
        if value.is_none() && self.fill_on_miss && step.value_len > 0 {
            self.fills += 1;
            self.set(step)?;
        }
        Ok(value.is_some())
    }

    fn set(&mut self, step: &Step) -> Result<bool> {
        let (value, ttl) = self.made(step);
        let ((), window) = self.timed(&self.writes, |container| {
            container.put_with_ttl(&step.key, value, ttl)
        })?;
        self.wrote(step, window);
        Ok(true)
    }

    /// `over`: only over a live item; otherwise only if there is none.
    fn store(&mut self, step: &Step, over: bool) -> Result<bool> {
        let (value, ttl) = self.made(step);
        let (stored, window) = self.timed(&self.writes, |container| match over {
            true => container.replace(&step.key, value, ttl),
            false => container.create(&step.key, value, ttl),
        })?;
        let expiry = self.oracle.last(&step.key).map(|last| last.expiry);
        self.tally.judge(stored == over, expiry, window);
        if stored {
            self.wrote(step, window);
        }
        Ok(stored)
    }

    /// Gives a live item another value, longer by `more` bytes, with the same expiry.
    fn change(&mut self, step: &Step, more: usize) -> Result<bool> {
        let mut shown = None;
        let (changed, window) = self.timed(&self.writes, |container| {
            container.update(&step.key, |item| {
                shown = item.map(|item| item.value().clone());
                match item {
                    None => Update::Keep,
                    Some(item) => {
                        let value = made::value(self.played, item.value().len() + more);
                        let ttl = item.expires_at().map_or(Ttl::Never, Ttl::Until);
                        Update::Put(value, ttl)
                    }
                }
            })
        })?;
        let last = self.oracle.last(&step.key);
        self.judge(shown.as_ref(), last, window);
        if let (true, Some(last)) = (changed, last) {
            let changed = Written {
                number: self.played,
                len: last.len + more,
                ..last
            };
            self.oracle.write(&step.key, changed, window.1);
        }
        Ok(changed)
    }

    fn delete(&mut self, step: &Step) -> Result<bool> {
        self.timed(&self.writes, |container| container.delete(&step.key))?;
        self.oracle.delete(&step.key);
        Ok(true)
    }

    /// Runs `operation`; returns also between which readings of the database's clock.
    fn timed<T>(
        &self,
        histogram: &Histogram,
        operation: impl FnOnce(&Container) -> Result<T>,
    ) -> Result<(T, Window)> {
        let asked = self.pace.now();
        let begun = Instant::now();
        let answer = operation(&self.container)?;
        histogram.count(begun.elapsed());
        Ok((answer, (asked, self.pace.now())))
    }

    fn made(&self, step: &Step) -> (Vec<u8>, Ttl) {
        let value = made::value(self.played, step.value_len);
        (value, self.pace.ttl(step.ttl))
    }

    fn wrote(&mut self, step: &Step, (asked, answered): Window) {
        let expiry = match self.pace.ttl(step.ttl) {
            Ttl::After(ttl) => {
                let ttl = ttl.as_millis() as u64;
                (asked + ttl, answered + ttl)
            }
            _ => NEVER,
        };
        let written = Written {
            number: self.played,
            len: step.value_len,
            expiry,
        };
        self.oracle.write(&step.key, written, answered);
    }

    /// Judges an answer, which is a value or none.
    fn judge(&mut self, value: Option<&Value>, last: Option<Written>, window: Window) {
        let expiry = last.map(|last| last.expiry);
        self.tally.judge(value.is_some(), expiry, window);
        if let (Some(value), Some(last)) = (value, last) {
            let right = made::is(value, last.number, last.len);
            self.tally.wrong += u64::from(!right);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebbtide::{Database, DefaultTtl};

    use super::*;

    /// A player under the trace's clock, and its database.
    fn player() -> (tempfile::TempDir, Database, Player) {
        let folder = tempfile::tempdir().unwrap();
        let pace = Pace::parse("max").unwrap_or_else(|_| unreachable!());
        let db = pace.options().open(folder.path()).unwrap();
        let cache = db.container("cache").unwrap();
        cache.set_default_ttl(DefaultTtl::NoDefault).unwrap();
        (folder, db, Player::new(cache, pace, false))
    }

    fn play(player: &mut Player, lines: &[&str]) {
        for line in lines {
            let step = Step::parse(line.as_bytes()).unwrap();
            let since = Duration::from_secs(step.timestamp);
            player.pace.wait_for(since, Duration::ZERO);
            player.play(&step).unwrap();
        }
    }

    fn faults(player: &Player) -> (u64, u64, u64) {
        let Tally {
            expired_returned,
            lost,
            wrong,
            ..
        } = player.tally;
        (expired_returned, lost, wrong)
    }

    #[test]
    fn each_operation_does_what_it_says() {
        let (_folder, _db, mut player) = player();
        let trace = [
            ("0,k,1,5,0,replace,9", false),
            ("0,k,1,5,0,cas,9", false),
            ("0,k,1,5,0,append,9", false),
            ("0,k,1,0,0,incr,0", false),
            ("0,k,1,5,0,add,10", true),
            ("1,k,1,5,0,add,60", false),
            ("1,k,1,3,0,prepend,60", true),
            ("2,k,1,9,0,decr,60", true),
            ("9,k,1,0,0,get,0", true),
            ("10,k,1,0,0,gets,0", false),
            ("10,k,1,5,0,set,1", true),
            ("10,k,1,7,0,cas,5", true),
            ("11,k,1,7,0,replace,0", true),
            ("99,k,1,0,0,get,0", true),
            ("99,k,1,0,0,delete,0", true),
            ("99,k,1,0,0,get,0", false),
        ];
        for (line, done) in trace {
            let before = player.counts.iter().map(|count| count.done).sum::<u64>();
            play(&mut player, &[line]);
            let after = player.counts.iter().map(|count| count.done).sum::<u64>();
            assert_eq!(after - before, u64::from(done), "{line}");
            let len = player.container.get("k").unwrap().map(|value| value.len());
            let known = player.oracle.last(b"k").map(|last| last.len);
            assert!(len.is_none() || len == known, "{line}");
        }
        assert_eq!(faults(&player), (0, 0, 0));
        assert_eq!(player.tally.reads, 14);
    }

    #[test]
    fn an_expired_item_that_is_returned_is_seen() {
        let (_folder, _db, mut player) = player();
        play(&mut player, &["0,k,1,5,0,set,1"]);
        let value = player.container.get("k").unwrap().unwrap();
        player.container.put("k", value).unwrap();
        play(&mut player, &["1,k,1,0,0,get,0", "1,k,1,5,0,add,0"]);
        assert_eq!(faults(&player), (2, 0, 0));
    }

    #[test]
    fn a_live_item_that_is_missing_is_seen() {
        let (_folder, _db, mut player) = player();
        play(&mut player, &["0,k,1,5,0,set,2"]);
        player.container.delete("k").unwrap();
        play(&mut player, &["1,k,1,0,0,get,0", "1,k,1,0,0,incr,0"]);
        play(&mut player, &["1,k,1,5,0,replace,0", "2,k,1,0,0,get,0"]);
        assert_eq!(faults(&player), (0, 3, 0));
    }

    #[test]
    fn a_value_of_another_operation_is_seen() {
        let (_folder, _db, mut player) = player();
        play(&mut player, &["0,k,1,5,0,set,2", "0,l,1,5,0,set,2"]);
        let other = player.container.get("l").unwrap().unwrap();
        player.container.put("k", other).unwrap();
        play(&mut player, &["1,k,1,0,0,get,0", "1,k,1,1,0,append,0"]);
        assert_eq!(faults(&player), (0, 0, 2));
    }
}
