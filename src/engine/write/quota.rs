//! Quotas: a write is charged before it takes the commit lock, so nothing that this file does happens under it.
//!
//! ```text
//! charge, each quota ── from the slack ─────────────────────────────────────────────────────────> write
//!    └ used up: estimate live bytes ── they fit, as if nothing was replaced: slack ─────────────> write
//!                 └ read what is replaced ── what is added fits ───────────────────────────────> write
//!                      └ Refuse ──> Error::QuotaFull
//!                        ExpireSoonest ── plan, all quotas that are short ── expire_before(T) ── once more
//!                            └ one of them has no room after all ──> Error::QuotaFull, and nothing was expired
//! ```
//!
//! T is the earliest end of an item for which some 3 % of the limit become free, by the same estimates. The command
//! takes its sequence number before the write does, so the write is above it. A write counts for the quota of each of its
//! containers and for that of the database: what is expired for one of them makes room in the database's, too.
//!
//! A bulk load is charged once its tables are written, before they are named; the bytes that it replaces are found by
//! an estimate with these tables.
//!
//! An estimate costs up to some milliseconds, and is made anew only when it can have changed: something was written, or
//! an item has ended. A writer that replaces items of a full container by others of their size would need an estimate
//! for each write; so after an estimate below the limit at least a 64th of the limit may be written.

mod estimates;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::MutexGuard;
use crate::base::{ContainerId, Error, Patience, Result, Seq, Timestamp, Wait};
use crate::catalog::Run;
use crate::data::batch::{Op, Ops};
use crate::engine::Engine;
use crate::engine::inspect::report::estimate;
use crate::engine::jobs::next_version::next_version;
use crate::engine::parts::allowance::{Allowance, Charge, Known};
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::point::ReadPoint;
use crate::engine::write::quota::estimates::{
    Expirations, LiveEstimate, LiveGrowth, Replaced, SOONEST, frees_at, next_end,
};
use crate::env::sleep;
use crate::expiry::{Expire, SettingsChange};
use crate::values::{Quota, WhenFull};

/// The scope of a quota.
#[derive(Clone, Copy)]
enum QuotaScope<'a> {
    Container(&'a Arc<ContainerState>),
    Database,
}

impl QuotaScope<'_> {
    /// Whether a write to this container counts.
    fn holds(self, container: ContainerId) -> bool {
        match self {
            QuotaScope::Container(state) => state.id() == container,
            QuotaScope::Database => true,
        }
    }

    /// How many bytes are added, if nothing is replaced.
    fn weight(self, coming: &PendingWrites<'_>) -> u64 {
        match coming {
            PendingWrites::Ops(ops) => {
                let own = ops.iter().filter(|op| self.holds(op.container()));
                own.map(weight).sum()
            }
            PendingWrites::Load { state, weight, .. } if self.holds(state.id()) => *weight,
            PendingWrites::Load { .. } => 0,
        }
    }
}

/// The writes that are to be charged.
enum PendingWrites<'a> {
    /// Writes of one call.
    Ops(&'a [Op<'a>]),
    /// A bulk load.
    Load {
        state: &'a Arc<ContainerState>,
        /// Of all its records.
        weight: u64,
        /// Not installed yet.
        runs: &'a [Arc<Run>],
    },
}

/// The answer to writes for which there is no slack.
enum Room {
    /// They fit, and this many bytes are charged.
    Charged(u64),
    /// They do not.
    None(WhenFull),
    /// That is not known: some of the bytes in flight may be counted twice.
    InFlight,
}

/// A scope without room for writes, and its estimate.
struct Short<'a> {
    of: QuotaScope<'a>,
    known: MutexGuard<'a, Option<Known>>,
}

/// While bytes are in flight.
const PAUSE: Duration = Duration::from_micros(50);

/// As `RecordRef::weight` counts; only puts are live.
fn weight(op: &Op<'_>) -> u64 {
    match op {
        Op::Put { key, value, .. } => weight_of(key, value),
        _ => 0,
    }
}

/// The weight of an item.
pub(in crate::engine) fn weight_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + 16) as u64
}

impl Engine {
    /// Charges one write to the quotas it counts for, and makes room for it.
    #[inline(always)]
    pub(in crate::engine) fn charge_one<'a, P: Patience>(
        &'a self,
        state: &'a Arc<ContainerState>,
        op: &Op<'_>,
    ) -> Result<Charge<'a>, P::Failure> {
        if !self.is_limited(state) {
            return Ok(Charge::NONE);
        }
        let states = std::slice::from_ref(state);
        let ops = PendingWrites::Ops(std::slice::from_ref(op));
        self.charge::<P>(states, &ops)
    }

    /// Charges a batch, as the log will hold it.
    pub(in crate::engine) fn charge_all<'a, P: Patience>(
        &'a self,
        states: &'a [Arc<ContainerState>],
        payload: &[u8],
    ) -> Result<Charge<'a>, P::Failure> {
        if !states.iter().any(|state| self.is_limited(state)) {
            return Ok(Charge::NONE);
        }
        let ops: Vec<_> = Ops::new(payload).flatten().collect();
        self.charge::<P>(states, &PendingWrites::Ops(&ops))
    }

    /// Charges a bulk load with these runs, whose records weigh so much.
    pub(in crate::engine) fn charge_load<'a>(
        &'a self,
        state: &'a Arc<ContainerState>,
        weight: u64,
        runs: &[Arc<Run>],
    ) -> Result<Charge<'a>> {
        let load = PendingWrites::Load {
            state,
            weight,
            runs,
        };
        self.charge::<Wait>(std::slice::from_ref(state), &load)
    }

    /// Whether writes to the container are charged.
    #[inline(always)]
    pub(in crate::engine) fn is_limited(&self, state: &ContainerState) -> bool {
        state.allowance().is_limited() || self.allowance.is_limited()
    }

    /// Charges writes to their quotas; for a caller that must not wait, from slack alone.
    #[cold]
    fn charge<'a, P: Patience>(
        &'a self,
        states: &'a [Arc<ContainerState>],
        coming: &PendingWrites<'_>,
    ) -> Result<Charge<'a>, P::Failure> {
        // All in one order: a writer that waits for bytes in flight, or for an estimate, holds only what no writer before it
        // waits for.
        let mut ordered: Vec<_> = states.iter().collect();
        ordered.sort_unstable_by_key(|state| state.id());
        let containers = ordered.into_iter().map(QuotaScope::Container);
        let scopes: Vec<_> = containers.chain([QuotaScope::Database]).collect();
        loop {
            let mut charge = Charge::default();
            let short = self.charge_what_fits::<P>(&scopes, coming, &mut charge)?;
            if self.make_room(short, coming, &mut charge)? {
                return Ok(charge);
            }
            drop(charge);
            sleep(PAUSE);
        }
    }

    /// Charges the scopes that have room; returns the others.
    fn charge_what_fits<'a, P: Patience>(
        &'a self,
        scopes: &[QuotaScope<'a>],
        coming: &PendingWrites<'_>,
        charge: &mut Charge<'a>,
    ) -> Result<Vec<Short<'a>>, P::Failure> {
        let mut short: Vec<Short<'a>> = vec![];
        for of in scopes.iter().copied() {
            let (allowance, bytes) = (self.allowance_of(of), of.weight(coming));
            if !allowance.is_limited() || bytes == 0 {
                continue;
            }
            if allowance.take(bytes) {
                charge.add(allowance, bytes);
                continue;
            }
            P::would_wait()?;
            let mut known = allowance.known();
            let room = loop {
                match self.find_room(of, coming, &mut known)? {
                    Room::InFlight => sleep(PAUSE),
                    room => break room,
                }
            };
            match room {
                Room::Charged(bytes) => charge.add(allowance, bytes),
                Room::None(WhenFull::Refuse) if short.is_empty() => {
                    return Err(self.quota_full(of).into());
                }
                _ => short.push(Short { of, known }),
            }
        }
        Ok(short)
    }

    /// Makes room in the scopes that have none, and charges them: their estimates are held, so nobody takes it, or expires items
    /// for the same bytes. False: bytes are in flight of a writer that may wait for such an estimate, so nothing is to be held.
    fn make_room<'a>(
        &'a self,
        mut short: Vec<Short<'a>>,
        coming: &PendingWrites<'_>,
        charge: &mut Charge<'a>,
    ) -> Result<bool> {
        // Others write meanwhile, from slack.
        for _ in 0..3 {
            if short.is_empty() {
                return Ok(true);
            }
            if let Some(full) = self.expire_soonest(&short, coming)? {
                return Err(self.quota_full(full));
            }
            for mut one in std::mem::take(&mut short) {
                match self.find_room(one.of, coming, &mut one.known)? {
                    Room::Charged(bytes) => charge.add(self.allowance_of(one.of), bytes),
                    Room::InFlight => return Ok(false),
                    Room::None(_) => short.push(one),
                }
            }
        }
        match short.first() {
            None => Ok(true),
            Some(full) => Err(self.quota_full(full.of)),
        }
    }

    fn allowance_of<'a>(&'a self, of: QuotaScope<'a>) -> &'a Allowance {
        match of {
            QuotaScope::Container(state) => state.allowance(),
            QuotaScope::Database => &self.allowance,
        }
    }

    fn states_of(&self, of: QuotaScope<'_>) -> Vec<Arc<ContainerState>> {
        match of {
            QuotaScope::Container(state) => vec![state.clone()],
            QuotaScope::Database => self.containers.all(),
        }
    }

    /// Charges writes for which there is no slack, where there is room for them.
    fn find_room(
        &self,
        of: QuotaScope<'_>,
        coming: &PendingWrites<'_>,
        known: &mut Option<Known>,
    ) -> Result<Room> {
        let (allowance, bytes) = (self.allowance_of(of), of.weight(coming));
        let Some(quota) = allowance.quota() else {
            allowance.open(0, 0);
            return Ok(Room::Charged(0));
        };
        let (limit, in_flight) = (quota.max_live_bytes, allowance.close());
        let live = self.live_bytes(of, known);
        let left = limit.saturating_sub(live + in_flight);
        if bytes <= left {
            allowance.open(bytes, left.max(limit / 64).saturating_sub(bytes));
            return Ok(Room::Charged(bytes));
        }
        let added = self.growth(of, coming)?.bytes();
        if added <= left {
            allowance.open(added, 0);
            return Ok(Room::Charged(added));
        }
        Ok(match in_flight > 0 && live + added <= limit {
            true => Room::InFlight,
            false => Room::None(quota.when_full),
        })
    }

    /// An estimate of live bytes at this moment.
    fn live_bytes(&self, of: QuotaScope<'_>, known: &mut Option<Known>) -> u64 {
        let (mark, at) = (self.mark_of(of), self.now());
        let stands = |known: &Known| known.mark == mark && (known.at..known.until).contains(&at);
        if let Some(known) = known.filter(stands) {
            return known.live;
        }
        let seen = self.look_at(of);
        let live = seen.iter().map(LiveEstimate::live_bytes).sum();
        let until = next_end(&seen, at).unwrap_or(Timestamp::MAX);
        *known = Some(Known {
            live,
            mark,
            at,
            until,
        });
        live
    }

    /// Rises with each write, and differs after each change of settings.
    fn mark_of(&self, of: QuotaScope<'_>) -> (Seq, u64) {
        let settings = |states: &[Arc<ContainerState>]| {
            states.iter().map(|state| state.settings_version()).sum()
        };
        match of {
            QuotaScope::Container(state) => (state.last_write(), state.settings_version()),
            QuotaScope::Database => (self.commit_log.latest(), settings(&self.containers.all())),
        }
    }

    fn look_at(&self, of: QuotaScope<'_>) -> Vec<LiveEstimate> {
        let states = self.states_of(of).into_iter();
        let estimates = states.map(|state| {
            let view = self.expiry_view(&state);
            LiveEstimate::new(state, view)
        });
        estimates.collect()
    }

    fn growth(&self, of: QuotaScope<'_>, coming: &PendingWrites<'_>) -> Result<LiveGrowth> {
        match coming {
            PendingWrites::Ops(ops) => self.growth_by_ops(of, ops),
            PendingWrites::Load {
                state,
                weight,
                runs,
            } => Ok(self.growth_by_load(state, *weight, runs)),
        }
    }

    /// The growth by these writes: the last write to a key counts, less the bytes that are live there now. A range
    /// delete of the same batch is left out.
    fn growth_by_ops(&self, of: QuotaScope<'_>, ops: &[Op<'_>]) -> Result<LiveGrowth> {
        let (states, mut after) = (self.states_of(of), HashMap::new());
        for op in ops.iter().filter(|op| of.holds(op.container())) {
            if let Op::Put { key, .. } | Op::Delete { key, .. } = *op {
                after.insert((op.container(), key), weight(op));
            }
        }
        let (mut added, mut replaces) = (0, vec![]);
        for ((container, key), weight) in after {
            let state = states.iter().find(|state| state.id() == container);
            // A dropped container fails later.
            let Some(state) = state else { continue };
            added += weight;
            if let Some(item) = ReadPoint::<Wait>::new(self, state, None)?.item(key)? {
                let end = item.expires_at();
                let end = end.map_or(Timestamp::MAX, Timestamp::from_system_time_up);
                let bytes = weight_of(item.key(), item.value());
                replaces.push(Replaced::new(container, end, bytes));
            }
        }
        Ok(LiveGrowth::new(added, replaces))
    }

    /// The same of a bulk load, by estimates. They do not tell when what it replaces ends: so nothing is counted on once
    /// items were expired to make room, for these may be the ones.
    fn growth_by_load(
        &self,
        state: &Arc<ContainerState>,
        weight: u64,
        runs: &[Arc<Run>],
    ) -> LiveGrowth {
        let (read_state, view) = (state.pin(), self.expiry_view(state));
        let with_load = ReadState {
            active: read_state.active.clone(),
            sealed: read_state.sealed.clone(),
            version: Arc::new(next_version(&read_state.version, &[], runs, None)),
        };
        let live = |read_state| estimate(read_state, &view).live.bytes;
        let added = live(&with_load).saturating_sub(live(&read_state));
        let replaced = Replaced::new(state.id(), SOONEST, weight.saturating_sub(added));
        LiveGrowth::new(weight, vec![replaced])
    }

    /// Expires the items that end soonest, until these writes fit in all scopes with some to spare. Else the scope that has
    /// no room even so, and nothing was expired.
    fn expire_soonest<'a>(
        &self,
        short: &[Short<'a>],
        coming: &PendingWrites<'_>,
    ) -> Result<Option<QuotaScope<'a>>> {
        let mut plan = Expirations::default();
        for Short { of, .. } in short {
            let growth = self.growth(*of, coming)?;
            if !self.plan_room(*of, &growth, &mut plan) {
                return Ok(Some(*of));
            }
        }
        let command = |end: Timestamp| SettingsChange::Expire(Expire::Before(end.after(1)));
        // Nothing is expired for a write that is refused: where one of several would take no command, none gets one.
        let takes = |(one, end): (&LiveEstimate, Timestamp)| self.takes(one, command(end));
        if self.clock.read().unsettled || !plan.iter().all(takes) {
            return Ok(short.first().map(|short| short.of));
        }
        for (one, end) in plan.iter() {
            match self.change_settings(one.state(), command(end)) {
                Err(Error::ContainerDropped { .. }) => {}
                Err(Error::TooManyCommands { .. } | Error::ClockUnsettled { .. }) => {
                    return Ok(short.first().map(|short| short.of));
                }
                changed => changed?,
            }
        }
        Ok(None)
    }

    /// Adds what is to be expired for one scope to what is to be expired anyway. False: that is not enough, or nothing is
    /// expired for this scope.
    fn plan_room(&self, of: QuotaScope<'_>, growth: &LiveGrowth, plan: &mut Expirations) -> bool {
        let Some(quota) = self.allowance_of(of).quota() else {
            return true;
        };
        let (limit, seen, now) = (quota.max_live_bytes, self.look_at(of), self.now());
        let live_after = |end: Timestamp| {
            let end_of = |container| plan.of(container).max(end);
            let after = |one: &LiveEstimate| one.live_bytes_after(end_of(one.state().id()));
            seen.iter().map(after).sum::<u64>() + growth.bytes_after(end_of)
        };
        if live_after(Timestamp(0)) <= limit {
            return true;
        }
        if quota.when_full == WhenFull::Refuse {
            return false;
        }
        let mut ends: Vec<Timestamp> = seen.iter().flat_map(LiveEstimate::ends).collect();
        ends.retain(|end| (now.after(1)..Timestamp::MAX).contains(end));
        ends.sort_unstable();
        ends.dedup();
        let target = limit - limit / 100 * 3;
        let enough = ends.partition_point(|end| live_after(*end) > target);
        let Some(end) = ends.get(enough).or(ends.last()).copied() else {
            return false;
        };
        if live_after(end) > limit {
            return false;
        }
        for one in seen {
            let ends_some = one.live_bytes_after(end) < one.live_bytes();
            if ends_some && plan.of(one.state().id()) < end {
                plan.add(one, end);
            }
        }
        true
    }

    /// Whether a container has room for a command more.
    fn takes(&self, one: &LiveEstimate, command: SettingsChange) -> bool {
        let after = self.settings_after(one.state(), command, one.now());
        one.state().check_standing(&command, &after).is_ok()
    }

    #[cold]
    fn quota_full(&self, of: QuotaScope<'_>) -> Error {
        let name = match of {
            QuotaScope::Container(state) => Some(state.name().to_owned()),
            QuotaScope::Database => None,
        };
        let seen = self.look_at(of);
        let frees_at = frees_at(&seen, self.now());
        let quota = self.allowance_of(of).quota();
        Error::QuotaFull {
            container: name,
            limit: quota.map_or(u64::MAX, |quota| quota.max_live_bytes),
            live: seen.iter().map(LiveEstimate::live_bytes).sum(),
            frees_at: frees_at.map(Timestamp::to_system_time),
        }
    }

    /// Sets the quota of a container: durable when this returns.
    pub fn set_quota(&self, state: &Arc<ContainerState>, quota: Option<Quota>) -> Result<()> {
        quota.iter().try_for_each(Quota::check)?;
        let container = state.id();
        let _known = state.allowance().known();
        self.change_state(state, Op::SetQuota { container, quota })
    }

    /// The quota of the whole database.
    pub fn quota_of_all(&self) -> Option<Quota> {
        self.allowance.quota()
    }

    /// The quota of a container.
    pub fn quota(&self, state: &ContainerState) -> Option<Quota> {
        state.allowance().quota()
    }
}
