//! Memory: what a memtable takes, what its pool keeps, and what was prepared for.

use super::*;

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
