//! The engines, each behind the same thin face.

mod ebbtide;
mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::loads::Load;

/// The settings that every engine is given.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Bytes that a memtable takes before it is flushed.
    pub memtable_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// All data fits into memory, so that files may be mapped and need no cache.
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code))]
    pub in_memory: bool,
    /// How soon after its expiry an item's bytes should be off the disk, in seconds.
    pub reclaim_within: u64,
    /// The longest lifetime in milliseconds; `None` if something never expires.
    pub longest_ms: Option<u64>,
    /// No key is put twice.
    pub keys_are_fresh: bool,
    /// A put is done when it would survive a power cut, not merely a killed process.
    pub sync: bool,
    /// Blocks are compressed with LZ4, where the engine compresses.
    pub lz4: bool,
    /// Flushed runs stay as they are.
    pub keep_runs: bool,
    /// The engine counts what it writes, where that has a price: with RocksDB.
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code))]
    pub counted: bool,
    /// It is opened for transactions, where that is another way to open it.
    pub transactions: bool,
    /// The most bytes that its file may take: LMDB wants to know.
    pub room_bytes: u64,
}

/// How long an item lives.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// From the put on, in milliseconds.
    pub ttl_ms: u64,
    /// The driver's clock at the put and `ttl_ms`: for engines that have no notion of time.
    pub expires_at_ms: u64,
}

/// An engine's own figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OwnFigures {
    /// Bytes written since it was opened, log included.
    pub written_bytes: Option<u64>,
    /// Bytes of expired items still on disk.
    pub expired_bytes: Option<u64>,
    /// Bytes on disk of the log, and of tables that are part of the database.
    #[serde(default)]
    pub log_and_tables: Option<(u64, u64)>,
    /// Sorted runs that a get may have to ask.
    pub runs: Option<u64>,
    /// Seconds from the expiry of items to the removal of their bytes: half of the bytes, and all.
    pub removal_s: Option<(f64, f64)>,
    /// Seconds by which expired bytes that are on disk have missed their deadline.
    #[serde(default)]
    pub overdue_s: Option<f64>,
}

/// Is shown a key and its value.
pub type See<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// Is shown the place of a key among several, and its value.
pub type SeeMany<'a> = dyn FnMut(usize, &[u8]) + 'a;

/// The steps of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// Keys that it gets.
    pub gets: &'a [&'a [u8]],
    /// Keys and values that it puts then.
    pub puts: &'a [(&'a [u8], &'a [u8])],
    /// How long these live.
    pub life: Option<Life>,
}

/// One engine, open in one folder.
pub trait Engine: Send + Sync {
    /// Puts an item; `None`: it never expires.
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()>;
    /// Shows the value of an item, unless there is none or it has expired. `now_ms` is for engines that have no notion of
    /// time.
    fn get(&self, key: &[u8], now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// Shows key and value of the first live items from a key on, which is not empty; `most` of them at the most.
    fn scan(&self, from: &[u8], most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()>;
    /// The same by the way that lends key and value, where the engine has one beside an iterator that gives them.
    fn lend(&self, from: &[u8], most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        self.scan(from, most, now_ms, see)
    }
    /// The same by chunks, where the engine lends so.
    fn lend_chunks(&self, from: &[u8], most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        self.lend(from, most, now_ms, see)
    }
    /// Gets several items by one call, where the engine has one, and shows for each key its place and its value, unless
    /// there is none or it has expired.
    fn get_many(&self, keys: &[&[u8]], now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        for (n, key) in keys.iter().enumerate() {
            self.get(key, now_ms, &mut |value| see(n, value))?;
        }
        Ok(())
    }
    /// Gets items and puts others, in one transaction that is serializable. Only where [`Config::transactions`] is set.
    fn transact(&self, work: &Transfer<'_>, now_ms: u64, see: &mut SeeMany<'_>) -> Result<()>;
    /// Sees to it that all puts so far survive a killed process, where they would not without it.
    fn persist(&self) -> Result<()> {
        Ok(())
    }
    /// Makes a run of what is in memory; a tree has nothing to do.
    fn flush(&self) -> Result<()>;
    /// The engine's own full compaction, if it has one.
    fn quiesce(&mut self) -> Result<()>;
    /// The engine's own figures.
    fn own(&self) -> OwnFigures;
    /// Ends it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The engines by name, and by how they get rid of what expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Ebbtide
    Ebbtide,
    /// RocksDB with a compaction filter
    Rocksdb,
    /// The same, and files are rewritten when they are old
    RocksdbPeriodic,
    /// RocksDB set up by its own advice for data in memory, or beyond it where the cache is limited
    RocksdbTuned,
    /// The same with values in blob files
    RocksdbBlobs,
    /// RocksDB's FIFO: files are dropped when they are older than the longest lifetime
    RocksdbFifo,
    /// fjall with a compaction filter
    Fjall,
    /// fjall's FIFO, the same way
    FjallFifo,
    /// redb; only for rows
    Redb,
    /// LMDB; only for rows
    Lmdb,
    /// LMDB with a checksum on each page; only for rows
    LmdbChecksums,
}

impl Kind {
    /// As it is written on the command line and in file names.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ebbtide => "ebbtide",
            Kind::Rocksdb => "rocksdb",
            Kind::RocksdbPeriodic => "rocksdb-periodic",
            Kind::RocksdbTuned => "rocksdb-tuned",
            Kind::RocksdbBlobs => "rocksdb-blobs",
            Kind::RocksdbFifo => "rocksdb-fifo",
            Kind::Fjall => "fjall",
            Kind::FjallFifo => "fjall-fifo",
            Kind::Redb => "redb",
            Kind::Lmdb => "lmdb",
            Kind::LmdbChecksums => "lmdb-checksums",
        }
    }

    /// Whether it keeps a tree in place instead of runs.
    pub fn is_tree(self) -> bool {
        matches!(self, Kind::Redb | Kind::Lmdb | Kind::LmdbChecksums)
    }

    /// Whether it takes keys in any order, as rows put them.
    pub fn takes_any_order(self) -> bool {
        self != Kind::FjallFifo
    }

    /// Whether it knows what time it is; the others are told.
    pub fn knows_time(self) -> bool {
        self == Kind::Ebbtide
    }

    /// Whether it was built.
    pub fn is_there(self) -> bool {
        !self.name().starts_with("rocksdb") || cfg!(feature = "rocksdb")
    }

    /// Why it cannot be put under a load, if it cannot.
    pub fn unfit(self, load: &Load) -> Option<&'static str> {
        match self {
            _ if !self.is_there() => Some("built without RocksDB"),
            _ if self.is_tree() => Some("nothing in it drops what has expired"),
            Kind::RocksdbPeriodic if !load.expires() => Some("nothing expires"),
            Kind::RocksdbFifo if load.longest_ms().is_none() => {
                Some("FIFO would drop what never expires")
            }
            Kind::FjallFifo if !load.keys_are_in_order() => {
                Some("fjall's FIFO needs keys that ascend with time")
            }
            _ => None,
        }
    }

    /// Milliseconds around an expiry for which it is not blamed: its clock is the driver's, read a little later.
    pub fn tolerance_ms(self) -> u64 {
        if self.knows_time() { 0 } else { 2 }
    }

    /// Opens it in a folder, which is empty or its own.
    pub fn open(self, folder: &Path, config: &Config) -> Result<Box<dyn Engine>> {
        match self {
            Kind::Ebbtide => ebbtide::open(folder, config),
            Kind::Fjall => fjall::open(folder, config, false),
            Kind::FjallFifo => fjall::open(folder, config, true),
            Kind::Redb => redb::open(folder, config),
            Kind::Lmdb => lmdb::open(folder, config, false),
            Kind::LmdbChecksums => lmdb::open(folder, config, true),
            #[cfg(feature = "rocksdb")]
            Kind::Rocksdb => rocksdb::open(folder, config, rocksdb::Setup::Filter),
            #[cfg(feature = "rocksdb")]
            Kind::RocksdbPeriodic => rocksdb::open(folder, config, rocksdb::Setup::Periodic),
            #[cfg(feature = "rocksdb")]
            Kind::RocksdbTuned => rocksdb::open(folder, config, rocksdb::Setup::Tuned),
            #[cfg(feature = "rocksdb")]
            Kind::RocksdbBlobs => rocksdb::open(folder, config, rocksdb::Setup::Blobs),
            #[cfg(feature = "rocksdb")]
            Kind::RocksdbFifo => rocksdb::open(folder, config, rocksdb::Setup::Fifo),
            #[cfg(not(feature = "rocksdb"))]
            _ => Err("built without RocksDB".into()),
        }
    }
}

/// Values as engines without a notion of time store them: when it expires, 0 for never, then the value.
mod stamped {
    use std::cell::RefCell;

    use super::Life;

    const STAMP: usize = 8;

    thread_local! {
        static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// How long a value is with its stamp.
    pub fn length(value: &[u8]) -> usize {
        STAMP + value.len()
    }

    /// Writes the value with its stamp in front into [`length`] bytes.
    pub fn encode_into(stored: &mut [u8], value: &[u8], life: Option<Life>) {
        let expires_at_ms = life.map_or(0, |life| life.expires_at_ms);
        stored[..STAMP].copy_from_slice(&expires_at_ms.to_le_bytes());
        stored[STAMP..].copy_from_slice(value);
    }

    /// Lends it, in memory that is used again.
    pub fn encoded<T>(value: &[u8], life: Option<Life>, store: impl FnOnce(&[u8]) -> T) -> T {
        STORED.with_borrow_mut(|stored| {
            stored.resize(length(value), 0);
            encode_into(stored, value, life);
            store(stored)
        })
    }

    /// Whether it has expired.
    pub fn is_expired(stored: &[u8], now_ms: u64) -> bool {
        let expires_at_ms = stored.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        expires_at_ms != 0 && expires_at_ms <= now_ms
    }

    /// The value, unless it has expired.
    pub fn live(stored: &[u8], now_ms: u64) -> Option<&[u8]> {
        let value = stored.get(STAMP..).unwrap_or_default();
        (!is_expired(stored, now_ms)).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::wall_ms;

    fn kinds() -> impl Iterator<Item = Kind> {
        let kinds = <Kind as clap::ValueEnum>::value_variants().iter();
        kinds.copied().filter(|kind| kind.is_there())
    }

    fn open(kind: Kind, folder: &Path) -> Box<dyn Engine> {
        kind.open(folder, &config()).unwrap()
    }

    fn config() -> Config {
        Config {
            memtable_bytes: 1 << 20,
            cache_bytes: 8 << 20,
            in_memory: true,
            reclaim_within: 1,
            longest_ms: Some(1_000),
            room_bytes: 64 << 20,
            ..Config::default()
        }
    }

    fn get(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
        let mut found = None;
        engine
            .get(key, wall_ms(), &mut |value| found = Some(value.to_vec()))
            .unwrap();
        found
    }

    fn scan(engine: &dyn Engine, from: &[u8], most: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let see: &mut See<'_> = &mut |key, value| found.push((key.to_vec(), value.to_vec()));
        engine.scan(from, most, wall_ms(), see).unwrap();
        found
    }

    #[test]
    fn every_engine_gets_many_and_transacts() {
        for kind in kinds().filter(|kind| kind.takes_any_order()) {
            let folder = tempfile::tempdir().unwrap();
            let config = Config {
                transactions: true,
                ..config()
            };
            let engine = kind.open(folder.path(), &config).unwrap();
            engine.put(b"a", b"1", None).unwrap();
            engine.put(b"b", b"2", life(1)).unwrap();
            engine.put(b"c", b"3", life(60_000)).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let keys: [&[u8]; 4] = [b"c", b"b", b"d", b"a"];
            let mut found = Vec::new();
            let see: &mut SeeMany<'_> = &mut |n, value| found.push((n, value.to_vec()));
            engine.get_many(&keys, wall_ms(), see).unwrap();
            assert_eq!(found, [(0, b"3".to_vec()), (3, b"1".to_vec())], "{kind:?}");
            let work = Transfer {
                gets: &keys[..2],
                puts: &[(b"a", b"4"), (b"e", b"5")],
                life: life(60_000),
            };
            let mut found = Vec::new();
            let see: &mut SeeMany<'_> = &mut |n, value| found.push((n, value.to_vec()));
            engine.transact(&work, wall_ms(), see).unwrap();
            assert_eq!(found, [(0, b"3".to_vec())], "{kind:?}");
            assert_eq!(get(&*engine, b"a"), Some(b"4".into()), "{kind:?}");
            assert_eq!(get(&*engine, b"e"), Some(b"5".into()), "{kind:?}");
            engine.close().unwrap();
        }
    }

    fn life(ttl_ms: u64) -> Option<Life> {
        Some(Life {
            ttl_ms,
            expires_at_ms: wall_ms() + ttl_ms,
        })
    }

    fn lent(engine: &dyn Engine, from: &[u8], most: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let see: &mut See<'_> = &mut |key, value| found.push((key.to_vec(), value.to_vec()));
        engine.lend(from, most, wall_ms(), see).unwrap();
        let mut chunks = Vec::new();
        let see: &mut See<'_> = &mut |key, value| chunks.push((key.to_vec(), value.to_vec()));
        engine.lend_chunks(from, most, wall_ms(), see).unwrap();
        assert_eq!(chunks, found);
        found
    }

    #[test]
    fn every_engine_returns_what_lives_and_nothing_else() {
        for kind in kinds() {
            let folder = tempfile::tempdir().unwrap();
            let engine = open(kind, folder.path());
            engine.put(b"short", b"one", life(1)).unwrap();
            engine.put(b"long", b"another", life(60_000)).unwrap();
            engine.put(b"never", b"", None).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(get(&*engine, b"short"), None, "{kind:?}");
            assert_eq!(get(&*engine, b"long"), Some(b"another".into()), "{kind:?}");
            assert_eq!(get(&*engine, b"never"), Some(vec![]), "{kind:?}");
            assert_eq!(get(&*engine, b"absent"), None, "{kind:?}");
            engine.close().unwrap();
        }
    }

    #[test]
    fn every_engine_scans_what_lives_in_order() {
        for kind in kinds().filter(|kind| kind.takes_any_order()) {
            let folder = tempfile::tempdir().unwrap();
            let mut engine = open(kind, folder.path());
            for key in ["d", "a", "c", "b"] {
                engine.put(key.as_bytes(), b"old", None).unwrap();
            }
            engine.flush().unwrap();
            engine.put(b"c", b"new", life(60_000)).unwrap();
            engine.put(b"b", b"gone", life(1)).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let all = [("a", "old"), ("c", "new"), ("d", "old")];
            let all = all.map(|(key, value)| (key.into(), value.into()));
            assert_eq!(scan(&*engine, b"\0", u64::MAX), all, "{kind:?}");
            assert_eq!(scan(&*engine, b"b", 1), all[1..2], "{kind:?}");
            assert_eq!(lent(&*engine, b"\0", u64::MAX), all, "{kind:?}");
            assert_eq!(lent(&*engine, b"b", 1), all[1..2], "{kind:?}");
            engine.quiesce().unwrap();
            assert_eq!(scan(&*engine, b"\0", u64::MAX), all, "{kind:?}");
            engine.close().unwrap();
            let engine = open(kind, folder.path());
            assert_eq!(scan(&*engine, b"\0", u64::MAX), all, "{kind:?}");
            engine.close().unwrap();
        }
    }

    #[test]
    fn a_stamp_says_when_a_value_expires() {
        let life = Life {
            ttl_ms: 5,
            expires_at_ms: 1_000,
        };
        stamped::encoded(b"value", Some(life), |stored| {
            assert_eq!(stored.len(), stamped::length(b"value"));
            assert_eq!(stamped::live(stored, 999), Some(b"value".as_slice()));
            assert_eq!(stamped::live(stored, 1_000), None);
        });
        stamped::encoded(b"", None, |stored| {
            assert_eq!(stamped::live(stored, u64::MAX), Some(b"".as_slice()));
        });
    }
}
