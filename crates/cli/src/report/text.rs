//! The report as text, to be pasted into a bug report; and the amounts that the page shows too.

use std::fmt::Write;
use std::time::SystemTime;

use ebbtide::DefaultTtl;

use super::ends::{Ends, Sum};
use super::facts::{Facts, Of, ratio};
use super::keys;
use super::verdict::verdict;
use crate::{moment, show, table};

/// Of so many containers there is more than a line: those that take most disk.
const DETAILED: usize = 8;
/// So many rows of each at most.
const ROWS: usize = 24;
/// So many edits at most, the last ones.
const EDITS: usize = 20;

pub fn text(facts: &Facts) -> String {
    let mut out = format!(
        "ebbtide {} report of {}\nat {}\n\n",
        env!("CARGO_PKG_VERSION"),
        table::printable(&facts.dir),
        moment::date_and_time(facts.now)
    );
    let _ = writeln!(out, "{}\n", table::printable(&verdict(facts)));
    let pair = |(what, amount): (&str, String)| vec![what.to_owned(), amount];
    let rows: Vec<_> = glance(facts).into_iter().map(pair).collect();
    out += &table::whole(&["DATABASE", ""], &rows);
    for trouble in &facts.trouble {
        let _ = writeln!(out, "{}", table::printable(trouble));
    }
    let rows: Vec<_> = facts
        .disk
        .iter()
        .map(|row| vec![row.what.clone(), show::bytes(row.bytes)])
        .collect();
    out += &format!("\n{}", table::whole(&["DISK", ""], &rows));
    let rows: Vec<_> = amplification(facts).into_iter().map(pair).collect();
    out += &format!("\n{}", table::whole(&["BYTES FOR EACH BYTE", ""], &rows));
    out += &format!("\n{}", containers(facts));
    let detailed = by_disk(facts);
    for of in detailed.iter().take(DETAILED) {
        out += &format!("\n{}", container(of, facts));
    }
    if detailed.len() > DETAILED {
        let more = (detailed.len() - DETAILED) as u64;
        let _ = writeln!(
            out,
            "\n{} more, without details",
            show::counted(more, "container")
        );
    }
    out + "\n" + &edits(facts)
}

/// The facts that are most asked for.
pub fn glance(facts: &Facts) -> Vec<(&'static str, String)> {
    let stats = &facts.stats;
    vec![
        ("items live", show::count(stats.live_items)),
        ("bytes live", show::bytes(stats.live_bytes)),
        (
            "expired, not yet reclaimed",
            show::bytes(stats.expired_bytes),
        ),
        (
            "superseded, not yet merged",
            show::bytes(stats.superseded_bytes),
        ),
        (
            "oldest expired item",
            oldest(stats.oldest_unreclaimed, facts.now),
        ),
        (
            "behind its deadline",
            match stats.overdue.is_zero() {
                true => "-".to_owned(),
                false => show::time(stats.overdue),
            },
        ),
        ("bytes on disk", show::bytes(stats.disk_bytes)),
        ("not flushed yet", show::bytes(stats.memtable_bytes)),
        ("containers", show::count(stats.containers)),
        ("runs", show::count(stats.runs)),
        ("tables", show::count(stats.tables)),
        ("last version", facts.last_version.to_string()),
    ]
}

/// Bytes written and stored for each byte of the user.
pub fn amplification(facts: &Facts) -> Vec<(&'static str, String)> {
    let stats = &facts.stats;
    let times = |times: Option<f64>| times.map_or("-".to_owned(), |times| format!("{times:.2}"));
    let written = facts.film.frames.last().map(|frame| frame.written);
    vec![
        (
            "on disk, log and all, for each live",
            times(ratio(stats.disk_bytes, stats.live_bytes)),
        ),
        (
            "in tables for each live",
            times(ratio(stats.table_bytes, stats.live_bytes)),
        ),
        (
            "stored for each live",
            times(ratio(stats.stored_bytes, stats.live_bytes)),
        ),
        (
            "written for each of the log, in this manifest's time",
            times(written.and_then(|written| written.amplification())),
        ),
        (
            "the log of that time, synced",
            written.map_or("-".to_owned(), |written| show::bytes(written.logged)),
        ),
    ]
}

/// An estimate of a number of items.
pub fn about_items(items: u64) -> String {
    show::count(show::about(items))
}

/// An estimate of a number of bytes.
pub fn about_bytes(bytes: u64) -> String {
    show::bytes(show::about(bytes))
}

/// Rows of what has ended and is stored yet, what ends from each time on until the next, and what never ends.
pub fn ends(ends: &Ends) -> Vec<Vec<String>> {
    let row = |when: String, sum: &Sum| {
        vec![
            when,
            about_items(sum.items.round() as u64),
            about_bytes(sum.bytes.round() as u64),
            about_bytes(sum.disk.round() as u64),
        ]
    };
    let mut rows = vec![row("past".to_owned(), &ends.past)];
    for bar in &ends.bars {
        rows.push(row(format!("within {}", show::exact(bar.until)), &bar.sum));
    }
    if ends.has_never() {
        let mut never = row("never".to_owned(), &ends.never);
        never[3] = "-".to_owned();
        rows.push(never);
    }
    rows
}

pub fn oldest(moment: Option<SystemTime>, now: SystemTime) -> String {
    moment.map_or("-".to_owned(), |oldest| moment::relative(oldest, now))
}

pub fn default_ttl(of: &Of) -> String {
    match of.default {
        DefaultTtl::After(time) => show::time(time),
        DefaultTtl::NoDefault => "-1, only their own".to_owned(),
        other => show::default_ttl(other),
    }
}

/// Those that have something to show in detail, those first that take most disk.
pub fn by_disk(facts: &Facts) -> Vec<&Of> {
    let mut sorted: Vec<&Of> = facts.containers.iter().collect();
    sorted.sort_by_key(|of| std::cmp::Reverse((of.stats.disk_bytes, of.stats.live_bytes)));
    sorted
}

fn containers(facts: &Facts) -> String {
    let head = [
        "CONTAINER",
        "DEFAULT",
        "ITEMS",
        "LIVE",
        "EXPIRED",
        "DISK",
        "RUNS",
        "OLDEST EXPIRED",
        "DISK/LIVE",
    ];
    let rows: Vec<_> = facts
        .containers
        .iter()
        .map(|of| {
            let stats = &of.stats;
            vec![
                of.name.clone(),
                default_ttl(of),
                show::count(stats.live_items),
                show::bytes(stats.live_bytes),
                show::bytes(stats.expired_bytes),
                show::bytes(stats.disk_bytes),
                show::count(stats.runs),
                oldest(stats.oldest_unreclaimed, facts.now),
                of.space_amplification()
                    .map_or("-".to_owned(), |times| format!("{times:.2}")),
            ]
        })
        .collect();
    table::whole(&head, &rows)
}

fn container(of: &Of, facts: &Facts) -> String {
    let mut out = format!("container {}\n", table::printable(&of.name));
    let compression = of
        .stored
        .as_ref()
        .map_or("unknown", |stored| &stored.compression);
    let _ = writeln!(
        out,
        "compression: {compression}\nnext: {}",
        show::explained(&of.stats.explain)
    );
    let at = |millis| moment::date_and_time(moment::of_millis(millis));
    for line in of.retention(&at) {
        let _ = writeln!(out, "{line}");
    }
    let ends = Ends::of(
        &of.due,
        facts.now,
        (of.stats.live_items, of.stats.live_bytes),
    );
    if !ends.is_empty() {
        let head = ["END", "ITEMS, ABOUT", "BYTES, ABOUT", "DISK BACK, ABOUT"];
        out += &table::whole(&head, &self::ends(&ends));
    }
    let ranks = keys::Ranks::of(&of.runs);
    let mut tables = vec![];
    let mut runs: Vec<_> = of.runs.iter().collect();
    runs.sort_by_key(|run| (run.end.is_none(), run.end, run.id));
    for run in runs {
        for table in &run.tables {
            tables.push(vec![
                format!("{} of run {}", table.id, run.id),
                run.end
                    .map_or("never".to_owned(), |end| moment::relative(end, facts.now)),
                show::bytes(table.file_bytes),
                show::count(table.records),
                show::bytes(table.expired_bytes),
                ranks.words(table, facts.key_bytes),
                format!("{} to {}", table.first_version, table.last_version),
            ]);
        }
    }
    out + &some(
        &[
            "TABLE", "ENDS", "FILE", "RECORDS", "EXPIRED", "KEYS", "VERSIONS",
        ],
        &tables,
    )
}

/// The first rows, and how many more there are.
fn some(head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = table::whole(head, &rows[..rows.len().min(ROWS)]);
    if rows.len() > ROWS {
        let _ = writeln!(out, "and {} more", rows.len() - ROWS);
    }
    out
}

fn edits(facts: &Facts) -> String {
    let frames = &facts.film.frames;
    let last = &frames[frames.len().saturating_sub(EDITS.min(facts.shown_edits))..];
    let mut out = format!("last edits, of {} in the manifest\n", frames.len());
    for frame in last {
        let _ = writeln!(
            out,
            "{} {} {}",
            frame.number,
            moment::of_mark(frame.at).map_or("-".to_owned(), moment::date_and_time),
            table::printable(&frame.title)
        );
    }
    out
}
