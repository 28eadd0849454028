//! Keys as bytes whose order is the order of the keys.
//!
//! ```text
//! u8 to u128      big-endian, 1 to 16 bytes
//! i8 to i128      the same, the sign bit inverted
//! bool            0 false, 1 true
//! char            UTF-8
//! String, bytes   at the end of the key: as they are
//!                 before its end: 0 is written as 0 255, and 0 1 stands behind
//! SystemTime      whole seconds since 1970, rounded down, as an i64; nanoseconds as a u32
//! IpAddr          4 or 6, and the octets; of an Ipv4Addr or Ipv6Addr alone the octets
//! Uuid            its 16 bytes
//! Option          0 for None, 1 and the key for Some
//! array, tuple    its elements, one behind the other
//! struct          as the tuple of its fields (crates/derive)
//! ```
//!
//! An element before the last one is never a prefix of another element of its type, so two keys are ordered by their first
//! elements that differ. The last element can be a prefix of another one, which then comes later.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::Error;
use crate::base::Result as Answer;

/// A type that can be the key of a [`TypedContainer`](crate::TypedContainer): one that has an encoding as bytes whose order is
/// the order of the type.
///
/// Integers from `u8` to `u128` and `i8` to `i128`, `bool`, `char`, `String`, `Vec<u8>`, `SystemTime`, `IpAddr`, `Ipv4Addr`,
/// `Ipv6Addr`, arrays, `Option`, and tuples of two to six of these, nested too, are such types; with the feature `uuid`, `Uuid`
/// of the crate of that name, too. `usize` and `isize` are none, for their width is the machine's. The encoded key has
/// 1 to 65 535 bytes, so that an empty string or array alone is refused.
///
/// A struct of such types is one by `#[derive(Key)]`, with the feature `derive`: see [`TupleKey`]. Any other type of the
/// program's own is one by the encoding of another:
///
/// ```
/// use ebbtide::{Database, TypedKey};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct UserId(u64);
///
/// impl TypedKey for UserId {
///     type Borrowed<'a> = UserId;
///
///     fn as_borrowed(&self) -> UserId {
///         *self
///     }
///
///     fn encode(key: &UserId, is_last: bool, out: &mut Vec<u8>) {
///         u64::encode(&key.0, is_last, out);
///     }
///
///     fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<UserId, &'static str> {
///         u64::decode(is_last, bytes).map(UserId)
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// let names = Database::open(folder.path())?.typed::<UserId, String>("names")?;
/// names.put(UserId(7), &"ada".to_owned())?;
/// assert_eq!(names.last()?.unwrap().key, UserId(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TypedKey: Sized {
    /// The type by which a caller gives a key: `&str` for `String`, the number itself for a number.
    type Borrowed<'a>;

    /// The key, to be given.
    fn as_borrowed(&self) -> Self::Borrowed<'_>;

    /// Appends the key. `is_last`: nothing follows; otherwise any bytes may follow, and decoding must still find the
    /// end of the key.
    fn encode(key: &Self::Borrowed<'_>, is_last: bool, out: &mut Vec<u8>);

    /// Takes a key off the front of bytes that [`TypedKey::encode`] wrote; with `is_last`, all that are left.
    ///
    /// # Errors
    /// The fault of these bytes, as a part of a sentence.
    fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<Self, &'static str>;
}

/// A key's bytes.
pub fn encoded<K: TypedKey>(key: &K::Borrowed<'_>) -> Vec<u8> {
    let mut out = vec![];
    K::encode(key, true, &mut out);
    out
}

/// The key that these bytes of a container are, all of them.
pub fn decoded<K: TypedKey>(container: &str, stored: &[u8]) -> Answer<K> {
    let mut bytes = stored;
    let key = K::decode(true, &mut bytes).and_then(|key| match bytes {
        [] => Ok(key),
        _ => Err("there are bytes behind it"),
    });
    key.map_err(|what| Error::decode(container, stored, format!("its key: {what}")))
}

const TOO_SHORT: &str = "it is too short";

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(TOO_SHORT)?;
    *bytes = rest;
    Ok(*taken)
}

/// Keys that are given as they are.
macro_rules! plain {
    () => {
        type Borrowed<'a> = Self;

        fn as_borrowed(&self) -> Self {
            *self
        }
    };
}

macro_rules! unsigned {
    ($integer:ty) => {
        impl TypedKey for $integer {
            plain!();

            fn encode(key: &Self, _: bool, out: &mut Vec<u8>) {
                out.extend_from_slice(&key.to_be_bytes());
            }

            fn decode(_: bool, bytes: &mut &[u8]) -> Result<Self, &'static str> {
                take(bytes).map(Self::from_be_bytes)
            }
        }
    };
}

macro_rules! signed {
    ($integer:ty) => {
        impl TypedKey for $integer {
            plain!();

            fn encode(key: &Self, _: bool, out: &mut Vec<u8>) {
                out.extend_from_slice(&(key ^ Self::MIN).to_be_bytes());
            }

            fn decode(_: bool, bytes: &mut &[u8]) -> Result<Self, &'static str> {
                take(bytes).map(|bytes| Self::from_be_bytes(bytes) ^ Self::MIN)
            }
        }
    };
}

unsigned!(u8);
unsigned!(u16);
unsigned!(u32);
unsigned!(u64);
unsigned!(u128);
signed!(i8);
signed!(i16);
signed!(i32);
signed!(i64);
signed!(i128);

impl TypedKey for bool {
    plain!();

    fn encode(key: &bool, _: bool, out: &mut Vec<u8>) {
        out.push(u8::from(*key));
    }

    fn decode(_: bool, bytes: &mut &[u8]) -> Result<bool, &'static str> {
        match take(bytes)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a bool is neither 0 nor 1"),
        }
    }
}

impl TypedKey for char {
    plain!();

    fn encode(key: &char, _: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(key.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn decode(_: bool, bytes: &mut &[u8]) -> Result<char, &'static str> {
        let longest = &bytes[..bytes.len().min(4)];
        let chunk = longest.utf8_chunks().next().ok_or(TOO_SHORT)?;
        let char = chunk.valid().chars().next().ok_or("a char is not UTF-8")?;
        *bytes = &bytes[char.len_utf8()..];
        Ok(char)
    }
}

impl TypedKey for SystemTime {
    plain!();

    fn encode(key: &SystemTime, is_last: bool, out: &mut Vec<u8>) {
        let (seconds, nanos) = match key.duration_since(UNIX_EPOCH) {
            Ok(since) => (i128::from(since.as_secs()), since.subsec_nanos()),
            Err(before) => {
                let until = before.duration();
                let begun = u32::from(until.subsec_nanos() > 0);
                let seconds = -i128::from(until.as_secs()) - i128::from(begun);
                (seconds, begun * 1_000_000_000 - until.subsec_nanos())
            }
        };
        // A clock of the system has no more.
        let seconds = seconds.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        i64::encode(&seconds, is_last, out);
        u32::encode(&nanos, is_last, out);
    }

    fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<SystemTime, &'static str> {
        let (seconds, nanos) = (i64::decode(is_last, bytes)?, u32::decode(is_last, bytes)?);
        if nanos >= 1_000_000_000 {
            return Err("a time has a second of nanoseconds or more");
        }
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let time = match seconds {
            0.. => UNIX_EPOCH.checked_add(whole),
            _ => UNIX_EPOCH.checked_sub(whole),
        };
        let time = time.and_then(|time| time.checked_add(Duration::from_nanos(nanos.into())));
        time.ok_or("a time is out of range")
    }
}

macro_rules! addressed {
    ($address:ty) => {
        impl TypedKey for $address {
            plain!();

            fn encode(key: &Self, _: bool, out: &mut Vec<u8>) {
                out.extend_from_slice(&key.octets());
            }

            fn decode(_: bool, bytes: &mut &[u8]) -> Result<Self, &'static str> {
                take::<{ size_of::<$address>() }>(bytes).map(Self::from)
            }
        }
    };
}

addressed!(Ipv4Addr);
addressed!(Ipv6Addr);

#[cfg(feature = "uuid")]
impl TypedKey for uuid::Uuid {
    plain!();

    fn encode(key: &Self, _: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(key.as_bytes());
    }

    fn decode(_: bool, bytes: &mut &[u8]) -> Result<Self, &'static str> {
        take(bytes).map(uuid::Uuid::from_bytes)
    }
}

impl TypedKey for IpAddr {
    plain!();

    fn encode(key: &IpAddr, is_last: bool, out: &mut Vec<u8>) {
        match key {
            IpAddr::V4(address) => {
                out.push(4);
                Ipv4Addr::encode(address, is_last, out);
            }
            IpAddr::V6(address) => {
                out.push(6);
                Ipv6Addr::encode(address, is_last, out);
            }
        }
    }

    fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<IpAddr, &'static str> {
        match take(bytes)? {
            [4] => Ipv4Addr::decode(is_last, bytes).map(IpAddr::V4),
            [6] => Ipv6Addr::decode(is_last, bytes).map(IpAddr::V6),
            _ => Err("an address is neither of version 4 nor of 6"),
        }
    }
}

/// A byte 0 of a string that others follow, and what ends it.
const ZERO: [u8; 2] = [0, 255];
const END: [u8; 2] = [0, 1];

fn encode_bytes(key: &[u8], is_last: bool, out: &mut Vec<u8>) {
    if is_last {
        return out.extend_from_slice(key);
    }
    for &byte in key {
        match byte {
            0 => out.extend_from_slice(&ZERO),
            _ => out.push(byte),
        }
    }
    out.extend_from_slice(&END);
}

fn decode_bytes(is_last: bool, bytes: &mut &[u8]) -> Result<Vec<u8>, &'static str> {
    if is_last {
        return Ok(std::mem::take(bytes).to_vec());
    }
    let mut key = vec![];
    loop {
        match **bytes {
            [0, 255, ..] => key.push(0),
            [0, 1, ..] => break,
            [0, ..] => return Err("a byte 0 has neither 1 nor 255 behind it"),
            [byte, ..] => key.push(byte),
            [] => return Err("a string has no end"),
        }
        *bytes = &bytes[1 + usize::from(bytes[0] == 0)..];
    }
    *bytes = &bytes[END.len()..];
    Ok(key)
}

impl TypedKey for String {
    type Borrowed<'a> = &'a str;

    fn as_borrowed(&self) -> &str {
        self
    }

    fn encode(key: &&str, is_last: bool, out: &mut Vec<u8>) {
        encode_bytes(key.as_bytes(), is_last, out);
    }

    fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<String, &'static str> {
        String::from_utf8(decode_bytes(is_last, bytes)?).map_err(|_| "a string is not UTF-8")
    }
}

impl TypedKey for Vec<u8> {
    type Borrowed<'a> = &'a [u8];

    fn as_borrowed(&self) -> &[u8] {
        self
    }

    fn encode(key: &&[u8], is_last: bool, out: &mut Vec<u8>) {
        encode_bytes(key, is_last, out);
    }

    fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<Vec<u8>, &'static str> {
        decode_bytes(is_last, bytes)
    }
}

impl<K: TypedKey> TypedKey for Option<K> {
    type Borrowed<'a> = Option<K::Borrowed<'a>>;

    fn as_borrowed(&self) -> Self::Borrowed<'_> {
        self.as_ref().map(K::as_borrowed)
    }

    fn encode(key: &Self::Borrowed<'_>, is_last: bool, out: &mut Vec<u8>) {
        out.push(u8::from(key.is_some()));
        if let Some(key) = key {
            K::encode(key, is_last, out);
        }
    }

    fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<Option<K>, &'static str> {
        match take(bytes)? {
            [0] => Ok(None),
            [1] => K::decode(is_last, bytes).map(Some),
            _ => Err("an Option is neither 0 nor 1"),
        }
    }
}

impl<K: TypedKey, const N: usize> TypedKey for [K; N] {
    type Borrowed<'a> = [K::Borrowed<'a>; N];

    fn as_borrowed(&self) -> Self::Borrowed<'_> {
        std::array::from_fn(|at| self[at].as_borrowed())
    }

    fn encode(key: &Self::Borrowed<'_>, is_last: bool, out: &mut Vec<u8>) {
        for (at, element) in key.iter().enumerate() {
            K::encode(element, is_last && at + 1 == N, out);
        }
    }

    fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<[K; N], &'static str> {
        let elements = (1..=N).map(|number| K::decode(is_last && number == N, bytes));
        let elements = elements.collect::<Result<Vec<K>, _>>()?;
        Ok(elements
            .try_into()
            .unwrap_or_else(|_| unreachable!("N of them were read")))
    }
}

/// The beginning of keys of a type: of a tuple its first elements, as a tuple (`("ada",)`); of a string or of bytes, the first
/// of these. It is what [`TypedContainer::prefix`](crate::TypedContainer::prefix) takes.
pub trait TypedPrefix<K> {
    /// Appends what all keys that begin so begin with.
    fn encode_prefix(&self, out: &mut Vec<u8>);
}

impl TypedPrefix<String> for &str {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl TypedPrefix<Vec<u8>> for &[u8] {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// A key that is encoded as a tuple is; the first elements of that tuple are prefixes of the key. With the feature `derive`,
/// `#[derive(Key)]` makes a struct such a key: its fields, in their order, are the tuple, or the only one is that itself. So
/// keys are ordered by the first field that differs. They are given by reference.
#[cfg_attr(
    feature = "derive",
    doc = "
```
use ebbtide::{Database, Key};

#[derive(Key, Clone, Debug, PartialEq)]
struct Hit {
    page: String,
    hour: u32,
}

let folder = tempfile::tempdir()?;
let hits = Database::open(folder.path())?.typed::<Hit, u64>(\"hits\")?;
let hit = |page: &str, hour| Hit { page: page.into(), hour };
hits.put(&hit(\"home\", 9), &3)?;
hits.put(&hit(\"home\", 10), &5)?;
hits.put(&hit(\"away\", 10), &1)?;
assert_eq!(hits.get(&hit(\"home\", 9))?, Some(3));
assert_eq!(hits.first()?.unwrap().key, hit(\"away\", 10));
assert_eq!(hits.prefix((\"home\",)).count(), 2); // by the first field
assert_eq!(hits.range(&hit(\"home\", 10)..).count(), 1);
# Ok::<(), Box<dyn std::error::Error>>(())
```
"
)]
pub trait TupleKey: TypedKey {
    /// The tuple; of a struct with one field, the type of that.
    type Tuple;
}

impl<K: TupleKey, P: TypedPrefix<K::Tuple>> TypedPrefix<K> for P {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        TypedPrefix::<K::Tuple>::encode_prefix(self, out);
    }
}

/// A tuple as a key; `last` is its last element.
macro_rules! tuple {
    ($($name:ident $at:tt),+; $last_name:ident $last:tt) => {
        impl<$($name: TypedKey,)+ $last_name: TypedKey> TypedKey for ($($name,)+ $last_name) {
            type Borrowed<'a> = ($($name::Borrowed<'a>,)+ $last_name::Borrowed<'a>);

            fn as_borrowed(&self) -> Self::Borrowed<'_> {
                ($(self.$at.as_borrowed(),)+ self.$last.as_borrowed())
            }

            fn encode(key: &Self::Borrowed<'_>, is_last: bool, out: &mut Vec<u8>) {
                $($name::encode(&key.$at, false, out);)+
                $last_name::encode(&key.$last, is_last, out);
            }

            fn decode(is_last: bool, bytes: &mut &[u8]) -> Result<Self, &'static str> {
                Ok(($($name::decode(false, bytes)?,)+ $last_name::decode(is_last, bytes)?))
            }
        }
    };
}

tuple!(A 0; B 1);
tuple!(A 0, B 1; C 2);
tuple!(A 0, B 1, C 2; D 3);
tuple!(A 0, B 1, C 2, D 3; E 4);
tuple!(A 0, B 1, C 2, D 3, E 4; F 5);

/// The first elements of a tuple as its prefix, with those that follow.
macro_rules! prefix {
    ($($name:ident $at:tt),+; $($rest:ident),+) => {
        impl<'a, $($name: TypedKey,)+ $($rest: TypedKey),+> TypedPrefix<($($name,)+ $($rest,)+)>
            for ($($name::Borrowed<'a>,)+)
        {
            fn encode_prefix(&self, out: &mut Vec<u8>) {
                $($name::encode(&self.$at, false, out);)+
            }
        }
    };
}

prefix!(A 0; B);
prefix!(A 0; B, C);
prefix!(A 0, B 1; C);
prefix!(A 0; B, C, D);
prefix!(A 0, B 1; C, D);
prefix!(A 0, B 1, C 2; D);
prefix!(A 0; B, C, D, E);
prefix!(A 0, B 1; C, D, E);
prefix!(A 0, B 1, C 2; D, E);
prefix!(A 0, B 1, C 2, D 3; E);
prefix!(A 0; B, C, D, E, F);
prefix!(A 0, B 1; C, D, E, F);
prefix!(A 0, B 1, C 2; D, E, F);
prefix!(A 0, B 1, C 2, D 3; E, F);
prefix!(A 0, B 1, C 2, D 3, E 4; F);
