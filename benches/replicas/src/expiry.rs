//! The cost of items that end: puts in the minute in which many do, beside the minute before.
//!
//! ```text
//! fill ── quiet ── window without ends, puts ── window in which all end, puts
//! fill ── window without ends, nobody writes ── window in which all end, nobody writes
//! ```

use std::time::{Duration, Instant};

use crate::clients::Client;
use crate::load::{self, Figures, Kind, Load};
use crate::systems::Running;
use crate::{Arguments, Result};

/// Entries and bytes to replicas, where the system tells them.
type Replicated = (Option<u64>, Option<u64>);

pub async fn run(running: &Running, arguments: &Arguments, items: u64) -> Result<()> {
    let window = Duration::from_secs(arguments.window);
    let lead = arguments.fill();
    let begun = Instant::now();
    load::fill(running, items, lead + window, window).await?;
    let filled = begun.elapsed();
    tokio::time::sleep(lead.saturating_sub(filled)).await;
    let load = Load {
        kind: Kind::Put,
        clients: 16,
        time: window,
        keys: arguments.keys,
    };
    let before = load::run(running, load).await?;
    let meanwhile = load::run(running, load).await?;
    let name = format!("{:?}", running.system);
    println!(
        "| {name}, {items} items (put in {:.1} s) | {} | {} | {:.2} x |",
        filled.as_secs_f64(),
        shown(&before),
        shown(&meanwhile),
        meanwhile.p99_us / before.p99_us
    );
    let begun = Instant::now();
    let short = window / 3;
    load::fill(running, items, lead + short, short).await?;
    tokio::time::sleep(lead.saturating_sub(begun.elapsed())).await;
    let mut client = Client::open(running.system, running.leader).await?;
    let mut marks = vec![client.replicated().await?];
    for _ in 0..2 {
        tokio::time::sleep(short).await;
        marks.push(client.replicated().await?);
    }
    println!(
        "| {name}, nobody writes, {} s | {} | {} | |",
        short.as_secs(),
        passed(marks[0], marks[1]),
        passed(marks[1], marks[2])
    );
    Ok(())
}

fn shown(figures: &Figures) -> String {
    format!(
        "{:.0}/s, p99 {:.2} ms, {:.0} us CPU",
        figures.a_second,
        figures.p99_us / 1e3,
        figures.server_us
    )
}

fn passed(before: Replicated, after: Replicated) -> String {
    let entries = before
        .0
        .zip(after.0)
        .map(|(a, b)| format!("{} entries", b - a));
    let bytes = before
        .1
        .zip(after.1)
        .map(|(a, b)| format!("{} bytes", b - a));
    let both: Vec<String> = [entries, bytes].into_iter().flatten().collect();
    both.join(", ")
}
