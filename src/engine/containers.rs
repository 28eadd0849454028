//! Containers come and go: by an edit, in the commit turn.

use std::sync::Arc;

use crate::base::sync::atomic::Ordering;
use crate::base::{ContainerId, Error, Result, Seq, Timestamp};
use crate::catalog::{Change, ContainerRecord, Version};
use crate::engine::core::Engine;
use crate::engine::options::ContainerOptions;
use crate::engine::state::{Buffer, ContainerState, Picture, SnapshotPin};
use crate::expiry::{DefaultMillis, Settings};

impl Engine {
    /// Opens a container, or creates it.
    pub fn container(&self, name: &str, options: &ContainerOptions) -> Result<Arc<ContainerState>> {
        check_name(name)?;
        let default = DefaultMillis::from_public(options.default_ttl)?;
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if let Some(state) = self.containers.read().get(name) {
            return Ok(state.clone());
        }
        self.check_writable()?;
        self.sync_ahead()?;
        let mut turn = self.turn.lock();
        self.check_writable()?;
        if let Some(state) = self.containers.read().get(name) {
            return Ok(state.clone());
        }
        let basis = self.all_before(&turn)?;
        let mut manifest = self.manifest.lock();
        let catalogue = manifest.as_ref().ok_or(Error::Closed)?.catalogue();
        let seq = turn.next_seq;
        let record = ContainerRecord {
            id: ContainerId(catalogue.next_container),
            name: name.to_owned(),
            created: seq,
            compression: options.compression.unwrap_or(self.options.compression),
            settings: Settings::new(default),
            flushed: Seq(0),
            runs: vec![],
            range_deletes: vec![],
        };
        let changes = vec![Change::CreateContainer(record.clone())];
        self.edit(&mut manifest, basis, changes, Timestamp(0))?;
        drop(manifest);
        turn.next_seq = seq.next();
        let state = Arc::new(ContainerState::new(
            &record,
            Version::default(),
            self.pool.clone(),
        ));
        self.containers
            .write()
            .insert(name.to_owned(), state.clone());
        self.note_unlogged(seq);
        Ok(state)
    }

    /// A container that a snapshot knows.
    pub fn existing_container(&self, name: &str, pin: &SnapshotPin) -> Result<Arc<ContainerState>> {
        check_name(name)?;
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        match self.containers.read().get(name) {
            Some(state) if state.created <= pin.seq => Ok(state.clone()),
            _ => Err(Error::invalid(
                "container",
                format!("{name:?}"),
                "one that was there when the snapshot was taken",
            )),
        }
    }

    /// The names of all containers.
    pub fn containers(&self) -> Vec<String> {
        self.containers.read().keys().cloned().collect()
    }

    /// Drops a container; false when there is none of this name.
    pub fn drop_container(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        self.check_writable()?;
        self.sync_ahead()?;
        let mut turn = self.turn.lock();
        self.check_writable()?;
        let Some(state) = self.containers.read().get(name).cloned() else {
            return Ok(false);
        };
        let seq = turn.next_seq;
        let changes = vec![Change::DropContainer(state.id()), Change::used(seq)];
        let basis = self.all_before(&turn)?;
        self.edit(&mut self.manifest.lock(), basis, changes, Timestamp(0))?;
        turn.next_seq = seq.next();
        self.containers.write().remove(name);
        state.dropped.store(true, Ordering::Release);
        self.note_unlogged(seq);
        let picture = state.pin();
        turn.active_bytes -= picture.active.counted();
        let freed: usize = picture.buffers().map(|buffer| buffer.counted()).sum();
        self.unflushed.fetch_sub(freed, Ordering::Relaxed);
        state.install(|_| Picture {
            active: Buffer::new(&state.pool),
            sealed: vec![],
            version: Arc::default(),
        });
        for buffer in picture.buffers() {
            self.mark_stale(buffer);
            buffer.memtable.retire();
        }
        drop(turn);
        state.release_pictures();
        self.remove_runs_but(&picture.version.runs, &[]);
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
