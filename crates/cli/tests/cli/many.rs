//! Ranges of keys and whole containers: keys, count, delete-range, clear, drop.

use super::*;

/// A container `c` of five items.
fn filled() -> World {
    let world = World::new();
    for key in ["a", "b-1", "b-2", "b-3", "c"] {
        world.ok(&["put", "db", "c", key, &key.to_uppercase(), "--ttl", "3600"]);
    }
    world
}

#[test]
fn keys_are_listed_and_counted() {
    let world = filled();
    assert_eq!(world.ok("keys db c"), "a\nb-1\nb-2\nb-3\nc\n");
    let args = "keys db c --prefix b- --reverse --limit 2";
    assert_eq!(world.ok(args), "b-3\nb-2\n");
    let lines = world.ok("keys db c --json --to b");
    assert_eq!(json(&lines), json(r#"{"_key":"a"}"#));
    assert_eq!(world.ok("count db c"), "5\n");
    assert_eq!(world.ok("count db c --prefix b-"), "3\n");
    assert_eq!(world.ok("count db c --from b-2 --to c"), "2\n");
    let counted = world.ok("count db c --json --from x");
    assert_eq!(json(&counted), json(r#"{"container":"c","count":0}"#));
    world.ok("put db c short v --ttl 1");
    sleep(Duration::from_millis(1_001));
    assert_eq!(
        world.ok("count db c"),
        "5\n",
        "what has expired does not count"
    );
}

#[test]
fn a_range_of_keys_is_deleted() {
    let world = filled();
    let told = world.told("delete-range db c --from b-2 --to c");
    assert_eq!(told, "\"c\" deleted: 2 items");
    assert_eq!(world.ok("keys db c"), "a\nb-1\nc\n");
    let none = world.told("delete-range db c --from c --to b");
    assert_eq!(none, "\"c\" deleted: 0 items");
    assert_eq!(world.ok("keys db c"), "a\nb-1\nc\n");
    world.told("delete-range db c --prefix b --sync");
    assert_eq!(world.ok("keys db c"), "a\nc\n");
    let line = world.ok("delete-range db c --hex --from 63 --json");
    assert_eq!(
        json(&line),
        json(r#"{"container":"c","done":"deleted","items":1}"#)
    );
    assert_eq!(world.ok("keys db c"), "a\n");
    // A variable of the shell that is not set deletes nothing.
    for words in [&[][..], &["--prefix", ""], &["--from", "", "--to", ""]] {
        let why = world.fails(2, &[&["delete-range", "db", "c"], words].concat());
        assert!(why.starts_with("which keys?"), "{why}");
    }
    assert_eq!(world.ok("count db c"), "1\n");
}

#[test]
fn a_container_is_cleared_and_dropped_after_a_yes_alone() {
    let world = filled();
    world.ok("ttl db c 60");
    world.ok("put db other k v");
    for (command, would) in [
        ("clear", "--yes would clear \"c\" of about 5 items"),
        ("drop", "--yes would drop \"c\" with about 5 items"),
    ] {
        let ran = world.run_with_input(&[command, "db", "c"], b"y\n");
        assert_eq!(ran.failed(2), format!("nothing was changed: {would}"));
    }
    assert_eq!(world.ok("count db c"), "5\n");
    assert_eq!(
        world.told("clear db c --yes"),
        "\"c\" cleared: about 5 items"
    );
    assert_eq!(world.ok("count db c"), "0\n");
    assert_eq!(world.ok("ttl db c"), "60\n", "its default stays");
    world.ok("put db c k v");
    let dropped = json(&world.ok("drop db c --yes --json"));
    assert_eq!(
        dropped,
        json(r#"{"container":"c","done":"dropped","items_estimate":1}"#)
    );
    assert_eq!(world.ok("containers db"), "other\n");
    world.fails(1, "drop db c --yes");
    assert_eq!(world.ok("count db other"), "1\n");
}

/// Five items that an hour ago were written, with no ttl of their own.
fn an_hour_old() -> World {
    let world = World::new();
    let an_hour_ago = (now_seconds() - 3_600) * 1_000;
    let options = ebbtide::Options::new().clock(ebbtide::ManualClock::new(an_hour_ago));
    let db = options.open(world.path("db")).unwrap();
    let container = db.container("c").unwrap();
    for key in 0..5 {
        container.put(format!("{key}"), "v").unwrap();
    }
    db.close().unwrap();
    world
}

#[test]
fn items_are_expired_after_a_yes_alone() {
    let world = an_hour_old();
    let commands: [(&str, _); 5] = [
        ("expire db c --all", 5),
        ("expire db c --written-before -30m", 5),
        ("expire db c --written-before -2h", 0),
        ("expire db c --before +1000d", 0),
        ("ttl db c 30m", 5),
    ];
    for (args, items) in commands {
        for more in ["", " --json"] {
            let ran = world.run_with_input(&format!("{args}{more}"), b"y\n");
            let why = ran.failed(2);
            let would = format!("nothing was changed: --yes would expire about {items} items, ");
            assert!(
                why.starts_with(&would) && why.ends_with(" of \"c\""),
                "{why}"
            );
        }
    }
    assert_eq!(world.ok("count db c"), "5\n");
    assert_eq!(world.ok("ttl db c"), "-1\n");
    // Where nothing ends at once, nothing is asked.
    world.ok("ttl db c 2h");
    world.ok("ttl db c -1");
    world.ok("ttl db c off");
    world.ok("ttl db new 1");
    let told = world.told("ttl db c 30m --yes");
    assert!(told.starts_with("\"c\" expired: about 5 items, "), "{told}");
    assert_eq!(world.ok("count db c"), "0\n");
    let world = an_hour_old();
    let line = json(&world.ok("ttl db c 1800 --yes --json"));
    has(&line, r#"{"done":"expired","items_estimate":5}"#);
    for args in [
        "ttl db c 60 --preview --yes",
        "ttl db c --yes",
        "expire db c --all --dry-run --yes",
    ] {
        world.fails(2, args);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_expires_on_a_terminal_is_asked_for() {
    for args in ["expire db c --all", "ttl db c 60"] {
        let world = an_hour_old();
        for (typed, status, left) in [(&b"\n"[..], 2, "5\n"), (b"y\n", 0, "0\n")] {
            let (ended, shown) = world.run_on_terminal(args, 80, typed);
            assert!(
                shown.contains("expire about 5 items, ") && shown.contains(" of \"c\"? [y/N] "),
                "{shown}"
            );
            assert_eq!(ended, status, "{shown}");
            assert_eq!(world.ok("count db c"), left);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn on_a_terminal_the_answer_decides() {
    let world = filled();
    for (typed, status, left) in [
        (&b"n\n"[..], 2, "5\n"),
        (b"\n", 2, "5\n"),
        (b"yesterday\n", 2, "5\n"),
        (b"\x04", 2, "5\n"),
        (b"y\n", 0, "0\n"),
    ] {
        let (ended, shown) = world.run_on_terminal("clear db c", 80, typed);
        assert!(
            shown.contains("clear \"c\" of about 5 items? [y/N] "),
            "{shown}"
        );
        assert_eq!(
            (ended, shown.contains("nothing was changed")),
            (status, status == 2),
            "{shown}"
        );
        assert_eq!(world.ok("count db c"), left, "{typed:?}");
    }
    let (ended, shown) = world.run_on_terminal("drop db c", 80, b"YES\n");
    assert_eq!(ended, 0, "{shown}");
    assert_eq!(world.ok("containers db"), "");
}
