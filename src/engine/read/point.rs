//! Reads. Every one takes, in this order: read state, published sequence number, clock, settings (see this folder's head).
//!
//! An answer is correct for one moment between call and return, as to the newest write and as to time. Let V be the
//! version that a read finds: the newest of its key in the read state up to the sequence number.
//!
//! 1. At some moment between the loads of read state and sequence number V was the newest published version: the read
//!    state holds everything that was published before it, and records in later memtables are newer than all it holds.
//! 2. Nothing found, or a tombstone: there was no item at that moment, whatever the time.
//! 3. V is live by the clock that is read next: then it was live at that moment, because expiry is final. This is the
//!    usual read, and it ends here. If the clock ever went back ([`SettledClock::leads`]), go on with 5.
//! 4. V is dead by the clock: that does not mean that it was dead at the moment of 1. The key may have been refreshed
//!    and V may have ended in between, and then the key was live throughout.
//! 5. So V is judged by the exact clock, and the read checks again whether V is the newest version. If it is, V was the
//!    newest when it was judged, and the judgement is the answer. If not, the read starts over; each time a write to
//!    the key, a flush or a merge came in between. In the same read state every later write is in the memtables.
//! 6. A conditional write judges V at its stamp and is published later. One that holds the commit lock ([`Relied`]), or
//!    one under [`Durability::Sync`] that is in a memtable and not synced yet, may have found V live before it died:
//!    the check waits for it. Any other write takes effect when it is published, and no read waits for it.
//! 7. A snapshot's sequence number is fixed: V stays the newest version, and is judged once.
//!
//! Before a job installs its result, the writes that were stamped before it judged are visible (install.rs), so 2 also
//! holds where V was purged.
//!
//! [`SettledClock::leads`]: crate::env::SettledClock::leads
//! [`Relied`]: crate::engine::parts::relied::Relied
//! [`Durability::Sync`]: crate::engine::options::Durability::Sync

use std::sync::Arc;

use bytes::Bytes;

use crate::base::hash::hash_key;
use crate::base::record::Header;
use crate::base::sync::Guard;
use crate::base::{Result, Seq, Timestamp};
use crate::catalog::Run;
use crate::data::cursor::{Cursor, Head, Position, Seek};
use crate::data::item::{Item, Pair};
use crate::data::lane::Lane;
use crate::data::lent::{Ask, Lent};
use crate::data::stretch::Stretch;
use crate::engine::Engine;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::expiry::ExpiryView;
use crate::mem::MemCursor;
use crate::table::{self, RunCursor};

/// What a read reads from.
pub struct Reader<'a> {
    /// The container.
    pub state: &'a Arc<ContainerState>,
    /// The snapshot to read; `None`: the newest state.
    pub snapshot: Option<&'a Arc<SnapshotPin>>,
}

/// Where the newest version of a key is.
pub(in crate::engine) enum Hit<'a> {
    /// In a memtable.
    Memory(crate::mem::Entry<'a>),
    /// In a table.
    Disk(table::Found),
}

impl Hit<'_> {
    /// All but its value.
    pub(in crate::engine) fn header(&self) -> Header {
        match self {
            Hit::Memory(entry) => entry.header,
            Hit::Disk(found) => found.header,
        }
    }

    #[inline(always)]
    pub(in crate::engine) fn value(self) -> Result<Bytes> {
        match self {
            Hit::Memory(entry) => entry.value_bytes(),
            Hit::Disk(found) => found.value(),
        }
    }
}

/// The newest version of a key up to `max`, dead or not, unless a range delete covers it.
pub(in crate::engine) fn newest<'a>(
    read_state: &'a ReadState,
    key: &[u8],
    max: Seq,
) -> Result<Option<Hit<'a>>> {
    let hash = hash_key(key);
    let hit = match in_memory(read_state, hash, key, max) {
        Some(hit) => Ok(Some(hit)),
        None => on_disk(read_state, max, |run| run.get(hash, key, max)),
    };
    // Returned as it is: to take it apart would move the hit, which is large.
    match &hit {
        Ok(Some(found)) if read_state.covers(key, found.header().seq, max) => Ok(None),
        _ => hit,
    }
}

/// Asks the memtables newest first: the first version found is the newest.
#[inline(always)]
pub(in crate::engine) fn in_memory<'a>(
    read_state: &'a ReadState,
    hash: u64,
    key: &[u8],
    max: Seq,
) -> Option<Hit<'a>> {
    // Apart, because mostly there is only this one; an iterator over both kinds would branch on each step.
    if let Some(entry) = read_state.active.memtable.get(hash, key, max) {
        return Some(Hit::Memory(entry));
    }
    for flushable in &read_state.sealed {
        if let Some(entry) = flushable.memtable.get(hash, key, max) {
            return Some(Hit::Memory(entry));
        }
    }
    None
}

/// Asks the runs in the order of their highest sequence numbers, until the version found is newer than all that remain.
#[inline(always)]
pub(in crate::engine) fn on_disk<'a, E>(
    read_state: &'a ReadState,
    max: Seq,
    get: impl Fn(&Run) -> std::result::Result<Option<table::Found>, E>,
) -> std::result::Result<Option<Hit<'a>>, E> {
    let runs = &read_state.version.runs;
    for (at, run) in runs.iter().enumerate() {
        if run.census.seq_min <= max
            && let Some(found) = get(run)?
        {
            return match runs.get(at + 1) {
                Some(next) if found.header.seq <= next.census.seq_max => {
                    newest_among(found, &runs[at + 1..], max, get)
                }
                _ => Ok(Some(Hit::Disk(found))),
            };
        }
    }
    Ok(None)
}

/// The newest of `best` and what these runs have, which may be newer. Apart, because most keys are in one run.
#[inline(never)]
fn newest_among<'a, E>(
    mut best: table::Found,
    runs: &[Arc<Run>],
    max: Seq,
    get: impl Fn(&Run) -> std::result::Result<Option<table::Found>, E>,
) -> std::result::Result<Option<Hit<'a>>, E> {
    for run in runs {
        if best.header.seq > run.census.seq_max {
            break;
        }
        if run.census.seq_min <= max
            && let Some(found) = get(run)?
            && found.header.seq > best.header.seq
        {
            best = found;
        }
    }
    Ok(Some(Hit::Disk(best)))
}

impl Engine {
    /// The read state that a reader sees, and then up to which sequence number.
    #[inline]
    pub(in crate::engine) fn sight_of(&self, reader: &Reader<'_>) -> (Guard<Arc<ReadState>>, Seq) {
        match reader.snapshot {
            None => (reader.state.read_state(), self.commit_log.published()),
            Some(pin) => (pin.guard(reader.state), pin.seq()),
        }
    }

    fn read<T>(
        &self,
        reader: &Reader<'_>,
        key: &[u8],
        take: impl FnOnce(Hit<'_>, &ExpiryView) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            self.check_open(reader.state)?;
            let (read_state, max) = self.sight_of(reader);
            let Some(hit) = newest(&read_state, key, max)? else {
                self.pass_switch(reader.state);
                return Ok(None);
            };
            // Read last: an absent key needs no time, and a later reading is as right.
            let later = self.later_view(reader.state);
            if reader.snapshot.is_none() && reader.state.may_be_newer_than(max) {
                continue;
            }
            let header = hit.header();
            if !later.dead(&header) && self.clock.leads() == 0 {
                return take(hit, &later).map(Some);
            }
            if header.is_tombstone() {
                return Ok(None);
            }
            match self.recheck_newest(reader, &read_state, key, max, &header) {
                Some(view) if view.dead(&header) => {
                    self.counters.expired_misses.add(1);
                    return Ok(None);
                }
                Some(view) => return take(hit, &view).map(Some),
                None => {}
            }
        }
    }

    /// The view by which to judge a version that was found in `read_state` up to `max`. None: it may no longer have
    /// been the newest of its key when it was judged.
    #[cold]
    fn recheck_newest(
        &self,
        reader: &Reader<'_>,
        read_state: &Arc<ReadState>,
        key: &[u8],
        max: Seq,
        found: &Header,
    ) -> Option<ExpiryView> {
        let view = self.expiry_view(reader.state);
        if reader.snapshot.is_some() {
            return Some(view);
        }
        if self.wait_if_relied_on(found.seq) || !Arc::ptr_eq(read_state, &reader.state.read_state())
        {
            return None;
        }
        match read_state.written_since(key, max) {
            // A write that failed after its stamp is never visible.
            Some(seq) if self.make_visible(seq).is_ok() && self.commit_log.published() >= seq => {
                None
            }
            _ => Some(view),
        }
    }

    /// Whether a write relies on this version; waits until that write has released the lock. Call it after reading the
    /// clock.
    pub(in crate::engine) fn wait_if_relied_on(&self, seq: Seq) -> bool {
        let is_relied_on = self.commit_log.is_relied_on(seq);
        if is_relied_on {
            self.commit_log.pass();
        }
        is_relied_on
    }

    /// The value of a live item.
    pub fn get(&self, reader: &Reader<'_>, key: &[u8]) -> Result<Option<Bytes>> {
        self.read(reader, key, |hit, _| hit.value())
    }

    /// Whether a live item has the key.
    pub fn contains(&self, reader: &Reader<'_>, key: &[u8]) -> Result<bool> {
        Ok(self.read(reader, key, |_, _| Ok(()))?.is_some())
    }

    /// A live item.
    pub fn item(&self, reader: &Reader<'_>, key: &[u8]) -> Result<Option<Item>> {
        self.read(reader, key, |hit, view| {
            let (header, now) = (hit.header(), self.clock.now());
            Ok(item(&header, key, hit.value()?, view, now))
        })
    }

    /// The newest version of a key, published or not, and its item if it is live; for a conditional write.
    pub(in crate::engine) fn newest_checked(
        &self,
        read_state: &ReadState,
        key: &[u8],
        max: Seq,
        view: &ExpiryView,
    ) -> Result<(Option<Header>, Option<Item>)> {
        let Some(hit) = newest(read_state, key, max)? else {
            return Ok((None, None));
        };
        let header = hit.header();
        let live = !view.dead(&header);
        let item = match live {
            true => Some(item(&header, key, hit.value()?, view, view.now)),
            false => None,
        };
        Ok((Some(header), item))
    }

    /// The newest version of a key up to `max`, live or dead, without its value.
    pub(in crate::engine) fn newest_version(
        &self,
        read_state: &ReadState,
        key: &[u8],
        max: Seq,
    ) -> Result<Option<Header>> {
        Ok(newest(read_state, key, max)?.map(|hit| hit.header()))
    }
}

/// A live version as an item that is read now.
pub(in crate::engine) fn item(
    header: &Header,
    key: &[u8],
    value: Bytes,
    view: &ExpiryView,
    now: Timestamp,
) -> Item {
    let pair = Pair::new(Bytes::copy_from_slice(key), value);
    Item::new(pair, header, view.settings.life(header), now)
}

/// A cursor on a memtable or a run. A scan has few: the unused bytes of the smaller kind cost less than a box.
#[allow(clippy::large_enum_variant)]
pub enum Source {
    /// In memory.
    Memory(MemCursor),
    /// On disk.
    Disk(RunCursor),
}

macro_rules! each {
    ($source:expr, $cursor:ident => $do:expr) => {
        match $source {
            Source::Memory($cursor) => $do,
            Source::Disk($cursor) => $do,
        }
    };
}

impl Cursor for Source {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        each!(self, cursor => cursor.position())
    }

    #[inline(always)]
    fn head(&self) -> Head<'_> {
        each!(self, cursor => cursor.head())
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        each!(self, cursor => cursor.is_on_record())
    }

    #[inline]
    fn hold_lane(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> bool {
        each!(self, cursor => cursor.hold_lane(ask, lent))
    }

    fn stretch(&self, ask: &Ask<'_>) -> Option<Stretch> {
        each!(self, cursor => cursor.stretch(ask))
    }

    #[inline]
    fn lane(&self) -> Option<(Lane<'_>, usize)> {
        each!(self, cursor => cursor.lane())
    }

    #[inline]
    fn stand_in_lane(&mut self, at: usize) {
        each!(self, cursor => cursor.stand_in_lane(at));
    }

    fn seq_in_lane(&self, at: usize) -> Seq {
        each!(self, cursor => cursor.seq_in_lane(at))
    }

    fn lend_one(&self, lent: &mut Lent) -> Result<()> {
        each!(self, cursor => cursor.lend_one(lent))
    }

    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.start_seek(to, view))
    }

    fn poll_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<bool> {
        each!(self, cursor => cursor.poll_seek(to, view))
    }

    #[inline]
    fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.advance(view))
    }

    fn retreat(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.retreat(view))
    }

    fn enter(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.enter(to, view))
    }

    #[inline(always)]
    fn pair(&self) -> Result<Pair> {
        each!(self, cursor => cursor.pair())
    }

    fn value_bytes(&self) -> Result<Bytes> {
        each!(self, cursor => cursor.value_bytes())
    }

    fn value(&self) -> Result<&[u8]> {
        each!(self, cursor => cursor.value())
    }
}
