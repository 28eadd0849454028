//! The states later than a backup: the ledgers of later states, those of later backups among them, and the items that
//! had ended by them.
//!
//! ```text
//! backup 3   ledger 4   backup 5          of backup 3 have ended: the tables in which nothing is left by 3, 4 or 5
//!
//! backup 1 ── backup 2                    the copy that was restored from backup 1 was told backup 2, and goes on: told to
//!    └── backup 3 ── ledger 4             1 are 2, 3 and 4, told to 2 is none, for 3 and 4 did not come of it
//! ```
//!
//! A backup's *line* leads from it to the last backup or ledger that came of it. On it lies what came of the backup and
//! went on to that last one, or was told to the copies that did.
//!
//! Invariant: prune and restore ask the same function what has ended, of ledgers that are in the store while they ask.
//! A restore leaves out the tables that prune removed, because of the ledger by which prune removed them; a ledger goes
//! only with every backup that it came of (prune.rs). So a table that a restore
//! needs and does not find is lost, not pruned. It does not matter which branch is the line later: every state that
//! came of the backup counts here.

use std::collections::{BTreeSet, HashSet};

use ebbtide::Ledger;

use crate::error::{Error, Result};
use crate::format::{self, BACKUPS, LEDGERS, Link, Manifest};
use crate::manifests::{Manifests, ReadManifest, check_links};

/// A ledger in a store, or that of a backup, without tables.
pub struct Later {
    pub number: u64,
    pub ledger: Ledger,
    link: Link,
    after: Vec<Link>,
}

/// The ledgers in a store, those of backups among them, oldest first.
pub struct Ledgers(Vec<Later>);

impl Ledgers {
    /// Reads them. Those of a lower number than `from` may be damaged.
    pub fn read(manifests: &Manifests<'_>, from: u64) -> Result<Ledgers> {
        let mut all = vec![];
        for folder in [BACKUPS, LEDGERS] {
            for number in manifests.numbers(folder)? {
                match manifests.get(folder, number) {
                    Ok(found) => all.push(Later::new(number, found)),
                    Err(Error::Damaged { .. }) if number < from => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let place = |later: &Later| (later.ledger.version(), later.ledger.mark(), later.number);
        all.sort_by_key(place);
        Ok(Ledgers(all))
    }

    /// Fails if one from this number on is missing, as far as others name it.
    pub fn expect_all_from(&self, number: u64) -> Result<()> {
        let links = self.0.iter().map(|later| (&later.link, &later.after[..]));
        check_links(links, number)
    }

    /// Those that are to be told to the backup of this number, oldest first.
    pub fn line<'a>(&'a self, number: u64, backup: &'a Manifest) -> Vec<&'a Later> {
        let own = format::name(BACKUPS, number);
        let came = || self.since(backup).filter(|later| later.link.name != own);
        let (mut heads, mut numbers) = (BTreeSet::new(), vec![]);
        numbers.extend(came().map(|later| later.number).max());
        while let Some(number) = numbers.pop() {
            if heads.insert(number) {
                let of_number = self.0.iter().filter(|later| later.number == number);
                let told = of_number.flat_map(|head| head.ledger.told());
                numbers.extend(told.filter(|told| *told < number));
            }
        }
        let is_head = |later: &&Later| heads.contains(&later.number);
        let heads: Vec<&Later> = self.0.iter().filter(is_head).collect();
        let is_known = |later: &&Later| {
            let mut heads = heads.iter();
            heads.any(|head| later.ledger.precedes(&head.ledger))
        };
        came().filter(is_known).collect()
    }

    /// Those that came of a backup, and its own.
    fn since<'a>(&'a self, backup: &'a Manifest) -> impl Iterator<Item = &'a Later> {
        let came = |later: &&Later| backup.ledger.precedes(&later.ledger);
        self.0.iter().filter(came)
    }

    /// The ledgers by which tables of a backup may have ended.
    pub fn that_end<'a>(&'a self, backup: &'a Manifest) -> impl Iterator<Item = &'a Ledger> {
        self.since(backup).map(|later| &later.ledger)
    }

    /// The files of a backup that need not be there.
    pub fn ended(&self, backup: &Manifest) -> HashSet<String> {
        let ledgers = self.that_end(backup);
        ledgers
            .flat_map(|later| backup.ledger.ended_by(later))
            .collect()
    }
}

impl Later {
    fn new(number: u64, found: ReadManifest) -> Later {
        Later {
            number,
            ledger: found.manifest.ledger.without_tables(),
            link: found.link,
            after: found.manifest.after,
        }
    }
}
