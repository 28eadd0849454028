//! Quotas, kept by the node that leads before it proposes: estimates of live bytes differ between replicas, so apply asks for none.
//!
//! ```text
//! charge ── from the slack ─────────────────────────────────────────────────────────> propose
//!    └ used up: estimate live bytes ── they fit, as if nothing was replaced: slack ──> propose
//!                 └ read what is replaced ── what is added fits ────────────────────> propose
//!                      └ some have ended since the last entry ── a tick, and once more
//!                        its conditions do not hold, or it was done before ────────────> propose: it writes nothing
//!                        Refuse, or nothing with an end is left ──> Full: nothing was proposed
//!                        ExpireSoonest ── all containers that are short: an entry with ExpireBefore(T) each ── once more
//!                            └ one has no room even so, or takes no command more ──> Full: nothing was proposed
//! ```
//!
//! T is the earliest end for which some 3 % of the limit become free, by the same estimates.
//!
//! Each command to expire items that stands in a container costs its reads and estimates time, until what it concerns is off the
//! disk. How many stand differs between replicas, so apply takes any number, and the leader stops at [`MOST_COMMANDS`].
//!
//! Invariants:
//!
//! 1. Every byte that is proposed under a quota is in the slack taken since the last estimate, in flight, or in the state that is
//!    estimated (allowances.rs).
//! 2. One command to expire items is on its way at a time, and it was counted before it was proposed.
//! 3. A decision reaches other nodes by entries alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ebbtide::{Clock, Container, Quota, WhenFull};
use ebbtide_openraft::{Answer, Op, View};
use tokio::sync::OwnedMutexGuard;

use super::Core;
use super::allowances::{Allowance, Charge};
use crate::calls::{Asked, Full};
use crate::machine::body::{Act, Body, Command, Limit, Reply, When, Write, millis, moment};
use crate::machine::judge::judge;
use crate::raft::Stop;

/// Others write meanwhile: for one write room is made so often at most.
const TRIES: u32 = 3;
/// While bytes in flight may be counted twice an estimate waits so long, and so often at most.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES: u32 = 200;
/// So many commands to expire items may stand in a container. It is less than what the engine takes where it has a time of its own
/// (64), for a leader of before may have some on their way.
const MOST_COMMANDS: u64 = 48;

/// As the engine counts the bytes of an item.
fn weight_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + 16) as u64
}

/// The bytes of what a write leaves in the place of an item that it replaces or removes; none: it does neither.
fn leaves(write: &Write) -> Option<u64> {
    match &write.act {
        Act::Put(value, _) | Act::PutLike(value, ..) => Some(weight_of(&write.key, value)),
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
    /// All writes of its op and the state that their conditions are judged by, where it has conditions.
    judged: Option<(Vec<Write>, View)>,
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
    /// By its conditions; only where it does not fit.
    writes_nothing: bool,
    frees_at: Option<SystemTime>,
    /// Where all that ends before this moment is expired, it fits with some to spare.
    soonest: Option<SystemTime>,
}

impl Coming {
    fn look(mut self) -> ebbtide::Result<Seen> {
        let growth = Growth::of(&self.container, &self.puts)?;
        let live = self.container.stats().live_bytes;
        let added = growth.bytes_after(SystemTime::UNIX_EPOCH);
        let fits = live + self.in_flight + added <= self.quota.max_live_bytes;
        let judged = self.judged.as_mut().filter(|_| !fits);
        let stop = judged.map(|(writes, view)| judge(writes, view));
        let writes_nothing = stop.transpose()?.flatten().is_some();
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
            writes_nothing,
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

/// The answer to writes for which there is no slack.
enum Room {
    /// They fit, and this many bytes are charged.
    Charged(u64),
    /// They do not; where items may be expired for them, up to which moment.
    Short(Full, Option<SystemTime>),
}

/// A container without room for writes, in which items may be expired for them.
struct Short<'a> {
    container: &'a str,
    /// Its quota, and the term.
    of: (Quota, u64),
    allowance: Arc<Allowance>,
    before: SystemTime,
    full: Full,
    _estimate: OwnedMutexGuard<()>,
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
    pub(super) async fn charge<T>(&self, op: &Op<Body>) -> Result<Charge, Asked<T>> {
        let body = &op.body;
        if let Body::Command { .. } = body {
            return Ok(Charge::of(self.let_command(op).await?));
        }
        if !self.replica.has_quotas() && !body.has_commands() {
            return Ok(Charge::default());
        }
        // All in one order: one that waits for bytes in flight, or for an estimate, holds only what none before it waits for.
        let mut containers: BTreeMap<&str, u64> = BTreeMap::new();
        for write in body.items() {
            *containers.entry(&write.container).or_default() += leaves(write).unwrap_or(0);
        }
        containers.retain(|_, bytes| *bytes > 0);
        let (mut charge, mut short) = (Charge::default(), vec![]);
        for (container, bytes) in containers {
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
            if allowance.take(of, bytes) {
                charge.add(allowance, bytes);
                continue;
            }
            let estimate = allowance.estimate().await;
            match self.find_room(container, of, &allowance, op).await? {
                Room::Charged(bytes) => charge.add(allowance, bytes),
                Room::Short(full, None) => return Err(Asked::Full(full)),
                Room::Short(full, Some(before)) => short.push(Short {
                    container,
                    of,
                    allowance,
                    before,
                    full,
                    _estimate: estimate,
                }),
            }
        }
        self.make_room(short, op, &mut charge).await?;
        Ok(charge)
    }

    /// Makes room in the containers that have none, and charges them: their estimates are held, so nobody takes it, or expires items
    /// for the same bytes.
    async fn make_room<T>(
        &self,
        mut short: Vec<Short<'_>>,
        op: &Op<Body>,
        charge: &mut Charge,
    ) -> Result<(), Asked<T>> {
        for _ in 0..TRIES {
            if short.is_empty() {
                return Ok(());
            }
            self.expire(&short).await?;
            for mut one in std::mem::take(&mut short) {
                let room = self.find_room(one.container, one.of, &one.allowance, op);
                match room.await? {
                    Room::Charged(bytes) => charge.add(one.allowance, bytes),
                    Room::Short(full, None) => return Err(Asked::Full(full)),
                    Room::Short(full, Some(before)) => {
                        (one.full, one.before) = (full, before);
                        short.push(one);
                    }
                }
            }
        }
        match short.pop() {
            None => Ok(()),
            Some(one) => Err(Asked::Full(one.full)),
        }
    }

    /// Charges writes for which there is no slack, where there is room for them; the caller holds the estimate.
    async fn find_room<T>(
        &self,
        container: &str,
        of: (Quota, u64),
        allowance: &Allowance,
        op: &Op<Body>,
    ) -> Result<Room, Asked<T>> {
        let (quota, limit) = (of.0, of.0.max_live_bytes);
        let items = op.body.items().iter();
        let own = items.filter(|write| write.container == container);
        let puts = own.filter_map(|write| Some((write.key.to_vec(), leaves(write)?)));
        let puts: BTreeMap<Vec<u8>, u64> = puts.collect();
        let bytes = puts.values().sum();
        if allowance.take(of, bytes) {
            return Ok(Room::Charged(bytes));
        }
        let (mut pauses, mut has_ticked) = (PAUSES, false);
        loop {
            let in_flight = allowance.close();
            let Some(seen) = self
                .look(container, quota, (&puts, &op.body), in_flight)
                .await?
            else {
                return Ok(Room::Charged(0));
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
                return Ok(Room::Charged(bytes));
            }
            if in_flight > 0 && seen.live + seen.added <= limit && pauses > 0 {
                pauses -= 1;
                tokio::time::sleep(PAUSE).await;
            } else if seen.has_ended && !has_ticked {
                has_ticked = true;
                self.replica.tick().await.map_err(not_proposed)?;
            } else if seen.writes_nothing || self.has_answered(op) {
                // Where others write meanwhile it may write after all.
                allowance.open(of, bytes, 0);
                return Ok(Room::Charged(bytes));
            } else {
                let expires = quota.when_full == WhenFull::ExpireSoonest;
                let full = full(container, quota, &seen);
                return Ok(Room::Short(full, seen.soonest.filter(|_| expires)));
            }
        }
    }

    /// None: there is no such container any more, which apply will say.
    async fn look<T>(
        &self,
        container: &str,
        quota: Quota,
        (puts, body): (&BTreeMap<Vec<u8>, u64>, &Body),
        in_flight: u64,
    ) -> Result<Option<Seen>, Asked<T>> {
        let Some(container) = self.replica.container(container) else {
            return Ok(None);
        };
        let mut items = body.items().iter();
        let judged = items.any(|write| write.when != When::Always);
        let coming = Coming {
            container,
            puts: puts.clone(),
            quota,
            in_flight,
            judged: judged.then(|| (body.items().to_vec(), self.replica.view(0))),
            now: self.replica.database().now(),
            wall: moment(self.clock.wall()),
        };
        match tokio::task::spawn_blocking(move || coming.look()).await {
            Ok(Ok(seen)) => Ok(Some(seen)),
            // Nothing was proposed: it is tried again, by this node or the next leader.
            Ok(Err(_)) | Err(_) => Err(Asked::NotLeading),
        }
    }

    /// Expires, on all nodes, what ends soonest in each of these containers. Nothing is expired for a write that is refused:
    /// where one of them takes no command more, none gets one.
    async fn expire<T>(&self, short: &[Short<'_>]) -> Result<(), Asked<T>> {
        let command = |one: &Short<'_>| Command::ExpireBefore(millis(one.before));
        for one in short {
            if !self.takes_command::<T>(one.container, command(one)).await? {
                return Err(Asked::Full(one.full.clone()));
            }
        }
        for one in short {
            let op = self.op(Body::Command {
                container: one.container.to_owned(),
                what: command(one),
            });
            let charge = match self.let_command::<T>(&op).await {
                Err(Asked::TooManyCommands(_)) => return Err(Asked::Full(one.full.clone())),
                command => Charge::of(command?),
            };
            self.propose(op, charge).await.map_err(not_proposed)?;
        }
        Ok(())
    }

    /// Whether a container takes a command to expire items.
    async fn takes_command<T>(&self, container: &str, what: Command) -> Result<bool, Asked<T>> {
        let Some(here) = self.replica.container(container) else {
            return Ok(true);
        };
        let is_taken = tokio::task::spawn_blocking(move || {
            let after = match what {
                Command::ExpireBefore(ms) => here.preview_expire_before(moment(ms)),
                Command::ExpireWrittenBefore(ms) => here.preview_expire_written_before(moment(ms)),
                _ => return true,
            };
            after.commands <= MOST_COMMANDS || after.commands <= here.stats().expire_commands
        });
        is_taken.await.map_err(|_| Asked::NotLeading)
    }

    /// Lets a command to expire items pass, if its container takes one more; no other one passes before it is applied. One that
    /// takes the place of others passes whatever their number.
    async fn let_command<T>(&self, op: &Op<Body>) -> Result<Option<OwnedMutexGuard<()>>, Asked<T>> {
        let Body::Command { container, what } = &op.body else {
            return Ok(None);
        };
        let what = what.clone();
        if !matches!(
            what,
            Command::ExpireBefore(_) | Command::ExpireWrittenBefore(_)
        ) {
            return Ok(None);
        }
        let one = self.commands.clone().lock_owned().await;
        if self.takes_command(container, what).await? || self.has_answered(op) {
            return Ok(Some(one));
        }
        Err(Asked::TooManyCommands(container.clone()))
    }

    /// It was done before, and will be answered as it was then.
    fn has_answered(&self, op: &Op<Body>) -> bool {
        op.id.is_some_and(|id| self.replica.has_answered(id))
    }

    /// Proposes an op. Its charge lives until it is applied, or known to be lost, though its asker may give it up.
    pub(super) async fn propose(
        &self,
        op: Op<Body>,
        charge: Charge,
    ) -> Result<Answer<Reply>, Stop> {
        let written = self.replica.write(op);
        if charge.is_none() {
            return written.await;
        }
        let proposed = tokio::spawn(async move {
            let written = written.await;
            drop(charge);
            written
        });
        proposed.await.unwrap_or(Err(Stop::Closed))
    }
}
