//! Goal: whatever transactions are interleaved, with each other and with other writes, those that commit are as if each had
//! run alone at its stamp, and those that do not have done nothing; also over expiry, flushes, merges, kills and power cuts.
//!
//! Method: random histories of several transactions at once, on one thread, by a clock that the test moves and with
//! memtables of some writes. Each transaction's calls and answers are kept; when it commits, they are played on a serial
//! model at that moment, and each answer has to be the same. Bulk loads come in between, and take some time. A conflict has to have a reason: something that was read was
//! written, time has passed, or a default was changed. Then a bank, whose transfers run on threads while copies of its disk
//! are opened, as a kill or a power cut leaves it.
//!
//! `EBBTIDE_HISTORIES` says how many (default 120), `EBBTIDE_SEED` where the choices start.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{
    Batch, Container, Database, DefaultTtl, Item, ManualClock, Options, Result, Transaction, Ttl,
    Update,
};
use testkit::random::Random;

const NOW: u64 = 1_767_225_600_000;
const KEYS: usize = 8;
const CONTAINERS: [&str; 2] = ["a", "b"];

fn after(millis: u64) -> Ttl {
    Ttl::After(Duration::from_millis(millis))
}

/// An item, as the model knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub value: String,
    pub written_at: u64,
    pub ttl: Ttl,
}

/// A container, as the contract has it.
#[derive(Clone, Debug)]
pub struct Shelf {
    pub default: DefaultTtl,
    pub items: BTreeMap<String, Stored>,
}

impl Shelf {
    pub fn is_live(&self, stored: &Stored, now: u64) -> bool {
        let life = match (stored.ttl, self.default) {
            (_, DefaultTtl::Off) | (Ttl::Never, _) | (Ttl::Inherit, DefaultTtl::NoDefault) => {
                return true;
            }
            (Ttl::After(own), _) => own,
            (Ttl::Inherit, DefaultTtl::After(default)) => default,
            other => panic!("{other:?}"),
        };
        now < stored.written_at + life.as_millis() as u64
    }

    pub fn get(&self, key: &str, now: u64) -> Option<&Stored> {
        let stored = self.items.get(key)?;
        self.is_live(stored, now).then_some(stored)
    }

    pub fn put(&mut self, key: &str, value: &str, ttl: Ttl, now: u64) {
        let before = self.get(key, now);
        let (written_at, ttl) = match (ttl, before) {
            (Ttl::Keep, Some(before)) => (before.written_at, before.ttl),
            (Ttl::Keep, None) => (now, Ttl::Inherit),
            (ttl, _) => (now, ttl),
        };
        let value = value.to_owned();
        let stored = Stored {
            value,
            written_at,
            ttl,
        };
        self.items.insert(key.to_owned(), stored);
    }

    /// Items that are gone stay gone.
    pub fn set_default(&mut self, default: DefaultTtl, now: u64) {
        let gone: Vec<_> = self
            .items
            .iter()
            .filter(|(_, stored)| !self.is_live(stored, now))
            .map(|(key, _)| key.clone())
            .collect();
        gone.iter().for_each(|key| {
            self.items.remove(key);
        });
        self.default = default;
    }

    /// Items that were written before go, or only those that would end by then.
    pub fn expire(&mut self, before: Option<u64>, now: u64) {
        let lives = |shelf: &Shelf, stored: &Stored, to: u64| shelf.is_live(stored, to);
        let gone: Vec<_> = self
            .items
            .iter()
            .filter(|(_, stored)| match before {
                Some(moment) => {
                    !lives(self, stored, now) || moment > 0 && !lives(self, stored, moment - 1)
                }
                None => true,
            })
            .map(|(key, _)| key.clone())
            .collect();
        gone.iter().for_each(|key| {
            self.items.remove(key);
        });
    }
}

type Model = [Shelf; 2];

/// A call.
#[derive(Clone, Debug)]
enum Call {
    Get(String),
    /// From, to, backwards, how many.
    Scan(String, String, bool, usize),
    Put(String, String, Ttl),
    /// True: only where an item is.
    PutIf(bool, String, String, Ttl),
    Touch(String),
    Expire(String, Ttl),
    Take(String),
    /// Puts the value, and keeps the ttl where an item is.
    Update(String, String),
    Delete(String),
    DeleteRange(String, String),
    ExpireAll,
    Many(Vec<String>),
    Count(String, String),
    /// True: the last item.
    End(bool),
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Value(Option<String>),
    Values(Vec<Option<String>>),
    Count(usize),
    Items(Vec<(String, String)>),
    Is(bool),
    Done,
}

fn on_model(shelf: &mut Shelf, call: &Call, now: u64) -> Answer {
    match call {
        Call::Get(key) => Answer::Value(shelf.get(key, now).map(|stored| stored.value.clone())),
        Call::Scan(from, to, backwards, count) => {
            let live = shelf.items.iter().filter(|(key, stored)| {
                *from <= **key && **key < *to && shelf.is_live(stored, now)
            });
            let mut live: Vec<_> = live
                .map(|(key, stored)| (key.clone(), stored.value.clone()))
                .collect();
            if *backwards {
                live.reverse();
            }
            live.truncate(*count);
            Answer::Items(live)
        }
        Call::Put(key, value, ttl) => {
            shelf.put(key, value, *ttl, now);
            Answer::Done
        }
        Call::PutIf(is_there, key, value, ttl) => {
            let holds = shelf.get(key, now).is_some() == *is_there;
            if holds {
                shelf.put(key, value, *ttl, now);
            }
            Answer::Is(holds)
        }
        Call::Touch(key) => {
            let found = shelf.get(key, now).cloned();
            if let Some(found) = &found {
                shelf.put(key, &found.value, found.ttl, now);
            }
            Answer::Is(found.is_some())
        }
        Call::Expire(key, ttl) => {
            let found = shelf.get(key, now).cloned();
            if let Some(found) = &found {
                shelf.put(key, &found.value, *ttl, now);
            }
            Answer::Is(found.is_some())
        }
        Call::Take(key) => {
            let found = shelf.get(key, now).cloned();
            shelf.items.remove(key);
            Answer::Value(found.map(|found| found.value))
        }
        Call::Update(key, value) => {
            let found = shelf.get(key, now).map(|found| found.value.clone());
            let ttl = found.as_ref().map_or(after(100), |_| Ttl::Keep);
            shelf.put(key, value, ttl, now);
            Answer::Value(found)
        }
        Call::Delete(key) => {
            shelf.items.remove(key);
            Answer::Done
        }
        Call::DeleteRange(from, to) => {
            shelf.items.retain(|key, _| key < from || key >= to);
            Answer::Done
        }
        Call::ExpireAll => {
            shelf.expire(None, now);
            Answer::Done
        }
        Call::Many(keys) => {
            let value = |key: &String| shelf.get(key, now).map(|found| found.value.clone());
            Answer::Values(keys.iter().map(value).collect())
        }
        Call::Count(from, to) => {
            let all = Call::Scan(from.clone(), to.clone(), false, usize::MAX);
            match on_model(shelf, &all, now) {
                Answer::Items(items) => Answer::Count(items.len()),
                other => panic!("{other:?}"),
            }
        }
        Call::End(is_last) => on_model(shelf, &one_end(*is_last), now),
    }
}

/// The scan that finds the first item, or the last.
fn one_end(is_last: bool) -> Call {
    Call::Scan("k".into(), "l".into(), is_last, 1)
}

/// The closure of [`Call::Update`].
fn put_over(value: &str) -> impl FnMut(Option<&Item>) -> Update {
    let value = value.as_bytes().to_vec();
    move |item| {
        let ttl = item.map_or(after(100), |_| Ttl::Keep);
        Update::Put(value.clone(), ttl)
    }
}

fn on_engine(tx: &Transaction, c: &Container, call: &Call) -> Result<Answer> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ok(match call {
        Call::Get(key) => Answer::Value(tx.get(c, key)?.map(|value| text(&value))),
        Call::Scan(from, to, backwards, count) => {
            let iter = tx.range(c, from..to);
            let items: Result<Vec<_>> = match backwards {
                false => iter.take(*count).collect(),
                true => iter.rev().take(*count).collect(),
            };
            let items = items?.into_iter();
            Answer::Items(
                items
                    .map(|item| (text(item.key()), text(item.value())))
                    .collect(),
            )
        }
        Call::Put(key, value, ttl) => {
            tx.put_with_ttl(c, key, value, *ttl)?;
            Answer::Done
        }
        Call::PutIf(true, key, value, ttl) => Answer::Is(tx.replace(c, key, value, *ttl)?),
        Call::PutIf(false, key, value, ttl) => Answer::Is(tx.create(c, key, value, *ttl)?),
        Call::Touch(key) => Answer::Is(tx.touch(c, key)?),
        Call::Expire(key, ttl) => Answer::Is(tx.expire(c, key, *ttl)?),
        Call::Take(key) => Answer::Value(tx.take(c, key)?.map(|item| text(item.value()))),
        Call::Update(key, value) => {
            let updated = tx.fetch_update(c, key, put_over(value))?;
            assert!(updated.written.is_some());
            Answer::Value(updated.before.map(|item| text(item.value())))
        }
        Call::ExpireAll => {
            tx.expire_all(c)?;
            Answer::Done
        }
        Call::Many(keys) => {
            let found = tx.get_many(c, keys)?.into_iter();
            Answer::Values(found.map(|value| value.map(|value| text(&value))).collect())
        }
        Call::Count(from, to) => {
            let keys = tx.keys(c, from..to).collect::<Result<Vec<_>>>()?;
            assert_eq!(tx.count(c, from..to)?, keys.len() as u64);
            Answer::Count(keys.len())
        }
        Call::End(is_last) => {
            let found = match is_last {
                false => tx.first(c)?,
                true => tx.last(c)?,
            };
            let pair = found.map(|item| (text(item.key()), text(item.value())));
            Answer::Items(pair.into_iter().collect())
        }
        Call::Delete(key) => {
            tx.delete(c, key)?;
            Answer::Done
        }
        Call::DeleteRange(from, to) => {
            tx.delete_range(c, from..to)?;
            Answer::Done
        }
    })
}

fn random_call(random: &mut Random, number: usize) -> Call {
    let key = |random: &mut Random| format!("k{}", random.below(KEYS));
    let ttl = |random: &mut Random| {
        random.pick(&[
            Ttl::Inherit,
            Ttl::Never,
            Ttl::Keep,
            after(30),
            after(100),
            after(400),
        ])
    };
    // Long, so that few fill a memtable.
    let value = format!("{number:.<300}");
    match random.below(18) {
        0..=3 => Call::Get(key(random)),
        4 | 5 => {
            let (from, to) = (key(random), key(random));
            let count = random.pick(&[1, 2, 100]);
            Call::Scan(from, to, random.one_in(2), count)
        }
        6 | 7 => Call::Put(key(random), value, ttl(random)),
        8 => Call::PutIf(random.one_in(2), key(random), value, ttl(random)),
        9 => Call::Touch(key(random)),
        10 => Call::Delete(key(random)),
        11 => Call::Expire(
            key(random),
            random.pick(&[Ttl::Never, after(30), after(100)]),
        ),
        12 => Call::Take(key(random)),
        13 => Call::Update(key(random), value),
        14 => Call::Many((0..3).map(|_| key(random)).collect()),
        15 => Call::Count(key(random), key(random)),
        16 if random.one_in(4) => Call::ExpireAll,
        16 => Call::End(random.one_in(2)),
        _ if random.one_in(4) => Call::DeleteRange(key(random), key(random)),
        _ => Call::Get(key(random)),
    }
}

/// A transaction under way.
struct Open {
    tx: Transaction,
    calls: Vec<(usize, Call, Answer)>,
    /// As it began.
    model: Model,
    began: u64,
    /// Since then: what was written where, and whether a default was changed.
    written: Vec<(usize, String, String)>,
    defaults: bool,
}

impl Open {
    /// Each call, at this moment, has the same answer.
    fn explains(&self, model: &Model, now: u64) -> std::result::Result<Model, String> {
        let mut model = model.clone();
        for (at, call, answer) in &self.calls {
            let serial = on_model(&mut model[*at], call, now);
            if serial != *answer {
                return Err(format!("{call:?}: {answer:?}, alone {serial:?}"));
            }
        }
        Ok(model)
    }

    /// Something may have changed that it read.
    fn has_reason(&self, now: u64) -> bool {
        let read = self.calls.iter().any(|(at, call, _)| {
            let whole = |key: &String| (key.clone(), format!("{key}\0"));
            let ranges = match call {
                Call::Scan(from, to, ..) | Call::Count(from, to) => {
                    vec![(from.clone(), to.clone())]
                }
                Call::End(_) => vec![("k".into(), "l".into())],
                Call::Many(keys) => keys.iter().map(whole).collect(),
                Call::Get(key)
                | Call::Put(key, _, Ttl::Keep)
                | Call::PutIf(_, key, ..)
                | Call::Expire(key, _)
                | Call::Take(key)
                | Call::Update(key, _)
                | Call::Touch(key) => vec![whole(key)],
                _ => vec![],
            };
            let mut written = self.written.iter();
            written.any(|(of, first, end)| {
                let meets = |(from, to): &(String, String)| first < to && from < end;
                of == at && ranges.iter().any(meets)
            })
        });
        read || now > self.began || self.defaults
    }
}

struct World {
    db: Database,
    clock: ManualClock,
    containers: Vec<Container>,
    model: Model,
    open: Vec<Open>,
    commits: usize,
    conflicts: usize,
}

impl World {
    fn new(random: &mut Random) -> World {
        let (sim, clock) = (Sim::new(random.next()), ManualClock::new(NOW));
        let options = Options::new()
            .clock(clock.clone())
            .fs(Arc::new(sim))
            .memtable_bytes(random.pick(&[8 << 10, 32 << 10]))
            .stepped();
        let db = options.open("/db").unwrap();
        let containers = CONTAINERS.map(|name| db.container(name).unwrap()).to_vec();
        let shelf = Shelf {
            default: DefaultTtl::NoDefault,
            items: BTreeMap::new(),
        };
        World {
            db,
            clock,
            containers,
            model: [shelf.clone(), shelf],
            open: vec![],
            commits: 0,
            conflicts: 0,
        }
    }

    fn now(&self) -> u64 {
        self.db
            .now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64
    }

    fn note(&mut self, at: usize, call: &Call) {
        let (from, to) = match call {
            Call::Put(key, ..)
            | Call::PutIf(_, key, ..)
            | Call::Touch(key)
            | Call::Expire(key, _)
            | Call::Take(key)
            | Call::Update(key, _)
            | Call::Delete(key) => (key.clone(), format!("{key}\0")),
            Call::DeleteRange(from, to) => (from.clone(), to.clone()),
            Call::ExpireAll => {
                self.open.iter_mut().for_each(|open| open.defaults = true);
                return;
            }
            Call::Get(_) | Call::Scan(..) | Call::Many(_) | Call::Count(..) | Call::End(_) => {
                return;
            }
        };
        for open in &mut self.open {
            open.written.push((at, from.clone(), to.clone()));
        }
    }

    fn begin(&mut self) {
        self.open.push(Open {
            tx: self.db.begin(),
            calls: vec![],
            model: self.model.clone(),
            began: self.now(),
            written: vec![],
            defaults: false,
        });
    }

    fn call(&mut self, random: &mut Random, number: usize) {
        let (which, at) = (random.below(self.open.len()), random.below(2));
        let (call, now) = (random_call(random, number), self.now());
        let open = &mut self.open[which];
        match on_engine(&open.tx, &self.containers[at], &call) {
            Ok(answer) => open.calls.push((at, call, answer)),
            Err(error) => {
                assert!(error.is_conflict(), "{error}");
                assert!(now > open.began || open.defaults, "{call:?}: {error}");
                let open = self.open.swap_remove(which);
                assert!(open.tx.commit().unwrap_err().is_conflict());
                self.conflicts += 1;
            }
        }
    }

    fn commit(&mut self, random: &mut Random) {
        let which = random.below(self.open.len());
        let mut open = self.open.swap_remove(which);
        let now = self.now();
        let is_write = |(_, call, answer): &(usize, Call, Answer)| match call {
            Call::Get(_) | Call::Scan(..) | Call::Many(_) | Call::Count(..) | Call::End(_) => false,
            Call::DeleteRange(from, to) => from < to,
            Call::Take(_) => *answer != Answer::Value(None),
            Call::Update(..) => true,
            _ => *answer != Answer::Is(false),
        };
        let writes: Vec<_> = open
            .calls
            .iter()
            .filter(|call| is_write(call))
            .cloned()
            .collect();
        let tx = std::mem::replace(&mut open.tx, self.db.begin());
        match tx.commit() {
            Ok(_) if writes.is_empty() => {
                let began = open.explains(&open.model, open.began);
                let ended = open.explains(&self.model, now);
                if let (Err(began), Err(ended)) = (began, ended) {
                    panic!("reads of no moment: {began}; {ended}");
                }
                self.commits += 1;
            }
            Ok(_) => {
                let serial = open.explains(&self.model, now);
                self.model = serial.unwrap_or_else(|what| {
                    panic!("not serializable: {what}, after {:?}", open.calls)
                });
                writes.iter().for_each(|(at, call, _)| self.note(*at, call));
                self.commits += 1;
            }
            Err(error) => {
                assert!(error.is_conflict(), "{error}");
                assert!(open.has_reason(now), "{error}, after {:?}", open.calls);
                self.conflicts += 1;
            }
        }
    }

    /// A write that is none of a transaction.
    fn write(&mut self, random: &mut Random, number: usize) {
        let (at, call, now) = (random.below(2), random_call(random, number), self.now());
        let c = &self.containers[at];
        let answer = match &call {
            Call::Put(key, value, ttl) => c.put_with_ttl(key, value, *ttl).map(|()| Answer::Done),
            Call::PutIf(true, key, value, ttl) => c.replace(key, value, *ttl).map(Answer::Is),
            Call::PutIf(false, key, value, ttl) => c.create(key, value, *ttl).map(Answer::Is),
            Call::Touch(key) => c.touch(key).map(Answer::Is),
            Call::Expire(key, ttl) => c.expire(key, *ttl).map(Answer::Is),
            Call::Take(key) => {
                let value = |item: Item| String::from_utf8(item.value().to_vec()).unwrap();
                c.take(key).map(|item| Answer::Value(item.map(value)))
            }
            Call::Update(key, value) => {
                c.update(key, put_over(value)).unwrap();
                on_model(&mut self.model[at], &call, now);
                return self.note(at, &call);
            }
            Call::ExpireAll => c.expire_all().map(|()| Answer::Done),
            Call::Delete(key) => c.delete(key).map(|()| Answer::Done),
            Call::DeleteRange(from, to) => c.delete_range(from..to).map(|()| Answer::Done),
            Call::Get(_) | Call::Scan(..) | Call::Many(_) | Call::Count(..) | Call::End(_) => {
                return;
            }
        };
        assert_eq!(answer.unwrap(), on_model(&mut self.model[at], &call, now));
        self.note(at, &call);
    }

    fn set_default(&mut self, random: &mut Random) {
        let at = random.below(2);
        let default = random.pick(&[
            DefaultTtl::Off,
            DefaultTtl::NoDefault,
            DefaultTtl::After(Duration::from_millis(60)),
            DefaultTtl::After(Duration::from_millis(300)),
        ]);
        let c = &self.containers[at];
        match random.one_in(2) {
            true => c.set_default_ttl(default).unwrap(),
            false => {
                let mut batch = Batch::new();
                self.db.write(batch.set_default_ttl(c, default)).unwrap();
            }
        }
        let now = self.now();
        self.model[at].set_default(default, now);
        self.open.iter_mut().for_each(|open| open.defaults = true);
    }

    fn expire(&mut self, random: &mut Random) {
        let (at, now) = (random.below(2), self.now());
        let before = (!random.one_in(3)).then(|| now + random.below(400) as u64);
        let c = &self.containers[at];
        let moment = before.map(|moment| UNIX_EPOCH + Duration::from_millis(moment));
        let mut batch = Batch::new();
        match (moment, random.one_in(2)) {
            (Some(moment), true) => c.expire_before(moment).unwrap(),
            (None, true) => c.expire_all().unwrap(),
            (Some(moment), false) => self.db.write(batch.expire_before(c, moment)).unwrap(),
            (None, false) => self.db.write(batch.expire_all(c)).unwrap(),
        }
        self.model[at].expire(before, now);
        self.open.iter_mut().for_each(|open| open.defaults = true);
    }

    /// A bulk load, in which time may pass, and the default change, between its stamp and its end.
    fn load(&mut self, random: &mut Random, number: usize) {
        let (at, stamp) = (random.below(2), self.now());
        let ttl = random.pick(&[Ttl::Inherit, Ttl::Inherit, Ttl::Never, after(200)]);
        let first = random.below(KEYS);
        let keys = (first..KEYS).take(1 + random.below(3));
        let items: Vec<_> = keys
            .map(|key| (format!("k{key}"), format!("l{number}")))
            .collect();
        let (c, mut is_first, is_long) = (self.containers[at].clone(), true, random.one_in(2));
        let given = items.iter().map(|(key, value)| {
            if std::mem::take(&mut is_first) && is_long {
                for default in [
                    DefaultTtl::After(Duration::from_millis(60)),
                    DefaultTtl::NoDefault,
                ] {
                    c.set_default_ttl(default).unwrap();
                    self.model[at].set_default(default, self.now());
                    self.clock.advance(Duration::from_millis(100));
                }
            }
            Ok((key, value, ttl))
        });
        c.bulk_load_with_ttl(given).unwrap();
        self.open
            .iter_mut()
            .for_each(|open| open.defaults |= is_long);
        let now = self.now();
        for (key, value) in items {
            let call = Call::Put(key.clone(), value.clone(), ttl);
            let shelf = &mut self.model[at];
            shelf.put(&key, &value, ttl, stamp);
            if shelf.get(&key, now).is_none() {
                // It had ended before it was there, and hides what was.
                shelf.items.remove(&key);
            }
            self.note(at, &call);
        }
    }

    fn step(&mut self, random: &mut Random, number: usize) {
        match random.below(41) {
            0..=3 if self.open.len() < 4 => self.begin(),
            0..=23 if !self.open.is_empty() => self.call(random, number),
            24..=28 if !self.open.is_empty() => self.commit(random),
            29..=32 => self.write(random, number),
            33 | 34 => {
                let millis = random.pick(&[1, 10, 30, 100]);
                self.clock.advance(Duration::from_millis(millis));
            }
            35 | 36 => self.db.flush().unwrap(),
            37 => drop(self.db.step().unwrap()),
            38 if random.one_in(4) => self.db.compact().unwrap(),
            40 if random.one_in(3) => self.load(random, number),
            39 if random.one_in(3) => match random.one_in(2) {
                true => self.expire(random),
                false => self.set_default(random),
            },
            _ => {}
        }
    }

    /// The database holds what the model holds.
    fn compare(&self) {
        let now = self.now();
        for (c, shelf) in self.containers.iter().zip(&self.model) {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let found = c.iter().map(|item| {
                let item = item.unwrap();
                let stored = Stored {
                    value: text(item.value()),
                    written_at: item
                        .written_at()
                        .duration_since(UNIX_EPOCH)
                        .unwrap()
                        .as_millis() as u64,
                    ttl: item.ttl(),
                };
                (text(item.key()), stored)
            });
            let live = shelf
                .items
                .iter()
                .filter(|(_, stored)| shelf.is_live(stored, now));
            let live = live.map(|(key, stored)| (key.clone(), stored.clone()));
            assert_eq!(found.collect::<Vec<_>>(), live.collect::<Vec<_>>());
        }
    }
}

#[test]
fn interleaved_transactions_are_as_if_each_ran_alone() {
    let (first, histories) = (
        testkit::env("EBBTIDE_SEED", 1),
        testkit::env("EBBTIDE_HISTORIES", 120),
    );
    let (mut commits, mut conflicts) = (0, 0);
    for seed in first..first + histories {
        let mut random = Random(seed);
        let mut world = World::new(&mut random);
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 0..200 {
                world.step(&mut random, number);
                if number % 4 == 3 {
                    world.compare();
                }
            }
        }));
        if let Err(panic) = played {
            println!("EBBTIDE_SEED={seed} EBBTIDE_HISTORIES=1 plays it again");
            std::panic::resume_unwind(panic);
        }
        commits += world.commits;
        conflicts += world.conflicts;
    }
    println!("FIGURE transactions: {commits} committed, {conflicts} in conflict");
    assert!(commits > conflicts / 4 && conflicts > commits / 20);
}

/// Accounts, each open for a lease that transfers prolong. What one holds is on record in `deposits`, which does not
/// expire. Of an account whose lease has ended nothing is transferred; it is opened again, with what is on record.
#[derive(Clone)]
struct Bank {
    db: Database,
    leases: Container,
    deposits: Container,
    receipts: Container,
}

const ACCOUNTS: usize = 6;
const EACH: u64 = 100;

impl Bank {
    fn open(sim: &Sim, clock: &ManualClock) -> Bank {
        let options = Options::new()
            .clock(clock.clone())
            .fs(Arc::new(sim.clone()))
            .memtable_bytes(64 << 10);
        let db = options.open("/db").unwrap();
        let container = |name| db.container(name).unwrap();
        Bank {
            leases: container("leases"),
            deposits: container("deposits"),
            receipts: container("receipts"),
            db: db.clone(),
        }
    }

    fn found(&self) {
        let mut batch = Batch::new();
        for n in 0..ACCOUNTS {
            batch.put(&self.deposits, format!("{n}"), EACH.to_string());
        }
        self.db.write(&batch).unwrap();
        self.db.sync().unwrap();
    }

    fn transfer(&self, random: &mut Random) -> Result<()> {
        let name = |random: &mut Random| format!("{}", random.below(ACCOUNTS));
        let (from, to, amount) = (name(random), name(random), random.below(20) as u64);
        let receipt = format!("{:016x}", random.next());
        if from == to {
            return Ok(());
        }
        self.db.transaction(|tx| {
            let on_record = |name: &str| -> Result<u64> {
                let value = tx.get(&self.deposits, name)?.expect("it is never deleted");
                Ok(String::from_utf8_lossy(&value).parse().unwrap())
            };
            for name in [&from, &to] {
                if tx.create(&self.leases, name, "", after(5))? {
                    return Ok(());
                }
            }
            let lease = tx.item(&self.leases, &from)?.expect("it is open");
            let (before, after_it) = (on_record(&from)?, on_record(&to)?);
            if before < amount {
                return tx.touch(&self.leases, &from).map(drop);
            }
            let ends = lease
                .expires_at()
                .unwrap()
                .duration_since(UNIX_EPOCH)
                .unwrap();
            tx.put(&self.deposits, &from, (before - amount).to_string())?;
            tx.put(&self.deposits, &to, (after_it + amount).to_string())?;
            tx.put(&self.receipts, &receipt, ends.as_millis().to_string())
        })
    }

    /// Nothing is lost and nothing made, as one transaction sees it and as a scan does; and nothing was transferred
    /// after a lease had ended.
    fn audit(&self) {
        let sum = |items: &mut dyn Iterator<Item = Result<ebbtide::Item>>| -> u64 {
            items
                .map(|item| {
                    String::from_utf8_lossy(item.unwrap().value())
                        .parse::<u64>()
                        .unwrap()
                })
                .sum()
        };
        let tx = self.db.begin();
        assert_eq!(sum(&mut tx.iter(&self.deposits)), EACH * ACCOUNTS as u64);
        assert_eq!(sum(&mut self.deposits.iter().rev()), EACH * ACCOUNTS as u64);
        for receipt in &self.receipts {
            let receipt = receipt.unwrap();
            let ends: u64 = String::from_utf8_lossy(receipt.value()).parse().unwrap();
            assert!(
                receipt.written_at() < UNIX_EPOCH + Duration::from_millis(ends),
                "transferred by a lease that had ended"
            );
        }
    }
}

#[test]
fn the_sum_of_a_bank_holds_through_expiry_kills_and_power_cuts() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let bank = Bank::open(&sim, &clock);
    bank.found();
    let (is_over, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let clerks: Vec<_> = (0..3)
        .map(|seed| {
            let (bank, clock) = (bank.clone(), clock.clone());
            let (is_over, done) = (is_over.clone(), done.clone());
            thread::spawn(move || {
                let mut random = Random(seed);
                while !is_over.load(Ordering::SeqCst) {
                    if random.one_in(4) {
                        clock.advance(Duration::from_millis(1));
                    }
                    match bank.transfer(&mut random) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    }
                }
            })
        })
        .collect();
    for round in 0..24 {
        let before = done.load(Ordering::SeqCst);
        testkit::patience::wait_until("more was transferred", || {
            done.load(Ordering::SeqCst) > before + 20
        });
        bank.audit();
        if round % 5 == 0 {
            bank.db.flush().unwrap();
        }
        let left = match round % 2 {
            0 => sim.kill(),
            _ => sim.power_cut(round),
        };
        let copy = Bank::open(&left, &ManualClock::new(NOW + 1_000_000));
        copy.audit();
        copy.db.compact().unwrap();
        copy.audit();
        copy.db.close().unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    clerks.into_iter().for_each(|clerk| clerk.join().unwrap());
    bank.audit();
    assert!(bank.receipts.first().unwrap().is_some());
}
