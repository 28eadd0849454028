//! Replay: inserts the records of the log that are in no run into memtables.
//!
//! The order of insertion does not change what readers see: a memtable orders records by key and sequence number, and a
//! range delete covers by sequence number. So records are loaded into an empty memtable, which puts them in order at the
//! end (src/mem/load.rs); those behind a range delete or a command are inserted one by one. Range deletes come in at the
//! end, by sequence number, because relogged ones come out of order. A record is left out if a later range delete,
//! earlier in the log, covers it: no open snapshot could see it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::base::{ContainerId, Error, HIGHEST_NUMBER, Result, Seq, Timestamp};
use crate::catalog::{Catalogue, Change, ContainerRecord, ContainerVersion, Logged};
use crate::data::batch::{KeyRange, Op, Ops};
use crate::data::new_container::NewContainer;
use crate::data::range_tombstones::Fragments;
use crate::data::relogged::{Relogged, relogged};
use crate::engine::parts::read_state::Flushable;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::state_changes::keeps;
use crate::env::Fs;
use crate::mem::Pool;
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
    /// The catalogue as the log has changed it, if it has.
    pub changed: Option<Changed>,
    /// Whether the log holds records that were not brought in.
    pub left_out: bool,
}

/// A catalogue and its containers, with what operations of the log have changed.
pub(in crate::engine) struct Changed {
    pub catalogue: Catalogue,
    /// Those that were made, too, and without those that were dropped.
    pub states: States,
    /// The changes, in order.
    pub logged: Vec<Logged>,
    /// The containers of which settings, quota, or the time that ends are kept were changed. Nobody judges by it yet.
    settings: BTreeSet<ContainerId>,
    /// Whether a container was made or dropped.
    pub makes_or_drops: bool,
}

impl Changed {
    /// Sets what was changed, of containers that nobody reads yet.
    pub fn set(&self) {
        for id in &self.settings {
            let (Some(state), Some(record)) =
                (self.states.get(id), self.catalogue.containers.get(id))
            else {
                continue;
            };
            let mut changing = state.begin_change();
            changing.change_to(record.settings.clone(), record.settings_seq);
            drop(changing);
            state.set_limits(record);
        }
    }

    /// The containers of which settings were changed.
    pub fn settings(&self) -> impl Iterator<Item = (&Arc<ContainerState>, &ContainerRecord)> {
        let of = |id| Some((self.states.get(id)?, self.catalogue.containers.get(id)?));
        self.settings.iter().filter_map(of)
    }
}

/// Replays the log, up to its damage if there is any. With `threads`, another one reads the log ahead of it, and records that
/// were loaded are left to [`finish_loads`].
pub(in crate::engine) fn replay_into(
    fs: &dyn Fs,
    wal_dir: &Path,
    catalogue: &Catalogue,
    (states, pool): (&States, &Arc<Pool>),
    threads: bool,
) -> Result<FromLog> {
    let (log, synced) = (catalogue.log, catalogue.log_synced);
    let mut gathered = Gathered::new(catalogue, states, pool);
    let take = &mut |frame: &Frame<'_>| gathered.take_frame(frame);
    let (replayed, damage) = match threads {
        true => salvage_ahead(fs, wal_dir, log, synced, take)?,
        false => salvage(fs, wal_dir, log, synced, take)?,
    };
    let left_out = gathered.left_out;
    let changed = match threads {
        true => gathered.finish_but_loads()?,
        false => gathered.finish()?,
    };
    if let Some(changed) = &changed {
        changed.set();
    }
    Ok(FromLog {
        replayed,
        damage,
        changed,
        left_out,
    })
}

/// Puts loaded records in order and shows them. Until then nothing else is written to these memtables.
pub(in crate::engine) fn finish_loads(states: &States) -> Result<()> {
    let mut all = states.values();
    all.try_for_each(|state| state.read_state().active.memtable.finish_load())
}

/// The records that were read, and the containers that they go to.
pub(in crate::engine) struct Gathered<'a> {
    states: &'a States,
    /// The container of the last record.
    last: Option<Target>,
    ranges: BTreeMap<ContainerId, Ranges>,
    catalogue: &'a Catalogue,
    pool: &'a Arc<Pool>,
    /// In place of catalogue and states, from the first change on.
    changed: Option<Changed>,
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
    pub fn new(catalogue: &'a Catalogue, states: &'a States, pool: &'a Arc<Pool>) -> Gathered<'a> {
        Gathered {
            states,
            last: None,
            ranges: BTreeMap::new(),
            catalogue,
            pool,
            changed: None,
            left_out: false,
        }
    }

    /// Brings in the rest; answers what was changed of the catalogue.
    pub fn finish(self) -> Result<Option<Changed>> {
        finish_loads(self.states())?;
        self.finish_but_loads()
    }

    /// The same, but records that were loaded are left to [`finish_loads`].
    fn finish_but_loads(mut self) -> Result<Option<Changed>> {
        self.insert_ranges()?;
        Ok(self.changed)
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
                    match op.is_record() {
                        true => self.take(&op.at(seq, written_at))?,
                        false => {
                            let at = (seq, frame.header.settled);
                            let change = self.take_change(&op, at)?;
                            change.map_err(|what| {
                                Error::corruption(frame.path, frame.offset, what)
                            })?;
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
            let state = self.states().get(&container)?;
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

    fn states(&self) -> &States {
        self.changed
            .as_ref()
            .map_or(self.states, |changed| &changed.states)
    }

    fn catalogue(&self) -> &Catalogue {
        self.changed
            .as_ref()
            .map_or(self.catalogue, |changed| &changed.catalogue)
    }

    /// Takes what changes the catalogue, unless that has it or a later one; or says why it does not fit.
    fn take_change(
        &mut self,
        op: &Op<'_>,
        (seq, settled): (Seq, Timestamp),
    ) -> Result<Result<(), String>> {
        if seq <= self.catalogue().repeated {
            return Ok(Ok(()));
        }
        let id = op.container();
        let record = self.catalogue().containers.get(&id);
        // An older build says changes of settings by edits, too.
        let is_known = record.is_some_and(|record| record.settings_seq >= seq);
        let changes = match (*op, op.of_settings(), record) {
            (Op::Create { new, .. }, ..) => {
                let Ok(new) = NewContainer::decode(new) else {
                    return Ok(Err("a container that is none".to_owned()));
                };
                let what = || format!("container {:?} of the log", new.name);
                new.compression.check(what)?;
                let record = ContainerRecord::of_new(id, seq, &new);
                vec![Change::CreateContainer(record)]
            }
            (_, _, None) => return Ok(Ok(())),
            (Op::Drop { .. }, ..) => vec![Change::DropContainer(id), Change::Dropped(seq)],
            (Op::SetQuota { quota, .. }, ..) => vec![Change::Quota(id, quota)],
            (
                Op::KeepExpired {
                    millis,
                    ends_dropped,
                    ..
                },
                ..,
            ) => keeps(id, millis, ends_dropped).to_vec(),
            (_, Some(change), Some(record)) if !is_known => {
                let settings = record.settings.after(change, settled, seq);
                let change = vec![Change::Settings(id, settings, seq)];
                if matches!(op, Op::Expire { .. })
                    && let Some(target) = self.target(id)
                {
                    target.begin_era()?;
                }
                change
            }
            _ => return Ok(Ok(())),
        };
        let logged = Logged {
            seq,
            settled,
            changes,
        };
        Ok(self.change(id, op, logged))
    }

    fn change(&mut self, id: ContainerId, op: &Op<'_>, logged: Logged) -> Result<(), String> {
        let changed = self.changed.get_or_insert_with(|| Changed {
            catalogue: self.catalogue.clone(),
            states: self.states.clone(),
            logged: vec![],
            settings: BTreeSet::new(),
            makes_or_drops: false,
        });
        changed.catalogue.note(&logged)?;
        changed.logged.push(logged);
        match op {
            Op::Create { .. } => {
                let record = &changed.catalogue.containers[&id];
                let state =
                    ContainerState::new(record, ContainerVersion::default(), self.pool.clone());
                changed.states.insert(id, Arc::new(state));
                changed.makes_or_drops = true;
            }
            Op::Drop { .. } => {
                changed.states.remove(&id);
                changed.settings.remove(&id);
                changed.makes_or_drops = true;
                self.ranges.remove(&id);
                (self.last, self.left_out) = (None, true);
            }
            _ => drop(changed.settings.insert(id)),
        }
        Ok(())
    }

    fn is_covered(&self, container: ContainerId, key: &[u8], seq: Seq) -> bool {
        let ranges = self.ranges.get(&container);
        ranges.is_some_and(|ranges| seq < ranges.fragments.max_covering_seq(key))
    }

    /// Inserts the range deletes that the memtable does not have.
    fn insert_ranges(&mut self) -> Result<()> {
        for (container, mut ranges) in std::mem::take(&mut self.ranges) {
            let read_state = self.states()[&container].read_state();
            read_state.active.memtable.finish_load()?;
            let there = read_state.active.memtable.range_deletes().seq_max();
            for (seq, range) in ranges.by_number.split_off(&there.next()) {
                read_state.active.memtable.delete_range(range, seq);
            }
        }
        Ok(())
    }
}
