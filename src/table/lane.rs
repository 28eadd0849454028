//! A lane: a block all of whose records are alike, read without decoding any of them.
//!
//! ```text
//! packing   tag: one of all, an inline put | key length: one of all | seq | written_at | ttl: the lowest of each
//! offsets   .. 1200 1322 1444 ..        entry 17 is 1200..1322: header fields of one length | key of one length | value
//! ```
//!
//! The packing of a block's headers (header_packing.rs) says whether its records are alike. If they are, a record is
//! two offsets, and what is certain of the earliest of all possible records under that packing is certain of each: that
//! it is live at a moment, that no range delete is newer. Only its bytes are not yet checked: whoever takes a record
//! from a lane that does not add up gets none, and reads it by [`Block::entry`], which says what is wrong.
//!
//! [`Block::entry`]: crate::table::block::Block::entry

use crate::base::record::key_prefix;
use crate::data::lent::{Ask, Lent, Stand};
use crate::table::block::{Block, Layout};
use crate::table::format::LARGE_VALUE_LEN;
use crate::table::header_packing::Uniform;

/// See the file's head. Used with the body that it is of.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// What is certain of all records.
    pub uniform: Uniform,
    offsets_at: usize,
    /// The offsets end here.
    hashes_at: usize,
    header_len: usize,
}

/// A record in a lane's body: `key_at..value_at` is its key, `value_at..end` its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the key begins.
    pub key_at: usize,
    /// Where the value begins, behind the key.
    pub value_at: usize,
    /// Where the value ends.
    pub end: usize,
}

impl Lane {
    /// The lane of a block, if its records are alike.
    pub fn of(block: &Block<'_>) -> Option<Lane> {
        let Layout {
            offsets_at,
            hashes_at,
            wide,
            ..
        } = block.layout;
        let uniform = block.packing.uniform().filter(|_| !wide)?;
        Some(Lane {
            uniform,
            offsets_at,
            hashes_at,
            header_len: block.packing.len(),
        })
    }

    /// The number of records.
    #[inline]
    pub fn count(&self) -> usize {
        (self.hashes_at - self.offsets_at) / 2
    }

    /// Where record `at` begins; for the number of records, where the last one ends.
    #[inline(always)]
    fn offset(&self, body: &[u8], at: usize) -> usize {
        let at = self.offsets_at + 2 * at;
        match body.get(at..at + 2) {
            Some(&[low, high]) if at < self.hashes_at => {
                usize::from(u16::from_le_bytes([low, high]))
            }
            _ => self.offsets_at,
        }
    }

    /// The record that begins and ends at these offsets; `None` if it does not add up.
    #[inline(always)]
    fn piece_at(&self, start: usize, end: usize) -> Option<Piece> {
        let key_at = start + self.header_len;
        let value_at = key_at + self.uniform.key_len;
        let fits = value_at <= end && end <= self.offsets_at && end - value_at <= LARGE_VALUE_LEN;
        fits.then_some(Piece {
            key_at,
            value_at,
            end,
        })
    }

    /// Record `at`, if it adds up.
    #[inline]
    pub fn piece(&self, body: &[u8], at: usize) -> Option<Piece> {
        self.piece_at(self.offset(body, at), self.offset(body, at + 1))
    }

    /// Lends the records from the `first` on, of each key the newest, as long as `ask` and `lent` admit; returns where it
    /// stands then, and at which record. `owner` is the number under which `lent` holds `body`.
    #[inline]
    pub fn lend(
        &self,
        body: &[u8],
        first: usize,
        ask: &Ask<'_>,
        (owner, lent): (u32, &mut Lent),
    ) -> (Stand, usize) {
        let (entries, rest) = body.split_at(self.offsets_at);
        let offsets = rest[..self.hashes_at - self.offsets_at].as_chunks().0;
        let offset = |at: usize| {
            let offset = offsets.get(at).map(|bytes| u16::from_le_bytes(*bytes));
            offset.map_or(entries.len(), usize::from)
        };
        let record = |start: usize, end| {
            let behind = entries.get(start + self.header_len..end)?;
            let (key, value) = behind.split_at_checked(self.uniform.key_len)?;
            (value.len() <= LARGE_VALUE_LEN).then_some(key)
        };
        let bound = ask.bound;
        let bound_prefix = bound.map_or(u64::MAX, key_prefix);
        let (mut at, mut start) = (first, offset(first));
        // The first may be an older version of the key that was lent last.
        let lent_last = lent.last().map(|(key, _)| key);
        let again = record(start, offset(first + 1)).filter(|&key| lent_last == Some(key));
        let mut before = again.unwrap_or(ask.decided);
        let mut before_prefix = key_prefix(before);
        while at < offsets.len() {
            let end = offset(at + 1);
            // Where it stands is always a record that adds up.
            let Some(key) = record(start, end) else {
                break;
            };
            let prefix = key_prefix(key);
            let is_beyond = prefix >= bound_prefix && bound.is_some_and(|bound| key >= bound);
            if is_beyond || lent.is_full() {
                let stand = if at == first {
                    Stand::Same
                } else {
                    Stand::Behind
                };
                return (stand, at);
            }
            if prefix != before_prefix || key != before {
                let key_at = start + self.header_len;
                lent.push(owner, key_at, key_at + self.uniform.key_len, end);
            }
            (before, before_prefix) = (key, prefix);
            (start, at) = (end, at + 1);
        }
        match at.checked_sub(1) {
            Some(last) if at > first => (Stand::OnLast, last),
            _ => (Stand::Same, first),
        }
    }

    /// Like [`Lane::lend`], backwards from `at`, which adds up: versions of a key come oldest first, and the last one is
    /// lent.
    pub fn lend_back(
        &self,
        body: &[u8],
        first: usize,
        ask: &Ask<'_>,
        (owner, lent): (u32, &mut Lent),
    ) -> (Stand, usize) {
        let mut at = first;
        let record = |at| {
            let piece = self.piece(body, at)?;
            Some((piece, body.get(piece.key_at..piece.value_at)?))
        };
        let mut here = record(at);
        while let Some((piece, key)) = here {
            let is_beyond = ask.bound.is_some_and(|bound| key <= bound);
            let before = at.checked_sub(1).map(record);
            // The record before may be a newer version, so it has to add up.
            if is_beyond || lent.is_full() || before == Some(None) {
                break;
            }
            here = before.flatten();
            if here.is_none_or(|(_, before)| before != key) {
                lent.push(owner, piece.key_at, piece.value_at, piece.end);
            }
            if here.is_none() {
                return (Stand::OnLast, at);
            }
            at -= 1;
        }
        let stand = if at == first {
            Stand::Same
        } else {
            Stand::Behind
        };
        (stand, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::{Header, Kind, RecordRef};
    use crate::base::{ItemTtl, Seq, Timestamp};
    use crate::data::lent::LendView;
    use crate::expiry::{ExpiryView, Settings};
    use crate::table::block_builder::{Addition, BlockBuilder};
    use bytes::Bytes;

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
            builder.push(&record, 0, &Addition::Inline(value.as_bytes()));
        }
        let ranges = builder.ranges();
        builder.write_body(&ranges).to_vec()
    }

    type Lend = fn(&Lane, &[u8], usize, &Ask<'_>, (u32, &mut Lent)) -> (Stand, usize);

    fn lend(
        body: &[u8],
        at: usize,
        decided: &str,
        bound: Option<&str>,
        most: usize,
    ) -> (Stand, usize, Vec<String>) {
        lend_by(Lane::lend, body, at, (decided, bound, most))
    }

    fn lend_by(
        lend: Lend,
        body: &[u8],
        at: usize,
        (decided, bound, most): (&str, Option<&str>, usize),
    ) -> (Stand, usize, Vec<String>) {
        let layout = Layout::of(body).unwrap();
        let lane = Lane::of(&layout.block(body)).expect("records that are alike");
        let mut lent = Lent::default();
        lent.begin(most, usize::MAX);
        let owner = lent.hold(Bytes::copy_from_slice(body));
        let ask = Ask {
            view: &LendView {
                max: Seq(9),
                later: ExpiryView::at(Timestamp(0), Settings::default),
                call: 1,
            },
            decided: decided.as_bytes(),
            bound: bound.map(str::as_bytes),
            above: Seq(0),
        };
        let (stand, at) = lend(&lane, body, at, &ask, (owner, &mut lent));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let items = (0..lent.len()).map(|index| {
            let (key, value) = lent.get(index).unwrap();
            text(key) + "=" + &text(value)
        });
        (stand, at, items.collect())
    }

    #[test]
    fn a_lane_lends_the_newest_version_of_each_key_up_to_its_bound() {
        let body = body(&[
            ("a", 7, "1"),
            ("b", 9, "new"),
            ("b", 8, "old"),
            ("c", 5, ""),
            ("d", 6, "last"),
        ]);
        let all = ["a=1", "b=new", "c=", "d=last"];
        let owned = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect();
        assert_eq!(lend(&body, 0, "", None, 9), (Stand::OnLast, 4, owned(&all)));
        assert_eq!(
            lend(&body, 0, "", Some("e"), 9),
            (Stand::OnLast, 4, owned(&all))
        );
        assert_eq!(
            lend(&body, 0, "", Some("c"), 9),
            (Stand::Behind, 3, owned(&all[..2]))
        );
        assert_eq!(lend(&body, 0, "", Some("a"), 9), (Stand::Same, 0, vec![]));
        assert_eq!(
            lend(&body, 0, "a", Some("b"), 9),
            (Stand::Behind, 1, vec![])
        );
        assert_eq!(
            lend(&body, 2, "b", None, 9),
            (Stand::OnLast, 4, owned(&all[2..]))
        );
        // What is full takes nothing, not even a version that is passed over.
        assert_eq!(
            lend(&body, 0, "", None, 2),
            (Stand::Behind, 2, owned(&all[..2]))
        );
        assert_eq!(lend(&body, 0, "", None, 0), (Stand::Same, 0, vec![]));
    }

    #[test]
    fn backwards_too() {
        let body = body(&[
            ("a", 7, "1"),
            ("b", 9, "new"),
            ("b", 8, "old"),
            ("c", 5, ""),
        ]);
        let lend = |at, bound, most| lend_by(Lane::lend_back, &body, at, ("", bound, most));
        let owned = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect();
        let all = ["c=", "b=new", "a=1"];
        assert_eq!(lend(3, None, 9), (Stand::OnLast, 0, owned(&all)));
        assert_eq!(lend(2, None, 9), (Stand::OnLast, 0, owned(&all[1..])));
        assert_eq!(lend(3, Some("a"), 9), (Stand::Behind, 0, owned(&all[..2])));
        assert_eq!(lend(3, Some("b"), 9), (Stand::Behind, 2, owned(&all[..1])));
        assert_eq!(lend(3, Some("c"), 9), (Stand::Same, 3, vec![]));
        assert_eq!(lend(3, None, 1), (Stand::Behind, 2, owned(&all[..1])));
    }

    #[test]
    fn a_record_that_does_not_add_up_is_left_to_who_says_so() {
        let good = body(&[("aa", 7, "1"), ("bb", 9, "2"), ("cc", 8, "3")]);
        let layout = Layout::of(&good).unwrap();
        let offsets_at = Lane::of(&layout.block(&good)).unwrap().offsets_at;
        for (record, to) in [(2, 0xffff_u16), (2, 3), (1, 0)] {
            let mut body = good.clone();
            body[offsets_at + 2 * record..][..2].copy_from_slice(&to.to_le_bytes());
            let layout = Layout::of(&body).unwrap();
            assert!((0..3).any(|at| layout.block(&body).entry(at).is_err()));
            let (stand, at, items) = lend(&body, 0, "", None, 9);
            let shown = record - 1;
            assert_eq!(items.len(), shown);
            match shown {
                0 => assert_eq!((stand, at), (Stand::Same, 0)),
                _ => assert_eq!((stand, at), (Stand::OnLast, shown - 1)),
            }
            assert!(layout.block(&body).entry(shown).is_err());
            // Backwards the record behind it is the first that is in doubt.
            let (stand, at, _) = lend_by(Lane::lend_back, &body, 2, ("", None, 9));
            assert!(stand == Stand::Same || at > 0, "{stand:?} at {at}");
        }
    }
}
