//! `GET /metrics`: figures in the text format of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide::Stats;

use crate::reply::{Answer, Reply};
use crate::state::{Figures, State};

/// A figure: its name, its kind, its help, and where it stands.
type Figure<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

/// Of the server.
const OF_SERVER: [Figure<Figures>; 4] = [
    (
        "http_connections",
        "gauge",
        "Connections that are open.",
        |figures| load(&figures.connections),
    ),
    (
        "http_refused_connections_total",
        "counter",
        "Connections that were closed for there were too many.",
        |figures| load(&figures.refused_connections),
    ),
    (
        "http_request_bytes_total",
        "counter",
        "Bytes of the bodies of requests.",
        |figures| load(&figures.request_bytes),
    ),
    (
        "http_response_bytes_total",
        "counter",
        "Bytes of the bodies of answers.",
        |figures| load(&figures.response_bytes),
    ),
];

/// Of the engine.
const OF_ENGINE: [Figure<Stats>; 17] = [
    (
        "live_items",
        "gauge",
        "Items that have not expired.",
        |stats| stats.live_items as f64,
    ),
    (
        "live_bytes",
        "gauge",
        "Bytes of items that have not expired.",
        |stats| stats.live_bytes as f64,
    ),
    (
        "expired_bytes",
        "gauge",
        "Bytes of items that have expired and are not yet reclaimed.",
        |stats| stats.expired_bytes as f64,
    ),
    ("disk_bytes", "gauge", "Bytes of all files.", |stats| {
        stats.disk_bytes as f64
    }),
    ("log_bytes", "gauge", "Bytes of the log.", |stats| {
        stats.log_bytes as f64
    }),
    ("memtable_bytes", "gauge", "Bytes of memtables.", |stats| {
        stats.memtable_bytes as f64
    }),
    (
        "containers",
        "gauge",
        "Containers of the engine.",
        |stats| stats.containers as f64,
    ),
    (
        "overdue_seconds",
        "gauge",
        "How far the reclaiming of expired items is behind its promise.",
        |stats| stats.overdue.as_secs_f64(),
    ),
    (
        "stalls_total",
        "counter",
        "Writes that were held up.",
        |stats| stats.stalls as f64,
    ),
    (
        "stall_seconds_total",
        "counter",
        "Time for which writes were held up.",
        |stats| stats.stall_time.as_secs_f64(),
    ),
    ("syncs_total", "counter", "Syncs of the log.", |stats| {
        stats.syncs as f64
    }),
    (
        "sync_seconds_total",
        "counter",
        "Time of syncs of the log.",
        |stats| stats.sync_time.as_secs_f64(),
    ),
    (
        "flushes_total",
        "counter",
        "Memtables that were written to tables.",
        |stats| stats.flushes as f64,
    ),
    ("merges_total", "counter", "Merges of tables.", |stats| {
        stats.merges as f64
    }),
    (
        "put_bytes_total",
        "counter",
        "Bytes that were put.",
        |stats| stats.bytes_put as f64,
    ),
    (
        "merged_bytes_total",
        "counter",
        "Bytes that merges wrote.",
        |stats| stats.bytes_merged as f64,
    ),
    (
        "dropped_bytes_total",
        "counter",
        "Bytes that were dropped with whole tables.",
        |stats| stats.bytes_dropped as f64,
    ),
];

fn load(of: &AtomicU64) -> f64 {
    of.load(Ordering::Relaxed) as f64
}

pub(crate) fn metrics(state: &State) -> Answer {
    let (figures, stats) = (&state.figures, state.documents.engine().stats());
    let mut text = String::new();
    let name = "ebbtide_http_requests_total";
    head(
        &mut text,
        name,
        "counter",
        "Requests that were answered, by the class of the status.",
    );
    for class in 1..6 {
        let value = figures.requests(class) as f64;
        line(&mut text, &format!("{name}{{class=\"{class}xx\"}}"), value);
    }
    write(&mut text, &OF_SERVER, figures);
    write(&mut text, &OF_ENGINE, &stats);
    Ok(Reply::text(
        200,
        text,
        "text/plain; version=0.0.4; charset=utf-8",
    ))
}

fn write<T>(text: &mut String, figures: &[Figure<T>], of: &T) {
    for (name, kind, help, value) in figures {
        let name = format!("ebbtide_{name}");
        head(text, &name, kind, help);
        line(text, &name, value(of));
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all");
}

fn line(text: &mut String, name: &str, value: f64) {
    writeln!(text, "{name} {value}").expect("a string takes all");
}
