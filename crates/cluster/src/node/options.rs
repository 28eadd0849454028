//! Settings of a node.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::{Clock, Options, SystemClock};

use super::identity::Identity;
use super::tokens::JoinToken;
use super::{Node, draw};
use crate::calls::{self, Calls};
use crate::check::Checks;
use crate::face::Error;
use crate::machine::body::{FIRST, NEWEST};
use crate::net::{Hello, Peer, Sockets, Tcp, Tls, Transport};
use crate::raft::{Replica, ReplicaOptions, too_old};
use crate::room::{self, Free, Rooms};

/// Settings of a node, each with a default.
#[derive(Clone)]
pub struct NodeOptions {
    pub(super) listen: SocketAddr,
    pub(super) advertise: Option<String>,
    pub(super) join: Option<String>,
    pub(super) join_token: Option<JoinToken>,
    pub(super) joins_by_token: bool,
    tls: Option<Tls>,
    transport: Arc<dyn Transport>,
    pub(super) reclaim_within: Duration,
    pub(super) clock: Arc<dyn Clock>,
    heartbeat: Duration,
    pub(super) patience: Duration,
    pub(super) join_within: Duration,
    pub(super) check_every: Option<Duration>,
    disk_reserve: u64,
    /// In place of the file system's figure; for tests.
    pub(super) free: Option<Free>,
    /// The newest format of the log that the node speaks; an earlier one for tests.
    pub(crate) speaks: u16,
    snapshot_rate: u64,
    memtable_bytes: Option<usize>,
    cache_bytes: Option<usize>,
}

impl std::fmt::Debug for NodeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeOptions")
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .field("join", &self.join)
            .finish_non_exhaustive()
    }
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            join: None,
            join_token: None,
            joins_by_token: false,
            tls: None,
            transport: Arc::new(Tcp),
            reclaim_within: Duration::from_secs(3_600),
            clock: Arc::new(SystemClock),
            heartbeat: Duration::from_millis(100),
            patience: Duration::from_secs(2),
            join_within: Duration::from_secs(60),
            check_every: Some(Duration::from_secs(3_600)),
            disk_reserve: room::RESERVE,
            free: None,
            speaks: NEWEST,
            snapshot_rate: 256 << 20,
            memtable_bytes: None,
            cache_bytes: None,
        }
    }
}

impl NodeOptions {
    /// Where the node listens for others. Default: a free port of 127.0.0.1, for a cluster of one. A cluster of several needs
    /// addresses that stay: nodes that have all moved do not find each other.
    #[must_use]
    pub fn listen(mut self, addr: impl Into<SocketAddr>) -> NodeOptions {
        self.listen = addr.into();
        self
    }

    /// Where others reach it, `name:port`. Default: where it listens.
    #[must_use]
    pub fn advertise(mut self, addr: impl Into<String>) -> NodeOptions {
        self.advertise = Some(addr.into());
        self
    }

    /// A new folder joins the cluster of the node at this address, `name:port`, and [`NodeOptions::open`] returns when it has
    /// caught up and votes. Default: a new folder begins a cluster of its own. A folder that is a member already goes on as it.
    #[must_use]
    pub fn join(mut self, addr: impl Into<String>) -> NodeOptions {
        self.join = Some(addr.into());
        self
    }

    /// The token that a new folder shows to join: [`Node::make_join_token`]. A folder that is a member needs none any more. Default:
    /// none.
    #[must_use]
    pub fn join_token(mut self, token: impl Into<String>) -> NodeOptions {
        self.join_token = Some(JoinToken::new(token.into()));
        self
    }

    /// Whether a new node is let in by a token alone; the same on all nodes, for the one that leads asks for it. It keeps out nodes
    /// that nobody has let in, and no program that writes: for that there is [`NodeOptions::tls`]. Default: `false`.
    #[must_use]
    pub fn join_by_token(mut self, is_asked: bool) -> NodeOptions {
        self.joins_by_token = is_asked;
        self
    }

    /// Nodes show each other certificates of the cluster's authority, and talk encrypted. Default: neither; whoever reaches the
    /// address can then read and write.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> NodeOptions {
        self.tls = Some(tls);
        self
    }

    /// See [`Options::reclaim_within`]. The same on all nodes. Where nobody writes, the leader has an entry in the log each eighth
    /// of it (1 s to 5 min), as long as items will end; entries of the log are kept for up to a quarter of it. Default: 1 h.
    #[must_use]
    pub fn reclaim_within(mut self, within: Duration) -> NodeOptions {
        self.reclaim_within = within;
        self
    }

    /// The node's own clock; for tests. It stamps entries where the node leads. Default: the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> NodeOptions {
        self.clock = Arc::new(clock);
        self
    }

    /// How often a leader that is idle says that it leads; without it for 9 to 12 times as long, another one is elected. At least
    /// the time of a round over the network and a sync of the disks. Default: 100 ms.
    #[must_use]
    pub fn heartbeat(mut self, every: Duration) -> NodeOptions {
        self.heartbeat = every;
        self
    }

    /// How long a call waits for a leader and an answer. Default: 2 s.
    #[must_use]
    pub fn patience(mut self, within: Duration) -> NodeOptions {
        self.patience = within;
        self
    }

    /// How long a node that joins has to catch up. Default: 60 s.
    #[must_use]
    pub fn join_within(mut self, within: Duration) -> NodeOptions {
        self.join_within = within;
        self
    }

    /// How often the leader compares the states of all nodes by itself ([`Node::check`]), by its uptime since the last time;
    /// `None`: never. Each time every node reads all that it has. Default: 1 h.
    #[must_use]
    pub fn check_every(mut self, every: impl Into<Option<Duration>>) -> NodeOptions {
        self.check_every = every.into();
        self
    }

    /// So many bytes of the disk are kept free: with fewer a node hands over where it leads, to one that has room, or else refuses
    /// writes ([`Error::NoRoom`]); with half of them it takes no entries from others, who go on without it. It goes on by itself
    /// when there is a quarter more than the mark. 0: never. Default: 64 MiB.
    #[must_use]
    pub fn disk_reserve(mut self, bytes: u64) -> NodeOptions {
        self.disk_reserve = bytes;
        self
    }

    /// A snapshot is sent at no more than so many bytes a second, to all nodes that get the same one together. Default: 256 MiB.
    #[must_use]
    pub fn snapshot_rate(mut self, bytes_per_second: u64) -> NodeOptions {
        self.snapshot_rate = bytes_per_second;
        self
    }

    /// See [`Options::memtable_bytes`]; of the state.
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: usize) -> NodeOptions {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// See [`Options::cache_bytes`]; of the state.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> NodeOptions {
        self.cache_bytes = Some(bytes);
        self
    }

    /// The network that other nodes are reached by, in place of the machine's.
    #[cfg(feature = "unstable-internals")]
    #[must_use]
    pub fn transport(mut self, transport: impl Transport) -> NodeOptions {
        self.transport = Arc::new(transport);
        self
    }

    /// Opens the node of a folder, which is made if it is missing: a new one is a cluster of one node, or joins one
    /// ([`NodeOptions::join`]). It runs on the runtime of the caller.
    ///
    /// # Errors
    /// Those of files, of the engine and of the network; a folder that another process has open; [`Error::Storage`]: the log is of a
    /// later format than this version speaks; and where it joins,
    /// [`Error::Members`], [`Error::NoLeader`] and [`Error::Unknown`], after which the same call goes on.
    pub async fn open(self, folder: impl AsRef<Path>) -> Result<Node, Error> {
        let folder = folder.as_ref().to_owned();
        Node::open_with(&folder, self).await
    }

    pub(super) fn sockets(&self) -> Sockets {
        Sockets::new(self.transport.clone(), self.tls.clone())
    }

    /// The node of a folder, which is a new one where the folder is; and whether the folder knows it.
    pub(super) async fn identity(&self, folder: &Path) -> Result<(Identity, bool), Error> {
        if let Some(known) = Identity::read(folder)? {
            return Ok((known, true));
        }
        let new = match &self.join {
            None => Identity::first(),
            Some(contact) => Identity::of(self.cluster_of(contact).await?),
        };
        Ok((new, false))
    }

    pub(super) fn rooms(&self, folder: &Path, id: u64) -> Rooms {
        let free = self.free.clone();
        let free = free.unwrap_or_else(|| room::free_of(folder.to_owned()));
        Rooms::new(id, self.disk_reserve, free, self.clock.clone())
    }

    pub(super) fn replica(
        &self,
        id: u64,
        clock: Arc<dyn Clock>,
        checks: Arc<Checks>,
    ) -> ReplicaOptions {
        // The log's database takes no more memory than the state's.
        let sized = |mut options: Options| {
            if let Some(bytes) = self.memtable_bytes {
                options = options.memtable_bytes(bytes);
            }
            options
        };
        let mut state = sized(Options::new());
        if let Some(bytes) = self.cache_bytes {
            state = state.cache_bytes(bytes);
        }
        ReplicaOptions {
            id,
            state,
            log: sized(Replica::log_options()),
            reclaim_within: self.reclaim_within,
            clock,
            heartbeat: self.heartbeat,
            snapshot_rate: self.snapshot_rate,
            checks,
            speaks: self.speaks,
        }
    }

    /// The id of the cluster that a node is of, if this one speaks the format of its log.
    async fn cluster_of(&self, contact: &str) -> Result<u128, Error> {
        let any: SocketAddr = match self.listen {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let parts = contact.rsplit_once(':');
        if !parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(Error::Invalid(format!(
                "to join {contact:?}: it is a name and a port"
            )));
        }
        let hello = Hello {
            cluster: 0,
            node: draw(),
            format: self.speaks,
        };
        let calls = Calls::bind(any, hello, self.sockets(), self.clock.clone()).await?;
        let contact = Peer {
            node: 0,
            addr: contact.to_owned(),
        };
        let asked = calls.ask(&contact, calls::CLUSTER, bytes::Bytes::new(), self.patience);
        let answer = asked.await;
        calls.shutdown().await;
        let answer = answer.map_err(|e| {
            Error::Members(format!("to join {}: {}", contact.addr, calls::text(&e)))
        })?;
        // A version that speaks the first format alone says the id alone.
        let (cluster, format) = match calls::decode(&answer) {
            Ok(told) => told,
            Err(_) => (calls::decode(&answer)?, FIRST),
        };
        match format > self.speaks {
            true => Err(Error::Members(too_old(format, self.speaks))),
            false => Ok(cluster),
        }
    }
}
