//! Flushes: which memtables are flushed together, and how they become tables.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result, Seq, TableId, Timestamp, spans};
use crate::compact::start_by;
use crate::data::cursor::Seek;
use crate::data::merge::Merge;
use crate::engine::Engine;
use crate::engine::jobs::install::{Flushed, bytes_of};
use crate::engine::jobs::job::{JobSpec, Purpose};
use crate::engine::parts::events::Event;
use crate::engine::parts::read_state::Flushable;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::state::ContainerState;
use crate::env::monotonic;
use crate::expiry::ExpiryView;
use crate::mem::Memtable;
use crate::values::listener::FlushEvent;
use crate::values::stats::ReclaimLag;

/// Memtables are flushed together, in one edit, up to this share of `memtable_bytes`: with many containers each flush
/// is small, and its syncs are most of its cost.
const GROUP_SHARE: usize = 8;
/// ... and up to this many, which makes an edit of some hundred KiB.
const GROUP_MOST: usize = 256;

/// After this long without a write, deletes are flushed: early enough, with checks every [`TICK`], that the merge which
/// removes them is done within a second after the last write.
///
/// [`TICK`]: crate::engine::jobs::background
const REST: Duration = Duration::from_millis(300);
/// A memtable of so many bytes is worth a flush for its deletes, or of this share of a full one: fewer are passed by a scan
/// in the time that a seek on disk takes.
const DELETES_BYTES: usize = 256 << 10;
const DELETES_SHARE: usize = 64;
/// Each range delete counts for so many records.
const RANGE_DELETE_WEIGHT: u64 = 4;

/// Whether a third of its records are tombstones, or it has as many range deletes: of items that were put and deleted in it,
/// half are.
fn is_mostly_deletes(memtable: &Memtable) -> bool {
    let census = memtable.census();
    let ranges = RANGE_DELETE_WEIGHT * memtable.range_deletes().len() as u64;
    3 * (census.tombstones.count + ranges) >= census.total().count + ranges
}

impl Engine {
    /// Flushes the oldest sealed memtable of a container; false when there is none.
    pub(in crate::engine) fn flush_one(&self, state: &Arc<ContainerState>) -> Result<bool> {
        self.flush_group(std::slice::from_ref(state))
    }

    /// The containers with a sealed memtable, grouped for flushing together.
    pub(in crate::engine) fn flush_groups(
        &self,
        states: &[Arc<ContainerState>],
    ) -> Vec<Vec<Arc<ContainerState>>> {
        let most_bytes = self.options.memtable_bytes / GROUP_SHARE;
        let oldest = |state: &Arc<ContainerState>| {
            let oldest = state.read_state().sealed.last().cloned()?;
            let first = oldest.segment().unwrap_or(u64::MAX);
            Some((first, oldest.counted(), state.clone()))
        };
        let mut sealed: Vec<_> = states.iter().filter_map(oldest).collect();
        // One that needs the oldest log is not overtaken for ever by those of a busy container.
        sealed.sort_by_key(|(first, ..)| *first);
        let (mut groups, mut bytes) = (vec![], 0);
        for (_, size, state) in sealed {
            match groups.last_mut() {
                Some(group) if bytes + size <= most_bytes && Vec::len(group) < GROUP_MOST => {
                    group.push(state);
                    bytes += size;
                }
                _ => {
                    groups.push(vec![state]);
                    bytes = size;
                }
            }
        }
        groups
    }

    /// Flushes the oldest sealed memtable of each of these containers, and installs them by one edit; false when there
    /// is none. A container's memtables are flushed and installed in the order in which they were sealed, so that no
    /// older version appears after a newer one was judged. A failed one does not hold up the others: it is left out and
    /// retried.
    pub(in crate::engine) fn flush_group(&self, states: &[Arc<ContainerState>]) -> Result<bool> {
        let has_sealed = |state: &Arc<ContainerState>| !state.read_state().sealed.is_empty();
        if !states.iter().any(has_sealed) {
            return Ok(false);
        }
        let _flushing = self.scheduler.lock_flushing();
        let oldest = |state| -> Option<(&Arc<ContainerState>, Arc<Flushable>)> {
            let state: &Arc<ContainerState> = state;
            Some((state, state.read_state().sealed.last()?.clone()))
        };
        // Where this fails, as on a full disk, the flush is all the more needed.
        let along = self.clear_log_of(states).unwrap_or_default();
        let sealed: Vec<_> = states.iter().chain(&along).filter_map(oldest).collect();
        if sealed.is_empty() {
            return Ok(false);
        }
        let (_span, began) = (spans::flush(sealed.len()), monotonic());
        let mut event = FlushEvent {
            containers: sealed.iter().map(|one| one.0.name().to_owned()).collect(),
            memtable_bytes: sealed.iter().map(|one| one.1.counted() as u64).sum(),
            table_bytes: 0,
            took: Duration::ZERO,
            error: None,
        };
        self.note_event(|| Event::FlushBegin(event.clone()));
        let done = self.flush_sealed(sealed, &mut event.table_bytes);
        event.took = monotonic().saturating_sub(began);
        event.error = done.as_ref().err().cloned();
        self.note_event(|| Event::FlushCompleted(event));
        done.map(|()| true)
    }

    /// Flushes these memtables; adds the bytes of tables written.
    fn flush_sealed(
        &self,
        sealed: Vec<(&Arc<ContainerState>, Arc<Flushable>)>,
        table_bytes: &mut u64,
    ) -> Result<()> {
        // The log is durable before a table is, so that a power cut cannot halve a batch over two containers. And
        // everything judged is published, so no later snapshot is older than it.
        let basis = self.commit_log.all_so_far()?;
        let (mut flushed, mut lags, mut failure) = (vec![], vec![], None);
        for (state, flushable) in sealed {
            match self.write_flush(state, flushable) {
                Ok((flush, lag)) => {
                    lags.push((lag, flush.job.view.clone()));
                    flushed.push(flush);
                }
                Err(error) => failure = Some(error),
            }
        }
        if let (true, Some(error)) = (flushed.is_empty(), failure) {
            return Err(error);
        }
        *table_bytes = flushed.iter().map(|flush| bytes_of(&flush.outputs)).sum();
        self.sync_tables(flushed.iter())?;
        self.install_flushes(&flushed, basis)?;
        lags.iter().for_each(|(lag, view)| self.note_lag(lag, view));
        self.counters.flushes.add(flushed.len() as u64);
        self.scheduler.wake(Thread::Merge);
        Ok(())
    }

    /// Writes the records of a memtable that are still needed; does not make the tables' names durable.
    pub(in crate::engine) fn write_flush<'a>(
        &self,
        state: &'a Arc<ContainerState>,
        flushable: Arc<Flushable>,
    ) -> Result<(Flushed<'a>, ReclaimLag)> {
        let read_state = state.pin();
        let view = self.settled_view(state);
        let mut memtables = read_state.flushables();
        let is_due = memtables.any(|flushable| self.is_due(state, flushable, &view));
        let spec = JobSpec {
            view,
            range_deletes: vec![
                flushable.memtable.range_deletes().clone(),
                read_state.version.range_deletes.clone(),
            ],
            cuts: vec![Timestamp::MAX],
            purpose: Purpose::Flush { is_due },
        };
        let job = self.job(state, &read_state, &BTreeSet::new(), &spec);
        let memory = vec![flushable.memtable.checked_cursor()];
        let written = Merge::seek(memory, Seek::First, None)
            .and_then(|sources| self.run_job(&job, sources, spec.purpose));
        let (outputs, lag, forgotten) = self.end_log_if_corrupt(written)?;
        let flush = Flushed {
            state,
            leaves: flushable.clone(),
            rest: None,
            up_to: flushable.memtable.seq_max(),
            flushable,
            job,
            outputs,
            forgotten,
        };
        Ok((flush, lag))
    }

    /// Takes no further write where memory was found to be corrupt: the log has the records as they were, and the next open
    /// replays it.
    pub(in crate::engine) fn end_log_if_corrupt<T>(&self, read: Result<T>) -> Result<T> {
        read.map_err(|error| match (&error, self.commit_log.log()) {
            (Error::MemoryCorruption { .. }, Ok(log)) => log.end_with(error),
            _ => error,
        })
    }

    /// Makes the names of the flushed tables durable, or removes the tables.
    pub(in crate::engine) fn sync_tables<'a>(
        &self,
        flushed: impl Iterator<Item = &'a Flushed<'a>>,
    ) -> Result<()> {
        let outputs = flushed.flat_map(|flush| &flush.outputs);
        let tables = outputs.flat_map(|output| &output.tables);
        let tables: Vec<TableId> = tables.map(|table| table.id).collect();
        if tables.is_empty() {
            return Ok(());
        }
        let synced = self.fs.sync_dir(&self.tables_dir());
        synced.inspect_err(|_| self.catalog.remove_tables(&tables))
    }

    /// Whether the active memtable holds a record that has been dead for so long that it must be flushed out, or is mostly
    /// deletes that nobody adds to, or that scans have paid for.
    pub(in crate::engine) fn memory_is_due(&self, state: &ContainerState) -> bool {
        let read_state = state.read_state();
        let memtable = &read_state.active.memtable;
        if memtable.is_empty() {
            return false;
        }
        self.is_due(state, &read_state.active, &self.settled_view(state))
            || (self.is_time_for_deletes(state, memtable.bytes()) && is_mostly_deletes(memtable))
    }

    /// Whether so many bytes of deletes are to be flushed, to be merged with the records that they hide.
    fn is_time_for_deletes(&self, state: &ContainerState, bytes: usize) -> bool {
        let least = self.options.memtable_bytes / DELETES_SHARE;
        bytes >= least.min(DELETES_BYTES)
            && (self.quiet_for() >= REST || state.paid_by_passing() >= bytes as u64)
    }

    /// Whether any memtable does.
    pub(in crate::engine) fn is_due(
        &self,
        state: &ContainerState,
        flushable: &Flushable,
        view: &ExpiryView,
    ) -> bool {
        let census = flushable.memtable.census();
        census.oldest_dead(Seq(0), view).is_some_and(|expiry| {
            start_by(expiry, &census, view, &self.goals_of(state)) <= view.now
        })
    }

    pub(in crate::engine) fn seal_one(&self, state: &ContainerState) {
        let mut commit = self.commit_log.lock();
        self.seal(&mut commit, state);
    }

    /// Flushes all memtables.
    pub fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.revive_log()?;
        let states = self.containers.all();
        {
            let mut commit = self.commit_log.lock();
            states
                .iter()
                .for_each(|state| self.seal(&mut commit, state));
        }
        let mut done = Ok(());
        for group in self.flush_groups(&states) {
            let flushed = loop {
                match self.flush_group(&group) {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(full) if full.is_full() => match self.flush_front() {
                        Ok(true) => {}
                        Ok(false) => break Err(full),
                        Err(error) => break Err(error),
                    },
                    Err(error) => break Err(error),
                }
            };
            done = done.and(flushed);
        }
        self.tell_listener_of_steps();
        done
    }
}
