//! Scrubbing: reads and checks tables one after the other, so that damage is found while there is still a good copy.
//!
//! A page that the system caches is checked in memory, not on the medium; damage there costs nothing before the page is
//! evicted. A damaged table is reported, and no job reads it any more; readers still read its sound blocks.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::base::{Error, Result};
use crate::catalog::TableFile;
use crate::engine::Engine;
use crate::engine::parts::scheduler::Thread;
use crate::env::monotonic;
use crate::table::Table;
use crate::values::stats::Damage;

/// The result of a verification.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[must_use = "damage is in the report, and no error of the call"]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Records in tables and in the log.
    pub records: u64,
    /// The damage found, each with file and offset; empty when there is none.
    pub faults: Vec<Error>,
}

impl Engine {
    /// Checks every table.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        for file in self.all_tables() {
            if self.scheduler.is_closing() {
                return Err(Error::Closed);
            }
            report.files += 1;
            report.bytes += file.record.len;
            match self.check_table(&file.table, &mut |_| Ok(())) {
                Ok(records) => report.records += records,
                Err(error) => report.faults.push(error),
            }
        }
        Ok(report)
    }

    /// Checks the next table if its check is due; returns the time until the next one's.
    pub(in crate::engine) fn scrub_some(&self) -> Result<Option<Duration>> {
        let Some(within) = self.options.scrub_within else {
            return Ok(None);
        };
        let tables = self.all_tables();
        if tables.is_empty() {
            return Ok(None);
        }
        let pause = within / u32::try_from(tables.len()).unwrap_or(u32::MAX);
        let now = monotonic();
        let last = self.damaged.last_checked();
        let after = match last {
            Some((_, due)) if now < due => return Ok(Some(due - now)),
            Some((table, _)) => table,
            // Starts at a random table: a database that is opened often would never reach the others otherwise.
            None => {
                tables[RandomState::new().hash_one(now) as usize % tables.len()]
                    .record
                    .id
            }
        };
        let next = tables.iter().find(|file| file.record.id > after);
        let next = next.unwrap_or(&tables[0]);
        self.damaged.set_last_checked(next.record.id, now + pause);
        let mut unpaid = 0;
        let checked = self.check_table(&next.table, &mut |bytes| {
            unpaid += bytes;
            if unpaid >= SCRUB_STEP {
                self.pace(std::mem::take(&mut unpaid), 0.0)?;
                if self.scheduler.signal(Thread::Merge).take() {
                    self.scheduler
                        .note_outcome(Thread::Merge.name(), &self.merge_steps());
                }
            }
            Ok(())
        });
        match checked {
            // The table is checked again later.
            Err(error) if error.is_closed() && self.scheduler.gives_up() => Ok(Some(pause)),
            // Known damage is already in the stats.
            Err(error) if !self.damaged.knows(next.record.id) => Err(error),
            _ => Ok(Some(pause)),
        }
    }

    fn merge_steps(&self) -> Result<()> {
        while self.merge_step()? {}
        Ok(())
    }

    /// Reads a table from end to end and notes damage; returns the number of its records. `spend` is told of the bytes.
    fn check_table(&self, table: &Table, spend: &mut dyn FnMut(u64) -> Result<()>) -> Result<u64> {
        match table.verify_paced(spend) {
            Ok(report) => {
                self.counters.bytes_scrubbed.add(report.bytes);
                Ok(report.records)
            }
            Err(error) => {
                // Only damage is noted, not other reasons to stop.
                if error.is_corruption()
                    || matches!(
                        error,
                        Error::Io {
                            operation: "read",
                            ..
                        }
                    )
                {
                    self.damaged.note(table.id(), error.clone());
                }
                Err(error)
            }
        }
    }

    /// The known damage of the current tables.
    pub(in crate::engine) fn damage(&self) -> Vec<Damage> {
        let tables = self.all_tables();
        self.damaged.of(tables.iter().map(|file| file.record.id))
    }

    /// All tables, in the order of their ids.
    fn all_tables(&self) -> Vec<TableFile> {
        let mut tables = vec![];
        for state in self.containers.all() {
            let read_state = state.pin();
            tables.extend(
                read_state
                    .version
                    .runs
                    .iter()
                    .flat_map(|run| run.files.clone()),
            );
        }
        tables.sort_by_key(|file| file.record.id);
        tables
    }
}

/// Bytes read between two checks for more urgent work.
const SCRUB_STEP: u64 = 256 << 10;
