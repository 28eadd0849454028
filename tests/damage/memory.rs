//! Goal: a bit that flips in a memtable reaches no table. What flushes finds it, writes nothing, and no write is taken after it;
//! the log has the record as it was, so opening the database again has everything. No call stores a flipped record again. Nor
//! does a bit that flips in a block which was read and checked before reach the table of a merge, or the answer of a paranoid
//! read.
//!
//! Method: a bit of a random record in memory is flipped, then the memtable is flushed, or a call rewrites the record, and the
//! process is killed or the database dropped. Blocks are flipped in their file, which shares its memory with the map of it; where
//! files are read by calls, a merge that fails tells that it took nothing from the cache. `EBBTIDE_FLIPS=n` flips so many (400).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ebbtide::internals::flip_in_memory;
use ebbtide::{Batch, Compression, Container, Database, Error, Options, Reads, Ttl, Update};
use testkit::random::Random;
use testkit::stage::{PATH, Stage, after, pairs, seconds};

const ITEMS: usize = 40;

fn flips() -> u64 {
    let asked = std::env::var("EBBTIDE_FLIPS").ok();
    asked.map_or(400, |n| n.parse().expect("a number"))
}

fn is_memory(error: &Error) -> bool {
    match error {
        Error::Poisoned { cause } => matches!(**cause, Error::MemoryCorruption { .. }),
        error => matches!(error, Error::MemoryCorruption { .. }),
    }
}

fn filled(random: &mut Random) -> Stage {
    let stage = Stage::small();
    for n in 0..ITEMS {
        let ttl = match random.below(3) {
            0 => Ttl::Inherit,
            1 => Ttl::Never,
            _ => after(1_000_000 + random.below(1 << 40) as u64),
        };
        let value = vec![n as u8; random.below(200)];
        let put = stage.c.put_with_ttl(format!("k{n:02}"), value, ttl);
        put.expect("it is written");
    }
    for n in (0..ITEMS).filter(|n| n % 7 == 0) {
        let delete = stage.c.delete(format!("k{n:02}"));
        delete.expect("it is deleted");
    }
    stage
}

#[test]
fn a_flipped_bit_of_a_memtable_reaches_no_table() {
    let mut random = Random(1);
    for flip in 0..flips() {
        let stage = filled(&mut random);
        let before = pairs(stage.c.iter());
        let key = format!("k{:02}", random.below(ITEMS));
        let bit = random.below(1 << 20);
        assert!(flip_in_memory(&stage.c, key.as_bytes(), bit));
        let failed = stage.db.flush().expect_err("it is found");
        assert!(is_memory(&failed), "{flip}: {failed}");
        let refused = stage.c.put("more", "v").expect_err("no write is taken");
        assert!(is_memory(&refused), "{flip}: {refused}");
        assert_eq!(stage.c.stats().runs, 0, "{flip}: nothing was written");
        let stage = match flip % 2 {
            0 => stage.reopen(false),
            _ => {
                let sim = stage.sim.clone();
                stage.on(sim)
            }
        };
        assert_eq!(pairs(stage.c.iter()), before, "{flip}");
        stage.db.flush().expect("it is right in memory");
        assert_eq!(pairs(stage.c.iter()), before, "{flip}");
    }
}

#[test]
fn a_flipped_bit_of_a_memtable_is_no_answer_to_a_paranoid_read() {
    let mut random = Random(3);
    for flip in 0..flips() {
        let stage = filled(&mut random);
        let options = stage.options().paranoid_memory_checks(true);
        drop(stage.db);
        drop(stage.c);
        let db = options.open(PATH).expect("it opens");
        let c = db.container("c").expect("it is there");
        let before = pairs(c.iter());
        let (key, value) = &before[random.below(before.len())];
        assert!(flip_in_memory(&c, key.as_bytes(), random.below(1 << 20)));
        let is_refused = |read: ebbtide::Result<Option<ebbtide::Value>>| match read {
            Ok(None) => false,
            Ok(Some(read)) => panic!("{flip}: an answer, {:?} for {value:?}", &*read),
            Err(error) => is_memory(&error),
        };
        let (key, all) = (key.as_str(), || c.iter().rev().chain(c.iter()));
        let is_found = match flip % 4 {
            0 => is_refused(c.get(key)),
            1 => is_refused(c.get_many([key]).map(|mut all| all.remove(0))),
            2 => c.contains(key).is_err_and(|error| is_memory(&error)),
            _ => all().any(|item| item.is_err_and(|error| is_memory(&error))),
        };
        // A record whose key is another one now is not found under its own.
        let in_all = || c.iter().any(|item| item.is_err());
        assert!(is_found || in_all(), "{flip}");
        c.get("k99").expect("what is not there needs no check");
    }
}

/// It would be stored again, with a new check.
#[test]
fn a_flipped_bit_of_a_memtable_is_not_written_again() {
    let mut random = Random(2);
    for flip in 0..flips() {
        let stage = filled(&mut random);
        let before = pairs(stage.c.iter());
        let (key, _) = &before[random.below(before.len())];
        assert!(flip_in_memory(
            &stage.c,
            key.as_bytes(),
            random.below(1 << 20)
        ));
        let (db, c) = (&stage.db, &stage.c);
        let mut batch = Batch::new();
        let written = match flip % 8 {
            0 => c.touch(key),
            1 => c.expire(key, seconds(9)),
            2 => c.get_and_touch(key).map(|item| item.is_some()),
            3 => db.write(&*batch.rename(c, key, "renamed")).map(|_| false),
            4 => c.touch_until(key).map(|item| item.is_some()),
            5 => db.write(&*batch.touch(c, key)).map(|_| false),
            6 => c.update(key, |_| Update::Expire(Ttl::Never)),
            _ => db.transaction(|tx| tx.touch(c, key)),
        };
        // A record whose key is another one now is not found.
        assert!(!matches!(written, Ok(true)), "{flip}: {written:?}");
        let stage = stage.reopen(false);
        assert_eq!(pairs(stage.c.iter()), before, "{flip}");
    }
}

/// A database of two runs on the disk, all of which was read.
struct Tables {
    folder: tempfile::TempDir,
    db: Database,
    c: Container,
    before: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Tables {
    fn new(options: &Options, compression: Compression) -> Tables {
        let folder = tempfile::tempdir().unwrap();
        let options = options.clone().compression(compression);
        let db = options.open(folder.path()).unwrap();
        let c = db.container("c").unwrap();
        for run in 0..2 {
            for n in (run..400).step_by(2) {
                let len = if n % 40 == 0 { 20_000 } else { 90 };
                let value: Vec<u8> = (0..len).map(|i| (i * i + n) as u8).collect();
                c.put(format!("k{n:03}"), value).unwrap();
            }
            db.flush().unwrap();
        }
        let mut tables = Tables {
            folder,
            db,
            c,
            before: vec![],
        };
        tables.before = tables.all().expect("nothing is damaged");
        tables
    }

    /// All items, by gets and by a scan, which agree.
    fn all(&self) -> ebbtide::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let scanned = self.c.iter().map(|item| {
            let item = item?;
            let got = self.c.get(item.key())?;
            assert_eq!(got.as_deref(), Some(&item.value()[..]));
            Ok((item.key().to_vec(), item.value().to_vec()))
        });
        scanned.collect()
    }

    /// Flips a bit of the records of a table, in the file and so in its map.
    fn flip(&self, random: &mut Random) -> Flip {
        let names = fs::read_dir(self.folder.path().join("tables")).unwrap();
        let paths = names.map(|name| name.unwrap().path());
        let mut paths: Vec<_> = paths.filter(|path| is_table(path)).collect();
        paths.sort();
        let path = paths.swap_remove(random.below(paths.len()));
        let bytes = fs::read(&path).unwrap();
        // Where the filter begins, behind the zeros: docs/format.md.
        let filter_at = &bytes[bytes.len() - 72 + 16..][..8];
        let end = u64::from_le_bytes(filter_at.try_into().unwrap()) as usize;
        let end = bytes[..end].iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let flip = Flip {
            path,
            at: random.below(end) as u64,
            bit: random.below(8),
        };
        flip.turn();
        flip
    }
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|ends| ends == "table")
}

struct Flip {
    path: PathBuf,
    at: u64,
    bit: usize,
}

impl Flip {
    fn turn(&self) {
        let file = File::options().read(true).write(true).open(&self.path);
        let file = file.unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, self.at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << self.bit], self.at)
            .unwrap();
    }
}

const WAYS: [(Reads, Compression); 4] = [
    (Reads::Map, Compression::None),
    (Reads::Map, Compression::Lz4),
    (Reads::Pread, Compression::None),
    (Reads::Pread, Compression::Lz4),
];

#[test]
fn a_flipped_bit_of_a_block_in_memory_reaches_no_table() {
    let mut random = Random(4);
    for (reads, compression) in WAYS {
        let options = Options::new().reads(reads);
        for flip in 0..flips() / 40 {
            let tables = Tables::new(&options, compression);
            let flipped = tables.flip(&mut random);
            let merged = tables.db.compact();
            let is_found = matches!(merged, Err(Error::Corruption { .. }));
            assert!(is_found, "{flip}, {reads:?}: {merged:?}");
            // A map is what reads use; without one they may have a copy from before.
            let is_mapped = (reads, compression) == (Reads::Map, Compression::None);
            let read = tables.all();
            let is_refused = matches!(read, Err(Error::Corruption { .. }));
            assert!(is_refused || (!is_mapped && read.unwrap() == tables.before));
            flipped.turn();
            tables.db.compact().expect("all is as it was");
            assert_eq!(tables.all().unwrap(), tables.before, "{flip}");
        }
    }
}

#[test]
fn a_flipped_bit_of_a_block_in_memory_is_no_answer_to_a_paranoid_read() {
    let mut random = Random(5);
    for (reads, compression) in WAYS {
        let options = Options::new().reads(reads).paranoid_memory_checks(true);
        let tables = Tables::new(&options, compression);
        for flip in 0..flips() / 10 {
            let flipped = tables.flip(&mut random);
            let read = tables.all();
            let is_found = matches!(read, Err(Error::Corruption { .. }));
            assert!(is_found, "{flip}, {reads:?}");
            flipped.turn();
            assert_eq!(tables.all().unwrap(), tables.before, "{flip}");
        }
    }
}
