//! Bulk loads: sorted items straight into tables, as the newest runs of a container.
//!
//! ```text
//! sequence number    n     ... writes meanwhile ...    m |                        G = n + AHEAD, in every loaded record
//!                    000042.table.tmp, ...               | flushing, commit lock: edit 1 reserves G
//!                                                        |   the files get their names, durably
//!                                                        |   edit 2: the loaded runs, the rest of memory flushed
//!                                                        | next = G + 1
//! ```
//!
//! The items are in no log and no memtable: a table builder takes them one by one (compact/job.rs, which divides them
//! into a dated and a never-ending run, as of a flush). Invariants:
//!
//! 1. *A load takes effect at edit 2, as one write of number G.* G is above every number that was given before, and no
//!    other write comes between edit 1 and the publishing of G, for both locks are held. So a snapshot sees all of it
//!    or nothing; a transaction that has read a key before meets it as a conflict; a checkpoint or a change of settings
//!    comes before or after.
//! 2. *G stands in the tables before it is given out.* It is taken from so far ahead that other writes do not reach it.
//!    Where they do, or where another load has taken effect under a higher number, the tables are written once more,
//!    with a number from still further ahead. Sequence numbers have gaps anyway. From edit 1 on, G is used up, even if
//!    the load fails.
//! 3. *A file is called a table only when its number is reserved.* Before edit 1 a crash leaves temporary files; after
//!    it, tables with numbers that the manifest knows. So a table with a number beyond manifest and log still proves
//!    that these are of an earlier time (`later_table`), and an open that finds G reserved goes on above it.
//! 4. *Nothing newer than a memtable of the container is in a run of it:* a get asks memtables first. So the records
//!    left in memory are flushed by edit 2; most are flushed before the locks are taken. From then on `flushed` is G: a
//!    replay passes over records that the runs have, and conditional writes and transactions look in the runs again.
//! 5. *A run ends when all that it may hide has ended.* Which older records it hides is known by key ranges alone. So
//!    its end is the latest of its own and of all runs that overlap it, found under the settings of edit 2. Until then
//!    a table of it is dropped only where nothing older is alive beside it (compact/verdict.rs, (t) 2).
//!
//! 6. *No floor comes to cover a load that is newer.* Where the default was changed while the load went on, edit 2 sets
//!    the floor apart (expiry/rule.rs). To every reader the settings are as before.
//!
//! `written_at` is the moment at which the load began: it is in the tables, too. An item whose end comes before edit 2
//! was never there, and a reader of expirations may not be told of its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::record::{Header, Kind, RecordRef};
use crate::base::{Error, HIGHEST_NUMBER, Result, Seq, TableId, Timestamp, Wait, file_name};
use crate::catalog::{Change, Run};
use crate::compact::{Job, Output};
use crate::data::batch::WriteTtl;
use crate::data::cursor::{Cursor, Position, Seek};
use crate::data::item::Pair;
use crate::data::merge::Merge;
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::jobs::install::{Flushed, Installation, Loaded};
use crate::engine::jobs::job::{JobSpec, Purpose};
use crate::engine::parts::allowance::Charge;
use crate::engine::parts::commit_log::{Basis, CommitState};
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::deciding::check_keys;
use crate::engine::write::quota::weight_of;
use crate::expiry::{ExpiryView, Settings, SettingsChange};
use crate::table::RunReader;

/// More writes than come during most loads, and a 2^28th of all numbers there are.
const AHEAD: u64 = 1 << 28;
/// How many times further ahead each further number is taken: soon no row of small loads passes a long one.
const FURTHER: u64 = 4;

/// An item that is loaded; key and value were checked. Their memory is used again.
#[derive(Default)]
pub struct LoadedItem {
    key: Vec<u8>,
    value: Vec<u8>,
    ttl: WriteTtl,
}

impl LoadedItem {
    /// Puts another item in its place; its ttl does not keep another.
    pub fn set(&mut self, key: &[u8], value: &[u8], ttl: WriteTtl) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        self.value.extend_from_slice(value);
        self.ttl = ttl;
    }
}

/// Puts the next item in the place of the one before; false: there are no more.
pub type NextItem<'a> = dyn FnMut(&mut LoadedItem) -> Result<bool> + 'a;

/// The items as a source of records.
struct Items<'a> {
    next: &'a mut NextItem<'a>,
    current: LoadedItem,
    /// Of the current item; none before the first and behind the last.
    header: Option<Header>,
    /// The key before.
    last: Vec<u8>,
    seq: Seq,
    stamp: Timestamp,
}

impl Items<'_> {
    fn go(&mut self) -> Result<()> {
        let is_first = self.header.take().is_none();
        std::mem::swap(&mut self.current.key, &mut self.last);
        if !(self.next)(&mut self.current)? {
            return Ok(());
        }
        let (key, last) = (&self.current.key, &self.last);
        if !is_first && key <= last {
            let (key, last) = (key.escape_ascii(), last.escape_ascii());
            let given = format!("\"{key}\" after \"{last}\"");
            return Err(Error::invalid("key", given, "each above the one before it"));
        }
        let (written_at, ttl) = self.current.ttl.resolve(self.stamp);
        self.header = Some(Header {
            kind: Kind::Put,
            seq: self.seq,
            written_at,
            ttl,
        });
        Ok(())
    }
}

impl Cursor for Items<'_> {
    fn position(&self) -> Position<'_> {
        self.header.map_or(Position::End, |header| {
            Position::Record(RecordRef {
                header,
                key: &self.current.key,
                value_len: self.current.value.len(),
            })
        })
    }

    fn is_on_record(&self) -> bool {
        self.header.is_some()
    }

    fn ends_key(&self) -> bool {
        true
    }

    fn start_seek(&mut self, to: Seek<'_>, _: Option<&ExpiryView>) -> Result<()> {
        assert!(matches!(to, Seek::First), "it is read once, from its start");
        self.go()
    }

    fn poll_seek(&mut self, _: Seek<'_>, _: Option<&ExpiryView>) -> Result<bool> {
        Ok(true)
    }

    fn advance(&mut self, _: Option<&ExpiryView>) -> Result<()> {
        self.go()
    }

    fn retreat(&mut self, _: Option<&ExpiryView>) -> Result<()> {
        unreachable!("it is read forwards")
    }

    fn enter(&mut self, _: Seek<'_>, _: Option<&ExpiryView>) -> Result<()> {
        unreachable!("there are no dead spans")
    }

    fn pair(&self) -> Result<Pair> {
        let key = Bytes::copy_from_slice(&self.current.key);
        Ok(Pair::new(key, self.value_bytes()?))
    }

    fn value_bytes(&self) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(&self.current.value))
    }

    fn value(&self) -> Result<&[u8]> {
        Ok(&self.current.value)
    }
}

/// The tables that a load has written; those without a name are removed when this is dropped.
struct Built<'a> {
    engine: &'a Engine,
    job: Job,
    outputs: Vec<Output>,
    seq: Seq,
    /// The `written_at` of all items.
    stamp: Timestamp,
}

impl Built<'_> {
    fn tables(&self) -> Vec<TableId> {
        let tables = self.outputs.iter().flat_map(|output| &output.tables);
        tables.map(|table| table.id).collect()
    }

    fn open(&self, name: impl Fn(TableId) -> String) -> Result<Vec<Arc<Run>>> {
        self.engine.open_outputs(&self.job, &self.outputs, name)
    }
}

impl Drop for Built<'_> {
    fn drop(&mut self) {
        self.engine.loads.remove(&self.tables());
    }
}

impl Engine {
    /// Loads sorted items into a container; they take effect together, durable, when this returns.
    pub fn bulk_load(
        &self,
        state: &Arc<ContainerState>,
        next: &mut NextItem<'_>,
    ) -> Result<Written> {
        self.refuse_in_given_time("a bulk load, whose items are stamped before it takes effect")?;
        check_keys(state, |_| true)?;
        self.admit::<Wait>(state, 0)?;
        let (stamp, mut weight, mut ahead) = (self.clock.read().now, 0, AHEAD);
        let mut weighed = |place: &mut LoadedItem| {
            let is_one = next(place)?;
            weight += u64::from(is_one) * weight_of(&place.key, &place.value);
            Ok(is_one)
        };
        let mut built = self.build(state, stamp, ahead, &mut weighed)?;
        if built.outputs.is_empty() {
            self.check_writable()?;
            state.check()?;
            return Ok(Written::new(self.commit_log.latest(), stamp));
        }
        let _charge = match self.is_limited(state) {
            true => self.charge_load(state, weight, &built.open(file_name::loading)?)?,
            false => Charge::NONE,
        };
        while !self.take_effect(state, &built)? {
            ahead = ahead.saturating_mul(FURTHER);
            built = self.build_again(state, stamp, ahead, &built)?;
        }
        self.scheduler.wake(Thread::Merge);
        Ok(Written::new(built.seq, stamp))
    }

    /// Writes the tables, with a number from so far ahead.
    fn build<'a>(
        &'a self,
        state: &ContainerState,
        stamp: Timestamp,
        ahead: u64,
        next: &mut NextItem<'_>,
    ) -> Result<Built<'a>> {
        let seq = Seq(self.commit_log.lock().next_seq().0.saturating_add(ahead));
        if seq.0 > HIGHEST_NUMBER {
            return Err(Error::Stalled);
        }
        let spec = JobSpec {
            // By this view nothing is dead: every loaded item hides the versions that were there.
            view: ExpiryView::at(Timestamp(0), || state.settings()),
            range_deletes: vec![],
            cuts: vec![Timestamp::MAX],
            purpose: Purpose::Load,
        };
        let job = Job {
            other_runs: vec![],
            ..self.job(state, &state.pin(), &BTreeSet::new(), &spec)
        };
        let items = Items {
            next,
            current: LoadedItem::default(),
            header: None,
            last: vec![],
            seq,
            stamp,
        };
        let sources = Merge::seek(vec![items], Seek::First, None)?;
        let (outputs, ..) = self.run_job(&job, sources, spec.purpose)?;
        Ok(Built {
            engine: self,
            job,
            outputs,
            seq,
            stamp,
        })
    }

    /// Writes the same tables with a later number.
    fn build_again<'a>(
        &'a self,
        state: &ContainerState,
        stamp: Timestamp,
        ahead: u64,
        before: &Built<'_>,
    ) -> Result<Built<'a>> {
        let runs = before.open(file_name::loading)?;
        let readers = runs.iter().map(|run| RunReader::new(run.shared.clone()));
        let mut merge = Merge::seek(readers.collect(), Seek::First, None)?;
        let mut is_first = true;
        self.build(state, stamp, ahead, &mut |place| {
            if !std::mem::take(&mut is_first) {
                merge.advance(None)?;
            }
            let Some(record) = merge.record() else {
                return merge.end().map(|()| false);
            };
            let front = merge.front().expect("a record has a cursor");
            place.set(record.key, front.value()?, record.header.ttl.into());
            Ok(true)
        })
    }

    /// Installs the tables of a load. False: its number has been passed.
    fn take_effect(&self, state: &Arc<ContainerState>, built: &Built<'_>) -> Result<bool> {
        loop {
            // The records that are in memory by now need not be flushed under the commit lock.
            self.seal_one(state);
            while self.flush_one(state)? {}
            self.commit_log.sync_ahead()?;
            let _flushing = self.scheduler.lock_flushing();
            let mut commit = self.commit_log.lock();
            self.check_writable()?;
            state.check()?;
            if commit.next_seq() > built.seq {
                return Ok(false);
            }
            if !state.read_state().sealed.is_empty() {
                continue;
            }
            self.seal(&mut commit, state);
            return self.install_load(&mut commit, state, built).map(|()| true);
        }
    }

    /// The same under the locks, with the rest of the memory sealed.
    fn install_load(
        &self,
        commit: &mut CommitState,
        state: &Arc<ContainerState>,
        built: &Built<'_>,
    ) -> Result<()> {
        let basis = self.commit_log.all_before(commit)?;
        let settings = self.settings_with_load(state, built)?;
        let rest = state.read_state().sealed.last().cloned();
        let rest = rest.map(|rest| self.write_flush(state, rest)).transpose()?;
        let rest = rest.map(|(flushed, _)| flushed);
        let reserved = self.reserve(built.seq, basis);
        let is_reserved = reserved.is_ok();
        let done = reserved
            .and_then(|()| self.give_names(built))
            .and_then(|()| self.name_load(state, built, (rest.as_ref(), settings), basis));
        if let Some(rest) = &rest {
            self.clear_away(done.is_ok(), &rest.outputs);
        }
        self.clear_away(done.is_ok(), &built.outputs);
        if is_reserved {
            self.commit_log.note_load(commit, built.seq);
        }
        done
    }

    /// The settings that the load leaves behind, if it changes them.
    fn settings_with_load(
        &self,
        state: &ContainerState,
        built: &Built<'_>,
    ) -> Result<Option<Settings>> {
        let settings = state.whole_settings();
        if !settings.must_be_apart_from(built.stamp) {
            return Ok(None);
        }
        let loaded = SettingsChange::Loaded(built.stamp);
        let settings = settings.after(loaded, self.clock.read().settled, built.seq);
        let settings = state.prune_commands(settings, self.snapshots.oldest());
        state.check_standing(&loaded, &settings)?;
        Ok(Some(settings))
    }

    fn reserve(&self, seq: Seq, basis: Basis<'_>) -> Result<()> {
        // The items count from a moment that is not after this one.
        let settled = self.clock.read().settled;
        let reserved = vec![Change::Reserved(seq)];
        self.edit(&mut self.catalog.edit(), basis, reserved, settled)
    }

    /// Gives the tables their names, durably.
    fn give_names(&self, built: &Built<'_>) -> Result<()> {
        self.loads.give_names(&built.tables())?;
        // Those of the flushed rest, too.
        self.fs.sync_dir(&self.tables_dir())
    }

    /// The edit that names the tables of a load, and those of the rest of the memory, and the settings that it changes.
    fn name_load(
        &self,
        state: &Arc<ContainerState>,
        built: &Built<'_>,
        (rest, changed): (Option<&Flushed<'_>>, Option<Settings>),
        basis: Basis<'_>,
    ) -> Result<()> {
        let settings = state.settings();
        let mut added = match rest {
            Some(rest) => self.open_outputs(&rest.job, &rest.outputs, file_name::table)?,
            None => vec![],
        };
        let version = state.pin().version.clone();
        let others: Vec<Arc<Run>> = version.runs.iter().chain(&added).cloned().collect();
        for run in built.open(file_name::table)? {
            let beside = others.iter().filter(|other| other.overlaps(&run));
            let ends = beside.chain([&run]);
            let ends = ends.map(|run| run.census.last_expiry(&settings));
            let end = ends.max().expect("there is the run itself");
            added.push(Arc::new(run.ending(end, settings.default)));
        }
        // Before it is visible, as any write is noted.
        state.feeds().note_many(built.seq);
        let installation = Installation {
            state,
            // The view by which the rest was judged; a load leaves nothing out.
            view: rest.map_or_else(|| self.settled_view(state), |rest| rest.job.view.clone()),
            removed: vec![],
            added,
            flushed: rest,
            forgotten: rest.map_or(Seq(0), |rest| rest.forgotten),
            loaded: Some(Loaded {
                seq: built.seq,
                settings: changed.clone(),
            }),
        };
        let installed = self.install_now(vec![installation], basis)?;
        assert!(!installed.is_empty(), "no container is dropped meanwhile");
        if let Some(settings) = changed {
            state.begin_change().change_to(settings, built.seq);
        }
        Ok(())
    }
}
