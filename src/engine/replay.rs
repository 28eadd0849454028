//! Bringing into memtables what the log holds and runs do not.
//!
//! In which order makes no difference to what is seen: a memtable orders records by key and number, and a range delete
//! covers by number. So records wait until there are some thousand, and go in by key.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::batch::{Ops, Relogged, relogged};
use crate::engine::state::ContainerState;
use crate::engine::write::insert;
use crate::env::{Fs, prefetch};
use crate::error::{Error, Result};
use crate::mem::Memtable;
use crate::record::{Header, key_head, shared_len};
use crate::types::{ContainerId, HIGHEST_NUMBER};
use crate::version::Catalogue;
use crate::wal::{Frame, FrameKind, Replayed, salvage};

/// What to say of a sequence number above [`HIGHEST_NUMBER`].
pub(super) const MADE_UP: &str = "no database counts that many writes";

type States = BTreeMap<ContainerId, Arc<ContainerState>>;

/// Brings it in, up to the log's damage if there is any, which is returned beside what was found.
pub(super) fn replay_into(
    fs: &dyn Fs,
    wal_dir: &Path,
    catalogue: &Catalogue,
    states: &States,
) -> Result<(Replayed, Option<Error>)> {
    let (log, closed) = (catalogue.log, catalogue.log_is_closed);
    let mut gathered = Gathered {
        states,
        records: vec![],
        bytes: vec![],
    };
    let found = salvage(fs, wal_dir, log, closed, &mut |frame| {
        gathered.take_frame(frame)
    })?;
    gathered.insert()?;
    Ok(found)
}

/// So many bytes of keys and values are gathered, about, and then inserted in the order of their keys: each record finds
/// in the caches what the one before it looked at, and neighbours in the tree are neighbours in memory.
const GATHERED_BYTES: usize = 2 << 20;
/// How many records ahead are fetched into the caches.
const FETCHED_AHEAD: usize = 8;

/// Records that were read and are in no memtable yet.
struct Gathered<'a> {
    states: &'a States,
    records: Vec<Record>,
    /// Key, value, key, value ...
    bytes: Vec<u8>,
}

struct Record {
    container: ContainerId,
    header: Header,
    key: Range<usize>,
    value_end: usize,
}

impl Gathered<'_> {
    fn take_frame(&mut self, frame: &Frame<'_>) -> Result<()> {
        let malformed = |what| frame.corruption(&what);
        let (first, written_at) = (frame.head.first_seq, frame.head.written_at);
        if first.0 > HIGHEST_NUMBER {
            return Err(Error::corruption(frame.path, frame.offset, MADE_UP));
        }
        match frame.head.kind {
            FrameKind::Batch => {
                let mut seq = first;
                for op in Ops::new(frame.payload) {
                    self.take(&op.map_err(malformed)?.at(seq, written_at))?;
                    seq = seq.next();
                }
            }
            FrameKind::Relog => {
                for entry in relogged(frame.payload) {
                    self.take(&entry.map_err(malformed)?)?;
                }
            }
            FrameKind::End => {}
        }
        if self.bytes.len() >= GATHERED_BYTES {
            self.insert()?;
        }
        Ok(())
    }

    fn take(&mut self, write: &Relogged<'_>) -> Result<()> {
        let Some(state) = self.states.get(&write.container()) else {
            return Ok(());
        };
        match *write {
            Relogged::Record {
                container,
                header,
                key,
                value,
            } if header.seq > state.flushed() => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(key);
                let key = start..self.bytes.len();
                self.bytes.extend_from_slice(value);
                self.records.push(Record {
                    container,
                    header,
                    key,
                    value_end: self.bytes.len(),
                });
            }
            Relogged::Range { seq, .. } if seq > state.flushed() => {
                insert(&state.picture().active.memtable, write)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Brings in what was gathered.
    fn insert(&mut self) -> Result<()> {
        // Stable, and mostly all are of one container.
        self.records.sort_by_key(|record| record.container);
        let same = |a: &Record, b: &Record| a.container == b.container;
        for records in self.records.chunk_by(same) {
            let picture = self.states[&records[0].container].picture();
            insert_sorted(&picture.active.memtable, records, &self.bytes)?;
        }
        self.records.clear();
        self.bytes.clear();
        Ok(())
    }
}

/// Inserts records of one container, at least one, in the order of their keys, as far as eight bytes of these tell.
fn insert_sorted(memtable: &Memtable, records: &[Record], bytes: &[u8]) -> Result<()> {
    let key = |record: &Record| &bytes[record.key.clone()];
    let with_first = |record| shared_len(key(&records[0]), key(record));
    let shared = records.iter().map(with_first).min().unwrap_or(0);
    let heads = records
        .iter()
        .map(|record| key_head(&key(record)[shared..]));
    let mut order: Vec<(u64, usize)> = heads.zip(0..).collect();
    order.sort_unstable();
    for (place, &(_, number)) in order.iter().enumerate() {
        if let Some(&(_, ahead)) = order.get(place + FETCHED_AHEAD) {
            let Record { key, value_end, .. } = &records[ahead];
            prefetch(&bytes[key.start]);
            prefetch(&bytes[value_end - 1]);
        }
        let record = &records[number];
        let value = &bytes[record.key.end..record.value_end];
        memtable.insert(record.header, key(record), value)?;
    }
    Ok(())
}
