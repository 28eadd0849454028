//! The routes that Cosmos DB has not: health, what expires when, and a clock that can be moved.

use std::time::{Duration, SystemTime};

use ebbtide::DefaultTtl;
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

/// As `defaultTtl` of a container.
pub(crate) fn seconds(default: DefaultTtl) -> serde_json::Value {
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

/// Writes where the clock was moved to, in milliseconds since 1970: a database goes on no earlier than its last write, so
/// neither does the clock after the next start.
fn keep(state: &State) -> Result<(), Failure> {
    let since = state
        .now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let kept = state.documents.engine().container("clock")?;
    Ok(kept.put("now", since.as_millis().to_string())?)
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
