//! The changes since a version.

use std::io::{BufRead, BufReader};

use super::*;

/// That nothing but the default rule holds may be told though nothing has changed.
fn is_news(line: &Value) -> bool {
    line["change"] != "expiry" || line["default_ttl"] != -1
}

/// The lines, without rules and times; the last one's version.
fn changes(world: &World, args: &[&str]) -> (Vec<Value>, String) {
    let shown = world.ok(&[&["changes", "db"], args].concat());
    let mut lines: Vec<Value> = shown.lines().map(json).collect();
    let last = lines.pop().expect("a version comes last");
    assert_eq!(last["change"], "version");
    (
        lines.into_iter().filter(is_news).map(plain).collect(),
        last["version"].to_string(),
    )
}

/// A line without what differs from run to run.
fn plain(mut line: Value) -> Value {
    let members = line.as_object_mut().unwrap();
    members.remove("rule");
    members.remove("version");
    if let Some(item) = members.get_mut("item").and_then(Value::as_object_mut) {
        item.remove("_ts");
        item.remove("_ts_ms");
    }
    line
}

#[test]
fn each_call_goes_on_from_the_version_of_the_last() {
    let world = World::new();
    world.ok(&["put", "db", "a", "k", r#"{"n":1}"#]);
    world.ok("put db a l text --ttl 3600");
    world.ok("put db b --hex ff ff00");
    let (lines, version) = changes(&world, &[]);
    let expires = &lines[2]["expires_ms"];
    let left = expires.as_u64().unwrap() / 1_000 - now_seconds();
    assert!((3_500..=3_600).contains(&left), "{left}");
    let first = [
        r#"{"change":"created","container":"a"}"#,
        r#"{"change":"put","container":"a","expires_ms":null,"item":{"_key":"k","n":1}}"#,
        &format!(
            r#"{{"change":"put","container":"a","expires_ms":{expires},"item":{{"_key":"l","ttl":3600,"_value":"text"}}}}"#
        ),
        r#"{"change":"created","container":"b"}"#,
        r#"{"change":"put","container":"b","expires_ms":null,"item":{"_key_base64":"/w==","_value_base64":"/wA="}}"#,
    ];
    assert_eq!(lines, first.map(json));
    assert_eq!(
        changes(&world, &["--since", &version]),
        (vec![], version.clone())
    );

    world.told("delete-range db a --from l");
    world.ok("delete db a k");
    world.ok("ttl db b 60");
    let (lines, second) = changes(&world, &["--since", &version]);
    let told = [
        r#"{"change":"delete_range","container":"a","from":{"_key":"l"},"to":null}"#,
        r#"{"change":"delete","container":"a","item":{"_key":"k"}}"#,
        r#"{"change":"expiry","container":"b","default_ttl":60}"#,
    ];
    assert_eq!(lines, told.map(json));
    let (lines, _) = changes(&world, &["b", "--since", &version]);
    assert_eq!(lines, [json(told[2])]);

    world.told("drop db a --yes");
    let (lines, third) = changes(&world, &["--since", &second]);
    assert_eq!(lines, [json(r#"{"change":"containers","names":["b"]}"#)]);
    assert!(third.parse::<u64>().unwrap() > second.parse::<u64>().unwrap());
}

#[test]
fn what_cannot_be_told_is_an_error() {
    let world = World::new();
    world.ok("put db c k v");
    assert_eq!(
        world.fails(1, "changes db other"),
        "there is no container \"other\""
    );
    let why = world.fails(2, "changes db --since 1000000");
    assert!(why.contains("drop the copy"), "{why}");
    let (_, version) = changes(&world, &[]);
    world.ok("delete db c k");
    // The delete leaves the disk with what it hides.
    world.run("compact db");
    let why = world.fails(2, &["changes", "db", "--since", &version]);
    assert!(why.contains("drop the copy"), "{why}");
}

/// Lines of a run that goes on, and the run.
struct Following {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Following {
    fn of(world: &World, args: &[&str]) -> Following {
        let args = [&["changes", "db", "--follow", "--every", "10ms"], args].concat();
        let mut child = world.command(&args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { child, lines }
    }

    /// The lines up to a version, and that.
    fn pass(&mut self) -> (Vec<Value>, u64) {
        let mut lines = vec![];
        loop {
            let line = json(&self.lines.next().unwrap().unwrap());
            if line["change"] == "version" {
                return (lines, line["version"].as_u64().unwrap());
            }
            lines.extend(Some(line).filter(is_news).map(plain));
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn following_goes_on_as_others_write() {
    let world = World::new();
    world.ok("put db c k 1");
    let mut following = Following::of(&world, &["c"]);
    let (lines, first) = following.pass();
    assert_eq!(lines.len(), 2);
    world.ok("put db c k 2");
    let (lines, second) = following.pass();
    let put =
        r#"{"change":"put","container":"c","expires_ms":null,"item":{"_key":"k","_value":"2"}}"#;
    assert_eq!(lines, [json(put)]);
    assert!(second > first);
    // From a version of another database, or of one that was restored: everything.
    let mut other = Following::of(&world, &["--since", "1000000"]);
    let (lines, version) = other.pass();
    assert_eq!(lines[0], json(r#"{"change":"anew"}"#));
    assert_eq!((lines.len(), version), (3, second));
}
