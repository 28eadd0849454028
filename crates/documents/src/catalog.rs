//! The records of the catalog: what documents.rs reads and writes of databases and containers.

use std::time::SystemTime;

use ebbtide::{Item, Version};
use serde_json::Value;

use crate::document::seconds;
use crate::error::{Error, ErrorKind, Result};
use crate::resource_id::ResourceId;

/// The name of the catalog in the engine.
pub const CATALOG: &str = "documents";
/// The key of the last number.
pub const NUMBER: &[u8] = b"n";

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
        let (id, rid, version) = (Value::from(self.id.as_str()), self.rid, self.version);
        let ts = seconds(self.written_at);
        format!(
            "{{\"id\":{id},\"_rid\":\"{rid}\",\"_self\":\"dbs/{rid}/\",\"_etag\":\"\\\"{version}\\\"\",\"_colls\":\"colls/\",\
             \"_users\":\"users/\",\"_ts\":{ts}}}"
        )
    }

    pub(crate) fn of_item(item: &Item) -> Result<DatabaseInfo> {
        let record = record(item)?;
        Ok(DatabaseInfo {
            id: text(&item.key()[1..])?.to_owned(),
            rid: rid_in(&record)?,
            version: item.version(),
            written_at: item.written_at(),
        })
    }
}

pub fn database_key(id: &str) -> Vec<u8> {
    [b"d", id.as_bytes()].concat()
}

pub fn container_prefix(database: ResourceId) -> Vec<u8> {
    [b"c", database.as_bytes()].concat()
}

pub fn container_key(database: ResourceId, id: &str) -> Vec<u8> {
    [&container_prefix(database), id.as_bytes()].concat()
}

pub fn damaged(what: &str) -> Error {
    let message = format!("The catalog of the documents is damaged: {what}.");
    Error::new(ErrorKind::InternalServerError, message)
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| damaged("an id is not UTF-8"))
}

pub fn record(item: &Item) -> Result<Value> {
    serde_json::from_slice(item.value()).map_err(|error| damaged(&error.to_string()))
}

pub fn rid_in(record: &Value) -> Result<ResourceId> {
    let rid = record.get("rid").and_then(Value::as_str);
    rid.unwrap_or_default()
        .parse()
        .map_err(|_| damaged("a resource id is none"))
}

pub fn no_database(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("There is no database {id:?}.")).with_sub_status(1003)
}

pub fn no_container(id: &str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("There is no container {id:?}."),
    )
    .with_sub_status(1003)
}

pub fn exists(what: &str, id: &str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("There is a {what} {id:?} already."),
    )
}
