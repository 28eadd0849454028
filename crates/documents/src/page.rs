//! Lists and their pages.

use std::hash::Hasher as _;
use std::ops::Bound;

use data_encoding::BASE64URL_NOPAD;
use serde_json::Value;
use twox_hash::XxHash3_64;

use crate::container::Container;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::key_range::KeyRange;
use crate::partition_key::PartitionKey;

/// A page ends with the document by which it has this many bytes.
const PAGE_BYTES: usize = 4 << 20;

/// The documents that a list or query reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// A partition key or a prefix of it; without parts: all.
    pub partition_key: PartitionKey,
    /// The beginning of the ids, where the partition key is whole.
    pub id_prefix: String,
}

impl Scope {
    /// All documents of the container.
    #[must_use]
    pub fn everything() -> Scope {
        Scope::default()
    }

    /// Those of a partition key, or of a prefix of one.
    #[must_use]
    pub fn partition(partition_key: impl Into<PartitionKey>) -> Scope {
        Scope {
            partition_key: partition_key.into(),
            id_prefix: String::new(),
        }
    }
}

/// Where a list or query goes on: plain data, to be stored by any format of serde.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Continuation {
    /// Of which list or query it is: see [`Origin`].
    pub(crate) of: u64,
    /// The key behind which it goes on, in base64.
    pub(crate) after: String,
    /// How far OFFSET and LIMIT of a query are: rows that were left out, and rows that were told.
    #[serde(default)]
    pub(crate) skipped: u64,
    #[serde(default)]
    pub(crate) emitted: u64,
    /// Rows that were told, of a query that has to begin anew.
    #[serde(default)]
    pub(crate) told: u64,
    /// `after` is a place in the order of a query: the value that an index keeps, and the key.
    #[serde(default)]
    pub(crate) in_order: bool,
}

/// The place that a continuation belongs to, as a hash: it is taken by the same list or query alone, of the same container,
/// scope and parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Origin(u64);

impl Origin {
    pub fn of_list(container: &Container, scope: &Scope) -> Origin {
        Origin::of(container, scope, "list", &[])
    }

    pub fn of_query(
        container: &Container,
        scope: &Scope,
        text: &str,
        parameters: &[(String, Value)],
    ) -> Origin {
        Origin::of(container, scope, &format!("query {text}"), parameters)
    }

    fn of(
        container: &Container,
        scope: &Scope,
        what: &str,
        parameters: &[(String, Value)],
    ) -> Origin {
        let mut hash = XxHash3_64::new();
        let mut part = |bytes: &[u8]| {
            hash.write(&(bytes.len() as u64).to_le_bytes());
            hash.write(bytes);
        };
        part(container.rid().as_bytes());
        part(&scope.partition_key.encode());
        part(scope.id_prefix.as_bytes());
        part(what.as_bytes());
        for (name, value) in parameters {
            part(name.as_bytes());
            part(value.to_string().as_bytes());
        }
        Origin(hash.finish())
    }

    /// Refuses a continuation of something else.
    pub fn check(self, from: Option<&Continuation>) -> Result<()> {
        match from.is_none_or(|from| from.of == self.0) {
            true => Ok(()),
            false => Err(foreign()),
        }
    }
}

impl Continuation {
    pub(crate) fn after(origin: Origin, key: &[u8]) -> Continuation {
        Continuation {
            of: origin.0,
            after: BASE64URL_NOPAD.encode(key),
            skipped: 0,
            emitted: 0,
            told: 0,
            in_order: false,
        }
    }

    /// Behind all rows that were told so far.
    pub(crate) fn after_rows(origin: Origin, told: u64) -> Continuation {
        Continuation {
            told,
            ..Continuation::after(origin, b"")
        }
    }

    /// The place in the order of a query; `None`: it goes on behind rows.
    pub(crate) fn place(&self) -> Result<Option<Vec<u8>>> {
        if !self.in_order {
            return Ok(None);
        }
        let place = BASE64URL_NOPAD.decode(self.after.as_bytes()).ok();
        let place = place.filter(|place| place.len() <= ebbtide::MAX_KEY_LEN);
        place.map(Some).ok_or_else(foreign)
    }

    /// The rows that were told so far, for a query that has to begin anew.
    pub(crate) fn rows_told(&self) -> u64 {
        match self.in_order {
            true => self.emitted,
            false => self.told,
        }
    }

    /// The rest of a range. A key that is outside of it is that of something else.
    pub(crate) fn rest_of(&self, range: KeyRange) -> Result<KeyRange> {
        if self.after.is_empty() {
            return Ok(range);
        }
        let key = BASE64URL_NOPAD.decode(self.after.as_bytes()).ok();
        let key = key.filter(|key| key.len() <= ebbtide::MAX_KEY_LEN && range.contains(key));
        let key = key.ok_or_else(foreign)?;
        Ok(KeyRange {
            from: Bound::Excluded(key),
            ..range
        })
    }
}

impl Continuation {
    /// The rest of ranges, which ascend.
    pub(crate) fn rest_of_all(&self, ranges: Vec<KeyRange>) -> Result<Vec<KeyRange>> {
        if self.after.is_empty() {
            return Ok(ranges);
        }
        let own = ranges
            .iter()
            .position(|range| self.rest_of(range.clone()).is_ok());
        let own = own.ok_or_else(foreign)?;
        let mut rest = ranges;
        rest.drain(..own);
        rest[0] = self.rest_of(rest[0].clone())?;
        Ok(rest)
    }
}

fn foreign() -> Error {
    Error::bad_request("The continuation is not of this list or query.")
}

/// A page of documents, in the order of partition keys and ids.
#[derive(Clone, Debug)]
pub struct Page {
    /// The documents.
    pub documents: Vec<Document>,
    /// Where the next page goes on; `None` at the end.
    pub continuation: Option<Continuation>,
}

impl Container {
    /// The keys of a scope.
    pub(crate) fn scope_of(&self, scope: &Scope) -> Result<KeyRange> {
        if scope.id_prefix.is_empty() {
            return self.range_of(&scope.partition_key);
        }
        scope.partition_key.check(self.paths().len())?;
        let mut prefix = scope.partition_key.encode();
        prefix.extend_from_slice(scope.id_prefix.as_bytes());
        Ok(KeyRange::of_prefix(prefix))
    }

    /// Where a list of everything goes on behind a document.
    #[must_use]
    pub fn after(&self, document: &Document) -> Continuation {
        Continuation::after(Origin::of_list(self, &Scope::everything()), &document.key)
    }

    /// A page of up to `limit` documents, at least one, and some 4 MiB, in the order of partition keys and ids. Each
    /// document is judged as it is read: one that has expired by then is not in the page.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): a continuation of something else, or no partition key of this container.
    pub fn list(&self, scope: &Scope, limit: usize, from: Option<&Continuation>) -> Result<Page> {
        let mut range = self.scope_of(scope)?;
        let origin = Origin::of_list(self, scope);
        origin.check(from)?;
        if let Some(from) = from {
            range = from.rest_of(range)?;
        }
        let (mut documents, mut bytes) = (vec![], 0);
        let mut items = self.store().range(self.items(), range)?;
        for item in &mut items {
            let document = self.of_item(item?)?;
            bytes += document.body().len();
            documents.push(document);
            if documents.len() >= limit || bytes >= PAGE_BYTES {
                break;
            }
        }
        let last = documents
            .last()
            .map(|document| Continuation::after(origin, &document.key));
        let has_more = items.next().transpose()?.is_some();
        Ok(Page {
            continuation: last.filter(|_| has_more),
            documents,
        })
    }
}
