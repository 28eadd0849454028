//! Moments as they are shown.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use ebbtide_cli::calendar::date_and_time;

use crate::show;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_from_now() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let at = |secs| relative(UNIX_EPOCH + Duration::from_secs(secs), now);
        assert_eq!(
            [at(940), at(1_000), at(1_720)],
            ["60.0 s ago", "now", "in 12 min"]
        );
    }
}
