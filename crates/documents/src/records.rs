//! Records: what a program keeps beside its documents.

use ebbtide::{DefaultTtl, Item, Ttl};

use crate::documents::Documents;
use crate::error::Result;
use crate::key_range::KeyRange;
use crate::store::{Commit, Store, view_of};
use crate::write::contended;

/// Items that are no documents and have no end, in a container of the engine of their own; over replicas all have them. Each
/// write is a step of its own.
///
/// ```
/// use ebbtide_documents::Documents;
///
/// let documents = Documents::with(ebbtide::Options::temporary()?)?;
/// let offers = documents.records("offers");
/// assert!(offers.item("shop")?.is_none());
/// offers.put("shop", "400")?;
/// assert_eq!(offers.all()?[0].value(), "400");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Records {
    store: Store,
    name: String,
}

impl Documents {
    /// The records in the engine's container of this name, which is made with the first one. No resource id of a container of
    /// documents, and not `documents`, which has the catalog.
    #[must_use]
    pub fn records(&self, name: &str) -> Records {
        Records {
            store: self.store().clone(),
            name: name.to_owned(),
        }
    }
}

impl Records {
    /// One of them.
    ///
    /// # Errors
    /// Those of a read.
    pub fn item(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        if !self.store.is_replica() {
            let container = self.store.container(&self.name)?;
            let item = container.map(|container| container.item(key)).transpose()?;
            return Ok(item.flatten());
        }
        let view = view_of(&self.store.snapshot()?, &self.name)?;
        let item = view.map(|view| view.item(key)).transpose()?;
        Ok(item.flatten())
    }

    /// All of them, in the order of their keys.
    ///
    /// # Errors
    /// Those of a read.
    pub fn all(&self) -> Result<Vec<Item>> {
        let Some(view) = view_of(&self.store.snapshot()?, &self.name)? else {
            return Ok(vec![]);
        };
        let items = view.range(KeyRange::of_prefix(vec![]));
        Ok(items.collect::<ebbtide::Result<_>>()?)
    }

    /// Writes one, whether it is there or not.
    ///
    /// # Errors
    /// Those of a write.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let container = self.made()?;
        let mut writes = self.store.writes();
        writes.put(&container, &key, value, Ttl::Never);
        self.done(&container, key.as_ref(), self.store.commit(&writes)?)
    }

    /// Removes one, whether it is there or not.
    ///
    /// # Errors
    /// Those of a write.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        if !self.store.has_container(&self.name)? {
            return Ok(());
        }
        let container = self.made()?;
        let mut writes = self.store.writes();
        writes.delete(&container, &key);
        self.done(&container, key.as_ref(), self.store.commit(&writes)?)
    }

    /// They have no conditions.
    fn done(&self, container: &ebbtide::Container, key: &[u8], commit: Commit) -> Result<()> {
        match commit {
            Commit::Done(_) => Ok(()),
            Commit::Conflict => Err(contended(container, key)),
        }
    }

    fn made(&self) -> Result<ebbtide::Container> {
        self.store.made(&self.name, DefaultTtl::Off)
    }
}
