//! Batches with conditions, with lifetimes to keep, or with a change of settings.
//!
//! ```text
//! before the commit lock     pin read states, clock, settings; walk the batch: read each key that a condition names, judge
//!                            the condition, encode what the log will hold
//!                            a condition does not hold: read the key once more, then Error::Conflict
//! under the commit lock      stamp; check that no key that was read was written since, and that by this clock and these
//!                            settings the same items live: commit. Else: walk again
//! ```
//!
//! No file is read under the lock: a later write is in a memtable, or the container's flushed sequence number has
//! passed the versions that were read, and then the batch is walked again.
//!
//! The walk goes through the batch in order and knows what earlier writes of the batch did: it reads no key that one of
//! them wrote. Such a write is judged by the stamp it will have, under the settings that the batch has made before it.
//!
//! # Settings
//!
//! What a batch changes of settings, a default or by a command, is in the batch's frame of the log, so the whole batch
//! is durable or none of it. Whoever asks for the settings waits from before the clock is read until the log is synced
//! past the frame and the batch is published. A reader that loaded the published sequence number before, and then sees
//! later settings, loads it again. The next edit of the manifest, whichever it is, repeats the settings (catalog.rs).
//! Since removing the frame takes an edit, the manifest has them by then.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::base::record::{Header, Kind};
use crate::base::{ContainerId, Error, Result, Seq, Timestamp};
use crate::data::batch::{KeyRange, Op, Ops, WriteTtl};
use crate::data::item::Item;
use crate::data::range_tombstones::Fragments;
use crate::data::write::{Expect, Written};
use crate::engine::Engine;
use crate::engine::jobs::relog::make_room;
use crate::engine::parts::catalog::LoggedSettings;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::relied::SEVERAL;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::settings_cell::Changing;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::commit::{Stamped, ends_unseen};
use crate::engine::write::prepared::{Prepared, weight_of};
use crate::engine::write::writes::{Condition, Demand, Writes, check_size, weight};
use crate::expiry::{ExpiryView, ExpiryViews, Settings, SettingsChange};

/// What was read of a key that the batch had not written before.
struct Seen<'a> {
    container: usize,
    key: &'a [u8],
    /// The newest version, live or dead; none if there is none, or if a range delete covers it.
    version: Option<Header>,
    /// The item, if it was live when it was read.
    item: Option<Item>,
}

/// A value that a write of the batch stores.
#[derive(Clone, Copy)]
enum Bytes<'a> {
    Own(&'a [u8]),
    /// The value of the item that was read.
    OfSeen(usize),
}

/// What an earlier write of the batch did to a key.
struct Own<'a> {
    /// The index of the write.
    at: usize,
    /// None: it deleted the key.
    put: Option<(WriteTtl, Bytes<'a>)>,
}

/// A judgement that the batch relies on: that a version is live, or that it is not.
struct Liveness {
    container: usize,
    /// The number of changes of the container's settings before it in the batch.
    changes: usize,
    what: What,
    live: bool,
}

enum What {
    /// The version that was read.
    Seen(usize),
    /// The put of this index in the batch, with this ttl.
    Own(usize, WriteTtl),
}

/// The moment by which a batch is judged, which is that of its first sequence number.
struct Moment {
    first: Seq,
    now: Timestamp,
    settled: Timestamp,
}

impl Moment {
    fn of(stamped: &Stamped<'_>) -> Moment {
        Moment {
            first: stamped.commit.next_seq(),
            now: stamped.reading.now,
            settled: stamped.reading.settled,
        }
    }
}

/// A key as a condition finds it.
struct Found<'a> {
    seen: Option<usize>,
    version: Option<Seq>,
    /// The ttl and value that a put keeps, and the ttl that a touch stores; none: no item is live.
    live: Option<(WriteTtl, WriteTtl, Bytes<'a>)>,
}

/// The condition that does not hold, and the version it was judged by, unless that is of the batch itself.
struct Failed<'a> {
    condition: &'a Condition,
    seen: Option<usize>,
}

/// The state of a walk through a batch.
struct Plan<'a> {
    engine: &'a Engine,
    writes: &'a Writes,
    /// The walk saw no later write.
    latest: Seq,
    read_states: Vec<(Arc<ReadState>, ExpiryViews)>,
    seen: Vec<Seen<'a>>,
    /// Where in `seen` a key of a container is.
    seen_at: HashMap<(usize, &'a [u8]), usize>,
    liveness: Vec<Liveness>,
    own: HashMap<(usize, &'a [u8]), Own<'a>>,
    /// What the batch deletes of each container by range, with [`place_in_order`].
    ranges: HashMap<usize, Fragments>,
    /// The changes of settings: index of the write, container, change.
    of_settings: Vec<(usize, usize, SettingsChange)>,
}

impl<'a> Plan<'a> {
    fn new(engine: &'a Engine, writes: &'a Writes) -> Plan<'a> {
        // The sequence number comes before the read states: then they hold every write up to it.
        let latest = engine.commit_log.latest();
        let look = |state: &Arc<ContainerState>| (state.pin(), engine.expiry_views(state));
        Plan {
            engine,
            writes,
            latest,
            read_states: writes.states().iter().map(look).collect(),
            seen: vec![],
            seen_at: HashMap::new(),
            liveness: vec![],
            own: HashMap::new(),
            ranges: HashMap::new(),
            of_settings: vec![],
        }
    }

    fn place_of(&self, id: ContainerId) -> usize {
        let mut states = self.writes.states().iter();
        let place = states.position(|state| state.id() == id);
        place.expect("a batch names its containers")
    }

    /// Goes through the batch; returns what the log will hold, or the condition that does not hold.
    fn walk(&mut self) -> Result<std::result::Result<Cow<'a, [u8]>, Failed<'a>>> {
        let writes = self.writes;
        let takes_over = |condition: &Condition| !matches!(condition.demand, Demand::Expect(_));
        let mut payload = writes.conditions().iter().any(takes_over).then(Vec::new);
        let mut conditions = writes.conditions().iter().peekable();
        let mut ops = Ops::new(writes.bytes());
        for at in 0..=writes.len() {
            let mut instead = None;
            while let Some(condition) = conditions.next_if(|next| next.before == at) {
                let found = self.find(condition.container, &condition.key)?;
                let seen = found.seen;
                match (condition.demand, found.live) {
                    (Demand::Expect(expect), live) => {
                        if !meets(expect, live.is_some(), found.version) {
                            return Ok(Err(Failed { condition, seen }));
                        }
                    }
                    (Demand::Keep, live) => instead = live.map(|(kept, ..)| (kept, None)),
                    (Demand::Touch, None) => return Ok(Err(Failed { condition, seen })),
                    (Demand::Touch, Some((_, ttl, bytes))) => instead = Some((ttl, Some(bytes))),
                }
            }
            let Some(op) = ops.next() else { break };
            let op = op.expect("a batch was encoded by this program");
            let (op, bytes) = self.over(op, instead);
            self.note(at, &op, bytes);
            if let Some(payload) = &mut payload {
                make_room(payload, weight(&op) + self.value(bytes).len() as u64)?;
                let value = self.value(bytes);
                match op {
                    Op::Put {
                        container,
                        ttl,
                        key,
                        ..
                    } => Op::Put {
                        container,
                        ttl,
                        key,
                        value,
                    }
                    .encode(payload),
                    op => op.encode(payload),
                }
                check_size(payload)?;
            }
        }
        Ok(Ok(payload.map_or(Cow::Borrowed(writes.bytes()), Cow::Owned)))
    }

    /// Completes a write with what it keeps of the live item; returns also the value it stores.
    fn over(
        &self,
        op: Op<'a>,
        instead: Option<(WriteTtl, Option<Bytes<'a>>)>,
    ) -> (Op<'a>, Bytes<'a>) {
        match op {
            Op::Put {
                container,
                ttl,
                key,
                value,
            } => {
                let (ttl, bytes) = instead.unwrap_or((ttl, None));
                let put = Op::Put {
                    container,
                    ttl,
                    key,
                    value,
                };
                (put, bytes.unwrap_or(Bytes::Own(value)))
            }
            op => (op, Bytes::Own(&[])),
        }
    }

    fn value<'s>(&'s self, bytes: Bytes<'a>) -> &'s [u8] {
        match bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::OfSeen(seen) => {
                let item = self.seen[seen].item.as_ref();
                item.map(|item| &item.value()[..]).unwrap_or_default()
            }
        }
    }

    /// Remembers what a write does, for later conditions.
    fn note(&mut self, at: usize, op: &Op<'a>, bytes: Bytes<'a>) {
        let container = self.place_of(op.container());
        match *op {
            Op::Put { ttl, key, .. } => {
                let put = Some((ttl, bytes));
                self.own.insert((container, key), Own { at, put });
            }
            Op::Delete { key, .. } => {
                self.own.insert((container, key), Own { at, put: None });
            }
            Op::DeleteRange { from, to, .. } => {
                let range = KeyRange::of_bounds(from, to);
                let ranges = self.ranges.entry(container).or_default();
                *ranges = ranges.with(&range, place_in_order(at));
            }
            Op::SetDefault { .. } | Op::Expire { .. } => {
                let change = op.of_settings().expect("it is one");
                self.of_settings.push((at, container, change));
            }
        }
    }

    /// Finds what a condition asks about.
    fn find(&mut self, container: usize, key: &'a [u8]) -> Result<Found<'a>> {
        let mut nothing = Found {
            seen: None,
            version: None,
            live: None,
        };
        let own = self.own.get(&(container, key));
        let own_place = own.map_or(Seq(0), |own| place_in_order(own.at));
        let ranges = self.ranges.get(&container);
        if ranges.is_some_and(|ranges| ranges.max_covering_seq(key) > own_place) {
            return Ok(nothing);
        }
        let Some(&Own { at, put }) = own else {
            let seen = self.read(container, key)?;
            nothing.seen = Some(seen);
            if !self.is_live(container, What::Seen(seen)) {
                return Ok(nothing);
            }
            let header = self.seen[seen].version.expect("what lives is there");
            return Ok(Found {
                seen: Some(seen),
                version: Some(header.seq),
                live: Some((
                    WriteTtl::Keep.over(Some(&header)),
                    header.ttl.into(),
                    Bytes::OfSeen(seen),
                )),
            });
        };
        let Some((ttl, bytes)) = put else {
            return Ok(nothing);
        };
        let touched = match ttl {
            WriteTtl::Kept { ttl, .. } => ttl.into(),
            ttl => ttl,
        };
        let live = self.is_live(container, What::Own(at, ttl));
        nothing.live = live.then_some((ttl, touched, bytes));
        Ok(nothing)
    }

    /// Reads a key, once for all conditions on it.
    fn read(&mut self, container: usize, key: &'a [u8]) -> Result<usize> {
        if let Some(&seen) = self.seen_at.get(&(container, key)) {
            return Ok(seen);
        }
        let (read_state, expiry_views) = &self.read_states[container];
        let (version, item) =
            self.engine
                .newest_checked(read_state, key, self.latest, &expiry_views.now)?;
        let at = self.seen.len();
        self.seen_at.insert((container, key), at);
        self.seen.push(Seen {
            container,
            key,
            version,
            item,
        });
        Ok(at)
    }

    /// Whether it is live by the current time; the batch relies on the answer.
    fn is_live(&mut self, container: usize, what: What) -> bool {
        let mut of_settings = self.of_settings.iter();
        let changes = of_settings
            .by_ref()
            .filter(|(_, of, _)| *of == container)
            .count();
        let expiry_views = &self.read_states[container].1;
        let moment = Moment {
            first: self.latest.next(),
            now: expiry_views.now.now,
            settled: expiry_views.settled.now,
        };
        let mut judged = Liveness {
            container,
            changes,
            what,
            live: false,
        };
        judged.live = self.lives(&judged, &moment, expiry_views.now.settings.clone());
        let live = judged.live;
        self.liveness.push(judged);
        live
    }

    /// Whether it is live at this moment, under settings from before the batch.
    fn lives(&self, judged: &Liveness, moment: &Moment, settings: Settings) -> bool {
        let header = match judged.what {
            What::Seen(seen) => match self.seen[seen].version {
                Some(header) => header,
                None => return false,
            },
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
        let settings = self.changed(judged.container, judged.changes, moment, settings);
        !ExpiryView::at(moment.now, || settings).dead(&header)
    }

    /// A container's settings after this many changes by the batch.
    fn changed(
        &self,
        container: usize,
        changes: usize,
        moment: &Moment,
        settings: Settings,
    ) -> Settings {
        let own = self.of_settings.iter();
        let own = own.filter(|(_, of, _)| *of == container);
        own.take(changes)
            .fold(settings, |settings, (at, _, change)| {
                settings.after(*change, moment.settled, Seq(moment.first.0 + *at as u64))
            })
    }

    /// A container's settings after the whole batch.
    fn settings_after(
        &self,
        container: usize,
        moment: &Moment,
        settings: Settings,
    ) -> Result<LoggedSettings> {
        let own = self.of_settings.iter();
        let own: Vec<_> = own.filter(|(_, of, _)| *of == container).collect();
        let settings = self.changed(container, own.len(), moment, settings);
        let state = &self.writes.states()[container];
        let needed = state.as_needed(settings.clone(), self.engine.snapshots.oldest());
        for (_, _, change) in &own {
            state.check_standing(change, &needed)?;
        }
        let last = own.last().map_or(0, |(write, ..)| *write);
        Ok(LoggedSettings {
            container: state.id(),
            settings,
            seq: Seq(moment.first.0 + last as u64),
            settled: moment.settled,
        })
    }

    /// Whether the key was written since it was read.
    fn was_written(&self, seen: &Seen<'_>) -> bool {
        let state = &self.writes.states()[seen.container];
        let read_state = state.read_state();
        state.flushed() > self.latest || read_state.written_since(seen.key, self.latest).is_some()
    }

    /// Whether everything the batch relies on holds at this moment. `settings` returns the settings of a container.
    fn holds(&self, moment: &Moment, settings: impl Fn(usize) -> Settings) -> bool {
        !self.seen.iter().any(|seen| self.was_written(seen))
            && self
                .liveness
                .iter()
                .all(|judged| self.lives(judged, moment, settings(judged.container)) == judged.live)
    }

    /// The version relied on from the stamp until the batch is published.
    fn relies_on(&self) -> Option<Seq> {
        let mut versions = self.seen.iter().filter_map(|seen| seen.version);
        let first = versions.next()?.seq;
        Some(versions.next().map_or(first, |_| SEVERAL))
    }
}

/// What stands for the sequence number of a write of the batch, before it has one; above 0.
fn place_in_order(at: usize) -> Seq {
    Seq(at as u64 + 1)
}

fn meets(expect: Expect, live: bool, version: Option<Seq>) -> bool {
    match expect {
        Expect::Absent => !live,
        Expect::Present => live,
        Expect::Version(expected) => live && version == Some(expected.seq()),
    }
}

impl Engine {
    /// Writes a batch with conditions, or one that changes settings.
    pub(in crate::engine) fn write_conditional(&self, writes: &Writes) -> Result<Written> {
        loop {
            if let Some(written) = self.try_conditional(writes)? {
                return Ok(written);
            }
        }
    }

    /// None: something it relies on has changed meanwhile.
    fn try_conditional(&self, writes: &Writes) -> Result<Option<Written>> {
        let mut plan = Plan::new(self, writes);
        let walked = plan.walk()?;
        let published = self.commit_log.published();
        let ends_soon = |seen: &Seen<'_>| {
            let view = &plan.read_states[seen.container].1.now;
            seen.version
                .is_some_and(|header| ends_unseen(view, &header, published))
        };
        if plan.seen.iter().any(ends_soon) {
            self.make_visible(plan.latest)?;
            return Ok(None);
        }
        match walked {
            Err(failed) => self.conflict(&plan, &failed),
            Ok(payload) if writes.len() > 0 => self.commit_plan(&plan, &payload),
            // It writes nothing; the versions it read must be visible to others before it returns.
            Ok(_) => {
                self.make_visible(plan.latest)?;
                let stamped = self.stamp(plan.relies_on());
                let moment = Moment::of(&stamped);
                let holds = plan.holds(&moment, |at| writes.states()[at].settings());
                drop(stamped);
                holds.then(|| self.write_nothing(writes)).transpose()
            }
        }
    }

    /// The error of a condition that does not hold, if it still does not. None: it may hold by now.
    fn conflict(&self, plan: &Plan<'_>, failed: &Failed<'_>) -> Result<Option<Written>> {
        let state = &plan.writes.states()[failed.condition.container];
        if let Some(seen) = failed.seen {
            self.make_visible(plan.latest)?;
            let expiry_views = self.expiry_views(state);
            let moment = Moment {
                first: plan.latest.next(),
                now: expiry_views.now.now,
                settled: expiry_views.settled.now,
            };
            let version = plan.seen[seen].version;
            let in_use = version.is_some_and(|header| self.wait_if_relied_on(header.seq));
            let mut judged = plan
                .liveness
                .iter()
                .filter(|judged| matches!(judged.what, What::Seen(of) if of == seen));
            let is_same = judged.all(|judged| {
                plan.lives(judged, &moment, expiry_views.now.settings.clone()) == judged.live
            });
            if in_use || !is_same || plan.was_written(&plan.seen[seen]) {
                return Ok(None);
            }
        }
        Err(Error::Conflict {
            container: state.name().to_owned(),
            key: failed.condition.key.to_vec(),
        })
    }

    fn commit_plan(&self, plan: &Plan<'_>, payload: &[u8]) -> Result<Option<Written>> {
        let writes = plan.writes;
        let charge = self.charge_all(writes.states(), payload)?;
        let prepared = self.prepare(writes, payload, weight_of(payload), charge);
        if writes.change_settings() {
            return self.commit_settings(plan, &prepared);
        }
        let stamped = self.stamp(plan.relies_on());
        if !plan.holds(&Moment::of(&stamped), |at| writes.states()[at].settings()) {
            return Ok(None);
        }
        self.commit(stamped, &prepared).map(Some)
    }

    /// Commits a batch that changes settings: the changes count once they are durable.
    fn commit_settings(&self, plan: &Plan<'_>, prepared: &Prepared<'_>) -> Result<Option<Written>> {
        self.commit_log.sync_ahead()?;
        let states = plan.writes.states();
        let begin = || {
            let changes = |at: &usize| plan.of_settings.iter().any(|(_, of, _)| of == at);
            let changed = (0..states.len()).filter(changes);
            changed
                .map(|at| (at, states[at].begin_change()))
                .collect::<Vec<_>>()
        };
        let (mut stamped, mut changing): (Stamped<'_>, Vec<(usize, Changing<'_>)>) =
            self.stamp_after(plan.relies_on(), begin);
        let reading = stamped.reading;
        if reading.unsettled {
            return Err(Error::ClockUnsettled {
                wall: reading.now.to_system_time(),
                settled: reading.settled.to_system_time(),
            });
        }
        let moment = Moment::of(&stamped);
        let before = |at: usize| {
            let of = changing.iter().find(|(of, _)| *of == at);
            of.map_or_else(
                || states[at].settings(),
                |(_, changing)| changing.settings(),
            )
        };
        if !plan.holds(&moment, before) {
            return Ok(None);
        }
        let said = changing
            .iter()
            .map(|(at, changing)| plan.settings_after(*at, &moment, changing.settings()));
        let mut said: Vec<LoggedSettings> = said.collect::<Result<_>>()?;
        let logged = self.log_and_apply(&mut stamped, prepared)?;
        self.commit_log.log()?.sync_to(logged.position)?;
        self.commit_log.publish(logged.last);
        for ((at, changing), said) in changing.iter_mut().zip(&mut said) {
            // Only now all is stored that the batch has written.
            let oldest = self.snapshots.oldest();
            said.settings = states[*at].as_needed(said.settings.clone(), oldest);
            changing.change_to(said.settings.clone(), logged.last);
        }
        self.catalog.note_logged(said);
        drop(changing);
        for (_, at, change) in &plan.of_settings {
            states[*at].note_change(change);
        }
        let written = self.finish_commit(stamped, prepared, &logged)?;
        self.scheduler.wake(Thread::Merge);
        Ok(Some(written))
    }
}
