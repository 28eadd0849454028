//! `GET /_status`: how the database is, for people and for the page.
//!
//! Its parts add up: the rows of `disk` to its `bytes`; what has a bar in `due`, and what never ends, to the live documents,
//! within the 5 % to which ends are estimated.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ebbtide::{DiskHolder, DiskKind, DiskUsage, Stats};
use ebbtide_control::{Ends, Sum};
use serde_json::{Value, json};

use crate::date;
use crate::limits::{MEMORY_BYTES, THREADS, memory_in_use};
use crate::own::seconds;
use crate::reply::{Answer, Failure, Reply};
use crate::state::State;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Where bars end, in seconds from now. Nothing lives longer than the last.
const BOUNDS: [u64; 28] = [
    10,
    20,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    8 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
    14 * DAY,
    30 * DAY,
    60 * DAY,
    120 * DAY,
    YEAR,
    2 * YEAR,
    5 * YEAR,
    10 * YEAR,
    25 * YEAR,
    70 * YEAR,
];

/// Of so many containers there is a row, those with most bytes.
const ROWS: usize = 50;
/// A part of the disk is worth a word from this share on.
const WORTH_A_WORD: f64 = 0.1;
/// The word is by when so much of that which comes back has done so.
const MOST: f64 = 0.9;

/// A container with its documents.
struct Row {
    database: String,
    id: String,
    documents: u64,
    bytes: u64,
    expired_bytes: u64,
    default_ttl: Value,
    max_live_bytes: Option<u64>,
}

/// The containers of documents, and what ends when in all of them.
fn containers(state: &State, now: SystemTime) -> Result<(Vec<Row>, Ends), Failure> {
    let mut rows = Vec::new();
    let mut ends = Ends::new(BOUNDS);
    for database in state.documents.databases()? {
        for container in state.documents.containers(&database.id)? {
            let items = container.items();
            let stats = items.stats();
            ends.add(&items.due(), now, (stats.live_items, stats.live_bytes));
            let definition = container.definition();
            rows.push(Row {
                database: database.id.clone(),
                id: definition.id.clone(),
                documents: stats.live_items,
                bytes: stats.live_bytes,
                expired_bytes: stats.expired_bytes,
                default_ttl: seconds(items.default_ttl()),
                max_live_bytes: definition.max_live_bytes,
            });
        }
    }
    Ok((rows, ends))
}

pub(crate) fn status(state: &State) -> Answer {
    let engine = state.documents.engine();
    let (stats, usage, now) = (engine.stats(), engine.disk()?, state.now());
    let (rows, ends) = containers(state, now)?;
    let all = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "database": engine.path().map(|path| path.display().to_string()),
        "now": date::iso(now),
        "clock": if state.clock.is_some() { "manual" } else { "system" },
        "isWell": trouble(&stats).is_empty() && stats.overdue.is_zero(),
        "verdict": verdict(&stats, &usage, &ends, now),
        "overdueSeconds": stats.overdue.as_secs_f64(),
        "trouble": trouble(&stats),
        "documents": all(|row| row.documents),
        "bytes": all(|row| row.bytes),
        "due": due(&ends),
        "disk": disk(&usage),
        "counters": counters(state, &stats),
        "slots": slots(state),
        "containers": { "all": rows.len(), "rows": shown(rows) },
    });
    Ok(Reply::json(200, body.to_string()).with("cache-control", "no-store"))
}

fn due(ends: &Ends) -> Value {
    let sum = |sum: &Sum| {
        json!({
            "documents": sum.items.round() as u64,
            "bytes": sum.bytes.round() as u64,
            "diskBytes": sum.disk.round() as u64,
        })
    };
    let bars = ends.bars.iter().map(|bar| {
        let mut told = sum(&bar.sum);
        told["seconds"] = json!(bar.until.as_secs());
        told
    });
    json!({ "past": sum(&ends.past), "bars": bars.collect::<Vec<_>>(), "never": sum(&ends.never) })
}

/// The rows of all containers together, by kind and by who keeps them, in the order of kinds.
fn parts(usage: &DiskUsage) -> Vec<(DiskKind, String, u64)> {
    let mut sums: BTreeMap<(DiskKind, Option<DiskHolder>, bool), u64> = BTreeMap::new();
    for row in &usage.rows {
        *sums
            .entry((row.kind, row.holder, row.unlinked))
            .or_default() += row.bytes;
    }
    let part = |((kind, holder, unlinked), bytes): ((DiskKind, Option<DiskHolder>, bool), u64)| {
        let by = holder.map_or(String::new(), |holder| format!(", kept by a {holder}"));
        let nameless = if unlinked {
            ", without a name: not in du"
        } else {
            ""
        };
        (kind, format!("{}{by}{nameless}", of_kind(kind)), bytes)
    };
    sums.into_iter().map(part).collect()
}

fn of_kind(kind: DiskKind) -> &'static str {
    match kind {
        DiskKind::Live => "live documents",
        DiskKind::Expired => "expired, not yet reclaimed",
        DiskKind::Superseded => "superseded, not yet merged",
        DiskKind::Tombstones => "tombstones",
        DiskKind::Overhead => "filters, indexes, rest of pages",
        DiskKind::Log => "log that is needed",
        DiskKind::LogAhead => "log, allocated ahead",
        DiskKind::Running => "files that jobs write",
        DiskKind::Obsolete => "obsolete files",
        DiskKind::Manifest => "manifest and its copy",
        DiskKind::Folders => "folders",
        DiskKind::Lost => "set aside by a repair",
        other => other.name(),
    }
}

fn disk(usage: &DiskUsage) -> Value {
    let row = |(kind, what, bytes): (DiskKind, String, u64)| json!({ "kind": kind.name(), "what": what, "bytes": bytes });
    let rows: Vec<_> = parts(usage).into_iter().map(row).collect();
    // As df counts: du does not know of files without a name.
    json!({ "bytes": usage.bytes() + usage.unlinked_bytes(), "rows": rows })
}

/// Since the start.
fn counters(state: &State, stats: &Stats) -> Value {
    let figures = &state.frontend.figures;
    let requests: u64 = (1..6).map(|class| figures.requests(class)).sum();
    json!({
        "requests": requests,
        "failures": figures.requests(5),
        "reads": figures.reads(),
        "writes": figures.writes(),
        "putBytes": stats.bytes_put,
        "reclaimedBytes": stats.reclaim_lag.bytes(),
    })
}

/// How much of what there is is in use.
fn slots(state: &State) -> Value {
    let slot = |what: &str, unit: &str, used: u64, most: usize| json!({ "what": what, "unit": unit, "used": used, "most": most });
    json!([
        slot(
            "connections",
            "",
            state.frontend.figures.open_connections(),
            state.frontend.most_connections
        ),
        slot(
            "requests on threads",
            "",
            state.frontend.figures.working(),
            THREADS
        ),
        slot("bodies of requests", "bytes", memory_in_use(), MEMORY_BYTES),
    ])
}

fn shown(mut rows: Vec<Row>) -> Vec<Value> {
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows.truncate(ROWS);
    let told = |row: Row| {
        json!({
            "database": row.database,
            "id": row.id,
            "documents": row.documents,
            "bytes": row.bytes,
            "expiredBytes": row.expired_bytes,
            "defaultTtl": row.default_ttl,
            "maxLiveBytes": row.max_live_bytes,
        })
    };
    rows.into_iter().map(told).collect()
}

/// Damage that was found, and why background work fails.
fn trouble(stats: &Stats) -> Vec<String> {
    let damage = stats.damage.iter().map(|damage| damage.what.clone());
    damage.chain(stats.background_error.clone()).collect()
}

/// Whether space comes back on time, the largest part of the disk that is no live document, and by when how much comes back.
fn verdict(stats: &Stats, usage: &DiskUsage, ends: &Ends, now: SystemTime) -> String {
    let mut said = vec![match (trouble(stats).first(), stats.overdue) {
        (Some(trouble), _) => format!("In trouble: {}.", trouble.trim_end_matches('.')),
        (None, Duration::ZERO) => "On time.".to_owned(),
        (None, overdue) => format!(
            "Late: what has expired should have been given back {} ago.",
            length(overdue)
        ),
    }];
    said.extend(largest(usage));
    said.extend(coming_back(ends, now));
    said.join(" ")
}

fn largest(usage: &DiskUsage) -> Option<String> {
    let all = usage.bytes() + usage.unlinked_bytes();
    let parts = parts(usage)
        .into_iter()
        .filter(|(kind, ..)| *kind != DiskKind::Live);
    let (_, what, bytes) = parts.max_by_key(|(.., bytes)| *bytes)?;
    let is_worth = bytes as f64 >= all as f64 * WORTH_A_WORD;
    is_worth.then(|| format!("{} of {} on disk: {what}.", size(bytes), size(all)))
}

fn coming_back(ends: &Ends, now: SystemTime) -> Option<String> {
    let bars = ends.bars.iter().map(|bar| (bar.until, bar.sum.disk));
    let steps = std::iter::once((Duration::ZERO, ends.past.disk)).chain(bars);
    let all: f64 = steps.clone().map(|(_, bytes)| bytes).sum();
    if all < 1.0 {
        return None;
    }
    let mut so_far = 0.0;
    let (until, bytes) = steps.into_iter().find_map(|(until, bytes)| {
        so_far += bytes;
        (so_far >= all * MOST).then_some((until, so_far))
    })?;
    let by = date::iso(now + until);
    let today = date::iso(now);
    // The date where it is not today's.
    let by = match by[..10] == today[..10] {
        true => by[11..16].to_string(),
        false => format!("{} {}", &by[..10], &by[11..16]),
    };
    Some(format!(
        "About {} come back by {by} UTC.",
        rounded(bytes as u64, 9.95)
    ))
}

/// `317 B`, `1.2 MiB`: three digits or so.
fn size(bytes: u64) -> String {
    rounded(bytes, 99.95)
}

/// The same with a decimal below `whole` alone: of an estimate two digits are known.
fn rounded(bytes: u64, whole: f64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut amount, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        // An amount that would be written as 1024 is written as one of the next unit.
        if amount >= 1023.5 {
            (amount, unit) = (amount / 1024.0, next);
        }
    }
    let decimals = usize::from(amount < whole);
    format!("{amount:.decimals$} {unit}")
}

/// `850 ms`, `4.5 s`, `12 min`, `3.2 h`, `8.1 d`.
fn length(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..120.0 => format!("{seconds:.1} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_258_291, "1.2 MiB"),
            (104_857_600, "100 MiB"),
            (1_073_741_823, "1.0 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(rounded(44_249_907, 9.95), "42 MiB");
        for (millis, text) in [
            (850, "850 ms"),
            (4_500, "4.5 s"),
            (720_000, "12 min"),
            (700_000_000, "8.1 d"),
        ] {
            assert_eq!(length(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn trouble_goes_before_lateness() {
        let (usage, ends) = (DiskUsage::default(), Ends::new(BOUNDS));
        let said = |stats: &Stats| verdict(stats, &usage, &ends, SystemTime::UNIX_EPOCH);
        let mut stats = Stats::default();
        assert_eq!(said(&stats), "On time.");
        stats.overdue = Duration::from_secs(720);
        assert_eq!(
            said(&stats),
            "Late: what has expired should have been given back 12 min ago."
        );
        stats.background_error = Some("the disk is full.".to_owned());
        assert_eq!(said(&stats), "In trouble: the disk is full.");
    }

    #[test]
    fn what_comes_back_has_a_date_where_it_is_not_today() {
        let mut ends = Ends::new(BOUNDS);
        ends.bars[5].sum.disk = 2048.0;
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let said = |ends: &Ends, now| coming_back(ends, now).unwrap();
        assert_eq!(said(&ends, at(0)), "About 2.0 KiB come back by 00:05 UTC.");
        assert_eq!(
            said(&ends, at(86_390)),
            "About 2.0 KiB come back by 1970-01-02 00:04 UTC."
        );
        assert_eq!(coming_back(&Ends::new(BOUNDS), at(0)), None);
    }
}
