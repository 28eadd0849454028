//! Goal: a memtable is a sorted map from (key, sequence number) to records, also for readers during writes. Method:
//! compared with the standard library's map, over many shapes of keys; threads that know what they must see.

mod concurrent;
mod dead;
mod memory;

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

/// Goal: what flushes a memtable notices that records are missing in it, and takes no more than there are.
#[test]
fn a_checked_walk_counts_the_records() {
    let memtable = Memtable::new();
    for seq in 0..200 {
        let header = Header::tombstone(Seq(seq), Timestamp(seq));
        memtable.insert(header, &seq.to_be_bytes(), b"").unwrap();
    }
    let walk = |mut cursor: MemCursor| -> Result<()> {
        cursor.seek(Seek::First, None)?;
        while cursor.is_on_record() {
            cursor.advance(None)?;
        }
        Ok(())
    };
    walk(memtable.checked_cursor()).unwrap();
    walk(MemCursor::checked(memtable.tree.clone(), 199)).unwrap();
    let missing = walk(MemCursor::checked(memtable.tree.clone(), 201)).unwrap_err();
    assert!(
        missing.to_string().contains("1 records are missing"),
        "{missing}"
    );
}

/// Goal: what flushes a memtable notices that one record comes in the place of another, though their count is right.
#[test]
#[allow(unsafe_code)]
fn a_checked_walk_holds_records_to_their_order() {
    for (at, of) in [(3, 2), (2, 3), (5, 5)] {
        let memtable = Memtable::new();
        for seq in 0..20 {
            let header = Header::tombstone(Seq(seq), Timestamp(seq));
            memtable.insert(header, &seq.to_be_bytes(), b"").unwrap();
        }
        let leaf = memtable.tree.root.load().unwrap();
        // SAFETY: both are in one arena.
        unsafe { leaf.entries[at].copy(&leaf.entries[of]) };
        let mut cursor = memtable.checked_cursor();
        let mut walked = cursor.seek(Seek::First, None);
        while walked.is_ok() && cursor.is_on_record() {
            walked = cursor.advance(None);
        }
        let is_right = walked.is_ok_and(|()| at == of);
        let is_found = cursor.is_on_record() && at != of;
        assert!(is_right || is_found, "{of} at {at}");
    }
}
