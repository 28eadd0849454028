//! Containers with indexes, as users meet them: what they are made of, and how one is opened.

use std::fmt;
use std::sync::Arc;

use crate::api::container::Container;
use crate::api::database::Database;
use crate::base::sync::Mutex;
use crate::base::{Error, Result};
use crate::data::item::Item;
use crate::engine::options::ContainerOptions;

type IndexFunction = Arc<dyn Fn(&[u8], &[u8]) -> Vec<Vec<u8>> + Send + Sync>;

/// A [`Container`] whose items can be found by something else than their key: each index has, for each item, the *index keys*
/// that its function computes from the item's key and value, none, one or several. Cheap to clone.
///
/// Writes go through this type. It writes an item and its *entries* in the indexes by one transaction, with one lifetime, so
/// that they end in the same millisecond: by a ttl of any kind, by the container's default and every change of it
/// ([`IndexedContainer::set_default_ttl`]), by a command. No job removes entries of items that have ended.
/// Lookups ([`IndexedContainer::index`]) return live items that have the index key now.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{DefaultTtl, IndexedContainer, ManualClock, Options};
///
/// let clock = ManualClock::new(1_800_000_000_000);
/// let db = Options::new().clock(clock.clone()).open_temporary()?;
/// // By user; the value of a session is the user's name.
/// let sessions = IndexedContainer::new(&db.container("sessions")?, |_id, user| [user.to_vec()])?;
/// sessions.set_default_ttl(DefaultTtl::After(Duration::from_secs(1_800)))?;
///
/// sessions.put("s-1", "ada")?;
/// sessions.put("s-2", "ada")?;
/// sessions.put("s-3", "grace")?;
/// assert_eq!(sessions.index().items("ada").count(), 2);
/// clock.advance(Duration::from_secs(1_000));
/// assert!(sessions.touch("s-1")?); // its entry slides along
/// clock.advance(Duration::from_secs(800));
/// let left = sessions.index().item("ada")?.unwrap();
/// assert_eq!(left.key(), b"s-1");
/// assert!(!sessions.index().contains("grace")?);
/// # Ok::<(), ebbtide::Error>(())
/// ```
///
/// Several indexes, and unique ones, are made by [`IndexedContainer::builder`]. The entries of the index `user` of the container
/// `sessions` are in the container `sessions#user`.
///
/// Writes past it, by [`IndexedContainer::container`], a typed container, a bulk load or the command line, do not reach the
/// indexes: an item that was written so is not found, or found late, until [`IndexedContainer::rebuild`]. No lookup returns
/// an item wrongly because of them. If they change the default ttl of the container, the next call through this type reads
/// all items to build the indexes anew; some entries then have no end, and stay until their item is written, or for the next
/// [`IndexedContainer::rebuild`]. A quota of the whole database that expires what ends soonest may end an entry before
/// its item.
///
/// Each write reads the item first. Where others write the same key at the same moment, it is tried again, as
/// [`Database::transaction`] is; [`Error::Conflict`] after 32 times.
#[derive(Clone)]
pub struct IndexedContainer {
    inner: Arc<Inner>,
}

/// An index of a container.
pub struct Definition {
    /// As the program calls it.
    pub name: String,
    /// One live item at most has an index key.
    pub is_unique: bool,
    /// Its entries.
    pub entries: Container,
    function: IndexFunction,
}

struct Inner {
    db: Database,
    items: Container,
    indexes: Vec<Definition>,
    building: Mutex<()>,
}

impl fmt::Debug for IndexedContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.inner.indexes.iter().map(|index| &index.name);
        f.debug_struct("IndexedContainer")
            .field("container", &self.inner.items.name())
            .field("indexes", &Vec::from_iter(names))
            .finish_non_exhaustive()
    }
}

impl Definition {
    /// The index keys of an item, ascending, each once.
    pub fn index_keys(&self, key: &[u8], value: &[u8]) -> Vec<Vec<u8>> {
        (self.function)(key, value)
    }

    /// Whether an item has an index key.
    pub fn has(&self, item: &Item, index_key: &[u8]) -> bool {
        let index_keys = self.index_keys(item.key(), item.value());
        index_keys
            .binary_search_by(|other| other[..].cmp(index_key))
            .is_ok()
    }
}

/// The indexes of a container that is to be opened as an [`IndexedContainer`]; [`IndexedContainer::builder`] makes it.
#[must_use = "nothing is opened before `open`"]
pub struct IndexedContainerBuilder {
    items: Container,
    indexes: Vec<(String, bool, IndexFunction)>,
}

impl fmt::Debug for IndexedContainerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.indexes.iter().map(|(name, ..)| name);
        f.debug_tuple("IndexedContainerBuilder")
            .field(&Vec::from_iter(names))
            .finish()
    }
}

impl IndexedContainerBuilder {
    /// Adds an index: `index_keys` is given the key and the value of an item, and returns its index keys: an array, an
    /// `Option`, a `Vec` or the like of anything that is bytes. It has to answer the same whenever it is asked the same. An
    /// index whose function has changed needs another name, or [`IndexedContainer::rebuild`].
    pub fn index<K: AsRef<[u8]>, I: IntoIterator<Item = K>>(
        self,
        name: impl Into<String>,
        index_keys: impl Fn(&[u8], &[u8]) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add(name.into(), false, index_keys)
    }

    /// Adds an index in which one live item at most has an index key: a write that would give it to a second one is
    /// [`Error::NotUnique`]. An item that has ended holds none.
    pub fn unique<K: AsRef<[u8]>, I: IntoIterator<Item = K>>(
        self,
        name: impl Into<String>,
        index_keys: impl Fn(&[u8], &[u8]) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add(name.into(), true, index_keys)
    }

    fn add<K: AsRef<[u8]>, I: IntoIterator<Item = K>>(
        mut self,
        name: String,
        is_unique: bool,
        index_keys: impl Fn(&[u8], &[u8]) -> I + Send + Sync + 'static,
    ) -> Self {
        let function = move |key: &[u8], value: &[u8]| {
            let index_keys = index_keys(key, value).into_iter();
            let mut index_keys = Vec::from_iter(index_keys.map(|one| one.as_ref().to_vec()));
            index_keys.sort_unstable();
            index_keys.dedup();
            index_keys
        };
        self.indexes.push((name, is_unique, Arc::new(function)));
        self
    }

    /// Opens the container with these indexes. An index that is new, or was another kind of index, is built, which reads
    /// all items.
    ///
    /// # Errors
    /// No index, a name twice, or one that is no name of a container. [`Error::NotUnique`] where two live items have one index
    /// key of a unique index. [`Error::ReadOnly`] where an index is to be built in a database that is only read.
    pub fn open(self) -> Result<IndexedContainer> {
        let db = Database::of(&self.items);
        let mut indexes: Vec<Definition> = vec![];
        for (name, is_unique, function) in self.indexes {
            if name.is_empty() || indexes.iter().any(|other| other.name == name) {
                let allowed = "1 byte or more, another one for each index of a container";
                return Err(Error::invalid("index name", format!("{name:?}"), allowed));
            }
            let default = self.items.default_ttl();
            let options = ContainerOptions::new().default_ttl(default).or_keep();
            let entries = db.container_with(format!("{}#{name}", self.items.name()), options)?;
            indexes.push(Definition {
                name,
                is_unique,
                entries,
                function,
            });
        }
        if indexes.is_empty() {
            return Err(Error::invalid("indexes", "none", "one or more"));
        }
        let (items, building) = (self.items, Mutex::new(()));
        let inner = Inner {
            db,
            items,
            indexes,
            building,
        };
        let opened = IndexedContainer {
            inner: Arc::new(inner),
        };
        opened.make_ready()?;
        Ok(opened)
    }
}

impl IndexedContainer {
    /// A container with one index, which is called `index`; see [`IndexedContainerBuilder::index`] for the function, and
    /// [`IndexedContainerBuilder::open`] for the errors.
    pub fn new<K: AsRef<[u8]>, I: IntoIterator<Item = K>>(
        container: &Container,
        index_keys: impl Fn(&[u8], &[u8]) -> I + Send + Sync + 'static,
    ) -> Result<IndexedContainer> {
        let builder = IndexedContainer::builder(container);
        builder.index("index", index_keys).open()
    }

    /// To name the indexes of a container.
    ///
    /// ```
    /// use ebbtide::{Error, IndexedContainer, Options};
    ///
    /// let db = Options::temporary()?;
    /// let field = |n| move |_: &[u8], user: &[u8]| user.split(|byte| *byte == b',').nth(n).map(<[u8]>::to_vec);
    /// let users = IndexedContainer::builder(&db.container("users")?)
    ///     .unique("email", field(0))
    ///     .index("city", field(1)) // a user without a city is not in it
    ///     .open()?;
    /// users.put("u-1", "ada@example.org,London")?;
    /// users.put("u-2", "grace@example.org,Arlington")?;
    /// users.put("u-3", "alan@example.org")?;
    /// let ada = users.index_named("email")?.item("ada@example.org")?.unwrap();
    /// assert_eq!(ada.key(), b"u-1");
    /// assert_eq!(users.index_named("city")?.range("A".."B").count(), 1);
    ///
    /// let taken = users.put("u-4", "ada@example.org,Turin").unwrap_err();
    /// assert!(matches!(taken, Error::NotUnique { key, .. } if key == b"u-1"));
    /// users.delete("u-1")?;
    /// users.put("u-4", "ada@example.org,Turin")?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn builder(container: &Container) -> IndexedContainerBuilder {
        IndexedContainerBuilder {
            items: container.clone(),
            indexes: vec![],
        }
    }

    /// The container of the items, to be read from. What is written to it directly goes past the indexes.
    #[must_use]
    pub fn container(&self) -> &Container {
        &self.inner.items
    }

    pub(super) fn place(&self, name: &str) -> Result<usize> {
        let place = self.indexes().iter().position(|index| index.name == name);
        place.ok_or_else(|| {
            let allowed = "that of an index of the container";
            Error::invalid("index name", format!("{name:?}"), allowed)
        })
    }

    pub(super) fn indexes(&self) -> &[Definition] {
        &self.inner.indexes
    }

    pub(super) fn db(&self) -> &Database {
        &self.inner.db
    }

    /// Held by the thread that builds an index.
    pub(super) fn building(&self) -> &Mutex<()> {
        &self.inner.building
    }
}
