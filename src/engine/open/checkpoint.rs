//! Checkpoints: the tables of the catalogue, linked or copied into another folder, and the log up to one moment.
//!
//! ```text
//! both locks held        the catalogue, where the log ends, its segments; tables and segments are pinned
//! nothing held           tables linked or copied -> segments copied up to that end -> folders synced -> manifest
//! ```
//!
//! Catalogue and log end are read under the commit lock, so they show one moment, the same for all containers. Opening
//! the copy recovers exactly the writes acknowledged by then. Pinned files keep their names even if a job replaces them
//! meanwhile; obsolete ones are removed after the copy. So copying blocks nobody, however long it takes.
//!
//! A follower, or a database that is open to be read, pins nothing and has no log. It links the tables that its
//! catalogue names, begins a log in the other folder and puts the records of its memtables into that. If the writer
//! removes a table meanwhile, it catches up and begins anew.
//!
//! The target is a folder that does not exist or is empty. Each folder and file in it is created new, never
//! overwritten, and never through a link below the target. A failure removes only what the checkpoint created.

use std::path::{Path, PathBuf};

use crate::base::file_name;
use crate::base::{Error, Result};
use crate::catalog::{Catalogue, NamePin, copy_path, write_both};
use crate::engine::Engine;
use crate::engine::jobs::relog::relog;
use crate::engine::open::catch_up::retry_until_stable;
use crate::engine::open::new_log::{log_options, start_chain};
use crate::engine::open::recover::Shared;
use crate::engine::options::Background;
use crate::engine::parts::follower::{Follower, FollowerState};
use crate::engine::parts::scheduler::Thread;
use crate::env::{Fs, sync_name};
use crate::wal::{
    Appender, FrameHeader, FrameKind, Position, SEGMENT_HEADER_LEN, SegmentInfo, SegmentPin,
    end_segment, remove_chain,
};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// The number of the copy's manifest.
const MANIFEST: u64 = 1;

/// The number of the first segment of a log that is begun for a copy.
const FIRST_SEGMENT: u64 = 1;

/// The state of a database at one moment, with its files pinned.
struct PinnedState {
    catalogue: Catalogue,
    /// Where the log ended.
    end: Position,
    /// The log's segments.
    segments: Vec<SegmentInfo>,
    _tables: Vec<NamePin>,
    _segments: SegmentPin,
}

impl Engine {
    /// Makes a consistent copy in a folder that does not exist or is empty. A failure leaves nothing behind.
    pub fn checkpoint(&self, to: &Path) -> Result<()> {
        // Normalized: a trailing slash would let a link at the end of the path pass for a folder.
        let to: PathBuf = to.components().collect();
        if self.fs.is_in_memory() {
            let allowed = "of a database in a folder";
            return Err(Error::invalid("checkpoint", "of one in memory", allowed));
        }
        if let Some(follower) = &self.follower {
            return self.checkpoint_followed(follower, &to);
        }
        if self.options.read_only {
            return self.checkpoint_read(&to);
        }
        self.check_writable()?;
        self.refuse_target(&to)?;
        self.flush()?;
        let mut made = Made {
            fs: self.fs.as_ref(),
            paths: vec![],
        };
        let copied = made.folder_and_above(&to).and_then(|()| {
            let moment = self.pin_moment()?;
            self.copy_into(&to, &moment, &mut made)
        });
        if copied.is_err() {
            made.remove();
        }
        if self.options.background == Background::Stepped {
            self.obsolete.remove_all();
        } else {
            self.scheduler.wake(Thread::Merge);
        }
        match copied {
            // Closing removes pinned files.
            Err(_) if self.scheduler.is_closing() => Err(Error::Closed),
            copied => copied,
        }
    }

    /// The same beside the process that writes.
    fn checkpoint_followed(&self, follower: &Follower, to: &Path) -> Result<()> {
        self.scheduler.check_open()?;
        self.refuse_target(to)?;
        let mut stand = follower.stand();
        retry_until_stable(|| {
            self.catch_up_from(follower, &mut stand)?;
            self.copy_stand(to, &stand)
        })
    }

    /// The same of a database that is open to be read; perhaps nobody can write to its folder.
    fn checkpoint_read(&self, to: &Path) -> Result<()> {
        self.scheduler.check_open()?;
        self.refuse_target(to)?;
        let shared = Shared::new(&self.options);
        retry_until_stable(|| {
            let stand = FollowerState::find(&self.path, &self.options, &shared, None, false)?;
            self.copy_stand(to, &stand)
        })
    }

    fn copy_stand(&self, to: &Path, stand: &FollowerState) -> Result<()> {
        let mut made = Made {
            fs: self.fs.as_ref(),
            paths: vec![],
        };
        let copied = made
            .folder_and_above(to)
            .and_then(|()| self.copy_stand_into(to, stand, &mut made));
        if copied.is_err() {
            let wal = to.join(file_name::WAL_DIR);
            if made.paths.iter().any(|(path, _)| *path == wal) {
                remove_chain(self.fs.as_ref(), &wal, FIRST_SEGMENT);
            }
            made.remove();
        }
        copied
    }

    fn copy_stand_into(&self, to: &Path, stand: &FollowerState, made: &mut Made<'_>) -> Result<()> {
        let mut catalogue = stand.catalogue.clone();
        self.copy_tables(to, &catalogue, made)?;
        let wal = to.join(file_name::WAL_DIR);
        let header = |kind| FrameHeader {
            kind,
            first_seq: stand.last_seq,
            last_seq: stand.last_seq,
            written_at: self.clock.now(),
            settled: catalogue.time_high_water,
            edit: catalogue.edit,
        };
        let (options, relogged) = (log_options(&self.options, &wal), header(FrameKind::Relog));
        let start = |appender: &mut Appender| {
            let mut states = stand.states.values();
            states.try_for_each(|state| relog(state, &relogged, appender))
        };
        let (log, appender) = start_chain(&self.fs, &options, FIRST_SEGMENT, &relogged, start)?;
        appender.close(&header(FrameKind::End))?;
        catalogue.log = Some(log.start(FIRST_SEGMENT));
        catalogue.log_synced = log.synced();
        catalogue.used = catalogue.used.max(stand.last_seq);
        self.finish_copy(to, &catalogue, made)
    }

    /// Refuses a target that exists, lies inside the database, or contains it.
    fn refuse_target(&self, to: &Path) -> Result<()> {
        let fs = self.fs.as_ref();
        let refuse = |allowed| {
            let given = to.display().to_string();
            Err(Error::invalid("checkpoint folder", given, allowed))
        };
        if to.as_os_str().is_empty() {
            return refuse("a path");
        }
        fs.expect_dir(to)?;
        let (to, own) = (resolved(fs, to)?, resolved(fs, &self.path)?);
        if to.starts_with(&own) || own.starts_with(&to) {
            return refuse("one outside the database's own folder");
        }
        if fs.is_dir(&to) && !fs.is_empty_dir(&to)? {
            return refuse("one that does not exist or is empty");
        }
        Ok(())
    }

    fn pin_moment(&self) -> Result<PinnedState> {
        let log = self.commit_log.log()?;
        let commit = self.commit_log.lock();
        let manifest = self.catalog.edit();
        let mut catalogue = manifest.catalogue()?.clone();
        // The copied segments hold all of the log.
        let start = catalogue.log.as_mut().ok_or(Error::Closed)?;
        start.ring = None;
        let first = start.oldest();
        let (end, mut segments) = (log.end(), log.segments());
        // The log is synced up to there by the time the manifest is written.
        catalogue.log_synced = end;
        segments.retain(|segment| segment.number >= first);
        let _segments = log.pin_from(first);
        let mut _tables = vec![];
        for state in self.containers.all() {
            let read_state = state.read_state();
            let files = read_state.version.runs.iter().flat_map(|run| &run.files);
            _tables.extend(files.map(|file| file.pin_name()));
        }
        drop((commit, manifest));
        Ok(PinnedState {
            catalogue,
            end,
            segments,
            _tables,
            _segments,
        })
    }

    fn copy_into(&self, to: &Path, moment: &PinnedState, made: &mut Made<'_>) -> Result<()> {
        self.commit_log.log()?.sync_to(moment.end)?;
        self.copy_tables(to, &moment.catalogue, made)?;
        let (fs, wal) = (self.fs.as_ref(), to.join(file_name::WAL_DIR));
        for segment in &moment.segments {
            let name = file_name::segment(segment.number);
            let (from, to) = (self.wal_dir().join(&name), wal.join(&name));
            // Frames that are appended meanwhile, perhaps in part, are left out.
            let most = moment.end.0 - segment.start.0 + SEGMENT_HEADER_LEN as u64;
            let go_on = || self.scheduler.check_open();
            made.file(&to, || {
                copy(fs, &from, &to, most, &go_on)?;
                end_segment(fs, &to, most, segment.bytes).inspect_err(|_| drop(fs.remove(&to)))
            })?;
        }
        self.finish_copy(to, &moment.catalogue, made)
    }

    /// The folders of tables and of the log, and the tables.
    fn copy_tables(&self, to: &Path, catalogue: &Catalogue, made: &mut Made<'_>) -> Result<()> {
        let tables = to.join(file_name::TABLES_DIR);
        made.folder(&tables)?;
        made.folder(&to.join(file_name::WAL_DIR))?;
        for id in catalogue.tables() {
            let name = file_name::table(id);
            let (from, to) = (self.tables_dir().join(&name), tables.join(&name));
            let go_on = || self.scheduler.check_open();
            made.file(&to, || link_or_copy(self.fs.as_ref(), &from, &to, &go_on))?;
        }
        Ok(())
    }

    /// Gives the copied files their manifest, durably.
    fn finish_copy(&self, to: &Path, catalogue: &Catalogue, made: &mut Made<'_>) -> Result<()> {
        let fs = self.fs.as_ref();
        fs.sync_dir(&to.join(file_name::TABLES_DIR))?;
        fs.sync_dir(&to.join(file_name::WAL_DIR))?;
        made.folder(&to.join(file_name::COPY_DIR))?;
        made.manifest(to, catalogue)?;
        sync_name(fs, to)
    }
}

/// Resolves the links in a path whose end may not exist yet.
fn resolved(fs: &dyn Fs, path: &Path) -> Result<PathBuf> {
    let is_there = |path: &&Path| path.as_os_str().is_empty() || fs.is_dir(path);
    let there = path.ancestors().find(is_there);
    let there = there.unwrap_or(path);
    let rest = path.strip_prefix(there).unwrap_or(path);
    let there = match there.as_os_str().is_empty() {
        true => fs.canonical(Path::new("."))?,
        false => fs.canonical(there)?,
    };
    Ok(there.join(rest).components().collect())
}

/// The folders and files created, in order.
struct Made<'a> {
    fs: &'a dyn Fs,
    /// Each path, and whether it is a folder.
    paths: Vec<(PathBuf, bool)>,
}

impl Made<'_> {
    fn folder(&mut self, path: &Path) -> Result<()> {
        self.fs.create_dir(path)?;
        self.paths.push((path.into(), true));
        Ok(())
    }

    /// Creates a folder, which may exist, and those above it, and makes their names durable.
    fn folder_and_above(&mut self, path: &Path) -> Result<()> {
        if path.as_os_str().is_empty() || self.fs.is_dir(path) {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.folder_and_above(above)?;
        }
        match self.folder(path) {
            // Another process may have created it meanwhile.
            Err(_) if self.fs.is_dir(path) => Ok(()),
            made => made.and_then(|()| sync_name(self.fs, path)),
        }
    }

    fn file(&mut self, path: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
        make()?;
        self.paths.push((path.into(), false));
        Ok(())
    }

    /// Writes the manifest and its copy; neither replaces a file.
    fn manifest(&mut self, to: &Path, catalogue: &Catalogue) -> Result<()> {
        let both = [
            to.join(file_name::manifest(MANIFEST)),
            copy_path(to, MANIFEST),
        ];
        for path in &both {
            if self.fs.len(path)?.is_some() {
                let what = std::io::ErrorKind::AlreadyExists.into();
                return Err(Error::io("create", path, what));
            }
            let mut temporary = path.clone().into_os_string();
            temporary.push(file_name::TEMPORARY);
            self.paths.push((temporary.into(), false));
            self.paths.push((path.clone(), false));
        }
        write_both(self.fs, to, MANIFEST, catalogue).map(drop)
    }

    /// Removes the created files and folders, except where another process removed one or put something into it.
    fn remove(self) {
        for (path, is_folder) in self.paths.into_iter().rev() {
            let _ = match is_folder {
                true => self.fs.remove_dir(&path),
                false => self.fs.remove(&path),
            };
        }
    }
}

/// Links a table, or copies it if links are not possible: tables never change, so two folders can share them. An error
/// of `go_on` ends the copy.
pub(in crate::engine) fn link_or_copy(
    fs: &dyn Fs,
    from: &Path,
    to: &Path,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<()> {
    go_on()?;
    match fs.hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(_) => copy(fs, from, to, u64::MAX, go_on),
    }
}

/// Copies at most the first `most` bytes and syncs them, but not the name. A failure leaves nothing behind.
fn copy(
    fs: &dyn Fs,
    from: &Path,
    to: &Path,
    most: u64,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let source = fs.reader(from)?;
    let len = fs.len(from)?.unwrap_or_default().min(most);
    let file = fs.create(to)?;
    let mut at = 0;
    let mut copied = Ok(());
    while at < len && copied.is_ok() {
        let part = (len - at).min(COPY_BYTES);
        copied = go_on()
            .and_then(|()| source.read_at(at, part as usize))
            .and_then(|bytes| file.write_at(at, &bytes));
        at += part;
    }
    copied
        .and_then(|()| file.sync())
        .inspect_err(|_| drop(fs.remove(to)))
}
