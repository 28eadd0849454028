//! Goal: a database touches only the files of its own folder, and others cannot: modes, links, names, the lock, and
//! folders made to lead it astray.
//!
//! Method: on the real disk; what must not be touched lies beside the database as a victim. Whatever could wait for ever
//! (a pipe) is opened on a thread of its own. The umask belongs to a whole process, so databases under
//! another one are made by children, which are this binary again.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use ebbtide::internals::{ByteReader, put_frame, read_frame};
use ebbtide::{Database, Error, Options, Result, verify};
use testkit::patience::wait_until;

/// So small that hundreds are opened in seconds.
fn options() -> Options {
    Options::new().memtable_bytes(256 << 10)
}

/// Leaves a database with a file of every kind behind: its process is gone without a word.
fn make(path: &Path) {
    let open = path.with_file_name("open");
    let db = options().open(&open).unwrap();
    let items = db.container("items").unwrap();
    items.put("flushed", "1").unwrap();
    db.flush().unwrap();
    items.put("logged", "2").unwrap();
    db.sync().unwrap();
    // A killed process leaves the files that lie there at some moment.
    copy(&open, path);
    drop((items, db));
    fs::remove_dir_all(open).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Everything below a folder, without following links.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

/// All that a change would show in.
fn state(path: &Path) -> BTreeMap<PathBuf, (u64, SystemTime, u32)> {
    let facts = |path: PathBuf| {
        let data = fs::symlink_metadata(&path).unwrap();
        (path, (data.len(), data.modified().unwrap(), data.mode()))
    };
    below(path).into_iter().map(facts).collect()
}

/// Opens on a thread of its own, so that a pipe which is waited for is a failure and not the end of the tests.
fn open(path: &Path, read_only: bool) -> Result<Database> {
    let path = path.to_owned();
    let opening = std::thread::spawn(move || options().read_only(read_only).open(path));
    wait_until("opening hangs", || opening.is_finished());
    opening.join().unwrap()
}

const UMASK: &str = "EBBTIDE_FILES_CHILD";

#[test]
fn folders_and_files_are_private_whatever_the_umask() {
    if let Some(path) = std::env::var_os(UMASK) {
        let path = PathBuf::from(path);
        let db = Database::open(path.join("above/db")).unwrap();
        let items = db.container("items").unwrap();
        items.put("a", "1").unwrap();
        db.checkpoint(path.join("copy")).unwrap();
        items.put("b", "2").unwrap();
        db.compact().unwrap();
        return;
    }
    let name = testkit::process::test_name(
        module_path!(),
        "folders_and_files_are_private_whatever_the_umask",
    );
    for umask in ["000", "022", "077"] {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("sh")
            .arg("-c")
            .arg(format!("umask {umask} && exec \"$0\" \"$@\""))
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &name])
            .env(UMASK, dir.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        let (mut folders, mut files) = (0, 0);
        for path in below(dir.path()) {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, wanted, "umask {umask}: {}", path.display());
            *if metadata.is_dir() {
                &mut folders
            } else {
                &mut files
            } += 1;
        }
        assert!(folders >= 7 && files >= 8, "{:?}", below(dir.path()));
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Goal: an open for writing takes from others what they may do with a database, and nothing else from anybody. Method: a
/// folder that all may write to, with a file and a folder that are not the database's, and a link among its own.
#[test]
fn an_open_for_writing_takes_the_rights_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let (db, beside) = (dir.path().join("db"), dir.path().join("beside"));
    make(&db);
    fs::create_dir(db.join("lost")).unwrap();
    fs::create_dir_all(db.join("mine/tables")).unwrap();
    for name in ["notes", "mine/tables/notes"] {
        fs::write(db.join(name), "mine").unwrap();
    }
    fs::write(&beside, "mine").unwrap();
    symlink(&beside, db.join("lost/link")).unwrap();
    let is_own = |path: &Path| {
        !path.strip_prefix(&db).unwrap().starts_with("mine") && !path.ends_with("notes")
    };
    let all: Vec<PathBuf> = below(&db)
        .into_iter()
        .filter(|path| !path.ends_with("link"))
        .collect();
    for path in all.iter().chain([&db, &beside]) {
        set_mode(path, if path.is_dir() { 0o777 } else { 0o666 });
    }
    open(&db, true).unwrap().close().unwrap();
    assert!(all.iter().all(|path| mode(path) & 0o077 != 0), "a reader");
    open(&db, false).unwrap().close().unwrap();
    // The folder may have been made by its user: names can still be listed.
    assert_eq!(mode(&db), 0o755);
    let mut own = 0;
    for path in below(&db).iter().filter(|path| !path.ends_with("link")) {
        let wanted = match (is_own(path), path.is_dir()) {
            (true, true) => 0o700,
            (true, false) => 0o600,
            (false, true) => 0o777,
            (false, false) => 0o666,
        };
        assert_eq!(mode(path), wanted, "{}", path.display());
        own += u32::from(is_own(path));
    }
    assert!(own >= 8, "{own}");
    assert_eq!(mode(&beside), 0o666);
}

/// The things that may stand where a file should be, and the words that the error has for them.
const KINDS: [(&str, &str); 5] = [
    ("link", "symbolic link"),
    ("dangling link", "symbolic link"),
    ("folder", "folder"),
    ("pipe", "pipe"),
    ("device", "device"),
];

/// Puts such a thing there; false when that is not allowed here.
fn stand(kind: &str, at: &Path, victim: &Path) -> bool {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let node = |kind, device| mknodat(CWD, at, kind, Mode::RUSR | Mode::WUSR, device).is_ok();
    match kind {
        "link" => symlink(victim, at).is_ok(),
        "dangling link" => symlink(at.with_file_name("nowhere"), at).is_ok(),
        "folder" => fs::create_dir(at).is_ok(),
        "pipe" => node(FileType::Fifo, 0),
        // The zero device: harmless if it were read.
        _ => node(FileType::CharacterDevice, makedev(1, 5)),
    }
}

#[test]
fn what_is_no_file_is_refused_where_a_file_should_be() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    make(&base);
    let mut tried = 0;
    let files: Vec<PathBuf> = below(&base)
        .into_iter()
        .filter(|path| path.is_file())
        .collect();
    let mut wanted: Vec<(PathBuf, bool)> = files
        .iter()
        .map(|path| (path.strip_prefix(&base).unwrap().to_owned(), true))
        .collect();
    assert!(wanted.len() >= 5, "{wanted:?}");
    // And what the next open would create.
    let ahead = |name: &str| (PathBuf::from(name), false);
    wanted.push(ahead("manifest-000002.tmp"));
    for number in 2..6 {
        wanted.push(ahead(&format!("wal/{number:06}.ring")));
    }
    for (name, there) in wanted {
        for (kind, words) in KINDS {
            let (db, victim) = (dir.path().join("db"), dir.path().join("victim"));
            copy(&base, &db);
            let at = db.join(&name);
            // A victim that would do, if it were followed.
            fs::copy(if there { &at } else { &files[0] }, &victim).unwrap();
            let before = fs::read(&victim).unwrap();
            if there {
                fs::remove_file(&at).unwrap();
            }
            if !at.exists() && stand(kind, &at, &victim) {
                tried += 1;
                for read_only in [true, false] {
                    let what = format!("{kind} at {}, read only: {read_only}", name.display());
                    match open(&db, read_only) {
                        Err(Error::NotFound { .. } | Error::Corruption { .. })
                            if kind == "folder" => {}
                        Err(error) => {
                            let said = error.to_string();
                            let clear =
                                said.contains(words) && said.contains(name.to_str().unwrap());
                            assert!(clear, "{what}: {said}");
                        }
                        // A file that is to come, or that is needed no more, is not looked at.
                        Ok(opened) => {
                            let unread = name.starts_with("wal") || name.starts_with("copy");
                            assert!(read_only || !there || unread, "{what}");
                            let items = opened.container("items").unwrap();
                            assert!(items.contains("flushed").unwrap(), "{what}");
                            opened.close().unwrap();
                        }
                    }
                    assert_eq!(
                        fs::read(&victim).unwrap(),
                        before,
                        "{what}: it was followed"
                    );
                }
            }
            fs::remove_dir_all(&db).unwrap();
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn folders_of_the_database_lead_nowhere_else() {
    for name in ["tables", "wal", "copy"] {
        let dir = tempfile::tempdir().unwrap();
        let (db, elsewhere) = (dir.path().join("db"), dir.path().join("elsewhere"));
        make(&db);
        fs::rename(db.join(name), &elsewhere).unwrap();
        // An unnamed table, which opening would remove, and a segment, which it would replace.
        fs::write(elsewhere.join("000777.table"), "not yours").unwrap();
        let before = state(&elsewhere);
        symlink(&elsewhere, db.join(name)).unwrap();
        for read_only in [true, false] {
            let said = open(&db, read_only).err().unwrap().to_string();
            assert!(
                said.contains("symbolic link") && said.contains(name),
                "{said}"
            );
        }
        assert!(verify(&db, &mut |_, _| {}).is_err());
        assert_eq!(state(&elsewhere), before);
    }
}

#[test]
fn a_link_among_the_tables_is_named_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (db, victim) = (dir.path().join("db"), dir.path().join("victim"));
    make(&db);
    fs::write(&victim, "mine").unwrap();
    let link = db.join("tables/000777.table");
    symlink(&victim, &link).unwrap();
    let said = open(&db, false).err().unwrap().to_string();
    assert!(
        said.contains("symbolic link") && said.contains("000777.table"),
        "{said}"
    );
    assert!(fs::symlink_metadata(link).is_ok());
    assert_eq!(fs::read(victim).unwrap(), b"mine");
}

#[test]
fn a_checkpoint_shares_its_tables_by_hard_links() {
    let dir = tempfile::tempdir().unwrap();
    let (path, to) = (dir.path().join("db"), dir.path().join("copy"));
    let db = Database::open(&path).unwrap();
    let items = db.container("items").unwrap();
    items.put("a", "1").unwrap();
    db.checkpoint(&to).unwrap();
    let table = below(&to.join("tables")).remove(0);
    assert_eq!(fs::metadata(&table).unwrap().nlink(), 2);
    // Each goes on without the other.
    items.delete("a").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    fs::remove_dir_all(&path).unwrap();
    let db = Database::open(&to).unwrap();
    let items = db.container("items").unwrap();
    assert_eq!(items.get("a").unwrap().unwrap(), "1");
    items.put("b", "2").unwrap();
    db.compact().unwrap();
    assert_eq!(items.iter().rev().map(Result::unwrap).count(), 2);
    db.close().unwrap();
    assert!(verify(&to, &mut |_, _| {}).unwrap().faults.is_empty());
}

#[test]
fn names_of_containers_are_no_paths() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inner/db");
    let db = Database::open(&path).unwrap();
    let long = "x".repeat(256);
    for name in ["", "a/b", "/etc/passwd", "../x", "nul\0", &long] {
        let error = db.container(name).err().unwrap();
        assert!(
            matches!(error, Error::InvalidArgument { .. }),
            "{name:?}: {error}"
        );
    }
    let names = [
        ".",
        "..",
        "-rf",
        "LOCK",
        "wal",
        "tables",
        "manifest-000009",
        "a\\..\\b",
        "\n",
        " ",
        "\u{202e}",
        "日本語",
        "🦀",
        "C:",
        "%2e%2e%2f",
        &long[..255],
    ];
    for name in names {
        let container = db.container(name).unwrap();
        container.put("key", name).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    let db = Database::open(&path).unwrap();
    let mut sorted = names;
    sorted.sort();
    assert_eq!(db.containers(), sorted);
    for name in names {
        assert_eq!(
            db.container(name).unwrap().get("key").unwrap().unwrap(),
            name
        );
        assert!(db.drop_container(name).unwrap());
    }
    db.close().unwrap();
    for found in below(dir.path()) {
        let name = found.file_name().unwrap().to_str().unwrap();
        let known = ["inner", "db", "LOCK", "wal", "tables", "copy"].contains(&name)
            || name.starts_with("manifest-00000")
            || name.ends_with(".manifest")
            || name.ends_with(".wal")
            || name.ends_with(".ring")
            || name.ends_with(".table");
        assert!(known, "{}", found.display());
    }
}

#[test]
fn the_lock_comes_before_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    // An open that read these files would fail.
    fs::write(dir.path().join("manifest-000999"), "rubbish").unwrap();
    fs::write(dir.path().join("manifest-000999.tmp"), "rubbish").unwrap();
    let before = state(dir.path());
    for read_only in [true, false] {
        let error = open(dir.path(), read_only).err().unwrap();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
    }
    let error = verify(dir.path(), &mut |_, _| {}).err().unwrap();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert_eq!(state(dir.path()), before);
    drop(db);
    assert!(open(dir.path(), false).err().unwrap().is_corruption());
}

#[test]
fn reading_only_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    make(&path);
    let before = state(dir.path());
    let (one, other) = (open(&path, true).unwrap(), open(&path, true).unwrap());
    for db in [one, other] {
        let items = db.container("items").unwrap();
        assert_eq!(items.iter().count(), 2);
        assert!(matches!(items.put("c", "3"), Err(Error::ReadOnly)));
        assert!(matches!(db.container("none"), Err(Error::ReadOnly)));
        assert!(matches!(db.compact(), Err(Error::ReadOnly)));
        db.close().unwrap();
    }
    assert!(verify(&path, &mut |_, _| {}).unwrap().faults.is_empty());
    assert_eq!(state(dir.path()), before);
}

/// Rewrites the edits of a database's manifest, with right checksums.
fn forge(db: &Path, change: impl FnOnce(Vec<String>) -> Vec<String>) {
    let path = db.join("manifest-000001");
    let bytes = fs::read(&path).unwrap();
    let mut reader = ByteReader::new(&bytes);
    let mut forged = reader.bytes(16).unwrap().to_vec();
    let mut edits = vec![];
    while !reader.is_empty() {
        let edit = read_frame(&mut reader).unwrap().to_vec();
        edits.push(String::from_utf8(edit).unwrap());
    }
    for edit in change(edits) {
        put_frame(&mut forged, edit.as_bytes());
    }
    fs::write(path, forged).unwrap();
}

/// Opens a forged database and uses it; the error when it does not open. Nothing outside of it may change.
fn use_forged(change: impl FnOnce(Vec<String>) -> Vec<String>) -> Result<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let (above, victim) = (dir.path().join("above"), dir.path().join("victim"));
    fs::create_dir(&above).unwrap();
    let db = above.join("db");
    make(&db);
    fs::write(&victim, "victim").unwrap();
    forge(&db, change);
    let outcome = open(&db, false).map(|db| {
        let names = db.containers();
        for name in &names {
            drop(
                db.container(name)
                    .map(|there| there.put("key", "value").unwrap()),
            );
        }
        let mine = db.container("mine").unwrap();
        mine.put("key", "value").unwrap();
        db.compact().unwrap();
        names.iter().for_each(|name| drop(db.drop_container(name)));
        db.close().unwrap();
        names
    });
    if let Err(Error::Io { path, .. } | Error::Corruption { path, .. }) = &outcome {
        assert!(path.starts_with(&db), "{}", path.display());
    }
    assert_eq!(fs::read(&victim).unwrap(), b"victim");
    for found in below(dir.path()) {
        let ours = found.starts_with(&db) || found == above || found == victim;
        assert!(ours, "{}", found.display());
    }
    outcome
}

#[test]
fn a_folder_that_was_made_up_leads_to_nothing_outside() {
    for name in ["../../victim", "/etc/passwd", "..", "nul\\u0000"] {
        let renamed = |edits: Vec<String>| {
            let (from, to) = (r#""name":"items""#, format!(r#""name":"{name}""#));
            assert!(edits.iter().any(|edit| edit.contains(from)), "{edits:?}");
            edits.iter().map(|edit| edit.replace(from, &to)).collect()
        };
        let names = use_forged(renamed).unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
    }
    let most = u64::MAX;
    let used = |seq: u64, table: u64, run: u64, container: u32| {
        format!(r#"{{"used":{{"seq":{seq},"table":{table},"run":{run},"container":{container}}}}}"#)
    };
    let table = |id: &str| {
        format!(
            r#"{{"add_run":[1,{{"id":99,"placed":"off","tables":[{{"id":{id},"name":"../../victim","len":6,"crc":0}}]}}]}}"#
        )
    };
    for change in [
        // Tables and segments that are paths.
        table(r#""../../victim""#),
        table("77"),
        r#"{"log":"../../victim"}"#.into(),
        r#"{"log":{"chain":1,"first":"../../victim"}}"#.into(),
        format!(r#"{{"log":{{"chain":1,"first":1,"ring":{most}}}}}"#),
        // Numbers behind which there are none.
        table(&most.to_string()),
        format!(r#"{{"log":{{"chain":1,"first":{most}}}}}"#),
        used(most, 1, 1, 1),
        used(1, most, 1, 1),
        used(1, 1, most, 1),
        used(1, 1, 1, u32::MAX),
    ] {
        let added = |mut edits: Vec<String>| {
            let number = edits.len() as u64 + first_number(&edits[0]);
            edits.push(format!(
                r#"{{"number":{number},"mark":0,"changes":[{change}]}}"#
            ));
            edits
        };
        match use_forged(added) {
            Err(Error::Corruption { .. } | Error::Io { .. }) => {}
            Err(error) => panic!("{change}: {error}"),
            Ok(_) => panic!("{change}: opened"),
        }
    }
    let late = |edits: Vec<String>| {
        let number = edits.len() as u64 + first_number(&edits[0]);
        let edit = format!(r#"{{"number":{number},"mark":{most},"changes":[]}}"#);
        edits.into_iter().chain([edit]).collect()
    };
    let error = use_forged(late).err().unwrap();
    assert!(matches!(error, Error::ClockBehind { .. }), "{error}");
}

/// The number of an edit.
fn first_number(edit: &str) -> u64 {
    let (_, rest) = edit.split_once(r#""number":"#).unwrap();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}

#[test]
fn numbers_in_names_of_files_have_an_end() {
    for name in [
        "manifest-18446744073709551615",
        "wal/18446744073709551615.wal",
        "wal/18446744073709551615.ring",
        "tables/18446744073709551615.table",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        make(&path);
        fs::write(path.join(name), "").unwrap();
        let db = open(&path, false).unwrap_or_else(|error| panic!("{name}: {error}"));
        let items = db.container("items").unwrap();
        items.put("more", "3").unwrap();
        assert_eq!(items.iter().count(), 3);
        db.flush().unwrap();
        db.close().unwrap();
    }
}
