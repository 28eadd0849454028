//! Edits of the catalogue, and the records that they have.
//!
//! An edit (a version edit) is one step of what the database *is*: containers, settings, floors, runs, tables, range
//! deletes, where the log starts and how far it is synced. It takes effect as a whole. Edits are JSON, so that a person
//! can read a manifest; they have no keys except those of range deletes, and no statistics, which are in the tables.

use serde::{Deserialize, Serialize};

use crate::base::{ContainerId, Seq, TableId, Timestamp};
use crate::catalog::branch::Branch;
use crate::data::range_delete::RangeDelete;
use crate::expiry::{DefaultMillis, Settings};
use crate::values::{Compression, Quota};
use crate::wal::{LogStart, Position};

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
    pub(super) fn container(&self) -> Option<ContainerId> {
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
