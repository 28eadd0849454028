//! The log that a manifest names, and the files of chains that no open database writes.
//!
//! ```text
//! prefix: chain a, first 5, end e                 chain b, first 9, its ring
//! 000005.wal 000006.wal 000007.wal (000008.wal)   000009.wal 000010.wal
//! ...................... e                        e ................     positions
//! ```
//!
//! A log is one sequence of positions. Mostly all of its segments are of one chain; after an open that kept the log it
//! found (keep.rs), those before the manifest's `first` are of the chain before.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::base::{Result, file_name};
use crate::env::Fs;
use crate::wal::frame::{HEADER_LEN, Position, SegmentHeader};

/// The log that a manifest names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStart {
    /// The identity of the chain: segments and rings of another identity belong to another database, or to another open
    /// of this one.
    pub chain: u64,
    /// The first segment that is needed.
    pub first: u64,
    /// The number in the name of its ring; absent: it never had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<u64>,
    /// The log before it; absent: none is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
}

/// The part of an earlier log that is needed: it is only read. Bytes of its segments behind the end are no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// The identity of its chain.
    pub chain: u64,
    /// The first segment that is needed.
    pub first: u64,
    /// Its end, which is where the chain after it begins: positions go on.
    pub end: Position,
}

impl LogStart {
    /// The first segment that is needed, of the prefix if there is one.
    pub fn oldest(&self) -> u64 {
        self.prefix.map_or(self.first, |prefix| prefix.first)
    }

    /// The same log, if this segment is the first that is needed.
    pub fn needed_from(self, number: u64) -> LogStart {
        let prefix = self.prefix.filter(|_| number < self.first);
        LogStart {
            first: number.max(self.first),
            prefix: prefix.map(|prefix| Prefix {
                first: number.max(prefix.first),
                ..prefix
            }),
            ..self
        }
    }

    /// The chain to which a segment of this number belongs, and where its part of the log ends.
    pub fn chain_of(&self, number: u64) -> (u64, Option<Position>) {
        match self.prefix.filter(|_| number < self.first) {
            Some(prefix) => (prefix.chain, Some(prefix.end)),
            None => (self.chain, None),
        }
    }
}

/// The ring's name for the chain that begins with this segment.
pub fn ring_name(first_segment: u64) -> String {
    format!("{first_segment:06}.ring")
}

/// The number in a ring's name.
pub fn parse_ring(name: &str) -> Option<u64> {
    file_name::parse_segment(&format!("{}.wal", name.strip_suffix(".ring")?))
}

/// The names of the files that a manifest with this log names.
pub fn log_files(log: &LogStart) -> Vec<String> {
    let ring = log.ring.map(ring_name);
    let prefix = log.prefix.map(|prefix| file_name::segment(prefix.first));
    [file_name::segment(log.first)]
        .into_iter()
        .chain(ring)
        .chain(prefix)
        .collect()
}

/// Whether a segment of this log is in the folder; `None` if no segment there tells its chain.
pub fn holds_chain(fs: &dyn Fs, dir: &Path, log: &LogStart) -> Result<Option<bool>> {
    let mut found = None;
    if !fs.is_dir(dir) {
        return Ok(found);
    }
    for name in fs.list(dir)? {
        if file_name::parse_segment(&name).is_none() {
            continue;
        }
        // A file that is too short or unreadable does not tell its chain.
        let file = fs.reader(&dir.join(&name));
        let Ok(file) = file else { continue };
        let back = fs.len(&dir.join(&name))?.unwrap_or(0);
        let header_at = |at| {
            let bytes = file.read_at(at, HEADER_LEN).ok()?;
            SegmentHeader::decode(&bytes).ok()
        };
        let back = back.saturating_sub(HEADER_LEN as u64);
        if let Some(header) = header_at(0).or_else(|| header_at(back)) {
            let is_one = log.chain_of(header.number).0 == header.identity;
            found = Some(is_one || found == Some(true));
        }
    }
    Ok(found)
}

/// Removes the files of a chain that no manifest names, where that is possible.
pub fn remove_chain(fs: &dyn Fs, dir: &Path, first_segment: u64) {
    let number = |name: &str| file_name::parse_segment(name).or_else(|| parse_ring(name));
    for name in fs.list(dir).unwrap_or_default() {
        if number(&name).is_some_and(|number| number >= first_segment) {
            let _ = fs.remove(&dir.join(name));
        }
    }
}

/// Removes the segments below a number, and the rings if `rings`, where that is possible; returns how many files. No
/// manifest names them any more.
pub fn remove_before(fs: &dyn Fs, dir: &Path, number: u64, rings: bool) -> usize {
    let goes = |name: &str| {
        let ring = parse_ring(name).filter(|_| rings);
        let found = file_name::parse_segment(name).or(ring);
        found.is_some_and(|found| found < number)
    };
    let names = fs.list(dir).unwrap_or_default().into_iter();
    let gone = names.filter(|name| goes(name) && fs.remove(&dir.join(name)).is_ok());
    gone.count()
}

/// Puts its header behind a segment that was copied up to the offset `end`, if the whole has `len` bytes; durable but for
/// the name.
pub fn end_segment(fs: &dyn Fs, path: &Path, end: u64, len: u64) -> Result<()> {
    if end >= len {
        return Ok(());
    }
    let header = fs.reader(path)?.read_at(0, HEADER_LEN)?;
    let file = fs.open(path)?;
    file.write_at(end, &header)?;
    file.sync()
}

/// Syncs every chain in the folder, where its files exist.
pub fn sync_chain(fs: &dyn Fs, dir: &Path) -> Result<()> {
    for name in fs.list(dir)? {
        if file_name::parse_segment(&name).is_some() || parse_ring(&name).is_some() {
            fs.open(&dir.join(name))?.sync()?;
        }
    }
    fs.sync_dir(dir)
}
