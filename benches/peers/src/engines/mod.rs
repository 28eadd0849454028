//! The engines, each behind the same thin face.

mod ebbtide;
mod fjall;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::loads::{Load, VALUE_BYTES};

/// What every engine is given.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that a memtable takes before it is flushed.
    pub memtable_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// How soon after its expiry an item's bytes should be off the disk, in seconds.
    pub reclaim_within: u64,
    /// The longest lifetime in milliseconds; `None` if something never expires.
    pub longest_ms: Option<u64>,
    /// No key is put twice.
    pub keys_are_fresh: bool,
}

/// How long an item lives.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// From the put on, in milliseconds.
    pub ttl_ms: u64,
    /// The driver's clock at the put and `ttl_ms`: for engines that have no notion of time.
    pub expires_at_ms: u64,
}

/// What a get found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The first eight bytes of the value.
    pub tag: u64,
}

impl Found {
    /// Of a value as it was put.
    fn of(value: &[u8]) -> Result<Found> {
        let tag = value.first_chunk().filter(|_| value.len() == VALUE_BYTES);
        let tag = tag.ok_or_else(|| format!("a value has {} bytes", value.len()))?;
        Ok(Found {
            tag: u64::from_be_bytes(*tag),
        })
    }
}

/// What an engine says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Own {
    /// Bytes written since it was opened, log included.
    pub written_bytes: Option<u64>,
    /// Bytes of expired items still on disk.
    pub expired_bytes: Option<u64>,
    /// Sorted runs that a get may have to ask.
    pub runs: Option<u64>,
}

/// One engine, open in one folder.
pub trait Engine: Send + Sync {
    /// Puts an item; `None`: it never expires.
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()>;
    /// The item, unless it has expired. `now_ms` is for engines that have no notion of time.
    fn get(&self, key: &[u8], now_ms: u64) -> Result<Option<Found>>;
    /// What it says of itself.
    fn own(&self) -> Own;
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
    /// RocksDB's FIFO: files are dropped when they are older than the longest lifetime
    RocksdbFifo,
    /// fjall with a compaction filter
    Fjall,
    /// fjall's FIFO, the same way
    FjallFifo,
}

impl Kind {
    /// As it is written on the command line and in file names.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ebbtide => "ebbtide",
            Kind::Rocksdb => "rocksdb",
            Kind::RocksdbPeriodic => "rocksdb-periodic",
            Kind::RocksdbFifo => "rocksdb-fifo",
            Kind::Fjall => "fjall",
            Kind::FjallFifo => "fjall-fifo",
        }
    }

    /// Why it cannot be put under a load, if it cannot.
    pub fn unfit(self, load: &Load) -> Option<&'static str> {
        let rocksdb = matches!(
            self,
            Kind::Rocksdb | Kind::RocksdbPeriodic | Kind::RocksdbFifo
        );
        if rocksdb && cfg!(not(feature = "rocksdb")) {
            return Some("built without RocksDB");
        }
        match self {
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
        if self == Kind::Ebbtide { 0 } else { 2 }
    }

    /// Opens it in an empty folder.
    pub fn open(self, folder: &Path, config: &Config) -> Result<Box<dyn Engine>> {
        match self {
            Kind::Ebbtide => ebbtide::open(folder, config),
            Kind::Fjall => fjall::open(folder, config, false),
            Kind::FjallFifo => fjall::open(folder, config, true),
            #[cfg(feature = "rocksdb")]
            Kind::Rocksdb => rocksdb::open(folder, config, rocksdb::Way::Filter),
            #[cfg(feature = "rocksdb")]
            Kind::RocksdbPeriodic => rocksdb::open(folder, config, rocksdb::Way::Periodic),
            #[cfg(feature = "rocksdb")]
            Kind::RocksdbFifo => rocksdb::open(folder, config, rocksdb::Way::Fifo),
            #[cfg(not(feature = "rocksdb"))]
            _ => Err("built without RocksDB".into()),
        }
    }
}

/// Values as engines without a notion of time store them: when it expires, 0 for never, then the value.
mod stamped {
    use super::{Found, Life, Result};
    use crate::loads::VALUE_BYTES;

    const STAMP: usize = 8;

    /// The value with its stamp in front.
    pub fn encode(value: &[u8], life: Option<Life>) -> [u8; STAMP + VALUE_BYTES] {
        let mut stored = [0; STAMP + VALUE_BYTES];
        let expires_at_ms = life.map_or(0, |life| life.expires_at_ms);
        stored[..STAMP].copy_from_slice(&expires_at_ms.to_le_bytes());
        stored[STAMP..].copy_from_slice(value);
        stored
    }

    /// Whether it has expired.
    pub fn is_expired(stored: &[u8], now_ms: u64) -> bool {
        let expires_at_ms = stored.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        expires_at_ms != 0 && expires_at_ms <= now_ms
    }

    /// What a get found, unless it has expired.
    pub fn found(stored: &[u8], now_ms: u64) -> Result<Option<Found>> {
        if is_expired(stored, now_ms) {
            return Ok(None);
        }
        Found::of(stored.get(STAMP..).unwrap_or_default()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::wall_ms;

    fn open(kind: Kind, folder: &Path) -> Box<dyn Engine> {
        let config = Config {
            memtable_bytes: 1 << 20,
            cache_bytes: 8 << 20,
            reclaim_within: 1,
            longest_ms: Some(1_000),
            keys_are_fresh: false,
        };
        kind.open(folder, &config).unwrap()
    }

    #[test]
    fn every_engine_returns_what_lives_and_nothing_else() {
        let kinds = <Kind as clap::ValueEnum>::value_variants();
        let rocksdb = cfg!(feature = "rocksdb");
        for kind in kinds
            .iter()
            .filter(|k| rocksdb || !k.name().contains("rocks"))
        {
            let folder = tempfile::tempdir().unwrap();
            let engine = open(*kind, folder.path());
            let now = wall_ms();
            let life = |ttl_ms| {
                Some(Life {
                    ttl_ms,
                    expires_at_ms: now + ttl_ms,
                })
            };
            engine.put(b"short", &[7; VALUE_BYTES], life(1)).unwrap();
            engine
                .put(b"long", &[8; VALUE_BYTES], life(60_000))
                .unwrap();
            engine.put(b"never", &[9; VALUE_BYTES], None).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let get = |key: &[u8]| engine.get(key, wall_ms()).unwrap().map(|found| found.tag);
            assert_eq!(get(b"short"), None, "{kind:?}");
            assert_eq!(get(b"long"), Some(u64::from_be_bytes([8; 8])), "{kind:?}");
            assert_eq!(get(b"never"), Some(u64::from_be_bytes([9; 8])), "{kind:?}");
            assert_eq!(get(b"absent"), None, "{kind:?}");
            engine.close().unwrap();
        }
    }

    #[test]
    fn a_stamp_says_when_a_value_expires() {
        let life = Life {
            ttl_ms: 5,
            expires_at_ms: 1_000,
        };
        let stored = stamped::encode(&[3; VALUE_BYTES], Some(life));
        assert!(!stamped::is_expired(&stored, 999));
        assert!(stamped::is_expired(&stored, 1_000));
        assert!(!stamped::is_expired(
            &stamped::encode(&[3; VALUE_BYTES], None),
            u64::MAX
        ));
        assert!(stamped::found(&stored, 999).unwrap().is_some());
        assert!(stamped::found(&stored[..50], 999).is_err());
    }
}
