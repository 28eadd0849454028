//! Moments, in milliseconds.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: milliseconds since the Unix epoch.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than every moment: "never".
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The last moment that time comes to, in 292 million years: the longest ttl, counted from then, still ends before
    /// [`Timestamp::MAX`].
    pub const LAST: Timestamp = Timestamp(i64::MAX as u64);

    /// This moment plus `millis`; at most [`Timestamp::MAX`].
    pub fn after(self, millis: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(millis))
    }

    /// This moment minus `millis`; at least the epoch.
    pub fn before(self, millis: u64) -> Timestamp {
        Timestamp(self.0.saturating_sub(millis))
    }

    /// Milliseconds from `earlier` to this moment, 0 if that is later.
    pub fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment as the standard library's type.
    pub fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH
            .checked_add(Duration::from_millis(self.0))
            .unwrap_or(UNIX_EPOCH)
    }

    /// From the standard library's type, rounded down to a whole millisecond, as stamps are; a moment before the epoch
    /// becomes the epoch, and one after [`Timestamp::LAST`] that.
    pub fn from_system_time(time: SystemTime) -> Timestamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        millis.min(Timestamp::LAST)
    }

    /// From the standard library's type, rounded up to a whole millisecond; a moment before the epoch becomes the
    /// epoch.
    pub fn from_system_time_up(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp(millis_up(since)),
            Err(_) => Timestamp(0),
        }
    }
}

impl fmt::Display for Timestamp {
    /// UTC, as RFC 3339 with milliseconds: `2026-03-01T12:00:00.250Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}Z", ToTheSecond(self.0 / 1_000), self.0 % 1_000)
    }
}

/// Seconds since the Unix epoch, to be written in UTC, without the zone: `2026-03-01T12:00:00`.
pub struct ToTheSecond(pub u64);

impl fmt::Display for ToTheSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, in_day) = (self.0 / 86_400, self.0 % 86_400);
        // Civil date from a day count, by 400-year eras that start on 1 March (H. Hinnant, "chrono-compatible
        // low-level date algorithms").
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let (hour, minute, second) = (in_day / 3_600, in_day / 60 % 60, in_day % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )
    }
}

/// The days from the Unix epoch to a date, by the same eras; `None`: there is no such date.
pub fn days_to(year: u64, month: u64, day: u64) -> Option<i64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    let year = i64::try_from(year).ok()? - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month as i64 + 9) % 12) + 2) / 5 + day as i64 - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Whole milliseconds of a duration, rounded up.
#[inline]
pub fn millis_up(duration: Duration) -> u64 {
    let millis = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
    duration
        .as_secs()
        .saturating_mul(1_000)
        .saturating_add(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begun_millisecond_counts_as_one() {
        for (duration, millis) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_nanos(1_000_000), 1),
            (Duration::new(7, 999_000_001), 8_000),
            (Duration::from_millis(u64::MAX), u64::MAX),
            (Duration::new(u64::MAX / 1_000, 615_000_001), u64::MAX),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(millis_up(duration), millis, "{duration:?}");
        }
    }

    #[test]
    fn dates_have_days() {
        for days in (0..400_000).step_by(13).chain(19_700..20_600) {
            let text = ToTheSecond(days * 86_400).to_string();
            let part = |range: std::ops::Range<usize>| text[range].parse::<u64>().unwrap();
            let found = days_to(part(0..4), part(5..7), part(8..10));
            assert_eq!(found, Some(days as i64), "{text}");
        }
        assert_eq!(days_to(1969, 12, 31), Some(-1));
        assert_eq!(days_to(0, 3, 1), Some(-719_468));
        for (year, month, day) in [
            (2023, 2, 29),
            (1900, 2, 29),
            (2026, 4, 31),
            (2026, 0, 1),
            (2026, 13, 1),
            (2026, 1, 0),
        ] {
            assert_eq!(days_to(year, month, day), None);
        }
    }

    #[test]
    fn timestamps_print_as_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            Timestamp(951_782_400_001).to_string(),
            "2000-02-29T00:00:00.001Z"
        );
        assert_eq!(
            Timestamp(1_772_366_400_250).to_string(),
            "2026-03-01T12:00:00.250Z"
        );
    }
}
