//! Scrubbing: tables are read and checked anew, one after the other, so that damage is found while there is still a copy.
//!
//! What the system holds in memory is checked there, and not on the medium: it is no loss before it is evicted. A damaged
//! table is reported, and no job reads it any more; readers meet the damage where it is.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::base::counters::Damage;
use crate::base::{Error, Result};
use crate::catalog::TableFile;
use crate::engine::Engine;
use crate::engine::scheduler::Thread;
use crate::env::monotonic;
use crate::table::Table;

/// What a verification found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[must_use = "damage is in the report, and no error of the call"]
pub struct VerifyReport {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records in tables and in the log.
    pub records: u64,
    /// What is damaged, each with file and offset; empty when all is well.
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

    /// Checks the next table if its time has come; says how long it is until the next one's.
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
            // Not always with the first one: a database that is opened often would never come to the others.
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
            // The table's turn comes again.
            Err(error) if error.is_closed() && self.scheduler.gives_up() => Ok(Some(pause)),
            // It stands in the stats.
            Err(error) if !self.damaged.knows(next.record.id) => Err(error),
            _ => Ok(Some(pause)),
        }
    }

    fn merge_steps(&self) -> Result<()> {
        while self.merge_step()? {}
        Ok(())
    }

    /// Reads a table from end to end and notes damage; how many records it has. `spend` is told of the bytes.
    fn check_table(&self, table: &Table, spend: &mut dyn FnMut(u64) -> Result<()>) -> Result<u64> {
        match table.verify_paced(spend) {
            Ok(report) => {
                self.counters.bytes_scrubbed.add(report.bytes);
                Ok(report.records)
            }
            Err(error) => {
                // Not what ended it for another reason.
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

    /// What is damaged of the tables there are.
    pub(in crate::engine) fn damage(&self) -> Vec<Damage> {
        let tables = self.all_tables();
        self.damaged.of(tables.iter().map(|file| file.record.id))
    }

    /// In the order of their numbers.
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

/// So many bytes are read between two looks at what else there is to do.
const SCRUB_STEP: u64 = 256 << 10;
