//! Goal: the types of the public face have the traits that other code asks for, and these say what their documentation says.
//!
//! Method: each conversion there and back; batches that are made of others against the same writes one by one.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{
    Batch, Compression, Container, Database, DefaultTtl, Durability, Error, Expect, ManualClock,
    OnMiss, Options, Outcome, Ttl,
};

use crate::fixture::refused;

fn open() -> (tempfile::TempDir, Database, Container) {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(1_800_000_000_000);
    let db = Options::new().clock(clock).open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    (folder, db, c)
}

fn shown(c: &Container) -> Vec<String> {
    let items = c.iter().map(|item| {
        let item = item.unwrap();
        let (key, value) = (item.key().escape_ascii(), item.value().escape_ascii());
        format!("{key}={value} {}", item.ttl())
    });
    items.collect()
}

#[test]
fn words_are_read_as_they_are_written() {
    for (durability, word) in [
        (Durability::Buffered, "buffered"),
        (Durability::Sync, "sync"),
    ] {
        assert_eq!(durability.to_string(), word);
        assert_eq!(word.parse::<Durability>().unwrap(), durability);
        assert_eq!(serde_json::to_value(durability).unwrap(), word);
    }
    assert!(Durability::Buffered < Durability::Sync);
    for (compression, word) in [
        (Compression::None, "none"),
        (Compression::Lz4, "lz4"),
        (Compression::Zstd, "zstd"),
    ] {
        assert_eq!(compression.to_string(), word);
        assert_eq!(word.parse::<Compression>().unwrap(), compression);
        assert_eq!(serde_json::to_value(compression).unwrap(), word);
    }
    for text in ["", "Sync", "zstd ", "off"] {
        let errors = [
            text.parse::<Durability>().err(),
            text.parse::<Compression>().err(),
        ];
        for error in errors {
            let error = error.unwrap().to_string();
            assert!(
                error.contains(&format!("{text} is not allowed: ")),
                "{error}"
            );
        }
    }
}

/// Also in a format that has no numbers among its texts.
#[test]
fn lifetimes_go_into_formats_without_names() {
    let minute = Duration::from_secs(60);
    let ttls = [
        Ttl::Inherit,
        Ttl::Never,
        Ttl::Keep,
        minute.into(),
        UNIX_EPOCH.into(),
    ];
    let defaults = [DefaultTtl::Off, DefaultTtl::NoDefault, minute.into()];
    let bytes = postcard::to_stdvec(&(ttls, defaults)).unwrap();
    let read: ([Ttl; 5], [DefaultTtl; 3]) = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(read, (ttls, defaults));
    assert_eq!(HashSet::from(ttls).len(), 5);
    let options = Options::new()
        .scrub_within(Some(minute))
        .memtable_bytes(1 << 20);
    let bytes = postcard::to_stdvec(&options).unwrap();
    let read: Options = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(format!("{read:?}"), format!("{options:?}"));
}

#[test]
fn a_moment_is_a_ttl() {
    let (_folder, _db, c) = open();
    let end = UNIX_EPOCH + Duration::from_secs(1_800_000_060);
    c.put_with_ttl("k", "v", end).unwrap();
    let item = c.item("k").unwrap().unwrap();
    assert_eq!(item.expires_at(), Some(end));
    assert_eq!(item.ttl(), "1m".parse().unwrap());
    let same = c.item("k").unwrap().unwrap();
    assert_eq!(HashSet::from([item, same]).len(), 1);
    let _: Ttl = SystemTime::UNIX_EPOCH.into();
}

#[test]
fn errors_have_a_kind() {
    let (folder, db, c) = open();
    let kind = |error: Error| io::Error::from(error).kind();
    assert_eq!(kind(c.put("", "v").unwrap_err()), ErrorKind::InvalidInput);
    assert_eq!(
        kind(Database::open(folder.path()).unwrap_err()),
        ErrorKind::ResourceBusy
    );
    let missing = Options::new()
        .read_only(true)
        .open(folder.path().join("none"));
    assert_eq!(kind(missing.unwrap_err()), ErrorKind::NotFound);
    db.drop_container("c").unwrap();
    assert_eq!(kind(c.get("k").unwrap_err()), ErrorKind::NotFound);
    let source = std::sync::Arc::new(io::Error::from(ErrorKind::StorageFull));
    let full = Error::Io {
        operation: "write",
        path: "log".into(),
        source,
    };
    let poisoned = Error::Poisoned {
        cause: std::sync::Arc::new(full.clone()),
    };
    assert_eq!(kind(full.clone()), ErrorKind::StorageFull);
    assert_eq!(kind(poisoned), ErrorKind::StorageFull);
    let text = full.to_string();
    assert_eq!(io::Error::from(full).to_string(), text);
}

#[test]
fn a_batch_is_made_of_puts() {
    let (_folder, db, c) = open();
    let mut batch: Batch = [(&c, "a", "1"), (&c, "b", "2")].into_iter().collect();
    batch.extend([(&c, "b", "3", Ttl::Never), (&c, "c", "4", Ttl::Inherit)]);
    batch.extend([(&c, "d", vec![5_u8], Duration::from_secs(60))]);
    assert_eq!(batch.len(), 5);
    db.write(batch).unwrap();
    assert_eq!(
        shown(&c),
        ["a=1 inherit", "b=3 never", "c=4 inherit", "d=\\x05 1m"]
    );
    let wrong: Batch = [(&c, "x", "1"), (&c, "", "2")].into_iter().collect();
    refused(db.write(wrong), "key", &[]);
    assert!(!c.contains("x").unwrap());
}

/// The conditions of both, with containers that stand in another order, names and outcomes.
#[test]
fn a_batch_is_made_of_batches() {
    let (_folder, db, c) = open();
    let d = db.container("d").unwrap();
    d.put("there", "old").unwrap();
    let mut first = Batch::new();
    first
        .put(&c, "a", "1")
        .require(&c, "b", Expect::Absent)
        .put(&c, "b", "1");
    let mut second = Batch::new();
    second.on_miss(OnMiss::Skip);
    second
        .create(&d, "there", "new", Ttl::Inherit)
        .replace(&c, "a", "2", Ttl::Never);
    second
        .drop_container("none")
        .touch(&d, "there")
        .delete(&c, "b");
    second.create_container("made", Default::default());
    let lens = (first.len(), second.len());
    first.extend([&second]);
    assert_eq!(first.len(), lens.0 + lens.1);
    let written = db.commit(&first).unwrap();
    let done: Vec<bool> = written
        .outcomes()
        .iter()
        .map(|outcome| outcome.is_done())
        .collect();
    assert_eq!(done, [true, true, false, true, false, true, true, true]);
    assert_eq!(
        (shown(&c), shown(&d)),
        (vec!["a=2 never".into()], vec!["there=old inherit".into()])
    );
    let names: BTreeSet<_> = db.containers().into_iter().collect();
    assert_eq!(names, ["c", "d", "made"].map(String::from).into());
    assert_eq!(
        HashSet::from([Outcome::Done, Outcome::Skipped, Outcome::Done]).len(),
        2
    );

    let both: Batch = [first, second].into_iter().collect(); // what the first requires holds no more
    c.put("b", "2").unwrap();
    assert!(db.write(both).unwrap_err().is_conflict());
}

#[test]
fn a_batch_is_of_one_database_and_refused_with_its_parts() {
    let ((_folder, db, c), (_other, _, elsewhere)) = (open(), open());
    let batch = |c: &Container, key: &str| -> Batch { [(c, key, "v")].into_iter().collect() };
    for (other, what) in [(batch(&elsewhere, "k"), "batch"), (batch(&c, ""), "key")] {
        let both: Batch = [batch(&c, "k"), other].into_iter().collect();
        refused(db.write(both), what, &[]);
    }
    assert!(c.is_empty().unwrap());
}
