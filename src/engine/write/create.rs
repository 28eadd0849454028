//! Creating and dropping containers, and changing their settings: each by one edit, under the commit lock.

use std::sync::Arc;

use crate::base::{ContainerId, Error, Quota, Result, Seq, Timestamp};
use crate::catalog::{Change, ContainerRecord, ContainerVersion};
use crate::engine::Engine;
use crate::engine::options::ContainerOptions;
use crate::engine::parts::commit_log::Basis;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{DefaultMillis, Settings, SettingsChange};

impl Engine {
    /// Changes a container's settings: takes a sequence number like a write, and is durable before it counts. Holds the
    /// commit lock, so that no write interleaves.
    pub fn change_settings(
        &self,
        state: &Arc<ContainerState>,
        change: SettingsChange,
    ) -> Result<()> {
        self.check_writable()?;
        self.commit_log.sync_ahead()?;
        let mut commit = self.commit_log.lock();
        self.check_writable()?;
        state.check()?;
        let seq = commit.next_seq();
        let basis = self.commit_log.all_before(&commit)?;
        let mut changing = state.begin_change();
        let reading = self.clock.read();
        if reading.unsettled {
            return Err(Error::ClockUnsettled {
                wall: reading.now.to_system_time(),
                settled: reading.settled.to_system_time(),
            });
        }
        let settings = changing.settings();
        let settings = settings.after(change, reading.settled, seq);
        let settings = state.prune_commands(settings, self.snapshots.oldest());
        state.check_standing(&change, &settings)?;
        let changes = vec![Change::Settings(state.id(), settings.clone(), seq)];
        self.edit(&mut self.catalog.edit(), basis, changes, reading.settled)?;
        self.commit_log.note_unlogged(&mut commit, seq);
        changing.change_to(settings, seq);
        drop(changing);
        state.note_change(&change);
        self.scheduler.wake(Thread::Merge);
        Ok(())
    }

    /// Sets how long ended items are kept, in milliseconds; durable when it returns.
    pub fn set_keep_expired(&self, state: &ContainerState, millis: u64) -> Result<()> {
        self.check_writable()?;
        // A container is dropped under this lock.
        let commit = self.commit_log.lock();
        self.check_writable()?;
        state.check()?;
        let changes = vec![Change::KeepExpired(state.id(), millis)];
        let mut manifest = self.catalog.edit();
        self.edit(&mut manifest, Basis::TABLES, changes, Timestamp(0))?;
        state.feeds().set_keep(millis);
        drop((manifest, commit));
        self.scheduler.wake(Thread::Merge);
        Ok(())
    }

    /// Opens a container, or creates it.
    pub fn container(&self, name: &str, options: &ContainerOptions) -> Result<Arc<ContainerState>> {
        check_name(name)?;
        let default = DefaultMillis::from_public(options.default_ttl)?;
        let compression = options.compression.unwrap_or(self.options.compression);
        compression.check(|| format!("compression {compression:?}"))?;
        let quota = options.quota();
        quota.iter().try_for_each(Quota::check)?;
        if self.scheduler.is_closing() {
            return Err(Error::Closed);
        }
        if let Some(state) = self.containers.get(name) {
            return Ok(state);
        }
        self.check_writable()?;
        self.commit_log.sync_ahead()?;
        let mut commit = self.commit_log.lock();
        self.check_writable()?;
        if let Some(state) = self.containers.get(name) {
            return Ok(state);
        }
        let basis = self.commit_log.all_before(&commit)?;
        let mut manifest = self.catalog.edit();
        let catalogue = manifest.catalogue()?;
        let seq = commit.next_seq();
        let record = ContainerRecord {
            id: ContainerId(catalogue.next_container),
            name: name.to_owned(),
            created: seq,
            compression,
            settings: Settings::new(default),
            settings_seq: seq,
            quota,
            flushed: Seq(0),
            runs: vec![],
            range_deletes: vec![],
            changes_from: Seq(0),
            keep_expired: options.keep_expired,
            ends_dropped: Timestamp(0),
        };
        let changes = vec![Change::CreateContainer(record.clone())];
        self.edit(&mut manifest, basis, changes, Timestamp(0))?;
        drop(manifest);
        let state = Arc::new(ContainerState::new(
            &record,
            ContainerVersion::default(),
            self.pool.clone(),
        ));
        self.containers.insert(&state);
        self.commit_log.note_unlogged(&mut commit, seq);
        Ok(state)
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
        check_name(name)?;
        self.check_writable()?;
        self.commit_log.sync_ahead()?;
        let mut commit = self.commit_log.lock();
        self.check_writable()?;
        let Some(state) = self.containers.get(name) else {
            return Ok(false);
        };
        let seq = commit.next_seq();
        let changes = vec![Change::DropContainer(state.id()), Change::Dropped(seq)];
        let basis = self.commit_log.all_before(&commit)?;
        self.edit(&mut self.catalog.edit(), basis, changes, Timestamp(0))?;
        self.containers.remove(name, seq);
        state.mark_dropped();
        self.commit_log.note_unlogged(&mut commit, seq);
        let read_state = state.pin();
        commit.remove_active(read_state.active.counted());
        let freed: usize = read_state
            .flushables()
            .map(|flushable| flushable.counted())
            .sum();
        self.throttle.remove_unflushed(freed);
        state.install(Missing::NOTHING, |_| ReadState {
            active: state.new_flushable(),
            sealed: vec![],
            version: Arc::default(),
        });
        for flushable in read_state.flushables() {
            self.mark_stale(flushable);
            flushable.memtable.retire();
        }
        drop(commit);
        state.release_read_states();
        self.remove_runs_but(&read_state.version.runs, &[]);
        Ok(true)
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 255 || name.contains(['/', '\0']) {
        let allowed = "1 to 255 bytes of UTF-8 without '/' or NUL";
        return Err(Error::invalid(
            "container name",
            format!("{name:?}"),
            allowed,
        ));
    }
    Ok(())
}
