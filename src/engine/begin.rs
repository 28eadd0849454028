//! Beginning a log, and what becomes of the old one where there is no room for that.
//!
//! ```text
//! on disk     old chain 5 6 7 8, named by the manifest                    new chain 10 ...
//! in memory   what was recovered from it: needed, or dead
//! ```
//!
//! An open that finds no room goes on without a log: the old chain stays, read-only, and what is in memory relies on it.
//! No write is taken until a new chain holds what is needed of that, and the manifest names it. What frees the room must
//! not need any:
//!
//! * **What is dead is not taken along.** What a flush would leave out for good, by the verdict, is not logged again.
//! * **Segments go from the front**, by an edit alone, for which room is reserved: all before the first that may hold a
//!   record that is needed. When none is, the whole chain goes, and the manifest names no log; memory is let go of, too.
//! * **A small log begins in little room**: with the smallest ring, and a first segment as long as what goes into it. Where
//!   there is none, the room that is kept for edits of the manifest's copy is lent to it until the old chain is gone.
//!
//! **Why segments may go from the front.** What goes has numbers below `cut`, the lowest that is needed; what stays is not
//! needed or has higher ones. What is dropped with what hid it must not come back without that. Let x stay, and let y,
//! which hides it, go: then y is newer than x, and all frames with y are in segments that go. If x stays in the frame of
//! its write, y was written later, and stays. If x stays in a relogged frame, then y was in the same memtable, and was
//! relogged with it, or was written later: it stays. A relog counts as the highest number of its moment, so all of its
//! frames stay or none. The edit carries the mark by which the dead were judged, as every edit does that drops.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result, Seq, Timestamp};
use crate::catalog::Change;
use crate::compact::survivors;
use crate::data::cursor::Seek;
use crate::data::merge::Merge;
use crate::data::range_delete::RangeDelete;
use crate::engine::Engine;
use crate::engine::commit::OldLog;
use crate::engine::jobs::job::{JobSpec, Purpose};
use crate::engine::options::Options;
use crate::engine::read::Source;
use crate::engine::relog::{Show, relog_with};
use crate::engine::state::{Buffer, ContainerState, Picture};
use crate::env::Fs;
use crate::expiry::Judge;
use crate::wal::{
    Appender, FrameHead, FrameKind, Log, LogOptions, LogStart, remove_before, remove_chain,
};

/// A chain of log segments, to be shared and to be written.
pub(super) type Chain = (Arc<Log>, Appender);

/// The ring of a log that begins in little room, and what its first segment has beyond what is logged again, in bytes: a
/// power of two up to this ...
const SMALL_LOG: u64 = 16 << 10;
/// ... and at least this.
const LEAST_LOG: u64 = 4 << 10;

/// What a record takes in the log beside key and value, in bytes, at most.
const RECORD_OVERHEAD: u64 = 64;

/// How large the files of a log are.
pub(super) fn log_options(options: &Options, wal_dir: &Path) -> LogOptions {
    LogOptions {
        segment_bytes: options.segment_len(),
        ring_bytes: Some(options.ring_len()),
        ..LogOptions::new(wal_dir)
    }
}

/// A new chain that holds what `relog` appends, durably.
pub(super) fn start_chain(
    fs: &Arc<dyn Fs>,
    options: &LogOptions,
    first_segment: u64,
    head: &FrameHead,
    relog: impl FnOnce(&mut Appender) -> Result<()>,
) -> Result<Chain> {
    let (log, mut appender) = Log::create(
        fs.clone(),
        options,
        first_segment,
        head.last_seq.next(),
        head.written_at,
        head.edit,
    )?;
    relog(&mut appender)?;
    log.sync_to(log.end())?;
    Ok((log, appender))
}

/// The files of a log that takes no more than is free, with `needed` bytes logged again; `None`: there are none so small.
fn small_log(usual: &LogOptions, free: u64, needed: u64) -> Option<LogOptions> {
    let each = free.saturating_sub(needed) / 2;
    let each = (1 << each.checked_ilog2()?).min(SMALL_LOG);
    let ring = usual.ring_bytes.unwrap_or_default().min(each as usize);
    (each >= LEAST_LOG).then(|| LogOptions {
        first_segment_bytes: Some(each + needed),
        ring_bytes: Some(ring),
        ..usual.clone()
    })
}

impl Engine {
    /// Begins the log, if opening found no room for one: as opening does, with what is needed of what memory holds.
    #[inline]
    pub(super) fn begin_log(&self) -> Result<()> {
        match (self.commit_log.begun(), self.commit_log.old_log()) {
            (None, Some(old)) => self.begin_log_after(old),
            _ => Ok(()),
        }
    }

    #[cold]
    fn begin_log_after(&self, old: &OldLog) -> Result<()> {
        let usual = log_options(&self.options, &self.wal_dir());
        match self.begin_log_with(old, &usual) {
            Err(full) if full.is_full() => {
                let free = self.fs.room(&self.path)?.free;
                // Every write comes here: none goes through all of memory for what cannot be.
                if free < 2 * SMALL_LOG {
                    return Err(full);
                }
                let small = small_log(&usual, free, self.needed_bytes()?);
                small.map_or(Err(full), |small| self.begin_log_with(old, &small))
            }
            done => done,
        }
    }

    /// The same where not even a small log has room: with what is kept for edits.
    fn begin_log_in_lent_room(&self, old: &OldLog, full: Error) -> Result<()> {
        let (usual, needed) = (
            log_options(&self.options, &self.wal_dir()),
            self.needed_bytes()?,
        );
        let free = || Ok(self.fs.room(&self.path)?.free);
        let lendable = self.catalog.edit().lendable();
        if small_log(&usual, free()? + lendable, needed).is_none() {
            return Err(full);
        }
        self.catalog.edit().lend_room();
        let small = small_log(&usual, free()?, needed);
        let begun = small.map_or(Err(full), |small| self.begin_log_with(old, &small));
        self.catalog.edit().reserve();
        begun
    }

    fn begin_log_with(&self, old: &OldLog, options: &LogOptions) -> Result<()> {
        let mut turn = self.commit_log.lock();
        if self.commit_log.begun().is_some() {
            return Ok(());
        }
        let (last, first) = (self.commit_log.latest(), old.next_segment);
        let head = self.frame_head(FrameKind::Relog, last, last);
        let mut manifest = self.catalog.edit();
        let mut judged_at = Timestamp(0);
        let begun = start_chain(&self.fs, options, first, &head, |appender| {
            for state in self.containers.all() {
                let (picture, judge) = (state.pin(), self.judge_settled(&state));
                judged_at = judged_at.max(judge.now);
                relog_with(&state, &head, appender, |log| {
                    self.needed(&state, &picture, judge, log)
                })?;
            }
            Ok(())
        });
        let begun = begun.and_then(|(log, appender)| {
            let named = vec![Change::Log(Some(log.start(first)))];
            let basis = self.commit_log.all_before(&turn)?;
            self.edit(&mut manifest, basis, named, judged_at)?;
            Ok((log, appender))
        });
        let in_doubt = manifest.is_in_doubt();
        let (log, appender) = begun.inspect_err(|_| {
            if !in_doubt {
                remove_chain(self.fs.as_ref(), &self.wal_dir(), first);
            }
        })?;
        drop(manifest);
        // What it misses goes with a later release.
        let _ = log.release_older();
        self.commit_log.begin(&mut turn, log, appender);
        self.seal_when_full(&mut turn);
        Ok(())
    }

    /// Begins the log, if opening found no room for one; where there still is none, after letting go of what nobody needs
    /// of the old one. For threads in the background, and for who asks for what they do.
    pub(super) fn revive_log(&self) -> Result<()> {
        let begun = match self.begin_log() {
            Err(full) if full.is_full() && self.give_back_old_log()? => self.begin_log(),
            done => done,
        };
        match (begun, self.commit_log.old_log()) {
            (Err(full), Some(old)) if full.is_full() => self.begin_log_in_lent_room(old, full),
            (done, _) => done,
        }
    }

    /// Lets go of what nobody needs of the old log, by an edit, and removes it; false when that is nothing.
    fn give_back_old_log(&self) -> Result<bool> {
        let Some(old) = self.commit_log.old_log() else {
            return Ok(false);
        };
        // No memtable is sealed or flushed before there is a log. Judged before the turn is taken: gone is final, and
        // nobody writes.
        let (mut cut, mut judged_at) = (None::<Seq>, Timestamp(0));
        let mut idle: Vec<(Arc<ContainerState>, Arc<Buffer>)> = vec![];
        for state in self.containers.all() {
            let (picture, judge) = (state.pin(), self.judge_settled(&state));
            judged_at = judged_at.max(judge.now);
            let mut own = picture.active.memtable.range_deletes().iter();
            let oldest = own.find(|delete| picture.version.needs(delete));
            let mut lowest: Option<Seq> = oldest.map(|delete| delete.seq);
            self.needed(&state, &picture, judge, &mut |header, _, _| {
                lowest = Some(lowest.map_or(header.seq, |lowest| lowest.min(header.seq)));
                Ok(())
            })?;
            match lowest {
                Some(seq) => cut = Some(cut.map_or(seq, |cut| cut.min(seq))),
                None => idle.push((state, picture.active.clone())),
            }
        }
        let mut turn = self.commit_log.lock();
        let mut manifest = self.catalog.edit();
        let catalogue = manifest.catalogue()?;
        if self.commit_log.begun().is_some() {
            return Ok(false);
        }
        let before = catalogue.log;
        let rest = before.zip(cut).map(|(start, cut)| LogStart {
            first: old.holding(cut).unwrap_or(start.first).max(start.first),
            ..start
        });
        idle.retain(|(state, buffer)| {
            let is_known = catalogue.containers.contains_key(&state.id());
            rest != before && is_known && !buffer.memtable.is_empty()
        });
        let flushed = |(state, buffer): &(Arc<ContainerState>, Arc<Buffer>)| {
            Change::Flushed(state.id(), buffer.memtable.seq_max())
        };
        let mut changes: Vec<Change> = idle.iter().map(flushed).collect();
        changes.extend([Change::Log(rest), Change::used(self.commit_log.latest())]);
        if rest != before {
            let basis = self.commit_log.all_before(&turn)?;
            self.edit(&mut manifest, basis, changes, judged_at)?;
        }
        for (state, buffer) in idle {
            // Before the picture: whoever sees the memtable gone sees that its numbers are flushed.
            state.set_flushed(buffer.memtable.seq_max());
            state.install(|picture| Picture {
                active: state.new_buffer(),
                sealed: picture.sealed.clone(),
                version: picture.version.clone(),
            });
            turn.remove_active(buffer.counted());
            self.throttle.remove_unflushed(buffer.counted());
        }
        drop(manifest);
        // Those too that an edit gave up before, and nobody removed.
        let (first, rings) = rest.map_or((old.next_segment, true), |rest| (rest.first, false));
        let removed = remove_before(self.fs.as_ref(), &self.wal_dir(), first, rings);
        Ok(rest != before || removed > 0)
    }

    /// Shows what is needed of the records in a container's memory: what a flush would write, as it would write it.
    fn needed(
        &self,
        state: &Arc<ContainerState>,
        picture: &Picture,
        judge: Judge,
        show: &mut Show<'_>,
    ) -> Result<()> {
        let spec = JobSpec {
            judge,
            range_deletes: picture.range_deletes().cloned().collect(),
            cuts: vec![Timestamp::MAX],
            purpose: Purpose::Flush { is_due: true },
        };
        let job = self.job(state, picture, &BTreeSet::new(), &spec);
        let memory = vec![Source::Memory(picture.active.memtable.cursor())];
        let sources = Merge::seek(memory, Seek::First, None)?;
        survivors(&job, sources, &mut |head, value| {
            show(head.header, head.key, value)
        })
    }

    /// What it takes in the log, at most.
    fn needed_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for state in self.containers.all() {
            let (picture, judge) = (state.pin(), self.judge_settled(&state));
            for RangeDelete { range, .. } in picture.active.memtable.range_deletes().iter() {
                let to = range.to.as_ref().map_or(0, Vec::len);
                bytes += (range.from.len() + to) as u64 + RECORD_OVERHEAD;
            }
            self.needed(&state, &picture, judge, &mut |_, key, value| {
                bytes += (key.len() + value.len()) as u64 + RECORD_OVERHEAD;
                Ok(())
            })?;
        }
        Ok(bytes)
    }
}
