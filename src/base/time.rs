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
        let (days, in_day) = (self.0 / 86_400_000, self.0 % 86_400_000);
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
        let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
        let (second, milli) = (in_day / 1_000 % 60, in_day % 1_000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
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
