//! redb, as its users keep data with lifetimes in it: when an item expires stands in front of its value, and gets and scans
//! look at it. A program would delete what has expired by a sweep of its own; there is none here.
//!
//! Every put is a transaction of its own, and so is every get and scan. redb knows two durabilities: `Immediate` syncs, and
//! `None` keeps a commit in the process until a later one syncs, which a killed process would lose. Unless puts are to
//! survive a power cut, it is given a file whose sync does nothing, so that `Immediate` means what the others promise: a
//! put is done when the system has it. It has no compression.

use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{BackendError, Database, ReadableDatabase, StorageBackend, TableDefinition};

use super::{Config, Engine, Life, Own, See, stamped};
use crate::Result;

const ITEMS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("items");

struct Redb {
    db: Database,
}

pub fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = FileBackend::new(options.open(folder.join("items.redb"))?)?;
    let mut builder = Database::builder();
    builder.set_cache_size(config.cache_bytes as usize);
    let db = match config.sync {
        true => builder.create_with_backend(file)?,
        false => builder.create_with_backend(Unsynced(file))?,
    };
    let txn = db.begin_write()?;
    txn.open_table(ITEMS)?;
    txn.commit()?;
    Ok(Box::new(Redb { db }))
}

impl Engine for Redb {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        let txn = self.db.begin_write()?;
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

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        while self.db.compact()? {}
        Ok(())
    }

    fn own(&self) -> Own {
        Own::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A file that leaves it to the system when it is synced.
#[derive(Debug)]
struct Unsynced(FileBackend);

impl StorageBackend for Unsynced {
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.0.query_lock_range(start, end)
    }
}

type Locked<T> = std::result::Result<T, BackendError>;
