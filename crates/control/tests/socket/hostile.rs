//! Clients that send what none would, too much, too slowly, or nothing.

use proptest::prelude::*;

use super::*;

#[test]
fn what_is_no_request_is_refused_in_words() {
    let service = Service::new();
    let of = |request: &str| format!("{{\"version\":1,\"request\":{request}}}\n");
    let open = of(&"[".repeat(100_000));
    let deep = of(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let cases = [
        ("\n", "is no request"),
        ("null\n", "is no request"),
        ("{}\n", "missing field"),
        ("{\"version\":1}\n", "missing field"),
        ("{\"version\":2,\"request\":{}}\n", "asked in version 2"),
        (&of("\"demolish\""), "unknown variant"),
        (&of("{\"compact\":null,\"state\":null}"), "is no request"),
        (&of("{\"state\":{\"container\":1}}"), "is no request"),
        (
            &of("{\"change\":{\"container\":\"c\",\"change\":{\"delete\":{\"key\":\"%\"}}}}"),
            "is no request",
        ),
        (
            &of("{\"change\":{\"container\":\"c\",\"change\":{\"default_ttl\":\"soon\"}}}"),
            "is no request",
        ),
        (
            &of("{\"change\":{\"container\":\"c\",\"change\":{\"default_ttl\":\"7d\",\"x\":1}}}"),
            "is no request",
        ),
        (
            &of("{\"state\":{\"container\":\"c\",\"more\":1}}"),
            "unknown field",
        ),
        (&open, "is no request"),
        (&deep, "is no request"),
        ("\u{0}\u{0}\n", "is no request"),
        ("{}\n{}\n", "takes one request"),
    ];
    for (said, why) in cases {
        let answer = service.say(said.as_bytes());
        let said = &said[..said.len().min(100)];
        assert!(
            answer.starts_with("{\"failed\":{\"refused\":\"") && answer.contains(why),
            "{said:?}: {answer}"
        );
        assert!(answer.ends_with("}}\n"), "{answer}");
    }
    let name = of("{\"change\":{\"container\":\"a/b\",\"change\":{\"default_ttl\":\"7d\"}}}");
    let answer = service.say(name.as_bytes());
    assert!(answer.contains("container name"), "{answer}");
    assert!(service.db.containers().is_empty());
    service.still_answers();
}

/// How every refusal begins.
const FAILED: &str = "{\"failed\":";

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Lines of random bytes, and requests with some bytes changed, are answered by a line that says why, or done.
    #[test]
    fn random_lines_do_no_harm(
        noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 8),
        at in prop::collection::vec((0..100_usize, any::<u8>()), 1..4),
    ) {
        let service = Service::new();
        for mut line in noise {
            line.retain(|byte| *byte != b'\n');
            line.push(b'\n');
            prop_assert!(service.say(&line).starts_with(FAILED), "{}", line.escape_ascii());
        }
        let mut line = b"{\"version\":1,\"request\":{\"preview\":{\"container\":\"c\",\"change\":\"clear\"}}}\n".to_vec();
        let last = line.len() - 1;
        for (at, byte) in at {
            let byte = if byte == b'\n' { b' ' } else { byte };
            line[at % last] = byte;
        }
        prop_assert!(service.say(&line).starts_with(FAILED), "{}", line.escape_ascii());
        service.still_answers();
    }
}

#[test]
fn a_request_that_does_not_come_is_not_waited_for() {
    let patience = Duration::from_millis(200);
    let options = Options::new().patience(patience);
    let service = Service::with(ebbtide::Options::new(), options);
    // Nothing, a half, and byte by byte: none of them holds a place for long.
    let silent = service.connection();
    service.still_answers();
    drop(silent);
    let mut half = service.connection();
    half.write_all(b"{\"version\":1,\"requ").unwrap();
    service.still_answers();
    let mut said = String::new();
    half.read_to_string(&mut said).unwrap();
    assert!(said.contains("took too long"), "{said}");
    let mut slow = service.connection();
    let mut bytes = 0;
    while slow.write_all(b" ").is_ok() {
        bytes += 1;
        assert!(bytes < 4_000, "it waits for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(bytes > 1);
    let left = service.say(b"{\"version\":1");
    assert!(left.contains("took too long"), "{left}");
    service.still_answers();
}

#[test]
fn a_line_without_an_end_is_left_at_its_limit() {
    let service = Service::new();
    let mut stream = service.connection();
    let piece = vec![b' '; 1 << 20];
    let mut sent = 0_u64;
    while stream.write_all(&piece).is_ok() {
        sent += 1;
        assert!(sent < 1_000, "it reads for ever");
    }
    assert!(sent >= 128, "{sent} MiB");
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    assert!(said.contains("too long"), "{said}");
    service.still_answers();
}

#[test]
fn a_long_request_passes() {
    let service = Service::new();
    let value: Vec<u8> = (0..8 << 20).map(|at| at as u8).collect();
    let item = ebbtide_control::NewItem {
        key: vec![255; 65_535],
        value: value.clone(),
        ttl: ebbtide::Ttl::Never,
    };
    let put = Request::change("c", ebbtide_control::Change::Put(vec![item]));
    service.ask(&put).unwrap();
    assert!(service.container().get(vec![255; 65_535]).unwrap().unwrap() == value);
}

/// A thousand connect and say nothing: so many are kept as the options say, all others are sent away at once.
#[test]
fn a_thousand_connections_keep_two_places() {
    let options = Options::new().clients(2).patience(Duration::from_secs(2));
    let service = Service::with(ebbtide::Options::new(), options);
    let mut kept = vec![];
    for _ in 0..1_000 {
        let mut stream = service.connection();
        if kept.len() < 2 {
            kept.push(stream);
            continue;
        }
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "{\"failed\":\"busy\"}\n");
    }
    // They are left after their time, or at once when they leave.
    drop(kept);
    service.still_answers();
}

#[test]
fn a_client_that_leaves_is_nobodys_trouble() {
    let service = Service::with(ebbtide::Options::new(), Options::new().clients(1));
    for _ in 0..20 {
        let mut stream = service.connection();
        let _ = stream.write_all(b"{\"version\":1,\"request\":\"compact\"}\n");
        drop(stream);
    }
    service.still_answers();
}
