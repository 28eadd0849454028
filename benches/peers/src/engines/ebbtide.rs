//! Ebbtide: the engine knows lifetimes; nothing is added to the values.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use ebbtide::{Compression, Container, Database, DefaultTtl, Durability, Options, Ttl};

use super::{Config, Engine, Life, OwnFigures, See, SeeMany, Transfer};
use crate::Result;

struct Ebbtide {
    db: Database,
    items: Container,
}

pub fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>> {
    let mut options = Options::new();
    if config.keep_runs {
        options = options.background_floor(1).background_rate(1);
    }
    let db = options
        .durability(match config.sync {
            true => Durability::Sync,
            false => Durability::Buffered,
        })
        .compression(match config.lz4 {
            true => Compression::Lz4,
            false => Compression::None,
        })
        .memtable_bytes(config.memtable_bytes as usize)
        .cache_bytes(config.cache_bytes as usize)
        .reclaim_within(Duration::from_secs(config.reclaim_within))
        .open(folder)?;
    let items = db.container("items")?;
    items.set_default_ttl(DefaultTtl::NoDefault)?;
    Ok(Box::new(Ebbtide { db, items }))
}

fn ttl(life: Option<Life>) -> Ttl {
    life.map_or(Ttl::Never, |life| {
        Ttl::After(Duration::from_millis(life.ttl_ms))
    })
}

impl Engine for Ebbtide {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        Ok(self.items.put_with_ttl(key, value, ttl(life))?)
    }

    fn get(&self, key: &[u8], _now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some(value) = self.items.get(key)? {
            see(&value);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], most: u64, _now_ms: u64, see: &mut See<'_>) -> Result<()> {
        for item in self.items.range(from..).take(most as usize) {
            let item = item?;
            see(item.key(), item.value());
        }
        Ok(())
    }

    fn lend(&self, from: &[u8], mut most: u64, _now_ms: u64, see: &mut See<'_>) -> Result<()> {
        let _ = self.items.for_each(from.., |key, value| {
            see(key, value);
            most -= 1;
            match most {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })?;
        Ok(())
    }

    fn lend_chunks(&self, from: &[u8], most: u64, _now_ms: u64, see: &mut See<'_>) -> Result<()> {
        let (mut cursor, mut left) = (self.items.cursor(from..), most);
        while left > 0
            && let Some(chunk) = cursor.next_chunk()?
        {
            let (items, count) = (chunk.iter(), chunk.len() as u64);
            match count <= left {
                true => items.for_each(|(key, value)| see(key, value)),
                false => (items.take(left as usize)).for_each(|(key, value)| see(key, value)),
            }
            left -= count.min(left);
        }
        Ok(())
    }

    fn get_many(&self, keys: &[&[u8]], _now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        let values = self.items.get_many(keys)?;
        for (n, value) in values.iter().enumerate() {
            if let Some(value) = value {
                see(n, value);
            }
        }
        Ok(())
    }

    fn transact(&self, work: &Transfer<'_>, _now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        Ok(self.db.transaction(|tx| {
            for (n, key) in work.gets.iter().enumerate() {
                if let Some(value) = tx.get(&self.items, key)? {
                    see(n, &value);
                }
            }
            for (key, value) in work.puts {
                tx.put_with_ttl(&self.items, key, value, ttl(work.life))?;
            }
            Ok(())
        })?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn quiesce(&mut self) -> Result<()> {
        Ok(self.db.compact()?)
    }

    fn own(&self) -> OwnFigures {
        let stats = self.db.stats();
        let lag = &stats.reclaim_lag;
        OwnFigures {
            written_bytes: Some(stats.bytes_logged + stats.bytes_flushed + stats.bytes_merged),
            expired_bytes: Some(stats.expired_bytes),
            log_and_tables: Some((stats.log_bytes, stats.table_bytes)),
            runs: Some(stats.runs),
            removal_s: (lag.bytes() > 0)
                .then(|| (lag.quantile(0.5).as_secs_f64(), lag.longest().as_secs_f64())),
            overdue_s: Some(stats.overdue.as_secs_f64()),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}
