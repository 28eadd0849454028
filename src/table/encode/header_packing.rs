//! The packed header fields before a record's key: frame-of-reference coding (J. Goldstein, R. Ramakrishnan, U. Shaft,
//! "Compressing relations and indexes", 1998).
//!
//! ```text
//! fields   tag | key length | seq | written_at | ttl           each less the lowest of the block, in as many bits as
//!                                                              the highest needs; together whole bytes, zeros behind
//! tag      bits 0-1  kind: 1 put, 2 tombstone
//!          bits 2-3  ttl: 0 absent, 1 never, 2 milliseconds; only these count for the lowest ttl, the others are zeros
//!          bit 4     the value is large, and stands outside the block
//! packing  lowest seq u64 | lowest written_at u64 | lowest ttl u64 | lowest key length u16 | lowest tag u8
//!          bytes of the fields u8 | place u16 of each field
//! place    bits 0-8  the field's first bit              bits 9-15  how many it has
//! ```
//!
//! A field that would reach into a ninth byte starts at the next byte, so that one load of eight bytes has all of it.
//! If all records of a block have the same key length, kind of ttl and so on, the entries have no bits for it.

use crate::base::record::{Header, Kind};
use crate::base::{ItemTtl, MAX_TTL_MILLIS, Seq, Timestamp};
use crate::data::lend::uniform_block::{BitField, UniformHeaders};

/// Bytes of a packing.
pub const PACKING_LEN: usize = PLACES_AT + 2 * COUNT;

const COUNT: usize = 5;
const TAG: usize = 0;
const KEY_LEN: usize = 1;
const SEQ: usize = 2;
const WRITTEN_AT: usize = 3;
const TTL: usize = 4;

const SEQ_AT: usize = 0;
const WRITTEN_AT_AT: usize = 8;
const TTL_AT: usize = 16;
const KEY_LEN_AT: usize = 24;
const TAG_AT: usize = 26;
const LEN_AT: usize = 27;
const PLACES_AT: usize = 28;

/// Five fields of at most 64 bits, each after at most 7 unused bits.
const PACKED_MAX: usize = COUNT * 8 + COUNT;

const LARGE: u64 = 1 << 4;

/// The header fields before a key.
#[derive(Clone, Copy, Debug)]
pub struct HeaderFields {
    each: [u64; COUNT],
    has_ttl: bool,
}

impl HeaderFields {
    /// The fields of a record; `large`: its value is outside its block.
    pub fn of(header: &Header, key_len: usize, large: bool) -> HeaderFields {
        let (ttl_tag, millis) = match header.ttl {
            ItemTtl::Absent => (0, None),
            ItemTtl::Never => (1, None),
            ItemTtl::Millis(millis) => (2, Some(millis)),
        };
        let tag = header.kind as u64 | ttl_tag << 2 | if large { LARGE } else { 0 };
        HeaderFields {
            each: [
                tag,
                key_len as u64,
                header.seq.0,
                header.written_at.0,
                millis.unwrap_or(0),
            ],
            has_ttl: millis.is_some(),
        }
    }
}

/// The bases of a block's header fields, and their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderPacking<'a>(&'a [u8; PACKING_LEN]);

/// The lowest and the highest of each header field, among the records of a block so far.
#[derive(Clone, Copy, Debug)]
pub struct FieldRanges {
    lowest: [u64; COUNT],
    highest: [u64; COUNT],
}

impl Default for FieldRanges {
    fn default() -> Self {
        FieldRanges {
            lowest: [u64::MAX; COUNT],
            highest: [0; COUNT],
        }
    }
}

impl FieldRanges {
    /// Adds the fields of a record.
    #[inline]
    pub fn add(&mut self, fields: &HeaderFields) {
        let mut lowest = fields.each;
        if !fields.has_ttl {
            lowest[TTL] = u64::MAX;
        }
        for (least, field) in self.lowest.iter_mut().zip(lowest) {
            *least = field.min(*least);
        }
        for (most, field) in self.highest.iter_mut().zip(fields.each) {
            *most = field.max(*most);
        }
    }

    /// If all records have one kind and one ttl, and all their values are inside or all outside: headers of that kind
    /// and ttl with the lowest numbers and with the highest.
    pub fn alike(&self) -> Option<(Header, Header)> {
        let (lowest, highest) = (&self.lowest, &self.highest);
        let (kind, ttl) = kind_and_ttl(lowest[TAG], lowest[TTL]).ok()?;
        let one_ttl = !matches!(ttl, ItemTtl::Millis(_)) || lowest[TTL] == highest[TTL];
        let header = |numbers: &[u64; COUNT]| Header {
            kind,
            seq: Seq(numbers[SEQ]),
            written_at: Timestamp(numbers[WRITTEN_AT]),
            ttl,
        };
        (lowest[TAG] == highest[TAG] && one_ttl).then(|| (header(lowest), header(highest)))
    }

    /// The smallest packing of these records' headers.
    pub fn packing(&self) -> [u8; PACKING_LEN] {
        let FieldRanges {
            mut lowest,
            mut highest,
        } = *self;
        if lowest[TTL] > highest[TTL] {
            (lowest[TTL], highest[TTL]) = (0, 0);
        }
        let mut out = [0; PACKING_LEN];
        out[SEQ_AT..][..8].copy_from_slice(&lowest[SEQ].to_le_bytes());
        out[WRITTEN_AT_AT..][..8].copy_from_slice(&lowest[WRITTEN_AT].to_le_bytes());
        out[TTL_AT..][..8].copy_from_slice(&lowest[TTL].to_le_bytes());
        out[KEY_LEN_AT..][..2].copy_from_slice(&(lowest[KEY_LEN] as u16).to_le_bytes());
        out[TAG_AT] = lowest[TAG] as u8;
        let mut end = 0;
        for at in 0..COUNT {
            let bits = (u64::BITS - (highest[at] - lowest[at]).leading_zeros()) as u16;
            if end % 8 + bits > u64::BITS as u16 {
                end = end.next_multiple_of(8);
            }
            let place = FieldBits { first: end, bits };
            out[PLACES_AT + 2 * at..][..2].copy_from_slice(&place.encode().to_le_bytes());
            end += bits;
        }
        out[LEN_AT] = end.div_ceil(8) as u8;
        out
    }
}

/// The common properties of a block's records, where all are puts of values inside it, with keys of one length and one
/// kind of ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    /// Of a record that is written no later than any of them, has no higher sequence number and no longer ttl: by any
    /// settings, at any moment, if it is live they all are.
    pub earliest: Header,
    /// None has a higher sequence number.
    pub seq_max: Seq,
    /// Bytes of each key.
    pub key_len: usize,
}

/// The smallest packing of these headers.
pub fn packing_around(all: impl Iterator<Item = HeaderFields>) -> [u8; PACKING_LEN] {
    let mut ranges = FieldRanges::default();
    all.for_each(|fields| ranges.add(&fields));
    ranges.packing()
}

/// The kind and the ttl of a tag; `millis` is the ttl's field.
#[inline(always)]
fn kind_and_ttl(tag: u64, millis: u64) -> Result<(Kind, ItemTtl), &'static str> {
    let kind = match tag & 3 {
        1 => Kind::Put,
        2 => Kind::Tombstone,
        _ => return Err("unknown kind of record"),
    };
    let ttl = match (tag & !LARGE) >> 2 {
        0 => ItemTtl::Absent,
        1 => ItemTtl::Never,
        2 if millis <= MAX_TTL_MILLIS => ItemTtl::Millis(millis),
        _ => return Err("unknown kind of ttl"),
    };
    if kind == Kind::Tombstone && ttl != ItemTtl::Absent {
        return Err("a tombstone with a ttl");
    }
    Ok((kind, ttl))
}

/// The bits of a field among those of a record.
struct FieldBits {
    first: u16,
    bits: u16,
}

impl FieldBits {
    fn encode(&self) -> u16 {
        self.first | self.bits << 9
    }

    #[inline(always)]
    fn decode(place: u16) -> FieldBits {
        FieldBits {
            first: place & 0x1ff,
            bits: place >> 9,
        }
    }

    #[inline(always)]
    fn byte(&self) -> usize {
        usize::from(self.first / 8)
    }

    #[inline(always)]
    fn shift(&self) -> u32 {
        u32::from(self.first % 8)
    }
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|bytes| bytes.first_chunk()) {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

/// A record's header fields, packed.
pub struct PackedHeader {
    bytes: [u8; PACKED_MAX + 8],
    len: usize,
}

impl AsRef<[u8]> for PackedHeader {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<'a> HeaderPacking<'a> {
    /// Decodes these bytes without checking them: wrong bytes decode to wrong fields.
    #[inline(always)]
    pub fn of(bytes: &'a [u8; PACKING_LEN]) -> HeaderPacking<'a> {
        HeaderPacking(bytes)
    }

    /// The bytes of a record's header fields.
    #[inline(always)]
    pub fn len(&self) -> usize {
        usize::from(self.0[LEN_AT])
    }

    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.0[at..].first_chunk().expect("a packing has 38 bytes"))
    }

    #[inline(always)]
    fn lowest(&self, at: usize) -> u64 {
        match at {
            SEQ => self.word(SEQ_AT),
            WRITTEN_AT => self.word(WRITTEN_AT_AT),
            TTL => self.word(TTL_AT),
            KEY_LEN => self.word(KEY_LEN_AT) & 0xffff,
            _ => u64::from(self.0[TAG_AT]),
        }
    }

    #[inline(always)]
    fn place(&self, at: usize) -> FieldBits {
        let at = PLACES_AT + 2 * at;
        FieldBits::decode(u16::from_le_bytes([self.0[at], self.0[at + 1]]))
    }

    /// A field of the record that starts at `start`; the maximum if it is too large. A body has at least eight bytes
    /// from any field on; if `bytes` has fewer, the field is the lowest.
    #[inline(always)]
    fn read(&self, at: usize, bytes: &[u8], start: usize) -> u64 {
        let place = self.place(at);
        let word = word_at(bytes, start + place.byte());
        let mask = !u64::MAX.unbounded_shl(u32::from(place.bits));
        self.lowest(at).saturating_add(word >> place.shift() & mask)
    }

    /// The same, if the first eight bytes of the record, `word`, have all its fields.
    #[inline(always)]
    fn read_in(&self, at: usize, word: u64) -> u64 {
        let place = self.place(at);
        let mask = (1u64.wrapping_shl(u32::from(place.bits))).wrapping_sub(1);
        self.lowest(at)
            .saturating_add(word.wrapping_shr(u32::from(place.first)) & mask)
    }

    /// The common properties of all records; `None` where they differ in more than numbers, or one might not decode.
    pub fn uniform(&self) -> Option<Uniform> {
        let highest = |at| {
            let mask = !u64::MAX.unbounded_shl(u32::from(self.place(at).bits));
            self.lowest(at).saturating_add(mask)
        };
        if self.place(TAG).bits != 0 || self.place(KEY_LEN).bits != 0 {
            return None;
        }
        const PUT: u64 = Kind::Put as u64;
        let ttl = match self.lowest(TAG) ^ PUT {
            0b0000 => ItemTtl::Absent,
            0b0100 => ItemTtl::Never,
            0b1000 if highest(TTL) <= MAX_TTL_MILLIS => ItemTtl::Millis(self.lowest(TTL)),
            _ => return None,
        };
        let key_len = self.lowest(KEY_LEN) as usize;
        let earliest = Header {
            kind: Kind::Put,
            seq: Seq(self.lowest(SEQ)),
            written_at: Timestamp(self.lowest(WRITTEN_AT)),
            ttl,
        };
        let seq_max = Seq(highest(SEQ));
        (key_len > 0).then_some(Uniform {
            earliest,
            seq_max,
            key_len,
        })
    }

    /// The header fields of a record that the packing was made for.
    pub fn pack(&self, fields: &HeaderFields) -> PackedHeader {
        let mut bytes = [0; PACKED_MAX + 8];
        for at in 0..COUNT {
            if at == TTL && !fields.has_ttl {
                continue;
            }
            let place = self.place(at);
            let bits = (fields.each[at] - self.lowest(at)) << place.shift();
            let word = bytes[place.byte()..]
                .first_chunk_mut()
                .expect("there is room for eight bytes from any field on");
            *word = (u64::from_le_bytes(*word) | bits).to_le_bytes();
        }
        PackedHeader {
            bytes,
            len: self.len(),
        }
    }

    /// The same packing, taken apart, if the fields of a header are all in one word, and none may be too large.
    pub fn in_one_word(&self) -> Option<WordPacking> {
        let places: [FieldBits; COUNT] = std::array::from_fn(|at| self.place(at));
        let is_inside = |place: &FieldBits| u32::from(place.first + place.bits) < u64::BITS;
        let len = self.len();
        if len >= size_of::<u64>() || !places.iter().all(is_inside) {
            return None;
        }
        let packing = WordPacking {
            lowest: std::array::from_fn(|at| self.lowest(at)),
            first: std::array::from_fn(|at| u32::from(places[at].first)),
            mask: std::array::from_fn(|at| (1 << places[at].bits) - 1),
            behind: u64::MAX << (8 * len),
        };
        let mut ranges = packing.lowest.iter().zip(packing.mask);
        let fits = ranges.all(|(lowest, mask)| lowest.checked_add(mask).is_some());
        fits.then_some(packing)
    }

    /// The length of the key of the record that starts at `start` in a body.
    #[inline(always)]
    pub fn key_len(&self, body: &[u8], start: usize) -> usize {
        match self.place(KEY_LEN).bits {
            // Of most blocks, and cheaper.
            0 => self.lowest(KEY_LEN) as usize,
            _ => self.read(KEY_LEN, body, start) as usize,
        }
    }

    /// The header of the record that starts at `start` in a body, and whether its value is large.
    #[inline(always)]
    pub fn header(&self, body: &[u8], start: usize) -> Result<(Header, bool), &'static str> {
        let (tag, seq, written_at, millis);
        if self.len() < size_of::<u64>() {
            let word = word_at(body, start);
            tag = self.read_in(TAG, word);
            seq = self.read_in(SEQ, word);
            written_at = self.read_in(WRITTEN_AT, word);
            millis = self.read_in(TTL, word);
        } else {
            tag = self.read(TAG, body, start);
            seq = self.read(SEQ, body, start);
            written_at = self.read(WRITTEN_AT, body, start);
            millis = self.read(TTL, body, start);
        }
        header_of(tag, seq, written_at, millis)
    }
}

/// The header with these fields, and whether its value is large.
#[inline(always)]
fn header_of(
    tag: u64,
    seq: u64,
    written_at: u64,
    millis: u64,
) -> Result<(Header, bool), &'static str> {
    let (kind, ttl) = kind_and_ttl(tag, millis)?;
    let header = Header {
        kind,
        seq: Seq(seq),
        written_at: Timestamp(written_at),
        ttl,
    };
    Ok((header, tag & LARGE != 0))
}

/// A packing whose headers are part of one word, as in most blocks. Code that reads or writes all headers of a block
/// decodes it once.
#[derive(Clone, Copy)]
pub struct WordPacking {
    lowest: [u64; COUNT],
    first: [u32; COUNT],
    mask: [u64; COUNT],
    /// The bits of the word that are none of the header's.
    behind: u64,
}

impl WordPacking {
    /// The length of the key and the header of the record that starts at `start` in a body, and whether its value is
    /// large; as [`HeaderPacking::key_len`] and [`HeaderPacking::header`].
    #[inline(always)]
    pub fn read(&self, body: &[u8], start: usize) -> (usize, Result<(Header, bool), &'static str>) {
        let word = word_at(body, start);
        let field = |at: usize| {
            let bits = word >> (self.first[at] % u64::BITS) & self.mask[at];
            self.lowest[at].wrapping_add(bits)
        };
        let header = header_of(field(TAG), field(SEQ), field(WRITTEN_AT), field(TTL));
        (field(KEY_LEN) as usize, header)
    }

    /// The same of a block whose records are alike: only what is not the same in all of them.
    pub fn of_uniform_block(&self, uniform: &Uniform) -> UniformHeaders {
        let field = |at: usize| BitField {
            lowest: self.lowest[at],
            first: self.first[at],
            mask: self.mask[at],
        };
        UniformHeaders {
            seq: field(SEQ),
            written_at: field(WRITTEN_AT),
            millis: field(TTL),
            ttl: uniform.earliest.ttl,
        }
    }

    /// Writes the header fields of a record that the packing was made for, and leaves the bytes of the word behind them
    /// as they are.
    #[inline]
    pub fn write(&self, fields: &HeaderFields, word: &mut [u8; 8]) {
        let mut bits = 0;
        for at in 0..TTL {
            bits |= (fields.each[at] - self.lowest[at]) << self.first[at];
        }
        if fields.has_ttl {
            bits |= (fields.each[TTL] - self.lowest[TTL]) << self.first[TTL];
        }
        *word = (u64::from_le_bytes(*word) & self.behind | bits).to_le_bytes();
    }
}

#[cfg(test)]
mod tests;
