//! Goal: options for a container that exists are never silently without effect. Method: each setting, alone and together,
//! under each of the three wishes, by the call and in a batch, and across a reopen.

use std::time::Duration;

use ebbtide::{
    Batch, Compression, Container, ContainerOptions, Database, DefaultTtl, Error, ManualClock,
    OnMiss, Options, Quota, Ttl, WhenFull,
};

fn after(seconds: u64) -> DefaultTtl {
    DefaultTtl::After(Duration::from_secs(seconds))
}

fn db() -> (Database, ManualClock) {
    let clock = ManualClock::new(1_800_000_000_000);
    let options = Options::new().clock(clock.clone()).stepped();
    (options.open_temporary().unwrap(), clock)
}

/// A container that was made with all settings.
fn made(db: &Database) -> Container {
    db.container_with("c", full()).unwrap()
}

fn full() -> ContainerOptions {
    ContainerOptions::new()
        .default_ttl(after(60))
        .compression(Compression::Lz4)
        .keep_expired(Duration::from_secs(9))
        .max_live_bytes(1 << 20)
        .when_full(WhenFull::ExpireSoonest)
}

type Settings = (DefaultTtl, Duration, Option<Quota>);

fn settings(c: &Container) -> Settings {
    (c.default_ttl(), c.keep_expired(), c.quota())
}

fn of_full() -> Settings {
    let quota = Quota {
        max_live_bytes: 1 << 20,
        when_full: WhenFull::ExpireSoonest,
    };
    (after(60), Duration::from_secs(9), Some(quota))
}

/// Options that differ from [`full`] in one setting, what the error says of that, and the settings by then.
fn others() -> Vec<(ContainerOptions, [&'static str; 2], Settings)> {
    let new = ContainerOptions::new;
    let (ttl, keep, quota) = of_full();
    let with = |max_live_bytes, when_full| {
        Some(Quota {
            max_live_bytes,
            when_full,
        })
    };
    vec![
        (
            new().default_ttl(DefaultTtl::Off),
            ["default_ttl(After(60s))", "default_ttl(Off)"],
            (DefaultTtl::Off, keep, quota),
        ),
        (
            new().keep_expired(Duration::ZERO),
            ["keep_expired(9s)", "keep_expired(0ns)"],
            (ttl, Duration::ZERO, quota),
        ),
        (
            new().max_live_bytes(500),
            ["max_live_bytes(1048576)", "max_live_bytes(500)"],
            (ttl, keep, with(500, WhenFull::ExpireSoonest)),
        ),
        (
            new().when_full(WhenFull::Refuse),
            ["when_full(ExpireSoonest)", "when_full(Refuse)"],
            (ttl, keep, with(1 << 20, WhenFull::Refuse)),
        ),
    ]
}

#[test]
fn what_options_leave_open_or_say_alike_does_not_differ() {
    let (db, _) = db();
    made(&db);
    let new = ContainerOptions::new;
    for alike in [
        new(),
        full(),
        new().default_ttl(after(60)),
        new().max_live_bytes(1 << 20),
    ] {
        for options in [alike.clone(), alike.clone().or_keep(), alike.or_change()] {
            let c = db.container_with("c", options).unwrap();
            assert_eq!(settings(&c), of_full());
        }
    }
    db.container("c").unwrap();
    // Less than a millisecond is none, and without a limit it does not matter what happens at it.
    let plain = db.container_with("plain", new()).unwrap();
    db.container_with("plain", new().when_full(WhenFull::ExpireSoonest))
        .unwrap();
    assert_eq!(plain.quota(), None);
}

#[test]
fn what_differs_is_refused_kept_or_changed() {
    for (options, [found, asked], changed) in others() {
        let (db, _) = db();
        let c = made(&db);
        let refused = db.container_with("c", options.clone()).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains(found) && said.contains(asked), "{said}");
        assert!(!refused.is_retryable() && !refused.is_conflict(), "{said}");
        match refused {
            Error::Differs {
                container,
                found: there,
                asked: given,
            } => {
                assert_eq!(container, "c");
                assert!(
                    there.contains(found) && given.contains(asked),
                    "{there}; {given}"
                );
            }
            other => panic!("{other}"),
        }
        db.container_with("c", options.clone().or_keep()).unwrap();
        assert_eq!(settings(&c), of_full(), "{asked}");
        db.container_with("c", options.clone().or_change()).unwrap();
        assert_eq!(settings(&c), changed, "{asked}");
        db.container_with("c", options).unwrap();
    }
}

#[test]
fn compression_stays_as_it_was_made() {
    let (db, _) = db();
    let c = made(&db);
    let other = ContainerOptions::new()
        .compression(Compression::None)
        .default_ttl(after(5));
    for options in [other.clone(), other.clone().or_change()] {
        let said = db.container_with("c", options).unwrap_err().to_string();
        assert!(
            said.contains("compression(Lz4)") && said.contains("compression(None)"),
            "{said}"
        );
    }
    assert_eq!(settings(&c), of_full(), "nothing of it was changed");
    db.container_with("c", other.or_keep()).unwrap();
}

/// Readers see all of a change, or nothing; a change of the default ends what it ends for good.
#[test]
fn a_change_is_one_write_and_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(1_800_000_000_000);
    let open = || {
        Options::new()
            .clock(clock.clone())
            .stepped()
            .open(folder.path())
            .unwrap()
    };
    let other = ContainerOptions::new()
        .default_ttl(after(5))
        .keep_expired(Duration::from_secs(1))
        .max_live_bytes(2 << 20);
    let before = {
        let db = open();
        let c = made(&db);
        c.put("old", "v").unwrap();
        clock.advance(Duration::from_secs(10));
        let before = c
            .update("probe", |_| ebbtide::Update::Put("", Ttl::Never))
            .unwrap();
        assert!(before);
        let before = c.item("probe").unwrap().unwrap().version();
        db.container_with("c", other.clone().or_change()).unwrap();
        assert!(c.get("old").unwrap().is_none());
        c.put("probe", "").unwrap();
        let after = c.item("probe").unwrap().unwrap().version();
        // Three operations, and the put.
        assert_eq!(after.as_u64(), before.as_u64() + 4);
        settings(&c)
    };
    let c = open().container_with("c", other).unwrap();
    assert_eq!(settings(&c), before);
    assert_eq!(before.0, after(5));
    c.set_default_ttl(DefaultTtl::Off).unwrap();
    assert!(c.get("old").unwrap().is_none());
}

#[test]
fn a_batch_refuses_keeps_or_changes() {
    for (options, [found, asked], changed) in others() {
        let (db, _) = db();
        let c = made(&db);
        let with = |options: &ContainerOptions, on_miss| {
            let mut batch = Batch::new();
            batch.on_miss(on_miss).put(&c, "k", "v");
            batch.create_container("c", options.clone());
            db.commit(batch)
        };
        let is_done = |written: ebbtide::Written| written.outcomes()[1].is_done();
        let said = with(&options, OnMiss::Conflict).unwrap_err().to_string();
        assert!(said.contains(found) && said.contains(asked), "{said}");
        assert!(c.is_empty().unwrap());
        assert!(!is_done(with(&options, OnMiss::Skip).unwrap()));
        let kept = options.clone().or_keep();
        for on_miss in [OnMiss::Conflict, OnMiss::Skip] {
            assert!(!is_done(with(&kept, on_miss).unwrap()));
        }
        assert_eq!(settings(&c), of_full(), "{asked}");
        let change = options.clone().or_change();
        with(&change, OnMiss::Conflict).unwrap();
        assert_eq!(settings(&c), changed, "{asked}");
        assert!(
            is_done(with(&change, OnMiss::Skip).unwrap()),
            "it is so already"
        );
        assert!(
            with(&options, OnMiss::Conflict).unwrap_err().is_conflict(),
            "it is there"
        );
    }
}

#[test]
fn a_batch_changes_what_it_has_changed_or_dropped_before() {
    let (db, _) = db();
    let c = made(&db);
    let to = |seconds| {
        ContainerOptions::new()
            .default_ttl(after(seconds))
            .or_change()
    };
    // The settings that count are those by then, not those of now.
    let mut batch = Batch::new();
    batch
        .set_default_ttl(&c, after(7))
        .create_container("c", to(60));
    db.write(&batch).unwrap();
    assert_eq!(c.default_ttl(), after(60));
    batch.clear();
    batch
        .create_container("c", to(5))
        .create_container("c", to(6));
    db.write(&batch).unwrap();
    assert_eq!(c.default_ttl(), after(6));
    batch.clear();
    batch
        .drop_container("c")
        .create_container("c", to(8))
        .create_container("other", to(9));
    db.write(&batch).unwrap();
    assert!(c.get("k").unwrap_err().is_closed());
    let of = |name| db.container(name).unwrap().default_ttl();
    assert_eq!((of("c"), of("other")), (after(8), after(9)));
    batch.clear();
    batch
        .create_container("twice", to(8))
        .create_container("twice", to(9));
    assert!(db.write(&batch).unwrap_err().is_conflict());
    assert_eq!(db.containers(), ["c", "other"]);
}

/// The last to ask is obeyed, and nobody meets an error: containers are dropped meanwhile, too.
#[test]
fn many_may_say_what_it_is_to_be_at_once() {
    let db = Options::temporary().unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4u64 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..40 {
                    let options = ContainerOptions::new()
                        .default_ttl(after(thread))
                        .or_change();
                    let mut batch = Batch::new();
                    batch.create_container("c", options.clone());
                    match (thread, round % 4) {
                        (1, 0) => drop(db.drop_container("c").unwrap()),
                        (_, 1) => db.write(&batch).unwrap(),
                        _ => drop(db.container_with("c", options).unwrap()),
                    }
                }
            });
        }
    });
    let DefaultTtl::After(last) = db.container("c").unwrap().default_ttl() else {
        panic!("nobody has said so");
    };
    assert!((1..=4).contains(&last.as_secs()));
}
