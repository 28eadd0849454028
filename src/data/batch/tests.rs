use super::*;
use crate::data::relogged::relogged;
use crate::values::{Compression, WhenFull};

#[test]
fn writes_read_back_and_damage_is_refused() {
    let c = ContainerId(300);
    let kept = |ttl| Op::Put {
        container: c,
        ttl: WriteTtl::Kept {
            written_at: Timestamp(1 << 40),
            ttl,
        },
        key: b"f",
        value: b"5",
    };
    let expire = |what| Op::Expire { container: c, what };
    let quota = Quota {
        max_live_bytes: 1 << 40,
        when_full: WhenFull::ExpireSoonest,
    };
    let new = NewContainer {
        name: "new",
        default: DefaultMillis::Millis(5_000),
        compression: Compression::Lz4,
        keep_expired: 7,
        quota: Some(quota),
    }
    .encode();
    let ops = [
        Op::Put {
            container: c,
            ttl: WriteTtl::Absent,
            key: b"a",
            value: b"1",
        },
        Op::Put {
            container: c,
            ttl: WriteTtl::Never,
            key: b"b",
            value: b"",
        },
        Op::Put {
            container: c,
            ttl: WriteTtl::Millis(5),
            key: b"c",
            value: b"3",
        },
        Op::Put {
            container: c,
            ttl: WriteTtl::Until(Timestamp(9)),
            key: b"d",
            value: b"4",
        },
        kept(ItemTtl::Absent),
        kept(ItemTtl::Never),
        kept(ItemTtl::Millis(70_000)),
        Op::Delete {
            container: c,
            key: b"e",
        },
        Op::DeleteRange {
            container: c,
            from: b"",
            to: b"z",
        },
        Op::SetDefault {
            container: c,
            default: DefaultMillis::Millis(5_000),
        },
        expire(Expire::Before(Timestamp(1 << 40))),
        expire(Expire::WrittenBefore(Timestamp(1 << 40))),
        expire(Expire::All),
        Op::Create {
            container: c,
            new: &new,
        },
        Op::Drop {
            container: c,
            name: "dropped",
        },
        Op::SetQuota {
            container: c,
            quota: None,
        },
        Op::SetQuota {
            container: c,
            quota: Some(quota),
        },
        Op::KeepExpired {
            container: c,
            millis: 60_000,
            ends_dropped: Timestamp(70),
        },
    ];
    let mut bytes = vec![];
    let mut ends = vec![0];
    for op in &ops {
        op.encode(&mut bytes);
        ends.push(bytes.len());
    }
    assert_eq!(
        Ops::new(&bytes).collect::<Result<Vec<_>, _>>().unwrap(),
        ops
    );
    for len in (0..bytes.len()).filter(|len| !ends.contains(len)) {
        assert!(
            Ops::new(&bytes[..len]).any(|op| op.is_err()),
            "cut at {len}"
        );
    }
}

#[test]
fn relogged_entries_keep_number_and_time() {
    let header = Header {
        kind: Kind::Put,
        seq: Seq(77),
        written_at: Timestamp(5),
        ttl: ItemTtl::Millis(3),
    };
    let entries = [
        Relogged::Record {
            container: ContainerId(1),
            header,
            key: b"k",
            value: b"v",
        },
        Relogged::Range {
            container: ContainerId(2),
            seq: Seq(78),
            from: b"a",
            to: b"",
        },
    ];
    let mut bytes = vec![];
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    assert_eq!(
        relogged(&bytes).collect::<Result<Vec<_>, _>>().unwrap(),
        entries
    );
}

#[test]
fn ranges_know_what_they_hold() {
    let range = KeyRange {
        from: b"b".to_vec(),
        to: Some(b"d".to_vec()),
    };
    assert!(
        range.contains(b"b")
            && range.contains(b"cz")
            && !range.contains(b"d")
            && !range.contains(b"a")
    );
    assert!(
        range.overlaps(b"a", b"b") && !range.overlaps(b"d", b"e") && !range.overlaps(b"a", b"az")
    );
    assert!(range.covers(b"b", b"c") && !range.covers(b"b", b"d"));
    assert!(
        KeyRange {
            from: b"b".to_vec(),
            to: Some(b"b".to_vec())
        }
        .is_empty()
    );
}

#[test]
fn no_quota_has_one_spelling() {
    let decoded = |quota: [u8; 2]| {
        let mut bytes = NewContainer {
            name: "n",
            default: DefaultMillis::Off,
            compression: Compression::None,
            keep_expired: 0,
            quota: None,
        }
        .encode();
        let at = bytes.len() - quota.len();
        bytes[at..].copy_from_slice(&quota);
        NewContainer::decode(&bytes).map(|new| new.quota)
    };
    assert_eq!(decoded([0, 0]), Ok(None));
    decoded([0, 1]).unwrap_err();
}
