//! A node of a cluster behind the server: documents, and whether it is ready, its figures and members; the control socket in its
//! folder changes those.
//!
//! ```text
//! HTTP ──> Member ──> Node           the node runs on a runtime of its own, so that threads of requests that wait for it
//! control.sock ──> Asked ──> Node    never keep it from answering
//! ```

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebbtide::ControlEvent;
use ebbtide_cluster::shared::Figures;
use ebbtide_cluster::{Error, Node, NodeOptions, Status, Tls, shared};
use ebbtide_control::{
    Answer as Answered, ClusterMember, ClusterStatus, Control, Failed, MemberFigures, Options,
    Progress, Request as Asks, Secret, Serves,
};
use ebbtide_documents::Documents;
use metrics::{describe_gauge, gauge};
use tokio::runtime::{Handle, Runtime};

use crate::config::{Config, ServeError};
use crate::limits::LEFT_OVER;
use crate::partitions::Partitions;
use crate::path::Resource;
use crate::places::Places;
use crate::replica::{OfNode, is_session, tokened, work_on};
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::{Frontend, Service, State};
use crate::{catalog, handle, metrics as figures};

/// A node that is open, until it is ended.
pub(crate) struct Opened {
    node: Node,
    runtime: Runtime,
    control: Option<Control>,
}

impl Opened {
    /// Opens the node of the folder: begins a cluster, joins one, or goes on as the member that it is.
    pub fn open(config: &Config) -> Result<Opened, ServeError> {
        let failed = |error: &dyn std::fmt::Display| ServeError::new(format!("The node: {error}."));
        let dir = config.dir.as_ref();
        let dir = dir.ok_or_else(|| ServeError::new("A node of a cluster has a folder."))?;
        let options = options(config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("ebbtide-node")
            .build()
            .map_err(|error| failed(&error))?;
        let node = runtime.block_on(options.open(dir));
        let node = node.map_err(|error| match (&error, config.cluster) {
            (Error::Io(why), Some(address)) if why.kind() == ErrorKind::AddrInUse => {
                ServeError::new(format!("{address} cannot be listened on: {why}."))
            }
            _ => failed(&error),
        })?;
        let asked = Asked {
            node: node.clone(),
            runtime: runtime.handle().clone(),
        };
        let listened = config
            .control
            .then(|| ebbtide_control::listen_in(dir, asked, Options::new()));
        let control = listened.transpose().map_err(|error| {
            let _ = runtime.block_on(node.close());
            ServeError::new(format!("There can be no control socket: {error}."))
        })?;
        Ok(Opened {
            node,
            runtime,
            control,
        })
    }

    pub fn service(&self, frontend: Frontend, scheme: &'static str) -> Arc<dyn Service> {
        Arc::new(Member {
            frontend: Arc::new(frontend),
            scheme,
            state: Mutex::default(),
            node: self.node.clone(),
            runtime: self.runtime.handle().clone(),
        })
    }

    /// The others go on: who leads among them is elected anew where this one did.
    pub fn end(self) {
        drop(self.control);
        if let Err(error) = self.runtime.block_on(self.node.close()) {
            tracing::error!("the node could not be closed: {error}");
        }
        self.runtime.shutdown_timeout(LEFT_OVER);
    }
}

fn options(config: &Config) -> Result<NodeOptions, ServeError> {
    let mut options = Node::options();
    if let Some(address) = config.cluster {
        options = options.listen(address);
    }
    if let Some(advertise) = &config.advertise {
        options = options.advertise(advertise);
    }
    if let Some(join) = &config.join {
        options = options.join(join);
    }
    if let Some(file) = &config.token_file {
        let token = std::fs::read_to_string(file).map_err(|error| {
            let file = file.display();
            ServeError::new(format!(
                "The file of the token to join by, {file}: {error}."
            ))
        })?;
        options = options.join_token(token.trim());
    }
    options = options.join_by_token(config.join_by_token);
    if let Some(tls) = tls(config)? {
        options = options.tls(tls);
    }
    Ok(options)
}

#[cfg(feature = "tls")]
fn tls(config: &Config) -> Result<Option<Tls>, ServeError> {
    let (Some(cert), Some(key), Some(authority)) = (
        &config.cluster_cert,
        &config.cluster_key,
        &config.cluster_authority,
    ) else {
        return Ok(None);
    };
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|error| ServeError::new(format!("{}: {error}.", path.display())))
    };
    Tls::from_pem(&read(cert)?, &read(key)?, &read(authority)?)
        .map(Some)
        .map_err(|error| {
            let message = format!("The certificates of the cluster cannot be used: {error}.");
            ServeError::new(message)
        })
}

#[cfg(not(feature = "tls"))]
fn tls(config: &Config) -> Result<Option<Tls>, ServeError> {
    match config.cluster_cert {
        None => Ok(None),
        Some(_) => Err(ServeError::new(
            "This build has no TLS: it was made without the feature tls of ebbtide-server.",
        )),
    }
}

/// The documents of a state of the node.
type OfState = (Arc<OfNode>, Arc<State>);

struct Member {
    frontend: Arc<Frontend>,
    scheme: &'static str,
    node: Node,
    runtime: Handle,
    /// Those of the state that it had last.
    state: Mutex<Option<OfState>>,
}

impl Member {
    /// The documents of the node's state as of now.
    fn state(&self) -> Result<Arc<State>, Failure> {
        let kept = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_now = |(replica, _): &&OfState| replica.is_of_now() && !replica.is_outgrown();
        if let Some((_, state)) = kept().as_ref().filter(is_of_now) {
            return Ok(state.clone());
        }
        // While this waits for the cluster, others do so beside it.
        let replica = Arc::new(OfNode::new(self.node.clone(), self.runtime.clone()));
        let state = Arc::new(State {
            frontend: self.frontend.clone(),
            documents: Documents::over(replica.clone())?,
            clock: None,
            partitions: Partitions::default(),
            places: Places::default(),
            scheme: self.scheme,
        });
        *kept() = Some((replica, state.clone()));
        Ok(state)
    }

    /// An answer of the documents, with the token of what it saw.
    fn documents(&self, request: &Request) -> Answer {
        let (answer, seen) = work_on(request, || handle::route(&*self.state()?, request));
        let mut reply = match (answer, seen) {
            // That a document is gone is seen, too.
            (Err(failure), Some(seen)) => {
                let session = Some(tokened("0", seen));
                return Err(Failure { session, ..failure });
            }
            (answer, _) => answer?,
        };
        if let Some(seen) = seen {
            let headers = reply.headers.iter_mut();
            for (_, value) in headers.filter(|(name, _)| is_session(name)) {
                *value = tokened(value, seen);
            }
        }
        Ok(reply)
    }
}

impl Service for Member {
    fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    fn at_once(&self, request: &Request) -> Option<Answer> {
        handle::of_nothing(self.scheme, request)
    }

    fn route(&self, request: &Request) -> Answer {
        match &request.path.resource {
            Resource::Ready => ready(&self.node.status()),
            Resource::Metrics => figures::answer(&self.frontend, || {
                shared::database(&self.node).publish_metrics()?;
                publish(&self.node);
                Ok(())
            }),
            Resource::Cluster if request.method == hyper::Method::GET => {
                let status = self.runtime.block_on(status(&self.node, false));
                Ok(Reply::json(200, status.json().to_string()).with("cache-control", "no-store"))
            }
            Resource::Cluster => Err(catalog::not_allowed()),
            Resource::Unknown => Err(Failure::not_found("There is no such resource.")),
            _ => self.documents(request),
        }
    }
}

/// Whether the node can answer for the cluster.
fn ready(status: &Status) -> Answer {
    let why = match (&status.trouble, status.leader) {
        _ if status.is_ready => None,
        (Some(trouble), _) => Some(trouble.as_str()),
        (None, None) => Some("no node leads, as far as this one knows"),
        (None, Some(_)) => Some("it does not vote, or is behind"),
    };
    let (code, text) = match why {
        None => (200, "ready"),
        Some(why) => (503, why),
    };
    Ok(Reply::text(
        code,
        format!("{text}\n"),
        "text/plain; charset=utf-8",
    ))
}

fn publish(node: &Node) {
    let (status, members, stats) = (node.status(), node.members(), node.stats());
    let is = |is: bool| Some(f64::from(u8::from(is)));
    let voters = members.iter().filter(|member| member.votes).count();
    for (name, help, value) in [
        (
            "leading",
            "1: this node leads",
            is(status.leader == Some(status.id)),
        ),
        (
            "has_leader",
            "1: some node leads, as far as this one knows",
            is(status.leader.is_some()),
        ),
        (
            "ready",
            "1: it votes, has a leader and is caught up",
            is(status.is_ready),
        ),
        (
            "in_trouble",
            "1: it waits, refuses writes or has stopped",
            is(status.trouble.is_some()),
        ),
        (
            "term",
            "the term of the last election",
            Some(status.term as f64),
        ),
        (
            "log_format",
            "the format of the log",
            Some(status.format.into()),
        ),
        (
            "applied_index",
            "the last entry of the log that is applied",
            Some(status.applied.index as f64),
        ),
        (
            "applied_time_seconds",
            "its time, since 1970",
            Some(status.applied.at_ms as f64 / 1e3),
        ),
        (
            "purged_index",
            "the last entry that the log has no more",
            Some(status.purged as f64),
        ),
        (
            "members",
            "nodes of the cluster",
            Some(members.len() as f64),
        ),
        (
            "voters",
            "nodes that count for majorities",
            Some(voters as f64),
        ),
        (
            "clock_behind_seconds",
            "by how much the members' clocks are ahead in the median",
            status.clock_behind_ms.map(|ms| ms as f64 / 1e3),
        ),
        (
            "disk_free_bytes",
            "free bytes of the node's disk",
            status.disk_free.map(|bytes| bytes as f64),
        ),
        (
            "state_disk_bytes",
            "bytes of the state on the node's disk",
            Some(stats.disk_bytes as f64),
        ),
        (
            "state_live_items",
            "items of the state that are live, by estimate",
            Some(stats.live_items as f64),
        ),
    ] {
        let Some(value) = value else { continue };
        let name = format!("ebbtide_cluster_{name}");
        describe_gauge!(name.clone(), help);
        gauge!(name).set(value);
    }
}

async fn status(node: &Node, with_figures: bool) -> ClusterStatus {
    let own = node.status();
    let mut figures = match with_figures {
        true => shared::figures(node).await,
        false => HashMap::new(),
    };
    let members = node.survey().await.into_iter().map(|found| {
        let id = found.member.id;
        let figures = figures.remove(&id).map(told);
        let (applied, trouble, disk_free) = match found.told {
            Ok(told) => (Some(told.applied.index), told.trouble, told.disk_free),
            Err(why) => (None, Some(why), None),
        };
        ClusterMember {
            id,
            addr: found.member.addr,
            votes: found.member.votes,
            leads: found.member.leads,
            applied,
            trouble,
            disk_free,
            speaks: found.speaks,
            is_removed: own.is_removed && id == own.id,
            figures,
        }
    });
    ClusterStatus {
        cluster: format!("{:032x}", own.cluster),
        node: own.id,
        term: own.term,
        format: own.format,
        joins_by_token: node.joins_by_token(),
        members: members.collect(),
    }
}

fn told(figures: Figures) -> MemberFigures {
    MemberFigures {
        term: figures.term,
        uptime_ms: figures.uptime_ms,
        writes: figures.writes,
        reads: figures.reads,
        time_ms: figures.time_ms,
        ends: figures.ends,
        disk_bytes: figures.disk_bytes,
        live_items: figures.live_items,
        live_bytes: figures.live_bytes,
        overdue_ms: figures.overdue_ms,
    }
}

/// The node as the control socket asks it.
struct Asked {
    node: Node,
    runtime: Handle,
}

impl Asked {
    /// The member that is called so: by its id or its address.
    fn member(&self, called: &str) -> Result<u64, Failed> {
        let id = called.parse().ok();
        let mut members = self.node.members().into_iter();
        let found = members.find(|member| Some(member.id) == id || member.addr == called);
        let found = found.ok_or_else(|| {
            Failed::NotFound(format!(
                "no member has the id or the address {called:?}: `ebbtide cluster status` lists them"
            ))
        })?;
        Ok(found.id)
    }
}

fn refused(error: Error) -> Failed {
    Failed::Refused(error.to_string())
}

impl Serves for Asked {
    fn perform(
        &self,
        request: &Asks,
        _: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Answered, Failed> {
        match request {
            Asks::ClusterStatus | Asks::ClusterTop => {
                let with_figures = matches!(request, Asks::ClusterTop);
                let status = self.runtime.block_on(status(&self.node, with_figures));
                Ok(Answered::Cluster(status))
            }
            Asks::ClusterRemove { member } => {
                let id = self.member(member)?;
                let removed = self.runtime.block_on(self.node.remove(id));
                removed.map(|()| Answered::Done).map_err(refused)
            }
            Asks::ClusterLead { member } => {
                let id = self.member(member)?;
                let leads = self.runtime.block_on(self.node.transfer(id));
                leads.map(|()| Answered::Done).map_err(refused)
            }
            Asks::ClusterToken { seconds } => {
                let lasts = Duration::from_secs(*seconds);
                let made = self.runtime.block_on(self.node.make_join_token(lasts));
                made.map(|token| Answered::Token(Secret(token)))
                    .map_err(refused)
            }
            _ => Err(Failed::Refused(
                "this is a node of a cluster, which takes `ebbtide cluster` and `ebbtide top` alone".to_owned(),
            )),
        }
    }

    fn told(&self, event: ControlEvent) {
        match &event.error {
            // Each second.
            None if event.request == Asks::ClusterTop.to_string() => {}
            None => tracing::info!("asked by the control socket: {}", event.request),
            Some(error) => {
                tracing::warn!("asked by the control socket: {}: {error}", event.request)
            }
        }
    }
}
