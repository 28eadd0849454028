//! How long after its end an item is given by `Container::expirations`, with other items beside it: the figures of
//! docs/measurements/expirations.md.
//!
//! `cargo run --release --example expiry_lag -- OTHERS [FIRST_SECONDS [LAST_SECONDS]]`
//!
//! The other items, of 100 bytes, end evenly between FIRST_SECONDS (default 3 600) and LAST_SECONDS (default 7 200) from now.
//! Beside them 2 000 items are written, one each 2 ms, that end 100 ms to 1 s later. A reader, which has gathered what there
//! was before, asks each millisecond. The lag is the time from the end of an item to the moment at which the reader has it;
//! one millisecond of it is that of the end, which must be over.

use std::time::{Duration, Instant, SystemTime};

use ebbtide::{Batch, Database, ExpiryCursor, Result};

const PROBES: u64 = 2_000;

fn number(at: usize, default: u64) -> u64 {
    let given = std::env::args().nth(at);
    given.map_or(default, |text| text.parse().expect("a number"))
}

fn fill(db: &Database, others: u64, (first, last): (u64, u64)) -> Result<()> {
    let c = db.container("c")?;
    for start in (0..others).step_by(1_000) {
        let mut batch = Batch::new();
        for n in start..others.min(start + 1_000) {
            // In no order of keys.
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let millis = first * 1_000 + (last - first) * 1_000 * n / others.max(1);
            batch.put_with_ttl(&c, key, [7; 100], Duration::from_millis(millis.max(1)));
        }
        db.write(batch)?;
    }
    Ok(())
}

fn percentile(sorted: &[Duration], of: usize) -> Duration {
    sorted[(sorted.len() - 1) * of / 1_000]
}

fn main() -> Result<()> {
    let (others, span) = (number(1, 100_000), (number(2, 3_600), number(3, 7_200)));
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open(folder.path())?;
    fill(&db, others, span)?;
    let c = db.container("c")?;
    let begun = Instant::now();
    let mut expirations = c.expirations(ExpiryCursor::now());
    let none = expirations.next().transpose()?;
    let first = begun.elapsed();
    assert!(none.is_none(), "nothing has expired yet");
    let writer = {
        let c = c.clone();
        std::thread::spawn(move || -> Result<()> {
            let start = Instant::now();
            for n in 0..PROBES {
                let due = Duration::from_millis(2 * n);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
                let ttl = Duration::from_millis(100 + n * 7 % 900);
                c.put_with_ttl(format!("probe {n:05}"), "v", ttl)?;
            }
            Ok(())
        })
    };
    let (mut lags, mut idle) = (vec![], vec![]);
    while lags.len() < PROBES as usize && begun.elapsed() < Duration::from_secs(60) {
        let asked = Instant::now();
        let mut given = 0;
        while let Some(expired) = expirations.next().transpose()? {
            let late = SystemTime::now().duration_since(expired.expired_at());
            given += 1;
            if expired.key().starts_with(b"probe") {
                lags.push(late.unwrap_or_default());
            }
        }
        if given == 0 {
            idle.push(asked.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    writer.join().expect("it does not panic")?;
    lags.sort();
    idle.sort();
    println!(
        "{others} others: {} given, lag p50 {:?} p99 {:?} p99.9 {:?} most {:?}; a pull with nothing new p50 {:?} p99 {:?}; \
         the first pull {:?}",
        lags.len(),
        percentile(&lags, 500),
        percentile(&lags, 990),
        percentile(&lags, 999),
        percentile(&lags, 1_000),
        percentile(&idle, 500),
        percentile(&idle, 990),
        first,
    );
    Ok(())
}
