//! Models of the memtable: readers of the tree beside its writer, with nodes of four records.

use std::sync::Arc;

use super::Memtable;
use crate::base::hash::hash_key;
use crate::base::record::{Header, Kind};
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{check, spawn};
use crate::base::{ItemTtl, Seq, Timestamp};
use crate::data::batch::KeyRange;
use crate::data::cursor::{Cursor, Position, Seek};

/// Inserts a record whose value is its sequence number.
fn put(memtable: &Memtable, key: &str, seq: u64) {
    let header = Header {
        kind: Kind::Put,
        seq: Seq(seq),
        written_at: Timestamp(seq),
        ttl: ItemTtl::Absent,
    };
    let inserted = memtable.insert(header, key.as_bytes(), &seq.to_le_bytes());
    inserted.unwrap();
}

/// The sequence number of the newest version up to `max`.
fn get(memtable: &Memtable, key: &str, max: u64) -> Option<u64> {
    let entry = memtable.get(hash_key(key.as_bytes()), key.as_bytes(), Seq(max))?;
    let seq = entry.header.seq.0;
    assert_eq!(*entry.value_bytes().unwrap(), seq.to_le_bytes());
    Some(seq)
}

/// A memtable with records of these keys, numbered from 1.
fn filled(keys: &[&str]) -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new());
    for (seq, key) in (1..).zip(keys) {
        put(&memtable, key, seq);
    }
    memtable
}

/// While `added` grows to `keys`, a reader finds `sought`, one of them.
fn check_get(
    what: &str,
    interruptions: usize,
    keys: &'static [&str],
    added: &'static str,
    sought: &'static str,
) {
    check(what, interruptions, move || {
        let memtable = filled(keys);
        let seq = keys.iter().position(|key| *key == sought).unwrap() as u64 + 1;
        let last = keys.len() as u64 + 1;
        let reader = {
            let memtable = memtable.clone();
            spawn(move || assert_eq!(get(&memtable, sought, last), Some(seq)))
        };
        put(&memtable, added, last);
        assert_eq!(get(&memtable, added, last), Some(last));
        reader.join().unwrap();
    });
}

#[test]
fn a_record_stays_while_others_move_over() {
    check_get("a record moves within a leaf", 3, &["b"], "a", "b");
}

#[test]
fn a_record_stays_while_its_leaf_is_split() {
    check_get("a root leaves its end", 2, &["a", "b", "c", "d"], "e", "d");
    check_get("a root is halved", 1, &["a", "b", "d", "e"], "c", "e");
}

#[test]
fn a_record_moves_to_a_leaf_under_the_same_node() {
    let keys = &["a", "b", "d", "e", "f"];
    check_get("a leaf is halved", 1, keys, "c", "e");
}

/// Full inner nodes are split on the way down, and the last leaf gets another parent.
#[test]
fn a_record_stays_while_a_node_above_it_is_split() {
    let keys = &[
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q",
    ];
    check_get("the tree grows", 1, keys, "r", "q");
}

#[test]
fn a_record_stays_while_prefixes_leave_out_more() {
    check_get(
        "prefixes leave out what all keys share",
        3,
        &["prefix-1"],
        "prefix-12",
        "prefix-1",
    );
}

/// A published version is found, and no unpublished version of a key is.
#[test]
fn what_is_published_is_found() {
    for (key, before) in [("b", None), ("a", Some(1))] {
        check("a published record is found", 2, move || {
            let memtable = filled(&["a"]);
            let published = Arc::new(AtomicU64::new(1));
            let reader = {
                let (memtable, published) = (memtable.clone(), published.clone());
                spawn(move || {
                    let max = published.load(Ordering::Acquire);
                    let seen = if max == 1 { before } else { Some(2) };
                    assert_eq!(get(&memtable, key, max), seen);
                })
            };
            put(&memtable, key, 2);
            published.store(2, Ordering::Release);
            reader.join().unwrap();
        });
    }
}

/// A published range delete covers, and an unpublished one does not, although it is there already.
#[test]
fn what_is_deleted_by_range_follows_what_is_published() {
    check("a range delete is read as it comes", 3, || {
        let memtable = Arc::new(Memtable::new());
        let delete = |memtable: &Memtable, from: &str, seq| {
            let range = KeyRange {
                from: from.into(),
                to: None,
            };
            memtable.delete_range(range, Seq(seq));
        };
        delete(&memtable, "c", 1);
        let published = Arc::new(AtomicU64::new(1));
        let reader = {
            let (memtable, published) = (memtable.clone(), published.clone());
            spawn(move || {
                let max = Seq(published.load(Ordering::Acquire));
                let ranges = memtable.range_deletes();
                assert_eq!(ranges.covers(b"b", Seq(0), max), max == Seq(2));
                assert_eq!(ranges.covers(b"d", Seq(1), max), max == Seq(2));
                assert!(ranges.covers(b"d", Seq(0), max));
                let parts = ranges.as_of(max);
                let below = parts.iter().map(|part| part.max_covering_seq(b"d")).max();
                assert_eq!(below, Some(max));
            })
        };
        delete(&memtable, "a", 2);
        published.store(2, Ordering::Release);
        reader.join().unwrap();
    });
}

/// An iteration over all records shows those that were there when it began.
#[test]
fn a_walk_passes_every_record() {
    for forwards in [true, false] {
        check("a walk", 1, move || {
            let memtable = filled(&["a", "b", "d", "e"]);
            let walker = {
                let memtable = memtable.clone();
                spawn(move || {
                    let mut cursor = memtable.cursor();
                    let to = if forwards { Seek::First } else { Seek::Last };
                    cursor.seek(to, None).unwrap();
                    let mut seen = vec![];
                    while let Position::Record(record) = cursor.position() {
                        seen.push(record.key.to_vec());
                        if forwards {
                            cursor.advance(None).unwrap();
                        } else {
                            cursor.retreat(None).unwrap();
                        }
                    }
                    if !forwards {
                        seen.reverse();
                    }
                    assert!(seen.is_sorted_by(|a, b| a < b));
                    for key in [b"a", b"b", b"d", b"e"] {
                        assert!(seen.iter().any(|seen| seen == key));
                    }
                })
            };
            put(&memtable, "c", 5);
            walker.join().unwrap();
        });
    }
}
