//! Reads every byte of a table and checks it against its checksums and statistics.
//!
//! The bitmap of earlier checks and the cache are not used: only the file's bytes count. Large values and blocks must
//! follow each other from the first byte to the filter, so no bytes between them are missed.

use std::ops::Range;
use std::sync::Arc;

use crate::base::coding::Malformed;
use crate::base::hash::hash_key;
use crate::base::record::{RecordRef, order};
use crate::base::{Error, Result, Seq};
use crate::expiry::Census;
use crate::table::encode::block::{Block, Extent, Layout};
use crate::table::encode::filter;
use crate::table::encode::format::{FILTER_ALIGN, Footer};
use crate::table::encode::statistics::Collector;
use crate::table::read::reader::Table;
use crate::table::read::source::Access;

/// The result for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// All records.
    pub records: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Values stored outside their block.
    pub large_values: u64,
    /// Bytes of the file, all of them read.
    pub bytes: u64,
}

impl Table {
    /// Reads and checks everything; the first fault is the error.
    pub fn verify(&self) -> Result<TableReport> {
        self.verify_paced(&mut |_| Ok(()))
    }

    /// Like [`Table::verify`]; calls `spend` with the bytes as they are read, which may end it by an error.
    pub fn verify_paced(&self, spend: &mut dyn FnMut(u64) -> Result<()>) -> Result<TableReport> {
        let Footer {
            filter_at,
            index_at,
            statistics_at,
            filter_crc,
            index_crc,
            statistics_crc,
            ..
        } = self.stored.footer()?.0;
        let footer_at = self.file_len() - crate::table::encode::format::FOOTER_LEN as u64;
        for (part, crc, what) in [
            (filter_at..index_at, filter_crc, "the filter"),
            (index_at..statistics_at, index_crc, "the index"),
            (statistics_at..footer_at, statistics_crc, "the statistics"),
        ] {
            self.stored.check(
                part.start,
                &self.stored.part(&part, Access::Sequential)?,
                crc,
                what,
            )?;
        }
        let mut walk = Walk {
            table: self,
            filter: &self
                .stored
                .part(&(filter_at..index_at), Access::Sequential)?,
            at: 0,
            collector: Collector::with_must_sample(Arc::new(self.statistics.must_sample())),
            last_key: vec![],
            last_seq: Seq(0),
            large_values: 0,
            page_census: Census::default(),
        };
        for number in 0..self.index()?.len() {
            let before = walk.at;
            walk.block(number)?;
            spend(walk.at - before)?;
        }
        walk.finish()
    }
}

/// The state of a verification.
struct Walk<'a> {
    table: &'a Table,
    filter: &'a [u8],
    /// Everything before this offset was read.
    at: u64,
    collector: Collector,
    last_key: Vec<u8>,
    last_seq: Seq,
    large_values: u64,
    /// The census of the blocks so far whose rows are in the current page of the index.
    page_census: Census,
}

impl Walk<'_> {
    fn fault(&self, offset: u64, what: &str) -> Error {
        self.table.stored.fault(offset, what)
    }

    fn block(&mut self, number: usize) -> Result<()> {
        let table = self.table;
        let (page, row) = table.row(number)?;
        let place = page.place(row);
        let bad = |bad| table.block_fault(number, bad);
        let (stored, trailer) = table.read_block(&place, Access::Sequential)?;
        let body = table.unpacked(&place, &stored, &trailer)?;
        let layout = Layout::of(&body).map_err(bad)?;
        let census = self.entries(&layout.block(&body), layout.count(), &place, bad)?;
        if self.at != place.start {
            return Err(self.fault(self.at, "bytes that belong to nothing"));
        }
        self.at = place.end;
        let block = layout.block(&body);
        let first = block.key(0).map_err(bad)?;
        let keys_match = page.first_key(row) == first && page.last_key(row) == self.last_key;
        if !keys_match || page.census(row) != census {
            return Err(self.fault(place.start, "the index says otherwise of this block"));
        }
        self.page_census.merge(&census);
        if row + 1 == page.len() {
            let of_page = std::mem::take(&mut self.page_census);
            let index = table.index()?;
            if index.top().census(index.page_of(number)) != of_page {
                return Err(self.fault(place.start, "the index says otherwise of these blocks"));
            }
        }
        self.collector.add_block(&census, &self.last_key);
        Ok(())
    }

    /// Reads the entries of a block, and the large values before it.
    fn entries(
        &mut self,
        block: &Block<'_>,
        count: usize,
        place: &Range<u64>,
        bad: impl Fn(Malformed) -> Error + Copy,
    ) -> Result<Census> {
        let (mut census, mut entries, mut hashes) = (Census::default(), vec![], vec![]);
        for number in 0..count {
            let entry = block.entry(number).map_err(bad)?;
            let record = RecordRef {
                header: entry.header,
                key: block.key(number).map_err(bad)?,
                value_len: entry.value_len(),
            };
            let hash = hash_key(record.key);
            let is_new = self.record(&record, hash, number, place)?;
            if entry.value().is_none() {
                self.large_value(&block.extent(number).map_err(bad)?, entry.value_len())?;
            }
            self.collector.add(&record, hash, is_new);
            self.collector.add_expiry(&record);
            census.add(&record);
            entries.push(entry);
            hashes.push(hash);
        }
        if !block.is_exact(&entries, &hashes) {
            return Err(self.fault(place.start, "a block says otherwise of its entries"));
        }
        Ok(census)
    }

    /// Checks that a record comes after the one before it, in another block only with another key, and that the filter
    /// has it; returns whether its key is another than that of the record before.
    fn record(
        &mut self,
        record: &RecordRef<'_>,
        hash: u64,
        number: usize,
        place: &Range<u64>,
    ) -> Result<bool> {
        let last_key = &self.last_key;
        let rises = order(last_key, self.last_seq, record.key, record.header.seq).is_lt();
        let is_new = last_key != record.key;
        if !rises || (number == 0 && !is_new) {
            return Err(self.fault(place.start, "records are out of order"));
        }
        if !filter::may_contain(self.filter, hash) {
            return Err(self.fault(self.table.footer.filter_at, "the filter lacks a key"));
        }
        self.last_seq = record.header.seq;
        if is_new {
            self.last_key.clear();
            self.last_key.extend_from_slice(record.key);
        }
        Ok(is_new)
    }

    fn large_value(&mut self, extent: &Extent, len: usize) -> Result<()> {
        if extent.offset != self.at || extent.number != self.large_values {
            return Err(self.fault(self.at, "a large value lies elsewhere"));
        }
        let end = extent.offset + extent.stored_len;
        if end > self.table.footer.filter_at {
            return Err(self.fault(self.at, "a large value lies outside the data"));
        }
        let stored = self
            .table
            .stored
            .view(&(extent.offset..end), Access::Sequential)?;
        self.table.stored.check_value(extent, &stored)?;
        let unpacked = extent.codec.unpack(stored, len)?;
        unpacked.map_err(|what| self.fault(extent.offset, what))?;
        self.collector.add_large_value();
        self.large_values += 1;
        self.at = end;
        Ok(())
    }

    fn finish(self) -> Result<TableReport> {
        let table = self.table;
        let filter_at = table.footer.filter_at;
        let padding = table
            .stored
            .part(&(self.at..filter_at), Access::Sequential)?;
        if self.at.next_multiple_of(FILTER_ALIGN) != filter_at || padding.iter().any(|&b| b != 0) {
            return Err(self.fault(self.at, "bytes that belong to nothing"));
        }
        let stated = &table.statistics;
        let statistics = self.collector.finish(stated.settings.clone());
        if statistics != **stated {
            return Err(table.stored.fault(
                table.footer.statistics_at,
                "the statistics are not those of the records",
            ));
        }
        Ok(TableReport {
            records: statistics.records,
            keys: statistics.keys,
            blocks: statistics.blocks,
            large_values: statistics.large_values,
            bytes: table.file_len(),
        })
    }
}
