//! Goal: a bit that flips in a memtable reaches no table. What flushes finds it, writes nothing, and no write is taken after it;
//! the log has the record as it was, so opening the database again has everything.
//!
//! Method: a bit of a random record in memory is flipped, then the memtable is flushed, and the process is killed or the
//! database dropped. `EBBTIDE_FLIPS=n` flips so many (400).

use ebbtide::{Error, Ttl};
use testkit::random::Random;
use testkit::stage::{Stage, after, pairs};

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
