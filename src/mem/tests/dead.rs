//! Range deletes, and dead records that an iteration passes.

use super::*;

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
