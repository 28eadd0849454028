//! Goal: a memtable is a sorted map from (key, sequence number) to records, also for readers during writes. Method:
//! compared with the standard library's map, over many shapes of keys; threads that know what they must see.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::base::record::Kind;
use crate::base::{ItemTtl, Timestamp};
use crate::data::cursor::{Cursor, Position, Seek};
use crate::data::lend::lent::CertainView;
use crate::data::range_tombstones::{Fragments, RangeTombstones};
use crate::data::view::{Horizon, Walk};
use crate::expiry::ExpiryCheck;
use crate::expiry::{Census, DefaultMillis, ExpiryView, ExpiryViews, Settings};

/// Miri is some thousand times slower: for it, just enough that nodes split.
const fn scaled(count: u64) -> u64 {
    if cfg!(miri) { 100 + count / 500 } else { count }
}

/// A small pseudo-random generator (G. Steele and others, SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Key up, sequence number down.
type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), (Header, Vec<u8>)>;

fn header_of(dice: &mut Dice, seq: u64) -> Header {
    let written_at = Timestamp(dice.next() >> dice.below(64));
    if dice.below(5) == 0 {
        return Header::tombstone(Seq(seq), written_at);
    }
    Header {
        kind: Kind::Put,
        seq: Seq(seq),
        written_at,
        ttl: match dice.below(3) {
            0 => ItemTtl::Absent,
            1 => ItemTtl::Never,
            _ => ItemTtl::Millis(dice.below(1 << 40)),
        },
    }
}

fn value_of(header: &Header, dice: &mut Dice) -> Vec<u8> {
    let len = match header.kind {
        Kind::Tombstone => 0,
        Kind::Put if dice.below(50) == 0 => 600 + dice.below(5_000),
        Kind::Put => dice.below(40),
    };
    (0..len).map(|at| (at + header.seq.0) as u8).collect()
}

fn get(memtable: &Memtable, key: &[u8], max: u64) -> Option<(Header, Vec<u8>)> {
    let entry = memtable.get(hash_key(key), key, Seq(max))?;
    Some((entry.header, entry.value_bytes().unwrap().to_vec()))
}

fn model_get(model: &Model, key: &[u8], max: u64) -> Option<(Header, Vec<u8>)> {
    let from = (key.to_vec(), std::cmp::Reverse(max));
    let (found, record) = model.range(from..).next()?;
    (found.0 == key).then(|| record.clone())
}

/// The record under the cursor, by every way to read it.
fn here(cursor: &MemCursor) -> Option<(Vec<u8>, Header, Vec<u8>)> {
    match cursor.position() {
        Position::End => None,
        Position::DeadSpan(_) => panic!("a memtable has no dead spans"),
        Position::Record(record) => {
            let value = cursor.value().unwrap().to_vec();
            assert_eq!(record.value_len, value.len());
            let pair = cursor.pair().unwrap();
            assert_eq!((pair.key(), &pair.value()[..]), (record.key, &value[..]));
            assert_eq!(cursor.value_bytes().unwrap(), value);
            Some((record.key.to_vec(), record.header, value))
        }
    }
}

fn model_seek(model: &Model, to: Seek<'_>) -> Option<(Vec<u8>, u64)> {
    use std::cmp::Reverse;
    let first = |key: &[u8]| (key.to_vec(), Reverse(u64::MAX));
    let last = |key: &[u8]| (key.to_vec(), Reverse(0));
    let found = match to {
        Seek::First => model.first_key_value(),
        Seek::AtOrAfter(key) => model.range(first(key)..).next(),
        Seek::After(key) => model
            .range((Bound::Excluded(last(key)), Bound::Unbounded))
            .next(),
        Seek::Last => model.last_key_value(),
        Seek::AtOrBefore(key) => model.range(..=last(key)).next_back(),
        Seek::Before(key) => model.range(..first(key)).next_back(),
    };
    found.map(|((key, seq), _)| (key.clone(), seq.0))
}

fn check_seeks(model: &Model, cursor: &mut MemCursor, key: &[u8], dice: &mut Dice) {
    for to in [
        Seek::First,
        Seek::AtOrAfter(key),
        Seek::After(key),
        Seek::Last,
        Seek::AtOrBefore(key),
        Seek::Before(key),
    ] {
        cursor.seek(to, None).unwrap();
        let mut expected = model_seek(model, to);
        // Some steps from there, in both directions.
        for _ in 0..3 {
            let place = here(cursor).map(|(key, header, _)| (key, header.seq.0));
            assert_eq!(place, expected, "{to:?}");
            let Some((key, seq)) = expected else { break };
            let at = (key, std::cmp::Reverse(seq));
            let next = if dice.below(3) == 0 {
                cursor.retreat(None).unwrap();
                model.range(..at).next_back()
            } else {
                cursor.advance(None).unwrap();
                model.range((Bound::Excluded(at), Bound::Unbounded)).next()
            };
            expected = next.map(|((key, seq), _)| (key.clone(), seq.0));
        }
    }
}

fn check_walks(model: &Model, cursor: &mut MemCursor) {
    let all = || {
        model
            .iter()
            .map(|((key, _), (header, value))| (key.clone(), *header, value.clone()))
    };
    cursor.seek(Seek::First, None).unwrap();
    for expected in all() {
        assert_eq!(here(cursor), Some(expected));
        cursor.advance(None).unwrap();
    }
    assert_eq!(here(cursor), None);
    cursor.seek(Seek::Last, None).unwrap();
    for expected in all().rev() {
        assert_eq!(here(cursor), Some(expected));
        cursor.retreat(None).unwrap();
    }
    assert_eq!(here(cursor), None);
    cursor.advance(None).unwrap();
    cursor.retreat(None).unwrap();
    assert_eq!(here(cursor), None, "from nowhere to nowhere");
}

/// Random histories of `count` records with keys of one shape: all inserted, half of them loaded, all loaded.
fn check_shape(name: &str, count: u64, mut key_of: impl FnMut(&mut Dice, u64) -> Vec<u8>) {
    let all = [count / 2, 0, count];
    // One that does both is enough where each takes a minute.
    for &loaded in all.iter().take(if cfg!(miri) { 1 } else { 3 }) {
        check_history(name, count, loaded, &mut key_of);
    }
}

/// A random history, compared with the model after each insert. The first `loaded` records are loaded, some twice.
fn check_history(
    name: &str,
    count: u64,
    loaded: u64,
    key_of: &mut impl FnMut(&mut Dice, u64) -> Vec<u8>,
) {
    let mut dice = Dice(hash_key(name.as_bytes()));
    let (memtable, mut model) = (Memtable::new(), Model::new());
    let mut cursor = memtable.cursor();
    let mut census = Census::default();
    for number in 0..count {
        let key = key_of(&mut dice, number);
        // One in eight out of order, and some of those twice.
        let seq = if dice.below(8) == 0 {
            dice.below(count / 4 + 1)
        } else {
            count + number
        };
        let mut header = header_of(&mut dice, seq);
        let mut value = value_of(&header, &mut dice);
        let at = (key.clone(), std::cmp::Reverse(seq));
        if number < loaded {
            // An item inserted twice has the same value both times; the first insert counts.
            if let Some(before) = model.get(&at) {
                (header, value) = before.clone();
            }
            memtable.load(header, &key, &value).unwrap();
        } else {
            memtable.insert(header, &key, &value).unwrap();
        }
        model.entry(at).or_insert_with(|| {
            census.add(&RecordRef {
                header,
                key: &key,
                value_len: value.len(),
            });
            (header, value)
        });
        if number < loaded {
            assert!(memtable.is_empty() && get(&memtable, &key, u64::MAX).is_none());
            if number + 1 < loaded {
                continue;
            }
            memtable.finish_load().unwrap();
            assert_eq!(memtable.len(), model.len());
        }
        let probe = key_of(&mut dice, number / 2);
        if cfg!(miri) && number % 16 != 0 {
            continue;
        }
        for max in [u64::MAX, 0, seq, seq.wrapping_sub(1), dice.below(2 * count)] {
            assert_eq!(
                get(&memtable, &key, max),
                model_get(&model, &key, max),
                "{name}"
            );
            assert_eq!(
                get(&memtable, &probe, max),
                model_get(&model, &probe, max),
                "{name}"
            );
        }
        if number % 64 == 0 {
            check_seeks(&model, &mut cursor, &probe, &mut dice);
        }
    }
    check_walks(&model, &mut cursor);
    assert_eq!(memtable.len(), model.len());
    assert_eq!(memtable.census(), census);
    assert_eq!(
        (memtable.seq_min(), memtable.seq_max()),
        (census.seq_min, census.seq_max)
    );
    for ((key, seq), record) in &model {
        assert_eq!(get(&memtable, key, seq.0).as_ref(), Some(record), "{name}");
    }
    drop(memtable);
    check_walks(&model, &mut cursor);
}

#[test]
fn random_keys() {
    check_shape("random", scaled(20_000), |dice, _| {
        [dice.next().to_be_bytes(), dice.next().to_be_bytes()].concat()
    });
}

#[test]
fn keys_with_long_shared_prefixes() {
    check_shape("prefixes", scaled(12_000), |dice, _| {
        let host = [
            "https://example.com/people/of/the/north/",
            "https://example.com/",
            "https://example.org/a/",
        ];
        format!(
            "{}{:x}/{}",
            host[dice.below(3) as usize],
            dice.below(50),
            dice.below(200)
        )
        .into_bytes()
    });
}

#[test]
fn decimal_keys_in_order_backwards_and_shuffled() {
    check_shape("ascending", scaled(10_000), |_, number| {
        format!("sensor:{number:012}").into_bytes()
    });
    check_shape("descending", scaled(10_000), |_, number| {
        format!("sensor:{:012}", 999_999 - number).into_bytes()
    });
    check_shape("shuffled", scaled(10_000), |dice, _| {
        dice.below(100_000).to_string().into_bytes()
    });
}

#[test]
fn keys_of_one_byte_and_keys_that_begin_others() {
    check_shape("one byte", scaled(6_000), |dice, _| vec![dice.next() as u8]);
    check_shape("zeros", scaled(6_000), |dice, _| {
        vec![0; 1 + dice.below(40) as usize]
    });
    check_shape("ones", scaled(6_000), |dice, _| {
        vec![0xff; 1 + dice.below(40) as usize]
    });
    check_shape("mixed", scaled(12_000), |dice, _| {
        let len = 1 + dice.below(12);
        (0..len)
            .map(|_| [0, 0xff, b'a'][dice.below(3) as usize])
            .collect()
    });
}

#[test]
fn many_versions_of_few_keys() {
    check_shape("one key", scaled(6_000), |_, _| b"the one".to_vec());
    let few = |dice: &mut Dice, _| format!("key/{}", dice.below(9)).into_bytes();
    check_shape("few keys", scaled(12_000), few);
}

/// Goal: what is loaded is counted as what is inserted. Method: one history of few and of many keys, with a range delete in
/// it, both ways; everything that estimates read is compared.
#[test]
fn what_is_loaded_is_summarized_as_what_is_inserted() {
    for keys in [7, 1_000] {
        let (mut dice, memtables) = (Dice(keys), [Memtable::new(), Memtable::new()]);
        let count = scaled(6_000);
        for seq in 1..=count {
            let key = dice.below(keys).to_be_bytes();
            let header = header_of(&mut dice, seq);
            let value = vec![7; value_of(&header, &mut dice).len() * 9];
            memtables[0].insert(header, &key, &value).unwrap();
            memtables[1].load(header, &key, &value).unwrap();
            if seq == count / 2 {
                memtables[1].finish_load().unwrap();
                let everything = || KeyRange {
                    from: vec![],
                    to: None,
                };
                for memtable in &memtables {
                    memtable.delete_range(everything(), Seq(seq));
                }
            }
        }
        let of_view = |memtable: &Memtable, now| {
            let view = ExpiryView::at(Timestamp(now), Settings::default);
            memtable.summary(|summary| {
                let of_era = |era: &Era| {
                    let sample = era.sample().map(|(hash, newest)| {
                        (
                            hash,
                            newest.key.bytes().to_vec(),
                            newest.header.seq,
                            newest.weight,
                        )
                    });
                    let mut sample: Vec<_> = sample.collect();
                    sample.sort_unstable();
                    let tallies = (era.gone(&view), era.hidden(&view));
                    (sample, *era.census(), tallies)
                };
                summary.eras().map(of_era).collect::<Vec<_>>()
            })
        };
        for now in [0, 1 << 20, u64::MAX >> 1] {
            let [inserted, loaded] = memtables.each_ref().map(|memtable| of_view(memtable, now));
            assert!(inserted == loaded, "of {keys} keys at {now}");
        }
    }
}

#[test]
fn keys_and_values_of_the_largest_size() {
    let (memtable, mut dice) = (Memtable::new(), Dice(1));
    let keys: Vec<Vec<u8>> = (0..5)
        .map(|last| {
            [
                vec![b'k'; if cfg!(miri) { 999 } else { 65_534 }],
                vec![last],
            ]
            .concat()
        })
        .collect();
    let value = vec![7; if cfg!(miri) { 1 << 16 } else { 64 << 20 }];
    for (seq, key) in keys.iter().enumerate() {
        let header = Header {
            kind: Kind::Put,
            ..header_of(&mut dice, seq as u64)
        };
        memtable
            .insert(header, key, if seq == 3 { &value } else { b"small" })
            .unwrap();
    }
    assert!(get(&memtable, &keys[3], 9).unwrap().1 == value);
    assert_eq!(get(&memtable, &keys[4], 9).unwrap().1, b"small");
    let mut cursor = memtable.cursor();
    cursor.seek(Seek::AtOrAfter(&keys[3]), None).unwrap();
    let (pair, kept) = (cursor.pair().unwrap(), cursor.value_bytes().unwrap());
    assert!(memtable.bytes() > value.len() && memtable.bytes() < value.len() + (2 << 20));
    drop((memtable, cursor));
    assert!(
        pair.key() == keys[3] && *pair.value() == value && kept == value,
        "bytes outlive the memtable"
    );
}

#[test]
fn an_empty_one_is_small_and_knows_it() {
    let memtable = Memtable::new();
    assert_eq!(
        (memtable.bytes(), memtable.len(), memtable.is_empty()),
        (0, 0, true)
    );
    assert_eq!((memtable.seq_min(), memtable.seq_max()), (Seq::MAX, Seq(0)));
    assert_eq!(get(&memtable, b"k", u64::MAX), None);
    let mut cursor = memtable.cursor();
    check_seeks(&Model::new(), &mut cursor, b"k", &mut Dice(0));
    memtable
        .insert(Header::tombstone(Seq(5), Timestamp(1)), b"k", b"")
        .unwrap();
    assert!(memtable.bytes() < 8 << 10 && !memtable.is_empty());
}

/// Goal: memory is reused through the pool, up to its limit, and old contents do not show. Method: two memtables, one
/// after the other, with other keys in the second.
#[test]
#[cfg_attr(miri, ignore = "takes megabytes")]
fn a_pool_hands_memory_on() {
    let pool = Arc::new(Pool::new(2 << 20));
    let fill = |salt: u64| {
        let memtable = Memtable::with_pool(pool.clone());
        for seq in 0..60_000 {
            let key = Dice(seq ^ salt).next().to_be_bytes();
            let header = Header::tombstone(Seq(seq), Timestamp(salt));
            memtable.insert(header, &key, &[salt as u8; 60]).unwrap();
        }
        assert!(memtable.bytes() > 6 << 20);
        memtable
    };
    assert_eq!(pool.bytes(), 0);
    drop(fill(1));
    assert_eq!(pool.bytes(), 2 << 20);
    let second = fill(1 << 40);
    assert_eq!(pool.bytes(), 0);
    let mut cursor = second.cursor();
    cursor.seek(Seek::First, None).unwrap();
    for _ in 0..60_000 {
        let (_, header, value) = here(&cursor).unwrap();
        assert_eq!((header.written_at.0, value), (1 << 40, vec![0; 60]));
        cursor.advance(None).unwrap();
    }
    assert_eq!(here(&cursor), None);
    drop((second, cursor));
    assert_eq!(pool.bytes(), 2 << 20);
}

/// Goal: unused memory of the pool is freed, and used memory stays. Method: after two memtables were dropped, a small
/// one is filled and dropped repeatedly between two checks.
#[test]
#[cfg_attr(miri, ignore = "takes megabytes")]
fn a_pool_keeps_what_is_taken_again_and_no_more() {
    let pool = Arc::new(Pool::new(64 << 20));
    let fill = |count: u64| {
        let memtable = Memtable::with_pool(pool.clone());
        for seq in 0..count {
            let key = Dice(seq).next().to_be_bytes();
            let header = Header::tombstone(Seq(seq), Timestamp(1));
            memtable.insert(header, &key, &[1; 60]).unwrap();
        }
        memtable
    };
    drop((fill(60_000), fill(60_000)));
    let all = pool.bytes();
    assert!(all > 4 << 20, "{all}");
    let at = |seconds| std::time::Duration::from_secs(seconds);
    assert!(!pool.trim(at(10)));
    assert_eq!(pool.bytes(), all, "a moment ago it was in use");
    drop(fill(60_000));
    assert!(!pool.trim(at(11)));
    assert_eq!(pool.bytes(), all, "too early to tell");
    assert!(!pool.trim(at(20)));
    let half = pool.bytes();
    assert!((all / 3..all * 2 / 3).contains(&half), "{half} of {all}");
    drop(fill(60_000));
    assert!(!pool.trim(at(30)));
    assert_eq!(pool.bytes(), half, "all of it was taken");
    assert!(!pool.trim(at(40)));
    assert_eq!(pool.bytes(), 0);
}

/// A writer that has prepared may have logged, and must be able to insert, even if the pool is trimmed meanwhile.
#[test]
fn what_was_prepared_is_there_until_its_owner_gives_it_back() {
    let pool = Arc::new(Pool::new(64 << 20));
    let at = |seconds| std::time::Duration::from_secs(seconds);
    let memtable = Memtable::with_pool(pool.clone());
    let (key, value) = ([7; 8], vec![7; 1 << 20]);
    let room = room_for(1, key.len() + value.len());
    pool.prepare(room).unwrap();
    assert!(pool.trim(at(10)), "the spare is larger than usual");
    pool.refuses
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let header = Header {
        kind: Kind::Put,
        seq: Seq(1),
        written_at: Timestamp(1),
        ttl: ItemTtl::Absent,
    };
    memtable.insert(header, &key, &value).unwrap();
    assert!(pool.take_large_spare().is_some());
    assert!(pool.prepare(1).is_err(), "it went");
    assert!(!pool.trim(at(20)));
}

/// Goal: a write that was prepared for succeeds although the system refuses memory, another one is refused, and neither
/// loses earlier records. Method: the system refuses during filling, for records of many sizes, until the spare is used
/// up; then it allocates again.
#[test]
fn memory_that_was_prepared_suffices_and_more_is_refused() {
    let pool = Arc::new(Pool::new(4 << 20));
    let memtable = Memtable::with_pool(pool.clone());
    let refuses = |refuses| {
        pool.refuses
            .store(refuses, std::sync::atomic::Ordering::Relaxed)
    };
    let count = if cfg!(miri) { 300 } else { 5_000 };
    let (mut model, mut dice, mut refused) = (Model::new(), Dice(3), 0);
    for seq in 1..=count {
        let key = dice.next().to_be_bytes();
        let value =
            vec![seq as u8; dice.next() as usize % if seq % 100 == 0 { 70_000 } else { 300 }];
        let header = Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(seq),
            ttl: ItemTtl::Absent,
        };
        refuses(seq % 1_000 >= 300);
        let is_prepared = pool.prepare(room_for(1, key.len() + value.len())).is_ok();
        let inserted = memtable.insert(header, &key, &value);
        assert!(inserted.is_ok() || !is_prepared);
        match inserted {
            Ok(()) => {
                model.insert((key.to_vec(), std::cmp::Reverse(seq)), (header, value));
            }
            Err(error) => {
                assert!(matches!(error, crate::Error::OutOfMemory { .. }), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 || cfg!(miri), "the spare lasted too long");
    let mut cursor = memtable.cursor();
    cursor.seek(Seek::First, None).unwrap();
    for ((key, _), (header, value)) in &model {
        assert_eq!(here(&cursor), Some((key.clone(), *header, value.clone())));
        assert!(memtable.may_contain(hash_key(key)));
        cursor.advance(None).unwrap();
    }
    assert_eq!((here(&cursor), memtable.len()), (None, model.len()));
}

/// Goal: bytes are copied where keeping them would keep much more memory, and kept memory is counted while it is held.
/// Method: values on both sides of the limit, held while their memtable is retired and dropped.
#[test]
#[cfg_attr(miri, ignore = "takes megabytes")]
fn a_small_value_keeps_no_memtable() {
    let pool = Arc::new(Pool::new(4 << 20));
    let memtable = Memtable::with_pool(pool.clone());
    let lens = [513, 64 << 10, (64 << 10) + 1];
    for (seq, len) in (1..).zip(lens) {
        let header = Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(seq),
            ttl: ItemTtl::Absent,
        };
        memtable
            .insert(header, &[seq as u8], &vec![seq as u8; len])
            .unwrap();
    }
    let value = |key: u8| {
        let entry = memtable.get(hash_key(&[key]), &[key], Seq::MAX).unwrap();
        entry.value_bytes().unwrap()
    };
    let (copies, kept) = ([value(1), value(2)], value(3));
    let bytes = memtable.tree.bytes();
    memtable.retire();
    assert_eq!(pool.pinned(), bytes);
    drop(memtable);
    assert_eq!(pool.pinned(), bytes, "a good part of it is held");
    assert_eq!(kept[..], vec![3; lens[2]]);
    drop(kept);
    assert_eq!(pool.pinned(), 0);
    assert_eq!(copies.each_ref().map(|copy| copy.len()), [lens[0], lens[1]]);
}

/// Goal: a full memtable takes little more memory than its records. Method: records of a usual size in random order, as
/// many as fill one of 4 MiB and one of 64 MiB.
#[test]
#[cfg_attr(miri, ignore = "takes megabytes")]
fn a_record_takes_little_more_than_its_bytes() {
    for (mib, count) in [(4, 23_000), (64, 366_000)] {
        let memtable = Memtable::with_pool(Arc::new(Pool::new(mib << 20)));
        for seq in 0..count {
            let key = [Dice(seq).next().to_be_bytes(), [0; 8]].concat();
            let header = Header {
                kind: Kind::Put,
                seq: Seq(seq),
                written_at: Timestamp(1_772_366_400_000 + seq),
                ttl: ItemTtl::Millis(3_600_000),
            };
            memtable.insert(header, &key, &[7; 100]).unwrap();
        }
        let of_each = |bytes: usize| bytes as f64 / count as f64;
        let (all, filter) = (of_each(memtable.bytes()), of_each(memtable.filter.bytes()));
        assert!(all < 116.0 * 1.5 && filter < 3.0, "{all:.1}, {filter:.1}");
        println!(
            "FIGURE a record of 116 bytes in a memtable of {mib} MiB: {all:.1} bytes, {filter:.1} of them the filter's"
        );
    }
}

#[test]
fn range_deletes_are_a_list() {
    let memtable = Memtable::new();
    let range = |seq: u64| KeyRange {
        from: seq.to_be_bytes().to_vec(),
        to: None,
    };
    let numbers: Vec<u64> = (1..40).chain([50, 100]).collect();
    numbers
        .iter()
        .for_each(|&seq| memtable.delete_range(range(seq), Seq(seq)));
    assert!(!memtable.is_empty());
    assert_eq!(
        (memtable.seq_min(), memtable.seq_max(), memtable.len()),
        (Seq(1), Seq(100), 0)
    );
    assert_eq!(memtable.range_deletes().len(), numbers.len());
    for (there, seq) in memtable.range_deletes().iter().zip(numbers) {
        assert_eq!(
            *there,
            RangeDelete {
                range: range(seq),
                seq: Seq(seq)
            }
        );
    }
}

/// Goal: a thread that knows that write n is published finds it and all earlier ones, in gets and iterations, and
/// iterations are in order. Method: write n goes to a key computed from n; the writer publishes n; readers take the
/// published sequence number first, then look. Threads pause between the steps of `node`; each check of a reader, and
/// the order of the writer's steps, was removed or reversed once, and these tests failed.
fn check_concurrent(writes: u64, key_of: impl Fn(u64) -> Vec<u8> + Sync) {
    let (memtable, published, done) = (Memtable::new(), AtomicU64::new(0), AtomicBool::new(false));
    let (memtable, published, done, key_of) = (&memtable, &published, &done, &key_of);
    thread::scope(|scope| {
        for reader in 0..2 {
            scope.spawn(move || {
                let (mut dice, mut lookups) = (Dice(reader), 0);
                while !done.load(Ordering::Acquire) || lookups < 10 {
                    let now = published.load(Ordering::Acquire);
                    let seq = 1 + dice.below(now + 1);
                    let key = key_of(seq);
                    let found = get(memtable, &key, seq);
                    let seen = found.as_ref().is_some_and(|(header, value)| {
                        header.seq == Seq(seq) && *value == seq.to_le_bytes()
                    });
                    assert!(seen || seq > now, "{seq} of {now}: {found:?}");
                    lookups += 1;
                }
            });
        }
        for forwards in [true, false] {
            scope.spawn(move || {
                let (mut cursor, mut walks) = (memtable.cursor(), 0);
                while !done.load(Ordering::Acquire) || walks < 1 {
                    let now = published.load(Ordering::Acquire);
                    walk(&mut cursor, now, forwards);
                    walks += 1;
                }
            });
        }
        for seq in 1..=writes {
            let header = Header {
                kind: Kind::Put,
                seq: Seq(seq),
                written_at: Timestamp(seq),
                ttl: ItemTtl::Never,
            };
            memtable
                .insert(header, &key_of(seq), &seq.to_le_bytes())
                .unwrap();
            published.store(seq, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
}

/// Iterates over everything and finds each sequence number up to `now` once.
fn walk(cursor: &mut MemCursor, now: u64, forwards: bool) {
    let (mut found, mut before) = (0, None::<(Vec<u8>, Seq)>);
    cursor
        .seek(if forwards { Seek::First } else { Seek::Last }, None)
        .unwrap();
    while let Position::Record(record) = cursor.position() {
        if let Some((key, seq)) = &before {
            let order = crate::base::record::order(key, *seq, record.key, record.header.seq);
            assert_eq!(order.is_lt(), forwards, "in order, nothing twice");
            assert!(order.is_ne());
        }
        assert_eq!(cursor.value().unwrap(), record.header.seq.0.to_le_bytes());
        found += u64::from(record.header.seq.0 <= now);
        before = Some((record.key.to_vec(), record.header.seq));
        if forwards {
            cursor.advance(None).unwrap();
        } else {
            cursor.retreat(None).unwrap();
        }
    }
    assert_eq!(found, now, "forwards: {forwards}");
}

#[test]
fn readers_beside_a_writer_of_random_keys() {
    check_concurrent(scaled(20_000), |seq| {
        Dice(seq).next().to_be_bytes().to_vec()
    });
}

#[test]
fn readers_beside_a_writer_of_ordered_keys() {
    check_concurrent(scaled(20_000), |seq| {
        format!("a/long/prefix/{seq:09}").into_bytes()
    });
}

#[test]
fn readers_beside_a_writer_of_shared_prefixes() {
    check_concurrent(scaled(20_000), |seq| {
        let number = Dice(seq).next();
        format!("table{:02}/row/{:07}", number % 7, number / 7 % 9_999_999).into_bytes()
    });
}

#[test]
fn readers_beside_a_writer_of_few_keys() {
    check_concurrent(scaled(20_000), |seq| {
        vec![b'k'; 1 + (Dice(seq).next() % 5) as usize]
    });
}

/// Goal: concurrent writers lose nothing, because a lock serializes them. Method: two of them, each with its own keys.
#[test]
fn a_second_writer_waits() {
    let (memtable, count) = (&Memtable::new(), scaled(4_000));
    thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn(move || {
                for number in 0..count {
                    let seq = 2 * number + writer;
                    memtable
                        .insert(
                            Header::tombstone(Seq(seq), Timestamp(0)),
                            &seq.to_be_bytes(),
                            b"",
                        )
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(memtable.len() as u64, 2 * count);
    assert!((0..2 * count).all(|seq| get(memtable, &seq.to_be_bytes(), seq).is_some()));
}

/// Goal: iterations over memtables under an expiry view and range deletes show the right items, although most dead
/// records are passed as dead spans. Method: two memtables, the older one with more live records; many versions of few
/// keys and few of many, so that versions are on both sides of leaf borders; readers at several sequence numbers, in
/// both directions, compared with a plain list.
#[test]
fn dead_spans_hide_what_they_should() {
    let view = ExpiryView::at(Timestamp(1_000), || Settings::new(DefaultMillis::NoDefault));
    let kinds = [(1, 30, 14), (2, 900, 14), (3, 4_000, 15), (4, 400, 8)];
    // Each costs Miri minutes.
    let some = if cfg!(miri) { 1 } else { kinds.len() };
    for (seed, keys, dead_in_16) in kinds.into_iter().take(some) {
        let mut dice = Dice(seed);
        let memtables = [Memtable::new(), Memtable::new()];
        let mut records: Vec<(Vec<u8>, Header)> = vec![];
        let count = scaled(3_000);
        for seq in 1..=2 * count {
            let newer = seq > count;
            let key = format!("{:05}", dice.below(keys)).into_bytes();
            let dies = dice.below(16) < if newer { dead_in_16 } else { 6 };
            let header = Header {
                kind: if dies && dice.below(2) == 0 {
                    Kind::Tombstone
                } else {
                    Kind::Put
                },
                seq: Seq(seq),
                written_at: Timestamp(10),
                ttl: ItemTtl::Absent,
            };
            let ttl = if dies { 10 } else { 10_000 };
            let header = match header.kind {
                Kind::Put => Header {
                    ttl: ItemTtl::Millis(ttl),
                    ..header
                },
                Kind::Tombstone => header,
            };
            // Each version has a value of its own.
            let value = match header.kind {
                Kind::Put => seq.to_be_bytes().to_vec(),
                Kind::Tombstone => vec![],
            };
            let inserted = memtables[usize::from(newer)].insert(header, &key, &value);
            inserted.unwrap();
            records.push((key, header));
        }
        for max in [2 * count, count + count / 2, count, count / 3] {
            let deleted = KeyRange {
                from: format!("{:05}", keys / 5).into_bytes(),
                to: Some(format!("{:05}", keys / 3).into_bytes()),
            };
            let fragments = Fragments::of([(&deleted, Seq(max / 2))]);
            let tombstones = RangeTombstones::new([Arc::new(fragments)]);
            let mut newest: BTreeMap<&[u8], Header> = BTreeMap::new();
            for (key, header) in records.iter().filter(|record| record.1.seq <= Seq(max)) {
                newest.insert(key, *header);
            }
            let shows = |(key, header): &(&[u8], Header)| {
                !view.dead(header) && header.seq >= tombstones.max_covering_seq(key)
            };
            let shown = newest.into_iter().filter(shows);
            let expected: Vec<_> = shown
                .map(|(key, header)| (key.to_vec(), header.seq.0.to_be_bytes().to_vec()))
                .collect();
            for to in [Seek::First, Seek::Last] {
                let cursors = memtables.iter().map(|memtable| {
                    let cursor = memtable.cursor();
                    cursor.under(tombstones.clone())
                });
                let horizon = Horizon {
                    max: Seq(max),
                    tombstones: tombstones.clone(),
                    bare: None,
                };
                let mut walk = Walk::seek(cursors.collect(), horizon, to, &view).unwrap();
                let (mut found, mut decided, mut settled) = (vec![], vec![], view.clone());
                let certain = CertainView::first(Seq(max), view.clone());
                let mut next = || {
                    let read = || ExpiryViews::at(view.now, view.now, || view.settings.clone());
                    let mut check = ExpiryCheck::new(&view, &mut settled, view.now, read);
                    walk.next(&mut check, &mut decided, |_| true, (&certain, None))
                };
                while let Some(item) = next() {
                    let item = item.unwrap();
                    found.push((item.key().to_vec(), item.value().to_vec()));
                }
                if !to.is_forward() {
                    found.reverse();
                }
                assert!(
                    found == expected,
                    "{to:?} among {keys} keys up to {max}: {} instead of {}",
                    found.len(),
                    expected.len()
                );
            }
        }
    }
}

/// Goal: dead records are passed in few steps. Method: ten thousand of them, iterated over without a merge.
#[test]
#[cfg_attr(miri, ignore = "counts to ten thousand")]
fn a_walk_among_the_dead_takes_few_steps() {
    let memtable = Memtable::new();
    for seq in 0..10_000u64 {
        let header = Header::tombstone(Seq(seq + 1), Timestamp(1));
        memtable.insert(header, &seq.to_be_bytes(), b"").unwrap();
    }
    let view = ExpiryView::at(Timestamp(2), Settings::default);
    for to in [Seek::First, Seek::Last] {
        let mut cursor = memtable.cursor();
        cursor.seek(to, Some(&view)).unwrap();
        let mut steps = 0;
        while cursor.position() != Position::End {
            if to.is_forward() {
                cursor.advance(Some(&view)).unwrap();
            } else {
                cursor.retreat(Some(&view)).unwrap();
            }
            steps += 1;
        }
        assert!(steps <= 10_000 / 16, "{steps} steps");
    }
}
