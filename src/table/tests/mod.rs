//! Tests of whole tables: shared helpers, and the golden table.

mod damage;
mod model;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::base::hash::hash_key;
use crate::base::record::{Header, Kind, RecordRef};
use crate::base::{ContainerId, Error, ItemTtl, Result, Seq, TableId, Timestamp, Wait};
use crate::env::File;
use crate::expiry::{DefaultMillis, Settings};
use crate::table::TableOptions;
use crate::table::check::verify::TableReport;
use crate::table::encode::block::Extent;
use crate::table::encode::codec::Codec;
use crate::table::read::get::FoundValue;
use crate::table::{BlockCache, Expected, FinishedTable, Table, TableBuilder, TableMeta};
use crate::values::Compression;

/// A record as tests hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    header: Header,
    key: bytes::Bytes,
    value: bytes::Bytes,
}

/// A file in memory; clones share it.
#[derive(Clone, Default)]
struct MemoryFile {
    bytes: Arc<Mutex<Vec<u8>>>,
    syncs: Arc<Mutex<usize>>,
    /// Writes beyond this size fail.
    room: Option<usize>,
}

impl File for MemoryFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut file = self.bytes.lock();
        if self
            .room
            .is_some_and(|room| file.len() + bytes.len() > room)
        {
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(Error::io("write", "a.table", full));
        }
        assert_eq!(
            offset,
            file.len() as u64,
            "tables are written front to back"
        );
        file.extend_from_slice(bytes);
        *self.syncs.lock() = 0;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        *self.syncs.lock() += 1;
        Ok(())
    }

    fn allocate(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.bytes.lock().truncate(len as usize);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }
}

/// Pseudo-random numbers from a seed (S. Vigna, splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

fn meta(id: u64) -> TableMeta {
    TableMeta {
        id: TableId(id),
        container: ContainerId(3),
        identity: 0x0123_4567_89ab_cdef + id,
        settings: Settings::new(DefaultMillis::Millis(5)),
    }
}

/// Those that this build has, and Miri can run.
const COMPRESSIONS: &[Compression] = &[
    Compression::None,
    Compression::Lz4,
    #[cfg(all(feature = "zstd", not(miri)))]
    Compression::Zstd,
];

fn options(block_bytes: usize, compression: Compression) -> TableOptions {
    TableOptions {
        block_bytes,
        compression,
    }
}

fn record_ref(record: &Record) -> RecordRef<'_> {
    RecordRef {
        header: record.header,
        key: &record.key,
        value_len: record.value.len(),
    }
}

/// The file of these records.
fn build(id: u64, records: &[Record], options: TableOptions) -> (Bytes, FinishedTable) {
    let file = MemoryFile::default();
    let mut builder = TableBuilder::new(Box::new(file.clone()), options, meta(id));
    assert!(builder.is_empty());
    for record in records {
        builder.add(&record_ref(record), &record.value).unwrap();
        assert_eq!(builder.last_key(), record.key);
    }
    let finished = builder.finish().unwrap();
    assert_eq!(*file.syncs.lock(), 1, "synced after the last write");
    let bytes = Bytes::from(std::mem::take(&mut *file.bytes.lock()));
    (bytes, finished)
}

fn open(bytes: Bytes, finished: &FinishedTable, cache: Option<usize>) -> Result<Arc<Table>> {
    let expected = Expected {
        id: finished.id,
        container: finished.container,
        len: finished.len,
        crc: finished.crc,
    };
    let cache = cache.map(|bytes| Arc::new(BlockCache::new(bytes)));
    Table::open(bytes, PathBuf::from("a.table"), expected, cache).map(Arc::new)
}

fn table(id: u64, records: &[Record], options: TableOptions) -> Arc<Table> {
    let (bytes, finished) = build(id, records, options);
    open(bytes, &finished, Some(1 << 20)).unwrap()
}

fn put(key: &[u8], seq: u64, written_at: u64, ttl: ItemTtl, value: &[u8]) -> Record {
    Record {
        header: Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(written_at),
            ttl,
        },
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
    }
}

fn tombstone(key: &[u8], seq: u64, written_at: u64) -> Record {
    Record {
        header: Header::tombstone(Seq(seq), Timestamp(written_at)),
        key: Bytes::copy_from_slice(key),
        value: Bytes::new(),
    }
}

/// Goal: the bytes on disk are part of the contract. Method: one block of three records, written out.
#[test]
fn the_golden_table() {
    let records = [
        put(b"ant", 12, 1_000, ItemTtl::Millis(60_000), b"six legs"),
        tombstone(b"ant", 10, 990),
        put(b"bee", 11, 995, ItemTtl::Absent, b"buzz"),
    ];
    let (bytes, finished) = build(7, &records, options(4096, Compression::None));
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden: String = include_str!("golden.hex")
        .lines()
        .filter_map(|line| line.split('|').next())
        .flat_map(|line| line.split_whitespace())
        .collect();
    assert_eq!(hex, golden);
    let table = open(bytes, &finished, None).unwrap();
    let report = TableReport {
        records: 3,
        keys: 2,
        blocks: 1,
        large_values: 0,
        bytes: finished.len,
    };
    assert_eq!(table.verify().unwrap(), report);
}

/// Goal: a key with an oversized version and a light one is no damage. Method: the light ones are not sampled: their
/// hashes are above the threshold, and they need not be sampled.
#[test]
fn a_light_version_beside_an_oversized_one_is_verified() {
    let (oversized, light) = (vec![7; 40 << 10], [7; 10]);
    let records: Vec<Record> = (0..600u32)
        .flat_map(|i| {
            let value: &[u8] = if i % 60 == 0 { &oversized } else { &light };
            let (key, never) = (i.to_be_bytes(), ItemTtl::Never);
            [
                put(&key, 2, 100, never, &light),
                put(&key, 1, 99, never, value),
            ]
        })
        .collect();
    let table = table(42, &records, options(4096, Compression::None));
    let sample = table.sample();
    let threshold = sample.threshold;
    assert!(sample.records.iter().any(|record| record.hash >= threshold));
    assert_eq!(table.verify().unwrap().records, 1_200);
}

/// Goal: the statistics are those of the added records, before anything but footer and statistics is read.
#[test]
fn an_open_table_knows_itself() {
    let records = [
        put(b"a", 5, 100, ItemTtl::Absent, b"1"),
        put(b"b", 4, 200, ItemTtl::Millis(10), b"22"),
        put(b"c", 3, 300, ItemTtl::Never, b"333"),
        tombstone(b"d", 9, 400),
    ];
    let table = table(42, &records, options(64, Compression::None));
    assert_eq!(
        (table.id(), table.container()),
        (TableId(42), ContainerId(3))
    );
    assert_eq!(
        (table.first_key(), table.last_key()),
        (&b"a"[..], &b"d"[..])
    );
    assert_eq!(table.settings(), &meta(42).settings);
    let census = table.census();
    assert_eq!((census.seq_min, census.seq_max), (Seq(3), Seq(9)));
    assert_eq!(census.total().count, 4);
    let (inheriting, overriding) = table.histograms();
    assert_eq!(inheriting.up_to(Timestamp(100)).count, 1);
    assert_eq!(overriding.up_to(Timestamp(209)).count, 0);
    assert_eq!(overriding.up_to(Timestamp(210)).count, 1);
    assert_eq!(table.sample().records.len(), 4);
    assert_eq!(table.blocks_read(), 0);
}

/// Goal: a file that differs from what the manifest expects is refused.
#[test]
fn another_file_in_its_place_is_refused() {
    let records = [put(b"a", 5, 100, ItemTtl::Absent, b"1")];
    let (bytes, finished) = build(42, &records, options(64, Compression::None));
    let changes: [fn(&mut FinishedTable); 4] = [
        |finished| finished.id.0 += 1,
        |finished| finished.container.0 += 1,
        |finished| finished.len += 1,
        |finished| finished.crc += 1,
    ];
    for change in changes {
        let mut other = finished.clone();
        change(&mut other);
        let error = open(bytes.clone(), &other, None).err().unwrap();
        assert!(error.is_corruption(), "{error}");
    }
}

/// Goal: a full disk is an error of the step that meets it. Method: less and less room.
#[test]
fn a_full_disk_is_an_error() {
    let records: Vec<Record> = (0..40u32)
        .map(|i| {
            put(
                &i.to_be_bytes(),
                1,
                100,
                ItemTtl::Absent,
                &[i as u8; 30_000],
            )
        })
        .collect();
    let (bytes, _) = build(1, &records, options(4096, Compression::None));
    for room in [0, 300_000, 1_000_000, bytes.len() - 1] {
        let file = MemoryFile {
            room: Some(room),
            ..MemoryFile::default()
        };
        let mut builder =
            TableBuilder::new(Box::new(file), options(4096, Compression::None), meta(1));
        let added: Result<()> = records
            .iter()
            .try_for_each(|record| builder.add(&record_ref(record), &record.value));
        let error = added
            .and_then(|()| builder.finish())
            .expect_err("too little room");
        assert!(error.is_full(), "{error}");
    }
}

/// Goal: a block of another table at the right place does not pass. Method: two tables with the same records and
/// different identities; the first one's block is copied into the second.
#[test]
fn checksums_are_bound_to_their_table() {
    let records = [put(b"a", 5, 100, ItemTtl::Absent, b"1")];
    let (first, _) = build(42, &records, options(64, Compression::None));
    let (second, finished) = build(43, &records, options(64, Compression::None));
    let table = open(second.clone(), &finished, None).unwrap();
    let block = table.place(0).unwrap();
    let mut mixed = second.to_vec();
    let range = block.start as usize..block.end as usize;
    mixed[range.clone()].copy_from_slice(&first[range]);
    assert_ne!(mixed, second);
    let table = open(Bytes::from(mixed), &finished, None).unwrap();
    assert!(
        table
            .get(hash_key(b"a"), b"a", Seq::MAX)
            .err()
            .unwrap()
            .is_corruption()
    );
}

/// Goal: the header of a large value is read without its value. Method: the value's bytes are damaged.
#[test]
fn a_large_value_is_read_only_by_who_asks_for_it() {
    let value: Vec<u8> = (0..40_000u32)
        .flat_map(|i| hash_key(&i.to_le_bytes()).to_le_bytes())
        .collect();
    let records = [
        put(b"a", 1, 100, ItemTtl::Absent, &value),
        put(b"b", 2, 100, ItemTtl::Absent, b"small"),
    ];
    for &compression in COMPRESSIONS {
        let (bytes, finished) = build(1, &records, options(4096, compression));
        let mut damaged = bytes.to_vec();
        damaged[1_000] ^= 1;
        let table = open(Bytes::from(damaged), &finished, None).unwrap();
        let found = table.get(hash_key(b"a"), b"a", Seq::MAX).unwrap().unwrap();
        assert_eq!(found.header, records[0].header);
        assert!(matches!(&found.value, FoundValue::Large(large) if large.len == value.len()));
        assert!(found.value::<Wait>().unwrap_err().is_corruption());
        let found = table.get(hash_key(b"b"), b"b", Seq::MAX).unwrap().unwrap();
        assert_eq!(found.value::<Wait>().unwrap(), "small");
    }
}

/// Goal: an extent outside the data is damage, whatever it says. Method: extents that a block could hold under a right
/// checksum.
#[test]
fn a_large_value_lies_in_the_data() {
    let records = [put(b"a", 1, 100, ItemTtl::Absent, &[7; 40_000])];
    let (bytes, finished) = build(1, &records, options(4096, Compression::None));
    let table = open(bytes, &finished, None).unwrap();
    let end = finished.len;
    for (number, offset, stored_len) in [
        (0, end - 5, 20),
        (0, end, 0),
        (0, table.footer.filter_at, 1),
        (0, u64::MAX, 1),
        (0, 1, u64::MAX),
        (1, 0, 40_000),
    ] {
        let error = table.stored_value(&Extent {
            number,
            offset,
            stored_len,
            codec: Codec::Raw,
            crc: 0,
        });
        assert!(error.unwrap_err().is_corruption());
    }
}

/// Goal: uncompressed bytes are the file's own, and keep it alive.
#[test]
fn values_are_handed_out_without_a_copy() {
    let large = vec![9; 20_000];
    let records = [
        put(b"a", 1, 100, ItemTtl::Absent, &large),
        put(b"b", 2, 100, ItemTtl::Absent, b"small"),
    ];
    let (bytes, finished) = build(1, &records, options(4096, Compression::None));
    let file = bytes.as_ptr_range();
    let table = open(bytes, &finished, None).unwrap();
    let values: Vec<Bytes> = [b"a", b"b"]
        .map(|key| {
            table
                .get(hash_key(key), key, Seq::MAX)
                .unwrap()
                .unwrap()
                .value::<Wait>()
                .unwrap()
        })
        .into();
    drop(table);
    assert!(values.iter().all(|value| file.contains(&value.as_ptr())));
    assert_eq!(values, [Bytes::from(large), Bytes::from("small")]);
}

/// Goal: decompressed blocks are cached when a key in them was asked for, not when an iteration passes.
#[test]
fn the_cache_keeps_what_was_sought() {
    let records: Vec<Record> = (0..400u32)
        .map(|i| put(&i.to_be_bytes(), 1, 100, ItemTtl::Absent, &[7; 50]))
        .collect();
    let (bytes, finished) = build(1, &records, options(1024, Compression::Lz4));
    let expected = Expected {
        id: finished.id,
        container: finished.container,
        len: finished.len,
        crc: finished.crc,
    };
    let cache = Arc::new(BlockCache::new(1 << 20));
    let table = Table::open(
        bytes,
        PathBuf::from("a.table"),
        expected,
        Some(cache.clone()),
    );
    let table = Arc::new(table.unwrap());
    let get = |i: u32| {
        let key = i.to_be_bytes();
        let found = table.get(hash_key(&key), &key, Seq::MAX).unwrap().unwrap();
        assert_eq!(found.value::<Wait>().unwrap(), &[7; 50][..]);
        cache.bytes()
    };
    let one = get(0);
    assert!(one > 1024 / 2 && one < 2048, "{one}");
    assert_eq!(get(1), one);
    let two = get(399);
    use crate::data::cursor::{Cursor, Position, Seek};
    let mut cursor = table.cursor();
    cursor.seek(Seek::First, None).unwrap();
    let mut count = 0;
    while cursor.position() != Position::End {
        count += 1;
        cursor.advance(None).unwrap();
    }
    assert_eq!((count, cache.bytes()), (400, two));
}
