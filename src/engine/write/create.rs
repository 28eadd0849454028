//! Creating and dropping containers, and changing what they are: each by one operation of the log (state_changes.rs).

use std::sync::Arc;

use crate::base::{Error, Result, Wait};
use crate::data::batch::Op;
use crate::data::write::OnMiss;
use crate::engine::Engine;
use crate::engine::options::ContainerOptions;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::writes::{Writes, check_name, new_container};
use crate::expiry::SettingsChange;

impl Engine {
    /// Changes a container's settings.
    pub fn change_settings(
        &self,
        state: &Arc<ContainerState>,
        change: SettingsChange,
    ) -> Result<()> {
        let container = state.id();
        self.change_state(
            state,
            match change {
                SettingsChange::Default(default) => Op::SetDefault { container, default },
                SettingsChange::Expire(what) => Op::Expire { container, what },
                SettingsChange::Loaded(_) => unreachable!("a load changes its settings itself"),
            },
        )
    }

    /// Sets how long what has ended is kept, in milliseconds. What is known no more by now stays so.
    pub fn set_keep_expired(&self, state: &Arc<ContainerState>, millis: u64) -> Result<()> {
        self.change_state(state, self.keep_expired(state, millis))
    }

    /// Changes what a container is: durable when it returns.
    pub(in crate::engine) fn change_state(
        &self,
        state: &Arc<ContainerState>,
        op: Op<'_>,
    ) -> Result<()> {
        self.check_writable()?;
        let mut writes = Writes::default();
        writes.add(state, op)?;
        self.write_conditional::<Wait>(&writes).map(drop)
    }

    /// Makes or drops a container; false: it is there, or is not.
    fn make_or_drop(&self, add: impl FnOnce(&mut Writes) -> Result<()>) -> Result<bool> {
        let mut writes = Writes::default();
        add(&mut writes)?;
        self.check_writable()?;
        let (_, outcomes) = self.write_conditional::<Wait>(&writes)?;
        Ok(outcomes.iter().all(|done| done.is_done()))
    }

    /// Opens a container, or creates it.
    pub fn container(&self, name: &str, options: &ContainerOptions) -> Result<Arc<ContainerState>> {
        let new = new_container(name, options, self.options.compression)?;
        let compression = new.compression;
        compression.check(|| format!("compression {compression:?}"))?;
        loop {
            if self.scheduler.is_closing() {
                return Err(Error::Closed);
            }
            if let Some(state) = self.containers.get(name) {
                match self.bring_to(&state, options) {
                    // It was dropped meanwhile.
                    Err(error) if error.is_closed() => continue,
                    done => return done.map(|()| state),
                }
            }
            self.make_or_drop(|writes| writes.create_container(name, options, OnMiss::Skip))?;
        }
    }

    /// Opens a container that existed when the snapshot was taken.
    pub fn existing_container(&self, name: &str, pin: &SnapshotPin) -> Result<Arc<ContainerState>> {
        check_name(name)?;
        if self.scheduler.is_closing() {
            return Err(Error::Closed);
        }
        match self.containers.get(name) {
            Some(state) if state.created() <= pin.seq() => Ok(state),
            _ => Err(Error::invalid(
                "container",
                format!("{name:?}"),
                "one that was there when the snapshot was taken",
            )),
        }
    }

    /// The names of all containers.
    pub fn containers(&self) -> Vec<String> {
        self.containers.names()
    }

    /// Drops a container; false when there is none of this name.
    pub fn drop_container(&self, name: &str) -> Result<bool> {
        self.make_or_drop(|writes| writes.drop_container(name, OnMiss::Skip))
    }
}
