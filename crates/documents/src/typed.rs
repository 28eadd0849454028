//! Documents as values of Rust, by serde.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::container::Container;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::etag::Conditions;
use crate::json;
use crate::partition_key::PartitionKey;

impl Document {
    /// The document as a value of Rust, without system properties.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): it is none of these.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T> {
        json::parse(self.body()).map_err(|error| {
            Error::bad_request(format!(
                "The document {:?} is not of this type: {error}.",
                self.id
            ))
        })
    }
}

impl Container {
    /// As [`Container::read`], as a value of Rust.
    ///
    /// ```
    /// use ebbtide_documents::{ContainerDefinition, Documents};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    /// struct Session {
    ///     id: String,
    ///     user: String,
    ///     #[serde(skip_serializing_if = "Option::is_none")]
    ///     ttl: Option<i64>,
    /// }
    ///
    /// let documents = Documents::with(ebbtide::Options::temporary()?)?;
    /// documents.create_database("site")?;
    /// let sessions = documents.create_container("site", ContainerDefinition::new("sessions", "/user"))?;
    /// let session = Session { id: "s-1".into(), user: "ada".into(), ttl: Some(1_800) };
    /// sessions.create_as(&session)?;
    /// assert_eq!(sessions.read_as::<Session>(&"ada".into(), "s-1")?, session);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Also [`BadRequest`](crate::ErrorKind::BadRequest): the document is none of these.
    pub fn read_as<T: DeserializeOwned>(&self, key: &PartitionKey, id: &str) -> Result<T> {
        self.read(key, id)?.to()
    }

    /// As [`Container::create`], of a value of Rust; its partition key is taken from it.
    ///
    /// # Errors
    /// Those of [`Container::create`].
    pub fn create_as<T: Serialize + ?Sized>(&self, value: &T) -> Result<Document> {
        let body = body_of(value)?;
        self.create(&self.partition_key_of(&body)?, &body)
    }

    /// As [`Container::upsert`], of a value of Rust; its partition key is taken from it.
    ///
    /// # Errors
    /// Those of [`Container::upsert`].
    pub fn upsert_as<T: Serialize + ?Sized>(&self, value: &T) -> Result<(Document, bool)> {
        let body = body_of(value)?;
        self.upsert(&self.partition_key_of(&body)?, &body, &Conditions::none())
    }
}

fn body_of<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Error::bad_request(format!("The value is no JSON: {error}.")))
}
