//! Reads of a state, beside apply.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Error, Item};
use openraft::{LogId, RaftTypeConfig};

use crate::checks::is_reserved;
use crate::entry::OpId;
use crate::facts::{Facts, SERVED};
use crate::shared::{Open, Shared};

/// How far a state has got.
pub struct Moment<C: RaftTypeConfig> {
    /// The last entry that was applied.
    pub applied: Option<LogId<C::NodeId>>,
    /// The time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The next leader's time begins no earlier; in milliseconds since 1970.
    pub until_ms: u64,
    /// The format of the log.
    pub format: u32,
}

impl<C: RaftTypeConfig> Moment<C> {
    pub(crate) fn of(facts: &Facts<C::NodeId>) -> Moment<C> {
        Moment {
            applied: facts.applied.clone(),
            time_ms: facts.time_ms,
            until_ms: facts.until_ms,
            format: facts.format,
        }
    }
}

impl<C: RaftTypeConfig> Clone for Moment<C> {
    fn clone(&self) -> Self {
        Moment {
            applied: self.applied.clone(),
            ..*self
        }
    }
}

impl<C: RaftTypeConfig> Debug for Moment<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moment")
            .field("applied", &self.applied)
            .field("time_ms", &self.time_ms)
            .field("until_ms", &self.until_ms)
            .field("format", &self.format)
            .finish()
    }
}

/// Reads of a state. Cheap to clone; each read is of the state that counts at its moment, also after a snapshot has come.
pub struct Reader<C: RaftTypeConfig> {
    pub(crate) shared: Arc<Shared<C>>,
}

impl<C: RaftTypeConfig> Clone for Reader<C> {
    fn clone(&self) -> Self {
        Reader {
            shared: self.shared.clone(),
        }
    }
}

impl<C: RaftTypeConfig> Debug for Reader<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("moment", &self.moment())
            .finish()
    }
}

/// An item, or none, and the moment by which that was judged.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The item.
    pub item: Option<Item>,
    /// In milliseconds since 1970.
    pub at_ms: u64,
}

impl<C: RaftTypeConfig> Reader<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>) -> Reader<C> {
        Reader { shared }
    }

    /// How far the state has got.
    pub fn moment(&self) -> Moment<C> {
        self.shared.moment.borrow().clone()
    }

    /// The format of the log, as far as it is applied.
    pub fn format(&self) -> u32 {
        self.shared.moment.borrow().format
    }

    /// An index that no answer of this reader which is there already has seen beyond. It may be the next after that of
    /// [`Reader::moment`]: of an entry that is being applied, of which reads can show something by now.
    pub fn seen(&self) -> u64 {
        self.shared.begun()
    }

    /// Waits until an entry of this index, or a later one, is applied.
    pub async fn applied(&self, index: u64) -> Moment<C> {
        let mut moments = self.shared.moment.subscribe();
        let is_there = |moment: &Moment<C>| {
            let applied = moment.applied.as_ref();
            applied.is_some_and(|applied| applied.index >= index)
        };
        match moments.wait_for(is_there).await {
            Ok(moment) => moment.clone(),
            Err(_) => unreachable!("the sender is ours, too"),
        }
    }

    /// The reason why apply waits, if it does: want of room, memory, descriptors or flushing. Such a node is not ready.
    pub fn waits_for(&self) -> Option<Error> {
        self.shared.waits_for()
    }

    /// An item as of a moment that is not before this one, in milliseconds since 1970; 0: as of what is applied. An answer's own
    /// moment is in it.
    ///
    /// # Errors
    /// Those of the engine, and a container that is not there.
    pub fn get(&self, container: &str, key: impl AsRef<[u8]>, at_ms: u64) -> Result<Shown, Error> {
        let open = self.shared.open();
        let asked = at_ms.max(millis(open.db.now()));
        let item = container_of(&open, container)?.item(key.as_ref())?;
        if millis(open.db.now()) <= asked {
            // The read has judged by an earlier time, perhaps.
            let is_live = |item: &Item| item.expires_at().is_none_or(|end| millis(end) > asked);
            return Ok(Shown {
                item: item.filter(is_live),
                at_ms: asked,
            });
        }
        // Entries have come of which the read may have seen none, or the first ones: it has no moment.
        let view = self.view(asked);
        Ok(Shown {
            item: view.container(container)?.item(key)?,
            at_ms: view.at_ms,
        })
    }

    /// Whether an op of this id was applied in the last minutes, so that it would be answered as it was then. `false` where it
    /// cannot be told.
    #[must_use]
    pub fn has_answered(&self, id: OpId) -> bool {
        let served = container_of(&self.shared.open(), SERVED);
        served.is_ok_and(|served| served.contains(id.key()).unwrap_or(false))
    }

    /// A snapshot for scans and counts, all of it judged at one moment: this one, in milliseconds since 1970, or the state's time
    /// if that is later. It holds purges back as long as it is open.
    pub fn view(&self, at_ms: u64) -> View {
        let open = self.shared.open();
        loop {
            let at_ms = at_ms.max(millis(open.db.now()));
            let view = View::of(&open, at_ms);
            // It is of a later moment where time has moved past this one before it was taken.
            if millis(open.db.now()) <= at_ms {
                return view;
            }
        }
    }

    /// Whether there is a container of this name, as of what is applied.
    pub fn has_container(&self, name: &str) -> bool {
        !is_reserved(name) && self.shared.open().containers().contains_key(name)
    }

    /// Whether items will end, or have ended and still take space: then time is to go on, by ticks where nobody writes. By
    /// estimates of this replica.
    pub fn will_expire(&self) -> bool {
        let open = self.shared.open();
        let containers = open.containers();
        let mut containers = containers.values();
        containers
            .any(|container| !container.due().is_empty() || container.stats().expired_bytes > 0)
    }

    /// The names of the containers, but for the crate's own, in their order; as of what is applied.
    pub fn containers(&self) -> Vec<String> {
        let containers = self.shared.open().containers();
        let names = containers.keys().map(|name| name.to_string());
        let mut names: Vec<String> = names.filter(|name| !is_reserved(name)).collect();
        names.sort();
        names
    }

    /// The default ttl of a container, as of what is applied.
    ///
    /// # Errors
    /// A container that is not there.
    pub fn default_ttl(&self, container: &str) -> Result<ebbtide::DefaultTtl, Error> {
        Ok(container_of(&self.shared.open(), container)?.default_ttl())
    }

    /// The quota of a container, as of what is applied: [`Commands::set_quota`](crate::Commands::set_quota).
    pub fn quota(&self, container: &str) -> Option<ebbtide::Quota> {
        self.shared.open().quotas().get(container).copied()
    }

    /// Whether any container has a quota, as of what is applied.
    pub fn has_quotas(&self) -> bool {
        !self.shared.open().quotas().is_empty()
    }

    /// Writes the state's memtables to tables.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn flush(&self) -> Result<(), Error> {
        self.shared.open().db.flush()
    }

    /// Closes the state's database. Whatever reads or applies after that gets [`Error::Closed`].
    ///
    /// # Errors
    /// Those of [`Database::close`](ebbtide::Database::close).
    pub fn close(&self) -> Result<(), Error> {
        self.shared.open().db.close()
    }

    /// The state's database as of now, for figures: whoever writes it parts this replica from the others.
    #[doc(hidden)]
    pub fn database(&self) -> ebbtide::Database {
        self.shared.open().db.clone()
    }

    /// A container of the state's database, likewise.
    #[doc(hidden)]
    pub fn container(&self, name: &str) -> Option<ebbtide::Container> {
        let found = self.shared.open().containers().get(name).cloned();
        found.filter(|_| !is_reserved(name))
    }

    /// Figures of the state's database.
    pub fn stats(&self) -> ebbtide::Stats {
        self.shared.open().db.stats()
    }
}

pub(crate) fn container_of(open: &Open, name: &str) -> Result<ebbtide::Container, Error> {
    let found = open.containers().get(name).cloned();
    found.ok_or_else(|| Error::InvalidArgument {
        what: "container name",
        given: name.to_owned(),
        allowed: "one that the machine has named, or an entry has made",
    })
}

pub(crate) fn millis(moment: SystemTime) -> u64 {
    moment
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64
}

/// A snapshot of a state at one moment.
pub struct View {
    snapshot: ebbtide::Snapshot,
    /// The moment, in milliseconds since 1970.
    pub at_ms: u64,
    _open: Arc<Open>,
}

impl View {
    /// At this moment, or at the state's time if that is later.
    pub(crate) fn of(open: &Arc<Open>, at_ms: u64) -> View {
        let at = UNIX_EPOCH + Duration::from_millis(at_ms);
        View {
            snapshot: open.db.snapshot_at(at),
            at_ms,
            _open: open.clone(),
        }
    }
}

impl Deref for View {
    type Target = ebbtide::Snapshot;

    fn deref(&self) -> &ebbtide::Snapshot {
        &self.snapshot
    }
}
