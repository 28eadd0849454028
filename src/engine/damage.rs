//! Which tables are known to be damaged, and which is to be checked next.
//!
//! Invariant: a table that was found damaged stays in the list as long as the database is open, so that no job reads it
//! again; what has gone from the catalogue meanwhile is left out of the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::counters::Damage;
use crate::base::sync::Mutex;
use crate::base::{Error, Result, TableId};

/// See the file's head.
#[derive(Default)]
pub struct DamagedTables {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// The table that was checked last, and when the next one is to be; `None` before the first.
    last: Option<(TableId, Duration)>,
    damage: BTreeMap<TableId, Error>,
}

impl DamagedTables {
    /// The table that was checked last, and when the next one is to be.
    pub fn last_checked(&self) -> Option<(TableId, Duration)> {
        self.found.lock().last
    }

    /// This table is checked now, and the next one at this time.
    pub fn set_last_checked(&self, table: TableId, next: Duration) {
        self.found.lock().last = Some((table, next));
    }

    /// This table is damaged.
    pub fn note(&self, table: TableId, error: Error) {
        self.found.lock().damage.insert(table, error);
    }

    /// It is known that this table is damaged.
    pub fn knows(&self, table: TableId) -> bool {
        self.found.lock().damage.contains_key(&table)
    }

    /// A job is about to read these tables: none may be known to be damaged, or what is wrong in it would be written
    /// again under a checksum that fits.
    pub fn check_sound(&self, tables: impl IntoIterator<Item = TableId>) -> Result<()> {
        let found = self.found.lock();
        let mut damage = tables
            .into_iter()
            .filter_map(|table| found.damage.get(&table));
        damage.next().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// What is damaged of these tables.
    pub fn of(&self, tables: impl Iterator<Item = TableId>) -> Vec<Damage> {
        let found = self.found.lock();
        let damage = tables.filter_map(|table| found.damage.get(&table));
        damage.map(Damage::of).collect()
    }
}
