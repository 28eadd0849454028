//! Ledgers: the part of a database's history that an older copy of it must be told, so that expired items stay gone in
//! it.
//!
//! ```text
//! copy of today  --ledger-->  settings, floors, commands, range deletes, which containers there are, the mark; and when
//!                             its runs end
//! older copy     --apply--->  the same, but for containers that it does not know; items and tables stay as they are
//! older copy     --drop---->  without the runs that have ended since, whose files need not be there
//! ```
//!
//! A ledger is the catalogue of a database at rest, whose log holds nothing: the catalogue is the whole state
//! (engine/open/at_rest.rs).
//!
//! Invariants of an application:
//!
//! 1. Each addition of the ledger has a sequence number above every record of the copy, so it reaches all of them, as
//!    it did in the database. The catalogue's `used` is raised to the ledger's, so no later write is below it.
//! 2. Settings only go forward. Commands that stand in the copy or came with an earlier ledger are kept.
//! 3. It is one edit: all or nothing.
//! 4. The ledger is of a state that came of the copy's, which the caller knows by [`Ledger::precedes`]: containers and runs of
//!    another branch may have the same ids.
//!
//! A run of a copy *has ended* by a later ledger if its end is not after the ledger's mark, and can be trusted under
//! the settings of the copy and those of the ledger. By the mark, under the ledger's settings, each of its records was
//! gone, and so was every older version that it hid (the proof's case (t) 1): expiry is final, so all of them are gone,
//! whichever ledgers the copy is told from this one on. Under the copy's own settings they are gone by the clock alone:
//! so the copy need not be told the ledger, if its time starts no earlier than these ends. The mark is the database's,
//! not a clock's: at the mark the ledger's settings were in force, and a wrong clock of the process that takes the
//! ledger ends nothing.

use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize};

use crate::base::{ContainerId, Error, HIGHEST_NUMBER, Result, Seq, Timestamp, file_name};
use crate::catalog::branch::{Branch, StatePosition};
use crate::catalog::catalogue::Catalogue;
use crate::catalog::edit::{Change, ContainerRecord, Edit, RunRecord};
use crate::expiry::{DefaultMillis, Settings};

/// The history of a database's containers up to one moment: their default ttls, floors, expiry commands and range
/// deletes, and which of them were dropped; and when the tables of that moment end. It has no items.
/// [`Options::ledger`](crate::Options::ledger) takes one, [`Options::apply_ledger`](crate::Options::apply_ledger) tells it to an older copy. With serde it is an object that
/// later versions read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// 0: unknown.
    database: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    branches: Vec<Branch>,
    mark: Timestamp,
    used: Seq,
    containers: Vec<ContainerRecord>,
}

/// Changes of a catalogue, and the mark of the edit that makes them.
pub type Telling = (Vec<Change>, Timestamp);

/// A ledger as it was read, unchecked: it is a ledger only if a catalogue could hold the same.
#[derive(Deserialize)]
struct Untrusted {
    #[serde(default)]
    database: u64,
    #[serde(default)]
    branches: Vec<Branch>,
    mark: Timestamp,
    used: Seq,
    containers: Vec<ContainerRecord>,
}

impl Untrusted {
    fn checked(self) -> std::result::Result<Ledger, String> {
        let containers = self.containers.into_iter().map(Change::CreateContainer);
        let branches = self.branches.iter().copied().map(Change::Branch);
        let mut catalogue = Catalogue::default();
        catalogue.apply(&Edit {
            number: 1,
            time_high_water: self.mark,
            changes: containers.chain(branches).collect(),
        })?;
        if catalogue.used > self.used || self.used.0 > HIGHEST_NUMBER {
            return Err(format!(
                "its last sequence number is {}, and it has one of {}",
                self.used.0, catalogue.used.0
            ));
        }
        Ok(Ledger {
            database: self.database,
            used: self.used,
            ..Ledger::of(catalogue)
        })
    }
}

impl<'de> Deserialize<'de> for Ledger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let read = Untrusted::deserialize(deserializer)?;
        read.checked().map_err(serde::de::Error::custom)
    }
}

impl Ledger {
    /// That of a database at rest.
    pub(crate) fn of(catalogue: Catalogue) -> Ledger {
        Ledger {
            database: catalogue.database,
            branches: catalogue.branches,
            mark: catalogue.time_high_water,
            used: catalogue.used,
            containers: catalogue.containers.into_values().collect(),
        }
    }

    /// Orders the ledgers of which each [precedes](Ledger::precedes) the next: that of a later state is higher, or equal if
    /// nothing was written between.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.used.0
    }

    /// Whether a later state of the same database came of this one, or is this one. It did not if it came of a copy of
    /// an earlier state that went on by itself ([`Options::branch`](crate::Options::branch)): the later history of that copy has not happened
    /// to the data of this state.
    #[must_use]
    pub fn precedes(&self, later: &Ledger) -> bool {
        self.is_of_same_database(later) && self.place().precedes(&later.place())
    }

    /// The number `told` that [`Options::branch`](crate::Options::branch) was given for each branch that this state came of, earliest first.
    pub fn told(&self) -> impl Iterator<Item = u64> {
        self.branches.iter().map(|branch| branch.told)
    }

    fn place(&self) -> StatePosition<'_> {
        StatePosition {
            branches: &self.branches,
            used: self.used,
        }
    }

    /// Whether two ledgers are of one database or its copies. Also true where that is not known: of a database that was
    /// made by a build which gave none an identity, and after a repair that found no manifest.
    #[must_use]
    pub fn is_of_same_database(&self, other: &Ledger) -> bool {
        are_same(self.database, other.database)
    }

    /// The highest time on which the database had relied.
    #[must_use]
    pub fn mark(&self) -> SystemTime {
        self.mark.to_system_time()
    }

    /// The same without its tables: shorter, and all that another copy is told.
    #[must_use]
    pub fn without_tables(mut self) -> Ledger {
        let containers = self.containers.iter_mut();
        containers.for_each(|record| record.runs.clear());
        self
    }

    /// The files of this state's tables in which no item is left by a later ledger of the same database: each item had
    /// expired by the later one's [`Ledger::mark`], and so had every older version that it replaced. Paths below the
    /// database's folder. Only items that ended by the clock count, not those that a command ended.
    #[must_use]
    pub fn ended_by(&self, later: &Ledger) -> Vec<String> {
        if !self.is_of_same_database(later) {
            return vec![];
        }
        let containers = self.containers.iter();
        let ended = containers.flat_map(|record| ended_runs(record, later));
        ended.flat_map(table_files).collect()
    }

    /// The files of this state's tables in which all will have expired before a moment, if no setting changes.
    #[must_use]
    pub fn ending_before(&self, moment: SystemTime) -> Vec<String> {
        let moment = Timestamp::from_system_time_up(moment);
        let containers = self.containers.iter();
        let ending = containers.flat_map(|record| ending_runs(record, moment));
        ending.flat_map(table_files).collect()
    }

    fn expect_of(&self, catalogue: &Catalogue) -> Result<()> {
        if are_same(self.database, catalogue.database) {
            return Ok(());
        }
        let (given, allowed) = ("of another database", "one of the copy's database");
        Err(Error::invalid("ledger", given, allowed))
    }

    fn container(&self, record: &ContainerRecord) -> Option<&ContainerRecord> {
        self.containers.iter().find(|other| other.id == record.id)
    }

    /// The changes that bring an older catalogue to this ledger.
    fn changes_of(&self, older: &Catalogue) -> Result<Vec<Change>> {
        let mut changes = vec![Change::used(self.used)];
        for record in older.containers.values() {
            match self.container(record) {
                Some(later) => tell(record, later, older.used, &mut changes)?,
                // One that was created after the ledger is unknown to it.
                None if record.created <= self.used => {
                    changes.push(Change::DropContainer(record.id));
                }
                None => {}
            }
        }
        Ok(changes)
    }

    /// The changes that tell an older copy this ledger, and the mark that they bring.
    pub(crate) fn told_to(&self, copy: &Catalogue) -> Result<Telling> {
        self.expect_of(copy)?;
        if copy.used > self.used {
            return Ok(Telling::default());
        }
        Ok((self.changes_of(copy)?, self.mark))
    }

    /// The changes that take the runs out of an older copy that have ended by this ledger.
    pub(crate) fn ended_in(&self, copy: &Catalogue) -> Result<Telling> {
        self.expect_of(copy)?;
        let (mut changes, mut mark) = Telling::default();
        for record in copy.containers.values() {
            let ended: Vec<_> = ended_runs(record, self).collect();
            let last = ended.iter().filter_map(|run| run.end).max();
            let last = last.unwrap_or_default();
            mark = mark.max(last);
            changes.extend(drop_of(record.id, &ended, copy.used, last));
        }
        Ok((changes, mark))
    }

    /// The changes that take the runs out of a copy, of which this ledger is, that end before a moment; and end every item
    /// that was to end before it.
    pub(crate) fn ending_in(&self, copy: &Catalogue, before: Timestamp) -> Telling {
        let (mut changes, seq) = (vec![], copy.used.next());
        let at = copy.time_high_water;
        for was in &self.containers {
            let Some(record) = copy.containers.get(&was.id) else {
                continue;
            };
            let there = |run: &&RunRecord| record.runs.iter().any(|other| other.id == run.id);
            let ending: Vec<_> = ending_runs(was, before).filter(there).collect();
            changes.extend(drop_of(was.id, &ending, seq, at));
            let by = was.settings.default;
            let settings = record.settings.ended_before(before, by, at, seq);
            changes.push(Change::Settings(was.id, settings, seq));
        }
        (changes, at)
    }

    /// The change by which a copy, of which this ledger is, goes on by itself.
    pub(crate) fn branched(&self, copy: &Catalogue, id: u64, told: u64) -> Result<Telling> {
        self.expect_of(copy)?;
        let from = self.used;
        let branch = Branch { id, from, told };
        Ok((vec![Change::Branch(branch)], copy.time_high_water))
    }
}

fn are_same(a: u64, b: u64) -> bool {
    a == b || a == 0 || b == 0
}

/// The runs of a container whose end can be trusted under its own settings, and lies before a moment.
fn ending_runs(record: &ContainerRecord, moment: Timestamp) -> impl Iterator<Item = &RunRecord> {
    let default = record.settings.default;
    let ends = move |run: &&RunRecord| {
        run.end.is_some_and(|end| end < moment) && default.is_as_strict_as(run.end_assumes)
    };
    record.runs.iter().filter(ends)
}

/// The runs of a container that have ended by a later ledger; see the file's head. A container that was dropped since
/// has no later settings to trust the end under.
fn ended_runs<'a>(
    record: &'a ContainerRecord,
    later: &Ledger,
) -> impl Iterator<Item = &'a RunRecord> {
    let default = later.container(record).map(|later| later.settings.default);
    let is_trusted = move |assumed: DefaultMillis| {
        default.is_none_or(|default| default.is_as_strict_as(assumed))
    };
    ending_runs(record, later.mark.after(1)).filter(move |run| is_trusted(run.end_assumes))
}

fn table_files(run: &RunRecord) -> impl Iterator<Item = String> {
    let tables = run.tables.iter();
    tables.map(|table| format!("{}/{}", file_name::TABLES_DIR, file_name::table(table.id)))
}

/// The changes that take runs out of a catalogue whose last write is `used`; their items had ended by `at`.
fn drop_of(id: ContainerId, runs: &[&RunRecord], used: Seq, at: Timestamp) -> Vec<Change> {
    let removed = runs.iter().map(|run| Change::RemoveRun(id, run.id));
    let mut changes: Vec<Change> = removed.collect();
    if !runs.is_empty() {
        // Deletes may have been in them, and items that ended.
        changes.push(Change::ChangesFrom(id, used));
        changes.push(Change::EndsDropped(id, at));
    }
    changes
}

/// The changes of one container between an older catalogue, which has seen the write `used`, and a ledger.
fn tell(
    older: &ContainerRecord,
    later: &ContainerRecord,
    used: Seq,
    changes: &mut Vec<Change>,
) -> Result<()> {
    if later.settings_seq > older.settings_seq {
        let told = older
            .settings
            .after_those_of(&later.settings, older.settings_seq);
        let settings = match told {
            Some(settings) => settings,
            None if misses_command(&older.settings, &later.settings) => {
                return Err(Error::invalid(
                    "ledger",
                    format!("one without the last command of container {:?}", later.name),
                    "one that was taken before 64 changes and commands came after it: its reach is known no more, and \
                     items that it ended would come back; take ledgers more often",
                ));
            }
            None => {
                let given = later.settings.given();
                given.with_commands_of(&older.settings)
            }
        };
        changes.push(Change::Settings(older.id, settings, later.settings_seq));
    }
    let ranges = later.range_deletes.iter().filter(|range| range.seq > used);
    changes.extend(ranges.map(|range| Change::AddRangeDelete(older.id, range.clone())));
    Ok(())
}

/// Whether a command was given that no longer stands, and that the floors may not cover.
fn misses_command(older: &Settings, later: &Settings) -> bool {
    let last = later.command_seq;
    last > older.command_seq
        && later.floor_seq < last
        && !later.commands.iter().any(|command| command.seq == last)
}
