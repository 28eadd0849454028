//! The databases that are damaged: with every kind of file and record, at several moments of a history.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::{Fs, Sim};
use ebbtide::{
    Batch, Compression, ContainerOptions, Database, DefaultTtl, ManualClock, Options, Reads, Ttl,
};

pub const NOW: u64 = 1_767_225_600_000;
pub const DB: &str = "/db";

/// A container and a key.
pub type ContainerKey = (String, Vec<u8>);
/// The items that can be read.
pub type State = BTreeMap<ContainerKey, Vec<u8>>;

/// A disk, and what the database on it may say.
pub struct Image {
    pub name: &'static str,
    pub disk: Sim,
    pub folder: PathBuf,
    pub now: u64,
    /// Every key that ever was.
    pub places: BTreeSet<ContainerKey>,
    /// The last one is the whole truth; an earlier one may be left when the end of the log is lost.
    pub states: Vec<State>,
    /// Every state there was, without what has expired since or lay in a container that was dropped: nothing else may come
    /// back when a part of the log is lost that was synced.
    pub history: Vec<State>,
    /// An older moment of the same folder.
    pub older: Option<Sim>,
}

pub fn options(disk: &Sim, now: u64, reads: Reads) -> Options {
    Options::new()
        .clock(ManualClock::new(now))
        .fs(Arc::new(disk.clone()))
        .memtable_bytes(4 << 10)
        .max_runs(3)
        .sizes(128, 1 << 10, 4 << 10)
        .reads(reads)
        .stepped()
}

/// Writes to the database and to the truth.
pub struct Author {
    pub db: Database,
    clock: ManualClock,
    pub disk: Sim,
    pub now: u64,
    pub places: BTreeSet<ContainerKey>,
    pub states: Vec<State>,
    pub history: Vec<State>,
    pub images: Vec<Image>,
}

impl Author {
    pub fn new() -> Author {
        let disk = Sim::new(1);
        let clock = ManualClock::new(NOW);
        let options = options(&disk, NOW, Reads::Map).clock(clock.clone());
        Author {
            db: options.open(DB).unwrap(),
            clock,
            disk,
            now: NOW,
            places: BTreeSet::new(),
            states: vec![State::new()],
            history: vec![State::new()],
            images: vec![],
        }
    }

    pub fn change(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.states.last().unwrap().clone();
        change(&mut state);
        self.places.extend(state.keys().cloned());
        self.history.push(state.clone());
        self.states.push(state);
    }

    pub fn container(&self, name: &str) -> ebbtide::Container {
        self.db.container(name).unwrap()
    }

    pub fn put(&mut self, container: &str, key: &str, value: &[u8], ttl: Ttl) {
        self.container(container)
            .put_with_ttl(key, value, ttl)
            .unwrap();
        let place = (container.to_owned(), key.as_bytes().to_vec());
        self.change(|state| drop(state.insert(place, value.to_vec())));
    }

    pub fn delete(&mut self, container: &str, key: &str) {
        self.container(container).delete(key).unwrap();
        let place = (container.to_owned(), key.as_bytes().to_vec());
        self.change(|state| drop(state.remove(&place)));
    }

    pub fn delete_range(&mut self, container: &str, from: &str, to: &str) {
        self.container(container).delete_range(from..to).unwrap();
        self.change(|state| {
            state.retain(|(name, key), _| {
                name != container || !(from.as_bytes()..to.as_bytes()).contains(&key.as_slice())
            })
        });
    }

    /// These have expired, or their container was dropped.
    pub fn gone(&mut self, container: &str, prefix: &str) {
        let stays =
            |place: &ContainerKey| place.0 != container || !place.1.starts_with(prefix.as_bytes());
        self.change(|state| state.retain(|place, _| stays(place)));
        let before = self.history.iter_mut();
        before.for_each(|state| state.retain(|place, _| stays(place)));
    }

    pub fn fill(&mut self, container: &str, prefix: &str, count: usize) {
        for n in 0..count {
            let ttl = match n % 3 {
                0 => Ttl::Inherit,
                1 => Ttl::Never,
                _ => Ttl::After(Duration::from_secs(3_600)),
            };
            let value = format!("{prefix} {n} ").repeat(1 + n % 5);
            self.put(container, &format!("{prefix}{n:02}"), value.as_bytes(), ttl);
        }
    }

    pub fn advance(&mut self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.now += 1_000 * seconds;
    }

    pub fn steps(&self) {
        while self.db.step().unwrap() {}
    }

    /// All before this is durable; writes behind it may be lost.
    pub fn durable(&mut self) {
        self.db.sync().unwrap();
        self.states.drain(..self.states.len() - 1);
    }

    pub fn keep(&mut self, name: &'static str, folder: &str) {
        let older = self
            .images
            .iter()
            .rev()
            .find(|image| image.folder == Path::new(folder));
        self.images.push(Image {
            name,
            older: older.map(|image| image.disk.clone()),
            disk: self.disk.kill(),
            folder: folder.into(),
            now: self.now,
            places: self.places.clone(),
            states: self.states.clone(),
            history: self.history.clone(),
        });
    }
}

/// A life with everything in it, and the disk at several of its moments.
pub fn images() -> Vec<Image> {
    let mut author = Author::new();
    for (name, compression, standard) in [
        ("plain", Compression::None, DefaultTtl::NoDefault),
        (
            "packed",
            Compression::Lz4,
            DefaultTtl::After(Duration::from_secs(7_200)),
        ),
        (
            "turned",
            Compression::None,
            DefaultTtl::After(Duration::from_secs(60)),
        ),
        ("dropped", Compression::None, DefaultTtl::Off),
    ] {
        let options = ContainerOptions::new()
            .default_ttl(standard)
            .compression(compression);
        author.db.container_with(name, options).unwrap();
    }
    author.fill("plain", "a", 24);
    author.put("plain", "b-large", &[7; 17 << 10], Ttl::Never);
    author.fill("packed", "a", 12);
    author.put("packed", "b-large", &b"packed ".repeat(3_000), Ttl::Inherit);
    author.fill("dropped", "a", 4);
    for n in 0..6 {
        author.put(
            "turned",
            &format!("x{n}"),
            b"expires in a minute",
            Ttl::Inherit,
        );
    }
    author.durable();
    author.db.flush().unwrap();
    author.keep("killed after a flush", DB);

    author.advance(60);
    author.gone("turned", "x");
    author
        .container("turned")
        .set_default_ttl(DefaultTtl::Off)
        .unwrap();
    author.fill("plain", "a", 10);
    author.delete("plain", "a11");
    author.delete("plain", "a12");
    author.delete("packed", "a03");
    author.delete_range("plain", "a14", "a18");
    author.durable();
    author.db.flush().unwrap();
    assert!(author.db.drop_container("dropped").unwrap());
    author.gone("dropped", "");
    author.put("turned", "y", b"stays", Ttl::Inherit);
    author.durable();
    author.keep("killed after a drop", DB);

    author.fill("plain", "c", 12);
    author.durable();
    author.db.flush().unwrap();
    author.fill("packed", "a", 6);
    author.durable();
    author.db.flush().unwrap();
    author.steps();
    author.delete("plain", "c01");
    author.durable();
    author.keep("killed after merges, replaced tables still there", DB);

    author.db.checkpoint("/copy").unwrap();
    author.keep("checkpoint", "/copy");

    let mut batch = Batch::new();
    for (container, key) in [("plain", "d"), ("packed", "d")] {
        batch.put(author.container(container), key, "in both");
    }
    author.db.write(&batch).unwrap();
    author.change(|state| {
        for container in ["plain", "packed"] {
            state.insert((container.to_owned(), b"d".to_vec()), b"in both".to_vec());
        }
    });
    author.durable();
    author.fill("packed", "e", 5);
    author.keep("killed with a tail of the log", DB);

    author.db.close().unwrap();
    author.states.drain(..author.states.len() - 1);
    author.keep("closed", DB);
    author.images
}

/// The same folder on another disk.
pub fn image_on(image: &Image, disk: &Sim) -> Image {
    Image {
        disk: disk.clone(),
        name: "",
        folder: image.folder.clone(),
        now: 0,
        places: BTreeSet::new(),
        states: vec![],
        history: vec![],
        older: None,
    }
}

/// All files of a database, by name inside its folder.
pub fn files(image: &Image) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = vec![];
    for folder in ["", "copy", "tables", "wal", "lost"] {
        let folder = image.folder.join(folder);
        if image.disk.is_dir(&folder) {
            for name in image.disk.list(&folder).unwrap() {
                let path = folder.join(name);
                let bytes = image.disk.read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}
