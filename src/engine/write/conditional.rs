//! Batches with conditions, with lifetimes to keep, or with changes of what containers are.
//!
//! ```text
//! before the commit lock     pin read states, clock, settings; walk the batch: read each key that a condition names, judge
//!                            the condition, encode what the log will hold
//!                            a condition does not hold: the write is left out, if the batch says so ([`OnMiss::Skip`]);
//!                            else look whether it still does not, then Error::Conflict
//! under the commit lock      all that was read and judged is so still (observed.rs): commit. Else: walk again
//! ```
//!
//! The walk goes through the batch in order and knows what earlier writes of the batch did: it reads no key that one of
//! them wrote. Such a write is judged by the stamp it will have, under the settings that the batch has made before it.
//! A write that was left out has done nothing. The version that a condition found, whether it held or not, is relied on
//! like anything that was read: so the outcomes are those of one moment, the batch's.

mod named;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::record::Header;
use crate::base::{ContainerId, Countdown, Error, ItemTtl, Patience, Result, Seq};
use crate::data::batch::{KeyRange, Op, Ops, WriteTtl};
use crate::data::item::Item;
use crate::data::range_tombstones::Fragments;
use crate::data::write::{Expect, OnMiss, Outcome};
use crate::engine::Engine;
use crate::engine::jobs::relog::make_room;
use crate::engine::parts::read_state::ReadState;
use crate::engine::write::commit::Begun;
use crate::engine::write::differing::Named;
use crate::engine::write::observed::{Judged, Observed, OwnChange, What, WriteMoment};
use crate::engine::write::prepared::weight_of;
use crate::engine::write::writes::{Condition, Demand, Writes, check_size, weight};

/// The result of reading a key that the batch had not written before.
struct Seen {
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

/// The effect of an earlier write of the batch on a key.
struct Own<'a> {
    /// The number of the write.
    at: usize,
    /// None: it deleted the key.
    put: Option<(WriteTtl, Bytes<'a>)>,
}

/// A key as a condition finds it.
struct Found<'a> {
    version: Option<Seq>,
    /// The ttl and value that a put keeps, and the ttl that a touch stores; none: no item is live.
    live: Option<(WriteTtl, WriteTtl, Bytes<'a>)>,
}

impl Found<'_> {
    const NOTHING: Found<'static> = Found {
        version: None,
        live: None,
    };

    fn meets(&self, demand: Demand) -> bool {
        let is_live = self.live.is_some();
        match demand {
            Demand::Expect(Expect::Absent) => !is_live,
            Demand::Expect(Expect::Present)
            | Demand::Touch
            | Demand::KeepValue
            | Demand::Rename => is_live,
            Demand::Expect(Expect::Version(expected)) => {
                is_live && self.version == Some(expected.seq())
            }
            Demand::Keep | Demand::Like(_) => true,
        }
    }
}

/// The decision about a write.
enum Walked<'a> {
    /// It is written, with all that it takes over.
    Done(Kept<'a>),
    /// It is left out.
    Skipped,
}

/// The parts of a write that the walk fills in.
#[derive(Default)]
struct Kept<'a> {
    ttl: Option<WriteTtl>,
    value: Option<Bytes<'a>>,
    /// The key that the item had, if it gets another.
    from: Option<&'a [u8]>,
    /// Whether the life that it is to have has passed: then its key is deleted.
    has_passed: bool,
}

/// The state of a walk through a batch.
struct Plan<'a> {
    engine: &'a Engine,
    writes: &'a Writes,
    /// Of each container, as the batch has them.
    read_states: Vec<Arc<ReadState>>,
    /// The reads that the batch relies on; its containers are in the same order.
    observed: Observed<'a>,
    seen: Vec<Seen>,
    /// Where in `seen` a key of a container is.
    seen_at: HashMap<(usize, &'a [u8]), usize>,
    own: HashMap<(usize, &'a [u8]), Own<'a>>,
    /// The range deletes of the batch in each container, with [`place_in_order`].
    ranges: HashMap<usize, Fragments>,
    /// The containers of names that the batch has gone by, as it has them.
    names: HashMap<&'a str, Option<ContainerId>>,
    /// The containers that the batch has dropped.
    dropped: HashSet<ContainerId>,
    /// A name has changed its container since the walk began.
    is_outdated: bool,
    /// The payload for the log, if it is not that of the batch.
    payload: Option<Vec<u8>>,
    /// How many writes it will hold.
    len: usize,
    /// The outcome of each write, in a batch that may leave some out.
    outcomes: Vec<Outcome>,
}

impl<'a> Plan<'a> {
    fn new<P: Patience>(engine: &'a Engine, writes: &'a Writes) -> Result<Plan<'a>, P::Failure> {
        // The sequence number comes before the read states: then they hold every write up to it.
        let mut observed = Observed::new(engine.commit_log.latest());
        let mut read_states = vec![];
        for state in writes.states() {
            read_states.push(state.pin());
            let (settings_seq, views) = engine.views_and_seq::<P>(state)?;
            observed.add(state, settings_seq, views);
        }
        let conditions = writes.conditions().iter();
        let is_changed = |condition: &Condition| !matches!(condition.demand, Demand::Expect(_));
        let changes = writes.may_skip() || writes.has_names() || conditions.clone().any(is_changed);
        Ok(Plan {
            engine,
            writes,
            read_states,
            observed,
            seen: vec![],
            seen_at: HashMap::new(),
            own: HashMap::new(),
            ranges: HashMap::new(),
            names: HashMap::new(),
            dropped: HashSet::new(),
            is_outdated: false,
            payload: changes.then(Vec::new),
            len: 0,
            outcomes: vec![],
        })
    }

    fn place_of(&self, id: ContainerId) -> usize {
        let mut states = self.writes.states().iter();
        let place = states.position(|state| state.id() == id);
        place.expect("a batch names its containers")
    }

    /// Goes through the batch; fails with the condition that does not hold.
    fn walk<P: Patience>(&mut self) -> Result<Result<(), &'a Condition>, P::Failure> {
        let writes = self.writes;
        let mut conditions = writes.conditions();
        let mut ops = Ops::new(writes.bytes());
        for at in 0..=writes.len() {
            let own = conditions.partition_point(|condition| condition.before <= at);
            let (of_this, later) = conditions.split_at(own);
            conditions = later;
            let walked = match self.judge::<P>(of_this)? {
                Ok(walked) => walked,
                Err(failed) => return Ok(Err(failed)),
            };
            let Some(op) = ops.next() else { break };
            let op = op.expect("a batch was encoded by this program");
            let named = match op {
                Op::Create { .. } | Op::Drop { .. } => self.find_named(op, at)?,
                op => Named::Write(op),
            };
            let outcome = match (walked, named) {
                (Walked::Done(_), Named::Write(Op::Create { container, new })) => {
                    self.add_new(container, new, at)?;
                    Outcome::Done
                }
                (Walked::Done(kept), Named::Write(op)) => {
                    self.add_completed(op, kept)?;
                    Outcome::Done
                }
                (_, Named::Changed) => Outcome::Done,
                _ => Outcome::Skipped,
            };
            if writes.may_skip() {
                self.outcomes.push(outcome);
            }
        }
        Ok(Ok(()))
    }

    /// Fails for a container that the batch has dropped.
    fn check_dropped(&self, id: ContainerId) -> Result<()> {
        let mut states = self.writes.states().iter();
        match states.find(|state| state.id() == id && self.dropped.contains(&id)) {
            Some(state) => Err(Error::ContainerDropped {
                name: state.name().to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Judges the conditions before a write.
    fn judge<P: Patience>(
        &mut self,
        conditions: &'a [Condition],
    ) -> Result<Result<Walked<'a>, &'a Condition>, P::Failure> {
        let mut own = Kept::default();
        for condition in conditions {
            self.check_dropped(self.writes.states()[condition.container].id())?;
            if let Demand::Like(countdown) = condition.demand {
                let ttl = self.ttl_at_the_stamp(condition.container, countdown);
                own.ttl = ttl.map(|ttl| WriteTtl::since(countdown, ttl));
                own.has_passed = ttl.is_none();
                continue;
            }
            let found = self.find::<P>(condition.container, &condition.key)?;
            if !found.meets(condition.demand) {
                return Ok(match condition.on_miss {
                    OnMiss::Skip => Ok(Walked::Skipped),
                    OnMiss::Conflict => Err(condition),
                });
            }
            if let Some((kept, touched, bytes)) = found.live {
                match condition.demand {
                    Demand::Expect(_) | Demand::Like(_) => {}
                    Demand::Keep => own.ttl = Some(kept),
                    Demand::KeepValue => own.value = Some(bytes),
                    Demand::Touch => (own.ttl, own.value) = (Some(touched), Some(bytes)),
                    Demand::Rename => {
                        (own.ttl, own.value) = (Some(kept), Some(bytes));
                        own.from = Some(&condition.key);
                    }
                }
            }
        }
        Ok(Ok(Walked::Done(own)))
    }

    /// Adds a write, completed with what it takes over, to the payload for the log.
    fn add_completed(&mut self, op: Op<'a>, kept: Kept<'a>) -> Result<()> {
        let container = op.container();
        let put = match op {
            Op::Put { key, .. } if kept.has_passed => Op::Delete { container, key },
            op => op,
        };
        self.add(put, kept.ttl, kept.value)?;
        match (op, kept.from) {
            (Op::Put { key: to, .. }, Some(key)) if to != key => {
                self.add(Op::Delete { container, key }, None, None)
            }
            _ => Ok(()),
        }
    }

    /// Adds a write, with the ttl and the value that it keeps of a live item.
    fn add(&mut self, op: Op<'a>, kept: Option<WriteTtl>, value: Option<Bytes<'a>>) -> Result<()> {
        if !matches!(op, Op::Drop { .. }) {
            self.check_dropped(op.container())?;
        }
        let (op, bytes) = match op {
            Op::Put {
                container,
                ttl,
                key,
                value: own,
            } => {
                let put = Op::Put {
                    container,
                    ttl: kept.unwrap_or(ttl),
                    key,
                    value: own,
                };
                (put, value.unwrap_or(Bytes::Own(own)))
            }
            op => (op, Bytes::Own(&[])),
        };
        self.note(self.len, &op, bytes);
        self.len += 1;
        let Some(mut payload) = self.payload.take() else {
            return Ok(());
        };
        let value = self.value(bytes);
        make_room(&mut payload, weight(&op) + value.len() as u64)?;
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
            .encode(&mut payload),
            op => op.encode(&mut payload),
        }
        check_size(&payload)?;
        self.payload = Some(payload);
        Ok(())
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

    /// Remembers the effect of a write, for later conditions.
    fn note(&mut self, at: usize, op: &Op<'a>, bytes: Bytes<'a>) {
        self.observed.changes_state |= !op.is_record();
        if matches!(op, Op::Drop { .. }) {
            return;
        }
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
            _ => {
                let change = op.of_settings().map(|change| OwnChange {
                    at,
                    container,
                    change,
                });
                self.observed.own_changes.extend(change);
            }
        }
    }

    /// Finds the state of the key of a condition.
    fn find<P: Patience>(
        &mut self,
        container: usize,
        key: &'a [u8],
    ) -> Result<Found<'a>, P::Failure> {
        let own = self.own.get(&(container, key));
        let own_place = own.map_or(Seq(0), |own| place_in_order(own.at));
        let ranges = self.ranges.get(&container);
        if ranges.is_some_and(|ranges| ranges.max_covering_seq(key) > own_place) {
            return Ok(Found::NOTHING);
        }
        match own {
            None => self.find_seen::<P>(container, key),
            Some(Own { put: None, .. }) => Ok(Found::NOTHING),
            Some(&Own {
                at,
                put: Some((ttl, bytes)),
            }) => {
                let touched = match ttl {
                    WriteTtl::Kept { ttl, .. } => ttl.into(),
                    ttl => ttl,
                };
                let is_live = self.lives_at_the_stamp(container, What::Own(at, ttl));
                Ok(Found {
                    version: None,
                    live: is_live.then_some((ttl, touched, bytes)),
                })
            }
        }
    }

    /// The same of a key that the batch has not written.
    fn find_seen<P: Patience>(
        &mut self,
        container: usize,
        key: &'a [u8],
    ) -> Result<Found<'a>, P::Failure> {
        let at = self.read::<P>(container, key)?;
        let Seen { version, item } = &self.seen[at];
        let Some(header) = *version else {
            return Ok(Found::NOTHING);
        };
        let is_changed = self.observed.changes_of(container).next().is_some();
        let is_live = match is_changed {
            false => item.is_some(),
            true => self.lives_at_the_stamp(container, What::Seen(header)),
        };
        let kept = WriteTtl::Keep.over(Some(&header));
        Ok(Found {
            version: Some(header.seq),
            live: is_live.then_some((kept, header.ttl.into(), Bytes::OfSeen(at))),
        })
    }

    /// Reads a key, once for all conditions on it.
    fn read<P: Patience>(&mut self, container: usize, key: &'a [u8]) -> Result<usize, P::Failure> {
        if let Some(&seen) = self.seen_at.get(&(container, key)) {
            return Ok(seen);
        }
        let (read_state, observed) = (&self.read_states[container], &mut self.observed);
        let view = &observed.containers[container].views.now;
        let latest = observed.checked();
        let (version, item) = self
            .engine
            .newest_checked::<P>(read_state, key, latest, view)?;
        observed.note(container, Cow::Borrowed(key), version.as_ref());
        let at = self.seen.len();
        self.seen_at.insert((container, key), at);
        self.seen.push(Seen { version, item });
        Ok(at)
    }

    /// Judges a version that depends on the stamp: one that the batch has written, or in a container whose settings it
    /// has changed.
    fn lives_at_the_stamp(&mut self, container: usize, what: What) -> bool {
        let moment = self.moment_now(container);
        let mut judged = Judged {
            container,
            changes: self.observed.changes_of(container).count(),
            what,
            holds: false,
        };
        judged.holds = self.observed.holds(&judged, &moment);
        let lives = judged.holds;
        self.observed.judged.push(judged);
        lives
    }

    /// The ttl of an item that is to live like another one; see [`Settings::ttl_like`](crate::expiry::Settings::ttl_like).
    fn ttl_at_the_stamp(&mut self, container: usize, countdown: Countdown) -> Option<ItemTtl> {
        let changes = self.observed.changes_of(container).count();
        let place = (container, changes);
        let ttl = self
            .observed
            .ttl_like(place, countdown, &self.moment_now(container));
        self.observed.judged.push(Judged {
            container,
            changes,
            what: What::Like(countdown, ttl),
            holds: true,
        });
        ttl
    }

    fn moment_now(&self, container: usize) -> WriteMoment {
        let views = &self.observed.containers[container].views;
        WriteMoment {
            first: self.observed.checked().next(),
            now: views.now.now,
            settled: views.settled.now,
        }
    }
}

/// Takes the place of the sequence number of a write of the batch, before it has one; above 0.
fn place_in_order(at: usize) -> Seq {
    Seq(at as u64 + 1)
}

impl Engine {
    /// Writes a batch with conditions, or one that changes settings, which waits for its sync.
    pub(in crate::engine) fn write_conditional<P: Patience>(
        &self,
        writes: &Writes,
    ) -> Result<(Begun, Vec<Outcome>), P::Failure> {
        P::require(|| !writes.change_state())?;
        loop {
            let done = match writes.with_existing(&self.containers) {
                None => self.try_conditional::<P>(writes)?,
                Some(named) => self.try_by_name::<P>(&named, writes.states().len())?,
            };
            if let Some(done) = done {
                return Ok(done);
            }
            P::would_wait()?;
        }
    }

    /// None: something it relies on has changed meanwhile.
    pub(in crate::engine) fn try_conditional<P: Patience>(
        &self,
        writes: &Writes,
    ) -> Result<Option<(Begun, Vec<Outcome>)>, P::Failure> {
        let mut plan = Plan::new::<P>(self, writes)?;
        let walked = plan.walk::<P>()?;
        if plan.is_outdated {
            return Ok(None);
        }
        if plan.observed.ends_unseen(self.commit_log.published()) {
            P::would_wait()?;
            self.make_visible(plan.observed.checked())?;
            return Ok(None);
        }
        if let Err(failed) = walked {
            let observed = plan.observed.only(failed.container, &failed.key);
            if !self.is_still::<P>(&observed)? {
                return Ok(None);
            }
            let name = writes.states()[failed.container].name();
            let conflict = Error::Conflict {
                container: name.to_owned(),
                key: failed.key.to_vec(),
            };
            return Err(conflict.into());
        }
        let begun = self.commit_plan::<P>(&mut plan)?;
        Ok(begun.map(|begun| (begun, plan.outcomes)))
    }

    fn commit_plan<P: Patience>(&self, plan: &mut Plan<'_>) -> Result<Option<Begun>, P::Failure> {
        let (writes, observed) = (plan.writes, &mut plan.observed);
        if plan.len == 0 {
            // It writes nothing; the versions it read must be visible to others before it returns.
            P::require(|| self.commit_log.published() >= observed.checked())?;
            self.make_visible(observed.checked())?;
            let commit = self.lock_commit::<P>()?;
            let (stamped, ()) = self.stamp_under(commit, observed.relies_on(), || ());
            let fault = observed.fault_at(&stamped.moment())?;
            let is_so = fault.is_none() && !observed.has_other_names(&self.containers);
            drop(stamped);
            return is_so.then(|| self.write_nothing::<P>(writes)).transpose();
        }
        let payload = plan.payload.as_deref().unwrap_or(writes.bytes());
        let charge = self.charge_all::<P>(writes.states(), payload)?;
        let prepared = self.prepare(writes, payload, plan.len, weight_of(payload), charge);
        if observed.changes_state {
            self.commit_log.sync_ahead()?;
        }
        Ok(self.commit_over::<P>(&prepared, observed)?.ok())
    }
}
