//! Goal: what a job writes is what the verdict says of each key, whichever way a record takes through the job. Method:
//! random histories of few keys, in memtables or in runs, under random settings, snapshots, range deletes, cuts and
//! runs outside the job. All records of each key are collected here and judged by [`decide`], as the definition of a job
//! has it; the job writes the same records to the same slots, and its tables pass a full verification, which counts
//! their statistics anew, record by record.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::base::record::Kind;
use crate::base::{ItemTtl, file_name};
use crate::catalog::{Pins, RunId, RunRecord, TableFile, TableRecord, TableSpace};
use crate::data::batch::KeyRange;
use crate::data::cursor::Seek;
use crate::data::range_delete::RangeDelete;
use crate::env::{Fs, Sim};
use crate::expiry::DefaultMillis;
use crate::mem::Memtable;
use crate::table::{BlockCache, RunCursor, RunReader};
use crate::values::{Compression, Reads};

const CONTAINER: ContainerId = ContainerId(3);
const NOW: u64 = 1_000;

/// A pseudo-random sequence (S. Vigna, splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    key: Vec<u8>,
    /// So that the newest version comes first.
    down: std::cmp::Reverse<u64>,
    header: String,
    value: Vec<u8>,
}

impl Written {
    fn of(record: &RecordRef<'_>, value: &[u8]) -> Written {
        Written {
            key: record.key.to_vec(),
            down: std::cmp::Reverse(record.header.seq.0),
            header: format!("{:?}", record.header),
            value: value.to_vec(),
        }
    }
}

/// The folder of a job, and what the job says.
struct Folder {
    fs: Sim,
    tables: u64,
    spent: u64,
    reclaimed: Vec<(u64, u64)>,
    forgotten: Seq,
}

impl Host for Folder {
    fn create_table(&mut self) -> Result<(TableId, u64, Box<dyn File>)> {
        self.tables += 1;
        let id = TableId(self.tables);
        let file = self
            .fs
            .create(&PathBuf::from("/").join(file_name::table(id)))?;
        Ok((id, 7 * self.tables, file))
    }

    fn spend(&mut self, bytes: u64) -> Result<()> {
        self.spent += bytes;
        Ok(())
    }

    fn reclaim(&mut self, millis: u64, bytes: u64) {
        self.reclaimed.push((millis, bytes));
    }

    fn forget(&mut self, seq: Seq) {
        self.forgotten = self.forgotten.max(seq);
    }
}

impl Folder {
    fn new(seed: u64) -> Folder {
        Folder {
            fs: Sim::new(seed),
            tables: 0,
            spent: 0,
            reclaimed: vec![],
            forgotten: Seq(0),
        }
    }

    fn open(&self, tables: &[FinishedTable]) -> Run {
        let space = TableSpace {
            fs: &self.fs,
            dir: &PathBuf::from("/"),
            cache: &Arc::new(BlockCache::new(1 << 20)),
            pins: &Arc::new(Pins::default()),
            reads: Reads::Map,
        };
        let records: Vec<TableRecord> = tables
            .iter()
            .map(|table| TableRecord {
                id: table.id,
                len: table.len,
                crc: table.crc,
            })
            .collect();
        let files = records.iter().map(|record| {
            TableFile::open(&space, CONTAINER, *record).expect("a table that was written")
        });
        let files = files.collect();
        let record = RunRecord {
            id: RunId(tables[0].id.0),
            end: None,
            end_assumes: DefaultMillis::Off,
            applied: Seq(0),
            tables: records,
        };
        Run::new(&record, files)
    }

    /// The records of a memtable as a run, none left out.
    fn run_of(&mut self, memtable: &Memtable, block_bytes: usize) -> Run {
        let (id, identity, file) = self.create_table().unwrap();
        let meta = TableMeta {
            id,
            identity,
            container: CONTAINER,
            settings: Settings::default(),
        };
        let options = TableOptions {
            block_bytes,
            compression: Compression::None,
        };
        let mut builder = TableBuilder::new(file, options, meta);
        let mut cursor = memtable.cursor();
        cursor.seek(Seek::First, None).unwrap();
        while let crate::data::cursor::Position::Record(record) = cursor.position() {
            builder.add(&record, cursor.value().unwrap()).unwrap();
            cursor.advance(None).unwrap();
        }
        let table = builder.finish().unwrap();
        self.open(&[table])
    }
}

/// Memtables with records of a history, each with those of its time; the oldest first.
fn memtables(random: &mut Random, count: u64) -> Vec<Memtable> {
    let (keys, mut seq) = (1 + random.below(60), 0);
    let plain = random.one_in(3);
    (0..count)
        .map(|_| {
            let memtable = Memtable::new();
            for _ in 0..1 + random.below(80) {
                seq += 1 + random.below(3);
                // Also keys that share more than eight bytes, and keys that begin others.
                let number = random.below(keys);
                let key = match number % 3 {
                    0 => format!("a shared beginning {number}"),
                    1 => format!("{number}"),
                    _ => "k".repeat(number as usize),
                };
                let written_at = Timestamp(random.below(NOW));
                let ttl = match random.below(4) {
                    _ if plain => ItemTtl::Never,
                    0 => ItemTtl::Absent,
                    1 => ItemTtl::Never,
                    _ => ItemTtl::Millis(1 + random.below(2 * NOW)),
                };
                let header = match random.one_in(6) {
                    true => Header::tombstone(Seq(seq), written_at),
                    false => Header {
                        kind: Kind::Put,
                        seq: Seq(seq),
                        written_at,
                        ttl,
                    },
                };
                let len = if random.one_in(40) {
                    20_000
                } else {
                    random.below(50)
                };
                let len = if header.is_tombstone() { 0 } else { len };
                let value = vec![seq as u8; len as usize];
                memtable.insert(header, key.as_bytes(), &value).unwrap();
            }
            memtable
        })
        .collect()
}

fn any_job(random: &mut Random, other_runs: Vec<Arc<Run>>, seq_max: u64) -> Job {
    let default = match random.below(3) {
        0 => DefaultMillis::Off,
        1 => DefaultMillis::NoDefault,
        _ => DefaultMillis::Millis(1 + random.below(NOW)),
    };
    let mut settings = Settings::new(default);
    if random.one_in(2) {
        settings.floor_seq = Seq(random.below(seq_max));
        settings.override_floor = Timestamp(random.below(NOW));
        settings.inherit_floor = Timestamp(random.below(NOW));
    }
    let some = |random: &mut Random, most: u64| -> Vec<u64> {
        let mut some: Vec<u64> = (0..random.below(most + 1))
            .map(|_| random.below(seq_max + 5))
            .collect();
        some.sort_unstable();
        some.dedup();
        some
    };
    let snapshots = some(random, 2).into_iter().map(Seq).collect();
    let ranges = some(random, 2).into_iter().map(|seq| RangeDelete {
        range: KeyRange {
            from: vec![b'0' + random.below(10) as u8],
            to: Some(b"b".to_vec()),
        },
        seq: Seq(seq + 1),
    });
    let range_deletes = vec![Arc::default(), Arc::new(ranges.collect::<RangeDeletes>())];
    let mut cuts: Vec<Timestamp> = (0..random.below(4))
        .map(|_| Timestamp(NOW + random.below(2 * NOW)))
        .collect();
    cuts.sort_unstable();
    cuts.push(Timestamp::MAX);
    Job {
        container: CONTAINER,
        view: ExpiryView::at(Timestamp(NOW), || settings),
        snapshots,
        other_runs,
        range_deletes,
        guards: match random.one_in(2) {
            true => vec![b"a shared".as_slice().into(), b"kkk".as_slice().into()],
            false => vec![],
        },
        least_table_bytes: 1,
        cuts: if random.one_in(3) { vec![] } else { cuts },
        options: TableOptions {
            block_bytes: 64 << random.below(4),
            compression: match random.one_in(3) {
                true => Compression::Lz4,
                false => Compression::None,
            },
        },
        table_bytes: 1 << (8 + random.below(6)),
        inputs: vec![],
        must_sample: Arc::default(),
    }
}

type Slots = BTreeMap<usize, Vec<Written>>;

/// The records that the job is to write, by slot.
fn plainly<C: Cursor>(job: &Job, mut sources: Merge<C>, reclaimed: &mut Vec<(u64, u64)>) -> Slots {
    let (mut group, mut decisions, mut slots) = (Group::default(), vec![], Slots::new());
    let mut older = OverlapProbe::new(job);
    while group
        .collect(&mut sources, job, &mut |millis, bytes| {
            reclaimed.push((millis, bytes))
        })
        .unwrap()
    {
        let mut older = older.of(&group.key);
        decide(
            &group.headers,
            &job.snapshots,
            &job.view,
            &mut older,
            &mut decisions,
        )
        .unwrap();
        for (at, decision) in decisions.iter().enumerate() {
            if let Some((record, value)) = group.left(at, decision) {
                let later = job.cuts.iter().position(|cut| *cut >= decision.obsolete_at);
                let slot = match decision.obsolete_at {
                    Timestamp::MAX => job.cuts.len(),
                    _ => later.unwrap_or(job.cuts.len()),
                };
                slots
                    .entry(slot)
                    .or_default()
                    .push(Written::of(&record, value));
            }
        }
    }
    slots
}

/// `plain` are other cursors on the same records.
fn check<C: Cursor, P: Cursor>(
    job: &Job,
    folder: &mut Folder,
    sources: impl Fn() -> Vec<C>,
    plain: impl Fn() -> Vec<P>,
) -> usize {
    let merge = || Merge::seek(sources(), Seek::First, None).unwrap();
    let plain = Merge::seek(plain(), Seek::First, None).unwrap();
    let mut reclaimed = vec![];
    let expected = plainly(job, plain, &mut reclaimed);
    folder.reclaimed.clear();
    folder.spent = 0;
    let outputs = run(job, merge(), folder).unwrap();
    assert_eq!(folder.reclaimed, reclaimed);
    let mut found = Slots::new();
    let mut bytes = 0;
    for output in &outputs {
        let run = folder.open(&output.tables);
        let mut cursor = RunCursor::new(run.shared.clone());
        cursor.seek(Seek::First, None).unwrap();
        while let crate::data::cursor::Position::Record(record) = cursor.position() {
            let written = Written::of(&record, cursor.value().unwrap());
            found.entry(output.slot).or_default().push(written);
            cursor.advance(None).unwrap();
        }
        for file in &run.files {
            let (first, last) = (file.table.first_key(), file.table.last_key());
            let mut guards = job.guards.iter().map(|guard| &guard[..]);
            assert!(guards.all(|guard| guard <= first || last < guard));
            file.table.verify().unwrap();
            bytes += file.record.len;
        }
    }
    assert_eq!(found, expected);
    assert_eq!(folder.spent, bytes, "the budget is asked for every byte");
    let shown = expected.into_values().flatten().count();
    let mut survived = 0;
    survivors(job, merge(), &mut |_, _| {
        survived += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(survived, shown);
    shown
}

#[test]
fn a_job_writes_what_the_verdict_says() {
    let mut written = 0;
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut folder = Folder::new(seed);
        let inside = 1 + random.below(4);
        let outside = random.below(3);
        let memtables = memtables(&mut random, outside + inside);
        let seq_max = memtables.last().unwrap().seq_max().0;
        let (outside, inside) = memtables.split_at(outside as usize);
        let other_runs: Vec<_> = outside
            .iter()
            .map(|memtable| Arc::new(folder.run_of(memtable, 256)))
            .collect();
        let job = any_job(&mut random, other_runs, seq_max);
        let cursors = || -> Vec<_> { inside.iter().map(Memtable::cursor).collect() };
        written += check(&job, &mut folder, cursors, cursors);
        let runs: Vec<_> = inside
            .iter()
            .map(|memtable| folder.run_of(memtable, 64 << random.below(5)))
            .collect();
        let tables = || runs.iter().map(|run| run.shared.clone());
        let readers = || -> Vec<_> { tables().map(RunReader::new).collect() };
        let cursors = || -> Vec<_> { tables().map(RunCursor::new).collect() };
        written += check(&job, &mut folder, readers, cursors);
    }
    assert!(written > 10_000, "{written} records");
}
