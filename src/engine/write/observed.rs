//! The reads that a write relies on: of keys and of ranges, with the views by which they were judged; and whether all
//! of them still hold when the write is stamped. Conditional writes, updates, batches and transactions keep them here;
//! no lock is held meanwhile.
//!
//! ```text
//! read          with every write up to `checked`; judged at `now`, by the settings of then
//! at the stamp  the clock has not gone back behind `now`, the settings are those, nothing that lived has ended: then
//!               each judgement is as it was, for what was dead stays dead
//!               nothing was written since      `checked` ...... a memtable       has a later write: changed
//!                                              `checked` ... flushed number      the memtables do not tell: look again
//! look again    without the lock, in memtables and runs, up to a later number, which is `checked` from then on
//! ```
//!
//! Invariants:
//!
//! 1. Under the commit lock no file is read.
//! 2. The number is taken before the read states: then they lack no write up to it. The read state is taken before the
//!    flushed number: a memtable that is not in it was flushed by then.
//! 3. A record that hides a version stays as long as that version. So a look at the runs that finds the version which
//!    was read has missed no write to its key; and if there was no version and is none, a write that came and went in
//!    between is as good as never written. Where it is not, `nothing_left_out_since` finds it. A range delete that stays is
//!    found by its range, for of a key that it covers there is no version.
//! 4. A judgement that depends on the stamp itself, by an own write of a batch or a change of settings by it, is made
//!    again ([`Judged`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::record::{Header, Kind};
use crate::base::{ContainerId, Countdown, Error, ItemTtl, Result, Seq, Timestamp, Wait};
use crate::data::batch::{KeyRange, WriteTtl};
use crate::data::cursor::{Cursor, Position, Seek};
use crate::engine::Engine;
use crate::engine::parts::commit_dependency::SEVERAL;
use crate::engine::parts::containers::ContainerSet;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{ExpiryView, ExpiryViews, Settings, SettingsChange};
use crate::mem::RangeDeletes;
use crate::table::RunCursor;

/// The moment by which a write is judged, which is that of its first sequence number.
pub(in crate::engine) struct WriteMoment {
    pub first: Seq,
    pub now: Timestamp,
    pub settled: Timestamp,
}

/// The reads of a container.
pub(in crate::engine) struct ObservedContainer<'a> {
    pub state: Arc<ContainerState>,
    /// The views by which they were judged.
    pub views: ExpiryViews,
    /// The write that had changed its settings last.
    settings_seq: Seq,
    keys: ObservedKeys<'a>,
    /// Of each scan, the parts of its range that were consumed.
    pub ranges: Vec<Vec<KeyRange>>,
    /// The item that ends first of all that lived.
    first_end: Option<(Timestamp, Cow<'a, [u8]>)>,
}

/// The version that was found at each key; none where none was. Most writes rely on one key, which takes no memory.
#[derive(Default)]
struct ObservedKeys<'a> {
    first: Option<(Cow<'a, [u8]>, Option<Seq>)>,
    /// All but the first.
    others: BTreeMap<Cow<'a, [u8]>, Option<Seq>>,
}

impl<'a> ObservedKeys<'a> {
    fn insert(&mut self, key: Cow<'a, [u8]>, version: Option<Seq>) {
        match &mut self.first {
            None => self.first = Some((key, version)),
            Some((first, of_first)) if *first == key => *of_first = version,
            Some(_) => drop(self.others.insert(key, version)),
        }
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<Seq>)> {
        let first = self.first.iter().map(|(key, version)| (&**key, *version));
        let others = self.others.iter();
        first.chain(others.map(|(key, version)| (&**key, *version)))
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|(key, _)| key)
    }

    fn retain(&mut self, is_kept: impl Fn(&[u8]) -> bool) {
        self.first.take_if(|(key, _)| !is_kept(key));
        self.others.retain(|key, _| is_kept(key));
    }
}

/// A judgement that depends on the stamp, and what it was before there was one.
pub(in crate::engine) struct Judged {
    /// The place of the container.
    pub container: usize,
    /// How many changes of the container's settings come before it in the batch.
    pub changes: usize,
    pub what: What,
    pub holds: bool,
}

pub(in crate::engine) enum What {
    /// A version that was read is live.
    Seen(Header),
    /// The put of this number in the batch, with this ttl, is live.
    Own(usize, WriteTtl),
    /// An item that is to live like another one gets this ttl; none: that lifetime has passed.
    Like(Countdown, Option<ItemTtl>),
}

/// A change of a container's settings by the write itself.
pub(in crate::engine) struct OwnChange {
    /// The number of the write.
    pub at: usize,
    /// The place of the container.
    pub container: usize,
    pub change: SettingsChange,
}

/// See the file's head.
pub(in crate::engine) struct Observed<'a> {
    /// No judgement is of a later moment.
    now: Timestamp,
    /// No write up to here has changed it.
    checked: Seq,
    /// The highest version that was found.
    newest: Seq,
    pub containers: Vec<ObservedContainer<'a>>,
    pub judged: Vec<Judged>,
    pub own_changes: Vec<OwnChange>,
    /// Names that were looked up, and the containers that had them.
    pub names: Vec<(String, Option<ContainerId>)>,
    /// Whether the write itself changes what containers are.
    pub changes_state: bool,
    /// If set, a key that was written and deleted since counts as changed, too: a job may have left out both records.
    pub nothing_left_out_since: Option<Seq>,
}

/// The container's place and the key of something that is no longer as it was read.
pub(in crate::engine) struct Changed {
    pub container: usize,
    pub key: Vec<u8>,
}

impl Changed {
    /// The error of a write that is not tried again.
    pub fn conflict(self, state: &ContainerState) -> Error {
        Error::Conflict {
            container: state.name().to_owned(),
            key: self.key,
        }
    }
}

/// Why a write cannot be committed as it is.
pub(in crate::engine) enum Fault {
    /// This is no longer as it was read.
    Changed(Changed),
    /// The memtables cannot tell any more: records have left them.
    Flushed,
}

impl<'a> Observed<'a> {
    /// Nothing was read yet, and what will be read holds every write up to `checked`.
    pub fn new(checked: Seq) -> Observed<'a> {
        Observed {
            now: Timestamp(0),
            checked,
            newest: Seq(0),
            containers: vec![],
            judged: vec![],
            own_changes: vec![],
            names: vec![],
            changes_state: false,
            nothing_left_out_since: None,
        }
    }

    /// No write up to here has changed it.
    pub fn checked(&self) -> Seq {
        self.checked
    }

    /// One more container, which is judged by `views`, whose settings are of the write `settings_seq`; its place.
    pub fn add(
        &mut self,
        state: &Arc<ContainerState>,
        settings_seq: Seq,
        views: ExpiryViews,
    ) -> usize {
        self.now = self.now.max(views.now.now);
        self.containers.push(ObservedContainer {
            state: state.clone(),
            views,
            settings_seq,
            keys: ObservedKeys::default(),
            ranges: vec![],
            first_end: None,
        });
        self.containers.len() - 1
    }

    /// Notes that this version was found at a key, live or dead; or that none was.
    pub fn note(&mut self, place: usize, key: Cow<'a, [u8]>, version: Option<&Header>) {
        if let Some(header) = version {
            let view = &self.containers[place].views.now;
            if !view.dead(header) {
                let end = view.settings.expires_at(header);
                self.note_end(place, end, || key.clone());
            }
            self.newest = self.newest.max(header.seq);
        }
        self.note_version(place, key, version.map(|header| header.seq));
    }

    /// The same of one whose end is noted apart.
    pub fn note_version(&mut self, place: usize, key: Cow<'a, [u8]>, version: Option<Seq>) {
        self.containers[place].keys.insert(key, version);
    }

    /// Notes the end of an item that was found.
    pub fn note_end(&mut self, place: usize, end: Timestamp, key: impl FnOnce() -> Cow<'a, [u8]>) {
        let first = &mut self.containers[place].first_end;
        if end < Timestamp::MAX && first.as_ref().is_none_or(|(first, _)| end < *first) {
            *first = Some((end, key()));
        }
    }

    /// The reads of one key alone, with all judgements that depend on the stamp.
    pub fn only(mut self, place: usize, key: &[u8]) -> Observed<'a> {
        for (at, container) in self.containers.iter_mut().enumerate() {
            container.ranges.clear();
            container.keys.retain(|of| at == place && of == key);
        }
        self
    }

    /// Whether a version that was found waits for its sync, and may be dead when that is over: readers would never see
    /// it live.
    pub fn ends_unseen(&self, published: Seq) -> bool {
        const LONGEST_SYNC_MILLIS: u64 = 1_000;
        let ends_soon = |container: &ObservedContainer<'_>| {
            let first = container.first_end.as_ref();
            first.is_some_and(|(end, _)| end.since(self.now) < LONGEST_SYNC_MILLIS)
        };
        self.newest > published && self.containers.iter().any(ends_soon)
    }

    /// The version relied on from the stamp until the write is published: one that may end meanwhile.
    pub fn relies_on(&self) -> Option<Seq> {
        let keys: usize = self.containers.iter().map(|of| of.keys.len()).sum();
        let is_alone = keys == 1 && self.judged.is_empty();
        if is_alone && self.containers.iter().all(|of| of.ranges.is_empty()) {
            return self.containers.iter().find_map(|of| of.versions().next());
        }
        let ends = self.containers.iter().any(|of| of.first_end.is_some());
        (ends || !self.judged.is_empty()).then_some(SEVERAL)
    }

    /// Whether records have left the memtables since the last look, or a range has to be walked: better not under the
    /// commit lock.
    pub fn wants_a_look(&self) -> bool {
        self.containers.iter().any(|of| {
            of.state.flushed() > self.checked
                || !of.ranges.is_empty() && {
                    let read_state = of.state.read_state();
                    let mut flushables = read_state.flushables();
                    flushables.any(|flushable| flushable.memtable.seq_max() > self.checked)
                }
        })
    }

    /// Without the commit lock: looks in memtables and runs for changes since the last look.
    pub fn look_again(&mut self, engine: &Engine) -> Result<Option<Changed>> {
        let latest = engine.commit_log.latest();
        for (container, of) in self.containers.iter().enumerate() {
            let read_state = of.state.pin();
            if let Some(key) = of.written_anywhere(engine, &read_state, self.checked, latest)? {
                return Ok(Some(Changed { container, key }));
            }
        }
        self.checked = latest;
        Ok(None)
    }

    /// The reason why not all of it holds at this moment; none: all does. Under the commit lock the moment is that of
    /// the write. Elsewhere the settings were loaded at the moment or after it: then a change before it is seen.
    pub fn fault_at(&self, moment: &WriteMoment) -> Result<Option<Fault>> {
        for (container, of) in self.containers.iter().enumerate() {
            of.state.check()?;
            let changed = |key: &[u8]| {
                let key = key.to_vec();
                Ok(Some(Fault::Changed(Changed { container, key })))
            };
            if moment.now < self.now || !of.has_its_settings() {
                return changed(of.some_key());
            }
            if let Some((_, key)) = of.first_end.as_ref().filter(|(end, _)| *end <= moment.now) {
                return changed(key);
            }
            let read_state = of.state.read_state();
            if of.state.flushed() > self.checked {
                return Ok(Some(Fault::Flushed));
            }
            if let Some(key) = of.written_in_memory(&read_state, self.checked) {
                return changed(&key);
            }
            // After the looks: a job that has left out what they did not find has said so before.
            let left_out = of.state.changes_low_water();
            if self
                .nothing_left_out_since
                .is_some_and(|since| left_out > since)
            {
                return changed(of.some_key());
            }
        }
        let otherwise = |judged: &&Judged| self.holds(judged, moment) != judged.holds;
        Ok(self.judged.iter().find(otherwise).map(|judged| {
            let (container, key) = (judged.container, vec![]);
            Fault::Changed(Changed { container, key })
        }))
    }

    /// Under the commit lock: whether a name has another container than when it was looked up.
    pub fn has_other_names(&self, containers: &ContainerSet) -> bool {
        let mut names = self.names.iter();
        names.any(|(name, had)| containers.get(name).map(|state| state.id()) != *had)
    }

    /// See [`Settings::ttl_like`]: by the settings of a container after so many of its changes by the batch.
    pub fn ttl_like(
        &self,
        (container, changes): (usize, usize),
        countdown: Countdown,
        moment: &WriteMoment,
    ) -> Option<ItemTtl> {
        let settings = &self.containers[container].views.now.settings;
        let settings = self.settings_after(container, changes, moment, settings);
        settings.ttl_like(countdown, moment.now)
    }

    /// Whether it holds at this moment.
    pub fn holds(&self, judged: &Judged, moment: &WriteMoment) -> bool {
        let settings = &self.containers[judged.container].views.now.settings;
        let settings = self.settings_after(judged.container, judged.changes, moment, settings);
        let header = match judged.what {
            What::Like(countdown, ttl) => {
                return settings.ttl_like(countdown, moment.now) == ttl;
            }
            What::Seen(header) => header,
            What::Own(at, ttl) => {
                let (written_at, ttl) = ttl.resolve(moment.now);
                let seq = Seq(moment.first.0 + at as u64);
                Header {
                    kind: Kind::Put,
                    seq,
                    written_at,
                    ttl,
                }
            }
        };
        !ExpiryView::at(moment.now, || settings).dead(&header)
    }

    /// A container's settings after this many of the write's own changes.
    pub fn settings_after(
        &self,
        container: usize,
        changes: usize,
        moment: &WriteMoment,
        settings: &Settings,
    ) -> Settings {
        let own = self.changes_of(container).take(changes);
        own.fold(settings.clone(), |settings, own| {
            let seq = Seq(moment.first.0 + own.at as u64);
            settings.after(own.change, moment.settled, seq)
        })
    }

    /// The write's own changes of a container's settings.
    pub fn changes_of(&self, container: usize) -> impl Iterator<Item = &OwnChange> {
        let own = self.own_changes.iter();
        own.filter(move |own| own.container == container)
    }
}

impl ObservedContainer<'_> {
    /// Whether no write has changed the settings by which it was judged. A change under way, of the write itself too,
    /// has not yet.
    pub fn has_its_settings(&self) -> bool {
        self.state.settings_seq() == self.settings_seq
    }

    /// The versions that were found at keys.
    pub fn versions(&self) -> impl Iterator<Item = Seq> {
        self.keys.iter().filter_map(|(_, version)| version)
    }

    /// A key that was asked about, to be named in an error.
    fn some_key(&self) -> &[u8] {
        let range = self.ranges.iter().flatten().next();
        let from = range.map_or(&[][..], |range| &range.from);
        self.keys.keys().next().unwrap_or(from)
    }

    /// A key among the reads that was written after `since`, as far as the memtables know.
    fn written_in_memory(&self, read_state: &ReadState, since: Seq) -> Option<Vec<u8>> {
        let mut keys = self.keys.keys();
        if let Some(key) = keys.find(|key| read_state.written_since(key, since).is_some()) {
            return Some(key.to_vec());
        }
        self.range_written_in_memory(read_state, since)
    }

    fn range_written_in_memory(&self, read_state: &ReadState, since: Seq) -> Option<Vec<u8>> {
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

    /// The same up to `latest`, as memtables and runs know.
    fn written_anywhere(
        &self,
        engine: &Engine,
        read_state: &ReadState,
        since: Seq,
        latest: Seq,
    ) -> Result<Option<Vec<u8>>> {
        for (key, seen) in self.keys.iter() {
            let newest = engine.newest_version::<Wait>(read_state, key, latest)?;
            let newest = newest.map(|header| header.seq);
            let is_written = newest.is_some_and(|newest| newest > since);
            // Of a key that a range delete covers there is no newest version.
            let is_deleted = || read_state.range_deleted_since(key, since).is_some();
            if is_written || seen.is_some() && newest != seen || is_deleted() {
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
        Ok(self.range_written_in_memory(read_state, since))
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
