//! The writing half of an open: the recovered state takes effect by a new manifest.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use super::{Recovered, free_table};
use crate::base::{Result, file_name};
use crate::catalog::{Manifest, unnamed_tables};
use crate::engine::jobs::relog::relog;
use crate::engine::open::new_log::{Chain, log_options, start_chain};
use crate::engine::open::replay::finish_loads;
use crate::engine::options::Options;
use crate::env::{Fs, make_dir};
use crate::wal::{FrameHeader, FrameKind, Kept, Log, doubt_syncs, remove_chain, sync_chain};

/// The behaviour of an open that finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullDisk {
    /// It continues with the current manifest, without a log.
    WillDo,
    /// It fails and removes nothing.
    Fails,
}

/// Writes the recovered records into a new chain of segments, durably, or keeps the log they are in before that chain;
/// names it in a new manifest, then removes the files that this does not name. On a full disk, with `WillDo`, returns
/// the error in place of the chain, and the old manifest.
pub fn write_anew(
    path: &Path,
    options: &Options,
    found: &mut Recovered,
    full_disk: FullDisk,
) -> Result<(Result<Chain>, Manifest)> {
    let fs = &options.fs;
    let (tables_dir, wal_dir) = (
        path.join(file_name::TABLES_DIR),
        path.join(file_name::WAL_DIR),
    );
    make_dir(fs.as_ref(), &tables_dir)?;
    make_dir(fs.as_ref(), &wal_dir)?;
    fs.sync_dir(path)?;
    let free_table = free_table(fs.as_ref(), &tables_dir)?;
    found.catalogue.next_table = found.catalogue.next_table.max(free_table);
    let before = found.catalogue.clone();
    let (first, number) = (found.log.next_segment, found.manifest_number + 1);
    let begun = found.while_finishing(|| begin_chain(path, options, found, full_disk));
    // All is in memory before the manifest says that the open has taken effect.
    let begun = begun.flatten().and_then(|((log, appender), segments)| {
        let catalogue = &mut found.catalogue;
        catalogue.log = Some(log.start(0));
        catalogue.log_synced = log.synced();
        catalogue.used = catalogue.used.max(found.last_seq);
        catalogue.edit += 1;
        let manifest = Manifest::start(fs.clone(), path, number, catalogue.clone())?;
        Ok((log, appender, segments, manifest))
    });
    match begun {
        Ok((log, appender, segments, manifest)) => {
            segments.iter().for_each(|segments| found.need(segments));
            found.dropped.clear();
            clean(fs.as_ref(), path, number, found);
            // Segments that stay here go with a later release.
            let _ = log.release_older();
            Ok((Ok((log, appender)), manifest))
        }
        // Once it has its name the manifest counts, durably or not, and so does the chain. Without it neither is
        // needed, and on a full disk each retry would leave another chain.
        Err(error) if !matches!(fs.len(&path.join(file_name::manifest(number))), Ok(None)) => {
            Err(error)
        }
        Err(error) => {
            let will_do = full_disk == FullDisk::WillDo && error.is_full();
            // Frees the room that is reserved behind the old chain's end.
            let segments = &found.log.segments;
            let end = segments.last().map_or(first, |last| last.number + 1);
            let stays = if will_do && !found.torn { end } else { first };
            remove_chain(fs.as_ref(), &wal_dir, stays);
            if !will_do || !found.may_go_on(fs.as_ref(), path)? {
                return Err(error);
            }
            found.catalogue = before;
            let manifest = go_on_as_before(path, fs, &wal_dir, found)?;
            Ok((Err(error), manifest))
        }
    }
}

/// Goes on with the manifest and the log that are there.
fn go_on_as_before(
    path: &Path,
    fs: &Arc<dyn Fs>,
    wal_dir: &Path,
    found: &mut Recovered,
) -> Result<Manifest> {
    // The recovered log may be in the page cache alone, and later edits rely on it.
    // Only for want of room the open goes on without that doubt noted (wal/keep.rs).
    if let Some(log) = &found.catalogue.log
        && let Err(error) = doubt_syncs(fs.as_ref(), wal_dir, log)
        && !error.is_full()
    {
        return Err(error);
    }
    sync_chain(fs.as_ref(), wal_dir)?;
    let number = found.manifest_number;
    let resume = || Manifest::resume(fs.clone(), path, number, &found.manifest);
    let clean = || clean(fs.as_ref(), path, number, found);
    // The last edit may not be durable before this. So the files that it removed go afterwards, unless it needs their room.
    let mut manifest = match resume() {
        Err(error) if error.is_full() => {
            clean();
            resume()?
        }
        resumed => {
            let manifest = resumed?;
            clean();
            manifest
        }
    };
    for logged in std::mem::take(&mut found.logged) {
        manifest.note(logged);
    }
    let dropped = std::mem::take(&mut found.dropped);
    let mark = found.catalogue.time_high_water;
    // These tables go when the manifest names them no more.
    if !dropped.is_empty() && !found.torn && manifest.commit(vec![], mark).is_ok() {
        for table in dropped {
            let path = path.join(file_name::TABLES_DIR);
            let _ = fs.remove(&path.join(file_name::table(table)));
        }
    }
    found.catalogue.edit = manifest.catalogue().edit;
    Ok(manifest)
}

/// Begins a new chain of log segments: behind the log that was found, if that can be kept, or else with the records of
/// the memtables, durable. Returns the segments of a log that is kept, too.
fn begin_chain(
    path: &Path,
    options: &Options,
    found: &Recovered,
    full_disk: FullDisk,
) -> Result<(Chain, Option<RangeInclusive<u64>>)> {
    let kept = found.keep_log(path, options, full_disk);
    let header = FrameHeader {
        kind: FrameKind::Relog,
        first_seq: found.last_seq,
        last_seq: found.last_seq,
        written_at: found.clock.read().now,
        settled: found.catalogue.time_high_water,
        edit: found.catalogue.edit,
    };
    let log_options = log_options(options, &path.join(file_name::WAL_DIR));
    let segments = kept.as_ref().map(Kept::numbers);
    let (fs, first) = (&options.fs, found.log.next_segment);
    let chain = if kept.is_some() {
        let base = (header.last_seq.next(), header.written_at);
        Log::create_behind(kept, fs.clone(), &log_options, first, base, header.edit)?
    } else {
        finish_loads(&found.states)?;
        start_chain(fs, &log_options, first, &header, |appender| {
            let mut states = found.states.values();
            states.try_for_each(|state| relog(state, &header, appender))
        })?
    };
    Ok((chain, segments))
}

/// Removes the files that this manifest does not name; those it cannot remove go with the next open. After a manifest
/// with a torn tail, removes only files that never had their final name: the next open, which reads a whole manifest,
/// removes the rest.
fn clean(fs: &dyn Fs, path: &Path, manifest: u64, found: &Recovered) {
    let is_old = |number: Option<u64>| !found.torn && number.is_some_and(|old| old != manifest);
    for name in fs.list(path).unwrap_or_default() {
        let never_named = name.starts_with("manifest-") && name.ends_with(file_name::TEMPORARY);
        if never_named || is_old(file_name::parse_manifest(&name)) {
            let _ = fs.remove(&path.join(name));
        }
    }
    let copy_dir = path.join(file_name::COPY_DIR);
    if fs.is_dir(&copy_dir) {
        for name in fs.list(&copy_dir).unwrap_or_default() {
            let number = file_name::parse_copy(&name).or_else(|| file_name::parse_no_copy(&name));
            if name.ends_with(file_name::TEMPORARY) || is_old(number) {
                let _ = fs.remove(&copy_dir.join(name));
            }
        }
    }
    if found.torn {
        return;
    }
    let tables_dir = path.join(file_name::TABLES_DIR);
    let mut named = found.catalogue.tables();
    named.extend(&found.dropped);
    let unnamed = unnamed_tables(fs, &tables_dir, &named);
    for name in unnamed.unwrap_or_default() {
        let _ = fs.remove(&tables_dir.join(name));
    }
}
