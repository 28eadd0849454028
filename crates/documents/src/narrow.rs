//! The keys that a query can be true of.

use std::ops::Bound;

use crate::container::Container;
use crate::error::Result;
use crate::key_range::KeyRange;
use crate::page::Scope;
use crate::partition_key::{PartitionKeyPart, after_prefix};
use crate::query::{BoundQuery, Scalar, ValueRange};

/// With more prefixes than this, shorter ones are scanned.
const MOST: usize = 1_024;

/// Ranges of keys, ascending and apart, that have all documents of a scope of which a query can be true.
pub fn key_ranges(
    container: &Container,
    scope: &Scope,
    query: &BoundQuery,
) -> Result<Vec<KeyRange>> {
    let all = container.scope_of(scope)?;
    if !scope.id_prefix.is_empty() {
        return Ok(vec![all]);
    }
    let paths = &container.definition().partition_key;
    let condition = query.key_condition(paths);
    let mut prefixes = vec![scope.partition_key.encode()];
    let given = scope.partition_key.parts().len();
    for of_part in condition.partition.get(given..).unwrap_or_default() {
        match of_part {
            ValueRange::OneOf(values) if values.len() * prefixes.len() <= MOST => {
                let parts = values.iter().map(|value| part_of(value).encoded());
                prefixes = crossed(&prefixes, &Vec::from_iter(parts));
            }
            ValueRange::Between(from, to) => {
                return Ok(each(&prefixes, |prefix| between(prefix, from, to)));
            }
            ValueRange::StartsWith(text) => {
                return Ok(each(&prefixes, |prefix| {
                    let mut begin = PartitionKeyPart::from(&**text).encoded();
                    begin.pop();
                    KeyRange::of_prefix([prefix, &begin].concat())
                }));
            }
            _ => {
                return Ok(each(&prefixes, |prefix| {
                    KeyRange::of_prefix(prefix.to_vec())
                }));
            }
        }
    }
    Ok(match condition.id {
        ValueRange::OneOf(ids) if ids.len() * prefixes.len() <= MOST => {
            let texts = ids.into_iter().filter_map(|id| match id {
                Scalar::String(id) => Some(id.into_bytes()),
                _ => None,
            });
            let keys = crossed(&prefixes, &Vec::from_iter(texts));
            keys.into_iter().map(KeyRange::of_key).collect()
        }
        ValueRange::StartsWith(id) => each(&prefixes, |prefix| {
            KeyRange::of_prefix([prefix, id.as_bytes()].concat())
        }),
        ValueRange::Between(from, to) => each(&prefixes, |prefix| ids_between(prefix, &from, &to)),
        _ => each(&prefixes, |prefix| KeyRange::of_prefix(prefix.to_vec())),
    })
}

fn each(prefixes: &[Vec<u8>], range: impl Fn(&[u8]) -> KeyRange) -> Vec<KeyRange> {
    prefixes.iter().map(|prefix| range(prefix)).collect()
}

/// Each prefix with each of these behind it, ascending, each once.
fn crossed(prefixes: &[Vec<u8>], behind: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let pairs = prefixes
        .iter()
        .flat_map(|prefix| behind.iter().map(move |part| [&prefix[..], part].concat()));
    let mut crossed: Vec<_> = pairs.collect();
    crossed.sort_unstable();
    crossed.dedup();
    crossed
}

fn part_of(value: &Scalar) -> PartitionKeyPart {
    match value {
        Scalar::Null => PartitionKeyPart::Null,
        Scalar::Bool(is) => PartitionKeyPart::Bool(*is),
        Scalar::Number(number) => PartitionKeyPart::Number(*number),
        Scalar::String(text) => PartitionKeyPart::from(&**text),
    }
}

/// The keys whose next part is between two values of one type.
fn between(prefix: &[u8], from: &Bound<Scalar>, to: &Bound<Scalar>) -> KeyRange {
    let with = |part: &[u8]| [prefix, part].concat();
    let after = |part: &[u8]| after_prefix(&with(part)).unwrap_or_default();
    let of = |value: &Scalar| part_of(value).encoded();
    // A bound that is missing is the first or last of the type of the other.
    let other = [from, to].into_iter().find_map(|bound| match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(part_of(value)),
        Bound::Unbounded => None,
    });
    let (first, last) = other.map(|part| part.ends_of_type()).unwrap_or_default();
    KeyRange {
        from: Bound::Included(match from {
            Bound::Included(value) => with(&of(value)),
            Bound::Excluded(value) => after(&of(value)),
            Bound::Unbounded => with(&[first]),
        }),
        to: Bound::Excluded(match to {
            Bound::Included(value) => after(&of(value)),
            Bound::Excluded(value) => with(&of(value)),
            Bound::Unbounded => after(&[last]),
        }),
    }
}

/// The keys of one partition whose id is between two.
fn ids_between(prefix: &[u8], from: &Bound<Scalar>, to: &Bound<Scalar>) -> KeyRange {
    let all = KeyRange::of_prefix(prefix.to_vec());
    let key = |bound: &Bound<Scalar>, missing: &Bound<Vec<u8>>| match bound.as_ref() {
        Bound::Included(Scalar::String(id)) => Bound::Included([prefix, id.as_bytes()].concat()),
        Bound::Excluded(Scalar::String(id)) => Bound::Excluded([prefix, id.as_bytes()].concat()),
        _ => missing.clone(),
    };
    KeyRange {
        from: key(from, &all.from),
        to: key(to, &all.to),
    }
}
