//! Removing backups.
//!
//! ```text
//! lease, alone -> manifests that stay are read -> other manifests -> ledgers older than all that stay -> objects
//! that nothing names -> unfinished objects and leases that ran out
//! ```
//!
//! A manifest goes before its objects, so at every moment each manifest has all of its objects. What an interrupted
//! call leaves is removed by the next one.

use std::collections::HashSet;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::{self, BACKUPS, LEDGERS, OBJECTS};
use crate::lease::{self, Lease, Purpose};
use crate::store::{TEMPORARY, now};
use crate::{Backups, Keep, Pruned};

/// An object that is not finished after a day, in milliseconds, is of a killed process.
const UNFINISHED: u64 = 86_400_000;

impl Backups {
    /// Removes the backups that need not be kept, and whatever no kept one needs. The last one always stays.
    ///
    /// # Errors
    /// [`Error::Busy`] while a backup, a restore or another prune is at work, or was when its process was killed less
    /// than 65 minutes ago; [`Error::Damaged`] if a backup that stays cannot be read, and then nothing is removed.
    pub fn prune(&self, keep: Keep) -> Result<Pruned> {
        let store = self.store.as_ref();
        let lease = Lease::take(store, Purpose::Prune)?;
        let numbers = format::numbers(store, BACKUPS)?;
        let (mut named, mut oldest) = (HashSet::new(), u64::MAX);
        let mut gone = vec![];
        for (later, number) in numbers.iter().rev().enumerate() {
            if later > 0 && keep.count.is_some_and(|count| later as u64 >= count) {
                gone.push(*number);
                continue;
            }
            let manifest = format::get_numbered(store, BACKUPS, *number)?;
            let age = Duration::from_millis(now().saturating_sub(manifest.taken_at));
            if later > 0 && keep.younger_than.is_some_and(|most| age > most) {
                gone.push(*number);
                continue;
            }
            oldest = oldest.min(manifest.ledger.version());
            named.extend(manifest.files.into_iter().map(|file| file.sha256));
        }
        let mut pruned = Pruned::default();
        for number in gone {
            self.remove(&format::name(BACKUPS, number), &lease)?;
            pruned.backups += 1;
        }
        for number in format::numbers(store, LEDGERS)? {
            if format::get_numbered(store, LEDGERS, number)?
                .ledger
                .version()
                < oldest
            {
                self.remove(&format::name(LEDGERS, number), &lease)?;
                pruned.ledgers += 1;
            }
        }
        for sha256 in store.list(OBJECTS).map_err(Error::io("list", OBJECTS))? {
            if !named.contains(&sha256) {
                self.remove(&format::object(&sha256), &lease)?;
                pruned.objects += 1;
            }
        }
        self.remove_unfinished(&lease)?;
        Ok(pruned)
    }

    fn remove_unfinished(&self, lease: &Lease<'_>) -> Result<()> {
        let store = self.store.as_ref();
        let unfinished = store
            .list(TEMPORARY)
            .map_err(Error::io("list", TEMPORARY))?;
        for name in unfinished {
            let begun = name.split('-').next().and_then(|begun| begun.parse().ok());
            if begun.unwrap_or(0) + UNFINISHED < now() {
                self.remove(&format!("{TEMPORARY}/{name}"), lease)?;
            }
        }
        lease::remove_ended(store)
    }

    fn remove(&self, name: &str, lease: &Lease<'_>) -> Result<()> {
        lease.renew()?;
        self.store.delete(name).map_err(Error::io("remove", name))
    }
}
