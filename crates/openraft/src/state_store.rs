//! The state of a group: a database in given time, moved on by the entries of the log alone.
//!
//! ```text
//! apply(entry):  1  of another leader: time = max(time, until)
//!                2  time = max(time, stamp); until = max(until, entry.until, time); db.advance_to(time)
//!                3  each op: a repeated id is answered as before; else the machine reads, decides, writes
//!                4  one batch: writes, answers by id, facts; not synced: the log of the group is its log
//! ```
//!
//! Invariants:
//!
//! 1. Apply answers by a function of (state, entry). For want of room, memory, descriptors or flushing it waits and tries again;
//!    all else that fails stops the node.
//! 2. Only apply, and the installation of a snapshot, write. So the versions of items agree on all replicas.
//! 3. An entry is of no later format than an entry before it has begun, and nothing of a format that the machine does not speak is
//!    applied: the node stops (I10).
//! 4. Purges go no further than the last entry's time and the node's own settled wall clock (`purges`, I4).

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ebbtide::{Batch, Clock, Database, Error, Options, Stall, SystemClock, Version};
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EntryPayload, ErrorVerb, LogId, NodeId, OptionalSend, RaftTypeConfig, Snapshot,
    SnapshotMeta, StorageError, StoredMembership,
};

use crate::builder::SnapshotBuilder;
use crate::entry::{Answer, Applied, Entry, FORMAT, Op, SERVED_MS};
use crate::facts::{self, FACTS, Facts, SERVED, unspoken};
use crate::failure::{Pauses, of_apply, of_snapshot, of_state, patiently};
use crate::folder::Folder;
use crate::machine::{Machine, Place, Step};
use crate::purges::Purges;
use crate::reader::{Moment, Reader};
use crate::shared::{Durable, Open, Shared, Synced};
use crate::snapshot::SnapshotData;

/// How a [`StateStore`] is opened.
#[derive(Clone)]
pub struct StateOptions {
    /// Of its database. Given time, no waits for flushing, a sync every 60 s and `reclaim_within` are added to them.
    pub options: Options,
    /// See [`Options::reclaim_within`]: an eighth of it is how often purges are allowed to go further, and an entry is to be there
    /// for that: the leader proposes a tick where nobody writes.
    pub reclaim_within: Duration,
    /// The node's own clock, beyond which nothing is purged; apply does not see it.
    pub clock: Arc<dyn Clock>,
    /// A snapshot is sent at no more than so many bytes a second, to all who get the same one together; 0 counts as 1. Beside
    /// [`Options::background_rate`], which merging and reclaiming keep to. Default 256 MiB.
    pub snapshot_rate: u64,
}

impl Default for StateOptions {
    fn default() -> Self {
        StateOptions {
            options: Options::new(),
            reclaim_within: Duration::from_secs(3_600),
            clock: Arc::new(SystemClock),
            snapshot_rate: 256 << 20,
        }
    }
}

impl Debug for StateOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateOptions")
            .field("options", &self.options)
            .field("reclaim_within", &self.reclaim_within)
            .field("snapshot_rate", &self.snapshot_rate)
            .finish_non_exhaustive()
    }
}

impl StateOptions {
    fn database(&self) -> Options {
        let options = self.options.clone().given_time();
        let options = options.reclaim_within(self.reclaim_within);
        options
            .on_stall(Stall::Fail)
            .sync_interval(Duration::from_secs(60))
    }
}

/// The state of a group, as openraft asks for it: `C::D` is [`Entry`] of the machine's ops, `C::R` is [`Applied`], `C::Entry`
/// openraft's own, and `C::SnapshotData` is [`SnapshotData`]. See the file's head for the rules.
pub struct StateStore<C: RaftTypeConfig, M> {
    shared: Arc<Shared<C>>,
    synced: Synced<C>,
    machine: M,
    options: StateOptions,
    facts: Facts<C::NodeId>,
    /// The version of the last write.
    version: Version,
    membership: StoredMembership<C::NodeId, C::Node>,
    purges: Purges,
}

impl<C: RaftTypeConfig, M> Debug for StateStore<C, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateStore")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

fn io(error: &std::io::Error) -> AnyError {
    AnyError::new(error)
}

impl<C: RaftTypeConfig, M: Machine> StateStore<C, M> {
    /// Opens the state in a group's folder, and makes it if it is missing. What a killed process left of snapshots there goes.
    ///
    /// # Errors
    /// Those of the engine and of files; and a state of a later format.
    pub fn open(
        folder: impl AsRef<Path>,
        machine: M,
        options: StateOptions,
    ) -> Result<StateStore<C, M>, AnyError> {
        let (folder, state) = Folder::open(folder.as_ref()).map_err(|e| io(&e))?;
        let db = options
            .database()
            .open(state)
            .map_err(|e| AnyError::new(&e))?;
        Self::with(Some(folder), db, machine, options)
    }

    /// The state in a database that is open in given time. It has no folder for snapshots, and neither sends nor takes any.
    ///
    /// # Errors
    /// As of [`StateStore::open`].
    pub fn over(
        db: Database,
        machine: M,
        options: StateOptions,
    ) -> Result<StateStore<C, M>, AnyError> {
        Self::with(None, db, machine, options)
    }

    fn with(
        folder: Option<Folder>,
        db: Database,
        machine: M,
        options: StateOptions,
    ) -> Result<Self, AnyError> {
        let open = Open::new(db, machine.containers()).map_err(|e| AnyError::new(&e))?;
        let (known, membership) = facts::read::<C::NodeId, C::Node>(&open.db)?;
        known.check(machine.format())?;
        open.db.sync().map_err(|e| AnyError::new(&e))?;
        let version = last_version(&open.db).map_err(|e| AnyError::new(&e))?;
        let shared = Shared::new(folder, open, &known);
        Ok(StateStore {
            shared: Arc::new(shared),
            synced: Synced::new(known.applied.clone()),
            machine,
            purges: Purges::new(&options),
            options,
            facts: known,
            version,
            membership,
        })
    }

    /// Reads of it; good while the store is.
    pub fn reader(&self) -> Reader<C> {
        Reader::new(self.shared.clone())
    }

    /// How far it is synced.
    pub fn durable(&self) -> Durable<C> {
        self.synced.durable()
    }
}

fn last_version(db: &Database) -> Result<Version, Error> {
    Ok(db.commit(Batch::new())?.version())
}

/// An entry that was tried.
struct Tried<A> {
    batch: Batch,
    answers: Vec<Answer<A>>,
    changes_containers: bool,
    /// The log's after it.
    format: u32,
}

/// An entry that is written.
struct Done<A, N: NodeId> {
    facts: Facts<N>,
    answers: Vec<Answer<A>>,
    version: Version,
    changes_containers: bool,
}

impl<C, M> StateStore<C, M>
where
    C: RaftTypeConfig<D = Entry<M::Op>, R = Applied<M::Answer>, Entry = openraft::Entry<C>>,
    M: Machine,
{
    /// Asks the machine for each op, and gathers what is to be written.
    fn attempt(
        &self,
        next: &Facts<C::NodeId>,
        entry: &C::Entry,
        open: &Arc<Open>,
    ) -> Result<Tried<M::Answer>, Error> {
        let EntryPayload::Normal(Entry { ops, .. }) = &entry.payload else {
            return Ok(Tried {
                batch: Batch::new(),
                answers: vec![],
                changes_containers: false,
                format: next.format,
            });
        };
        let index = entry.log_id.index;
        let members_at = self.membership.log_id().as_ref();
        let place = Place {
            time_ms: next.time_ms,
            index,
            is_alone: ops.len() == 1,
            before: self.version,
            format: next.format,
            members_at: members_at.map_or(0, |log_id| log_id.index),
        };
        let containers = open.containers();
        let mut step = Step::new(open, &containers, place);
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            answers.push(self.answer(op, next.time_ms, index, &mut step)?);
        }
        Ok(Tried {
            answers,
            changes_containers: step.changes_containers(),
            format: step.format(),
            batch: step.into_batch(),
        })
    }

    fn answer(
        &self,
        op: &Op<M::Op>,
        at_ms: u64,
        index: u64,
        step: &mut Step<'_>,
    ) -> Result<Answer<M::Answer>, Error> {
        let answer = |outcome| Answer {
            index,
            at_ms,
            outcome,
        };
        let Some(id) = &op.id else {
            let outcome = step.run(|step| self.machine.apply(&op.body, step))?;
            return Ok(answer(outcome));
        };
        if let Err(refused) = id.check(at_ms) {
            return Ok(answer(Err(refused)));
        }
        let served = step.run(|step| step.get(SERVED, id.key()))?;
        if let Ok(Some(served)) = served {
            return postcard::from_bytes(&served.value).map_err(|_| undecodable());
        }
        let outcome = step.run(|step| self.machine.apply(&op.body, step))?;
        let answer = answer(outcome);
        let bytes = postcard::to_allocvec(&answer).map_err(|_| undecodable())?;
        let kept = step
            .run_own(|step| step.put(SERVED, id.key(), bytes, Duration::from_millis(SERVED_MS)))?;
        debug_assert!(kept.is_ok(), "{kept:?}");
        Ok(answer)
    }

    /// The stamp and the until of an entry that may be applied now.
    fn moments(&self, entry: &C::Entry) -> Result<Option<(u64, u64)>, AnyError> {
        let last = self.facts.applied.as_ref();
        if last.is_some_and(|last| last.index >= entry.log_id.index) {
            return Err(AnyError::error("it is applied already"));
        }
        match &entry.payload {
            EntryPayload::Normal(entry) => {
                self.check_format(entry)?;
                Ok(Some((entry.stamp_ms, entry.until_ms)))
            }
            EntryPayload::Blank | EntryPayload::Membership(_) => Ok(None),
        }
    }

    fn check_format(&self, entry: &Entry<M::Op>) -> Result<(), AnyError> {
        let of_ops = entry.ops.iter().map(|op| self.machine.format_of(&op.body));
        let (needed, speaks) = (of_ops.fold(entry.format, u32::max), self.machine.format());
        if needed > speaks {
            return Err(unspoken("entry", needed, speaks));
        }
        match (FORMAT..=self.facts.format).contains(&entry.format) {
            true => Ok(()),
            false => Err(AnyError::error(format!(
                "the entry is of format {}, and the log before it of format {}",
                entry.format, self.facts.format
            ))),
        }
    }

    /// Steps 3 and 4.
    fn write(
        &self,
        next: &Facts<C::NodeId>,
        membership: Option<&StoredMembership<C::NodeId, C::Node>>,
        entry: &C::Entry,
        open: &Arc<Open>,
    ) -> Result<Done<M::Answer, C::NodeId>, Error> {
        let facts = &open.containers()[FACTS];
        let mut tried = self.attempt(next, entry, open)?;
        let next = Facts {
            format: tried.format,
            ..next.clone()
        };
        let batch = &mut tried.batch;
        let added = next.write(facts, batch);
        added.map_err(|_| undecodable())?;
        if let Some(new) = membership {
            let added = facts::write_membership(new, facts, batch);
            added.map_err(|_| undecodable())?;
        }
        let version = open.db.commit(&*batch)?.version();
        Ok(Done {
            facts: next,
            answers: tried.answers,
            version,
            changes_containers: tried.changes_containers,
        })
    }

    async fn apply_one(
        &mut self,
        entry: C::Entry,
    ) -> Result<Applied<M::Answer>, StorageError<C::NodeId>> {
        let log_id = entry.log_id.clone();
        let fatal = |error| of_apply(log_id.clone(), error);
        let next = self
            .facts
            .after(&log_id, self.moments(&entry).map_err(fatal)?);
        let membership = match &entry.payload {
            EntryPayload::Membership(new) => Some(new.clone()),
            _ => None,
        };
        let membership = membership.map(|new| StoredMembership::new(Some(log_id.clone()), new));
        let open = self.shared.open();
        self.shared.begin(log_id.index);
        let time = UNIX_EPOCH + Duration::from_millis(next.time_ms);
        let moved = open.db.advance_to(time);
        moved.map_err(|e| fatal(AnyError::new(&e)))?;
        let mut pauses = Pauses::new();
        let done = loop {
            match self.write(&next, membership.as_ref(), &entry, &open) {
                Ok(done) => break done,
                Err(error) if error.is_retryable() => {
                    self.shared.wait_for(Some(error));
                    pauses.wait::<C>().await;
                }
                Err(error) => return Err(fatal(AnyError::new(&error))),
            }
        };
        self.shared.wait_for(None);
        if done.changes_containers {
            let found = patiently::<C, _>(|| open.find_containers()).await;
            found.map_err(|e| fatal(AnyError::new(&e)))?;
        }
        (self.facts, self.version) = (done.facts, done.version);
        if let Some(new) = membership {
            self.membership = new;
        }
        Ok(Applied {
            index: log_id.index,
            at_ms: self.facts.time_ms,
            answers: done.answers,
        })
    }
}

/// An answer that its own type does not encode: a fault of the program.
fn undecodable() -> Error {
    Error::InvalidArgument {
        what: "answer",
        given: "one that postcard does not encode and decode".to_owned(),
        allowed: "types that postcard encodes and decodes",
    }
}

impl<C, M> RaftStateMachine<C> for StateStore<C, M>
where
    C: RaftTypeConfig<
            D = Entry<M::Op>,
            R = Applied<M::Answer>,
            Entry = openraft::Entry<C>,
            SnapshotData = SnapshotData,
        >,
    M: Machine,
{
    type SnapshotBuilder = SnapshotBuilder<C>;

    async fn applied_state(
        &mut self,
    ) -> Result<
        (
            Option<LogId<C::NodeId>>,
            StoredMembership<C::NodeId, C::Node>,
        ),
        StorageError<C::NodeId>,
    > {
        Ok((self.facts.applied.clone(), self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut applied = vec![];
        for entry in entries {
            applied.push(self.apply_one(entry).await?);
            self.shared.moment.send_replace(Moment::of(&self.facts));
        }
        let open = self.shared.open();
        if let Some(limit) = self.purges.due(self.facts.time_ms) {
            let limit = UNIX_EPOCH + Duration::from_millis(limit);
            let set = patiently::<C, _>(|| open.db.set_purge_limit(limit)).await;
            set.map_err(|e| of_state(ErrorVerb::Write, &e))?;
            self.synced.tell(self.facts.applied.clone());
        }
        Ok(applied)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<C> {
        SnapshotBuilder::new(self.shared.clone(), self.synced.clone())
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<SnapshotData>, StorageError<C::NodeId>> {
        let folder = self.shared.folder.as_ref();
        let path = folder.map(|folder| folder.fresh("receiving"));
        let receiving = SnapshotData::receive(path.as_deref());
        let receiving = receiving.map_err(|e| of_snapshot(ErrorVerb::Write, &e))?;
        Ok(Box::new(receiving))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<SnapshotData>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let state = self.take_in(meta, *snapshot).await;
        let (open, known, membership) =
            state.map_err(|e| of_snapshot(ErrorVerb::Write, &std::io::Error::other(e)))?;
        let version = last_version(&open.db);
        self.version = version.map_err(|e| of_snapshot(ErrorVerb::Read, &e))?;
        self.shared
            .begin(known.applied.as_ref().map_or(0, |last| last.index));
        self.shared.replace(open);
        (self.facts, self.membership) = (known, membership);
        self.purges.begin_anew();
        self.shared
            .snapshots()
            .set(&self.facts.applied, meta.snapshot_id.clone());
        self.shared.moment.send_replace(Moment::of(&self.facts));
        self.synced.tell(self.facts.applied.clone());
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let (Some(_), Some(folder)) = (&self.facts.applied, &self.shared.folder) else {
            return Ok(None);
        };
        let open = self.shared.open();
        let mut snapshots = self.shared.snapshots();
        let copy = snapshots.copy(&self.facts.applied, || {
            SnapshotData::copy_of(
                &open.db,
                folder.fresh("sending"),
                self.options.snapshot_rate,
            )
        });
        let snapshot = copy.map_err(|e| of_snapshot(ErrorVerb::Read, &e))?;
        let meta = SnapshotMeta {
            last_log_id: self.facts.applied.clone(),
            last_membership: self.membership.clone(),
            snapshot_id: snapshots.id(&self.facts.applied),
        };
        Ok(Some(Snapshot {
            meta,
            snapshot: Box::new(snapshot),
        }))
    }
}

/// A state, and what it knows of the log.
type Known<C> = (
    Open,
    Facts<<C as RaftTypeConfig>::NodeId>,
    StoredMembership<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>,
);

impl<C: RaftTypeConfig, M: Machine> StateStore<C, M> {
    /// Takes a snapshot in, in the order of I8; what is applied and what is read stay as they are.
    async fn take_in(
        &self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: SnapshotData,
    ) -> Result<Known<C>, AnyError> {
        let (shared, options) = (self.shared.clone(), self.options.database());
        let (named, promised) = (self.machine.containers(), meta.last_log_id.clone());
        let speaks = self.machine.format();
        let taken = move || -> Result<Known<C>, AnyError> {
            let folder = shared.folder.as_ref();
            let folder =
                folder.ok_or_else(|| AnyError::error("this state has no folder for snapshots"))?;
            let received = snapshot.into_folder(folder.fresh("receiving"));
            let state = received
                .and_then(|received| folder.adopt(&received))
                .map_err(|e| io(&e))?;
            let db = options.open(&state).map_err(|e| AnyError::new(&e))?;
            let open = Open::new(db, named).map_err(|e| AnyError::new(&e))?;
            let (known, membership) = facts::read::<C::NodeId, C::Node>(&open.db)?;
            known.check(speaks)?;
            if known.applied != promised {
                let text = format!(
                    "the snapshot is of {:?}, and was announced as of {promised:?}",
                    known.applied
                );
                return Err(AnyError::error(text));
            }
            open.db.sync().map_err(|e| AnyError::new(&e))?;
            folder.set_current(&state).map_err(|e| io(&e))?;
            Ok((open, known, membership))
        };
        match tokio::task::spawn_blocking(taken).await {
            Ok(taken) => taken,
            Err(error) => Err(AnyError::new(&error)),
        }
    }
}
