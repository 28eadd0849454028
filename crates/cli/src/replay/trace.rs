//! A line of a trace in the public cache-trace format (twitter/cache-trace):
//!
//! ```text
//! timestamp,key,key size,value size,client,operation,ttl        seconds, bytes; ttl 0: none; the client is not used
//! 1269,nz:u:eeW511W3,16,352,0,set,3600
//! ```
//!
//! A key may have commas: one field comes before it and five after it. It represents a key of the given size, see
//! [`fit`].

use std::borrow::Cow;
use std::str::from_utf8;

use twox_hash::XxHash3_64;

/// The library's limits, repeated here so that a bad line is refused before any of it is done.
const MAX_KEY_LEN: usize = 65_535;
const MAX_VALUE_LEN: usize = 64 << 20;
const MAX_TTL: u64 = 2_147_483_647;
/// Enough for seconds since 1970 until 2106.
const MAX_TIMESTAMP: u64 = u32::MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Get,
    Gets,
    Set,
    Add,
    Replace,
    Cas,
    Append,
    Prepend,
    Delete,
    Incr,
    Decr,
}

impl Kind {
    pub const ALL: [Kind; 11] = [
        Kind::Get,
        Kind::Gets,
        Kind::Set,
        Kind::Add,
        Kind::Replace,
        Kind::Cas,
        Kind::Append,
        Kind::Prepend,
        Kind::Delete,
        Kind::Incr,
        Kind::Decr,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Gets => "gets",
            Kind::Set => "set",
            Kind::Add => "add",
            Kind::Replace => "replace",
            Kind::Cas => "cas",
            Kind::Append => "append",
            Kind::Prepend => "prepend",
            Kind::Delete => "delete",
            Kind::Incr => "incr",
            Kind::Decr => "decr",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Seconds since the trace's own origin.
    pub timestamp: u64,
    pub key: Vec<u8>,
    pub value_len: usize,
    pub kind: Kind,
    /// Seconds; `None` for never.
    pub ttl: Option<u64>,
}

impl Step {
    /// Parses a line; the error says why it is refused.
    pub fn parse(line: &[u8]) -> Result<Step, String> {
        const FIELDS: &str =
            "not of the form timestamp,key,key size,value size,client,operation,ttl";
        let line = line.trim_ascii();
        let first = line.iter().position(|&byte| byte == b',').ok_or(FIELDS)?;
        let mut fields = line[first + 1..].rsplitn(6, |&byte| byte == b',');
        let mut next = || fields.next().ok_or(FIELDS);
        let (ttl, kind, _client, value_len, key_len, key) =
            (next()?, next()?, next()?, next()?, next()?, next()?);
        if key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        let timestamp = number("timestamp", &line[..first], 0, MAX_TIMESTAMP)?;
        let key_len = number("key size", key_len, 1, MAX_KEY_LEN as u64)?;
        let value_len = number("value size", value_len, 0, MAX_VALUE_LEN as u64)?;
        let ttl = number("ttl", ttl, 0, MAX_TTL)?;
        Ok(Step {
            timestamp,
            key: fit(key, key_len as usize),
            value_len: value_len as usize,
            kind: operation(kind)?,
            ttl: (ttl > 0).then_some(ttl),
        })
    }
}

fn number(what: &str, text: &[u8], least: u64, most: u64) -> Result<u64, String> {
    let number = from_utf8(text).ok().and_then(|text| text.parse().ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| {
            let text = shown(text);
            format!("{what} {text} is not allowed: a whole number from {least} to {most}")
        })
}

fn operation(name: &[u8]) -> Result<Kind, String> {
    let mut kinds = Kind::ALL.into_iter();
    kinds
        .find(|kind| kind.name().as_bytes() == name)
        .ok_or_else(|| {
            let known = Kind::ALL.map(Kind::name).join(", ");
            format!("operation {} is not allowed: {known}", shown(name))
        })
}

/// The start of a field, for one-line messages.
fn shown(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&text[..text.len().min(40)])
}

/// Fits a key to `len` bytes, because anonymised traces have keys of other lengths. A short one is padded with zero
/// bytes. Of a long one the start is kept, so that common prefixes stay common, and the last eight bytes are a hash of
/// the whole.
fn fit(key: &[u8], len: usize) -> Vec<u8> {
    let mut fitted = key.to_vec();
    fitted.resize(len, 0);
    if key.len() > len {
        let hash = XxHash3_64::oneshot(key).to_le_bytes();
        let hashed = len.min(hash.len());
        fitted[len - hashed..].copy_from_slice(&hash[..hashed]);
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Step, String> {
        Step::parse(line.as_bytes())
    }

    #[test]
    fn a_line_is_read() {
        let step = Step {
            timestamp: 12,
            key: b"a,b".to_vec(),
            value_len: 352,
            kind: Kind::Set,
            ttl: Some(60),
        };
        assert_eq!(parse("12,a,b,3,352,7,set,60\r\n"), Ok(step));
        assert_eq!(parse("0,k,1,0,,incr,0").unwrap().ttl, None);
    }

    #[test]
    fn every_operation_has_its_name() {
        for kind in Kind::ALL {
            let line = format!("0,k,1,0,0,{},0", kind.name());
            assert_eq!(parse(&line).unwrap().kind, kind);
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, why) in [
            ("", "not of the form"),
            ("0", "not of the form"),
            ("0,1,1,0,get,0", "not of the form"),
            ("0,,1,1,0,get,0", "the key is empty"),
            ("-1,k,1,1,0,get,0", "timestamp -1 is not allowed"),
            ("1.5,k,1,1,0,get,0", "timestamp 1.5 is not allowed"),
            ("0,k,0,1,0,get,0", "key size 0 is not allowed"),
            ("0,k,65536,1,0,get,0", "key size 65536 is not allowed"),
            ("0,k,1,67108865,0,set,0", "value size 67108865 is not"),
            ("0,k,1,1,0,GET,0", "operation GET is not allowed: get, gets"),
            ("0,k,1,1,0,set,2147483648", "ttl 2147483648 is not allowed"),
        ] {
            let said = parse(line).unwrap_err();
            assert!(said.starts_with(why), "{line}: {said}");
        }
    }

    #[test]
    fn keys_take_the_size_that_is_stated() {
        assert_eq!(fit(b"key", 3), b"key");
        assert_eq!(fit(b"key", 5), b"key\0\0");
        let (one, other) = (fit(b"users:12345678a", 10), fit(b"users:12345678b", 10));
        assert_eq!((one.len(), &one[..2]), (10, &b"us"[..]));
        assert_eq!(one[..2], other[..2]);
        assert_ne!(one, other);
        assert_eq!(fit(b"users:12345678a", 10), one);
        assert_eq!(fit(b"users", 3).len(), 3);
    }
}
