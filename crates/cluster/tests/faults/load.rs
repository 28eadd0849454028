//! Clients, faults, and what both leave behind.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use testkit::random::Random;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::history::{Level, Life, Op, Outcome, Place, What};
use super::process::{Config, Process};
use super::ways::{NODES, Ways};

const CLIENTS: u64 = 12;
/// Keys are left behind after so long, and with them what lost writes leave unsure.
const EPOCH: Duration = Duration::from_secs(2);

struct Cluster {
    ways: Arc<Ways>,
    configs: Vec<Config>,
    running: Vec<Mutex<Option<Arc<Process>>>>,
    begun: Instant,
    over: AtomicBool,
    values: AtomicU64,
    _folder: tempfile::TempDir,
}

async fn free(host: u8) -> SocketAddr {
    let listener = TcpListener::bind((format!("127.0.0.{host}"), 0))
        .await
        .unwrap();
    listener.local_addr().unwrap()
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = testkit::scratch();
        let ways = Arc::new(Ways::default());
        let (mut configs, mut running): (Vec<Config>, Vec<_>) = (vec![], vec![]);
        for number in 0..NODES {
            let addr = free(number as u8 + 1).await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let config = Config {
                folder: folder.path().join(format!("node-{number}")),
                listen: addr.to_string(),
                advertise: listener.local_addr().unwrap().to_string(),
                join: configs.first().map(|first| first.advertise.clone()),
                ahead_ms: 0,
            };
            tokio::spawn(ways.clone().lead(listener, number, addr));
            let (process, id) = Process::start(&config).await;
            ways.is_node(number, id.expect("a new node opens"));
            if number == 0 {
                let made = process.ask("make").await.unwrap();
                assert!(made.starts_with("Ok"), "{made}");
            }
            running.push(Mutex::new(Some(Arc::new(process))));
            configs.push(config);
        }
        Cluster {
            ways,
            configs,
            running,
            begun: Instant::now(),
            over: AtomicBool::new(false),
            values: AtomicU64::new(0),
            _folder: folder,
        }
    }

    fn nanos(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn node(&self, number: usize) -> Option<Arc<Process>> {
        self.running[number].lock().unwrap().clone()
    }

    fn kill(&self, number: usize) {
        if let Some(process) = self.running[number].lock().unwrap().take() {
            process.kill();
        }
    }

    async fn start_again(&self, number: usize) {
        if self.node(number).is_none() {
            let (process, id) = Process::start(&self.configs[number]).await;
            assert!(id.is_some(), "node {number} does not open again");
            *self.running[number].lock().unwrap() = Some(Arc::new(process));
        }
    }

    async fn leader(&self) -> Option<usize> {
        for number in 0..NODES {
            if let Some(node) = self.node(number) {
                let id = node.ask("leader").await?.parse().ok()?;
                if let Some(leader) = self.ways.number_of(id) {
                    return Some(leader);
                }
            }
        }
        None
    }
}

/// One client, which asks until all is over.
async fn client(cluster: Arc<Cluster>, mut random: Random) -> Vec<Op> {
    let mut ops: Vec<Op> = vec![];
    let mut token = Place::default();
    while !cluster.over.load(Ordering::SeqCst) {
        let Some(node) = cluster.node(random.below(NODES)) else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        let epoch = cluster.begun.elapsed().as_millis() / EPOCH.as_millis();
        let key = format!("{epoch}-{}", random.below(3));
        let what = choose(&cluster, &mut random, &key, &ops);
        let keeps_token = matches!(what, What::Read(_)) && random.one_in(2);
        let mut op = Op {
            key,
            what,
            since: if keeps_token { token } else { Place::default() },
            invoked: cluster.nanos(),
            answered: 0,
            outcome: Outcome::Unknown,
        };
        node.take(&mut op).await;
        op.answered = cluster.nanos();
        if let Some(place) = op.outcome.place() {
            token.index = token.index.max(place.index);
            token.at = token.at.max(place.at);
        }
        ops.push(op);
    }
    ops
}

fn choose(cluster: &Cluster, random: &mut Random, key: &str, ops: &[Op]) -> What {
    let value = format!("v{}", cluster.values.fetch_add(1, Ordering::Relaxed));
    let life: Life = (!random.one_in(4)).then(|| 1 + random.below(1_500) as u64);
    match random.below(20) {
        0..5 => What::Put(value, life),
        5..8 => What::Create(value, life),
        8..10 => {
            let known = ops.iter().rev().filter(|op| op.key == key);
            let version = known.take(5).find_map(|op| match &op.outcome {
                Outcome::Wrote(_, version) => Some(*version),
                Outcome::Item(_, shown) if shown.version > 0 => Some(shown.version),
                _ => None,
            });
            version.map_or(What::Put(value.clone(), life), |version| {
                What::PutIf(value, life, version)
            })
        }
        10 => What::Delete,
        11..13 => What::Take,
        13 => What::Touch,
        14..18 => What::Read(Level::Linearizable),
        18 => What::Read(Level::Bounded),
        _ => What::Read(Level::Local),
    }
}

/// One fault after the other, each for a while.
async fn faults(cluster: Arc<Cluster>, mut random: Random) {
    while !cluster.over.load(Ordering::SeqCst) {
        let leader = cluster.leader().await;
        let any = random.below(NODES);
        let victim = leader.filter(|_| !random.one_in(3)).unwrap_or(any);
        let other = (victim + 1 + random.below(NODES - 1)) % NODES;
        let others = (0..NODES).filter(|&node| node != victim);
        let while_ms = 200 + random.below(2_000) as u64;
        match random.below(9) {
            0..3 => cluster.kill(victim),
            3 => cluster.ways.cut(victim, other),
            4 => others.for_each(|other| cluster.ways.cut(victim, other)),
            5 => others.for_each(|other| cluster.ways.cut(other, victim)),
            6 => cluster.ways.delay(Duration::from_millis(30)),
            7 => cluster.ways.reset(),
            _ => {
                let leaps = [-400, 400, 150, -3_000, 3_600_000];
                let line = format!("ahead\t{}", random.pick(&leaps));
                if let Some(node) = cluster.node(victim) {
                    node.ask(&line).await;
                }
            }
        }
        sleep(Duration::from_millis(while_ms)).await;
        cluster.ways.heal();
        for number in 0..NODES {
            if let Some(node) = cluster.node(number) {
                node.ask("ahead\t0").await;
            }
            cluster.start_again(number).await;
        }
        sleep(Duration::from_millis(100 + random.below(900) as u64)).await;
    }
}

/// Plays for so long, and looks that all is well once nothing happens any more. All operations, in no order.
pub async fn play(seed: u64, seconds: u64) -> Vec<Op> {
    let cluster = Arc::new(Cluster::start().await);
    let random = |number: u64| Random(seed << 16 | number);
    let clients: Vec<_> = (1..=CLIENTS)
        .map(|number| tokio::spawn(client(cluster.clone(), random(number))))
        .collect();
    let faults = tokio::spawn(faults(cluster.clone(), random(0)));
    sleep(Duration::from_secs(seconds)).await;
    cluster.over.store(true, Ordering::SeqCst);
    faults.await.unwrap();
    let mut ops = vec![];
    for client in clients {
        ops.extend(client.await.unwrap());
    }
    let token = is_well(&cluster, &mut ops).await;
    are_alike(&cluster, &mut ops, token).await;
    ops
}

/// Within some seconds every node writes.
async fn is_well(cluster: &Cluster, ops: &mut Vec<Op>) -> Place {
    let begun = Instant::now();
    let mut token = Place::default();
    for number in 0..NODES {
        let node = cluster.node(number).expect("all run");
        loop {
            let mut op = Op {
                key: "last".to_owned(),
                what: What::Put(format!("last-{}", cluster.nanos()), None),
                since: Place::default(),
                invoked: cluster.nanos(),
                answered: 0,
                outcome: Outcome::Unknown,
            };
            node.take(&mut op).await;
            op.answered = cluster.nanos();
            let place = op.outcome.place();
            ops.push(op);
            if let Some(place) = place {
                token = place;
                break;
            }
            if begun.elapsed() > Duration::from_secs(20) {
                let mut told = format!("node {number} never came back");
                for node in (0..NODES).filter_map(|number| cluster.node(number)) {
                    let status = node.ask("status").await;
                    let put = node.ask("last\t0\t0\tput\tlast\t-").await;
                    told.push_str(&format!("\n{status:?}\n    {put:?}"));
                }
                panic!("{told}");
            }
        }
    }
    token
}

/// Every key that was ever written is read on every node, of the same place.
async fn are_alike(cluster: &Cluster, ops: &mut Vec<Op>, token: Place) {
    let mut keys: Vec<String> = ops.iter().map(|op| op.key.clone()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let mut answers = vec![];
        for number in 0..NODES {
            let mut op = Op {
                key: key.clone(),
                what: What::Read(Level::Local),
                since: token,
                invoked: cluster.nanos(),
                answered: 0,
                outcome: Outcome::Unknown,
            };
            cluster.node(number).expect("all run").take(&mut op).await;
            op.answered = cluster.nanos();
            if let Outcome::Item(place, shown) = &op.outcome {
                answers.push((*place, Some(shown.clone())));
            } else if let Outcome::Missed(place) = &op.outcome {
                answers.push((*place, None));
            }
            ops.push(op);
        }
        // Between two reads an item may end.
        let lasting = |shown: &Option<super::history::Shown>| {
            shown.clone().filter(|shown| shown.expires.is_none())
        };
        let first = lasting(&answers[0].1);
        assert!(
            answers.iter().all(|(_, shown)| lasting(shown) == first),
            "{key}: {answers:?}"
        );
        assert_eq!(answers.len(), NODES);
    }
}
