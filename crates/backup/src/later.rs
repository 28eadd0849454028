//! What came after a backup: the ledgers of later states, those of later backups among them, and what had ended by them.
//!
//! ```text
//! backup 3   ledger 4   backup 5          of backup 3 have ended: the tables in which nothing is left by 3, 4 or 5
//! ```
//!
//! Invariant: prune and restore ask the same function what has ended, of ledgers that are in the store while they ask.
//! What prune removed because a ledger said so, a restore leaves out because of that ledger; a ledger goes only with
//! every backup that is older (prune.rs). So a table that is not there is missed only if it is missing.

use std::collections::HashSet;

use ebbtide::Ledger;

use crate::error::Result;
use crate::format::{self, BACKUPS, LEDGERS, Manifest};
use crate::store::Store;

/// The ledgers in a store, those of backups among them, oldest first.
pub struct Ledgers(Vec<Ledger>);

impl Ledgers {
    pub fn read(store: &dyn Store) -> Result<Ledgers> {
        let mut all = vec![];
        for folder in [BACKUPS, LEDGERS] {
            for number in format::numbers(store, folder)? {
                let manifest = format::get_numbered(store, folder, number)?;
                all.push(manifest.ledger.without_tables());
            }
        }
        all.sort_by_key(|ledger| (ledger.version(), ledger.mark()));
        Ok(Ledgers(all))
    }

    /// Those that are to be told to a backup, oldest first.
    pub fn after<'a>(&'a self, backup: &'a Manifest) -> impl Iterator<Item = &'a Ledger> {
        let own = (backup.ledger.version(), backup.ledger.mark());
        self.since(backup)
            .filter(move |other| (other.version(), other.mark()) != own)
    }

    /// The same, and its own.
    pub fn since<'a>(&'a self, backup: &'a Manifest) -> impl Iterator<Item = &'a Ledger> {
        let version = backup.ledger.version();
        self.0
            .iter()
            .filter(move |other| other.version() >= version)
    }

    /// The files of a backup that need not be there.
    pub fn ended(&self, backup: &Manifest) -> HashSet<String> {
        let ledgers = self.since(backup);
        ledgers
            .flat_map(|later| backup.ledger.ended_by(later))
            .collect()
    }
}
