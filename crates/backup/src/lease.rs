//! Leases: who is at work in a store, so that nothing is removed that somebody is about to name or to read.
//!
//! ```text
//! leases/use-UNTIL-ID      a backup or a restore: any number at a time; objects stay
//! leases/prune-UNTIL-ID    a prune: alone
//! ```
//!
//! `UNTIL` is in milliseconds since 1970. A process that begins writes a lease first and looks for others then. So of
//! two that exclude each other at least one sees the other. A prune gives way, and does not even write one where it
//! sees another before. A user of the store waits a little for a prune to give way, and gives way then. A lease that
//! ran out is of a killed process, and counts no more; a process that works for long renews it, and before its result
//! counts makes sure that it holds still. The clocks of all machines that share a store may differ by [`SLACK`].
//!
//! A store that can only be read is restored without a lease, because the reader cannot write one.

use std::cell::RefCell;
use std::io;
use std::sync::MutexGuard;
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

use crate::at_work::{AtWork, Made};
use crate::error::{Error, Result};
use crate::store::{Store, is_read_only, now};

pub const LEASES: &str = "leases";

/// A lease holds for an hour in milliseconds: longer than one object takes.
const TERM: u64 = 3_600_000;

/// How far clocks may differ, in milliseconds.
const SLACK: u64 = 300_000;

/// How often, and how far apart, a look for a prune that gives way: a list and a removal in a distant store take less.
const LOOKS: u32 = 25;
const LOOK: Duration = Duration::from_millis(100);

/// The purpose of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To make a backup.
    Make,
    /// To read backups, without a lease if the store can only be read.
    Read,
    /// To remove objects.
    Prune,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Purpose::Make | Purpose::Read => "use",
            Purpose::Prune => "prune",
        }
    }
}

/// Held while somebody is at work; given back on drop.
pub struct Lease<'a> {
    store: &'a dyn Store,
    at_work: &'a AtWork,
    purpose: Purpose,
    /// Its name, and until when it holds; none in a store that can only be read.
    held: RefCell<Option<(String, u64)>>,
}

impl<'a> Lease<'a> {
    /// Takes a lease; [`Error::Busy`] if one is there that excludes it.
    pub fn take(store: &'a dyn Store, at_work: &'a AtWork, purpose: Purpose) -> Result<Lease<'a>> {
        let lease = Lease {
            store,
            at_work,
            purpose,
            held: RefCell::new(None),
        };
        if purpose == Purpose::Prune {
            lease
                .excluding()?
                .map_or(Ok(()), |other| Err(busy(other)))?;
        }
        match lease.write() {
            Ok(held) => *lease.held.borrow_mut() = Some(held),
            Err(Error::Io { source, .. }) if purpose == Purpose::Read && is_read_only(&source) => {}
            Err(error) => return Err(error),
        }
        for look in 0.. {
            match lease.excluding()? {
                None => break,
                Some(_) if purpose != Purpose::Prune && look < LOOKS => sleep(LOOK),
                Some(other) => return Err(busy(other)),
            }
        }
        Ok(lease)
    }

    /// A lease of another that excludes this one.
    fn excluding(&self) -> Result<Option<String>> {
        let others = self.store.list(LEASES).map_err(Error::io("list", LEASES))?;
        let own = self.held.borrow();
        let own = own.as_ref().map(|(name, _)| name.as_str());
        let excludes = |other: &String| {
            let is_own = own.is_some_and(|own| own == format!("{LEASES}/{other}"));
            let is_of_such = self.purpose == Purpose::Prune || other.starts_with("prune");
            !is_own && is_of_such && holds(other)
        };
        Ok(others.into_iter().find(excludes))
    }

    /// An error, with what may be the reason where no lease kept a prune away.
    pub fn explain(&self, error: Error) -> Error {
        match error {
            Error::Damaged { name, what } if self.held.borrow().is_none() => Error::Damaged {
                name,
                what: format!(
                    "{what}, or was pruned meanwhile, for who cannot write to the backups keeps no prune away: then try again"
                ),
            },
            error => error,
        }
    }

    /// Makes sure that the lease holds, and goes on holding while one more object is stored or read.
    pub fn renew(&self) -> Result<()> {
        let Some((before, until)) = self.held.borrow().clone() else {
            return Ok(());
        };
        if now() >= until {
            return Err(Error::Refused(
                "the lease ran out while one object was stored or read: try again".to_owned(),
            ));
        }
        self.expect_unbroken()?;
        if now() + TERM / 2 > until {
            let renewed = self.write()?;
            *self.held.borrow_mut() = Some(renewed);
            let mut made = self.at_work.hold();
            self.give_back(&before, &mut made)
                .map_err(Error::io("remove", before))?;
        }
        Ok(())
    }

    /// Fails if somebody has removed the lease.
    pub fn expect_unbroken(&self) -> Result<()> {
        let held = self.held.borrow();
        let Some((name, _)) = held.as_ref() else {
            return Ok(());
        };
        match self.store.get(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Refused(
                "somebody broke the lease under which this was at work: try again".to_owned(),
            )),
            got => got.map(drop).map_err(Error::io("read", name)),
        }
    }

    /// Makes sure of that, and that nobody gives it back while the guard is held.
    pub fn hold(&self) -> Result<MutexGuard<'a, Made>> {
        self.renew()?;
        Ok(self.at_work.hold())
    }

    fn write(&self) -> Result<(String, u64)> {
        let until = now() + TERM;
        let mut number = 0;
        loop {
            let id = format!("{}.{number}", std::process::id());
            let name = format!("{LEASES}/{}-{until}-{id}", self.purpose.word());
            let mut made = self.at_work.hold();
            match self.store.put(&name, &mut [].as_slice()) {
                Ok(true) => {
                    made.note_lease(&name);
                    return Ok((name, until));
                }
                Ok(false) => number += 1,
                Err(error) => return Err(Error::io("write", name)(error)),
            }
        }
    }

    fn give_back(&self, name: &str, made: &mut Made) -> io::Result<()> {
        made.forget_lease(name);
        self.store.delete(name)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some((name, _)) = self.held.borrow().as_ref() {
            // One that stays ends by itself.
            let _ = self.give_back(name, &mut self.at_work.hold());
        }
    }
}

fn busy(lease: String) -> Error {
    let until = end(&lease).saturating_add(SLACK);
    Error::Busy {
        lease,
        until: UNIX_EPOCH + Duration::from_millis(until),
    }
}

/// Until when a lease holds.
fn end(name: &str) -> u64 {
    let until = name.split('-').nth(1);
    until.and_then(|until| until.parse().ok()).unwrap_or(0)
}

fn holds(name: &str) -> bool {
    end(name).saturating_add(SLACK) > now()
}

/// Removes the leases that ran out.
pub fn remove_ended(store: &dyn Store) -> Result<()> {
    remove(store, |name| !holds(name)).map(drop)
}

/// Removes all leases; how many.
pub fn remove_all(store: &dyn Store) -> Result<u64> {
    remove(store, |_| true)
}

fn remove(store: &dyn Store, which: impl Fn(&str) -> bool) -> Result<u64> {
    let mut removed = 0;
    for name in store.list(LEASES).map_err(Error::io("list", LEASES))? {
        if which(&name) {
            let name = format!("{LEASES}/{name}");
            store.delete(&name).map_err(Error::io("remove", name))?;
            removed += 1;
        }
    }
    Ok(removed)
}
