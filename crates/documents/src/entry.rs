//! Entries of the indexes by name, as keys of their container, whose values are empty.
//!
//! ```text
//! entry    number of the index, 4 bytes, big endian | value | key of the document
//! value    as a part of a partition key (partition_key.rs), or
//!          08 an array   09 an object
//!          07 | the first 1 024 bytes of a longer string, each + 1 | 01
//! ```
//!
//! Invariants:
//!
//! 1. No value is the beginning of another one. So the entries of a value are a range, in which documents are in the order
//!    of their keys.
//! 2. Values are in the order in which a query has them, with the exception of those that are not exact: arrays, objects,
//!    and longer strings that begin alike. A range of values has the entries of all documents whose value is in it.

use std::ops::Bound;

use crate::key_range::KeyRange;
use crate::partition_key::{FALSE, NULL, NUMBER, STRING, TRUE, UNDEFINED, after_prefix, ordered};
use crate::query::{IndexValue, Scalar, ValueRange};

const ARRAY: u8 = 8;
const OBJECT: u8 = 9;
/// So many bytes of a string are kept.
const MAX_STRING: usize = 1_024;
/// The end of a string that was cut.
const CUT: u8 = 1;
/// The bytes of the number of an index.
pub const NUMBER_LEN: usize = 4;

/// Appends a value.
pub fn push_value(out: &mut Vec<u8>, value: &IndexValue<'_>) {
    match value {
        IndexValue::Undefined => out.push(UNDEFINED),
        IndexValue::Null => out.push(NULL),
        IndexValue::Bool(is) => out.push(if *is { TRUE } else { FALSE }),
        IndexValue::Number(number) => {
            out.push(NUMBER);
            out.extend_from_slice(&ordered(*number));
        }
        IndexValue::String(text) => push_text(out, text.as_bytes()),
        IndexValue::Array => out.push(ARRAY),
        IndexValue::Object => out.push(OBJECT),
    }
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let kept = &text[..text.len().min(MAX_STRING)];
    out.push(STRING);
    // No byte of UTF-8 is ff.
    out.extend(kept.iter().map(|byte| byte + 1));
    out.push(if text.len() > MAX_STRING { CUT } else { 0 });
}

/// The key of an entry.
pub fn encoded(number: u32, value: &IndexValue<'_>, key: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(NUMBER_LEN + 24 + key.len());
    entry.extend_from_slice(&number.to_be_bytes());
    push_value(&mut entry, value);
    entry.extend_from_slice(key);
    entry
}

/// The parts of an entry: the number, the value, the document's key. `None`: it is no entry.
pub fn decoded(entry: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (number, rest) = entry.split_first_chunk()?;
    let (value, key) = rest.split_at_checked(value_len(rest)?)?;
    (!key.is_empty()).then_some((u32::from_be_bytes(*number), value, key))
}

/// The length of the value with which these bytes begin.
pub fn value_len(bytes: &[u8]) -> Option<usize> {
    match *bytes.first()? {
        NUMBER => Some(9),
        STRING => {
            let text = &bytes[1..bytes.len().min(2 + MAX_STRING)];
            match text.iter().position(|byte| *byte == 0) {
                Some(end) => Some(end + 2),
                None => (text.get(MAX_STRING) == Some(&CUT)).then_some(MAX_STRING + 2),
            }
        }
        UNDEFINED | NULL | FALSE | TRUE | ARRAY | OBJECT => Some(1),
        _ => None,
    }
}

/// Whether no other value of a document is kept as the same, and values about it are in their order.
pub fn is_exact(value: &[u8]) -> bool {
    match value.first() {
        Some(&STRING) => value.last() == Some(&0),
        first => first.is_some_and(|first| *first < STRING),
    }
}

fn of_scalar(value: &Scalar) -> IndexValue<'_> {
    match value {
        Scalar::Null => IndexValue::Null,
        Scalar::Bool(is) => IndexValue::Bool(*is),
        Scalar::Number(number) => IndexValue::Number(*number),
        Scalar::String(text) => IndexValue::String(text.into()),
    }
}

/// The first bytes that values of its type begin with.
fn ends_of_type(value: &Scalar) -> (u8, u8) {
    match value {
        Scalar::Null => (NULL, NULL),
        Scalar::Bool(_) => (FALSE, TRUE),
        Scalar::Number(_) => (NUMBER, NUMBER),
        Scalar::String(_) => (STRING, STRING),
    }
}

/// The entries of an index.
pub fn all_of(number: u32) -> KeyRange {
    KeyRange::of_prefix(number.to_be_bytes().to_vec())
}

/// The beginning of the entries of the values that a condition can be true of, if that is one.
pub fn one_value(number: u32, condition: &ValueRange) -> Option<Vec<u8>> {
    match condition {
        ValueRange::OneOf(values) => match &values[..] {
            [value] => Some(beginning(number, value)),
            _ => None,
        },
        _ => None,
    }
}

fn beginning(number: u32, value: &Scalar) -> Vec<u8> {
    encoded(number, &of_scalar(value), &[])
}

/// The entries of all values that a condition can be true of: ascending, apart.
pub fn ranges(number: u32, condition: &ValueRange) -> Vec<KeyRange> {
    match condition {
        ValueRange::Any => vec![all_of(number)],
        ValueRange::OneOf(values) => {
            let values = values.iter().map(|value| beginning(number, value));
            let mut values = Vec::from_iter(values);
            values.sort_unstable();
            values.dedup();
            values.into_iter().map(KeyRange::of_prefix).collect()
        }
        ValueRange::StartsWith(text) => {
            let mut prefix = beginning(number, &Scalar::String(text.clone()));
            prefix.pop();
            vec![KeyRange::of_prefix(prefix)]
        }
        ValueRange::Between(from, to) => between(number, from, to).into_iter().collect(),
    }
}

/// The entries of the values between two of one type.
fn between(number: u32, from: &Bound<Scalar>, to: &Bound<Scalar>) -> Option<KeyRange> {
    let other = [from, to].into_iter().find_map(|bound| match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(ends_of_type(value)),
        Bound::Unbounded => None,
    });
    let (first, last) = other?;
    let of_type = |first: u8| [&number.to_be_bytes()[..], &[first]].concat();
    let after = |prefix: &[u8]| after_prefix(prefix).unwrap_or_default();
    // Of what is cut, values on both sides of a bound are kept as the bound is.
    let is_cut = |begin: &[u8]| !is_exact(&begin[NUMBER_LEN..]);
    let from = match from {
        Bound::Unbounded => of_type(first),
        Bound::Included(value) => beginning(number, value),
        Bound::Excluded(value) => match beginning(number, value) {
            begin if is_cut(&begin) => begin,
            begin => after(&begin),
        },
    };
    let to = match to {
        Bound::Unbounded => after(&of_type(last)),
        Bound::Included(value) => after(&beginning(number, value)),
        Bound::Excluded(value) => match beginning(number, value) {
            begin if is_cut(&begin) => after(&begin),
            begin => begin,
        },
    };
    (from < to).then_some(KeyRange {
        from: Bound::Included(from),
        to: Bound::Excluded(to),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: String) -> IndexValue<'static> {
        IndexValue::String(text.into())
    }

    fn ascending() -> Vec<IndexValue<'static>> {
        let long = "x".repeat(MAX_STRING);
        vec![
            IndexValue::Undefined,
            IndexValue::Null,
            IndexValue::Bool(false),
            IndexValue::Bool(true),
            IndexValue::Number(-1e300),
            IndexValue::Number(-0.5),
            IndexValue::Number(0.0),
            IndexValue::Number(1e-9),
            IndexValue::Number(1e300),
            text(String::new()),
            text("\0".into()),
            text("a".into()),
            text("a\0".into()),
            text("aa".into()),
            text(long[1..].into()),
            text(long.clone()),
            text(format!("{long}\0")),
            text("é".into()),
            IndexValue::Array,
            IndexValue::Object,
        ]
    }

    #[test]
    fn values_are_in_their_order_and_come_back() {
        let values = ascending();
        for (at, value) in values.iter().enumerate() {
            let entry = encoded(7, value, b"key");
            let (number, bytes, key) = decoded(&entry).unwrap();
            assert_eq!((number, key), (7, &b"key"[..]));
            let is_exact_value = match value {
                IndexValue::Array | IndexValue::Object => false,
                IndexValue::String(text) => text.len() <= MAX_STRING,
                _ => true,
            };
            assert_eq!(is_exact(bytes), is_exact_value, "{value:?}");
            for other in &values[at + 1..] {
                assert!(entry < encoded(7, other, b""), "{value:?} {other:?}");
                assert!(!encoded(7, other, b"").starts_with(&encoded(7, value, b"")));
            }
        }
        assert_eq!(
            encoded(0, &IndexValue::Number(-0.0), b""),
            encoded(0, &IndexValue::Number(0.0), b"")
        );
        let cut = encoded(7, &text("x".repeat(MAX_STRING + 1)), b"k");
        assert_eq!(encoded(7, &text("x".repeat(MAX_STRING + 2)), b"k"), cut);
        for broken in [
            &b""[..],
            b"\0\0\0\x01",
            b"\0\0\0\x01\x02",
            b"\0\0\0\x01\x0ak",
            &cut[..500],
        ] {
            assert_eq!(decoded(broken), None);
        }
        assert_eq!(
            encoded(1, &IndexValue::Number(-2.0), b"k")[..],
            *b"\0\0\0\x01\x06\x3f\xff\xff\xff\xff\xff\xff\xffk"
        );
        assert_eq!(
            encoded(258, &text("b\0".into()), b"k")[..],
            *b"\0\0\x01\x02\x07c\x01\0k"
        );
    }

    /// Each value that a condition is true of is in its ranges; of exact ones those alone.
    #[test]
    fn ranges_have_what_they_are_to_have() {
        let scalars: Vec<Scalar> = ascending()
            .into_iter()
            .chain([
                text("x".repeat(MAX_STRING + 9)),
                text("x".repeat(MAX_STRING) + "y"),
            ])
            .filter_map(|value| match value {
                IndexValue::Null => Some(Scalar::Null),
                IndexValue::Bool(is) => Some(Scalar::Bool(is)),
                IndexValue::Number(number) => Some(Scalar::Number(number)),
                IndexValue::String(text) => Some(Scalar::String(text.into_owned())),
                _ => None,
            })
            .collect();
        let order = |one: &Scalar, other: &Scalar| match (one, other) {
            (Scalar::Null, Scalar::Null) => Some(std::cmp::Ordering::Equal),
            (Scalar::Bool(one), Scalar::Bool(other)) => Some(one.cmp(other)),
            (Scalar::Number(one), Scalar::Number(other)) => one.partial_cmp(other),
            (Scalar::String(one), Scalar::String(other)) => Some(one.cmp(other)),
            _ => None,
        };
        let is_cut =
            |value: &Scalar| matches!(value, Scalar::String(text) if text.len() > MAX_STRING);
        let holds = |condition: &ValueRange, value: &Scalar| {
            let entry = encoded(3, &of_scalar(value), b"k");
            let ranges = ranges(3, condition);
            assert!(
                ranges
                    .windows(2)
                    .all(|pair| match (&pair[0].to, &pair[1].from) {
                        (Bound::Excluded(end), Bound::Included(begin)) => end <= begin,
                        _ => false,
                    })
            );
            ranges.iter().any(|range| range.contains(&entry))
        };
        for low in &scalars {
            for value in &scalars {
                let equal = ValueRange::OneOf(vec![low.clone(), Scalar::Null, low.clone()]);
                let is =
                    order(low, value) == Some(std::cmp::Ordering::Equal) || *value == Scalar::Null;
                let found = holds(&equal, value);
                assert!(
                    found == is || found && is_cut(value) && is_cut(low),
                    "{low:?} {value:?}"
                );
                if let (Scalar::String(prefix), Scalar::String(text)) = (low, value) {
                    let found = holds(&ValueRange::StartsWith(prefix.clone()), value);
                    assert!(found || !text.starts_with(prefix.as_str()));
                    assert!(!found || text.starts_with(prefix.as_str()) || is_cut(low));
                }
                for bounds in 0..8 {
                    let bound = |kind: usize| match kind % 3 {
                        0 => Bound::Unbounded,
                        1 => Bound::Included(low.clone()),
                        _ => Bound::Excluded(low.clone()),
                    };
                    let (from, to) = (bound(bounds + 1), bound((bounds + 1) / 3));
                    let compared = order(value, low);
                    let above = match from {
                        Bound::Unbounded => compared.is_some(),
                        Bound::Included(_) => compared.is_some_and(std::cmp::Ordering::is_ge),
                        Bound::Excluded(_) => compared.is_some_and(std::cmp::Ordering::is_gt),
                    };
                    let below = match to {
                        Bound::Unbounded => compared.is_some(),
                        Bound::Included(_) => compared.is_some_and(std::cmp::Ordering::is_le),
                        Bound::Excluded(_) => compared.is_some_and(std::cmp::Ordering::is_lt),
                    };
                    let found = holds(&ValueRange::Between(from, to), value);
                    let is = above && below;
                    assert!(found || !is, "{low:?} {value:?} {bounds}");
                    assert!(
                        !found || is || is_cut(value) && is_cut(low),
                        "{low:?} {value:?} {bounds}"
                    );
                }
            }
        }
    }
}
