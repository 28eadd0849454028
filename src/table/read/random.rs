//! A record by its number, so that one can be taken by chance: found by the counts of the index, which are exact.

use std::sync::Arc;

use crate::base::{Result, Seq};
use crate::data::cursor::{Cursor, Position, Seek};
use crate::table::encode::page::Page;
use crate::table::read::reader::Table;

impl Table {
    /// Key and sequence number of a record; none where the table has fewer.
    pub fn record_at(self: &Arc<Self>, number: u64) -> Result<Option<(Vec<u8>, Seq)>> {
        let (index, mut left) = (self.index()?, number);
        let Some(place) = skip(index.top(), &mut left) else {
            return Ok(None);
        };
        let page = self.page(index, place)?;
        let Some(row) = skip(page, &mut left) else {
            return Ok(None);
        };
        // All versions of a key are in one block.
        let mut cursor = self.cursor();
        cursor.seek(Seek::AtOrAfter(page.first_key(row)), None)?;
        for _ in 0..left {
            cursor.advance(None)?;
        }
        Ok(match cursor.position() {
            Position::Record(record) => Some((record.key.to_vec(), record.header.seq)),
            _ => None,
        })
    }
}

/// The row that has the record with so many before it, of which fewer are left then.
fn skip(page: &Page, left: &mut u64) -> Option<usize> {
    (0..page.len()).find(|row| {
        let count = page.census(*row).total().count;
        let is_here = *left < count;
        if !is_here {
            *left -= count;
        }
        is_here
    })
}
