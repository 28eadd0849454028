//! Moments as HTTP writes them: `Thu, 27 Apr 2017 00:51:12 GMT`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY: i64 = 86_400;

/// None where the text is another, or the moment is before 1970.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let mut words = text.trim().split(' ').filter(|word| !word.is_empty());
    let (_, day, month, year, time, zone) = (
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
    );
    let month = MONTHS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(month))? as i64
        + 1;
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    let mut parts = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let holds = zone.eq_ignore_ascii_case("gmt")
        && words.next().is_none()
        && parts.next().is_none()
        && (1970..=9999).contains(&year)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    let seconds = days_of(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    holds.then(|| UNIX_EPOCH + Duration::from_secs(seconds as u64))
}

/// As ISO 8601 has it, with milliseconds.
pub(crate) fn iso(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() as i64 / DAY, since.as_secs() as i64 % DAY);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
        since.subsec_millis(),
    )
}

/// Days since 1970: those of the years before, counted from March so that a leap day is a year's last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let mut year = 1970 + days / 366;
    while days_of(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12)
        .rev()
        .find(|month| days_of(year, *month, 1) <= days)
        .unwrap_or(1);
    (year, month, days - days_of(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_written_and_read() {
        for (seconds, text, iso_text) in [
            (
                0,
                "Thu, 01 Jan 1970 00:00:00 GMT",
                "1970-01-01T00:00:00.000Z",
            ),
            (
                951_782_399,
                "Mon, 28 Feb 2000 23:59:59 GMT",
                "2000-02-28T23:59:59.000Z",
            ),
            (
                951_782_400,
                "Tue, 29 Feb 2000 00:00:00 GMT",
                "2000-02-29T00:00:00.000Z",
            ),
            (
                1_493_254_272,
                "Thu, 27 Apr 2017 00:51:12 GMT",
                "2017-04-27T00:51:12.000Z",
            ),
            (
                4_102_444_799,
                "Thu, 31 Dec 2099 23:59:59 GMT",
                "2099-12-31T23:59:59.000Z",
            ),
        ] {
            let moment = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(iso(moment), iso_text);
            assert_eq!(parse(text), Some(moment));
            assert_eq!(parse(&text.to_lowercase()), Some(moment));
        }
    }

    #[test]
    fn other_texts_are_no_moments() {
        for text in [
            "",
            "27 Apr 2017",
            "Thu, 27 Apr 1917 00:51:12 GMT",
            "Thu, 27 Avr 2017 00:51:12 GMT",
            "Thu, 27 Apr 2017 24:51:12 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
