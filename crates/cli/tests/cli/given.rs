//! How keys and values are given, and what is shown of an item.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

#[test]
fn a_value_comes_by_itself_or_by_standard_input_or_from_a_file() {
    let world = World::new();
    let bytes: Vec<u8> = (0..=255).chain(*b"\r\n").collect();
    world.run_with_input("put db c input -", &bytes).ok();
    std::fs::write(world.path("file"), &bytes).unwrap();
    world.ok("put db c file @file");
    world.ok("put db c at @@file");
    world.ok("put db c ats @@@");
    // Only a value is looked at so.
    world.ok(&["put", "db", "c", "@file", "of that key"]);
    world.ok(&["put", "db", "c", "-", "of a dash"]);
    let get = |key: &str| world.run(&["get", "db", "c", key]).out;
    assert_eq!((get("input"), get("file")), (bytes.clone(), bytes));
    assert_eq!((get("at"), get("ats")), (b"@file".to_vec(), b"@@".to_vec()));
    assert_eq!(
        (get("@file"), get("-")),
        (b"of that key".to_vec(), b"of a dash".to_vec())
    );
    let put = |value: &str| world.fails(2, &["put", "new", "c", "k", value]);
    assert!(put("@missing").starts_with("cannot open missing: "));
    assert!(put("@.").starts_with("cannot read .: "));
    assert!(put("@").starts_with("value @ names no file: "));
    assert!(!world.path("new").exists());
    // An empty input gives an empty value.
    world.ok("put db c none -");
    assert_eq!(get("none"), b"");
}

#[test]
fn a_value_from_a_file_has_the_limit_of_others() {
    let world = World::new();
    let file = std::fs::File::create(world.path("file")).unwrap();
    file.set_len(64 << 20).unwrap();
    world.ok("put db c k @file");
    assert_eq!(world.run("get db c k").out.len(), 64 << 20);
    file.set_len(1 << 40).unwrap();
    let why = world.fails(2, "put db c k @file");
    assert_eq!(
        why,
        "file is too long for a value: up to 67108864 bytes (64 MiB)"
    );
}

#[test]
fn keys_and_values_can_be_given_and_shown_as_text_that_stands_for_bytes() {
    let world = World::new();
    for (form, key, value) in [
        ("--hex", "00ff0a09", "0Aff"),
        ("--base64", "AP8KCQ==", "Cv8="),
    ] {
        world.ok(&["put", "db", "c", key, value, form]);
        let shown = value.to_lowercase().replace("cv8=", "Cv8=");
        assert_eq!(
            world.ok(&["get", "db", "c", key, form]),
            format!("{shown}\n")
        );
        assert_eq!(
            world.ok(&["scan", "db", "c", form]),
            format!("{key}\t{shown}\n")
        );
        assert_eq!(world.ok(&["keys", "db", "c", form]), format!("{key}\n"));
        // Given as text; JSON has its own way to show bytes.
        let item = json(&world.ok(&["get", "db", "c", key, form, "--json"]));
        has(
            &item,
            r#"{"_key_base64":"AP8KCQ==","_value_base64":"Cv8="}"#,
        );
        world.ok(&["touch", "db", "c", key, form]);
        world.ok(&["delete", "db", "c", key, form]);
        let why = world.fails(1, &["get", "db", "c", key, form]);
        assert_eq!(why, format!("there is no item {key:?} in \"c\""));
    }
    // As `base64` and `xxd -p` print it, and through a pipe; a range is of keys.
    world
        .run_with_input("put db c YQ== - --base64", b"YWJj\nZGVm\n")
        .ok();
    world.write("dump", "61 62\n63\n");
    world.ok("put db c 62 @dump --hex");
    assert_eq!(world.ok("scan db c"), "a\tabcdef\nb\tabc\n");
    assert_eq!(world.ok("keys db c --hex --from 6100"), "62\n");
    assert_eq!(world.ok("keys db c --base64 --prefix YQ=="), "YQ==\n");
    for (form, key, value) in [
        ("--hex", "0", "00"),
        ("--hex", "0g", "00"),
        ("--base64", "YQ", "YQ=="),
        ("--base64", "YR==", "YQ=="),
        ("--base64", "YQ==", "?"),
    ] {
        let why = world.fails(2, &["put", "new", "c", key, value, form]);
        assert!(why.contains(" is not allowed: --"), "{why}");
    }
    let both = world.fails(2, "keys db c --hex --base64");
    assert!(both.contains("cannot be used with"), "{both}");
    assert!(!world.path("new").exists());
}

#[test]
fn a_key_is_any_bytes() {
    let world = World::new();
    let key = OsStr::from_bytes(b"\xff\xfe");
    let run =
        |args: &[&str], more: &[&OsStr]| Ran::of(world.command(args).args(more).output().unwrap());
    run(&["put", "db", "c"], &[key, OsStr::from_bytes(b"\x80")]).ok();
    assert_eq!(run(&["get", "db", "c"], &[key]).out, b"\x80");
    world.ok("put db c a 1");
    // Behind the last key of a prefix that ends in 0xff lies what begins with the next byte before it.
    let prefix = |prefix: &[u8]| {
        run(
            &["count", "db", "c", "--prefix"],
            &[OsStr::from_bytes(prefix)],
        )
        .ok()
    };
    assert_eq!(
        (prefix(b"\xff"), prefix(b"\xff\xff"), prefix(b"a")),
        ("1\n".into(), "0\n".into(), "1\n".into())
    );
    world.ok("put db c 61ff01 02 --hex");
    world.ok("put db c 62 03 --hex");
    assert_eq!(prefix(b"a\xff"), "1\n");
    run(&["delete", "db", "c"], &[key]).ok();
    assert_eq!(world.ok("count db c"), "3\n");
    let why = run(&["get", "db", "c"], &[key]).failed(1);
    assert_eq!(why, "there is no item \"\u{fffd}\u{fffd}\" in \"c\"");
    // A container's name is text.
    let why = run(&["count", "db"], &[key]).failed(2);
    assert!(why.contains("invalid UTF-8"), "{why}");
}

#[test]
fn an_item_shows_how_long_it_still_lives() {
    let world = World::new();
    world.ok("put db c hour v --ttl 3600");
    world.ok(&["put", "db", "c", "no end", "v"]);
    let item = |key: &str| json(&world.ok(&["get", "db", "c", key, "--json"]));
    let left = item("hour")["_remaining"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&left), "{left}");
    assert_eq!(item("no end")["_remaining"], Value::Null);
    assert!(
        item("no end")
            .as_object()
            .unwrap()
            .contains_key("_remaining")
    );
    // Such a line is one that import reads.
    let line = world.run("get db c hour --json").out;
    world.run_with_input("import copy c -", &line).told();
    assert_eq!(world.ok("get copy c hour"), "v");
}

#[test]
fn a_ttl_that_does_not_count_is_said() {
    let world = World::new();
    world.ok("ttl db c off");
    let warning =
        "but ttl is off in \"c\", so nothing expires there; `ebbtide ttl db c -1` turns it on";
    let put = |ttl: &str| world.run(&["put", "db", "c", "k", "v", "--ttl", ttl]);
    assert_eq!(
        put("60").told(),
        format!("ebbtide: the item has a ttl, {warning}")
    );
    put("-1").ok();
    world.ok("put db c k v");
    world.write(
        "in.jsonl",
        "{\"id\":1,\"ttl\":5}\n{\"id\":2,\"ttl\":-1}\n{\"id\":3}\n",
    );
    let ran = world.run("import db c in.jsonl --key id");
    let said: Vec<_> = ran.err.lines().collect();
    let expected = format!("ebbtide: 1 line with a ttl stored, {warning}");
    assert_eq!(said, [expected.as_str(), "3 lines imported"]);
    world.ok("ttl db c -1");
    put("60").ok();
    assert_eq!(
        world.told("import db c in.jsonl --key id"),
        "3 lines imported"
    );
}

#[test]
fn what_is_written_with_sync_is_written() {
    let world = World::new();
    world.ok("put db c a 1 --sync");
    world.ok("put db c b 2 --sync --ttl 60");
    world.ok("touch db c a --sync");
    world.ok("delete db c b --sync");
    world.write("in.jsonl", "{\"id\":1}\n");
    world.told("import db c in.jsonl --key id --sync");
    assert_eq!(world.ok("scan db c"), "1\t{\"id\":1}\na\t1\n");
    let why = world.fails(2, "get db c a --sync");
    assert!(why.contains("unexpected argument '--sync'"), "{why}");
}

/// Items that a program stored with types are shown as `TypedContainer` reads them.
#[test]
fn items_of_typed_containers_are_shown_and_written() {
    let world = World::new();
    let open = || ebbtide::Database::open(world.path("db")).unwrap();
    let put = || -> ebbtide::Result<()> {
        let db = open();
        let names = db.typed::<String, ebbtide::Json<Vec<u32>>>("names")?;
        names.put("ada", &vec![18, 15])?;
        let numbers = db.typed::<(u16, String), (bool, String)>("numbers")?;
        numbers.put((258, "x"), &(true, "ada".into()))
    };
    put().unwrap();
    assert_eq!(world.ok("get db names ada"), "[18,15]");
    assert_eq!(world.ok("scan db names"), "ada\t[18,15]\n");
    assert_eq!(world.ok("get db numbers --hex 010278"), "0103616461\n");
    assert_eq!(world.ok("get db numbers --base64 AQJ4"), "AQNhZGE=\n");
    world.ok("put db names bob [1]");
    world.ok("put db numbers --hex 010379 0000");
    let get = || -> ebbtide::Result<_> {
        let db = open();
        let names = db.typed::<String, ebbtide::Json<Vec<u32>>>("names")?;
        let numbers = db.typed::<(u16, String), (bool, String)>("numbers")?;
        Ok((names.get("bob")?, numbers.get((259, "y"))?))
    };
    assert_eq!(
        get().unwrap(),
        (Some(vec![1]), Some((false, String::new())))
    );
}

#[test]
fn a_quota_is_shown_set_and_lifted() {
    let world = World::new();
    world.ok("put db c a v");
    assert_eq!(world.ok("quota db c"), "none\n");
    world.ok("quota db c 40");
    assert_eq!(world.ok("quota db c"), "40 refuse\n");
    let why = world.run("put db c b 0123456789").failed(2);
    assert!(
        why.contains("container \"c\" is full: about 18 of 40 bytes"),
        "{why}"
    );
    world.ok("quota db c 40 --when-full expire-soonest");
    let shown = json(&world.ok("quota db c --json"));
    let quota = &shown["quota"];
    has(
        quota,
        r#"{"max_live_bytes":40,"when_full":"expire-soonest"}"#,
    );
    assert_eq!(json(&world.ok("stats db c --json"))["quota"], *quota);
    assert!(world.ok("stats db c").contains("40 expire-soonest"));
    world.ok("quota db c 64MiB");
    assert_eq!(world.ok("quota db c"), "67108864 refuse\n");
    world.ok("quota db c none");
    assert_eq!(world.ok("quota db c"), "none\n");
    for wrong in [
        "quota db c much",
        "quota db c 0",
        "quota db c 10M",
        "quota db c 9 --when-full x",
    ] {
        world.run(wrong).failed(2);
    }
    // Only what stores items makes a container.
    for missing in ["quota db typo 9", "quota db typo none"] {
        assert_eq!(
            world.run(missing).failed(1),
            "there is no container \"typo\""
        );
    }
    assert_eq!(world.ok("containers db"), "c\n");
}

#[test]
fn why_a_key_is_found_or_not_is_told() {
    let world = World::new();
    world.ok("put db c k v --ttl 3600");
    assert!(world.ok("why db c k").contains(": live, ends at "));
    // A follower, as which the command reads, does not know the segments.
    let place = world.ok("why db c k");
    assert!(place.contains("\n  in memory, and in the log\n"), "{place}");
    world.told("expire db c --all --yes");
    let told = world.ok("why db c k");
    assert!(
        told.starts_with("not found at ") && told.contains("expired by the command"),
        "{told}"
    );
    let shown = json(&world.ok("why db c k --json"));
    assert_eq!(
        (&shown["live"], &shown["versions"][0]["bytes"]),
        (&false.into(), &2.into())
    );
    world.run("why db c none").failed(1);
    let why = world.run("why db typo k").failed(1);
    assert_eq!(why, "there is no container \"typo\"");
    world.run(&["why", "db", "c", ""]).failed(2);
}
