//! Databases and their containers.

use std::path::Path;
use std::time::SystemTime;

use ebbtide::Version;

use crate::container::Container;
use crate::definition::ContainerDefinition;
use crate::error::Result;
use crate::resource_id::ResourceId;

/// Databases of containers of documents. Clone: one more handle.
#[derive(Clone)]
pub struct Documents {
    engine: ebbtide::Database,
}

/// A database.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseInfo {
    /// Its id.
    pub id: String,
    /// Its `_rid`.
    pub rid: ResourceId,
    /// Its etag.
    pub version: Version,
    /// When it was created.
    pub written_at: SystemTime,
}

impl DatabaseInfo {
    /// As JSON with system properties.
    #[must_use]
    pub fn to_json(&self) -> String {
        todo!()
    }
}

#[allow(unused_variables)]
impl Documents {
    /// Opens the folder of a database of the engine, or makes it.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(path: impl AsRef<Path>) -> Result<Documents> {
        Documents::with(ebbtide::Database::open(path)?)
    }

    /// Over a database of the engine that was opened by options of the caller's.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn with(engine: ebbtide::Database) -> Result<Documents> {
        Ok(Documents { engine })
    }

    /// The database of the engine.
    #[must_use]
    pub fn engine(&self) -> &ebbtide::Database {
        &self.engine
    }

    /// Creates a database.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) where it exists.
    pub fn create_database(&self, id: &str) -> Result<DatabaseInfo> {
        todo!()
    }

    /// The database of this id or `_rid`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn database(&self, id: &str) -> Result<DatabaseInfo> {
        todo!()
    }

    /// All databases, in the order of ids.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        todo!()
    }

    /// Deletes a database with its containers.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn delete_database(&self, id: &str) -> Result<()> {
        todo!()
    }

    /// Creates a container.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) where it exists, [`NotFound`](crate::ErrorKind::NotFound) where its database does not,
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn create_container(
        &self,
        database: &str,
        definition: ContainerDefinition,
    ) -> Result<Container> {
        todo!()
    }

    /// The container of this id or `_rid`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn container(&self, database: &str, id: &str) -> Result<Container> {
        todo!()
    }

    /// All containers of a database, in the order of ids.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn containers(&self, database: &str) -> Result<Vec<Container>> {
        todo!()
    }

    /// Replaces the definition of a container. Its partition key cannot change.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn replace_container(
        &self,
        database: &str,
        definition: ContainerDefinition,
    ) -> Result<Container> {
        todo!()
    }

    /// Deletes a container with its documents.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn delete_container(&self, database: &str, id: &str) -> Result<()> {
        todo!()
    }
}
