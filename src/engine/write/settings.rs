//! Changes of settings by a batch, a default or a command: they are in the batch's frame of the log, so that the whole batch
//! is durable or none of it.
//!
//! ```text
//! under the commit lock   begin: readers of the settings wait ── stamp ── log ── sync ── publish ── readers go on
//! ```
//!
//! A reader of the settings waits from before the clock is read until the log is synced past the frame and the batch is
//! published. A reader that loaded the published sequence number before, and then sees later settings, loads it again.
//! The next edit of the manifest, whichever it is, repeats the settings (catalog.rs). Since removing the frame takes an
//! edit, the manifest has them by then.

use std::sync::Arc;

use crate::base::{Error, Result, Seq};
use crate::engine::Engine;
use crate::engine::parts::catalog::LoggedSettings;
use crate::engine::parts::settings_cell::Changing;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::observed::{Observed, WriteMoment};
use crate::env::ClockReading;
use crate::expiry::Settings;
use crate::wal::Position;

/// A container whose settings a write is changing.
struct Change<'a> {
    /// Its place in the batch.
    place: usize,
    state: &'a ContainerState,
    changing: Changing<'a>,
    to: Option<LoggedSettings>,
}

/// See the file's head. Dropped before they count, they have changed nothing.
pub(in crate::engine) struct SettingsChanges<'a>(Vec<Change<'a>>);

impl<'a> SettingsChanges<'a> {
    /// Under the commit lock, before the clock is read. None: the write changes none.
    pub fn begin(states: &'a [Arc<ContainerState>], observed: &Observed<'_>) -> Option<Self> {
        if observed.own_changes.is_empty() {
            return None;
        }
        let changed = (0..states.len()).filter(|at| observed.changes_of(*at).next().is_some());
        let begin = |place| Change {
            place,
            state: &states[place],
            changing: ContainerState::begin_change(&states[place]),
            to: None,
        };
        Some(SettingsChanges(changed.map(begin).collect()))
    }

    /// Works out the new settings, at the stamp.
    pub fn stamp(
        &mut self,
        engine: &Engine,
        observed: &Observed<'_>,
        reading: &ClockReading,
        moment: &WriteMoment,
    ) -> Result<()> {
        if reading.unsettled {
            return Err(Error::ClockUnsettled {
                wall: reading.now.to_system_time(),
                settled: reading.settled.to_system_time(),
            });
        }
        for change in &mut self.0 {
            let own = || observed.changes_of(change.place);
            let before = change.changing.settings();
            let to = observed.settings_after(change.place, usize::MAX, moment, &before);
            let needed = change.needed(engine, &to);
            for own in own() {
                change.state.check_standing(&own.change, &needed)?;
            }
            let last = own().last().map_or(0, |own| own.at);
            change.to = Some(LoggedSettings {
                container: change.state.id(),
                settings: to,
                seq: Seq(moment.first.0 + last as u64),
                settled: moment.settled,
            });
        }
        Ok(())
    }

    /// Makes the changes count, with all that was logged with them, up to this write and this position of the log.
    pub fn count(
        self,
        engine: &Engine,
        observed: &Observed<'_>,
        (last, position): (Seq, Position),
    ) -> Result<()> {
        engine.commit_log.log()?.sync_to(position)?;
        engine.commit_log.publish(last);
        let (mut said, mut states) = (vec![], vec![]);
        let mut changes = self.0;
        for change in &mut changes {
            let mut to = change.to.take().expect("it was stamped");
            // Only now all writes of the batch are stored.
            to.settings = change.needed(engine, &to.settings);
            change.changing.change_to(to.settings.clone(), last);
            said.push(to);
            states.push((change.place, change.state));
        }
        engine.catalog.note_logged(said);
        drop(changes);
        for (place, state) in states {
            let own = observed.changes_of(place);
            own.for_each(|own| state.note_change(&own.change));
        }
        Ok(())
    }
}

impl Change<'_> {
    fn needed(&self, engine: &Engine, settings: &Settings) -> Settings {
        self.state
            .prune_commands(settings.clone(), engine.snapshots.oldest())
    }
}
