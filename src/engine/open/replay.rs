//! Replay: inserts the records of the log that are in no run into memtables.
//!
//! The order of insertion does not change what readers see: a memtable orders records by key and sequence number, and a
//! range delete covers by sequence number. So records are loaded into an empty memtable, which puts them in order at the
//! end (src/mem/load.rs); those behind a range delete or a command are inserted one by one. Range deletes come in at the
//! end, by sequence number, because relogged ones come out of order. A record is left out if a later range delete,
//! earlier in the log, covers it: no open snapshot could see it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::base::{ContainerId, Error, HIGHEST_NUMBER, Result, Seq, Timestamp};
use crate::catalog::Catalogue;
use crate::data::batch::{KeyRange, Ops, Relogged, relogged};
use crate::data::range_tombstones::Fragments;
use crate::engine::parts::catalog::LoggedSettings;
use crate::engine::parts::read_state::Flushable;
use crate::engine::parts::state::ContainerState;
use crate::env::Fs;
use crate::expiry::SettingsChange;
use crate::wal::{Frame, FrameKind, Replayed, salvage, salvage_ahead};

/// The message for a sequence number above [`HIGHEST_NUMBER`].
pub(in crate::engine) const MADE_UP: &str = "no database counts that many writes";

/// The containers of a catalogue.
pub(in crate::engine) type States = BTreeMap<ContainerId, Arc<ContainerState>>;

/// The result of a replay.
pub(in crate::engine) struct FromLog {
    pub replayed: Replayed,
    /// The damage in the log, if there is any; the log behind it is not replayed.
    pub damage: Option<Error>,
    /// Settings changed in the log that the catalogue does not have.
    pub settings: Vec<LoggedSettings>,
    /// Whether the log holds records that were not brought in.
    pub left_out: bool,
}

/// Replays the log, up to its damage if there is any. With `threads`, another one reads the log ahead of it, and records that
/// were loaded are left to [`finish_loads`].
pub(in crate::engine) fn replay_into(
    fs: &dyn Fs,
    wal_dir: &Path,
    catalogue: &Catalogue,
    states: &States,
    threads: bool,
) -> Result<FromLog> {
    let (log, synced) = (catalogue.log, catalogue.log_synced);
    let mut gathered = Gathered::new(catalogue, states);
    let take = &mut |frame: &Frame<'_>| gathered.take_frame(frame);
    let (replayed, damage) = match threads {
        true => salvage_ahead(fs, wal_dir, log, synced, take)?,
        false => salvage(fs, wal_dir, log, synced, take)?,
    };
    let left_out = gathered.left_out;
    let settings = match threads {
        true => gathered.finish_but_loads()?,
        false => gathered.finish()?,
    };
    set_logged(states, &settings);
    Ok(FromLog {
        replayed,
        damage,
        settings,
        left_out,
    })
}

/// Puts loaded records in order and shows them. Until then nothing else is written to these memtables.
pub(in crate::engine) fn finish_loads(states: &States) -> Result<()> {
    let mut all = states.values();
    all.try_for_each(|state| state.read_state().active.memtable.finish_load())
}

/// Sets the settings that the log has changed.
pub(in crate::engine) fn set_logged(states: &States, settings: &[LoggedSettings]) {
    for logged in settings {
        let mut changing = states[&logged.container].begin_change();
        changing.change_to(logged.settings.clone(), logged.seq);
    }
}

/// The records that were read, and the containers that they go to.
pub(in crate::engine) struct Gathered<'a> {
    states: &'a States,
    /// The container of the last record.
    last: Option<Target>,
    ranges: BTreeMap<ContainerId, Ranges>,
    catalogue: &'a Catalogue,
    settings: BTreeMap<ContainerId, LoggedSettings>,
    /// Whether a record or a range delete was not needed.
    left_out: bool,
}

/// A container whose records are brought in: its memtable, and up to where it was flushed.
struct Target {
    container: ContainerId,
    flushable: Arc<Flushable>,
    flushed: Seq,
}

/// The range deletes that were read for a container.
#[derive(Default)]
struct Ranges {
    by_number: BTreeMap<Seq, KeyRange>,
    /// The ranges covered by the range deletes that came in order.
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

impl Target {
    /// A range delete or a command follows. Estimates depend on which records are older, so these come before it.
    fn begin_era(&self) -> Result<()> {
        let memtable = &self.flushable.memtable;
        memtable.finish_load()?;
        memtable.begin_era();
        Ok(())
    }
}

impl<'a> Gathered<'a> {
    /// Nothing was read yet.
    pub fn new(catalogue: &'a Catalogue, states: &'a States) -> Gathered<'a> {
        Gathered {
            states,
            last: None,
            ranges: BTreeMap::new(),
            catalogue,
            settings: BTreeMap::new(),
            left_out: false,
        }
    }

    /// Brings in the rest; returns the changed settings, by which nobody judges yet.
    pub fn finish(self) -> Result<Vec<LoggedSettings>> {
        finish_loads(self.states)?;
        self.finish_but_loads()
    }

    /// The same, but records that were loaded are left to [`finish_loads`].
    fn finish_but_loads(mut self) -> Result<Vec<LoggedSettings>> {
        self.insert_ranges()?;
        Ok(self.settings.into_values().collect())
    }
}

impl Gathered<'_> {
    /// Takes the records of a frame.
    pub fn take_frame(&mut self, frame: &Frame<'_>) -> Result<()> {
        let malformed = |what| frame.corruption(&what);
        let (first, written_at) = (frame.header.first_seq, frame.header.written_at);
        if first.0 > HIGHEST_NUMBER {
            return Err(Error::corruption(frame.path, frame.offset, MADE_UP));
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
        Ok(())
    }

    /// The target of a container's records, if it exists.
    #[inline]
    fn target(&mut self, container: ContainerId) -> Option<&Target> {
        let is_last = |last: &Target| last.container == container;
        if !self.last.as_ref().is_some_and(is_last) {
            let state = self.states.get(&container)?;
            self.last = Some(Target {
                container,
                flushable: state.read_state().active.clone(),
                flushed: state.flushed(),
            });
        }
        self.last.as_ref()
    }

    fn take(&mut self, write: &Relogged<'_>) -> Result<()> {
        match *write {
            Relogged::Record {
                container,
                header,
                key,
                value,
            } => {
                if self.is_covered(container, key, header.seq) {
                    self.left_out = true;
                    return Ok(());
                }
                match self.target(container) {
                    Some(target) if header.seq > target.flushed => {
                        target.flushable.memtable.load(header, key, value)
                    }
                    _ => {
                        self.left_out = true;
                        Ok(())
                    }
                }
            }
            Relogged::Range {
                container,
                seq,
                from,
                to,
            } => {
                match self.target(container) {
                    Some(target) if seq > target.flushed => target.begin_era()?,
                    _ => {
                        self.left_out = true;
                        return Ok(());
                    }
                }
                let ranges = self.ranges.entry(container).or_default();
                ranges.take(KeyRange::of_bounds(from, to), seq);
                Ok(())
            }
        }
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
        if matches!(change, SettingsChange::Expire(_))
            && let Some(target) = self.target(container)
        {
            target.begin_era()?;
        }
        let last = self.settings.get(&container);
        let before = last.map_or_else(
            || (*state.whole_settings()).clone(),
            |last| last.settings.clone(),
        );
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
    fn insert_ranges(&mut self) -> Result<()> {
        for (container, mut ranges) in std::mem::take(&mut self.ranges) {
            let read_state = self.states[&container].read_state();
            read_state.active.memtable.finish_load()?;
            let there = read_state.active.memtable.range_deletes().seq_max();
            for (seq, range) in ranges.by_number.split_off(&there.next()) {
                read_state.active.memtable.delete_range(range, seq);
            }
        }
        Ok(())
    }
}
