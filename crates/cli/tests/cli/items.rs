//! Single items, scans, and the default ttl.

use super::*;

#[test]
fn an_item_is_put_read_touched_and_deleted() {
    let world = World::new();
    assert_eq!(world.ok(&["put", "db", "c", "key", "caf\u{e9}"]), "");
    assert_eq!(world.ok("get db c key"), "caf\u{e9}");
    let item = json(&world.ok("get db c key --json"));
    has(&item, r#"{"_key":"key","_value":"café"}"#);
    assert_eq!(item.get("ttl"), None);
    assert!(item["_ts"].as_u64().unwrap().abs_diff(now_seconds()) < 600);
    assert_eq!(world.ok("touch db c key"), "");
    assert_eq!(world.ok("delete db c key"), "");
    assert_eq!(world.ok("delete db c key"), "");
    let missing = "there is no item \"key\" in \"c\"";
    assert_eq!(world.fails(1, "get db c key"), missing);
    assert_eq!(world.fails(1, "touch db c key"), missing);
}

#[test]
fn words_that_look_like_options_are_keys_and_values() {
    let world = World::new();
    world.ok("put db c -5 -7.5 --ttl -1");
    assert_eq!(world.ok("get db c -5"), "-7.5");
    world.ok("put db c -- --key --value");
    assert_eq!(world.ok("get db c -- --key"), "--value");
}

#[test]
fn an_item_is_gone_when_its_ttl_is_over() {
    let world = World::new();
    world.ok("ttl db c -1");
    world.ok("put db c short 1 --ttl 1");
    world.ok("put db c long 2 --ttl 2147483647");
    world.ok("put db c never 3 --ttl -1");
    let item = json(&world.ok("get db c long --json"));
    assert_eq!(item["ttl"], 2_147_483_647);
    assert_eq!(json(&world.ok("get db c never --json"))["ttl"], -1);
    sleep(Duration::from_millis(1_001));
    world.fails(1, "get db c short");
    world.fails(1, "touch db c short");
    assert_eq!(world.ok("scan db c"), "long\t2\nnever\t3\n");
}

#[test]
fn a_ttl_out_of_range_is_refused_and_nothing_is_stored() {
    let world = World::new();
    world.ok("put db c there before");
    for given in [
        "0",
        "-2",
        "2147483648",
        "null",
        "\"60\"",
        "1.5",
        "1500ms",
        "1M",
        "",
        "99999999999999999999",
    ] {
        let why = world.fails(2, &["put", "db", "c", "there", "after", "--ttl", given]);
        assert!(
            why.starts_with(&format!("ttl {given} is not allowed: -1 (never), or ")),
            "{why}"
        );
        let why = world.fails(2, &["ttl", "db", "c", given]);
        assert!(
            why.starts_with(&format!("default ttl {given} is not allowed: off, -1")),
            "{why}"
        );
        world.write(
            "in.jsonl",
            &format!("{{\"id\":\"there\",\"ttl\":{given}}}\n"),
        );
        let why = world.fails(2, "import db c in.jsonl --key id");
        assert!(why.starts_with("line 1: "), "{why}");
    }
    assert_eq!(world.ok("scan db c"), "there\tbefore\n");
    assert_eq!(world.ok("ttl db c"), "-1\n");
    world.fails(2, "put new c k v --ttl 0");
    assert!(!world.path("new").exists());
}

#[test]
fn keys_and_names_have_limits() {
    let world = World::new();
    let (longest, longer) = ("k".repeat(65_535), "k".repeat(65_536));
    world.ok(&["put", "db", "c", &longest, "v"]);
    assert_eq!(world.ok(&["get", "db", "c", &longest]), "v");
    let why = world.fails(2, &["put", "db", "c", &longer, "v"]);
    assert_eq!(why, "key of 65536 bytes is not allowed: 1 to 65535 bytes");
    let why = world.fails(2, &["put", "db", "c", "", "v"]);
    assert_eq!(why, "key of 0 bytes is not allowed: 1 to 65535 bytes");
    world.ok(&["put", "db", &"n".repeat(255), "k", "v"]);
    for name in ["", "a/b", &"n".repeat(256)] {
        let why = world.fails(2, &["put", "db", name, "k", "v"]);
        assert!(why.starts_with("container name "), "{why}");
    }
    assert_eq!(
        world.ok("containers db"),
        format!("c\n{}\n", "n".repeat(255))
    );
}

#[test]
fn a_scan_shows_what_it_was_asked_for() {
    let world = World::new();
    for key in ["a", "b-1", "b-2", "b-3", "c"] {
        world.ok(&["put", "db", "c", key, &key.to_uppercase()]);
    }
    let scan = |options: &str| {
        let lines = world.ok(&format!("scan db c {options}"));
        let keys: Vec<_> = lines
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned())
            .collect();
        keys.join(" ")
    };
    assert_eq!(world.ok("scan db c --limit 2"), "a\tA\nb-1\tB-1\n");
    assert_eq!(scan(""), "a b-1 b-2 b-3 c");
    assert_eq!(scan("--reverse"), "c b-3 b-2 b-1 a");
    assert_eq!(scan("--prefix b-"), "b-1 b-2 b-3");
    assert_eq!(scan("--prefix b- --reverse --limit 1"), "b-3");
    assert_eq!(scan("--prefix b- --from b-2"), "b-2 b-3");
    assert_eq!(scan("--prefix b- --from a --to b-2"), "b-1");
    assert_eq!(scan("--from b-2 --to c"), "b-2 b-3");
    assert_eq!(scan("--from c --to b"), "");
    assert_eq!(scan("--prefix b- --to b"), "");
    assert_eq!(scan("--prefix b- --from c"), "");
    let all = world.ok("scan db c");
    assert_eq!(world.ok(&["scan", "db", "c", "--prefix", ""]), all);
    assert_eq!(scan("--limit 0"), "");
    let first = world.ok("scan db c --limit 1 --json");
    assert_eq!(json(&first)["_value"], "A");
}

#[test]
fn the_default_ttl_is_shown_and_set() {
    let world = World::new();
    for (text, shown) in [
        ("off", "null"),
        ("-1", "-1"),
        ("1", "1"),
        ("2147483647", "2147483647"),
    ] {
        assert_eq!(world.ok(&["ttl", "db", "c", text]), "");
        assert_eq!(world.ok("ttl db c"), format!("{text}\n"));
        let line = json(&world.ok("ttl db c --json"));
        assert_eq!(line["default_ttl"], json(shown));
    }
    for (text, seconds) in [
        ("90", 90),
        ("30m", 1_800),
        ("1h30m", 5_400),
        ("7d", 604_800),
    ] {
        world.ok(&["ttl", "db", "c", text]);
        assert_eq!(world.ok("ttl db c"), format!("{seconds}\n"));
        world.ok(&["put", "db", "other", "k", "v", "--ttl", text]);
        let item = json(&world.ok("get db other k --json"));
        assert_eq!(item["ttl"], seconds);
    }
    world.ok("put db c k v");
    world.ok("ttl db c 1");
    sleep(Duration::from_millis(1_001));
    world.fails(1, "get db c k");
    world.ok("ttl db c off");
    world.fails(1, "get db c k");
}

#[test]
fn items_are_expired_on_command() {
    let world = World::new();
    for (key, ttl) in [("day", "86400"), ("hour", "3600"), ("never", "-1")] {
        world.ok(&["put", "db", "c", key, "v", "--ttl", ttl]);
    }
    let dry = |which: &str| world.ok(&format!("expire db c --dry-run {which}"));
    assert_eq!(
        dry("--before +2h").split(',').next(),
        Some("would expire about 1 item")
    );
    assert!(dry("--before 2200-01-01").starts_with("would expire about 2 items, "));
    assert!(dry("--written-before -1h").starts_with("would expire about 0 items, "));
    let line = json(&world.ok("expire db c --all --dry-run --json"));
    has(&line, r#"{"done":"nothing","items_estimate":3}"#);
    assert_eq!(world.ok("keys db c"), "day\nhour\nnever\n");
    let told = world.told("expire db c --before +2h --yes");
    assert!(told.starts_with("\"c\" expired: about 1 item, "), "{told}");
    assert_eq!(world.ok("keys db c"), "day\nnever\n");
    world.told("expire db c --written-before -1h --yes");
    assert_eq!(world.ok("keys db c"), "day\nnever\n");
    let line = json(&world.ok("expire db c --written-before +0s --yes --json"));
    has(&line, r#"{"done":"expired","items_estimate":2}"#);
    assert_eq!(world.ok("keys db c"), "");
    world.ok("put db c later v");
    assert_eq!(world.ok("keys db c"), "later\n");
    world.told("expire db c --all --yes");
    assert_eq!(world.ok("keys db c"), "");
    world.fails(2, "expire db c");
    world.fails(2, "expire db c --all --before 0");
    let refused = world.fails(2, "expire db c --before soon");
    assert!(
        refused.starts_with("moment soon is not allowed: "),
        "{refused}"
    );
    world.fails(1, "expire db other --all");
    world.fails(1, "expire db other --all --dry-run");
}

/// The milliseconds that `export` and `get --json` print are no seconds, and nothing was written in the future.
#[test]
fn a_slip_of_units_expires_nothing() {
    let world = World::new();
    world.ok("put db c k v");
    let line = json(&world.ok("get db c k --json"));
    let millis = line["_ts_ms"].to_string();
    for which in ["--written-before", "--before"] {
        for more in ["--yes", "--dry-run"] {
            let why = world.fails(2, &["expire", "db", "c", which, &millis, more]);
            let readings = ["(in seconds the year 5", ", in milliseconds 20"];
            assert!(
                readings.iter().all(|reading| why.contains(reading)),
                "{why}"
            );
        }
    }
    for ahead in ["2999-01-01", "+1000d", "+60", "99999999999"] {
        let args = ["expire", "db", "c", "--written-before", ahead, "--yes"];
        let why = world.fails(2, &args);
        assert!(
            why.starts_with(&format!("--written-before {ahead} is not allowed: ")),
            "{why}"
        );
    }
    assert_eq!(world.ok("keys db c"), "k\n");
    world.told(&[
        "expire",
        "db",
        "c",
        "--written-before",
        &line["_ts"].to_string(),
        "--yes",
    ]);
    assert_eq!(world.ok("keys db c"), "k\n");
    world.told("expire db c --before 2999-01-01T00:00:00+01:00 --yes");
    assert_eq!(world.ok("keys db c"), "k\n", "it has no end");
}

#[test]
fn a_default_is_tried_before_it_is_set() {
    let world = World::new();
    world.ok(&["put", "db", "c", "old", &"v".repeat(1_000)]);
    sleep(Duration::from_millis(2_100));
    world.ok("put db c new v");
    world.ok("put db c never v --ttl -1");
    let shown = world.ok("ttl db c 2 --preview");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].starts_with("would expire about 1 item, "),
        "{shown}"
    );
    let bars: Vec<bool> = lines[1..].iter().map(|line| line.contains('█')).collect();
    assert_eq!(bars, [true, true, false, false], "{shown}");
    assert!(
        lines[2].trim().starts_with("2s ") && lines[2].ends_with(" <"),
        "{shown}"
    );
    let shown = json(&world.ok("ttl db c 2 --preview --json"));
    assert_eq!(shown["items_estimate"], 1);
    assert_eq!(shown["beside"].as_array().unwrap().len(), 4);
    let nothing = world.ok("ttl db c off --preview");
    assert!(
        nothing.starts_with("would expire about 0 items, 0 B of "),
        "{nothing}"
    );
    assert_eq!(world.ok("keys db c"), "never\nnew\nold\n");
    assert_eq!(world.ok("ttl db c"), "-1\n");
    world.fails(2, "ttl db c --preview");
}

#[test]
fn a_change_says_in_json_what_it_did() {
    let world = World::new();
    let line = |args: &str| json(&world.ok(&format!("{args} --json")));
    let put = line("put db c k v --ttl 1h");
    assert_eq!(put, json(r#"{"container":"c","done":"put","items":1}"#));
    let touched = line("touch db c k");
    let end = touched["expires_at_ms"].as_u64().unwrap() / 1_000;
    assert_eq!(touched["done"], "touched");
    assert!((now_seconds() + 3_500..now_seconds() + 3_700).contains(&end));
    for items in [1, 0] {
        let deleted = line("delete db c k");
        assert_eq!(
            (&deleted["done"], &deleted["items"]),
            (&"deleted".into(), &items.into())
        );
    }
    let set = line("ttl db c 7d");
    has(&set, r#"{"done":"expired","items_estimate":0}"#);
    let quota = line("quota db c 1KiB");
    assert_eq!(quota["quota"]["max_live_bytes"], 1_024);
    assert_eq!(line("quota db c none")["quota"], Value::Null);
}

#[test]
fn a_quota_that_is_exceeded_already_is_said() {
    let world = World::new();
    world.ok(&["put", "db", "c", "k", &"v".repeat(2_000)]);
    let told = world.told("quota db c 1kB");
    assert!(
        told.starts_with("\"c\" holds about 2.0 KiB already: "),
        "{told}"
    );
    let told = world.told("quota db c 1kB --when-full expire-soonest");
    assert!(
        told.ends_with("the next write expires what ends soonest"),
        "{told}"
    );
    world.ok("quota db c 10kB");
}

#[test]
fn a_container_that_is_nearly_named_is_told() {
    let world = World::new();
    world.ok("put db sessions k v");
    for command in ["get", "delete", "touch", "why"] {
        let why = world.fails(1, &[command, "db", "sesions", "k"]);
        assert_eq!(
            why,
            "there is no container \"sesions\"; is it \"sessions\"?"
        );
    }
    let other = world.fails(1, "get db carts k");
    assert_eq!(other, "there is no container \"carts\"");
}
