//! Readers and a second writer beside the writer.

use super::*;

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
