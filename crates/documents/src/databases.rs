//! Databases: made, listed, and deleted with their containers.

use ebbtide::{Item, Ttl};
use serde_json::json;

use crate::body::check_name;
use crate::catalog::{DatabaseInfo, NUMBER, container_prefix, database_key, exists, no_database};
use crate::documents::Documents;
use crate::error::Result;
use crate::etag::Conditions;
use crate::resource_id::ResourceId;

impl Documents {
    /// Creates a database.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) where it exists, [`BadRequest`](crate::ErrorKind::BadRequest): its id.
    pub fn create_database(&self, id: &str) -> Result<DatabaseInfo> {
        check_name(id)?;
        let (_changing, key) = (self.changing(), database_key(id));
        let (rid, written) = self.change(|batch| {
            if self.record_of(&key)?.is_some() {
                return Err(exists("database", id));
            }
            let rid = ResourceId::from_bytes(&self.number(batch)?.to_le_bytes())?;
            let record = json!({"rid": rid.to_string()}).to_string();
            self.require(batch, &key, None);
            batch.put(self.catalog(), &key, record, Ttl::Never);
            Ok(rid)
        })?;
        Ok(DatabaseInfo {
            id: id.to_owned(),
            rid,
            version: written.version,
            written_at: written.written_at,
        })
    }

    pub(crate) fn database_item(&self, id: &str) -> Result<Item> {
        if let Some(item) = self.record_of(&database_key(id))? {
            return Ok(item);
        }
        if id.parse::<ResourceId>().is_ok() {
            for item in self.entries("d")? {
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
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn database(&self, id: &str) -> Result<DatabaseInfo> {
        DatabaseInfo::of_item(&self.database_item(id)?)
    }

    /// All databases, in the order of ids.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.entries("d")?
            .map(|item| DatabaseInfo::of_item(&item?))
            .collect()
    }

    /// Deletes a database with its containers and their documents, at once.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn delete_database(&self, id: &str) -> Result<()> {
        self.delete_database_if(id, &Conditions::none())
    }

    /// [`Documents::delete_database`] where conditions on the database's etag hold.
    ///
    /// # Errors
    /// As there; [`PreconditionFailed`](crate::ErrorKind::PreconditionFailed).
    pub fn delete_database_if(&self, id: &str, conditions: &Conditions) -> Result<()> {
        let _changing = self.changing();
        let (rid, _) = self.change(|batch| {
            let item = self.database_item(id)?;
            conditions.check(Some(item.version()))?;
            let database = DatabaseInfo::of_item(&item)?;
            self.require(batch, item.key(), Some(&item));
            // Each container that is made takes a number: so none comes in between, wherever it is made.
            let last = self.record_of(NUMBER)?;
            self.require(batch, NUMBER, last.as_ref());
            batch.delete(self.catalog(), item.key());
            for item in self.entries(container_prefix(database.rid))? {
                let item = item?;
                self.drop_container(batch, &item)?;
            }
            Ok(database.rid)
        })?;
        self.forget(|container| container.database() == rid);
        Ok(())
    }
}
