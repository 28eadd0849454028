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
use ebbtide_documents::{Container, PartitionKey, Scope};

use crate::partitions::{Layout, Range};
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
    /// Those of a range of places that is not that of one key.
    Within(Range),
    /// Documents of a place where there are none.
    Nothing,
}

impl Places {
    /// The part of the container that the request names by a partition key, a range of places or a partition.
    pub fn part(
        &self,
        layout: &Layout,
        container: &Container,
        request: &Request,
    ) -> Result<Part, Failure> {
        if let Some(key) = request.partition_key()? {
            return Ok(Part::Of(key));
        }
        let partition = layout
            .named(request)?
            .map_or_else(Range::all, |number| layout.range(number));
        let asked = match (
            request.header("x-ms-start-epk"),
            request.header("x-ms-end-epk"),
        ) {
            (Some(from), Some(to)) => Range {
                from: from.to_uppercase(),
                to: to.to_uppercase(),
            },
            _ => Range::all(),
        };
        if is_of_one_key(&asked.from, &asked.to) {
            return self.find(layout, container, &asked.from);
        }
        let is_place = |text: &str| HEXUPPER.decode(text.as_bytes()).is_ok();
        if !is_place(&asked.from) || !is_place(&asked.to) {
            let message = "A range of effective partition keys is one of two in hex.";
            return Err(Failure::bad_request(message));
        }
        Ok(match asked.common(partition) {
            all if all == Range::all() => Part::Of(PartitionKey::default()),
            range if range.from >= range.to => Part::Nothing,
            range => Part::Within(range),
        })
    }

    fn find(&self, layout: &Layout, container: &Container, place: &str) -> Result<Part, Failure> {
        let known = (container.rid().to_string(), place.to_string());
        if let Some(key) = self.0.lock().expect("no code panics with it").get(&known) {
            return Ok(Part::Of(key.clone()));
        }
        let Some(key) = search(layout, container, place)? else {
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
fn search(
    layout: &Layout,
    container: &Container,
    place: &str,
) -> Result<Option<PartitionKey>, Failure> {
    let mut from = None;
    loop {
        let page = container.list(&Scope::everything(), SEARCHED_AT_ONCE, from.as_ref())?;
        for document in &page.documents {
            let key = container.partition_key_of(document.body())?;
            for length in 1..=key.parts().len() {
                if layout.place(&key.parts()[..length]) == place {
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
