//! Formats numbers for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{DefaultTtl, Quota, WhenFull};
use serde_json::{Value, json};

/// `317 B`, `1.2 MiB`: three digits or so.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut amount = count as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().expect("there are five");
    // An amount that would be printed as 1024 is printed as one of the next unit.
    while amount >= 1023.5 {
        let Some(next) = units.next() else { break };
        (amount, unit) = (amount / 1024.0, next);
    }
    let decimals = if amount < 99.95 { 1 } else { 0 };
    format!("{amount:.decimals$} {unit}")
}

/// `12,345`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An estimate without the digits that are not known: from a thousand on two are kept, or three if the first is a 1.
pub fn about(count: u64) -> u64 {
    if count < 1_000 {
        return count;
    }
    let mut unit = 1;
    while count / unit >= 200 {
        unit *= 10;
    }
    count.saturating_add(unit / 2) / unit * unit
}

/// `1 line`, `12,345 lines`.
pub fn counted(number: u64, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {one}{ending}", count(number))
}

/// `5 min`, `2 h`, `30 d`, of a whole number of seconds that is one of these.
pub fn exact(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [
        (365 * 86_400, "y"),
        (86_400, "d"),
        (3_600, "h"),
        (60, "min"),
    ];
    let seconds = time.as_secs();
    let unit = UNITS
        .iter()
        .find(|(length, _)| seconds.is_multiple_of(*length));
    unit.map_or(format!("{seconds} s"), |(length, unit)| {
        format!("{} {unit}", seconds / length)
    })
}

/// `1.5 us`, `850 us`, `12.3 ms`, `123 ms`, `4.5 s`, `12 min`, `3.2 h`, `8.1 d`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..1e-5 => format!("{:.1} us", seconds * 1e6),
        ..1e-3 => format!("{:.0} us", seconds * 1e6),
        ..0.1 => format!("{:.1} ms", seconds * 1e3),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..120.0 => format!("{seconds:.1} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

/// A job as the database explains it, with its bytes and milliseconds as sizes and lengths of time.
pub fn explained(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let unit = |at: usize| {
        words
            .get(at)
            .map(|word| word.trim_end_matches([',', ':', ';']))
    };
    let mut said: Vec<String> = vec![];
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let end = |at: usize| {
            let word = words[at];
            &word[word.trim_end_matches([',', ':', ';']).len()..]
        };
        match (number(at), unit(at + 1)) {
            (Some(millis), Some("ms")) => {
                said.push(time(Duration::from_millis(millis)) + end(at + 1));
                at += 1;
            }
            (Some(amount), Some("bytes")) => {
                said.push(bytes(amount) + end(at + 1));
                at += 1;
            }
            (Some(amount), Some("of")) if unit(at + 3) == Some("bytes") => said.push(bytes(amount)),
            _ => said.push((*word).to_owned()),
        }
        at += 1;
    }
    said.join(" ")
}

/// As `ebbtide ttl` takes it, milliseconds as decimals.
pub fn default_ttl(default: DefaultTtl) -> String {
    match default {
        DefaultTtl::Off => "off".to_owned(),
        DefaultTtl::NoDefault => "-1".to_owned(),
        DefaultTtl::After(time) => time.as_secs_f64().to_string(),
        // A variant that this command does not know yet.
        other => format!("{other:?}"),
    }
}

/// `null`, -1, or seconds.
pub fn default_ttl_json(default: DefaultTtl) -> Value {
    match default {
        DefaultTtl::Off => Value::Null,
        DefaultTtl::NoDefault => (-1).into(),
        DefaultTtl::After(time) if time.subsec_nanos() == 0 => time.as_secs().into(),
        DefaultTtl::After(time) => time.as_secs_f64().into(),
        other => format!("{other:?}").into(),
    }
}

/// `none`, or the limit and what a write does that would exceed it.
pub fn quota(quota: Option<Quota>) -> String {
    let Some(quota) = quota else {
        return "none".to_owned();
    };
    let when_full = match quota.when_full {
        WhenFull::ExpireSoonest => "expire-soonest",
        _ => "refuse",
    };
    format!("{} {when_full}", quota.max_live_bytes)
}

pub fn quota_json(quota: Quota) -> Value {
    let when_full = match quota.when_full {
        WhenFull::ExpireSoonest => "expire-soonest",
        _ => "refuse",
    };
    json!({ "max_live_bytes": quota.max_live_bytes, "when_full": when_full })
}

/// Milliseconds since the Unix epoch.
pub fn moment_json(moment: Option<SystemTime>) -> Value {
    let since = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    since.map_or(Value::Null, |since| (since.as_millis() as u64).into())
}

/// Seconds, to the millisecond.
pub fn seconds_json(time: Duration) -> Value {
    ((time.as_secs_f64() * 1_000.0).round() / 1_000.0).into()
}

/// Microseconds, to the nanosecond.
pub fn micros_json(time: Option<Duration>) -> Value {
    time.map_or(Value::Null, |time| {
        (time.as_nanos() as f64 / 1_000.0).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_about_three_digits() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_258_291, "1.2 MiB"),
            (104_857_600, "100 MiB"),
            (1_073_741_823, "1.0 GiB"),
            (u64::MAX, "16384 PiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn estimates_lose_the_digits_that_are_not_known() {
        for (count, rounded) in [
            (0, 0),
            (999, 999),
            (1_000, 1_000),
            (1_168, 1_170),
            (1_999, 2_000),
            (2_049, 2_000),
            (56_312, 56_000),
            (149_600, 150_000),
            (u64::MAX - 1, 18_400_000_000_000_000_000),
        ] {
            assert_eq!(about(count), rounded);
        }
        for count in 1..30_000u64 {
            assert!(about(count).abs_diff(count) * 40 <= count, "{count}");
        }
    }

    #[test]
    fn jobs_are_told_in_sizes_and_lengths_of_time() {
        let cases = [
            (
                "rest for 29636771 ms: 1 runs of 20, 585003 of 3469751 bytes expired",
                "rest for 8.2 h: 1 runs of 20, 571 KiB of 3.3 MiB expired",
            ),
            (
                "rewrite 2 tables of 3 runs, 1048576 bytes, few runs: of 9, each one less for 2048 bytes",
                "rewrite 2 tables of 3 runs, 1.0 MiB, few runs: of 9, each one less for 2.0 KiB",
            ),
            ("rest", "rest"),
        ];
        for (text, words) in cases {
            assert_eq!(explained(text), words);
        }
    }

    #[test]
    fn one_is_not_many() {
        let texts = [0, 1, 1_000].map(|number| counted(number, "bad line"));
        assert_eq!(texts, ["0 bad lines", "1 bad line", "1,000 bad lines"]);
    }

    #[test]
    fn times_take_the_unit_that_fits() {
        let cases = [
            (0, "0.0 us"),
            (9, "9.0 us"),
            (850, "850 us"),
            (12_340, "12.3 ms"),
            (4_500_000, "4.5 s"),
            (720_000_000, "12 min"),
            (700_000_000_000, "8.1 d"),
        ];
        for (micros, text) in cases {
            assert_eq!(time(Duration::from_micros(micros)), text);
        }
    }
}
