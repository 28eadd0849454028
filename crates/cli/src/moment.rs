//! Moments as they are typed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide_cli::calendar;

use crate::failure::{Failure, Outcome};
use crate::show;

const ALLOWED: &str = "a date (2026-03-01 or 2026-03-01T12:00:00Z, UTC), seconds since 1970, or a time from now (-30m, +1h, \
                       +2d, in s, m, h or d)";

/// Reads a moment, which may be relative to `now`.
pub fn parse(text: &str, now: SystemTime) -> Outcome<SystemTime> {
    let moment = match text.as_bytes().first() {
        Some(b'+') => span(&text[1..]).and_then(|span| now.checked_add(span)),
        Some(b'-') => span(&text[1..]).map(|span| {
            let moment = now.checked_sub(span).unwrap_or(UNIX_EPOCH);
            moment.max(UNIX_EPOCH)
        }),
        _ if text.contains('-') => date(text),
        _ => seconds(text).and_then(|since| UNIX_EPOCH.checked_add(since)),
    };
    moment.ok_or_else(|| Failure::Refused(format!("{text:?} is no moment: {ALLOWED}")))
}

/// `2026-03-01T12:00:00.250Z`, which [`parse`] reads.
pub fn date_and_time(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, in_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = calendar::date(days);
    let (hour, minute, second) = (in_day / 3_600, in_day / 60 % 60, in_day % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Milliseconds since 1970; 1970 for what no clock can show.
pub fn of_millis(millis: u64) -> SystemTime {
    let moment = UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    moment.unwrap_or(UNIX_EPOCH)
}

/// The mark of an edit, in milliseconds since 1970; `None` before anything durable relied on a time.
pub fn of_mark(millis: u64) -> Option<SystemTime> {
    (millis > 0).then(|| of_millis(millis))
}

/// `in 12 min`, `4.0 s ago`, `now`.
pub fn relative(moment: SystemTime, now: SystemTime) -> String {
    match moment.duration_since(now) {
        Ok(Duration::ZERO) => "now".to_owned(),
        Ok(ahead) => format!("in {}", show::time(ahead)),
        Err(behind) => format!("{} ago", show::time(behind.duration())),
    }
}

/// Decimals and no sign.
fn seconds(text: &str) -> Option<Duration> {
    let digits = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = text.parse().ok().filter(|_| digits)?;
    Duration::try_from_secs_f64(number).ok()
}

/// `30m`; seconds without a unit.
pub fn span(text: &str) -> Option<Duration> {
    let unit = match text.bytes().next_back()? {
        b'm' => 60.0,
        b'h' => 3_600.0,
        b'd' => 86_400.0,
        _ => 1.0,
    };
    let number = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let is_one = text.len() - number.len() <= 1;
    let number = seconds(number).filter(|_| is_one)?;
    Duration::try_from_secs_f64(number.as_secs_f64() * unit).ok()
}

/// `2026-03-01` or `2026-03-01T12:00:00Z`, with decimals of a second or without.
fn date(text: &str) -> Option<SystemTime> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let number = |text: &str, len: usize| {
        let fits = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| fits)
    };
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4)?;
    let (month, day) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let mut clock = time.split(':');
    let (hour, minute) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    let second = seconds(clock.next()?)?;
    let is_whole = parts.next().is_none() && clock.next().is_none();
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let long = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let in_range = (1_970..).contains(&year)
        && (1..=long).contains(&day)
        && hour < 24
        && minute < 60
        && second.as_secs() < 60;
    if !is_whole || !in_range {
        return None;
    }
    // Days by a year that begins in March (H. Hinnant, "chrono-compatible low-level date algorithms").
    let year = year - u64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    let whole = days * 86_400 + hour * 3_600 + minute * 60;
    UNIX_EPOCH.checked_add(Duration::from_secs(whole) + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_they_are_read() {
        for day in (0..80_000_u64).step_by(29) {
            let moment =
                UNIX_EPOCH + Duration::from_millis(day * 86_400_000 + day * 997 % 86_400_000);
            let text = date_and_time(moment);
            assert_eq!(parse(&text, UNIX_EPOCH).ok(), Some(moment), "{text}");
        }
        let leap = UNIX_EPOCH + Duration::from_millis(951_782_400_001);
        assert_eq!(date_and_time(leap), "2000-02-29T00:00:00.001Z");
    }

    #[test]
    fn moments_are_told_from_now() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let at = |secs| relative(UNIX_EPOCH + Duration::from_secs(secs), now);
        assert_eq!(
            [at(940), at(1_000), at(1_720)],
            ["60.0 s ago", "now", "in 12 min"]
        );
    }

    #[test]
    fn moments_are_read() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (text, millis) in [
            ("0", 0),
            ("1772366400.25", 1_772_366_400_250),
            ("+90", 1_000_090_000),
            ("-1.5s", 999_998_500),
            ("+2m", 1_000_120_000),
            ("-1h", 996_400_000),
            ("+1d", 1_086_400_000),
            ("-9999d", 0),
            ("1970-01-01", 0),
            ("2000-02-29T00:00:00.001Z", 951_782_400_001),
            ("2026-03-01T12:00:00.250Z", 1_772_366_400_250),
            ("2026-12-31", 1_798_675_200_000),
        ] {
            let moment = parse(text, now).ok();
            assert_eq!(
                moment,
                Some(UNIX_EPOCH + Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "x",
            "+",
            "-",
            "1e3",
            "+1w",
            "+1hm",
            "2026",
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "2026-03-01T24:00:00Z",
            "2026-03-01T12:00:00",
            "1969-12-31",
            "2026-03-01-01",
            "inf",
        ] {
            let is_a_number = text == "2026";
            assert_eq!(parse(text, now).is_err(), !is_a_number, "{text}");
        }
    }
}
