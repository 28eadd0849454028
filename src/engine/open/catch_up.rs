//! Following: reading beside the process that writes. Nothing is written, no lock is taken on any file, nobody waits
//! for it.
//!
//! ```text
//! stamp of the manifest --same--> place in the log --nothing behind it--> done: three bytes were read
//!         | differs                     | frames
//!         v                             v
//! manifest -> tables -> log       frames into the memtables -> publish
//!         |   what is open already is taken over; so are the memtables, unless something of them was flushed
//!         v
//! switch: all read states, settings and containers at once
//! ```
//!
//! **A follower shows** the state that an open would recover if the writer were killed at that moment: the edits of the
//! manifest, and the log behind them up to one frame. So it is a prefix of the writer's history, whole batches and
//! changes of settings included. Each catching-up shows every write that was acknowledged before it began, and perhaps
//! more: writes that wait for their sync are in the log.
//!
//! **Why catalogue and log go together.** The catalogue is read first. A reading of the log ends before the first
//! frame that has seen a later edit (wal/tail.rs), and never before the position up to which the manifest knows it
//! synced, which covers all that its edits rely on. So catalogue and log are of one moment, except for runs, which hold
//! the same before and after a merge.
//!
//! **Files that vanish.** The writer removes a file when an edit that no longer names it is durable. So a file that is
//! missing, or does not fit, is looked for again by the manifest as it is then. An error counts only if the same one is
//! met again and again: a change that is merely under way looks different the next time. Tables that are open stay
//! readable without their names.
//!
//! **Time.** A record that the writer has purged was gone at its mark, which the edit or the frame carries. The clock
//! is put forward to the mark before anything is shown that relies on it. Items are judged by that clock at each read,
//! as always.
//!
//! **A switch is one step for readers.** Each read asks for settings after it has loaded its read state and has
//! looked there, also if it found nothing. A read that asks during the switch waits (state.rs); one that loaded its
//! read state before the switch is a read of the state before, or begins anew. The sequence number is published first,
//! so nobody reads a new read state, from which older versions are gone, at an older number. Snapshots and scans pin
//! the read states of all containers with their number, for jobs of the writer know of no snapshot here.
//!
//! **History that was cut off.** After a repair, or where an older folder was put back, the last sequence number may
//! be lower than the published one. That stays published, and each change is a switch, until the writer is beyond it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, HIGHEST_NUMBER, Result, Seq, Timestamp, file_name};
use crate::catalog::{Catalogue, Logged, TableSpace, edit_texts, manifest_stamp};
use crate::engine::Engine;
use crate::engine::open::recover::{
    Continuation, Recovered, Shared, assemble, clock_of, find, highest_seq, open_containers,
};
use crate::engine::open::replay::{Changed, Gathered, MADE_UP, States};
use crate::engine::options::{Background, Options};
use crate::engine::parts::follower::{Follower, FollowerState};
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::snapshots::Frozen;
use crate::engine::parts::state::ContainerState;
use crate::env::{Fs, sleep};
use crate::mem::Pool;
use crate::wal::{Frame, FrameKind, LogStart, Tail, TailPosition, is_at_end, tail};

/// An error counts if it is met so many times, with pauses that double from a millisecond, some hundred in all.
const LOOKS: u32 = 8;

/// Repeats `look` until it succeeds, or has met the same error so often that no change under way explains it.
pub(in crate::engine) fn retry_until_stable<T>(mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let (mut met, mut times) = (String::new(), 0);
    loop {
        let error = match look() {
            Err(error) if !error.is_closed() => error,
            done => return done,
        };
        let what = error.to_string();
        if what != met {
            (met, times) = (what, 0);
        }
        times += 1;
        if times == LOOKS {
            return Err(error);
        }
        sleep(Duration::from_millis(1 << (times - 1)));
    }
}

/// Brings in what a log holds from a place on; says what it changes of the catalogue.
fn read_log(
    (fs, path): (&dyn Fs, &Path),
    log: &LogStart,
    from: Option<TailPosition>,
    (catalogue, states, pool): (&Catalogue, &States, &Arc<Pool>),
) -> Result<(Tail, Option<Changed>)> {
    let mut gathered = Gathered::new(catalogue, states, pool);
    let wal_dir = path.join(file_name::WAL_DIR);
    let bounds = (catalogue.edit, catalogue.log_synced);
    let read = tail(fs, &wal_dir, log, from, bounds, &mut |frame: &Frame<'_>| {
        // Relogged records are in the memtables already, from earlier frames.
        match (frame.header.kind, from) {
            (FrameKind::Relog, Some(_)) => Ok(()),
            _ => gathered.take_frame(frame),
        }
    });
    // Also after an error: what was loaded into a memtable that stays is met again by the next look.
    let changed = gathered.finish()?;
    let read = read?;
    if read.last_seq.0 > HIGHEST_NUMBER {
        return Err(Error::corruption(path, 0, MADE_UP));
    }
    Ok((read, changed))
}

impl FollowerState {
    /// Notes what was read of the log.
    fn note(&mut self, read: &Tail, changed: Option<Changed>) {
        if let Some(changed) = changed {
            (self.catalogue, self.states) = (changed.catalogue, changed.states);
            self.logged.extend(changed.logged);
        }
        (self.place, self.is_cut) = (Some(read.place), read.is_cut);
        self.last_seq = self.last_seq.max(read.last_seq);
        let mark = &mut self.catalogue.time_high_water;
        *mark = read.time_high_water.max(*mark);
    }

    /// Notes in a later catalogue what only the log says of what was read: an edit may have been under way when it was
    /// logged. Answers that.
    fn tell(&self, next: &mut Catalogue, path: &Path) -> Result<Vec<Logged>> {
        let said = next.repeated;
        let only_logged = self.logged.iter().filter(|logged| logged.seq > said);
        let only_logged: Vec<Logged> = only_logged.cloned().collect();
        for logged in &only_logged {
            let noted = next.note(logged);
            noted.map_err(|what| Error::corruption(path, 0, what))?;
        }
        Ok(only_logged)
    }

    /// Reads the current state into containers that nobody reads yet. Open tables of the state `before` are taken over;
    /// memtables that go on, too, if it `may_share` them.
    pub(in crate::engine) fn find(
        path: &Path,
        options: &Options,
        shared: &Shared,
        before: Option<&FollowerState>,
        may_share: bool,
    ) -> Result<FollowerState> {
        let fs = options.fs.as_ref();
        let stamp = manifest_stamp(fs, path)?;
        let loaded = find(path, options)?;
        let mut catalogue = loaded.catalogue;
        let shares = |before: &&FollowerState| may_share && before.goes_on_in(&catalogue);
        let memory = before.filter(shares);
        let told = memory.map(|memory| memory.tell(&mut catalogue, path));
        let logged = told.transpose()?.unwrap_or_default();
        let tables_dir = path.join(file_name::TABLES_DIR);
        let space: TableSpace<'_> = shared.space(options, &tables_dir);
        let known = before.map(FollowerState::tables).unwrap_or_default();
        let states = open_containers(&space, &catalogue, &shared.pool, &known)?;
        for (id, state) in &states {
            if let Some(before) = memory.and_then(|memory| memory.states.get(id)) {
                state.install(Missing::NOTHING, |fresh| ReadState {
                    active: before.read_state().active.clone(),
                    sealed: vec![],
                    version: fresh.version.clone(),
                });
            }
        }
        let mut stand = FollowerState {
            stamp: stamp.filter(|_| !loaded.torn),
            last_seq: highest_seq(&catalogue, &states),
            place: None,
            is_cut: false,
            catalogue,
            states,
            logged,
        };
        if let Some(log) = stand.catalogue.log {
            let from = memory.and_then(|memory| memory.place);
            let into = (&stand.catalogue, &stand.states, &shared.pool);
            let (read, changed) = read_log((fs, path), &log, from, into)?;
            if let Some(changed) = &changed {
                changed.set();
            }
            stand.note(&read, changed);
            stand.last_seq = stand
                .last_seq
                .max(memory.map_or(Seq(0), |memory| memory.last_seq));
            stand.expect_beyond(before, path)?;
        }
        Ok(stand)
    }

    /// Fails if the log of the same chain was longer before.
    fn expect_beyond(&self, before: Option<&FollowerState>, path: &Path) -> Result<()> {
        let chain = |stand: &FollowerState| stand.catalogue.log.map(|log| log.chain);
        let same = before.filter(|before| chain(before) == chain(self));
        match (self.place, same.and_then(|same| same.place)) {
            (Some(now), Some(then)) if now.position < then.position => {
                let what = format!(
                    "the log ends at its position {}, and has been longer",
                    now.position.0
                );
                Err(Error::corruption(path.join(file_name::WAL_DIR), 0, what))
            }
            _ => Ok(()),
        }
    }
}

impl Engine {
    /// Opens the database in a folder to read it beside the process that writes it.
    pub fn follow(path: &Path, options: &Options) -> Result<Arc<Engine>> {
        let options = &Options {
            read_only: true,
            ..options.clone()
        };
        if !options.fs.is_dir(path) {
            return Err(Error::NotFound { path: path.into() });
        }
        let shared = Shared::new(options);
        let stand =
            retry_until_stable(|| FollowerState::find(path, options, &shared, None, false))?;
        let clock = clock_of(&stand.catalogue, options)?;
        let found = Recovered::followed(&stand, clock);
        let mut engine = assemble(path, options, None, shared, found, Continuation::default());
        engine.follower = Some(Follower::new(stand));
        let engine = Arc::new(engine);
        if options.background == Background::Threads {
            Engine::start_following(&engine, |engine| {
                engine.catch_up()?;
                Ok(engine.options.catch_up_interval)
            })?;
        }
        Ok(engine)
    }

    /// Catches up with the process that writes; does nothing in that process itself.
    pub fn catch_up(&self) -> Result<()> {
        self.scheduler.check_open()?;
        match &self.follower {
            Some(follower) => self.catch_up_from(follower, &mut follower.stand()),
            None => Ok(()),
        }
    }

    /// The edits in the manifest; the process that writes may begin a new manifest meanwhile.
    pub fn edits(&self) -> Result<Vec<String>> {
        let fs = self.fs.as_ref();
        retry_until_stable(|| match manifest_stamp(fs, &self.path)? {
            Some((number, _)) => edit_texts(fs, &self.path.join(file_name::manifest(number))),
            None => Err(Error::NotFound {
                path: self.path.clone(),
            }),
        })
    }

    /// The same, for a caller that holds the stand.
    pub(in crate::engine) fn catch_up_from(
        &self,
        follower: &Follower,
        stand: &mut FollowerState,
    ) -> Result<()> {
        retry_until_stable(|| {
            self.scheduler.check_open()?;
            self.look_again(follower, stand)?;
            self.expect_edit(stand)
        })
    }

    fn look_again(&self, follower: &Follower, stand: &mut FollowerState) -> Result<()> {
        let fs = self.fs.as_ref();
        let stamp = manifest_stamp(fs, &self.path)?;
        let is_whole = stand.last_seq >= self.commit_log.published();
        if stamp.is_some() && stamp == stand.stamp {
            let (Some(log), Some(place)) = (stand.catalogue.log, stand.place) else {
                return Ok(());
            };
            if is_at_end(fs, &self.wal_dir(), &log, place) {
                return Ok(());
            }
            if is_whole && self.read_on(&log, place, stand)? {
                return Ok(());
            }
        }
        let shared = Shared {
            cache: self.cache.clone(),
            pins: self.obsolete.pins().clone(),
            pool: self.pool.clone(),
        };
        let next = FollowerState::find(&self.path, &self.options, &shared, Some(stand), is_whole)?;
        let mark = next.catalogue.time_high_water;
        self.clock.advance_to(mark, self.options.clock_behind)?;
        follower.switch(|| self.switch(stand, next));
        Ok(())
    }

    /// Fails if the edit that the log has seen is not there: it was durable before.
    fn expect_edit(&self, stand: &FollowerState) -> Result<()> {
        let now = manifest_stamp(self.fs.as_ref(), &self.path)?;
        if !stand.is_cut || now != stand.stamp {
            return Ok(());
        }
        let (number, len) = now.unwrap_or_default();
        let path = self.path.join(file_name::manifest(number));
        let what = format!(
            "it ends at edit {}, but the log has seen a later one",
            stand.catalogue.edit
        );
        Err(Error::corruption(path, len, what))
    }

    /// Takes in what follows in the log, in the memtables that are read. False: containers were made or dropped, which takes
    /// a switch, and nothing was taken in.
    fn read_on(
        &self,
        log: &LogStart,
        place: TailPosition,
        stand: &mut FollowerState,
    ) -> Result<bool> {
        let fs = (self.fs.as_ref(), self.path.as_path());
        let into = (&stand.catalogue, &stand.states, &self.pool);
        let (read, changed) = read_log(fs, log, Some(place), into)?;
        if changed
            .as_ref()
            .is_some_and(|changed| changed.makes_or_drops)
        {
            return Ok(false);
        }
        let mark: Timestamp = read.time_high_water;
        self.clock.advance_to(mark, self.options.clock_behind)?;
        let mut changing = vec![];
        for (state, record) in changed.iter().flat_map(Changed::settings) {
            state.set_limits(record);
            changing.push((state.clone(), record.settings.clone()));
        }
        let mut changing: Vec<_> = changing
            .iter()
            .map(|(state, settings)| (state, state.begin_change(), settings))
            .collect();
        stand.note(&read, changed);
        self.commit_log.publish(stand.last_seq);
        for (state, changing, settings) in &mut changing {
            state.follow_to(changing, settings, stand.last_seq);
        }
        Ok(true)
    }

    /// Makes `next` the state that everybody reads. A container that was there before keeps its `ContainerState`,
    /// because handles hold it.
    fn switch(&self, stand: &mut FollowerState, mut next: FollowerState) -> Arc<Frozen> {
        let mut replaced = stand.tables();
        let before = std::mem::take(&mut stand.states);
        let mut changing: Vec<_> = before.values().map(|state| state.begin_change()).collect();
        self.commit_log.publish(next.last_seq);
        let mut dropped = vec![];
        for ((id, state), changing) in before.iter().zip(&mut changing) {
            let is_same = |fresh: &&mut Arc<ContainerState>| {
                (fresh.name(), fresh.created()) == (state.name(), state.created())
            };
            let Some(fresh) = next.states.get_mut(id).filter(is_same) else {
                // A reader that waits for the settings begins anew then.
                changing.change_to(changing.settings(), Seq::MAX);
                dropped.push(state);
                continue;
            };
            let (old, new) = (state.pin(), fresh.pin());
            // Transactions and scans here pin read states, which nothing leaves.
            let missing = Missing {
                flushed: Some(fresh.flushed()),
                changes: fresh.changes_low_water(),
                ..Missing::NOTHING
            };
            state.install(missing, |_| ReadState {
                active: new.active.clone(),
                sealed: vec![],
                version: new.version.clone(),
            });
            if !Arc::ptr_eq(&old.active, &new.active) {
                old.active.memtable.retire();
            }
            state.follow_to(changing, &fresh.whole_settings(), next.last_seq);
            state.set_limits(&next.catalogue.containers[id]);
            *fresh = state.clone();
        }
        self.containers
            .replace(next.states.values().cloned(), next.catalogue.last_drop);
        dropped.into_iter().for_each(|state| state.mark_dropped());
        *stand = next;
        let named = stand.tables();
        replaced.retain(|id, _| !named.contains_key(id));
        // The writer removes them; as long as a reader here holds one, its bytes stay.
        let now = self.clock.now();
        replaced.values().for_each(|file| file.set_obsolete(now));
        Frozen::of(stand.states.values())
    }
}
