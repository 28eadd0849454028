use proptest::prelude::*;

use super::*;

const NOON: Duration = Duration::from_millis(1_772_366_400_999);

fn shown(key: &[u8], value: &[u8], ttl: Ttl) -> String {
    members(key, &times(UNIX_EPOCH + NOON, ttl), value)
}

const OWN_OBJECT: LineFormat<'_> = LineFormat {
    key: Some("id"),
    from_export: false,
};

const EXPORTED: LineFormat<'_> = LineFormat {
    key: Some("id"),
    from_export: true,
};

fn read(line: &str) -> Result<Entry> {
    from_json(line.as_bytes(), OWN_OBJECT)
}

fn exported(line: &str) -> Result<Entry> {
    from_json(line.as_bytes(), EXPORTED)
}

fn value_of(line: &str) -> String {
    String::from_utf8(read(line).unwrap().value).unwrap()
}

#[track_caller]
fn refused(line: &str, words: &[&str]) {
    said(read(line), words);
}

#[track_caller]
fn said(read: Result<Entry>, words: &[&str]) {
    let error = read.unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
}

#[test]
fn an_object_is_shown_in_place() {
    let after = |millis| Ttl::After(Duration::from_millis(millis));
    let value = br#"{"user": "ada", "visits":7 }"#;
    assert_eq!(
        shown(b"s-1", value, after(1_800_000)),
        r#"{"_key":"s-1","_ts":1772366400,"_ts_ms":1772366400999,"ttl":1800,"user": "ada", "visits":7 }"#
    );
    assert_eq!(
        shown(b"s-1", b"{}", Ttl::Never),
        r#"{"_key":"s-1","_ts":1772366400,"_ts_ms":1772366400999,"ttl":-1}"#
    );
    assert_eq!(
        shown(b"s-1", b"{}", Ttl::Inherit),
        r#"{"_key":"s-1","_ts":1772366400,"_ts_ms":1772366400999}"#
    );
    assert!(shown(b"s", b"{}", after(1_001)).ends_with(r#""ttl":2,"_ttl_ms":1001}"#));
    assert!(shown(b"s", b"{}", after(0)).ends_with(r#""ttl":1}"#));
}

#[test]
fn what_is_no_object_is_shown_as_text() {
    let cases: [(&[u8], &str); 8] = [
        (b"plain \"text\"\n", r#""_value":"plain \"text\"\n""#),
        (b"", r#""_value":"""#),
        (b"42", r#""_value":"42""#),
        (b"[1]", r#""_value":"[1]""#),
        (b"{\"a\":1", r#""_value":"{\"a\":1""#),
        (b"{ }", r#""_value":"{ }""#),
        (b"{\"\\u0074tl\":5}", r#""_value":"{\"\\u0074tl\":5}""#),
        (b"{\"a\":\n1}", r#""_value":"{\"a\":\n1}""#),
    ];
    for (value, member) in cases {
        let line = shown(b"k", value, Ttl::Inherit);
        assert_eq!(
            line,
            format!(r#"{{"_key":"k","_ts":1772366400,"_ts_ms":1772366400999,{member}}}"#)
        );
        assert_eq!(
            from_json(line.as_bytes(), LineFormat::default())
                .unwrap()
                .value,
            value
        );
    }
    let line = shown(b"\xff", b"\x00\xff", Ttl::Inherit);
    assert_eq!(
        line,
        r#"{"_key_base64":"/w==","_ts":1772366400,"_ts_ms":1772366400999,"_value_base64":"AP8="}"#
    );
}

#[test]
fn an_own_object_keeps_every_byte_but_its_ttl() {
    let whole = r#"{ "id" : "a b" , "n": 1e999, "n":[ {"ttl":0} ] }"#;
    assert_eq!(value_of(whole), whole);
    assert_eq!(value_of(&format!("  {whole}\r\n")), whole);
    assert_eq!(value_of(r#"{"ttl":5,"id":1,"a":2}"#), r#"{"id":1,"a":2}"#);
    assert_eq!(
        value_of(r#"{"id":1, "ttl":5, "a":2}"#),
        r#"{"id":1, "a":2}"#
    );
    for own in [
        r#"{"_key":"1","id":1}"#,
        r#"{"id":1,"_ts":1556000000,"_ts_ms":"2026-01-01"}"#,
        r#"{"id":1,"_value":5,"_value_base64":null,"_remaining":[]}"#,
        r#"{"id":1,"_key_base64":"!","_ttl_ms":7,"_key":1,"_key":2}"#,
        r#"{"_key":"1","_ts":7,"id":1,"_ts_ms":7000}"#,
        r#"{"_key":"1","_ts":7,"_ts_ms":8000,"id":1}"#,
        r#"{"_key":"1","_ts":7.0,"_ts_ms":7000,"id":1}"#,
        r#"{"_key":"1","_ts":"7","_ts_ms":7000,"id":1}"#,
    ] {
        assert_eq!(value_of(own), own);
    }
    let deep = format!(
        r#"{{"id":1,"deep":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(value_of(&deep), deep);
}

#[test]
fn a_line_of_an_export_loses_what_export_adds() {
    let value = |line: &str| String::from_utf8(exported(line).unwrap().value).unwrap();
    assert_eq!(value(r#"{"id":1,"a":2,"_ts":9}"#), r#"{"id":1,"a":2}"#);
    assert_eq!(value(r#"{"_key":"k","_ts":9}"#), "{}");
    let line = shown(b"k", br#"{"a":1}"#, Ttl::Never);
    for (key, from_export) in [
        (None, false),
        (Some(KEY), false),
        (None, true),
        (Some("id"), true),
    ] {
        let entry = from_json(line.as_bytes(), LineFormat { key, from_export }).unwrap();
        assert_eq!(
            (entry.key, entry.value),
            (b"k".to_vec(), br#"{"a":1}"#.to_vec())
        );
    }
    // Of a line that may be meant in two ways, the caller says in which.
    refused(&line, &["begins with \"_key\"", "--from-export"]);
    for line in [
        r#"{"id":1}"#,
        r#"{"_key":"k","user":"ada"}"#,
        r#"{"_key":"k","_ts":7,"_ts_ms":7}"#,
        "{}",
    ] {
        let unsaid = from_json(line.as_bytes(), LineFormat::default());
        said(
            unsaid,
            &[
                "does not begin with \"_key\"",
                "--key FIELD",
                "--from-export",
            ],
        );
    }
}

#[test]
fn a_key_is_a_string_or_the_digits_of_a_number() {
    let key = |line| String::from_utf8(read(line).unwrap().key).unwrap();
    assert_eq!(key(r#"{"id":"\u00e9\n"}"#), "\u{e9}\n");
    assert_eq!(
        key(r#"{"id":-12345678901234567890123}"#),
        "-12345678901234567890123"
    );
    assert_eq!(key(r#"{"id":1.50}"#), "1.50");
    assert_eq!(key(r#"{"id":"mine","_key":"exported"}"#), "mine");
    assert_eq!(
        exported(r#"{"a":1,"_key":"exported"}"#).unwrap().key,
        b"exported"
    );
    refused(r#"{"a":1,"_key":"exported"}"#, &["without \"id\""]);
    let mongo = r#"{"id": { "$oid" : "5f0c\u0061" },"n":1}"#;
    assert_eq!(
        (key(mongo).as_str(), value_of(mongo).as_str()),
        ("5f0ca", mongo)
    );
    for no_key in [
        "null",
        "true",
        "[1]",
        r#"{"a":1}"#,
        r#"{"$oid":1}"#,
        r#"{"$oid":"a","b":1}"#,
        "{}",
        r#""\ud800""#,
    ] {
        refused(&format!(r#"{{"id":{no_key}}}"#), &["key", no_key, "string"]);
    }
    refused(r#"{"a":1}"#, &["without \"id\""]);
    refused(r#"{"id":""}"#, &["key of 0 bytes", "1 to 65535"]);
    refused(r#"{"id":1,"id":2}"#, &["\"id\" twice"]);
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(65_536));
    refused(&long, &["key of 65536 bytes"]);
}

#[test]
fn ttls_are_whole_seconds_or_never() {
    let ttl = |ttl: &str| read(&format!(r#"{{"id":1,"ttl":{ttl}}}"#)).map(|entry| entry.ttl);
    assert_eq!(read(r#"{"id":1}"#).unwrap().ttl, Ttl::Inherit);
    assert_eq!(ttl("-1").unwrap(), Ttl::Never);
    assert_eq!(ttl("1").unwrap(), Ttl::After(Duration::from_secs(1)));
    assert_eq!(
        ttl("2147483647").unwrap(),
        Ttl::After(Duration::from_secs(2_147_483_647))
    );
    for given in [
        "0",
        "-2",
        "2147483648",
        "null",
        "\"60\"",
        "1.5",
        "60.0",
        "6e1",
        "true",
        "[60]",
        "{}",
        "99999999999999999999",
    ] {
        let error = ttl(given).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "ttl {given} is not allowed: -1 (never), or whole seconds from 1 to 2147483647"
            )
        );
    }
    refused(r#"{"id":1,"ttl":5,"ttl":6}"#, &["\"ttl\" twice"]);
}

#[test]
fn milliseconds_of_a_ttl_are_those_of_its_seconds() {
    let ttl = |members: &str| exported(&format!(r#"{{"id":1,{members}}}"#)).map(|entry| entry.ttl);
    let millis = |millis| Ttl::After(Duration::from_millis(millis));
    assert_eq!(ttl(r#""ttl":2,"_ttl_ms":1001"#).unwrap(), millis(1_001));
    assert_eq!(ttl(r#""_ttl_ms":1,"ttl":1"#).unwrap(), millis(1));
    assert_eq!(ttl(r#""_ttl_ms":5000,"ttl":5"#).unwrap(), millis(5_000));
    for given in [
        r#""ttl":1,"_ttl_ms":1001"#,
        r#""ttl":3,"_ttl_ms":1001"#,
        r#""ttl":1,"_ttl_ms":0"#,
        r#""ttl":-1,"_ttl_ms":1"#,
        r#""_ttl_ms":1000"#,
        r#""ttl":1,"_ttl_ms":"1""#,
        r#""ttl":1,"_ttl_ms":18446744073709551616"#,
    ] {
        let error = ttl(given).unwrap_err().to_string();
        assert!(
            error.starts_with("_ttl_ms ") && error.contains("next whole second"),
            "{error}"
        );
    }
}

#[test]
fn a_line_says_when_its_item_was_written() {
    let written = |members: &str| {
        let line = format!(r#"{{"id":1,{members}}}"#);
        let (entry, written_at) = from_json_with_time(line.as_bytes(), OWN_OBJECT)?;
        assert_eq!(entry, read(&line).unwrap());
        Ok::<_, Error>(written_at.duration_since(UNIX_EPOCH).unwrap())
    };
    assert_eq!(written(r#""_ts":7"#).unwrap(), Duration::from_secs(7));
    let both = written(r#""_ts":7,"_ts_ms":7321"#).unwrap();
    assert_eq!(both, Duration::from_millis(7_321));
    for (given, word) in [
        (r#""a":1"#, "without \"_ts_ms\" and \"_ts\""),
        (r#""_ts":-1"#, "_ts -1"),
        (r#""_ts":1.5"#, "_ts 1.5"),
        (r#""_ts":"7""#, "_ts \"7\""),
        (r#""_ts":18446744073709551615"#, "_ts 18446744073709551615"),
        (r#""_ts":7,"_ts_ms":null"#, "_ts_ms null"),
        (r#""_ts":7,"_ts":7"#, "\"_ts\" twice"),
    ] {
        let error = written(given).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(
            read(&format!(r#"{{"id":1,{given}}}"#)).is_ok(),
            "who does not ask is not told"
        );
    }
}

#[test]
fn a_time_that_is_kept_ends_when_it_would_have() {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let after = |seconds| Duration::from_secs(seconds);
    let kept = |ttl, default| ttl_since(at(100), at(160), ttl, default);
    let (own, week) = (Ttl::After(after(70)), DefaultTtl::After(after(604_800)));
    for default in [DefaultTtl::Off, DefaultTtl::NoDefault, week] {
        assert_eq!(kept(own, default), Ttl::Until(at(170)));
        assert_eq!(kept(Ttl::Never, default), Ttl::Never);
    }
    assert_eq!(kept(Ttl::Inherit, DefaultTtl::Off), Ttl::Inherit);
    assert_eq!(kept(Ttl::Inherit, DefaultTtl::NoDefault), Ttl::Inherit);
    assert_eq!(kept(Ttl::Inherit, week), Ttl::Until(at(100 + 604_800)));
    let yet_to_come = ttl_since(at(999), at(160), own, week);
    assert_eq!(yet_to_come, Ttl::Until(at(230)));
}

#[test]
fn broken_lines_are_refused() {
    for line in [
        "",
        "null",
        "[]",
        "{",
        "{}x",
        "{} {}",
        r#"{"id":1,}"#,
        r#"{"id":01}"#,
        "{id:1}",
    ] {
        refused(line, &["line (", "one JSON object a line"]);
    }
    assert!(from_json(b"{\"id\":\"\xff\"}", OWN_OBJECT).is_err());
    said(
        exported(r#"{"id":1,"_value":5}"#),
        &["_value 5", "a JSON string"],
    );
    said(exported(r#"{"id":1,"_value_base64":"A"}"#), &["base64"]);
    said(
        exported(r#"{"id":1,"_value":"a","b":2}"#),
        &["beside \"b\""],
    );
    assert_eq!(exported(r#"{"id":1,"_value":"a"}"#).unwrap().value, b"a");
}

#[test]
fn base64_is_that_of_rfc_4648() {
    let with = |text: &str| format!("{{\"id\":1,\"_value_base64\":\"{text}\"}}");
    let cases = [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ];
    for (bytes, text) in cases {
        assert_eq!(exported(&with(text)).unwrap().value, bytes.as_bytes());
    }
    let all: Vec<u8> = (0..=255).rev().collect();
    let line = shown(b"k", &all, Ttl::Inherit);
    assert!(line.contains("\"_value_base64\":\"//79/Pv6+fj39vX08/Lx8O/u7ezr6un"));
    for wrong in [
        "Zg", "Zg=", "Zh==", "====", "Z===", "Zg==Zg==", "Zm9 ", "Zm9v\\n", "Zm9-",
    ] {
        said(exported(&with(wrong)), &["padded base64"]);
    }
}

/// Bytes of every kind, and objects with and without the members of an item.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let member = (
        prop_oneof![
            Just("ttl"),
            Just("_key"),
            Just("_value"),
            Just("a"),
            Just("\\u0062")
        ],
        prop_oneof![
            Just("1"),
            Just("\"x,}\""),
            Just("{\"ttl\":[0]}"),
            Just("null")
        ],
        "[ \t]{0,2}",
    );
    let object = (prop::collection::vec(member, 0..4), "[ \n]{0,1}").prop_map(|(members, end)| {
        let members: Vec<_> = members
            .iter()
            .map(|(name, value, space)| format!("{space}\"{name}\"{space}:{value}{space}"))
            .collect();
        format!("{{{}{end}}}", members.join(",")).into_bytes()
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        ".{0,20}".prop_map(String::into_bytes),
        object,
    ]
}

proptest! {
    #[test]
    fn a_line_is_read_back_to_the_same_item(
        key in prop_oneof![prop::collection::vec(any::<u8>(), 1..20), ".{1,20}".prop_map(String::into_bytes)],
        value in values(),
        ttl in prop_oneof![
            Just(Ttl::Inherit),
            Just(Ttl::Never),
            (1..=2_147_483_647_u64).prop_map(|seconds| Ttl::After(Duration::from_secs(seconds))),
            (1..=2_147_483_647_000_u64).prop_map(|millis| Ttl::After(Duration::from_millis(millis))),
        ],
    ) {
        let line = shown(&key, &value, ttl);
        prop_assert!(!line.contains('\n'));
        let entry = from_json(line.as_bytes(), LineFormat::default()).unwrap();
        prop_assert_eq!(entry, Entry { key, value, ttl });
    }

    #[test]
    fn no_line_breaks_the_reader(line in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[{}\\[\\]\",:0-9a-z\\\\_ ]{0,40}".prop_map(String::into_bytes),
        values(),
    ]) {
        for from_export in [false, true] {
            if let Ok(entry) = from_json(&line, LineFormat { key: Some("a"), from_export }) {
                let again = shown(&entry.key, &entry.value, entry.ttl);
                prop_assert_eq!(from_json(again.as_bytes(), LineFormat::default()).unwrap(), entry);
            }
        }
    }
}
