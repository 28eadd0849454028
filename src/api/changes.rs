//! The changes since a version.

use std::fmt;
use std::ops::Deref;

use crate::api::container::Container;
use crate::api::database::Database;
use crate::base::Result;
use crate::data::change::Change;
use crate::data::version::Version;
use crate::engine::{ChangeReader, PageReader, Position};

impl Database {
    /// The changes since a version, for caches, search indexes and copies: the newest state of every key that was
    /// written since, and the items that were deleted or have ended; not the states in between. It reads only memtables
    /// and tables that have something newer.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use ebbtide::{Change, Database, Version};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let users = db.container("users")?;
    /// users.put("ada", "1815")?;
    ///
    /// let mut copy = BTreeMap::new();
    /// let mut update = |changes: &mut ebbtide::Changes| -> ebbtide::Result<Version> {
    ///     for change in &mut *changes {
    ///         match change? {
    ///             Change::Put { item, .. } => drop(copy.insert(item.key().to_vec(), item)),
    ///             Change::Delete { key, .. } => drop(copy.remove(&key[..])),
    ///             Change::DeleteRange { from, to, .. } => {
    ///                 copy.retain(|key, _| key[..] < from[..] || to.as_ref().is_some_and(|to| key[..] >= to[..]))
    ///             }
    ///             Change::Expiry { rule, .. } => copy.retain(|_, item| {
    ///                 !rule.is_gone(item.version(), item.written_at(), item.ttl(), db.now())
    ///             }),
    ///             _ => copy.clear(), // this copy is of one container
    ///         }
    ///     }
    ///     Ok(changes.version())
    /// };
    /// let mut changes = db.changes(Version::start());
    /// let first = update(&mut changes)?;
    /// users.put("bob", "1965")?;
    /// users.delete("ada")?;
    /// let second = update(&mut changes)?; // the same object: it goes on
    /// assert!(first < second);
    /// assert!(copy.keys().eq([b"bob"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Changes`] is an iterator over one pass. It ends when all up to the moment at which the pass began was told;
    /// after that, the next call begins the next pass. Apply a pass as a whole, in its order: then the copy is the
    /// database as it was at [`Changes::version`], between two writes, each batch whole, also where defaults are
    /// changed, items expired on command and containers dropped while the pass goes on. A pass tells, if they changed:
    /// the list of containers ([`Change::Containers`]); then of one container after the other its creation, its rule of
    /// expiry, deleted ranges, and its keys in their order.
    ///
    /// **Expiry.** The end of an item that the copy has is not told: the copy judges it by [`ExpiryRule`], as the
    /// database does. When a rule comes, items that are gone by it are to be removed.
    ///
    /// **Going on.** The version is plain data: a program may store it with its copy, and ask for the changes since
    /// then after a restart, of the program or of the database. Items that were deleted, or have ended, are removed
    /// from the disk meanwhile: if some of them could be missing, the first result is [`Error::ChangesGone`], and the
    /// copy is to be made anew from [`Version::start`], which always works. An open `Changes` does not meet this error
    /// after its first pass: like a [`Snapshot`](crate::Snapshot) at its version, it keeps the records that it is to
    /// tell, without a limit of time; so a program that follows a database in which much is deleted keeps it open. In a
    /// database that follows another process ([`Options::follow`](crate::Options::follow)) it keeps nothing.
    ///
    /// Under [`Durability::Buffered`](crate::Durability) a pass may tell writes that a power cut takes back, and their
    /// versions are given again, to other writes. Before a copy that outlasts a power cut takes in a pass, with its
    /// version, call [`Database::sync`]: after the pass, for it may tell writes from just before it began. A follower
    /// has the process that writes do so. The same holds for a database that is restored from an older backup: make the
    /// copy anew. After a [`repair`](crate::repair) that found damage, every version from before it meets
    /// [`Error::ChangesGone`].
    ///
    /// [`ExpiryRule`]: crate::ExpiryRule
    /// [`Error::ChangesGone`]: crate::Error::ChangesGone
    pub fn changes(&self, since: Version) -> Changes {
        Changes {
            reader: ChangeReader::new(self.engine(), since.seq(), None),
            has_failed: false,
        }
    }
}

impl Database {
    /// The same changes in the order of their versions, in pages of `limit` changes (at least 1): for a queue, a log or a
    /// server that hands them out a piece at a time. [`ChangePage::position`] is where the next page goes on, in this reader or
    /// in a new one, also in the middle of a batch or of a bulk load, whose items have one version. To begin, and to go on
    /// where all up to a version was told, a [`Version`] is a position.
    ///
    /// ```
    /// use ebbtide::{Change, Options, Version};
    ///
    /// let db = Options::temporary()?;
    /// let orders = db.container("orders")?;
    /// for key in ["d", "b", "c", "a"] {
    ///     orders.put(key, "")?;
    /// }
    /// orders.delete("b")?;
    /// let (mut puts, mut position) = (vec![], Version::start().into());
    /// loop {
    ///     let Some(page) = db.changes_by_version(position, 2).next().transpose()? else { break };
    ///     for change in &page {
    ///         if let Change::Put { item, .. } = change {
    ///             puts.push(item.key()[0]);
    ///         }
    ///     }
    ///     position = page.position(); // plain data: stored with what was done
    /// }
    /// assert_eq!(puts, *b"dca"); // each key once, where it was written last
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The iterator ends when all up to the moment at which its first page was made was told; after that, the next call begins
    /// anew, as with [`Database::changes`], whose errors and promises about what is kept hold here too. The pages of one round
    /// are of one moment: applied together, they make the copy what the database was then; a single page does not, for of a
    /// key that was written again later only that write is told. The change of a container's settings stands at the last
    /// write that changed them.
    ///
    /// **Costs.** Tables are in the order of keys: each page goes through all that is newer than its position, and keeps the
    /// first `limit` changes in memory, with their values. So a large limit costs memory, and a small one time: following a
    /// database that is read up to date takes one page, and the first round of one with a million items takes as many
    /// passes as pages. [`Database::changes`] takes one.
    pub fn changes_by_version(
        &self,
        since: impl Into<ChangePosition>,
        limit: usize,
    ) -> ChangePages {
        ChangePages {
            reader: PageReader::new(self.engine(), since.into().0, limit),
            has_failed: false,
        }
    }
}

/// A position in the changes in the order of versions; see [`Database::changes_by_version`]. It is plain data, to be stored
/// by any format of serde.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ChangePosition(Position);

impl ChangePosition {
    /// All up to this version was told; perhaps more, of the next one.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.0.all_up_to())
    }
}

impl From<Version> for ChangePosition {
    /// Behind all changes of the version.
    fn from(version: Version) -> ChangePosition {
        ChangePosition(Position::behind(version.seq()))
    }
}

/// Changes in the order of their versions, in pages; see [`Database::changes_by_version`].
#[must_use = "it tells nothing until it is asked, and keeps what it is to tell"]
pub struct ChangePages {
    reader: PageReader,
    has_failed: bool,
}

impl ChangePages {
    /// The position behind the last page.
    #[must_use]
    pub fn position(&self) -> ChangePosition {
        ChangePosition(self.reader.position().clone())
    }
}

impl fmt::Debug for ChangePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangePages")
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

impl Iterator for ChangePages {
    type Item = Result<ChangePage>;

    /// The next page; `None` at the end of a round. An error ends it too: `None` follows, and then the same is tried again.
    fn next(&mut self) -> Option<Result<ChangePage>> {
        if std::mem::take(&mut self.has_failed) {
            return None;
        }
        let next = self.reader.next_page().transpose()?;
        self.has_failed = next.is_err();
        Some(next.map(|page| ChangePage {
            changes: page.changes,
            position: ChangePosition(page.position),
        }))
    }
}

/// Some changes in the order of their versions; a slice of them. See [`Database::changes_by_version`].
#[derive(Clone, Debug, PartialEq)]
pub struct ChangePage {
    changes: Vec<Change>,
    position: ChangePosition,
}

impl ChangePage {
    /// Where the next page goes on.
    #[must_use]
    pub fn position(&self) -> ChangePosition {
        self.position.clone()
    }

    /// All changes up to this version are in this page, or in those before it.
    #[must_use]
    pub fn version(&self) -> Version {
        self.position.version()
    }
}

impl Deref for ChangePage {
    type Target = [Change];

    fn deref(&self) -> &[Change] {
        &self.changes
    }
}

impl IntoIterator for ChangePage {
    type Item = Change;
    type IntoIter = std::vec::IntoIter<Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.changes.into_iter()
    }
}

impl<'a> IntoIterator for &'a ChangePage {
    type Item = &'a Change;
    type IntoIter = std::slice::Iter<'a, Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.changes.iter()
    }
}

impl Container {
    /// The changes of this container alone, as [`Database::changes`] tells them: nothing of the others is read. The
    /// drop of a container is told all the same, and versions are those of the whole database. The container is known
    /// by its name: one that is made anew, after this one was dropped, is told as made.
    ///
    /// ```
    /// use ebbtide::{Change, Database, Version};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (users, hits) = (db.container("users")?, db.container("hits")?);
    /// users.put("ada", "1815")?;
    /// hits.put("home", "17")?;
    /// let mut puts = vec![];
    /// for change in users.changes(Version::start()) {
    ///     if let Change::Put { item, .. } = change? {
    ///         puts.push(item.key().to_vec());
    ///     }
    /// }
    /// assert_eq!(puts, [b"ada"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changes(&self, since: Version) -> Changes {
        Changes {
            reader: ChangeReader::new(self.engine(), since.seq(), Some(self.name())),
            has_failed: false,
        }
    }
}

/// The changes since a version; see [`Database::changes`] and [`Container::changes`].
#[must_use = "it tells nothing until it is asked, and keeps what it is to tell"]
pub struct Changes {
    reader: ChangeReader,
    has_failed: bool,
}

impl Changes {
    /// All up to this version was told: where the last pass that is over began. To be stored, for [`Database::changes`].
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.reader.version())
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    /// The next change; `None` at the end of a pass. An error ends it too: `None` follows, and then the same is tried
    /// again.
    fn next(&mut self) -> Option<Result<Change>> {
        if std::mem::take(&mut self.has_failed) {
            return None;
        }
        let next = self.reader.next_change().transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }
}
