use super::*;

const NOW: Duration = Duration::from_secs(1_000_000);

fn millis(text: &str) -> Option<u64> {
    let moment = moment(text, UNIX_EPOCH + NOW).ok()?;
    Some(moment.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
}

#[test]
fn lengths_of_time_are_seconds_or_have_units() {
    for (text, expected) in [
        ("0", 0),
        ("90", 90_000),
        ("1.5", 1_500),
        ("0.001", 1),
        ("250ms", 250),
        ("30m", 1_800_000),
        ("30 min", 1_800_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("1h 30m 5s", 5_405_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
    ] {
        let expected = Duration::from_millis(expected);
        assert_eq!(span(text).unwrap(), expected, "{text}");
    }
    for text in [
        "",
        " ",
        "x",
        "s",
        "-1",
        "+1",
        "1e3",
        "1M",
        "1mo",
        "1y",
        "1us",
        "1h30",
        "1..5",
        ".",
        "1.",
        "1hm",
        "inf",
        "1795670000000",
        "99999999999999999999",
        "99999999999999999999d",
        "1\u{b5}s",
        "1\u{e9}",
    ] {
        let why = span(text).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("time {text} is not allowed: seconds, or ")),
            "{why}"
        );
    }
}

#[test]
fn lifetimes_are_whole_seconds() {
    let after = |seconds| Ttl::After(Duration::from_secs(seconds));
    for (text, expected) in [
        ("-1", Ttl::Never),
        ("1", after(1)),
        ("1h30m", after(5_400)),
        ("1.5m", after(90)),
        ("7d", after(604_800)),
        ("2147483647", after(2_147_483_647)),
    ] {
        assert_eq!(ttl(text).unwrap(), expected);
    }
    for text in [
        "0",
        "-2",
        "-1m",
        "2147483648",
        "24856d",
        "1.5",
        "1500ms",
        "off",
        "never",
        "",
        "60 ,",
    ] {
        let why = ttl(text).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("ttl {text} is not allowed: -1 (never), or ")),
            "{why}"
        );
    }
    assert_eq!(default_ttl("off").unwrap(), DefaultTtl::Off);
    assert_eq!(default_ttl("-1").unwrap(), DefaultTtl::NoDefault);
    let day = DefaultTtl::After(Duration::from_secs(86_400));
    assert_eq!(default_ttl("1d").unwrap(), day);
    for text in ["0", "-2", "2147483648", "on", "", "1.5", "null"] {
        let why = default_ttl(text).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("default ttl {text} is not allowed: off, -1")),
            "{why}"
        );
    }
}

#[test]
fn moments_are_dates_or_counted_from_1970_or_from_now() {
    for (text, expected) in [
        ("0", 0),
        ("2026", 2_026_000),
        ("1772366400.25", 1_772_366_400_250),
        ("100000000000", 100_000_000_000_000),
        ("+90", 1_000_090_000),
        ("-1.5s", 999_998_500),
        ("+2m", 1_000_120_000),
        ("-1h", 996_400_000),
        ("+1d12h", 1_129_600_000),
        ("-9999d", 0),
        ("1970-01-01", 0),
        ("2000-02-29T00:00:00.001Z", 951_782_400_001),
        ("2026-03-01T12:00:00.250Z", 1_772_366_400_250),
        ("2026-03-01t12:00:00z", 1_772_366_400_000),
        ("2026-03-01T12:00:00+01:00", 1_772_362_800_000),
        ("2026-03-01T12:00:00.250-02:30", 1_772_375_400_250),
        ("2026-03-01T12:00:00+00:00", 1_772_366_400_000),
        ("2026-12-31", 1_798_675_200_000),
    ] {
        assert_eq!(millis(text), Some(expected), "{text}");
    }
    for text in [
        "",
        "x",
        "+",
        "-",
        "1e3",
        "+1y",
        "+1hm",
        "2026-02-29",
        "2026-13-01",
        "2026-1-1",
        "2026-03-01T24:00:00Z",
        "2026-03-01T12:00:00",
        "2026-03-01T12:00Z",
        "2026-03-01T12:00:00+1:00",
        "2026-03-01T12:00:00+24:00",
        "2026-03-01T12:00:00Z+01:00",
        "2026-03-01T12:00:00ZxZ",
        "2026-03-01T12:00:00+01:0\u{e9}",
        "1970-01-01T00:00:00+00:01",
        "1969-12-31",
        "2026-03-01-01",
        "inf",
        "+1795670000000",
        "99999999999999999999",
        "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
    ] {
        let why = moment(text, UNIX_EPOCH + NOW).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("moment {text} is not allowed: a date ")),
            "{why}"
        );
    }
}

#[test]
fn milliseconds_are_not_taken_for_seconds() {
    for (text, readings) in [
        (
            "1795670000000",
            "in seconds the year 58872, in milliseconds 2026-11-26T05:13:20.000Z",
        ),
        (
            "100000000001",
            "in seconds the year 5138, in milliseconds 1973-03-03T09:46:40.001Z",
        ),
        (
            "9999999999999999.5",
            "in seconds the year 316889355, in milliseconds 318857-05-20T17:46:39.999Z",
        ),
    ] {
        let why = moment(text, UNIX_EPOCH).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("moment {text} ({readings}) is not allowed: ")),
            "{why}"
        );
    }
}

#[test]
fn dates_are_written_as_they_are_read() {
    for day in (0..80_000_u64).step_by(29) {
        let expected = day * 86_400_000 + day * 997 % 86_400_000;
        let text = calendar::date_and_time(UNIX_EPOCH + Duration::from_millis(expected));
        assert_eq!(millis(&text), Some(expected), "{text}");
    }
}

#[test]
fn sizes_are_bytes_or_have_units() {
    for (text, expected) in [
        ("0", 0),
        ("500", 500),
        ("500 B", 500),
        ("10MB", 10_000_000),
        ("10 mb", 10_000_000),
        ("1kB", 1_000),
        ("64MiB", 64 << 20),
        ("1.5 KiB", 1_536),
        ("6.9 MiB", 7_235_174),
        ("2TiB", 2 << 40),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(size(text).unwrap(), expected, "{text}");
    }
    for text in [
        "",
        "MB",
        "x",
        "-1",
        "+1",
        "10M",
        "10K",
        "1e3",
        "1.5",
        "1.5B",
        "1..5MB",
        "18446744073709551616",
        "16777216TiB",
        "99999999999.5TiB",
        "1 M B",
        "10\u{e9}",
    ] {
        let why = size(text).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("size {text} is not allowed: bytes, or ")),
            "{why}"
        );
    }
    assert_eq!(rate("1kB").unwrap(), 1_000);
    assert!(rate("0").is_err());
}
