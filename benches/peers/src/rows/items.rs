//! The population of the rows. A *slot* is an item's number; keys, values and draws are functions of it and the seed.
//!
//! ```text
//!   key      prefix    hash (8)  tag (8)            so the order of slots is a random order of keys; the prefix of all is
//!                                                   the same, and empty unless keys of more bytes are asked for
//!   value    tag (8)   bytes, random or half so     !tag (8)
//! ```
//!
//! A value belongs to its key when tag and inverted tag are where they should be: any answer can be checked by itself.

use super::{Operation, Order, Over, Scale};
use crate::loads::{mix, unit};

/// Bytes of the shortest key: without a prefix.
pub const KEY_BYTES_MIN: u64 = 16;
/// Bytes of the longest key.
pub const KEY_BYTES_MAX: u64 = 64;
/// Bytes of the shortest value: its two tags.
pub const VALUE_BYTES_MIN: u64 = 16;
/// Slots from here on are put only to be found after a kill.
pub const LEFT: u64 = 1 << 40;
/// Slots from here on are never put.
const ABSENT: u64 = 1 << 41;

/// Streams of random numbers that have nothing to do with each other.
const KEY: u64 = 1 << 56;
const TAG: u64 = 2 << 56;
const DRAW: u64 = 3 << 56;
const RANK: u64 = 4 << 56;

/// The prefix of all keys begins like this.
const PREFIX: &[u8; (KEY_BYTES_MAX - KEY_BYTES_MIN) as usize] =
    b"tenant/0000/session/tenant/0000/session/tenant/0";

/// A key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX as usize],
    length: usize,
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The key of a slot.
pub fn key(scale: &Scale, slot: u64) -> Key {
    let length = scale.key_bytes as usize;
    let prefix = length - KEY_BYTES_MIN as usize;
    let mut bytes = [0; KEY_BYTES_MAX as usize];
    bytes[..prefix].copy_from_slice(&PREFIX[..prefix]);
    bytes[prefix..prefix + 8].copy_from_slice(&hash(scale.seed, KEY, slot).to_be_bytes());
    bytes[prefix + 8..length].copy_from_slice(&hash(scale.seed, TAG, slot).to_be_bytes());
    Key { bytes, length }
}

/// A key as a number that orders as keys do; `None` if it is none of these keys.
pub fn place(scale: &Scale, key: &[u8]) -> Option<u128> {
    let (prefix, own) = key.split_last_chunk()?;
    let is_one =
        prefix.len() as u64 + KEY_BYTES_MIN == scale.key_bytes && PREFIX.starts_with(prefix);
    is_one.then_some(u128::from_be_bytes(*own))
}

/// The share of all keys that are less than one, about: hashes are evenly spread.
pub fn share_before(key: &Key) -> f64 {
    let hash = key[key.len() - KEY_BYTES_MIN as usize..].first_chunk();
    hash.map_or(0.0, |hash| unit(u64::from_be_bytes(*hash)))
}

/// Whether a value of that many bytes belongs to a key.
pub fn belongs(key: &[u8], value: &[u8], value_bytes: u64) -> bool {
    let tag = |bytes: Option<&[u8; 8]>| bytes.map(|bytes| u64::from_be_bytes(*bytes));
    let own = tag(key.last_chunk());
    value.len() as u64 == value_bytes
        && tag(value.first_chunk()) == own
        && tag(value.last_chunk()).map(|tag| !tag) == own
}

fn hash(seed: u64, stream: u64, n: u64) -> u64 {
    mix(mix(seed ^ stream).wrapping_add(n))
}

/// Makes values without copying them: tags are written into blocks of bytes that are made once.
pub struct Values {
    blocks: Vec<u8>,
    value_bytes: usize,
}

impl Values {
    const BLOCKS: usize = 64;

    /// Of some size; compressible: the second half of each repeats the first.
    pub fn new(scale: &Scale) -> Values {
        let value_bytes = scale.value_bytes as usize;
        let distinct = if scale.lz4 {
            value_bytes.div_ceil(2)
        } else {
            value_bytes
        };
        let byte = |n: usize| {
            let (block, at) = (n / value_bytes, n % value_bytes % distinct);
            mix((block * value_bytes + at) as u64) as u8
        };
        Values {
            blocks: (0..Self::BLOCKS * value_bytes).map(byte).collect(),
            value_bytes,
        }
    }

    /// The value of a slot's key.
    pub fn of(&mut self, key: &Key) -> &[u8] {
        let tag = &key[key.len() - 8..];
        let from = usize::from(tag[7]) % Self::BLOCKS * self.value_bytes;
        let value = &mut self.blocks[from..from + self.value_bytes];
        value[..8].copy_from_slice(tag);
        let end = value.len() - 8;
        for (byte, tag) in value[end..].iter_mut().zip(tag) {
            *byte = !tag;
        }
        value
    }
}

/// The operations of one thread and their slots: a function of the seed, the row and the thread's number.
pub struct Draws {
    order: Order,
    thread: u64,
    stream: u64,
    /// Ranks drawn beforehand, because drawing one takes as long as a get.
    ranks: Vec<u32>,
    drawn: u64,
    inserted: u64,
}

impl Draws {
    /// So many ranks are drawn, and then used again.
    const RANKS: usize = 1 << 20;

    /// Of one thread.
    pub fn new(order: &Order, thread: u64) -> Draws {
        let stream = DRAW ^ (order.row as u64) << 48 ^ thread << 40 ^ u64::from(order.round) << 32;
        let ranks = match order.row.over() {
            Over::Zipfian | Over::Latest => {
                let zipfian = Zipfian::new(order.scale.items);
                let rank = |n| zipfian.rank(unit(hash(order.scale.seed, RANK ^ stream, n)));
                (0..Self::RANKS as u64).map(|n| rank(n) as u32).collect()
            }
            Over::Uniform | Over::Absent => Vec::new(),
        };
        Draws {
            order: order.clone(),
            thread,
            stream,
            ranks,
            drawn: 0,
            inserted: 0,
        }
    }

    /// The next operation, the slot that it is for, and a random number for it.
    pub fn next(&mut self) -> (Operation, u64, u64) {
        let random = hash(self.order.scale.seed, self.stream, self.drawn);
        let operation = self.order.row.operation((random >> 32) % 100);
        let slot = match operation {
            Operation::Insert => {
                self.inserted += 1;
                self.inserted_slot(self.inserted - 1)
            }
            _ => self.slot(random),
        };
        self.drawn += 1;
        (operation, slot, mix(random))
    }

    fn slot(&self, random: u64) -> u64 {
        let items = self.order.scale.items;
        let rank = || u64::from(self.ranks[self.drawn as usize % Self::RANKS]);
        match self.order.row.over() {
            Over::Uniform => random % items,
            Over::Zipfian => mix(rank()) % items,
            Over::Absent => ABSENT + self.drawn,
            Over::Latest => match self.inserted.checked_sub(rank() + 1) {
                Some(inserted) => self.inserted_slot(inserted),
                None => items + self.inserted - 1 - rank(),
            },
        }
    }

    /// Threads insert different slots, behind all items unless they fill.
    fn inserted_slot(&self, n: u64) -> u64 {
        let first = match self.order.row {
            super::Row::Fill => 0,
            _ => self.order.scale.items,
        };
        first + n * u64::from(self.order.threads) + self.thread
    }
}

/// Ranks from 0 to below `n` by Zipf's law with exponent 0.99, as YCSB draws them (Gray et al., "Quickly generating
/// billion-record synthetic databases").
struct Zipfian {
    n: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    const THETA: f64 = 0.99;

    fn new(n: u64) -> Zipfian {
        let zeta = |n: u64| -> f64 { (1..=n).map(|i| (i as f64).powf(-Self::THETA)).sum() };
        let (zeta_2, zeta_n) = (zeta(2), zeta(n));
        Zipfian {
            n: n as f64,
            zeta: zeta_n,
            eta: (1.0 - (2.0 / n as f64).powf(1.0 - Self::THETA)) / (1.0 - zeta_2 / zeta_n),
        }
    }

    /// The rank that a number from 0 to below 1 stands for.
    fn rank(&self, unit: f64) -> u64 {
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(Self::THETA) {
            return 1;
        }
        let share = (self.eta * (unit - 1.0) + 1.0).powf(1.0 / (1.0 - Self::THETA));
        ((self.n * share) as u64).min(self.n as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::Kind;
    use crate::rows::Row;

    const SCALE: Scale = Scale {
        items: 10_000,
        value_bytes: 100,
        lz4: false,
        seconds: 1.0,
        memtable_bytes: 1 << 20,
        cache_bytes: None,
        seed: 1,
        key_bytes: KEY_BYTES_MIN,
    };

    fn draws(row: Row, threads: u32, thread: u64) -> Draws {
        let order = Order {
            engine: Kind::Ebbtide,
            row,
            threads,
            round: 1,
            scale: SCALE,
            folder: Default::default(),
        };
        Draws::new(&order, thread)
    }

    #[test]
    fn a_value_belongs_to_its_own_key_alone() {
        for value_bytes in [16, 17, 100, 16 << 10] {
            let mut values = Values::new(&Scale {
                value_bytes,
                ..SCALE
            });
            let (one, other) = (key(&SCALE, 5), key(&SCALE, 6));
            let value = values.of(&one);
            assert!(belongs(&one, value, value_bytes));
            assert!(!belongs(&other, value, value_bytes));
            assert!(!belongs(&one, &value[..15], value_bytes));
            assert!(!belongs(&one, value, value_bytes + 1));
        }
    }

    #[test]
    fn longer_keys_have_one_prefix_and_the_same_order() {
        let long = Scale {
            key_bytes: 32,
            ..SCALE
        };
        for slot in 0..100 {
            let (one, other) = (key(&long, slot), key(&SCALE, slot));
            assert_eq!(one[..16], key(&long, 0)[..16]);
            assert_eq!(one[16..], *other);
            assert!(share_before(&one) == share_before(&other));
            assert_eq!(place(&long, &one), place(&SCALE, &other));
            assert_eq!(place(&long, &other), None);
            assert_eq!(place(&long, &[&other[..], &other[..]].concat()), None);
            assert!(belongs(&one, Values::new(&long).of(&one), 100));
        }
    }

    #[test]
    fn compressible_values_repeat_themselves() {
        let mut values = Values::new(&Scale { lz4: true, ..SCALE });
        let value = values.of(&key(&SCALE, 5));
        assert_eq!(value[8..42], value[58..92]);
        let mut values = Values::new(&SCALE);
        let value = values.of(&key(&SCALE, 5));
        assert_ne!(value[8..42], value[58..92]);
    }

    #[test]
    fn threads_together_fill_every_slot_once() {
        let mut slots = Vec::new();
        for thread in 0..4 {
            let mut draws = draws(Row::Fill, 4, thread);
            slots.extend((0..2_500).map(|_| draws.next().1));
        }
        slots.sort_unstable();
        assert!(slots.into_iter().eq(0..10_000));
    }

    #[test]
    fn ranks_follow_the_law() {
        let zipfian = Zipfian::new(1_000);
        let mut counts = vec![0u32; 1_000];
        for n in 0..1_000_000 {
            counts[zipfian.rank(unit(mix(n))) as usize] += 1;
        }
        // Of the law itself: 1 / (i^0.99 zeta(1000)). Beyond the first two ranks, the formula is an approximation.
        for (rank, tolerance) in [(1usize, 0.02), (2, 0.02), (10, 0.2), (100, 0.2)] {
            let wanted = 1e6 / (rank as f64).powf(0.99) / zipfian.zeta;
            let found = f64::from(counts[rank - 1]);
            assert!(
                (found / wanted - 1.0).abs() < tolerance,
                "{rank}: {found} {wanted}"
            );
        }
        assert_eq!(zipfian.rank(1.0 - f64::EPSILON), 999);
    }

    #[test]
    fn the_newest_are_drawn_most_and_are_there() {
        let mut draws = draws(Row::YcsbD, 2, 1);
        let mut there: Vec<u64> = (0..SCALE.items).collect();
        let mut newest = 0;
        for _ in 0..100_000 {
            let (operation, slot, _) = draws.next();
            match operation {
                Operation::Insert => there.push(slot),
                _ => {
                    assert!(slot < SCALE.items || there[SCALE.items as usize..].contains(&slot));
                    let last = there.len().saturating_sub(100);
                    newest += u64::from(there[last..].contains(&slot));
                }
            }
        }
        assert!(newest > 40_000, "{newest}");
    }

    #[test]
    fn operations_have_their_shares() {
        for (row, wanted, share) in [
            (Row::Half, Operation::Put, 0.5),
            (Row::Most, Operation::Put, 0.05),
            (Row::YcsbD, Operation::Insert, 0.05),
            (Row::YcsbE, Operation::ScanSome, 0.95),
            (Row::YcsbF, Operation::Modify, 0.5),
            (Row::GetAbsent, Operation::Get, 1.0),
        ] {
            let mut draws = draws(row, 1, 0);
            let hits = (0..100_000).filter(|_| draws.next().0 == wanted).count();
            assert!((hits as f64 / 1e5 - share).abs() < 0.01, "{row:?} {hits}");
        }
    }
}
