//! Leases: who is at work in a store, so that nothing is removed that somebody is about to name or to read.
//!
//! ```text
//! leases/use-UNTIL-ID      a backup or a restore: any number at a time; objects stay
//! leases/prune-UNTIL-ID    a prune: alone
//! ```
//!
//! `UNTIL` is in milliseconds since 1970. Who begins writes a lease first and looks for others then. So of two that
//! exclude each other at least one sees the other, and gives way. A lease that ran out is of a killed process, and
//! counts no more; whoever works for long renews it, and before its result counts makes sure that it holds still. The
//! clocks of all machines that share a store may differ by [`SLACK`].

use std::cell::RefCell;

use crate::error::{Error, Result};
use crate::store::{Store, now};

pub const LEASES: &str = "leases";

/// A lease holds for an hour in milliseconds: longer than one object takes.
const TERM: u64 = 3_600_000;

/// How far clocks may differ, in milliseconds.
const SLACK: u64 = 300_000;

/// What a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To make or to read a backup.
    Use,
    /// To remove objects.
    Prune,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Purpose::Use => "use",
            Purpose::Prune => "prune",
        }
    }
}

/// Held while somebody is at work; given back on drop.
pub struct Lease<'a> {
    store: &'a dyn Store,
    purpose: Purpose,
    /// Its name, and until when it holds.
    held: RefCell<(String, u64)>,
}

impl<'a> Lease<'a> {
    /// Takes a lease; [`Error::Busy`] if one is there that excludes it.
    pub fn take(store: &'a dyn Store, purpose: Purpose) -> Result<Lease<'a>> {
        let lease = Lease {
            store,
            purpose,
            held: RefCell::new(write(store, purpose)?),
        };
        let others = store.list(LEASES).map_err(Error::io("list", LEASES))?;
        let own = lease.held.borrow().0.clone();
        for other in others
            .iter()
            .filter(|other| format!("{LEASES}/{other}") != own)
        {
            let excludes = purpose == Purpose::Prune || other.starts_with("prune");
            if excludes && end(other).saturating_add(SLACK) > now() {
                return Err(Error::Busy {
                    lease: other.clone(),
                });
            }
        }
        Ok(lease)
    }

    /// Makes sure that the lease holds, and goes on holding while one more object is stored or read.
    pub fn renew(&self) -> Result<()> {
        let (before, until) = self.held.borrow().clone();
        if now() >= until {
            return Err(Error::Refused(
                "the lease ran out while one object was stored or read: try again".to_owned(),
            ));
        }
        if now() + TERM / 2 > until {
            *self.held.borrow_mut() = write(self.store, self.purpose)?;
            self.store
                .delete(&before)
                .map_err(Error::io("remove", before))?;
        }
        Ok(())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // One that stays ends by itself.
        let _ = self.store.delete(&self.held.borrow().0);
    }
}

fn write(store: &dyn Store, purpose: Purpose) -> Result<(String, u64)> {
    let until = now() + TERM;
    let mut number = 0;
    loop {
        let id = format!("{}.{number}", std::process::id());
        let name = format!("{LEASES}/{}-{until}-{id}", purpose.word());
        match store.put(&name, &mut [].as_slice()) {
            Ok(true) => return Ok((name, until)),
            Ok(false) => number += 1,
            Err(error) => return Err(Error::io("write", name)(error)),
        }
    }
}

/// Until when a lease holds.
fn end(name: &str) -> u64 {
    let until = name.split('-').nth(1);
    until.and_then(|until| until.parse().ok()).unwrap_or(0)
}

/// Removes the leases that ran out.
pub fn remove_ended(store: &dyn Store) -> Result<()> {
    for name in store.list(LEASES).map_err(Error::io("list", LEASES))? {
        if end(&name).saturating_add(SLACK) <= now() {
            let name = format!("{LEASES}/{name}");
            store.delete(&name).map_err(Error::io("remove", name))?;
        }
    }
    Ok(())
}
