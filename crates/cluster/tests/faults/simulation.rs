//! Goal: the same, over many hours of a time that passes as quickly as the work in it is done.
//!
//! Method: each node, and the clients together, are hosts of turmoil, whose network and time are simulated: nothing waits but for
//! messages, and a step of a millisecond ends when all hosts have nothing left to do in it. Disks are those of the machine, and take
//! no time. A node that is killed is dropped with its runtime, and has written what it has answered.
//!
//! ```text
//! clients, faults (load.rs) ──lines──> node.rs on a host ──> Node, over Turmoil and SimulatedClock
//!        └── orders ──> Simulation ──> turmoil, between two steps
//! ```
//!
//! `EBBTIDE_SIMULATED_SECONDS` says how long (default 40), and `EBBTIDE_SIMULATIONS` how many of them (1), from `EBBTIDE_SEED` on. Hosts
//! run on one thread, but what waits for a disk has threads of its own: so the faults repeat with the seed, and what they meet does
//! not.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::Clock;
use ebbtide_cluster::{Listener, Node, Pending, Socket, Transport};
use tokio::sync::mpsc;
use turmoil::Sim;
use turmoil::net::{TcpListener, TcpStream};

use super::Seen;
use super::cluster::Cluster;
use super::load::{self, Played};
use super::node;
use super::process::{Config, Waiting};

pub const PORT: u16 = 7401;
/// Where it begins, in milliseconds since 1970.
const BEGIN: u64 = 1_900_000_000_000;
const STEP: Duration = Duration::from_millis(1);
/// Messages take up to so long.
const LATENCY: Duration = Duration::from_millis(8);
const SLOW: Duration = Duration::from_millis(60);

pub fn name(number: usize) -> String {
    format!("node-{number}")
}

/// The network of the host that it is used on.
struct Turmoil;

impl Transport for Turmoil {
    fn bind(&self, addr: SocketAddr) -> Pending<'static, Box<dyn Listener>> {
        Box::pin(async move {
            let listener = TcpListener::bind(addr).await?;
            Ok(Box::new(Listening(listener)) as Box<dyn Listener>)
        })
    }

    fn connect(&self, addr: &str) -> Pending<'static, Socket> {
        let addr = addr.to_owned();
        Box::pin(async move { Ok(Box::new(TcpStream::connect(addr).await?) as Socket) })
    }
}

struct Listening(TcpListener);

impl Listener for Listening {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn accept(&self) -> Pending<'_, Socket> {
        Box::pin(async { Ok(Box::new(self.0.accept().await?.0) as Socket) })
    }
}

/// The time of a simulation, which passes between steps.
#[derive(Clone, Default)]
struct SimulatedClock(Arc<AtomicU64>);

impl Clock for SimulatedClock {
    fn wall(&self) -> u64 {
        BEGIN + self.uptime()
    }

    fn uptime(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A node that is to run on a host.
struct Start {
    config: Config,
    lines: mpsc::UnboundedReceiver<String>,
    waiting: Waiting,
}

type Order = Box<dyn FnOnce(&mut Sim<'static>) + Send>;

/// A simulation, for its clients and faults.
pub struct Simulation {
    clock: SimulatedClock,
    /// Of each host, until it begins.
    starts: Vec<Arc<Mutex<Option<Start>>>>,
    orders: Mutex<Vec<Order>>,
}

impl Simulation {
    fn of(count: usize) -> Simulation {
        Simulation {
            clock: SimulatedClock::default(),
            starts: (0..count).map(|_| Arc::default()).collect(),
            orders: Mutex::default(),
        }
    }

    pub fn count(&self) -> usize {
        self.starts.len()
    }

    pub fn wall_ms(&self) -> u64 {
        self.clock.wall()
    }

    /// Before the next step.
    fn order(&self, order: impl FnOnce(&mut Sim<'static>) + Send + 'static) {
        self.orders.lock().unwrap().push(Box::new(order));
    }

    pub fn start(
        &self,
        number: usize,
        config: Config,
        lines: mpsc::UnboundedReceiver<String>,
        waiting: Waiting,
    ) {
        let start = Start {
            config,
            lines,
            waiting,
        };
        let place = self.starts[number].clone();
        self.order(move |sim| {
            *place.lock().unwrap() = Some(start);
            sim.bounce(name(number));
        });
    }

    pub fn crash(&self, number: usize) {
        self.order(move |sim| sim.crash(name(number)));
    }

    pub fn hold(&self, one: usize, other: usize) {
        self.order(move |sim| sim.hold(name(one), name(other)));
    }

    pub fn lose(&self, from: usize, to: usize) {
        self.order(move |sim| sim.partition_oneway(name(from), name(to)));
    }

    pub fn unplug(&self, number: usize) {
        let others: Vec<usize> = (0..self.count()).filter(|&node| node != number).collect();
        self.order(move |sim| {
            for other in others {
                sim.partition(name(number), name(other));
            }
        });
    }

    pub fn slow(&self, number: usize) {
        let others: Vec<usize> = (0..self.count()).filter(|&node| node != number).collect();
        self.order(move |sim| {
            for other in others {
                sim.set_link_max_message_latency(name(number), name(other), SLOW);
            }
        });
    }

    /// Messages take so much longer.
    pub fn delay(&self, by: Duration) {
        self.each_link(move |sim, one, other| {
            sim.set_link_max_message_latency(one, other, LATENCY + by);
        });
    }

    pub fn heal(&self) {
        self.each_link(|sim, one, other| {
            sim.release(one.clone(), other.clone());
            sim.set_link_max_message_latency(one, other, LATENCY);
        });
    }

    fn each_link(&self, act: impl Fn(&mut Sim<'static>, String, String) + Send + 'static) {
        let count = self.count();
        self.order(move |sim| {
            for one in 0..count {
                for other in one + 1..count {
                    act(sim, name(one), name(other));
                }
            }
        });
    }

    /// The software of a host: the node that is to run there, until it ends.
    async fn host(&self, number: usize) {
        let Some(start) = self.starts[number].lock().unwrap().take() else {
            return;
        };
        let Start {
            config,
            lines,
            waiting,
        } = start;
        let told = waiting.clone();
        let tell = move |id: u64, answer: &str| told.answered(id, answer);
        let options = Node::options().transport(Turmoil);
        if let Err(error) = node::serve(&config, options, self.clock.clone(), lines, tell).await {
            eprintln!("node {number} does not open: {error}");
        }
        waiting.died();
    }
}

/// Plays for so many seconds of simulated time.
fn simulate(seed: u64, seconds: u64, nodes: usize) -> Played {
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::MAX)
        .tick_duration(STEP)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(LATENCY)
        .tcp_capacity(4_096)
        .enable_random_order()
        .build();
    let simulation = Arc::new(Simulation::of(nodes));
    for number in 0..nodes {
        let simulation = simulation.clone();
        sim.host(name(number), move || {
            let simulation = simulation.clone();
            async move {
                simulation.host(number).await;
                Ok(())
            }
        });
    }
    let result: Arc<Mutex<Option<Played>>> = Arc::default();
    let (of_clients, told) = (simulation.clone(), result.clone());
    sim.client("clients", async move {
        let cluster = Arc::new(Cluster::simulated(of_clients).await);
        let played = load::play(cluster, seed, seconds).await;
        *told.lock().unwrap() = Some(played);
        Ok(())
    });
    let mut is_over = false;
    while !is_over {
        for order in std::mem::take(&mut *simulation.orders.lock().unwrap()) {
            order(&mut sim);
        }
        let elapsed = sim.elapsed().as_millis() as u64;
        simulation.clock.0.store(elapsed, Ordering::SeqCst);
        is_over = sim.step().expect("the clients go on");
        let limit = Duration::from_secs(2 * seconds + 600);
        assert!(sim.elapsed() < limit, "seed {seed}: it does not end");
    }
    let played = result.lock().unwrap().take();
    played.expect("the clients are through")
}

#[test]
fn every_answer_has_its_place_in_simulated_hours() {
    let seconds = testkit::env("EBBTIDE_SIMULATED_SECONDS", 40);
    let first = testkit::env("EBBTIDE_SEED", 1);
    let count = testkit::env("EBBTIDE_SIMULATIONS", 1);
    let mut all = Seen::default();
    for seed in first..first + count {
        let nodes = if seed % 2 == 0 { 5 } else { 3 };
        let name = format!("simulated, seed {seed}, {nodes} nodes, {seconds} s");
        let seen = Seen::of(&name, &simulate(seed, seconds, nodes));
        println!("{name}: {seen}");
        all.add(seen);
    }
    println!("FIGURE simulated clusters: {count} from seed {first}, of {seconds} s: {all}");
}
