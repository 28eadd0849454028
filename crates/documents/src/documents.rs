//! Databases and their containers, and the catalog that lists them.
//!
//! ```text
//! the engine's container `documents`, the catalog:
//!   n                        the number of the last resource id, 4 bytes
//!   d ID                     a database: {"rid":"..."}
//!   c RID-OF-DATABASE ID     a container: {"rid":"...","definition":{...}}
//!   i RID                    the indexes of a container: indexes.rs
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
//!    looked up in the catalog, while nobody changes that.
//! 5. The indexes of a container are those of its definition, from the batch that writes that. Where they are not, as in a
//!    database that an older version wrote, or their entries may be too few (indexes.rs), the first handle makes them so. An
//!    index that is not whole is built behind it; what stops that leaves it as it is, for the next open or replacement.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ebbtide::{Batch, ContainerOptions, DefaultTtl, Expect, Item, Ttl, Written};
use serde_json::json;

use crate::body::check_name;
use crate::catalog::{
    CATALOG, DatabaseInfo, NUMBER, container_key, container_prefix, damaged, database_key, exists,
    no_container, no_database, record, rid_in,
};
use crate::container::{Container, Resource};
use crate::definition::ContainerDefinition;
use crate::error::{Error, ErrorKind, Result};
use crate::index_changes::IndexCatalog;
use crate::indexes::record_key;
use crate::resource_id::ResourceId;

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
    engine: ebbtide::Database,
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

/// The settings of the engine's container for a definition.
fn options(definition: &ContainerDefinition) -> Result<ContainerOptions> {
    let options = ContainerOptions::new()
        .default_ttl(definition.default_ttl)
        .keep_expired(definition.keep_expired()?);
    Ok(match definition.max_live_bytes {
        Some(bytes) => options.max_live_bytes(bytes),
        None => options,
    })
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
        let options = ContainerOptions::new().default_ttl(DefaultTtl::NoDefault);
        let catalog = engine.container_with(CATALOG, options.or_keep())?;
        let documents = Documents {
            shared: Arc::new(Shared {
                engine,
                catalog,
                open: RwLock::default(),
                changing: Mutex::default(),
            }),
        };
        documents.indexes().forget_where_none_are_kept()?;
        Ok(documents)
    }

    /// The database of the engine.
    #[must_use]
    pub fn engine(&self) -> &ebbtide::Database {
        &self.shared.engine
    }

    fn catalog(&self) -> &ebbtide::Container {
        &self.shared.catalog
    }

    fn indexes(&self) -> IndexCatalog<'_> {
        IndexCatalog {
            engine: self.engine(),
            catalog: self.catalog(),
        }
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.shared
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the catalog: `make` reads it and makes a batch, again where what it read was changed meanwhile.
    fn change<T>(&self, mut make: impl FnMut(&mut Batch) -> Result<T>) -> Result<(T, Written)> {
        let mut tries = 1;
        loop {
            let mut batch = Batch::new();
            let made = make(&mut batch)?;
            match self.engine().commit(&batch) {
                Ok(written) => return Ok((made, written)),
                Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn require(&self, batch: &mut Batch, key: &[u8], found: Option<&Item>) {
        let expect = found.map_or(Expect::Absent, |item| Expect::Version(item.version()));
        batch.require(self.catalog(), key, expect);
    }

    /// A number that no resource id has had.
    fn number(&self, batch: &mut Batch) -> Result<u32> {
        let last = self.catalog().item(NUMBER)?;
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
        batch.put_with_ttl(self.catalog(), NUMBER, number.to_le_bytes(), Ttl::Never);
        Ok(number)
    }

    /// Creates a database.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) where it exists, [`BadRequest`](ErrorKind::BadRequest): its id.
    pub fn create_database(&self, id: &str) -> Result<DatabaseInfo> {
        check_name(id)?;
        let (_changing, key) = (self.changing(), database_key(id));
        let (rid, written) = self.change(|batch| {
            if self.catalog().contains(&key)? {
                return Err(exists("database", id));
            }
            let rid = ResourceId::from_bytes(&self.number(batch)?.to_le_bytes())?;
            let record = json!({"rid": rid.to_string()}).to_string();
            batch.create(self.catalog(), &key, record, Ttl::Never);
            Ok(rid)
        })?;
        Ok(DatabaseInfo {
            id: id.to_owned(),
            rid,
            version: written.version(),
            written_at: written.written_at(),
        })
    }

    fn database_item(&self, id: &str) -> Result<Item> {
        if let Some(item) = self.catalog().item(database_key(id))? {
            return Ok(item);
        }
        if id.parse::<ResourceId>().is_ok() {
            for item in self.catalog().prefix("d") {
                let item = item?;
                if DatabaseInfo::of_item(&item)?.rid.to_string() == id {
                    return Ok(item);
                }
            }
        }
        Err(no_database(id))
    }

    /// The database of this id or `_rid`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn database(&self, id: &str) -> Result<DatabaseInfo> {
        DatabaseInfo::of_item(&self.database_item(id)?)
    }

    /// All databases, in the order of ids.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.catalog()
            .prefix("d")
            .map(|item| DatabaseInfo::of_item(&item?))
            .collect()
    }

    /// Deletes a database with its containers and their documents, at once.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn delete_database(&self, id: &str) -> Result<()> {
        let _changing = self.changing();
        let (rid, _) = self.change(|batch| {
            let item = self.database_item(id)?;
            let database = DatabaseInfo::of_item(&item)?;
            self.require(batch, item.key(), Some(&item));
            batch.delete(self.catalog(), item.key());
            for item in self.catalog().prefix(container_prefix(database.rid)) {
                let item = item?;
                self.drop_container(batch, &item)?;
            }
            Ok(database.rid)
        })?;
        self.shared
            .open_mut()
            .forget(|container| container.database() == rid);
        Ok(())
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
            let old = self.catalog().item(&key)?;
            if old.as_ref().map_or(Ok(false), |old| self.is_there(old))? {
                return Err(exists("container", &definition.id));
            }
            self.require(batch, &key, old.as_ref());
            // The highest bit says that it is a container's.
            let number = self.number(batch)? | 1 << 31;
            let rid = database.rid.child(&number.to_be_bytes());
            batch.create_container(rid.to_string(), options(&definition)?);
            let paths = self.indexes().paths_of(&definition);
            self.indexes()
                .make(batch, rid, paths, definition.default_ttl);
            let dropped = old.map(|old| rid_in(&record(&old)?)).transpose()?;
            if let Some(dropped) = dropped {
                self.indexes().forget(batch, dropped)?;
            }
            // The last write of the batch, whose version is the batch's.
            let made = container_record(rid, &definition);
            batch.put_with_ttl(self.catalog(), &key, made, Ttl::Never);
            Ok((rid, dropped))
        })?;
        self.shared
            .open_mut()
            .forget(|container| Some(container) == dropped);
        let resource = Resource {
            definition: Arc::new(definition),
            version: written.version(),
            written_at: written.written_at(),
        };
        self.handle(rid, resource)
    }

    /// Whether the engine has the container of a record: others may drop it.
    fn is_there(&self, item: &Item) -> Result<bool> {
        let name = rid_in(&record(item)?)?.to_string();
        Ok(self.engine().containers().contains(&name))
    }

    /// Makes the handle of a container that the engine has.
    fn handle(&self, rid: ResourceId, resource: Resource) -> Result<Container> {
        let name = rid.to_string();
        if !self.engine().containers().contains(&name) {
            return Err(no_container(&resource.definition.id));
        }
        let items = self.engine().container(name)?;
        let mut indexes = self.indexes().read(rid)?;
        let paths = self.indexes().paths_of(&resource.definition);
        if !self.indexes().are_as_asked(&indexes, &paths, &items) {
            let changed = self.change(|batch| {
                let (paths, default) = (paths.clone(), items.default_ttl());
                self.indexes().replace(batch, rid, &items, paths, default)
            });
            // Where that cannot be written, as in a database that is only read, queries do without.
            if changed.is_ok() {
                indexes = self.indexes().read(rid)?;
            }
        }
        let container = Container::new(self.engine(), items, rid, resource, indexes)?;
        self.shared.open_mut().by_rid.insert(rid, container.clone());
        Ok(container)
    }

    /// The record of a container of this id or `_rid`.
    fn container_item(&self, database: ResourceId, id: &str) -> Result<Item> {
        if let Some(item) = self.catalog().item(container_key(database, id))? {
            return Ok(item);
        }
        if id
            .parse::<ResourceId>()
            .is_ok_and(|rid| rid.database() == database)
        {
            for item in self.catalog().prefix(container_prefix(database)) {
                let item = item?;
                if rid_in(&record(&item)?)?.to_string() == id {
                    return Ok(item);
                }
            }
        }
        Err(no_container(id))
    }

    /// The container of this id or `_rid`, in the database of this id or `_rid`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn container(&self, database: &str, id: &str) -> Result<Container> {
        let named = self
            .shared
            .open()
            .by_name
            .get(database)
            .and_then(|named| named.get(id).cloned());
        if let Some(named) = named {
            return Ok(named);
        }
        let changing = self.changing();
        let item = self.container_item(self.database(database)?.rid, id)?;
        let found = self.container_of(&item)?;
        let mut open = self.shared.open_mut();
        let named = open.by_name.entry(database.to_owned()).or_default();
        named.insert(id.to_owned(), found.clone());
        drop(open);
        drop(changing);
        if let Some(_building) = found.upkeep().try_build() {
            // After an error the next open builds it; queries do without.
            let _ = self.build(&found);
        }
        Ok(found)
    }

    /// Builds the indexes that are not whole. The caller holds the right to build.
    fn build(&self, container: &Container) -> Result<()> {
        loop {
            let indexes = container.upkeep().current();
            if indexes.are_whole() {
                return Ok(());
            }
            if !container.add_missing(&indexes)? {
                continue;
            }
            let _changing = self.changing();
            let mut held = container.upkeep().hold_all();
            if !Arc::ptr_eq(&held, &indexes) {
                continue;
            }
            let rid = container.rid();
            self.change(|batch| {
                if let Some(version) = indexes.version() {
                    batch.require(self.catalog(), record_key(rid), Expect::Version(version));
                }
                indexes.all_whole().store(batch, self.catalog(), rid);
                Ok(())
            })?;
            *held = Arc::new(self.indexes().read(rid)?);
            return Ok(());
        }
    }

    /// The one handle of a container, whatever it is called by.
    fn container_of(&self, item: &Item) -> Result<Container> {
        let record = record(item)?;
        let rid = rid_in(&record)?;
        if let Some(open) = self.shared.open().by_rid.get(&rid).cloned() {
            return Ok(open);
        }
        let definition = record.get("definition").cloned().unwrap_or_default();
        let definition = ContainerDefinition::from_stored(definition.to_string().as_bytes())
            .map_err(|error| damaged(&error.to_string()))?;
        let resource = Resource {
            definition: Arc::new(definition),
            version: item.version(),
            written_at: item.written_at(),
        };
        self.handle(rid, resource)
    }

    /// All containers of a database, in the order of ids.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn containers(&self, database: &str) -> Result<Vec<Container>> {
        let _changing = self.changing();
        let database = self.database(database)?;
        let items = self.catalog().prefix(container_prefix(database.rid));
        let mut containers = vec![];
        for item in items {
            let item = item?;
            if self.is_there(&item)? {
                containers.push(self.container_of(&item)?);
            }
        }
        Ok(containers)
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
        definition.check()?;
        let container = self.container(database, &definition.id)?;
        let changing = self.changing();
        let mut held = container.upkeep().hold_all();
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
            self.require(batch, item.key(), Some(&item));
            let mut options = options(&definition)?;
            if let Some(quota) = old.items().quota() {
                // A definition does not say what is done where it is full: the word of an operator stays.
                options = options.when_full(quota.when_full);
            }
            batch.create_container(old.rid().to_string(), options.or_change());
            let paths = self.indexes().paths_of(&definition);
            let (rid, default) = (old.rid(), definition.default_ttl);
            self.indexes()
                .replace(batch, rid, old.items(), paths, default)?;
            let record = container_record(old.rid(), &definition);
            batch.put_with_ttl(self.catalog(), item.key(), record, Ttl::Never);
            Ok(())
        })?;
        *held = Arc::new(self.indexes().read(container.rid())?);
        drop(held);
        without_quota(container.items(), &definition)?;
        container.set_resource(Resource {
            definition: Arc::new(definition),
            version: written.version(),
            written_at: written.written_at(),
        });
        drop(changing);
        let building = container.upkeep().build();
        // After an error the next open or replacement builds it; queries do without.
        let _ = self.build(&container);
        drop(building);
        Ok(container)
    }

    /// Deletes a container with its documents, at once. Handles of it answer [`NotFound`](ErrorKind::NotFound) from then on.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn delete_container(&self, database: &str, id: &str) -> Result<()> {
        let _changing = self.changing();
        let (rid, _) = self.change(|batch| {
            let item = self.container_item(self.database(database)?.rid, id)?;
            self.drop_container(batch, &item)
        })?;
        self.shared.open_mut().forget(|container| container == rid);
        Ok(())
    }

    /// Drops the container of a record, and the record.
    fn drop_container(&self, batch: &mut Batch, item: &Item) -> Result<ResourceId> {
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
