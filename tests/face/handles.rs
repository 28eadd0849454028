//! Goal: handles of closed or dropped objects say so; a database is open for one process, or for readers only; its
//! threads and files end with it, and values, iterators and snapshots outlive their origin.
//!
//! Method: one small test for each promise, on a real disk with a manual clock; resources that are counted per process
//! are tested in a process of their own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ebbtide::{Batch, Container, Database, DefaultTtl, Error, Item, Options, Ttl, Update, Value};
use tempfile::TempDir;

use crate::fixture::{fixture, keys, options, seconds};

#[track_caller]
fn closed<T: std::fmt::Debug>(result: ebbtide::Result<T>) {
    let error = result.expect_err("the handle is closed");
    assert!(error.is_closed(), "{error}");
}

fn every_call_is_closed(c: &Container) {
    closed(c.put("k", "w"));
    closed(c.create("n", "w", Ttl::Inherit));
    closed(c.replace("k", "w", Ttl::Inherit));
    closed(c.touch("k"));
    closed(c.update("k", |_| Update::Delete));
    closed(c.delete("k"));
    closed(c.delete_range("a".."z"));
    closed(c.delete_range("z".."a"));
    closed(c.get("k"));
    closed(c.item("k"));
    closed(c.contains("k"));
    closed(c.set_default_ttl(DefaultTtl::Off));
    closed(c.iter().next().unwrap());
}

#[test]
fn handles_of_a_closed_database_say_so() {
    let f = fixture();
    f.c.put("k", "v").unwrap();
    let snapshot = f.db.snapshot();
    let view = snapshot.container("c").unwrap();
    let (clone, mut iter) = (f.db.clone(), f.c.iter());
    f.db.close().unwrap();
    f.db.close().expect("closing again is no error");
    clone.close().expect("nor through a clone");
    every_call_is_closed(&f.c);
    closed(f.c.prefix("k").next_back().unwrap());
    closed(iter.next().unwrap());
    assert!(iter.next().is_none(), "an iterator ends behind an error");
    closed(view.get("k"));
    closed(view.iter().next().unwrap());
    closed(snapshot.container("c").map(drop));
    closed(clone.container("c"));
    closed(clone.container("new"));
    closed(clone.drop_container("c"));
    closed(clone.write(Batch::new().put(&f.c, "k", "w")));
    closed(clone.sync());
    closed(clone.flush());
    closed(clone.compact());
    closed(clone.checkpoint(f.folder.path().join("copy")));
    let _ = clone.stats();
    let _ = f.c.stats();
    drop(clone.snapshot());
    clone.confirm_clock();
    clone.set_background_rate(1);
    let db = options(&f.clock).open(f.folder.path()).unwrap();
    assert_eq!(db.container("c").unwrap().get("k").unwrap().unwrap(), "v");
    closed(f.c.get("k"));
}

#[test]
fn handles_of_a_dropped_container_say_so() {
    let f = fixture();
    f.c.put("k", "v").unwrap();
    let snapshot = f.db.snapshot();
    let (view, clone) = (snapshot.container("c").unwrap(), f.c.clone());
    let mut late = Batch::new();
    late.put(f.db.container("other").unwrap(), "k", "v")
        .put(&f.c, "k", "w");
    assert!(f.db.drop_container("c").unwrap());
    assert!(!f.db.drop_container("c").unwrap());
    for _ in 0..2 {
        every_call_is_closed(&f.c);
        every_call_is_closed(&clone);
        closed(view.get("k"));
        closed(view.iter().next().unwrap());
        closed(f.db.write(&late));
        assert!(snapshot.container("c").is_err());
        assert!(
            !f.db.container("other").unwrap().contains("k").unwrap(),
            "all of a batch or nothing"
        );
        // The second time there is one of the same name, which is another one.
        f.db.container("c").unwrap().put("k", "new").unwrap();
    }
    let error = f.c.get("k").unwrap_err().to_string();
    assert!(error.contains("\"c\""), "{error}");
    assert_eq!(
        f.db.container("c").unwrap().get("k").unwrap().unwrap(),
        "new"
    );
}

#[test]
fn a_second_open_is_locked_out() {
    let f = fixture();
    for error in [
        options(&f.clock).open(f.folder.path()).unwrap_err(),
        Database::open(f.folder.path()).unwrap_err(),
        options(&f.clock)
            .read_only(true)
            .open(f.folder.path())
            .unwrap_err(),
    ] {
        assert!(
            matches!(error, Error::Locked { .. }) && error.is_retryable(),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains(&*f.folder.path().to_string_lossy()),
            "{error}"
        );
    }
    let clone = f.db.clone();
    drop(f.db);
    assert!(
        options(&f.clock).open(f.folder.path()).is_err(),
        "a clone holds it open"
    );
    drop(clone);
    assert!(
        options(&f.clock).open(f.folder.path()).is_err(),
        "a container holds it open"
    );
    drop(f.c);
    options(&f.clock)
        .open(f.folder.path())
        .expect("the last handle dropped closes it");
}

fn listing(folder: &Path, prefix: &str, out: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            listing(&entry.path(), &format!("{name}/"), out);
        } else {
            out.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

#[test]
fn read_only_opens_share_and_write_nothing() {
    let f = fixture();
    f.c.put("table", "1").unwrap();
    f.db.flush().unwrap();
    f.c.put("log", "2").unwrap();
    f.c.set_default_ttl(DefaultTtl::After(seconds(10))).unwrap();
    f.db.close().unwrap();
    let mut before = BTreeMap::new();
    listing(f.folder.path(), "", &mut before);

    let read = || options(&f.clock).read_only(true).open(f.folder.path());
    let (db, other) = (read().unwrap(), read().expect("readers share"));
    let error = options(&f.clock).open(f.folder.path()).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    let c = db.container("c").unwrap();
    assert_eq!(c.get("table").unwrap().unwrap(), "1");
    assert_eq!(
        other.container("c").unwrap().get("log").unwrap().unwrap(),
        "2"
    );
    assert_eq!(keys(&c), [b"log".to_vec(), b"table".to_vec()]);
    assert_eq!(c.default_ttl(), DefaultTtl::After(seconds(10)));

    let read_only =
        |result: ebbtide::Result<()>| assert!(matches!(result, Err(Error::ReadOnly)), "{result:?}");
    read_only(c.put("k", "v"));
    read_only(c.create("k", "v", Ttl::Inherit).map(drop));
    read_only(c.replace("log", "v", Ttl::Inherit).map(drop));
    read_only(c.touch("log").map(drop));
    read_only(c.update("log", |_| Update::Delete).map(drop));
    read_only(c.delete("log"));
    read_only(c.delete_range("a".."z"));
    read_only(c.set_default_ttl(DefaultTtl::Off));
    read_only(db.container("new").map(drop));
    read_only(db.drop_container("c").map(drop));
    read_only(db.write(Batch::new().put(&c, "k", "v")));
    f.clock.advance(seconds(10));
    assert!(keys(&c).is_empty(), "what expires is gone for a reader too");
    db.close().unwrap();
    other.close().unwrap();
    let mut after = BTreeMap::new();
    listing(f.folder.path(), "", &mut after);
    assert!(
        before == after,
        "files changed: {:?} and {:?}",
        before.keys(),
        after.keys()
    );
}

#[test]
fn a_read_only_open_creates_nothing() {
    let folder = TempDir::new().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("missing")] {
        let error = Options::new().read_only(true).open(&path).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
        assert!(
            error.to_string().contains(&*path.to_string_lossy()),
            "{error}"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Runs a test of this file alone, in a process of its own.
fn in_a_process_of_its_own(name: &str) -> bool {
    const CHILD: &str = "EBBTIDE_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::{name}");
    let exe = std::env::current_exe().unwrap();
    let child = std::process::Command::new(exe)
        .args(["--exact", &name, "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(
        child.status.success(),
        "{}{}",
        String::from_utf8_lossy(&child.stdout),
        String::from_utf8_lossy(&child.stderr)
    );
    false
}

#[cfg(target_os = "linux")]
#[test]
fn close_joins_its_threads() {
    if !in_a_process_of_its_own("close_joins_its_threads") {
        return;
    }
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for by_drop in [false, true] {
        let folder = TempDir::new().unwrap();
        let db = Database::open(folder.path()).unwrap();
        db.container("c").unwrap().put("k", "v").unwrap();
        assert!(threads() > before, "background work has threads");
        if !by_drop {
            db.close().unwrap();
            assert_eq!(threads(), before);
        }
        drop(db);
        assert_eq!(threads(), before);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn closing_gives_back_every_file() {
    if !in_a_process_of_its_own("closing_gives_back_every_file") {
        return;
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..3 {
        let f = fixture();
        for n in 0..2_000 {
            f.c.put(format!("k{n}"), vec![1; 1_000]).unwrap();
        }
        f.db.flush().unwrap();
        assert_eq!(f.c.iter().count(), 2_000);
        f.db.compact().unwrap();
        f.db.close().unwrap();
    }
    assert_eq!(open(), before);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(".table"), "{maps}");
}

#[test]
fn values_outlive_everything() {
    let f = fixture();
    let text = |n: u32| format!("value {n} ").repeat(50);
    for n in 0..100 {
        f.c.put_with_ttl(format!("k{n}"), text(n), Ttl::After(seconds(10)))
            .unwrap();
    }
    f.c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let from_memory = f.c.get("k7").unwrap().unwrap();
    f.db.flush().unwrap();
    let from_table: Vec<Value> = (0..100)
        .map(|n| f.c.get(format!("k{n}")).unwrap().unwrap())
        .collect();
    let item: Item = f.c.iter().nth(3).unwrap().unwrap();
    let again = item.clone();
    f.c.put("k7", "changed").unwrap();
    f.clock.advance(seconds(10));
    f.db.compact().unwrap();
    assert_eq!(keys(&f.c), [b"k7"]);
    f.db.drop_container("c").unwrap();
    f.db.compact().unwrap();
    f.db.close().unwrap();
    drop((f.db, f.c));
    f.folder.close().unwrap();
    assert_eq!(from_memory, text(7));
    for (n, value) in (0..).zip(&from_table) {
        assert_eq!(*value, text(n));
    }
    assert_eq!(item, again);
    assert_eq!(from_table[9].clone().into_bytes(), text(9).into_bytes());
}

#[test]
fn iterators_and_snapshots_outlive_the_handle() {
    let f = fixture();
    for n in 0..50 {
        f.c.put(format!("k{n:02}"), vec![n; 100]).unwrap();
    }
    f.db.flush().unwrap();
    let view = f.db.snapshot().container("c").unwrap();
    let mut iter = f.c.iter();
    drop(f.c);
    assert_eq!(iter.next().unwrap().unwrap().key(), b"k00");
    f.db.container("c").unwrap().delete_range(..).unwrap();
    f.db.compact().unwrap();
    assert_eq!(iter.count(), 49);
    assert_eq!(view.iter().rev().count(), 50);
    assert_eq!(view.prefix("k1").count(), 10);
    assert_eq!(view.range("k10"..="k12").count(), 3);
    assert_eq!(view.item("k01").unwrap().unwrap().value().len(), 100);
    assert!(
        view.contains("k49").unwrap() && !f.db.container("c").unwrap().contains("k49").unwrap()
    );
}
