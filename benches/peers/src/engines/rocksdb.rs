//! RocksDB, as its users keep data with lifetimes in it: when an item expires stands in front of its value, gets look at
//! it, and a compaction filter drops what has expired from whatever is compacted.
//!
//! * *filter*: leveled compaction, nothing else;
//! * *periodic*: files are also compacted when they are older than `reclaim_within`, or than the longest lifetime if that
//!   is less (`ttl` and `periodic_compaction_seconds`);
//! * *FIFO*: files are dropped whole when they are older than the longest lifetime; nothing is ever compacted;
//! * *tuned*: as *periodic*, by what its wiki advises for speed: universal compaction, a filter over the memtable's keys, a
//!   hash index in each block. Data in memory: files are mapped, without a cache and without verifying a block that was
//!   checked when it was written. Beyond memory: a HyperClockCache, direct reads, checksums verified;
//! * *blobs*: as *tuned*, values of a KiB and more in blob files, which are collected as they become garbage.
//!
//! Levels are sized after the memtable, as `OptimizeLevelStyleCompaction` does it: the first as large as the files that
//! trigger its compaction. Files are synced a MiB at a time, as its tuning guide advises. The statistics are only counters,
//! without timers.

use std::path::Path;

use rocksdb::compaction_filter::Decision;
use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBAccess, DBCompactionStyle,
    DBCompressionType, DBRawIteratorWithThreadMode, DataBlockIndexType, ErrorKind,
    FifoCompactOptions, OptimisticTransactionDB, Options, ReadOptions, WriteOptions,
};

use super::{Config, Engine, Life, OwnFigures, See, SeeMany, Transfer, stamped};
use crate::Result;
use crate::book::wall_ms;

/// How it is set up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Setup {
    Filter,
    Periodic,
    Fifo,
    Tuned,
    Blobs,
}

impl Setup {
    fn is_tuned(self) -> bool {
        matches!(self, Setup::Tuned | Setup::Blobs)
    }
}

/// The least value that goes to a blob file.
const BLOB_BYTES: u64 = 1 << 10;

/// The column family that every database has. By its handle, one call gets many keys.
const FAMILY: &str = "default";

struct RocksDb {
    db: DB,
    options: Options,
    write: WriteOptions,
    counted: bool,
    /// Whether a block is verified when it is read: each time, where files are mapped without a cache.
    verifies: bool,
    read: ReadOptions,
}

pub fn open(folder: &Path, config: &Config, setup: Setup) -> Result<Box<dyn Engine>> {
    let mut options = common(config, setup);
    let longest = config.longest_ms.map(|ms| ms.div_ceil(1_000));
    match setup {
        Setup::Filter => leveled(&mut options, config),
        Setup::Periodic | Setup::Tuned | Setup::Blobs => {
            leveled(&mut options, config);
            let age = longest.map_or(config.reclaim_within, |l| l.min(config.reclaim_within));
            options.set_ttl(age);
            options.set_periodic_compaction_seconds(age);
            if setup.is_tuned() {
                options.set_compaction_style(DBCompactionStyle::Universal);
            }
        }
        Setup::Fifo => {
            let mut fifo = FifoCompactOptions::default();
            fifo.set_max_table_files_size(1 << 40);
            options.set_compaction_style(DBCompactionStyle::Fifo);
            options.set_fifo_compaction_options(&fifo);
            options.set_ttl(longest.ok_or("FIFO needs a longest lifetime")?);
        }
    }
    let mut write = WriteOptions::default();
    write.set_sync(config.sync);
    let verifies = !(setup.is_tuned() && config.in_memory);
    if config.transactions {
        let db = OptimisticTransactionDB::open(&options, folder)?;
        return Ok(Box::new(Transactional { db, verifies }));
    }
    let families = [ColumnFamilyDescriptor::new(FAMILY, options.clone())];
    let db = DB::open_cf_descriptors(&options, folder, families)?;
    Ok(Box::new(RocksDb {
        db,
        options,
        write,
        counted: config.counted,
        verifies,
        read: reading(verifies),
    }))
}

fn common(config: &Config, setup: Setup) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    if setup.is_tuned() {
        tune(&mut options, &mut table, config);
    } else {
        table.set_block_cache(&Cache::new_lru_cache(config.cache_bytes as usize));
    }
    if setup == Setup::Blobs {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(BLOB_BYTES);
        options.set_enable_blob_gc(true);
    }
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(match config.lz4 {
        true => DBCompressionType::Lz4,
        false => DBCompressionType::None,
    });
    options.set_write_buffer_size(config.memtable_bytes as usize);
    options.set_max_background_jobs(2);
    options.set_bytes_per_sync(1 << 20);
    options.set_disable_auto_compactions(config.keep_runs);
    if config.counted {
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    }
    options
}

fn tune(options: &mut Options, table: &mut BlockBasedOptions, config: &Config) {
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(0.75);
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(0.1);
    if config.in_memory {
        table.disable_cache();
        options.set_allow_mmap_reads(true);
    } else {
        // It estimates by itself what an entry takes.
        table.set_block_cache(&Cache::new_hyper_clock_cache(
            config.cache_bytes as usize,
            0,
        ));
        options.set_use_direct_reads(true);
    }
}

fn leveled(options: &mut Options, config: &Config) {
    options.set_max_bytes_for_level_base(4 * config.memtable_bytes);
    options.set_target_file_size_base(config.memtable_bytes);
    options.set_compaction_filter("expired", |_level, _key, stored| {
        if stamped::is_expired(stored, wall_ms()) {
            Decision::Remove
        } else {
            Decision::Keep
        }
    });
}

fn reading(verifies: bool) -> ReadOptions {
    let mut read = ReadOptions::default();
    read.set_verify_checksums(verifies);
    read
}

impl Engine for RocksDb {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        let put = |stored: &[u8]| self.db.put_opt(key, stored, &self.write);
        Ok(stamped::encoded(value, life, put)?)
    }

    fn get(&self, key: &[u8], now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let stored = self.db.get_pinned_opt(key, &self.read)?;
        if let Some(value) = stored.as_ref().and_then(|s| stamped::live(s, now_ms)) {
            see(value);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        show(
            self.db.raw_iterator_opt(reading(self.verifies)),
            from,
            most,
            now_ms,
            see,
        )
    }

    fn get_many(&self, keys: &[&[u8]], now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        let family = self.db.cf_handle(FAMILY).ok_or("no column family")?;
        let all =
            self.db
                .batched_multi_get_cf_opt(&family, keys.iter().copied(), false, &self.read);
        for (n, stored) in all.into_iter().enumerate() {
            let stored = stored?;
            if let Some(value) = stored.as_ref().and_then(|s| stamped::live(s, now_ms)) {
                see(n, value);
            }
        }
        Ok(())
    }

    fn transact(&self, _: &Transfer<'_>, _now_ms: u64, _: &mut SeeMany<'_>) -> Result<()> {
        Err("not opened for that".into())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn quiesce(&mut self) -> Result<()> {
        self.db.flush()?;
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn own(&self) -> OwnFigures {
        let written = [
            Ticker::WalFileBytes,
            Ticker::FlushWriteBytes,
            Ticker::CompactWriteBytes,
        ];
        let written = written.map(|ticker| self.options.get_ticker_count(ticker));
        OwnFigures {
            written_bytes: self.counted.then(|| written.iter().sum()),
            expired_bytes: None,
            runs: self.runs(),
            ..OwnFigures::default()
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

impl RocksDb {
    /// Every file of level 0 is a run, every other level that holds something is one.
    fn runs(&self) -> Option<u64> {
        let files = |level: u32| -> Option<u64> {
            let name = format!("rocksdb.num-files-at-level{level}");
            self.db.property_value(&name).ok()??.parse().ok()
        };
        let deep = (1..7).filter(|level| files(*level).is_some_and(|files| files > 0));
        Some(files(0)? + deep.count() as u64)
    }
}

/// The same, opened for optimistic transactions, which validate what they got for update.
struct Transactional {
    db: OptimisticTransactionDB,
    verifies: bool,
}

impl Engine for Transactional {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        Ok(stamped::encoded(value, life, |stored| {
            self.db.put(key, stored)
        })?)
    }

    fn get(&self, key: &[u8], now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let stored = self.db.get_pinned_opt(key, &reading(self.verifies))?;
        if let Some(value) = stored.as_ref().and_then(|s| stamped::live(s, now_ms)) {
            see(value);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        show(
            self.db.raw_iterator_opt(reading(self.verifies)),
            from,
            most,
            now_ms,
            see,
        )
    }

    fn transact(&self, work: &Transfer<'_>, now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        loop {
            let tx = self.db.transaction();
            for (n, key) in work.gets.iter().enumerate() {
                let read = reading(self.verifies);
                let stored = tx.get_pinned_for_update_opt(key, true, &read)?;
                if let Some(value) = stored.as_ref().and_then(|s| stamped::live(s, now_ms)) {
                    see(n, value);
                }
            }
            for (key, value) in work.puts {
                stamped::encoded(value, work.life, |stored| tx.put(key, stored))?;
            }
            match tx.commit() {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                done => return Ok(done?),
            }
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn quiesce(&mut self) -> Result<()> {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn own(&self) -> OwnFigures {
        OwnFigures::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

/// Shows the first live items from a key on.
fn show<D: DBAccess>(
    mut items: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    mut most: u64,
    now_ms: u64,
    see: &mut See<'_>,
) -> Result<()> {
    items.seek(from);
    while let Some((key, stored)) = items.item() {
        if let Some(value) = stamped::live(stored, now_ms) {
            see(key, value);
            most -= 1;
            if most == 0 {
                break;
            }
        }
        items.next();
    }
    Ok(items.status()?)
}
