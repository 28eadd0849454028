//! An item by chance, without reading all.
//!
//! Each live item is in exactly one record, the newest one of its key. So a record is taken by chance, each of memory
//! and of the tables as likely as any other, until one is that of a live item. If only few are, the tries end.

use crate::base::{Result, Seq, Wait};
use crate::data::item::Item;
use crate::engine::parts::read_state::ReadState;
use crate::engine::read::point::ReadPoint;

/// If fewer than one of so many records is a live item's, reading all of them takes hardly longer.
const TRIES: usize = 256;

/// The result of the tries.
pub enum Drawn {
    /// A live item, each with the same probability.
    Item(Item),
    /// There are no records.
    Nothing,
    /// Few records are those of live items, or none.
    Rare,
}

impl ReadPoint<'_, Wait> {
    /// A live item by chance. `chance` returns a number below the given one.
    pub fn draw(mut self, chance: &mut dyn FnMut(u64) -> u64) -> Result<Drawn> {
        for _ in 0..TRIES {
            self = self.renewed()?;
            let (read_state, _) = self.seen();
            let records = records_of(read_state);
            if records == 0 {
                return Ok(Drawn::Nothing);
            }
            let number = chance(records);
            let Some((key, seq)) = record_at(read_state, number, chance)? else {
                continue;
            };
            // An item of a later version has a record of its own.
            if let Some(item) = self.item(&key)?.filter(|item| item.version().seq() == seq) {
                return Ok(Drawn::Item(item));
            }
        }
        Ok(Drawn::Rare)
    }
}

fn records_of(read_state: &ReadState) -> u64 {
    let memory = read_state.flushables();
    let memory = memory.map(|flushable| flushable.memtable.len() as u64);
    let files = read_state.version.runs.iter().flat_map(|run| &run.files);
    let tables = files.map(|file| file.table.statistics().records);
    memory.chain(tables).sum()
}

/// The record of this number: of those of a memtable any one, by chance.
fn record_at(
    read_state: &ReadState,
    number: u64,
    chance: &mut dyn FnMut(u64) -> u64,
) -> Result<Option<(Vec<u8>, Seq)>> {
    let mut left = number;
    for flushable in read_state.flushables() {
        let records = flushable.memtable.len() as u64;
        if left < records {
            return Ok(flushable.memtable.random(chance));
        }
        left -= records;
    }
    for file in read_state.version.runs.iter().flat_map(|run| &run.files) {
        let records = file.table.statistics().records;
        if left < records {
            return file.table.record_at(left);
        }
        left -= records;
    }
    Ok(None)
}
