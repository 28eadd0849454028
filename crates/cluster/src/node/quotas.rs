//! Quotas, kept by the node that leads before it proposes: estimates of live bytes differ between replicas, so apply asks for none.
//!
//! ```text
//! charge ── from the slack ─────────────────────────────────────────────────────────> propose
//!    └ used up: estimate live bytes ── they fit, as if nothing was replaced: slack ──> propose
//!                 └ read what is replaced ── what is added fits ────────────────────> propose
//!                      └ some have ended since the last entry ── a tick, and once more
//!                        Refuse, or nothing with an end is left ──> Full: nothing was proposed
//!                        ExpireSoonest ── an entry with ExpireBefore(T) ── once more
//! ```
//!
//! T is the earliest end for which some 3 % of the limit become free, by the same estimates.
//!
//! Invariants:
//!
//! 1. Every byte that is proposed under a quota is in the slack taken since the last estimate, in flight, or in the state that is
//!    estimated. An op whose asker has given it up is in flight no more, until it is applied.
//! 2. Slack is of one quota and one term: in another term other nodes have proposed.
//! 3. A decision reaches other nodes by entries alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ebbtide::{Clock, Container, Quota, WhenFull};

use super::Core;
use crate::calls::{Asked, Full};
use crate::machine::body::{Act, Body, Command, Limit, Write, millis, moment};
use crate::raft::Stop;

/// Others write meanwhile: for one write room is made so often at most.
const TRIES: u32 = 3;
/// While bytes in flight may be counted twice an estimate waits so long, and so often at most.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES: u32 = 200;

/// The allowances of containers, by their names.
#[derive(Default)]
pub(super) struct Quotas(Mutex<HashMap<String, Arc<Allowance>>>);

/// The bytes that a container lets writes add before live bytes are estimated anew.
#[derive(Default)]
struct Allowance {
    state: Mutex<Slack>,
    /// One estimates at a time, and others wait for the slack.
    estimating: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Slack {
    /// The quota and the term that it is of.
    of: Option<(Quota, u64)>,
    left: u64,
    in_flight: u64,
}

impl Quotas {
    fn of(&self, container: &str) -> Arc<Allowance> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(container.to_owned()).or_default().clone()
    }
}

impl Allowance {
    fn lock(&self) -> MutexGuard<'_, Slack> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes from the slack, if it has them.
    fn take(&self, of: (Quota, u64), bytes: u64) -> bool {
        let mut slack = self.lock();
        let fits = slack.of == Some(of) && bytes <= slack.left;
        if fits {
            slack.left -= bytes;
            slack.in_flight += bytes;
        }
        fits
    }

    /// Leaves no slack to others; returns the bytes in flight.
    fn close(&self) -> u64 {
        let mut slack = self.lock();
        slack.left = 0;
        slack.in_flight
    }

    /// After an estimate: takes bytes, and leaves so much to others.
    fn open(&self, of: (Quota, u64), bytes: u64, left: u64) {
        let mut slack = self.lock();
        (slack.of, slack.left) = (Some(of), left);
        slack.in_flight += bytes;
    }
}

/// The bytes of an op in flight.
#[derive(Default)]
pub(super) struct Charge(Vec<(Arc<Allowance>, u64)>);

impl Drop for Charge {
    fn drop(&mut self) {
        for (allowance, bytes) in &self.0 {
            allowance.lock().in_flight -= bytes;
        }
    }
}

/// As the engine counts the bytes of an item.
fn weight_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + 16) as u64
}

/// The bytes of what a write leaves in the place of an item that it replaces or removes; none: it does neither.
fn leaves(write: &Write) -> Option<u64> {
    match &write.act {
        Act::Put(value, _) => Some(weight_of(&write.key, value)),
        Act::Delete | Act::Take => Some(0),
        Act::Touch | Act::Expire(_) | Act::Require => None,
    }
}

/// By how much writes would make live bytes grow.
struct Growth {
    weight: u64,
    /// The items that they replace: the end of each, and its bytes.
    replaces: Vec<(Option<SystemTime>, u64)>,
}

impl Growth {
    /// The last write to a key counts, less what is live there now.
    fn of(container: &Container, puts: &BTreeMap<Vec<u8>, u64>) -> ebbtide::Result<Growth> {
        let mut replaces = vec![];
        for key in puts.keys() {
            if let Some(item) = container.item(key)? {
                replaces.push((item.expires_at(), weight_of(item.key(), item.value())));
            }
        }
        let weight = puts.values().sum();
        Ok(Growth { weight, replaces })
    }

    /// Once all items that end before a moment have ended, so that none of them is replaced.
    fn bytes_after(&self, moment: SystemTime) -> u64 {
        let stays = |(end, _): &&(Option<SystemTime>, u64)| end.is_none_or(|end| end >= moment);
        let replaced = self.replaces.iter().filter(stays).map(|(_, bytes)| bytes);
        self.weight.saturating_sub(replaced.sum())
    }
}

/// A write that is to be charged, and what it is charged to.
struct Coming {
    container: Container,
    /// The last write to each key: what it leaves.
    puts: BTreeMap<Vec<u8>, u64>,
    quota: Quota,
    in_flight: u64,
    /// The log's time, and the clock's.
    now: SystemTime,
    wall: SystemTime,
}

/// The estimate for one.
struct Seen {
    live: u64,
    /// The bytes that it adds.
    added: u64,
    /// Something has ended by the clock, and not by the log's time yet.
    has_ended: bool,
    frees_at: Option<SystemTime>,
    /// Where all that ends before this moment is expired, it fits with some to spare.
    soonest: Option<SystemTime>,
}

impl Coming {
    fn look(&self) -> ebbtide::Result<Seen> {
        let growth = Growth::of(&self.container, &self.puts)?;
        let live = self.container.stats().live_bytes;
        let added = growth.bytes_after(SystemTime::UNIX_EPOCH);
        let fits = live + self.in_flight + added <= self.quota.max_live_bytes;
        let ends = match fits {
            true => vec![],
            false => self.container.due(),
        };
        let ends = ends.into_iter().map(|due| due.until);
        let ends: Vec<SystemTime> = ends.filter(|end| *end > self.now).collect();
        // An item has ended in the millisecond of its end.
        let behind = self.wall + Duration::from_millis(1);
        let by_clock = |before| self.container.preview_expire_before(before).bytes > 0;
        Ok(Seen {
            live,
            added,
            has_ended: !fits && self.wall > self.now && by_clock(behind),
            frees_at: ends.first().copied(),
            soonest: ends
                .last()
                .and_then(|last| self.soonest(live, &growth, *last)),
        })
    }

    /// None: it is not enough to expire all up to the last end.
    fn soonest(&self, live: u64, growth: &Growth, last: SystemTime) -> Option<SystemTime> {
        let limit = self.quota.max_live_bytes;
        let after = |before: SystemTime| {
            let expired = self.container.preview_expire_before(before).bytes;
            live.saturating_sub(expired) + growth.bytes_after(before)
        };
        let (mut low, mut high) = (millis(self.now), millis(last) + 1);
        if after(moment(high)) > limit {
            return None;
        }
        let target = limit - limit / 100 * 3;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match after(moment(middle)) > target {
                true => low = middle,
                false => high = middle,
            }
        }
        Some(moment(high))
    }
}

fn full(container: &str, quota: Quota, seen: &Seen) -> Full {
    Full {
        container: container.to_owned(),
        limit: quota.max_live_bytes,
        live: seen.live,
        frees_at_ms: seen.frees_at.map(millis),
    }
}

/// As the answer to another op: nothing of that was proposed.
fn not_proposed<T>(stop: Stop) -> Asked<T> {
    match stop {
        Stop::NotLeading | Stop::Lost(_) => Asked::NotLeading,
        Stop::Closed => Asked::Lost("the node is closing".to_owned()),
    }
}

impl Core {
    /// Charges an op to the quotas of its containers, as the leader, and makes room for it; else it is not to be proposed.
    pub(super) async fn charge<T>(&self, body: &Body) -> Result<Charge, Asked<T>> {
        let mut charge = Charge::default();
        if !self.replica.has_quotas() && !body.has_commands() {
            return Ok(charge);
        }
        // All in one order: one that waits for bytes in flight holds only charges that none before it waits for.
        let mut containers: BTreeMap<&str, u64> = BTreeMap::new();
        for write in body.items() {
            *containers.entry(&write.container).or_default() += leaves(write).unwrap_or(0);
        }
        for (container, bytes) in containers.into_iter().filter(|(_, bytes)| *bytes > 0) {
            // Commands come before the writes of their batch.
            let own = body.quota_of(container);
            let quota = own.map_or_else(
                || self.replica.quota(container),
                |own| own.map(Limit::quota),
            );
            let Some(quota) = quota else {
                continue;
            };
            let allowance = self.quotas.of(container);
            let of = (quota, self.replica.term());
            let bytes = match allowance.take(of, bytes) {
                true => bytes,
                false => self.make_room(container, of, &allowance, body).await?,
            };
            charge.0.push((allowance, bytes));
        }
        Ok(charge)
    }

    /// Charges writes for which there is no slack; returns the bytes charged.
    async fn make_room<T>(
        &self,
        container: &str,
        of: (Quota, u64),
        allowance: &Allowance,
        body: &Body,
    ) -> Result<u64, Asked<T>> {
        let (quota, limit) = (of.0, of.0.max_live_bytes);
        let items = body.items().iter();
        let own = items.filter(|write| write.container == container);
        let puts = own.filter_map(|write| Some((write.key.to_vec(), leaves(write)?)));
        let puts: BTreeMap<Vec<u8>, u64> = puts.collect();
        let bytes = puts.values().sum();
        let _one = allowance.estimating.lock().await;
        if allowance.take(of, bytes) {
            return Ok(bytes);
        }
        let (mut tries, mut pauses, mut has_ticked) = (TRIES, PAUSES, false);
        loop {
            let in_flight = allowance.close();
            let Some(seen) = self.look(container, quota, &puts, in_flight).await? else {
                return Ok(0);
            };
            let left = limit.saturating_sub(seen.live + in_flight);
            if seen.added <= left {
                // One that replaces items of a full container by others would need an estimate for each write.
                let more = left.max(limit / 64).saturating_sub(bytes);
                let (bytes, more) = match bytes <= left {
                    true => (bytes, more),
                    false => (seen.added, 0),
                };
                allowance.open(of, bytes, more);
                return Ok(bytes);
            }
            if in_flight > 0 && seen.live + seen.added <= limit && pauses > 0 {
                pauses -= 1;
                tokio::time::sleep(PAUSE).await;
            } else if seen.has_ended && !has_ticked {
                has_ticked = true;
                self.replica.tick().await.map_err(not_proposed)?;
            } else {
                let expires = quota.when_full == WhenFull::ExpireSoonest && tries > 0;
                let Some(soonest) = seen.soonest.filter(|_| expires) else {
                    return Err(Asked::Full(full(container, quota, &seen)));
                };
                tries -= 1;
                self.expire(container, soonest)
                    .await
                    .map_err(not_proposed)?;
            }
        }
    }

    /// None: there is no such container any more, which apply will say.
    async fn look<T>(
        &self,
        container: &str,
        quota: Quota,
        puts: &BTreeMap<Vec<u8>, u64>,
        in_flight: u64,
    ) -> Result<Option<Seen>, Asked<T>> {
        let Some(container) = self.replica.container(container) else {
            return Ok(None);
        };
        let coming = Coming {
            container,
            puts: puts.clone(),
            quota,
            in_flight,
            now: self.replica.database().now(),
            wall: moment(self.clock.wall()),
        };
        match tokio::task::spawn_blocking(move || coming.look()).await {
            Ok(Ok(seen)) => Ok(Some(seen)),
            // Nothing was proposed: it is tried again, by this node or the next leader.
            Ok(Err(_)) | Err(_) => Err(Asked::NotLeading),
        }
    }

    /// Expires, on all nodes, what ends before this moment.
    async fn expire(&self, container: &str, before: SystemTime) -> Result<(), Stop> {
        let what = Command::ExpireBefore(millis(before));
        let container = container.to_owned();
        let op = self.op(Body::Command { container, what });
        self.replica.write(op).await.map(drop)
    }
}
