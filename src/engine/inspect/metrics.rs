//! Figures of a database for the recorder of the crate `metrics`, computed when they are published: no operation counts
//! anything for them. docs/metrics.md lists them for users; tests/told/metrics.rs compares.
//!
//! A figure that was published once is published again, as 0 where there is none any more: a recorder keeps the last
//! value of each figure.

use std::collections::BTreeSet;
use std::time::Duration;

use metrics::{Label, SharedString, Unit};

use crate::base::Result;
use crate::engine::Engine;
use crate::values::disk_usage::{DiskHolder, DiskKind, DiskUsage};
use crate::values::stats::{ContainerStats, Stats};

/// Figures of so many containers are published at most, those that take most on disk.
const CONTAINERS: usize = 256;

/// A figure of a database, or of a container.
struct Figure<T> {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    of: fn(&T) -> f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

const fn counter<T>(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    of: fn(&T) -> f64,
) -> Figure<T> {
    Figure {
        name,
        kind: Kind::Counter,
        unit,
        help,
        of,
    }
}

const fn gauge<T>(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    of: fn(&T) -> f64,
) -> Figure<T> {
    Figure {
        name,
        kind: Kind::Gauge,
        unit,
        help,
        of,
    }
}

/// The sources of a database's figures.
struct Look {
    stats: Stats,
    usage: DiskUsage,
    /// Bytes a second that background work has.
    rate: f64,
    /// How long the oldest expired item that is still stored has been expired.
    expire_lag: Duration,
}

const DATABASE: [Figure<Look>; 22] = [
    counter(
        "ebbtide_put_bytes_total",
        Unit::Bytes,
        "keys and values put",
        |look| look.stats.bytes_put as f64,
    ),
    counter(
        "ebbtide_log_bytes_total",
        Unit::Bytes,
        "written to the log",
        |look| look.stats.bytes_logged as f64,
    ),
    counter(
        "ebbtide_flush_bytes_total",
        Unit::Bytes,
        "tables written by flushes",
        |look| look.stats.bytes_flushed as f64,
    ),
    counter(
        "ebbtide_merge_bytes_total",
        Unit::Bytes,
        "tables written by merging and reclaiming",
        |look| look.stats.bytes_merged as f64,
    ),
    counter(
        "ebbtide_dropped_bytes_total",
        Unit::Bytes,
        "tables dropped unread",
        |look| look.stats.bytes_dropped as f64,
    ),
    counter(
        "ebbtide_reclaimed_bytes_total",
        Unit::Bytes,
        "expired records that have left",
        |look| look.stats.reclaim_lag.bytes() as f64,
    ),
    counter("ebbtide_flushes_total", Unit::Count, "flushes", |look| {
        look.stats.flushes as f64
    }),
    counter(
        "ebbtide_merges_total",
        Unit::Count,
        "merges and rewrites",
        |look| look.stats.merges as f64,
    ),
    counter(
        "ebbtide_stalls_total",
        Unit::Count,
        "writers slowed or stopped",
        |look| look.stats.stalls as f64,
    ),
    counter(
        "ebbtide_stall_microseconds_total",
        Unit::Microseconds,
        "time that writers were slowed or stopped",
        |look| look.stats.stall_time.as_micros() as f64,
    ),
    counter(
        "ebbtide_syncs_total",
        Unit::Count,
        "syncs of the log",
        |look| look.stats.syncs as f64,
    ),
    counter(
        "ebbtide_sync_microseconds_total",
        Unit::Microseconds,
        "time of the syncs of the log",
        |look| look.stats.sync_time.as_micros() as f64,
    ),
    counter(
        "ebbtide_expired_misses_total",
        Unit::Count,
        "reads of a key that found an expired item alone",
        |look| look.stats.expired_misses as f64,
    ),
    gauge(
        "ebbtide_reclaim_overdue_seconds",
        Unit::Seconds,
        "by how much a deadline is missed",
        |look| look.stats.overdue.as_secs_f64(),
    ),
    gauge(
        "ebbtide_expire_lag_seconds",
        Unit::Seconds,
        "since when the oldest stored expired item is expired",
        |look| look.expire_lag.as_secs_f64(),
    ),
    gauge(
        "ebbtide_background_rate_bytes_per_second",
        Unit::Bytes,
        "what background work may move now",
        |look| look.rate,
    ),
    gauge(
        "ebbtide_background_failed",
        Unit::Count,
        "1 while background work fails, else 0",
        |look| f64::from(u8::from(look.stats.background_error.is_some())),
    ),
    gauge(
        "ebbtide_damages",
        Unit::Count,
        "damaged places found in tables",
        |look| look.stats.damage.len() as f64,
    ),
    gauge("ebbtide_snapshots", Unit::Count, "snapshots held", |look| {
        look.stats.snapshots as f64
    }),
    gauge(
        "ebbtide_memtable_bytes",
        Unit::Bytes,
        "memory of writes not in a table yet",
        |look| look.stats.memtable_bytes as f64,
    ),
    gauge(
        "ebbtide_du_bytes",
        Unit::Bytes,
        "the folder, as du counts it",
        |look| look.usage.bytes() as f64,
    ),
    gauge(
        "ebbtide_unlinked_bytes",
        Unit::Bytes,
        "files without a name that are kept",
        |look| look.usage.unlinked_bytes() as f64,
    ),
];

const CONTAINER: [Figure<ContainerStats>; 6] = [
    gauge(
        "ebbtide_container_live_items",
        Unit::Count,
        "items that can be read",
        |stats| stats.live_items as f64,
    ),
    gauge(
        "ebbtide_container_live_bytes",
        Unit::Bytes,
        "of the stored bytes, those of items that can be read",
        |stats| stats.live_bytes as f64,
    ),
    gauge(
        "ebbtide_container_expired_bytes",
        Unit::Bytes,
        "of the stored bytes, those of expired items",
        |stats| stats.expired_bytes as f64,
    ),
    gauge(
        "ebbtide_container_disk_bytes",
        Unit::Bytes,
        "tables",
        |stats| stats.disk_bytes as f64,
    ),
    gauge(
        "ebbtide_container_overdue_seconds",
        Unit::Seconds,
        "by how much a deadline is missed",
        |stats| stats.overdue.as_secs_f64(),
    ),
    gauge("ebbtide_container_runs", Unit::Count, "runs", |stats| {
        stats.runs as f64
    }),
];

/// The figures with a label of their own: name, label, help.
const LABELLED: [(&str, &str, &str); 3] = [
    (
        "ebbtide_disk_bytes",
        "kind",
        "the folder, by what it consists of",
    ),
    (
        "ebbtide_pinned_bytes",
        "holder",
        "what would leave the disk if nobody kept it",
    ),
    (
        "ebbtide_due_bytes",
        "within",
        "disk space that is due back by then",
    ),
];

/// The values of `within`, and the seconds from now.
const WITHIN: [(&str, u64); 3] = [("now", 0), ("hour", 3_600), ("day", 86_400)];

impl Engine {
    /// Publishes all figures.
    pub fn publish_metrics(&self) -> Result<()> {
        let usage = self.disk()?;
        let stats = self.stats();
        let now = self.clock.now();
        let oldest = stats.oldest_unreclaimed;
        let look = Look {
            expire_lag: oldest
                .and_then(|oldest| now.to_system_time().duration_since(oldest).ok())
                .unwrap_or_default(),
            rate: self.throttle.allowance(),
            stats,
            usage,
        };
        // Not held while the recorder is called.
        let before = self.publisher.take();
        // Each time: the recorder of a thread may be a new one.
        describe();
        let database = Label::new("database", self.path.to_string_lossy().into_owned());
        for figure in &DATABASE {
            let labels = vec![database.clone()];
            record(figure.name, figure.kind, labels, (figure.of)(&look));
        }
        self.publish_labelled(&database, &look.usage);
        let containers = self.publish_containers(&database, &before.unwrap_or_default());
        self.publisher.put(containers);
        Ok(())
    }

    fn publish_labelled(&self, database: &Label, usage: &DiskUsage) {
        let [disk, pinned, due] = LABELLED;
        let set = |(name, label, _): (&'static str, &'static str, &str),
                   value: &'static str,
                   bytes: u64| {
            let labels = vec![database.clone(), Label::new(label, value)];
            record(name, Kind::Gauge, labels, bytes as f64);
        };
        for kind in DiskKind::ALL {
            set(disk, kind.name(), usage.of_kind(kind));
        }
        for holder in DiskHolder::ALL {
            let rows = usage.rows.iter().filter(|row| row.holder == Some(holder));
            set(pinned, holder.name(), rows.map(|row| row.bytes).sum());
        }
        let mut bytes = [0; WITHIN.len()];
        for state in self.containers.all() {
            let view = self.expiry_view(&state);
            self.each_return(&state, &state.pin().version, &view, |_, when, returned| {
                for (sum, (_, seconds)) in bytes.iter_mut().zip(WITHIN) {
                    *sum += if when <= view.now.after(1_000 * seconds) {
                        returned
                    } else {
                        0
                    };
                }
            });
        }
        for ((within, _), bytes) in WITHIN.into_iter().zip(bytes) {
            set(due, within, bytes);
        }
    }

    /// Returns the names of the containers that have figures now; those of `before` that have none get 0.
    fn publish_containers(&self, database: &Label, before: &BTreeSet<String>) -> BTreeSet<String> {
        let states = self.containers.all().into_iter();
        let stats = states.map(|state| (state.name().to_owned(), self.container_stats(&state)));
        let mut stats: Vec<_> = stats.collect();
        if stats.len() > CONTAINERS {
            stats.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.disk_bytes));
            stats.truncate(CONTAINERS);
        }
        let now: BTreeSet<String> = stats.iter().map(|(name, _)| name.clone()).collect();
        let gone = before.difference(&now);
        stats.extend(gone.map(|name| (name.clone(), ContainerStats::default())));
        for (name, stats) in &stats {
            for figure in &CONTAINER {
                let labels = vec![database.clone(), Label::new("container", name.clone())];
                record(figure.name, figure.kind, labels, (figure.of)(stats));
            }
        }
        now
    }

    /// The same at intervals, for the threads. A failure is in the statistics anyway.
    pub(in crate::engine) fn publish_in_time(&self) {
        if self.publisher.is_due() {
            let _ = self.publish_metrics();
        }
    }
}

fn record(name: &'static str, kind: Kind, labels: Vec<Label>, value: f64) {
    match kind {
        Kind::Counter => metrics::counter!(name, labels).absolute(value as u64),
        Kind::Gauge => metrics::gauge!(name, labels).set(value),
    }
}

fn describe() {
    let database = DATABASE
        .iter()
        .map(|figure| (figure.name, figure.kind, figure.unit, figure.help));
    let container = CONTAINER
        .iter()
        .map(|figure| (figure.name, figure.kind, figure.unit, figure.help));
    let labelled = LABELLED
        .iter()
        .map(|(name, _, help)| (*name, Kind::Gauge, Unit::Bytes, *help));
    for (name, kind, unit, help) in database.chain(container).chain(labelled) {
        let help = SharedString::const_str(help);
        metrics::with_recorder(|recorder| match kind {
            Kind::Counter => recorder.describe_counter(name.into(), Some(unit), help),
            Kind::Gauge => recorder.describe_gauge(name.into(), Some(unit), help),
        });
    }
}
