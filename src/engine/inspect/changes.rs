//! Changes since a version: of every key its newest state, as of one moment.
//!
//! ```text
//! sequence number      since                     S: a snapshot, at a border of batches
//! writes         ......|..k1..k2...k1..[a,c)..k3..|......
//! told                  range [a,c), then in key order k1 (its second version), k2, k3
//! ```
//!
//! A pass takes a snapshot S and goes through the containers that have something newer than `since`: of each it tells
//! first the creation, the settings and the range tombstones, then the keys, in steps that each load a read state anew.
//! Only memtables and tables whose highest sequence number is above `since` are read. When the pass is over, `since`
//! becomes S. So after a pass that ends early all is told again, and no batch is ever told in part.
//!
//! The settings of all containers are those of S, too: they are read when the pass begins, and it begins anew if they
//! have changed since S. Records are judged by them and by the moment of the beginning, at which they were in force.
//! The next pass tells the effect of a later change, command or drop; until then passes.rs keeps what it needs.
//!
//! **The version that a copy at `since` needs** of a key is the newest one up to S, if that is above `since`. A live
//! one is in every read state, for S sees it. A dead one may have been dropped by a job. It matters only to a copy that
//! has an older version of the key which is live: any other is gone by the rule that the copy judges by.
//!
//! * *A reader that goes on* holds a snapshot at `since` from the pass before. That keeps the older version while it is
//!   live, and a dead version is not dropped while it hides a live one (compact/verdict.rs); nor is a range tombstone that
//!   covers one, nor a command above the oldest snapshot (`ContainerState::prune_commands`). So it misses nothing.
//! * *A reader that comes back* with a version alone has kept nothing meanwhile. Jobs note the highest sequence number
//!   of a delete, an end, a range tombstone or a command that they leave out, by the edit that does
//!   (`Change::ChangesFrom`) and before the read state is replaced. If it is above `since`, the reader is told to begin
//!   anew. So is every reader in a follower: the jobs of the process that writes know of no snapshot here.
//! * *A reader that begins* needs no dead version, and a container that was made after `since` is as new to all.
//!
//! A reader that comes back is sure only of the read states that were there at its check: it pins them until it is through.

mod pages;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::{Error, Result, Seq, Timestamp};
use crate::data::change::{Change, ExpiryRule};
use crate::data::cursor::{Cursor, Seek};
use crate::data::item::Item;
use crate::data::merge::Merge;
use crate::data::range_delete::RangeDelete;
use crate::data::range_tombstones::RangeTombstones;
use crate::data::version::Version;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::engine::parts::passes::PassReads;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::source::Source;
use crate::expiry::ExpiryView;
use crate::table::RunCursor;

pub use pages::{PageReader, Place, Position};

/// A step ends with so many changes of keys ...
const MOST: usize = 128;
/// ... or with the one that brings keys and values to this many bytes.
const FULL_BYTES: usize = 64 << 10;

/// See the file's head.
pub struct ChangeReader {
    since: Seq,
    /// A snapshot at `since`; none before the first pass is over, and none in a follower.
    hold: Option<Arc<SnapshotPin>>,
    pass: Option<Pass>,
    /// The name of the container that is told of; none: all are.
    only: Option<Arc<str>>,
    engine: Handle,
}

/// One pass.
struct Pass {
    pin: Arc<SnapshotPin>,
    /// The containers that were not gone through, the current one first.
    ahead: VecDeque<ContainerPass>,
    /// That some were dropped, with the sequence number of the last drop; none: none was.
    dropped: Option<(Seq, Change)>,
    ready: VecDeque<Change>,
}

/// A container in a pass.
struct ContainerPass {
    state: Arc<ContainerState>,
    name: Arc<str>,
    /// 0 if the copy has nothing of it.
    since: Seq,
    reads: Arc<PassReads<ReadState>>,
    /// The settings of the pass's snapshot, at a moment at which they were in force.
    view: ExpiryView,
    /// The write that had changed them last.
    settings_seq: Seq,
    /// Only changes behind this place are told now, and those up to the other one; none: all are.
    after: Option<Place>,
    upto: Option<Place>,
    is_begun: bool,
    /// The last key that was decided about; empty before the first.
    last: Vec<u8>,
}

impl ChangeReader {
    /// A reader of the changes since then, in the container of this name or in all.
    pub fn new(engine: &Handle, since: Seq, only: Option<&str>) -> ChangeReader {
        ChangeReader {
            since,
            hold: None,
            pass: None,
            only: only.map(Into::into),
            engine: engine.clone(),
        }
    }

    /// The version up to which all was told.
    pub fn version(&self) -> Seq {
        self.since
    }

    /// The next change; none at the end of a pass.
    pub fn next_change(&mut self) -> Result<Option<Change>> {
        self.engine.check_running()?;
        let pass = match &mut self.pass {
            Some(pass) => pass,
            None => {
                let only = self.only.as_deref();
                let known = self.hold.is_none().then_some(self.since);
                match begin(&self.engine, (self.since, known), only)? {
                    Some(mut pass) => {
                        pass.ready
                            .extend(pass.dropped.take().map(|(_, change)| change));
                        self.pass.insert(pass)
                    }
                    None => return Ok(None),
                }
            }
        };
        loop {
            if let Some(change) = pass.ready.pop_front() {
                return Ok(Some(change));
            }
            let Some(part) = pass.ahead.front_mut() else {
                break;
            };
            let is_through = part.step(&self.engine, &pass.pin, &mut pass.ready)?;
            if is_through {
                pass.ahead.pop_front();
            }
        }
        let pin = pass.pin.clone();
        self.since = pin.seq();
        self.hold = (!self.engine.is_following()).then_some(pin);
        self.pass = None;
        Ok(None)
    }
}

/// A reader that comes back misses nothing if jobs have left out no write above this one since it began to be told of them;
/// none: a snapshot at its version is held.
type KnownUpTo = Option<Seq>;

/// Begins a pass; none if nothing was written since, and a snapshot there is held already.
fn begin(
    engine: &Engine,
    (since, known): (Seq, KnownUpTo),
    only: Option<&str>,
) -> Result<Option<Pass>> {
    loop {
        let last = engine.snapshot().seq();
        if since > last {
            return Err(gone(since, last));
        }
        if since == last && known.is_none() {
            return Ok(None);
        }
        // In this order: the passes are open, then comes the snapshot, then the clock, then the settings.
        let opened = |state: Arc<ContainerState>| (state.passes().open(), state);
        let states: Vec<_> = engine.all_containers().into_iter().map(opened).collect();
        let pin = Arc::new(engine.snapshot());
        if let Some(pass) = begin_at(engine, (since, known), only, pin, states)? {
            return Ok(Some(pass));
        }
    }
}

fn gone(since: Seq, from: Seq) -> Error {
    Error::ChangesGone {
        since: since.0,
        from: from.0,
    }
}

/// Begins a pass at a snapshot; none: settings have changed since.
fn begin_at(
    engine: &Engine,
    (since, known): (Seq, KnownUpTo),
    only: Option<&str>,
    pin: Arc<SnapshotPin>,
    states: Vec<(Arc<PassReads<ReadState>>, Arc<ContainerState>)>,
) -> Result<Option<Pass>> {
    let last = pin.seq();
    let (mut ahead, mut names) = (VecDeque::new(), vec![]);
    let moment = engine.expiry_moment();
    // If nothing was written since, there is nothing to tell, and the reader only gets a snapshot to hold.
    let states = if since == last { vec![] } else { states };
    for (reads, state) in states {
        let name: Arc<str> = state.name().into();
        names.push(name.clone());
        if state.created() > last || only.is_some_and(|only| *only != *name) {
            continue;
        }
        reads.begin(None);
        // Loaded before the notes are read below: everything that the read state lacks was noted before.
        let read_state = reads.next(|| pin.read_state(&state));
        let view = ExpiryView::at(moment, || state.settings());
        if state.may_be_newer_than(last) || state.check().is_err() {
            return Ok(None);
        }
        let is_new = state.created() > since;
        if !is_new && known.is_some_and(|known| state.changes_low_water() > known) {
            return Err(gone(since, state.changes_low_water().min(last)));
        }
        if is_new || state.may_be_newer_than(since) || has_news(&read_state, since) {
            // A reader that comes back is sure only of this read state, and a follower reads in that of its snapshot.
            let is_pinned = known.is_some() && !is_new || engine.is_following();
            if is_pinned {
                reads.begin(Some(read_state));
            }
            ahead.push_back(ContainerPass {
                since: if is_new { Seq(0) } else { since },
                reads,
                view,
                settings_seq: state.settings_seq().max(state.created()).min(last),
                after: None,
                upto: None,
                is_begun: false,
                last: vec![],
                state,
                name,
            });
        }
    }
    // Asked for after the names. A drop above `last` is told by the next pass.
    let drop = engine.last_drop();
    let was_one_dropped = since > Seq(0) && since < last && drop > since;
    let dropped = was_one_dropped.then_some((drop.min(last), Change::Containers { names }));
    Ok(Some(Pass {
        pin,
        ahead,
        dropped,
        ready: VecDeque::new(),
    }))
}

/// Whether something in a read state is newer.
fn has_news(read_state: &ReadState, since: Seq) -> bool {
    let version = &read_state.version;
    let mut memtables = read_state.flushables().map(|flushable| &flushable.memtable);
    memtables.any(|memtable| memtable.seq_max() > since)
        || version.runs.iter().any(|run| run.census.seq_max > since)
        || version.range_deletes.seq_max() > since
}

impl ContainerPass {
    /// Adds what follows to `ready`; true when nothing is left.
    fn step(
        &mut self,
        engine: &Engine,
        pin: &SnapshotPin,
        ready: &mut VecDeque<Change>,
    ) -> Result<bool> {
        let read_state = self.reads.next(|| pin.read_state(&self.state));
        if !self.is_begun {
            self.begin(&read_state, pin.seq(), ready);
            self.is_begun = true;
        }
        self.walk(engine.expiry_moment(), &read_state, pin.seq(), ready)
    }

    /// Tells the changes that come before the keys.
    fn begin(&self, read_state: &ReadState, max: Seq, ready: &mut VecDeque<Change>) {
        if self.since == Seq(0) {
            ready.push_back(Change::Created {
                container: self.name.clone(),
                version: Version::of(self.state.created()),
            });
        }
        if self.since == Seq(0) || self.state.may_be_newer_than(self.since) {
            let until = self.state.whole_settings().changed_above(max);
            ready.push_back(Change::Expiry {
                container: self.name.clone(),
                rule: ExpiryRule::new(&self.view.settings, until),
            });
        }
        let ranges = read_state.range_deletes().flat_map(|ranges| ranges.iter());
        // A copy that has nothing of the container needs none.
        let is_told = |delete: &&RangeDelete| {
            self.since > Seq(0) && (delete.seq > self.since && delete.seq <= max)
        };
        let mut ranges: Vec<&RangeDelete> = ranges.filter(is_told).collect();
        ranges.sort_by_key(|delete| delete.seq);
        ranges.dedup();
        ready.extend(ranges.into_iter().map(|delete| Change::DeleteRange {
            container: self.name.clone(),
            from: Bytes::copy_from_slice(&delete.range.from),
            to: delete.range.to.as_deref().map(Bytes::copy_from_slice),
            version: Version::of(delete.seq),
        }));
    }

    /// Tells of the next keys; true when there are no more.
    fn walk(
        &mut self,
        now: Timestamp,
        read_state: &ReadState,
        max: Seq,
        ready: &mut VecDeque<Change>,
    ) -> Result<bool> {
        let view = &self.view;
        let ranges = read_state.range_deletes();
        let tombstones = RangeTombstones::new(ranges.flat_map(|ranges| ranges.as_of(max)));
        let last = std::mem::take(&mut self.last);
        let to = match last.is_empty() {
            true => Seek::First,
            false => Seek::After(&last),
        };
        let mut merge = Merge::seek(sources(read_state, self.above(), max), to, None)?;
        let (mut count, mut bytes) = (0, 0);
        let mut decided = last.clone();
        while let Some(record) = merge.record() {
            let header = record.header;
            if header.seq > max || record.key == decided {
                merge.advance(None)?;
                continue;
            }
            if count >= MOST || bytes >= FULL_BYTES {
                self.last = decided;
                return Ok(false);
            }
            decided.clear();
            decided.extend_from_slice(record.key);
            let is_covered = header.seq < tombstones.max_covering_seq(record.key);
            let is_dead = view.dead(&header);
            let is_asked_for = header.seq > self.since && self.is_between(header.seq, record.key);
            if is_asked_for && !is_covered && !(is_dead && self.since == Seq(0)) {
                count += 1;
                bytes += record.key.len() + record.value_len;
                let container = self.name.clone();
                ready.push_back(match is_dead {
                    true => Change::Delete {
                        container,
                        key: Bytes::copy_from_slice(record.key),
                        version: Version::of(header.seq),
                    },
                    false => {
                        let pair = merge.front().expect("a record has a cursor").pair()?;
                        let life = view.settings.life(&header);
                        let item = Item::new(pair, &header, life, now);
                        Change::Put { container, item }
                    }
                });
            }
            merge.advance(None)?;
        }
        merge.end()?;
        Ok(true)
    }
}

/// Cursors over the memtables and tables that have something newer.
fn sources(read_state: &ReadState, since: Seq, max: Seq) -> Vec<Source> {
    let memtables = read_state.flushables().map(|flushable| &flushable.memtable);
    let newer = memtables.filter(|memtable| memtable.seq_max() > since);
    let mut sources: Vec<Source> = newer
        .map(|memtable| Source::Memory(memtable.cursor()))
        .collect();
    for run in &read_state.version.runs {
        let files = run.files.iter().map(|file| &file.table);
        let newer = files.filter(|table| {
            let census = table.census();
            census.seq_max > since && census.seq_min <= max
        });
        let newer: Vec<_> = newer.cloned().collect();
        if !newer.is_empty() {
            sources.push(Source::Disk(RunCursor::new(newer.into())));
        }
    }
    sources
}

impl Engine {
    /// Fails once the database is closed.
    fn check_running(&self) -> Result<()> {
        self.scheduler.check_open()
    }

    /// Settled time: a record that is dead only by a clock that leads may live again, and is not told a second time.
    fn expiry_moment(&self) -> Timestamp {
        self.clock.read().settled
    }

    fn all_containers(&self) -> Vec<Arc<ContainerState>> {
        self.containers.all()
    }

    /// The sequence number of the last drop, asked after the containers.
    fn last_drop(&self) -> Seq {
        self.containers.last_drop()
    }

    /// Whether another process writes.
    fn is_following(&self) -> bool {
        self.follower.is_some()
    }
}
