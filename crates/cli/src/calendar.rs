//! Dates.

use std::time::{SystemTime, UNIX_EPOCH};

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar (H. Hinnant, "chrono-compatible low-level date
/// algorithms").
#[must_use]
pub fn date(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that a leap day ends a year; an era has 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// `2026-03-01T12:00:00.250Z`; 1970 for what is before that.
#[must_use]
pub fn date_and_time(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, in_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (in_day / 3_600, in_day / 60 % 60, in_day % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_have_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_782, (2024, 2, 29)),
            (20_782, (2026, 11, 25)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
