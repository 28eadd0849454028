//! Transactional batches.
//!
//! ```text
//! read        the items of all keys that are named
//! play        the operations on these, in memory: each has its result, or one is refused
//! commit      one batch of the engine: every key has the version that was read, or no live item; then the writes in order.
//!             Where one is refused the conditions alone, so that this too is the answer of one moment
//! conflict    somebody else wrote, or a document expired: all again
//! ```
//!
//! The writes of a batch of the engine have consecutive versions, so that each result has the etag that its document has.
//! The entries of indexes come behind them, once for each document: from what it was to what it has become.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::{Bytes, Expect, Ttl, Version};

use crate::body::{MAX_BODY, broken, too_large, utf8};
use crate::container::{Container, Prepared, conflict, not_found};
use crate::document::Document;
use crate::error::{Error, ErrorKind, Result};
use crate::etag::{Conditions, Etag};
use crate::indexes::Indexes;
use crate::json::{self, Member};
use crate::partition_key::{ItemKey, PartitionKey};
use crate::patch::Patch;
use crate::store::{Commit, Writes};
use crate::write::contended;

/// A batch has up to this many operations.
const MAX_OPERATIONS: usize = 100;
/// How often a batch is tried.
const TRIES: u32 = 256;
/// The version of what the batch itself has written, before it has one.
const PENDING: u64 = u64::MAX;

/// One operation of a batch.
#[derive(Clone, Debug)]
pub enum BatchOperation {
    /// Creates a document.
    Create(Vec<u8>),
    /// Writes a document, whether it is there or not.
    Upsert(Vec<u8>, Conditions),
    /// Replaces the document of this id.
    Replace(String, Vec<u8>, Conditions),
    /// Reads a document.
    Read(String, Conditions),
    /// Deletes a document.
    Delete(String, Conditions),
    /// Patches a document.
    Patch(String, Patch, Conditions),
}

/// The result of one operation.
#[derive(Clone, Debug)]
pub struct BatchResult {
    /// The status of HTTP: 200, 201, 204, 304, that of the error, or 424 where another operation was refused.
    pub status: u16,
    /// The sub-status of the error, or 0.
    pub sub_status: u32,
    /// The document that was read or written.
    pub document: Option<Document>,
    /// The error's sentence.
    pub message: Option<String>,
}

impl BatchResult {
    fn done(status: u16, document: Option<Document>) -> BatchResult {
        BatchResult {
            status,
            sub_status: 0,
            document,
            message: None,
        }
    }

    fn refused(error: &Error) -> BatchResult {
        BatchResult {
            status: error.status(),
            sub_status: error.sub_status(),
            document: None,
            message: Some(error.to_string()),
        }
    }
}

impl BatchOperation {
    /// The operations of the body of a batch request: an array of `{"operationType":"Create","resourceBody":{...}}` and the
    /// like, with `id`, `ifMatch` and `ifNoneMatch`.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn from_json(json: &[u8]) -> Result<Vec<BatchOperation>> {
        let text = utf8(json)?;
        let elements = json::elements(text).map_err(|at| broken(text, at))?;
        let elements =
            elements.ok_or_else(|| Error::bad_request("A batch is an array of operations."))?;
        elements
            .into_iter()
            .map(BatchOperation::from_text)
            .collect()
    }

    fn from_text(text: &str) -> Result<BatchOperation> {
        let members = json::members(text)
            .ok_or_else(|| Error::bad_request("An operation of a batch is an object."))?;
        let find = |name: &str| {
            let is_it = |member: &&Member<'_>| member.name == name && member.value != "null";
            members.iter().rfind(is_it).map(|member| member.value)
        };
        let string = |name: &str| find(name).and_then(json::string);
        let missing =
            |name: &str| Error::bad_request(format!("This operation of a batch needs {name:?}."));
        let id = || {
            string("id")
                .map(std::borrow::Cow::into_owned)
                .ok_or_else(|| missing("id"))
        };
        let body = || {
            find("resourceBody")
                .map(str::as_bytes)
                .ok_or_else(|| missing("resourceBody"))
        };
        let etag = |name: &str| string(name).map(|etag| etag.parse::<Etag>()).transpose();
        let conditions = Conditions {
            if_match: etag("ifMatch")?,
            if_none_match: etag("ifNoneMatch")?,
        };
        let kind = string("operationType").ok_or_else(|| missing("operationType"))?;
        Ok(match &*kind {
            "Create" => BatchOperation::Create(body()?.to_vec()),
            "Upsert" => BatchOperation::Upsert(body()?.to_vec(), conditions),
            "Replace" => BatchOperation::Replace(id()?, body()?.to_vec(), conditions),
            "Read" => BatchOperation::Read(id()?, conditions),
            "Delete" => BatchOperation::Delete(id()?, conditions),
            "Patch" => BatchOperation::Patch(id()?, Patch::from_json(body()?)?, conditions),
            other => {
                return Err(Error::bad_request(format!(
                    "{other:?} is no operation of a batch."
                )));
            }
        })
    }

    /// The bytes that it brings.
    fn len(&self) -> usize {
        match self {
            BatchOperation::Create(body)
            | BatchOperation::Upsert(body, _)
            | BatchOperation::Replace(_, body, _) => body.len(),
            BatchOperation::Patch(_, patch, _) => patch.len(),
            BatchOperation::Read(..) | BatchOperation::Delete(..) => 0,
        }
    }
}

/// An operation whose body was checked.
enum Step<'a> {
    Create(Prepared),
    Upsert(Prepared, &'a Conditions),
    /// With the key of the document that is replaced, which may have another id.
    Replace(ItemKey, Prepared, &'a Conditions),
    Read(ItemKey, &'a Conditions),
    Delete(ItemKey, &'a Conditions),
    Patch(ItemKey, &'a Patch, &'a Conditions),
}

impl Step<'_> {
    /// The keys of the documents that it is about.
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let (first, second) = match self {
            Step::Create(prepared) | Step::Upsert(prepared, _) => (&prepared.key, None),
            Step::Replace(key, prepared, _) => (key, Some(&prepared.key)),
            Step::Read(key, _) | Step::Delete(key, _) | Step::Patch(key, ..) => (key, None),
        };
        [first].into_iter().chain(second).map(ItemKey::as_slice)
    }
}

/// The result of steps that were tried: those of all, or the number of the one that was refused, and why.
type Tried = std::result::Result<Vec<BatchResult>, (usize, Error)>;

/// A live document, and the number of the write that made it, if the batch did.
type Live = (Document, Option<usize>);

/// The result of a step that may be done.
struct Played {
    status: u16,
    document: Option<Document>,
    /// The number of the write that made the document, if the batch did.
    write: Option<usize>,
}

/// The state of a batch that is played.
struct Play<'a> {
    container: &'a Container,
    key: &'a PartitionKey,
    batch: Writes,
    /// The documents of the keys that are named.
    live: BTreeMap<ItemKey, Option<Live>>,
    /// The bodies of those that were there before.
    before: BTreeMap<ItemKey, Bytes>,
    /// The last write of the batch to each key: a body and its ttl, or a delete.
    written: BTreeMap<ItemKey, Option<(Bytes, Ttl)>>,
}

impl Container {
    /// Does up to 100 operations on the documents of one partition key, up to 2 MiB together, all or none.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest), [`RequestEntityTooLarge`](crate::ErrorKind::RequestEntityTooLarge). An operation
    /// that is refused is no error of this call: its result says so, and that of all others is 424.
    ///
    /// ```
    /// use ebbtide_documents::{BatchOperation, ContainerDefinition, Documents};
    ///
    /// let documents = Documents::with(ebbtide::Options::temporary()?)?;
    /// documents.create_database("shop")?;
    /// let orders = documents.create_container("shop", ContainerDefinition::new("orders", "/user"))?;
    /// let create = |id: &str| BatchOperation::Create(format!(r#"{{"id":"{id}","user":"ada"}}"#).into_bytes());
    /// let status = |operations: &[BatchOperation]| -> ebbtide_documents::Result<Vec<u16>> {
    ///     Ok(orders.batch(&"ada".into(), operations)?.iter().map(|result| result.status).collect())
    /// };
    /// assert_eq!(status(&[create("1"), create("2")])?, [201, 201]);
    /// assert_eq!(status(&[create("3"), create("1")])?, [424, 409]);
    /// assert!(orders.read(&"ada".into(), "3").is_err()); // nothing of it was done
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch(
        &self,
        key: &PartitionKey,
        operations: &[BatchOperation],
    ) -> Result<Vec<BatchResult>> {
        key.check(self.paths().len())?;
        if operations.is_empty() {
            return Err(Error::bad_request("Batch request has no operations."));
        }
        if operations.len() > MAX_OPERATIONS {
            return Err(Error::bad_request(
                "Batch request has more operations than what is supported.",
            ));
        }
        let bytes = operations.iter().map(BatchOperation::len).sum();
        if bytes > MAX_BODY {
            return Err(too_large("A batch", bytes));
        }
        // One may be refused whatever is stored; of those before it, one may be refused before.
        let (mut steps, mut refused) = (vec![], None);
        for operation in operations {
            match self.step(key, operation) {
                Ok(step) => steps.push(step),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        Ok(match self.try_all(key, &steps, refused.as_ref())? {
            Ok(results) => results,
            Err((at, error)) => dependent(&error, at, operations.len()),
        })
    }

    /// Replaces a document by one of another id.
    pub(crate) fn replace_by(
        &self,
        key: &PartitionKey,
        id: &str,
        prepared: Prepared,
        conditions: &Conditions,
    ) -> Result<Document> {
        let step = Step::Replace(self.key_of(key, id)?, prepared, conditions);
        let tried = self.try_all(key, &[step], None)?;
        let mut results = tried.map_err(|(_, error)| error)?;
        let document = results.pop().and_then(|result| result.document);
        document.ok_or_else(not_found)
    }

    fn step<'a>(&self, key: &PartitionKey, operation: &'a BatchOperation) -> Result<Step<'a>> {
        Ok(match operation {
            BatchOperation::Create(body) => Step::Create(self.prepare(key, body)?),
            BatchOperation::Upsert(body, conditions) => {
                Step::Upsert(self.prepare(key, body)?, conditions)
            }
            BatchOperation::Replace(id, body, conditions) => {
                Step::Replace(self.key_of(key, id)?, self.prepare(key, body)?, conditions)
            }
            BatchOperation::Read(id, conditions) => Step::Read(self.key_of(key, id)?, conditions),
            BatchOperation::Delete(id, conditions) => {
                Step::Delete(self.key_of(key, id)?, conditions)
            }
            BatchOperation::Patch(id, patch, conditions) => {
                patch.check()?;
                Step::Patch(self.key_of(key, id)?, patch, conditions)
            }
        })
    }

    /// Plays the steps and commits them, again where others were faster. `then` is why the operation behind them is refused.
    fn try_all(
        &self,
        key: &PartitionKey,
        steps: &[Step<'_>],
        then: Option<&Error>,
    ) -> Result<Tried> {
        let mut tries = 1;
        let mut indexes = self.hold()?;
        loop {
            let mut play = Play::begin(self, key, steps)?;
            let conditions = play.batch.clone();
            let mut played = vec![];
            let mut refused = None;
            for step in steps {
                match play.step(step) {
                    Ok(done) => played.push(done),
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
            }
            let refused = refused.or_else(|| then.cloned());
            play.add_entries(&indexes);
            let batch = if refused.is_some() {
                &conditions
            } else {
                &play.batch
            };
            match self.store().commit(batch)? {
                Commit::Done(written) => {
                    self.sweep(&indexes);
                    return Ok(match refused {
                        Some(error) => Err((played.len(), error)),
                        None => Ok(results(
                            played,
                            play.batch.len(),
                            written.version,
                            written.written_at,
                        )),
                    });
                }
                Commit::Conflict if tries < TRIES => {
                    tries += 1;
                    std::thread::yield_now();
                    indexes = self.hold_on(indexes)?;
                }
                Commit::Conflict => return Err(contended(self.items(), &key.encode())),
            }
        }
    }
}

/// The results where one operation is refused.
fn dependent(error: &Error, at: usize, operations: usize) -> Vec<BatchResult> {
    let failed = Error::new(
        ErrorKind::FailedDependency,
        "Another operation of the batch was refused.",
    );
    let of = |n: usize| BatchResult::refused(if n == at { error } else { &failed });
    (0..operations).map(of).collect()
}

/// The results of what was committed, of `writes` writes.
fn results(
    played: Vec<Played>,
    writes: usize,
    last: Version,
    written_at: SystemTime,
) -> Vec<BatchResult> {
    let of = |played: Played| {
        let document = played.document.map(|document| match played.write {
            Some(write) => {
                let back = (writes - 1 - write) as u64;
                let lifetime = document
                    .expires_at
                    .and_then(|end| end.duration_since(document.written_at).ok());
                Document {
                    version: Version::from_u64(last.as_u64() - back),
                    expires_at: lifetime.and_then(|lifetime| written_at.checked_add(lifetime)),
                    written_at,
                    ..document
                }
            }
            None => document,
        });
        BatchResult::done(played.status, document)
    };
    played.into_iter().map(of).collect()
}

impl<'a> Play<'a> {
    fn begin(
        container: &'a Container,
        key: &'a PartitionKey,
        steps: &[Step<'_>],
    ) -> Result<Play<'a>> {
        let store = container.store();
        let (mut batch, mut live, mut before) = (store.writes(), BTreeMap::new(), BTreeMap::new());
        for of_step in steps.iter().flat_map(Step::keys) {
            if live.contains_key(of_step) {
                continue;
            }
            let item = store.item(container.items(), of_step)?;
            let expect = item
                .as_ref()
                .map_or(Expect::Absent, |item| Expect::Version(item.version()));
            batch.require(container.items(), of_step, expect);
            let found = item.map(|item| container.of_item(item)).transpose()?;
            if let Some(found) = &found {
                before.insert(ItemKey::from_slice(of_step), found.body.clone());
            }
            live.insert(
                ItemKey::from_slice(of_step),
                found.map(|document| (document, None)),
            );
        }
        Ok(Play {
            container,
            key,
            batch,
            live,
            before,
            written: BTreeMap::new(),
        })
    }

    /// Adds the entries of what was written.
    fn add_entries(&mut self, indexes: &Indexes) {
        self.container.require_indexes(&mut self.batch, indexes);
        for (key, after) in &self.written {
            let before = self.before.get(key).map(|body| &body[..]);
            let after = after.as_ref().map(|(body, ttl)| (&body[..], *ttl));
            indexes.change(&mut self.batch, key, before, after);
        }
    }

    fn found(&self, key: &[u8]) -> Option<&Live> {
        self.live.get(key).and_then(Option::as_ref)
    }

    fn version(&self, key: &[u8]) -> Option<Version> {
        self.found(key).map(|(document, _)| document.version)
    }

    /// The document of a key, if the conditions hold for it.
    fn expect(&self, key: &[u8], conditions: &Conditions) -> Result<&Live> {
        let found = self.found(key).ok_or_else(not_found)?;
        conditions.check(Some(found.0.version))?;
        Ok(found)
    }

    fn step(&mut self, step: &Step<'_>) -> Result<Played> {
        match step {
            Step::Create(prepared) => match self.found(&prepared.key) {
                Some(_) => Err(conflict()),
                None => Ok(self.put(prepared, 201)),
            },
            Step::Upsert(prepared, conditions) => {
                let version = self.version(&prepared.key);
                conditions.check(version)?;
                Ok(self.put(prepared, if version.is_some() { 200 } else { 201 }))
            }
            Step::Replace(key, prepared, conditions) => {
                self.expect(key, conditions)?;
                if *key != prepared.key {
                    if self.found(&prepared.key).is_some() {
                        return Err(conflict());
                    }
                    self.delete(key);
                }
                Ok(self.put(prepared, 200))
            }
            Step::Patch(key, patch, conditions) => {
                let (document, _) = self.expect(key, conditions)?;
                let patched = self.container.patched(self.key, document, patch)?;
                Ok(self.put(&patched, 200))
            }
            Step::Delete(key, conditions) => {
                self.expect(key, conditions)?;
                self.delete(key);
                Ok(Played {
                    status: 204,
                    document: None,
                    write: None,
                })
            }
            Step::Read(key, conditions) => self.read(key, conditions),
        }
    }

    fn read(&self, key: &[u8], conditions: &Conditions) -> Result<Played> {
        let (document, write) = self.found(key).ok_or_else(not_found)?;
        let version = Some(document.version);
        Conditions {
            if_none_match: None,
            ..*conditions
        }
        .check(version)?;
        let is_known = conditions.check(version).is_err();
        Ok(Played {
            status: if is_known { 304 } else { 200 },
            document: (!is_known).then(|| document.clone()),
            write: *write,
        })
    }

    fn delete(&mut self, key: &[u8]) {
        self.batch.delete(self.container.items(), key);
        self.live.insert(ItemKey::from_slice(key), None);
        self.written.insert(ItemKey::from_slice(key), None);
    }

    fn put(&mut self, prepared: &Prepared, status: u16) -> Played {
        let (container, write) = (self.container, self.batch.len());
        self.batch.put(
            container.items(),
            &prepared.key,
            &prepared.body,
            prepared.ttl,
        );
        let document = container.written(prepared.clone(), Version::from_u64(PENDING), UNIX_EPOCH);
        let live = (document.clone(), Some(write));
        self.live.insert(prepared.key.clone(), Some(live));
        let after = Some((prepared.body.clone(), prepared.ttl));
        self.written.insert(prepared.key.clone(), after);
        Played {
            status,
            document: Some(document),
            write: Some(write),
        }
    }
}
