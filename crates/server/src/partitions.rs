//! The partitions of a container, as SDKs see them: parts of the range of effective partition keys.
//!
//! A container has one, or, where it was created with a throughput that takes more in Cosmos DB, as many as there; their
//! number never changes. The documents are in one container of the engine all the same, in the order of their keys: a request
//! for a partition reads them all, and takes those whose place is in its part.
//!
//! Invariant: of the containers that have offers, those of several partitions are listed here. Over a cluster those are that requests
//! have been about: others make containers, too, and their offers are read then.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use ebbtide_documents::{Container, Document, PartitionKey, PartitionKeyPart, ResourceId};
use serde_json::Value;

use crate::hash::{boundary, effective};
use crate::reply::Failure;
use crate::request::Request;

/// The throughput of one partition.
const THROUGHPUT: u64 = 10_000;
const MOST: u64 = 100;

/// How many partitions a throughput takes.
pub(crate) fn of_throughput(throughput: u64) -> u64 {
    throughput.div_ceil(THROUGHPUT).clamp(1, MOST)
}

#[derive(Default)]
pub(crate) struct Partitions(RwLock<HashMap<ResourceId, usize>>);

/// The places from one on, up to another without it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    pub from: String,
    pub to: String,
}

impl Range {
    pub fn all() -> Range {
        Range {
            from: String::new(),
            to: "FF".to_owned(),
        }
    }

    fn has(&self, place: &str) -> bool {
        *self.from <= *place && *place < *self.to
    }

    /// The places that both have.
    pub fn common(self, other: Range) -> Range {
        Range {
            from: self.from.max(other.from),
            to: self.to.min(other.to),
        }
    }
}

/// The partitions of one container, and how its places are computed.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub count: usize,
    version: u64,
    paths: usize,
}

impl Partitions {
    pub fn set(&self, rid: ResourceId, count: usize) {
        let mut several = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match count {
            0 | 1 => several.remove(&rid),
            _ => several.insert(rid, count),
        };
    }

    /// Lists a container of the count that its offer says, which is for good.
    pub fn learn(&self, rid: ResourceId, count: usize) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(rid, count);
    }

    pub fn are_known(&self, rid: ResourceId) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.contains_key(&rid)
    }

    pub fn layout(&self, container: &Container) -> Layout {
        let several = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let count = several.get(&container.rid()).copied().unwrap_or(1);
        drop(several);
        let definition = container.definition();
        let version = definition
            .other
            .get("partitionKey")
            .and_then(|key| key.get("version"))
            .and_then(Value::as_u64);
        Layout {
            count,
            version: version.unwrap_or(1),
            paths: definition.partition_key.len(),
        }
    }

    pub fn are_several(&self, container: &Container) -> bool {
        let several = self.0.read().unwrap_or_else(PoisonError::into_inner);
        several
            .get(&container.rid())
            .is_some_and(|count| *count > 1)
    }
}

impl Layout {
    /// The part of a partition.
    pub fn range(&self, number: usize) -> Range {
        let bound = |number: usize| match number {
            0 => String::new(),
            number if number >= self.count => "FF".to_owned(),
            number => {
                let version = if self.paths > 1 { 2 } else { self.version };
                boundary(number as u64, self.count as u64, version)
            }
        };
        Range {
            from: bound(number),
            to: bound(number + 1),
        }
    }

    /// The place of a partition key, or of a prefix of one.
    pub fn place(&self, parts: &[PartitionKeyPart]) -> String {
        let values: Vec<Value> = parts.iter().map(value).collect();
        effective(&values, self.paths, self.version)
    }

    /// The partition that has the documents of a key.
    pub fn of_key(&self, key: &PartitionKey) -> usize {
        let place = self.place(key.parts());
        let has_it = |number: &usize| self.range(*number).has(&place);
        (0..self.count).find(has_it).unwrap_or(0)
    }

    /// Whether a document is in a part.
    pub fn has(&self, range: &Range, container: &Container, document: &Document) -> bool {
        let key = container.partition_key_of(document.body());
        key.is_ok_and(|key| range.has(&self.place(key.parts())))
    }

    /// The partition that a request names by its number; none where there is only one.
    pub fn named(&self, request: &Request) -> Result<Option<usize>, Failure> {
        let name = request.header("x-ms-documentdb-partitionkeyrangeid");
        let Some(name) = name.filter(|_| self.count > 1) else {
            return Ok(None);
        };
        // Some SDKs have the container before it.
        let number = name.rsplit(',').next().and_then(|name| name.parse().ok());
        let number = number.filter(|number| *number < self.count);
        number.map(Some).ok_or_else(|| {
            let message = format!("The container has no partition {name:?}.");
            Failure::new(410, "Gone", message).sub_status(1002)
        })
    }

    /// The partition that a request is about: the first, if it names none.
    pub fn of_request(&self, request: &Request) -> usize {
        match (request.partition_key(), self.named(request)) {
            (Ok(Some(key)), _) => self.of_key(&key),
            (_, Ok(Some(number))) => number,
            _ => 0,
        }
    }
}

fn value(part: &PartitionKeyPart) -> Value {
    match part {
        PartitionKeyPart::Undefined => serde_json::json!({}),
        PartitionKeyPart::Null => Value::Null,
        PartitionKeyPart::Bool(value) => Value::from(*value),
        PartitionKeyPart::Number(value) => Value::from(*value),
        PartitionKeyPart::String(value) => Value::from(value.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts are apart and leave nothing out, and keys are spread over them.
    #[test]
    fn each_key_is_in_one_partition() {
        for (count, version, paths) in [(2, 2, 1), (3, 2, 2), (5, 1, 1), (100, 2, 1), (100, 1, 1)] {
            let layout = Layout {
                count,
                version,
                paths,
            };
            let ranges: Vec<Range> = (0..count).map(|number| layout.range(number)).collect();
            assert_eq!((&*ranges[0].from, &*ranges[count - 1].to), ("", "FF"));
            assert!(ranges.windows(2).all(|two| two[0].to == two[1].from));
            assert!(ranges.iter().all(|range| range.from < range.to));
            let mut of_each = vec![0; count];
            for n in 0..100 * count {
                let key = PartitionKey::from(format!("key {n}").as_str());
                let place = layout.place(key.parts());
                let has_it = |number: &usize| ranges[*number].has(&place);
                assert_eq!((0..count).filter(has_it).count(), 1, "{place}");
                of_each[layout.of_key(&key)] += 1;
            }
            assert!(
                of_each.iter().all(|keys| (40..180).contains(keys)),
                "{of_each:?}"
            );
        }
    }

    #[test]
    fn a_partition_has_10_000_of_throughput() {
        let of = [400, 10_000, 10_001, 12_000, 30_000, u64::MAX].map(of_throughput);
        assert_eq!(of, [1, 1, 2, 2, 3, MOST]);
    }
}
