//! fjall, as its users keep data with lifetimes in it: as with RocksDB, when an item expires stands in front of its value,
//! gets look at it, and a compaction filter drops what has expired.
//!
//! Expired items are dropped without a tombstone (`Destroy`) where no key is put twice, which costs least, and buried
//! (`Remove`) where an older version might come back. With FIFO, tables are dropped whole when they are older than the
//! longest lifetime; fjall's FIFO wants keys that ascend with time.
//!
//! Tables are sized after the memtable. The journal may grow to four memtables, or to the 64 MiB that fjall asks for at
//! least. What fjall has written it does not count.

use std::path::Path;
use std::sync::Arc;

use fjall::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use fjall::compaction::{Fifo, Leveled};
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase,
    OptimisticTxKeyspace, PersistMode, Readable,
};

use super::{Config, Engine, Life, OwnFigures, See, SeeMany, Transfer, stamped};
use crate::Result;
use crate::book::wall_ms;

struct Fjall {
    items: Keyspace,
    /// Only where it is opened for transactions.
    transactional: Option<(OptimisticTxDatabase, OptimisticTxKeyspace)>,
    sync: bool,
    // Dropped last: it joins fjall's threads.
    db: Database,
}

pub fn open(folder: &Path, config: &Config, fifo: bool) -> Result<Box<dyn Engine>> {
    let filter = Arc::new(Expiry {
        keys_are_fresh: config.keys_are_fresh,
    });
    // The two builders have no trait in common that others could name.
    macro_rules! open {
        ($kind:ident) => {
            $kind::builder(folder)
                .cache_size(config.cache_bytes)
                .journal_compression(CompressionType::None)
                .max_journaling_size((4 * config.memtable_bytes).max(64 << 20))
                .worker_threads(2)
                .with_compaction_filter_factories(Arc::new(move |_keyspace| {
                    (!fifo).then(|| filter.clone() as Arc<dyn Factory>)
                }))
                .open()?
        };
    }
    let options = || options(config, fifo);
    let (db, items, transactional) = if config.transactions {
        let db = open!(OptimisticTxDatabase);
        let items = db.keyspace("items", options)?;
        let (inner, keyspace) = (db.inner().clone(), items.inner().clone());
        (inner, keyspace, Some((db, items)))
    } else {
        let db = open!(Database);
        let items = db.keyspace("items", options)?;
        (db, items, None)
    };
    Ok(Box::new(Fjall {
        items,
        transactional,
        sync: config.sync,
        db,
    }))
}

fn options(config: &Config, fifo: bool) -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default()
        .max_memtable_size(config.memtable_bytes)
        .data_block_compression_policy(match config.lz4 {
            true => CompressionPolicy::all(CompressionType::Lz4),
            false => CompressionPolicy::disabled(),
        })
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
            BloomConstructionPolicy::BitsPerKey(10.0),
        )));
    if fifo {
        let longest = config.longest_ms.map(|ms| ms.div_ceil(1_000));
        options.compaction_strategy(Arc::new(Fifo::new(u64::MAX, longest)))
    } else {
        let mut leveled = Leveled::default().with_table_target_size(config.memtable_bytes);
        if config.keep_runs {
            leveled = leveled.with_l0_threshold(u8::MAX);
        }
        options.compaction_strategy(Arc::new(leveled))
    }
}

impl Engine for Fjall {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        stamped::encoded(value, life, |stored| self.items.insert(key, stored))?;
        if self.sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8], now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let stored = self.items.get(key)?;
        if let Some(value) = stored.as_ref().and_then(|s| stamped::live(s, now_ms)) {
            see(value);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], mut most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        for item in self.items.range(from..) {
            let (key, stored) = item.into_inner()?;
            if let Some(value) = stamped::live(&stored, now_ms) {
                see(&key, value);
                most -= 1;
                if most == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn transact(&self, work: &Transfer<'_>, now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        let (db, items) = self.transactional.as_ref().ok_or("not opened for that")?;
        loop {
            let mut tx = db.write_tx()?;
            for (n, key) in work.gets.iter().enumerate() {
                let stored = tx.get(items, key)?;
                if let Some(value) = stored.as_ref().and_then(|s| stamped::live(s, now_ms)) {
                    see(n, value);
                }
            }
            for (key, value) in work.puts {
                stamped::encoded(value, work.life, |stored| tx.insert(items, *key, stored));
            }
            if tx.commit()?.is_ok() {
                return Ok(());
            }
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(self.items.rotate_memtable_and_wait()?)
    }

    fn quiesce(&mut self) -> Result<()> {
        self.flush()?;
        Ok(self.items.major_compact()?)
    }

    fn own(&self) -> OwnFigures {
        OwnFigures::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// The compaction filter and its factory: it has no state.
#[derive(Clone)]
struct Expiry {
    keys_are_fresh: bool,
}

impl Factory for Expiry {
    fn name(&self) -> &str {
        "expired"
    }

    fn make_filter(&self, _context: &Context) -> Box<dyn CompactionFilter> {
        Box::new(self.clone())
    }
}

impl CompactionFilter for Expiry {
    fn filter_item(
        &mut self,
        item: ItemAccessor<'_>,
        _context: &Context,
    ) -> fjall::compaction::filter::CompactionFilterResult {
        Ok(if !stamped::is_expired(&item.value()?, wall_ms()) {
            Verdict::Keep
        } else if self.keys_are_fresh {
            Verdict::Destroy
        } else {
            Verdict::Remove
        })
    }
}
