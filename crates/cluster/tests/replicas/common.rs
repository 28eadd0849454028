//! Clusters in one process, over the loopback, with a clock for each node.

use std::collections::HashMap;
use std::time::Duration;

use ebbtide::ManualClock;
use ebbtide_cluster::{Answered, Checked, Error, Node, NodeOptions};
use tempfile::TempDir;

pub const START: u64 = 1_800_000_000_000;

/// Settings for machines that are busy with other tests.
pub fn options() -> NodeOptions {
    Node::options().patience(Duration::from_secs(20))
}

pub struct Cluster {
    pub folder: TempDir,
    pub nodes: Vec<Node>,
    pub clocks: Vec<ManualClock>,
    configure: fn(NodeOptions) -> NodeOptions,
    /// Folders whose node speaks formats of the log up to this one.
    pub speaks: HashMap<usize, u16>,
}

impl Cluster {
    pub async fn of(size: usize) -> Cluster {
        Cluster::with(size, |options| options).await
    }

    pub async fn with(size: usize, configure: fn(NodeOptions) -> NodeOptions) -> Cluster {
        let mut cluster = Cluster {
            folder: testkit::scratch(),
            nodes: vec![],
            clocks: vec![],
            configure,
            speaks: HashMap::new(),
        };
        for _ in 0..size {
            cluster.grow().await;
        }
        cluster
    }

    pub fn path(&self, number: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("node-{number}"))
    }

    pub fn options(&self, number: usize) -> NodeOptions {
        let options = (self.configure)(options()).clock(self.clocks[number].clone());
        match self.speaks.get(&number) {
            Some(format) => ebbtide_cluster::shared::speaking(options, *format),
            None => options,
        }
    }

    /// One more node.
    pub async fn grow(&mut self) {
        let number = self.clocks.len();
        let now = self.clocks.first().map_or(START, wall);
        self.clocks.push(ManualClock::new(now));
        let mut options = self.options(number);
        if let Some(first) = self.nodes.first() {
            options = options.join(first.addr());
        }
        self.nodes
            .push(options.open(self.path(number)).await.unwrap());
    }

    /// Lets the time of all nodes pass.
    pub fn advance(&self, millis: u64) {
        for clock in &self.clocks {
            clock.advance(Duration::from_millis(millis));
        }
    }

    /// The place of the node that leads among the nodes that run.
    pub async fn leader(&self) -> usize {
        for _ in 0..4_000 {
            let leads = |node: &Node| {
                let is_one =
                    |member: &ebbtide_cluster::Member| member.leads && member.id == node.id();
                node.members().iter().any(is_one)
            };
            if let Some(at) = self.nodes.iter().position(leads) {
                return at;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("nobody leads");
    }

    /// Stops a node, whose files stay, and returns its address.
    pub async fn stop(&mut self, at: usize) -> (String, u64) {
        let node = self.nodes.remove(at);
        node.close().await.unwrap();
        (node.addr().to_owned(), node.id())
    }

    /// Opens a folder again, at this address.
    pub async fn start_again(&mut self, number: usize, addr: &str) {
        let options = self
            .options(number)
            .listen(addr.parse::<std::net::SocketAddr>().unwrap());
        self.nodes
            .push(options.open(self.path(number)).await.unwrap());
    }

    pub async fn close(self) {
        for node in &self.nodes {
            node.close().await.unwrap();
        }
    }
}

pub fn wall(clock: &ManualClock) -> u64 {
    use ebbtide::Clock;
    clock.wall()
}

pub fn millis(moment: std::time::SystemTime) -> u64 {
    moment
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

/// Whether a call that was done has found something, or written it.
pub fn is_some<T>(answered: Result<Answered<Option<T>>, Error>) -> bool {
    answered.unwrap().value.is_some()
}

/// A node compares all nodes: none is absent, and none differs.
pub async fn agreed(node: &Node) -> Checked {
    let checked = node.check().await.unwrap();
    let is_whole = checked.agree() && checked.absent().is_empty();
    assert!(is_whole, "{checked:?}");
    checked
}

/// Lets a node lead that does not.
pub async fn change_leader(cluster: &Cluster) {
    let next = (cluster.leader().await + 1) % cluster.nodes.len();
    let (node, id) = (&cluster.nodes[0], cluster.nodes[next].id());
    let mut tries = 0;
    while let Err(error) = node.transfer(id).await {
        tries += 1;
        assert!(tries < 20, "{error}");
    }
}

/// Waits for something that comes by itself.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..4_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not come: {what}");
}
