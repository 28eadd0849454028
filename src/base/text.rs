//! Lifetimes, moments and sizes as people write them: the library, config files and the command read them here.
//!
//! ```text
//! length of time   90 | 1.5 | 250ms | 30m | 7d | 1h30m | 1h 30m 5s         bare: seconds
//! moment           2026-03-01 | 2026-03-01T12:00:00.25Z | 2026-03-01T13:00:00+01:00
//! size             500 | 10MB | 1.5 KiB                                    bare: bytes
//! ```
//!
//! Lengths of time, and moments from 1970 on, are written so that reading them gives the same value, to the nanosecond.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::{Deserializer, Visitor};

use crate::base::time::{ToTheSecond, days_to};
use crate::base::ttl::lifetime_millis;
use crate::base::{
    Countdown, DefaultTtl, Error, ItemTtl, MAX_TTL_MILLIS, Result, Timestamp, Ttl, millis_up,
};

/// Larger numbers are no seconds: those are of the year 5138, and so many milliseconds were over in 1973.
pub const SURELY_MILLIS: u64 = 100_000_000_000;

const NANOS: u128 = 1_000_000_000;

/// A length of time: seconds, or numbers with units.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything else.
pub fn span(text: &str) -> Result<Duration> {
    let allowed = "seconds, or as in 30m, 7d or 1h30m, in ms, s, m, h, d or w";
    length(text).ok_or_else(|| Error::invalid("time", text, allowed))
}

/// The same, if it is one.
#[must_use]
pub fn length(text: &str) -> Option<Duration> {
    if let Some(seconds) = seconds(text) {
        return Some(seconds).filter(|time| time.as_secs() <= SURELY_MILLIS);
    }
    let (mut rest, mut nanos) = (text, 0_u128);
    loop {
        let number = front(&mut rest, |char| char.is_ascii_digit() || char == '.');
        rest = rest.trim_start_matches(' ');
        let unit = front(&mut rest, char::is_alphabetic);
        nanos = nanos.checked_add(times(number, nanos_of(unit)?)?)?;
        if rest.is_empty() {
            return duration(nanos);
        }
        rest = rest.trim_start_matches(' ');
    }
}

/// Digits, with a decimal point or without, as seconds.
#[must_use]
pub fn seconds(text: &str) -> Option<Duration> {
    duration(times(text, NANOS)?)
}

/// No month and no year: they have no one length, and `M` is too close to `m`.
fn nanos_of(unit: &str) -> Option<u128> {
    let seconds = match unit {
        "ms" => return Some(NANOS / 1_000),
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    Some(seconds * NANOS)
}

/// Takes the characters off the front that are such.
fn front<'t>(text: &mut &'t str, is_such: impl Fn(char) -> bool) -> &'t str {
    let end = text.find(|char: char| !is_such(char)).unwrap_or(text.len());
    let (front, rest) = text.split_at(end);
    *text = rest;
    front
}

/// A number in digits, with decimals or without, times a unit; rounded down.
fn times(number: &str, unit: u128) -> Option<u128> {
    /// More whole digits are more than any unit takes, and further decimals less than a nanosecond.
    const MOST_DIGITS: usize = 20;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(decimals) || whole.len() > MOST_DIGITS {
        return None;
    }
    let decimals = &decimals[..decimals.len().min(MOST_DIGITS)];
    let of_decimals = decimals.parse::<u128>().ok()? * unit / 10_u128.pow(decimals.len() as u32);
    Some(whole.parse::<u128>().ok()? * unit + of_decimals)
}

fn duration(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / NANOS).ok()?;
    Some(Duration::new(seconds, (nanos % NANOS) as u32))
}

/// A length of time, to be written: `7d`, `1h30m`, `250ms`, `1.5000001s`.
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "m")] {
            if seconds >= unit {
                write!(f, "{}{name}", seconds / unit)?;
                seconds %= unit;
            }
        }
        let millis = nanos / 1_000_000;
        if nanos % 1_000_000 > 0 {
            let decimals = format!("{nanos:09}");
            return write!(f, "{seconds}.{}s", decimals.trim_end_matches('0'));
        }
        if seconds > 0 || self.0.is_zero() {
            write!(f, "{seconds}s")?;
        }
        match millis {
            0 => Ok(()),
            millis => write!(f, "{millis}ms"),
        }
    }
}

/// A moment from 1970 on: `2026-03-01`, or `2026-03-01T12:00:00Z`, with decimals of a second or without, and with
/// another zone by its distance to UTC (`+01:00`).
#[must_use]
pub fn date(text: &str) -> Option<SystemTime> {
    let mut rest = text;
    let year = front(&mut rest, |char| char.is_ascii_digit());
    // The last year of the clock has twelve digits.
    let year = (4..=12)
        .contains(&year.len())
        .then(|| year.parse().ok())??;
    let month = after(&mut rest, &['-'], 2)?;
    let days = days_to(year, month, after(&mut rest, &['-'], 2)?)?;
    let (mut seconds, mut nanos) = (i128::from(days) * 86_400, 0);
    if !rest.is_empty() {
        let hour = after(&mut rest, &['T', 't'], 2).filter(|hour| *hour < 24)?;
        let minute = after(&mut rest, &[':'], 2).filter(|minute| *minute < 60)?;
        let second = after(&mut rest, &[':'], 2).filter(|second| *second < 60)?;
        if let Some(decimals) = rest.strip_prefix('.') {
            rest = decimals;
            let decimals = front(&mut rest, |char| char.is_ascii_digit());
            nanos = times(&format!("0.{decimals}"), NANOS)? as u32;
        }
        seconds += i128::from(hour * 3_600 + minute * 60 + second) - ahead(rest)?;
    }
    let since = Duration::new(u64::try_from(seconds).ok()?, nanos);
    UNIX_EPOCH.checked_add(since)
}

/// Takes one of these characters, and so many digits, off the front.
fn after(text: &mut &str, marks: &[char], digits: usize) -> Option<u64> {
    let (number, rest) = text.strip_prefix(marks)?.split_at_checked(digits)?;
    *text = rest;
    let is_one = number.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| number.parse().ok())?
}

/// How far a zone is ahead of UTC, in seconds: of `+01:00`, an hour.
fn ahead(zone: &str) -> Option<i128> {
    let sign = match zone.chars().next()? {
        'Z' | 'z' => return (zone.len() == 1).then_some(0),
        '-' => -1,
        _ => 1,
    };
    let mut rest = zone;
    let hours = after(&mut rest, &['+', '-'], 2).filter(|hours| *hours < 24)?;
    let minutes = after(&mut rest, &[':'], 2).filter(|minutes| *minutes < 60)?;
    let seconds = i128::from(hours * 3_600 + minutes * 60);
    rest.is_empty().then_some(sign * seconds)
}

/// A moment, to be written as [`date`] reads it; 1970 for what is before that.
struct Moment(SystemTime);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        ToTheSecond(since.as_secs()).fmt(f)?;
        if since.subsec_nanos() > 0 {
            let decimals = format!("{:09}", since.subsec_nanos());
            write!(f, ".{}", decimals.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// A number of bytes: `500`, `10MB`, `64MiB`.
///
/// # Errors
/// [`Error::InvalidArgument`] for everything else.
pub fn size(text: &str) -> Result<u64> {
    let allowed = "bytes, or as in 10MB or 64MiB, in kB, MB, GB or TB, KiB, MiB, GiB or TiB";
    bytes(text).ok_or_else(|| Error::invalid("size", text, allowed))
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

/// A length of time that an item can have left.
fn lifetime(text: &str) -> Option<Duration> {
    length(text).filter(|length| lifetime_millis(*length).is_some())
}

/// `1h since 2026-03-01T12:00:00Z`. A lifetime of 0 is one that is stored, not one that is given.
fn countdown(text: &str) -> Option<Countdown> {
    let (ttl, since) = text.split_once(" since ")?;
    let ttl = match ttl {
        "inherit" => ItemTtl::Absent,
        "never" => ItemTtl::Never,
        _ => {
            let millis = millis_up(length(ttl)?);
            ItemTtl::Millis(Some(millis).filter(|millis| *millis <= MAX_TTL_MILLIS)?)
        }
    };
    Some(Countdown::new(
        Timestamp::from_system_time(date(since)?),
        ttl,
    ))
}

impl fmt::Display for Ttl {
    /// `inherit`, `never`, `keep`, a lifetime (`1h30m`) or a moment (`2026-03-01T12:00:00Z`), as its `FromStr` reads it.
    /// A moment before 1970, which has passed like any other, is written as 1970.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ttl::Inherit => f.write_str("inherit"),
            Ttl::Never => f.write_str("never"),
            Ttl::After(lifetime) => Span(*lifetime).fmt(f),
            Ttl::Keep => f.write_str("keep"),
            Ttl::Until(moment) => Moment(*moment).fmt(f),
            Ttl::Since(countdown) => {
                let ttl = countdown.ttl().to_public();
                let since = Moment(countdown.written_at().to_system_time());
                write!(f, "{ttl} since {since}")
            }
        }
    }
}

impl FromStr for Ttl {
    type Err = Error;

    /// Reads `inherit`, `never` or `-1`, `keep`, a lifetime or a moment. A lifetime is in seconds (`90`), or has units
    /// (`250ms`, `30m`, `7d`, `1h30m`; w, d, h, m, s, ms); one that no write takes is refused.
    fn from_str(text: &str) -> Result<Ttl> {
        if let Some(countdown) = countdown(text) {
            return Ok(Ttl::Since(countdown));
        }
        Ok(match text {
            "inherit" => Ttl::Inherit,
            "never" | "-1" => Ttl::Never,
            "keep" => Ttl::Keep,
            _ => match (lifetime(text), date(text)) {
                (Some(lifetime), _) => Ttl::After(lifetime),
                (_, Some(moment)) => Ttl::Until(moment),
                _ => {
                    let allowed = "inherit, never (-1), keep, a moment (2026-03-01T12:00:00Z), or a lifetime of more than 0 \
                                   and at most 2147483647 s (90, 30m, 7d, 1h30m)";
                    return Err(Error::invalid("ttl", text, allowed));
                }
            },
        })
    }
}

impl fmt::Display for DefaultTtl {
    /// `off`, `-1` or a lifetime (`1h30m`), as its `FromStr` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefaultTtl::Off => f.write_str("off"),
            DefaultTtl::NoDefault => f.write_str("-1"),
            DefaultTtl::After(lifetime) => Span(*lifetime).fmt(f),
        }
    }
}

impl FromStr for DefaultTtl {
    type Err = Error;

    /// Reads `off`, `-1` or `never`, or a lifetime as [`Ttl`] has it.
    fn from_str(text: &str) -> Result<DefaultTtl> {
        let allowed = "off, -1 (on without default), or a lifetime of more than 0 and at most 2147483647 s (90, 30m, 7d, 1h30m)";
        match (text, lifetime(text)) {
            ("off", _) => Ok(DefaultTtl::Off),
            ("-1" | "never", _) => Ok(DefaultTtl::NoDefault),
            (_, Some(lifetime)) => Ok(DefaultTtl::After(lifetime)),
            _ => Err(Error::invalid("default ttl", text, allowed)),
        }
    }
}

/// Reads a text; where the format has numbers, a number too, which counts as its digits.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err = Error>,
    D: Deserializer<'de>,
{
    struct Text<T>(std::marker::PhantomData<T>);

    impl<T: FromStr<Err = Error>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a number")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }

    let text = Text(std::marker::PhantomData);
    match deserializer.is_human_readable() {
        true => deserializer.deserialize_any(text),
        false => deserializer.deserialize_str(text),
    }
}

/// Serde by the text of `Display` and `FromStr`.
macro_rules! serde_by_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::base::text::deserialize(deserializer)
            }
        }
    };
}

serde_by_text!(Ttl);
serde_by_text!(DefaultTtl);
serde_by_text!(Span);

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Span> {
        span(text).map(Span)
    }
}

/// A number of bytes: written as a number, and read as [`size`] does.
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Size> {
        size(text).map(Size)
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        match deserializer.is_human_readable() {
            true => deserialize(deserializer),
            false => <u64 as serde::Deserialize>::deserialize(deserializer).map(Size),
        }
    }
}

#[cfg(test)]
mod tests;
