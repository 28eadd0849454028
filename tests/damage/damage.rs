//! Goal: whole files that are damaged, missing, another's or in another's place give right data or an error that names the
//! file, never wrong data and never a panic; a lost end of the log is a contiguous part of the latest writes that were
//! never synced. Single bits, bytes and sectors are tests/damage/rot.rs's.
//!
//! Method: a small database with every kind of file (tables of several runs, a log with data, a manifest) is created
//! once, on the real disk. For each damage the folder is copied and changed, and the copy is opened, read in every way,
//! and opened again. Its answers are compared with the states that the database went through.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebbtide::{
    Compression, ContainerOptions, Database, DefaultTtl, Error, ManualClock, Options, Reads, Ttl,
};
use tempfile::TempDir;
use testkit::random::Random;

const NOW: u64 = 1_767_225_600_000;

/// Keys and values of all containers, and their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    items: BTreeMap<(String, Vec<u8>), Vec<u8>>,
    defaults: BTreeMap<String, DefaultTtl>,
}

struct Original {
    folder: TempDir,
    /// Every state that a log cut short may leave, the last one whole.
    states: Vec<State>,
}

fn options() -> Options {
    Options::new()
        .clock(ManualClock::new(NOW))
        .memtable_bytes(64 << 10)
        .sizes(256, 4 << 10, 16 << 10)
        .stepped()
}

struct Author {
    db: Database,
    /// The bytes that begin each value.
    tag: &'static str,
    states: Vec<State>,
}

impl Author {
    fn put(&mut self, container: &str, key: &str, value: &str) {
        self.db
            .container(container)
            .unwrap()
            .put_with_ttl(key, value, Ttl::After(Duration::from_secs(60)))
            .unwrap();
        let mut state = self.states.last().unwrap().clone();
        state.items.insert(
            (container.to_owned(), key.as_bytes().to_vec()),
            value.as_bytes().to_vec(),
        );
        self.states.push(state);
    }

    fn fill(&mut self, container: &str, prefix: &str, count: usize) {
        for n in 0..count {
            self.put(
                container,
                &format!("{prefix}{n:03}"),
                &format!("{}{prefix} {n} ", self.tag).repeat(1 + n % 9),
            );
        }
    }

    /// All before this is durable; writes behind it may be lost.
    fn durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }
}

/// Several runs, a range delete, three containers, a log; with values that begin so, and ended as it says.
fn make(tag: &'static str, end: impl FnOnce(&mut Author, &Path) -> Option<TempDir>) -> Original {
    let folder = TempDir::new().unwrap();
    let db = options().open(folder.path()).unwrap();
    let mut author = Author {
        db,
        tag,
        states: vec![State::default()],
    };
    for (name, compression, standard) in [
        ("plain", Compression::None, DefaultTtl::NoDefault),
        (
            "packed",
            Compression::Lz4,
            DefaultTtl::After(Duration::from_secs(60)),
        ),
        ("small", Compression::None, DefaultTtl::Off),
    ] {
        author
            .db
            .container_with(
                name,
                ContainerOptions::new()
                    .default_ttl(standard)
                    .compression(compression),
            )
            .unwrap();
        author.states[0].defaults.insert(name.to_owned(), standard);
    }
    author.fill("plain", "a", 60);
    author.fill("packed", "a", 60);
    author.db.flush().unwrap();
    author.fill("plain", "b", 40);
    author.fill("small", "b", 3);
    author.db.flush().unwrap();
    author
        .db
        .container("plain")
        .unwrap()
        .delete_range("a010".."a020")
        .unwrap();
    let mut state = author.states.pop().unwrap();
    state.items.retain(|(name, key), _| {
        name != "plain" || !(b"a010"[..].to_vec()..b"a020".to_vec()).contains(key)
    });
    author.states.push(state);
    author.fill("plain", "c", 30);
    author.fill("packed", "a", 20);
    author.db.sync().unwrap();
    author.durable();
    let copied = end(&mut author, folder.path());
    let states = author.states.clone();
    drop(author);
    Original {
        folder: copied.unwrap_or(folder),
        states,
    }
}

fn closed_cleanly() -> Original {
    make("Value", |author, _| {
        author.fill("plain", "d", 20);
        author.db.close().unwrap();
        author.durable();
        None
    })
}

/// A copy of the folder while it is open is what a killed process leaves.
fn killed() -> Original {
    make("Value", |author, path| {
        author.fill("plain", "d", 20);
        Some(copy(path))
    })
}

fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    for name in names(from) {
        fs::create_dir_all(to.path().join(&name).parent().unwrap()).unwrap();
        fs::copy(from.join(&name), to.path().join(&name)).unwrap();
    }
    to
}

/// All files below the folder.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path().strip_prefix(folder).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

fn files(original: &Original, part: &str) -> Vec<PathBuf> {
    let all = names(original.folder.path()).into_iter();
    let found: Vec<PathBuf> = all
        .filter(|name| name.to_string_lossy().contains(part))
        .collect();
    assert!(!found.is_empty(), "there is no file like {part}");
    found
}

/// Everything that can be read; reads that fail do so with the error they give.
fn read(path: &Path) -> Result<State, Error> {
    let db = options().open(path)?;
    let mut state = State::default();
    for name in db.containers() {
        let c = db.container(&name)?;
        state.defaults.insert(name.clone(), c.default_ttl());
        for item in c.iter() {
            let item = item?;
            state
                .items
                .insert((name.clone(), item.key().to_vec()), item.value().to_vec());
        }
    }
    db.close()?;
    Ok(state)
}

/// Each key on its own, and backwards: none may answer wrong, whatever the others do.
fn probe(path: &Path, states: &[State]) -> Result<(), String> {
    let Ok(db) = options().open(path) else {
        return Ok(());
    };
    let may_be = |name: &str, key: &[u8], value: Option<&[u8]>| {
        let place = (name.to_owned(), key.to_vec());
        states
            .iter()
            .any(|state| state.items.get(&place).map(Vec::as_slice) == value)
    };
    for (name, key) in states.iter().flat_map(|state| state.items.keys()) {
        match db.container(name).and_then(|c| c.get(key)) {
            Err(error) => names_the_damage(&error, path)?,
            Ok(value) if may_be(name, key, value.as_deref()) => {}
            Ok(value) => {
                return Err(format!(
                    "get {} answers {value:?}",
                    String::from_utf8_lossy(key)
                ));
            }
        }
    }
    for name in db.containers() {
        let Ok(c) = db.container(&name) else { continue };
        for item in c.iter().rev() {
            match item {
                Err(error) => names_the_damage(&error, path)?,
                Ok(item) if may_be(&name, item.key(), Some(item.value())) => {}
                Ok(item) => return Err(format!("backwards: {item:?}")),
            }
        }
    }
    // Background work meets the damage too.
    if let Err(error) = db.compact() {
        names_the_damage(&error, path)?
    }
    Ok(())
}

fn names_the_damage(error: &Error, folder: &Path) -> Result<(), String> {
    testkit::plain(error)?;
    match error {
        Error::Corruption { path, .. } if path.starts_with(folder) => Ok(()),
        Error::Poisoned { cause } => names_the_damage(cause, folder),
        other => Err(format!("the error does not name the damage: {other}")),
    }
}

/// Opens and reads what is in the folder, twice.
fn judge(path: &Path, states: &[State]) -> Result<(), String> {
    for round in ["at first", "the second time"] {
        let outcome = catch_unwind(AssertUnwindSafe(|| match read(path) {
            Ok(state) if states.contains(&state) => Ok(()),
            Ok(state) => Err(format!(
                "wrong data: {}",
                differences(&state, states.last().unwrap())
            )),
            Err(error) => names_the_damage(&error, path),
        }));
        match outcome {
            Ok(judged) => judged.map_err(|fault| format!("{round}: {fault}"))?,
            Err(panic) => return Err(format!("{round}: panic: {}", testkit::panic_text(&*panic))),
        }
        match catch_unwind(AssertUnwindSafe(|| probe(path, states))) {
            Ok(judged) => judged.map_err(|fault| format!("{round}: {fault}"))?,
            Err(panic) => return Err(format!("{round}: panic: {}", testkit::panic_text(&*panic))),
        }
    }
    Ok(())
}

fn differences(found: &State, whole: &State) -> String {
    let lost = whole
        .items
        .keys()
        .filter(|key| !found.items.contains_key(key))
        .count();
    let new = found
        .items
        .keys()
        .filter(|key| !whole.items.contains_key(key))
        .count();
    let other = found
        .items
        .iter()
        .filter(|(key, value)| whole.items.get(key).is_some_and(|v| v != *value))
        .count();
    format!(
        "{lost} lost, {new} too many, {other} with another value; defaults {:?}",
        found.defaults
    )
}

/// Damages copies of the database, one at a time; names all that went wrong.
fn try_all<T: std::fmt::Debug>(original: &Original, damages: Vec<T>, apply: impl Fn(&Path, &T)) {
    let mut faults = vec![];
    for damage in &damages {
        let copy = copy(original.folder.path());
        apply(copy.path(), damage);
        if let Err(fault) = judge(copy.path(), &original.states) {
            faults.push(format!("{damage:?}: {fault}"));
        }
    }
    let shown = faults
        .iter()
        .take(12)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        faults.is_empty(),
        "{} of {} damages:\n{shown}",
        faults.len(),
        damages.len()
    );
}

#[test]
fn the_undamaged_database_is_right() {
    for original in [closed_cleanly(), killed()] {
        let found = read(original.folder.path()).unwrap();
        assert!(
            found == *original.states.last().unwrap(),
            "{}",
            differences(&found, original.states.last().unwrap())
        );
        judge(original.folder.path(), &original.states).unwrap();
    }
}

#[test]
fn removed_folders() {
    for original in [closed_cleanly(), killed()] {
        let damages = vec!["tables", "wal", "copy"];
        try_all(&original, damages, |folder, name: &&str| {
            fs::remove_dir_all(folder.join(name)).unwrap()
        });
    }
}

#[test]
fn swapped_files() {
    let original = closed_cleanly();
    let mut pairs = vec![];
    for part in [".table", ".wal"] {
        let files = files(&original, part);
        for (n, a) in files.iter().enumerate() {
            pairs.extend(files[n + 1..].iter().map(|b| (a.clone(), b.clone())));
        }
    }
    assert!(!pairs.is_empty());
    try_all(&original, pairs, |folder, (a, b)| {
        let (x, y) = (
            fs::read(folder.join(a)).unwrap(),
            fs::read(folder.join(b)).unwrap(),
        );
        fs::write(folder.join(a), y).unwrap();
        fs::write(folder.join(b), x).unwrap();
    });
}

/// A file cut short does what a failing device does under a map: its pages are mapped, and cannot be read.
#[test]
fn pages_that_cannot_be_read_are_an_error_and_no_signal() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || -> Option<u32> { numbers.next()?.parse().ok() };
    if (number(), number()) < (Some(5), Some(14)) {
        println!("skipped: this system brings no pages in on demand");
        return;
    }
    let original = closed_cleanly();
    for reads in [Reads::Map, Reads::Pread] {
        let folder = copy(original.folder.path());
        let db = options().reads(reads).open(folder.path()).unwrap();
        for table in files(&original, ".table") {
            let file = File::options().write(true).open(folder.path().join(table));
            file.unwrap().set_len(0).unwrap();
        }
        let plain = db.container("plain").unwrap();
        let error = plain.get("a001").unwrap_err();
        let is_named = matches!(&error, Error::Io { operation: "read", path, .. } | Error::Corruption { path, .. }
            if path.starts_with(folder.path()));
        assert!(is_named, "{reads:?}: {error}");
        assert!(plain.iter().any(|item| item.is_err()));
        assert!(db.compact().is_err());
    }
}

/// Files of another database that led the same life with other values of the same lengths.
#[test]
fn exchanged_files() {
    let original = closed_cleanly();
    let other = make("Other", |author, _| {
        author.fill("plain", "d", 20);
        author.db.close().unwrap();
        author.durable();
        None
    });
    let read_both = |name: &PathBuf| {
        let read = |one: &Original| fs::read(one.folder.path().join(name)).unwrap();
        (read(&original), read(&other))
    };
    let mut damages = files(&original, ".table");
    assert_eq!(damages, files(&other, ".table"));
    for name in &damages {
        let (own, others) = read_both(name);
        assert!(own != others, "{} is the same", name.display());
    }
    damages.extend(files(&original, ".wal"));
    damages.extend(files(&original, "manifest-"));
    damages.retain(|name| other.folder.path().join(name).exists());
    assert!(damages.iter().any(|name| name.starts_with("wal")));
    try_all(&original, damages, |folder, name: &PathBuf| {
        fs::write(folder.join(name), read_both(name).1).unwrap();
    });
}

#[test]
fn files_emptied_or_replaced_by_noise() {
    let original = closed_cleanly();
    let mut random = Random(11);
    let mut damages = vec![];
    for name in files(&original, "")
        .into_iter()
        .filter(|name| !name.ends_with("LOCK"))
    {
        let len = fs::metadata(original.folder.path().join(&name))
            .unwrap()
            .len() as usize;
        let noise: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        damages.extend([
            (name.clone(), vec![]),
            (name.clone(), vec![0; len]),
            (name.clone(), vec![0xff; len]),
            (name, noise),
        ]);
    }
    let applied = damages
        .iter()
        .map(|(name, bytes)| (name.clone(), bytes.first().copied(), bytes.clone()));
    let applied: Vec<Shown> = applied
        .map(|(name, first, bytes)| Shown { name, first, bytes })
        .collect();
    try_all(&original, applied, |folder, shown| {
        fs::write(folder.join(&shown.name), &shown.bytes).unwrap()
    });
}

struct Shown {
    name: PathBuf,
    first: Option<u8>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} bytes from {:?}",
            self.name.display(),
            self.bytes.len(),
            self.first
        )
    }
}

/// Leftovers of crashes are removed or ignored; files of others are left alone.
#[test]
fn stale_and_foreign_files_do_no_harm() {
    let original = closed_cleanly();
    let folder = copy(original.folder.path());
    let table = fs::read(folder.path().join(&files(&original, ".table")[0])).unwrap();
    let segment = fs::read(folder.path().join(&files(&original, ".wal")[0])).unwrap();
    let manifest = files(&original, "manifest-").pop().unwrap();
    let manifest = fs::read(folder.path().join(manifest)).unwrap();
    for (name, bytes) in [
        ("tables/999999.table", &table),
        ("tables/888888.table.tmp", &table),
        ("tables/777777.table", &vec![]),
        ("manifest-999999.tmp", &manifest),
        ("manifest-000000.tmp", &vec![]),
        ("wal/000000.wal", &segment),
        ("notes.txt", &b"mine".to_vec()),
        ("tables/notes.txt", &b"mine".to_vec()),
        ("wal/notes.txt", &b"mine".to_vec()),
        ("manifest-notes", &b"mine".to_vec()),
    ] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    for _ in 0..2 {
        let found = read(folder.path()).unwrap();
        assert!(
            found == *original.states.last().unwrap(),
            "{}",
            differences(&found, original.states.last().unwrap())
        );
    }
    for name in [
        "notes.txt",
        "tables/notes.txt",
        "wal/notes.txt",
        "manifest-notes",
    ] {
        assert_eq!(
            fs::read(folder.path().join(name)).unwrap(),
            b"mine",
            "{name}"
        );
    }
}
