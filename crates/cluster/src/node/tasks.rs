//! The tasks that a node does by itself.
//!
//! | task | each | does |
//! | --- | --- | --- |
//! | telling | 50 ms | as the leader: tells the others which moment is closed, for their bounded reads |
//! | ticking | eighth of `reclaim_within`, 1 s to 5 min | as the leader, where nobody has written since and items will end: moves time (I5) |
//! | purging | the same; by bytes each second | has the state synced and entries of the log go (I6) |
//! | checking | looks each second | as the leader, where none was for `check_every`: compares all states (check.rs) |
//! | looking | 100 ms | reads the free space; as the leader: hands over or refuses writes where room is short (room.rs) |
//! | asking | each second | where no leader is heard: whether this node is a member still (standing.rs) |
//! | forgetting | each second | drops what it counts for quotas that are there no more (allowances.rs) |
//! | raising | 250 ms | as the leader: raises the format of the log where all members speak a later one (formats.rs) |
//! | vetting | 250 ms | does not lead while the clock is off the majority's (clocks.rs) |
//!
//! Invariant: a task holds the node for a round, and not between rounds.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ebbtide::Clock;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::Core;
use crate::calls::{self, ClosedAt};
use crate::clocks::SKEW_MS;
use crate::net::Peer;
use crate::raft::Purger;
use crate::room::Plan;

const TELL: Duration = Duration::from_millis(50);
const ROOM: Duration = Duration::from_millis(100);
const VET: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_secs(1);

/// Starts them all.
pub(super) fn start(core: &Arc<Core>) {
    let round = (core.reclaim_within / 8).clamp(Duration::from_secs(1), Duration::from_secs(300));
    let weak = Arc::downgrade(core);
    let started = [
        tokio::spawn(telling(weak.clone())),
        tokio::spawn(ticking(weak.clone(), round)),
        tokio::spawn(purging(weak.clone(), round)),
        tokio::spawn(checking(weak.clone())),
        tokio::spawn(looking(weak.clone())),
        tokio::spawn(asking(weak.clone())),
        tokio::spawn(forgetting(weak.clone())),
        tokio::spawn(raising(weak.clone())),
        tokio::spawn(vetting(weak)),
    ];
    core.tasks().extend(started);
}

async fn each(every: Duration, mut round: impl AsyncFnMut() -> Option<()>) {
    let mut rounds = interval(every);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        if round().await.is_none() {
            return;
        }
    }
}

async fn telling(core: Weak<Core>) {
    let mut under_way: HashMap<u64, JoinHandle<()>> = HashMap::new();
    let round = async move || {
        let core = core.upgrade()?;
        if !core.replica.is_leading() {
            under_way.clear();
            return Some(());
        }
        let Some((at_ms, index, now_ms)) = core.replica.closed(core.clock.wall()) else {
            return Some(());
        };
        let closed = calls::encode(&ClosedAt {
            at_ms,
            index,
            now_ms,
        });
        for member in core.replica.members() {
            let is_busy = |telling: &JoinHandle<()>| !telling.is_finished();
            if member.id == core.identity.node || under_way.get(&member.id).is_some_and(is_busy) {
                continue;
            }
            let (calls, rooms) = (core.calls.clone(), core.rooms.clone());
            let closed = closed.clone();
            let peer = Peer {
                node: member.id,
                addr: member.addr,
            };
            let telling = tokio::spawn(async move {
                let told = calls.ask(&peer, calls::CLOSED, closed, 10 * TELL).await;
                // An answer without this word leaves what was heard before.
                if let Some(is_short) = told.ok().and_then(|told| calls::decode(&told).ok()) {
                    rooms.heard(peer.node, is_short);
                }
            });
            under_way.insert(member.id, telling);
        }
        Some(())
    };
    each(TELL, round).await;
}

async fn ticking(core: Weak<Core>, every: Duration) {
    let mut before = 0;
    let round = async move || {
        let core = core.upgrade()?;
        let index = core.replica.place().index;
        if core.replica.is_leading() && index == before {
            let reader = core.replica.reading();
            let will_expire = tokio::task::spawn_blocking(move || reader.will_expire());
            if will_expire.await.unwrap_or(false) {
                let _ = core.replica.tick().await;
            }
        }
        before = core.replica.place().index;
        Some(())
    };
    each(every, round).await;
}

async fn purging(core: Weak<Core>, every: Duration) {
    let mut purger = Purger::default();
    let mut waited = Duration::ZERO;
    let look = LOOK.min(every);
    let round = async move || {
        let core = core.upgrade()?;
        waited += look;
        if waited >= every || purger.is_full(&core.replica) {
            waited = Duration::ZERO;
            purger.round(&core.replica).await;
        }
        Some(())
    };
    each(look, round).await;
}

async fn checking(core: Weak<Core>) {
    let round = async move || {
        let core = core.upgrade()?;
        let every = core.check_every?;
        if core.replica.is_leading() && core.checks.is_due(every) {
            // If it fails it is due again.
            let _ = core.check().await;
        }
        Some(())
    };
    each(LOOK, round).await;
}

async fn looking(core: Weak<Core>) {
    let round = async move || {
        let core = core.upgrade()?;
        let rooms = core.rooms.clone();
        let _ = tokio::task::spawn_blocking(move || rooms.look()).await;
        if core.replica.is_leading() {
            let members = core.replica.members().into_iter();
            let voters = members.filter(|member| member.votes);
            let voters: Vec<u64> = voters.map(|member| member.id).collect();
            if let Plan::HandOver(to) = core.rooms.decide(&voters) {
                core.rooms.hands_over();
                let _ = core.hand_over(to).await;
            }
        }
        Some(())
    };
    each(ROOM, round).await;
}

async fn asking(core: Weak<Core>) {
    let round = async move || {
        let core = core.upgrade()?;
        core.ask_standing().await;
        Some(())
    };
    each(LOOK, round).await;
}

async fn forgetting(core: Weak<Core>) {
    let round = async move || {
        let core = core.upgrade()?;
        let has_quota = |name: &str| core.replica.quota(name).is_some();
        core.quotas.forget(has_quota);
        Some(())
    };
    each(LOOK, round).await;
}

async fn raising(core: Weak<Core>) {
    let round = async move || {
        let core = core.upgrade()?;
        core.raise_format().await;
        Some(())
    };
    each(VET, round).await;
}

async fn vetting(core: Weak<Core>) {
    let round = async move || {
        let core = core.upgrade()?;
        let is_off = |ahead: i64| ahead.unsigned_abs() > SKEW_MS;
        let behind = core.clock_behind();
        core.clock.compared(behind);
        // Where nothing can be told, all stays as it is.
        if let Some(behind) = behind {
            core.replica.unfit(is_off(behind));
        }
        Some(())
    };
    each(VET, round).await;
}
