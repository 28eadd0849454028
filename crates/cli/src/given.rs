//! Lifetimes, moments and sizes as they are typed: every command, and every option of it, reads them here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{DefaultTtl, Error, Result, Ttl};

use crate::calendar;

/// The units of a length of time. No month and no year: they have no one length, and `M` is too close to `m`.
const UNITS: [&str; 7] = ["ms", "s", "m", "min", "h", "d", "w"];

/// The longest lifetime, in seconds.
const MAX_SECONDS: u64 = 2_147_483_647;

/// Larger numbers are no seconds: those are of the year 5138, and so many milliseconds were over in 1973.
const SURELY_MILLIS: u64 = 100_000_000_000;

/// An item's ttl: `-1`, or a lifetime.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything else.
pub fn ttl(text: &str) -> Result<Ttl> {
    if text == "-1" {
        return Ok(Ttl::Never);
    }
    let allowed =
        "-1 (never), or a lifetime of whole seconds from 1 to 2147483647: 90, 30m, 7d, 1h30m";
    lifetime(text)
        .map(Ttl::After)
        .ok_or_else(|| invalid("ttl", text, allowed))
}

/// A container's default ttl: `off`, `-1`, or a lifetime.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything else.
pub fn default_ttl(text: &str) -> Result<DefaultTtl> {
    let allowed = "off, -1 (on without default), or a lifetime of whole seconds from 1 to 2147483647: 90, 30m, 7d, 1h30m";
    match (text, lifetime(text)) {
        ("off", _) => Ok(DefaultTtl::Off),
        ("-1", _) => Ok(DefaultTtl::NoDefault),
        (_, Some(time)) => Ok(DefaultTtl::After(time)),
        _ => Err(invalid("default ttl", text, allowed)),
    }
}

fn lifetime(text: &str) -> Option<Duration> {
    let is_allowed =
        |time: &Duration| time.subsec_nanos() == 0 && (1..=MAX_SECONDS).contains(&time.as_secs());
    length(text).filter(is_allowed)
}

/// A length of time: seconds, or numbers with units.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything else.
pub fn span(text: &str) -> Result<Duration> {
    let allowed = "seconds, or as in 30m, 7d or 1h30m, in ms, s, m, h, d or w";
    length(text).ok_or_else(|| invalid("time", text, allowed))
}

fn length(text: &str) -> Option<Duration> {
    if let Some(seconds) = seconds(text) {
        return Some(seconds).filter(|time| time.as_secs() <= SURELY_MILLIS);
    }
    let mut units = text.split(|char: char| !char.is_alphabetic());
    let are_known = units.all(|unit| unit.is_empty() || UNITS.contains(&unit));
    are_known.then(|| humantime::parse_duration(text).ok())?
}

/// Digits, with a decimal point or without.
fn seconds(text: &str) -> Option<Duration> {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let is_one = text.bytes().all(is_number);
    is_one.then(|| humantime::parse_duration(&format!("{text}s")).ok())?
}

/// A moment: a date, one with a time of day (RFC 3339), seconds since 1970, or a length of time before or after `now`.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything else, and for a number that can only be meant in milliseconds.
pub fn moment(text: &str, now: SystemTime) -> Result<SystemTime> {
    let moment = match (
        text.strip_prefix('+'),
        text.strip_prefix('-'),
        seconds(text),
    ) {
        (Some(text), ..) => length(text).and_then(|span| now.checked_add(span)),
        (_, Some(text), _) => length(text).map(|span| {
            let moment = now.checked_sub(span).unwrap_or(UNIX_EPOCH);
            moment.max(UNIX_EPOCH)
        }),
        (.., Some(since)) if since.as_secs() > SURELY_MILLIS => return Err(in_millis(text, since)),
        (.., Some(since)) => UNIX_EPOCH.checked_add(since),
        _ => date(text),
    };
    let allowed = "a date (2026-03-01, 2026-03-01T12:00:00Z), seconds since 1970, or a time from now (-30m, +1h30m, +2d)";
    moment.ok_or_else(|| invalid("moment", text, allowed))
}

/// Names both readings.
fn in_millis(text: &str, since: Duration) -> Error {
    let (year, ..) = calendar::date(since.as_secs() / 86_400);
    let millis = Duration::from_millis(since.as_secs());
    let meant = calendar::date_and_time(UNIX_EPOCH + millis);
    let given = format!("{text} (in seconds the year {year}, in milliseconds {meant})");
    let allowed = "seconds since 1970, or a date: write the one that is meant";
    invalid("moment", &given, allowed)
}

/// `2026-03-01`, or `2026-03-01T12:00:00Z`, with decimals of a second or without, and with another zone by its distance
/// to UTC (`+01:00`).
fn date(text: &str) -> Option<SystemTime> {
    let text = text.to_ascii_uppercase();
    let (local, zone) = match text.strip_suffix('Z') {
        Some(local) => (local, "+00:00"),
        None if text.len() == "2026-03-01".len() => (&*format!("{text}T00:00:00"), "+00:00"),
        None => text.split_at_checked(text.len().checked_sub("+00:00".len())?)?,
    };
    // Not every letter behind the seconds is refused below.
    let mut decimals = local.bytes().skip("2026-03-01T12:00:00".len());
    if !decimals.all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let moment = match (zone.strip_prefix('+'), zone.strip_prefix('-')) {
        (Some(ahead), _) => local.checked_sub(distance(ahead)?),
        (_, Some(behind)) => local.checked_add(distance(behind)?),
        _ => None,
    };
    moment.filter(|moment| *moment >= UNIX_EPOCH)
}

/// Of `01:00`, an hour.
fn distance(zone: &str) -> Option<Duration> {
    let (hours, minutes) = zone.split_once(':')?;
    let number = |text: &str| {
        let is_one = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_one)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then(|| Duration::from_secs(hours * 3_600 + minutes * 60))
}

/// A number of bytes: `500`, `10MB`, `64MiB`.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything else.
pub fn size(text: &str) -> Result<u64> {
    let allowed = "bytes, or as in 10MB or 64MiB, in kB, MB, GB or TB, KiB, MiB, GiB or TiB";
    bytes(text).ok_or_else(|| invalid("size", text, allowed))
}

fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    // No K, M or G alone: they may mean powers of 1000 or of 1024.
    let unit: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    if unit == 1 || !number.contains('.') {
        return number.parse::<u64>().ok()?.checked_mul(unit);
    }
    let bytes = number.parse::<f64>().ok()? * unit as f64;
    (bytes < u64::MAX as f64).then_some(bytes.round() as u64)
}

/// A number of bytes that is not 0.
///
/// # Errors
/// Those of [`size`], and [`Error::InvalidArgument`] for 0.
pub fn rate(text: &str) -> Result<u64> {
    match size(text)? {
        0 => Err(invalid("rate", text, "1 byte a second or more")),
        bytes => Ok(bytes),
    }
}

fn invalid(what: &'static str, given: &str, allowed: &'static str) -> Error {
    Error::InvalidArgument {
        what,
        given: given.to_owned(),
        allowed,
    }
}

#[cfg(test)]
mod tests;
