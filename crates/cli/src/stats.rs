//! Statistics of a database and its containers, as tables and as JSON.

use std::io::{Write, stdout};
use std::time::{Duration, SystemTime};

use ebbtide::{ContainerStats, DefaultTtl, Stats};
use ebbtide_control::figures;
use serde_json::{Value, json};

use crate::arguments::Home;
use crate::failure::Outcome;
use crate::{show, store, table};

pub fn stats(home: &Home, container: Option<&str>, json: bool) -> Outcome {
    let db = store::read(home)?;
    let names = match container {
        Some(name) => vec![store::container(&db, name)?.name().to_owned()],
        None => db.containers(),
    };
    let mut containers = vec![];
    for name in names {
        let container = store::container(&db, &name)?;
        containers.push((name, container.default_ttl(), container.stats()));
    }
    let whole = container.is_none().then(|| db.stats());
    let text = match (json, &whole) {
        (true, None) => containers
            .iter()
            .map(|(name, default, stats)| container_json(name, *default, stats).to_string() + "\n")
            .collect(),
        (true, Some(whole)) => {
            let mut object = figures(whole);
            object["containers"] = containers
                .iter()
                .map(|(name, default, stats)| container_json(name, *default, stats))
                .collect();
            object.to_string() + "\n"
        }
        (false, None) => containers.iter().map(container_list).collect(),
        (false, Some(whole)) => format!("{}\n{}", stats_table(whole), container_table(&containers)),
    };
    Ok(stdout().lock().write_all(text.as_bytes())?)
}

type Named = (String, DefaultTtl, ContainerStats);

fn stats_table(stats: &Stats) -> String {
    let rows = [
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
        ("oldest expired item", expired_for(stats.oldest_unreclaimed)),
        ("behind its deadline", behind(stats.overdue)),
        ("expiry to removal, half within", lag_of(stats, 0.5)),
        ("expiry to removal, at most", lag_of(stats, 1.0)),
        ("bytes on disk", show::bytes(stats.disk_bytes)),
        ("  of them tables", show::bytes(stats.table_bytes)),
        ("  of them log", show::bytes(stats.log_bytes)),
        ("runs", show::count(stats.runs)),
        ("tables", show::count(stats.tables)),
        ("containers", show::count(stats.containers)),
    ];
    let rows = rows.map(|(what, amount)| vec![what.to_owned(), amount]);
    table::whole(&["DATABASE", ""], &rows)
}

/// The most important columns come first: the last ones are left out where there is no room.
const COLUMNS: [&str; 11] = [
    "CONTAINER",
    "DEFAULT TTL",
    "ITEMS",
    "LIVE",
    "EXPIRED",
    "DISK",
    "OLDEST EXPIRED",
    "SUPERSEDED",
    "RUNS",
    "TABLES",
    "NEXT",
];

fn container_table(containers: &[Named]) -> String {
    let rows: Vec<_> = containers.iter().map(cells).collect();
    table::fitted(&COLUMNS, &rows, table::columns())
}

/// In the order of the columns.
fn cells((name, default, stats): &Named) -> Vec<String> {
    let default = match default {
        DefaultTtl::After(time) => show::time(*time),
        other => show::default_ttl(*other),
    };
    vec![
        name.clone(),
        default,
        show::count(stats.live_items),
        show::bytes(stats.live_bytes),
        show::bytes(stats.expired_bytes),
        show::bytes(stats.disk_bytes),
        expired_for(stats.oldest_unreclaimed),
        show::bytes(stats.superseded_bytes),
        show::count(stats.runs),
        show::count(stats.tables),
        show::explained(&stats.explain),
    ]
}

/// Everything about one container, a line each.
fn container_list(of: &Named) -> String {
    let (name, default, stats) = of;
    let rows = [
        ("default ttl, seconds", show::default_ttl(*default)),
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
        ("oldest expired item", expired_for(stats.oldest_unreclaimed)),
        ("behind its deadline", behind(stats.overdue)),
        ("bytes on disk", show::bytes(stats.disk_bytes)),
        ("runs", show::count(stats.runs)),
        ("tables", show::count(stats.tables)),
        ("range deletes", show::count(stats.range_deletes)),
        ("quota of live bytes", show::quota(stats.quota)),
    ];
    let rows = rows.map(|(what, amount)| vec![what.to_owned(), amount]);
    let list = table::whole(&["CONTAINER", &table::printable(name)], &rows);
    format!("{list}next: {}\n", show::explained(&stats.explain))
}

fn expired_for(moment: Option<SystemTime>) -> String {
    let ago = moment.and_then(|moment| moment.elapsed().ok());
    ago.map_or("-".to_owned(), |ago| format!("{} ago", show::time(ago)))
}

/// By how much a deadline was missed.
fn behind(overdue: Duration) -> String {
    match overdue.is_zero() {
        true => "-".to_owned(),
        false => show::time(overdue),
    }
}

/// Within what time this share of the expired bytes was reclaimed, since the database was opened.
fn lag_of(stats: &Stats, share: f64) -> String {
    match stats.reclaim_lag.bytes() {
        0 => "-".to_owned(),
        _ => show::time(stats.reclaim_lag.quantile(share)),
    }
}

/// Log, flushes, merges.
pub fn bytes_written(stats: &Stats) -> u64 {
    stats.bytes_logged + stats.bytes_flushed + stats.bytes_merged
}

pub fn container_json(name: &str, default: DefaultTtl, stats: &ContainerStats) -> Value {
    json!({
        "container": name,
        "default_ttl": show::default_ttl_json(default),
        "live_items": stats.live_items,
        "live_bytes": stats.live_bytes,
        "expired_bytes": stats.expired_bytes,
        "superseded_bytes": stats.superseded_bytes,
        "tombstone_bytes": stats.tombstone_bytes,
        "stored_bytes": stats.stored_bytes,
        "disk_bytes": stats.disk_bytes,
        "memtable_bytes": stats.memtable_bytes,
        "oldest_unreclaimed_ms": show::moment_json(stats.oldest_unreclaimed),
        "overdue_seconds": show::seconds_json(stats.overdue),
        "runs": stats.runs,
        "tables": stats.tables,
        "range_deletes": stats.range_deletes,
        "quota": stats.quota.map(show::quota_json),
        "explain": stats.explain,
    })
}
