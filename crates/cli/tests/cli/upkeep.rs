//! The database as a whole, and what is not there.

use super::*;

#[test]
fn no_database_is_made_among_other_things() {
    let world = World::new();
    world.write("in.jsonl", "{\"id\":1}\n");
    std::fs::create_dir_all(world.path("home/pictures")).unwrap();
    for command in [
        "put home c k v",
        "import home c in.jsonl --key id",
        "ttl home c 60",
    ] {
        let why = world.fails(2, command);
        assert_eq!(
            why,
            "home holds other things and no database: one is made in a folder that is missing or empty"
        );
        let left = std::fs::read_dir(world.path("home")).unwrap();
        assert_eq!(left.count(), 1, "{command:?}");
    }
    std::fs::create_dir(world.path("empty")).unwrap();
    std::fs::create_dir_all(world.path("disk/lost+found")).unwrap();
    // As a first `put` leaves it that is killed.
    std::fs::create_dir_all(world.path("killed/tables")).unwrap();
    world.write("killed/LOCK", "");
    for dir in ["empty", "disk", "missing", "killed"] {
        world.ok(&["put", dir, "c", "k", "v"]);
        // A database is one with other things beside it, too.
        std::fs::create_dir(world.path(dir).join("pictures")).unwrap();
        world.ok(&["put", dir, "c", "k", "w"]);
    }
}

#[test]
fn first_writes_at_the_same_time_all_succeed() {
    let world = World::new();
    let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    std::thread::scope(|scope| {
        for key in &keys {
            scope.spawn(|| world.ok(&["put", "new", "c", key, "v", "--wait", "20"]));
        }
    });
    for key in &keys {
        assert_eq!(world.ok(&["get", "new", "c", key]), "v");
    }
}

#[test]
fn what_is_not_there_is_not_created() {
    let world = World::new();
    let database = "there is no database in missing";
    for command in [
        "get missing c k",
        "scan missing c",
        "ttl missing c",
        "delete missing c k",
        "touch missing c k",
        "export missing c",
        "containers missing",
        "stats missing",
        "compact missing",
        "checkpoint missing to",
    ] {
        assert_eq!(world.fails(2, command), database, "{command:?}");
    }
    world.fails(2, "verify missing");
    assert!(!world.path("missing").exists() && !world.path("to").exists());
    std::fs::create_dir(world.path("missing")).unwrap();
    assert_eq!(world.fails(2, "compact missing"), database);
    assert_eq!(std::fs::read_dir(world.path("missing")).unwrap().count(), 0);
    world.ok("put db c k v");
    for command in [
        "get db d k",
        "scan db d",
        "ttl db d",
        "delete db d k",
        "touch db d k",
        "export db d",
        "stats db d",
    ] {
        assert_eq!(
            world.fails(1, command),
            "there is no container \"d\"",
            "{command:?}"
        );
    }
    assert_eq!(world.ok("containers db"), "c\n");
}

#[test]
fn stats_say_what_the_folder_consists_of() {
    let world = World::new();
    for n in 0..10 {
        world.ok(&["put", "db", "sessions", &format!("s-{n}"), "value"]);
    }
    world.ok("compact db --json");
    let usage = json(&world.ok("stats db --disk --json"));
    let rows = usage["rows"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(
        (&usage["bytes"], &usage["unlinked_bytes"]),
        (&Value::from(sum), &Value::from(0))
    );
    let has = |kind| rows.iter().find(|row| row["kind"] == kind).unwrap();
    assert_eq!(has("manifest")["container"], Value::Null);
    assert_eq!(has("overhead")["container"], "sessions");
    let one = json(&world.ok("stats db sessions --disk --json"));
    let one = one["rows"].as_array().unwrap();
    assert!(!one.is_empty() && one.len() < rows.len());
    assert!(one.iter().all(|row| row["container"] == "sessions"));
    let table = world.ok("stats db --disk");
    assert!(
        table.starts_with("KIND ") && table.contains("\nas du counts "),
        "{table}"
    );
    assert_eq!(
        world.fails(1, "stats db d --disk"),
        "there is no container \"d\""
    );
}

#[test]
fn stats_count_what_is_live() {
    let world = World::new();
    world.ok("ttl db sessions 1800");
    for n in 0..10 {
        world.ok(&["put", "db", "sessions", &format!("s-{n}"), "value"]);
    }
    world.ok("put db other k v");
    let stats = json(&world.ok("stats db --json"));
    assert_eq!(stats["live_items"], 11);
    assert_eq!(stats["live_bytes"], 10 * (3 + 5 + 16) + (1 + 1 + 16));
    assert_eq!(stats["oldest_unreclaimed_ms"], Value::Null);
    assert_eq!(stats["containers"][1]["container"], "sessions");
    assert_eq!(stats["containers"][1]["default_ttl"], 1_800);
    let one = json(&world.ok("stats db sessions --json"));
    has(&one, r#"{"live_items":10,"live_bytes":240}"#);
    let list = world.ok("stats db sessions");
    assert!(
        list.contains("\nrange deletes ") && list.contains("\nnext: "),
        "{list}"
    );
    let table = world.ok("stats db");
    assert!(table.contains("items live"), "{table}");
    let row = table
        .lines()
        .find(|line| line.starts_with("sessions"))
        .unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[..5], ["sessions", "30", "min", "10", "240"]);
    let names: Vec<_> = world.ok("containers db --json").lines().map(json).collect();
    assert_eq!(
        names,
        [
            json(r#"{"container":"other"}"#),
            json(r#"{"container":"sessions"}"#)
        ]
    );
}

#[test]
fn compact_leaves_nothing_expired_on_disk() {
    let world = World::new();
    let line = |n: u32| {
        format!(
            "{{\"id\":{n},\"pad\":\"{}\",\"ttl\":1}}\n",
            "x".repeat(1_000)
        )
    };
    world.write("in.jsonl", &(0..2_000).map(line).collect::<String>());
    world.ok("ttl db c -1");
    world.told("import db c in.jsonl --key id");
    world.ok("put db c stays v");
    sleep(Duration::from_millis(1_001));
    let done = json(&world.ok("compact db --json"));
    let after = &done["after"];
    has(after, r#"{"live_items":1,"expired_bytes":0}"#);
    assert_eq!(after["oldest_unreclaimed_ms"], Value::Null);
    assert!(after["table_bytes"].as_u64().unwrap() < 4_096, "{after}");
    assert_eq!(world.ok("scan db c"), "stays\tv\n");
    assert!(world.told("compact db").starts_with("on disk "));
}

#[test]
fn a_checkpoint_is_a_database() {
    let world = World::new();
    world.ok("put db c k before --ttl 3600");
    world.told("checkpoint db copy");
    world.ok("put db c k after");
    assert_eq!(world.ok("get copy c k"), "before");
    assert_eq!(json(&world.ok("get copy c k --json"))["ttl"], 3_600);
    world.ok("put copy c k elsewhere");
    assert_eq!(world.ok("get db c k"), "after");
    let why = world.fails(2, "checkpoint db copy");
    assert!(why.contains("copy is not allowed"), "{why}");
}

#[test]
fn verify_names_each_fault() {
    let world = World::new();
    let line = |n: u32| format!("{{\"id\":{n},\"text\":\"some text\"}}\n");
    world.write("in.jsonl", &(0..1_000).map(line).collect::<String>());
    world.told("import db c in.jsonl --key id");
    world.told("checkpoint db copy");
    let report = json(&world.ok("verify copy --json"));
    assert!(report["records"].as_u64().unwrap() >= 1_000, "{report}");
    assert_eq!(report["faults"], json("[]"));
    assert!(world.ok("verify copy").contains("faults: 0"));
    let mut tables = std::fs::read_dir(world.path("copy/tables")).unwrap();
    let table = tables.next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    // A checkpoint shares its tables with the database: the damaged one is another file.
    std::fs::remove_file(&table).unwrap();
    std::fs::write(&table, bytes).unwrap();
    let ran = world.run("verify copy --json");
    assert_eq!(ran.status, 2);
    let advice =
        "1 fault in copy: restore a checkpoint, or see what `ebbtide repair copy` can save";
    assert_eq!(ran.err, format!("ebbtide: {advice}\n"));
    let name = table.file_name().unwrap().to_str().unwrap();
    let report = json(std::str::from_utf8(&ran.out).unwrap());
    assert!(
        report["faults"][0]["path"]
            .as_str()
            .unwrap()
            .ends_with(name),
        "{report}"
    );
    assert!(report["faults"][0]["offset"].is_u64(), "{report}");
    let ran = world.run("verify copy");
    assert_eq!(
        (ran.status, ran.err),
        (2, format!("ebbtide: {advice}\n")),
        "the fault itself is on standard output"
    );
    let shown = String::from_utf8(ran.out).unwrap();
    assert_eq!(shown.matches("is damaged at byte").count(), 1, "{shown}");
    assert!(
        shown.contains(name) && shown.contains("faults: 1"),
        "{shown}"
    );
    assert!(world.ok("verify db").contains("faults: 0"));
}

#[test]
fn repair_says_what_is_lost_and_changes_nothing_unasked() {
    let world = World::new();
    let line = |n: u32| format!("{{\"id\":\"{n:04}\",\"text\":\"some text\"}}\n");
    world.write("in.jsonl", &(0..500).map(line).collect::<String>());
    world.told("import db c in.jsonl --key id");
    world.told("compact db");
    world.ok("put db c new v");
    assert!(
        world
            .ok("repair db")
            .starts_with("what is live is known from")
    );

    let manifest = |name: &str| name.starts_with("manifest-");
    let table = |name: &str| name.ends_with(".table");
    for (folder, chosen, lost) in [
        ("db", &manifest as &dyn Fn(&str) -> bool, 0),
        // Those of the first block.
        ("db/tables", &table, 177),
    ] {
        let files = std::fs::read_dir(world.path(folder)).unwrap();
        let paths = files.map(|entry| entry.unwrap().path());
        let path = paths
            .filter(|path| chosen(path.file_name().unwrap().to_str().unwrap()))
            .max()
            .unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[50] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let refused = world.run("repair db");
        assert_eq!(refused.status, 2);
        assert_eq!(
            refused.err,
            "ebbtide: nothing was changed; --yes leaves out 1 damaged part\n"
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!(
            !world
                .path("db/lost")
                .join(path.file_name().unwrap())
                .exists()
        );
        let said = world.ok("repair db --yes");
        assert!(
            said.contains(path.to_str().unwrap().rsplit('/').next().unwrap()),
            "{said}"
        );
        assert_eq!(
            said.contains("at most 177 records of container \"c\""),
            lost == 177,
            "{said}"
        );
        assert!(
            world
                .path("db/lost")
                .join(path.file_name().unwrap())
                .exists()
        );
        assert_eq!(world.ok("get db c new"), "v");
        let left = world.ok("scan db c").lines().count();
        assert_eq!(left, 501 - lost);
        assert!(world.ok("verify db").contains("faults: 0"));
    }
}

#[test]
fn every_command_says_the_same_of_a_lost_manifest() {
    for with_copy in [true, false] {
        let world = World::new();
        world.ok("put db c k v");
        for folder in ["db", "db/copy"] {
            let files = std::fs::read_dir(world.path(folder)).unwrap();
            for path in files.map(|entry| entry.unwrap().path()) {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if name.starts_with("manifest-") || !with_copy && name.ends_with(".manifest") {
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
        let says_the_way_on = |why: &str| {
            let repairs = why.contains("see what `ebbtide repair");
            repairs == with_copy && why.contains("restore a checkpoint")
        };
        for command in [
            "get db c k",
            "put db c k w",
            "delete db c k",
            "containers db",
            "compact db",
            "verify db",
        ] {
            let ran = world.run(command);
            assert_eq!(ran.status, 2, "{command:?}");
            let said = String::from_utf8(ran.out).unwrap() + &ran.err;
            assert!(said.contains("manifest"), "{command:?}: {said}");
            assert!(says_the_way_on(&ran.err), "{command:?}: {said}");
        }
        let refused = world.run("repair db");
        assert_eq!(refused.status, 2);
        if with_copy {
            world.ok("repair db --yes");
            assert_eq!(world.ok("get db c k"), "v");
            assert!(world.ok("verify db").contains("faults: 0"));
        } else {
            let why = world.fails(2, "repair db --yes");
            assert!(says_the_way_on(&why), "{why}");
        }
    }
}

#[test]
fn a_database_in_use_is_refused_to_who_writes() {
    let world = World::new();
    let db = ebbtide::Database::open(world.path("db")).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    for command in ["put db c k w", "delete db c k", "compact db", "repair db"] {
        assert!(world.fails(2, command).contains("is open elsewhere"));
        let begun = Instant::now();
        let why = world.fails(2, &format!("{command} --wait 1"));
        assert!(why.ends_with("(waited for 1 s)"), "{why}");
        assert!(begun.elapsed() >= Duration::from_secs(1));
    }
    let waiting = ["put db c k new --wait 600", "verify db --wait 600"];
    let mut waiting =
        waiting.map(|args| world.command(args).stdout(Stdio::null()).spawn().unwrap());
    // Time to come upon the lock; whoever comes later does not find one.
    sleep(Duration::from_millis(300));
    assert!(
        waiting
            .each_mut()
            .iter_mut()
            .all(|child| child.try_wait().unwrap().is_none())
    );
    db.close().unwrap();
    for mut child in waiting {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(world.ok("get db c k"), "new");
}

#[test]
fn a_database_in_use_is_read_beside_who_writes_it() {
    let world = World::new();
    let db = ebbtide::Database::open(world.path("db")).unwrap();
    let c = db.container("c").unwrap();
    c.put("flushed", "1").unwrap();
    db.flush().unwrap();
    c.put("k", "v").unwrap();
    let beside = |args: &str| {
        let ran = world.run(args);
        let said = "db is open in another process: read beside it, as it is now";
        assert_eq!(
            (ran.status, ran.err.lines().next()),
            (0, Some(said)),
            "{args:?}"
        );
        String::from_utf8(ran.out).unwrap()
    };
    assert_eq!(beside("get db c k").trim(), "v");
    assert_eq!(beside("get db c k --wait 1").trim(), "v");
    assert_eq!(beside("count db c").trim(), "2");
    for args in ["scan db c", "keys db c", "export db c"] {
        let out = beside(args);
        assert!(
            out.contains("flushed") && out.contains('k'),
            "{args:?}: {out}"
        );
    }
    assert!(beside("containers db").contains('c'));
    assert!(beside("stats db").contains('c'));
    assert!(beside("verify db").contains("faults: 0"));
    // An acknowledged write is read at once.
    c.put("k", "w").unwrap();
    assert_eq!(beside("get db c k").trim(), "w");
    let copied = world.run("checkpoint db copy");
    assert_eq!(copied.status, 0, "{}", copied.err);
    let said: Vec<&str> = copied.err.lines().collect();
    assert!(said[0].contains("read beside it") && said[1] == "checkpoint of db in copy");
    c.put("k", "later").unwrap();
    assert_eq!(world.ok("get copy c k"), "w");
    assert_eq!(world.ok("get copy c flushed"), "1");
    // Where nothing is to be found, that is said as ever.
    let missing = world.run("get db c none");
    assert_eq!(missing.status, 1);
}

#[test]
fn tables_leave_columns_out_before_they_wrap() {
    let world = World::new();
    for name in [
        "sessions",
        &"n".repeat(255),
        "two\nlines",
        &"\u{8868}".repeat(80),
    ] {
        world.ok(&["put", "db", name, "k", "v"]);
    }
    let table = world.ok("stats db");
    for line in table.lines() {
        // Each of these letters takes two columns.
        let wide = line.matches('\u{8868}').count();
        assert!(line.chars().count() + wide <= 80, "{line}");
    }
    assert!(
        table.contains("CONTAINER") && table.contains("EXPIRED"),
        "{table}"
    );
    assert!(table.contains("two\\nlines"), "{table}");
    assert!(
        table.lines().last().unwrap().starts_with("Not shown: "),
        "{table}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_table_has_the_columns_that_the_terminal_has_room_for() {
    let world = World::new();
    world.ok("put db c k v");
    let header = |columns: u16| {
        let (status, shown) = world.run_on_terminal("stats db", columns, b"");
        assert_eq!(status, 0, "{shown}");
        assert!(
            shown
                .lines()
                .all(|line| line.chars().count() <= columns.into()),
            "{shown}"
        );
        let header = shown.lines().find(|line| line.starts_with("CONTAINER"));
        let count = header
            .unwrap()
            .split("  ")
            .filter(|word| !word.is_empty())
            .count();
        (count, shown.contains("Not shown: "))
    };
    assert_eq!(header(200), (11, false));
    assert_eq!(header(80), (8, true));
    assert_eq!(header(46), (5, true));
}
