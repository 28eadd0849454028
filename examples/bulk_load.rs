//! The cost of a bulk load beside puts, and the time until all that it has loaded is gone on command: the figures of
//! docs/measurements/bulk.md.
//!
//! `cargo run --release --example bulk_load -- fill DIR ITEMS`: fills a database in DIR by puts in random order, then one by
//! puts in ascending order, then one by a bulk load, four times in turns. Items of 16 and 100 bytes.
//!
//! `cargo run --release --example bulk_load -- expire DIR ITEMS`: loads items of 16 and 84 bytes that live one to two days,
//! expires all of them, and waits until their disk space is back, with `reclaim_within` 60 s.
//!
//! DIR is removed first, and at the end.

use std::time::{Duration, Instant};
use std::{fs, thread};

use ebbtide::{Container, Database, Options, Result, Ttl};

fn key(n: u64) -> [u8; 16] {
    u128::from(n).to_be_bytes()
}

fn fresh(dir: &str) -> Result<(Database, Container)> {
    // Mostly it is not there.
    let _ = fs::remove_dir_all(dir);
    let options = Options::new().reclaim_within(Duration::from_secs(60));
    let db = options.open(dir)?;
    let c = db.container("c")?;
    Ok((db, c))
}

fn fill(dir: &str, items: u64) -> Result<()> {
    let value = [7; 100];
    for round in 1..=4 {
        let mut took = vec![];
        for scatter in [0x9e37_79b9_7f4a_7c15, 1] {
            let (db, c) = fresh(dir)?;
            let start = Instant::now();
            for n in 0..items {
                c.put(key(n.wrapping_mul(scatter)), value)?;
            }
            let puts = start.elapsed();
            db.flush()?;
            took.push((puts, start.elapsed()));
        }
        let (_db, c) = fresh(dir)?;
        let start = Instant::now();
        c.bulk_load((0..items).map(|n| (key(n), value)))?;
        let load = start.elapsed();
        assert_eq!(c.count(..)?, items);
        println!("round {round}: bulk load {load:.1?}");
        for (order, (puts, flushed)) in ["random", "ascending"].iter().zip(took) {
            let times = puts.as_secs_f64() / load.as_secs_f64();
            println!(
                "  puts, {order}: {puts:.1?}, {times:.2} times that; with their flush {flushed:.1?}"
            );
        }
    }
    Ok(())
}

fn table_bytes(db: &Database) -> u64 {
    db.stats().table_bytes
}

fn expire(dir: &str, items: u64) -> Result<()> {
    let (db, c) = fresh(dir)?;
    let day = 86_400_000;
    let start = Instant::now();
    let ttl = |n| Ttl::After(Duration::from_millis(day + n % day));
    c.bulk_load_with_ttl((0..items).map(|n| Ok((key(n), [7; 84], ttl(n)))))?;
    let loaded = start.elapsed();
    println!(
        "{items} items loaded in {loaded:.1?}, {} MiB",
        table_bytes(&db) >> 20
    );
    let timed = |what: &str, work: &dyn Fn() -> Result<bool>| -> Result<()> {
        let start = Instant::now();
        let found = work()?;
        println!("{what}: {:.1?}, found: {found}", start.elapsed());
        Ok(())
    };
    let middle = key(items / 2);
    timed("get", &|| c.contains(middle))?;
    timed("expire_all", &|| c.expire_all().map(|()| true))?;
    timed("next get", &|| c.contains(middle))?;
    timed("next scan", &|| Ok(c.iter().next().is_some()))?;
    let start = Instant::now();
    while table_bytes(&db) > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    println!("no table left after {:.1?}", start.elapsed());
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir, items] = &args[..] else {
        panic!("fill or expire, a folder, a number of items");
    };
    let items = items.parse().expect("a number of items");
    match what.as_str() {
        "fill" => fill(dir, items)?,
        "expire" => expire(dir, items)?,
        _ => panic!("fill or expire"),
    }
    let _ = fs::remove_dir_all(dir);
    Ok(())
}
