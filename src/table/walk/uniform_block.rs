//! Finds uniform blocks (data/lend/uniform_block.rs): blocks whose records are all alike.
//!
//! ```text
//! packing   tag: one of all, an inline put | key length: one of all | seq | written_at | ttl: the lowest of each
//! offsets   .. 1200 1322 1444 ..        entry 17 is 1200..1322: header fields of one length | key of one length | value
//! ```
//!
//! The packing of a block's headers (header_packing.rs) says whether its records are alike. If they are, a record is
//! two offsets. A property that is certain of the earliest of all possible records under that packing is certain of
//! each: that it is live at a moment, that no range delete is newer. Only its bytes are not yet checked: a uniform
//! block does not give a record that does not add up; the cursor then reads it by [`Block::entry`], which says what is
//! wrong.

use crate::data::lend::uniform_block::UniformShape;
use crate::table::encode::block::{Block, Layout};
use crate::table::encode::format::LARGE_VALUE_LEN;
use crate::table::encode::header_packing::Uniform;

/// The common properties of a block whose records are alike.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// Properties that are certain of all records.
    pub uniform: Uniform,
    /// Where they are.
    pub shape: UniformShape,
}

impl Alike {
    /// That of a block, if its records are alike.
    pub fn of(block: &Block<'_>) -> Option<Alike> {
        let Layout {
            offsets_at, wide, ..
        } = block.layout;
        let uniform = block.packing.uniform().filter(|_| !wide)?;
        let shape = UniformShape {
            offsets_at,
            count: block.layout.count(),
            header_len: block.packing.len(),
            key_len: uniform.key_len,
            value_most: LARGE_VALUE_LEN,
        };
        Some(Alike { uniform, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::hash_key;
    use crate::base::record::{Header, Kind, RecordRef};
    use crate::base::{ItemTtl, Seq, Timestamp};
    use crate::data::item::{Item, Pair};
    use crate::data::lend::block_slice::BlockSlice;
    use crate::data::lend::lent::{Ask, CertainView, LendOutcome, Lent};
    use crate::data::lend::uniform_block::UniformBlock;
    use crate::expiry::{ExpiryView, Settings};
    use crate::table::encode::block_builder::{Addition, BlockBuilder};
    use bytes::Bytes;
    use std::ops::Range;

    fn body(records: &[(&str, u64, &str)]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (key, seq, value) in records {
            let header = Header {
                kind: Kind::Put,
                seq: Seq(*seq),
                written_at: Timestamp(100 + seq),
                ttl: ItemTtl::Never,
            };
            let record = RecordRef {
                header,
                key: key.as_bytes(),
                value_len: value.len(),
            };
            let hash = hash_key(record.key);
            builder.push(&record, hash, &Addition::Inline(value.as_bytes()));
        }
        let ranges = builder.ranges();
        builder.write_body(&ranges).to_vec()
    }

    type Lend = fn(&UniformBlock<'_>, usize, &Ask<'_>, &mut Lent) -> (LendOutcome, usize);

    const BACK: Lend = |block, at, ask, lent| block.lend_back(at, ask, lent);

    fn lend(
        body: &[u8],
        at: usize,
        decided: &str,
        bound: Option<&str>,
        most: usize,
    ) -> (LendOutcome, usize, Vec<String>) {
        lend_by(
            |block, at, ask, lent| block.lend(at, ask, lent),
            body,
            at,
            (decided, bound, most),
        )
    }

    fn lend_by(
        lend: Lend,
        body: &[u8],
        at: usize,
        (decided, bound, most): (&str, Option<&str>, usize),
    ) -> (LendOutcome, usize, Vec<String>) {
        let layout = Layout::of(body).unwrap();
        let alike = Alike::of(&layout.block(body)).expect("records that are alike");
        let mut lent = Lent::default();
        lent.begin((most, most), usize::MAX);
        let owner = lent.hold(Bytes::copy_from_slice(body));
        let ask = Ask {
            view: &CertainView {
                max: Seq(9),
                later: ExpiryView::at(Timestamp(0), Settings::default),
                number: 1,
            },
            call: 1,
            decided: decided.as_bytes(),
            bound: bound.map(str::as_bytes),
            above: Seq(0),
        };
        let block = alike.shape.block(body, owner);
        let (stand, at) = lend(&block, at, &ask, &mut lent);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let items = (0..lent.len()).map(|index| {
            let (key, value) = lent.get(index).unwrap();
            text(key) + "=" + &text(value)
        });
        (stand, at, items.collect())
    }

    #[test]
    fn a_uniform_block_lends_the_newest_version_of_each_key_up_to_its_bound() {
        let body = body(&[
            ("a", 7, "1"),
            ("b", 9, "new"),
            ("b", 8, "old"),
            ("c", 5, ""),
            ("d", 6, "last"),
        ]);
        let all = ["a=1", "b=new", "c=", "d=last"];
        let owned = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect();
        assert_eq!(
            lend(&body, 0, "", None, 9),
            (LendOutcome::OnLast, 4, owned(&all))
        );
        assert_eq!(
            lend(&body, 0, "", Some("e"), 9),
            (LendOutcome::OnLast, 4, owned(&all))
        );
        assert_eq!(
            lend(&body, 0, "", Some("c"), 9),
            (LendOutcome::Behind, 3, owned(&all[..2]))
        );
        assert_eq!(
            lend(&body, 0, "", Some("a"), 9),
            (LendOutcome::Same, 0, vec![])
        );
        assert_eq!(
            lend(&body, 0, "a", Some("b"), 9),
            (LendOutcome::Behind, 1, vec![])
        );
        assert_eq!(
            lend(&body, 2, "b", None, 9),
            (LendOutcome::OnLast, 4, owned(&all[2..]))
        );
        // A full `Lent` takes nothing, not even a version that is passed over.
        assert_eq!(
            lend(&body, 0, "", None, 2),
            (LendOutcome::Behind, 2, owned(&all[..2]))
        );
        assert_eq!(lend(&body, 0, "", None, 0), (LendOutcome::Same, 0, vec![]));
    }

    #[test]
    fn backwards_too() {
        let body = body(&[
            ("a", 7, "1"),
            ("b", 9, "new"),
            ("b", 8, "old"),
            ("c", 5, ""),
        ]);
        let lend = |at, bound, most| lend_by(BACK, &body, at, ("", bound, most));
        let owned = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect();
        let all = ["c=", "b=new", "a=1"];
        assert_eq!(lend(3, None, 9), (LendOutcome::OnLast, 0, owned(&all)));
        assert_eq!(lend(2, None, 9), (LendOutcome::OnLast, 0, owned(&all[1..])));
        assert_eq!(
            lend(3, Some("a"), 9),
            (LendOutcome::Behind, 0, owned(&all[..2]))
        );
        assert_eq!(
            lend(3, Some("b"), 9),
            (LendOutcome::Behind, 2, owned(&all[..1]))
        );
        assert_eq!(lend(3, Some("c"), 9), (LendOutcome::Same, 3, vec![]));
        assert_eq!(lend(3, None, 1), (LendOutcome::Behind, 2, owned(&all[..1])));
    }

    fn block_slice(body: &[u8], at: usize, bound: Option<&str>) -> Option<BlockSlice> {
        let layout = Layout::of(body).unwrap();
        let block = layout.block(body);
        let alike = Alike::of(&block).expect("records that are alike");
        let headers = block.packing.in_one_word().expect("few bits");
        let view = CertainView {
            max: Seq(99),
            later: ExpiryView::at(Timestamp(0), Settings::default),
            number: 1,
        };
        let ask = Ask {
            view: &view,
            call: 0,
            decided: &[],
            bound: bound.map(str::as_bytes),
            above: Seq(0),
        };
        let block = (alike.shape, headers.of_uniform_block(&alike.uniform));
        BlockSlice::behind(at, &Bytes::copy_from_slice(body), block, &ask)
    }

    /// The records that a slice takes out, by number; each is the one that the block has there.
    fn taken(body: &[u8], slice: Option<BlockSlice>) -> Range<usize> {
        let Some(mut slice) = slice else {
            return 0..0;
        };
        let layout = Layout::of(body).unwrap();
        let first = slice.last().0 + 1;
        let mut next = first;
        let settings = Settings::default();
        while let Some(item) = slice.take(&settings, Timestamp(7)) {
            let entry = layout.block(body).entry(next).unwrap();
            let key = &body[entry.key()];
            let life = settings.life(&entry.header);
            let value = Bytes::copy_from_slice(&body[entry.value().unwrap()]);
            let pair = Pair::new(Bytes::copy_from_slice(key), value);
            assert_eq!(item, Item::new(pair, &entry.header, life, Timestamp(7)));
            assert_eq!(slice.last(), (next, key));
            next += 1;
        }
        first..next
    }

    #[test]
    fn a_slice_has_what_comes_before_its_bound_and_a_second_version() {
        let keys = ["a", "b", "c", "d", "e", "f", "f", "g", "h", "i", "j", "k"];
        let records = keys.iter().zip([9, 3, 5, 5, 7, 8, 4, 6, 1, 2, 9, 3]);
        let records: Vec<_> = records.map(|(&key, seq)| (key, seq, key)).collect();
        let body = body(&records);
        let taken = |at, bound| taken(&body, block_slice(&body, at, bound));
        assert_eq!(taken(0, None), 1..6);
        assert_eq!(taken(1, None), 2..6);
        assert_eq!(taken(2, None), 0..0, "three are not worth it");
        assert_eq!(taken(5, None), 0..0, "an older version comes next");
        assert_eq!(taken(6, None), 7..12);
        assert_eq!(taken(0, Some("f")), 1..5);
        assert_eq!(taken(0, Some("e")), 0..0);
        assert_eq!(taken(0, Some("a")), 0..0);
        assert_eq!(taken(6, Some("k")), 7..11);
        assert_eq!(taken(6, Some("kk")), 7..12);
        assert_eq!(taken(11, None), 0..0);
    }

    #[test]
    fn a_slice_ends_before_what_does_not_add_up() {
        let keys = ["aa", "bb", "cc", "dd", "ee", "ff", "gg"];
        let records: Vec<_> = keys.iter().map(|&key| (key, 7, "1")).collect();
        let mut body = body(&records);
        let offsets_at = Layout::of(&body).unwrap().offsets_at;
        body[offsets_at + 2 * 6..][..2].copy_from_slice(&0xffff_u16.to_le_bytes());
        assert_eq!(taken(&body, block_slice(&body, 0, None)), 1..5);
    }

    #[test]
    fn a_record_that_does_not_add_up_is_left_to_who_says_so() {
        let good = body(&[("aa", 7, "1"), ("bb", 9, "2"), ("cc", 8, "3")]);
        let layout = Layout::of(&good).unwrap();
        let offsets_at = layout.offsets_at;
        for (record, to) in [(2, 0xffff_u16), (2, 3), (1, 0)] {
            let mut body = good.clone();
            body[offsets_at + 2 * record..][..2].copy_from_slice(&to.to_le_bytes());
            let layout = Layout::of(&body).unwrap();
            assert!((0..3).any(|at| layout.block(&body).entry(at).is_err()));
            let (stand, at, items) = lend(&body, 0, "", None, 9);
            let shown = record - 1;
            assert_eq!(items.len(), shown);
            match shown {
                0 => assert_eq!((stand, at), (LendOutcome::Same, 0)),
                _ => assert_eq!((stand, at), (LendOutcome::OnLast, shown - 1)),
            }
            assert!(layout.block(&body).entry(shown).is_err());
            // Backwards the record behind it is the first that is in doubt.
            let (stand, at, _) = lend_by(BACK, &body, 2, ("", None, 9));
            assert!(stand == LendOutcome::Same || at > 0, "{stand:?} at {at}");
        }
    }
}
