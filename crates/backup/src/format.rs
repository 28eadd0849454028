//! What the store holds.
//!
//! ```text
//! objects/SHA256        the bytes of one file, named by their hash: stored once, however many backups have it
//! backups/NUMBER        a backup: its files by name and hash, and the ledger of its moment; written last. Tables that
//!                       had ended by this or a later ledger may be left out, or their objects missing (later.rs)
//! ledgers/NUMBER        a ledger alone
//! leases/NAME           somebody is at work (lease.rs)
//!
//! backup, ledger        sha256 of the rest, hexadecimal | line break | JSON
//! ```
//!
//! Numbers have twenty digits. They count backups and ledgers together, upwards, so a ledger with a higher number
//! than a backup says what came after it.

use std::io::Read;

use data_encoding::HEXLOWER;
use ebbtide::Ledger;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::store::Store;

pub const OBJECTS: &str = "objects";
pub const BACKUPS: &str = "backups";
pub const LEDGERS: &str = "ledgers";

/// The version of backups; another one is refused.
const VERSION: u32 = 1;

/// Bytes of the hash in hexadecimal.
const HASH_LEN: usize = 64;

/// A file of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredFile {
    /// Below the database's folder, with `/` between its parts.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// The name of its object.
    pub sha256: String,
}

/// A backup; of a ledger alone, without files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    /// When it was made, in milliseconds since 1970.
    pub taken_at: u64,
    pub files: Vec<StoredFile>,
    pub ledger: Ledger,
    /// Tables in which all ends before this moment are left out; in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_before: Option<u64>,
}

impl Manifest {
    pub fn new(taken_at: u64, files: Vec<StoredFile>, ledger: Ledger) -> Manifest {
        Manifest {
            version: VERSION,
            taken_at,
            files,
            ledger,
            left_out_before: None,
        }
    }
}

pub fn name(folder: &str, number: u64) -> String {
    format!("{folder}/{number:020}")
}

pub fn object(sha256: &str) -> String {
    format!("{OBJECTS}/{sha256}")
}

pub fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// The numbers in a folder, ascending.
pub fn numbers(store: &dyn Store, folder: &str) -> Result<Vec<u64>> {
    let names = store.list(folder).map_err(Error::io("list", folder))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a whole object.
pub fn read(store: &dyn Store, name: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    store
        .get(name)
        .and_then(|mut from| from.read_to_end(&mut bytes))
        .map_err(Error::io("read", name))?;
    Ok(bytes)
}

/// Stores a value under the first number that is free from `number` on, and returns that.
pub fn put_numbered(
    store: &dyn Store,
    folder: &str,
    mut number: u64,
    value: &impl Serialize,
) -> Result<u64> {
    let json = serde_json::to_vec(value).map_err(|error| Error::Refused(error.to_string()))?;
    let mut bytes = hash(&json).into_bytes();
    bytes.push(b'\n');
    bytes.extend_from_slice(&json);
    loop {
        let name = name(folder, number);
        match store.put(&name, &mut bytes.as_slice()) {
            Ok(true) => return Ok(number),
            Ok(false) => number += 1,
            Err(error) => return Err(Error::io("write", name)(error)),
        }
    }
}

/// Reads what [`put_numbered`] stored.
pub fn get_numbered(store: &dyn Store, folder: &str, number: u64) -> Result<Manifest> {
    let name = name(folder, number);
    let bytes = read(store, &name)?;
    let manifest: Manifest = checked(&bytes).map_err(|what| Error::Damaged {
        name: name.clone(),
        what,
    })?;
    match manifest.version {
        VERSION => Ok(manifest),
        other => Err(Error::Refused(format!(
            "{name} has version {other}, and this build reads version {VERSION}"
        ))),
    }
}

fn checked<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, String> {
    match bytes.split_at_checked(HASH_LEN + 1) {
        Some((head, json)) if head == format!("{}\n", hash(json)).as_bytes() => {
            serde_json::from_slice(json).map_err(|error| error.to_string())
        }
        _ => Err("it does not match its checksum".to_owned()),
    }
}
