//! Goal: a bit that flips in a memtable reaches no table. What flushes finds it, writes nothing, and no write is taken after it;
//! the log has the record as it was, so opening the database again has everything. No call stores a flipped record again.
//!
//! Method: a bit of a random record in memory is flipped, then the memtable is flushed, or a call rewrites the record, and the
//! process is killed or the database dropped. `EBBTIDE_FLIPS=n` flips so many (400).

use ebbtide::{Batch, Error, Ttl, Update};
use testkit::random::Random;
use testkit::stage::{PATH, Stage, after, pairs, seconds};

const ITEMS: usize = 40;

fn flips() -> u64 {
    let asked = std::env::var("EBBTIDE_FLIPS").ok();
    asked.map_or(400, |n| n.parse().expect("a number"))
}

fn is_memory(error: &Error) -> bool {
    match error {
        Error::Poisoned { cause } => matches!(**cause, Error::MemoryCorruption { .. }),
        error => matches!(error, Error::MemoryCorruption { .. }),
    }
}

fn filled(random: &mut Random) -> Stage {
    let stage = Stage::small();
    for n in 0..ITEMS {
        let ttl = match random.below(3) {
            0 => Ttl::Inherit,
            1 => Ttl::Never,
            _ => after(1_000_000 + random.below(1 << 40) as u64),
        };
        let value = vec![n as u8; random.below(200)];
        let put = stage.c.put_with_ttl(format!("k{n:02}"), value, ttl);
        put.expect("it is written");
    }
    for n in (0..ITEMS).filter(|n| n % 7 == 0) {
        let delete = stage.c.delete(format!("k{n:02}"));
        delete.expect("it is deleted");
    }
    stage
}

#[test]
fn a_flipped_bit_of_a_memtable_reaches_no_table() {
    let mut random = Random(1);
    for flip in 0..flips() {
        let stage = filled(&mut random);
        let before = pairs(stage.c.iter());
        let key = format!("k{:02}", random.below(ITEMS));
        let bit = random.below(1 << 20);
        assert!(stage.c.flip_in_memory(key.as_bytes(), bit));
        let failed = stage.db.flush().expect_err("it is found");
        assert!(is_memory(&failed), "{flip}: {failed}");
        let refused = stage.c.put("more", "v").expect_err("no write is taken");
        assert!(is_memory(&refused), "{flip}: {refused}");
        assert_eq!(stage.c.stats().runs, 0, "{flip}: nothing was written");
        let stage = match flip % 2 {
            0 => stage.reopen(false),
            _ => {
                let sim = stage.sim.clone();
                stage.on(sim)
            }
        };
        assert_eq!(pairs(stage.c.iter()), before, "{flip}");
        stage.db.flush().expect("it is right in memory");
        assert_eq!(pairs(stage.c.iter()), before, "{flip}");
    }
}

#[test]
fn a_flipped_bit_of_a_memtable_is_no_answer_to_a_paranoid_read() {
    let mut random = Random(3);
    for flip in 0..flips() {
        let stage = filled(&mut random);
        let options = stage.options().paranoid_memory_checks(true);
        drop(stage.db);
        drop(stage.c);
        let db = options.open(PATH).expect("it opens");
        let c = db.container("c").expect("it is there");
        let before = pairs(c.iter());
        let (key, value) = &before[random.below(before.len())];
        assert!(c.flip_in_memory(key.as_bytes(), random.below(1 << 20)));
        let is_refused = |read: ebbtide::Result<Option<ebbtide::Value>>| match read {
            Ok(None) => false,
            Ok(Some(read)) => panic!("{flip}: an answer, {:?} for {value:?}", &*read),
            Err(error) => is_memory(&error),
        };
        let (key, all) = (key.as_str(), || c.iter().rev().chain(c.iter()));
        let is_found = match flip % 4 {
            0 => is_refused(c.get(key)),
            1 => is_refused(c.get_many([key]).map(|mut all| all.remove(0))),
            2 => c.contains(key).is_err_and(|error| is_memory(&error)),
            _ => all().any(|item| item.is_err_and(|error| is_memory(&error))),
        };
        // A record whose key is another one now is not found under its own.
        let in_all = || c.iter().any(|item| item.is_err());
        assert!(is_found || in_all(), "{flip}");
        c.get("k99").expect("what is not there needs no check");
    }
}

/// It would be stored again, with a new check.
#[test]
fn a_flipped_bit_of_a_memtable_is_not_written_again() {
    let mut random = Random(2);
    for flip in 0..flips() {
        let stage = filled(&mut random);
        let before = pairs(stage.c.iter());
        let (key, _) = &before[random.below(before.len())];
        assert!(
            stage
                .c
                .flip_in_memory(key.as_bytes(), random.below(1 << 20))
        );
        let (db, c) = (&stage.db, &stage.c);
        let mut batch = Batch::new();
        let written = match flip % 8 {
            0 => c.touch(key),
            1 => c.expire(key, seconds(9)),
            2 => c.get_and_touch(key).map(|item| item.is_some()),
            3 => db.write(&*batch.rename(c, key, "renamed")).map(|_| false),
            4 => c.touch_until(key).map(|item| item.is_some()),
            5 => db.write(&*batch.touch(c, key)).map(|_| false),
            6 => c.update(key, |_| Update::Expire(Ttl::Never)),
            _ => db.transaction(|tx| tx.touch(c, key)),
        };
        // A record whose key is another one now is not found.
        assert!(!matches!(written, Ok(true)), "{flip}: {written:?}");
        let stage = stage.reopen(false);
        assert_eq!(pairs(stage.c.iter()), before, "{flip}");
    }
}
