//! A container of documents: reads, and writes of one document.
//!
//! Each write is one call of the engine, which shows it the live item and writes what it decides, atomically. So of two
//! writers of one document the later one is judged by what the earlier one wrote, and a document that expires meanwhile is
//! judged as gone. Where there are indexes by name, it is one batch of the document and its entries, under the condition that
//! the document is as it was read, and is tried again where it is not.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use ebbtide::{AtOnce, Bytes, DefaultTtl, Item, Ttl, Update, Version};

use crate::body::{Body, MemberPath, check_id};
use crate::definition::ContainerDefinition;
use crate::document::{Document, id_in, rid_of, seconds};
use crate::error::{Error, ErrorKind, Result};
use crate::etag::Conditions;
use crate::indexes::{Indexes, Upkeep};
use crate::key_range::KeyRange;
use crate::last_pass::LastPass;
use crate::partition_key::{ItemKey, PartitionKey, mismatch};
use crate::patch::Patch;
use crate::resource_id::ResourceId;
use crate::store::Store;

/// A container of documents. Clone: one more handle.
///
/// A handle of a container that was deleted answers [`NotFound`](ErrorKind::NotFound), also when another of its id was created.
#[derive(Clone)]
pub struct Container {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    items: ebbtide::Container,
    rid: ResourceId,
    /// Those of the partition key, which never change.
    paths: Vec<MemberPath>,
    resource: RwLock<Resource>,
    upkeep: Upkeep,
    last_pass: LastPass,
}

/// The definition of a container, and the write that it is of.
#[derive(Clone, Debug)]
pub struct Resource {
    pub definition: Arc<ContainerDefinition>,
    pub version: Version,
    pub written_at: SystemTime,
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container")
            .field("rid", &self.shared.rid.to_string())
            .field("id", &self.definition().id)
            .finish_non_exhaustive()
    }
}

/// A body that is to be written to a key.
#[derive(Clone)]
pub struct Prepared {
    pub key: ItemKey,
    pub id: String,
    pub body: Bytes,
    pub ttl: Ttl,
}

impl Container {
    pub(crate) fn new(
        store: &Store,
        items: ebbtide::Container,
        rid: ResourceId,
        resource: Resource,
        indexes: Indexes,
    ) -> Result<Container> {
        let shared = Shared {
            store: store.clone(),
            items,
            rid,
            paths: resource.definition.member_paths()?,
            resource: RwLock::new(resource),
            upkeep: Upkeep::new(indexes),
            last_pass: LastPass::default(),
        };
        Ok(Container {
            shared: Arc::new(shared),
        })
    }

    pub(crate) fn resource(&self) -> Resource {
        let resource = self.shared.resource.read();
        resource.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_resource(&self, resource: Resource) {
        let mut current = self
            .shared
            .resource
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = resource;
    }

    /// Its definition as of now. The default ttl and the quota are those of the engine's container, which others may change:
    /// the command `ebbtide ttl`, for one.
    #[must_use]
    pub fn definition(&self) -> Arc<ContainerDefinition> {
        let mut definition = self.resource().definition;
        let default_ttl = self.items().default_ttl();
        let quota = self.store().quota(self.items());
        let max_live_bytes = quota.map(|quota| quota.max_live_bytes);
        if (definition.default_ttl, definition.max_live_bytes) != (default_ttl, max_live_bytes) {
            let changed = Arc::make_mut(&mut definition);
            (changed.default_ttl, changed.max_live_bytes) = (default_ttl, max_live_bytes);
        }
        definition
    }

    /// Its `_rid`.
    #[must_use]
    pub fn rid(&self) -> ResourceId {
        self.shared.rid
    }

    /// Its definition with system properties.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Resource {
            version,
            written_at,
            ..
        } = self.resource();
        let (rid, database, ts) = (self.rid(), self.rid().database(), seconds(written_at));
        let json = self.definition().to_json();
        let members = json.strip_suffix('}').unwrap_or(&json);
        format!(
            "{members},\"_rid\":\"{rid}\",\"_self\":\"dbs/{database}/colls/{rid}/\",\"_etag\":\"\\\"{version}\\\"\",\"_ts\":{ts},\
             \"_docs\":\"docs/\",\"_sprocs\":\"sprocs/\",\"_triggers\":\"triggers/\",\"_udfs\":\"udfs/\",\
             \"_conflicts\":\"conflicts/\"}}"
        )
    }

    /// The engine's container, which has the documents as items: for what comes due, statistics and quotas. What is
    /// written to it directly is no document.
    #[must_use]
    pub fn items(&self) -> &ebbtide::Container {
        &self.shared.items
    }

    pub(crate) fn engine(&self) -> &ebbtide::Database {
        self.shared.store.engine()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(crate) fn upkeep(&self) -> &Upkeep {
        &self.shared.upkeep
    }

    /// The paths of its indexes by name, `/user/id` as `["user", "id"]`, and whether queries use each: a new one is built
    /// first, where documents are there already.
    #[must_use]
    pub fn indexes(&self) -> Vec<(Vec<String>, bool)> {
        let indexes = self.hold().map(|held| Arc::clone(&held));
        let indexes = indexes.unwrap_or_else(|_| self.upkeep().current());
        let list = indexes.list().iter();
        list.map(|index| (index.path.clone(), index.is_whole))
            .collect()
    }

    pub(crate) fn last_pass(&self) -> &LastPass {
        &self.shared.last_pass
    }

    pub(crate) fn paths(&self) -> &[MemberPath] {
        &self.shared.paths
    }

    /// The partition key of a document.
    ///
    /// # Errors
    /// [`BadRequest`](ErrorKind::BadRequest): it is no document that may be stored.
    pub fn partition_key_of(&self, body: &[u8]) -> Result<PartitionKey> {
        Ok(Body::parse(body, self.paths())?.partition_key.into_owned())
    }

    /// The id of the document of this `_rid`, by a search among the keys of its partition, or of the partitions of a prefix.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn id_of(&self, key: &PartitionKey, rid: &ResourceId) -> Result<String> {
        for key in self.store().keys(self.items(), self.range_of(key)?)? {
            let key = key?;
            if rid_of(self.rid(), &key) == *rid {
                return id_in(&key, self.paths().len()).map(str::to_owned);
            }
        }
        Err(not_found())
    }

    /// The keys of a partition, or of the partitions of a prefix.
    pub(crate) fn range_of(&self, key: &PartitionKey) -> Result<KeyRange> {
        key.check_prefix(self.paths().len())?;
        Ok(KeyRange::of_prefix(key.encode()))
    }

    /// The key of the item that a document is.
    pub(crate) fn key_of(&self, key: &PartitionKey, id: &str) -> Result<ItemKey> {
        key.check(self.paths().len())?;
        check_id(id)?;
        let mut item_key = ItemKey::with_capacity(key.encoded_len() + id.len());
        key.encode_into(&mut item_key);
        item_key.extend_from_slice(id.as_bytes());
        Ok(item_key)
    }

    pub(crate) fn prepare(&self, key: &PartitionKey, body: &[u8]) -> Result<Prepared> {
        let body = Body::parse(body, self.paths())?;
        if !body.partition_key.is(key) {
            return Err(mismatch());
        }
        Ok(Prepared {
            key: self.key_of(key, &body.id)?,
            id: body.id.into_owned(),
            body: Bytes::copy_from_slice(&body.stored),
            ttl: body.ttl,
        })
    }

    /// As [`Container::prepare`], of a body that is to be that of this id.
    fn prepare_as(&self, key: &PartitionKey, id: &str, body: &[u8]) -> Result<Prepared> {
        let prepared = self.prepare(key, body)?;
        if prepared.id != id {
            let message = format!(
                "The id of the document, {:?}, is another than that of the call, {id:?}.",
                prepared.id
            );
            return Err(Error::bad_request(message));
        }
        Ok(prepared)
    }

    pub(crate) fn of_item(&self, item: Item) -> Result<Document> {
        Document::of_item(item, self.rid(), self.paths().len())
    }

    /// The document that a write has stored.
    pub(crate) fn written(
        &self,
        prepared: Prepared,
        version: Version,
        written_at: SystemTime,
    ) -> Document {
        let Prepared { key, id, body, ttl } = prepared;
        let lifetime = match (ttl, self.items().default_ttl()) {
            (_, DefaultTtl::Off) | (Ttl::Never, _) | (Ttl::Inherit, DefaultTtl::NoDefault) => None,
            (Ttl::After(own), _) => Some(own),
            (_, DefaultTtl::After(default)) => Some(default),
            _ => None,
        };
        Document {
            id,
            version,
            written_at,
            expires_at: lifetime.and_then(|lifetime| written_at.checked_add(lifetime)),
            container: self.rid(),
            key,
            body,
        }
    }

    /// Reads a document. Its value is not parsed.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn read(&self, key: &PartitionKey, id: &str) -> Result<Document> {
        let key = self.key_of(key, id)?;
        let item = self.store().item(self.items(), &key)?;
        let item = item.ok_or_else(not_found)?;
        Ok(Document::of_key(item, self.rid(), key, id.to_owned()))
    }

    /// As [`Container::read`], without waiting for the disk.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn try_read(&self, key: &PartitionKey, id: &str) -> Result<AtOnce<Document>> {
        let key = self.key_of(key, id)?;
        if self.store().is_replica() {
            return Ok(AtOnce::WouldWait);
        }
        Ok(match self.items().try_item(&key)? {
            AtOnce::Ready(item) => {
                let item = item.ok_or_else(not_found)?;
                AtOnce::Ready(Document::of_key(item, self.rid(), key, id.to_owned()))
            }
            AtOnce::WouldWait => AtOnce::WouldWait,
        })
    }

    /// Reads a document and restarts its countdown; it gets a new version.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn read_and_touch(&self, key: &PartitionKey, id: &str) -> Result<Document> {
        let key = self.key_of(key, id)?;
        {
            let indexes = self.upkeep().hold();
            if !self.is_decided_first(&indexes) {
                let item = self.items().get_and_touch(key)?;
                return self.of_item(item.ok_or_else(not_found)?);
            }
        }
        self.touch_if(key, id, &Conditions::none())
    }

    /// Restarts the countdown of a document.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`PreconditionFailed`](ErrorKind::PreconditionFailed).
    pub fn touch(&self, key: &PartitionKey, id: &str, conditions: &Conditions) -> Result<Document> {
        if *conditions == Conditions::none() {
            return self.read_and_touch(key, id);
        }
        self.touch_if(self.key_of(key, id)?, id, conditions)
    }

    fn touch_if(&self, key: ItemKey, id: &str, conditions: &Conditions) -> Result<Document> {
        let (before, written) = self.write(&key, |found| {
            let found = found.ok_or_else(not_found)?;
            conditions.check(Some(found.version()))?;
            Ok(Update::Expire(found.ttl()))
        })?;
        let before = before.ok_or_else(not_found)?;
        let touched = Prepared {
            key,
            id: id.to_owned(),
            ttl: before.ttl(),
            body: before.into_value().into_bytes(),
        };
        Ok(self.written(touched, written.version, written.written_at))
    }

    /// Creates a document. Where one of its id has expired, there is none.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict), [`BadRequest`](ErrorKind::BadRequest),
    /// [`RequestEntityTooLarge`](ErrorKind::RequestEntityTooLarge).
    pub fn create(&self, key: &PartitionKey, body: &[u8]) -> Result<Document> {
        let prepared = self.prepare(key, body)?;
        let (_, written) = self.put_if(&prepared, |found| match found {
            Some(_) => Err(conflict()),
            None => Ok(()),
        })?;
        Ok(self.written(prepared, written.version, written.written_at))
    }

    /// Writes a document, whether it is there or not. True: it was not. Where it is not, `if_match` fails: unlike in Cosmos
    /// DB, which creates the document then, one that was read and has expired does not come back so.
    ///
    /// # Errors
    /// [`PreconditionFailed`](ErrorKind::PreconditionFailed), [`BadRequest`](ErrorKind::BadRequest),
    /// [`RequestEntityTooLarge`](ErrorKind::RequestEntityTooLarge).
    pub fn upsert(
        &self,
        key: &PartitionKey,
        body: &[u8],
        conditions: &Conditions,
    ) -> Result<(Document, bool)> {
        let prepared = self.prepare(key, body)?;
        let (before, written) = self.put(&prepared, conditions)?;
        let document = self.written(prepared, written.version, written.written_at);
        Ok((document, before.is_none()))
    }

    /// Replaces a document. The new one may have another id, and then another `_rid`: that of the call is free from the
    /// same moment on.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`PreconditionFailed`](ErrorKind::PreconditionFailed),
    /// [`Conflict`](ErrorKind::Conflict) where the other id has a document,
    /// [`BadRequest`](ErrorKind::BadRequest), [`RequestEntityTooLarge`](ErrorKind::RequestEntityTooLarge).
    pub fn replace(
        &self,
        key: &PartitionKey,
        id: &str,
        body: &[u8],
        conditions: &Conditions,
    ) -> Result<Document> {
        let prepared = self.prepare(key, body)?;
        if prepared.id != id {
            return self.replace_by(key, id, prepared, conditions);
        }
        let (_, written) = self.put_if(&prepared, |found| {
            conditions.check(Some(found.ok_or_else(not_found)?))
        })?;
        Ok(self.written(prepared, written.version, written.written_at))
    }

    /// Changes parts of a document. All else stays as it was written, numbers digit by digit; its countdown starts anew,
    /// by the ttl that it has then.
    ///
    /// # Errors
    /// As [`Container::replace`]; [`PreconditionFailed`](ErrorKind::PreconditionFailed) also where the condition of the patch
    /// does not hold.
    pub fn patch(
        &self,
        key: &PartitionKey,
        id: &str,
        patch: &Patch,
        conditions: &Conditions,
    ) -> Result<Document> {
        patch.check()?;
        let item_key = self.key_of(key, id)?;
        let mut prepared = None;
        let (_, written) = self.write(&item_key, |found| {
            let found = found.ok_or_else(not_found)?;
            conditions.check(Some(found.version()))?;
            let document = self.of_item(found.clone())?;
            let patched = self.patched(key, &document, patch)?;
            let put = patched.put();
            prepared = Some(patched);
            Ok(put)
        })?;
        let prepared = prepared.ok_or_else(not_found)?;
        Ok(self.written(prepared, written.version, written.written_at))
    }

    /// A document as a patch makes it.
    pub(crate) fn patched(
        &self,
        key: &PartitionKey,
        document: &Document,
        patch: &Patch,
    ) -> Result<Prepared> {
        patch.check_condition(document, self.store().now())?;
        let patched = patch.apply(document.body())?;
        self.prepare_as(key, &document.id, patched.as_bytes())
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`PreconditionFailed`](ErrorKind::PreconditionFailed).
    pub fn delete(&self, key: &PartitionKey, id: &str, conditions: &Conditions) -> Result<()> {
        let key = self.key_of(key, id)?;
        let deleted = self.write(&key, |found| {
            let found = found.ok_or_else(not_found)?;
            conditions.check(Some(found.version()))?;
            Ok(Update::Delete)
        });
        deleted.map(drop)
    }
}

impl Prepared {
    pub(crate) fn put(&self) -> Update {
        Update::Put(self.body.clone(), self.ttl)
    }
}

/// The error for a document that is not there, or has expired.
pub fn not_found() -> Error {
    let message = "There is no document of this id and partition key.";
    Error::new(ErrorKind::NotFound, message)
}

/// The error for a document that is there already.
pub fn conflict() -> Error {
    let message = "There is a document of this id and partition key already.";
    Error::new(ErrorKind::Conflict, message)
}
