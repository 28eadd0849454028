//! Goal: where the program gives the time, one history gives the same answers, items, versions, ends and expirations in
//! every database, however they were flushed, merged, opened again, killed, copied, or cut off from power.
//!
//! Method: a random history is applied to two databases. One is left alone; with the other everything is done, between
//! the steps, that no answer may show. After each step both are read whole. Another history is cut off before calls of
//! the disk, and what was lost is applied again.

mod rules;

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::internals::{Sim, Survivors};
use ebbtide::{
    Batch, Container, ContainerOptions, Database, DefaultTtl, Error, ExpiryCursor, OnMiss, Options,
    Quota, Ttl, Update, Version, WhenFull,
};
use testkit::random::Random;
use testkit::stage::{after, default, ms, seconds};

const START: u64 = 1_800_000_000_000;
const NAMES: [&str; 2] = ["a", "b"];
const KEYS: usize = 12;

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + ms(millis)
}

fn options(sim: &Sim) -> Options {
    Options::new()
        .memtable_bytes(64 << 10)
        .max_runs(3)
        .given_time()
        .fs(Arc::new(sim.clone()))
        .sizes(512, 16 << 10, 32 << 10)
        .stepped()
}

fn open(sim: &Sim, path: &str) -> Database {
    options(sim).open(path).unwrap()
}

/// One thing that a program does, and when.
#[derive(Clone, Debug)]
struct Step {
    at: u64,
    container: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Put(usize, Option<Ttl>),
    Upsert(usize, Option<Ttl>),
    Create(usize, Option<Ttl>),
    Replace(usize),
    Touch(usize),
    Expire(usize, Ttl),
    Take(usize),
    Update(usize),
    Delete(usize),
    DeleteRange(usize, usize),
    Batch(Vec<(usize, usize)>, OnMiss),
    Default(DefaultTtl),
    ExpireBefore(u64),
    ExpireWrittenBefore(u64),
    ExpireAll,
    Keep(u64),
    Drop,
    PurgeLimit(u64),
    Transaction(usize, usize),
    Like(usize, usize),
}

fn ttl(random: &mut Random) -> Option<Ttl> {
    match random.below(4) {
        0 => None,
        1 => Some(Ttl::Never),
        _ => Some(after(1 + random.below(60) as u64)),
    }
}

/// So many steps, on keys up to this number. Where they are few, most creations are refused.
fn steps(random: &mut Random, count: usize, keys: usize) -> Vec<Step> {
    let mut now = START;
    let mut step = |_| {
        now += random.below(4).saturating_sub(1) as u64 * random.below(12) as u64;
        let key = random.below(keys);
        let near = now + 20 - random.below(40) as u64;
        let what = match random.below(40) {
            0..4 => What::Put(key, ttl(random)),
            4..8 => What::Upsert(key, ttl(random)),
            8..14 => What::Create(key, ttl(random)),
            14..16 => What::Replace(key),
            16..18 => What::Touch(key),
            18..20 => What::Expire(key, ttl(random).unwrap_or(Ttl::Never)),
            20 => What::Take(key),
            21..23 => What::Update(key),
            23 => What::Delete(key),
            24 => What::DeleteRange(key, random.below(keys + 1)),
            25..28 => {
                let mut ops = || (random.below(5), random.below(keys));
                What::Batch(
                    vec![ops(), ops(), ops()],
                    random.pick(&[OnMiss::Conflict, OnMiss::Skip]),
                )
            }
            28..30 => What::Default(match random.below(3) {
                0 => DefaultTtl::Off,
                1 => DefaultTtl::NoDefault,
                _ => DefaultTtl::After(ms(1 + random.below(50) as u64)),
            }),
            30 => What::ExpireBefore(near),
            31 => What::ExpireWrittenBefore(near),
            32 => What::ExpireAll,
            33 => What::Keep(random.below(30) as u64),
            34 if random.one_in(6) => What::Drop,
            37 => What::Like(key, random.below(keys)),
            34..37 => What::PurgeLimit(near - 20 + random.pick(&[0, 0, 60])),
            _ => What::Transaction(key, random.below(keys)),
        };
        Step {
            at: now,
            container: random.below(NAMES.len()),
            what,
        }
    };
    (0..count).map(&mut step).collect()
}

fn key(n: usize) -> Vec<u8> {
    format!("key {n:02}").into_bytes()
}

/// Does it, and tells what it answered.
fn answer(db: &Database, n: usize, step: &Step) -> String {
    db.advance_to(at(step.at)).unwrap();
    let c = &db.container(NAMES[step.container]).unwrap();
    let value = format!("value {n}");
    let ttl_of = |ttl: &Option<Ttl>| ttl.unwrap_or(Ttl::Inherit);
    match &step.what {
        What::Put(k, ttl) => format!("{:?}", c.put_with_ttl(key(*k), value, ttl_of(ttl))),
        What::Upsert(k, ttl) => format!("{:?}", c.upsert(key(*k), value, ttl_of(ttl))),
        What::Create(k, ttl) => format!("{:?}", c.create(key(*k), value, ttl_of(ttl))),
        What::Replace(k) => format!("{:?}", c.replace(key(*k), value, Ttl::Inherit)),
        What::Touch(k) => format!("{:?}", c.touch(key(*k))),
        What::Expire(k, ttl) => format!("{:?}", c.expire(key(*k), *ttl)),
        What::Take(k) => format!("{:?}", c.take(key(*k))),
        What::Update(k) => {
            let updated = c.fetch_update(key(*k), |item| match item {
                Some(item) if item.value().len() > 20 => Update::Delete,
                Some(item) => Update::Put([&item.value()[..], b"+"].concat(), Ttl::Inherit),
                None => Update::Keep,
            });
            format!("{updated:?}")
        }
        What::Delete(k) => format!("{:?}", c.delete(key(*k))),
        What::DeleteRange(from, to) => format!("{:?}", c.delete_range(key(*from)..key(*to))),
        What::Batch(ops, on_miss) => {
            let mut batch = Batch::new();
            batch.on_miss(*on_miss);
            for (what, k) in ops {
                match what {
                    0 => batch.create(c, key(*k), &value, Ttl::Inherit),
                    1 => batch.replace(c, key(*k), &value, Ttl::Inherit),
                    2 => batch.touch(c, key(*k)),
                    3 => batch.rename(c, key(*k), key((*k + 1) % KEYS)),
                    _ => batch.put(c, key(*k), &value),
                };
            }
            format!("{:?}", db.commit(&batch))
        }
        What::Default(default) => format!("{:?}", c.set_default_ttl(*default)),
        What::ExpireBefore(moment) => format!("{:?}", c.expire_before(at(*moment))),
        What::ExpireWrittenBefore(moment) => format!("{:?}", c.expire_written_before(at(*moment))),
        What::ExpireAll => format!("{:?}", c.expire_all()),
        What::Keep(millis) => format!("{:?}", c.set_keep_expired(ms(*millis))),
        What::Drop => format!("{:?}", db.drop_container(NAMES[step.container])),
        What::PurgeLimit(limit) => format!("{:?}", db.set_purge_limit(at(*limit))),
        What::Like(from, to) => {
            let other = db.container(NAMES[1 - step.container]).unwrap();
            let like = other.item(key(*from)).unwrap();
            let ttl = like.map_or(Ttl::Never, |item| Ttl::Like(&item));
            format!("{:?}", c.put_with_ttl(key(*to), value, ttl))
        }
        What::Transaction(from, to) => {
            let moved = db.transaction(|tx| {
                let count = tx.range(c, ..).count();
                if let Some(item) = tx.item(c, key(*from))? {
                    tx.put(c, key(*to), item.value())?;
                    tx.delete(c, key(*from))?;
                }
                Ok(count)
            });
            format!("{moved:?}")
        }
    }
}

/// All that a container shows, with the ends that are told from these cursors on.
fn shown(c: &Container, cursors: &[ExpiryCursor]) -> String {
    let mut all = format!("{:?}\n", c.default_ttl());
    for item in c.iter() {
        let item = item.unwrap();
        let (written, ends) = (item.written_at(), item.expires_at());
        let version = item.version();
        all += &format!("{item:?} {written:?} {ends:?} {version:?}\n");
    }
    for cursor in cursors {
        let mut ends = c.expirations(cursor.clone());
        all += &format!("from {cursor:?}\n");
        for end in &mut ends {
            match end {
                Ok(end) => all += &format!("{end:?} {:?} {:?}\n", end.version(), end.written_at()),
                Err(error) => {
                    all += &format!("{error}\n");
                    break;
                }
            }
        }
        all += &format!("to {:?}\n", ends.cursor());
    }
    all
}

fn version(db: &Database) -> Version {
    db.commit(Batch::new()).unwrap().version()
}

/// Does something that no answer may show.
fn disturb(
    db: Database,
    sim: &mut Sim,
    path: &mut String,
    n: usize,
    random: &mut Random,
) -> Database {
    match random.below(12) {
        0 | 1 => db.flush().unwrap(),
        2 => db.compact().unwrap(),
        3 | 4 => {
            for _ in 0..3 {
                let _ = db.step().unwrap();
            }
        }
        5 => {
            db.close().unwrap();
            drop(db);
            return open(sim, path);
        }
        6 => {
            let killed = sim.kill();
            drop(db);
            *sim = killed;
            return open(sim, path);
        }
        7 if random.one_in(3) => {
            let to = format!("/copy {n}");
            db.checkpoint(&to).unwrap();
            drop(db);
            *path = to;
            return open(sim, path);
        }
        _ => {}
    }
    db
}

fn differences(seed: u64, count: usize) {
    let mut random = Random(seed);
    let history = steps(&mut random, count, KEYS);
    let (quiet_sim, mut sim) = (Sim::new(seed), Sim::new(seed + 1));
    let mut path = "/db".to_owned();
    let (quiet, mut db) = (open(&quiet_sim, "/db"), open(&sim, "/db"));
    let mut cursors = [vec![ExpiryCursor::start()], vec![ExpiryCursor::start()]];
    for (n, step) in history.iter().enumerate() {
        let expected = answer(&quiet, n, step);
        assert_eq!(
            answer(&db, n, step),
            expected,
            "seed {seed}, step {n}: {step:?}"
        );
        assert_eq!(
            version(&db),
            version(&quiet),
            "seed {seed}, step {n}: {step:?}"
        );
        for (name, cursors) in NAMES.iter().zip(&mut cursors) {
            let (of_db, of_quiet) = (db.container(name).unwrap(), quiet.container(name).unwrap());
            assert_eq!(
                shown(&of_db, cursors),
                shown(&of_quiet, cursors),
                "seed {seed}, container {name}, step {n}: {step:?}, history {:?}",
                &history[n.saturating_sub(8)..=n]
            );
            if random.one_in(10) {
                let mut ends = of_quiet.expirations(ExpiryCursor::start());
                let some = random.below(4);
                ends.by_ref().take(some).for_each(|end| drop(end.unwrap()));
                cursors.push(ends.cursor());
                if cursors.len() > 4 {
                    cursors.remove(1);
                }
            }
        }
        db = disturb(db, &mut sim, &mut path, n, &mut random);
    }
}

fn seeds(usual: u64) -> u64 {
    let more = std::env::var("EBBTIDE_GIVEN").ok();
    more.map_or(usual, |more| more.parse().expect("a number of seeds"))
}

#[test]
fn two_databases_of_one_history_show_the_same() {
    (0..seeds(12)).for_each(|seed| differences(seed, 400));
}

/// Applies a history from a step on, and compares each answer.
fn go_on(db: &Database, history: &[Step], from: usize, answers: &[String], about: &str) {
    for (n, step) in history.iter().enumerate().skip(from) {
        assert_eq!(
            answer(db, n, step),
            answers[n],
            "{about}, step {n}: {step:?}"
        );
    }
}

#[test]
fn what_a_power_cut_takes_is_repeated_with_the_same_answers() {
    for seed in 0..seeds(6) {
        let mut random = Random(1_000 + seed);
        let history = steps(&mut random, 80, 2);
        let sim = Sim::new(seed);
        let cuts: Arc<Mutex<Vec<Sim>>> = Arc::default();
        let db = open(&sim, "/db");
        sim.watch({
            let (cuts, chance) = (cuts.clone(), Mutex::new(Random(seed)));
            move |sim, _| {
                let mut chance = chance.lock().unwrap();
                if chance.one_in(6) {
                    cuts.lock().unwrap().push(sim.power_cut(chance.next()));
                }
            }
        });
        let (mut answers, mut versions) = (vec![], vec![]);
        for (n, step) in history.iter().enumerate() {
            answers.push(answer(&db, n, step));
            versions.push(version(&db));
            match random.below(7) {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                2 => drop(db.step().unwrap()),
                3 => db.sync().unwrap(),
                // Only of those that are there: another would be made.
                4 => NAMES
                    .iter()
                    .filter(|name| db.snapshot().container(name).is_ok())
                    .for_each(|name| {
                        shown(&db.container(name).unwrap(), &[ExpiryCursor::start()]);
                    }),
                _ => {}
            }
        }
        sim.unwatch();
        let whole = NAMES.map(|name| shown(&db.container(name).unwrap(), &[]));
        for (at, cut) in cuts.lock().unwrap().iter().enumerate() {
            let about = format!("seed {seed}, cut {at}");
            let again = open(cut, "/db");
            // All that came after the last write that is left is repeated, also what wrote nothing.
            let left = version(&again);
            let from = versions.partition_point(|version| *version <= left);
            go_on(&again, &history, from, &answers, &about);
            again.advance_to(db.now()).unwrap();
            let shown = NAMES.map(|name| shown(&again.container(name).unwrap(), &[]));
            assert_eq!(shown, whole, "{about}");
        }
    }
}
