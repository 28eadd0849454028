//! Partition keys by their places in the range that SDKs divide.
//!
//! An SDK names the documents of a partition key, or of a prefix of one, by a range of effective partition keys: the hash of
//! the key and what follows it. A hash is not undone, so the first time the container is searched for a document of this
//! place; its partition key is kept.
//!
//! Invariant: there are at most [`MOST`] places, and each has the key whose hash it is.

use std::collections::HashMap;
use std::sync::Mutex;

use data_encoding::HEXUPPER;
use ebbtide_documents::{Container, PartitionKey, PartitionKeyPart, Scope};
use serde_json::Value;

use crate::hash::effective;
use crate::reply::Failure;
use crate::request::Request;

const MOST: usize = 10_000;
const SEARCHED_AT_ONCE: usize = 1000;

#[derive(Default)]
pub(crate) struct Places(Mutex<HashMap<(String, String), PartitionKey>>);

/// The part of a container that a request is about.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// The documents of this partition key or prefix; without parts: all.
    Of(PartitionKey),
    /// Documents of a place where there are none.
    Nothing,
}

impl Places {
    /// The part of the container that the request names by a partition key or a range of places.
    pub fn part(&self, container: &Container, request: &Request) -> Result<Part, Failure> {
        if let Some(key) = request.partition_key()? {
            return Ok(Part::Of(key));
        }
        let (Some(from), Some(to)) = (
            request.header("x-ms-start-epk"),
            request.header("x-ms-end-epk"),
        ) else {
            return Ok(Part::Of(PartitionKey::default()));
        };
        let (from, to) = (from.to_uppercase(), to.to_uppercase());
        if from.is_empty() && to == "FF" {
            return Ok(Part::Of(PartitionKey::default()));
        }
        if !is_of_one_key(&from, &to) {
            let message = "A range of effective partition keys is here that of one partition key or prefix, or all: there is one partition.";
            return Err(Failure::bad_request(message));
        }
        self.find(container, &from)
    }

    fn find(&self, container: &Container, place: &str) -> Result<Part, Failure> {
        let known = (container.rid().to_string(), place.to_string());
        if let Some(key) = self.0.lock().expect("no code panics with it").get(&known) {
            return Ok(Part::Of(key.clone()));
        }
        let Some(key) = search(container, place)? else {
            return Ok(Part::Nothing);
        };
        let mut places = self.0.lock().expect("no code panics with it");
        if places.len() >= MOST {
            places.clear();
        }
        places.insert(known, key.clone());
        Ok(Part::Of(key))
    }
}

/// SDKs end the range of a place with the next place, or with the place and `FF`.
fn is_of_one_key(from: &str, to: &str) -> bool {
    let Ok(mut next) = HEXUPPER.decode(from.as_bytes()) else {
        return false;
    };
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    !from.is_empty() && (to == from || to == format!("{from}FF") || to == HEXUPPER.encode(&next))
}

/// The partition key, or the prefix, of this place, if a document has it.
fn search(container: &Container, place: &str) -> Result<Option<PartitionKey>, Failure> {
    let definition = container.definition();
    let paths = definition.partition_key.len();
    let version = definition
        .other
        .get("partitionKey")
        .and_then(|key| key.get("version"))
        .and_then(Value::as_u64);
    let mut from = None;
    loop {
        let page = container.list(&Scope::everything(), SEARCHED_AT_ONCE, from.as_ref())?;
        for document in &page.documents {
            let key = container.partition_key_of(document.body())?;
            let values: Vec<Value> = key.parts().iter().map(value).collect();
            for length in 1..=values.len() {
                if effective(&values[..length], paths, version.unwrap_or(1)) == place {
                    return Ok(Some(PartitionKey::new(key.parts()[..length].to_vec())));
                }
            }
        }
        from = match page.continuation {
            None => return Ok(None),
            next => next,
        };
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

    #[test]
    fn a_range_of_one_key_ends_behind_its_place() {
        let place = "3A5381E1114EB8D3FCC90795045B49B7";
        let next = "3A5381E1114EB8D3FCC90795045B49B8";
        assert!(
            is_of_one_key(place, next)
                && is_of_one_key(place, place)
                && is_of_one_key(place, &format!("{place}FF"))
        );
        assert!(is_of_one_key("3AFFFF", "3B0000"));
        for (from, to) in [
            ("", "3A"),
            (place, "FF"),
            ("", place),
            (place, "3A5381E1114EB8D3FCC90795045B49B9"),
            ("3A53", "3B54"),
            ("x", "y"),
        ] {
            assert!(!is_of_one_key(from, to), "{from} {to}");
        }
    }
}
