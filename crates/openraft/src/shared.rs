//! The part of a state that apply, snapshots and readers share.
//!
//! Invariants:
//!
//! 1. A state that a snapshot has replaced is closed, and its folder goes, when nobody reads it any more.
//! 2. `begun` is the index of an entry, or of a snapshot, before anything of it can be read; so no answer has seen a later one than
//!    it says right after.
//! 3. [`Synced`] has an entry that the state holds synced. It only goes ahead, after a sync (I6).

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ebbtide::{ContainerOptions, Database, Error};
use openraft::{LogId, RaftTypeConfig};
use tokio::sync::watch;

use crate::facts::{self, Facts, Quotas};
use crate::folder::Folder;
use crate::machine::Containers;
use crate::reader::Moment;
use crate::snapshot::SnapshotIds;

/// A database of a state. When a snapshot has taken its place it goes with its last reader.
pub(crate) struct Open {
    pub(crate) db: Database,
    containers: RwLock<Arc<Containers>>,
    quotas: RwLock<Arc<Quotas>>,
    retired: Mutex<bool>,
}

impl Open {
    pub(crate) fn new(
        db: Database,
        named: Vec<(&'static str, ContainerOptions)>,
    ) -> Result<Open, Error> {
        let containers = facts::containers(&db, named)?;
        Ok(Open {
            quotas: RwLock::new(Arc::new(facts::quotas(&db)?)),
            db,
            containers: RwLock::new(Arc::new(containers)),
            retired: Mutex::new(false),
        })
    }

    pub(crate) fn containers(&self) -> Arc<Containers> {
        let containers = self.containers.read();
        containers.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn quotas(&self) -> Arc<Quotas> {
        let quotas = self.quotas.read();
        quotas.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An entry has made or dropped a container, or set a quota.
    pub(crate) fn find_containers(&self) -> Result<(), Error> {
        let found = Arc::new(facts::quotas(&self.db)?);
        *self.quotas.write().unwrap_or_else(PoisonError::into_inner) = found;
        let found = Arc::new(facts::opened(&self.db)?);
        let containers = self.containers.write();
        *containers.unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    fn retire(&self) {
        *self.retired.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if *self
            .retired
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
        {
            let folder = self.db.path().map(Path::to_owned);
            let _ = self.db.close();
            // The rest goes at the next start.
            folder.map(std::fs::remove_dir_all);
        }
    }
}

/// Shared by apply, snapshots and readers.
pub(crate) struct Shared<C: RaftTypeConfig> {
    pub(crate) folder: Option<Folder>,
    open: RwLock<Arc<Open>>,
    pub(crate) moment: watch::Sender<Moment<C>>,
    begun: AtomicU64,
    snapshots: Mutex<SnapshotIds<C>>,
    waits_for: Mutex<Option<Error>>,
}

impl<C: RaftTypeConfig> Shared<C> {
    pub(crate) fn new(folder: Option<Folder>, open: Open, known: &Facts<C::NodeId>) -> Shared<C> {
        Shared {
            folder,
            open: RwLock::new(Arc::new(open)),
            moment: watch::Sender::new(Moment::of(known)),
            begun: AtomicU64::new(known.applied.as_ref().map_or(0, |last| last.index)),
            snapshots: Mutex::new(SnapshotIds::new()),
            waits_for: Mutex::new(None),
        }
    }

    pub(crate) fn waits_for(&self) -> Option<Error> {
        let error = self.waits_for.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The entry of this index, or a snapshot up to it, is about to change what is read.
    pub(crate) fn begin(&self, index: u64) {
        self.begun.store(index, Ordering::SeqCst);
    }

    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> Arc<Open> {
        self.open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn replace(&self, open: Open) {
        let mut current = self.open.write().unwrap_or_else(PoisonError::into_inner);
        current.retire();
        *current = Arc::new(open);
    }

    pub(crate) fn wait_for(&self, error: Option<Error>) {
        *self
            .waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = error;
    }

    pub(crate) fn snapshots(&self) -> MutexGuard<'_, SnapshotIds<C>> {
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says how far a state is synced. The state has it, and what builds snapshots of it, and no reader: what waits for a state that is
/// gone is to hear that.
pub(crate) struct Synced<C: RaftTypeConfig>(Arc<watch::Sender<Option<LogId<C::NodeId>>>>);

impl<C: RaftTypeConfig> Clone for Synced<C> {
    fn clone(&self) -> Self {
        Synced(self.0.clone())
    }
}

impl<C: RaftTypeConfig> Synced<C> {
    pub(crate) fn new(applied: Option<LogId<C::NodeId>>) -> Synced<C> {
        Synced(Arc::new(watch::Sender::new(applied)))
    }

    /// The state was synced when this entry was applied.
    pub(crate) fn tell(&self, applied: Option<LogId<C::NodeId>>) {
        self.0.send_if_modified(|durable| {
            let is_later = applied > *durable;
            if is_later {
                *durable = applied;
            }
            is_later
        });
    }

    pub(crate) fn durable(&self) -> Durable<C> {
        Durable(self.0.subscribe())
    }
}

/// How far a state is synced, for [`LogStore::behind`](crate::LogStore::behind).
pub struct Durable<C: RaftTypeConfig>(watch::Receiver<Option<LogId<C::NodeId>>>);

impl<C: RaftTypeConfig> Clone for Durable<C> {
    fn clone(&self) -> Self {
        Durable(self.0.clone())
    }
}

impl<C: RaftTypeConfig> Durable<C> {
    /// Waits until the state holds this entry synced; an error: it is gone.
    pub(crate) async fn wait_for(&mut self, entry: &LogId<C::NodeId>) -> std::io::Result<()> {
        let held = self
            .0
            .wait_for(|durable| durable.as_ref() >= Some(entry))
            .await;
        held.map(drop).map_err(std::io::Error::other)
    }
}
