//! The objects of a store.
//!
//! ```text
//! objects/SHA256        the bytes of one file, named by their hash: stored once, however many backups have it
//! backups/NUMBER        a backup: its files by name and hash, and the ledger of its moment; written last. Tables that
//!                       had ended by this or a later ledger may be left out, or their objects missing (later.rs)
//! ledgers/NUMBER        a ledger alone
//! leases/NAME           somebody is at work (lease.rs)
//! store/identity        sixteen hexadecimal digits and a line break: which store this is
//!
//! backup, ledger        sha256 of the rest, hexadecimal | line break | JSON
//! ```
//!
//! Numbers have twenty digits. They count backups and ledgers together, upwards, so a ledger with a higher number
//! than a backup says what came after it. Each names itself, its store, and those before it by their hashes, so that none
//! can take the place of another one, nor be missing unnoticed.
//!
//! Nothing in a store is trusted: no read goes further than what is declared, or than [`MOST_BYTES`]; and whatever has
//! another name than these is a stranger, which is left alone.

use std::io::Read;

use data_encoding::HEXLOWER;
use ebbtide::Ledger;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::store::Store;

pub const OBJECTS: &str = "objects";
pub const BACKUPS: &str = "backups";
pub const LEDGERS: &str = "ledgers";
pub const IDENTITY: &str = "store/identity";

/// The version of backups that is written. 2 has names, stores, and what came before; 1 has none of them, and is read too.
const VERSION: u32 = 2;

/// Bytes of a hash in hexadecimal.
const HASH_LEN: usize = 64;

/// The longest manifest: of a million tables, at some 250 bytes each.
pub const MOST_BYTES: u64 = 256 << 20;

/// The highest number.
const MOST_NUMBER: u64 = 1 << 56;

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Below the database's folder, with `/` between its parts.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// The name of its object.
    pub sha256: String,
}

/// An earlier backup or ledger, as a later one names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its name in the store.
    pub name: String,
    /// The hash that it begins with.
    pub sha256: String,
}

/// A backup; of a ledger alone, without files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    /// Its own name in the store; in version 1 none, as are the next two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The identity of the store.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub store: String,
    /// The last backup and the last ledger before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Link>,
    /// When it was made, in milliseconds since 1970.
    pub taken_at: u64,
    pub files: Vec<StoredFile>,
    pub ledger: Ledger,
    /// Tables in which all ends before this moment are left out; in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_before: Option<u64>,
}

/// Why bytes are no manifest.
#[derive(Debug)]
pub enum Unread {
    /// They are of this version.
    Version(u32),
    /// The bytes are damaged: the damage, in words.
    Damaged(String),
}

impl Manifest {
    pub fn new(taken_at: u64, files: Vec<StoredFile>, ledger: Ledger) -> Manifest {
        Manifest {
            version: VERSION,
            name: String::new(),
            store: String::new(),
            after: vec![],
            taken_at,
            files,
            ledger,
            left_out_before: None,
        }
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Its bytes in the store, which begin with its hash.
    pub fn encode(&self) -> Vec<u8> {
        seal(&serde_json::to_vec(self).expect("a manifest is JSON"))
    }

    /// Reads what [`Manifest::encode`] wrote, and the hash that it begins with.
    pub fn decode(bytes: &[u8]) -> std::result::Result<(Manifest, String), Unread> {
        let damaged = |what: &str| Unread::Damaged(what.to_owned());
        let (head, json) = bytes.split_at_checked(HASH_LEN + 1).unwrap_or_default();
        let sha256 = hash(json);
        if head != format!("{sha256}\n").as_bytes() {
            return Err(damaged("it does not match its checksum"));
        }
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let no_manifest = |error: serde_json::Error| Unread::Damaged(error.to_string());
        match serde_json::from_slice(json).map_err(no_manifest)? {
            Versioned { version: 1 | 2 } => {}
            Versioned { version } => return Err(Unread::Version(version)),
        }
        let manifest: Manifest = serde_json::from_slice(json).map_err(no_manifest)?;
        let mut lens = manifest.files.iter().map(|file| file.len);
        let names_objects = manifest.files.iter().all(|file| is_hash(&file.sha256));
        if !names_objects
            || lens
                .try_fold(0u64, |sum, len| sum.checked_add(len))
                .is_none()
        {
            return Err(damaged("it names a file that cannot be"));
        }
        if (manifest.version > 1) == (manifest.name.is_empty() || manifest.store.is_empty()) {
            return Err(damaged("its version does not fit what it says"));
        }
        Ok((manifest, sha256))
    }
}

/// JSON under its checksum.
pub fn seal(json: &[u8]) -> Vec<u8> {
    [hash(json).as_bytes(), b"\n", json].concat()
}

pub fn name(folder: &str, number: u64) -> String {
    format!("{folder}/{number:020}")
}

/// The number of a name in a folder of backups or ledgers; none: it is a stranger.
pub fn number_of(name: &str) -> Option<u64> {
    let has_form = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
    let number = name.parse().ok().filter(|_| has_form)?;
    (1..=MOST_NUMBER).contains(&number).then_some(number)
}

pub fn object(sha256: &str) -> String {
    format!("{OBJECTS}/{sha256}")
}

pub fn is_hash(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == HASH_LEN && name.bytes().all(is_digit)
}

fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Reads a whole object that has at most so many bytes.
pub fn read(store: &dyn Store, name: &str, most: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    store
        .get(name)
        .and_then(|from| from.take(most.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(Error::io("read", name))?;
    match bytes.len() as u64 > most {
        true => Err(Error::damaged(
            name,
            format!("it is longer than {most} bytes"),
        )),
        false => Ok(bytes),
    }
}
