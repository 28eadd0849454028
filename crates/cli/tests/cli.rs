//! Goal: the command line does what its help says, with the exit status and the one line on standard error that scripts
//! rely on. Method: run the built program, each command on a folder of its own, and read what it prints.

// clippy.toml keeps the library away from the world; these tests look at it from outside.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use testkit::patience::wait_until;

const ALLOWED_TTL: &str = "-1 (never), or whole seconds from 1 to 2147483647";

/// A folder that goes with the test.
struct World {
    folder: tempfile::TempDir,
}

/// What a run of the program left.
struct Ran {
    status: i32,
    out: Vec<u8>,
    err: String,
}

impl World {
    fn new() -> World {
        World {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The program may leave before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let ran = Ran::of(child.wait_with_output().unwrap());
        writer.join().unwrap();
        ran
    }

    /// Runs what must succeed without a word on standard error, and gives its output.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        self.run(args).ok()
    }

    /// Runs what must fail, with nothing on standard output, and gives the one line that says why.
    #[track_caller]
    fn fails(&self, status: i32, args: &[&str]) -> String {
        self.run(args).failed(status)
    }
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            status: output.status.code().expect("not killed"),
            out: output.stdout,
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    fn ok(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (0, ""));
        String::from_utf8(self.out).unwrap()
    }

    #[track_caller]
    fn failed(self, status: i32) -> String {
        assert_eq!(self.status, status, "{}", self.err);
        assert_eq!(self.out, b"", "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        let line = self.err.trim_end().strip_prefix("ebbtide: ").unwrap();
        line.to_owned()
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn an_item_is_put_read_touched_and_deleted() {
    let world = World::new();
    assert_eq!(world.ok(&["put", "db", "c", "key", "caf\u{e9}"]), "");
    assert_eq!(world.ok(&["get", "db", "c", "key"]), "caf\u{e9}");
    let item = json(&world.ok(&["get", "db", "c", "key", "--json"]));
    assert_eq!(
        (&item["_key"], &item["_value"]),
        (&json("\"key\""), &json("\"caf\u{e9}\""))
    );
    assert_eq!(item.get("ttl"), None);
    assert!(item["_ts"].as_u64().unwrap().abs_diff(now_seconds()) < 600);
    assert_eq!(world.ok(&["touch", "db", "c", "key"]), "");
    assert_eq!(world.ok(&["delete", "db", "c", "key"]), "");
    assert_eq!(world.ok(&["delete", "db", "c", "key"]), "");
    let missing = "there is no item \"key\" in \"c\"";
    assert_eq!(world.fails(1, &["get", "db", "c", "key"]), missing);
    assert_eq!(world.fails(1, &["touch", "db", "c", "key"]), missing);
}

#[test]
fn words_that_look_like_options_are_keys_and_values() {
    let world = World::new();
    world.ok(&["put", "db", "c", "-5", "-7.5", "--ttl", "-1"]);
    assert_eq!(world.ok(&["get", "db", "c", "-5"]), "-7.5");
    world.ok(&["put", "db", "c", "--", "--key", "--value"]);
    assert_eq!(world.ok(&["get", "db", "c", "--", "--key"]), "--value");
}

#[test]
fn an_item_is_gone_when_its_ttl_is_over() {
    let world = World::new();
    world.ok(&["ttl", "db", "c", "-1"]);
    world.ok(&["put", "db", "c", "short", "1", "--ttl", "1"]);
    world.ok(&["put", "db", "c", "long", "2", "--ttl", "2147483647"]);
    world.ok(&["put", "db", "c", "never", "3", "--ttl", "-1"]);
    let item = json(&world.ok(&["get", "db", "c", "long", "--json"]));
    assert_eq!(item["ttl"], 2_147_483_647);
    assert_eq!(
        json(&world.ok(&["get", "db", "c", "never", "--json"]))["ttl"],
        -1
    );
    sleep(Duration::from_millis(1_001));
    world.fails(1, &["get", "db", "c", "short"]);
    world.fails(1, &["touch", "db", "c", "short"]);
    assert_eq!(world.ok(&["scan", "db", "c"]), "long\t2\nnever\t3\n");
}

#[test]
fn a_ttl_out_of_range_is_refused_and_nothing_is_stored() {
    let world = World::new();
    world.ok(&["put", "db", "c", "there", "before"]);
    for given in [
        "0",
        "-2",
        "2147483648",
        "null",
        "\"60\"",
        "1.5",
        "60s",
        "",
        "99999999999999999999",
    ] {
        let why = world.fails(2, &["put", "db", "c", "there", "after", "--ttl", given]);
        assert_eq!(why, format!("ttl {given} is not allowed: {ALLOWED_TTL}"));
        let why = world.fails(2, &["ttl", "db", "c", given]);
        assert!(
            why.starts_with(&format!("default ttl {given} is not allowed: off, -1")),
            "{why}"
        );
        world.write(
            "in.jsonl",
            &format!("{{\"id\":\"there\",\"ttl\":{given}}}\n"),
        );
        let why = world.fails(2, &["import", "db", "c", "in.jsonl", "--key", "id"]);
        assert!(why.starts_with("line 1: "), "{why}");
    }
    assert_eq!(world.ok(&["scan", "db", "c"]), "there\tbefore\n");
    assert_eq!(world.ok(&["ttl", "db", "c"]), "-1\n");
    world.fails(2, &["put", "new", "c", "k", "v", "--ttl", "0"]);
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
        world.ok(&["containers", "db"]),
        format!("c\n{}\n", "n".repeat(255))
    );
}

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
    let why = world.fails(2, &["import", "db", "c", "in.jsonl"]);
    assert_eq!(
        why,
        "line 2: value of 67108865 bytes is not allowed: up to 67108864 bytes (64 MiB) (stored before it: 1 line)"
    );
    assert_eq!(world.ok(&["get", "db", "c", "longest"]).len(), 64 << 20);
}

#[test]
fn a_scan_shows_what_it_was_asked_for() {
    let world = World::new();
    for key in ["a", "b-1", "b-2", "b-3", "c"] {
        world.ok(&["put", "db", "c", key, &key.to_uppercase()]);
    }
    let scan = |options: &[&str]| {
        let lines = world.ok(&[&["scan", "db", "c"], options].concat());
        let keys: Vec<_> = lines
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned())
            .collect();
        keys.join(" ")
    };
    assert_eq!(
        world.ok(&["scan", "db", "c", "--limit", "2"]),
        "a\tA\nb-1\tB-1\n"
    );
    assert_eq!(scan(&[]), "a b-1 b-2 b-3 c");
    assert_eq!(scan(&["--reverse"]), "c b-3 b-2 b-1 a");
    assert_eq!(scan(&["--prefix", "b-"]), "b-1 b-2 b-3");
    assert_eq!(
        scan(&["--prefix", "b-", "--reverse", "--limit", "1"]),
        "b-3"
    );
    assert_eq!(scan(&["--prefix", "b-", "--from", "b-2"]), "b-2 b-3");
    assert_eq!(
        scan(&["--prefix", "b-", "--from", "a", "--to", "b-2"]),
        "b-1"
    );
    assert_eq!(scan(&["--from", "b-2", "--to", "c"]), "b-2 b-3");
    assert_eq!(scan(&["--from", "c", "--to", "b"]), "");
    assert_eq!(scan(&["--prefix", "b-", "--to", "b"]), "");
    assert_eq!(scan(&["--prefix", "b-", "--from", "c"]), "");
    assert_eq!(scan(&["--prefix", ""]), "a b-1 b-2 b-3 c");
    assert_eq!(scan(&["--limit", "0"]), "");
    let first = world.ok(&["scan", "db", "c", "--limit", "1", "--json"]);
    assert_eq!(json(&first)["_value"], "A");
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let world = World::new();
    let lines: String = (0..20_000)
        .map(|n| format!("{{\"id\":{n},\"text\":\"some text\"}}\n"))
        .collect();
    world.write("in.jsonl", &lines);
    world.ok(&["import", "db", "c", "in.jsonl", "--key", "id"]);
    for command in [&["scan", "db", "c"][..], &["export", "db", "c"]] {
        let mut child = world
            .command(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        Ran::of(child.wait_with_output().unwrap()).ok();
    }
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
        assert_eq!(world.ok(&["ttl", "db", "c"]), format!("{text}\n"));
        let line = json(&world.ok(&["ttl", "db", "c", "--json"]));
        assert_eq!(line["default_ttl"], json(shown));
    }
    world.ok(&["put", "db", "c", "k", "v"]);
    world.ok(&["ttl", "db", "c", "1"]);
    sleep(Duration::from_millis(1_001));
    world.fails(1, &["get", "db", "c", "k"]);
    world.ok(&["ttl", "db", "c", "off"]);
    world.fails(1, &["get", "db", "c", "k"]);
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
        world.ok(&["import", "db", "c", "in.jsonl", "--key", "id"]),
        "6 lines imported\n"
    );
    assert_eq!(world.ok(&["get", "db", "c", "object"]), lines[0]);
    assert_eq!(world.ok(&["get", "db", "c", "7"]), r#"{"id":7}"#);
    assert_eq!(world.ok(&["get", "db", "c", "own member"]), r#"{"ttl":5}"#);
    assert_eq!(
        world.ok(&["export", "db", "c", "out.jsonl"]),
        "6 items exported\n"
    );
    let exported = std::fs::read(world.path("out.jsonl")).unwrap();
    assert_eq!(world.run(&["export", "db", "c"]).out, exported);
    assert_eq!(world.run(&["scan", "db", "c", "--json"]).out, exported);
    let imported = world.run_with_input(&["import", "copy", "c", "-", "--json"], &exported);
    assert_eq!(json(&imported.ok()), json(r#"{"imported":6,"skipped":0}"#));
    assert_eq!(
        world.run(&["scan", "db", "c"]).out,
        world.run(&["scan", "copy", "c"]).out
    );
    let without_ts = |db: &str| {
        let lines = world.ok(&["export", db, "c"]);
        let mut items: Vec<_> = lines.lines().map(json_without_ts).collect();
        items.sort();
        items
    };
    assert_eq!(without_ts("db"), without_ts("copy"));
}

/// A line's text but for the seconds in it; numbers too big for a parser stand in some of them.
fn json_without_ts(line: &str) -> String {
    let (before, rest) = line.split_once("\"_ts\":").unwrap();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    format!("{before}{}", &rest[digits..])
}

#[test]
fn bad_lines_are_named_and_stop_an_import() {
    let world = World::new();
    let lines =
        "{\"id\":1}\n\n{\"id\":null}\nno json\n{\"id\":2,\"ttl\":0}\n{\"x\":1}\n{\"id\":3}\n";
    world.write("in.jsonl", lines);
    let why = world.fails(2, &["import", "db", "c", "in.jsonl", "--key", "id"]);
    assert!(
        why.starts_with("line 3: key null is not allowed: "),
        "{why}"
    );
    assert!(why.ends_with("(stored before it: 1 line)"), "{why}");
    assert_eq!(world.ok(&["scan", "db", "c"]), "1\t{\"id\":1}\n");
    let ran = world.run(&["import", "db", "c", "in.jsonl", "--key", "id", "--skip-bad"]);
    assert_eq!(ran.status, 0);
    assert_eq!(
        String::from_utf8(ran.out).unwrap(),
        "2 lines imported, 4 bad lines skipped\n"
    );
    let named: Vec<_> = ran
        .err
        .lines()
        .map(|line| line.split(": ").nth(1).unwrap())
        .collect();
    assert_eq!(named, ["line 3", "line 4", "line 5", "line 6"]);
    assert_eq!(
        world.ok(&["scan", "db", "c"]),
        "1\t{\"id\":1}\n3\t{\"id\":3}\n"
    );
    let ran = world.run_with_input(
        &["import", "db", "c", "-", "--key", "id"],
        b"{\"id\":\"\xff\"}",
    );
    assert!(ran.failed(2).starts_with("line 1: "));
    let why = world.fails(2, &["import", "other", "c", "missing.jsonl", "--key", "id"]);
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
        let args = ["import", "db", "c", "in.jsonl", "--key", "id", "--skip-bad"];
        let ran = world.run(&[&args[..], &["--json"]].concat());
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
        let ran = world.run(&["replay", "t.csv", "--skip-bad", "--json"]);
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
    world.ok(&["put", "db", "c", "k", "v"]);
    import("db", "bad.jsonl");
    world.fails(2, &["put", "db", "new", "", "v"]);
    assert_eq!(world.ok(&["containers", "db"]), "c\n");
    // But what was there stays, and so does what was stored before.
    world.ok(&["ttl", "db", "empty", "60"]);
    world.fails(2, &["put", "db", "empty", "", "v"]);
    world.write("later.jsonl", "{\"id\":2}\n{\"x\":1}\n");
    import("db", "later.jsonl");
    assert_eq!(world.ok(&["containers", "db"]), "c\nempty\nnew\n");
    world.write("empty.jsonl", "");
    let args = ["import", "db", "nothing", "empty.jsonl"];
    assert_eq!(world.ok(&args), "0 lines imported\n");
    assert_eq!(world.ok(&["scan", "db", "nothing"]), "");
}

#[test]
fn no_database_is_made_among_other_things() {
    let world = World::new();
    world.write("in.jsonl", "{\"id\":1}\n");
    std::fs::create_dir_all(world.path("home/pictures")).unwrap();
    for command in [
        &["put", "home", "c", "k", "v"][..],
        &["import", "home", "c", "in.jsonl", "--key", "id"],
        &["ttl", "home", "c", "60"],
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
    for dir in ["empty", "disk", "missing"] {
        world.ok(&["put", dir, "c", "k", "v"]);
        // A database is one with other things beside it, too.
        std::fs::create_dir(world.path(dir).join("pictures")).unwrap();
        world.ok(&["put", dir, "c", "k", "w"]);
    }
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let world = World::new();
    let marked = |text: &str| [b"\xef\xbb\xbf", text.as_bytes()].concat();
    let import = ["import", "db", "c", "-", "--key", "id"];
    let ran = world.run_with_input(&import, &marked("{\"id\":1}\n{\"id\":2}\n"));
    assert_eq!(ran.ok(), "2 lines imported\n");
    assert_eq!(world.ok(&["get", "db", "c", "1"]), "{\"id\":1}");
    let ran = world.run_with_input(&["replay", "-", "--json"], &marked(TRACE));
    assert_eq!(replayed(&ran.ok())["played"], 13);
    for short in ["", "\n", "{}"] {
        let ran = world.run_with_input(&["import", "db", "c", "-", "--skip-bad"], short.as_bytes());
        assert_eq!(ran.status, 0, "{short:?}: {}", ran.err);
    }
}

#[test]
fn what_is_not_text_is_refused_by_what_it_is() {
    let world = World::new();
    for (begin, what, tool) in [
        (&b"\x1f\x8b\x08\x00"[..], "compressed by gzip", "gunzip -c"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc"),
        (b"\xff\xfe{\0", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    ] {
        let bytes = [begin, b" and more\n"].concat();
        std::fs::write(world.path("in"), &bytes).unwrap();
        let expected = |name| {
            format!(
                "{name} is {what}: give the output of `{tool}` to standard input, with - for the file"
            )
        };
        let (import, replay) = (["import", "db", "c"], ["replay"]);
        let why = world.fails(2, &[&import[..], &["in"]].concat());
        assert_eq!(why, expected("in"));
        let why = world.fails(2, &[&replay[..], &["in", "kept"]].concat());
        assert_eq!(why, expected("in"));
        let ran = world.run_with_input(&[&import[..], &["-"]].concat(), &bytes);
        assert_eq!(ran.failed(2), expected("-"));
    }
    assert!(!world.path("db").exists() && !world.path("kept").exists());
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_one_line_and_an_error() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let world = World::new();
    world.ok(&["put", "db", "c", "k", "v"]);
    world.write("t.csv", TRACE);
    for command in [
        &["get", "db", "c", "k"][..],
        &["get", "db", "c", "k", "--json"],
        &["scan", "db", "c"],
        &["export", "db", "c"],
        &["containers", "db"],
        &["stats", "db"],
        &["ttl", "db", "c"],
        &["verify", "db"],
        &["compact", "db"],
        &["replay", "t.csv"],
        &["help"],
    ] {
        let ran = Ran::of(world.command(command).stdout(full()).output().unwrap());
        assert_eq!(
            ran.failed(2),
            "cannot write standard output: No space left on device (os error 28)",
            "{command:?}"
        );
    }
    // The status says it where the line cannot.
    for (command, status) in [(&["get", "db", "c", "missing"][..], 1), (&["fetch"], 2)] {
        let ran = Ran::of(world.command(command).stderr(full()).output().unwrap());
        assert_eq!(ran.status, status, "{command:?}");
    }
}

/// What a run of the demo or the replay makes in the temporary folder goes with it, also when it is told to end.
#[test]
fn a_signal_takes_the_temporary_folder_along() {
    for (command, signal, number) in [
        (&["demo"][..], "INT", 2),
        (&["demo"], "TERM", 15),
        (&["replay", "-"], "INT", 2),
        (&["replay", "-"], "TERM", 15),
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
fn real_answers_of_name_servers_are_imported() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/dns-answers.jsonl.gz");
    let gzip = Command::new("gzip").arg("-dc").arg(&file).output();
    let Some(lines) = gzip.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: needs {} and the gzip tool", file.display());
        return;
    };
    let world = World::new();
    let lines = String::from_utf8(lines.stdout).unwrap();
    world.write("dns.jsonl", &lines);
    let why = world.fails(2, &["import", "db", "dns", "dns.jsonl", "--key", "id"]);
    let first = 1 + lines
        .lines()
        .position(|line| json(line)["ttl"] == 0)
        .unwrap();
    assert!(
        why.starts_with(&format!("line {first}: ttl 0 is not allowed")),
        "{why}"
    );
    world.ok(&["ttl", "db", "dns", "off"]);
    let ran = world.run(&[
        "import",
        "db",
        "dns",
        "dns.jsonl",
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
    let (named, more) = ran.err.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(named.lines().collect::<Vec<_>>(), refused[..20]);
    assert_eq!(more, "ebbtide: 2,135 more bad lines left out");
    let summary = json(std::str::from_utf8(&ran.out).unwrap());
    assert_eq!(
        (&summary["imported"], &summary["skipped"]),
        (&json("37527"), &json("2155"))
    );
    // The last answer to a question counts. ttl is off, so none of them has expired.
    let last: std::collections::BTreeMap<_, _> = lines
        .lines()
        .map(json)
        .filter(|answer| answer["ttl"] != 0)
        .map(|answer| (answer["id"].as_str().unwrap().to_owned(), answer))
        .collect();
    let exported = world.ok(&["export", "db", "dns"]);
    assert_eq!(exported.lines().count(), last.len());
    for (item, (key, answer)) in exported.lines().map(json).zip(&last) {
        assert_eq!(item["_key"], **key);
        assert_eq!(
            (&item["answers"], &item["ttl"]),
            (&answer["answers"], &answer["ttl"])
        );
    }
}

#[test]
fn what_is_not_there_is_not_created() {
    let world = World::new();
    let database = "there is no database in missing";
    for command in [
        &["get", "missing", "c", "k"][..],
        &["scan", "missing", "c"],
        &["ttl", "missing", "c"],
        &["delete", "missing", "c", "k"],
        &["touch", "missing", "c", "k"],
        &["export", "missing", "c"],
        &["containers", "missing"],
        &["stats", "missing"],
        &["compact", "missing"],
        &["checkpoint", "missing", "to"],
    ] {
        assert_eq!(world.fails(2, command), database, "{command:?}");
    }
    world.fails(2, &["verify", "missing"]);
    assert!(!world.path("missing").exists() && !world.path("to").exists());
    std::fs::create_dir(world.path("missing")).unwrap();
    assert_eq!(world.fails(2, &["compact", "missing"]), database);
    assert_eq!(std::fs::read_dir(world.path("missing")).unwrap().count(), 0);
    world.ok(&["put", "db", "c", "k", "v"]);
    for command in [
        &["get", "db", "d", "k"][..],
        &["scan", "db", "d"],
        &["ttl", "db", "d"],
        &["delete", "db", "d", "k"],
        &["touch", "db", "d", "k"],
        &["export", "db", "d"],
        &["stats", "db", "d"],
    ] {
        assert_eq!(
            world.fails(1, command),
            "there is no container \"d\"",
            "{command:?}"
        );
    }
    assert_eq!(world.ok(&["containers", "db"]), "c\n");
}

#[test]
fn stats_count_what_is_live() {
    let world = World::new();
    world.ok(&["ttl", "db", "sessions", "1800"]);
    for n in 0..10 {
        world.ok(&["put", "db", "sessions", &format!("s-{n}"), "value"]);
    }
    world.ok(&["put", "db", "other", "k", "v"]);
    let stats = json(&world.ok(&["stats", "db", "--json"]));
    assert_eq!(stats["live_items"], 11);
    assert_eq!(stats["live_bytes"], 10 * (3 + 5 + 16) + (1 + 1 + 16));
    assert_eq!(stats["oldest_unreclaimed_ms"], Value::Null);
    assert_eq!(stats["containers"][1]["container"], "sessions");
    assert_eq!(stats["containers"][1]["default_ttl"], 1_800);
    let one = json(&world.ok(&["stats", "db", "sessions", "--json"]));
    assert_eq!(
        (&one["live_items"], &one["live_bytes"]),
        (&json("10"), &json("240"))
    );
    let table = world.ok(&["stats", "db"]);
    assert!(table.contains("items live"), "{table}");
    let row = table
        .lines()
        .find(|line| line.starts_with("sessions"))
        .unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[..5], ["sessions", "30", "min", "10", "240"]);
    let names: Vec<_> = world
        .ok(&["containers", "db", "--json"])
        .lines()
        .map(json)
        .collect();
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
    world.ok(&["ttl", "db", "c", "-1"]);
    world.ok(&["import", "db", "c", "in.jsonl", "--key", "id"]);
    world.ok(&["put", "db", "c", "stays", "v"]);
    sleep(Duration::from_millis(1_001));
    let done = json(&world.ok(&["compact", "db", "--json"]));
    let after = &done["after"];
    assert_eq!(
        (&after["live_items"], &after["expired_bytes"]),
        (&json("1"), &json("0"))
    );
    assert_eq!(after["oldest_unreclaimed_ms"], Value::Null);
    assert!(after["table_bytes"].as_u64().unwrap() < 4_096, "{after}");
    assert_eq!(world.ok(&["scan", "db", "c"]), "stays\tv\n");
    assert!(world.ok(&["compact", "db"]).starts_with("on disk "));
}

#[test]
fn a_checkpoint_is_a_database() {
    let world = World::new();
    world.ok(&["put", "db", "c", "k", "before", "--ttl", "3600"]);
    world.ok(&["checkpoint", "db", "copy"]);
    world.ok(&["put", "db", "c", "k", "after"]);
    assert_eq!(world.ok(&["get", "copy", "c", "k"]), "before");
    assert_eq!(
        json(&world.ok(&["get", "copy", "c", "k", "--json"]))["ttl"],
        3_600
    );
    world.ok(&["put", "copy", "c", "k", "elsewhere"]);
    assert_eq!(world.ok(&["get", "db", "c", "k"]), "after");
    let why = world.fails(2, &["checkpoint", "db", "copy"]);
    assert!(why.contains("copy is not allowed"), "{why}");
}

#[test]
fn verify_names_each_fault() {
    let world = World::new();
    let line = |n: u32| format!("{{\"id\":{n},\"text\":\"some text\"}}\n");
    world.write("in.jsonl", &(0..1_000).map(line).collect::<String>());
    world.ok(&["import", "db", "c", "in.jsonl", "--key", "id"]);
    world.ok(&["checkpoint", "db", "copy"]);
    let report = json(&world.ok(&["verify", "copy", "--json"]));
    assert!(report["records"].as_u64().unwrap() >= 1_000, "{report}");
    assert_eq!(report["faults"], json("[]"));
    assert!(world.ok(&["verify", "copy"]).contains("faults: 0"));
    let mut tables = std::fs::read_dir(world.path("copy/tables")).unwrap();
    let table = tables.next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    // A checkpoint shares its tables with the database: the damaged one is another file.
    std::fs::remove_file(&table).unwrap();
    std::fs::write(&table, bytes).unwrap();
    let ran = world.run(&["verify", "copy", "--json"]);
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
    let ran = world.run(&["verify", "copy"]);
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
    assert!(world.ok(&["verify", "db"]).contains("faults: 0"));
}

#[test]
fn repair_says_what_is_lost_and_changes_nothing_unasked() {
    let world = World::new();
    let line = |n: u32| format!("{{\"id\":\"{n:04}\",\"text\":\"some text\"}}\n");
    world.write("in.jsonl", &(0..500).map(line).collect::<String>());
    world.ok(&["import", "db", "c", "in.jsonl", "--key", "id"]);
    world.ok(&["compact", "db"]);
    world.ok(&["put", "db", "c", "new", "v"]);
    assert!(
        world
            .ok(&["repair", "db"])
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
        let refused = world.run(&["repair", "db"]);
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
        let said = world.ok(&["repair", "db", "--yes"]);
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
        assert_eq!(world.ok(&["get", "db", "c", "new"]), "v");
        let left = world.ok(&["scan", "db", "c"]).lines().count();
        assert_eq!(left, 501 - lost);
        assert!(world.ok(&["verify", "db"]).contains("faults: 0"));
    }
}

#[test]
fn every_command_says_the_same_of_a_lost_manifest() {
    for with_copy in [true, false] {
        let world = World::new();
        world.ok(&["put", "db", "c", "k", "v"]);
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
            &["get", "db", "c", "k"][..],
            &["put", "db", "c", "k", "w"],
            &["delete", "db", "c", "k"],
            &["containers", "db"],
            &["compact", "db"],
            &["verify", "db"],
        ] {
            let ran = world.run(command);
            assert_eq!(ran.status, 2, "{command:?}");
            let said = String::from_utf8(ran.out).unwrap() + &ran.err;
            assert!(said.contains("manifest"), "{command:?}: {said}");
            assert!(says_the_way_on(&ran.err), "{command:?}: {said}");
        }
        let refused = world.run(&["repair", "db"]);
        assert_eq!(refused.status, 2);
        if with_copy {
            world.ok(&["repair", "db", "--yes"]);
            assert_eq!(world.ok(&["get", "db", "c", "k"]), "v");
            assert!(world.ok(&["verify", "db"]).contains("faults: 0"));
        } else {
            let why = world.fails(2, &["repair", "db", "--yes"]);
            assert!(says_the_way_on(&why), "{why}");
        }
    }
}

#[test]
fn a_database_in_use_is_refused() {
    let world = World::new();
    let db = ebbtide::Database::open(world.path("db")).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    for command in [
        &["put", "db", "c", "k", "w"][..],
        &["get", "db", "c", "k"],
        &["compact", "db"],
    ] {
        assert!(world.fails(2, command).contains("is open elsewhere"));
    }
    db.close().unwrap();
    assert_eq!(world.ok(&["get", "db", "c", "k"]), "v");
}

#[test]
fn wrong_use_is_said_in_one_line() {
    let world = World::new();
    for (args, word) in [
        (&[][..], "which command?"),
        (&["fetch"], "unrecognized subcommand 'fetch'"),
        (&["put", "db", "c"], "<KEY> <VALUE>"),
        (
            &["get", "db", "c", "k", "more"],
            "unexpected argument 'more'",
        ),
        (&["scan", "db", "c", "--limit", "-1"], "'--limit <N>'"),
        (
            &["put", "db", "c", "k", "v", "--ttl"],
            "a value is required",
        ),
        (&["demo", "--seconds", "1"], "1 is not in 2..=86400"),
    ] {
        let why = world.fails(2, args);
        assert!(why.contains(word), "{why}");
    }
    assert_eq!(std::fs::read_dir(world.folder.path()).unwrap().count(), 0);
    assert!(world.ok(&["help"]).contains("Exit status"));
    assert!(world.ok(&["put", "--help"]).contains("--ttl"));
    assert!(world.ok(&["--version"]).starts_with("ebbtide "));
}

#[test]
fn the_demo_keeps_its_promises() {
    let world = World::new();
    let ran = world.run(&["demo", "kept", "--seconds", "3", "--seed", "7", "--json"]);
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
    assert_eq!(world.ok(&["scan", "kept", "sessions"]), "");
    let why = world.fails(2, &["demo", "kept", "--seconds", "2"]);
    assert_eq!(why, "kept is not empty: the demo needs a new folder");
}

/// Two seconds before `b` expires it is there, and when it expires it is not; `n` never does. The key of one letter in
/// seven bytes stands for those that anonymised traces have.
const TRACE: &str = "\
100,b,7,0,0,get,0
100,b,7,40,0,set,10
101,n,1,20,0,add,0
101,n,1,20,0,add,60
108,b,7,0,0,gets,0
109,b,7,2,0,append,60

110,b,7,0,0,get,0
110,b,7,8,0,replace,60
111,n,1,0,0,incr,0
112,d,1,9,0,set,60
112,d,1,0,0,delete,0
112,d,1,9,0,cas,60
113,n,1,0,0,get,0\r
";

fn replayed(shown: &str) -> Value {
    assert_eq!(shown.lines().count(), 1, "{shown}");
    let report = json(shown);
    assert_eq!(report["broken"], json("[]"));
    assert_eq!(
        [
            &report["expired_returned"],
            &report["live_missed"],
            &report["wrong_answers"]
        ],
        [0, 0, 0]
    );
    report
}

#[test]
fn a_replay_has_the_hits_of_its_trace() {
    let world = World::new();
    world.write("t.csv", TRACE);
    let args = ["replay", "t.csv", "kept", "--container", "c", "--json"];
    let report = replayed(&world.ok(&args));
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
    assert_eq!(
        (&report["played"], &report["checked"]),
        (&13.into(), &10.into())
    );
    assert_eq!(
        (&report["hit_rate"], &report["trace_seconds"]),
        (&0.5.into(), &13.into())
    );
    assert!(report["stats"]["bytes_logged"].as_u64().unwrap() > 0);
    assert!(report["writes_micros"]["p99.9"].as_f64().unwrap() > 0.0);
    // What has a ttl has expired by today; what has none is the value that the ninth operation made.
    let kept = world.run(&["get", "kept", "c", "n"]).out;
    assert_eq!((kept.len(), &kept[..8]), (20, &9_u64.to_le_bytes()[..]));
    world.fails(1, &["get", "kept", "c", "d"]);
    let why = world.fails(2, &args);
    assert_eq!(why, "kept is not empty: the replay needs a new folder");
}

#[test]
fn a_replay_reads_standard_input_and_shows_a_table() {
    let world = World::new();
    let shown = world.run_with_input(&["replay", "-", "--limit", "5"], TRACE.as_bytes());
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
    let report = replayed(&world.ok(&["replay", "t.csv", "--json"]));
    assert_eq!(
        (&report["hit_rate"], &report["fills"]),
        (&0.0.into(), &0.into())
    );
    let report = replayed(&world.ok(&["replay", "t.csv", "--json", "--fill-on-miss"]));
    assert_eq!(report["operations"]["get"]["done"], 2);
    assert_eq!(report["fills"], 2);
    assert_eq!(report["stats"]["bytes_put"], 2 * 31);
}

#[test]
fn bad_lines_are_named_and_stop_a_replay() {
    let world = World::new();
    let trace = "7,k,1,3,0,set,0\n7,k,1,3,0,fetch,0\n7,k,1,3\n6,k,1,0,0,get,0\n7,k,1,3,0,set,-1\n7,k,1,0,0,get,0\n";
    world.write("t.csv", trace);
    let why = world.fails(2, &["replay", "t.csv"]);
    assert!(
        why.starts_with("line 2: operation fetch is not allowed: get, gets, set, "),
        "{why}"
    );
    assert!(
        why.ends_with("(1 operations before it were played)"),
        "{why}"
    );
    let ran = world.run(&["replay", "t.csv", "--skip-bad", "--json"]);
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
    assert_eq!(
        (&report["skipped"], &report["hit_rate"]),
        (&4.into(), &1.0.into())
    );
    let why = world.fails(2, &["replay", "missing.csv", "new"]);
    assert!(why.starts_with("cannot open missing.csv: "), "{why}");
    let why = world.fails(2, &["replay", "t.csv", "new", "--speed", "0.5"]);
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
    let report = replayed(&world.ok(&["replay", "t.csv", "kept", "--speed", "10", "--json"]));
    assert_eq!(
        (&report["hit_rate"], &report["trace_seconds"]),
        (&0.5.into(), &3.into())
    );
    assert!(report["seconds"].as_f64().unwrap() >= 0.3);
    // A tenth of the lifetime is left to be seen.
    let item = json(&world.ok(&["get", "kept", "cache", "l", "--json"]));
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
    let args = ["replay", "-", "--memtable", "65536", "--json"];
    let report = replayed(&world.run_with_input(&args, text.as_bytes()).ok());
    let counts = &report["operations"]["get"];
    assert_eq!(
        (&counts["played"], &counts["done"]),
        (&gets.into(), &hits.into())
    );
    assert!(report["stats"]["flushes"].as_u64().unwrap() > 0);
    assert!(report["disk_to_live_mean"].as_f64() <= report["disk_to_live_worst"].as_f64());
}
