//! redb, as its users keep data with lifetimes in it: when an item expires stands in front of its value, and gets and scans
//! look at it. A program would delete what has expired by a sweep of its own; there is none here.
//!
//! Every put is a transaction of its own, and so is every get and scan. Its durabilities are `Immediate`, which syncs, and
//! `None`, which keeps a commit in the process until a later one syncs. There is nothing between, so that puts that are to
//! survive a killed process only are `None` here, but for one in each second, which is `Immediate`: a killed process loses
//! up to a second. It has no compression.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Config, Engine, Life, OwnFigures, See, SeeMany, Transfer, stamped};
use crate::Result;

/// A killed process loses at most the writes of this time.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

const ITEMS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("items");

struct Redb {
    db: Database,
    /// `None`: every put syncs.
    synced: Option<Mutex<Instant>>,
}

pub fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>> {
    let mut builder = Database::builder();
    builder.set_cache_size(config.cache_bytes as usize);
    let db = builder.create(folder.join("items.redb"))?;
    let txn = db.begin_write()?;
    txn.open_table(ITEMS)?;
    txn.commit()?;
    let synced = (!config.sync).then(|| Mutex::new(Instant::now()));
    Ok(Box::new(Redb { db, synced }))
}

impl Redb {
    fn durability(&self) -> Durability {
        let Some(synced) = &self.synced else {
            return Durability::Immediate;
        };
        let mut synced = synced.lock().expect("no thread panicked");
        if synced.elapsed() < SYNC_INTERVAL {
            return Durability::None;
        }
        *synced = Instant::now();
        Durability::Immediate
    }
}

fn get_each(
    items: &impl ReadableTable<&'static [u8], &'static [u8]>,
    keys: &[&[u8]],
    now_ms: u64,
    see: &mut SeeMany<'_>,
) -> Result<()> {
    for (n, key) in keys.iter().enumerate() {
        let stored = items.get(*key)?;
        let stored = stored.as_ref().map(|stored| stored.value());
        if let Some(value) = stored.and_then(|stored| stamped::live(stored, now_ms)) {
            see(n, value);
        }
    }
    Ok(())
}

impl Engine for Redb {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.durability())?;
        {
            let mut items = txn.open_table(ITEMS)?;
            let mut stored = items.insert_reserve(key, stamped::length(value))?;
            stamped::encode_into(stored.as_mut(), value, life);
        }
        Ok(txn.commit()?)
    }

    fn get(&self, key: &[u8], now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let items = self.db.begin_read()?.open_table(ITEMS)?;
        let stored = items.get(key)?;
        let stored = stored.as_ref().map(|stored| stored.value());
        if let Some(value) = stored.and_then(|stored| stamped::live(stored, now_ms)) {
            see(value);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], mut most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        let items = self.db.begin_read()?.open_table(ITEMS)?;
        for item in items.range(from..)? {
            let (key, stored) = item?;
            if let Some(value) = stamped::live(stored.value(), now_ms) {
                see(key.value(), value);
                most -= 1;
                if most == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn get_many(&self, keys: &[&[u8]], now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        get_each(&self.db.begin_read()?.open_table(ITEMS)?, keys, now_ms, see)
    }

    fn transact(&self, work: &Transfer<'_>, now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.durability())?;
        {
            let mut items = txn.open_table(ITEMS)?;
            get_each(&items, work.gets, now_ms, see)?;
            for (key, value) in work.puts {
                let mut stored = items.insert_reserve(*key, stamped::length(value))?;
                stamped::encode_into(stored.as_mut(), value, work.life);
            }
        }
        Ok(txn.commit()?)
    }

    fn persist(&self) -> Result<()> {
        Ok(self.db.begin_write()?.commit()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn quiesce(&mut self) -> Result<()> {
        while self.db.compact()? {}
        Ok(())
    }

    fn own(&self) -> OwnFigures {
        OwnFigures::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.persist()
    }
}
