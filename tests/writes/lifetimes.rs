//! Goal: lifetimes go on as they are, or begin anew, without the value: an item that is renamed, or lives like another one, ends
//! in the very millisecond in which that one does; nothing brings back what has passed.
//!
//! Method: each call where it finds an item and where it does not, in memory, in tables, and after a kill; random histories
//! of writes that live like others, of changed defaults and commands, against the definition.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::{Batch, Container, Database, DefaultTtl, Error, Item, OnMiss, Ttl, Update};
use testkit::random::Random;
use testkit::refused;
use testkit::stage::{NOW, Stage, after, at, ms, seconds};

fn stage() -> Stage {
    Stage::new(|options| options)
}

/// All of an item by which it ends.
fn life(item: &Item) -> (SystemTime, Ttl, Option<SystemTime>) {
    (item.written_at(), item.ttl(), item.expires_at())
}

#[test]
fn a_renamed_item_keeps_its_end() {
    for is_flushed in [false, true] {
        let mut f = stage();
        f.c.set_default_ttl(DefaultTtl::After(ms(100))).unwrap();
        f.c.put("inherits", "1").unwrap();
        f.c.put_with_ttl("own", "2", after(70)).unwrap();
        f.c.put_with_ttl("never", "3", Ttl::Never).unwrap();
        f.c.put("there", "replaced").unwrap();
        f.pass(40);
        if is_flushed {
            f.db.flush().unwrap();
        }
        let before = ["inherits", "own", "never"].map(|key| f.c.item(key).unwrap().unwrap());
        let mut batch = Batch::new();
        batch
            .rename(&f.c, "inherits", "there")
            .rename(&f.c, "own", "own 2");
        batch.rename(&f.c, "never", "never 2");
        assert_eq!(batch.len(), 3);
        let written = f.db.commit(batch).unwrap();
        f = f.reopen(false);
        assert_eq!(f.c.count(..).unwrap(), 3);
        for (key, before) in ["there", "own 2", "never 2"].iter().zip(&before) {
            let item = f.c.item(key).unwrap().unwrap();
            assert_eq!(life(&item), life(before));
            assert_eq!(item.value(), before.value());
            assert!(item.version() > before.version() && item.version() <= written.version());
        }
        f.c.set_default_ttl(DefaultTtl::After(ms(50))).unwrap();
        let end = |key| f.c.item(key).unwrap().unwrap().expires_at();
        assert_eq!(
            end("there"),
            Some(at(50)),
            "it inherits, from when it was written"
        );
        assert_eq!(end("own 2"), Some(at(70)));
        f.pass(9);
        assert!(f.c.contains("there").unwrap());
        f.pass(1);
        assert!(!f.c.contains("there").unwrap() && f.c.contains("own 2").unwrap());
        f.pass(20);
        assert_eq!(
            f.c.keys(..).map(Result::unwrap).collect::<Vec<_>>(),
            ["never 2"]
        );
    }
}

#[test]
fn a_rename_finds_what_is_live_alone() {
    let f = stage();
    let mut batch = Batch::new();
    batch.put(&f.c, "other", "1").rename(&f.c, "k", "to");
    let missed = |error: Error| matches!(error, Error::Conflict { key, .. } if key == b"k");
    assert!(missed(f.db.write(&batch).unwrap_err()), "none is there");
    f.c.put_with_ttl("k", "v", after(10)).unwrap();
    f.pass(10);
    assert!(missed(f.db.write(&batch).unwrap_err()), "it has ended");
    assert!(f.c.is_empty().unwrap());
    let mut skipping = Batch::new();
    skipping.on_miss(OnMiss::Skip).rename(&f.c, "k", "to");
    skipping.put(&f.c, "k", "new").rename(&f.c, "k", "to");
    skipping.rename(&f.c, "k", "to").rename(&f.c, "to", "to");
    let written = f.db.commit(&skipping).unwrap();
    let done = written.outcomes().iter().map(|outcome| outcome.is_done());
    assert_eq!(done.collect::<Vec<_>>(), [false, true, true, false, true]);
    let item = f.c.item("to").unwrap().unwrap();
    assert_eq!(item.value(), "new");
    assert_eq!(item.version(), written.version());
    assert_eq!(f.c.count(..).unwrap(), 1);
    for (from, to) in [("", "to"), ("to", "")] {
        refused(f.db.write(Batch::new().rename(&f.c, from, to)), "key");
    }
    assert!(f.c.contains("to").unwrap());
}

/// A condition later in the batch sees the item where it is then, with the lifetime that it kept.
#[test]
fn a_batch_sees_what_it_has_renamed() {
    let f = stage();
    f.c.put_with_ttl("a", "v", after(100)).unwrap();
    f.pass(30);
    let mut batch = Batch::new();
    batch
        .rename(&f.c, "a", "b")
        .create(&f.c, "a", "again", Ttl::Never);
    batch
        .rename(&f.c, "b", "c")
        .put_with_ttl(&f.c, "c", "w", Ttl::Keep);
    f.db.write(batch).unwrap();
    let item = f.c.item("c").unwrap().unwrap();
    assert_eq!(life(&item), (at(0), after(100), Some(at(100))));
    assert_eq!(item.value(), "w");
    assert_eq!(f.c.get("a").unwrap().unwrap(), "again");
    f.db.write(Batch::new().rename(&f.c, "c", "d").touch(&f.c, "d"))
        .unwrap();
    let item = f.c.item("d").unwrap().unwrap();
    assert_eq!(life(&item), (at(30), after(100), Some(at(130))));
}

#[test]
fn a_touch_tells_the_item_and_its_end() {
    let f = stage();
    assert!(f.c.get_and_touch("k").unwrap().is_none());
    assert_eq!(f.c.touch_until("k").unwrap(), None);
    f.c.put_with_ttl("k", "v", after(100)).unwrap();
    f.pass(99);
    let item = f.c.get_and_touch("k").unwrap().unwrap();
    assert_eq!(item, f.c.item("k").unwrap().unwrap());
    assert_eq!(life(&item), (at(99), after(100), Some(at(199))));
    assert_eq!(item.remaining(), Some(ms(100)));
    f.pass(1);
    assert_eq!(f.c.touch_until("k").unwrap(), Some(at(200)));
    f.pass(100);
    assert!(
        f.c.get_and_touch("k").unwrap().is_none(),
        "it does not come back"
    );
    assert_eq!(f.c.touch_until("k").unwrap(), None);
    f.c.put("for good", "v").unwrap();
    let last = f.c.touch_until("for good").unwrap().unwrap();
    assert!(last > at(u64::from(u32::MAX)) + seconds(2_147_483_647));
    f.c.set_default_ttl(DefaultTtl::After(ms(10))).unwrap();
    assert_eq!(f.c.touch_until("for good").unwrap(), Some(at(210)));
    assert_eq!(
        f.c.get_and_touch("for good").unwrap().unwrap().ttl(),
        Ttl::Inherit
    );
    assert!(f.c.get_and_touch("").is_err() && f.c.touch_until("").is_err());
}

#[test]
fn an_update_takes_what_becomes_bytes() {
    let f = stage();
    let buffer = b"a buffer".to_vec();
    let borrows = |_: Option<&Item>| Update::Put(&buffer, after(5));
    assert!(f.c.update_with("k", borrows).unwrap());
    assert_eq!(f.c.get("k").unwrap().unwrap(), buffer);
    let owns =
        |found: Option<&Item>| Update::Put([&found.unwrap().value()[..], b"!"].concat(), Ttl::Keep);
    assert!(f.c.update_with("k", owns).unwrap());
    assert_eq!(f.c.item("k").unwrap().unwrap().expires_at(), Some(at(5)));
    let shares = |found: Option<&Item>| Update::Put(found.unwrap().value().clone(), Ttl::Never);
    assert!(f.c.update("k", shares).unwrap());
    assert_eq!(f.c.get("k").unwrap().unwrap(), "a buffer!");
    for text in ["literal", "another"] {
        f.c.update("k", |_| Update::Put(text, Ttl::Inherit))
            .unwrap();
        assert_eq!(f.c.get("k").unwrap().unwrap(), text);
    }
    assert!(!f.c.update_with("k", |_| Update::Keep).unwrap());
    assert!(f.c.update_with("k", |_| Update::Expire(after(1))).unwrap());
    let large = vec![0; ebbtide::MAX_VALUE_LEN + 1];
    assert!(
        f.c.update_with("k", |_| Update::Put(&large, Ttl::Never))
            .is_err()
    );
    assert!(f.c.update_with("k", |_| Update::Delete).unwrap());
    assert!(f.c.is_empty().unwrap());
}

/// How a value is written with a ttl.
const WAYS: [&str; 7] = [
    "put",
    "create",
    "update",
    "batch",
    "transaction",
    "expire",
    "batch expire",
];

fn write(db: &Database, c: &Container, key: &str, value: &str, ttl: Ttl, way: &str) {
    let mut batch = Batch::new();
    match way {
        "put" => c.put_with_ttl(key, value, ttl).unwrap(),
        "create" => {
            c.delete(key).unwrap();
            assert!(c.create(key, value, ttl).unwrap());
        }
        "update" => {
            let put = |_: Option<&Item>| Update::Put(value.to_owned(), ttl);
            assert!(c.update(key, put).unwrap());
        }
        "batch" => {
            batch.put_with_ttl(c, key, value, ttl);
            db.write(batch).unwrap();
        }
        "transaction" => db
            .transaction(|tx| tx.put_with_ttl(c, key, value, ttl))
            .unwrap(),
        "expire" => {
            c.put(key, value).unwrap();
            // A default may have ended it already.
            let _ = c.expire(key, ttl).unwrap();
        }
        _ => {
            batch.put(c, key, value).expire(c, key, ttl);
            db.write(batch).unwrap();
        }
    }
}

#[test]
fn what_has_passed_is_not_written() {
    for way in WAYS {
        let f = stage();
        let d = f.db.container("d").unwrap();
        d.put_with_ttl("k", "v", after(10)).unwrap();
        let item = d.item("k").unwrap().unwrap();
        f.c.put("k", "older").unwrap();
        f.pass(9);
        write(&f.db, &f.c, "k", "new", Ttl::Like(&item), way);
        assert_eq!(life(&f.c.item("k").unwrap().unwrap()), life(&item), "{way}");
        f.pass(1);
        assert!(!f.c.contains("k").unwrap(), "{way}");
        f.c.put("k", "older").unwrap();
        write(&f.db, &f.c, "k", "new", Ttl::Like(&item), way);
        assert!(
            !f.c.contains("k").unwrap(),
            "{way}: it replaces, and has ended"
        );
        f.c.set_default_ttl(DefaultTtl::Off).unwrap();
        write(&f.db, &f.c, "k", "new", Ttl::Like(&item), way);
        assert_eq!(f.c.item("k").unwrap().unwrap().ttl(), item.ttl(), "{way}");
        f.c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
        assert!(!f.c.contains("k").unwrap(), "{way}: ttl was off");
        assert!(
            f.c.bulk_load_with_ttl([Ok(("k", "v", Ttl::Like(&item)))])
                .is_err()
        );
    }
}

/// An item that an earlier default would have ended is written after it: it has what the default of now leaves it.
#[test]
fn an_earlier_default_ends_nothing_that_is_written_later() {
    let hour = |n: u64| n * 3_600_000;
    let after_hours = |n| DefaultTtl::After(ms(hour(n)));
    for way in WAYS.into_iter().chain(["with the change"]) {
        let f = stage();
        let source = f.db.container("source").unwrap();
        source.set_default_ttl(after_hours(720)).unwrap();
        f.c.set_default_ttl(after_hours(1)).unwrap();
        source.put("x", "v").unwrap();
        f.pass(hour(48));
        let item = source.item("x").unwrap().unwrap();
        if way == "with the change" {
            let mut batch = Batch::new();
            batch.set_default_ttl(&f.c, after_hours(720));
            batch.put_with_ttl(&f.c, "k", "new", Ttl::Like(&item));
            f.db.write(batch).unwrap();
        } else {
            f.c.set_default_ttl(after_hours(720)).unwrap();
            write(&f.db, &f.c, "k", "new", Ttl::Like(&item), way);
        }
        let ends = |c: &Container, key: &str| c.item(key).unwrap().unwrap().expires_at();
        assert_eq!(ends(&f.c, "k"), item.expires_at(), "{way}");
        // No later floor covers it.
        f.c.set_default_ttl(after_hours(800)).unwrap();
        f.c.set_default_ttl(after_hours(720)).unwrap();
        assert_eq!(ends(&f.c, "k"), item.expires_at(), "{way}");
        f.c.set_default_ttl(DefaultTtl::Off).unwrap();
        write(&f.db, &f.c, "never", "new", Ttl::Like(&item), way);
        assert_eq!(ends(&f.c, "never"), None, "{way}");
        f.c.set_default_ttl(after_hours(720)).unwrap();
        assert_eq!(ends(&f.c, "never"), None, "{way}");
        f.pass(hour(672) - 1);
        assert!(f.c.contains("k").unwrap(), "{way}");
        f.pass(1);
        assert!(!f.c.contains("k").unwrap(), "{way}");
    }
}

/// An item that is written to a container with the lifetime of another.
struct Copied {
    /// How many defaults the container had had.
    after: usize,
    written_at: u64,
    ttl: Option<u64>,
    is_never: bool,
    value: String,
}

/// When the container's default went to this; the first is its making.
struct Defaults(Vec<(u64, DefaultTtl)>);

impl Defaults {
    /// Whether it has ended by `now`, under one of the defaults since it was written: by the definition, moment by moment.
    fn end(&self, item: &Copied, now: u64) -> bool {
        self.end_from(item, item.after - 1, now)
    }

    fn end_from(&self, item: &Copied, first: usize, now: u64) -> bool {
        let until = self.0.iter().skip(1).map(|(at, _)| *at).chain([now]);
        let mut spans = self.0.iter().zip(until).skip(first);
        !item.is_never
            && spans.any(|((_, default), until)| {
                let life = match (item.ttl, default) {
                    (_, DefaultTtl::Off) => None,
                    (Some(own), _) => Some(own),
                    (None, DefaultTtl::After(time)) => Some(time.as_millis() as u64),
                    (None, _) => None,
                };
                life.is_some_and(|life| item.written_at + life <= until)
            })
    }

    /// The item as it is written now: where it inherits, and an earlier default would have ended it, with what the last one
    /// leaves it as its own.
    fn written(&self, item: Copied) -> Copied {
        let (at, last) = self.0[self.0.len() - 1];
        let earlier = Defaults(self.0[..self.0.len() - 1].to_vec());
        if item.ttl.is_some() || earlier.0.is_empty() || !earlier.end_from(&item, 0, at) {
            return item;
        }
        match last {
            DefaultTtl::After(time) => Copied {
                ttl: Some(time.as_millis() as u64),
                ..item
            },
            _ => Copied {
                is_never: true,
                ..item
            },
        }
    }
}

fn default(random: &mut Random) -> DefaultTtl {
    match random.below(4) {
        0 => DefaultTtl::Off,
        1 => DefaultTtl::NoDefault,
        _ => DefaultTtl::After(ms(1 + random.below(80) as u64)),
    }
}

/// Items of one container give their lifetimes to items of another one, at once or long after.
#[test]
fn lives_are_those_of_the_definition() {
    for seed in 0..10 {
        let (mut random, mut f) = (Random(seed), stage());
        let (mut now, mut read, mut copies) = (NOW, Vec::<Item>::new(), BTreeMap::new());
        let mut defaults = Defaults(vec![(now, DefaultTtl::NoDefault)]);
        for n in 0..60 {
            let source = f.db.container("source").unwrap();
            match random.below(12) {
                0..3 => {
                    let by = random.below(25) as u64;
                    f.pass(by);
                    now += by;
                }
                3 | 4 => {
                    let own = after(1 + random.below(60) as u64);
                    let ttl = random.pick(&[Ttl::Inherit, Ttl::Never, own]);
                    source.put_with_ttl("k", "", ttl).unwrap();
                    read.extend(source.item("k").unwrap());
                }
                5 => {
                    let to = default(&mut random);
                    f.c.set_default_ttl(to).unwrap();
                    defaults.0.push((now, to));
                }
                6 => f.db.flush().unwrap(),
                7 => f.db.compact().unwrap(),
                8 if random.one_in(2) => f = f.reopen(false),
                _ if read.is_empty() => {}
                _ => {
                    let item = read[random.below(read.len())].clone();
                    let (key, value) = (format!("k{}", random.below(3)), format!("{n}"));
                    let way = random.pick(&WAYS);
                    write(&f.db, &f.c, &key, &value, Ttl::Like(&item), way);
                    let since = item.written_at().duration_since(UNIX_EPOCH).unwrap();
                    let copied = defaults.written(Copied {
                        after: defaults.0.len(),
                        written_at: since.as_millis() as u64,
                        ttl: match item.ttl() {
                            Ttl::After(time) => Some(time.as_millis() as u64),
                            _ => None,
                        },
                        is_never: item.ttl() == Ttl::Never,
                        value,
                    });
                    copies.insert(key, (copied, item));
                }
            }
            for (key, (copied, like)) in &copies {
                let found = f.c.item(key).unwrap();
                let shown = format!("seed {seed}, step {n}: {key} {found:?} like {like:?}");
                assert_eq!(found.is_none(), defaults.end(copied, now), "{shown}");
                if let Some(found) = found {
                    let ttl = match (copied.is_never, copied.ttl) {
                        (true, _) => Ttl::Never,
                        (false, Some(own)) => after(own),
                        (false, None) => Ttl::Inherit,
                    };
                    assert_eq!((found.written_at(), found.ttl()), (like.written_at(), ttl));
                    assert_eq!(found.value(), copied.value.as_str());
                }
            }
        }
    }
}

/// A command is of what was written before it, whatever the time from which a later write counts.
#[test]
fn commands_spare_what_is_written_later() {
    let f = stage();
    f.c.put_with_ttl("k", "v", after(100)).unwrap();
    let item = f.c.item("k").unwrap().unwrap();
    f.pass(10);
    f.c.expire_all().unwrap();
    f.c.put_with_ttl("k", "again", Ttl::Like(&item)).unwrap();
    let again = f.c.item("k").unwrap().unwrap();
    assert_eq!(life(&again), life(&item));
    f.c.set_default_ttl(DefaultTtl::After(ms(5))).unwrap();
    f.db.flush().unwrap();
    f.db.compact().unwrap();
    assert!(f.c.contains("k").unwrap());
    f.pass(90);
    assert!(!f.c.contains("k").unwrap());
}

#[test]
fn a_transaction_conflicts_when_what_it_writes_has_passed() {
    let f = stage();
    f.c.put_with_ttl("k", "v", after(10)).unwrap();
    let item = f.c.item("k").unwrap().unwrap();
    let tx = f.db.begin();
    tx.put_with_ttl(&f.c, "copy", "w", Ttl::Like(&item))
        .unwrap();
    assert_eq!(life(&tx.item(&f.c, "copy").unwrap().unwrap()), life(&item));
    f.pass(10);
    assert!(tx.commit().unwrap_err().is_conflict());
    let tx = f.db.begin();
    tx.put_with_ttl(&f.c, "copy", "w", Ttl::Like(&item))
        .unwrap();
    assert!(tx.item(&f.c, "copy").unwrap().is_none());
    tx.commit().unwrap();
    assert!(f.c.is_empty().unwrap());
}
