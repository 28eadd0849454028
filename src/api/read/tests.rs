use std::sync::Arc;
use std::time::Duration;

use crate::api::container::Container;
use crate::env::{ManualClock, Sim};
use crate::{DefaultTtl, Options};

const ITEMS: u64 = 200;
const DRAWS: u64 = 4_000;

fn key(n: u64) -> Vec<u8> {
    format!("{n:05}").into_bytes()
}

/// How far so many draws are from even ones, in standard deviations of the chi-square distribution.
fn unevenness(c: &Container, seed: u64) -> f64 {
    let mut drawn = vec![0u64; ITEMS as usize];
    for n in 0..DRAWS {
        let item = c.reading().random_by(seed + n * n).unwrap();
        let key = item.expect("there are items").key().to_vec();
        let number: usize = String::from_utf8(key).unwrap().parse().unwrap();
        // Every fifth key is that of an item.
        assert_eq!(number % 5, 0, "it is gone");
        drawn[number / 5] += 1;
    }
    let even = DRAWS as f64 / ITEMS as f64;
    let square = |times: &u64| (*times as f64 - even).powi(2) / even;
    let freedom = (ITEMS - 1) as f64;
    (drawn.iter().map(square).sum::<f64>() - freedom) / (2.0 * freedom).sqrt()
}

fn at_random(flushed: bool) {
    let clock = ManualClock::new(1_800_000_000_000);
    let db = Options::new()
        .fs(Arc::new(Sim::new(1)))
        .clock(clock.clone())
        .stepped()
        .sizes(512, 16 << 10, 1 << 20)
        .open("/db")
        .unwrap();
    let c = db.container("c").unwrap();
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    for n in (0..5 * ITEMS).filter(|n| n % 5 < 4) {
        let value = vec![b'v'; 10 + (n as usize % 100)];
        match n % 5 {
            1 => c.put_with_ttl(key(n), value, Duration::from_secs(1)),
            _ => c.put(key(n), value),
        }
        .unwrap();
    }
    if flushed {
        db.flush().unwrap();
    }
    for n in 0..ITEMS {
        c.delete(key(5 * n + 2)).unwrap();
        c.delete_range(key(5 * n + 3)..key(5 * n + 4)).unwrap();
    }
    clock.advance(Duration::from_secs(1));
    let once = unevenness(&c, 1);
    // The first twenty items have fifty versions more, and one is large.
    for n in 0..1_000 {
        c.put(key(5 * (n % 20)), b"again").unwrap();
    }
    c.put(key(0), vec![b'v'; 20_000]).unwrap();
    let again = unevenness(&c, 2);
    db.flush().unwrap();
    let in_tables = unevenness(&c, 3);
    // By chance more than 6 comes once in some ten million times.
    let all = [once, again, in_tables];
    assert!(all.iter().all(|one| one.abs() < 6.0), "{all:?}");
}

/// Goal: every item is as likely as any other, wherever records are, also those of the dead. Method: a fifth of all keys have
/// items, some overwritten often and one large; beside them are keys deleted, ended, and deleted by a range. The draws follow
/// from fixed numbers.
#[test]
fn each_item_is_as_likely() {
    at_random(false);
    at_random(true);
}
