//! Removing backups.
//!
//! ```text
//! lease, alone -> manifests that stay are read -> other manifests, oldest first -> ledgers that came of none that stays
//! -> objects that nothing needs -> unfinished objects and leases that ran out
//! ```
//!
//! A manifest goes before its objects, so at every moment each manifest has all of its objects, but for tables in which
//! nothing is left by a later ledger (later.rs): these go unread, and a restore leaves them out. So no ledger may go
//! that says so of a backup that stays: backups go from the oldest on, up to the first that stays, and of older ledgers
//! those that came of none that stays. The next call removes the objects that an interrupted one leaves. Objects
//! without a backup's name are left alone.

use std::collections::HashSet;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::{self, BACKUPS, LEDGERS, OBJECTS};
use crate::later::Ledgers;
use crate::lease::{self, Lease, Purpose};
use crate::manifests::Manifests;
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
        let lease = Lease::take(store, &self.at_work, Purpose::Prune)?;
        let all = Manifests::of(store)?;
        let mut numbers = all.numbers(BACKUPS)?;
        let stay = numbers.split_off(number_that_go(&numbers, keep, &all)?);
        let manifests = stay
            .iter()
            .map(|number| Ok(all.get(BACKUPS, *number)?.manifest));
        let manifests = manifests.collect::<Result<Vec<_>>>()?;
        let mut pruned = Pruned::default();
        for number in numbers {
            self.remove(&format::name(BACKUPS, number), &lease)?;
            pruned.backups += 1;
        }
        let oldest = stay.first().copied().unwrap_or(u64::MAX);
        for number in all.numbers(LEDGERS)? {
            let ledger = all.get(LEDGERS, number)?.manifest.ledger;
            let mut stay = manifests.iter();
            if number < oldest && !stay.any(|backup| backup.ledger.precedes(&ledger)) {
                self.remove(&format::name(LEDGERS, number), &lease)?;
                pruned.ledgers += 1;
            }
        }
        let ledgers = Ledgers::read(&all, 0)?;
        let (mut named, mut needed) = (HashSet::new(), HashSet::new());
        for manifest in manifests {
            let ended = ledgers.ended(&manifest);
            for file in manifest.files {
                if !ended.contains(&file.path) {
                    needed.insert(file.sha256.clone());
                }
                named.insert(file.sha256);
            }
        }
        for sha256 in store.list(OBJECTS).map_err(Error::io("list", OBJECTS))? {
            if format::is_hash(&sha256) && !needed.contains(&sha256) {
                self.remove(&format::object(&sha256), &lease)?;
                pruned.objects += 1;
                pruned.ended_objects += u64::from(named.contains(&sha256));
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
            let begun: Option<u64> = name.split('-').next().and_then(|begun| begun.parse().ok());
            if begun.is_some_and(|begun| begun.saturating_add(UNFINISHED) < now()) {
                self.remove(&format!("{TEMPORARY}/{name}"), lease)?;
            }
        }
        lease::remove_ended(store)
    }

    fn remove(&self, name: &str, lease: &Lease<'_>) -> Result<()> {
        let _held = lease.hold()?;
        self.store.delete(name).map_err(Error::io("remove", name))
    }
}

/// How many of these backups go, from the oldest on.
fn number_that_go(numbers: &[u64], keep: Keep, all: &Manifests<'_>) -> Result<usize> {
    let before_last = numbers.len().saturating_sub(1);
    for (at, number) in numbers[..before_last].iter().enumerate() {
        let later = (before_last - at) as u64;
        if keep.count.is_some_and(|count| later >= count) {
            continue;
        }
        let Some(most) = keep.younger_than else {
            return Ok(at);
        };
        let manifest = all.get(BACKUPS, *number)?.manifest;
        let age = Duration::from_millis(now().saturating_sub(manifest.taken_at));
        if age <= most {
            return Ok(at);
        }
    }
    Ok(before_last)
}
