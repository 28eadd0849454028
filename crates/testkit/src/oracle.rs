//! A self-describing history: its traces in a database show how far it got, and what must be there.
//!
//! Step `n` is computed from `n` alone. It writes one batch over three containers: a put, a delete or an expired put of
//! one of a few hundred keys to `data` and `mirror`, and its number to `log`. So the database must hold a prefix of the
//! steps: `log` has 1 to `n` without a gap, and both others have exactly what these steps leave.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ebbtide::{
    Batch, Container, ContainerOptions, Database, DefaultTtl, Durability, Options, Result, Ttl,
};

use crate::random::Random;

/// Small enough that a few hundred steps make segments, runs and merges.
pub fn options(durability: Durability) -> Options {
    Options::new()
        .durability(durability)
        .sync_interval(Duration::from_millis(5))
        .memtable_bytes(32 << 10)
        .max_runs(3)
        .sizes(512, 16 << 10, 64 << 10)
}

enum Kind {
    Put,
    Delete,
    /// A put that is expired from the start, wherever ttl applies: it hides older items.
    Expired,
}

/// Everything that step `n` does.
struct Step {
    key: String,
    value: Vec<u8>,
    kind: Kind,
}

fn step(n: u64) -> Step {
    let mut random = Random(n);
    let key = format!("key-{:03}", random.below(300));
    let len = if random.one_in(50) {
        20_000
    } else {
        random.below(300)
    };
    let mut value = format!("{n}|").into_bytes();
    value.resize(value.len() + len, b'a' + (n % 26) as u8);
    let kind = match random.below(10) {
        0 => Kind::Delete,
        1 => Kind::Expired,
        _ => Kind::Put,
    };
    Step { key, value, kind }
}

/// A database with such a history in it.
pub struct Oracle {
    pub db: Database,
    pub data: Container,
    mirror: Container,
    log: Container,
}

impl Oracle {
    pub fn open(path: &Path, options: &Options) -> Result<Oracle> {
        Oracle::of(options.open(path)?)
    }

    /// Beside the process that writes it, once it has been opened.
    pub fn follow(path: &Path, options: &Options) -> Result<Oracle> {
        Oracle::of(options.follow(path)?)
    }

    fn of(db: Database) -> Result<Oracle> {
        let counts = ContainerOptions::new()
            .default_ttl(DefaultTtl::NoDefault)
            .or_keep();
        Ok(Oracle {
            data: db.container_with("data", counts)?,
            mirror: db.container("mirror")?,
            log: db.container("log")?,
            db,
        })
    }

    /// How far the history got.
    pub fn latest(&self) -> Result<u64> {
        let last = self.log.iter().next_back().transpose()?;
        Ok(last.map_or(0, |item| {
            u64::from_be_bytes(item.key().try_into().expect("eight bytes"))
        }))
    }

    /// Takes step `n`.
    pub fn take(&self, n: u64) -> Result<()> {
        let Step { key, value, kind } = step(n);
        let mut batch = Batch::new();
        match kind {
            Kind::Put => {
                let mirror = &self.mirror;
                batch
                    .put(&self.data, &key, &value)
                    .put_with_ttl(mirror, &key, &value, Ttl::Never);
            }
            Kind::Delete => {
                batch.delete(&self.data, &key).delete(&self.mirror, &key);
            }
            Kind::Expired => {
                let past = Ttl::Until(SystemTime::UNIX_EPOCH);
                batch
                    .put_with_ttl(&self.data, &key, "", past)
                    .delete(&self.mirror, &key);
            }
        }
        batch.put(&self.log, n.to_be_bytes(), "");
        self.db.write(batch)
    }

    /// Sometimes does what a user does besides writing. Returns whether that syncs everything so far.
    pub fn stir(&self, n: u64, random: &mut Random) -> Result<bool> {
        match random.below(400) {
            0 => self.db.flush().map(|()| true),
            1 => self.db.compact().map(|()| false),
            2 | 3 => self.db.sync().map(|()| true),
            4 => {
                let days = Duration::from_secs(86_400 * (1 + n % 3));
                self.data.set_default_ttl(DefaultTtl::After(days))?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }
}

/// The state that the first `count` steps leave.
#[derive(Default)]
pub struct Expected {
    pub count: u64,
    items: BTreeMap<String, Vec<u8>>,
}

impl Expected {
    /// Goes on to the step `count`.
    pub fn advance(&mut self, count: u64) {
        for n in self.count + 1..=count {
            let Step { key, value, kind } = step(n);
            match kind {
                Kind::Put => drop(self.items.insert(key, value)),
                Kind::Delete | Kind::Expired => drop(self.items.remove(&key)),
            }
        }
        self.count = count;
    }

    /// How many items are left.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.items.get(key).map(Vec::as_slice)
    }

    /// Compares all contents, by scans in both directions and gets, with what should be there.
    pub fn compare(&self, found: &Oracle) -> std::result::Result<(), String> {
        let said = |error: ebbtide::Error| error.to_string();
        let mut count = 0;
        for item in found.log.iter() {
            count += 1;
            if item.map_err(said)?.key() != u64::to_be_bytes(count) {
                return Err(format!("step {count} is missing among later ones"));
            }
        }
        if count != self.count {
            return Err(format!("{count} steps are there, not {}", self.count));
        }
        for container in [&found.data, &found.mirror] {
            let name = container.name();
            let expected = || {
                self.items
                    .iter()
                    .map(|(key, value)| (key.clone().into_bytes(), value.clone()))
            };
            let pair = |item: Result<ebbtide::Item>| {
                item.map(|item| (item.key().to_vec(), item.value().to_vec()))
            };
            let forwards: Vec<_> = container
                .iter()
                .map(pair)
                .collect::<Result<_>>()
                .map_err(said)?;
            let backwards: Vec<_> = container
                .iter()
                .rev()
                .map(pair)
                .collect::<Result<_>>()
                .map_err(said)?;
            if !forwards.iter().cloned().eq(expected()) {
                return Err(format!("{name} differs"));
            }
            if !backwards.iter().rev().cloned().eq(expected()) {
                return Err(format!("{name} differs when read backwards"));
            }
            for n in 0..300 {
                let key = format!("key-{n:03}");
                let value = container.get(&key).map_err(said)?;
                if value.as_deref() != self.items.get(&key).map(Vec::as_slice) {
                    return Err(format!("{name}: a get of {key} differs from a scan"));
                }
            }
        }
        Ok(())
    }
}
