//! The catalogue that edits add up to.
//!
//! Invariants, checked when an edit is applied: a container's name and id are unique; a table is in one run; ids (edit, table,
//! run, container) never repeat; `flushed` never falls.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::base::{ContainerId, HIGHEST_NUMBER, Seq, TableId, Timestamp};
use crate::catalog::branch::{Branch, StatePosition};
use crate::catalog::edit::{Change, ContainerRecord, Edit, Logged, RunRecord};
use crate::data::range_delete::RangeDelete;
use crate::expiry::Settings;
use crate::wal::{LogStart, Position, SyncedNote};

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

    /// Applies what was logged, but for settings that an edit has changed later; or says why it does not fit.
    pub fn note(&mut self, logged: &Logged) -> Result<(), String> {
        self.time_high_water = self.time_high_water.max(logged.settled);
        let is_known = |change: &Change| match change {
            Change::Settings(id, _, seq) => {
                let record = self.containers.get(id);
                record.is_some_and(|record| record.settings_seq >= *seq)
            }
            _ => false,
        };
        let news = logged.changes.iter().filter(|change| !is_known(change));
        let mut news: Vec<Change> = news.cloned().collect();
        news.push(Change::Repeated(logged.seq));
        self.change_all(&news)
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
