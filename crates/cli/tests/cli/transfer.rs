//! Import and export.

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::*;

#[test]
fn values_have_a_limit() {
    let world = World::new();
    let line = |key: &str, len: usize| {
        format!(
            "{{\"_key\":\"{key}\",\"_value\":\"{}\"}}\n",
            "v".repeat(len)
        )
    };
    world.write(
        "in.jsonl",
        &(line("longest", 64 << 20) + &line("longer", (64 << 20) + 1)),
    );
    let why = world.fails(2, "import db c in.jsonl --from-export");
    assert_eq!(
        why,
        "line 2: value of 67108865 bytes is not allowed: up to 67108864 bytes (64 MiB) (stored before it: 1 line)"
    );
    assert_eq!(world.ok("get db c longest").len(), 64 << 20);
}

#[test]
fn export_and_import_keep_keys_values_and_ttls() {
    let world = World::new();
    let lines = [
        r#"{"id":"object","n":1e999,"n":[{"ttl":0}], "spaced" : true}"#,
        r#"{"id":7,"ttl":60}"#,
        r#"{"_key":"text","_value":"line one\nline two\ttab \u0000","ttl":-1}"#,
        r#"{"_key":"own member","_value":"{\"ttl\":5}"}"#,
        r#"{"_key_base64":"/w==","_value_base64":"AP8=","ttl":2147483647}"#,
        r#"{"_key":"empty","_value":""}"#,
    ];
    world.write("in.jsonl", &(lines.join("\r\n\n") + "\n"));
    assert_eq!(
        world.told("import db c in.jsonl --key id --from-export"),
        "6 lines imported"
    );
    assert_eq!(world.ok("get db c object"), lines[0]);
    assert_eq!(world.ok("get db c 7"), r#"{"id":7}"#);
    assert_eq!(world.ok(&["get", "db", "c", "own member"]), r#"{"ttl":5}"#);
    assert_eq!(world.told("export db c out.jsonl"), "6 items exported");
    let exported = std::fs::read(world.path("out.jsonl")).unwrap();
    assert_eq!(world.run("export db c").out, exported);
    assert_eq!(world.run("export db c -").out, exported);
    assert!(!world.path("-").exists());
    assert_eq!(world.run("scan db c --json").out, exported);
    let imported = world.run_with_input("import copy c - --json", &exported);
    assert_eq!(json(&imported.ok()), json(r#"{"imported":6,"skipped":0}"#));
    assert_eq!(world.run("scan db c").out, world.run("scan copy c").out);
    let without_ts = |db: &str| {
        let lines = exported_lines(&world, db);
        let mut items: Vec<_> = lines.lines().map(json_without_ts).collect();
        items.sort();
        items
    };
    assert_eq!(without_ts("db"), without_ts("copy"));
}

/// Objects of other programs have members of these names, with another meaning.
#[test]
fn members_of_own_objects_stay() {
    let world = World::new();
    for (key, field, line) in [
        (
            "users/1",
            "_id",
            r#"{"_id":"users/1","_key":"1","_rev":"_ZmC","name":"ada"}"#,
        ),
        (
            "1",
            "_key",
            r#"{"_id":"users/1","_key":"1","_rev":"_ZmC","name":"ada"}"#,
        ),
        (
            "a",
            "id",
            r#"{"id":"a","_rid":"x==","_etag":"\"0\"","_ts":1556000000}"#,
        ),
        (
            "e-1",
            "id",
            r#"{"id":"e-1","_ts":"2026-01-01T00:00:00Z","_ts_ms":null}"#,
        ),
        ("2", "_key", r#"{"_key":"2","_rev":"_Zm","name":"ada"}"#),
        ("t-1", "id", r#"{"id":"t-1","_remaining":30,"_ttl_ms":5}"#),
        (
            "m-1",
            "id",
            r#"{"id":"m-1","_value":5,"_value_base64":"!","unit":"ms"}"#,
        ),
        ("5f0c", "_id", r#"{"_id":{"$oid":"5f0c"},"_key_base64":[]}"#),
    ] {
        world.write("in.jsonl", line);
        for more in [&[][..], &["--sorted"]] {
            let args = [&["import", "db", "c", "in.jsonl", "--key", field], more].concat();
            assert_eq!(world.told(&args), "1 line imported");
            assert_eq!(world.ok(&["get", "db", "c", key]), line);
        }
    }
    // A time of its own may still be the one that is kept.
    let line = r#"{"id":"late","_ts":1556000000,"ttl":60}"#;
    world.write("in.jsonl", line);
    assert_eq!(
        world.told("import db c in.jsonl --key id --keep-times"),
        "1 line imported, 1 of them expired already"
    );
    // All of it comes back from an export.
    let exported = exported_lines(&world, "db");
    let import = |more: &[&'static str]| [&["import", "copy", "c", "-"], more].concat();
    world
        .run_with_input(&import(&[]), exported.as_bytes())
        .told();
    let values = |db| world.ok(&["scan", db, "c"]);
    assert_eq!(values("copy"), values("db"));
    // Lines stay an export's where some are missing, and in another order.
    let mut some: Vec<_> = exported.lines().skip(1).collect();
    some.reverse();
    let ran = world.run_with_input(&import(&["--json"]), some.join("\n").as_bytes());
    assert_eq!(json(&ran.ok())["imported"], some.len());
    assert_eq!(values("copy"), values("db"));
}

#[test]
fn a_line_that_may_be_meant_in_two_ways_is_refused() {
    let world = World::new();
    world.ok(&["put", "db", "c", "k", "{\"id\":\"own\"}", "--ttl", "60"]);
    let exported = exported_lines(&world, "db");
    // As a build wrote it that did not know `_ts_ms` yet.
    let older = "{\"_key\":\"k\",\"_ts\":1556000000,\"ttl\":60,\"id\":\"own\"}\n";
    let import = |line: &str, more: &[&str]| {
        let args = [&["import", "copy", "c", "-"], more].concat();
        world.run_with_input(&args, line.as_bytes())
    };
    let why = import(&exported, &["--key", "id"]).failed(2);
    assert!(why.contains("--from-export"), "{why}");
    let why = import(older, &[]).failed(2);
    assert!(
        why.contains("--from-export") && why.contains("--key"),
        "{why}"
    );
    assert!(!world.path("copy").exists());
    for (line, key) in [(&*exported, "k"), (older, "k")] {
        import(line, &["--from-export"]).told();
        assert_eq!(
            world.ok("scan copy c"),
            format!("{key}\t{{\"id\":\"own\"}}\n")
        );
        let item = json(&world.ok(&["get", "copy", "c", key, "--json"]));
        assert_eq!(item["ttl"], 60);
    }
    import(&exported, &["--from-export", "--key", "id"]).told();
    assert_eq!(world.ok("get copy c own"), "{\"id\":\"own\"}");
}

/// The lines that export prints of container `c`.
fn exported_lines(world: &World, db: &str) -> String {
    let ran = world.run(&["export", db, "c"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    String::from_utf8(ran.out).unwrap()
}

/// A line's text but for the times in it; numbers too big for a parser stand in some of them.
fn json_without_ts(line: &str) -> String {
    let mut line = line.to_owned();
    for name in ["\"_ts\":", "\"_ts_ms\":"] {
        let (before, rest) = line.split_once(name).unwrap();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        line = format!("{before}{}", &rest[digits..]);
    }
    line
}

#[test]
fn sorted_lines_are_loaded_at_once_or_not_at_all() {
    let world = World::new();
    world.ok("put db c b before");
    let import = |lines: &[&str], more: &[&str]| {
        world.write("in.jsonl", &lines.join("\n"));
        let given = ["import", "db", "c", "in.jsonl", "--key", "id", "--sorted"];
        world.run(&[&given, more].concat())
    };
    let (a, b, c) = (
        r#"{"id":"a","ttl":60}"#,
        r#"{"id":"b","n":2}"#,
        r#"{"id":"c"}"#,
    );
    for lines in [[a, c, b], [a, b, b]] {
        let ran = import(&lines, &[]);
        let why = r#"line 3: its key "b" is not above the one before it (nothing was stored)"#;
        assert_eq!(
            (ran.status, ran.err.trim()),
            (2, &*format!("ebbtide: {why}"))
        );
        assert_eq!(world.ok("scan db c"), "b\tbefore\n");
    }
    let ran = import(&[a, "{", c], &[]);
    assert!(
        ran.err.contains("line 2") && ran.err.contains("nothing was stored"),
        "{}",
        ran.err
    );
    assert_eq!(world.ok("scan db c"), "b\tbefore\n");
    let ran = import(&[a, "{", b, c], &["--skip-bad"]);
    assert!(
        ran.err.contains("3 lines imported, 1 bad line skipped"),
        "{}",
        ran.err
    );
    let stored = "a\t{\"id\":\"a\"}\nb\t{\"id\":\"b\",\"n\":2}\nc\t{\"id\":\"c\"}\n";
    assert_eq!(world.ok("scan db c"), stored);
    // As export writes them.
    let exported = world.run("export db c").out;
    let imported = world.run_with_input("import copy c - --sorted --json", &exported);
    assert_eq!(json(&imported.ok()), json(r#"{"imported":3,"skipped":0}"#));
    assert_eq!(world.run("export copy c").out.len(), exported.len());
}

#[test]
fn bad_lines_are_named_and_stop_an_import() {
    let world = World::new();
    let lines =
        "{\"id\":1}\n\n{\"id\":null}\nno json\n{\"id\":2,\"ttl\":0}\n{\"x\":1}\n{\"id\":3}\n";
    world.write("in.jsonl", lines);
    let why = world.fails(2, "import db c in.jsonl --key id");
    assert!(
        why.starts_with("line 3: key null is not allowed: "),
        "{why}"
    );
    assert!(why.ends_with("(stored before it: 1 line)"), "{why}");
    assert_eq!(world.ok("scan db c"), "1\t{\"id\":1}\n");
    let ran = world.run("import db c in.jsonl --key id --skip-bad");
    assert_eq!((ran.status, ran.out.as_slice()), (0, &b""[..]));
    let (named, done) = ran.err.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(done, "2 lines imported, 4 bad lines skipped");
    let named: Vec<_> = named
        .lines()
        .map(|line| line.split(": ").nth(1).unwrap())
        .collect();
    assert_eq!(named, ["line 3", "line 4", "line 5", "line 6"]);
    assert_eq!(world.ok("scan db c"), "1\t{\"id\":1}\n3\t{\"id\":3}\n");
    let ran = world.run_with_input("import db c - --key id", b"{\"id\":\"\xff\"}");
    assert!(ran.failed(2).starts_with("line 1: "));
    let why = world.fails(2, "import other c missing.jsonl --key id");
    assert!(why.starts_with("cannot open missing.jsonl: "), "{why}");
    assert!(!world.path("other").exists());
}

#[test]
fn of_many_bad_lines_the_first_twenty_are_named() {
    let world = World::new();
    for (bad, last) in [
        (20, "ebbtide: line 20: "),
        (21, "ebbtide: 1 more bad line left out"),
        (3_000, "ebbtide: 2,980 more bad lines left out"),
    ] {
        world.write("in.jsonl", &("no json\n".repeat(bad) + "{\"id\":1}\n"));
        let ran = world.run("import db c in.jsonl --key id --skip-bad --json");
        assert_eq!(ran.status, 0);
        let summary = json(std::str::from_utf8(&ran.out).unwrap());
        assert_eq!(
            (&summary["imported"], &summary["skipped"]),
            (&1.into(), &bad.into())
        );
        let lines: Vec<_> = ran.err.lines().collect();
        assert_eq!(lines.len(), bad.min(21), "{}", ran.err);
        assert!(lines[19].starts_with("ebbtide: line 20: "), "{}", ran.err);
        assert!(lines.last().unwrap().starts_with(last), "{}", ran.err);
        world.write("t.csv", &"no trace\n".repeat(bad));
        let ran = world.run("replay t.csv --skip-bad --json");
        assert_eq!(ran.err.lines().count(), bad.min(21), "{}", ran.err);
        assert!(ran.err.lines().last().unwrap().starts_with(last));
        assert_eq!(json(std::str::from_utf8(&ran.out).unwrap())["skipped"], bad);
    }
}

#[test]
fn what_is_refused_at_once_leaves_nothing_behind() {
    let world = World::new();
    world.write("bad.jsonl", "{\"x\":1}\n{\"id\":2}\n");
    let import = |db, file| world.fails(2, &["import", db, "new", file, "--key", "id"]);
    assert!(import("none", "bad.jsonl").starts_with("line 1: "));
    assert!(!world.path("none").exists());
    world.ok("put db c k v");
    import("db", "bad.jsonl");
    world.fails(2, &["put", "db", "new", "", "v"]);
    assert_eq!(world.ok("containers db"), "c\n");
    // But what was there stays, and so does what was stored before.
    world.ok("ttl db empty 60");
    world.fails(2, &["put", "db", "empty", "", "v"]);
    world.write("later.jsonl", "{\"id\":2}\n{\"x\":1}\n");
    import("db", "later.jsonl");
    assert_eq!(world.ok("containers db"), "c\nempty\nnew\n");
    world.write("empty.jsonl", "");
    let told = world.told("import db nothing empty.jsonl");
    assert_eq!(told, "0 lines imported");
    assert_eq!(world.ok("scan db nothing"), "");
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let world = World::new();
    let marked = |text: &str| [b"\xef\xbb\xbf", text.as_bytes()].concat();
    let import = "import db c - --key id";
    let ran = world.run_with_input(import, &marked("{\"id\":1}\n{\"id\":2}\n"));
    assert_eq!(ran.told(), "2 lines imported");
    assert_eq!(world.ok("get db c 1"), "{\"id\":1}");
    let ran = world.run_with_input("replay - --json", &marked(TRACE));
    assert_eq!(replayed(&ran.ok())["played"], 13);
    for short in ["", "\n", "{}"] {
        let ran = world.run_with_input("import db c - --skip-bad", short.as_bytes());
        assert_eq!(ran.status, 0, "{short:?}: {}", ran.err);
    }
}

#[test]
fn what_is_not_text_is_refused_by_what_it_is() {
    let world = World::new();
    for (begin, what, tool) in [
        (&b"\x28\xb5\x2f\xfd"[..], "compressed by zstd", "zstd -dc"),
        (b"\xff\xfe{\0", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    ] {
        let bytes = [begin, b" and more\n"].concat();
        std::fs::write(world.path("in"), &bytes).unwrap();
        let expected = |name| {
            format!(
                "{name} is {what}: give the output of `{tool}` to standard input, with - for the file"
            )
        };
        let why = world.fails(2, "import db c in");
        assert_eq!(why, expected("in"));
        let why = world.fails(2, "replay in kept");
        assert_eq!(why, expected("in"));
        let ran = world.run_with_input("import db c -", &bytes);
        assert_eq!(ran.failed(2), expected("-"));
    }
    assert!(!world.path("db").exists() && !world.path("kept").exists());
}

#[test]
fn real_answers_of_name_servers_are_imported() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/dns-answers.jsonl.gz");
    let Ok(compressed) = std::fs::read(&file) else {
        eprintln!("skipped: needs {}", file.display());
        return;
    };
    let world = World::new();
    let lines = std::io::read_to_string(MultiGzDecoder::new(compressed.as_slice())).unwrap();
    let file = file.to_str().unwrap();
    let why = world.fails(2, &["import", "db", "c", file, "--key", "id"]);
    let first = 1 + lines
        .lines()
        .position(|line| json(line)["ttl"] == 0)
        .unwrap();
    assert!(
        why.starts_with(&format!("line {first}: ttl 0 is not allowed")),
        "{why}"
    );
    world.ok("ttl db c off");
    let ran = world.run(&[
        "import",
        "db",
        "c",
        file,
        "--key",
        "id",
        "--skip-bad",
        "--json",
    ]);
    let refused: Vec<_> = (1..)
        .zip(lines.lines())
        .filter(|(_, line)| json(line)["ttl"] == 0)
        .map(|(number, _)| format!("ebbtide: line {number}: ttl 0 is not allowed: {ALLOWED_TTL}"))
        .collect();
    assert_eq!(refused.len(), 2_155);
    let said: Vec<_> = ran.err.lines().collect();
    assert_eq!(said[..20], refused[..20]);
    assert_eq!(said[20], "ebbtide: 2,135 more bad lines left out");
    assert_eq!(
        said[21..],
        [
            "ebbtide: 37,527 lines with a ttl stored, but ttl is off in \"c\", so nothing expires there; \
          `ebbtide ttl db c -1` turns it on"
        ]
    );
    let summary = json(std::str::from_utf8(&ran.out).unwrap());
    has(&summary, r#"{"imported":37527,"skipped":2155}"#);
    // The last answer to a question counts. ttl is off, so none of them has expired.
    let last: std::collections::BTreeMap<_, _> = lines
        .lines()
        .map(json)
        .filter(|answer| answer["ttl"] != 0)
        .map(|answer| (answer["id"].as_str().unwrap().to_owned(), answer))
        .collect();
    let exported = exported_lines(&world, "db");
    assert_eq!(exported.lines().count(), last.len());
    for (item, (key, answer)) in exported.lines().map(json).zip(&last) {
        assert_eq!(item["_key"], **key);
        assert_eq!(
            (&item["answers"], &item["ttl"]),
            (&answer["answers"], &answer["ttl"])
        );
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn what_gzip_compressed_is_read_as_what_it_holds() {
    let world = World::new();
    let import = "import db c - --key id";
    // Two files one behind the other are one, as gzip has it; a byte order mark is passed over inside, too.
    let two = [gzip(b"\xef\xbb\xbf{\"id\":1}\n{\"id\""), gzip(b":2}\n")].concat();
    assert_eq!(
        world.run_with_input(import, &two).told(),
        "2 lines imported"
    );
    assert_eq!(world.ok("keys db c"), "1\n2\n");
    std::fs::write(world.path("t.csv"), gzip(TRACE.as_bytes())).unwrap();
    let report = replayed(&world.ok("replay t.csv --json"));
    assert_eq!(report["played"], 13);
    // Cut short, or changed, it is an error, and what came before is stored.
    let lines: String = (0..100_000).map(|n| format!("{{\"id\":{n}}}\n")).collect();
    let whole = gzip(lines.as_bytes());
    let mut changed = whole.clone();
    let at = changed.len() - 8;
    changed[at] ^= 1;
    for bytes in [&whole[..whole.len() / 2], &changed] {
        std::fs::write(world.path("in.gz"), bytes).unwrap();
        let why = world.fails(2, "import db d in.gz --key id");
        assert!(why.starts_with("cannot read in.gz: "), "{why}");
        assert!(why.contains("(stored before it: "), "{why}");
    }
    let short = world.run_with_input(import, b"\x1f\x8b");
    assert!(short.failed(2).starts_with("cannot read -: "));
    let inside = world.run_with_input(import, &gzip(b"\x28\xb5\x2f\xfd"));
    assert!(inside.failed(2).starts_with("- is compressed by zstd"));
}

#[test]
fn times_are_taken_over_where_that_is_asked_for() {
    let world = World::new();
    let now = now_seconds();
    let lines = format!(
        "{{\"_key\":\"own\",\"_ts\":{0},\"ttl\":3600}}\n\
         {{\"_key\":\"exact\",\"_ts\":{0},\"_ts_ms\":{0}250,\"ttl\":3600,\"_ttl_ms\":3599500}}\n\
         {{\"_key\":\"inherits\",\"_ts\":{0}}}\n\
         {{\"_key\":\"never\",\"_ts\":{0},\"ttl\":-1}}\n\
         {{\"_key\":\"over\",\"_ts\":{0},\"ttl\":600}}\n",
        now - 600
    );
    world.write("in.jsonl", &lines);
    world.ok(&["put", "db", "c", "over", "an older value"]);
    world.ok("ttl db c 1800");
    let import = "import db c in.jsonl --from-export --keep-times";
    assert_eq!(
        world.told(import),
        "5 lines imported, 1 of them expired already"
    );
    // A newer value that has expired does not let the older one come back.
    assert_eq!(world.ok("keys db c"), "exact\ninherits\nnever\nown\n");
    let left = |key: &str| {
        let item = json(&world.ok(&["get", "db", "c", key, "--json"]));
        item["_remaining"].as_f64()
    };
    let passed = now_seconds() - now;
    for (key, end) in [("own", 3_000.0), ("exact", 2_999.75), ("inherits", 1_200.0)] {
        let left = left(key).unwrap();
        assert!(
            left <= end && left > end - passed as f64 - 60.0,
            "{key}: {left}"
        );
    }
    assert_eq!(left("never"), None);
    // The ends stay where they are, to the millisecond, from one database to the next.
    let end = |line: &str| {
        let item = json(line);
        let whole = item["ttl"].as_u64().map(|seconds| seconds * 1_000);
        let millis = item["_ttl_ms"].as_u64().or(whole)?;
        Some(item["_ts_ms"].as_u64()? + millis)
    };
    let ends = |db: &str| {
        exported_lines(&world, db)
            .lines()
            .map(end)
            .collect::<Vec<_>>()
    };
    world.told("export db c out.jsonl");
    world.told("import next c out.jsonl --keep-times");
    let own = |seconds: u64, millis: u64| Some((now - 600 + seconds) * 1_000 + millis);
    let expected = vec![own(3_599, 750), own(1_800, 0), None, own(3_600, 0)];
    assert_eq!(ends("db"), expected);
    assert_eq!(ends("next"), expected);
    // Without it, the countdown begins anew.
    world.told("import anew c in.jsonl --from-export");
    let item = json(&world.ok("get anew c over --json"));
    assert!(item["_remaining"].as_f64().unwrap() > 500.0, "{item}");
    world.write("timeless.jsonl", "{\"id\":1}\n");
    let args = "import none c timeless.jsonl --key id --keep-times";
    let why = world.fails(2, args);
    assert!(
        why.starts_with("line 1: line without \"_ts_ms\" and \"_ts\""),
        "{why}"
    );
}

// The limit of a file's size stands for a full disk: the write fails midway.
#[test]
fn an_export_that_fails_leaves_the_file_as_it_was() {
    let world = World::new();
    let line = |n: u32| {
        format!(
            "{{\"_key\":\"{n:06}\",\"_value\":\"{}\"}}\n",
            "v".repeat(100)
        )
    };
    world.write("in.jsonl", &(0..1_000).map(line).collect::<String>());
    world.told("import db c in.jsonl --from-export");
    let names = || {
        let names = std::fs::read_dir(world.path("out")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    std::fs::create_dir(world.path("out")).unwrap();
    let limited = || {
        let program = env!("CARGO_BIN_EXE_ebbtide");
        let script = format!("trap '' XFSZ; ulimit -f 16; exec {program} export db c out/c.jsonl");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script])
            .current_dir(world.folder.path());
        Ran::of(command.output().unwrap())
    };
    let failed = limited();
    assert_ne!(failed.status, 0);
    assert!(
        failed.err.contains("cannot write out/c.jsonl"),
        "{}",
        failed.err
    );
    assert_eq!(names(), [""; 0]);
    world.write("out/c.jsonl", "before");
    assert_ne!(limited().status, 0);
    assert_eq!(names(), ["c.jsonl"]);
    assert_eq!(std::fs::read(world.path("out/c.jsonl")).unwrap(), b"before");
    world.told("export db c out/c.jsonl");
    assert_eq!(names(), ["c.jsonl"]);
    let exported = std::fs::read_to_string(world.path("out/c.jsonl")).unwrap();
    assert_eq!(exported.lines().count(), 1_000);
}

#[test]
fn an_analytical_copy_says_what_it_did() {
    let world = World::new();
    world.ok("put db c k v");
    let args = |more: &[&'static str]| [&["export", "--parquet", "copy", "db", "c"], more].concat();
    if cfg!(not(feature = "parquet")) {
        let why = world.fails(2, &args(&["--retention", "-1"]));
        assert!(why.contains("--features parquet"), "{why}");
        return;
    }
    let why = world.fails(2, &args(&[]));
    assert!(why.starts_with("how long are rows kept?"), "{why}");
    for (name, given) in [("--retention", "0"), ("--partition", "month")] {
        let why = world.fails(2, &args(&[name, given]));
        let named = name.trim_start_matches('-');
        assert!(
            why.starts_with(&format!("{named} {given} is not allowed")),
            "{why}"
        );
    }
    let told = world.told(&args(&["--retention", "-1"]));
    assert!(
        told.starts_with("1 row in 1 file, up to version "),
        "{told}"
    );
    let done = json(&world.ok(&args(&["--json"])));
    has(&done, r#"{"rows":0,"compared":false}"#);
    let told = world.told(&args(&["--retention", "off"]));
    assert!(
        told.ends_with("; 1 file past the retention removed"),
        "{told}"
    );
}
