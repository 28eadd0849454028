//! Nodes: each a process behind a proxy, on one host or on hosts of their own; or each on a host of a simulation.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testkit::random::Random;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::history::{Op, Outcome, Place, What};
use super::hosts::Hosts;
use super::process::{Config, Process};
use super::simulation::{self, Simulation};
use super::ways::Ways;

/// A node that was taken out has a successor within this.
const REPLACED: Duration = Duration::from_secs(60);

/// Milliseconds by which the nodes' clocks are ahead when nothing is wrong with them: less than makes one unfit to lead.
pub const AHEAD: [i64; 5] = [-200, 200, 0, -100, 100];

pub struct Cluster {
    pub count: usize,
    pub ways: Arc<Ways>,
    pub hosts: Option<Hosts>,
    /// Where neither is there, all are processes on this host.
    pub simulation: Option<Arc<Simulation>>,
    configs: Vec<Mutex<Config>>,
    running: Vec<Mutex<Option<Arc<Process>>>>,
    begun: Instant,
    /// The wall at that moment, in milliseconds.
    begun_ms: u64,
    over: AtomicBool,
    settled: AtomicBool,
    values: AtomicU64,
    _folder: tempfile::TempDir,
}

async fn bind(addr: String) -> TcpListener {
    TcpListener::bind(addr).await.unwrap()
}

impl Cluster {
    /// `hosts`: the prefix of their names.
    pub async fn start(count: usize, hosts: Option<&str>) -> Cluster {
        let folder = match hosts {
            Some(_) => tempfile::tempdir().unwrap(),
            None => testkit::scratch(),
        };
        let hosts = hosts.map(|prefix| Hosts::make(prefix, count, folder.path()));
        Cluster::begin(count, folder, hosts, None).await
    }

    pub async fn simulated(simulation: Arc<Simulation>) -> Cluster {
        let count = simulation.count();
        Cluster::begin(count, testkit::scratch(), None, Some(simulation)).await
    }

    async fn begin(
        count: usize,
        folder: tempfile::TempDir,
        hosts: Option<Hosts>,
        simulation: Option<Arc<Simulation>>,
    ) -> Cluster {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let since_epoch = since_epoch.as_millis() as u64;
        let mut cluster = Cluster {
            count,
            ways: Arc::new(Ways::between(count)),
            hosts,
            begun_ms: simulation.as_ref().map_or(since_epoch, |one| one.wall_ms()),
            simulation,
            configs: vec![],
            running: vec![],
            begun: Instant::now(),
            over: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            values: AtomicU64::new(0),
            _folder: folder,
        };
        for number in 0..count {
            let config = cluster.place(number).await;
            let (process, id) = cluster.run(number, &config).await;
            cluster.ways.is_node(number, id.expect("a new node opens"));
            if number == 0 {
                let made = process.ask("make").await.unwrap();
                assert_eq!(made, "made");
            }
            cluster.running.push(Mutex::new(Some(Arc::new(process))));
            cluster.configs.push(Mutex::new(config));
        }
        cluster
    }

    async fn run(&self, number: usize, config: &Config) -> (Process, Option<u64>) {
        match &self.simulation {
            Some(simulation) => Process::simulate(simulation, number, config).await,
            None => Process::start(config).await,
        }
    }

    /// A node's place.
    async fn place(&self, number: usize) -> Config {
        let join = (number > 0).then(|| self.addr(0));
        if self.simulation.is_none() {
            return self.place_behind_a_proxy(number, join).await;
        }
        Config {
            space: None,
            folder: self._folder.path().join(format!("host-{number}")),
            listen: format!("0.0.0.0:{}", simulation::PORT),
            advertise: format!("{}:{}", simulation::name(number), simulation::PORT),
            join,
            ahead_ms: AHEAD[number],
        }
    }

    async fn place_behind_a_proxy(&self, number: usize, join: Option<String>) -> Config {
        let (listen, listener, folder): (SocketAddr, TcpListener, PathBuf) = match &self.hosts {
            Some(hosts) => {
                let proxy = bind(format!("{}:7402", hosts.ip(number)));
                let proxy = hosts.inside(number).spawn(proxy).await.unwrap();
                let listen = format!("{}:7401", hosts.ip(number)).parse();
                (listen.unwrap(), proxy, hosts.mounted(number))
            }
            None => {
                let free = bind(format!("127.0.0.{}:0", number + 1)).await;
                let proxy = bind("127.0.0.1:0".to_owned()).await;
                let folder = self._folder.path().join(format!("host-{number}"));
                (free.local_addr().unwrap(), proxy, folder)
            }
        };
        let advertise = listener.local_addr().unwrap().to_string();
        let proxy = self.ways.clone().lead(listener, number, listen);
        match &self.hosts {
            Some(hosts) => drop(hosts.inside(number).spawn(proxy)),
            None => drop(tokio::spawn(proxy)),
        }
        Config {
            space: self.hosts.as_ref().map(|hosts| hosts.space(number)),
            folder: folder.join("node"),
            listen: listen.to_string(),
            advertise,
            join,
            ahead_ms: AHEAD[number],
        }
    }

    fn addr(&self, number: usize) -> String {
        self.configs[number].lock().unwrap().advertise.clone()
    }

    pub fn nanos(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// The wall at a moment of this, in milliseconds.
    pub fn wall_ms(&self, nanos: u64) -> u64 {
        self.begun_ms + nanos / 1_000_000
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Whether all works, and nobody writes any more.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::SeqCst)
    }

    pub fn settle(&self) {
        self.settled.store(true, Ordering::SeqCst);
    }

    /// A value that was never written.
    pub fn new_value(&self) -> String {
        format!("v{}", self.values.fetch_add(1, Ordering::Relaxed))
    }

    pub fn node(&self, number: usize) -> Option<Arc<Process>> {
        self.running[number].lock().unwrap().clone()
    }

    /// Rests between two questions; longer in a simulation, where answers take no time.
    pub async fn rests(&self, while_long: Duration) {
        let longer = if self.simulation.is_some() { 20 } else { 1 };
        sleep(while_long * longer).await;
    }

    /// Rests where a client would ask again at once, in a simulation alone.
    pub async fn pause(&self, random: &mut Random) {
        if self.simulation.is_some() {
            sleep(Duration::from_millis(random.below(200) as u64)).await;
        }
    }

    /// Messages from one node to the other wait until [`Cluster::heal`]; in a simulation, both ways.
    pub fn hold(&self, from: usize, to: usize) {
        match &self.simulation {
            Some(simulation) => simulation.hold(from, to),
            None => self.ways.cut(from, to),
        }
    }

    /// Messages from one node to the other are lost.
    pub fn lose(&self, from: usize, to: usize) {
        match (&self.simulation, &self.hosts) {
            (Some(simulation), _) => simulation.lose(from, to),
            (None, Some(hosts)) => hosts.lose(from, to),
            _ => unreachable!("that is on hosts"),
        }
    }

    pub fn unplug(&self, number: usize) {
        match (&self.simulation, &self.hosts) {
            (Some(simulation), _) => simulation.unplug(number),
            (None, Some(hosts)) => hosts.unplug(number),
            _ => unreachable!("that is on hosts"),
        }
    }

    pub fn slow(&self, number: usize) {
        match (&self.simulation, &self.hosts) {
            (Some(simulation), _) => simulation.slow(number),
            (None, Some(hosts)) => hosts.slow(number),
            _ => unreachable!("that is on hosts"),
        }
    }

    pub fn delay(&self, by: Duration) {
        match &self.simulation {
            Some(simulation) => simulation.delay(by),
            None => self.ways.delay(by),
        }
    }

    /// Nothing is lost any more.
    pub fn mend(&self) {
        match (&self.simulation, &self.hosts) {
            (Some(simulation), _) => simulation.heal(),
            (None, Some(hosts)) => hosts.heal(),
            _ => {}
        }
    }

    /// All that is sent arrives.
    pub fn heal(&self) {
        self.ways.heal();
        self.mend();
    }

    pub fn kill(&self, number: usize) {
        if let Some(process) = self.running[number].lock().unwrap().take() {
            process.kill();
        }
    }

    pub async fn start_again(&self, number: usize) {
        if self.node(number).is_none() {
            let config = self.configs[number].lock().unwrap().clone();
            let (process, id) = self.run(number, &config).await;
            assert!(id.is_some(), "node {number} does not open again");
            *self.running[number].lock().unwrap() = Some(Arc::new(process));
        }
    }

    /// Asks the node of a number, if it runs and works.
    pub async fn ask(&self, number: usize, line: &str) -> Option<String> {
        self.node(number)?.ask_soon(line).await
    }

    pub async fn leader(&self) -> Option<usize> {
        for number in 0..self.count {
            let id = self.ask(number, "leader").await;
            let leader = id.and_then(|id| self.ways.number_of(id.parse().ok()?));
            if leader.is_some() {
                return leader;
            }
        }
        None
    }

    /// The highest term that a node knows of.
    pub async fn term(&self) -> u64 {
        let mut term = 0;
        for number in 0..self.count {
            let told = self.ask(number, "term").await;
            term = term.max(told.map_or(0, |told| told.parse().unwrap()));
        }
        term
    }

    /// A node that knows the members, and their ids: one that was taken out does not.
    async fn members(&self) -> Option<(usize, String)> {
        for number in 0..self.count {
            let told = self.ask(number, "members").await;
            if let Some(members) = told.filter(|told| !told.starts_with("not")) {
                return Some((number, members));
            }
        }
        None
    }

    /// Those that the leader has no longer as members get a new folder, and with it a new id. Returns how many that were.
    pub async fn replace_removed(&self) -> u64 {
        let mut replaced = 0;
        for number in 0..self.count {
            let Some((contact, members)) = self.members().await else {
                return replaced;
            };
            let is_member = members
                .split(',')
                .filter_map(|id| self.ways.number_of(id.parse().ok()?))
                .any(|member| member == number);
            if !is_member && contact != number {
                self.kill(number);
                self.join_anew(number, contact).await;
                replaced += 1;
            }
        }
        replaced
    }

    async fn join_anew(&self, number: usize, contact: usize) {
        let config = {
            let mut config = self.configs[number].lock().unwrap();
            config.join = Some(self.addr(contact));
            config.clone()
        };
        std::fs::remove_dir_all(Path::new(&config.folder)).unwrap();
        let begun = Instant::now();
        loop {
            // In the same folder: who was on its way in goes on.
            let (process, id) = self.run(number, &config).await;
            if let Some(id) = id {
                self.ways.is_node(number, id);
                *self.running[number].lock().unwrap() = Some(Arc::new(process));
                return;
            }
            let is_late = begun.elapsed() > REPLACED;
            assert!(!is_late, "a new node {number} is not let in");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Has a node do an operation.
    pub async fn does(&self, node: &Process, key: &str, what: What, since: Place) -> Op {
        let mut op = Op {
            key: key.to_owned(),
            what,
            since,
            invoked: self.nanos(),
            answered: 0,
            outcome: Outcome::Unknown,
        };
        node.take(&mut op).await;
        op.answered = self.nanos();
        op
    }
}
