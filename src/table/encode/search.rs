//! Search for entries in a block.
//!
//! A get looks for a key by its hash byte. A seek looks where its place is if the keys are evenly spread over the block,
//! as random keys and times are; what it reads there is mostly what the scan reads next. If the place is not near, it is
//! found by a search in eight parts at a time, whose borders are prefetched together. A scan that begins in blocks of
//! several runs waits for the memory of all of them at once: so that search is cut into steps, each of which ends by
//! prefetching what the next one reads.

use crate::base::Seq;
use crate::base::coding::Malformed;
use crate::base::prefetch;
use crate::base::record::{key_prefix, order};
use crate::data::cursor::Seek;
use crate::table::encode::block::{Block, Entry, Parts, hash_byte};

/// The number of parts into which a search divides a block at each step.
const PARTS: usize = 8;

/// The entries on each side of the likely place that the first step of a seek reads. Among 34 keys by chance between two
/// known ones, the place of another is off by 2.3 on average (the root of 34 x (1 - x), for any x).
const NEAR: usize = 4;

/// If these entries have more bytes together, only their keys are prefetched.
const NEAR_BYTES: usize = 2 << 10;

/// Where in its block a key is, if keys are evenly spread there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub u16);

impl Share {
    /// Nothing is known.
    pub const HALF: Share = Share(1 << 15);

    /// That of a number between two.
    #[inline]
    pub fn of(number: u64, first: u64, next: u64) -> Share {
        let width = next.saturating_sub(first);
        let offset = number.saturating_sub(first).min(width);
        // The highest 32 bits of both are enough.
        let shift = u64::BITS.saturating_sub(width.leading_zeros() + 32);
        Share((((offset >> shift) << 16) / ((width >> shift) + 1)) as u16)
    }
}

/// A search for a place in a block, in steps that each end where memory must be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The entries before this one are before the place ...
    low: usize,
    /// ... and this one and all after it are not.
    high: usize,
    /// The likely place, before the first step.
    likely: Option<usize>,
}

impl Search {
    /// The number of entries before the place, once it is known.
    pub fn found(&self) -> Option<usize> {
        (self.low == self.high).then_some(self.low)
    }

    /// The end of a part of the remaining entries.
    fn between(&self, part: usize) -> usize {
        self.low + (self.high - self.low) * part / PARTS
    }
}

/// A key that is compared with others: mostly their prefixes decide.
struct Sought<'a> {
    key: &'a [u8],
    prefix: u64,
}

impl<'a> Sought<'a> {
    fn new(key: &'a [u8]) -> Self {
        let prefix = key_prefix(key);
        Sought { key, prefix }
    }

    #[inline]
    fn is_above(&self, other: &[u8]) -> bool {
        let prefix = key_prefix(other);
        self.prefix > prefix || (self.prefix == prefix && self.key > other)
    }

    #[inline]
    fn is_below(&self, other: &[u8]) -> bool {
        let prefix = key_prefix(other);
        self.prefix < prefix || (self.prefix == prefix && self.key < other)
    }
}

impl<'a> Block<'a> {
    /// The newest version of `key` at or below `max`, and its index. `hash` is the key's.
    #[inline(always)]
    pub fn find(
        &self,
        hash: u64,
        key: &[u8],
        max: Seq,
    ) -> Result<Option<(usize, Entry)>, Malformed> {
        let Some((index, parts)) = self.newest(hash, key)? else {
            return Ok(None);
        };
        let mut found = (index, self.entry_of(parts)?);
        if found.1.header.seq > max {
            match self.find_older(index + 1, key, max)? {
                Some(older) => found = older,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Asks for the entry at which [`Block::find`] looks first.
    #[inline]
    pub fn fetch_match(&self, hash: u64) {
        if let Some(index) = next_match(self.hashes(), hash_byte(hash), 0) {
            self.fetch(index);
        }
    }

    /// The newest version of `key`, and its index. `hash` is the key's.
    #[inline(always)]
    fn newest(&self, hash: u64, key: &[u8]) -> Result<Option<(usize, Parts<'a>)>, Malformed> {
        let mut from = 0;
        while let Some(index) = next_match(self.hashes(), hash_byte(hash), from) {
            let (start, bytes) = self.bytes_of(index)?;
            // The lines after its first one too, and not only when the value is read.
            [bytes.get(64), bytes.get(128)]
                .into_iter()
                .flatten()
                .for_each(prefetch);
            let parts = self.parts(start, bytes)?;
            if parts.key == key {
                return Ok(Some((index, parts)));
            }
            from = index + 1;
        }
        Ok(None)
    }

    #[cold]
    fn find_older(
        &self,
        from: usize,
        key: &[u8],
        max: Seq,
    ) -> Result<Option<(usize, Entry)>, Malformed> {
        let before = |index| {
            let seq = self.entry(index)?.header.seq;
            Ok(order(self.key(index)?, seq, key, max).is_lt())
        };
        let index = self.partition_point(from, before)?;
        if index == self.layout.count() || self.key(index)? != key {
            return Ok(None);
        }
        Ok(Some((index, self.entry(index)?)))
    }

    /// The first entry from `from` on for which `before` is false; it is true up to some entry and false from there.
    fn partition_point(
        &self,
        from: usize,
        before: impl Fn(usize) -> Result<bool, Malformed>,
    ) -> Result<usize, Malformed> {
        let mut search = Search {
            low: from,
            high: self.layout.count(),
            likely: None,
        };
        loop {
            if let Some(found) = search.found() {
                return Ok(found);
            }
            self.fetch_for(&search);
            self.narrow_by(&mut search, &before)?;
        }
    }

    /// Starts the search for the first entry that a seek admits, whose key has this share.
    pub fn search(&self, to: Seek<'_>, share: Share) -> Search {
        let count = self.layout.count();
        let (low, high) = match to {
            Seek::First => (0, 0),
            Seek::Last => (count, count),
            _ => (0, count),
        };
        let likely = (low < high).then_some((count * usize::from(share.0)) >> 16);
        let search = Search { low, high, likely };
        self.fetch_for(&search);
        search
    }

    /// Makes a step of a search.
    pub fn narrow(&self, search: &mut Search, to: Seek<'_>) -> Result<(), Malformed> {
        match to {
            Seek::First | Seek::Last => return Ok(()),
            Seek::AtOrAfter(key) | Seek::Before(key) => {
                let sought = Sought::new(key);
                self.step(search, |at| Ok(sought.is_above(self.key(at)?)))?;
            }
            Seek::After(key) | Seek::AtOrBefore(key) => {
                let sought = Sought::new(key);
                self.step(search, |at| Ok(!sought.is_below(self.key(at)?)))?;
            }
        }
        self.fetch_for(search);
        Ok(())
    }

    #[inline(always)]
    fn step(
        &self,
        search: &mut Search,
        before: impl Fn(usize) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        match search.likely.take() {
            Some(likely) => self.look_near(likely, search, before),
            None => self.narrow_by(search, before),
        }
    }

    /// Reduces the search of a whole block by the entries near the likely place.
    #[inline(always)]
    fn look_near(
        &self,
        likely: usize,
        search: &mut Search,
        before: impl Fn(usize) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        if before(likely)? {
            let end = search.high.min(likely + NEAR + 1);
            search.low = likely + 1;
            while search.low < end {
                if !before(search.low)? {
                    search.high = search.low;
                    break;
                }
                search.low += 1;
            }
        } else {
            let start = likely.saturating_sub(NEAR);
            search.high = likely;
            while search.high > start {
                if before(search.high - 1)? {
                    search.low = search.high;
                    break;
                }
                search.high -= 1;
            }
        }
        Ok(())
    }

    /// Prefetches the entries that the next step reads, all at once, so that their waits overlap.
    fn fetch_for(&self, search: &Search) {
        match search.likely {
            Some(likely) => {
                let near = likely.saturating_sub(NEAR)..search.high.min(likely + NEAR + 1);
                let bytes = self.offset(near.start)..self.offset(near.end);
                match self.bytes.get(bytes) {
                    Some(bytes) if bytes.len() <= NEAR_BYTES => {
                        bytes.iter().step_by(64).for_each(prefetch)
                    }
                    _ => near.for_each(|at| self.fetch_key(at)),
                }
            }
            None if search.low < search.high => {
                (1..PARTS).for_each(|part| self.fetch_key(search.between(part)))
            }
            None => (),
        }
    }

    /// Prefetches the beginning of a key.
    #[inline]
    fn fetch_key(&self, index: usize) {
        let start = self.offset(index);
        let places = [start, start + self.packing.len() + 4];
        let bytes = places.into_iter().filter_map(|at| self.bytes.get(at));
        bytes.for_each(prefetch);
    }

    /// Prefetches the first two lines of entry `index`, if there is such an entry.
    #[inline(always)]
    pub fn fetch(&self, index: usize) {
        if index < self.layout.count() {
            let start = self.offset(index);
            let bytes = [start, start + 64]
                .into_iter()
                .filter_map(|at| self.bytes.get(at));
            bytes.for_each(prefetch);
        }
    }

    /// Reduces the search to the one of eight parts in which entries cease to be `before` the place.
    fn narrow_by(
        &self,
        search: &mut Search,
        before: impl Fn(usize) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        let whole = *search;
        let (mut first, mut last) = (1, PARTS);
        while first < last && search.low < search.high {
            let part = (first + last) / 2;
            let middle = whole.between(part);
            match before(middle)? {
                true => (first, search.low) = (part + 1, middle + 1),
                false => (last, search.high) = (part, middle),
            }
        }
        Ok(())
    }
}

/// The first place from `from` on that may hold `byte`: one that holds it is never skipped; one that follows such a
/// place in its word may be returned without holding it.
#[inline]
fn next_match(bytes: &[u8], byte: u8, from: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    let matches = |word: [u8; 8]| {
        let zeros = u64::from_le_bytes(word) ^ (ONES * u64::from(byte));
        zeros.wrapping_sub(ONES) & !zeros & (ONES << 7)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut wanted = u64::MAX << (from % 8 * 8);
    for (number, word) in words.iter().enumerate().skip(from / 8) {
        let found = matches(*word) & wanted;
        if found != 0 {
            return Some(number * 8 + found.trailing_zeros() as usize / 8);
        }
        wanted = u64::MAX;
    }
    (from.max(words.len() * 8)..bytes.len()).find(|&at| rest[at % 8] == byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::hash_key;
    use crate::base::record::{Header, Kind, RecordRef};
    use crate::base::{ItemTtl, Timestamp};
    use crate::table::encode::block::Layout;
    use crate::table::encode::block_builder::{Addition, BlockBuilder};

    /// The number of entries before the place of a search.
    fn place(block: &Block<'_>, to: Seek<'_>, share: Share) -> usize {
        let mut search = block.search(to, share);
        loop {
            if let Some(found) = search.found() {
                return found;
            }
            block.narrow(&mut search, to).unwrap();
        }
    }

    /// Goal: the search in parts finds the same place as a plain one, with few comparisons. Method: blocks of all small
    /// sizes, every place, every beginning.
    #[test]
    fn a_search_by_parts_finds_what_a_plain_one_finds() {
        for count in 1..=70usize {
            let mut builder = BlockBuilder::default();
            for seq in 0..count as u64 {
                let record = RecordRef {
                    header: Header {
                        kind: Kind::Put,
                        seq: Seq(seq),
                        written_at: Timestamp(seq),
                        ttl: ItemTtl::Absent,
                    },
                    key: &seq.to_be_bytes(),
                    value_len: 0,
                };
                builder.push(&record, hash_key(record.key), &Addition::Inline(&[]));
            }
            let ranges = builder.ranges();
            let body = builder.write_body(&ranges);
            let layout = Layout::of(body).unwrap();
            let block = layout.block(body);
            for (from, change) in
                (0..=count).flat_map(|from| (from..=count).map(move |to| (from, to)))
            {
                let questions = std::cell::Cell::new(0);
                let found = block.partition_point(from, |index| {
                    assert!((from..count).contains(&index));
                    questions.set(questions.get() + 1);
                    Ok(index < change)
                });
                assert_eq!(found, Ok(change), "from {from} of {count}");
                assert!(questions.get() <= 9, "{} of {count}", questions.get());
            }
            let shares = [0, 1 << 12, 1 << 15, 3 << 14, u16::MAX].map(Share);
            for (seq, share) in (0..=count as u64).flat_map(|seq| shares.map(|share| (seq, share)))
            {
                let (at, behind) = (seq as usize, count.min(seq as usize + 1));
                let key = &seq.to_be_bytes()[..];
                assert_eq!(place(&block, Seek::AtOrAfter(key), share), at);
                assert_eq!(place(&block, Seek::Before(key), share), at);
                assert_eq!(place(&block, Seek::After(key), share), behind);
                assert_eq!(place(&block, Seek::AtOrBefore(key), share), behind);
                let between = [key, b"+"].concat();
                for to in [Seek::AtOrAfter, Seek::After, Seek::AtOrBefore, Seek::Before] {
                    assert_eq!(place(&block, to(&between), share), behind);
                }
            }
        }
    }

    #[test]
    fn a_share_is_that_of_keys_evenly_spread() {
        let quarter = Share::of(700, 500, 1_300).0;
        assert!((16_350..=1 << 14).contains(&quarter), "{quarter}");
        assert_eq!(Share::of(500, 500, 1_300), Share(0));
        assert_eq!(Share::of(400, 500, 1_300), Share(0));
        assert_eq!(Share::of(9_000, 500, 1_300), Share::of(1_300, 500, 1_300));
        assert!(Share::of(1_300, 500, 1_300).0 > 65_400);
        assert_eq!(Share::of(u64::MAX, 0, u64::MAX), Share(u16::MAX));
        assert_eq!(Share::of(500, 500, 500), Share(0));
    }

    #[test]
    fn matches_are_those_of_a_plain_search() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * i / 7 % 5) as u8).collect();
        for len in 0..bytes.len() {
            for byte in 0..6 {
                let (mut from, mut found) = (0, vec![]);
                while let Some(at) = next_match(&bytes[..len], byte, from) {
                    found.push(at);
                    from = at + 1;
                }
                found.retain(|&at| bytes[at] == byte);
                let plain = (0..len).filter(|&at| bytes[at] == byte);
                assert!(plain.eq(found), "byte {byte} in {len}");
            }
        }
    }
}
