//! The catalog of databases and their containers; containers made, replaced and deleted.
//!
//! ```text
//! the engine's container `documents`, the catalog:
//!   n                        the number of the last resource id, 4 bytes
//!   d ID                     a database: {"rid":"..."}
//!   c RID-OF-DATABASE ID     a container: {"rid":"...","definition":{...}}
//!   i RID, b RID             the indexes of a container: indexes.rs
//! the engine's container RID the documents of the container of this resource id
//! ... and RID#index          the entries of its indexes
//! ```
//!
//! Invariants:
//!
//! 1. A record of the catalog is written in the batch that creates, changes or drops the engine's container, under the
//!    condition that the records that it was made by are as they were read. So a crash leaves no half, and of two that
//!    change one resource the second one is judged by what the first one did.
//! 2. No resource id is given twice: a handle, a link or a continuation of what was deleted is of nothing that came later.
//! 3. The engine has the default ttl and the quota of a container; its record has those of its last definition, which nobody
//!    reads. So there is one truth, also where an operator changes them.
//! 4. Of a container there is one handle and its clones; so all see its definition change. One that `Shared::open` lacks is
//!    looked up in the catalog, while nobody changes that. Over a replica, where others change it, each call looks it up, and a
//!    handle is of one definition.
//! 5. The indexes of a container are those of its definition, from the batch that writes that. Where they are not, as in a
//!    database that an older version wrote, or their entries may be too few (indexes.rs), the first handle makes them so. An
//!    index that is not whole is built behind it; what stops that leaves it as it is, for the next open or replacement.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use ebbtide::{ContainerOptions, DefaultTtl, Expect, Item, Iter, Quota, Ttl, WhenFull};
use serde_json::json;

use crate::catalog::{
    CATALOG, DatabaseInfo, NUMBER, container_key, container_prefix, damaged, exists, no_container,
    record, rid_in,
};
use crate::container::{Container, Resource};
use crate::definition::ContainerDefinition;
use crate::error::{Error, ErrorKind, Result};
use crate::etag::Conditions;
use crate::index_changes::IndexCatalog;
use crate::resource_id::ResourceId;
use crate::store::{Commit, Committed, ContainerSettings, Replica, Store, Writes};
use crate::write::contended;

/// The highest number of a resource id: one bit says that it is a container's.
const MAX_NUMBER: u32 = i32::MAX as u32;
/// How often a change of the catalog is tried.
const TRIES: u32 = 64;

/// Databases of containers of documents. Clone: one more handle. Of one database of the engine, open one and clone it: what
/// another one deletes or replaces, this one learns late.
///
/// ```
/// use ebbtide_documents::{ContainerDefinition, Documents, Conditions, PartitionKey};
///
/// let folder = tempfile::tempdir()?;
/// let documents = Documents::open(folder.path())?;
/// documents.create_database("shop")?;
/// let mut carts = ContainerDefinition::new("carts", "/user");
/// carts.default_ttl = "30d".parse()?;
/// let carts = documents.create_container("shop", carts)?;
///
/// let ada = PartitionKey::from("ada");
/// let cart = carts.create(&ada, br#"{"id": "c-1", "user": "ada", "tea": 2, "ttl": 3600}"#)?;
/// let condition = Conditions::if_match(cart.version);
/// carts.replace(&ada, "c-1", br#"{"id": "c-1", "user": "ada", "tea": 3}"#, &condition)?;
/// assert_eq!(carts.delete(&ada, "c-1", &condition).unwrap_err().status(), 412);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Documents {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    catalog: ebbtide::Container,
    open: RwLock<Open>,
    /// Held while the catalog is changed, and while a container is looked up in it.
    changing: Mutex<()>,
}

/// The containers that have handles.
#[derive(Default)]
struct Open {
    /// One handle each.
    by_rid: HashMap<ResourceId, Container>,
    /// By what their databases and they were called: ids or resource ids.
    by_name: HashMap<String, HashMap<String, Container>>,
}

impl Open {
    /// Forgets containers.
    fn forget(&mut self, is_gone: impl Fn(ResourceId) -> bool) {
        self.by_rid.retain(|rid, _| !is_gone(*rid));
        let named = self.by_name.values_mut();
        named.for_each(|named| named.retain(|_, container| !is_gone(container.rid())));
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Documents").finish_non_exhaustive()
    }
}

/// The settings of the engine's container for a definition, where this was its quota before.
fn settings(
    definition: &ContainerDefinition,
    before: Option<Quota>,
) -> Result<(ContainerOptions, ContainerSettings)> {
    // A definition does not say what is done where it is full: the word of an operator stays.
    let when_full = before.map_or(WhenFull::Refuse, |quota| quota.when_full);
    let quota = |max_live_bytes| Quota {
        max_live_bytes,
        when_full,
    };
    let settings = ContainerSettings {
        default_ttl: definition.default_ttl,
        keep_expired: definition.keep_expired()?,
        quota: definition.max_live_bytes.map(quota),
    };
    let options = ContainerOptions::new()
        .default_ttl(settings.default_ttl)
        .keep_expired(settings.keep_expired);
    let options = match settings.quota {
        Some(quota) => options
            .max_live_bytes(quota.max_live_bytes)
            .when_full(quota.when_full),
        None => options,
    };
    Ok((options, settings))
}

/// Takes away a quota that a definition has no more: a batch cannot. After a crash before this the quota stays, of a change
/// that nobody was told of.
fn without_quota(items: &ebbtide::Container, definition: &ContainerDefinition) -> Result<()> {
    if definition.max_live_bytes.is_none() && items.quota().is_some() {
        items.set_quota(None)?;
    }
    Ok(())
}

impl Documents {
    /// Opens the folder of a database of the engine, or makes it.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(path: impl AsRef<Path>) -> Result<Documents> {
        Documents::with(ebbtide::Database::open(path)?)
    }

    /// Whether a database of the engine has documents: one that is read only and has none cannot be opened by
    /// [`Self::with`].
    #[must_use]
    pub fn are_in(engine: &ebbtide::Database) -> bool {
        engine.containers().iter().any(|name| name == CATALOG)
    }

    /// Over a database of the engine that was opened by options of the caller's.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn with(engine: ebbtide::Database) -> Result<Documents> {
        let store = Store::of(engine);
        let catalog = store.made(CATALOG, DefaultTtl::NoDefault)?;
        let documents = Documents::of(store, catalog);
        documents.indexes().forget_where_none_are_kept()?;
        Ok(documents)
    }

    /// Over one of several replicas, which others write, too: what one of them does, all see.
    ///
    /// # Errors
    /// Those of [`Replica::commit`], where the replicas have no documents yet.
    pub fn over(replica: Arc<dyn Replica>) -> Result<Documents> {
        let store = Store::over(replica);
        let catalog = store.made(CATALOG, DefaultTtl::NoDefault)?;
        Ok(Documents::of(store, catalog))
    }

    fn of(store: Store, catalog: ebbtide::Container) -> Documents {
        Documents {
            shared: Arc::new(Shared {
                store,
                catalog,
                open: RwLock::default(),
                changing: Mutex::default(),
            }),
        }
    }

    /// The database of the engine.
    #[must_use]
    pub fn engine(&self) -> &ebbtide::Database {
        self.shared.store.engine()
    }

    /// Whether it is over one of several replicas ([`Documents::over`]): the engine's database is to be read alone.
    #[must_use]
    pub fn are_replicated(&self) -> bool {
        self.store().is_replica()
    }

    /// The moment by which reads judge; over a replica that of the last one.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.store().now()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Forgets the handles of what was deleted.
    pub(crate) fn forget(&self, is_gone: impl Fn(ResourceId) -> bool) {
        self.shared.open_mut().forget(is_gone);
    }

    /// The handle of a container, if there is one.
    pub(crate) fn opened(&self, rid: ResourceId) -> Option<Container> {
        self.shared.open().by_rid.get(&rid).cloned()
    }

    pub(crate) fn keep(&self, container: &Container) {
        let mut open = self.shared.open_mut();
        if self.are_replicated() {
            // Others drop containers without a word here.
            open.by_rid
                .retain(|rid, _| matches!(self.store().container(&rid.to_string()), Ok(Some(_))));
        }
        open.by_rid.insert(container.rid(), container.clone());
    }

    /// The same by what it and its database were called before.
    pub(crate) fn named(&self, database: &str, id: &str) -> Option<Container> {
        let open = self.shared.open();
        open.by_name.get(database)?.get(id).cloned()
    }

    pub(crate) fn keep_named(&self, database: &str, id: &str, container: &Container) {
        let mut open = self.shared.open_mut();
        let named = open.by_name.entry(database.to_owned()).or_default();
        named.insert(id.to_owned(), container.clone());
    }

    pub(crate) fn record_of(&self, key: &[u8]) -> Result<Option<Item>> {
        self.store().item(self.catalog(), key)
    }

    pub(crate) fn entries(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.store().prefix(self.catalog(), prefix)
    }

    pub(crate) fn catalog(&self) -> &ebbtide::Container {
        &self.shared.catalog
    }

    pub(crate) fn indexes(&self) -> IndexCatalog<'_> {
        IndexCatalog {
            store: self.store(),
            catalog: self.catalog(),
        }
    }

    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        self.shared
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the catalog: `make` reads it and makes a batch, again where what it read was changed meanwhile.
    pub(crate) fn change<T>(
        &self,
        mut make: impl FnMut(&mut Writes) -> Result<T>,
    ) -> Result<(T, Committed)> {
        let mut tries = 1;
        loop {
            let mut batch = self.store().writes();
            let made = make(&mut batch)?;
            match self.store().commit(&batch)? {
                Commit::Done(written) => return Ok((made, written)),
                Commit::Conflict if tries < TRIES => tries += 1,
                Commit::Conflict => return Err(contended(self.catalog(), NUMBER)),
            }
        }
    }

    pub(crate) fn require(&self, batch: &mut Writes, key: &[u8], found: Option<&Item>) {
        let expect = found.map_or(Expect::Absent, |item| Expect::Version(item.version()));
        batch.require(self.catalog(), key, expect);
    }

    /// A number that no resource id has had.
    pub(crate) fn number(&self, batch: &mut Writes) -> Result<u32> {
        let last = self.record_of(NUMBER)?;
        self.require(batch, NUMBER, last.as_ref());
        let number = match &last {
            Some(last) => last.value()[..].try_into().map(u32::from_le_bytes),
            None => Ok(0),
        };
        let number = number.map_err(|_| damaged("the last number is none"))? + 1;
        if number > MAX_NUMBER {
            let message = "There are no resource ids left.";
            return Err(Error::new(ErrorKind::InternalServerError, message));
        }
        batch.put(self.catalog(), NUMBER, number.to_le_bytes(), Ttl::Never);
        Ok(number)
    }

    /// Creates a container.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) where it exists, [`NotFound`](ErrorKind::NotFound) where its database does not,
    /// [`BadRequest`](ErrorKind::BadRequest): its definition, [`ContainerDefinition::check`].
    pub fn create_container(
        &self,
        database: &str,
        definition: ContainerDefinition,
    ) -> Result<Container> {
        definition.check()?;
        let _changing = self.changing();
        let ((rid, dropped), written) = self.change(|batch| {
            let database = self.database_item(database)?;
            self.require(batch, database.key(), Some(&database));
            let database = DatabaseInfo::of_item(&database)?;
            let key = container_key(database.rid, &definition.id);
            let old = self.record_of(&key)?;
            if old.as_ref().map_or(Ok(false), |old| self.is_there(old))? {
                return Err(exists("container", &definition.id));
            }
            self.require(batch, &key, old.as_ref());
            // The highest bit says that it is a container's.
            let number = self.number(batch)? | 1 << 31;
            let rid = database.rid.child(&number.to_be_bytes());
            let (options, settings) = settings(&definition, None)?;
            batch.create_container(rid.to_string(), options, settings);
            let paths = self.indexes().paths_of(&definition);
            self.indexes()
                .make(batch, rid, paths, definition.default_ttl);
            let dropped = old.map(|old| rid_in(&record(&old)?)).transpose()?;
            if let Some(dropped) = dropped {
                self.indexes().forget(batch, dropped)?;
            }
            // The last write of the batch, whose version is the batch's.
            let made = container_record(rid, &definition);
            batch.put(self.catalog(), &key, made, Ttl::Never);
            Ok((rid, dropped))
        })?;
        self.shared
            .open_mut()
            .forget(|container| Some(container) == dropped);
        let resource = Resource {
            definition: Arc::new(definition),
            version: written.version,
            written_at: written.written_at,
        };
        self.handle(rid, resource)
    }

    /// The record of a container of this id or `_rid`.
    pub(crate) fn container_item(&self, database: ResourceId, id: &str) -> Result<Item> {
        if let Some(item) = self.record_of(&container_key(database, id))? {
            return Ok(item);
        }
        if id
            .parse::<ResourceId>()
            .is_ok_and(|rid| rid.database() == database)
        {
            for item in self.entries(container_prefix(database))? {
                let item = item?;
                if rid_in(&record(&item)?)?.to_string() == id {
                    return Ok(item);
                }
            }
        }
        Err(no_container(id))
    }

    /// Replaces the definition of a container. Its partition key cannot change. Another default ttl counts at once, for all
    /// documents that are there; those that have expired stay gone. An index by name that is new is built before this
    /// returns, from all documents, while others read and write; queries use it once it is whole.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`BadRequest`](ErrorKind::BadRequest).
    pub fn replace_container(
        &self,
        database: &str,
        definition: ContainerDefinition,
    ) -> Result<Container> {
        self.replace_container_if(database, definition, &Conditions::none())
    }

    /// [`Documents::replace_container`] where conditions on the container's etag hold.
    ///
    /// # Errors
    /// As there; [`PreconditionFailed`](ErrorKind::PreconditionFailed).
    pub fn replace_container_if(
        &self,
        database: &str,
        definition: ContainerDefinition,
        conditions: &Conditions,
    ) -> Result<Container> {
        definition.check()?;
        let mut container = self.container(database, &definition.id)?;
        let changing = self.changing();
        // Over a replica the condition on the indexes does as much.
        let mut held = (!self.are_replicated()).then(|| container.upkeep().hold_all());
        let (_, written) = self.change(|batch| {
            let item = self.container_item(container.rid().database(), &definition.id)?;
            let old = self.container_of(&item)?;
            if old.rid() != container.rid() {
                return Err(no_container(&definition.id));
            }
            if old.definition().partition_key != definition.partition_key {
                return Err(Error::bad_request(
                    "Document collection partition key cannot be changed.",
                ));
            }
            conditions.check(Some(item.version()))?;
            self.require(batch, item.key(), Some(&item));
            let quota = self.store().quota(old.items());
            let (options, settings) = settings(&definition, quota)?;
            batch.change_container(old.rid().to_string(), options, settings);
            let paths = self.indexes().paths_of(&definition);
            let (rid, default) = (old.rid(), definition.default_ttl);
            self.indexes()
                .replace(batch, rid, old.items(), paths, default)?;
            let record = container_record(old.rid(), &definition);
            batch.put(self.catalog(), item.key(), record, Ttl::Never);
            Ok(())
        })?;
        if let Some(held) = &mut held {
            **held = Arc::new(self.indexes().read(container.rid())?);
        }
        drop(held);
        without_quota(container.items(), &definition)?;
        let resource = Resource {
            definition: Arc::new(definition),
            version: written.version,
            written_at: written.written_at,
        };
        match self.are_replicated() {
            true => container = self.handle(container.rid(), resource)?,
            false => container.set_resource(resource),
        }
        drop(changing);
        let building = container.upkeep().build();
        // After an error the next open or replacement builds it; queries do without.
        let _ = self.build_whole(&container);
        drop(building);
        Ok(container)
    }

    /// Deletes a container with its documents, at once. Handles of it answer [`NotFound`](ErrorKind::NotFound) from then on.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn delete_container(&self, database: &str, id: &str) -> Result<()> {
        self.delete_container_if(database, id, &Conditions::none())
    }

    /// [`Documents::delete_container`] where conditions on the container's etag hold.
    ///
    /// # Errors
    /// As there; [`PreconditionFailed`](ErrorKind::PreconditionFailed).
    pub fn delete_container_if(
        &self,
        database: &str,
        id: &str,
        conditions: &Conditions,
    ) -> Result<()> {
        let _changing = self.changing();
        let (rid, _) = self.change(|batch| {
            let item = self.container_item(self.database(database)?.rid, id)?;
            conditions.check(Some(item.version()))?;
            self.drop_container(batch, &item)
        })?;
        self.forget(|container| container == rid);
        Ok(())
    }

    /// Drops the container of a record, and the record.
    pub(crate) fn drop_container(&self, batch: &mut Writes, item: &Item) -> Result<ResourceId> {
        let rid = rid_in(&record(item)?)?;
        self.require(batch, item.key(), Some(item));
        batch.delete(self.catalog(), item.key());
        if self.is_there(item)? {
            batch.drop_container(rid.to_string());
        }
        self.indexes().forget(batch, rid)?;
        Ok(rid)
    }
}

fn container_record(rid: ResourceId, definition: &ContainerDefinition) -> String {
    json!({"rid": rid.to_string(), "definition": definition.to_stored()}).to_string()
}

impl Shared {
    fn open(&self) -> RwLockReadGuard<'_, Open> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_mut(&self) -> RwLockWriteGuard<'_, Open> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}
