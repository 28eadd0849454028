//! Finds the sound parts of a damaged table.
//!
//! ```text
//! index sound        its rows say where blocks lie, and of those that are damaged which keys and sequence numbers they had
//! a page damaged     its blocks are looked for between those of its neighbours
//! the top damaged    all blocks are looked for
//! filter, statistics damaged    nothing: both follow from the records
//! footer damaged     all: where parts lie, and from where checksums start, stands nowhere else
//! ```
//!
//! Such a block is found by its trailer: every checksum includes the table's identity and the offset of its bytes, so a
//! block with the right checksum is where it was written, and complete. The length of a compressed block is unknown; it
//! is found only if the block before it ends there, so after damage or large values none is found up to the next
//! uncompressed block.
//!
//! Invariants:
//! * A sound block has the right checksum, its records are in order, and come after those of the sound block before. If
//!   a row of a sound page describes it, it is as the row says. Bytes with the right checksum that contradict this were
//!   written so: then nothing of the table counts as sound.
//! * Between two sound blocks nothing is lost if the bytes of one begin where those of the other end; a block's bytes
//!   begin with its large values. Otherwise there is a [`Gap`]. All versions of a key are in one block, so no key of a
//!   gap is a key of a sound block; its keys are between theirs, or as the rows say if all rows there are known.
//! * A gap's sequence number is no lower than that of any record that was in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::coding::{ByteReader, Malformed};
use crate::base::record::{RecordRef, order};
use crate::base::{Error, Result, Seq};
use crate::data::batch::KeyRange;
use crate::expiry::Census;
use crate::table::check::gap::{Gap, behind};
use crate::table::encode::block::{Layout, TRAILER_LEN, Trailer};
use crate::table::encode::builder::TableBuilder;
use crate::table::encode::codec::Codec;
use crate::table::encode::format::{FILTER_ALIGN, Footer, checksum, hasher};
use crate::table::encode::index::{Index, Sealed};
use crate::table::encode::statistics::Statistics;
use crate::table::read::source::{Access, Source, Stored};
use crate::table::read::stored::{Expected, open_stored, read_statistics};

/// How often a byte is examined, on average, before the search for blocks after large values or damage is given up.
const LOOKS: u64 = 64;

/// A damaged table that is partly sound.
pub struct Salvage {
    stored: Stored,
    footer: Footer,
    statistics: Option<Arc<Statistics>>,
    /// The sound blocks in the order of keys, at least one.
    blocks: Vec<SoundBlock>,
    /// By block and entry: records that have lost their values.
    without_value: BTreeSet<(usize, usize)>,
    /// Damage of parts that can be rebuilt from the records: it loses nothing.
    pub faults: Vec<Error>,
    /// The lost parts, in the order of keys.
    pub gaps: Vec<Gap>,
}

struct SoundBlock {
    place: Range<u64>,
    /// The offset, including the large values before it.
    begins: u64,
    /// The number of blocks before it, if the index tells.
    number: Option<usize>,
    first: Box<[u8]>,
    last: Box<[u8]>,
    census: Census,
}

/// The index's row of a block.
struct Row {
    place: Range<u64>,
    first: Box<[u8]>,
    last: Box<[u8]>,
    census: Census,
}

/// Whether bytes are missing, or not as they were written.
pub fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corruption { .. } => true,
        Error::Io { operation, .. } => *operation == "read",
        _ => false,
    }
}

/// Returns damage as a value, and any other error as an error.
fn damage<T>(result: Result<T>) -> Result<std::result::Result<T, Error>> {
    match result {
        Err(error) if !is_damage(&error) => Err(error),
        result => Ok(result),
    }
}

impl Salvage {
    /// Reads a whole table and finds the sound parts; `None` if there are none, or none can be found.
    pub fn of(source: Source, path: PathBuf, expected: Expected) -> Result<Option<Salvage>> {
        let Ok((stored, footer)) = damage(open_stored(source, path, expected))? else {
            return Ok(None);
        };
        let mut survey = Survey {
            stored,
            footer,
            rows: BTreeMap::new(),
            blocks: vec![],
            faults: vec![],
            damaged: BTreeMap::new(),
            bad_values: vec![],
            contradicts: false,
        };
        survey.parts()?;
        let statistics = damage(read_statistics(&survey.stored, &footer))?;
        let statistics = statistics.map_err(|fault| survey.faults.push(fault)).ok();
        let blocks = survey.index(statistics.as_ref())?;
        survey.known_blocks()?;
        survey.look_for_others()?;
        Ok(survey.finish(statistics.map(Arc::new), blocks))
    }

    /// Its first and its last key, or the first and last sound ones.
    pub fn keys(&self) -> (&[u8], &[u8]) {
        match (&self.statistics, &self.blocks[..]) {
            (Some(statistics), _) => (&statistics.first_key, &statistics.last_key),
            (None, [first, .., last]) => (&first.first, &last.last),
            (None, [one]) => (&one.first, &one.last),
            (None, []) => unreachable!("there is a sound block"),
        }
    }

    /// Its statistics, if they are sound.
    pub fn statistics(&self) -> Option<&Arc<Statistics>> {
        self.statistics.as_ref()
    }

    /// An upper bound of the sound records in a range with a sequence number below this.
    pub fn records_in(&self, range: &KeyRange, below: Seq) -> u64 {
        let blocks = self.blocks.iter().filter(|block| {
            block.census.seq_min < below && range.overlaps(&block.first, &block.last)
        });
        blocks.map(|block| block.census.total().count).sum()
    }

    /// Adds all sound records to a table.
    pub fn copy_into(&self, builder: &mut TableBuilder) -> Result<()> {
        for (at, block) in self.blocks.iter().enumerate() {
            let (stored, trailer) = self.stored.block(&block.place, Access::Sequential)?;
            let body = self.stored.unpacked(&block.place, &stored, &trailer)?;
            let bad = |bad: Malformed| self.stored.fault(block.place.start, bad.what);
            let layout = Layout::of(&body).map_err(bad)?;
            let read = layout.block(&body);
            for number in 0..layout.count() {
                if self.without_value.contains(&(at, number)) {
                    continue;
                }
                let entry = read.entry(number).map_err(bad)?;
                let value = match entry.value() {
                    Some(value) => body.slice(value),
                    None => {
                        let extent = read.extent(number).map_err(bad)?;
                        self.stored
                            .large_value(&self.footer, &extent, entry.value_len())?
                    }
                };
                let record = RecordRef {
                    header: entry.header,
                    key: &body[entry.key()],
                    value_len: entry.value_len(),
                };
                builder.add(&record, &value)?;
            }
        }
        Ok(())
    }

    /// Whether nothing is left to copy.
    fn is_empty(&self) -> bool {
        let records: u64 = self
            .blocks
            .iter()
            .map(|block| block.census.total().count)
            .sum();
        records == self.without_value.len() as u64
    }
}

/// A salvage in progress.
struct Survey {
    stored: Stored,
    footer: Footer,
    /// By number.
    rows: BTreeMap<usize, Row>,
    blocks: Vec<SoundBlock>,
    faults: Vec<Error>,
    /// Bytes that are no sound block, by offset.
    damaged: BTreeMap<u64, Error>,
    /// Lost values: offset of their block, index of the entry, and the gap.
    bad_values: Vec<(u64, usize, Gap)>,
    contradicts: bool,
}

impl Survey {
    /// Checks the filter, and the zeros before it.
    fn parts(&mut self) -> Result<()> {
        let Footer {
            filter_at,
            index_at,
            filter_crc,
            ..
        } = self.footer;
        let filter = self
            .stored
            .part(&(filter_at..index_at), Access::Sequential)
            .and_then(|part| {
                self.stored
                    .check(filter_at, &part, filter_crc, "the filter")
            });
        if let Err(fault) = damage(filter)? {
            self.faults.push(fault);
        }
        Ok(())
    }

    /// Takes the rows of all sound pages; returns the number of blocks, if that is known.
    fn index(&mut self, statistics: Option<&Statistics>) -> Result<Option<usize>> {
        let index = match damage(self.open_index(statistics))? {
            Ok(index) => index,
            Err(fault) => {
                self.faults.push(fault);
                return Ok(statistics.map(|statistics| statistics.blocks as usize));
            }
        };
        let mut last_is_sound = true;
        for number in 0..index.top().len() {
            let (at, end) = (self.footer.index_at, self.footer.filter_at);
            let sealed = self.check_index(index.bytes(), &index.sealed_page(number));
            let page = sealed.and_then(|()| {
                let page = index.open_page(number, end);
                page.map_err(|bad| self.stored.fault(at + bad.offset as u64, bad.what))
            });
            match damage(page)? {
                Ok(page) => {
                    let rows = index.blocks_of(number).zip(0..page.len());
                    self.rows.extend(rows.map(|(block, row)| {
                        let row = Row {
                            place: page.place(row),
                            first: page.first_key(row).into(),
                            last: page.last_key(row).into(),
                            census: page.census(row),
                        };
                        (block, row)
                    }));
                    last_is_sound = true;
                }
                Err(fault) => {
                    self.faults.push(fault);
                    last_is_sound = false;
                }
            }
        }
        let is_known = last_is_sound || statistics.is_some();
        Ok(is_known.then(|| index.len()))
    }

    fn open_index(&self, statistics: Option<&Statistics>) -> Result<Index> {
        let at = self.footer.index_at;
        let place = at..self.footer.statistics_at;
        let part = self.stored.part(&place, Access::Sequential)?;
        let bad = |bad: Malformed| self.stored.fault(at + bad.offset as u64, bad.what);
        self.check_index(&part, &Index::sealed_top(&part).map_err(bad)?)?;
        let blocks = match statistics {
            Some(statistics) => statistics.blocks,
            None => {
                // The last page gives the number of its blocks itself. If it is damaged, the number is not used.
                let open = Index::open(part.clone(), u64::from(u32::MAX)).map_err(bad)?;
                let last = open.top().len() - 1;
                let before = open.blocks_of(last).start as u64;
                let sealed = open.sealed_page(last);
                let count = match damage(self.check_index(&part, &sealed))? {
                    Ok(()) => ByteReader::new(&part[sealed.place]).u32().map_err(bad)?,
                    Err(_) => 1,
                };
                before + u64::from(count)
            }
        };
        Index::open(part, blocks).map_err(bad)
    }

    fn check_index(&self, part: &[u8], sealed: &Sealed) -> Result<()> {
        let at = self.footer.index_at + sealed.place.start as u64;
        self.stored
            .check(at, &part[sealed.place.clone()], sealed.crc, "the index")
    }

    /// Reads the blocks that rows describe.
    fn known_blocks(&mut self) -> Result<()> {
        for (number, row) in std::mem::take(&mut self.rows) {
            if let Some(block) = self.inspect(&row.place, Some(number))? {
                let as_said = block.first == row.first
                    && block.last == row.last
                    && block.census == row.census;
                self.contradicts |= !as_said;
                self.blocks.push(block);
            }
            self.rows.insert(number, row);
        }
        Ok(())
    }

    /// Searches for blocks where no rows describe any.
    fn look_for_others(&mut self) -> Result<()> {
        let mut gaps = vec![];
        let (mut at, mut next) = (0, 0);
        for (number, row) in &self.rows {
            if *number != next {
                gaps.push(at..row.place.start);
            }
            (at, next) = (row.place.end, number + 1);
        }
        // Up to the end there may be blocks of an unknown page; if not, none is found.
        gaps.push(at..self.footer.filter_at);
        for gap in gaps {
            let bytes = match damage(self.stored.part(&gap, Access::Sequential))? {
                Ok(bytes) => bytes,
                Err(fault) => {
                    self.damaged.insert(gap.start, fault);
                    continue;
                }
            };
            let (mut from, mut looks) = (0, LOOKS * bytes.len() as u64);
            while let Some(found) = self.find(&bytes, gap.start, from, &mut looks) {
                let place = gap.start + found.start as u64..gap.start + found.end as u64;
                if let Some(block) = self.inspect(&place, None)? {
                    self.blocks.push(block);
                }
                from = found.end;
            }
        }
        self.blocks.sort_by_key(|block| block.place.start);
        Ok(())
    }

    /// The first block that ends in `bytes`, which are at `base`, and begins at or after `from`.
    fn find(&self, bytes: &[u8], base: u64, from: usize, looks: &mut u64) -> Option<Range<usize>> {
        let identity = self.footer.identity;
        let place = |at: usize| base + at as u64;
        // The checksum of a compressed block so far.
        let (mut packed, mut summed) = (hasher(identity, place(from)), from);
        for end in from + TRAILER_LEN..=bytes.len() {
            let trailer = bytes[..end].last_chunk().and_then(Trailer::decode);
            let Some(trailer) = trailer else { continue };
            let body_end = end - TRAILER_LEN;
            let start = match trailer.codec {
                Codec::Raw => body_end.checked_sub(trailer.body_len),
                Codec::Lz4 | Codec::Zstd => Some(from),
            };
            let Some(start) = start.filter(|start| *start >= from) else {
                continue;
            };
            let body = &bytes[start..body_end];
            let crc = match trailer.codec {
                Codec::Raw => {
                    if Layout::of(body).is_err() {
                        continue;
                    }
                    *looks = looks.checked_sub(body.len() as u64)?;
                    checksum(identity, place(start), &[&bytes[start..end - 4]])
                }
                Codec::Lz4 | Codec::Zstd => {
                    if !trailer.codec.can_hold(body.len(), trailer.body_len) {
                        continue;
                    }
                    packed.update(&bytes[summed..end - 4]);
                    summed = end - 4;
                    packed.clone().finalize()
                }
            };
            if crc == trailer.crc {
                return Some(start..end);
            }
        }
        None
    }

    /// Reads a block; `None` if it is damaged.
    fn inspect(&mut self, place: &Range<u64>, number: Option<usize>) -> Result<Option<SoundBlock>> {
        let read = self.stored.block(place, Access::Sequential);
        let (stored, trailer) = match damage(read)? {
            Ok(read) => read,
            Err(fault) => {
                self.damaged.insert(place.start, fault);
                return Ok(None);
            }
        };
        let body = damage(self.stored.unpacked(place, &stored, &trailer))?;
        let block = match &body {
            Ok(body) => self.records(body, place, number)?,
            Err(_) => None,
        };
        self.contradicts |= block.is_none();
        Ok(block)
    }

    /// Reads the records of a block; `None` if they contradict each other.
    fn records(
        &mut self,
        body: &Bytes,
        place: &Range<u64>,
        number: Option<usize>,
    ) -> Result<Option<SoundBlock>> {
        let Ok(layout) = Layout::of(body) else {
            return Ok(None);
        };
        let block = layout.block(body);
        let (mut census, mut begins) = (Census::default(), place.start);
        let (mut before, mut first): (&[u8], &[u8]) = (&[], &[]);
        let mut before_seq = Seq(0);
        for at in 0..layout.count() {
            let Ok(entry) = block.entry(at) else {
                return Ok(None);
            };
            let (key, header) = (&body[entry.key()], entry.header);
            if !order(before, before_seq, key, header.seq).is_lt() {
                return Ok(None);
            }
            if entry.value().is_none() {
                let Ok(extent) = block.extent(at) else {
                    return Ok(None);
                };
                let end = extent.offset.checked_add(extent.stored_len);
                if end.is_none_or(|end| end > place.start) {
                    return Ok(None);
                }
                begins = begins.min(extent.offset);
                let value = self
                    .stored
                    .large_value(&self.footer, &extent, entry.value_len());
                if let Err(fault) = damage(value)? {
                    let gap = Gap::of_value(fault, key, header.seq);
                    self.bad_values.push((place.start, at, gap));
                }
            }
            census.add(&RecordRef {
                header,
                key,
                value_len: entry.value_len(),
            });
            if at == 0 {
                first = key;
            }
            (before, before_seq) = (key, header.seq);
        }
        Ok(Some(SoundBlock {
            place: place.clone(),
            begins,
            number,
            first: first.into(),
            last: before.into(),
            census,
        }))
    }

    /// `blocks` is the number of blocks in the table, if that is known.
    fn finish(
        mut self,
        statistics: Option<Arc<Statistics>>,
        blocks: Option<usize>,
    ) -> Option<Salvage> {
        let pairs = self.blocks.windows(2);
        let in_order = |pair: &[SoundBlock]| {
            pair[0].place.end <= pair[1].begins && pair[0].last < pair[1].first
        };
        if self.contradicts || !pairs.into_iter().all(in_order) {
            return None;
        }
        let mut gaps = self.gaps(statistics.as_deref(), blocks);
        let mut without_value = BTreeSet::new();
        for (start, entry, gap) in std::mem::take(&mut self.bad_values) {
            let block = self
                .blocks
                .binary_search_by_key(&start, |block| block.place.start);
            without_value.insert((block.expect("it is sound"), entry));
            gaps.push(gap);
        }
        gaps.sort_by(|a, b| (&a.from, a.seq).cmp(&(&b.from, b.seq)));
        let salvage = Salvage {
            stored: self.stored,
            footer: self.footer,
            statistics,
            blocks: self.blocks,
            without_value,
            faults: self.faults,
            gaps,
        };
        (!salvage.is_empty()).then_some(salvage)
    }

    /// The gaps before, between and after the sound blocks.
    fn gaps(&self, statistics: Option<&Statistics>, blocks: Option<usize>) -> Vec<Gap> {
        let found = self.blocks.iter().map(|block| block.census.total().count);
        let found: u64 = found.sum();
        let mut gaps = vec![];
        let mut before: Option<&SoundBlock> = None;
        for after in self.blocks.iter().map(Some).chain([None]) {
            let at = before.map_or(0, |block| block.place.end);
            let end = match after {
                Some(block) => block.begins,
                // The zeros before the filter are no block.
                None if at.next_multiple_of(FILTER_ALIGN) == self.footer.filter_at => at,
                None => self.footer.filter_at,
            };
            if at < end {
                let numbers = (
                    before.map_or(Some(0), |block| Some(block.number? + 1)),
                    after.map_or(blocks, |block| block.number),
                );
                let rows = match numbers {
                    (Some(from), Some(to)) => self.all_rows(from..to),
                    _ => None,
                };
                let gap = self.damaged.range(at..end).next();
                let fault = match (gap, self.faults.first()) {
                    (Some((_, fault)), _) => fault.clone(),
                    (None, Some(fault)) => fault.clone(),
                    (None, None) => self.stored.fault(at, "no block begins here"),
                };
                gaps.push(match rows {
                    Some(rows) => Gap {
                        fault,
                        from: rows.first().map(|row| row.first.to_vec()),
                        to: rows.last().map(|row| behind(&row.last)),
                        seq: rows.iter().map(|row| row.census.seq_max).max(),
                        records: Some(rows.iter().map(|row| row.census.total().count).sum()),
                    },
                    None => Gap {
                        fault,
                        from: match before {
                            Some(block) => Some(behind(&block.last)),
                            None => statistics.map(|all| all.first_key.to_vec()),
                        },
                        to: match after {
                            Some(block) => Some(block.first.to_vec()),
                            None => statistics.map(|all| behind(&all.last_key)),
                        },
                        seq: statistics.map(|all| all.census.seq_max),
                        records: statistics.map(|all| all.records.saturating_sub(found)),
                    },
                });
            }
            before = after;
        }
        gaps
    }

    /// The rows of these blocks, if there are some and all are known.
    fn all_rows(&self, numbers: Range<usize>) -> Option<Vec<&Row>> {
        let rows: Vec<&Row> = self
            .rows
            .range(numbers.clone())
            .map(|(_, row)| row)
            .collect();
        (!rows.is_empty() && rows.len() == numbers.len()).then_some(rows)
    }
}
