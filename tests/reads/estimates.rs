//! Goal: the estimates of `stats()` for a container are within 5 % of the stored bytes, whatever it holds and however
//! its default changes.
//!
//! Method: containers of many shapes on a simulated disk. At every check the tables' files are read record by record,
//! and the contents of memory are known; each record is judged by the definition: gone if it ever was, under the
//! default at that time; hidden by a newer version or a range delete. The sums are compared with the estimates.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use ebbtide::internals::{
    Cursor, Expected, Fs, ItemTtl, Position, Seek, Sim, Table, parse_manifest,
};
use ebbtide::{
    Compression, Container, ContainerOptions, ContainerStats, Database, DefaultTtl, ManualClock,
    Options, Ttl,
};
use testkit::random::Random;
use testkit::stage::{NOW, after, default, in_steps, ms};

#[derive(Clone, Copy, PartialEq)]
enum Standard {
    Off,
    NoDefault,
    After(u64),
}

impl Standard {
    fn public(self) -> DefaultTtl {
        match self {
            Standard::Off => DefaultTtl::Off,
            Standard::NoDefault => DefaultTtl::NoDefault,
            Standard::After(millis) => default(millis),
        }
    }

    fn ends(self, record: &Record, now: u64) -> bool {
        match (self, record.ttl) {
            (Standard::Off, _) | (_, ItemTtl::Never) => false,
            (_, ItemTtl::Millis(millis)) => record.written_at + millis <= now,
            (Standard::After(millis), ItemTtl::Absent) => record.written_at + millis <= now,
            (Standard::NoDefault, ItemTtl::Absent) => false,
        }
    }
}

struct Record {
    key: Vec<u8>,
    order: u64,
    written_at: u64,
    ttl: ItemTtl,
    is_tombstone: bool,
    weight: u64,
}

#[derive(Debug, Default)]
struct Truth {
    records: u64,
    live_items: u64,
    live: u64,
    expired: u64,
    superseded: u64,
    tombstones: u64,
}

struct Stage {
    sim: Sim,
    clock: ManualClock,
    db: Database,
    c: Container,
    now: u64,
    standard: Standard,
    /// When the default changed, and what it was until then.
    changes: Vec<(u64, Standard)>,
    ranges: Vec<(u64, Vec<u8>, Vec<u8>)>,
    unflushed: Vec<Record>,
    /// The records of the tables that there were at the last look, by its number and checksum.
    walked: RefCell<BTreeMap<(u64, u32), Vec<Record>>>,
    written: u64,
}

fn options(sim: &Sim, clock: &ManualClock, table_bytes: u64) -> Options {
    in_steps(sim, clock)
        .sizes(4 << 10, table_bytes, 16 << 20)
        .background_rate(1 << 40)
}

/// Tables are of some 128 KiB, so that runs have many, or of any size.
fn stage(table_bytes: u64, compression: Compression) -> Stage {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = options(&sim, &clock, table_bytes).open("/db").unwrap();
    let options = ContainerOptions::new().compression(compression);
    let c = db.container_with("c", options).unwrap();
    Stage {
        sim,
        clock,
        db,
        c,
        now: NOW,
        standard: Standard::Off,
        changes: vec![],
        ranges: vec![],
        unflushed: vec![],
        walked: RefCell::default(),
        written: 0,
    }
}

fn big() -> Stage {
    stage(64 << 20, Compression::None)
}

fn small() -> Stage {
    stage(128 << 10, Compression::None)
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:07}").into_bytes()
}

impl Stage {
    fn record(&mut self, n: u64, ttl: ItemTtl, value_len: Option<usize>) {
        self.written += 1;
        self.unflushed.push(Record {
            key: key(n),
            order: (1 << 60) + self.written,
            written_at: self.now,
            ttl,
            is_tombstone: value_len.is_none(),
            weight: key(n).len() as u64 + value_len.unwrap_or(0) as u64 + 16,
        });
    }

    fn put(&mut self, n: u64, len: usize, ttl: ItemTtl) {
        let public = match ttl {
            ItemTtl::Absent => Ttl::Inherit,
            ItemTtl::Never => Ttl::Never,
            ItemTtl::Millis(millis) => after(millis),
        };
        self.c.put_with_ttl(key(n), vec![7; len], public).unwrap();
        self.record(n, ttl, Some(len));
    }

    fn delete(&mut self, n: u64) {
        self.c.delete(key(n)).unwrap();
        self.record(n, ItemTtl::Absent, None);
    }

    fn delete_range(&mut self, from: u64, to: u64) {
        self.c.delete_range(key(from)..key(to)).unwrap();
        self.ranges.push((self.now, key(from), key(to)));
        self.pass(1);
    }

    fn set(&mut self, standard: Standard) {
        self.c.set_default_ttl(standard.public()).unwrap();
        self.changes.push((self.now, self.standard));
        self.standard = standard;
        self.pass(1);
    }

    fn pass(&mut self, millis: u64) {
        self.clock.advance(ms(millis));
        self.now += millis;
    }

    /// The process dies; what the log holds comes back.
    fn reopen(&mut self) {
        self.sim = self.sim.kill();
        self.db = options(&self.sim, &self.clock, 64 << 20)
            .open("/db")
            .unwrap();
        self.c = self.db.container("c").unwrap();
    }

    fn flush(&mut self) {
        self.db.flush().unwrap();
        self.unflushed.clear();
    }

    /// Walks the tables that are new, for a table never changes.
    fn walk(&self) {
        let mut names = self.sim.list(Path::new("/db")).unwrap();
        names.retain(|name| name.starts_with("manifest-"));
        let manifest = Path::new("/db").join(names.iter().max().unwrap());
        let (catalogue, _) = parse_manifest(&manifest, &self.sim.read(&manifest).unwrap()).unwrap();
        let mut known = self.walked.take();
        let mut walked = BTreeMap::new();
        for (id, container) in &catalogue.containers {
            for table in container.runs.iter().flat_map(|run| &run.tables) {
                let table_key = (table.id.0, table.crc);
                let records = known.remove(&table_key);
                let expected = Expected {
                    id: table.id,
                    container: *id,
                    len: table.len,
                    crc: table.crc,
                };
                walked.insert(
                    table_key,
                    records.unwrap_or_else(|| self.records_of(expected)),
                );
            }
        }
        self.walked.replace(walked);
    }

    fn records_of(&self, expected: Expected) -> Vec<Record> {
        let path = Path::new("/db/tables").join(format!("{:06}.table", expected.id.0));
        let bytes = self.sim.map(&path).unwrap();
        let table = Arc::new(Table::open(bytes, path, expected, None).unwrap());
        let (mut cursor, mut records) = (table.cursor(), Vec::new());
        cursor.seek(Seek::First, None).unwrap();
        while let Position::Record(record) = cursor.position() {
            records.push(Record {
                key: record.key.to_vec(),
                order: record.header.seq.0,
                written_at: record.header.written_at.0,
                ttl: record.header.ttl,
                is_tombstone: record.header.is_tombstone(),
                weight: (record.key.len() + record.value_len + 16) as u64,
            });
            cursor.advance(None).unwrap();
        }
        records
    }

    fn truth(&self) -> Truth {
        self.walk();
        let walked = self.walked.borrow();
        // Those of the files, walked, and those in memory, remembered.
        let records = || walked.values().flatten().chain(&self.unflushed);
        let mut newest = HashMap::new();
        for record in records() {
            let order: &mut u64 = newest.entry(&record.key[..]).or_default();
            *order = record.order.max(*order);
        }
        let mut truth = Truth::default();
        for record in records() {
            let was_ended =
                |(at, then): &(u64, Standard)| record.written_at <= *at && then.ends(record, *at);
            let covers = |(at, from, to): &(u64, Vec<u8>, Vec<u8>)| {
                record.written_at <= *at && *from <= record.key && record.key < *to
            };
            truth.records += 1;
            if record.is_tombstone {
                truth.tombstones += record.weight;
            } else if self.standard.ends(record, self.now) || self.changes.iter().any(was_ended) {
                truth.expired += record.weight;
            } else if newest[&record.key[..]] > record.order || self.ranges.iter().any(covers) {
                truth.superseded += record.weight;
            } else {
                truth.live += record.weight;
                truth.live_items += 1;
            }
        }
        truth
    }

    /// Holds the estimates to the truth, `off` hundredths of what is stored at most.
    fn check_within(&self, what: &str, off: u64) -> (Truth, ContainerStats) {
        let (truth, stats) = (self.truth(), self.c.stats());
        let stored = truth.live + truth.expired + truth.superseded + truth.tombstones;
        let said = format!("{what}: {truth:?}, {stats:?}\n{}", self.db.describe());
        assert_eq!(stats.stored_bytes, stored, "{said}");
        assert_eq!(stats.tombstone_bytes, truth.tombstones, "{said}");
        let parts = [
            stats.live_bytes,
            stats.expired_bytes,
            stats.superseded_bytes,
        ];
        assert_eq!(
            parts.iter().sum::<u64>() + truth.tombstones,
            stored,
            "{said}"
        );
        for (part, is) in parts
            .into_iter()
            .zip([truth.live, truth.expired, truth.superseded])
        {
            assert!(
                part.abs_diff(is) * 100 <= stored * off,
                "{part} for {is}: {said}"
            );
        }
        let items = stats.live_items;
        assert!(
            items.abs_diff(truth.live_items) * 100 <= truth.records * off,
            "items, {said}"
        );
        assert_eq!(self.c.len_estimate(), items);
        let all = self.db.stats();
        assert_eq!(
            (
                all.live_bytes,
                all.expired_bytes,
                all.superseded_bytes,
                all.stored_bytes
            ),
            (
                stats.live_bytes,
                stats.expired_bytes,
                stats.superseded_bytes,
                stored
            )
        );
        (truth, stats)
    }

    fn check(&self, what: &str) {
        self.check_within(what, 5);
    }

    /// At some moments up to `millis` from now.
    fn check_on(&mut self, what: &str, millis: u64) {
        for part in 0..6 {
            self.check(&format!("{what}, {part} sixths later"));
            self.pass(millis / 6);
        }
    }
}

/// From 1 to 10^5 of `unit`, log-normal: the sum of twelve even numbers is as good as normal.
fn log_normal(random: &mut Random, unit: f64) -> ItemTtl {
    let normal = (0..12).map(|_| random.below(1 << 20) as f64 / (1 << 20) as f64);
    let orders = 2.5 + (normal.sum::<f64>() - 6.0) * 0.8;
    ItemTtl::Millis((unit * 10f64.powf(orders)).max(1.0) as u64)
}

#[test]
fn even_and_wide_lifetimes() {
    for wide in [false, true] {
        let (mut stage, mut random) = (big(), Random(1));
        stage.set(Standard::NoDefault);
        for n in 0..20_000 {
            let even = ItemTtl::Millis(1 + random.below(60_000) as u64);
            let ttl = if wide {
                log_normal(&mut random, 50.0)
            } else {
                even
            };
            stage.put(n * 7_919 % 20_011, 40 + random.below(100), ttl);
            stage.pass(u64::from(n % 10 == 0));
        }
        stage.check("in memory");
        stage.flush();
        for _ in 0..14 {
            stage.check(if wide { "wide" } else { "even" });
            stage.pass(if wide { stage.now - NOW + 10 } else { 5_000 });
        }
    }
}

/// One item in a hundred has 100 kB, and with it nine tenths of the bytes.
#[test]
fn few_large_values() {
    let (mut stage, mut random) = (big(), Random(2));
    stage.set(Standard::NoDefault);
    for round in 0..2 {
        for n in 0..6_000u64 {
            if round == 0 || random.one_in(3) {
                let len = if random.one_in(100) { 100_000 } else { 100 };
                let ttl = ItemTtl::Millis(10_000 + random.below(100_000) as u64);
                stage.put(n, len, ttl);
            }
            stage.pass(u64::from(n % 10 == 0));
        }
        stage.check("in memory");
        stage.flush();
        stage.check_on("flushed", 20_000);
    }
    stage.check_on("both", 100_000);
}

/// Two runs of large values, the older one hidden in part: by small ones, by deletes, or by any.
#[test]
fn large_values_that_are_hidden() {
    for hides in ["the large", "the small", "half of all"] {
        let (mut stage, mut random) = (big(), Random(3));
        let mut lens = vec![];
        for n in 0..6_000u64 {
            lens.push(if random.one_in(100) { 100_000 } else { 100 });
            stage.put(n, lens[n as usize], ItemTtl::Never);
        }
        stage.flush();
        for (n, len) in lens.iter().enumerate() {
            let hide = match hides {
                "the large" => *len > 100,
                "the small" => *len == 100 && n % 2 == 0,
                _ => random.one_in(2),
            };
            match hide {
                true if n % 3 == 0 => stage.delete(n as u64),
                true => stage.put(n as u64, 10, ItemTtl::Never),
                false => {}
            }
        }
        stage.check(hides);
        stage.flush();
        stage.check(hides);
    }
}

/// One item in a thousand has 1 MB, and with it four fifths of the bytes. Half of these are replaced by small ones.
#[test]
fn very_large_values_that_are_hidden() {
    let (mut stage, mut random) = (big(), Random(7));
    let large = |n: u64| n % 1_000 == 500;
    for n in 0..10_000u64 {
        let len = if large(n) { 1_000_000 } else { 200 };
        stage.put(n, len, ItemTtl::Never);
    }
    stage.flush();
    for n in (0..10_000u64).filter(|&n| large(n)) {
        if random.one_in(2) {
            stage.put(n, 10, ItemTtl::Never);
        }
    }
    stage.check("in memory");
    stage.flush();
    stage.check("flushed");
}

#[test]
fn overwrites_refreshes_and_deletes() {
    for make in [big, small] {
        let (mut stage, mut random) = (make(), Random(4));
        stage.set(Standard::After(40_000));
        for round in 0..6 {
            for n in 0..4_000 {
                // Half of the keys are refreshed again and again, one in forty is hot.
                let n = if random.one_in(2) {
                    n % 2_000
                } else {
                    random.below(20_000) as u64
                };
                match random.below(10) {
                    0 => stage.delete(n),
                    1 => stage.put(random.below(40) as u64, 30, ItemTtl::Absent),
                    2 => stage.put(n, 200, ItemTtl::Millis(15_000)),
                    3 => stage.put(n, 200, ItemTtl::Never),
                    _ => stage.put(n, random.below(150), ItemTtl::Absent),
                }
                stage.pass(u64::from(n % 2 == 0));
            }
            stage.check("half in memory");
            if round != 4 {
                stage.flush();
                stage.check("flushed");
            }
        }
        stage.check_on("waiting", 60_000);
        stage.flush();
        stage.db.compact().unwrap();
        stage.check("compacted");
    }
}

#[test]
fn range_deletes_that_cover_parts() {
    for make in [big, small] {
        let mut stage = make();
        for n in 0..12_000 {
            stage.put(n, 100, ItemTtl::Absent);
        }
        stage.delete_range(0, 2_000);
        stage.check("over a memtable");
        stage.flush();
        stage.delete_range(1_000, 5_000);
        stage.check("over part of a table");
        for n in 3_000..4_000 {
            stage.put(n, 100, ItemTtl::Millis(10_000));
        }
        stage.check("written again");
        stage.flush();
        stage.delete_range(3_500, 3_700);
        stage.delete_range(11_000, 30_000);
        stage.check("over part of two");
        stage.set(Standard::After(60_000));
        stage.check_on("expiring", 70_000);
    }
}

/// A few that come after a range delete of many are told exactly, in memory, when they are brought back from the log, and
/// when they are flushed.
#[test]
fn few_that_come_after_a_range_delete() {
    let mut stage = big();
    for n in 0..50_000 {
        stage.put(n, 10, ItemTtl::Absent);
    }
    stage.delete_range(0, 1_000_000);
    let (truth, _) = stage.check_within("none", 0);
    assert_eq!(truth.live_items, 0);
    for n in 0..100 {
        stage.put(n * 700, 10, ItemTtl::Absent);
    }
    let (truth, stats) = stage.check_within("a hundred", 0);
    assert_eq!((truth.live_items, stats.live_items), (100, 100));
    for _ in 0..2 {
        stage.reopen();
        assert_eq!(stage.c.len_estimate(), 100, "brought back");
    }
    stage.flush();
    assert_eq!(stage.c.len_estimate(), 100, "flushed");
}

/// Puts, overwrites, deletes and range deletes of every width, some flushed and most not.
#[test]
fn range_deletes_in_memory() {
    for seed in 10..18 {
        let (mut stage, mut random) = (big(), Random(seed));
        stage.set(Standard::NoDefault);
        for round in 0..24 {
            for _ in 0..100 + random.below(4_000) {
                let n = random.below(30_000) as u64;
                match random.below(12) {
                    0 => stage.delete(n),
                    1 => stage.put(n, 100, ItemTtl::Millis(1 + random.below(4_000) as u64)),
                    _ => stage.put(n, random.below(120), ItemTtl::Absent),
                }
            }
            for _ in 0..random.below(4) {
                let width = [30, 3_000, 30_000][random.below(3)];
                let from = random.below(30_000) as u64;
                stage.pass(1);
                stage.delete_range(from, from + 1 + random.below(width) as u64);
            }
            stage.check(&format!("seed {seed}, round {round}"));
            if random.one_in(8) {
                stage.flush();
            }
            stage.pass(100);
        }
    }
}

/// Few enough items are told exactly.
#[test]
fn few_items_are_counted() {
    let mut stage = big();
    for n in 0..100 {
        stage.put(n, 10, ItemTtl::Absent);
    }
    stage.check_within("in memory", 0);
    stage.flush();
    stage.delete_range(10, 30);
    (50..60).for_each(|n| stage.delete(n));
    (60..75).for_each(|n| stage.put(n, 1_000, ItemTtl::Millis(500)));
    stage.check_within("a table and a memtable", 0);
    stage.flush();
    stage.check_within("two tables", 0);
    stage.set(Standard::NoDefault);
    stage.pass(500);
    let (truth, stats) = stage.check_within("expired", 0);
    assert_eq!((truth.live_items, stats.live_items), (55, 55));
}

/// Off, a lifetime, none, another one: what was over stays over, and the estimates know it from the first moment.
/// Such a write has the moment of what the change has ended for good, and lives.
#[test]
fn few_items_of_the_millisecond_of_a_change_are_counted() {
    let clock = ManualClock::new(NOW);
    let folder = tempfile::tempdir().unwrap();
    let db = Options::new().clock(clock.clone());
    let c = db.open(folder.path()).unwrap().container("c").unwrap();
    c.put_with_ttl("ended", "v", ms(5)).unwrap();
    c.put("lives", "v").unwrap();
    clock.advance(ms(5));
    c.set_default_ttl(DefaultTtl::Off).unwrap();
    c.put_with_ttl("at once", "v", Ttl::Until(UNIX_EPOCH))
        .unwrap();
    c.put_with_ttl("hidden", "v", Ttl::Until(UNIX_EPOCH))
        .unwrap();
    c.put("hidden", "v").unwrap();
    let count = c.count(..).unwrap();
    assert_eq!((c.len_estimate(), count), (3, 3));
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    assert_eq!((c.len_estimate(), c.count(..).unwrap()), (2, 2));
}

#[test]
fn changes_of_the_default() {
    for make in [big, small] {
        let (mut stage, mut random) = (make(), Random(5));
        let write = |stage: &mut Stage, random: &mut Random| {
            for _ in 0..5_000 {
                let ttl = match random.below(4) {
                    0 => ItemTtl::Never,
                    1 => ItemTtl::Millis(1 + random.below(40_000) as u64),
                    _ => ItemTtl::Absent,
                };
                stage.put(random.below(100_000) as u64, random.below(200), ttl);
                stage.pass(2);
            }
        };
        for standard in [
            Standard::After(12_000),
            Standard::Off,
            Standard::NoDefault,
            Standard::After(30_000),
            Standard::Off,
            Standard::After(3_000),
            Standard::NoDefault,
        ] {
            write(&mut stage, &mut random);
            stage.check("in memory");
            stage.set(standard);
            stage.check("changed");
            write(&mut stage, &mut random);
            stage.check("on both sides of the change");
            stage.flush();
            stage.check_on("flushed", 6_000);
        }
    }
}

/// One run of one table, and many small ones over it.
#[test]
fn one_big_table_and_many_small_ones() {
    let (mut stage, mut random) = (big(), Random(6));
    stage.set(Standard::NoDefault);
    for n in 0..30_000 {
        stage.put(n, 60, ItemTtl::Millis(20_000 + n * 3));
    }
    stage.flush();
    for _ in 0..20 {
        for _ in 0..300 {
            let n = random.below(40_000) as u64;
            stage.put(n, 60, ItemTtl::Millis(10_000 + n));
        }
        stage.pass(500);
        stage.flush();
    }
    stage.check_on("many tables", 100_000);
}

#[test]
fn packed_containers() {
    let (mut stage, mut random) = (stage(64 << 10, Compression::Lz4), Random(7));
    stage.set(Standard::After(5_000));
    for n in 0..10_000 {
        stage.put(n, 50 + random.below(400), ItemTtl::Absent);
        stage.pass(1);
        if n % 3_000 == 2_999 {
            stage.flush();
        }
    }
    stage.check_on("packed", 6_000);
}
