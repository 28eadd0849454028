//! A node: its folder, its replica, its network, and what it does by itself.
//!
//! ```text
//! Node, Container ──> Handle ──> Shared ──> Replica (raft/), Calls (calls.rs)      what callers have
//!                                  ^
//! requests of others ──> Answering ┘         tasks: tell what is closed, tick, purge the log, vet the clock
//! ```
//!
//! Invariants:
//!
//! 1. A node is closed when the last of its handles is dropped, or by [`Node::close`]. Its tasks, and requests of others, hold no
//!    handle.
//! 2. Each op has an id that no other has, drawn once, however often it is sent.

mod allowances;
mod answering;
mod checking;
mod figures;
mod formats;
mod identity;
mod joining;
mod options;
mod quotas;
mod reads;
mod standing;
mod surveying;
mod tasks;
#[cfg(test)]
mod tests;
mod tokens;
mod writes;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebbtide::{DefaultTtl, Version};
use ebbtide_openraft::View;
use tokio::task::JoinHandle;

pub use self::figures::Figures;
pub use self::options::NodeOptions;
pub use self::reads::Snapshot;
pub use self::tokens::JoinToken;

use self::allowances::Quotas;
use self::figures::Counts;
use self::identity::Identity;
use self::reads::Bound;
use self::standing::Standing;
use crate::calls::{Calls, Change};
use crate::check::Checks;
use crate::clocks::Vetted;
use crate::face::{Answered, Batch, Container, Error, Member, Token, Transaction};
use crate::machine::body::{Command, Ending, Reply};
use crate::net::Hello;
use crate::raft::Replica;
use crate::room::Rooms;

/// A transaction is tried again as often as this.
const ATTEMPTS: u64 = 32;

/// The parts of a node. Whoever holds [`Handle`] keeps it open.
pub struct Core {
    identity: Identity,
    addr: String,
    replica: Replica,
    calls: Arc<Calls>,
    clock: Arc<Vetted>,
    patience: Duration,
    join_within: Duration,
    reclaim_within: Duration,
    /// The newest format of the log that it speaks.
    speaks: u16,
    /// The client's half of the ids of ops that begin here.
    client: u128,
    serial: AtomicU64,
    bound: Bound,
    checks: Arc<Checks>,
    rooms: Arc<Rooms>,
    quotas: Quotas,
    counts: Counts,
    /// Held by the command to expire items that is under way.
    commands: Arc<tokio::sync::Mutex<()>>,
    standing: Standing,
    /// The own uptime when a reader of ends last had time moved, in milliseconds.
    ticked: AtomicU64,
    check_every: Option<Duration>,
    /// A new node is let in by a token alone.
    joins_by_token: bool,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    is_closed: AtomicBool,
}

/// See the file's head.
pub struct Shared(Arc<Core>);

impl std::ops::Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let core = self.0.clone();
        if core.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        core.stop_tasks();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { core.shut().await });
        }
    }
}

/// A number that no other draw gives.
fn draw() -> u64 {
    let drawn = RandomState::new().hash_one(std::process::id());
    drawn.max(1)
}

impl Core {
    fn tasks(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop_tasks(&self) {
        self.tasks().drain(..).for_each(|task| task.abort());
    }

    async fn shut(&self) -> Result<(), Error> {
        self.checks.close();
        self.calls.shutdown().await;
        self.replica.close().await
    }

    /// An item, and the moment by which that was judged.
    pub fn get(
        &self,
        container: &str,
        key: &[u8],
        at_ms: u64,
    ) -> Result<(Option<ebbtide::Item>, u64), Error> {
        self.replica.get(container, key, at_ms)
    }

    /// All of the state at one moment.
    pub fn view(&self, container: &str, at_ms: u64) -> Result<View, Error> {
        self.replica.has(container)?;
        Ok(self.replica.view(at_ms))
    }

    /// Of what is applied.
    pub fn default_ttl(&self, container: &str) -> Result<DefaultTtl, Error> {
        self.replica.default_ttl(container)
    }

    /// Of what is applied.
    pub fn quota(&self, container: &str) -> Result<Option<ebbtide::Quota>, Error> {
        self.replica.has(container)?;
        Ok(self.replica.quota(container))
    }

    /// Between attempts of a caller whom others were quicker than; each a bit longer.
    pub async fn pause(&self, attempt: u64) {
        tokio::time::sleep(Duration::from_millis(draw() % (4 * attempt))).await;
    }
}

/// A node of a cluster. Clones are the same node; it is closed when the last of them, and of the containers that it gave, is
/// dropped, or by [`Node::close`].
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
/// use std::time::Duration;
/// use ebbtide_cluster::Node;
///
/// let folder = tempfile::tempdir()?;
/// let node = Node::open(folder.path()).await?; // a cluster of one
/// let sessions = node.create_container("sessions").await?;
/// sessions.put_with_ttl("s-1", "ada", Duration::from_secs(1_800)).await?;
/// assert_eq!(sessions.get("s-1").await?.value.unwrap(), "ada");
/// node.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Node {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id())
            .field("addr", &self.addr())
            .finish_non_exhaustive()
    }
}

impl Node {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Settings, each with a default.
    #[must_use]
    pub fn options() -> NodeOptions {
        NodeOptions::default()
    }

    /// Opens the node of a folder with the default settings: [`NodeOptions::open`].
    ///
    /// # Errors
    /// As there.
    pub async fn open(folder: impl AsRef<Path>) -> Result<Node, Error> {
        Node::options().open(folder).await
    }

    async fn open_with(folder: &Path, options: NodeOptions) -> Result<Node, Error> {
        let (identity, is_known) = options.identity(folder).await?;
        let hello = Hello {
            cluster: identity.cluster,
            node: identity.node,
            format: options.speaks,
        };
        let clock = options.clock.clone();
        let calls = Calls::bind(options.listen, hello, options.sockets(), clock.clone()).await?;
        let clock = Arc::new(Vetted::new(clock));
        let calls = Arc::new(calls);
        if !is_known {
            identity.write(folder)?;
        }
        let addr = options.advertise.clone();
        let addr = addr.unwrap_or_else(|| calls.local_addr().to_string());
        let checks = Arc::new(Checks::open(folder, clock.clone())?);
        let rooms = Arc::new(options.rooms(folder, identity.node));
        let replica = options.replica(identity.node, clock.clone(), checks.clone());
        let opened = Replica::open(folder, replica, calls.clone()).await;
        let opened = opened.and_then(|replica| {
            if !identity.was_opened {
                identity.opened(folder)?;
            }
            Ok(replica)
        });
        let replica = match opened {
            Ok(replica) => replica,
            Err(error) => {
                calls.shutdown().await;
                return Err(error);
            }
        };
        let core = Arc::new(Core {
            standing: Standing::of(folder, &identity),
            identity,
            addr,
            replica,
            calls,
            clock,
            patience: options.patience,
            join_within: options.join_within,
            reclaim_within: options.reclaim_within,
            speaks: options.speaks,
            client: u128::from(draw()) << 64 | u128::from(draw()),
            serial: AtomicU64::new(0),
            bound: Bound::default(),
            checks,
            rooms,
            quotas: Quotas::default(),
            counts: Counts::default(),
            commands: Arc::default(),
            ticked: AtomicU64::new(0),
            check_every: options.check_every,
            joins_by_token: options.joins_by_token,
            tasks: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        if core.checks.differs().is_some() {
            core.replica.differs();
        }
        if core.standing.is_removed() {
            core.replica.removed();
        }
        core.calls.serve(Arc::new(answering::Answering::of(&core)));
        let node = Node {
            shared: Arc::new(Shared(core)),
        };
        tasks::start(&node.shared.0);
        if let Err(error) = node.take_place(&options).await {
            let _ = node.close().await;
            return Err(error);
        }
        node.shared.standing.placed();
        Ok(node)
    }

    /// The node's id, drawn with its folder.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.identity.node
    }

    /// Where others reach it.
    #[must_use]
    pub fn addr(&self) -> &str {
        &self.shared.addr
    }

    /// A container, whether it is there or not: that is judged by each call.
    #[must_use]
    pub fn container(&self, name: impl AsRef<str>) -> Container {
        Container::new(self.shared.clone(), name.as_ref())
    }

    /// Makes a container, in which nothing ends by default, unless there is one of this name.
    ///
    /// # Errors
    /// A name out of range: it has 1 to 255 bytes without `/` and NUL, and does not begin with `ebbtide-openraft`; and those of a write.
    pub async fn create_container(&self, name: impl AsRef<str>) -> Result<Container, Error> {
        self.create_container_with(name, DefaultTtl::NoDefault)
            .await
    }

    /// Makes a container with this default ttl, unless there is one of this name, which stays as it is.
    ///
    /// # Errors
    /// As of [`Node::create_container`], and a ttl out of range.
    pub async fn create_container_with(
        &self,
        name: impl AsRef<str>,
        default: impl Into<DefaultTtl>,
    ) -> Result<Container, Error> {
        let default = default.into();
        let default = Ending::of(default)
            .ok_or_else(|| Error::Invalid(format!("a default ttl of {default:?}")))?;
        let name = name.as_ref();
        let made = self.shared.command(name, Command::Create(default)).await?;
        Ok(self.container(name).since(made.token))
    }

    /// Drops a container with everything in it. `false`: there is none of this name.
    ///
    /// # Errors
    /// Those of a write.
    pub async fn drop_container(&self, name: impl AsRef<str>) -> Result<Answered<bool>, Error> {
        let done = self.shared.command(name.as_ref(), Command::Drop).await?;
        Ok(done.map(|reply| matches!(reply, Reply::Done { .. })))
    }

    /// The names of all containers, in their order.
    ///
    /// # Errors
    /// Those of a linearizable read.
    pub async fn containers(&self) -> Result<Answered<Vec<String>>, Error> {
        let names =
            |node: &Shared, at_ms| node.at_one_moment(at_ms, || Ok(node.replica.containers()));
        let shared = &self.shared;
        shared
            .read(crate::ReadLevel::Linearizable, Token::default(), names)
            .await
    }

    /// Does all of a batch, or nothing. Returns the version of its last write.
    ///
    /// # Errors
    /// [`Error::Conflict`]: a condition does not hold; and those of a write.
    pub async fn write(&self, batch: Batch) -> Result<Answered<Version>, Error> {
        let answered = self.shared.write(batch.into_body()?).await?;
        let token = answered.token;
        match answered.value {
            Reply::Done { version } => Ok(Answered::new(Version::from_u64(version), token)),
            Reply::Conflict { container, key } => Err(Error::Conflict {
                container,
                key: key.to_vec(),
            }),
            Reply::NoContainer(name) => Err(Error::NoContainer(name)),
            other => Err(Error::Unknown(format!(
                "an answer of another op: {other:?}"
            ))),
        }
    }

    /// Runs a closure whose reads are all of one moment, and does its writes if all that it read still stands then: no other write,
    /// and no end of an item, comes between. Else it runs again. If it returns an error, nothing is written.
    ///
    /// The closure runs on a thread that may wait. It is called again after a conflict, and so does nothing but read and write.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// use ebbtide_cluster::{Error, Transaction};
    ///
    /// let stock = node.create_container("stock").await?;
    /// stock.put("apples", "2").await?;
    /// let of = stock.clone();
    /// let sell = move |tx: &mut Transaction| {
    ///     let left = tx.get(&of, "apples")?.map_or(0, |text| String::from_utf8_lossy(&text).parse().unwrap_or(0));
    ///     if left == 0 {
    ///         return Err(Error::other("sold out"));
    ///     }
    ///     tx.put(&of, "apples", (left - 1).to_string());
    ///     Ok(left - 1)
    /// };
    /// assert_eq!(node.transaction(sell).await?.value, 1);
    /// assert_eq!(stock.get("apples").await?.value.unwrap(), "1");
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The closure's; [`Error::Conflict`] when others were quicker 32 times; and those of reads and writes.
    pub async fn transaction<T, E, F>(&self, work: F) -> Result<Answered<T>, E>
    where
        F: Fn(&mut Transaction) -> Result<T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let work = Arc::new(work);
        let mut last = Error::NoLeader;
        for attempt in 1..=ATTEMPTS {
            let (value, token, body) = self.shared.attempt(work.clone()).await?;
            let Some(body) = body else {
                return Ok(Answered::new(value, token));
            };
            let answered = self.shared.write(body).await?;
            let token = answered.token;
            match answered.value {
                Reply::Done { .. } => return Ok(Answered::new(value, token)),
                Reply::Conflict { container, key } => {
                    last = Error::Conflict {
                        container,
                        key: key.to_vec(),
                    };
                }
                Reply::NoContainer(name) => return Err(Error::NoContainer(name).into()),
                other => {
                    return Err(
                        Error::Unknown(format!("an answer of another op: {other:?}")).into(),
                    );
                }
            }
            self.shared.pause(attempt).await;
        }
        Err(last.into())
    }

    /// The members, as this node knows them.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.shared.replica.members()
    }

    /// The id of the node that leads, as far as this one knows.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        self.shared.replica.leader().map(|leader| leader.node)
    }

    /// Takes a node out of the cluster. It is not to come back: a new node has a new folder. It learns it from the others within
    /// seconds, if it runs, or when it is opened again: then all its calls are [`Error::Removed`].
    ///
    /// # Errors
    /// [`Error::Members`]: it is the last one that votes, or others change members at the moment; and those of a write.
    pub async fn remove(&self, id: u64) -> Result<(), Error> {
        self.shared
            .0
            .change(Change::Remove { id }, self.shared.patience)
            .await
    }

    /// Lets a member lead, which takes a second or so in which no write is taken.
    ///
    /// # Errors
    /// [`Error::Members`]: it is no member that votes, or was not elected; and those of a write.
    pub async fn transfer(&self, id: u64) -> Result<(), Error> {
        let within = self.shared.patience + 4 * self.shared.replica.lease();
        self.shared.0.change(Change::Lead { id }, within).await
    }

    /// The state's database, for figures alone (shared.rs).
    pub(crate) fn database(&self) -> ebbtide::Database {
        self.shared.replica.database()
    }

    /// A container of it, likewise.
    pub(crate) fn container_here(&self, name: &str) -> Option<ebbtide::Container> {
        self.shared.replica.container(name)
    }

    /// The quota of a container, likewise.
    pub(crate) fn quota_here(&self, name: &str) -> Option<ebbtide::Quota> {
        self.shared.replica.quota(name)
    }

    /// The format of the log, as far as it is applied here.
    pub(crate) fn format_here(&self) -> u16 {
        self.shared.replica.format()
    }

    /// Figures of this node's state: of its own disk and memory, and no other's.
    #[must_use]
    pub fn stats(&self) -> ebbtide::Stats {
        self.shared.replica.stats()
    }

    /// Closes the node: whatever is under way has a moment to end, and the files are closed. The others go on, if they are a
    /// majority.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn close(&self) -> Result<(), Error> {
        if self.shared.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.shared.stop_tasks();
        self.shared.shut().await
    }
}
