//! A container to be made, as the operation that makes it describes it.
//!
//! ```text
//! container  name prefixed | default varint, as rule.rs spells it | compression varint | keep expired varint (ms) | quota
//! compression 0 none, 1 lz4, 2 zstd
//! quota      bytes varint (0: none, with refuse) | when full varint: 0 refuse, 1 expire soonest
//! ```

use crate::base::coding::{ByteReader, Malformed, put_prefixed, put_varint};
use crate::expiry::DefaultMillis;
use crate::values::{Compression, Quota, WhenFull};

/// The longest name, in bytes.
pub const MAX_NAME_LEN: usize = 255;

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewContainer<'a> {
    /// Its name.
    pub name: &'a str,
    /// The default ttl.
    pub default: DefaultMillis,
    /// How its tables are compressed.
    pub compression: Compression,
    /// How long what has ended is kept, in milliseconds.
    pub keep_expired: u64,
    /// The most live bytes it may hold, if there is a limit.
    pub quota: Option<Quota>,
}

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];
const WHEN_FULL: [WhenFull; 2] = [WhenFull::Refuse, WhenFull::ExpireSoonest];

/// Where in its list a choice stands.
fn number_of<T: PartialEq>(choices: &[T], choice: &T) -> u64 {
    let place = choices.iter().position(|other| other == choice);
    place.expect("the list has all choices") as u64
}

fn choice<T: Copy>(choices: &[T], reader: &mut ByteReader<'_>) -> Result<T, Malformed> {
    let last = choices.len() as u64 - 1;
    Ok(choices[reader.varint_up_to(last)? as usize])
}

/// A name that a container can have.
pub(super) fn name<'a>(reader: &mut ByteReader<'a>) -> Result<&'a str, Malformed> {
    let at = reader.clone();
    let name = str::from_utf8(reader.prefixed()?);
    name.ok()
        .filter(|name| is_name(name))
        .ok_or_else(|| at.malformed("a name that no container has"))
}

/// Whether a container can have this name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_LEN && !name.contains(['/', '\0'])
}

pub(super) fn put_quota(quota: Option<Quota>, out: &mut Vec<u8>) {
    let of = |quota: Quota| (quota.max_live_bytes, quota.when_full);
    let (bytes, when_full) = quota.map_or((0, WhenFull::Refuse), of);
    put_varint(out, bytes);
    put_varint(out, number_of(&WHEN_FULL, &when_full));
}

pub(super) fn quota(reader: &mut ByteReader<'_>) -> Result<Option<Quota>, Malformed> {
    let at = reader.clone();
    let quota = Quota {
        max_live_bytes: reader.varint()?,
        when_full: choice(&WHEN_FULL, reader)?,
    };
    match (quota.max_live_bytes, quota.check()) {
        (0, _) if quota.when_full == WhenFull::Refuse => Ok(None),
        (1.., Ok(())) => Ok(Some(quota)),
        _ => Err(at.malformed("a quota out of range")),
    }
}

impl<'a> NewContainer<'a> {
    /// The bytes shown in this file's head.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![];
        put_prefixed(&mut out, self.name.as_bytes());
        self.default.encode(&mut out);
        put_varint(&mut out, number_of(&COMPRESSIONS, &self.compression));
        put_varint(&mut out, self.keep_expired);
        put_quota(self.quota, &mut out);
        out
    }

    /// Reads what [`NewContainer::encode`] wrote.
    pub fn decode(bytes: &'a [u8]) -> Result<NewContainer<'a>, Malformed> {
        let reader = &mut ByteReader::new(bytes);
        let new = NewContainer {
            name: name(reader)?,
            default: DefaultMillis::decode(reader)?,
            compression: choice(&COMPRESSIONS, reader)?,
            keep_expired: reader.varint()?,
            quota: quota(reader)?,
        };
        match reader.is_empty() {
            true => Ok(new),
            false => Err(reader.malformed("more than a container")),
        }
    }
}
