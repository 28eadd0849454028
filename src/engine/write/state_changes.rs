//! Changes of what containers are: each is an operation in a frame of the log, as a put is.
//!
//! ```text
//! under the commit lock   begin: readers of the settings wait ── stamp ── log ── sync ── publish ── readers go on ── note
//! a later edit            says what is noted before its own changes ── the log may let go of the frame
//! ```
//!
//! 1. *An operation* makes or drops a container, or sets its default, its quota, what it keeps, or expires items on command.
//!    It takes a sequence number and has a moment, as any write; what stands in one frame takes effect together.
//! 2. *It counts* when the log is synced past its frame, so with all that came before it. Until then nobody sees anything
//!    of it: who asks for the settings waits from before the clock is read, and a container has no name yet, or still.
//! 3. *The next edit* repeats it, whatever that edit is for (parts/catalog.rs), together with the number up to which it has
//!    done so: `repeated`. It is noted for that under the lock that it was logged under.
//! 4. *A replay* applies an operation above `repeated` of its catalogue and leaves out all others, so one that stands in
//!    both counts once. Whatever follows in the log finds the container as it was then (open/replay.rs).
//! 5. *Power cut before the sync:* nothing has happened. *Before the edit:* the replay does it. *After it:* the edit did.
//! 6. *Tables of a dropped container* keep their names until an edit says that it was dropped, for an open looks for all
//!    tables that the manifest names before it reads the log. A drop makes that edit at once, outside the lock; where it
//!    fails, the next one does.
//! 7. *A full disk* may have no room for a frame, and no log at all. Then an edit alone, for which room is reserved, says
//!    the operation: all that came before it is synced first, and it counts when the edit is durable.
//! 8. *A follower* applies it when it reads the frame. It forgets what an edit has said since, and makes or drops
//!    containers by a switch (open/catch_up.rs).

use std::sync::Arc;

use crate::base::{ContainerId, Error, Result, Seq, Timestamp};
use crate::catalog::{Change, ContainerRecord, ContainerVersion, Logged};
use crate::data::batch::Op;
use crate::data::new_container::NewContainer;
use crate::engine::Engine;
use crate::engine::parts::catalog::Editing;
use crate::engine::parts::commit_log::CommitState;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::settings_cell::Changing;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::observed::{Observed, WriteMoment};
use crate::engine::write::prepared::Prepared;
use crate::env::ClockReading;
use crate::expiry::Settings;
use crate::wal::Position;

/// A container whose settings a write is changing.
struct NewSettings<'a> {
    /// Its place in the batch.
    place: usize,
    state: &'a Arc<ContainerState>,
    changing: Changing<'a>,
    /// The settings to come, and the number of the operation.
    to: Option<(Settings, Seq)>,
}

/// A container that is made, or dropped.
enum NameChange {
    Made(Arc<ContainerState>),
    Dropped(Arc<ContainerState>, Seq),
}

/// See the file's head. Dropped before they count, they have changed nothing.
pub(in crate::engine) struct StateChanges<'a> {
    settings: Vec<NewSettings<'a>>,
    names: Vec<NameChange>,
    /// The containers of which quota, or what is kept, is set.
    limits: Vec<(&'a Arc<ContainerState>, Op<'a>)>,
    /// All of them, but for settings.
    changes: Vec<Change>,
    is_said: bool,
}

/// The changes by [`Op::KeepExpired`].
pub(in crate::engine) fn keeps(
    id: ContainerId,
    millis: u64,
    ends_dropped: Timestamp,
) -> [Change; 2] {
    [
        Change::KeepExpired(id, millis),
        Change::EndsDropped(id, ends_dropped),
    ]
}

impl<'a> StateChanges<'a> {
    /// Under the commit lock, before the clock is read.
    #[cold]
    pub fn begin(writes: &Prepared<'a>, observed: &Observed<'_>) -> Box<Self> {
        let states = writes.states();
        let changed = (0..states.len()).filter(|at| observed.changes_of(*at).next().is_some());
        let begin = |place| NewSettings {
            place,
            state: &states[place],
            changing: ContainerState::begin_change(&states[place]),
            to: None,
        };
        Box::new(StateChanges {
            settings: changed.map(begin).collect(),
            names: vec![],
            limits: vec![],
            changes: vec![],
            is_said: false,
        })
    }

    /// Decides all that it will change.
    pub fn stamp(
        &mut self,
        engine: &Engine,
        (writes, observed): (&Prepared<'a>, &Observed<'_>),
        reading: &ClockReading,
        moment: &WriteMoment,
    ) -> Result<()> {
        if reading.unsettled && !self.settings.is_empty() {
            return Err(Error::ClockUnsettled {
                wall: reading.now.to_system_time(),
                settled: reading.settled.to_system_time(),
            });
        }
        for change in &mut self.settings {
            let own = || observed.changes_of(change.place);
            let before = change.changing.settings();
            let to = observed.settings_after(change.place, usize::MAX, moment, &before);
            let needed = change.needed(engine, &to);
            // The commands that still stand differ between databases of one history: where time is given there is no limit.
            for own in own().filter(|_| engine.given_time.is_none()) {
                change.state.check_standing(&own.change, &needed)?;
            }
            let last = own().last().map_or(0, |own| own.at);
            change.to = Some((to, Seq(moment.first.0 + last as u64)));
        }
        for (at, op) in writes.decoded().enumerate() {
            self.take(engine, writes, op, Seq(moment.first.0 + at as u64))?;
        }
        Ok(())
    }

    /// Takes an operation. The names that operations go by are as they were looked up.
    fn take(&mut self, engine: &Engine, writes: &Prepared<'a>, op: Op<'a>, seq: Seq) -> Result<()> {
        let id = op.container();
        match op {
            Op::Create { new, .. } => {
                let new = NewContainer::decode(new).expect("this program encoded it");
                engine.check_quota(new.quota)?;
                let record = ContainerRecord::of_new(id, seq, &new);
                let state =
                    ContainerState::new(&record, ContainerVersion::default(), engine.pool.clone());
                self.names.push(NameChange::Made(Arc::new(state)));
                self.changes.push(Change::CreateContainer(record));
            }
            Op::Drop { name, .. } => {
                let made = self.names.iter().rev().find_map(|change| match change {
                    NameChange::Made(state) if state.id() == id => Some(state.clone()),
                    _ => None,
                });
                let state = made.or_else(|| engine.containers.get(name));
                let state = state.expect("its name was looked up under this lock");
                self.names.push(NameChange::Dropped(state, seq));
                let dropped = [Change::DropContainer(id), Change::Dropped(seq)];
                self.changes.extend(dropped);
            }
            Op::SetQuota { quota, .. } => {
                engine.check_quota(quota)?;
                self.limits.push((writes.state_of(&op), op));
                self.changes.push(Change::Quota(id, quota));
            }
            Op::KeepExpired {
                millis,
                ends_dropped,
                ..
            } => {
                self.limits.push((writes.state_of(&op), op));
                self.changes.extend(keeps(id, millis, ends_dropped));
            }
            _ => {}
        }
        Ok(())
    }

    /// The changes as an edit says them.
    fn said(&self, last: Seq, moment: &WriteMoment) -> Logged {
        let of = |change: &NewSettings<'_>| {
            let (settings, seq) = change.to.clone().expect("it was stamped");
            Change::Settings(change.state.id(), settings, seq)
        };
        // An operation on a container comes before its drop.
        let changes = self.settings.iter().map(of);
        Logged {
            seq: last,
            settled: moment.settled,
            changes: changes.chain(self.changes.iter().cloned()).collect(),
        }
    }

    /// Says them by an edit alone, because the log has no room: they are durable then, with all that came before.
    pub fn say_by_edit(
        &mut self,
        engine: &Engine,
        commit: &mut CommitState,
        last: Seq,
        moment: &WriteMoment,
    ) -> Result<()> {
        engine.check_writable()?;
        let basis = engine.commit_log.all_before(commit)?;
        for change in &mut self.settings {
            let (settings, seq) = change.to.clone().expect("it was stamped");
            change.to = Some((change.needed(engine, &settings), seq));
        }
        let mut said = self.said(last, moment);
        said.changes.push(Change::Repeated(last));
        let mut editing = engine.catalog.edit();
        engine.edit(&mut editing, basis, said.changes, moment.settled)?;
        engine.commit_log.applied(commit, last);
        self.is_said = true;
        Ok(())
    }

    /// They count, with all that was logged with them, up to this write and this position of the log. Answers the runs of
    /// what was dropped.
    pub fn count(
        mut self,
        engine: &Engine,
        commit: &mut CommitState,
        observed: &Observed<'_>,
        (last, position): (Seq, Position),
        moment: &WriteMoment,
    ) -> Result<Vec<DroppedContainer>> {
        if !self.is_said {
            engine.commit_log.log()?.sync_to(position)?;
        }
        for change in &self.names {
            match change {
                NameChange::Made(state) => engine.containers.insert(state),
                NameChange::Dropped(state, seq) => engine.containers.remove(state.name(), *seq),
            }
        }
        engine.commit_log.publish(last);
        for change in &mut self.settings {
            let (settings, seq) = change.to.take().expect("it was stamped");
            // Only now all is stored that the batch has written.
            let settings = change.needed(engine, &settings);
            change.changing.change_to(settings.clone(), last);
            change.to = Some((settings, seq));
        }
        let said = self.said(last, moment);
        for NewSettings {
            place,
            state,
            changing,
            ..
        } in self.settings
        {
            let own = observed.changes_of(place);
            own.for_each(|own| state.note_change(&own.change));
            drop(changing);
            state.feeds().wake();
        }
        for (state, op) in self.limits {
            match op {
                Op::SetQuota { quota, .. } => state.allowance().set(quota),
                Op::KeepExpired {
                    millis,
                    ends_dropped,
                    ..
                } => state.feeds().set_keep(millis, ends_dropped),
                _ => {}
            }
        }
        let mut editing = engine.catalog.edit();
        if !self.is_said {
            editing.note(said);
        }
        let dropped = self.names.into_iter().filter_map(|change| match change {
            NameChange::Made(_) => None,
            NameChange::Dropped(state, _) => Some(engine.empty(commit, &editing, state)),
        });
        Ok(dropped.collect())
    }
}

impl NewSettings<'_> {
    fn needed(&self, engine: &Engine, settings: &Settings) -> Settings {
        self.state
            .prune_commands(settings.clone(), engine.snapshots.oldest())
    }
}

/// A container that was dropped, with what it held.
pub(in crate::engine) struct DroppedContainer {
    state: Arc<ContainerState>,
    held: Arc<ReadState>,
}

impl Engine {
    /// Takes everything from a container whose drop is durable. No job installs anything meanwhile, and what one has in hand
    /// for it is given up.
    fn empty(
        &self,
        commit: &mut CommitState,
        _editing: &Editing<'_>,
        state: Arc<ContainerState>,
    ) -> DroppedContainer {
        state.mark_dropped();
        let held = state.pin();
        commit.remove_active(held.active.counted());
        let freed: usize = held.flushables().map(|flushable| flushable.counted()).sum();
        self.throttle.remove_unflushed(freed);
        state.install(Missing::NOTHING, |_| ReadState {
            active: state.new_flushable(),
            sealed: vec![],
            version: Arc::default(),
        });
        for flushable in held.flushables() {
            self.mark_stale(flushable);
            flushable.memtable.retire();
        }
        self.obsolete.hold_runs(&held.version.runs);
        DroppedContainer { state, held }
    }

    /// Without the commit lock: makes an edit say what was dropped, and frees its files then. Where the edit fails, they go
    /// with the next one. An edit comes too where many changes wait for one.
    pub(in crate::engine) fn free_dropped(&self, dropped: Vec<DroppedContainer>) {
        if dropped.is_empty() && !self.catalog.edit().wants_edit() {
            return;
        }
        for DroppedContainer { state, held } in dropped {
            drop(held);
            state.release_read_states();
        }
        let _ = self.repeat_logged();
        self.remove_runs_but(&[], &[]);
    }
}
