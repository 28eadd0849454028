//! Goal: log and state pass openraft's own suite, however worn the databases are.
//!
//! Method: the suite is run by three builders: as the databases are; with memtables of 4 KiB that are flushed before each read;
//! and with databases that are opened again before each read. The wrappers change nothing but the wear.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use crate::common::{Counters, Program, Store};
use ebbtide::Options;
use ebbtide_openraft::{LogStore, SnapshotBuilder, SnapshotData, StateOptions, StateStore};
use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{
    BasicNode, Entry, LogId, LogState, OptionalSend, RaftLogReader, Snapshot, SnapshotMeta,
    StorageError, StoredMembership, Vote,
};
use tempfile::TempDir;

type Result<T> = std::result::Result<T, StorageError<u64>>;

#[derive(Clone, Copy, PartialEq)]
enum Wear {
    None,
    Flushed,
    Reopened,
}

fn small(wear: Wear, options: Options) -> Options {
    match wear {
        Wear::None => options,
        _ => options.memtable_bytes(4 << 10),
    }
}

/// The log, worn before it is read.
struct Log {
    wear: Wear,
    path: PathBuf,
    open: Option<(ebbtide::Database, LogStore<Program>)>,
}

impl Log {
    fn open(wear: Wear, path: PathBuf) -> Log {
        let mut log = Log {
            wear,
            path,
            open: None,
        };
        log.reopen();
        log
    }

    fn reopen(&mut self) {
        self.open = None;
        let options = small(self.wear, LogStore::<Program>::options());
        let db = options.open(&self.path).unwrap();
        let log = LogStore::new(&db, "group-0").unwrap();
        self.open = Some((db, log));
    }

    fn log(&mut self) -> &mut LogStore<Program> {
        &mut self.open.as_mut().unwrap().1
    }

    fn worn(&mut self) -> &mut LogStore<Program> {
        match self.wear {
            Wear::None => {}
            Wear::Flushed => self.open.as_ref().unwrap().0.flush().unwrap(),
            Wear::Reopened => self.reopen(),
        }
        self.log()
    }
}

impl RaftLogReader<Program> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry<Program>>> {
        self.worn().try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry<Program>>> {
        self.worn().limited_get_log_entries(start, end).await
    }
}

/// A reader shares the log of its time; it is worn by the log's own calls.
struct LogReader(LogStore<Program>);

impl RaftLogReader<Program> for LogReader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry<Program>>> {
        self.0.try_get_log_entries(range).await
    }
}

impl RaftLogStorage<Program> for Log {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Program>> {
        self.worn().get_log_state().await
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader(self.worn().clone())
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<()> {
        self.log().save_vote(vote).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>> {
        self.worn().read_vote().await
    }

    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Result<()> {
        self.log().save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<u64>>> {
        self.worn().read_committed().await
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Program>) -> Result<()>
    where
        I: IntoIterator<Item = Entry<Program>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.log().append(entries, callback).await
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Result<()> {
        self.log().truncate(log_id).await
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Result<()> {
        self.log().purge(log_id).await
    }
}

/// The state, worn before it is read.
struct State {
    wear: Wear,
    path: PathBuf,
    open: Option<Store>,
}

impl State {
    fn open(wear: Wear, path: PathBuf) -> State {
        let mut state = State {
            wear,
            path,
            open: None,
        };
        state.reopen();
        state
    }

    fn reopen(&mut self) {
        self.open = None;
        let options = StateOptions {
            options: small(self.wear, Options::new()),
            ..StateOptions::default()
        };
        let store = StateStore::open(&self.path, Counters, options);
        self.open = Some(store.unwrap());
    }

    fn state(&mut self) -> &mut Store {
        self.open.as_mut().unwrap()
    }

    fn worn(&mut self) -> &mut Store {
        match self.wear {
            Wear::None => {}
            Wear::Flushed => self.open.as_ref().unwrap().reader().flush().unwrap(),
            Wear::Reopened => self.reopen(),
        }
        self.state()
    }
}

impl RaftStateMachine<Program> for State {
    type SnapshotBuilder = SnapshotBuilder<Program>;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        self.worn().applied_state().await
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<crate::common::Applied>>
    where
        I: IntoIterator<Item = Entry<Program>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.worn().apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<Program> {
        self.worn().get_snapshot_builder().await
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotData>> {
        self.state().begin_receiving_snapshot().await
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<SnapshotData>,
    ) -> Result<()> {
        self.state().install_snapshot(meta, snapshot).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Program>>> {
        // The id of a snapshot is of a node's run, so a new one makes another.
        if self.wear == Wear::Flushed {
            self.worn();
        }
        self.state().get_current_snapshot().await
    }
}

struct Builder(Wear);

impl StoreBuilder<Program, Log, State, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Log, State)> {
        let folder = testkit::scratch();
        let at = |name: &str| Path::join(folder.path(), name);
        let log = Log::open(self.0, at("log"));
        let state = State::open(self.0, at("group-0"));
        Ok((folder, log, state))
    }
}

#[test]
fn as_it_is() {
    Suite::test_all(Builder(Wear::None)).unwrap();
}

#[test]
fn flushed_before_reads() {
    Suite::test_all(Builder(Wear::Flushed)).unwrap();
}

#[test]
fn reopened_before_reads() {
    Suite::test_all(Builder(Wear::Reopened)).unwrap();
}
