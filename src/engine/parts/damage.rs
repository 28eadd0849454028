//! The tables that are known to be damaged, and the one to be checked next.
//!
//! Invariant: a table that was found damaged stays in the list while the database is open, so that no job reads it
//! again. Answers leave out tables that the catalogue no longer names.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::{Error, Result, TableId};
use crate::values::stats::Damage;

/// See the file's head.
#[derive(Default)]
pub struct DamagedTables {
    found: Mutex<DamageFindings>,
}

#[derive(Default)]
struct DamageFindings {
    /// The table that was checked last, and when the next check is due; `None` before the first.
    last: Option<(TableId, Duration)>,
    damage: BTreeMap<TableId, Error>,
}

impl DamagedTables {
    /// The table that was checked last, and when the next check is due.
    pub fn last_checked(&self) -> Option<(TableId, Duration)> {
        self.found.lock().last
    }

    /// Notes that this table is being checked, and when the next check is due.
    pub fn set_last_checked(&self, table: TableId, next: Duration) {
        self.found.lock().last = Some((table, next));
    }

    /// Notes that this table is damaged.
    pub fn note(&self, table: TableId, error: Error) {
        self.found.lock().damage.insert(table, error);
    }

    /// Whether this table is known to be damaged.
    pub fn knows(&self, table: TableId) -> bool {
        self.found.lock().damage.contains_key(&table)
    }

    /// Fails if a table that a job is about to read is known to be damaged: the job would write the wrong data again,
    /// under a checksum that fits.
    pub fn check_sound(&self, tables: impl IntoIterator<Item = TableId>) -> Result<()> {
        let found = self.found.lock();
        let mut damage = tables
            .into_iter()
            .filter_map(|table| found.damage.get(&table));
        damage.next().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The known damage of these tables.
    pub fn of(&self, tables: impl Iterator<Item = TableId>) -> Vec<Damage> {
        let found = self.found.lock();
        let damage = tables.filter_map(|table| found.damage.get(&table));
        damage.map(Damage::of).collect()
    }
}
