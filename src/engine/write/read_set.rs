//! Transactions: what one has read, and whether it is so still when it commits. Optimistic: nothing is locked meanwhile.
//!
//! ```text
//! begin       now, then the snapshot S         everything is read as of S, and judged at `now`
//! read        key -> version, or none          what lived at `now` has to live yet when it is read
//!             range -> as far as it was consumed
//! commit      before the commit lock           what came after S and may have left the memtables is looked up in runs;
//!                                              then `checked` is the last number that was looked at
//!             under the commit lock            stamp; ask the memtables for writes above `checked` to what was read;
//!                                              nothing read ends by the stamp, no settings changed: commit.
//!                                              The flushed number has passed `checked`: look it up again, unlocked
//! ```
//!
//! Invariants:
//!
//! 1. `now` is read before S. All that was stamped before `now` is seen at S: a beginning lets the write that has the
//!    commit lock pass, and waits for what waits for its sync.
//! 2. What was read is all as of one moment: with S published. An item that was found lived at `now` and when it was
//!    read, after S, so it lived in between. One that was not found was dead at `now`, and stays so. If it lived at `now`
//!    and had ended when it was reached, that is a conflict at once: its record says so, or, when a job may have dropped
//!    the record, the moment by which the container's jobs have judged ([`ContainerState::has_purged_after`]).
//! 3. A transaction that writes takes effect at its stamp. There all it has read holds: what was found is the newest
//!    version still and lives, what was absent is absent, and no other item is in a range. So it is as if all of it was
//!    read at the stamp, and the order of stamps is the serial order.
//! 4. A transaction that only reads takes effect at S.
//! 5. A container's settings are those that it had when the transaction first read it, from S until the commit: a change
//!    moves ends, and is a conflict.
//! 6. The snapshot is held until the end. So a version that was found stays as long as it lives, and with it whatever hides
//!    it since: a look at the runs finds every write that changes what was read.
//!
//! The earliest end of all that was read of a container says whether something has expired, without a read. Cost: each
//! key that was read is kept until the commit, and of a range its ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{Error, Result, Seq, Timestamp, Wait};
use crate::data::batch::KeyRange;
use crate::data::cursor::{Cursor, Position, Seek};
use crate::data::item::Item;
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::engine::options::Durability;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::relied::SEVERAL;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::point::ReadPoint;
use crate::engine::read::scan::Scan;
use crate::engine::write::commit::Stamped;
use crate::engine::write::writes::Writes;
use crate::expiry::{ExpiryView, ExpiryViews, Settings};
use crate::mem::RangeDeletes;
use crate::table::RunCursor;

/// What was read of a container.
struct Touched {
    state: Arc<ContainerState>,
    /// By what all of it is judged.
    views: ExpiryViews,
    /// The version that lived; none where nothing did.
    keys: BTreeMap<Box<[u8]>, Option<Seq>>,
    /// Of each scan, the parts of its range that were consumed.
    ranges: Vec<Vec<KeyRange>>,
    /// The item that ends first of all that were found.
    first_end: Option<(Timestamp, Box<[u8]>)>,
}

/// What is wrong with what was read.
enum Fault {
    /// This container's key.
    Changed(usize, Vec<u8>),
    /// The memtables do not tell any more.
    Flushed,
}

/// See the file's head.
pub struct ReadSet {
    pin: Arc<SnapshotPin>,
    now: Timestamp,
    /// Settled time at the beginning.
    settled: Timestamp,
    /// No write up to here changed what was read.
    checked: Seq,
    touched: Vec<Touched>,
    /// It cannot be committed any more.
    conflict: Option<Error>,
}

impl ReadSet {
    /// Nothing was read yet; begins now.
    pub fn new(engine: &Engine) -> ReadSet {
        let reading = engine.clock.read();
        engine.commit_log.pass();
        // What cannot be synced is never seen.
        let _ = engine.make_visible(engine.commit_log.latest());
        let pin = Arc::new(engine.snapshot());
        ReadSet {
            now: reading.now,
            settled: reading.settled,
            checked: pin.seq(),
            pin,
            touched: vec![],
            conflict: None,
        }
    }

    /// The moment by which all is judged.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// It has met a conflict, and cannot be committed.
    pub fn is_in_conflict(&self) -> bool {
        self.conflict.is_some()
    }

    /// May this container be used? For writes; whoever reads goes through [`ReadSet::touch`].
    pub fn check(&self, engine: &Engine, state: &ContainerState) -> Result<()> {
        if let Some(conflict) = &self.conflict {
            return Err(conflict.clone());
        }
        engine.check_open(state)
    }

    /// The place of a container about which `key` is to be asked.
    pub fn touch(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
    ) -> Result<usize> {
        self.check(engine, state)?;
        let mut touched = self.touched.iter();
        let place = touched.position(|touched| Arc::ptr_eq(&touched.state, state));
        let settings = state.settings();
        let place = place.unwrap_or_else(|| {
            self.touched.push(Touched {
                state: state.clone(),
                views: ExpiryViews::at(self.now, self.settled, || settings.clone()),
                keys: BTreeMap::new(),
                ranges: vec![],
                first_end: None,
            });
            self.touched.len() - 1
        });
        if !self.touched[place].has_settings(&settings, self.pin.seq()) {
            return Err(self.conflict_over(place, key));
        }
        Ok(place)
    }

    /// The item of a key, in a container that was touched, and that it was read.
    pub fn read(&mut self, engine: &Engine, place: usize, key: &[u8]) -> Result<Option<Item>> {
        let item = self.touched[place].at(engine, &self.pin)?.item(key)?;
        match &item {
            Some(item) => self.found(engine, place, key, item.end())?,
            None => self.missed(place, key)?,
        }
        let version = item.as_ref().map(|item| item.version().seq());
        self.touched[place].keys.insert(key.into(), version);
        Ok(item)
    }

    /// An item was found that ends then.
    pub fn found(
        &mut self,
        engine: &Engine,
        place: usize,
        key: &[u8],
        end: Timestamp,
    ) -> Result<()> {
        if end == Timestamp::MAX {
            return Ok(());
        }
        if end <= engine.clock.at_most() && end <= engine.clock.now() {
            return Err(self.conflict_over(place, key));
        }
        let first = &mut self.touched[place].first_end;
        if first.as_ref().is_none_or(|(first, _)| end < *first) {
            *first = Some((end, key.into()));
        }
        Ok(())
    }

    /// Nothing lived at `now` at `key` or, in a scan, between what was passed and what was found.
    pub fn missed(&mut self, place: usize, key: &[u8]) -> Result<()> {
        match self.touched[place].state.has_purged_after(self.now) {
            true => Err(self.conflict_over(place, key)),
            false => Ok(()),
        }
    }

    /// By what a touched container's items are judged.
    pub fn view(&self, place: usize) -> &ExpiryView {
        &self.touched[place].views.now
    }

    /// The items of a range, in a touched container, and the number by which [`ReadSet::consumed`] is told how far it was
    /// read. Until it is told, all of the range counts.
    pub fn scan(
        &mut self,
        engine: &Handle,
        place: usize,
        range: &KeyRange,
    ) -> Result<(usize, Scan)> {
        let touched = &mut self.touched[place];
        let scan = touched.at(engine, &self.pin)?.scan(engine, range.clone());
        touched.ranges.push(vec![range.clone()]);
        Ok((touched.ranges.len() - 1, scan))
    }

    /// A scan is over, and has read these parts of its range.
    pub fn consumed(&mut self, place: usize, number: usize, parts: Vec<KeyRange>) {
        self.touched[place].ranges[number] = parts;
    }

    /// The transaction is in conflict from now on.
    fn conflict_over(&mut self, place: usize, key: &[u8]) -> Error {
        let conflict = Error::Conflict {
            container: self.touched[place].state.name().to_owned(),
            key: key.to_vec(),
        };
        self.conflict.insert(conflict).clone()
    }

    /// What is relied on while the transaction is stamped and not seen yet.
    fn relies_on(&self) -> Option<Seq> {
        let ends = self
            .touched
            .iter()
            .any(|touched| touched.first_end.is_some());
        ends.then_some(SEVERAL)
    }

    /// Without the commit lock: looks in memtables and runs for what changed since it was looked last.
    fn look_again(&mut self, engine: &Engine) -> Result<()> {
        // The number before the read states: then they lack no write up to it.
        let latest = engine.commit_log.latest();
        for place in 0..self.touched.len() {
            let (touched, since) = (&self.touched[place], self.checked);
            let read_state = touched.state.pin();
            if let Some(key) = touched.changed_anywhere(engine, &read_state, since, latest)? {
                return Err(self.conflict_over(place, &key));
            }
        }
        self.checked = latest;
        Ok(())
    }

    /// Something that was read has left the memtables since it was looked last, or a range has to be walked: better not
    /// under the commit lock.
    fn wants_a_look(&self) -> bool {
        self.touched.iter().any(|touched| {
            let read_state = touched.state.read_state();
            let mut flushables = read_state.flushables();
            touched.state.flushed() > self.checked
                || !touched.ranges.is_empty()
                    && flushables.any(|flushable| flushable.memtable.seq_max() > self.checked)
        })
    }

    /// Under the commit lock: whether all that was read is so at this moment.
    fn fault_at(&self, now: Timestamp) -> Result<Option<Fault>> {
        for (place, touched) in self.touched.iter().enumerate() {
            touched.state.check()?;
            let changed = |key: &[u8]| Ok(Some(Fault::Changed(place, key.to_vec())));
            if now < self.now || !touched.has_settings(&touched.state.settings(), self.pin.seq()) {
                return changed(touched.some_key());
            }
            if let Some((_, key)) = touched.first_end.as_ref().filter(|(end, _)| *end <= now) {
                return changed(key);
            }
            // The read state before the flushed number: a memtable that is not in it was flushed by then.
            let read_state = touched.state.read_state();
            if touched.state.flushed() > self.checked {
                return Ok(Some(Fault::Flushed));
            }
            if let Some(key) = touched.changed_in_memory(&read_state, self.checked) {
                return changed(&key);
            }
        }
        Ok(None)
    }

    /// Under the commit lock: what was read is so, or the transaction is in conflict. False: it
    /// has to be looked up again.
    fn holds_at(&mut self, now: Timestamp) -> Result<bool> {
        match self.fault_at(now)? {
            None => Ok(true),
            Some(Fault::Flushed) => Ok(false),
            Some(Fault::Changed(place, key)) => Err(self.conflict_over(place, &key)),
        }
    }
}

impl Touched {
    /// Where and by what it is read.
    fn at<'a>(
        &'a self,
        engine: &'a Engine,
        pin: &'a Arc<SnapshotPin>,
    ) -> Result<ReadPoint<'a, Wait>> {
        ReadPoint::at(engine, &self.state, pin, &self.views)
    }

    /// These are the settings by which it was read, at this snapshot.
    fn has_settings(&self, settings: &Settings, snapshot: Seq) -> bool {
        *settings == self.views.now.settings && !self.state.may_be_newer_than(snapshot)
    }

    /// One that was asked about, to be named.
    fn some_key(&self) -> &[u8] {
        let range = self.ranges.iter().flatten().next();
        let from = range.map_or(&[][..], |range| &range.from);
        self.keys.keys().next().map_or(from, |key| key)
    }

    /// A key of what was read that was written since then, as far as the memtables know.
    fn changed_in_memory(&self, read_state: &ReadState, since: Seq) -> Option<Vec<u8>> {
        let mut keys = self.keys.keys();
        if let Some(key) = keys.find(|key| read_state.written_since(key, since).is_some()) {
            return Some(key.to_vec());
        }
        self.range_changed_in_memory(read_state, since)
    }

    fn range_changed_in_memory(&self, read_state: &ReadState, since: Seq) -> Option<Vec<u8>> {
        let mut consumed = self.ranges.iter().flatten();
        consumed.find_map(|range| {
            let memtables = read_state.flushables().map(|flushable| &flushable.memtable);
            let mut later = memtables.filter(|memtable| memtable.seq_max() > since);
            later.find_map(|memtable| {
                let deleted = deleted_since(memtable.range_deletes(), range, since);
                // A memtable's cursor does not fail.
                deleted.or_else(|| written_in(memtable.cursor(), range, since).ok().flatten())
            })
        })
    }

    /// The same up to `latest`, of all there is.
    fn changed_anywhere(
        &self,
        engine: &Engine,
        read_state: &ReadState,
        since: Seq,
        latest: Seq,
    ) -> Result<Option<Vec<u8>>> {
        for (key, seen) in &self.keys {
            let newest = engine.newest_version(read_state, key, latest)?;
            let newest = newest.map(|header| header.seq);
            if newest.is_some_and(|newest| newest > since) || seen.is_some() && newest != *seen {
                return Ok(Some(key.to_vec()));
            }
        }
        let version = &read_state.version;
        for range in self.ranges.iter().flatten() {
            let later = version.runs.iter().filter(|run| run.census.seq_max > since);
            for run in later.filter(|run| range.overlaps(run.first_key(), run.last_key())) {
                let found = written_in(RunCursor::new(run.shared.clone()), range, since)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            let deleted = deleted_since(&version.range_deletes, range, since);
            if deleted.is_some() {
                return Ok(deleted);
            }
        }
        Ok(self.range_changed_in_memory(read_state, since))
    }
}

/// A key of the range that was written after this number.
fn written_in(mut cursor: impl Cursor, range: &KeyRange, since: Seq) -> Result<Option<Vec<u8>>> {
    let to = Seek::AtOrAfter(&range.from);
    cursor.start_seek(to, None)?;
    while !cursor.poll_seek(to, None)? {}
    while let Position::Record(record) = cursor.position()
        && range.contains(record.key)
    {
        if record.header.seq > since {
            return Ok(Some(record.key.to_vec()));
        }
        cursor.advance(None)?;
    }
    Ok(None)
}

/// The first key of the range that was deleted by range after this number.
fn deleted_since(deletes: &RangeDeletes, range: &KeyRange, since: Seq) -> Option<Vec<u8>> {
    let mut later = deletes.iter().rev().take_while(|delete| delete.seq > since);
    let first = later.find_map(|delete| delete.range.first_common(range));
    first.map(<[u8]>::to_vec)
}

impl Engine {
    /// Writes what a transaction has written, if all that it has read is so still. An error is a conflict that stays, or
    /// that of the write.
    pub fn commit_transaction(&self, read_set: &mut ReadSet, writes: &Writes) -> Result<Written> {
        if let Some(conflict) = &read_set.conflict {
            return Err(conflict.clone());
        }
        if writes.len() == 0 {
            match writes.durability() {
                Some(Durability::Sync) => self.sync()?,
                _ => self.scheduler.check_open()?,
            }
            return Ok(Written::new(read_set.pin.seq(), read_set.now));
        }
        let weight = self.admit_all(writes)?;
        let charge = self.charge_all(writes.states(), writes.bytes())?;
        let prepared = self.prepare(writes, writes.bytes(), weight, charge);
        loop {
            let stamped = self.stamp_over(read_set)?;
            if read_set.holds_at(stamped.reading.now)? {
                return self.commit(stamped, &prepared);
            }
        }
    }

    /// The moment of a transaction, after what cannot be looked up under the commit lock was.
    fn stamp_over(&self, read_set: &mut ReadSet) -> Result<Stamped<'_>> {
        if read_set.wants_a_look() {
            read_set.look_again(self)?;
        }
        Ok(self.stamp(read_set.relies_on()))
    }
}
