//! The expirations of a container: each end of an item once, in the order of ends, then of keys.
//!
//! ```text
//! position                 up to                            beyond
//!    │  a 10.2  k 10.2  b 10.4 │ c 10.9   ...   x 55.0         │  not gathered
//! ───┴─────────────────────────┴───────────────────────────────┴───────────▶ ends
//!    given at this pull          known ahead, in memory
//! ```
//!
//! A reader gathers the ends next to its position from all that may have some: first [`FIRST`], then more each time, up to
//! [`GATHERED`]. It is told of writes that end among these (feeds.rs). So a pull with nothing new looks at one number, however
//! much is stored. It gathers again when all are given, when the settings change, or when more was written than is noted.
//!
//! Why each end comes once. The end of a record is a function of the record and of how the settings came about (ends.rs), and
//! is never before the moment of the write, of the change or of the command that sets it.
//!
//! 1. A pull reads settled time, T, then waits for the writes and changes that were stamped before, and gives ends
//!    before T. Each end by a later stamp is at T or after. So the ends before T are complete, and no new end comes
//!    before a cursor. A bulk load is stamped when it begins: an item of it that ended before the load took effect was
//!    never there, and its end may not be told.
//! 2. Each end is checked before it is given: has the newest visible version of the key this end, and is it still to be
//!    given? If not, the item was replaced or deleted before, or is written anew; an older version may end in the
//!    millisecond in which the newest had ended already. If no version is found, a job may have dropped it; then
//!    `dropped`, which is read after, is not before that end, and the pull fails. Records that the dropped version hid
//!    may still be stored. They had ended, too, when it was dropped; `dropped` is not before their ends either
//!    (feeds.rs), and a reader from there on is told that something is missing.
//! 3. A job may have judged at the very moment at which a reader begins. Of the ends at that moment the reader is given
//!    only those by a write above its first sequence number: no job that judged before knew of these, and none of the
//!    items was gone before. The settings need not tell ends by changes up to that number apart.
//! 4. A cursor that was given proves that settled time had reached it. If a reader is opened at the cursor while the
//!    clock is behind it, settled time starts at the cursor, as it does at the mark. Giving an end raises the mark,
//!    which becomes durable with the next write, or with the close. A cursor of a reader that has given nothing, and
//!    began with all of its moment, does so whenever it is opened.

mod wait;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::ser::SerializeStruct;

use crate::base::record::Header;
use crate::base::{Error, Result, Seq, Timestamp, Wait};
use crate::data::item::Value;
use crate::engine::Engine;
use crate::engine::inspect::due::each;
use crate::engine::parts::bell::Bell;
use crate::engine::parts::feeds::{FeedPin, Wants};
use crate::engine::parts::state::ContainerState;
use crate::engine::read::point::ReadPoint;
use crate::env::ClockBehind;
use crate::expiry::{Cause, Census, Ending, Settings};

pub use wait::Rest;

/// So many ends are gathered first, so that the first call does not sort all that are stored.
const FIRST: usize = 1 << 10;
/// Each gathering takes so many times more than the one before, so that few gatherings read many ends.
const MORE: usize = 16;
/// So many ends are gathered at a time at most.
const GATHERED: usize = 1 << 18;
/// ... and so many bytes of keys.
const GATHERED_BYTES: usize = 32 << 20;

/// The ends that were given: all before a moment, and at that moment those up to a key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Given {
    /// The moment.
    pub before: Timestamp,
    /// The last key at that moment, if one was given.
    #[serde(default)]
    pub key: Option<Vec<u8>>,
    /// At that moment, what ended by writes up to this sequence number had ended before the reader began.
    #[serde(default)]
    pub above: Option<Seq>,
}

/// Leaves out what is none, but not where a reader knows fields by their order alone.
impl serde::Serialize for Given {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let is_named = serializer.is_human_readable();
        let is_told = |is_some: bool| is_some || !is_named;
        let (key, above) = (is_told(self.key.is_some()), is_told(self.above.is_some()));
        let told = 1 + usize::from(key) + usize::from(above);
        let mut fields = serializer.serialize_struct("Given", told)?;
        fields.serialize_field("before", &self.before)?;
        if key {
            fields.serialize_field("key", &self.key)?;
        }
        if above {
            fields.serialize_field("above", &self.above)?;
        }
        fields.end()
    }
}

impl Given {
    /// All before a moment.
    pub fn before(moment: Timestamp) -> Given {
        Given {
            before: moment,
            key: None,
            above: None,
        }
    }

    fn has(&self, ending: &Ending, key: &[u8]) -> bool {
        let is_given = || self.key.as_deref().is_some_and(|last| key <= last);
        let is_older = || self.above.is_some_and(|above| ending.by <= above);
        ending.at < self.before || ending.at == self.before && (is_given() || is_older())
    }
}

/// Where a reader begins.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedPosition {
    /// At the oldest end that is known.
    Start,
    /// At ends from now on.
    Now,
    /// At ends from a moment on; if it is that of the opening, at ends from now on.
    From(Timestamp),
    /// At all ends from a moment on.
    Since(Timestamp),
    /// After the ends that were given.
    After(Given),
}

/// An item that has ended.
#[derive(Clone)]
pub struct Ended {
    /// Its key.
    pub key: Box<[u8]>,
    /// Its value.
    pub value: Value,
    /// The record.
    pub header: Header,
    /// The moment of the end.
    pub at: Timestamp,
    /// The cause of the end.
    pub cause: Cause,
}

/// The end of an item: its moment, and the key.
type End = (Timestamp, Box<[u8]>);

/// A reader of expirations.
pub struct Feed {
    given: Given,
    /// Whether it begins at the oldest known end and has not been asked successfully yet.
    begins: bool,
    /// An end was given, or it has caught up: settled time has reached its position.
    is_proof: bool,
    /// The ends ahead, each with its key.
    ahead: BTreeSet<End>,
    /// The bytes of their keys.
    ahead_bytes: usize,
    /// So many are gathered at a time now.
    most: usize,
    /// Writes and changes that were stamped before this moment are visible.
    passed: Timestamp,
    /// The first end that is not gathered; none: all are.
    beyond: Option<End>,
    /// The settings of the gathering, and their version; none: nothing was gathered.
    settings: Arc<Settings>,
    version: Option<u64>,
    /// Only ends by these causes are given; none: all are.
    causes: Option<Vec<Cause>>,
    /// An end counts as missed only if a job of this database has left it out, also where time is given.
    is_local: bool,
    reading: FeedPin,
}

impl Feed {
    /// Its position.
    pub fn place(&self) -> FeedPosition {
        match self.is_proof || self.given.above.is_some() {
            true => FeedPosition::After(self.given.clone()),
            false => FeedPosition::Since(self.given.before),
        }
    }

    /// All ends before this moment were given.
    pub fn told_before(&self) -> Timestamp {
        self.given.before
    }

    /// The bell that ends its wait.
    pub fn bell(&self) -> &Arc<Bell> {
        self.reading.bell()
    }

    /// The same reader, for which ends count as missed only if a job of this database has left them out. Others miss the same
    /// ends in every database of one history of given time.
    pub fn locally(self) -> Feed {
        Feed {
            is_local: true,
            ..self
        }
    }

    /// From now on it gives only ends by these causes.
    pub fn only(&mut self, causes: Vec<Cause>) {
        self.causes = Some(causes);
        // Ends by these may have been passed over.
        self.version = None;
    }

    /// Adds the end of a record to the ends ahead, if it belongs there.
    fn take_in(&mut self, header: &Header, key: &[u8]) {
        self.take_in_from(None, header, key);
    }

    /// The same, unless it lies before this end.
    fn take_in_from(&mut self, from: Option<&End>, header: &Header, key: &[u8]) {
        let ending = match self.settings.ending(header) {
            Some(ending) if ending.at < Timestamp::MAX => ending,
            _ => return,
        };
        let end = ending.at;
        let is_behind = |(at, first): &End| (end, key) >= (*at, first);
        if self.given.has(&ending, key)
            || self.beyond.as_ref().is_some_and(is_behind)
            || !from.is_none_or(is_behind)
        {
            return;
        }
        if self.ahead.insert((end, key.into())) {
            self.ahead_bytes += key.len();
        }
        while self.ahead.len() > self.most
            || self.ahead_bytes > GATHERED_BYTES && self.ahead.len() > 1
        {
            self.beyond = self.ahead.pop_last();
            self.ahead_bytes -= self.beyond.as_ref().map_or(0, |(_, key)| key.len());
        }
    }

    /// Takes out the first end, of which there is one.
    fn take_first(&mut self) -> End {
        let first = self.ahead.pop_first().expect("one is due");
        self.ahead_bytes -= first.1.len();
        first
    }

    /// The moment of the first end that is not gathered.
    fn gathered_to(&self) -> Timestamp {
        self.beyond.as_ref().map_or(Timestamp::MAX, |first| first.0)
    }

    /// Moves the position over this end, which was given or is none any more.
    fn pass(&mut self, end: Timestamp, key: &[u8], up_to: Timestamp) {
        let next = self.ahead.first().map_or(Timestamp::MAX, |next| next.0);
        let next = next.min(self.gathered_to()).min(up_to);
        self.given = match next > end {
            true => Given::before(next),
            false => Given {
                key: Some(key.to_vec()),
                above: self.given.above.filter(|_| self.given.before == end),
                before: end,
            },
        };
        self.is_proof = true;
    }
}

impl Engine {
    /// A reader of a container's expirations.
    pub fn feed(&self, state: &ContainerState, from: FeedPosition) -> Result<Feed> {
        self.check_open(state)?;
        if self.follower.is_some() {
            return Err(Error::ReadOnly);
        }
        let (begins, is_proof) = (
            from == FeedPosition::Start,
            matches!(from, FeedPosition::After(_)),
        );
        if let FeedPosition::After(given) = &from {
            self.reach(given.before)?;
        }
        let (reading, before, above) = state.feeds().open(|| self.begin(state, &from));
        let given = match from {
            FeedPosition::After(given) => given,
            _ => Given {
                above,
                ..Given::before(before)
            },
        };
        let feed = Feed {
            reading,
            given,
            begins,
            is_proof,
            ahead: BTreeSet::new(),
            ahead_bytes: 0,
            most: FIRST,
            passed: Timestamp(0),
            beyond: None,
            settings: Arc::default(),
            version: None,
            causes: None,
            is_local: false,
        };
        self.check_known(state, &feed)?;
        Ok(feed)
    }

    /// The moment at which a reader begins, the sequence number above which it does at that moment, if there is one, and
    /// whether it asks for all ends from there on, also for those that jobs have left out before.
    fn begin(&self, state: &ContainerState, from: &FeedPosition) -> (Timestamp, Option<Seq>, bool) {
        // Read first: so it is at most the moment after now.
        let (oldest, oldest_above) = self.oldest_told(state);
        let settled = self.clock.read().settled;
        match from {
            FeedPosition::After(given) => (given.before, given.above, true),
            FeedPosition::Start if oldest <= settled => (oldest, oldest_above, false),
            FeedPosition::Since(moment) => (*moment, None, true),
            FeedPosition::From(moment) if *moment != settled => (*moment, None, true),
            // A job may have judged at this very moment.
            _ => (settled, Some(self.commit_log.published()), false),
        }
    }

    /// Settled time is no earlier than the moment of a cursor that was given.
    fn reach(&self, moment: Timestamp) -> Result<()> {
        if self.given_time.is_none() {
            return self.clock.advance_to(moment, ClockBehind::Refuse);
        }
        let now = self.clock.now();
        match moment > now {
            true => Err(Error::AheadOfTime {
                moment: moment.to_system_time(),
                now: now.to_system_time(),
            }),
            false => Ok(()),
        }
    }

    /// The ends up to this moment are known no more; `None`: all are known.
    fn ends_dropped(&self, state: &ContainerState) -> Option<Timestamp> {
        match &self.given_time {
            None => state.feeds().dropped(),
            Some(given) => {
                let dropped = self.given_ends_dropped(given, state);
                // Ends that were kept for less long, earlier, are known no more either.
                let dropped = dropped.max(state.feeds().dropped().unwrap_or_default());
                (dropped > Timestamp(0)).then_some(dropped)
            }
        }
    }

    /// From this moment on jobs have left out no end.
    fn ends_kept_from(&self, state: &ContainerState) -> Timestamp {
        let dropped = self.ends_dropped(state);
        dropped.map_or(Timestamp(0), |dropped| dropped.after(1))
    }

    /// The place of the oldest end that is known.
    fn oldest_told(&self, state: &ContainerState) -> (Timestamp, Option<Seq>) {
        let (kept_from, told) = (
            self.ends_kept_from(state),
            state.whole_settings().told_from(),
        );
        match kept_from > told.0 {
            true => (kept_from, None),
            false => told,
        }
    }

    /// From this moment on all ends are known.
    fn ends_known_from(&self, state: &ContainerState) -> Timestamp {
        let kept_from = self.ends_kept_from(state);
        kept_from.max(state.whole_settings().known_from())
    }

    fn check_known(&self, state: &ContainerState, feed: &Feed) -> Result<()> {
        let Given { before, above, .. } = feed.given;
        let is_given = self.given_time.is_some() && !feed.is_local;
        let has_missed = || is_given || feed.reading.has_missed();
        let is_dropped = before < self.ends_kept_from(state) && has_missed();
        match is_dropped || !state.whole_settings().tell_ends_from(before, above) {
            true => Err(Error::ExpirationsGone {
                container: state.name().to_owned(),
                known_from: self.ends_known_from(state).to_system_time(),
            }),
            false => Ok(()),
        }
    }

    /// The next item that has ended; none: there is no other by now.
    pub fn next_ended(
        &self,
        state: &Arc<ContainerState>,
        feed: &mut Feed,
    ) -> Result<Option<Ended>> {
        loop {
            match self.next_of(state, feed) {
                // A job has left out the oldest end since it was opened: mostly one that had judged before.
                Err(Error::ExpirationsGone { .. }) if feed.begins => {
                    let causes = feed.causes.take();
                    *feed = self.feed(state, FeedPosition::Start)?;
                    feed.causes = causes;
                }
                next => {
                    feed.begins &= next.is_err();
                    return next;
                }
            }
        }
    }

    fn next_of(&self, state: &Arc<ContainerState>, feed: &mut Feed) -> Result<Option<Ended>> {
        self.check_open(state)?;
        self.check_known(state, feed)?;
        let is_current = feed.version == Some(state.settings_version());
        let is_below = |next: &End| next.0 < feed.passed;
        let is_kept = is_current && feed.ahead.first().is_some_and(is_below);
        if !is_kept {
            feed.passed = self.clock.read().settled;
            self.wait_for_stamped();
        }
        let up_to = feed.passed;
        let noted = feed.reading.take();
        if noted.is_full || feed.version != Some(state.settings_version()) {
            self.gather_ends(state, feed)?;
        } else {
            noted
                .writes
                .iter()
                .for_each(|(header, key)| feed.take_in(header, key));
        }
        loop {
            let is_due = |next: &End| next.0 < up_to;
            if !feed.ahead.first().is_some_and(is_due) {
                if feed.gathered_to() < up_to {
                    self.gather_ends(state, feed)?;
                    continue;
                }
                self.check_known(state, feed)?;
                if is_kept {
                    // The next end may have come meanwhile.
                    feed.passed = Timestamp(0);
                    return self.next_of(state, feed);
                }
                if up_to > feed.given.before {
                    feed.given = Given::before(up_to);
                    feed.is_proof = true;
                }
                feed.reading.advance_to(feed.given.before);
                return Ok(None);
            }
            let (end, key) = feed.take_first();
            let ended = self.ended(state, feed, end, &key);
            // It was not given: a later call gathers it again.
            let ended = ended.inspect_err(|_| feed.version = None)?;
            self.check_known(state, feed)?;
            feed.pass(end, &key, up_to);
            if ended.is_some() {
                // A cursor proves that time was there; where time is given, no reader moves the mark.
                if self.given_time.is_none() {
                    self.commit_log.rely_on(up_to);
                }
                feed.reading.advance_to(feed.given.before);
                return Ok(ended);
            }
        }
    }

    /// The newest version of a key, if it has this end, by a cause that is asked for, and was neither given nor over when the
    /// reader began.
    fn ended(
        &self,
        state: &Arc<ContainerState>,
        feed: &Feed,
        end: Timestamp,
        key: &[u8],
    ) -> Result<Option<Ended>> {
        let point = ReadPoint::<Wait>::new(self, state, None)?;
        let Some(hit) = point.newest(key)? else {
            return Ok(None);
        };
        let header = hit.header();
        if header.is_tombstone() {
            return Ok(None);
        }
        let is_asked_for = |cause| feed.causes.as_ref().is_none_or(|all| all.contains(&cause));
        let is_wanted = |ending: &Ending| {
            ending.at == end && is_asked_for(ending.cause) && !feed.given.has(ending, key)
        };
        Ok(match feed.settings.ending(&header) {
            Some(ending) if is_wanted(&ending) => Some(Ended {
                key: key.into(),
                value: hit.value::<Wait>()?.into(),
                header,
                at: end,
                cause: ending.cause,
            }),
            _ => None,
        })
    }

    /// Gathers the next ends from all that may have some.
    fn gather_ends(&self, state: &ContainerState, feed: &mut Feed) -> Result<()> {
        feed.version = None;
        feed.reading.want(Wants::ALL);
        let _ = feed.reading.take();
        // After this, a write that was noted by the old `wants` is in the read state.
        self.commit_log.wait_for_commit();
        let version = loop {
            let version = state.settings_version();
            feed.settings = state.whole_settings();
            if version == state.settings_version() {
                break version;
            }
        };
        let went_beyond = feed.beyond.take().is_some();
        (feed.ahead, feed.ahead_bytes) = (BTreeSet::new(), 0);
        self.gather_from(state, feed, None, went_beyond)?;
        feed.version = Some(version);
        Ok(())
    }

    /// Gathers the ends beyond those that were gathered, none of which is an end any more. Writes that are noted stay so.
    fn gather_beyond(&self, state: &ContainerState, feed: &mut Feed) -> Result<()> {
        let version = feed.version.take();
        let from = feed.beyond.take();
        feed.reading.want(Wants::ALL);
        // After this, a write that was not noted is in the read state.
        self.commit_log.wait_for_commit();
        self.gather_from(state, feed, from.as_ref(), true)?;
        feed.version = version;
        Ok(())
    }

    /// Reads ends from this one on, more than the last time if that did not reach all.
    fn gather_from(
        &self,
        state: &ContainerState,
        feed: &mut Feed,
        from: Option<&End>,
        takes_more: bool,
    ) -> Result<()> {
        if takes_more {
            feed.most = GATHERED.min(feed.most * MORE);
        }
        let (read_state, settings) = (state.pin(), feed.settings.clone());
        let first = from.map_or(feed.given.before, |from| from.0);
        let changed = settings.last_change() >= feed.given.before;
        let has_some = |census: &Census, feed: &Feed| {
            census.may_end_within(&settings, first, feed.gathered_to().after(1))
                || changed && census.seq_min < settings.last_change_seq()
        };
        for flushable in read_state.flushables() {
            if has_some(&flushable.memtable.census(), feed) {
                each(flushable.memtable.cursor(), &mut |record| {
                    if !record.header.is_tombstone() {
                        feed.take_in_from(from, &record.header, record.key);
                    }
                })?;
            }
        }
        for run in &read_state.version.runs {
            for file in &run.files {
                if has_some(&file.table.statistics().census, feed) {
                    let table: Arc<[_]> = [file.table.clone()].into();
                    each(crate::table::RunCursor::new(table), &mut |record| {
                        if !record.header.is_tombstone() {
                            feed.take_in_from(from, &record.header, record.key);
                        }
                    })?;
                }
            }
        }
        feed.reading
            .want(Wants::up_to(feed.gathered_to(), &settings));
        Ok(())
    }
}
