//! Edits of the catalogue, and the catalogue that they add up to.
//!
//! An edit (a version edit) is one step of what the database *is*: containers, settings, floors, runs, tables, range
//! deletes, where the log starts and how far it is synced. It takes effect as a whole. Edits are JSON, so that a person
//! can read a manifest; they have no keys except those of range deletes, and no statistics, which are in the tables.
//!
//! Invariants of a [`Catalogue`], checked when an edit is applied: a container's name and id are unique; a table is in
//! one run; ids (edit, table, run, container) never repeat; `flushed` never falls.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use serde::{Deserialize, Serialize};

use crate::base::{ContainerId, HIGHEST_NUMBER, Seq, TableId, Timestamp};
use crate::catalog::branch::{Branch, StatePosition};
use crate::data::range_delete::RangeDelete;
use crate::expiry::{DefaultMillis, Settings};
use crate::values::{Compression, Quota};
use crate::wal::{LogStart, Position, SyncedNote};

mod logged;
mod range_record;

pub use logged::Logged;

/// Identifies a run; never reused within a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId(pub u64);

/// One step; steps are numbered without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// One more than the edit before.
    pub number: u64,
    /// The mark: the highest settled time on which something durable relied.
    #[serde(rename = "mark")]
    pub time_high_water: Timestamp,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// One change of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A new container.
    CreateContainer(ContainerRecord),
    /// Drops a container with everything in it.
    DropContainer(ContainerId),
    /// A container was dropped by the write of this sequence number.
    Dropped(Seq),
    /// Sets a container's settings and floors, which the write of this sequence number changed.
    Settings(ContainerId, Settings, Seq),
    /// Sets a container's quota; none: it has no limit.
    Quota(ContainerId, Option<Quota>),
    /// Every record of a container up to this sequence number is in runs, or was judged not to be needed.
    Flushed(ContainerId, Seq),
    /// A new run.
    AddRun(ContainerId, RunRecord),
    /// Removes a run.
    RemoveRun(ContainerId, RunId),
    /// Adds a range delete that is no longer in the log.
    AddRangeDelete(ContainerId, RangeDelete),
    /// Removes the range deletes of this sequence number, which hide nothing any more: one, or several after a repair.
    RemoveRangeDelete(ContainerId, Seq),
    /// Deletes and ends up to this sequence number may be stored no more: changes are told from there on.
    ChangesFrom(ContainerId, Seq),
    /// Items that ended less than so many milliseconds ago are kept in a container.
    KeepExpired(ContainerId, u64),
    /// Items of a container that ended up to this moment may be left out.
    EndsDropped(ContainerId, Timestamp),
    /// The log, from the first needed segment on; none: there is none yet, or nothing in it is needed.
    Log(Option<LogStart>),
    /// The log was synced up to this position before the edit.
    LogSynced(Position),
    /// The catalogue has all that operations of the log have changed, up to this sequence number: a replay leaves these out.
    Repeated(Seq),
    /// The identity of the database: a number that was drawn when it was made. Its copies have the same.
    Database(u64),
    /// Time is given by the program, and what has ended up to this moment may be purged.
    GivenTime(Timestamp),
    /// The program had moved the time to this moment when it closed the database.
    ClosedAt(Timestamp),
    /// From here on a copy of an earlier state goes on by itself (branch.rs).
    Branch(Branch),
    /// Tables with sequence numbers up to this one may lie in the folder without being named: a bulk load gives them
    /// their names. No other write ever gets one of these numbers.
    Reserved(Seq),
    /// Sequence numbers and ids up to these may have been used, also by what was removed since.
    Used {
        /// Sequence numbers.
        seq: Seq,
        /// One more than the highest table id.
        table: u64,
        /// One more than the highest run id.
        run: u64,
        /// One more than the highest container id.
        container: u32,
    },
}

impl Change {
    /// Every sequence number up to this one may have been used.
    pub fn used(seq: Seq) -> Change {
        Change::Used {
            seq,
            table: 0,
            run: 0,
            container: 0,
        }
    }

    /// The container that it changes, creates or drops, if any.
    fn container(&self) -> Option<ContainerId> {
        match self {
            Change::CreateContainer(record) => Some(record.id),
            Change::DropContainer(id)
            | Change::Settings(id, ..)
            | Change::Quota(id, _)
            | Change::Flushed(id, _)
            | Change::AddRun(id, _)
            | Change::RemoveRun(id, _)
            | Change::AddRangeDelete(id, _)
            | Change::RemoveRangeDelete(id, _)
            | Change::ChangesFrom(id, _)
            | Change::KeepExpired(id, _)
            | Change::EndsDropped(id, _) => Some(*id),
            Change::Dropped(_)
            | Change::Log(_)
            | Change::LogSynced(_)
            | Change::Repeated(_)
            | Change::Database(_)
            | Change::GivenTime(_)
            | Change::ClosedAt(_)
            | Change::Branch(_)
            | Change::Reserved(_)
            | Change::Used { .. } => None,
        }
    }
}

/// A container in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its id.
    pub id: ContainerId,
    /// 1 to 255 bytes.
    pub name: String,
    /// The sequence number of its creation: snapshots from before do not know it.
    pub created: Seq,
    /// How its tables are compressed.
    pub compression: Compression,
    /// Settings and floors.
    pub settings: Settings,
    /// The sequence number of the last change of the settings.
    #[serde(default)]
    pub settings_seq: Seq,
    /// The most live bytes it may hold, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// See [`Change::Flushed`].
    #[serde(default)]
    pub flushed: Seq,
    /// Its runs, in no particular order.
    #[serde(default)]
    pub runs: Vec<RunRecord>,
    /// Its range deletes, lowest sequence number first.
    #[serde(default)]
    pub range_deletes: Vec<RangeDelete>,
    /// See [`Change::ChangesFrom`]; a record without it is of a build that did not note it.
    #[serde(default = "unknown_yet")]
    pub changes_from: Seq,
    /// See [`Change::KeepExpired`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keep_expired: u64,
    /// See [`Change::EndsDropped`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ends_dropped: Timestamp,
}

fn unknown_yet() -> Seq {
    Seq::MAX
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A run in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// The latest moment at which one of its records becomes obsolete; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// The default under which `end` was computed.
    #[serde(rename = "placed")]
    pub end_assumes: DefaultMillis,
    /// Every range delete up to this sequence number has been applied to it: it holds no record that one of these
    /// covers.
    #[serde(default)]
    pub applied: Seq,
    /// Its tables, in key order.
    pub tables: Vec<TableRecord>,
}

/// A table in the catalogue, with enough to recognize a stale or damaged file of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRecord {
    /// Its id, which is its file's name.
    pub id: TableId,
    /// The file's size in bytes.
    pub len: u64,
    /// The checksum of its footer.
    pub crc: u32,
}

/// The sum of all edits so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// The number of the last edit.
    pub edit: u64,
    /// The mark: the highest settled time on which something durable relied.
    pub time_high_water: Timestamp,
    /// The change `database`; 0: it was made by a build that drew no number.
    pub database: u64,
    /// The change `given_time`, if time is given.
    pub given_time: Option<Timestamp>,
    /// The change `closed_at`.
    pub closed_at: Timestamp,
    /// The branches that led to it, earliest first; most databases have none.
    pub branches: Vec<Branch>,
    /// The containers by id.
    pub containers: BTreeMap<ContainerId, ContainerRecord>,
    /// The container of each name, so that creating one does not search all.
    names: BTreeMap<String, ContainerId>,
    /// The log, from the first needed segment on, if there is one.
    pub log: Option<LogStart>,
    /// The position up to which it was synced: if it ends before, part of it is missing.
    pub log_synced: Position,
    /// The change `repeated`.
    pub repeated: Seq,
    /// The highest sequence number in any edit.
    pub used: Seq,
    /// The change `reserved`.
    pub reserved: Seq,
    /// The sequence number of the last drop of a container; 0 if none was noted.
    pub last_drop: Seq,
    /// Above every table id so far.
    pub next_table: u64,
    /// Above every run id so far.
    pub next_run: u64,
    /// Above every container id so far.
    pub next_container: u32,
}

/// The result of an edit: only the part of the catalogue that the edit concerns, so that the cost of an edit does not
/// depend on the number of other containers.
#[derive(Clone, Debug)]
pub struct Step {
    /// The containers in this part that existed before the edit.
    before: Vec<ContainerId>,
    /// Their new state, and that of everything outside containers.
    after: Catalogue,
}

impl Catalogue {
    /// The catalogue of a new database, with this identity.
    pub fn of_nothing(database: u64, given_time: bool) -> Catalogue {
        Catalogue {
            database,
            given_time: given_time.then_some(Timestamp(0)),
            next_run: 1,
            next_container: 1,
            ..Catalogue::default()
        }
    }

    /// The result of an edit, without applying it; or why it does not fit.
    pub fn step(&self, edit: &Edit) -> Result<Step, String> {
        let mut part = Catalogue {
            containers: BTreeMap::new(),
            names: BTreeMap::new(),
            branches: self.branches.clone(),
            ..*self
        };
        let concerned = edit.changes.iter().flat_map(|change| match change {
            Change::CreateContainer(record) => {
                [Some(record.id), self.names.get(&record.name).copied()]
            }
            change => [change.container(), None],
        });
        for id in concerned.flatten() {
            if let Some(record) = self.containers.get(&id) {
                part.names.insert(record.name.clone(), id);
                part.containers.entry(id).or_insert_with(|| record.clone());
            }
        }
        let before = part.containers.keys().copied().collect();
        part.apply(edit)?;
        Ok(Step {
            before,
            after: part,
        })
    }

    /// Applies a step that was computed from this catalogue as it is.
    pub fn take(&mut self, step: Step) {
        for id in &step.before {
            if let Some(record) = self.containers.remove(id) {
                self.names.remove(&record.name);
            }
        }
        let (mut containers, mut names) = (take(&mut self.containers), take(&mut self.names));
        containers.extend(step.after.containers);
        names.extend(step.after.names);
        *self = Catalogue {
            containers,
            names,
            ..step.after
        };
    }

    /// Applies an edit, or returns why it does not fit. After an error the catalogue must not be used.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        if self.edit != 0 && edit.number != self.edit + 1 {
            return Err(format!("edit {} follows edit {}", edit.number, self.edit));
        }
        self.edit = edit.number;
        self.time_high_water = self.time_high_water.max(edit.time_high_water);
        self.change_all(&edit.changes)
    }

    fn change_all(&mut self, changes: &[Change]) -> Result<(), String> {
        let mut changes = changes.iter().peekable();
        while let Some(change) = changes.next() {
            let Change::RemoveRangeDelete(id, seq) = change else {
                self.change(change)?;
                continue;
            };
            // Many are removed at once.
            let mut gone = BTreeSet::from([*seq]);
            while let Some(Change::RemoveRangeDelete(next, seq)) = changes.peek()
                && next == id
            {
                gone.insert(*seq);
                changes.next();
            }
            let ranges = &mut self.container(*id)?.range_deletes;
            ranges.retain(|range| !gone.contains(&range.seq));
        }
        let highest = [
            self.edit,
            self.used.0,
            self.reserved.0,
            self.next_table,
            self.next_run,
            // Container ids have 32 bits: the shift scales them to the limit for the others.
            u64::from(self.next_container) << 25,
            self.log.map_or(0, |log| log.first),
        ];
        match highest.into_iter().max() {
            Some(number) if number > HIGHEST_NUMBER => {
                Err(format!("no database counts as far as {number}"))
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::CreateContainer(record) => self.create(record)?,
            Change::DropContainer(id) => self.remove(*id)?,
            Change::Settings(id, settings, seq) => self.change_settings(*id, settings, *seq)?,
            Change::Quota(id, quota) => self.container(*id)?.quota = *quota,
            Change::Flushed(id, seq) => self.flush(*id, *seq)?,
            Change::AddRun(id, run) => self.add_run(*id, run)?,
            Change::RemoveRun(id, run) => {
                let runs = &mut self.container(*id)?.runs;
                let Some(at) = runs.iter().position(|there| there.id == *run) else {
                    return Err(format!("run {} is removed but not there", run.0));
                };
                runs.remove(at);
            }
            Change::AddRangeDelete(id, range) => self.add_range_delete(*id, range)?,
            Change::KeepExpired(id, millis) => self.container(*id)?.keep_expired = *millis,
            Change::EndsDropped(id, end) => {
                let dropped = &mut self.container(*id)?.ends_dropped;
                *dropped = (*dropped).max(*end);
            }
            Change::RemoveRangeDelete(..) => unreachable!("applied together"),
            Change::ChangesFrom(id, seq) => {
                let known = &mut self.container(*id)?.changes_from;
                *known = (*known).max(*seq);
            }
            Change::Dropped(seq) => {
                self.used = self.used.max(*seq);
                self.last_drop = self.last_drop.max(*seq);
            }
            Change::Log(log) => {
                let chain = |log: &Option<LogStart>| log.map(|log| log.chain);
                // While the chain is the same it stays true, whatever part of it is removed.
                if chain(log) != chain(&self.log) {
                    self.log_synced = Position(0);
                }
                self.log = *log;
            }
            Change::LogSynced(position) => self.log_synced = self.log_synced.max(*position),
            Change::Repeated(seq) => {
                self.used = self.used.max(*seq);
                self.repeated = self.repeated.max(*seq);
            }
            Change::Database(database) => self.database = *database,
            Change::GivenTime(limit) => self.given_time = self.given_time.max(Some(*limit)),
            Change::ClosedAt(time) => self.closed_at = self.closed_at.max(*time),
            Change::Branch(branch) => self.branch(*branch),
            Change::Reserved(seq) => self.reserved = self.reserved.max(*seq),
            Change::Used { .. } => self.use_up(change),
        }
        Ok(())
    }

    fn use_up(&mut self, change: &Change) {
        if let Change::Used {
            seq,
            table,
            run,
            container,
        } = change
        {
            self.used = self.used.max(*seq);
            self.next_table = self.next_table.max(*table);
            self.next_run = self.next_run.max(*run);
            self.next_container = self.next_container.max(*container);
        }
    }

    fn remove(&mut self, id: ContainerId) -> Result<(), String> {
        let gone = self.containers.remove(&id).ok_or_else(|| unknown(id))?;
        self.names.remove(&gone.name);
        Ok(())
    }

    fn branch(&mut self, branch: Branch) {
        self.used = self.used.max(branch.from);
        self.branches.push(branch);
    }

    fn flush(&mut self, id: ContainerId, seq: Seq) -> Result<(), String> {
        self.used = self.used.max(seq);
        let container = self.container(id)?;
        if seq < container.flushed {
            return Err(format!("container {} is flushed backwards", id.0));
        }
        container.flushed = seq;
        Ok(())
    }

    fn change_settings(
        &mut self,
        id: ContainerId,
        settings: &Settings,
        seq: Seq,
    ) -> Result<(), String> {
        self.used = self.used.max(settings.last_seq()).max(seq);
        let container = self.container(id)?;
        let left_out = container.settings.last_left_out(settings);
        container.changes_from = container.changes_from.max(left_out);
        (container.settings, container.settings_seq) = (settings.clone(), seq);
        Ok(())
    }

    fn add_run(&mut self, id: ContainerId, run: &RunRecord) -> Result<(), String> {
        self.note_run(run);
        let container = self.container(id)?;
        if container.runs.iter().any(|there| there.id == run.id) {
            return Err(format!("run {} is added twice", run.id.0));
        }
        container.runs.push(run.clone());
        Ok(())
    }

    fn add_range_delete(&mut self, id: ContainerId, range: &RangeDelete) -> Result<(), String> {
        self.used = self.used.max(range.seq);
        let ranges = &mut self.container(id)?.range_deletes;
        let place = ranges.partition_point(|there| there.seq <= range.seq);
        // An interrupted flush has added some of those that the next one adds.
        let alike = ranges[..place].iter().rev();
        let mut alike = alike.take_while(|there| there.seq == range.seq);
        if !alike.any(|there| there == range) {
            ranges.insert(place, range.clone());
        }
        Ok(())
    }

    fn create(&mut self, record: &ContainerRecord) -> Result<(), String> {
        if self.names.contains_key(&record.name) || self.containers.contains_key(&record.id) {
            return Err(format!("container {:?} is created twice", record.name));
        }
        record.runs.iter().for_each(|run| self.note_run(run));
        self.next_container = self.next_container.max(record.id.0.saturating_add(1));
        self.used = self
            .used
            .max(record.created)
            .max(record.settings.last_seq())
            .max(record.settings_seq)
            .max(record.flushed);
        self.names.insert(record.name.clone(), record.id);
        self.containers.insert(record.id, record.clone());
        Ok(())
    }

    fn note_run(&mut self, run: &RunRecord) {
        self.next_run = self.next_run.max(run.id.0.saturating_add(1));
        for table in &run.tables {
            self.next_table = self.next_table.max(table.id.0.saturating_add(1));
        }
    }

    fn container(&mut self, id: ContainerId) -> Result<&mut ContainerRecord, String> {
        self.containers.get_mut(&id).ok_or_else(|| unknown(id))
    }

    /// One edit that creates this catalogue, for the head of a new manifest.
    pub fn to_edit(&self) -> Edit {
        let told = |record: &ContainerRecord| ContainerRecord {
            // Of what is not used yet nothing can have been dropped.
            changes_from: record.changes_from.min(self.used),
            ..record.clone()
        };
        let records = self.containers.values().map(told);
        let mut changes: Vec<Change> = records.map(Change::CreateContainer).collect();
        if self.last_drop > Seq(0) {
            changes.push(Change::Dropped(self.last_drop));
        }
        if self.repeated > Seq(0) {
            changes.push(Change::Repeated(self.repeated));
        }
        if self.database > 0 {
            changes.push(Change::Database(self.database));
        }
        changes.extend(self.given_time.map(Change::GivenTime));
        if self.closed_at > Timestamp(0) {
            changes.push(Change::ClosedAt(self.closed_at));
        }
        changes.extend(self.branches.iter().copied().map(Change::Branch));
        if self.reserved > Seq(0) {
            changes.push(Change::Reserved(self.reserved));
        }
        changes.push(Change::Log(self.log));
        changes.push(Change::LogSynced(self.log_synced));
        changes.push(Change::Used {
            seq: self.used,
            table: self.next_table,
            run: self.next_run,
            container: self.next_container,
        });
        Edit {
            number: self.edit,
            time_high_water: self.time_high_water,
            changes,
        }
    }

    /// The change that records how far the log was synced, if the catalogue does not have it yet. `None` for a chain
    /// that the catalogue does not name.
    pub fn news_of(&self, synced: SyncedNote) -> Option<Change> {
        let position = Position(synced.position);
        let is_news = self.log?.chain == synced.identity && position > self.log_synced;
        is_news.then_some(Change::LogSynced(position))
    }

    /// Where its state is among those of all copies.
    pub fn place(&self) -> StatePosition<'_> {
        StatePosition {
            branches: &self.branches,
            used: self.used,
        }
    }

    /// Every table that the catalogue names.
    pub fn tables(&self) -> BTreeSet<TableId> {
        let runs = self
            .containers
            .values()
            .flat_map(|container| &container.runs);
        runs.flat_map(|run| &run.tables)
            .map(|table| table.id)
            .collect()
    }
}

fn unknown(id: ContainerId) -> String {
    format!("there is no container {}", id.0)
}

#[cfg(test)]
mod tests;
