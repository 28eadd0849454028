//! Batches, as users meet them.

use std::fmt;

use crate::api::arguments::{check_item, check_key};
use crate::api::container::Container;
use crate::base::{ContainerId, Error, Result, Ttl};
use crate::data::batch::Op;
use crate::engine::Writes;

/// Writes that become visible and durable together, over any containers of one database.
///
/// ```
/// use ebbtide::{Batch, Database};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let (orders, keys) = (db.container("orders")?, db.container("idempotency-keys")?);
/// let mut batch = Batch::new();
/// batch.put(&orders, "o-17", "42 apples");
/// batch.put(&keys, "k-9f3", "o-17");
/// db.write(batch)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "nothing is written before the database is given it"]
pub struct Batch {
    writes: Writes,
    /// The first write that is not allowed; the batch is refused for it, as a whole.
    refused: Option<Error>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Batch {
    /// Without writes.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Stores an item that inherits the container's default.
    pub fn put(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.put_with_ttl(container, key, value, Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own.
    pub fn put_with_ttl(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Ttl,
    ) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        let ttl = check_item(key, value).and_then(|()| container.write_ttl(ttl));
        self.push(
            container,
            ttl.map(|ttl| {
                move |container| Op::Put {
                    container,
                    ttl,
                    key,
                    value,
                }
            }),
        )
    }

    /// Deletes an item, blindly.
    pub fn delete(&mut self, container: &Container, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref();
        self.push(
            container,
            check_key(key).map(|()| move |container| Op::Delete { container, key }),
        )
    }

    fn push<'k>(
        &mut self,
        container: &Container,
        op: Result<impl FnOnce(ContainerId) -> Op<'k>>,
    ) -> &mut Self {
        let pushed = op.and_then(|op| {
            self.writes.push(
                container.engine(),
                container.state(),
                op(container.state().id()),
            )
        });
        if let Err(error) = pushed {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// How many writes it holds; a refused one is not among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// It holds no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every write, refused ones too.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.refused = None;
    }

    pub(crate) fn checked(&self) -> Result<&Writes> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None => Ok(&self.writes),
        }
    }
}
