use super::*;

use proptest::prelude::*;

use crate::base::MAX_TTL_MILLIS;

fn reads<T: FromStr + fmt::Display + PartialEq + fmt::Debug>(value: T)
where
    T::Err: fmt::Debug,
{
    let text = value.to_string();
    assert_eq!(text.parse::<T>().unwrap(), value, "{text}");
}

#[test]
fn lifetimes_are_written_with_units() {
    let day = 86_400_000_000_000;
    for (nanos, expected) in [
        (0, "0s"),
        (1, "0.000000001s"),
        (1_500_000, "0.0015s"),
        (250_000_000, "250ms"),
        (1_500_000_000, "1s500ms"),
        (90_000_000_000, "1m30s"),
        (5_400_000_000_000, "1h30m"),
        (day, "1d"),
        (7 * day + 1_000_000, "7d1ms"),
        (day + 1_100_000, "1d0.0011s"),
    ] {
        assert_eq!(Span(Duration::from_nanos(nanos)).to_string(), expected);
    }
    let longest = Span(Duration::MAX).to_string();
    assert_eq!(span(&longest).unwrap(), Duration::MAX);
}

#[test]
fn ttls_have_words() {
    for (text, ttl) in [
        ("inherit", Ttl::Inherit),
        ("never", Ttl::Never),
        ("keep", Ttl::Keep),
        ("1h30m", Ttl::After(Duration::from_secs(5_400))),
        (
            "2026-03-01T12:00:00.25Z",
            Ttl::Until(UNIX_EPOCH + Duration::from_millis(1_772_366_400_250)),
        ),
    ] {
        assert_eq!(ttl.to_string(), text);
        reads(ttl);
    }
    assert_eq!("-1".parse::<Ttl>().unwrap(), Ttl::Never);
    assert_eq!("90".parse::<Ttl>().unwrap(), Duration::from_secs(90).into());
    for text in [
        "off",
        "0",
        "0s",
        "-2",
        "2147483648",
        "24856d",
        "",
        " 90",
        "Never",
        "1y",
        "2026-02-29",
    ] {
        let error = text.parse::<Ttl>().unwrap_err().to_string();
        let named = format!("ttl {text} is not allowed: inherit, never (-1), ");
        assert!(error.starts_with(&named), "{error}");
    }
    for (text, default) in [
        ("off", DefaultTtl::Off),
        ("-1", DefaultTtl::NoDefault),
        ("7d", DefaultTtl::After(Duration::from_secs(604_800))),
    ] {
        assert_eq!(default.to_string(), text);
        reads(default);
    }
    assert_eq!(
        "never".parse::<DefaultTtl>().unwrap(),
        DefaultTtl::NoDefault
    );
    for text in [
        "on",
        "inherit",
        "keep",
        "0",
        "-2",
        "2147483648",
        "",
        "null",
        "2026-03-01",
    ] {
        let error = text.parse::<DefaultTtl>().unwrap_err().to_string();
        let named = format!("default ttl {text} is not allowed: off, -1 ");
        assert!(error.starts_with(&named), "{error}");
    }
}

#[test]
fn numbers_count_as_their_digits() {
    let read = |json: &str| serde_json::from_str::<DefaultTtl>(json);
    assert_eq!(read("-1").unwrap(), DefaultTtl::NoDefault);
    assert_eq!(read("90").unwrap(), Duration::from_secs(90).into());
    assert_eq!(read("1.5").unwrap(), Duration::from_millis(1_500).into());
    assert_eq!(read("\"1h\"").unwrap(), Duration::from_secs(3_600).into());
    for json in ["0", "-2", "1e300", "null", "true", "\"1y\"", "[1]"] {
        assert!(read(json).is_err(), "{json}");
    }
    assert_eq!(serde_json::to_string(&Ttl::Never).unwrap(), "\"never\"");
}

proptest! {
    #[test]
    fn lengths_of_time_read_as_they_are_written(seconds: u64, nanos in 0_u32..1_000_000_000, shift in 0..64) {
        let seconds = seconds >> shift;
        for nanos in [0, nanos / 1_000_000 * 1_000_000, nanos] {
            let time = Duration::new(seconds, nanos);
            prop_assert_eq!(span(&Span(time).to_string()).unwrap(), time);
        }
    }

    #[test]
    fn ttls_read_as_they_are_written(millis in 1..=MAX_TTL_MILLIS, shift in 0..40, nanos in 0_u32..1_000_000) {
        let lifetime = Duration::from_millis(Ord::max(millis >> shift, 1)) - Duration::from_nanos(u64::from(nanos));
        for text in [Ttl::After(lifetime).to_string(), DefaultTtl::After(lifetime).to_string()] {
            prop_assert_eq!(text.parse::<Ttl>().unwrap(), Ttl::After(lifetime));
            prop_assert_eq!(text.parse::<DefaultTtl>().unwrap(), DefaultTtl::After(lifetime));
        }
    }

    #[test]
    fn moments_read_as_they_are_written(seconds in 0..=i64::MAX as u64, shift in 0..62, nanos in 0_u32..1_000_000_000) {
        let since = Duration::new(seconds >> shift, nanos);
        let ttl = Ttl::Until(UNIX_EPOCH + since);
        prop_assert_eq!(ttl.to_string().parse::<Ttl>().unwrap(), ttl);
        let json = serde_json::to_string(&ttl).unwrap();
        prop_assert_eq!(serde_json::from_str::<Ttl>(&json).unwrap(), ttl);
    }

    #[test]
    fn lifetimes_like_others_read_as_they_are_written(
        written_at in 0..=i64::MAX as u64, shift in 0..62, millis in 0..=MAX_TTL_MILLIS,
    ) {
        for ttl in [ItemTtl::Absent, ItemTtl::Never, ItemTtl::Millis(millis), ItemTtl::Millis(0)] {
            let countdown = Countdown::new(Timestamp(written_at >> shift), ttl);
            prop_assert_eq!((countdown.written_at(), countdown.ttl()), (Timestamp(written_at >> shift), ttl));
            let ttl = Ttl::Since(countdown);
            prop_assert_eq!(ttl.to_string().parse::<Ttl>().unwrap(), ttl);
        }
    }

    #[test]
    fn no_text_is_too_strange(text in "[-0-9.:TZdhms+ kMiB\u{e9}]{0,24}") {
        let _ = (text.parse::<Ttl>(), text.parse::<DefaultTtl>(), span(&text), size(&text), date(&text));
    }
}
