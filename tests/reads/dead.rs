//! Goal: dead records are not read. Method: the bytes of dead records on a simulated disk are damaged; reading them
//! would be an error, because every block and every large value has a checksum.

use std::path::Path;

use ebbtide::internals::{Fs, Sim};
use ebbtide::{Compression, Container, Database, DefaultTtl, ManualClock, Ttl};
use testkit::random::Random;
use testkit::stage::{NOW, after, default, in_steps, seconds};

const MARK: &[u8] = b"<of the living>";

fn open(sim: &Sim, clock: &ManualClock) -> (Database, Container) {
    let db = in_steps(sim, clock)
        .sizes(512, 1 << 20, 16 << 20)
        .open("/db")
        .unwrap();
    let c = db.container("c").unwrap();
    (db, c)
}

fn key(n: u32) -> Vec<u8> {
    format!("key-{n:06}").into_bytes()
}

/// Writes over what `place` says of every table's bytes, after a close.
fn spoil(sim: &Sim, place: impl Fn(&[u8]) -> Vec<std::ops::Range<usize>>) {
    let folder = Path::new("/db/tables");
    for name in sim.list(folder).unwrap() {
        let path = folder.join(name);
        let bytes = sim.read(&path).unwrap();
        let file = sim.open(&path).unwrap();
        for range in place(&bytes) {
            let wrong: Vec<u8> = bytes[range.clone()]
                .iter()
                .map(|byte| byte ^ 0x55)
                .collect();
            file.write_at(range.start as u64, &wrong).unwrap();
        }
    }
}

/// Where the blocks and large values of a table end.
fn data_end(bytes: &[u8]) -> usize {
    let footer = &bytes[bytes.len() - 72..];
    u64::from_le_bytes(footer[16..24].try_into().unwrap()) as usize
}

/// All data but some kilobytes around the marks of the living.
fn around_the_living(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let end = data_end(bytes);
    let marks = bytes[..end].windows(MARK.len()).enumerate();
    let marks = marks.filter(|(_, window)| *window == MARK);
    let (mut dead, mut at) = (vec![], 0);
    for (mark, _) in marks {
        if at + 2_000 < mark {
            dead.push(at..mark - 2_000);
        }
        at = mark + 2_000;
    }
    if at < end {
        dead.push(at..end);
    }
    dead
}

#[test]
fn the_large_value_of_an_expired_item_is_not_read() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
        let (db, _) = open(&sim, &clock);
        let options = ebbtide::ContainerOptions::new().compression(compression);
        let c = db.container_with("large", options).unwrap();
        c.set_default_ttl(default(60_000)).unwrap();
        let mut random = Random(1);
        let value: Vec<u8> = (0..100_000).map(|_| random.next() as u8 & 15).collect();
        c.put("large", &value).unwrap();
        c.put_with_ttl("small", MARK, Ttl::Never).unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        // A dated table begins with its large value.
        spoil(&sim, |bytes| {
            let has_large = data_end(bytes) > 1_000;
            has_large.then_some(0..1_000).into_iter().collect()
        });
        let (db, _) = open(&sim, &clock);
        let c = db.container("large").unwrap();
        assert!(c.get("large").unwrap_err().is_corruption());
        assert!(c.contains("large").unwrap(), "a value is not asked for");
        clock.advance(seconds(60));
        assert!(c.get("large").unwrap().is_none());
        assert!(c.item("large").unwrap().is_none());
        assert_eq!(c.iter().map(Result::unwrap).count(), 1);
        assert!(!c.replace("large", "other", Ttl::Inherit).unwrap());
        assert!(c.create("large", "other", Ttl::Inherit).unwrap());
        db.close().unwrap();
    }
}

/// Items that are dead, by whatever means, with a few that live: scans both ways, in parts, right after open.
#[test]
fn blocks_of_the_dead_are_not_read() {
    for death in [
        "expired",
        "deleted by range",
        "expired under a changed default",
    ] {
        let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
        let (db, c) = open(&sim, &clock);
        let lives = |n: u32| n % 4_000 == 1_999;
        // One run: else the living, in a run of their own, have what lies around them read.
        if death != "expired" {
            c.set_default_ttl(DefaultTtl::Off).unwrap();
        }
        for n in 0..20_000 {
            match lives(n) {
                true => c.put_with_ttl(key(n), MARK, after(86_400_000)),
                false if death == "expired" => c.put_with_ttl(key(n), [9; 60], after(60_000)),
                false => c.put(key(n), [9; 60]),
            }
            .unwrap();
        }
        db.flush().unwrap();
        match death {
            "deleted by range" => {
                for living in (1_999..20_000).step_by(4_000) {
                    let from = living - 1_999;
                    c.delete_range(key(from)..key(living)).unwrap();
                    c.delete_range(key(living + 1)..key(from + 4_000)).unwrap();
                }
            }
            "expired" => {}
            _ => {
                clock.advance(seconds(60));
                let minute = default(60_000);
                c.set_default_ttl(minute).unwrap();
                c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
            }
        }
        db.close().unwrap();
        spoil(&sim, around_the_living);
        let (_db, c) = open(&sim, &clock);
        clock.advance(seconds(60));
        let living: Vec<Vec<u8>> = (0..20_000).filter(|n| lives(*n)).map(key).collect();
        let keys = |items: &mut dyn Iterator<Item = ebbtide::Result<ebbtide::Item>>| {
            items
                .map(|item| item.unwrap().key().to_vec())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&mut c.iter()), living, "{death}");
        let backwards: Vec<_> = living.iter().rev().cloned().collect();
        assert_eq!(keys(&mut c.iter().rev()), backwards, "{death}");
        assert_eq!(keys(&mut c.prefix("key-00")), living[..3], "{death}");
        assert_eq!(
            keys(&mut c.range(key(5_000)..key(13_000))),
            living[1..3],
            "{death}"
        );
        assert!(keys(&mut c.range(key(6_500)..key(9_000))).is_empty());
    }
}

/// The front of a queue, after others were taken from it; a scan has been there before.
#[test]
fn what_was_deleted_one_by_one_is_passed_over_unread() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = in_steps(&sim, &clock)
        .reads(ebbtide::Reads::Pread)
        .cache_bytes(0)
        .sizes(512, 1 << 20, 16 << 20)
        .open("/db")
        .unwrap();
    let c = db.container("c").unwrap();
    (0..5_000).for_each(|n| c.put(key(n), [9; 60]).unwrap());
    db.flush().unwrap();
    (0..5_000).for_each(|n| c.delete(key(n)).unwrap());
    db.flush().unwrap();
    assert!(c.is_empty().unwrap());
    spoil(&sim, |bytes| Some(0..data_end(bytes)).into_iter().collect());
    assert!(c.is_empty().unwrap());
    assert_eq!(c.count(..).unwrap(), 0);
    assert!(c.last().unwrap().is_none());
    c.put(key(9_999), "v").unwrap();
    assert_eq!(c.first().unwrap().unwrap().key(), key(9_999));
    // A transaction would read them.
    assert!(db.begin().range(&c, ..).next().unwrap().is_err());
}

#[test]
fn a_random_item_reads_little() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let (db, c) = open(&sim, &clock);
    (0..5_000).for_each(|n| c.put(key(n), [9; 60]).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    spoil(&sim, |_| Some(0..1_000).into_iter().collect());
    let (_db, c) = open(&sim, &clock);
    assert!(c.count(..).unwrap_err().is_corruption());
    assert!((0..10).any(|_| c.random().is_ok_and(|item| item.is_some())));
}
