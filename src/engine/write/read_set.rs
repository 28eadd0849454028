//! Transactions: the reads of one, and whether they still hold when it commits. Optimistic: nothing is locked
//! meanwhile.
//!
//! ```text
//! begin       now, then the snapshot S         everything is read as of S, and judged at `now`
//! read        key -> version, or none          what lived at `now` has to live yet when it is read
//!             range -> as far as it was consumed
//! commit      all of it is as it was read      as of any other write (observed.rs), from S on
//! ```
//!
//! Invariants:
//!
//! 1. `now` is read before S. Every write that was stamped before `now` is seen at S: a beginning waits for the write
//!    that has the commit lock, and for those that wait for their sync.
//! 2. All reads are as of one moment: with S published. An item that was found lived at `now` and when it was read,
//!    after S, so it lived in between. One that was not found was dead at `now`, and stays so. If it lived at `now` and
//!    had ended when it was reached, that is a conflict at once: its record says so, or, when a job may have dropped
//!    the record, the moment by which the container's jobs have judged ([`ContainerState::has_purged_after`]).
//! 3. A transaction that writes takes effect at its stamp. There all its reads hold: a version that was found is still
//!    the newest and lives, an absent key is still absent, and no other item is in a range. So it is as if all of it
//!    was read at the stamp, and the order of stamps is the serial order.
//! 4. A transaction that only reads takes effect at S.
//! 5. A container's settings are those that it had when the transaction first read it, from S until the commit: a change
//!    moves ends, and is a conflict.
//! 6. The snapshot is held until the end. So a version that was found stays as long as it lives, and with it every
//!    record that hides it since: a look at the runs finds every write that changes a read.
//!
//! The earliest end of all that was read of a container says whether something has expired, without a read. Cost: each
//! key that was read is kept until the commit, and the two ends of each range.

use std::borrow::Cow;
use std::sync::Arc;

use crate::base::{Countdown, Error, Result, Timestamp, Wait};
use crate::data::batch::{KeyRange, Ops, WriteTtl};
use crate::data::item::Item;
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::engine::options::Durability;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::point::ReadPoint;
use crate::engine::read::random::Drawn;
use crate::engine::read::scan::Scan;
use crate::engine::write::observed::{Changed, Observed, OwnChange};
use crate::engine::write::writes::Writes;
use crate::expiry::{ExpiryView, ExpiryViews};

/// See the file's head.
pub struct ReadSet {
    pin: Arc<SnapshotPin>,
    now: Timestamp,
    /// Settled time at the beginning.
    settled: Timestamp,
    /// The reads, of containers that were touched.
    observed: Observed<'static>,
    /// Why it cannot be committed any more.
    conflict: Option<Error>,
}

impl ReadSet {
    /// Nothing was read yet; begins now.
    pub fn new(engine: &Engine) -> ReadSet {
        let reading = engine.clock.read();
        engine.commit_log.wait_for_commit();
        // A write that cannot be synced is never seen.
        let _ = engine.make_visible(engine.commit_log.latest());
        let pin = Arc::new(engine.snapshot());
        ReadSet {
            now: reading.now,
            settled: reading.settled,
            observed: Observed::new(pin.seq()),
            pin,
            conflict: None,
        }
    }

    /// From now on a key that is written and deleted meanwhile counts as changed, even if a job has left out both records.
    pub fn count_every_write(&mut self) {
        self.observed.nothing_left_out_since = Some(self.pin.seq());
    }

    /// The moment by which all is judged.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether it has met a conflict, and cannot be committed.
    #[inline]
    pub fn is_in_conflict(&self) -> bool {
        self.conflict.is_some()
    }

    /// Fails if this container cannot be used. For writes; reads go through [`ReadSet::touch`].
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
        // This waits for a change under way.
        let (seq, settings) = state.settings_and_seq();
        let mut touched = self.observed.containers.iter();
        let place = touched.position(|touched| Arc::ptr_eq(&touched.state, state));
        let place = place.unwrap_or_else(|| {
            let views = ExpiryViews::at(self.now, self.settled, || settings);
            self.observed.add(state, seq, views)
        });
        let has_its_settings = self.observed.containers[place].has_its_settings();
        if !has_its_settings || seq > self.pin.seq() {
            return Err(self.conflict_over(place, key));
        }
        Ok(place)
    }

    /// The read point of a touched container.
    fn point<'a>(&'a self, engine: &'a Engine, place: usize) -> Result<ReadPoint<'a, Wait>> {
        let touched = &self.observed.containers[place];
        let point = ReadPoint::at(engine, &touched.state, &self.pin, &touched.views)?;
        Ok(point.checked())
    }

    /// Reads the item of a key in a touched container, and notes the read.
    pub fn read(&mut self, engine: &Engine, place: usize, key: &[u8]) -> Result<Option<Item>> {
        let item = self.point(engine, place)?.item(key)?;
        match &item {
            Some(item) => self.found(engine, place, key, item.end())?,
            None => self.missed(place, key)?,
        }
        let version = item.as_ref().map(|item| item.version().seq());
        let key = Cow::Owned(key.to_vec());
        self.observed.note_version(place, key, version);
        Ok(item)
    }

    /// An item of a touched container by chance, of which nothing is noted.
    pub fn draw(
        &self,
        engine: &Engine,
        place: usize,
        chance: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Drawn> {
        self.point(engine, place)?.draw(chance)
    }

    /// Notes that an item with this end was found; a conflict if it has ended by now.
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
        let key = || Cow::Owned(key.to_vec());
        self.observed.note_end(place, end, key);
        Ok(())
    }

    /// The ttl of a write that is to live like another item; `None`: that life has passed. A conflict if it has passed since
    /// the beginning.
    pub fn like(
        &mut self,
        engine: &Engine,
        place: usize,
        key: &[u8],
        countdown: Countdown,
    ) -> Result<Option<WriteTtl>> {
        let view = self.view(place);
        let Some(ttl) = view.settings.ttl_like(countdown, view.now) else {
            return Ok(None);
        };
        let end = view.settings.life_of(ttl).end(countdown.written_at());
        self.found(engine, place, key, end)?;
        Ok(Some(WriteTtl::since(countdown, ttl)))
    }

    /// Called where no item was found at `key` or, in a scan, up to it: a conflict if one that lived at `now` may have
    /// been purged.
    pub fn missed(&mut self, place: usize, key: &[u8]) -> Result<()> {
        match self.observed.containers[place]
            .state
            .has_purged_after(self.now)
        {
            true => Err(self.conflict_over(place, key)),
            false => Ok(()),
        }
    }

    /// The view by which a touched container's items are judged.
    pub fn view(&self, place: usize) -> &ExpiryView {
        &self.observed.containers[place].views.now
    }

    /// The items of a range, in a touched container, and the number by which [`ReadSet::consumed`] is told how far it was
    /// read. Until it is told, all of the range counts.
    pub fn scan(
        &mut self,
        engine: &Handle,
        place: usize,
        range: &KeyRange,
    ) -> Result<(usize, Scan)> {
        let scan = self.point(engine, place)?.scan(engine, range.clone());
        let ranges = &mut self.observed.containers[place].ranges;
        ranges.push(vec![range.clone()]);
        Ok((ranges.len() - 1, scan))
    }

    /// Notes that a scan is over, and has read these parts of its range.
    pub fn consumed(&mut self, place: usize, number: usize, parts: Vec<KeyRange>) {
        self.observed.containers[place].ranges[number] = parts;
    }

    /// Puts the transaction in conflict from now on; returns the error.
    fn conflict_over(&mut self, place: usize, key: &[u8]) -> Error {
        let changed = Changed {
            container: place,
            key: key.to_vec(),
        };
        let conflict = changed.conflict(&self.observed.containers[place].state);
        self.conflict.insert(conflict).clone()
    }
}

impl Engine {
    /// Commits the writes of a transaction, if all its reads still hold. An error is a conflict that stays, or that of
    /// the write.
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
        if writes.change_state() {
            read_set.observed.changes_state = true;
            read_set.observed.own_changes = own_changes(writes);
            self.commit_log.sync_ahead()?;
        }
        let (states, weight) = (writes.states(), writes.weight());
        for state in states {
            self.admit::<Wait>(state, weight / states.len() as u64)?;
        }
        let charge = self.charge_all::<Wait>(states, writes.bytes())?;
        let prepared = self.prepare(writes, writes.bytes(), writes.len(), weight, charge);
        match self.commit_over::<Wait>(&prepared, &mut read_set.observed)? {
            Ok(begun) => Ok(begun.written()),
            Err(changed) => Err(read_set.conflict_over(changed.container, &changed.key)),
        }
    }
}

/// The changes of settings among the writes. Their containers have the places that they have there, for no judgement of a
/// transaction depends on them.
fn own_changes(writes: &Writes) -> Vec<OwnChange> {
    let ops = Ops::new(writes.bytes()).enumerate();
    let changes = ops.filter_map(|(at, op)| {
        let op = op.expect("a batch was encoded by this program");
        let mut states = writes.states().iter();
        let container = states.position(|state| state.id() == op.container());
        Some(OwnChange {
            at,
            container: container.expect("a batch names its containers"),
            change: op.of_settings()?,
        })
    });
    changes.collect()
}
