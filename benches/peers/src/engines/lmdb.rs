//! LMDB by way of heed, as its users keep data with lifetimes in it: when an item expires stands in front of its value, and
//! gets and scans look at it. A program would delete what has expired by a sweep of its own; there is none here.
//!
//! Every put is a transaction of its own, and so is every get and scan. Unless puts are to survive a power cut, it is
//! opened with `MDB_WRITEMAP | MDB_NOSYNC`: a put is then done when it is in the system's memory, which a killed process
//! leaves behind. It has no compression, and no compaction in place.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithTls};

use super::{Config, Engine, Life, OwnFigures, See, SeeMany, Transfer, stamped};
use crate::Result;

/// The map is a multiple of this, which every page size divides.
const MAP_UNIT: u64 = 1 << 20;

struct Lmdb {
    env: Env<WithTls>,
    items: Database<Bytes, Bytes>,
}

#[allow(unsafe_code)]
pub fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(config.room_bytes.next_multiple_of(MAP_UNIT) as usize);
    if !config.sync {
        // SAFETY: both flags give up durability in a power cut, not memory safety: nothing but LMDB writes to the map.
        unsafe { options.flags(EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC) };
    }
    // SAFETY: the folder is the driver's own, so that nobody else changes the file below the map.
    let env = unsafe { options.open(folder)? };
    let mut txn = env.write_txn()?;
    let items = env.create_database(&mut txn, None)?;
    txn.commit()?;
    Ok(Box::new(Lmdb { env, items }))
}

impl Engine for Lmdb {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        stamped::encoded(value, life, |stored| self.items.put(&mut txn, key, stored))?;
        Ok(txn.commit()?)
    }

    fn get(&self, key: &[u8], now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let txn = self.env.read_txn()?;
        let stored = self.items.get(&txn, key)?;
        if let Some(value) = stored.and_then(|stored| stamped::live(stored, now_ms)) {
            see(value);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], mut most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        let txn = self.env.read_txn()?;
        for item in self
            .items
            .range(&txn, &(Bound::Included(from), Bound::Unbounded))?
        {
            let (key, stored) = item?;
            if let Some(value) = stamped::live(stored, now_ms) {
                see(key, value);
                most -= 1;
                if most == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn get_many(&self, keys: &[&[u8]], now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        let txn = self.env.read_txn()?;
        for (n, key) in keys.iter().enumerate() {
            let stored = self.items.get(&txn, key)?;
            if let Some(value) = stored.and_then(|stored| stamped::live(stored, now_ms)) {
                see(n, value);
            }
        }
        Ok(())
    }

    fn transact(&self, work: &Transfer<'_>, now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for (n, key) in work.gets.iter().enumerate() {
            let stored = self.items.get(&txn, key)?;
            if let Some(value) = stored.and_then(|stored| stamped::live(stored, now_ms)) {
                see(n, value);
            }
        }
        for (key, value) in work.puts {
            stamped::encoded(value, work.life, |stored| {
                self.items.put(&mut txn, key, stored)
            })?;
        }
        Ok(txn.commit()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn quiesce(&mut self) -> Result<()> {
        Ok(())
    }

    fn own(&self) -> OwnFigures {
        OwnFigures::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
