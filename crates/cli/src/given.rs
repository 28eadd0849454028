//! Lifetimes, moments and sizes as they are typed: every command, and every option of it, reads them here. The library
//! parses them; the command line asks for whole seconds, and knows moments from now.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::shared::text::{SURELY_MILLIS, date, length, seconds};
pub use ebbtide::shared::text::{size, span};
use ebbtide::{DefaultTtl, Error, Result, Ttl};

use crate::calendar;

/// As long as a cluster lets a token last.
const MOST_OF_A_TOKEN: Duration = Duration::from_secs(30 * 86_400);

/// The longest lifetime, in seconds.
const MAX_SECONDS: u64 = 2_147_483_647;

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

/// How long a token to join a cluster lasts.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything but 1 s to 30 days, in whole seconds.
pub fn token_life(text: &str) -> Result<Duration> {
    let allowed = "a time of whole seconds from 1s to 30d: 90, 30m, 7d";
    lifetime(text)
        .filter(|time| *time <= MOST_OF_A_TOKEN)
        .ok_or_else(|| invalid("time", text, allowed))
}

fn lifetime(text: &str) -> Option<Duration> {
    let is_allowed =
        |time: &Duration| time.subsec_nanos() == 0 && (1..=MAX_SECONDS).contains(&time.as_secs());
    length(text).filter(is_allowed)
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

/// A length of time from one to another.
///
/// # Errors
/// Why it is not.
pub fn span_within(text: &str, least: &str, most: &str) -> std::result::Result<Duration, String> {
    let read = |text| span(text).map_err(|error| error.to_string());
    let time = read(text)?;
    match read(least)? <= time && time <= read(most)? {
        true => Ok(time),
        false => Err(format!("{text} is not in {least}..={most}")),
    }
}

/// Whole seconds in a range.
///
/// # Errors
/// Why it is not.
pub fn seconds_within(text: &str, range: RangeInclusive<u64>) -> std::result::Result<u64, String> {
    let time = span(text).map_err(|error| error.to_string())?;
    match time.subsec_nanos() == 0 && range.contains(&time.as_secs()) {
        true => Ok(time.as_secs()),
        false => Err(format!("{text} is not in {range:?}, in whole seconds")),
    }
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
