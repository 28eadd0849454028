use super::*;

/// Goal: a record is read as it was stored, whatever its numbers, and takes no more room than they need. Method:
/// both sides of every border between widths.
#[test]
fn records_of_every_width_read_back() {
    let check = |header: Header, front: usize| {
        let (arena, brk) = (Arena::new(Arc::new(Pool::new(0))), Brk::new());
        // SAFETY: one arena, one `brk`.
        let store = |key, value| unsafe {
            let record = NewRecord::of(header, key, value);
            brk.store(&arena, &record).unwrap()
        };
        store(b"first", b"");
        let before = brk.room.get();
        let stored = store(b"key", b"value");
        assert_eq!(before - brk.room.get(), front + 24 + b"keyvalue".len());
        store(b"behind", b"it");
        assert_eq!((stored.header(), stored.seq()), (header, header.seq));
        assert_eq!(stored.piece(), b"keyvalue");
        assert!(stored.is_intact());
        assert_eq!((stored.key(), stored.value()), (&b"key"[..], &b"value"[..]));
    };
    let usual_max = u64::from(u32::MAX);
    let ttls = [
        (ItemTtl::Absent, 0),
        (ItemTtl::Never, 0),
        (ItemTtl::Millis(0), 4),
        (ItemTtl::Millis(usual_max), 4),
        (ItemTtl::Millis(usual_max + 1), 16),
        (ItemTtl::Millis(u64::MAX), 16),
    ];
    let moments = [
        (0, 0),
        ((1 << 48) - 1, 0),
        (1 << 48, 16),
        (Timestamp::MAX.0, 16),
    ];
    for (ttl, of_ttl) in ttls {
        for (written_at, of_moment) in moments {
            for seq in [0, 1, HIGHEST_NUMBER, SEQ_END - 1] {
                for kind in [Kind::Put, Kind::Tombstone] {
                    let (seq, written_at) = (Seq(seq), Timestamp(written_at));
                    let header = Header {
                        kind,
                        seq,
                        written_at,
                        ttl,
                    };
                    check(header, of_ttl.max(of_moment));
                }
            }
        }
    }
}

/// Goal: a record of which one bit has changed is not taken for what was stored. Method: each bit of records of each width.
#[test]
fn one_flipped_bit_shows() {
    let ttls = [
        ItemTtl::Absent,
        ItemTtl::Never,
        ItemTtl::Millis(7),
        ItemTtl::Millis(u64::MAX),
    ];
    for (number, ttl) in ttls.into_iter().enumerate() {
        let (arena, brk) = (Arena::new(Arc::new(Pool::new(0))), Brk::new());
        let header = Header {
            kind: Kind::Put,
            seq: Seq(1 << (15 * number)),
            written_at: Timestamp(1_767_225_600_000),
            ttl,
        };
        let len = if cfg!(miri) { 9 } else { 99 };
        let value = vec![number as u8; len * number];
        let record = NewRecord::of(header, b"key", &value);
        // SAFETY: one arena, one `brk`.
        let stored = unsafe { brk.store(&arena, &record).unwrap() };
        assert!(stored.is_intact());
        let front = [0, 0, size_of::<u32>(), size_of::<Wide>()][number];
        let len = front + size_of::<Fixed>() + stored.piece().len();
        for bit in 0..len * 8 {
            // SAFETY: the record has this byte.
            let byte = unsafe { stored.at.cast::<u8>().sub(front).add(bit / 8).as_ptr() };
            // SAFETY: nobody else reads it meanwhile.
            unsafe { *byte ^= 1 << (bit % 8) };
            assert!(!stored.is_intact(), "bit {bit} of {len} bytes");
            // SAFETY: as above.
            unsafe { *byte ^= 1 << (bit % 8) };
        }
        assert!(stored.is_intact());
    }
}
