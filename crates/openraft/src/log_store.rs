//! The log of a group: openraft's entries, its vote, and how far entries are committed and purged.
//!
//! ```text
//! one database, log/, for all groups; in it a container for each, named as the group is:
//!     00 "committed"     postcard(LogId)       rides unsynced in the next sync
//!     00 "purged"        postcard(LogId)
//!     00 "vote"          postcard(Vote)        synced
//!     01 index (8, BE)   postcard(Entry)       synced: one sync for each append
//! ```
//!
//! Invariants:
//!
//! 1. Writes reach the log of the database in the order of the calls, and each call is one batch: after a power cut there is
//!    no hole, and whatever was acknowledged is there.
//! 2. `purged` and the entries that it stands for change in one batch. With [`LogStore::behind`] entries go only when the state
//!    holds them synced (I6): openraft has the entries that a snapshot covers purged while it is still being installed.
//! 3. [`Recent`] has the last entries, up to its limit, without a gap, as they are stored.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ebbtide::{Batch, Container, Database, Error, Options};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, ErrorVerb, LogId, LogState, OptionalSend, RaftLogId, RaftLogReader, RaftTypeConfig,
    StorageError, StorageIOError, Vote,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{of_log, of_vote, patiently};
use crate::shared::Durable;

/// Entries that stay in memory, encoded.
const RECENT_BYTES: usize = 16 << 20;
/// A message to a follower has entries of so many bytes, or one.
const MESSAGE_BYTES: usize = 1 << 20;

const COMMITTED: &[u8] = b"\0committed";
const PURGED: &[u8] = b"\0purged";
const VOTE: &[u8] = b"\0vote";

fn entry_key(index: u64) -> [u8; 9] {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&index.to_be_bytes());
    key
}

/// The last entries, encoded, without a gap.
#[derive(Default)]
struct Recent {
    first: u64,
    entries: VecDeque<Bytes>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, index: u64, entry: Bytes) {
        if index != self.first + self.entries.len() as u64 {
            *self = Recent::default();
        }
        if self.entries.is_empty() {
            self.first = index;
        }
        self.bytes += entry.len();
        self.entries.push_back(entry);
        while self.bytes > RECENT_BYTES {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.first += 1;
            self.bytes -= entry.len();
        }
    }

    fn truncate(&mut self, since: u64) {
        while self.first + self.entries.len() as u64 > since {
            match self.entries.pop_back() {
                Some(entry) => self.bytes -= entry.len(),
                None => break,
            }
        }
    }

    fn purge(&mut self, up_to: u64) {
        while !self.entries.is_empty() && self.first <= up_to {
            self.pop_front();
        }
    }

    /// Those of a range, and where they begin.
    fn range(&self, start: u64, end: u64) -> (u64, Vec<Bytes>) {
        let start = start.max(self.first);
        let skipped = (start - self.first).min(self.entries.len() as u64) as usize;
        let wanted = end.saturating_sub(start).min(self.entries.len() as u64) as usize;
        let entries = self.entries.iter().skip(skipped).take(wanted);
        (start, entries.cloned().collect())
    }
}

struct Group {
    db: Database,
    entries: Container,
    recent: Mutex<Recent>,
}

/// The log of a group, as openraft asks for it; see the file's head for what is stored. Clones are the same log.
///
/// Entries are encoded by [postcard]: a program's own types are to be read back by it (no `untagged` enums, and nothing that is
/// skipped).
///
/// Where the disk is full, or memory or descriptors run out, a call waits and tries again.
///
/// [postcard]: https://docs.rs/postcard
pub struct LogStore<C: RaftTypeConfig> {
    group: Arc<Group>,
    behind: Option<Durable<C>>,
    config: PhantomData<C>,
}

impl<C: RaftTypeConfig> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        LogStore {
            group: self.group.clone(),
            behind: self.behind.clone(),
            config: PhantomData,
        }
    }
}

impl<C: RaftTypeConfig> Debug for LogStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStore")
            .field("group", &self.group.entries.name())
            .finish_non_exhaustive()
    }
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// The options of the database: it is synced when an entry or a vote asks for it, and every 60 s. The rest may be changed.
    pub fn options() -> Options {
        Options::new().sync_interval(std::time::Duration::from_secs(60))
    }

    /// The log of a group, in the container of its name, which is made if it is missing. All groups of a node share the
    /// database, and with it its syncs.
    ///
    /// # Errors
    /// Those of [`Database::container`].
    pub fn new(db: &Database, group: &str) -> Result<LogStore<C>, Error> {
        Ok(LogStore {
            group: Arc::new(Group {
                db: db.clone(),
                entries: db.container(group)?,
                recent: Mutex::default(),
            }),
            behind: None,
            config: PhantomData,
        })
    }

    /// Entries are purged only when this state holds them synced ([`StateStore::durable`](crate::StateStore::durable)): a purge
    /// waits for it, and fails if the state is gone. Without it a power cut during the installation of a snapshot may leave a
    /// state without the entries that lead on from it.
    #[must_use]
    pub fn behind(mut self, state: Durable<C>) -> LogStore<C> {
        self.behind = Some(state);
        self
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        let recent = self.group.recent.lock();
        recent.unwrap_or_else(PoisonError::into_inner)
    }

    fn note<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, AnyError> {
        let value = self.group.entries.get(key).map_err(|e| AnyError::new(&e))?;
        let decode = |value: ebbtide::Value| postcard::from_bytes(&value);
        let note = value.map(decode).transpose();
        note.map_err(|e| {
            AnyError::new(&e).add_context(|| format!("{} cannot be decoded", key.escape_ascii()))
        })
    }

    fn read_note<T: DeserializeOwned>(
        &self,
        key: &[u8],
    ) -> Result<Option<T>, StorageError<C::NodeId>> {
        self.note(key)
            .map_err(|e| StorageIOError::read_logs(e).into())
    }

    fn decode(entry: &[u8]) -> Result<C::Entry, StorageError<C::NodeId>> {
        postcard::from_bytes(entry).map_err(|e| of_log(ErrorVerb::Read, &e))
    }

    /// Entries from `start`, below `end`; no more when there are so many bytes, but at least one, if there is one.
    fn read(
        &self,
        start: u64,
        end: u64,
        most_bytes: usize,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        if start >= end {
            return Ok(vec![]);
        }
        let (from, recent) = self.recent().range(start, end);
        let stored_end = if recent.is_empty() { end } else { from };
        let (mut read, mut bytes) = (vec![], 0);
        if start < stored_end {
            for item in self
                .group
                .entries
                .range(entry_key(start)..entry_key(stored_end))
            {
                let item = item.map_err(|e| of_log(ErrorVerb::Read, &e))?;
                bytes += item.value().len();
                if bytes > most_bytes && !read.is_empty() {
                    return Ok(read);
                }
                read.push(Self::decode(item.value())?);
            }
        }
        for entry in recent {
            bytes += entry.len();
            if bytes > most_bytes && !read.is_empty() {
                break;
            }
            read.push(Self::decode(&entry)?);
        }
        Ok(read)
    }

    /// Writes without a sync.
    async fn write(&self, batch: &Batch) -> Result<(), StorageError<C::NodeId>> {
        let written = patiently::<C, _>(|| self.group.db.write(batch)).await;
        written.map_err(|e| of_log(ErrorVerb::Write, &e))
    }

    async fn sync(&self) -> Result<(), Error> {
        let (done, synced) = tokio::sync::oneshot::channel();
        self.group.db.sync_then(move |result| {
            let _ = done.send(result);
        });
        synced.await.unwrap_or(Err(Error::Closed))
    }

    fn encode(value: &impl Serialize) -> Result<Vec<u8>, StorageError<C::NodeId>> {
        postcard::to_allocvec(value).map_err(|e| of_log(ErrorVerb::Write, &e))
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, end, usize::MAX)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.read(start, end, MESSAGE_BYTES)
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogStore<C>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        let last_purged_log_id: Option<LogId<C::NodeId>> = self.read_note(PURGED)?;
        let last = self.group.entries.range(entry_key(0)..).next_back();
        let last = last.transpose().map_err(|e| of_log(ErrorVerb::Read, &e))?;
        let last_log_id = match last {
            Some(item) => Some(Self::decode(item.value())?.get_log_id().clone()),
            None => last_purged_log_id.clone(),
        };
        Ok(LogState {
            last_purged_log_id,
            last_log_id,
        })
    }

    async fn get_log_reader(&mut self) -> LogStore<C> {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let mut batch = Batch::new();
        batch.put(&self.group.entries, VOTE, Self::encode(vote)?);
        self.write(&batch).await?;
        self.sync().await.map_err(|e| of_vote(ErrorVerb::Write, &e))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        self.note(VOTE)
            .map_err(|e| StorageIOError::read_vote(e).into())
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let mut batch = Batch::new();
        match committed {
            Some(committed) => batch.put(&self.group.entries, COMMITTED, Self::encode(&committed)?),
            None => batch.delete(&self.group.entries, COMMITTED),
        };
        self.write(&batch).await
    }

    async fn read_committed(
        &mut self,
    ) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        self.read_note(COMMITTED)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<C>,
    ) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut batch = Batch::new();
        let mut encoded = vec![];
        for entry in entries {
            let index = entry.get_log_id().index;
            let bytes = Bytes::from(Self::encode(&entry)?);
            batch.put(&self.group.entries, entry_key(index), &bytes);
            encoded.push((index, bytes));
        }
        self.write(&batch).await?;
        let mut recent = self.recent();
        for (index, bytes) in encoded {
            recent.push(index, bytes);
        }
        drop(recent);
        self.group.db.sync_then(move |synced| {
            callback.log_io_completed(synced.map_err(std::io::Error::from));
        });
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let mut batch = Batch::new();
        batch.delete_range(&self.group.entries, entry_key(log_id.index)..);
        self.write(&batch).await?;
        self.recent().truncate(log_id.index);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        if let Some(state) = &mut self.behind {
            let held = state.wait_for(&log_id).await;
            held.map_err(|e| of_log(ErrorVerb::Delete, &e))?;
        }
        let mut batch = Batch::new();
        let entries = &self.group.entries;
        batch.put(entries, PURGED, Self::encode(&log_id)?);
        batch.delete_range(entries, entry_key(0)..=entry_key(log_id.index));
        self.write(&batch).await?;
        self.recent().purge(log_id.index);
        Ok(())
    }
}
