//! The encoding of writes: in the log, and from there (or directly) into memtables.
//!
//! ```text
//! Batch     op*                                          record i of a batch has sequence number first + i
//! op        tag u8 | container varint | body
//! tag       1 put, inheriting   body: key prefixed | value prefixed
//!           2 put, never        body: key prefixed | value prefixed
//!           3 put, own ttl      body: millis varint | key prefixed | value prefixed
//!           4 put, until        body: moment varint (ms since the epoch) | key prefixed | value prefixed
//!           5 delete            body: key prefixed
//!           6 delete range      body: from prefixed | to prefixed (empty: no end); `to` is exclusive
//!           7 put, inheriting   body: written_at varint | key prefixed | value prefixed
//!           8 put, never        body: written_at varint | key prefixed | value prefixed
//!           9 put, own ttl      body: written_at varint | millis varint | key prefixed | value prefixed
//!                               7 to 9 have taken over `written_at` and ttl of the item that they replaced
//!           10 set default      body: default varint, as rule.rs spells it
//!           11 expire before    body: moment varint (ms since the epoch): what ends before it (expiry/command.rs)
//!           12 expire written   body: moment varint: what was written before it
//!           13 expire all       body: nothing
//!           14 create           body: the container, prefixed, as new_container.rs spells it
//!           15 drop             body: name prefixed
//!           16 set quota        body: bytes varint (0: none) | when full varint, as new_container.rs spells both
//!           17 keep expired     body: millis varint | ends known no more up to varint
//! ```
//!
//! The stamp (sequence number, `written_at`) is not in a batch's bytes: it is given under the commit lock and is in the
//! log's frame. So the bytes and their checksum are made outside the commit lock.

use crate::base::coding::{ByteReader, Front, Malformed, put_prefixed, put_varint};
use crate::base::hash::RecordHash;
use crate::base::record::{Header, Kind};
use crate::base::{ContainerId, Countdown, ItemTtl, MAX_TTL_MILLIS, Seq, Timestamp};
use crate::data::new_container::{NewContainer, name, put_quota, quota};
use crate::data::relogged::{Relogged, bound, container, key, value};
use crate::expiry::{DefaultMillis, Expire, SettingsChange, stored_ttl_until};
use crate::values::Quota;

/// The ttl of a write, before its stamp is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteTtl {
    /// Inherits the default.
    #[default]
    Absent,
    /// Never expires.
    Never,
    /// A time in milliseconds; 0 only where a stored item is relogged.
    Millis(u64),
    /// The moment at which the item ends.
    Until(Timestamp),
    /// Keeps the ttl of the live item that is replaced; inherits the default if there is none. Resolved before the
    /// write is encoded.
    Keep,
    /// The lifetime of any item. Resolved before the write is encoded, because what has passed is not written.
    Like(Countdown),
    /// Keeps a known lifetime.
    Kept {
        /// When the replaced item was written, or the time it had kept itself.
        written_at: Timestamp,
        /// The replaced item's own ttl.
        ttl: ItemTtl,
    },
}

impl WriteTtl {
    /// The stored form of a write stamped `stamp`: the time from which the item's life counts, and its ttl.
    #[inline]
    pub fn resolve(self, stamp: Timestamp) -> (Timestamp, ItemTtl) {
        let ttl = match self {
            WriteTtl::Absent => ItemTtl::Absent,
            WriteTtl::Never => ItemTtl::Never,
            WriteTtl::Millis(millis) => ItemTtl::Millis(millis),
            WriteTtl::Until(until) => stored_ttl_until(until, stamp),
            WriteTtl::Keep | WriteTtl::Like(_) => {
                unreachable!("what is kept is known before a write is encoded")
            }
            WriteTtl::Kept { written_at, ttl } => return (written_at, ttl),
        };
        (stamp, ttl)
    }

    /// Resolves [`WriteTtl::Keep`] with the live item that is replaced, or with none.
    pub fn over(self, live: Option<&Header>) -> WriteTtl {
        match (self, live) {
            (WriteTtl::Keep, None) => WriteTtl::Absent,
            (WriteTtl::Keep, Some(header)) => WriteTtl::Kept {
                written_at: header.written_at,
                ttl: header.ttl,
            },
            _ => self,
        }
    }

    /// A lifetime that counts from the same time as another one.
    pub fn since(countdown: Countdown, ttl: ItemTtl) -> WriteTtl {
        let written_at = countdown.written_at();
        WriteTtl::Kept { written_at, ttl }
    }
}

impl From<ItemTtl> for WriteTtl {
    fn from(ttl: ItemTtl) -> Self {
        match ttl {
            ItemTtl::Absent => WriteTtl::Absent,
            ItemTtl::Never => WriteTtl::Never,
            ItemTtl::Millis(millis) => WriteTtl::Millis(millis),
        }
    }
}

/// A range of keys: from `from`, inclusive, to `to`, exclusive; without end if `to` is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The first key; empty for the start of all keys.
    pub from: Vec<u8>,
    /// The first key after the range.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// The range with the bounds as they are logged.
    pub fn of_bounds(from: &[u8], to: &[u8]) -> KeyRange {
        KeyRange {
            from: from.to_vec(),
            to: (!to.is_empty()).then(|| to.to_vec()),
        }
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_ref().is_none_or(|to| key < to.as_slice())
    }

    /// Whether some key from `first` to `last`, both included, may be in the range.
    pub fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        self.from.as_slice() <= last && self.to.as_ref().is_none_or(|to| first < to.as_slice())
    }

    /// Whether every key from `first` to `last` is in the range.
    pub fn covers(&self, first: &[u8], last: &[u8]) -> bool {
        self.contains(first) && self.contains(last)
    }

    /// The first key that is in both ranges.
    pub fn first_common<'r>(&'r self, other: &'r KeyRange) -> Option<&'r [u8]> {
        let first = self.from.as_slice().max(&other.from);
        (self.contains(first) && other.contains(first)).then_some(first)
    }

    /// Whether no key is in the range.
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }
}

/// One write of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Stores an item.
    Put {
        /// The container.
        container: ContainerId,
        /// Its ttl.
        ttl: WriteTtl,
        /// 1 to 65 535 bytes.
        key: &'a [u8],
        /// Up to 64 MiB.
        value: &'a [u8],
    },
    /// Deletes an item, whether it exists or not.
    Delete {
        /// The container.
        container: ContainerId,
        /// 1 to 65 535 bytes.
        key: &'a [u8],
    },
    /// Deletes every item in a range.
    DeleteRange {
        /// The container.
        container: ContainerId,
        /// The first key; empty for the first key of all.
        from: &'a [u8],
        /// The first key after the range; empty for no end.
        to: &'a [u8],
    },
    /// Changes the container's default.
    SetDefault {
        /// The container.
        container: ContainerId,
        /// The new default.
        default: DefaultMillis,
    },
    /// Expires items of the container.
    Expire {
        /// The container.
        container: ContainerId,
        /// Those that it ends.
        what: Expire,
    },
    /// Makes the container.
    Create {
        /// The container.
        container: ContainerId,
        /// A `NewContainer`, encoded.
        new: &'a [u8],
    },
    /// Drops the container with everything in it.
    Drop {
        /// The container.
        container: ContainerId,
        /// Its name.
        name: &'a str,
    },
    /// Sets the container's quota, or removes it.
    SetQuota {
        /// The container.
        container: ContainerId,
        /// The quota.
        quota: Option<Quota>,
    },
    /// Changes how long what has ended is kept.
    KeepExpired {
        /// The container.
        container: ContainerId,
        /// How long, in milliseconds.
        millis: u64,
        /// The ends up to this moment are known no more.
        ends_dropped: Timestamp,
    },
}

impl Op<'_> {
    /// The container it writes to.
    pub fn container(&self) -> ContainerId {
        match *self {
            Op::Put { container, .. }
            | Op::SetDefault { container, .. }
            | Op::Expire { container, .. }
            | Op::Create { container, .. }
            | Op::Drop { container, .. }
            | Op::SetQuota { container, .. }
            | Op::KeepExpired { container, .. }
            | Op::Delete { container, .. }
            | Op::DeleteRange { container, .. } => container,
        }
    }

    /// The hashes of its record; of nothing where it writes none.
    #[inline]
    pub fn hash(&self) -> RecordHash {
        match self {
            Op::Put { key, value, .. } => RecordHash::of(key, value),
            Op::Delete { key, .. } => RecordHash::of(key, b""),
            _ => RecordHash { key: 0, whole: 0 },
        }
    }

    /// Whether it writes a record; all others change what containers are.
    #[inline(always)]
    pub fn is_record(&self) -> bool {
        matches!(
            self,
            Op::Put { .. } | Op::Delete { .. } | Op::DeleteRange { .. }
        )
    }

    /// The change of the container's settings, if it is one.
    pub fn of_settings(&self) -> Option<SettingsChange> {
        match *self {
            Op::SetDefault { default, .. } => Some(SettingsChange::Default(default)),
            Op::Expire { what, .. } => Some(SettingsChange::Expire(what)),
            _ => None,
        }
    }

    /// The record that it wrote with this sequence number at that time; only for one that writes a record.
    #[inline]
    pub fn at(&self, seq: Seq, written_at: Timestamp) -> Relogged<'_> {
        let record = |container, kind, (written_at, ttl), key, value| Relogged::Record {
            container,
            header: Header {
                kind,
                seq,
                written_at,
                ttl,
            },
            key,
            value,
        };
        match *self {
            Op::Put {
                container,
                ttl,
                key,
                value,
            } => {
                let life = ttl.resolve(written_at);
                record(container, Kind::Put, life, key, value)
            }
            Op::Delete { container, key } => {
                let life = (written_at, ItemTtl::Absent);
                record(container, Kind::Tombstone, life, key, &[])
            }
            Op::DeleteRange {
                container,
                from,
                to,
            } => Relogged::Range {
                container,
                seq,
                from,
                to,
            },
            _ => unreachable!("it writes no record"),
        }
    }

    /// Appends the bytes shown in this file's head.
    #[inline(always)]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Op::Put {
                container,
                ttl,
                key,
                value,
            } => {
                let mut front = put_front(container, ttl);
                front.varint(key.len() as u64);
                front.append_to(out);
                out.extend_from_slice(key);
                put_prefixed(out, value);
            }
            _ => self.encode_other(out),
        }
    }

    /// The same for all but puts.
    #[inline(never)]
    fn encode_other(&self, out: &mut Vec<u8>) {
        let mut start = |tag: u8| {
            out.push(tag);
            put_varint(out, u64::from(self.container().0));
        };
        match *self {
            Op::Put { .. } => unreachable!("a put is encoded apart"),
            Op::Delete { key, .. } => {
                start(5);
                put_prefixed(out, key);
            }
            Op::DeleteRange { from, to, .. } => {
                start(6);
                put_prefixed(out, from);
                put_prefixed(out, to);
            }
            Op::SetDefault { default, .. } => {
                start(10);
                default.encode(out);
            }
            Op::Expire { what, .. } => {
                let (tag, moment) = match what {
                    Expire::Before(moment) => (11, Some(moment)),
                    Expire::WrittenBefore(moment) => (12, Some(moment)),
                    Expire::All => (13, None),
                };
                start(tag);
                if let Some(moment) = moment {
                    put_varint(out, moment.0);
                }
            }
            Op::Create { new, .. } => {
                start(14);
                put_prefixed(out, new);
            }
            Op::Drop { name, .. } => {
                start(15);
                put_prefixed(out, name.as_bytes());
            }
            Op::SetQuota { quota, .. } => {
                start(16);
                put_quota(quota, out);
            }
            Op::KeepExpired {
                millis,
                ends_dropped,
                ..
            } => {
                start(17);
                put_varint(out, millis);
                put_varint(out, ends_dropped.0);
            }
        }
    }
}

/// The most bytes of a put before its key: tag, container, two numbers, the key's length.
const PUT_FRONT_MOST: usize = 32;
const _: () = assert!(1 + 5 + 2 * 10 + 3 <= PUT_FRONT_MOST);

/// The first bytes of a put, up to the key's length.
#[inline(always)]
fn put_front(container: ContainerId, ttl: WriteTtl) -> Front<PUT_FRONT_MOST> {
    let tag = match ttl {
        WriteTtl::Absent => 1,
        WriteTtl::Never => 2,
        WriteTtl::Millis(_) => 3,
        WriteTtl::Until(_) => 4,
        WriteTtl::Keep | WriteTtl::Like(_) => unreachable!("what is kept is known by now"),
        WriteTtl::Kept { ttl, .. } => match ttl {
            ItemTtl::Absent => 7,
            ItemTtl::Never => 8,
            ItemTtl::Millis(_) => 9,
        },
    };
    let mut front = Front::tagged(tag);
    front.varint(u64::from(container.0));
    match ttl {
        WriteTtl::Millis(millis) => front.long_varint(millis),
        WriteTtl::Until(until) => front.long_varint(until.0),
        WriteTtl::Kept { written_at, ttl } => {
            front.long_varint(written_at.0);
            if let ItemTtl::Millis(millis) = ttl {
                front.long_varint(millis);
            }
        }
        WriteTtl::Absent | WriteTtl::Never | WriteTtl::Keep | WriteTtl::Like(_) => {}
    }
    front
}

/// The writes in a batch's bytes, in order.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    reader: ByteReader<'a>,
}

impl<'a> Ops<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Ops {
            reader: ByteReader::new(bytes),
        }
    }

    fn read(&mut self) -> Result<Op<'a>, Malformed> {
        let reader = &mut self.reader;
        let at = reader.clone();
        let tag = reader.u8()?;
        let container = container(reader)?;
        let ttl = match tag {
            1 => WriteTtl::Absent,
            2 => WriteTtl::Never,
            3 => WriteTtl::Millis(reader.varint_up_to(MAX_TTL_MILLIS)?),
            4 => WriteTtl::Until(Timestamp(reader.varint()?)),
            7..=9 => WriteTtl::Kept {
                written_at: Timestamp(reader.varint()?),
                ttl: match tag {
                    7 => ItemTtl::Absent,
                    8 => ItemTtl::Never,
                    _ => ItemTtl::Millis(reader.varint_up_to(MAX_TTL_MILLIS)?),
                },
            },
            _ => return read_other(at, (tag, container), reader),
        };
        Ok(Op::Put {
            container,
            ttl,
            key: key(reader)?,
            value: value(reader)?,
        })
    }
}

/// Reads the body of what is no put; it begins `at` a place.
#[inline(never)]
fn read_other<'a>(
    at: ByteReader<'a>,
    (tag, container): (u8, ContainerId),
    reader: &mut ByteReader<'a>,
) -> Result<Op<'a>, Malformed> {
    let expire = |what| Op::Expire { container, what };
    Ok(match tag {
        5 => Op::Delete {
            container,
            key: key(reader)?,
        },
        6 => Op::DeleteRange {
            container,
            from: bound(reader)?,
            to: bound(reader)?,
        },
        10 => Op::SetDefault {
            container,
            default: DefaultMillis::decode(reader)?,
        },
        11 => expire(Expire::Before(Timestamp(reader.varint()?))),
        12 => expire(Expire::WrittenBefore(Timestamp(reader.varint()?))),
        13 => expire(Expire::All),
        14 => {
            let new = reader.prefixed()?;
            NewContainer::decode(new)?;
            Op::Create { container, new }
        }
        15 => Op::Drop {
            container,
            name: name(reader)?,
        },
        16 => Op::SetQuota {
            container,
            quota: quota(reader)?,
        },
        17 => Op::KeepExpired {
            container,
            millis: reader.varint()?,
            ends_dropped: Timestamp(reader.varint()?),
        },
        _ => return Err(at.malformed("unknown kind of write")),
    })
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let op = self.read();
        if op.is_err() {
            self.reader = ByteReader::new(&[]);
        }
        Some(op)
    }
}

#[cfg(test)]
mod tests;
