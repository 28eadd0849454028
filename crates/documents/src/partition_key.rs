//! Partition keys, and the keys of items, which begin with them.
//!
//! ```text
//! item's key    part ... part, as many as the container has paths | id
//! part          02 undefined   03 null   04 false   05 true
//!               06 | 8 bytes: a double, big endian, all bits flipped if negative, else the sign's
//!               07 | each byte of the string + 1 | 00
//! ```
//!
//! So keys are in the order in which Cosmos DB has these types. No byte of UTF-8 is ff: adding one to each leaves 00 free for
//! the end, keeps the order, and a shorter string before a longer one that begins with it.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::json;

/// The key of a document's item: its partition key, encoded, and its id. Most are short, and then take no memory of their own.
pub type ItemKey = SmallVec<[u8; 36]>;

/// A container has up to this many paths.
pub const MAX_PARTS: usize = 3;
/// A string of a partition key has up to this many bytes.
const MAX_STRING: usize = 2_048;

pub const UNDEFINED: u8 = 2;
pub const NULL: u8 = 3;
pub const FALSE: u8 = 4;
pub const TRUE: u8 = 5;
pub const NUMBER: u8 = 6;
pub const STRING: u8 = 7;

/// One level of a partition key.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionKeyPart {
    /// The document has no such member.
    Undefined,
    /// `null`.
    Null,
    /// `false` or `true`.
    Bool(bool),
    /// A number, as Cosmos DB has them: a double.
    Number(f64),
    /// A string.
    String(String),
}

/// The partition key of a document: as many parts as its container has paths. With fewer it is a prefix, which a
/// [`Scope`](crate::Scope) and a delete by partition key may have.
///
/// ```
/// use ebbtide_documents::PartitionKey;
///
/// let key = PartitionKey::from_json(r#"["acme", 7, {}]"#)?;
/// assert_eq!(key.to_json(), r#"["acme",7,{}]"#);
/// assert!(key.encode().starts_with(&PartitionKey::from("acme").encode()));
/// # Ok::<(), ebbtide_documents::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionKey {
    parts: Vec<PartitionKeyPart>,
}

/// A level of the partition key of a body, of which it borrows.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundPart<'a> {
    /// A string.
    String(Cow<'a, str>),
    /// Any other, which takes no memory.
    Other(PartitionKeyPart),
}

impl<'a> FoundPart<'a> {
    /// From the text of a value that was accepted. `None`: an object or array, of which there is no partition.
    pub fn of_text(text: &'a str) -> Option<FoundPart<'a>> {
        Some(FoundPart::Other(match text.as_bytes().first()? {
            b'"' => return json::string(text).map(FoundPart::String),
            b'n' => PartitionKeyPart::Null,
            b't' => PartitionKeyPart::Bool(true),
            b'f' => PartitionKeyPart::Bool(false),
            b'{' | b'[' => return None,
            _ => PartitionKeyPart::Number(text.parse().ok()?),
        }))
    }

    fn into_owned(self) -> PartitionKeyPart {
        match self {
            FoundPart::String(text) => PartitionKeyPart::String(text.into_owned()),
            FoundPart::Other(part) => part,
        }
    }

    fn is(&self, part: &PartitionKeyPart) -> bool {
        match (self, part) {
            (FoundPart::String(own), PartitionKeyPart::String(part)) => own == part,
            (FoundPart::String(_), _) => false,
            (FoundPart::Other(own), part) => own == part,
        }
    }
}

/// The partition key of a body.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundKey<'a> {
    parts: [Option<FoundPart<'a>>; MAX_PARTS],
}

impl<'a> FoundKey<'a> {
    /// From up to three parts.
    pub fn of(parts: impl IntoIterator<Item = Result<FoundPart<'a>>>) -> Result<FoundKey<'a>> {
        let mut key = FoundKey {
            parts: [const { None }; MAX_PARTS],
        };
        for (place, part) in key.parts.iter_mut().zip(parts) {
            *place = Some(part?);
        }
        Ok(key)
    }

    /// Whether it is this one.
    pub fn is(&self, key: &PartitionKey) -> bool {
        let parts = self.parts.iter().flatten();
        parts.clone().count() == key.parts.len()
            && parts.zip(&key.parts).all(|(own, part)| own.is(part))
    }

    pub fn into_owned(self) -> PartitionKey {
        let parts = self.parts.into_iter().flatten();
        PartitionKey::new(parts.map(FoundPart::into_owned).collect())
    }
}

impl PartitionKeyPart {
    /// As [`FoundPart::of_text`].
    pub(crate) fn from_text(text: &str) -> Option<PartitionKeyPart> {
        FoundPart::of_text(text).map(FoundPart::into_owned)
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut out = ItemKey::new();
        self.encode(&mut out);
        out.into_vec()
    }

    /// The first bytes that values of its type begin with.
    pub(crate) fn ends_of_type(&self) -> (u8, u8) {
        match self {
            PartitionKeyPart::Undefined => (UNDEFINED, UNDEFINED),
            PartitionKeyPart::Null => (NULL, NULL),
            PartitionKeyPart::Bool(_) => (FALSE, TRUE),
            PartitionKeyPart::Number(_) => (NUMBER, NUMBER),
            PartitionKeyPart::String(_) => (STRING, STRING),
        }
    }

    fn encode(&self, out: &mut ItemKey) {
        match self {
            PartitionKeyPart::Undefined => out.push(UNDEFINED),
            PartitionKeyPart::Null => out.push(NULL),
            PartitionKeyPart::Bool(false) => out.push(FALSE),
            PartitionKeyPart::Bool(true) => out.push(TRUE),
            PartitionKeyPart::Number(number) => {
                out.push(NUMBER);
                out.extend_from_slice(&ordered(*number));
            }
            PartitionKeyPart::String(text) => push_text(out, text),
        }
    }
}

/// A double as bytes in its order. Both zeros are one number.
pub fn ordered(number: f64) -> [u8; 8] {
    let bits = (number + 0.0).to_bits();
    let flipped = match bits >> 63 {
        0 => bits ^ 1 << 63,
        _ => !bits,
    };
    flipped.to_be_bytes()
}

fn push_text(out: &mut ItemKey, text: &str) {
    out.push(STRING);
    out.extend(text.bytes().map(|byte| byte + 1));
    out.push(0);
}

impl PartitionKey {
    /// From its parts.
    #[must_use]
    pub fn new(parts: Vec<PartitionKeyPart>) -> PartitionKey {
        PartitionKey { parts }
    }

    /// From the JSON array of the header `x-ms-documentdb-partitionkey`; `{}` in it is undefined.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): no array of up to three strings, numbers, booleans, nulls and `{}`.
    pub fn from_json(json: &str) -> Result<PartitionKey> {
        let wrong = || {
            let shown: String = json.chars().take(100).collect();
            Error::bad_request(format!(
                "Partition key {shown} is invalid: it is to be an array of up to {MAX_PARTS} strings, numbers, booleans, \
                 nulls and {{}}."
            ))
        };
        let elements = json::elements(json).ok().flatten().ok_or_else(wrong)?;
        if elements.len() > MAX_PARTS {
            return Err(wrong());
        }
        let part = |text: &&str| match text.as_bytes() {
            [b'{', middle @ .., b'}'] if middle.trim_ascii().is_empty() => {
                Some(PartitionKeyPart::Undefined)
            }
            _ => PartitionKeyPart::from_text(text),
        };
        let parts = elements.iter().map(part).collect::<Option<_>>();
        Ok(PartitionKey::new(parts.ok_or_else(wrong)?))
    }

    /// As the header has it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let texts = self.parts.iter().map(|part| match part {
            PartitionKeyPart::Undefined => "{}".to_owned(),
            PartitionKeyPart::Null => "null".to_owned(),
            PartitionKeyPart::Bool(is) => is.to_string(),
            PartitionKeyPart::Number(number) => number.to_string(),
            PartitionKeyPart::String(text) => serde_json::Value::from(text.as_str()).to_string(),
        });
        format!("[{}]", Vec::from_iter(texts).join(","))
    }

    /// Its parts.
    #[must_use]
    pub fn parts(&self) -> &[PartitionKeyPart] {
        &self.parts
    }

    /// Bytes that are ordered as Cosmos DB orders these types, and begin with those of each prefix.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = ItemKey::new();
        self.encode_into(&mut out);
        out.into_vec()
    }

    /// At least the length of what it is encoded as.
    pub(crate) fn encoded_len(&self) -> usize {
        let len = |part: &PartitionKeyPart| match part {
            PartitionKeyPart::String(text) => text.len() + 2,
            _ => 9,
        };
        self.parts.iter().map(len).sum()
    }

    pub(crate) fn encode_into(&self, out: &mut ItemKey) {
        self.parts.iter().for_each(|part| part.encode(out));
    }

    /// Fails where it is not one of a container with so many paths, or too long to be stored.
    pub(crate) fn check(&self, paths: usize) -> Result<()> {
        if self.parts.len() != paths {
            return Err(mismatch());
        }
        self.check_len()
    }

    /// The same for one that may be a prefix.
    pub(crate) fn check_prefix(&self, paths: usize) -> Result<()> {
        if self.parts.len() > paths {
            return Err(mismatch());
        }
        self.check_len()
    }

    fn check_len(&self) -> Result<()> {
        let is_too_long = |part: &PartitionKeyPart| matches!(part, PartitionKeyPart::String(text) if text.len() > MAX_STRING);
        if self.parts.iter().any(is_too_long) {
            let message = format!("A partition key has up to {MAX_STRING} bytes.");
            return Err(Error::bad_request(message));
        }
        Ok(())
    }
}

/// The error for a partition key that is not that of the container or document.
pub fn mismatch() -> Error {
    Error::bad_request(
        "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key \
         field values specified in the document.",
    )
    .with_sub_status(1001)
}

/// The length of the partition key with which an item's key begins. `None`: it is no key of a document.
pub fn encoded_len(key: &[u8], paths: usize) -> Option<usize> {
    let mut at = 0;
    for _ in 0..paths {
        at += match *key.get(at)? {
            NUMBER => 9,
            STRING => key[at..].iter().position(|byte| *byte == 0)? + 1,
            _ => 1,
        };
    }
    (at < key.len()).then_some(at)
}

/// The least key that is above all that begin with this.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

impl From<&str> for PartitionKeyPart {
    fn from(part: &str) -> PartitionKeyPart {
        PartitionKeyPart::String(part.to_owned())
    }
}

impl From<f64> for PartitionKeyPart {
    fn from(part: f64) -> PartitionKeyPart {
        PartitionKeyPart::Number(part)
    }
}

impl From<bool> for PartitionKeyPart {
    fn from(part: bool) -> PartitionKeyPart {
        PartitionKeyPart::Bool(part)
    }
}

impl<P: Into<PartitionKeyPart>> From<P> for PartitionKey {
    fn from(part: P) -> PartitionKey {
        PartitionKey::new(vec![part.into()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_types_and_values() {
        let ascending = [
            "[{}]",
            "[null]",
            "[false]",
            "[true]",
            "[-1e300]",
            "[-2.5]",
            "[-0.0]",
            "[1e-9]",
            "[1]",
            "[2]",
            "[1e300]",
            r#"[""]"#,
            r#"["\u0000"]"#,
            r#"["a"]"#,
            r#"["a\u0000"]"#,
            r#"["a\u0000b"]"#,
            r#"["aa"]"#,
            r#"["b"]"#,
            r#"["é"]"#,
            r#"["😀"]"#,
        ];
        let keys: Vec<_> = ascending
            .iter()
            .map(|json| PartitionKey::from_json(json).unwrap())
            .collect();
        for pair in keys.windows(2) {
            assert!(
                pair[0].encode() < pair[1].encode(),
                "{} {}",
                pair[0],
                pair[1]
            );
        }
        for (at, key) in keys.iter().enumerate() {
            let mut item = key.encode();
            item.extend_from_slice(b"id");
            assert_eq!(encoded_len(&item, 1), Some(item.len() - 2));
            assert_eq!(PartitionKey::from_json(&key.to_json()).unwrap(), *key);
            // No other partition's key begins with it.
            let others = keys.iter().enumerate().filter(|(other, _)| *other != at);
            assert!(
                others
                    .clone()
                    .all(|(_, other)| !other.encode().starts_with(&key.encode()))
            );
        }
        let zero = |text| PartitionKey::from_json(text).unwrap().encode();
        assert_eq!(zero("[0]"), zero("[-0.0]"));
        assert_eq!(zero("[9007199254740993]"), zero("[9007199254740992]"));
    }

    #[test]
    fn what_is_no_partition_key_is_refused() {
        for json in [
            "",
            "\"a\"",
            "{}",
            "[[]]",
            r#"[{"a":1}]"#,
            "[1,2,3,4]",
            "[1",
            "[1,]",
            r#"["\ud800"]"#,
            "[1e999]",
        ] {
            assert!(PartitionKey::from_json(json).is_err(), "{json}");
        }
        assert!(PartitionKey::from_json("[]").unwrap().parts().is_empty());
        let long = PartitionKey::from("x".repeat(2_049).as_str());
        assert!(long.check(1).is_err() && long.check_prefix(1).is_err());
        assert!(
            PartitionKey::from("x".repeat(2_048).as_str())
                .check(1)
                .is_ok()
        );
    }

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
    }
}
