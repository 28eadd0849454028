use super::*;
use crate::base::record::{Header, RecordRef};
use crate::base::{Seq, Timestamp};
use crate::table::encode::page::{HEADER_LEN, PREFIX_LEN, ROW_LEN};

fn census() -> Census {
    let mut census = Census::default();
    census.add(&RecordRef {
        header: Header::tombstone(Seq(1), Timestamp(1)),
        key: b"k",
        value_len: 0,
    });
    census
}

fn page_of(keys: &[Vec<u8>]) -> Vec<u8> {
    let census = census();
    let mut builder = PageBuilder::default();
    for (number, key) in keys.iter().enumerate() {
        builder.push(number as u64 * 50, 50, (key, key), &census);
    }
    builder.finish(keys.last().unwrap())
}

#[test]
fn a_search_finds_what_a_plain_one_finds() {
    for (shared, digits) in [
        ("", 3),
        ("", 12),
        ("shared/", 3),
        ("longer than eight bytes/", 12),
    ] {
        for count in [1usize, 2, 3, 7, 64, 99] {
            let key = |number: usize| format!("{shared}{number:0digits$}").into_bytes();
            let keys: Vec<_> = (0..count).map(|number| key(number * 2 + 1)).collect();
            let bytes = Bytes::from(page_of(&keys));
            let within = 0..50 * count as u64;
            let page = Page::open(&bytes, count, &within, TRAILER_LEN).unwrap();
            let mut asked: Vec<_> = (0..count * 2 + 2).map(key).collect();
            asked.extend([
                vec![],
                vec![0],
                vec![0xff; 9],
                b"shared".to_vec(),
                b"sharee".to_vec(),
            ]);
            asked.push([&keys[0][..], b"\0"].concat());
            for key in asked {
                let plain = keys.partition_point(|first| *first <= key).checked_sub(1);
                assert_eq!(page.find(&key), plain, "{key:?} of {count}");
                let below = keys.partition_point(|first| *first < key).checked_sub(1);
                assert_eq!(page.find_below(&key), below, "{key:?} of {count}");
            }
        }
    }
}

#[test]
fn a_page_that_is_not_in_order_is_refused() {
    let bytes = page_of(&[b"a1".to_vec(), b"a2".to_vec(), b"a3".to_vec()]);
    let open =
        |bytes: &[u8], end| Page::open(&Bytes::copy_from_slice(bytes), 3, &(0..end), TRAILER_LEN);
    assert!(open(&bytes, 150).is_ok());
    assert!(open(&bytes, 149).is_err());
    for len in 0..bytes.len() {
        assert!(open(&bytes[..len], 150).is_err(), "cut at {len}");
    }
    let fixed = HEADER_LEN + 3 * (PREFIX_LEN + ROW_LEN);
    for at in 0..fixed {
        let mut bad = bytes.clone();
        bad[at] ^= 0x40;
        assert!(open(&bad, 150).is_err(), "byte {at}");
    }
}

#[test]
fn pages_together_are_the_index() {
    let key = |number: usize| format!("key{number:04}").into_bytes();
    for (page_bytes, pages) in [(1, 50), (200, 13), (1 << 20, 1)] {
        let mut builder = IndexBuilder::new(page_bytes);
        let census = census();
        for number in 0..50 {
            let keys = (&key(2 * number)[..], &key(2 * number)[..]);
            builder.push(number as u64 * 50, 50, keys, &census);
        }
        let bytes = Bytes::from(builder.finish(|at, bytes| (at + bytes.len() as u64) as u32));
        let sealed = |sealed: Sealed| {
            let Sealed { place, crc } = sealed;
            assert_eq!(crc, place.end as u32, "of the bytes there");
        };
        sealed(Index::sealed_top(&bytes).unwrap());
        let index = Index::open(bytes.clone(), 50).unwrap();
        assert_eq!((index.len(), index.top().len()), (50, pages));
        assert_eq!(Index::open(bytes.clone(), 1).is_err(), pages > 1);
        for number in 0..50 {
            let at = index.page_of(number);
            sealed(index.sealed_page(at));
            let page = index.open_page(at, 2_500).unwrap();
            let local = number - index.blocks_of(at).start;
            assert_eq!(page.first_key(local), key(2 * number));
            assert_eq!(page.place(local).start, number as u64 * 50);
            assert_eq!(index.top().find(&key(2 * number + 1)), Some(at));
            let all = index.blocks_of(at).len() as u64;
            assert_eq!(index.top().census(at).total().count, all);
        }
        for len in 0..bytes.len() {
            let cut = bytes.slice(..len);
            assert!(Index::sealed_top(&cut).is_err() || Index::open(cut, 50).is_err());
        }
    }
}
