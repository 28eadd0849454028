//! Goal: nothing that lies in a store makes a call panic, hang, or read without an end; what is not in its place, or is
//! missing, is named; strangers are left alone; and stores of the version before are read. Method: stores whose
//! manifests are written anew with a right checksum, whose files are exchanged, and a store that serves bytes for ever.

// Tests are a world of their own: they touch files as they like.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use ebbtide::{Database, ManualClock, Options, Ttl};
use ebbtide_backup::{Backups, Error, Folder, Keep, Later, Store};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{keep, small};

const START: u64 = 1_800_000_000_000;

struct World {
    folder: tempfile::TempDir,
    options: Options,
    db: Database,
    backups: Backups,
}

impl World {
    /// A database with a backup, a ledger, and another backup.
    fn new() -> World {
        let folder = testkit::scratch();
        let options = small().clock(ManualClock::new(START));
        let db = options.open(folder.path().join("db")).unwrap();
        let store = Folder::new(folder.path().join("store"));
        let backups = Backups::open(store).options(options.clone());
        let world = World {
            folder,
            options,
            db,
            backups,
        };
        let c = world.db.container("c").unwrap();
        c.put_with_ttl("ends", "1", Duration::from_secs(600))
            .unwrap();
        assert_eq!(world.backup(), 1);
        c.expire_all().unwrap();
        assert_eq!(world.ledger(), 2);
        c.put_with_ttl("stays", "2", Ttl::Never).unwrap();
        assert_eq!(world.backup(), 3);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn stored(&self, folder: &str, number: u64) -> PathBuf {
        self.path(&format!("store/{folder}/{number:020}"))
    }

    fn backup(&self) -> u64 {
        let made = self.backups.backup(&self.db, &self.path("db"));
        made.unwrap().number
    }

    fn ledger(&self) -> u64 {
        self.backups.ledger(&self.db, &self.path("db")).unwrap()
    }

    fn restore(&self, number: u64, later: Later) -> Result<(), Error> {
        self.restore_of(&self.backups, number, later)
    }

    fn restore_of(&self, backups: &Backups, number: u64, later: Later) -> Result<(), Error> {
        let to = self.path("restored");
        let restored = backups.restore(Some(number), &to, later);
        assert_eq!(to.exists(), restored.is_ok());
        if restored.is_ok() {
            self.options.open(&to).unwrap().close().unwrap();
            fs::remove_dir_all(&to).unwrap();
        }
        restored.map(drop)
    }

    fn prove(&self) -> Result<(), Error> {
        self.backups.prove(&self.path("db")).map(drop)
    }

    fn prune(&self) -> Result<(), Error> {
        self.backups.prune(Keep::default()).map(drop)
    }

    /// A manifest is another one, and has a right checksum.
    fn forge(&self, folder: &str, number: u64, change: impl FnOnce(&mut Value)) {
        let path = self.stored(folder, number);
        let text = fs::read_to_string(&path).unwrap();
        let mut json = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
        change(&mut json);
        let json = json.to_string();
        let hash = HEXLOWER.encode(&Sha256::digest(&json));
        fs::write(path, format!("{hash}\n{json}")).unwrap();
    }
}

#[track_caller]
fn expect_damaged<T: std::fmt::Debug>(found: Result<T, Error>, name: &str, what: &str) {
    match found {
        Err(Error::Damaged { name: of, what: is }) => {
            assert!(of.ends_with(name) && is.contains(what), "{of}: {is}");
        }
        other => panic!("{other:?}, and not {name}: {what}"),
    }
}

#[test]
fn no_number_of_a_manifest_is_trusted() {
    let most = u64::MAX;
    type Change = fn(&mut Value, u64);
    let changes: [(&str, Change); 12] = [
        ("used", |json, most| json["ledger"]["used"] = json!(most)),
        ("mark", |json, most| json["ledger"]["mark"] = json!(most)),
        ("len", |json, most| json["files"][0]["len"] = json!(most)),
        ("settings_seq", |json, most| {
            json["ledger"]["containers"][0]["settings_seq"] = json!(most);
        }),
        ("created", |json, most| {
            json["ledger"]["containers"][0]["created"] = json!(most);
        }),
        ("flushed", |json, most| {
            json["ledger"]["containers"][0]["flushed"] = json!(most);
        }),
        ("command_seq", |json, most| {
            json["ledger"]["containers"][0]["settings"]["command_seq"] = json!(most);
        }),
        ("floor_seq", |json, most| {
            json["ledger"]["containers"][0]["settings"]["floor_seq"] = json!(most);
        }),
        ("range", |json, most| {
            json["ledger"]["containers"][0]["range_deletes"] = json!([{"seq": most, "from": "6b"}]);
        }),
        ("branch", |json, most| {
            json["ledger"]["branches"] = json!([{"id": 1, "from": most}]);
        }),
        ("taken_at", |json, most| json["taken_at"] = json!(most)),
        ("left_out_before", |json, most| {
            json["left_out_before"] = json!(most)
        }),
    ];
    let world = World::new();
    for (name, change) in changes {
        for (folder, number) in [("backups", 3), ("ledgers", 2)] {
            if folder == "ledgers" && name == "len" {
                continue;
            }
            let sound = fs::read(world.stored(folder, number)).unwrap();
            for given in [most, 1 << 56] {
                world.forge(folder, number, |json| change(json, given));
                // No answer of the store is a panic.
                println!("{name} {given} of {folder}: {:?}", world.prove());
                let to = world.path("restored");
                for (number, later) in [(1, Later::Tell), (3, Later::Tell), (3, Later::Ignore)] {
                    let _ = world.backups.restore(Some(number), &to, later);
                    let _ = fs::remove_dir_all(&to);
                }
                let _ = world.backups.list();
            }
            fs::write(world.stored(folder, number), sound).unwrap();
        }
    }
    world.prove().unwrap();
}

#[test]
fn what_is_too_high_is_damage() {
    let world = World::new();
    world.forge("ledgers", 2, |json| {
        json["ledger"]["used"] = json!(u64::MAX)
    });
    expect_damaged(world.prove(), "2", "sequence number");
    expect_damaged(world.restore(1, Later::Tell), "2", "sequence number");
    world.restore(1, Later::Ignore).unwrap();
    // A backup does not need the earlier ones to be sound.
    world.restore(3, Later::Tell).unwrap();
    let world = World::new();
    world.forge("backups", 3, |json| {
        json["files"][1]["len"] = json!(u64::MAX)
    });
    expect_damaged(world.backups.list(), "3", "cannot be");
    world.forge("backups", 3, |json| {
        json["files"][1]["len"] = json!(0);
        json["files"][0]["sha256"] = json!("../../../dev/zero");
    });
    expect_damaged(world.restore(3, Later::Ignore), "3", "cannot be");
}

#[test]
fn another_manifest_in_its_place_is_found() {
    let world = World::new();
    fs::copy(world.stored("backups", 3), world.stored("backups", 1)).unwrap();
    expect_damaged(world.restore(1, Later::Tell), "1", "not in its place");
    expect_damaged(world.restore(1, Later::Ignore), "1", "not in its place");
    expect_damaged(world.prove(), "1", "not in its place");
    // One of the same number, of another store of the same database.
    let world = World::new();
    let elsewhere = Backups::open(Folder::new(world.path("elsewhere")));
    let elsewhere = elsewhere.options(world.options.clone());
    elsewhere.backup(&world.db, &world.path("db")).unwrap();
    let other = world.path(&format!("elsewhere/backups/{:020}", 1));
    fs::copy(other, world.stored("backups", 1)).unwrap();
    expect_damaged(world.restore(1, Later::Tell), "1", "another store");
    // One that says that it is in its place.
    let world = World::new();
    world.forge("ledgers", 2, |json| {
        json["ledger"]["containers"] = json!([])
    });
    expect_damaged(world.restore(1, Later::Tell), "2", "not the one");
    expect_damaged(world.prove(), "2", "not the one");
}

#[test]
fn a_ledger_that_is_missing_is_noticed() {
    let world = World::new();
    fs::remove_file(world.stored("ledgers", 2)).unwrap();
    expect_damaged(world.restore(1, Later::Tell), "2", "it is missing");
    expect_damaged(world.prove(), "2", "it is missing");
    world.restore(1, Later::Ignore).unwrap();
    // A later backup needs it not; and with the last that does, what is missing is missed no more.
    world.restore(3, Later::Tell).unwrap();
    world.backups.prune(keep(1)).unwrap();
    world.prove().unwrap();
    assert_eq!(world.ledger(), 4);
    world.prove().unwrap();
}

#[test]
fn a_store_keeps_its_identity() {
    let world = World::new();
    let path = world.path("store/store/identity");
    let identity = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    world.prove().unwrap();
    world.ledger();
    assert_eq!(fs::read_to_string(&path).unwrap(), identity);
    fs::write(&path, "0123456789abcdef\n").unwrap();
    expect_damaged(world.prove(), "1", "another store");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    expect_damaged(world.prove(), "identity", "longer");
}

#[test]
fn strangers_are_named_and_left_alone() {
    let world = World::new();
    let strangers = [
        "backups/.00000000000000000003.swp",
        "backups/18446744073709551615",
        "backups/9",
        "ledgers/+0000000000000000009",
        "objects/notes.txt",
    ];
    for stranger in strangers {
        fs::write(world.path("store").join(stranger), "mine").unwrap();
    }
    fs::write(world.path("store/tmp/18446744073709551615-1-1"), "mine").unwrap();
    fs::write(world.path("store/tmp/mine"), "mine").unwrap();
    assert_eq!(world.backups.strangers().unwrap(), strangers);
    assert_eq!(world.backups.list().unwrap().len(), 2);
    world.prove().unwrap();
    world.restore(1, Later::Tell).unwrap();
    world.prune().unwrap();
    assert_eq!(world.backup(), 4);
    assert_eq!(world.backups.strangers().unwrap(), strangers);
    assert!(world.path("store/tmp/mine").exists());
}

#[cfg(unix)]
#[test]
fn a_pipe_or_a_device_is_not_opened() {
    let world = World::new();
    let path = world.stored("ledgers", 2);
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let refused = world.restore(1, Later::Tell).unwrap_err();
    assert!(refused.to_string().contains("no file"), "{refused}");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    let refused = world.prove().unwrap_err();
    assert!(refused.to_string().contains("no file"), "{refused}");
}

/// Serves zeros without an end in place of some objects, and counts them.
struct Endless {
    store: Folder,
    folder: &'static str,
    served: Arc<AtomicU64>,
}

struct Zeros(Arc<AtomicU64>);

impl Read for Zeros {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.fill(0);
        self.0.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(buffer.len())
    }
}

impl Store for Endless {
    fn put(&self, name: &str, from: &mut dyn Read) -> io::Result<bool> {
        self.store.put(name, from)
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read>> {
        match name.starts_with(self.folder) {
            true => Ok(Box::new(Zeros(self.served.clone()))),
            false => self.store.get(name),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.store.list(folder)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.store.delete(name)
    }
}

#[test]
fn no_read_goes_further_than_what_is_declared() {
    let world = World::new();
    for (folder, most) in [
        ("objects", 1 << 20),
        ("backups", 1 << 29),
        ("store", 1 << 16),
    ] {
        let served = Arc::new(AtomicU64::new(0));
        let endless = Endless {
            store: Folder::new(world.path("store")),
            folder,
            served: served.clone(),
        };
        let backups = Backups::open(endless).options(world.options.clone());
        let refused = world.restore_of(&backups, 3, Later::Ignore).unwrap_err();
        assert!(matches!(refused, Error::Damaged { .. }), "{refused:?}");
        let served = served.load(Ordering::Relaxed);
        assert!((1..most).contains(&served), "{folder}: {served} bytes");
    }
}

/// A store of version 1, written by a build of that version: a backup of three items, a ledger after a command that ended
/// what ends within two days, and a backup that left out what ends within an hour.
fn unpack_version_1(world: &World) -> PathBuf {
    let store = world.path("version-1");
    let mut files: Vec<(&str, Vec<u8>)> = vec![];
    for line in include_str!("../golden/version-1.txt").lines() {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[..] {
            ["file", len, name] => files.push((name, vec![0; len.parse().unwrap()])),
            [offset, hex] => {
                let at = usize::from_str_radix(offset, 16).unwrap();
                let bytes = HEXLOWER.decode(hex.as_bytes()).unwrap();
                files.last_mut().unwrap().1[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            _ => panic!("{line}"),
        }
    }
    for (name, bytes) in files {
        let path = store.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    store
}

#[test]
fn a_store_of_version_1_is_read_and_goes_on() {
    let world = World::new();
    let store = Folder::new(unpack_version_1(&world));
    let backups = Backups::open(store).options(world.options.clone());
    let (copy, to) = (world.path("copy"), world.path("restored"));
    let items = |number, later| {
        backups.restore(Some(number), &to, later).unwrap();
        let db = world.options.open(&to).unwrap();
        let c = db.container("c").unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let item = |item: ebbtide::Result<ebbtide::Item>| {
            let item = item.unwrap();
            text(item.key()) + "=" + &text(item.value())
        };
        let items: Vec<String> = c.iter().map(item).collect();
        db.close().unwrap();
        fs::remove_dir_all(&to).unwrap();
        items
    };
    let expect_as_ever = || {
        assert_eq!(items(1, Later::Tell), ["kept=1"]);
        assert_eq!(items(1, Later::Ignore), ["kept=1", "soon=v", "told=1"]);
        assert_eq!(items(3, Later::Tell), ["kept=2"]);
        assert_eq!(
            backups.list().unwrap().len(),
            backups.prove(&copy).unwrap().backups as usize
        );
    };
    expect_as_ever();
    backups.restore(None, &copy, Later::Tell).unwrap();
    let db = world.options.open(&copy).unwrap();
    db.container("c").unwrap().put("new", "3").unwrap();
    assert_eq!(backups.backup(&db, &copy).unwrap().number, 4);
    db.close().unwrap();
    expect_as_ever();
    assert_eq!(items(4, Later::Tell), ["kept=2", "new=3"]);
}
