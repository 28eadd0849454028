//! Tables: any bytes as a file, and files that were built from the input's records, then damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ebbtide::internals::{
    BlockCache, ContainerId, Cursor, DefaultMillis, Expected, ExpiryView, Fs, Header, ItemTtl,
    Kind, Position, RecordRef, Seek, Seq, Settings, Sim, Table, TableBuilder, TableId, TableMeta,
    TableOptions, Timestamp, Wait, hash_key,
};
use ebbtide::{Compression, Error, Result};

use super::input::Input;

/// Bytes of a footer.
const FOOTER_LEN: usize = 72;

/// A whole file. If the first byte is odd, its checksums are made right first, as far as its parts can be found.
pub fn table_file(data: &[u8]) {
    let mut input = Input::new(data);
    let forged = input.flag();
    let mut bytes = input.rest().to_vec();
    if forged {
        reseal(&mut bytes);
    }
    if let Ok(table) = open(Bytes::from(bytes)) {
        ask_anything(&table, &[]);
    }
}

/// A table of the input's records gives back just these. Damaged, it gives back these or an error; damaged under right
/// checksums, whatever comes of it.
pub fn table(data: &[u8]) {
    let mut input = Input::new(data);
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][input.below(3)];
    let block_bytes = 64 << input.below(5);
    let (damages, forged) = (input.below(4), input.flag());
    let damages = input.take(3 * damages).as_chunks::<3>().0;
    let records = records(&mut input);
    if records.is_empty() {
        return;
    }
    let mut bytes = build(block_bytes, compression, &records);
    let expected = expected(&bytes);
    let whole = open_as(Bytes::from(bytes.clone()), expected).expect("it is whole");
    assert_eq!(
        read_all(&whole, &records).map_err(|error| error.to_string()),
        Ok(())
    );
    let report = whole.verify().expect("it is whole");
    assert_eq!(report.records, records.len() as u64);
    let footer = bytes.len() - FOOTER_LEN;
    for &[low, high, bits] in damages {
        // Counted from the end, where all but the blocks is.
        let at = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
        let at = bytes.len() - 1 - at;
        bytes[at] ^= bits;
    }
    if forged {
        reseal(&mut bytes);
        if let Ok(table) = open(Bytes::from(bytes)) {
            ask_anything(&table, &records);
        }
    } else if !damages.iter().any(|damage| damage[2] != 0) {
        bytes.truncate(footer);
        assert!(open(Bytes::from(bytes)).is_err());
    } else if let Ok(table) = open_as(Bytes::from(bytes), expected)
        && let Err(error) = read_all(&table, &records)
    {
        assert!(error.is_corruption(), "{error}");
    }
}

/// One version of a key.
struct Record {
    header: Header,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Record {
    fn record_ref(&self) -> RecordRef<'_> {
        RecordRef {
            header: self.header,
            key: &self.key,
            value_len: self.value.len(),
        }
    }
}

/// Records in their order: key up, sequence number down, no two alike.
fn records(input: &mut Input<'_>) -> Vec<Record> {
    let mut records = vec![];
    while !input.is_empty() && records.len() < 200 {
        let shared = ["", "k", "shared prefix/"][input.below(3)].as_bytes();
        let own = 1 + input.below(6);
        let key = [shared, input.take(own)].concat();
        let (kind, ttl) = match input.below(5) {
            0 => (Kind::Tombstone, ItemTtl::Absent),
            1 => (Kind::Put, ItemTtl::Never),
            2 => (Kind::Put, ItemTtl::Millis(u64::from(input.u16()))),
            _ => (Kind::Put, ItemTtl::Absent),
        };
        let len = match (kind, input.u8()) {
            (Kind::Tombstone, _) => 0,
            (Kind::Put, 255) => 20_000,
            (Kind::Put, len) => usize::from(len),
        };
        let header = Header {
            kind,
            seq: Seq(input.any_size() >> 1),
            written_at: Timestamp(input.any_size()),
            ttl,
        };
        if key.is_empty() {
            continue;
        }
        let value = key.iter().copied().cycle().take(len).collect();
        records.push(Record { header, key, value });
    }
    records.sort_by(|a, b| a.key.cmp(&b.key).then(b.header.seq.cmp(&a.header.seq)));
    records.dedup_by(|a, b| a.key == b.key && a.header.seq == b.header.seq);
    records
}

fn build(block_bytes: usize, compression: Compression, records: &[Record]) -> Vec<u8> {
    let sim = Sim::new(1);
    let path = Path::new("/000001.table");
    let file = sim.create(path).expect("an empty folder");
    let options = TableOptions {
        block_bytes,
        compression,
    };
    let meta = TableMeta {
        id: TableId(1),
        container: ContainerId(1),
        identity: 0x1234_5678_9abc_def0,
        settings: Settings::default(),
    };
    let mut builder = TableBuilder::new(file, options, meta);
    for record in records {
        let added = builder.add(&record.record_ref(), &record.value);
        added.expect("nothing fails here");
    }
    let finished = builder.finish().expect("nothing fails here");
    let bytes = sim.read(path).expect("it is there");
    assert_eq!(finished.len, bytes.len() as u64);
    assert_eq!(finished.crc, expected(&bytes).crc);
    bytes
}

/// Opens a file as what it says of itself.
fn open(bytes: Bytes) -> Result<Arc<Table>> {
    let expected = expected(&bytes);
    open_as(bytes, expected)
}

fn expected(bytes: &[u8]) -> Expected {
    let footer = bytes.last_chunk::<FOOTER_LEN>().unwrap_or(&[0; FOOTER_LEN]);
    let number =
        |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().expect("eight bytes"));
    Expected {
        id: TableId(number(8)),
        container: ContainerId(number(52) as u32),
        len: bytes.len() as u64,
        crc: number(60) as u32,
    }
}

fn open_as(bytes: Bytes, expected: Expected) -> Result<Arc<Table>> {
    let cache = Some(Arc::new(BlockCache::new(1 << 16)));
    match Table::open(bytes, PathBuf::from("/000001.table"), expected, cache) {
        Ok(table) => Ok(Arc::new(table)),
        Err(error) => Err(damage(error)),
    }
}

fn damage(error: Error) -> Error {
    assert!(error.is_corruption(), "{error}");
    error
}

/// Every answer is right; the first error ends it.
fn read_all(table: &Arc<Table>, records: &[Record]) -> Result<()> {
    for record in records {
        let found = table.get(hash_key(&record.key), &record.key, record.header.seq)?;
        let found = found.expect("a record does not vanish");
        assert_eq!(found.header, record.header);
        assert_eq!(found.value::<Wait>()?, record.value);
    }
    assert!(table.get(hash_key(b""), b"", Seq::MAX)?.is_none());
    let mut cursor = table.cursor();
    cursor.seek(Seek::First, None)?;
    for record in records {
        assert_eq!(cursor.position(), Position::Record(record.record_ref()));
        assert_eq!(cursor.value()?, record.value);
        cursor.advance(None)?;
    }
    assert_eq!(cursor.position(), Position::End);
    cursor.seek(Seek::Last, None)?;
    for record in records.iter().rev() {
        assert_eq!(cursor.position(), Position::Record(record.record_ref()));
        cursor.retreat(None)?;
    }
    assert_eq!(cursor.position(), Position::End);
    Ok(())
}

/// Asks everything, whatever the answers.
fn ask_anything(table: &Arc<Table>, records: &[Record]) {
    let (first, last) = (table.first_key().to_vec(), table.last_key().to_vec());
    let keys = records.iter().map(|record| &record.key);
    for key in keys.chain([&first, &last]) {
        for max in [Seq::MAX, Seq(5)] {
            if let Ok(Some(found)) = table.get(hash_key(key), key, max) {
                let _ = found.value::<Wait>();
            }
        }
    }
    let settings = || Settings::new(DefaultMillis::Millis(1));
    let view = ExpiryView::at(Timestamp(u64::MAX / 2), settings);
    for view in [None, Some(&view)] {
        for to in [
            Seek::First,
            Seek::AtOrAfter(&last),
            Seek::After(&first),
            Seek::Last,
            Seek::AtOrBefore(&first),
            Seek::Before(&last),
        ] {
            walk(table, to, view);
        }
    }
    let _ = table.verify();
}

/// Walks to the end, into every second dead span. No walk is longer than the file, unpacked.
fn walk(table: &Arc<Table>, to: Seek<'_>, view: Option<&ExpiryView>) {
    let mut cursor = table.cursor();
    let mut result = cursor.seek(to, view);
    for step in 0.. {
        let enter = match cursor.position() {
            Position::End => break,
            Position::Record(_) => {
                let _ = (
                    cursor.pair().is_ok(),
                    cursor.value_bytes().is_ok(),
                    cursor.value().is_ok(),
                );
                false
            }
            Position::DeadSpan(_) => step % 2 == 0,
        };
        assert!(step <= 256 * table.file_len(), "an endless walk");
        result = match (enter, to.is_forward()) {
            (true, _) => cursor.enter(to, view),
            (false, true) => cursor.advance(view),
            (false, false) => cursor.retreat(view),
        };
    }
    if let Err(error) = result {
        damage(error);
    }
}

/// Makes the checksums right again, of all parts that can be found.
fn reseal(bytes: &mut [u8]) {
    let Some(footer_at) = bytes.len().checked_sub(FOOTER_LEN) else {
        return;
    };
    let number = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..)?.first_chunk()?;
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    };
    let part_at = |bytes: &[u8], field: usize| number(bytes, footer_at + field).unwrap_or(0);
    let identity = bytes[footer_at..footer_at + 8].to_vec();
    let seal = |bytes: &mut [u8], start: usize, end: usize, crc_at: usize| {
        if let Some(covered) = bytes.get(start..end) {
            let place = [&identity, &(start as u64).to_le_bytes()[..]].concat();
            let crc = crc32fast::hash(&[&place, covered].concat());
            bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        }
    };
    let (filter, index, statistics) = (part_at(bytes, 16), part_at(bytes, 24), part_at(bytes, 32));
    // The rows of a page of the index, or of its top: from where to where what they tell of lies.
    let rows = |bytes: &[u8], page: usize| -> Vec<(usize, usize)> {
        let count = number(bytes, page).unwrap_or(0) & 0xffff;
        let row = |row: usize| {
            let row = page + 8 + 8 * count + 24 * row;
            let (start, len) = (number(bytes, row)?, number(bytes, row + 16)? & 0xffff_ffff);
            Some((start, start.checked_add(len)?))
        };
        (0..count.min(1_000)).map_while(row).collect()
    };
    let last_words = |bytes: &[u8]| {
        let words = number(bytes, statistics.checked_sub(12)?)?;
        Some((words & 0xffff_ffff, words >> 32))
    };
    if let Some((pages, top_len)) = last_words(bytes)
        && let Some(top) = (statistics - 12).checked_sub(4 * pages + top_len)
        && top >= index
    {
        for (page, page_end) in rows(bytes, top) {
            let (page, page_end) = (index.saturating_add(page), index.saturating_add(page_end));
            for (start, end) in rows(bytes, page) {
                if end.saturating_sub(start) >= 9 && end <= footer_at {
                    seal(bytes, start, end - 4, end - 4);
                }
            }
            if page_end.saturating_sub(page) >= 4 && page_end <= footer_at {
                seal(bytes, page, page_end - 4, page_end - 4);
            }
        }
        seal(bytes, top, statistics - 4, statistics - 4);
    }
    for (field, start, end) in [
        (40, filter, index),
        (44, index, statistics),
        (48, statistics, footer_at),
    ] {
        seal(bytes, start, end, footer_at + field);
    }
    let crc = crc32fast::hash(&bytes[footer_at..footer_at + 60]);
    bytes[footer_at + 60..][..4].copy_from_slice(&crc.to_le_bytes());
}
