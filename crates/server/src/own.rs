//! What this server has and Cosmos DB does not: figures, health, what expires when, and a clock that can be moved.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use ebbtide::{Database, DefaultTtl};
use serde::Deserialize;
use serde_json::json;

use crate::catalog::not_allowed;
use crate::date;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;

/// `GET .../_due`: how many documents end until when, and their bytes.
pub(crate) fn due(state: &State, request: &Request, database: &str, coll: &str) -> Answer {
    if request.method != hyper::Method::GET {
        return Err(not_allowed());
    }
    let container = state.documents.container(database, coll)?;
    let buckets: Vec<_> = container
        .items()
        .due()
        .iter()
        .map(|bucket| {
            json!({
                "until": date::iso(bucket.until),
                "documents": bucket.items,
                "bytes": bucket.bytes,
                "diskBytes": bucket.disk_bytes,
            })
        })
        .collect();
    Ok(Reply::json(
        200,
        json!({ "now": date::iso(state.now()), "due": buckets }).to_string(),
    ))
}

/// `GET .../_ttl?default=3600`: the default of now, and what another would end at once.
pub(crate) fn ttl(state: &State, request: &Request, database: &str, coll: &str) -> Answer {
    if request.method != hyper::Method::GET {
        return Err(not_allowed());
    }
    let container = state.documents.container(database, coll)?;
    let items = container.items();
    let stats = items.stats();
    let mut body = json!({
        "now": date::iso(state.now()),
        "defaultTtl": seconds(items.default_ttl()),
        "documents": stats.live_items,
        "bytes": stats.live_bytes,
    });
    if let Some(text) = request.parameter("default") {
        let default = default_ttl(&text)?;
        let ends = items.preview_default_ttl(default);
        body["dryRun"] = json!({ "defaultTtl": seconds(default), "documentsThatEnd": ends.items, "bytesThatEnd": ends.bytes });
    }
    Ok(Reply::json(200, body.to_string()))
}

fn seconds(default: DefaultTtl) -> serde_json::Value {
    match default {
        DefaultTtl::After(after) => json!(after.as_secs()),
        DefaultTtl::NoDefault => json!(-1),
        _ => serde_json::Value::Null,
    }
}

/// As `defaultTtl` of a container.
fn default_ttl(text: &str) -> Result<DefaultTtl, Failure> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(DefaultTtl::NoDefault),
        Ok(seconds) if (1..=i64::from(i32::MAX)).contains(&seconds) => Ok(DefaultTtl::After(
            Duration::from_secs(seconds.unsigned_abs()),
        )),
        _ if text == "null" => Ok(DefaultTtl::Off),
        _ => Err(Failure::bad_request(
            "The parameter default is null, -1, or seconds from 1 to 2147483647.",
        )),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance: String,
}

/// `GET /_clock`, and `POST /_clock {"advance": "2h"}` under `--clock manual`.
pub(crate) fn clock(state: &State, request: &Request) -> Answer {
    match request.method.as_str() {
        "GET" => {}
        "POST" => {
            let clock = state.clock.as_ref().ok_or_else(|| {
                Failure::new(403, "Forbidden", "The clock is the system's. A server that was started with --clock manual has one that can be moved.")
            })?;
            let asked: Advance = serde_json::from_slice(&request.body).map_err(|error| {
                Failure::bad_request(format!(
                    "The body is like {{\"advance\": \"2h\"}}: {error}."
                ))
            })?;
            clock.advance(duration(&asked.advance)?);
            keep(state)?;
        }
        _ => return Err(not_allowed()),
    }
    Ok(Reply::json(
        200,
        json!({ "now": date::iso(state.now()), "manual": state.clock.is_some() }).to_string(),
    ))
}

/// The container of the engine and the key by which a moved clock is kept.
const CLOCK: (&str, &str) = ("clock", "now");

/// Keeps where the clock was moved to, in milliseconds since 1970.
fn keep(state: &State) -> Result<(), Failure> {
    let since = state
        .now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let kept = state.documents.engine().container(CLOCK.0)?;
    Ok(kept.put(CLOCK.1, since.as_millis().to_string())?)
}

/// Where the clock was moved to before, in milliseconds since 1970.
pub(crate) fn moved_to(engine: &Database) -> ebbtide::Result<Option<u64>> {
    if !engine.containers().iter().any(|name| name == CLOCK.0) {
        return Ok(None);
    }
    let kept = engine.container(CLOCK.0)?.get(CLOCK.1)?;
    Ok(kept.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()))
}

/// `90`, `1500ms`, `30s`, `5m`, `2h`, `7d`, `2w`; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, Failure> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => 0,
    };
    // Some thousand years: sums of it stay far from the end of the clock.
    const MOST: u64 = 10_000 * 365 * 86_400_000;
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds))
        .filter(|total| milliseconds > 0 && *total <= MOST)
        .map(Duration::from_millis)
        .ok_or_else(|| {
            Failure::bad_request(format!("{text:?} is no duration like 90s, 5m, 2h or 7d."))
        })
}

pub(crate) fn health() -> Answer {
    Ok(Reply::text(200, "ok\n", "text/plain; charset=utf-8"))
}

/// Whether writes are taken: nothing in the background has failed for good.
pub(crate) fn ready(state: &State) -> Answer {
    match state.documents.engine().stats().background_error {
        None => Ok(Reply::text(200, "ready\n", "text/plain; charset=utf-8")),
        Some(error) => Ok(Reply::text(
            503,
            format!("{error}\n"),
            "text/plain; charset=utf-8",
        )),
    }
}

/// Figures in the text format of Prometheus.
pub(crate) fn metrics(state: &State) -> Answer {
    let stats = state.documents.engine().stats();
    let figures = &state.figures;
    let load =
        |of: &std::sync::atomic::AtomicU64| of.load(std::sync::atomic::Ordering::Relaxed) as f64;
    let mut text = String::new();
    head(
        &mut text,
        "ebbtide_http_requests_total",
        "counter",
        "Requests that were answered, by the class of the status.",
    );
    for class in 1..6 {
        line(
            &mut text,
            &format!("ebbtide_http_requests_total{{class=\"{class}xx\"}}"),
            figures.requests(class) as f64,
        );
    }
    for (name, kind, help, value) in [
        (
            "http_connections",
            "gauge",
            "Connections that are open.",
            load(&figures.connections),
        ),
        (
            "http_refused_connections_total",
            "counter",
            "Connections that were closed for there were too many.",
            load(&figures.refused_connections),
        ),
        (
            "http_request_bytes_total",
            "counter",
            "Bytes of the bodies of requests.",
            load(&figures.request_bytes),
        ),
        (
            "http_response_bytes_total",
            "counter",
            "Bytes of the bodies of answers.",
            load(&figures.response_bytes),
        ),
        (
            "live_items",
            "gauge",
            "Items that have not expired.",
            stats.live_items as f64,
        ),
        (
            "live_bytes",
            "gauge",
            "Bytes of items that have not expired.",
            stats.live_bytes as f64,
        ),
        (
            "expired_bytes",
            "gauge",
            "Bytes of items that have expired and are not yet reclaimed.",
            stats.expired_bytes as f64,
        ),
        (
            "disk_bytes",
            "gauge",
            "Bytes of all files.",
            stats.disk_bytes as f64,
        ),
        (
            "log_bytes",
            "gauge",
            "Bytes of the log.",
            stats.log_bytes as f64,
        ),
        (
            "memtable_bytes",
            "gauge",
            "Bytes of memtables.",
            stats.memtable_bytes as f64,
        ),
        (
            "containers",
            "gauge",
            "Containers of the engine.",
            stats.containers as f64,
        ),
        (
            "overdue_seconds",
            "gauge",
            "How far the reclaiming of expired items is behind its promise.",
            stats.overdue.as_secs_f64(),
        ),
        (
            "stalls_total",
            "counter",
            "Writes that were held up.",
            stats.stalls as f64,
        ),
        (
            "stall_seconds_total",
            "counter",
            "Time for which writes were held up.",
            stats.stall_time.as_secs_f64(),
        ),
        (
            "syncs_total",
            "counter",
            "Syncs of the log.",
            stats.syncs as f64,
        ),
        (
            "sync_seconds_total",
            "counter",
            "Time of syncs of the log.",
            stats.sync_time.as_secs_f64(),
        ),
        (
            "flushes_total",
            "counter",
            "Memtables that were written to tables.",
            stats.flushes as f64,
        ),
        (
            "merges_total",
            "counter",
            "Merges of tables.",
            stats.merges as f64,
        ),
        (
            "put_bytes_total",
            "counter",
            "Bytes that were put.",
            stats.bytes_put as f64,
        ),
        (
            "merged_bytes_total",
            "counter",
            "Bytes that merges wrote.",
            stats.bytes_merged as f64,
        ),
        (
            "dropped_bytes_total",
            "counter",
            "Bytes that were dropped with whole tables.",
            stats.bytes_dropped as f64,
        ),
    ] {
        let name = format!("ebbtide_{name}");
        head(&mut text, &name, kind, help);
        line(&mut text, &name, value);
    }
    Ok(Reply::text(
        200,
        text,
        "text/plain; version=0.0.4; charset=utf-8",
    ))
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all");
}

fn line(text: &mut String, name: &str, value: f64) {
    writeln!(text, "{name} {value}").expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [
            ("90", 90.0),
            ("1500ms", 1.5),
            ("30s", 30.0),
            ("5m", 300.0),
            ("2h", 7200.0),
            ("7d", 604_800.0),
            ("2w", 1_209_600.0),
            ("2 h", 7200.0),
        ] {
            assert_eq!(duration(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in [
            "",
            "h",
            "-1h",
            "1.5h",
            "2y",
            "99999999999999999999s",
            "99999999999999999w",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
