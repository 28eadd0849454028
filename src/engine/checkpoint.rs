//! Checkpoints: what the catalogue names, linked or copied into another folder, with the log behind it.
//!
//! The catalogue stands still meanwhile (no job installs anything), so its tables stay; the log is cut at one moment,
//! for all containers the same. Opening the copy recovers exactly what was acknowledged by then.

use std::path::Path;

use crate::engine::core::Engine;
use crate::env::{Fs, create_folder};
use crate::error::{Error, Result};
use crate::types::file_name;
use crate::version::write_both;
use crate::wal::SEGMENT_HEADER_LEN;

/// How much of a file is copied at a time.
const COPY_BYTES: usize = 1 << 20;

impl Engine {
    /// Makes a consistent copy in a folder that does not exist or is empty. What fails leaves nothing behind.
    pub fn checkpoint(&self, to: &Path) -> Result<()> {
        self.flush()?;
        let fs = self.fs.as_ref();
        let was_there = fs.is_dir(to);
        if was_there && !fs.list(to)?.is_empty() {
            return Err(Error::invalid(
                "checkpoint folder",
                to.display().to_string(),
                "one that does not exist or is empty",
            ));
        }
        let (tables, wal) = (to.join(file_name::TABLES_DIR), to.join(file_name::WAL_DIR));
        let made = create_folder(fs, to).and_then(|()| self.copy_into(to, &tables, &wal));
        if made.is_err() {
            for folder in [&tables, &wal, &to.join(file_name::COPY_DIR), to] {
                for name in fs.list(folder).unwrap_or_default() {
                    let _ = fs.remove(&folder.join(name));
                }
                if folder != to || !was_there {
                    let _ = fs.remove_dir(folder);
                }
            }
        }
        made
    }

    fn copy_into(&self, to: &Path, tables: &Path, wal: &Path) -> Result<()> {
        let (fs, log) = (self.fs.as_ref(), self.log()?);
        fs.create_dir_all(tables)?;
        fs.create_dir_all(wal)?;
        let turn = self.turn.lock();
        let manifest = self.manifest.lock();
        let catalogue = manifest.as_ref().ok_or(Error::Closed)?.catalogue();
        let end = log.end();
        drop(turn);
        log.sync_to(end)?;
        for id in catalogue.tables() {
            let name = file_name::table(id);
            link_or_copy(fs, &self.tables_dir().join(&name), &tables.join(&name))?;
        }
        for segment in log.segments() {
            if segment.number >= catalogue.log && segment.start <= end {
                let name = file_name::segment(segment.number);
                let frames = end.0 - segment.start.0;
                // What is appended meanwhile, in part perhaps, is left out.
                let most = usize::try_from(frames)
                    .unwrap_or(usize::MAX)
                    .saturating_add(SEGMENT_HEADER_LEN);
                copy(fs, &self.wal_dir().join(&name), &wal.join(&name), most)?;
            }
        }
        fs.sync_dir(tables)?;
        fs.sync_dir(wal)?;
        write_both(fs, to, 1, catalogue).map(drop)
    }
}

/// Tables never change, so two folders can share them.
pub(super) fn link_or_copy(fs: &dyn Fs, from: &Path, to: &Path) -> Result<()> {
    match fs.hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(_) => copy(fs, from, to, usize::MAX),
    }
}

/// Copies at most the first `most` bytes.
fn copy(fs: &dyn Fs, from: &Path, to: &Path, most: usize) -> Result<()> {
    let bytes = fs.read(from)?;
    let file = fs.create(to)?;
    for (at, chunk) in bytes[..bytes.len().min(most)]
        .chunks(COPY_BYTES)
        .enumerate()
    {
        file.write_at((at * COPY_BYTES) as u64, chunk)?;
    }
    file.sync()
}
