//! Reads a run for a job: from its first record to its last, each once, a block at a time.
//!
//! ```text
//! block read and checked -> its entries decoded, in one loop -> a step goes to the next of them
//! ```
//!
//! A job reads every record of its tables, so nothing is gained by decoding an entry only when it is reached, as a
//! [`RunCursor`](crate::table::RunCursor) does for iterators, which may turn round or stop anywhere. For the same reason
//! it has no dead spans, and knows one seek, the one to the first record. What it gives is stored again under a new checksum: so each
//! block and large value is checked as it is read, however often it was before. An entry that does not decode is an error before
//! the records that are decoded with it are shown.
//!
//! A piece that is not in memory is read past the system's cache: the job's result takes its place, so nobody reads it
//! again, and what the cache has is left to those who do. A piece of which all is in memory is used as it is mapped.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::base::Result;
use crate::base::record::{RecordRef, key_prefix};
use crate::data::cursor::{Cursor, Position, Seek};
use crate::data::item::Pair;
use crate::env::is_resident;
use crate::expiry::ExpiryView;
use crate::table::encode::block::{Entry, Layout};
use crate::table::read::direct_reads::DirectReads;
use crate::table::read::read_ahead::ReadAhead;
use crate::table::read::reader::Table;

/// A cursor on a run for jobs: forwards only, from the first record on, without an expiry view.
pub struct RunReader {
    /// In key order, without overlap.
    tables: Arc<[Arc<Table>]>,
    /// The index of the current table.
    table: usize,
    /// The number of the current block in it.
    number: usize,
    body: Bytes,
    layout: Option<Layout>,
    /// Some entries of the current block, in order; none before the first record and behind the last.
    entries: Vec<Entry>,
    /// How many entries of the block were decoded, up to the last of these.
    decoded: usize,
    /// The index of the current entry among these.
    at: usize,
    read_ahead: ReadAhead,
    piece: Piece,
    /// The value of the current record, if it is large and was read.
    large: OnceLock<Bytes>,
}

/// Bytes of a table's file from a block on.
#[derive(Default)]
struct Piece {
    /// Where they are in the file.
    place: Range<u64>,
    /// `None`: they are read in the map.
    bytes: Option<Bytes>,
}

impl Piece {
    /// The piece of a table that begins with this block. Large values lie between blocks, and are read in the map; so are blocks
    /// then, or much would be read twice.
    fn at(table: &Table, block: &Range<u64>) -> Piece {
        let end = (block.start + DirectReads::LONGEST).min(table.footer.filter_at);
        let place = block.start..end.max(block.end);
        let is_whole = place.end == end && table.statistics.large_values == 0;
        let read = || {
            let direct_reads = table.direct_reads().filter(|_| is_whole)?;
            let is_absent = !is_resident(table.mapped(&place)?);
            is_absent.then(|| direct_reads.read_piece(&table.stored.path, place.clone()))?
        };
        let bytes = read();
        Piece { place, bytes }
    }

    fn holds(&self, block: &Range<u64>) -> bool {
        self.place.start <= block.start && block.end <= self.place.end
    }

    fn block(&self, block: &Range<u64>) -> Option<Bytes> {
        let from = |offset: u64| (offset - self.place.start) as usize;
        let bytes = self.bytes.as_ref()?;
        Some(bytes.slice(from(block.start)..from(block.end)))
    }
}

/// So many entries are decoded at once: as many as most blocks have, and so few that a key with a million versions needs no
/// memory.
const DECODED_AT_ONCE: usize = 256;

const NO_RECORD: &str = "the reader stands on a record";

impl RunReader {
    /// A reader of the run, at first without a position.
    pub fn new(tables: Arc<[Arc<Table>]>) -> RunReader {
        debug_assert!(tables.is_sorted_by(|a, b| a.last_key() < b.first_key()));
        RunReader {
            tables,
            table: 0,
            number: 0,
            body: Bytes::new(),
            layout: None,
            entries: vec![],
            decoded: 0,
            at: 0,
            read_ahead: ReadAhead::default(),
            piece: Piece::default(),
            large: OnceLock::new(),
        }
    }

    /// Goes to the next record that is not decoded.
    fn read_on(&mut self) -> Result<()> {
        self.at = 0;
        self.entries.clear();
        let read = match self.layout {
            Some(layout) if self.decoded < layout.count() => Ok(()),
            Some(_) => self.load(self.number + 1),
            None => self.load(0),
        };
        let read = read.and_then(|()| self.decode());
        if read.is_err() {
            self.entries.clear();
            self.table = self.tables.len();
        }
        read
    }

    /// Makes block `number` of the current table the current one, or the first one of the next table if it has no such
    /// block.
    fn load(&mut self, mut number: usize) -> Result<()> {
        self.decoded = 0;
        let blocks = |table: &Table| table.statistics.blocks as usize;
        let table = self.tables.get(self.table);
        if table.is_some_and(|table| number >= blocks(table)) {
            (self.table, number) = (self.table + 1, 0);
            (self.read_ahead, self.piece) = (ReadAhead::default(), Piece::default());
        }
        let Some(table) = self.tables.get(self.table) else {
            return Ok(());
        };
        self.number = number;
        let place = table.place(number)?;
        if !self.piece.holds(&place) {
            self.piece = Piece::at(table, &place);
        }
        let direct = self.piece.block(&place);
        let direct = direct.and_then(|block| table.direct_body(number, &place, Some(block)));
        self.body = match direct {
            Some(body) => body,
            None => {
                let body = table.body_anew(number, &place, self.read_ahead.access())?;
                if number + 1 < blocks(table) {
                    table.prefetch_block(|| table.place(number + 1), true, &mut self.read_ahead);
                }
                body
            }
        };
        let layout = Layout::of(&self.body).map_err(|bad| table.block_fault(number, bad))?;
        self.layout = Some(layout);
        Ok(())
    }

    /// Decodes the next entries of the current block, if there is one.
    fn decode(&mut self) -> Result<()> {
        let (Some(table), Some(layout)) = (self.tables.get(self.table), self.layout) else {
            return Ok(());
        };
        let end = layout.count().min(self.decoded + DECODED_AT_ONCE);
        let block = layout.block(&self.body);
        let decoded = block.entries(self.decoded..end, &mut self.entries);
        self.decoded = end;
        decoded.map_err(|bad| table.block_fault(self.number, bad))
    }

    #[inline(always)]
    fn entry(&self) -> &Entry {
        self.entries.get(self.at).expect(NO_RECORD)
    }

    #[inline(always)]
    fn key(&self, entry: &Entry) -> &[u8] {
        &self.body[entry.key()]
    }

    fn large_value(&self) -> Result<&Bytes> {
        if self.large.get().is_none() {
            let table = &self.tables[self.table];
            let bad = |bad| table.block_fault(self.number, bad);
            let block = self.layout.expect(NO_RECORD).block(&self.body);
            let index = self.decoded - self.entries.len() + self.at;
            let extent = block.extent(index).map_err(bad)?;
            let value = table.large_value_anew(&extent, self.entry().value_len())?;
            let _ = self.large.set(value);
        }
        Ok(self.large.get().expect("set above"))
    }
}

impl Cursor for RunReader {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        match self.entries.get(self.at) {
            None => Position::End,
            Some(entry) => Position::Record(RecordRef {
                header: entry.header,
                key: self.key(entry),
                value_len: entry.value_len(),
            }),
        }
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        self.at < self.entries.len()
    }

    #[inline(always)]
    fn ends_key(&self) -> bool {
        match self.entries.get(self.at + 1) {
            Some(next) => {
                let (here, next) = (self.key(self.entry()), self.key(next));
                key_prefix(here) != key_prefix(next) || here != next
            }
            // All versions of a key are in one block.
            None => self
                .layout
                .is_some_and(|layout| self.decoded == layout.count()),
        }
    }

    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        assert!(
            to == Seek::First && view.is_none(),
            "a job reads all records"
        );
        (self.table, self.layout) = (0, None);
        (self.read_ahead, self.piece) = (ReadAhead::default(), Piece::default());
        self.read_on()
    }

    fn poll_seek(&mut self, _: Seek<'_>, _: Option<&ExpiryView>) -> Result<bool> {
        Ok(true)
    }

    #[inline]
    fn advance(&mut self, _: Option<&ExpiryView>) -> Result<()> {
        self.large.take();
        self.at += 1;
        if self.at < self.entries.len() {
            return Ok(());
        }
        self.read_on()
    }

    fn retreat(&mut self, _: Option<&ExpiryView>) -> Result<()> {
        unreachable!("a job reads forwards")
    }

    fn enter(&mut self, _: Seek<'_>, _: Option<&ExpiryView>) -> Result<()> {
        unreachable!("a reader has no dead spans")
    }

    fn pair(&self) -> Result<Pair> {
        let key = self.body.slice(self.entry().key());
        Ok(Pair::new(key, self.value_bytes()?))
    }

    fn value_bytes(&self) -> Result<Bytes> {
        match self.entry().value() {
            Some(range) => Ok(self.body.slice(range)),
            None => self.large_value().cloned(),
        }
    }

    #[inline(always)]
    fn value(&self) -> Result<&[u8]> {
        match self.entry().value() {
            Some(range) => Ok(&self.body[range]),
            None => self.large_value().map(|value| &value[..]),
        }
    }
}
