//! Goal: an analytical copy, read as anybody reads Parquet files, has of every key the newest state that the database has;
//! no run loses a row or writes one twice, wherever it was killed; and a row that is past the retention leaves.
//!
//! Method: random histories with a manual clock: writes of all kinds, changes of settings, commands, flushes, jobs, reopens.
//! From time to time a run, which is killed before a random change of a file, or is not. After one that is not, the newest
//! rows of the files are compared with the database, item by item. Apart from that, single histories.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ebbtide::{Container, Database, DefaultTtl, ManualClock, Options, Ttl};
use ebbtide_cli::lake::{self, Done, Partition, Settings};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use testkit::random::Random;

const NOW: u64 = 1_795_602_000_000; // 2026-11-25T10:20:00Z

/// A row, as a reader sees it; times in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    written_at: u64,
    expires_at: Option<u64>,
    version: u64,
    run: u64,
    is_deleted: bool,
}

/// The rows of all files of a copy, in the order in which a reader of folders lists them.
fn rows(out: &Path) -> Vec<Row> {
    files(out).iter().flat_map(|path| rows_of(path)).collect()
}

fn rows_of(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let row = |row: parquet::record::Row| {
        let fields: BTreeMap<String, Field> = row.into_columns().into_iter().collect();
        let bytes = |name: &str| match &fields[name] {
            Field::Bytes(bytes) => Some(bytes.data().to_vec()),
            Field::Str(text) => Some(text.clone().into_bytes()),
            Field::Null => None,
            other => panic!("{name} is {other:?}"),
        };
        let number = |name: &str| match &fields[name] {
            Field::Long(number) | Field::TimestampMillis(number) => Some(*number as u64),
            Field::Null => None,
            other => panic!("{name} is {other:?}"),
        };
        Row {
            key: bytes("key").unwrap(),
            value: bytes("value"),
            written_at: number("written_at").unwrap(),
            expires_at: number("expires_at"),
            version: number("version").unwrap(),
            run: number("run").unwrap(),
            is_deleted: fields["deleted"] == Field::Bool(true),
        }
    };
    reader
        .get_row_iter(None)
        .unwrap()
        .map(|one| row(one.unwrap()))
        .collect()
}

/// The Parquet files in a folder and those in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "parquet") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn millis(moment: std::time::SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The rows that a reader of the copy takes for live at a moment.
fn live(out: &Path, now: u64, kept: Option<u64>) -> BTreeMap<Vec<u8>, Row> {
    let mut newest: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    for row in rows(out) {
        match newest.get(&row.key) {
            Some(there) if there.run > row.run => {}
            Some(there) if there.run == row.run => panic!("twice: {there:?} and {row:?}"),
            _ => drop(newest.insert(row.key.clone(), row)),
        }
    }
    newest.retain(|_, row| {
        let is_kept = kept.is_none_or(|kept| row.written_at + kept > now);
        !row.is_deleted && is_kept && row.expires_at.is_none_or(|end| end > now)
    });
    newest
}

/// Key, value, moment of writing, end, version.
type Stored = (Vec<u8>, Vec<u8>, u64, Option<u64>, u64);

/// The items of the database, in the same shape.
fn stored(c: &Container, now: u64, kept: Option<u64>) -> Vec<Stored> {
    let items = c.iter().map(Result::unwrap);
    let items = items.filter(|item| kept.is_none_or(|kept| millis(item.written_at()) + kept > now));
    items
        .map(|item| {
            (
                item.key().to_vec(),
                item.value().to_vec(),
                millis(item.written_at()),
                item.expires_at().map(millis),
                item.version().as_u64(),
            )
        })
        .collect()
}

struct World {
    folder: tempfile::TempDir,
    clock: ManualClock,
    db: Database,
}

impl World {
    fn new() -> World {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new(NOW));
        let db = open(folder.path(), &clock);
        World { folder, clock, db }
    }

    fn c(&self) -> Container {
        self.db.container("c").unwrap()
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    fn settings(&self, retention: DefaultTtl) -> Settings {
        Settings {
            out: self.out(),
            retention: Some(retention),
            partition: Some(Partition::Hour),
            ..Settings::default()
        }
    }

    /// A run that is not killed.
    fn run(&self, settings: &Settings) -> Done {
        lake::export(&self.db, &self.c(), settings, &|| Ok(())).unwrap()
    }

    fn refused(&self, settings: &Settings) -> String {
        let run = lake::export(&self.db, &self.c(), settings, &|| Ok(()));
        run.unwrap_err().to_string()
    }

    /// A run that is killed before it has changed a file so often; whether it was.
    fn run_killed(&self, settings: &Settings, changes: u64) -> bool {
        let left = Cell::new(changes);
        let gate = || {
            let now = left.get().checked_sub(1);
            left.set(now.ok_or_else(|| io::Error::other("killed"))?);
            Ok(())
        };
        match lake::export(&self.db, &self.c(), settings, &gate) {
            Ok(_) => false,
            Err(error) => {
                assert!(error.to_string().ends_with("killed"), "{error}");
                true
            }
        }
    }

    fn compare(&self, kept: Option<u64>, who: &str) {
        let now = millis(self.db.now());
        let copied = live(&self.out(), now, kept);
        let copied: Vec<_> = copied
            .into_values()
            .map(|row| {
                (
                    row.key,
                    row.value.unwrap(),
                    row.written_at,
                    row.expires_at,
                    row.version,
                )
            })
            .collect();
        assert_eq!(copied, stored(&self.c(), now, kept), "{who}");
    }
}

fn open(folder: &Path, clock: &ManualClock) -> Database {
    let options = Options::new().clock(clock.clone()).memtable_bytes(16 << 10);
    options
        .reclaim_within(Duration::from_secs(60))
        .open(folder.join("db"))
        .unwrap()
}

fn ttl(random: &mut Random) -> Ttl {
    match random.below(6) {
        0 => Ttl::Never,
        1 | 2 => Ttl::Inherit,
        3 => Ttl::Keep,
        _ => Ttl::After(Duration::from_secs(200 << random.below(9))),
    }
}

fn key(random: &mut Random) -> String {
    format!("k{:02}", random.below(40))
}

/// One random step.
fn step(world: &mut World, random: &mut Random) {
    let c = world.c();
    match random.below(100) {
        0..55 => {
            let value = "v".repeat(random.below(200));
            c.put_with_ttl(key(random), value, ttl(random)).unwrap();
        }
        55..70 => c.delete(key(random)).unwrap(),
        70..74 => c.delete_range(key(random)..key(random)).unwrap(),
        74..77 => {
            let after = DefaultTtl::After(Duration::from_secs(500 << random.below(6)));
            let default = random.pick(&[DefaultTtl::Off, DefaultTtl::NoDefault, after, after]);
            c.set_default_ttl(default).unwrap();
        }
        77..79 => {
            let moment = world.db.now() + Duration::from_secs(2_000);
            let told = match random.below(3) {
                0 => c.expire_before(moment),
                1 => c.expire_written_before(moment - Duration::from_secs(6_000)),
                _ => c.expire_all(),
            };
            // Too many stand.
            told.unwrap_or_else(|error| assert!(error.is_retryable()));
        }
        79 => drop(world.db.drop_container("c").unwrap()),
        80..84 => world.db.flush().unwrap(),
        84..86 => world.db.compact().unwrap(),
        86..98 => world
            .clock
            .advance(Duration::from_secs(100 << random.below(6))),
        _ => {
            world.db.close().unwrap();
            world.db = open(world.folder.path(), &world.clock);
        }
    }
}

/// Plays a history; how many runs told what has changed, compared all, and were killed.
fn play(seed: u64, steps: usize, retention: DefaultTtl) -> [usize; 3] {
    let (mut random, mut world, mut runs) = (Random(seed), World::new(), [0; 3]);
    let settings = world.settings(retention);
    let kept = match retention {
        DefaultTtl::After(kept) => Some(kept.as_millis() as u64),
        _ => None,
    };
    for at in 0..steps {
        step(&mut world, &mut random);
        if random.one_in(10) {
            while random.one_in(3) && world.run_killed(&settings, random.below(30) as u64) {
                runs[2] += 1;
            }
            let done = world.run(&settings);
            runs[usize::from(done.compared)] += 1;
            world.compare(kept, &format!("seed {seed}, step {at}"));
            let unnamed = files(&world.out()).len();
            assert_eq!(unnamed, listed(&world.out()), "seed {seed}, step {at}");
        }
    }
    runs
}

/// How many files the state of a copy has.
fn listed(out: &Path) -> usize {
    let state = fs::read_to_string(out.join("_state.json")).unwrap();
    state.matches("\"path\":").count()
}

#[test]
fn copies_are_the_database() {
    let (seed, histories) = (
        testkit::env("EBBTIDE_SEED", 1),
        testkit::env("EBBTIDE_HISTORIES", 12),
    );
    let mut runs = [0; 3];
    for seed in seed..seed + histories {
        let retention = match seed % 2 {
            0 => DefaultTtl::NoDefault,
            _ => DefaultTtl::After(Duration::from_secs(20_000)),
        };
        let played = play(seed, 300, retention);
        runs.iter_mut()
            .zip(played)
            .for_each(|(sum, more)| *sum += more);
    }
    assert!(runs.iter().all(|count| *count > 10), "{runs:?}");
}

#[test]
fn a_killed_run_is_done_again_or_finished() {
    let mut changes = 0;
    loop {
        let world = World::new();
        let settings = world.settings(DefaultTtl::NoDefault);
        let c = world.c();
        c.put("a", "1").unwrap();
        c.put("b", "1").unwrap();
        world.run(&settings);
        world.clock.advance(Duration::from_secs(7_200));
        c.put("a", "2").unwrap();
        c.delete("b").unwrap();
        c.put_with_ttl("c", "1", Duration::from_secs(60)).unwrap();
        let was_killed = world.run_killed(&settings, changes);
        // A reader in between sees some of the rows, each once.
        let seen = rows(&world.out());
        assert!((2..=5).contains(&seen.len()), "{seen:?}");
        world.run(&settings);
        assert_eq!(
            rows(&world.out()).len(),
            5,
            "killed after {changes} changes"
        );
        world.compare(None, &format!("killed after {changes} changes"));
        if !was_killed {
            break;
        }
        changes += 1;
    }
    assert!(changes >= 10, "{changes} changes of files");
}

#[test]
fn each_run_adds_what_has_changed() {
    let world = World::new();
    let (c, settings) = (world.c(), world.settings(DefaultTtl::NoDefault));
    c.put("a", "1").unwrap();
    c.put_with_ttl("b", "1", Duration::from_secs(60)).unwrap();
    let first = world.run(&settings);
    assert_eq!((first.rows, first.files, first.compared), (2, 1, false));
    let nothing = world.run(&settings);
    assert_eq!((nothing.rows, nothing.files), (0, 0));
    world.clock.advance(Duration::from_secs(3_600));
    c.put("a", "2").unwrap();
    c.delete("x").unwrap();
    c.delete_range("b".."c").unwrap();
    let second = world.run(&settings);
    assert_eq!((second.rows, second.compared), (2, false), "b had expired");
    let mut found = rows(&world.out());
    found.sort_by_key(|row| (row.run, row.key.clone()));
    let hour = 3_600_000;
    let expected = [
        ("a", Some("1"), NOW, None, 1),
        ("b", Some("1"), NOW, Some(NOW + 60_000), 1),
        ("a", Some("2"), NOW + hour, None, 3),
        ("x", None, NOW + hour, None, 3),
    ];
    assert_eq!(found.len(), expected.len());
    for (row, (key, value, written_at, expires_at, run)) in found.iter().zip(expected) {
        let value = value.map(|value| value.as_bytes().to_vec());
        assert_eq!((&row.key[..], &row.value), (key.as_bytes(), &value));
        assert_eq!(
            (row.written_at, row.expires_at, row.run),
            (written_at, expires_at, run)
        );
        assert_eq!(row.is_deleted, row.value.is_none());
    }
    let folders: Vec<_> = files(&world.out())
        .iter()
        .map(|path| {
            path.strip_prefix(world.out())
                .unwrap()
                .parent()
                .unwrap()
                .to_owned()
        })
        .collect();
    let expected = ["date=2026-11-25/hour=10", "date=2026-11-25/hour=11"];
    assert_eq!(folders, expected.map(PathBuf::from));
    // Another default: what inherits ends otherwise, and has a row that says so.
    c.set_default_ttl(DefaultTtl::After(Duration::from_secs(600)))
        .unwrap();
    let third = world.run(&settings);
    assert_eq!((third.rows, third.compared), (1, true));
    world.compare(None, "with a default");
    c.expire_all().unwrap();
    assert_eq!(world.run(&settings).rows, 1);
    assert!(live(&world.out(), millis(world.db.now()), None).is_empty());
}

#[test]
fn a_row_leaves_when_it_is_past_the_retention() {
    let world = World::new();
    let day = Duration::from_secs(86_400);
    let (c, settings) = (world.c(), world.settings(DefaultTtl::After(day)));
    c.put("old", "v").unwrap();
    world.clock.advance(day);
    c.put("new", "v").unwrap();
    let first = world.run(&settings);
    assert_eq!(
        (first.rows, first.removed),
        (1, 0),
        "old never is in a file"
    );
    assert_eq!(rows(&world.out())[0].key, b"new");
    world.clock.advance(day - Duration::from_millis(1));
    assert_eq!(world.run(&settings).removed, 0);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(world.run(&settings).removed, 1);
    assert!(files(&world.out()).is_empty());
    // It has gone from the copy, not from the database, and comes with its next write.
    assert_eq!(c.count(..).unwrap(), 2);
    c.put("old", "v").unwrap();
    assert_eq!(world.run(&settings).rows, 1);
    // The setting stays until another is given; off removes all, and after it the copy begins anew.
    let stays = Settings {
        retention: None,
        ..settings.clone()
    };
    world.clock.advance(day);
    assert_eq!(world.run(&stays).removed, 1);
    assert_eq!(world.run(&world.settings(DefaultTtl::NoDefault)).rows, 0);
    c.put("old", "w").unwrap();
    assert_eq!(world.run(&stays).rows, 1);
    let off = world.run(&world.settings(DefaultTtl::Off));
    assert_eq!((off.rows, off.removed), (0, 1));
    assert!(files(&world.out()).is_empty());
    assert_eq!(world.run(&world.settings(DefaultTtl::NoDefault)).rows, 2);
    world.compare(None, "begun anew");
}

#[test]
fn what_is_no_copy_of_this_is_refused() {
    let world = World::new();
    let (c, settings) = (world.c(), world.settings(DefaultTtl::NoDefault));
    c.put([0xff], "v").unwrap();
    let unsaid = Settings {
        retention: None,
        ..settings.clone()
    };
    assert!(world.refused(&unsaid).contains("--retention"));
    let text = Settings {
        utf8_keys: true,
        ..settings.clone()
    };
    assert!(world.refused(&text).contains("\"\\xff\" is no UTF-8"));
    world.run(&settings);
    assert!(world.refused(&text).contains("these stay"));
    let days = Settings {
        partition: Some(Partition::Day),
        ..settings.clone()
    };
    assert!(world.refused(&days).contains("these stay"));
    let other = world.db.container("other").unwrap();
    let run = lake::export(&world.db, &other, &settings, &|| Ok(()));
    assert!(
        run.unwrap_err()
            .to_string()
            .ends_with("is a copy of container \"c\"")
    );

    let foreign = Settings {
        out: world.folder.path().to_owned(),
        ..settings.clone()
    };
    assert!(world.refused(&foreign).contains("holds other things"));
    let lock = File::open(world.out().join("_lock")).unwrap();
    lock.lock().unwrap();
    assert!(world.refused(&settings).starts_with("another run brings"));
    lock.unlock().unwrap();
    let path = files(&world.out()).pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[1..]).unwrap();
    assert!(world.refused(&settings).contains("make the copy anew"));
    fs::write(&path, &bytes).unwrap();
    world.run(&settings);
    let state = world.out().join("_state.json");
    let damaged = fs::read_to_string(&state)
        .unwrap()
        .replace("\"run\":2", "\"run\":3");
    fs::write(&state, damaged).unwrap();
    assert!(world.refused(&settings).contains("its checksum is another"));
}

#[test]
fn what_is_written_during_a_run_comes_with_the_next() {
    let world = World::new();
    let (c, settings) = (world.c(), world.settings(DefaultTtl::NoDefault));
    c.put("a", "1").unwrap();
    let writes = Cell::new(0);
    let gate = || {
        writes.set(writes.get() + 1);
        // Another key each time, so that what a run passes over is not told later by a newer write.
        c.put(format!("b{}", writes.get()), "1").unwrap();
        Ok(())
    };
    for _ in 0..2 {
        lake::export(&world.db, &c, &settings, &gate).unwrap();
        assert!(writes.get() > 3);
        c.put("a", "2").unwrap();
    }
    world.run(&settings);
    world.compare(None, "after runs with writes in them");
}

/// A clock that was ahead in doubt when an item was written, and came back before it was deleted.
#[test]
fn a_delete_is_kept_as_long_as_what_it_hides() {
    let world = World::new();
    let hour = Duration::from_secs(3_600);
    let (c, settings) = (world.c(), world.settings(DefaultTtl::After(10 * hour)));
    world.clock.jump(NOW + 30 * 3_600_000);
    c.put("k", "v").unwrap();
    assert_eq!(world.run(&settings).rows, 1);
    world.clock.jump(NOW);
    c.delete("k").unwrap();
    assert_eq!(world.run(&settings).rows, 1);
    for _ in 0..50 {
        world.clock.advance(hour);
        world.run(&settings);
        let live = live(&world.out(), millis(world.db.now()), None);
        assert!(live.is_empty(), "{live:?}");
    }
    assert!(files(&world.out()).is_empty());
}

#[test]
fn a_copy_goes_on_from_its_own_database_alone() {
    let (world, other) = (World::new(), World::new());
    let settings = world.settings(DefaultTtl::NoDefault);
    let from = |db: &Database, settings: &Settings| {
        lake::export(db, &db.container("c").unwrap(), settings, &|| Ok(()))
    };
    // Of the same numbers of writes, so that their versions are alike.
    world.c().put("k", "one").unwrap();
    other.c().put("k", "another").unwrap();
    world.run(&settings);
    let before = rows(&world.out());
    let off = world.settings(DefaultTtl::Off);
    for settings in [&settings, &off] {
        let refused = from(&other.db, settings).unwrap_err().to_string();
        assert!(refused.contains("of another database"), "{refused}");
        assert_eq!(rows(&world.out()), before);
    }
    // A checkpoint is the same database.
    world.c().put("l", "one").unwrap();
    let to = world.folder.path().join("checkpoint");
    world.db.checkpoint(&to).unwrap();
    let options = Options::new().clock(world.clock.clone());
    let checkpoint = options.open(&to).unwrap();
    assert_eq!(from(&checkpoint, &settings).unwrap().rows, 1);
    // A copy that was begun by a build that noted none takes that of its next run.
    let path = world.out().join("_state.json");
    let text = fs::read_to_string(&path).unwrap();
    let identity = format!("\"database\":{},", world.db.identity().unwrap());
    assert!(text.contains(&identity), "{text}");
    let line = text.lines().next().unwrap().replace(&identity, "");
    let sum = twox_hash::XxHash3_64::oneshot(line.as_bytes());
    fs::write(&path, format!("{line}\n{sum:016x}\n")).unwrap();
    world.run(&settings);
    assert!(from(&other.db, &settings).is_err());
    // With all its rows gone it begins anew, from whichever database.
    world.run(&off);
    assert_eq!(from(&other.db, &settings).unwrap().rows, 1);
    assert!(from(&world.db, &settings).is_err());
}

#[test]
fn text_is_text() {
    let world = World::new();
    let settings = Settings {
        utf8_keys: true,
        utf8_values: true,
        partition: None,
        ..world.settings(DefaultTtl::NoDefault)
    };
    world.c().put("käfer", "{\"n\":1}").unwrap();
    world.run(&settings);
    let path = files(&world.out()).pop().unwrap();
    assert!(path.parent().unwrap().ends_with("date=2026-11-25"));
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
    let fields: Vec<_> = row.into_columns();
    assert_eq!(
        fields[0],
        ("key".to_owned(), Field::Str("käfer".to_owned()))
    );
    assert_eq!(
        fields[1],
        ("value".to_owned(), Field::Str("{\"n\":1}".to_owned()))
    );
}
