//! Begins a log: at open, or later if that open found no room for one.
//!
//! ```text
//! on disk     old chain 5 6 7 8, named by the manifest                    new chain 10 ...
//! in memory   what was recovered from it: needed, or dead
//! ```
//!
//! An open that finds no room goes on without a new log: the old chain stays, read-only, because the memtables rely on
//! it. Writes are refused until a new chain holds the records of the old one that are still needed and the manifest
//! names it. Meanwhile the old chain frees as much as it can (old_log.rs).
//!
//! **A small log needs little room**: it has the smallest ring, and its first segment is as long as its contents.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result, Timestamp};
use crate::catalog::Change;
use crate::engine::Engine;
use crate::engine::jobs::left_out::ends_without;
use crate::engine::jobs::relog::relog_with;
use crate::engine::options::Options;
use crate::engine::parts::commit_log::OldLog;
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::scheduler::Thread;
use crate::env::Fs;
use crate::wal::{Appender, FrameHeader, FrameKind, Log, LogOptions, remove_chain};

/// A chain of log segments, to be shared and to be written.
pub(in crate::engine) type Chain = (Arc<Log>, Appender);

/// The ring of a small log, and what its first segment has beyond the relogged records, in bytes: a power of two up to
/// this ...
const SMALL_LOG: u64 = 16 << 10;
/// ... and at least this.
const LEAST_LOG: u64 = 4 << 10;

/// The sizes of a log's files.
pub(in crate::engine) fn log_options(options: &Options, wal_dir: &Path) -> LogOptions {
    LogOptions {
        segment_bytes: options.segment_len(),
        ring_bytes: Some(options.ring_len()),
        ..LogOptions::new(wal_dir)
    }
}

/// Starts a new chain and makes what `relog` appends to it durable.
pub(in crate::engine) fn start_chain(
    fs: &Arc<dyn Fs>,
    options: &LogOptions,
    first_segment: u64,
    header: &FrameHeader,
    relog: impl FnOnce(&mut Appender) -> Result<()>,
) -> Result<Chain> {
    let (log, mut appender) = Log::create(
        fs.clone(),
        options,
        first_segment,
        header.last_seq.next(),
        header.written_at,
        header.edit,
    )?;
    relog(&mut appender)?;
    log.sync_to(log.end())?;
    Ok((log, appender))
}

/// The file sizes of a log that fits into `free` bytes, with `needed` bytes relogged; `None`: even the smallest log
/// does not fit.
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
    /// Begins the log, if open found no room for one, as open does it: with the records in memory that are still
    /// needed. Each write tries this.
    #[inline]
    pub(in crate::engine) fn begin_log(&self) -> Result<()> {
        match (self.commit_log.begun(), self.commit_log.old_log()) {
            (None, Some(old)) => self.begin_log_for_write(old),
            _ => Ok(()),
        }
    }

    /// A write is not refused while room can be made: expired records may go before the background threads come to
    /// them.
    #[cold]
    fn begin_log_for_write(&self, old: &OldLog) -> Result<()> {
        match self.begin_usual_log(old) {
            Err(full) if full.is_full() => {}
            done => return done,
        }
        let _flushing = self.scheduler.lock_flushing();
        // The thread that had the lock before may have found room, or none.
        match old.may_look_for_room(self.clock.read().now) {
            true => self.make_room_and_begin(old),
            false => self.begin_usual_log(old),
        }
    }

    fn begin_usual_log(&self, old: &OldLog) -> Result<()> {
        self.begin_log_with(old, &log_options(&self.options, &self.wal_dir()))
    }

    /// Begins a small log in the room there is.
    fn begin_small_log(&self, old: &OldLog, full: Error) -> Result<()> {
        let usual = log_options(&self.options, &self.wal_dir());
        let free = self.fs.room(&self.path)?.free;
        let small = small_log(&usual, free, self.needed_bytes()?);
        small.map_or(Err(full), |small| self.begin_log_with(old, &small))
    }

    fn begin_log_with(&self, old: &OldLog, options: &LogOptions) -> Result<()> {
        let mut commit = self.commit_log.lock();
        if self.commit_log.begun().is_some() {
            return Ok(());
        }
        let (last, first) = (self.commit_log.latest(), old.next_segment);
        let header = self.frame_header(FrameKind::Relog, last, last);
        let mut manifest = self.catalog.edit();
        let catalogue = manifest.catalogue()?;
        let (mut judged_at, mut named) = (Timestamp(0), vec![]);
        let begun = start_chain(&self.fs, options, first, &header, |appender| {
            for state in self.containers.all() {
                let (read_state, view) = (state.pin(), self.settled_view(&state));
                judged_at = judged_at.max(view.now);
                // Notes for the log alone: memory keeps the records that are not needed, and its flush notes them.
                let without = Missing {
                    // Records that are not needed are left out unseen.
                    changes: read_state.active.memtable.seq_max(),
                    ends: ends_without(&read_state.version, &read_state.active, &view),
                    ..Missing::NOTHING
                };
                let record = catalogue.containers.get(&state.id());
                named.extend(
                    record
                        .iter()
                        .flat_map(|record| without.durable_changes(record)),
                );
                relog_with(&state, &header, appender, |log| {
                    self.needed(&state, &read_state.active, view.clone(), log)
                })?;
            }
            Ok(())
        });
        let begun = begun.and_then(|(log, appender)| {
            named.push(Change::Log(Some(log.start(first))));
            named.push(Change::LogSynced(log.synced()));
            let basis = self.commit_log.all_before(&commit)?;
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
        // Segments that stay here go with a later release.
        let _ = log.release_older();
        self.commit_log.begin(&mut commit, log, appender);
        let is_sealed = self.seal_when_full(&mut commit);
        drop(commit);
        if is_sealed {
            self.scheduler.wake(Thread::Flush);
        }
        Ok(())
    }

    /// Begins the log, if open found no room for one. If there still is none, frees as much of the old log as possible.
    /// Called by background threads and by callers who request their work.
    pub(in crate::engine) fn revive_log(&self) -> Result<()> {
        let (None, Some(old)) = (self.commit_log.begun(), self.commit_log.old_log()) else {
            return Ok(());
        };
        let _flushing = self.scheduler.lock_flushing();
        self.make_room_and_begin(old)
    }

    /// The same, for a caller that holds `flushing`.
    fn make_room_and_begin(&self, old: &OldLog) -> Result<()> {
        let began = self.clock.read().now;
        let done = loop {
            let full = match self.begin_usual_log(old) {
                Err(full) if full.is_full() => full,
                done => return done,
            };
            let gives_back = self.give_back_old_log(old)?
                || self.give_back_ring()?
                || self.flush_front_of_old_log(old)?;
            if !gives_back {
                break self.begin_small_log(old, full);
            }
        };
        old.looked_for_room(began, self.clock.read().now);
        done
    }
}
