use super::*;

fn header(kind: Kind, seq: u64, written_at: u64, ttl: ItemTtl) -> Header {
    Header {
        kind,
        seq: Seq(seq),
        written_at: Timestamp(written_at),
        ttl,
    }
}

/// Packs the records into a body without keys and values, and reads them back; returns the length of each.
fn through(records: &[(Header, usize, bool)]) -> usize {
    let fields = |&(header, key_len, large): &(Header, usize, bool)| {
        HeaderFields::of(&header, key_len, large)
    };
    let bytes = packing_around(records.iter().map(fields));
    let packing = HeaderPacking::of(&bytes);
    let mut body = vec![];
    for record in records {
        let packed = packing.pack(&fields(record));
        assert_eq!(packed.as_ref().len(), packing.len());
        if let Some(in_word) = packing.in_one_word() {
            let mut word = [0xa5; 8];
            in_word.write(&fields(record), &mut word);
            let (packed_here, behind) = word.split_at(packing.len());
            assert_eq!(packed_here, packed.as_ref());
            assert!(behind.iter().all(|&byte| byte == 0xa5));
        }
        body.extend_from_slice(packed.as_ref());
    }
    body.extend([0xff; 8]);
    for (at, &(header, key_len, large)) in records.iter().enumerate() {
        let start = at * packing.len();
        assert_eq!(packing.key_len(&body, start), key_len);
        assert_eq!(packing.header(&body, start), Ok((header, large)));
        if let Some(in_word) = packing.in_one_word() {
            assert_eq!(in_word.read(&body, start), (key_len, Ok((header, large))));
        }
    }
    packing.len()
}

#[test]
fn numbers_read_back_whatever_they_are() {
    use ItemTtl::{Absent, Millis, Never};
    let put = |seq, at, ttl| (header(Kind::Put, seq, at, ttl), 16, false);
    // Equal fields take no bits.
    assert_eq!(through(&[put(7, 9, Millis(60_000)); 3]), 0);
    // 10 bits and 5 and 1, then one more.
    let first = put(1_000, 70, Millis(5));
    assert_eq!(through(&[first, put(1_600, 100, Millis(6))]), 2);
    assert_eq!(through(&[first, put(1_600, 102, Millis(6))]), 3);
    // A ttl that is absent has no influence.
    assert_eq!(
        through(&[put(1, 1, Millis(86_400_000)), put(1, 1, Never)]),
        1
    );
    let tombstone = header(Kind::Tombstone, 5, 0, Absent);
    assert_eq!(
        through(&[(tombstone, 1, false), put(u64::MAX, u64::MAX, Absent)]),
        1 + 8 + 8
    );
    through(&[
        (tombstone, 65_535, false),
        (header(Kind::Put, u64::MAX, u64::MAX, Never), 1, true),
        (header(Kind::Put, 0, 0, Millis(0)), 300, true),
        (
            header(Kind::Put, 1 << 55, 1 << 41, Millis(MAX_TTL_MILLIS)),
            16,
            false,
        ),
    ]);
}

#[test]
fn a_uniform_packing_bounds_its_records() {
    use ItemTtl::{Absent, Millis, Never};
    let put = |seq, at, ttl| (header(Kind::Put, seq, at, ttl), 16, false);
    let uniform = |records: &[(Header, usize, bool)]| {
        let fields = |&(header, key_len, large): &(Header, usize, bool)| {
            HeaderFields::of(&header, key_len, large)
        };
        let bytes = packing_around(records.iter().map(fields));
        HeaderPacking::of(&bytes).uniform()
    };
    let found = uniform(&[put(7, 90, Millis(500)), put(12, 70, Millis(600))]).unwrap();
    assert_eq!(found.earliest, header(Kind::Put, 7, 70, Millis(500)));
    assert!(found.seq_max >= Seq(12) && found.seq_max < Seq(15));
    assert_eq!(found.key_len, 16);
    let one = put(7, 90, Never);
    assert_eq!(uniform(&[one]).unwrap().seq_max, Seq(7));
    assert!(uniform(&[put(7, 1, Absent), put(9, 1, Absent)]).is_some());
    let tombstone = (header(Kind::Tombstone, 8, 90, Absent), 16, false);
    let longest = put(8, 90, Millis(MAX_TTL_MILLIS));
    for other in [
        put(8, 90, Absent),
        put(8, 90, Millis(1)),
        (one.0, 17, false),
        (one.0, 16, true),
        tombstone,
    ] {
        assert_eq!(uniform(&[one, other]), None, "{other:?}");
    }
    assert_eq!(uniform(&[tombstone]), None);
    assert_eq!(uniform(&[(one.0, 16, true)]), None);
    assert!(uniform(&[longest]).is_some());
    assert_eq!(uniform(&[longest, put(8, 90, Millis(5))]), None);
}

#[test]
fn all_widths_of_all_numbers_read_back() {
    for bits in 0..64 {
        for also in [0, 1, 7, 13, 55, 56, 57, 63] {
            let (a, b) = ((1u64 << bits) - 1, (1u64 << also) - 1);
            let ttl = ItemTtl::Millis((a ^ b).min(MAX_TTL_MILLIS));
            through(&[
                (header(Kind::Put, 0, 0, ItemTtl::Millis(0)), 1, false),
                (header(Kind::Put, a, b, ttl), 1, false),
                (header(Kind::Put, a / 3, b / 5, ItemTtl::Absent), 1, false),
            ]);
        }
    }
}

#[test]
fn what_was_made_up_is_refused() {
    type Edit = fn(&mut [u8; PACKING_LEN]);
    let key_of_16 = || {
        [HeaderFields::of(
            &header(Kind::Put, 0, 0, ItemTtl::Absent),
            16,
            false,
        )]
    };
    let read = |edit: Edit| {
        let mut bytes = packing_around(key_of_16().into_iter());
        edit(&mut bytes);
        HeaderPacking::of(&bytes).header(&[0xff; 64], 0)
    };
    assert!(read(|_| ()).is_ok());
    let refused: [(Edit, &str); 5] = [
        (|packing| packing[TAG_AT] = 0, "unknown kind of record"),
        (|packing| packing[TAG_AT] = 3, "unknown kind of record"),
        (
            |packing| packing[TAG_AT] = 1 | 3 << 2,
            "unknown kind of ttl",
        ),
        (
            |packing| packing[TAG_AT] = 1 | 1 << 5,
            "unknown kind of ttl",
        ),
        (
            |packing| packing[TAG_AT] = 2 | 1 << 2,
            "a tombstone with a ttl",
        ),
    ];
    for (edit, what) in refused {
        assert_eq!(read(edit), Err(what));
    }
    // A field that is too large is the maximum.
    let bits = |at: usize| PLACES_AT + 2 * at + 1;
    let read = |edit: &dyn Fn(&mut [u8; PACKING_LEN])| {
        let mut bytes = packing_around(key_of_16().into_iter());
        edit(&mut bytes);
        HeaderPacking::of(&bytes).header(&[0xff; 64], 0).unwrap().0
    };
    let largest = read(&|packing| {
        (packing[SEQ_AT], packing[bits(SEQ)], packing[LEN_AT]) = (1, 64 << 1, 9);
    });
    assert_eq!(largest.seq, Seq::MAX);
    let largest = read(&|packing| {
        packing[WRITTEN_AT_AT..][..8].fill(0xff);
        (packing[bits(WRITTEN_AT)], packing[LEN_AT]) = (1 << 1, 9);
    });
    assert_eq!(largest.written_at, Timestamp::MAX);
    // No packing makes a read leave the bytes.
    for len in 0..16 {
        let all = [0xff; PACKING_LEN];
        let _ = HeaderPacking::of(&all).header(&[0xff; 16][..len], 3);
        let _ = HeaderPacking::of(&all).key_len(&[0xff; 16][..len], 3);
        assert!(HeaderPacking::of(&all).in_one_word().is_none());
    }
}
