//! Replay: inserts the records of the log that are in no run into memtables.
//!
//! The order of insertion does not change what readers see: a memtable orders records by key and sequence number, and a
//! range delete covers by sequence number. So records are gathered by the thousand and inserted in key order. Range
//! deletes are inserted at the end, by sequence number, because relogged ones come out of order. A record is left out
//! if a later range delete, earlier in the log, covers it: no open snapshot could see it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::base::record::{Header, key_prefix, shared_len};
use crate::base::{ContainerId, Error, HIGHEST_NUMBER, Result, Seq, Timestamp};
use crate::catalog::Catalogue;
use crate::data::batch::{KeyRange, Ops, Relogged, relogged};
use crate::data::range_tombstones::Fragments;
use crate::engine::catalog::LoggedSettings;
use crate::engine::state::ContainerState;
use crate::env::{Fs, prefetch};
use crate::expiry::SettingsChange;
use crate::mem::Memtable;
use crate::wal::{Frame, FrameKind, Replayed, salvage};

/// The message for a sequence number above [`HIGHEST_NUMBER`].
pub(super) const MADE_UP: &str = "no database counts that many writes";

/// The containers of a catalogue.
pub(super) type States = BTreeMap<ContainerId, Arc<ContainerState>>;

/// The result of a replay.
pub(super) struct FromLog {
    pub replayed: Replayed,
    /// The damage in the log, if there is any; what follows it is not replayed.
    pub damage: Option<Error>,
    /// Settings changed in the log that the catalogue does not have.
    pub settings: Vec<LoggedSettings>,
}

/// Replays the log, up to its damage if there is any.
pub(super) fn replay_into(
    fs: &dyn Fs,
    wal_dir: &Path,
    catalogue: &Catalogue,
    states: &States,
) -> Result<FromLog> {
    let (log, synced) = (catalogue.log, catalogue.log_synced);
    let mut gathered = Gathered::new(catalogue, states);
    let (replayed, damage) = salvage(fs, wal_dir, log, synced, &mut |frame| {
        gathered.take_frame(frame)
    })?;
    let settings = gathered.finish()?;
    set_logged(states, &settings);
    Ok(FromLog {
        replayed,
        damage,
        settings,
    })
}

/// About this many bytes of keys and values are gathered and then inserted in key order: each record finds in the
/// caches what the one before it looked at, and neighbours in the tree become neighbours in memory.
const GATHERED_BYTES: usize = 2 << 20;
/// How many records ahead are prefetched into the caches.
const FETCHED_AHEAD: usize = 8;

/// Sets what the log has changed of settings.
pub(super) fn set_logged(states: &States, settings: &[LoggedSettings]) {
    for logged in settings {
        let mut changing = states[&logged.container].begin_change();
        changing.change_to(logged.settings.clone(), logged.seq);
    }
}

/// Records that were read but not yet inserted.
pub(super) struct Gathered<'a> {
    states: &'a States,
    records: Vec<Record>,
    /// Key, value, key, value ...
    bytes: Vec<u8>,
    ranges: BTreeMap<ContainerId, Ranges>,
    catalogue: &'a Catalogue,
    settings: BTreeMap<ContainerId, LoggedSettings>,
}

/// The range deletes that were read for a container.
#[derive(Default)]
struct Ranges {
    by_number: BTreeMap<Seq, KeyRange>,
    /// What the range deletes that came in order cover.
    fragments: Fragments,
}

impl Ranges {
    fn take(&mut self, range: KeyRange, seq: Seq) {
        if seq > self.fragments.seq_max() {
            self.fragments = self.fragments.with(&range, seq);
        }
        self.by_number.insert(seq, range);
    }
}

struct Record {
    container: ContainerId,
    header: Header,
    key: Range<usize>,
    value_end: usize,
}

impl<'a> Gathered<'a> {
    /// Nothing was read yet.
    pub fn new(catalogue: &'a Catalogue, states: &'a States) -> Gathered<'a> {
        Gathered {
            states,
            records: vec![],
            bytes: vec![],
            ranges: BTreeMap::new(),
            catalogue,
            settings: BTreeMap::new(),
        }
    }

    /// Brings in the rest; answers what was changed of settings, which nobody judges by yet.
    pub fn finish(mut self) -> Result<Vec<LoggedSettings>> {
        self.insert()?;
        self.insert_ranges();
        Ok(self.settings.into_values().collect())
    }
}

impl Gathered<'_> {
    /// Takes what a frame holds.
    pub fn take_frame(&mut self, frame: &Frame<'_>) -> Result<()> {
        let malformed = |what| frame.corruption(&what);
        let (first, written_at) = (frame.header.first_seq, frame.header.written_at);
        if first.0 > HIGHEST_NUMBER {
            return Err(Error::corruption(frame.path, frame.offset, MADE_UP));
        }
        // Two growing buffers would be copied at each doubling.
        if self.bytes.capacity() == 0 {
            self.records.reserve(GATHERED_BYTES / 64);
            self.bytes.reserve(GATHERED_BYTES + GATHERED_BYTES / 4);
        }
        match frame.header.kind {
            FrameKind::Batch => {
                let mut seq = first;
                for op in Ops::new(frame.payload) {
                    let op = op.map_err(malformed)?;
                    match op.of_settings() {
                        None => self.take(&op.at(seq, written_at))?,
                        Some(change) => {
                            let at = (seq, frame.header.settled);
                            self.take_settings(op.container(), change, at)?;
                        }
                    }
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
            } if header.seq > state.flushed() && !self.is_covered(container, key, header.seq) => {
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
            Relogged::Range {
                container,
                seq,
                from,
                to,
            } if seq > state.flushed() => {
                // Estimates depend on which records are older than the range delete, so these go in first.
                self.insert()?;
                state.read_state().active.memtable.begin_era();
                let ranges = self.ranges.entry(container).or_default();
                ranges.take(KeyRange::of_bounds(from, to), seq);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes a change of settings, unless the catalogue has it or a later one.
    fn take_settings(
        &mut self,
        container: ContainerId,
        change: SettingsChange,
        (seq, settled): (Seq, Timestamp),
    ) -> Result<()> {
        let Some(state) = self.states.get(&container) else {
            return Ok(());
        };
        let said = self.catalogue.containers.get(&container);
        let last = self.settings.get(&container);
        let known = last.map(|last| last.seq);
        if known.max(said.map(|said| said.settings_seq)) >= Some(seq) {
            return Ok(());
        }
        if matches!(change, SettingsChange::Expire(_)) {
            // As for a range delete.
            self.insert()?;
            state.read_state().active.memtable.begin_era();
        }
        let last = self.settings.get(&container);
        let before = last.map_or_else(|| state.settings(), |last| last.settings.clone());
        let settings = before.after(change, settled, seq);
        let logged = LoggedSettings {
            container,
            settings,
            seq,
            settled,
        };
        self.settings.insert(container, logged);
        Ok(())
    }

    fn is_covered(&self, container: ContainerId, key: &[u8], seq: Seq) -> bool {
        let ranges = self.ranges.get(&container);
        ranges.is_some_and(|ranges| seq < ranges.fragments.max_covering_seq(key))
    }

    /// Inserts the range deletes that the memtable does not have.
    fn insert_ranges(&mut self) {
        for (container, mut ranges) in std::mem::take(&mut self.ranges) {
            let read_state = self.states[&container].read_state();
            let there = read_state.active.memtable.range_deletes().seq_max();
            for (seq, range) in ranges.by_number.split_off(&there.next()) {
                read_state.active.memtable.delete_range(range, seq);
            }
        }
    }

    /// Inserts the gathered records.
    fn insert(&mut self) -> Result<()> {
        // A stable sort; mostly all are of one container.
        self.records.sort_by_key(|record| record.container);
        let same = |a: &Record, b: &Record| a.container == b.container;
        for records in self.records.chunk_by(same) {
            let read_state = self.states[&records[0].container].read_state();
            insert_sorted(&read_state.active.memtable, records, &self.bytes)?;
        }
        self.records.clear();
        self.bytes.clear();
        Ok(())
    }
}

/// Inserts records of one container, at least one, sorted by the first eight bytes in which their keys differ.
fn insert_sorted(memtable: &Memtable, records: &[Record], bytes: &[u8]) -> Result<()> {
    let key = |record: &Record| &bytes[record.key.clone()];
    let with_first = |record| shared_len(key(&records[0]), key(record));
    let shared = records.iter().map(with_first).min().unwrap_or(0);
    let prefixes = records
        .iter()
        .map(|record| key_prefix(&key(record)[shared..]));
    let mut order: Vec<(u64, usize)> = prefixes.zip(0..).collect();
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
