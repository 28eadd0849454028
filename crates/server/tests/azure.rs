//! The SDKs' own judgement: tests of azure-cosmos for Python, as its source distribution has them, and a program of thirty
//! steps on @azure/cosmos for JavaScript.
//!
//! Both install from the registries of their languages, and say so and pass where they cannot. They take some minutes, so
//! they run where they are asked for: `cargo test -p ebbtide-server --test azure -- --ignored`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ebbtide_server::{ClockKind, Config, Server};

/// The files of the suite that use a server, without what `_async` has.
const FILES: [&str; 17] = [
    "ttl",
    "transactional_batch",
    "query",
    "query_cross_partition",
    "crud",
    "crud_container",
    "crud_database",
    "change_feed",
    "changefeed_partition_key_variation",
    "read_items",
    "none_options",
    "partition_key",
    "encoding",
    "cosmos_responses",
    "orderby",
    "session",
    "crud_response_payload_on_write_disabled",
];
/// These have no asynchronous form.
const SYNCHRONOUS: [&str; 2] = ["ttl", "orderby"];

/// How many pass at least, of 269 and 251.
const SYNC: usize = 214;
const ASYNC: usize = 204;

/// The status that says that something is missing.
const MISSING: i32 = 77;

/// Kept from run to run: installing takes longer than the tests of a file.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn server(clock: ClockKind, key: Option<&Path>) -> Server {
    let mut config = Config::default();
    config.temporary = true;
    config.clock = clock;
    config.key_file = key.map(Path::to_path_buf);
    config.http = "127.0.0.1:0".parse().unwrap();
    Server::start(&config).unwrap()
}

/// Of each test that was run whether it `passed`, `failed` or was `skipped` by itself. None: something is missing.
fn suite(version: &str, files: &[String]) -> Option<BTreeMap<String, String>> {
    let folder = folder("azure-python");
    std::fs::create_dir_all(&folder).unwrap();
    // Of each suite its own: they run beside each other.
    let key = folder.join(format!("key of {}", files[0]));
    std::fs::write(&key, "ZWJidGlkZQ==").unwrap();
    let server = server(ClockKind::System, Some(&key));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/azure/suite.py");
    let endpoint = server.url();
    let run = Command::new("python3")
        .arg(script)
        .arg(&folder)
        .args([version, &endpoint])
        .args(files)
        .output();
    let Ok(run) = run else {
        println!("left out: there is no python3");
        return None;
    };
    if is_missing(&run) {
        return None;
    }
    let out = String::from_utf8_lossy(&run.stdout);
    let told = out
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    Some(told.unwrap_or_else(|| panic!("{out}\n{}", String::from_utf8_lossy(&run.stderr))))
}

fn is_missing(run: &Output) -> bool {
    let missing = run.status.code() == Some(MISSING);
    if missing {
        println!("left out: {}", String::from_utf8_lossy(&run.stdout).trim());
    }
    missing
}

/// All that was run passed, and it was no fewer than so many.
fn judge(told: &BTreeMap<String, String>, at_least: usize) {
    let count = |outcome: &str| told.values().filter(|told| *told == outcome).count();
    let failed: Vec<_> = told
        .iter()
        .filter(|(_, outcome)| *outcome == "failed")
        .map(|(name, _)| name)
        .collect();
    println!(
        "{} passed, {} failed, {} skipped by themselves",
        count("passed"),
        failed.len(),
        count("skipped")
    );
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(count("passed") >= at_least, "{} passed", count("passed"));
}

#[test]
#[ignore = "three minutes"]
fn the_suite_for_python_passes() {
    let files = FILES.map(|file| format!("test_{file}.py"));
    if let Some(told) = suite("4.17.1", &files) {
        judge(&told, SYNC);
    }
}

#[test]
#[ignore = "three minutes"]
fn the_suite_for_asynchronous_python_passes() {
    let files = FILES.iter().filter(|file| !SYNCHRONOUS.contains(file));
    let files: Vec<String> = files.map(|file| format!("test_{file}_async.py")).collect();
    if let Some(told) = suite("4.17.1", &files) {
        judge(&told, ASYNC);
    }
}

/// The last version whose suite has all tests of time to live.
#[test]
#[ignore = "a minute, of which documents live for some seconds"]
fn the_tests_of_time_to_live_pass() {
    if let Some(told) = suite("4.5.1", &["test_ttl.py".to_string()]) {
        judge(&told, 5);
    }
}

#[test]
#[ignore = "installs from a registry"]
fn the_sdk_for_javascript_does_thirty_steps() {
    let folder = folder("azure-node");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program.mjs");
    std::fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/program.mjs"),
        &program,
    )
    .unwrap();
    if !folder
        .join("node_modules/@azure/cosmos/package.json")
        .exists()
    {
        let install = Command::new("npm")
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--silent",
                "@azure/cosmos@4.9.3",
            ])
            .current_dir(&folder)
            .output();
        match install {
            Ok(done) if done.status.success() => {}
            Ok(failed) => return println!("left out: {}", String::from_utf8_lossy(&failed.stderr)),
            Err(_) => return println!("left out: there is no npm"),
        }
    }
    let server = server(ClockKind::Manual, None);
    let run = Command::new("node")
        .arg(&program)
        .arg(server.url())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{out}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(out.lines().count(), 30, "{out}");
}
