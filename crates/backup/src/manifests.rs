//! The backups and ledgers of a store, each in its place.
//!
//! ```text
//! backup 1  <--  backup 2  <-----------------  backup 5
//!      ^--  ledger 3  <--  ledger 4  <-----------'
//! ```
//!
//! Each names the last backup and the last ledger that were there when it was made. Of two that are made at a time one
//! may stand beside the chain.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;

use crate::error::{Error, Result};
use crate::format::{self, BACKUPS, IDENTITY, LEDGERS, Link, MOST_BYTES, Manifest, Unread};
use crate::store::Store;

/// Digits of a store's identity.
const IDENTITY_LEN: usize = 16;

/// A manifest that was read.
pub struct ReadManifest {
    pub manifest: Manifest,
    /// As a later one names it.
    pub link: Link,
}

/// The manifests in a store.
pub struct Manifests<'a> {
    store: &'a dyn Store,
    /// The store's identity, where it has one.
    identity: Option<String>,
}

impl<'a> Manifests<'a> {
    pub fn of(store: &'a dyn Store) -> Result<Manifests<'a>> {
        let identity = identity(store)?;
        Ok(Manifests { store, identity })
    }

    /// The numbers in a folder, ascending.
    pub fn numbers(&self, folder: &str) -> Result<Vec<u64>> {
        let names = self.store.list(folder).map_err(Error::io("list", folder))?;
        let numbers = names.iter().filter_map(|name| format::number_of(name));
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads the manifest of this number, which must say that it is that, and of this store.
    pub fn get(&self, folder: &str, number: u64) -> Result<ReadManifest> {
        let name = format::name(folder, number);
        let bytes = format::read(self.store, &name, MOST_BYTES)?;
        let (manifest, sha256) = Manifest::decode(&bytes).map_err(|unread| match unread {
            Unread::Damaged(what) => Error::damaged(&name, what),
            Unread::Version(version) => Error::Refused(format!(
                "{name} has version {version}, and this build reads versions 1 and 2"
            )),
        })?;
        let is_of_store = |identity: &String| manifest.store == *identity;
        if !manifest.name.is_empty() {
            if manifest.name != name {
                let what = format!("it is {}, and not in its place", manifest.name);
                return Err(Error::damaged(&name, what));
            }
            if !self.identity.as_ref().is_none_or(is_of_store) {
                return Err(Error::damaged(&name, "it is of another store"));
            }
        }
        let link = Link { name, sha256 };
        Ok(ReadManifest { manifest, link })
    }

    /// The last backup and the last ledger. One that is damaged says nothing; `prove` tells of it.
    pub fn last(&self) -> Result<Vec<ReadManifest>> {
        let mut last = vec![];
        for folder in [BACKUPS, LEDGERS] {
            let number = self.numbers(folder)?.pop();
            last.extend(number.and_then(|number| self.get(folder, number).ok()));
        }
        Ok(last)
    }

    /// Stores a manifest under the first number that is free, and returns that.
    pub fn put(&mut self, folder: &str, manifest: &mut Manifest) -> Result<u64> {
        let mut taken = 0;
        loop {
            let last = self.last()?;
            manifest.store = self.identity_to_write(&last)?;
            manifest.after = last.into_iter().map(|found| found.link).collect();
            let number = self.next_number()?.max(taken + 1);
            let name = format::name(folder, number);
            if format::number_of(name.rsplit('/').next().unwrap_or_default()).is_none() {
                return Err(Error::Refused(format!(
                    "no store has as many backups as {name}"
                )));
            }
            manifest.name.clone_from(&name);
            let bytes = manifest.encode();
            if bytes.len() as u64 > MOST_BYTES {
                let what = format!("{name} would be longer than {MOST_BYTES} bytes");
                return Err(Error::Refused(what));
            }
            match self.store.put(&name, &mut bytes.as_slice()) {
                Ok(true) => return Ok(number),
                Ok(false) => taken = number,
                Err(error) => return Err(Error::io("write", name)(error)),
            }
        }
    }

    fn next_number(&self) -> Result<u64> {
        let mut last = 0;
        for folder in [BACKUPS, LEDGERS] {
            last = last.max(self.numbers(folder)?.pop().unwrap_or(0));
        }
        Ok(last + 1)
    }

    /// The store's identity: as it is, as its last manifests have it, or drawn now.
    fn identity_to_write(&mut self, last: &[ReadManifest]) -> Result<String> {
        if let Some(identity) = &self.identity {
            return Ok(identity.clone());
        }
        let mut known = last.iter().map(|found| found.manifest.store.clone());
        let known = known.rfind(|store| is_identity(store));
        let drawn = || format!("{:016x}", RandomState::new().hash_one(IDENTITY));
        let line = known.unwrap_or_else(drawn) + "\n";
        self.store
            .put(IDENTITY, &mut line.as_bytes())
            .map_err(Error::io("write", IDENTITY))?;
        // Another process may have been quicker.
        self.identity = identity(self.store)?;
        let missing = || Error::damaged(IDENTITY, "it is missing");
        self.identity.clone().ok_or_else(missing)
    }
}

/// Fails if one of these manifests names an earlier one, from number `from` on, that is missing or another one.
pub fn check_links<'a>(
    all: impl Iterator<Item = (&'a Link, &'a [Link])> + Clone,
    from: u64,
) -> Result<()> {
    let there: HashMap<_, _> = all
        .clone()
        .map(|(own, _)| (&own.name, &own.sha256))
        .collect();
    for (own, after) in all {
        for link in after.iter().filter(|link| number_in(&link.name) >= from) {
            let what = match there.get(&link.name) {
                Some(sha256) if **sha256 == link.sha256 => continue,
                Some(_) => format!("it is not the one that {} names", own.name),
                None => format!("it is missing: {} names it", own.name),
            };
            return Err(Error::damaged(&link.name, what));
        }
    }
    Ok(())
}

/// The number of a manifest's whole name; of what is none, the highest.
fn number_in(name: &str) -> u64 {
    let number = name
        .split_once('/')
        .and_then(|(_, name)| format::number_of(name));
    number.unwrap_or(u64::MAX)
}

fn identity(store: &dyn Store) -> Result<Option<String>> {
    let read = format::read(store, IDENTITY, IDENTITY_LEN as u64 + 1);
    let text = match read {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        read => String::from_utf8(read?).unwrap_or_default(),
    };
    match text.strip_suffix('\n').filter(|text| is_identity(text)) {
        Some(identity) => Ok(Some(identity.to_owned())),
        None => Err(Error::damaged(
            IDENTITY,
            "it is no identity; it may be removed",
        )),
    }
}

fn is_identity(text: &str) -> bool {
    text.len() == IDENTITY_LEN && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
