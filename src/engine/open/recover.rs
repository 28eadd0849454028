//! Opening: lock -> manifest, compared with its copy -> footers of the tables -> log into memtables -> clock -> a new
//! chain of log segments with what the memtables hold, or behind the log that holds it, synced -> a new manifest that
//! names it -> removal of files that nothing names. Recovery takes effect with that manifest; before it, nothing on
//! disk has changed that an earlier state relies on. A read-only open stops after the clock.
//!
//! ```text
//! the open    read and check the log, store its records | keep it, begin the new chain | name it
//! a thread    read the log ahead                        | put the records in order     |
//! ```
//!
//! All records are in order and shown before the manifest has its name. A caller that asks a memtable earlier finishes
//! it first.
//!
//! A folder that never was a database first gets a manifest that names nothing, and is then opened like any other. So a
//! folder that holds any other file of a database has had a manifest: without one it is damaged, and nothing in it is
//! touched. A folder of other things, most likely named by mistake, is not touched either: only the files that a first
//! open makes before its manifest may be there, because a first open that was killed leaves them.
//!
//! On a full disk there is no room for a new chain: the old chain stays, and edits go on in the old manifest, in the
//! room reserved behind it. Such a database answers reads and reclaims; new_log.rs says how its log begins.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicU64;
use crate::base::{Error, HIGHEST_NUMBER, Result, Seq, TableId, file_name, spans};
use crate::catalog::{
    Catalogue, ContainerVersion, CurrentManifest, LoadedManifest, Logged, Manifest, Pins, Run,
    TableFile, TableRecord, TableSpace, begin, expect_no_others, expect_own, find_current,
    is_current, later_table,
};
use crate::engine::Engine;
use crate::engine::core::log_time;
use crate::engine::open::new_log::Chain;
use crate::engine::open::replay::{MADE_UP, States, finish_loads, replay_into};
use crate::engine::options::{Background, Options};
use crate::engine::parts::allowance::Allowance;
use crate::engine::parts::catalog::Catalog;
use crate::engine::parts::commit_log::{Beginning, CommitLog, OldLog};
use crate::engine::parts::containers::ContainerSet;
use crate::engine::parts::counters::Counters;
use crate::engine::parts::damage::DamagedTables;
use crate::engine::parts::events::Events;
use crate::engine::parts::follower::FollowerState;
use crate::engine::parts::given_time::GivenTime;
use crate::engine::parts::loads::Loads;
use crate::engine::parts::obsolete::ObsoleteTables;
#[cfg(feature = "metrics")]
use crate::engine::parts::publisher::Publisher;
use crate::engine::parts::scheduler::Scheduler;
use crate::engine::parts::state::ContainerState;
use crate::engine::parts::sync_waiters::SyncWaiters;
use crate::engine::parts::throttle::Throttle;
use crate::env::{Fs, Lock, LockKind, SettledClock, beside, create_folder};
use crate::mem::{Pool, RangeDeletes};
use crate::table::BlockCache;
use crate::wal::{Kept, Replayed, SyncedNote, keep};

mod write_anew;

pub(in crate::engine) use write_anew::{FullDisk, write_anew};

/// The state found on disk, before anything is written.
pub(in crate::engine) struct Recovered {
    pub catalogue: Catalogue,
    /// The highest number of a manifest in the folder.
    pub manifest_number: u64,
    /// The bytes that were found in it.
    manifest: Bytes,
    torn: bool,
    states: States,
    last_seq: Seq,
    /// The last edit that a frame of the log carries.
    pub seen_edit: u64,
    /// The end of the log, and its chain.
    log_end: Option<SyncedNote>,
    /// The result of its replay.
    log: Replayed,
    /// Whether it holds records that are not in memory.
    left_out: bool,
    clock: SettledClock,
    /// The changes by the log that the manifest does not have yet.
    logged: Vec<Logged>,
    /// The tables of containers that the log has dropped and the manifest names.
    dropped: BTreeSet<TableId>,
}

impl Recovered {
    /// From the state that a follower has found.
    pub fn followed(stand: &FollowerState, clock: SettledClock) -> Recovered {
        Recovered {
            catalogue: stand.catalogue.clone(),
            manifest_number: 0,
            manifest: Bytes::new(),
            torn: false,
            states: stand.states.clone(),
            last_seq: stand.last_seq,
            seen_edit: stand.catalogue.edit,
            log_end: None,
            log: Replayed::default(),
            left_out: false,
            clock,
            logged: vec![],
            dropped: BTreeSet::new(),
        }
    }
}

impl Recovered {
    /// Whether its manifest may take edits: there is one, and not of the format before.
    fn may_go_on(&self, fs: &dyn Fs, path: &Path) -> Result<bool> {
        let number = self.manifest_number;
        Ok(number > 0 && is_current(fs, path, number)?)
    }

    /// Keeps the log for the next chain to continue, if that is possible (wal/keep.rs) and costs less than logging anew.
    fn keep_log(&self, path: &Path, options: &Options, full_disk: FullDisk) -> Option<Kept> {
        let fs = options.fs.as_ref();
        let bytes: u64 = self.log.segments.iter().map(|segment| segment.bytes).sum();
        let is_whole = !self.left_out && !self.torn && full_disk == FullDisk::WillDo;
        if !is_whole || bytes <= options.relog_bytes() as u64 {
            return None;
        }
        let log = self.catalogue.log?;
        let is_current = self.may_go_on(fs, path).ok()?;
        // A failure here does not matter: logging anew needs nothing of it.
        let keep = || keep(fs, &path.join(file_name::WAL_DIR), &log, &self.log);
        is_current.then(keep)?.ok()?
    }

    /// Notes that the records brought in are in these segments of the log.
    fn need(&self, segments: &RangeInclusive<u64>) {
        for state in self.states.values() {
            let active = state.read_state().active.clone();
            if !active.memtable.is_empty() {
                active.logged_in(*segments.start());
                active.logged_in(*segments.end());
            }
        }
    }

    /// The next write gets a sequence number so much higher, but none above the highest.
    pub fn skip_numbers(&mut self, count: u64) {
        self.last_seq = Seq((self.last_seq.0 + count).min(HIGHEST_NUMBER));
    }

    /// Does `work` while another thread finishes the memtables loaded from the log.
    fn while_finishing<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let mut memtables = self.states.values().map(|state| state.read_state());
        if !memtables.any(|read| read.active.memtable.is_loaded()) {
            return Ok(work());
        }
        let finished = OnceLock::new();
        let finish = || drop(finished.set(finish_loads(&self.states)));
        let done = beside("ebbtide-loads", finish, || (), work);
        let no_thread = || finish_loads(&self.states);
        finished.into_inner().unwrap_or_else(no_thread)?;
        Ok(done)
    }

    /// Leaves out the commands that are not needed any more.
    fn forget_commands(&mut self) -> Result<()> {
        for (id, state) in &self.states {
            let settings = state.whole_settings();
            if !settings.commands.is_empty() {
                // They are needed if older records are in memory.
                state.read_state().active.memtable.finish_load()?;
            }
            let stands = state.prune_commands((*settings).clone(), Seq::MAX);
            let record = self.catalogue.containers.get_mut(id);
            if let Some(record) = record.filter(|_| stands != *settings) {
                record.settings = stands.clone();
                record.changes_from = record.changes_from.max(state.changes_low_water());
                state.begin_change().change_to(stands, record.settings_seq);
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Opens the database in a folder.
    pub fn open(path: &Path, options: &Options) -> Result<Arc<Engine>> {
        let _span = spans::open(&path.display());
        let lock = lock(path, options)?;
        let shared = Shared::new(options);
        let loaded = find(path, options)?;
        let recover_and_begin = || {
            let mut found = recover(path, options, &loaded, &shared)?;
            let begun = Continuation::anew(path, options, &mut found)?;
            Ok((found, begun))
        };
        let (found, begun) = match may_start_threads(options) {
            true => shared.pool.while_populated(recover_and_begin),
            false => recover_and_begin(),
        }?;
        let engine = Arc::new(assemble(path, options, Some(lock), shared, found, begun));
        if !options.read_only {
            // Recovery may bring more into memory than writers are allowed, and only writers seal. The flush thread begins
            // with a round.
            let _ = engine.seal_when_full(&mut engine.commit_log.lock());
        }
        if may_start_threads(options) {
            Engine::start_threads(&engine)?;
        }
        Ok(engine)
    }
}

fn may_start_threads(options: &Options) -> bool {
    !options.read_only && options.background == Background::Threads
}

/// Locks the folder, after creating it unless the open is read-only.
fn lock(path: &Path, options: &Options) -> Result<Box<dyn Lock>> {
    let fs = options.fs.as_ref();
    if options.read_only && !fs.is_dir(path) {
        return Err(Error::NotFound { path: path.into() });
    }
    if !options.read_only {
        create_folder(fs, path)?;
        // A folder that is refused below stays as it was, without a lock's file.
        if fs.len(&path.join(file_name::LOCK))?.is_none() {
            expect_own(fs, path)?;
            expect_room_for_new(path, options)?;
        }
    }
    let kind = if options.read_only {
        LockKind::Shared
    } else {
        LockKind::Exclusive
    };
    fs.lock(&path.join(file_name::LOCK), kind)
}

/// The resources that the containers of a database share.
pub(in crate::engine) struct Shared {
    pub cache: Arc<BlockCache>,
    pub pins: Arc<Pins>,
    pub pool: Arc<Pool>,
}

impl Shared {
    /// The folder of tables, and the resources that they are opened with.
    pub fn space<'a>(&'a self, options: &'a Options, tables_dir: &'a Path) -> TableSpace<'a> {
        TableSpace {
            fs: options.fs.as_ref(),
            dir: tables_dir,
            cache: &self.cache,
            pins: &self.pins,
            reads: options.reads,
        }
    }

    /// Empty.
    pub fn new(options: &Options) -> Shared {
        Shared {
            // Cached records are swept by a thread that only the process that writes has.
            cache: Arc::new(match options.read_only {
                _ if options.paranoid_memory_checks => BlockCache::none(options.fs.clone()),
                true => BlockCache::new(options.cache_bytes),
                false => BlockCache::with_records(options.cache_bytes, options.fs.clone()),
            }),
            pins: Arc::default(),
            pool: Arc::new(
                Pool::new(options.memtable_bytes).paranoid(options.paranoid_memory_checks),
            ),
        }
    }
}

/// How an open continues: with a new chain, with the old one where the disk is full, or with none where it is
/// read-only.
#[derive(Default)]
pub(in crate::engine) struct Continuation {
    log: Option<Chain>,
    old_log: Option<OldLog>,
    manifest: Option<Manifest>,
}

impl Continuation {
    fn anew(path: &Path, options: &Options, found: &mut Recovered) -> Result<Continuation> {
        if options.read_only {
            return Ok(Continuation::default());
        }
        found.forget_commands()?;
        let (log, manifest) = write_anew(path, options, found, FullDisk::WillDo)?;
        let (log, old_log) = match log {
            Ok(log) => (Some(log), None),
            Err(error) => {
                let old = OldLog {
                    error,
                    next_segment: found.log.next_segment,
                    synced: found.log_end,
                    segments: std::mem::take(&mut found.log.segments),
                    next_look: AtomicU64::default(),
                };
                (None, Some(old))
            }
        };
        Ok(Continuation {
            log,
            old_log,
            manifest: Some(manifest),
        })
    }
}

/// Builds the engine's parts from the recovered state.
pub(in crate::engine) fn assemble(
    path: &Path,
    options: &Options,
    lock: Option<Box<dyn Lock>>,
    shared: Shared,
    found: Recovered,
    begun: Continuation,
) -> Engine {
    let fs = options.fs.clone();
    let Recovered {
        catalogue,
        states,
        last_seq,
        clock,
        log_end,
        ..
    } = found;
    let active = states.values().map(|state| state.read_state());
    let unflushed = active.map(|read| read.active.count_growth()).sum();
    let tables_dir = path.join(file_name::TABLES_DIR);
    Engine {
        path: path.into(),
        lock: Mutex::new(lock),
        containers: ContainerSet::new(states.into_values(), catalogue.last_drop),
        commit_log: CommitLog::new(Beginning {
            last_seq,
            time_high_water: catalogue.time_high_water,
            active_bytes: unflushed,
            log: begun.log,
            old_log: begun.old_log,
            recovered_to: log_end.map(|end| end.position),
        }),
        catalog: Catalog::new(fs.clone(), tables_dir.clone(), begun.manifest, &catalogue),
        scheduler: Scheduler::new(last_seq, log_time(options, &clock), options.sync_interval),
        throttle: Throttle::new(options.background_rate, options.background_floor, unflushed),
        allowance: Allowance::new(options.quota()),
        loads: Loads::new(fs.clone(), tables_dir.clone()),
        obsolete: ObsoleteTables::new(fs.clone(), tables_dir, shared.pins),
        damaged: DamagedTables::default(),
        sync_waiters: SyncWaiters::new(),
        events: Events::new(options.listener.clone()),
        #[cfg(feature = "metrics")]
        publisher: Publisher::new(),
        follower: None,
        given_time: catalogue.given_time.map(GivenTime::new),
        snapshots: Arc::default(),
        counters: Counters::default(),
        options: options.clone(),
        fs,
        cache: shared.cache,
        pool: shared.pool,
        clock,
    }
}

/// Fails if a database would be made among others' files, unless that is meant.
fn expect_room_for_new(path: &Path, options: &Options) -> Result<()> {
    match options.among_other_files {
        true => Ok(()),
        false => expect_no_others(options.fs.as_ref(), path),
    }
}

/// Loads the manifest. A folder that never was a database becomes one, unless the open is read-only.
pub(in crate::engine) fn find(path: &Path, options: &Options) -> Result<LoadedManifest> {
    let fs = options.fs.as_ref();
    expect_own(fs, path)?;
    if !options.read_only {
        fs.withdraw_rights(path, &file_name::is_own)?;
    }
    match find_current(fs, path)? {
        Some(CurrentManifest {
            damage: Some(damage),
            ..
        }) => Err(damage),
        Some(current) => {
            check_time(&current.loaded.catalogue, options)?;
            Ok(current.loaded)
        }
        None if options.read_only => Err(Error::NotFound { path: path.into() }),
        None => {
            // Under the lock: the files of another process's first open that was killed are known by their names.
            expect_room_for_new(path, options)?;
            Ok(LoadedManifest {
                catalogue: begin(fs, path, options.given_time)?,
                path: path.join(file_name::manifest(0)),
                number: 0,
                torn: false,
                bytes: Bytes::new(),
            })
        }
    }
}

/// Only an open that gives the time may write where time is given.
fn check_time(catalogue: &Catalogue, options: &Options) -> Result<()> {
    match (catalogue.given_time.is_some(), options.given_time) {
        _ if options.read_only => Ok(()),
        (true, false) => Err(Error::TimeIsGiven {
            what: "an open for writing that does not give it (Options::given_time)",
        }),
        (false, true) => Err(Error::TimeIsNotGiven),
        (true, true) if options.quota().is_some_and(|quota| quota.expires()) => {
            Err(Error::TimeIsGiven {
                what: "a quota that expires items",
            })
        }
        _ => Ok(()),
    }
}

/// The clock that a database goes by.
pub(in crate::engine) fn clock_of(
    catalogue: &Catalogue,
    options: &Options,
) -> Result<SettledClock> {
    let (clock, mark) = (options.clock.clone(), catalogue.time_high_water);
    match catalogue.given_time {
        Some(_) => Ok(SettledClock::given(clock, mark.max(catalogue.closed_at))),
        None => SettledClock::start(clock, options.max_clock_skew, mark, options.clock_behind),
    }
}

/// Reads the database from disk; writes nothing.
fn recover(
    path: &Path,
    options: &Options,
    loaded: &LoadedManifest,
    shared: &Shared,
) -> Result<Recovered> {
    let tables_dir = path.join(file_name::TABLES_DIR);
    let space = shared.space(options, &tables_dir);
    match bring_in(path, options, loaded, &space, &shared.pool)? {
        (found, None) => Ok(found),
        (_, Some(damage)) => Err(damage),
    }
}

/// Loads a catalogue's tables, and the log behind them, up to the log's damage if there is any.
pub(in crate::engine) fn bring_in(
    path: &Path,
    options: &Options,
    loaded: &LoadedManifest,
    space: &TableSpace<'_>,
    pool: &Arc<Pool>,
) -> Result<(Recovered, Option<Error>)> {
    let mut catalogue = loaded.catalogue.clone();
    let mut states = open_containers(space, &catalogue, pool, &BTreeMap::new())?;
    let mut last_seq = highest_seq(&catalogue, &states);
    let wal_dir = path.join(file_name::WAL_DIR);
    let threads = may_start_threads(options);
    let from_log = replay_into(space.fs, &wal_dir, &catalogue, (&states, pool), threads)?;
    let (replayed, damage) = (from_log.replayed, from_log.damage);
    let (mut logged, mut dropped) = (vec![], BTreeSet::new());
    if let Some(changed) = from_log.changed {
        (catalogue, states, logged) = (changed.catalogue, changed.states, changed.logged);
        dropped = &loaded.catalogue.tables() - &catalogue.tables();
    }
    last_seq = last_seq.max(replayed.last_seq).max(catalogue.reserved);
    if last_seq.0 > HIGHEST_NUMBER {
        return Err(Error::corruption(path, 0, MADE_UP));
    }
    loaded.reaches(space.fs, replayed.edit)?;
    let later = || later_table(space.fs, space.dir, &catalogue.tables(), last_seq);
    let damage = damage.map_or_else(later, |damage| Ok(Some(damage)))?;
    catalogue.time_high_water = catalogue.time_high_water.max(replayed.time_high_water);
    let clock = clock_of(&catalogue, options)?;
    // A repair leaves open up to which moment ends are unknown; no end after now is.
    let now = clock.read().settled;
    for (id, state) in &states {
        if let Some(record) = catalogue.containers.get_mut(id) {
            record.ends_dropped = record.ends_dropped.min(now);
            state.feeds().none_dropped_after(now);
        }
    }
    let found = Recovered {
        manifest_number: loaded.number,
        manifest: loaded.bytes.clone(),
        torn: loaded.torn,
        states,
        last_seq,
        seen_edit: replayed.edit,
        log_end: catalogue.log.map(|log| SyncedNote {
            identity: log.chain,
            position: replayed.end.0,
        }),
        log: replayed,
        left_out: from_log.left_out,
        clock,
        catalogue,
        logged,
        dropped,
    };
    Ok((found, damage))
}

/// An id above every table in the folder, finished or not: after a torn manifest, tables that it does not name stay for
/// one more open.
pub(in crate::engine) fn free_table(fs: &dyn Fs, tables_dir: &Path) -> Result<u64> {
    let names = fs.list(tables_dir)?;
    let tables = names.iter().filter_map(|name| {
        let finished = name.strip_suffix(file_name::TEMPORARY);
        file_name::parse_table(finished.unwrap_or(name))
    });
    Ok(tables.max().map_or(1, |highest| highest.0 + 1))
}

/// The highest sequence number that catalogue and tables know of.
pub(in crate::engine) fn highest_seq(catalogue: &Catalogue, states: &States) -> Seq {
    let highest = |state: &Arc<ContainerState>| {
        let read_state = state.read_state();
        let runs = read_state.version.runs.iter();
        runs.map(|run| run.census.seq_max).max()
    };
    let in_tables = states.values().filter_map(highest).max();
    catalogue.used.max(in_tables.unwrap_or_default())
}

/// Opens the containers of a catalogue, with all tables but those that are `open` already.
pub(in crate::engine) fn open_containers(
    space: &TableSpace<'_>,
    catalogue: &Catalogue,
    pool: &Arc<Pool>,
    open: &BTreeMap<TableId, TableFile>,
) -> Result<States> {
    let mut states = BTreeMap::new();
    for record in catalogue.containers.values() {
        let mut runs = vec![];
        for run in &record.runs {
            let open = |table: &TableRecord| match open.get(&table.id) {
                Some(file) if file.record == *table => Ok(file.clone()),
                _ => TableFile::open(space, record.id, *table),
            };
            let tables = run.tables.iter().map(open).collect::<Result<Vec<_>>>()?;
            runs.push(Arc::new(Run::new(run, tables)));
        }
        let version =
            ContainerVersion::new(runs, Arc::new(RangeDeletes::of(&record.range_deletes)));
        states.insert(
            record.id,
            Arc::new(ContainerState::new(record, version, pool.clone())),
        );
    }
    Ok(states)
}
