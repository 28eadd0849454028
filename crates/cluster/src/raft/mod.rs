//! The node's replica of the group: openraft over the storage of `ebbtide-openraft`. No type of openraft leaves this folder.
//!
//! ```text
//! write ──> Leader (gathers) ──> openraft ──> network ──> the other replicas
//!                                   │
//!                                   └──> log/, group-0/                    apply: machine/
//! ```
//!
//! Invariants:
//!
//! 1. A node that stands down proposes nothing, answers no linearizable read and is no candidate (`stand_down`).
//! 2. One change of members is under way at a time.

mod feeds;
mod log;
mod members;
mod network;
mod snapshots;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebbtide::{Clock, Database, Options};
use ebbtide_openraft::{
    Answer, Applied, Entry, GatherError, Leader, LogStore, Op, OpId, Reader, SnapshotData,
    StateOptions, StateStore, View,
};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use tokio::io::AsyncRead;

pub use self::feeds::{Ends, Keys, Watching};
pub use self::log::Purger;
use self::members::Members;
pub use self::members::{NotChanged, too_old};
use self::network::Wires;
use self::snapshots::Incoming;
use crate::calls::{self, Calls};
use crate::check::Checks;
use crate::face::{Error, Member};
use crate::machine::body::{Body, Reply};
use crate::machine::{Containers, TOKENS};
use crate::net::Peer;

openraft::declare_raft_types!(
    pub Types:
        D = Entry<Body>,
        R = Applied<Reply>,
        NodeId = u64,
        Node = BasicNode,
        SnapshotData = SnapshotData,
);

/// The name of the only group. There may be more later, each in a folder of its own.
const GROUP: &str = "group-0";
/// How long a leader waits before it sends entries again that were not taken: less than a heartbeat.
const PUT_OFF: Duration = Duration::from_millis(30);

/// How a replica is opened.
pub struct ReplicaOptions {
    pub id: u64,
    pub state: Options,
    pub log: Options,
    pub reclaim_within: Duration,
    pub clock: Arc<dyn Clock>,
    pub heartbeat: Duration,
    pub snapshot_rate: u64,
    pub checks: Arc<Checks>,
    /// The newest format of the log that this node speaks.
    pub speaks: u16,
}

/// Why a write or a read has no answer from this node.
#[derive(Debug)]
pub enum Stop {
    /// It does not lead, and nothing was proposed.
    NotLeading,
    /// It may have been proposed.
    Lost(String),
    /// It is closed.
    Closed,
}

impl<E: std::fmt::Display> From<GatherError<E>> for Stop {
    fn from(error: GatherError<E>) -> Stop {
        match error {
            GatherError::NotLeading => Stop::NotLeading,
            GatherError::Proposing(error) => Stop::Lost(error.to_string()),
            GatherError::Ended => Stop::Closed,
        }
    }
}

/// See the file's head.
pub struct Replica {
    id: u64,
    raft: Raft<Types>,
    leader: Leader<Containers>,
    reader: Reader<Types>,
    log: Database,
    incoming: Incoming,
    stands_down: Arc<StandsDown>,
    changing: tokio::sync::Mutex<()>,
    /// The time within which a leader that fell silent is still taken for one.
    lease: Duration,
}

/// Why a node neither leads nor becomes a candidate.
#[derive(Default)]
struct StandsDown {
    unfit: AtomicBool,
    differs: AtomicBool,
    removed: AtomicBool,
    handing_over: AtomicBool,
}

impl StandsDown {
    fn is_down(&self) -> bool {
        let causes = [
            &self.unfit,
            &self.differs,
            &self.removed,
            &self.handing_over,
        ];
        causes.iter().any(|cause| cause.load(Ordering::Relaxed))
    }

    fn tell(&self, raft: &Raft<Types>) {
        let config = raft.runtime_config();
        config.heartbeat(!self.is_down());
        config.elect(!self.is_down());
    }
}

/// The node stands down while this lives.
pub struct HandingOver {
    stands_down: Arc<StandsDown>,
    raft: Raft<Types>,
}

impl Drop for HandingOver {
    fn drop(&mut self) {
        self.stands_down
            .handing_over
            .store(false, Ordering::Relaxed);
        self.stands_down.tell(&self.raft);
    }
}

/// Reads of a replica.
#[derive(Clone)]
pub struct Reading(Reader<Types>);

impl Reading {
    /// The index for the token of a read that is done.
    pub fn seen(&self) -> u64 {
        self.0.seen()
    }

    /// All of the state at one moment that is not before this one.
    pub fn view(&self, at_ms: u64) -> View {
        self.0.view(at_ms)
    }

    /// Whether items will end, or have ended and still take space.
    pub fn will_expire(&self) -> bool {
        self.0.will_expire()
    }
}

/// How far a replica is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// 0: nothing is applied.
    pub index: u64,
    pub time_ms: u64,
    pub until_ms: u64,
}

impl Place {
    fn of(reader: &Reader<Types>) -> Place {
        let moment = reader.moment();
        Place {
            index: moment.applied.map_or(0, |applied| applied.index),
            time_ms: moment.time_ms,
            until_ms: moment.until_ms,
        }
    }
}

fn config(heartbeat: Duration) -> Result<Config, Error> {
    let beat = (heartbeat.as_millis() as u64).max(1);
    let config = Config {
        cluster_name: "ebbtide".to_owned(),
        heartbeat_interval: beat,
        election_timeout_min: 3 * beat,
        election_timeout_max: 6 * beat,
        install_snapshot_timeout: snapshots::LONGEST.as_millis() as u64,
        // log.rs says when: by age and bytes, and not by count.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        purge_batch_size: 1,
        ..Config::default()
    };
    config
        .validate()
        .map_err(|e| Error::Invalid(format!("heartbeat of {heartbeat:?}: {e}")))
}

impl Replica {
    /// Opens it, in the folders of the node.
    pub async fn open(
        folder: &Path,
        options: ReplicaOptions,
        calls: Arc<Calls>,
    ) -> Result<Replica, Error> {
        let lease = 6 * options.heartbeat;
        let config = Arc::new(config(options.heartbeat)?);
        let state = StateOptions {
            options: options.state,
            reclaim_within: options.reclaim_within,
            clock: options.clock.clone(),
            snapshot_rate: options.snapshot_rate,
        };
        let machine = Containers {
            checks: options.checks,
            speaks: options.speaks,
        };
        let (log_path, state_path) = (folder.join("log"), folder.join(GROUP));
        let opened = tokio::task::spawn_blocking(move || {
            let log = options.log.open(log_path)?;
            let state = StateStore::<Types, _>::open(state_path, machine, state);
            let state = state.map_err(|e| Error::Storage(e.to_string()))?;
            let store = LogStore::new(&log, GROUP)?.behind(state.durable());
            Ok::<_, Error>((log, store, state))
        });
        let opened = opened.await.map_err(|e| Error::Storage(e.to_string()))?;
        let (log, store, state) = opened?;
        let reader = state.reader();
        let wires = Wires::new(calls);
        let raft = Raft::new(options.id, config, wires, store, state).await;
        let raft = raft.map_err(|e| Error::Storage(e.to_string()))?;
        // The core answers once its metrics tell what the folder knows of members.
        let is_open = raft.with_raft_state(|_| ()).await;
        is_open.map_err(|e| Error::Storage(e.to_string()))?;
        Ok(Replica {
            id: options.id,
            leader: Leader::new(&raft, reader.clone(), options.clock),
            incoming: Incoming::new(raft.clone()),
            raft,
            reader,
            log,
            stands_down: Arc::default(),
            changing: tokio::sync::Mutex::new(()),
            lease,
        })
    }

    /// The options of the log's database.
    pub fn log_options() -> Options {
        LogStore::<Types>::options()
    }

    /// Begins a cluster of this node alone, unless it is in one.
    pub async fn begin(&self, addr: &str) -> Result<(), Error> {
        let failed = |e: &dyn std::fmt::Display| Error::Storage(e.to_string());
        if self.raft.is_initialized().await.map_err(|e| failed(&e))? {
            return Ok(());
        }
        let alone = BTreeMap::from([(self.id, BasicNode::new(addr))]);
        self.raft.initialize(alone).await.map_err(|e| failed(&e))?;
        while !self.is_voter() && self.failure().is_none() {
            self.change(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The node that leads, as far as this one knows.
    pub fn leader(&self) -> Option<Peer> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let node = metrics.current_leader?;
        let addr = metrics
            .membership_config
            .membership()
            .get_node(&node)?
            .addr
            .clone();
        Some(Peer { node, addr })
    }

    /// Waits until something is different, or so long.
    pub async fn change(&self, within: Duration) {
        let mut metrics = self.raft.metrics();
        metrics.borrow_and_update();
        let _ = tokio::time::timeout(within, metrics.changed()).await;
    }

    /// Whether this node leads and can answer.
    pub fn is_leading(&self) -> bool {
        self.leader.is_leading() && !self.is_down()
    }

    fn is_down(&self) -> bool {
        self.stands_down.is_down()
    }

    /// The reason why it has stopped, if it has.
    pub fn failure(&self) -> Option<String> {
        let metrics = self.raft.metrics();
        // Its core says nothing more when it has panicked.
        if metrics.has_changed().is_err() {
            return Some("the node has stopped: open it again".to_owned());
        }
        let metrics = metrics.borrow();
        metrics
            .running_state
            .as_ref()
            .err()
            .map(ToString::to_string)
    }

    /// Writes, as the leader.
    pub fn write(
        &self,
        op: Op<Body>,
    ) -> impl Future<Output = Result<Answer<Reply>, Stop>> + Send + use<> {
        let (is_down, leader) = (self.is_down(), self.leader.clone());
        async move {
            if is_down {
                return Err(Stop::NotLeading);
            }
            let answer = match op.body.is_alone() {
                true => leader.gather().write_alone(op).await?,
                false => leader.write(op).await?,
            };
            Ok(answer)
        }
    }

    /// The format of the log, as far as it is applied here.
    pub fn format(&self) -> u16 {
        u16::try_from(self.reader.format()).unwrap_or(u16::MAX)
    }

    /// Whether an op of this id was applied lately.
    pub fn has_answered(&self, id: OpId) -> bool {
        self.reader.has_answered(id)
    }

    /// Moves time, as the leader.
    pub async fn tick(&self) -> Result<(), Stop> {
        if self.is_down() {
            return Err(Stop::NotLeading);
        }
        self.leader.gather().tick().await?;
        Ok(())
    }

    /// An index and a moment for a linearizable read by any replica, as the leader.
    pub async fn read_point(&self) -> Result<(u64, u64), Stop> {
        if self.is_down() {
            return Err(Stop::NotLeading);
        }
        let at_ms = self.leader.read().await?;
        Ok((self.place().index, at_ms))
    }

    /// As the leader: a moment before which nothing will be written any more, the index of what was, and the moment that it is.
    pub fn closed(&self, wall_ms: u64) -> Option<(u64, u64, u64)> {
        let closed = self.leader.closed(wall_ms)?;
        Some((closed.at_ms, self.place().index, closed.now_ms))
    }

    pub fn place(&self) -> Place {
        Place::of(&self.reader)
    }

    /// The index for the token of a read that is done.
    pub fn seen(&self) -> u64 {
        self.reader.seen()
    }

    /// Waits until an entry of this index is applied.
    pub async fn applied(&self, index: u64) {
        if self.place().index < index {
            self.reader.applied(index).await;
        }
    }

    /// An item at a moment that is not before this one, and that moment.
    pub fn get(
        &self,
        container: &str,
        key: &[u8],
        at_ms: u64,
    ) -> Result<(Option<ebbtide::Item>, u64), Error> {
        self.has(container)?;
        match self.reader.get(container, key, at_ms) {
            Ok(shown) => Ok((shown.item, shown.at_ms)),
            // Dropped meanwhile.
            Err(error) => self.has(container).and(Err(error.into())),
        }
    }

    /// All of the state at one moment that is not before this one.
    pub fn view(&self, at_ms: u64) -> View {
        self.reader.view(at_ms)
    }

    /// An error if there is no such container.
    pub fn has(&self, container: &str) -> Result<(), Error> {
        match self.reader.has_container(container) {
            true => Ok(()),
            false => Err(Error::NoContainer(container.to_owned())),
        }
    }

    pub fn containers(&self) -> Vec<String> {
        let mut names = self.reader.containers();
        names.retain(|name| name != TOKENS);
        names
    }

    pub fn default_ttl(&self, container: &str) -> Result<ebbtide::DefaultTtl, Error> {
        self.has(container)?;
        Ok(self.reader.default_ttl(container)?)
    }

    pub fn quota(&self, container: &str) -> Option<ebbtide::Quota> {
        self.reader.quota(container)
    }

    /// Whether any container has a quota.
    pub fn has_quotas(&self) -> bool {
        self.reader.has_quotas()
    }

    /// Reads that outlive a borrow.
    pub fn reading(&self) -> Reading {
        Reading(self.reader.clone())
    }

    /// The state's database, for figures alone.
    pub fn database(&self) -> Database {
        self.reader.database()
    }

    /// A container of the state's database, likewise.
    pub fn container(&self, name: &str) -> Option<ebbtide::Container> {
        self.reader.container(name)
    }

    /// Figures of the state's database.
    pub fn stats(&self) -> ebbtide::Stats {
        self.reader.stats()
    }

    /// The reason why apply waits, if it does.
    pub fn waits_for(&self) -> Option<ebbtide::Error> {
        self.reader.waits_for()
    }

    /// The term of the last election that this node knows of.
    pub fn term(&self) -> u64 {
        self.raft.metrics().borrow().current_term
    }

    /// The index of the last entry that the log has no more.
    pub fn purged(&self) -> u64 {
        let metrics = self.raft.metrics();
        let purged = metrics.borrow().purged;
        purged.map_or(0, |purged| purged.index)
    }

    /// Members as this node knows them.
    pub fn members(&self) -> Vec<Member> {
        Members::of(&self.raft).list(self.leader().map(|leader| leader.node))
    }

    /// Answers a call of another replica's openraft.
    pub async fn call(&self, kind: u8, body: Bytes) -> Bytes {
        match kind {
            calls::APPEND => network::answer(body, |rpc| self.raft.append_entries(rpc)).await,
            calls::VOTE => network::answer(body, |rpc| self.raft.vote(rpc)).await,
            calls::SNAPSHOT_AT => self.incoming.position(&body).await,
            _ => Bytes::new(),
        }
    }

    /// Answers a call of kind `APPEND`, and takes no entries, for want of room: the leader is heard, and sends them again.
    pub async fn put_off(&self, body: Bytes) -> Bytes {
        let hear = |mut rpc: AppendEntriesRequest<Types>| async move {
            let (before, is_heartbeat) = (rpc.prev_log_id, rpc.entries.is_empty());
            rpc.entries.clear();
            let answer = self.raft.append_entries(rpc).await?;
            if is_heartbeat || !answer.is_success() {
                return Ok(answer);
            }
            tokio::time::sleep(PUT_OFF).await;
            Ok(AppendEntriesResponse::PartialSuccess(before))
        };
        network::answer(body, hear).await
    }

    /// Takes a snapshot in.
    pub async fn take_snapshot(&self, head: Bytes, body: impl AsyncRead + Unpin + Send) -> Bytes {
        self.incoming.take(head, body).await
    }

    /// Becomes a candidate now.
    pub async fn elect(&self) {
        let _ = self.raft.trigger().elect().await;
    }

    /// The own clock is off, or is not: neither leads nor becomes a candidate while it is. Others elect a leader once they hear no
    /// heartbeat.
    pub fn unfit(&self, is_unfit: bool) {
        if self.stands_down.unfit.swap(is_unfit, Ordering::Relaxed) != is_unfit {
            self.stands_down.tell(&self.raft);
        }
    }

    /// The state is not that of the others (check.rs): the same, for good.
    pub fn differs(&self) {
        self.stands_down.differs.store(true, Ordering::Relaxed);
        self.stands_down.tell(&self.raft);
    }

    /// The node is a member no more: the same.
    pub fn removed(&self) {
        self.stands_down.removed.store(true, Ordering::Relaxed);
        self.stands_down.tell(&self.raft);
    }

    /// The same until this is dropped.
    pub fn hand_over(&self) -> HandingOver {
        self.stands_down.handing_over.store(true, Ordering::Relaxed);
        self.stands_down.tell(&self.raft);
        HandingOver {
            stands_down: self.stands_down.clone(),
            raft: self.raft.clone(),
        }
    }

    /// The time after which nobody takes this node for the leader any more, once it stands down.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Stops it and closes its files.
    pub async fn close(&self) -> Result<(), Error> {
        let _ = self.raft.shutdown().await;
        self.incoming.forget().await;
        let (reader, log) = (self.reader.clone(), self.log.clone());
        let closed = tokio::task::spawn_blocking(move || {
            let state = reader.close();
            log.close().and(state)
        });
        let closed = closed.await.map_err(|e| Error::Storage(e.to_string()))?;
        Ok(closed?)
    }
}
