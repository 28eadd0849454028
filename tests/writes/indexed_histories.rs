//! Goal: whatever is done to a container with indexes, each index holds exactly the index keys of the live items, and each
//! entry has its item's lifetime: over every kind of ttl, changes of the default through the helper and past it, commands,
//! flushes, merges, reopens, kills and power cuts; and one unique index key belongs to one live item. Where a default was
//! changed past the helper, an entry may outlive its item, unseen.
//!
//! Method: random histories beside a naive model, the items and what follows from them. Calls are alone or several in a
//! transaction, which goes on after a call that was refused. The answers of lookups are compared, and the stored entries
//! themselves. What a kill or a power cut leaves is opened, and the indexes are compared with the items there.
//!
//! `EBBTIDE_HISTORIES` says how many (default 60), `EBBTIDE_SEED` where the choices start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{
    Container, Database, DefaultTtl, Error, IndexedContainer, Item, ManualClock, Result, Ttl,
    Update,
};
use testkit::random::Random;
use testkit::stage::{NOW, after, default, in_steps, ms, text};
use testkit::world::millis;

const KEYS: usize = 8;

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + ms(millis)
}

/// An item, as the model knows it.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    value: String,
    written_at: u64,
    ttl: Ttl,
}

/// A container, as the contract has it.
#[derive(Clone, Debug)]
struct Shelf {
    default: DefaultTtl,
    items: BTreeMap<String, Stored>,
}

impl Shelf {
    fn is_live(&self, stored: &Stored, now: u64) -> bool {
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

    fn get(&self, key: &str, now: u64) -> Option<&Stored> {
        let stored = self.items.get(key)?;
        self.is_live(stored, now).then_some(stored)
    }

    fn put(&mut self, key: &str, value: &str, ttl: Ttl, now: u64) {
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
    fn set_default(&mut self, default: DefaultTtl, now: u64) {
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
    fn expire(&mut self, before: Option<u64>, now: u64) {
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

/// The words of a value that begin so.
pub fn words(value: &str, begin: char) -> BTreeSet<String> {
    let words = value.split(' ').filter(|word| word.starts_with(begin));
    words.map(str::to_owned).collect()
}

/// By the tags of a value, and by its one address.
pub fn indexed(c: &Container) -> Result<IndexedContainer> {
    let by = |begin| move |_: &[u8], value: &[u8]| words(&text(value), begin);
    let builder = IndexedContainer::builder(c).index("tag", by('t'));
    builder.unique("mail", by('@')).open()
}

#[derive(Clone, Debug)]
enum Call {
    Put(String, String, Ttl),
    /// True: only where an item is.
    PutIf(bool, String, String, Ttl),
    Touch(String),
    GetAndTouch(String),
    TouchUntil(String),
    Expire(String, Ttl),
    Take(String),
    /// Puts the value, and keeps the ttl where an item is.
    Update(String, String),
    /// By an update.
    UpdateTtl(String, Ttl),
    Delete(String),
    DeleteRange(String, String),
    Clear,
    Rename(String, String),
    ExpireAll,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Is(bool),
    /// The value, and the end if it has one.
    Found(Option<(String, Option<u64>)>),
    Taken(String),
}

/// Both faces have the same methods.
macro_rules! on {
    ($face:expr, $call:expr) => {{
        let face = $face;
        let shown = |item: Item| (text(item.value()), item.expires_at().map(millis));
        match $call {
            Call::Put(key, value, ttl) => {
                let put = face.put_with_ttl(key, value, *ttl);
                put.map(|()| Answer::Done)
            }
            Call::PutIf(true, key, value, ttl) => face.replace(key, value, *ttl).map(Answer::Is),
            Call::PutIf(false, key, value, ttl) => face.create(key, value, *ttl).map(Answer::Is),
            Call::Touch(key) => face.touch(key).map(Answer::Is),
            Call::GetAndTouch(key) => {
                let touched = face.get_and_touch(key);
                touched.map(|item| Answer::Found(item.map(shown)))
            }
            Call::TouchUntil(key) => {
                let end = face.touch_until(key);
                let has_end = |end: &SystemTime| *end < at(NOW * 2);
                end.map(|end| {
                    let end = end.map(|end| Some(end).filter(has_end).map(millis));
                    Answer::Found(end.map(|end| (String::new(), end)))
                })
            }
            Call::Expire(key, ttl) => face.expire(key, *ttl).map(Answer::Is),
            Call::Take(key) => {
                let taken = face.take(key);
                taken.map(|item| Answer::Found(item.map(shown)))
            }
            Call::Update(key, value) => {
                let updated = face.fetch_update(key, |found: Option<&Item>| {
                    let ttl = found.map_or(Ttl::Never, |_| Ttl::Keep);
                    Update::Put(value.clone(), ttl)
                });
                updated.map(|done| {
                    assert!(done.written.is_some());
                    Answer::Found(done.before.map(shown))
                })
            }
            Call::UpdateTtl(key, ttl) => {
                let updated = face.update(key, |_: Option<&Item>| Update::Expire(*ttl));
                updated.map(Answer::Is)
            }
            Call::Delete(key) => face.delete(key).map(|()| Answer::Done),
            Call::DeleteRange(from, to) => face.delete_range(from..to).map(|()| Answer::Done),
            Call::Clear => face.delete_range(..).map(|()| Answer::Done),
            Call::Rename(from, to) => face.rename(from, to).map(Answer::Is),
            Call::ExpireAll => face.expire_all().map(|()| Answer::Done),
        }
    }};
}

/// Another call is refused because an index key is taken; all others have to go well.
fn answer(result: Result<Answer>) -> Answer {
    match result {
        Ok(answer) => answer,
        Err(Error::NotUnique {
            index,
            index_key,
            key,
        }) => {
            assert_eq!(index, "c#mail");
            assert!(index_key.starts_with(b"@"));
            Answer::Taken(text(&key))
        }
        Err(error) => panic!("{error}"),
    }
}

/// Index key and key of an entry, with `written_at` and ttl.
type Entries = BTreeMap<(String, String), (u64, Ttl)>;

struct Model(Shelf);

impl Model {
    fn live(&self, now: u64) -> Vec<(&String, &Stored)> {
        let live = self.0.items.iter();
        live.filter(|(_, stored)| self.0.is_live(stored, now))
            .collect()
    }

    fn end(&self, stored: &Stored) -> Option<u64> {
        let life = match (stored.ttl, self.0.default) {
            (_, DefaultTtl::Off) | (Ttl::Never, _) | (Ttl::Inherit, DefaultTtl::NoDefault) => {
                return None;
            }
            (Ttl::Inherit, DefaultTtl::After(life)) | (Ttl::After(life), _) => life,
            other => panic!("{other:?}"),
        };
        Some(stored.written_at + life.as_millis() as u64)
    }

    fn shown(&self, key: &str, now: u64) -> Option<(String, Option<u64>)> {
        let stored = self.0.get(key, now)?;
        Some((stored.value.clone(), self.end(stored)))
    }

    /// Every entry that there should be.
    fn entries(&self, begin: char, now: u64) -> Entries {
        let live = self.live(now).into_iter();
        let entries = live.flat_map(|(key, stored)| {
            let words = words(&stored.value, begin).into_iter();
            words.map(move |word| ((word, key.clone()), (stored.written_at, stored.ttl)))
        });
        entries.collect()
    }

    /// The live item besides this one that has an address of the value.
    fn holder(&self, key: &str, value: &str, now: u64) -> Option<String> {
        let addresses = words(value, '@');
        let live = self.live(now);
        let holds = |(other, stored): &(&String, &Stored)| {
            **other != *key && !words(&stored.value, '@').is_disjoint(&addresses)
        };
        let holder = live.into_iter().find(holds);
        holder.map(|(other, _)| other.clone())
    }

    fn put(&mut self, key: &str, value: &str, ttl: Ttl, now: u64) -> Option<Answer> {
        if let Some(holder) = self.holder(key, value, now) {
            return Some(Answer::Taken(holder));
        }
        let ttl = match ttl {
            Ttl::Until(end) => after(millis(end).saturating_sub(now)),
            ttl => ttl,
        };
        self.0.put(key, value, ttl, now);
        None
    }

    fn touch(&mut self, key: &str, ttl: Option<Ttl>, now: u64) -> bool {
        let Some(stored) = self.0.get(key, now).cloned() else {
            return false;
        };
        let ttl = ttl.unwrap_or(stored.ttl);
        assert!(self.put(key, &stored.value, ttl, now).is_none());
        true
    }

    fn call(&mut self, call: &Call, now: u64) -> Answer {
        match call {
            Call::Put(key, value, ttl) => self.put(key, value, *ttl, now).unwrap_or(Answer::Done),
            Call::PutIf(is_there, key, value, ttl) => {
                match self.0.get(key, now).is_some() == *is_there {
                    true => self.put(key, value, *ttl, now).unwrap_or(Answer::Is(true)),
                    false => Answer::Is(false),
                }
            }
            Call::Touch(key) => Answer::Is(self.touch(key, None, now)),
            Call::GetAndTouch(key) => {
                self.touch(key, None, now);
                Answer::Found(self.shown(key, now))
            }
            Call::TouchUntil(key) => {
                self.touch(key, None, now);
                let shown = self.shown(key, now);
                Answer::Found(shown.map(|(_, end)| (String::new(), end)))
            }
            Call::Expire(key, ttl) | Call::UpdateTtl(key, ttl) => {
                Answer::Is(self.touch(key, Some(*ttl), now))
            }
            Call::Take(key) => {
                let found = Answer::Found(self.shown(key, now));
                self.0.items.remove(key);
                found
            }
            Call::Update(key, value) => {
                let found = self.shown(key, now);
                let ttl = found.as_ref().map_or(Ttl::Never, |_| Ttl::Keep);
                let refused = self.put(key, value, ttl, now);
                refused.unwrap_or(Answer::Found(found))
            }
            Call::Delete(key) => {
                self.0.items.remove(key);
                Answer::Done
            }
            Call::DeleteRange(from, to) => {
                self.0.items.retain(|key, _| key < from || key >= to);
                Answer::Done
            }
            Call::Clear => {
                self.0.items.clear();
                Answer::Done
            }
            Call::Rename(from, to) => {
                let found = self.0.get(from, now).cloned();
                let is_there = found.is_some();
                if let Some(found) = found {
                    self.0.items.remove(from);
                    self.0.items.insert(to.clone(), found);
                }
                Answer::Is(is_there)
            }
            Call::ExpireAll => {
                self.0.expire(None, now);
                Answer::Done
            }
        }
    }
}

fn random_key(random: &mut Random) -> String {
    format!("k{}", random.below(KEYS))
}

fn random_value(random: &mut Random, number: usize) -> String {
    let mut value = format!("{number}");
    for _ in 0..random.below(3) {
        // One tag is the beginning of another.
        value += random.pick(&[" t", " t1", " t12", " t2"]);
    }
    if random.one_in(2) {
        value += &format!(" @{}", random.below(4));
    }
    // Long, so that few fill a memtable.
    format!("{value} {}", ".".repeat(200))
}

fn random_ttl(random: &mut Random, now: u64) -> Ttl {
    let after = |millis| after(millis);
    let soon = at(now + 40);
    random.pick(&[
        Ttl::Inherit,
        Ttl::Inherit,
        Ttl::Never,
        after(30),
        after(100),
        after(400),
        Ttl::Until(soon),
    ])
}

fn random_call(random: &mut Random, number: usize, now: u64) -> Call {
    let (key, value) = (random_key(random), random_value(random, number));
    let ttl = random_ttl(random, now);
    match random.below(28) {
        0..=4 => Call::Put(key, value, ttl),
        5 | 6 => Call::Put(key, value, Ttl::Keep),
        7 | 8 => Call::PutIf(random.one_in(2), key, value, ttl),
        9..=11 => Call::Touch(key),
        12 => Call::GetAndTouch(key),
        13 => Call::TouchUntil(key),
        14 | 15 => Call::Expire(key, ttl),
        16 => Call::Take(key),
        17..=19 => Call::Update(key, value),
        20 => Call::UpdateTtl(key, ttl),
        21 => Call::Delete(key),
        22 if random.one_in(2) => Call::DeleteRange(key, random_key(random)),
        23 if random.one_in(8) => Call::Clear,
        24 if random.one_in(4) => Call::ExpireAll,
        _ => Call::Rename(key, random_key(random)),
    }
}

struct World {
    sim: Sim,
    clock: ManualClock,
    memtable_bytes: usize,
    open: Option<(Database, IndexedContainer)>,
    model: Model,
    /// No default is changed past the helper: each entry has its item's life.
    is_exact: bool,
    refused: usize,
}

/// The stored entries are those that the items ask for. Where it is not exact, some are there besides, or have no end.
fn agree(stored: &Entries, asked: &Entries, is_exact: bool) {
    if is_exact {
        return assert_eq!(stored, asked);
    }
    for (entry, life) in asked {
        let found = stored.get(entry);
        assert!(
            found.is_some_and(|found| found == life || found.1 == Ttl::Never),
            "{entry:?} has {found:?} for {life:?}"
        );
    }
    for (entry, life) in stored {
        assert!(
            asked.contains_key(entry) || life.1 == Ttl::Never,
            "{entry:?}"
        );
    }
}

fn open(sim: &Sim, clock: &ManualClock, memtable_bytes: usize) -> (Database, IndexedContainer) {
    let options = in_steps(sim, clock).memtable_bytes(memtable_bytes);
    let db = options.open("/db").unwrap();
    let c = indexed(&db.container("c").unwrap()).unwrap();
    (db, c)
}

/// The live entries of an index as they are stored.
pub fn stored(db: &Database, name: &str) -> Entries {
    let entries = db.container(name).unwrap();
    let stored = entries.range(&b"\0\x01"[..]..).map(|entry| {
        let entry = entry.unwrap();
        let parts = text(entry.key());
        let (index_key, key) = parts.split_once("\0\x01").unwrap();
        let key = match key {
            "" => text(entry.value()),
            key => key.to_owned(),
        };
        let life = (millis(entry.written_at()), entry.ttl());
        ((index_key.to_owned(), key), life)
    });
    stored.collect()
}

/// The entries that the live items ask for.
pub fn implied(c: &Container, begin: char) -> Entries {
    let items = c.iter().map(|item| item.unwrap());
    let implied = items.flat_map(|item| {
        let life = (millis(item.written_at()), item.ttl());
        let words = words(&text(item.value()), begin).into_iter();
        words.map(move |word| ((word, text(item.key())), life))
    });
    implied.collect()
}

impl World {
    fn new(random: &mut Random) -> World {
        let (sim, clock) = (Sim::new(random.next()), ManualClock::new(NOW));
        let memtable_bytes = random.pick(&[8 << 10, 32 << 10]);
        let shelf = Shelf {
            default: DefaultTtl::NoDefault,
            items: BTreeMap::new(),
        };
        World {
            open: Some(open(&sim, &clock, memtable_bytes)),
            sim,
            clock,
            memtable_bytes,
            model: Model(shelf),
            is_exact: random.one_in(2),
            refused: 0,
        }
    }

    fn both(&self) -> &(Database, IndexedContainer) {
        self.open.as_ref().unwrap()
    }

    fn now(&self) -> u64 {
        millis(self.both().0.now())
    }

    fn compare(&mut self, call: &Call, found: &Answer) {
        println!("{call:?} at {}", self.now() - NOW);
        let expected = self.model.call(call, self.now());
        assert_eq!(*found, expected, "{call:?}");
        self.refused += usize::from(matches!(found, Answer::Taken(_)));
    }

    fn call(&mut self, random: &mut Random, number: usize) {
        let call = random_call(random, number, self.now());
        let found = answer(on!(&self.both().1, &call));
        self.compare(&call, &found);
    }

    /// Several calls in one transaction, which goes on after one that is refused.
    fn transaction(&mut self, random: &mut Random, number: usize) {
        let call = |_| random_call(random, number, self.now());
        let calls = (0..4).map(call);
        let calls = Vec::from_iter(calls);
        let (db, c) = self.both();
        let found = db.transaction(|tx| {
            let c = tx.indexed(c);
            let answers = calls.iter().map(|call| match on!(&c, call) {
                Err(error) if !matches!(error, Error::NotUnique { .. }) => Err(error),
                found => Ok(answer(found)),
            });
            answers.collect::<Result<Vec<_>>>()
        });
        for (call, found) in calls.iter().zip(found.unwrap()) {
            self.compare(call, &found);
        }
    }

    fn set_default(&mut self, random: &mut Random) {
        let default = random.pick(&[
            DefaultTtl::Off,
            DefaultTtl::NoDefault,
            default(60),
            default(300),
        ]);
        let is_past = !self.is_exact && random.one_in(3);
        println!("{default:?}, past the helper: {is_past}");
        let c = &self.both().1;
        match is_past {
            true => c.container().set_default_ttl(default).unwrap(),
            false => c.set_default_ttl(default).unwrap(),
        }
        let now = self.now();
        self.model.0.set_default(default, now);
    }

    fn expire(&mut self, random: &mut Random) {
        let (now, shift) = (self.now(), random.below(400) as u64);
        println!("expire before {now} and {shift}");
        let c = &self.both().1;
        match random.one_in(2) {
            true => {
                c.expire_before(at(now + shift)).unwrap();
                self.model.0.expire(Some(now + shift), now);
            }
            false => {
                c.expire_written_before(at(now - shift)).unwrap();
                let items = &mut self.model.0.items;
                items.retain(|_, stored| stored.written_at >= now - shift);
            }
        }
    }

    /// A write past the helper, which a rebuild finds.
    fn write_past(&mut self, random: &mut Random, number: usize) {
        let (key, now) = (random_key(random), self.now());
        let value = random_value(random, number);
        let is_free = self.model.holder(&key, &value, now).is_none();
        println!("past the helper: {key} {value}");
        let c = &self.both().1;
        match random.one_in(3) || !is_free {
            true => {
                c.container().delete(&key).unwrap();
                self.model.0.items.remove(&key);
            }
            false => {
                let ttl = random_ttl(random, now);
                c.container().put_with_ttl(&key, &value, ttl).unwrap();
                assert!(self.model.put(&key, &value, ttl, now).is_none());
            }
        }
        let c = &self.both().1;
        c.rebuild().unwrap();
        assert_eq!(c.rebuild().unwrap(), 0, "nothing is left to correct");
    }

    fn reopen(&mut self) {
        let (db, c) = self.open.take().unwrap();
        drop(c);
        db.close().unwrap();
        drop(db);
        self.open = Some(open(&self.sim, &self.clock, self.memtable_bytes));
    }

    /// A kill leaves what there is, a power cut no batch by half.
    fn crash(&self, random: &mut Random) {
        let is_kill = random.one_in(2);
        let left = match is_kill {
            true => self.sim.kill(),
            false => self.sim.power_cut(random.next()),
        };
        let clock = ManualClock::new(self.now());
        let (db, c) = open(&left, &clock, self.memtable_bytes);
        for (name, begin) in [("c#tag", 't'), ("c#mail", '@')] {
            let implied = implied(c.container(), begin);
            agree(&stored(&db, name), &implied, self.is_exact);
            if is_kill {
                assert_eq!(implied, self.model.entries(begin, self.now()));
            }
        }
        drop(c);
        db.close().unwrap();
    }

    fn step(&mut self, random: &mut Random, number: usize) {
        match random.below(60) {
            0..=29 => self.call(random, number),
            30..=36 => self.transaction(random, number),
            37..=44 => {
                let millis = random.pick(&[1, 10, 30, 100]);
                self.clock.advance(ms(millis));
            }
            45 | 46 => self.both().0.flush().unwrap(),
            47 | 48 => drop(self.both().0.step().unwrap()),
            49 if random.one_in(4) => self.both().0.compact().unwrap(),
            50 | 51 => self.set_default(random),
            52 => self.expire(random),
            53 | 54 => self.write_past(random, number),
            55 if random.one_in(3) => self.reopen(),
            56 if random.one_in(3) => self.crash(random),
            _ => {}
        }
    }

    /// Lookups answer as the model does, and then the entries are those that it asks for.
    fn check(&self) {
        let ((db, c), now) = (self.both(), self.now());
        let tags = self.model.entries('t', now);
        let pairs = Vec::from_iter(tags.keys().cloned());
        let index = c.index();
        assert_eq!(index.name(), "tag");
        let pair = |found: Result<(ebbtide::Bytes, Item)>| {
            let (index_key, item) = found.unwrap();
            (text(&index_key), text(item.key()))
        };
        assert_eq!(index.range(..).map(pair).collect::<Vec<_>>(), pairs);
        let mut back = Vec::from_iter(index.prefix("").rev().map(pair));
        back.reverse();
        assert_eq!(back, pairs);
        for tag in ["t", "t1", "t12", "t2", "t3"] {
            let of = |is: &dyn Fn(&str) -> bool| -> Vec<(String, String)> {
                pairs.iter().filter(|(one, _)| is(one)).cloned().collect()
            };
            let keys = index.keys(tag).map(|key| text(&key.unwrap()));
            let own = of(&|one| one == tag).into_iter().map(|(_, key)| key);
            assert_eq!(keys.collect::<Vec<_>>(), own.collect::<Vec<_>>());
            let begun = of(&|one| one.starts_with(tag));
            assert_eq!(index.prefix(tag).map(pair).collect::<Vec<_>>(), begun);
            let above = of(&|one| one >= tag).len() as u64;
            assert_eq!(index.count(tag..).unwrap(), above);
        }
        let mails = self.model.entries('@', now);
        for mail in ["@0", "@1", "@2", "@3"] {
            let found = c.index_named("mail").unwrap().item(mail).unwrap();
            let found = found.map(|item| text(item.key()));
            let expected = mails.keys().find(|(one, _)| one == mail);
            assert_eq!(found, expected.map(|(_, key)| key.clone()));
        }
        agree(&stored(db, "c#tag"), &tags, self.is_exact);
        agree(&stored(db, "c#mail"), &mails, self.is_exact);
        assert_eq!(implied(c.container(), 't'), tags);
    }
}

#[test]
fn an_index_holds_the_index_keys_of_the_live_items() {
    let (first, histories) = (
        testkit::env("EBBTIDE_SEED", 1),
        testkit::env("EBBTIDE_HISTORIES", 60),
    );
    let mut refused = 0;
    for seed in first..first + histories {
        let mut random = Random(seed);
        let mut world = World::new(&mut random);
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 0..200 {
                world.step(&mut random, number);
                if number % 3 == 2 {
                    world.check();
                }
            }
        }));
        if let Err(panic) = played {
            println!("EBBTIDE_SEED={seed} EBBTIDE_HISTORIES=1 plays it again");
            std::panic::resume_unwind(panic);
        }
        refused += world.refused;
    }
    assert!(
        refused > histories as usize,
        "only {refused} calls met an address that was taken"
    );
}
