//! The demo, and traces.

use super::*;

/// The temporary folder of a demo or a replay is removed at its end, also when a signal ends it.
#[test]
fn a_signal_takes_the_temporary_folder_along() {
    for (command, signal, number) in [
        ("demo", "INT", 2),
        ("demo", "TERM", 15),
        ("replay -", "INT", 2),
        ("replay -", "TERM", 15),
    ] {
        let world = World::new();
        std::fs::create_dir(world.path("tmp")).unwrap();
        let mut child = world
            .command(command)
            .env("TMPDIR", world.path("tmp"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A replay waits for more of its trace.
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"100,b,7,40,0,set,10\n").unwrap();
        let made = || std::fs::read_dir(world.path("tmp")).unwrap().flatten();
        wait_until("a database is made", || {
            made().any(|folder| folder.path().join("wal").exists())
        });
        let sent = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(number), "{command:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        assert_eq!(made().count(), 0, "{command:?} {signal}");
        drop(stdin);
    }
}

#[test]
fn the_demo_keeps_its_promises() {
    let world = World::new();
    let ran = world.run("demo kept --seconds 3 --seed 7 --json");
    let shown = String::from_utf8(ran.out).unwrap();
    let lines: Vec<_> = shown.lines().map(json).collect();
    let (last, seconds) = lines.split_last().unwrap();
    assert!(seconds.len() >= 4, "{shown}");
    assert!(seconds[1]["live_items"].as_u64().unwrap() > 0);
    assert_eq!(seconds.last().unwrap()["table_bytes"], 0);
    assert_eq!(last["broken"], json("[]"));
    // On a machine that does not let it run, it says that.
    assert_eq!(ran.status, if last["late"].is_null() { 0 } else { 3 });
    assert_eq!(ran.err.is_empty(), last["late"].is_null(), "{}", ran.err);
    assert!(last["removal_max_let_run_seconds"].as_f64() <= last["removal_max_seconds"].as_f64());
    assert_eq!(last["expired_returned"], 0);
    assert!(last["reads"].as_u64().unwrap() > 1_000);
    assert_eq!(world.ok("scan kept sessions"), "");
    let why = world.fails(2, "demo kept --seconds 2");
    assert_eq!(why, "kept is not empty: the demo needs a new folder");
}

#[test]
fn a_replay_has_the_hits_of_its_trace() {
    let world = World::new();
    world.write("t.csv", TRACE);
    let args = "replay t.csv kept --container c --json";
    let report = replayed(&world.ok(args));
    for (operation, played, done) in [
        ("get", 3, 1),
        ("gets", 1, 1),
        ("set", 2, 2),
        ("add", 2, 1),
        ("replace", 1, 0),
        ("cas", 1, 0),
        ("append", 1, 1),
        ("incr", 1, 1),
        ("delete", 1, 1),
    ] {
        let counts = &report["operations"][operation];
        assert_eq!(
            (&counts["played"], &counts["done"]),
            (&played.into(), &done.into())
        );
    }
    has(&report, r#"{"played":13,"checked":10}"#);
    has(&report, r#"{"hit_rate":0.5,"trace_seconds":13}"#);
    assert!(report["stats"]["bytes_logged"].as_u64().unwrap() > 0);
    assert!(report["writes_micros"]["p99.9"].as_f64().unwrap() > 0.0);
    // Items with a ttl have expired by today; the one without has the value that the ninth operation made.
    let kept = world.run("get kept c n").out;
    assert_eq!((kept.len(), &kept[..8]), (20, &9_u64.to_le_bytes()[..]));
    world.fails(1, "get kept c d");
    let why = world.fails(2, args);
    assert_eq!(why, "kept is not empty: the replay needs a new folder");
}

#[test]
fn a_replay_reads_standard_input_and_shows_a_table() {
    let world = World::new();
    let shown = world.run_with_input("replay - --limit 5", TRACE.as_bytes());
    let shown = shown.ok();
    let cells = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name));
        let words = line.unwrap().split_whitespace().skip(1);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(
        shown.starts_with("5 operations of 8.0 s played in "),
        "{shown}"
    );
    assert_eq!(
        (cells("get "), cells("add ")),
        (vec!["1".into(), "0".into()], vec!["2".into(), "1".into()])
    );
    assert!(shown.contains("50.0 % of 2\n") && shown.ends_with("\nEvery answer was right.\n"));
    assert_eq!(std::fs::read_dir(world.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_replay_can_fill_what_a_get_missed() {
    let world = World::new();
    let trace = "0,k,1,30,0,get,5\n4,k,1,30,0,get,5\n5,k,1,30,0,get,5\n6,k,1,30,0,get,5\n6,l,1,0,0,get,0\n6,l,1,0,0,get,0\n";
    world.write("t.csv", trace);
    let report = replayed(&world.ok("replay t.csv --json"));
    has(&report, r#"{"hit_rate":0.0,"fills":0}"#);
    let report = replayed(&world.ok("replay t.csv --json --fill-on-miss"));
    assert_eq!(report["operations"]["get"]["done"], 2);
    assert_eq!(report["fills"], 2);
    assert_eq!(report["stats"]["bytes_put"], 2 * 31);
}

#[test]
fn bad_lines_are_named_and_stop_a_replay() {
    let world = World::new();
    let trace = "7,k,1,3,0,set,0\n7,k,1,3,0,fetch,0\n7,k,1,3\n6,k,1,0,0,get,0\n7,k,1,3,0,set,-1\n7,k,1,0,0,get,0\n";
    world.write("t.csv", trace);
    let why = world.fails(2, "replay t.csv");
    assert!(
        why.starts_with("line 2: operation fetch is not allowed: get, gets, set, "),
        "{why}"
    );
    assert!(
        why.ends_with("(1 operations before it were played)"),
        "{why}"
    );
    let ran = world.run("replay t.csv --skip-bad --json");
    let named: Vec<_> = ran
        .err
        .lines()
        .map(|line| line.split(" is not ").next().unwrap())
        .collect();
    assert_eq!(
        named,
        [
            "ebbtide: line 2: operation fetch",
            "ebbtide: line 3: not of the form timestamp,key,key size,value size,client,operation,ttl",
            "ebbtide: line 4: timestamp 6",
            "ebbtide: line 5: ttl -1"
        ]
    );
    assert_eq!(ran.status, 0);
    let report = replayed(std::str::from_utf8(&ran.out).unwrap());
    has(&report, r#"{"skipped":4,"hit_rate":1.0}"#);
    let why = world.fails(2, "replay missing.csv new");
    assert!(why.starts_with("cannot open missing.csv: "), "{why}");
    let why = world.fails(2, "replay t.csv new --speed 0.5");
    assert!(
        why.starts_with("speed 0.5 is not allowed: a factor from 1 to 1000000"),
        "{why}"
    );
    assert!(!world.path("new").exists());
}

#[test]
fn a_replay_by_a_factor_takes_its_time() {
    let world = World::new();
    world.write(
        "t.csv",
        "0,s,1,9,0,set,1\n0,l,1,9,0,set,90000\n3,s,1,0,0,get,0\n3,l,1,0,0,get,0\n",
    );
    let report = replayed(&world.ok("replay t.csv kept --speed 10 --json"));
    has(&report, r#"{"hit_rate":0.5,"trace_seconds":3}"#);
    assert!(report["seconds"].as_f64().unwrap() >= 0.3);
    // A tenth of the lifetime is left to be seen.
    let item = json(&world.ok("get kept cache l --json"));
    assert_eq!(item["ttl"], 9_000);
}

#[test]
fn a_real_trace_has_the_hits_that_can_be_counted() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/dns-trace.csv.gz");
    let gzip = Command::new("gzip").arg("-dc").arg(&file).output();
    let Some(trace) = gzip.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: needs {} and the gzip tool", file.display());
        return;
    };
    let text = String::from_utf8(trace.stdout).unwrap();
    let mut expiries = std::collections::HashMap::new();
    let (mut gets, mut hits) = (0_u64, 0_u64);
    for line in text.lines() {
        let fields: Vec<_> = line.split(',').collect();
        let seconds = |text: &str| text.parse::<u64>().unwrap();
        let (now, key, ttl) = (seconds(fields[0]), fields[1], seconds(fields[6]));
        if fields[5] == "set" {
            expiries.insert(key, if ttl == 0 { u64::MAX } else { now + ttl });
        } else {
            gets += 1;
            hits += u64::from(expiries.get(key).is_some_and(|&expiry| expiry > now));
        }
    }
    let world = World::new();
    let args = "replay - --memtable 64KiB --reclaim-within 90m --json";
    let report = replayed(&world.run_with_input(args, text.as_bytes()).ok());
    let counts = &report["operations"]["get"];
    assert_eq!(
        (&counts["played"], &counts["done"]),
        (&gets.into(), &hits.into())
    );
    assert!(report["stats"]["flushes"].as_u64().unwrap() > 0);
    assert!(report["disk_to_live_mean"].as_f64() <= report["disk_to_live_worst"].as_f64());
}

#[test]
fn the_demo_fits_a_terminal_and_says_what_it_proved() {
    let world = World::new();
    let ran = world.run("demo kept --seconds 2");
    let shown = String::from_utf8(ran.out).unwrap();
    assert!([0, 3].contains(&ran.status), "{shown}{}", ran.err);
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let header = shown
        .lines()
        .position(|line| line.contains("TIME"))
        .unwrap();
    let explained = shown.lines().nth(header - 2).unwrap();
    for column in ["ITEMS", "LIVE", "TABLES", "LOG", "EXPIRED"] {
        assert!(explained.contains(column), "{explained}");
    }
    let bars = |what: &str| {
        let line = shown.lines().find(|line| line.starts_with(what)).unwrap();
        line.chars()
            .filter(|bar| ('\u{2581}'..='\u{2588}').contains(bar))
            .count()
    };
    assert!(bars("disk  ") >= 3 && bars("live  ") >= 2, "{shown}");
    let last = shown.rsplit_once("\n\n").unwrap().1;
    assert!(
        last.starts_with("Proved: none of ") && last.ends_with(".\n"),
        "{last}"
    );
    assert_eq!(last.matches(". ").count(), 0, "{last}");
}
