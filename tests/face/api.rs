//! Goal: the public API keeps its limits: arguments out of range are refused with an error that says what and how, and
//! nothing is stored; arguments in range do what the documentation says. tests/face/handles.rs covers handles.
//!
//! Method: one small test for each promise, on a real disk with a manual clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{
    Batch, Compression, Container, ContainerOptions, ContainerStats, Database, DefaultTtl, Error,
    Item, Iter, ManualClock, Options, Reads, Snapshot, Stall, Stats, SystemClock, Ttl, Update,
    Value, View,
};
use tempfile::TempDir;

use crate::fixture::{Fixture, NOW, fixture, keys, ms, options, refused, seconds};

const MAX_TTL: Duration = seconds(2_147_483_647);

#[test]
fn keys_have_1_to_65535_bytes() {
    let f = fixture();
    let (longest, over) = (vec![b'x'; 65_535], vec![b'x'; 65_536]);
    for (bad, len) in [(&b""[..], "0 bytes"), (&over[..], "65536 bytes")] {
        let words = [len, "1 to 65535 bytes"];
        refused(f.c.put(bad, "v"), "key", &words);
        refused(f.c.create(bad, "v", Ttl::Inherit), "key", &words);
        refused(f.c.replace(bad, "v", Ttl::Inherit), "key", &words);
        refused(f.c.touch(bad), "key", &words);
        refused(f.c.update(bad, |_| Update::Delete), "key", &words);
        refused(f.c.delete(bad), "key", &words);
        refused(f.c.get(bad), "key", &words);
        refused(f.c.item(bad), "key", &words);
        refused(f.c.contains(bad), "key", &words);
        let mut batch = Batch::new();
        batch.put(&f.c, "fine", "v").put(&f.c, bad, "v");
        refused(f.db.write(&batch), "key", &words);
    }
    assert!(keys(&f.c).is_empty());
    f.c.put(&longest, "long").unwrap();
    f.c.put("k", "short").unwrap();
    for round in ["memory", "table", "reopened"] {
        assert_eq!(f.c.get(&longest).unwrap().unwrap(), "long", "{round}");
        assert_eq!(keys(&f.c), [b"k".to_vec(), longest.clone()], "{round}");
        f.db.flush().unwrap();
    }
    f.c.delete(&longest).unwrap();
    assert!(!f.c.contains(&longest).unwrap());
}

#[test]
fn bounds_of_range_deletes_have_up_to_65535_bytes() {
    let f = fixture();
    let (longest, over) = (vec![b'x'; 65_535], vec![b'x'; 65_536]);
    for key in [&b"a"[..], &longest, b"y"] {
        f.c.put(key, "v").unwrap();
    }
    let words = ["65536 bytes", "up to 65535 bytes"];
    refused(f.c.delete_range(&over[..]..), "bound", &words);
    refused(f.c.delete_range(..&over[..]), "bound", &words);
    refused(f.c.delete_range(..=&over[..]), "bound", &words);
    assert_eq!(keys(&f.c).len(), 3);
    f.c.delete_range(&longest[..]..=&longest[..]).unwrap();
    for round in ["in memory", "flushed"] {
        assert_eq!(keys(&f.c), [b"a", b"y"], "{round}");
        f.db.flush().unwrap();
    }
    f.c.delete_range(""..="a").unwrap();
    assert_eq!(keys(&f.c), [b"y"]);
    f.c.delete_range(..).unwrap();
    assert!(keys(&f.c).is_empty());
}

#[test]
fn values_have_up_to_64_mib() {
    let f = fixture();
    let mut big = vec![7u8; (64 << 20) + 1];
    let words = ["67108865 bytes", "64 MiB"];
    f.c.put("k", "old").unwrap();
    refused(f.c.put("k", &big), "value", &words);
    refused(f.c.create("n", &big, Ttl::Inherit), "value", &words);
    refused(f.c.replace("k", &big, Ttl::Inherit), "value", &words);
    let put = |_: Option<&Item>| Update::Put(big.clone(), Ttl::Inherit);
    refused(f.c.update("k", put), "value", &words);
    let batched = f.db.write(Batch::new().put(&f.c, "k", &big));
    refused(batched, "value", &words);
    assert_eq!(f.c.get("k").unwrap().unwrap(), "old");
    assert_eq!(keys(&f.c), [b"k"]);
    big.pop();
    f.c.put("k", &big).unwrap();
    f.c.put("empty", "").unwrap();
    f.db.flush().unwrap();
    f.c.put("behind", "it").unwrap();
    f.db.close().unwrap();
    let db = options(&f.clock).open(f.folder.path()).unwrap();
    let c = db.container("c").unwrap();
    assert_eq!(c.get("k").unwrap().unwrap().len(), 64 << 20);
    assert!(c.get("k").unwrap().unwrap().iter().all(|&byte| byte == 7));
    assert_eq!(c.get("empty").unwrap().unwrap(), "");
    assert_eq!(c.get("behind").unwrap().unwrap(), "it");
}

#[test]
fn names_have_1_to_255_bytes_without_slash_and_nul() {
    let f = fixture();
    for bad in ["", "a/b", "/", "a\0b", &"n".repeat(256), &"ü".repeat(128)] {
        refused(f.db.container(bad), "container name", &["1 to 255 bytes"]);
        refused(
            f.db.container_with(bad, ContainerOptions::new()),
            "container name",
            &[],
        );
    }
    assert_eq!(f.db.containers(), ["c"]);
    let longest = "ü".repeat(127);
    assert_eq!(f.db.container(&longest).unwrap().name(), longest);
}

#[test]
fn lifetimes_out_of_range_are_refused() {
    let f = fixture();
    f.c.put_with_ttl("k", "old", Ttl::After(seconds(60)))
        .unwrap();
    let before = f.c.item("k").unwrap();
    for (bad, given) in [
        (Ttl::After(Duration::ZERO), "ttl 0 s"),
        (
            Ttl::After(MAX_TTL + Duration::from_nanos(1)),
            "ttl 2147483647",
        ),
        (Ttl::After(seconds(2_147_483_648)), "ttl 2147483648 s"),
        (Ttl::After(Duration::MAX), "ttl 18446744073709"),
    ] {
        let words = [given, "Ttl::Never, or a Duration", "2147483647 seconds"];
        refused(f.c.put_with_ttl("k", "new", bad), "ttl", &words);
        refused(f.c.create("n", "new", bad), "ttl", &words);
        refused(f.c.create("k", "new", bad), "ttl", &words);
        refused(f.c.replace("k", "new", bad), "ttl", &words);
        refused(f.c.replace("absent", "new", bad), "ttl", &words);
        let put = |_: Option<&Item>| Update::Put("new", bad);
        refused(f.c.update("k", put), "ttl", &words);
        let mut batch = Batch::new();
        batch
            .put(&f.c, "fine", "v")
            .put_with_ttl(&f.c, "k", "new", bad);
        refused(f.db.write(&batch), "ttl", &words);
        assert_eq!(batch.len(), 1);
        assert_eq!(f.c.item("k").unwrap(), before);
        assert_eq!(keys(&f.c), [b"k"]);
    }
    for bad in [Duration::ZERO, seconds(2_147_483_648)] {
        let (words, bad) = (["2147483647 seconds"], DefaultTtl::After(bad));
        refused(f.c.set_default_ttl(bad), "ttl", &words);
        let options = ContainerOptions::new().default_ttl(bad);
        refused(f.db.container_with("d", options), "ttl", &words);
    }
    assert_eq!(f.c.default_ttl(), DefaultTtl::NoDefault);
    assert_eq!(f.db.containers(), ["c"]);
}

#[test]
fn a_new_container_is_on_without_default() {
    let Fixture { c, clock, db, .. } = fixture();
    let made = db.container("made by name alone").unwrap();
    for container in [&c, &made] {
        assert_eq!(container.default_ttl(), DefaultTtl::NoDefault);
        let second = Ttl::After(seconds(1));
        container.put_with_ttl("ends", "", second).unwrap();
        container.put("stays", "").unwrap();
    }
    clock.advance(seconds(1));
    for container in [&c, &made] {
        assert_eq!(keys(container), [b"stays".to_vec()]);
    }
    let off = ContainerOptions::new().default_ttl(DefaultTtl::Off);
    let off = db.container_with("off is asked for", off).unwrap();
    assert_eq!(off.default_ttl(), DefaultTtl::Off);
}

#[test]
fn lifetimes_at_the_edges_are_kept() {
    let f = fixture();
    f.c.set_default_ttl(DefaultTtl::After(MAX_TTL)).unwrap();
    assert_eq!(f.c.default_ttl(), DefaultTtl::After(MAX_TTL));
    let until = UNIX_EPOCH + ms(NOW) + MAX_TTL;
    for (given, stored) in [
        (Ttl::Inherit, Ttl::Inherit),
        (Ttl::Never, Ttl::Never),
        (Ttl::After(Duration::from_nanos(1)), Ttl::After(ms(1))),
        (Ttl::After(Duration::from_micros(1_500)), Ttl::After(ms(2))),
        (Ttl::After(MAX_TTL), Ttl::After(MAX_TTL)),
        (Ttl::Until(until), Ttl::After(MAX_TTL)),
    ] {
        f.c.put_with_ttl("k", "v", given).unwrap();
        assert_eq!(f.c.item("k").unwrap().unwrap().ttl(), stored);
    }
    assert_eq!(f.c.item("k").unwrap().unwrap().expires_at(), Some(until));
    f.c.set_default_ttl(DefaultTtl::Off).unwrap();
    for past in [UNIX_EPOCH, UNIX_EPOCH - seconds(9), UNIX_EPOCH + ms(NOW)] {
        f.c.put_with_ttl("past", "v", Ttl::Until(past)).unwrap();
        let item = f.c.item("past").unwrap().expect("off: it does not count");
        assert_eq!(
            (item.ttl(), item.expires_at()),
            (Ttl::After(Duration::ZERO), None)
        );
    }
    f.c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    assert!(!f.c.contains("past").unwrap());
}

/// A moment further ahead than a ttl reaches is never, and nothing sooner.
#[test]
fn a_moment_too_far_ahead_is_never() {
    let f = fixture();
    let edge = UNIX_EPOCH + ms(NOW) + MAX_TTL;
    let furthest = UNIX_EPOCH + seconds(i64::MAX as u64);
    for (until, stored) in [
        (edge - Duration::from_nanos(1), Ttl::After(MAX_TTL)),
        (edge, Ttl::After(MAX_TTL)),
        (edge + Duration::from_nanos(1), Ttl::Never),
        (edge + ms(1), Ttl::Never),
        (edge + MAX_TTL, Ttl::Never),
        (furthest, Ttl::Never),
    ] {
        let ttl = Ttl::Until(until);
        let found = |how: &str| {
            let item = f.c.take("k").unwrap().unwrap();
            assert_eq!(item.ttl(), stored, "{how} {until:?}");
            let end = (stored != Ttl::Never).then_some(edge);
            assert_eq!(item.expires_at(), end, "{how} {until:?}");
        };
        f.c.put_with_ttl("k", "v", ttl).unwrap();
        found("put");
        assert!(f.c.create("k", "v", ttl).unwrap());
        found("create");
        f.c.put("k", "v").unwrap();
        assert!(f.c.replace("k", "v", ttl).unwrap());
        found("replace");
        f.c.put("k", "v").unwrap();
        assert!(f.c.expire("k", ttl).unwrap());
        found("expire");
        assert!(f.c.update("k", |_| Update::Put(vec![], ttl)).unwrap());
        found("update");
        let mut batch = Batch::new();
        batch.put_with_ttl(&f.c, "k", "v", ttl);
        f.db.write(batch).unwrap();
        found("batch");
    }
}

/// The moment counts by how far it lies ahead of the write's own time, also where the log is read again.
#[test]
fn a_moment_is_too_far_ahead_by_the_time_of_the_write() {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::new(NOW);
    let open = || Options::new().clock(clock.clone()).open(folder.path());
    let db = open().unwrap();
    let c = db.container("c").unwrap();
    let until = UNIX_EPOCH + ms(NOW + 1_000) + MAX_TTL;
    c.put_with_ttl("too far", "v", Ttl::Until(until)).unwrap();
    clock.advance(seconds(1));
    c.put_with_ttl("just", "v", Ttl::Until(until)).unwrap();
    let ttl = |key: &str| db.container("c").unwrap().item(key).unwrap().unwrap().ttl();
    assert_eq!(
        (ttl("too far"), ttl("just")),
        (Ttl::Never, Ttl::After(MAX_TTL))
    );
    db.close().unwrap();
    let db = open().unwrap();
    let ttl = |key: &str| db.container("c").unwrap().item(key).unwrap().unwrap().ttl();
    assert_eq!(
        (ttl("too far"), ttl("just")),
        (Ttl::Never, Ttl::After(MAX_TTL))
    );
}

/// Turns the compression that the manifest and its copy say from none to zstd, under right checksums.
fn say_zstd(folder: &std::path::Path) {
    let names = |folder: &std::path::Path| {
        let entries = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let entries = entries.filter(|path| path.to_string_lossy().contains("manifest"));
        entries.collect::<Vec<_>>()
    };
    let files = [names(folder), names(&folder.join("copy"))].concat();
    assert_eq!(files.len(), 2);
    for file in files {
        let mut bytes = std::fs::read(&file).unwrap();
        let (mut at, mut changed) = (16, 0);
        while at + 8 < bytes.len() && bytes[at..at + 4] != [0; 4] {
            let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            let payload = String::from_utf8(bytes[at + 8..at + 8 + len].to_vec()).unwrap();
            let zstd = payload.replace(r#""compression":"none""#, r#""compression":"zstd""#);
            changed += usize::from(zstd != payload);
            let crc = crc32fast::hash(&[&bytes[at..at + 4], zstd.as_bytes()].concat());
            bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
            bytes[at + 8..at + 8 + len].copy_from_slice(zstd.as_bytes());
            at += 8 + len;
        }
        assert!(changed > 0, "{}", file.display());
        std::fs::write(file, bytes).unwrap();
    }
}

/// A container that is compressed by zstd, for a build with the feature and for one without.
#[test]
fn a_build_without_zstd_says_what_it_lacks() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("db");
    let db = Options::new().open(&path).unwrap();
    db.container("pages").unwrap().put("k", "v").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    say_zstd(&path);
    let new = folder.path().join("new");
    let zstd = || Options::new().compression(Compression::Zstd).open(&new);
    let answers = [
        ("open", Options::new().open(&path).map(drop)),
        (
            "read-only",
            Options::new().read_only(true).open(&path).map(drop),
        ),
        (
            "verify",
            ebbtide::verify(&path, &mut |_, _| {}).map(|report| assert!(report.faults.is_empty())),
        ),
        (
            "repair",
            ebbtide::repair(&path, true).map(|report| assert!(report.losses.is_empty())),
        ),
        ("create", zstd().map(drop)),
        (
            "container",
            Options::new()
                .open(folder.path().join("other"))
                .and_then(|db| {
                    let options = ContainerOptions::new().compression(Compression::Zstd);
                    let made = db.container_with("pages", options).map(drop);
                    assert_eq!(db.containers().len(), usize::from(made.is_ok()));
                    made
                }),
        ),
    ];
    for (what, answer) in answers {
        if cfg!(feature = "zstd") {
            answer.unwrap_or_else(|error| panic!("{what}: {error}"));
            continue;
        }
        let error = answer.expect_err(what);
        assert!(
            matches!(
                error,
                Error::MissingFeature {
                    feature: "zstd",
                    ..
                }
            ),
            "{what}: {error}"
        );
        assert!(!error.is_corruption() && !error.is_retryable(), "{what}");
        let said = error.to_string();
        assert!(
            said.contains("zstd") && said.contains("feature"),
            "{what}: {said}"
        );
        assert!(!new.exists() || what != "create");
    }
    if cfg!(feature = "zstd") {
        let pages = Options::new()
            .open(&path)
            .unwrap()
            .container("pages")
            .unwrap();
        assert_eq!(pages.get("k").unwrap().unwrap(), "v");
    }
}

/// Packed values are read as they were written, small and large, also by pread and after a reopen, and take less.
#[cfg(feature = "zstd")]
#[test]
fn zstd_packs_better_than_lz4() {
    let folder = TempDir::new().unwrap();
    let value = |n: u32| {
        let (user, tail) = (n * 7_919 % 1_000, "x".repeat(n as usize % 50));
        format!(
            r#"{{"user":"user-{user}","visits":{n},"agent":"{tail}","ip":"10.0.{}.7"}}"#,
            n % 256
        )
    };
    let large = (0..2_000).map(value).collect::<String>();
    let mut sizes = vec![];
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let path = folder.path().join(format!("{compression:?}"));
        let db = Options::new().compression(compression).open(&path).unwrap();
        let c = db.container("c").unwrap();
        for n in 0..4_000 {
            c.put(n.to_string(), value(n)).unwrap();
        }
        c.put("large", &large).unwrap();
        db.flush().unwrap();
        sizes.push(c.stats().disk_bytes);
        db.close().unwrap();
        for reads in [ebbtide::Reads::Map, ebbtide::Reads::Pread] {
            let db = Options::new()
                .reads(reads)
                .read_only(true)
                .open(&path)
                .unwrap();
            let c = db.container("c").unwrap();
            assert_eq!(c.iter().count(), 4_001);
            for n in 0..4_000 {
                assert_eq!(c.get(n.to_string()).unwrap().unwrap(), value(n));
            }
            assert_eq!(c.get("large").unwrap().unwrap(), large);
            assert!(db.verify().unwrap().faults.is_empty());
        }
    }
    assert!(
        sizes[0] > sizes[1] && sizes[1] > sizes[2] * 5 / 4,
        "{sizes:?}"
    );
}

#[test]
fn options_out_of_range_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("db");
    let new = Options::new;
    let bad = |options: Options, what: &str, words: &[&str]| {
        refused(options.open(&path).map(drop), what, words);
    };
    bad(
        new().sync_interval(Duration::ZERO),
        "sync_interval",
        &["1 ms"],
    );
    let small = new().memtable_bytes(4_095);
    bad(small, "memtable_bytes", &["4095", "4096"]);
    bad(new().background_rate(0), "background_rate", &["0"]);
    let soon = new().reclaim_within(Duration::from_micros(999));
    bad(soon, "reclaim_within", &["1 ms"]);
    bad(new().max_runs(1), "max_runs", &["1", "2 to 1000"]);
    bad(new().max_runs(1_001), "max_runs", &["1001"]);
    assert!(!path.exists(), "nothing was created");
}

/// The log that a kill left may be more than the memory there is now.
#[test]
fn a_log_larger_than_memory_does_not_stall_its_writers_for_ever() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let open = |sim: &Sim, memtable| {
        let options = options(&clock).fs(Arc::new(sim.clone())).stepped();
        let options = options.memtable_bytes(memtable).on_stall(Stall::Fail);
        options.open("/db").unwrap()
    };
    let db = open(&sim, 4 << 20);
    let c = db.container("c").unwrap();
    for n in 0..1_000 {
        c.put(format!("k{n:04}"), vec![1; 1_000]).unwrap();
    }
    let sim = sim.kill();
    let db = open(&sim, 64 << 10);
    let c = db.container("c").unwrap();
    assert!(
        (0..100).any(|_| !db.step().unwrap()),
        "background work comes to rest"
    );
    c.put("one more", "1")
        .expect("what was in the log is flushed by then");
    assert_eq!(c.iter().count(), 1_001);
}

#[test]
fn an_update_is_called_again_where_its_item_has_ended_by_its_stamp() {
    let f = fixture();
    f.c.set_default_ttl(DefaultTtl::After(seconds(1))).unwrap();
    f.c.put("k", "0").unwrap();
    let mut seen = vec![];
    let changed = f.c.update("k", |item| {
        seen.push(item.is_some());
        if seen.len() == 1 {
            f.clock.advance(seconds(1));
        }
        if item.is_some() {
            Update::Put(b"late".to_vec(), Ttl::Inherit)
        } else {
            Update::Keep
        }
    });
    assert_eq!((changed.unwrap(), seen), (false, vec![true, false]));
    assert!(!f.c.contains("k").unwrap());
}

#[test]
fn batches_count_clear_and_are_used_again() {
    let f = fixture();
    let d = f.db.container("d").unwrap();
    let mut batch = Batch::new();
    assert!(batch.is_empty());
    f.db.write(&batch).expect("an empty one is no error");
    batch
        .put(&f.c, "a", "1")
        .put_with_ttl(&d, "b", "2", Ttl::Never)
        .delete(&f.c, "x");
    assert_eq!((batch.len(), batch.is_empty()), (3, false));
    f.db.write(&batch).unwrap();
    f.c.delete("a").unwrap();
    f.db.write(batch.clone()).unwrap();
    assert_eq!(f.c.get("a").unwrap().unwrap(), "1");
    batch.put(&f.c, "", "bad");
    assert!(f.db.write(&batch).is_err());
    batch.clear();
    assert_eq!(batch.len(), 0);
    f.db.write(&batch).expect("what was refused is forgotten");
}

#[test]
fn a_container_is_compressed_as_it_was_made() {
    let f = fixture();
    let options = ContainerOptions::new().compression(Compression::Lz4);
    let c = f.db.container_with("packed", options).unwrap();
    let value = "the same text over and over, ".repeat(10);
    (0..200).for_each(|n| c.put(format!("k{n:03}"), &value).unwrap());
    f.db.flush().unwrap();
    assert_eq!(
        c.iter()
            .filter(|item| *item.as_ref().unwrap().value() == value)
            .count(),
        200
    );
    let disk = c.stats().disk_bytes;
    assert!(
        disk > 0 && disk < 200 * 290 / 2,
        "{disk} bytes are not compressed"
    );
}

#[test]
fn everything_may_cross_threads() {
    fn shared<T: Send + Sync>() {}
    fn cloned<T: Clone + Send + Sync>() {}
    fn moved<T: Send>() {}
    cloned::<(Database, Container, Snapshot, View, Value, Item, Batch)>();
    cloned::<(Options, ContainerOptions, Error, ManualClock, SystemClock)>();
    cloned::<(Stats, ContainerStats, Ttl, DefaultTtl)>();
    shared::<Update>();
    moved::<Iter>();
    fn is_error<T: std::error::Error + 'static>() {}
    is_error::<Error>();
}

#[test]
fn a_manual_clock_shares_its_time() {
    let clock = ManualClock::new(NOW);
    let other = clock.clone();
    let read = |clock: &ManualClock| (ebbtide::Clock::wall(clock), ebbtide::Clock::uptime(clock));
    other.advance(seconds(1));
    assert_eq!(read(&clock), (NOW + 1_000, 1_000));
    other.jump(NOW);
    assert_eq!(read(&clock), (NOW, 1_000));
    clock.set(NOW + 500);
    assert_eq!(read(&other), (NOW + 500, 1_500));
}

#[test]
fn the_system_clock_is_the_default() {
    let folder = TempDir::new().unwrap();
    let db = Database::open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    let before = SystemTime::now() - ms(1);
    c.put("k", "v").unwrap();
    let written = c.item("k").unwrap().unwrap().written_at();
    assert!(before <= written && written <= SystemTime::now());
}

#[test]
fn stats_count_what_is_there() {
    let f = fixture();
    f.c.set_default_ttl(DefaultTtl::After(seconds(60))).unwrap();
    for n in 0..500 {
        f.c.put(format!("k{n:03}"), vec![1; 84]).unwrap();
    }
    let memory = f.c.stats();
    assert!(memory.memtable_bytes > 0 && memory.runs == 0, "{memory:?}");
    f.db.flush().unwrap();
    let live = f.c.stats();
    assert!(
        live.runs >= 1 && live.tables >= 1 && live.disk_bytes > 40_000,
        "{live:?}"
    );
    let weight = 500 * (4 + 84 + 16);
    assert!(
        live.live_bytes.abs_diff(weight) * 20 <= weight && live.live_items.abs_diff(500) <= 25,
        "{live:?}"
    );
    assert_eq!((live.expired_bytes, live.oldest_unreclaimed), (0, None));
    f.clock.advance(seconds(61));
    f.db.compact().unwrap();
    let empty = f.c.stats();
    assert_eq!(
        (
            empty.live_items,
            empty.live_bytes,
            empty.expired_bytes,
            empty.runs
        ),
        (0, 0, 0, 0),
        "{empty:?}"
    );
    assert_eq!(empty.oldest_unreclaimed, None);
    let all = f.db.stats();
    assert_eq!(
        (all.containers, all.runs, all.tables, all.table_bytes),
        (1, 0, 0, 0),
        "{all:?}"
    );
    assert!(
        all.bytes_put >= 500 * 88 && all.bytes_logged >= all.bytes_put && all.flushes >= 1,
        "{all:?}"
    );
    assert!(all.disk_bytes >= all.log_bytes + all.table_bytes, "{all:?}");
}

/// A setting at the most that its type holds means as much as there can be, and overflows nothing.
#[test]
fn settings_as_large_as_their_types_are_taken() {
    let dir = TempDir::new().unwrap();
    let mut options = Options::new()
        .sync_interval(Duration::MAX)
        .catch_up_interval(Duration::MAX)
        .reclaim_within(Duration::MAX)
        .max_clock_skew(Duration::MAX)
        .scrub_within(Some(Duration::MAX))
        .memtable_bytes(usize::MAX)
        .cache_bytes(usize::MAX)
        .background_rate(u64::MAX)
        .background_floor(u64::MAX);
    for reads in [Reads::Map, Reads::Pread] {
        options = options.reads(reads);
        let db = options.open(dir.path()).unwrap();
        let c = db.container("c").unwrap();
        for n in 0..1_000u32 {
            c.put(n.to_be_bytes(), [7; 100]).unwrap();
        }
        db.flush().unwrap();
        c.put("k", "v").unwrap();
        db.compact().unwrap();
        assert_eq!(c.count(..).unwrap(), 1_001);
        assert_eq!(c.get("k").unwrap().unwrap(), "v");
        assert!(db.stats().table_bytes > 100_000);
        db.close().unwrap();
    }
}
