//! All rows from the command line, small: every engine answers everything rightly, also after a kill, and what comes of it
//! can be shown.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn peers(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide-peers"));
    let output = command.args(arguments).current_dir(folder).output();
    output.unwrap()
}

#[test]
fn every_engine_does_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let engines = match cfg!(feature = "rocksdb") {
        true => "ebbtide,rocksdb,rocksdb-tuned,rocksdb-blobs,fjall,redb,lmdb,lmdb-checksums",
        false => "ebbtide,fjall,redb,lmdb,lmdb-checksums",
    };
    let mut arguments = vec!["rows", "--engines", engines, "--scratch", "scratch"];
    arguments.extend("--items 2000 --seconds 0.02 --rounds 2 --memtable 64KiB".split(' '));
    let output = peers(&arguments, folder.path());
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");

    let lines = fs::read_to_string(folder.path().join("out/rows/rows-2000x100.jsonl")).unwrap();
    let engines = engines.split(',').count();
    // 28 rows, of which two are done with two numbers of threads.
    assert_eq!(lines.lines().count(), 2 * 30 * engines, "{log}");
    for line in lines.lines() {
        let outcome: serde_json::Value = serde_json::from_str(line).unwrap();
        let answers = &outcome["answers"];
        let fill = outcome["order"]["row"] == "fill";
        assert!(fill || answers["right"].as_u64() >= Some(2_000), "{line}");
        assert_eq!(answers["wrong"], 0, "{line}");
        assert_eq!(answers["missing"], 0, "{line}");
    }

    let table = String::from_utf8(peers(&["table", "out/rows"], folder.path()).stdout).unwrap();
    assert!(
        table.contains("## 2 000 items of 16 + 100 bytes"),
        "{table}"
    );
    assert!(table.contains("\n| synced puts, 16 threads |"), "{table}");
    assert!(table.contains("| x fjall |"), "{table}");
    let drawn = peers(&["chart", "out/rows", "rows.svg"], folder.path());
    assert!(drawn.status.success(), "{drawn:?}");
    let svg = fs::read_to_string(folder.path().join("rows.svg")).unwrap();
    assert!(svg.contains("reopen after a kill"), "{svg}");
}

#[test]
fn a_run_that_fails_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["rows", "--engines", "lmdb", "--rows", "get"];
    arguments.extend("--items 1000 --seconds 0.02 --rounds 1 --scratch scratch".split(' '));
    assert!(peers(&arguments, folder.path()).status.success());
    // A file where the databases should go.
    fs::remove_dir_all(folder.path().join("scratch")).unwrap();
    fs::write(folder.path().join("scratch"), "").unwrap();
    assert!(!peers(&arguments, folder.path()).status.success());
}
