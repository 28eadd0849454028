//! Things that happen to the nodes, and how often they did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use testkit::random::Random;
use tokio::time::{Instant, sleep};

use super::cluster::{AHEAD, Cluster};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Killed,
    AllKilled,
    /// Messages of one way wait.
    HeldOneWay,
    HeldOut,
    HeldIn,
    Delayed,
    Reset,
    ClockOff,
    TwoClocksOff,
    /// Nothing arrives at a node nor comes from it, and its clock is behind.
    AloneAndBehind,
    Paused,
    LedByAnother,
    TakenOut,
    // On hosts of their own, or of a simulation.
    /// Packets of one way are lost.
    LostOneWay,
    LostOut,
    LostIn,
    LostNowAndThen,
    Unplugged,
    Slow,
    // On hosts of their own.
    DiskStuck,
    DiskFull,
    PowerCut,
    AllPowerCut,
}

use Fault::*;

const ON_ONE_HOST: [Fault; 15] = [
    Killed,
    Killed,
    Killed,
    AllKilled,
    HeldOneWay,
    HeldOut,
    HeldIn,
    Delayed,
    Reset,
    ClockOff,
    TwoClocksOff,
    AloneAndBehind,
    Paused,
    LedByAnother,
    TakenOut,
];
const SIMULATED: [Fault; 17] = [
    Killed,
    Killed,
    Killed,
    AllKilled,
    HeldOneWay,
    HeldOut,
    Delayed,
    ClockOff,
    TwoClocksOff,
    AloneAndBehind,
    LedByAnother,
    TakenOut,
    LostOneWay,
    LostOut,
    LostIn,
    LostNowAndThen,
    Unplugged,
];
const ON_HOSTS: [Fault; 10] = [
    LostOneWay,
    LostOut,
    LostIn,
    LostNowAndThen,
    Unplugged,
    Slow,
    DiskStuck,
    DiskFull,
    PowerCut,
    AllPowerCut,
];
/// Those that may hit a second node meanwhile.
const BESIDE: [Fault; 4] = [Killed, HeldOneWay, Delayed, Paused];
/// Those of a simulation.
const BESIDE_SIMULATED: [Fault; 4] = [Killed, HeldOneWay, Delayed, LostOneWay];

/// Milliseconds by which a clock is ahead. A majority that is an hour ahead would have the log's time stand for the hour.
const LEAPS: [i64; 5] = [-400, 400, 150, -3_000, 3_600_000];
const STEPS: [i64; 3] = [-400, 400, -3_000];

pub type Counts = BTreeMap<Fault, u64>;

/// One fault after the other, some of them two at a time, each for a while. Returns them, and how many nodes had a successor.
pub async fn play(cluster: Arc<Cluster>, mut random: Random) -> (Counts, u64) {
    let (mut faults, besides) = match cluster.simulation {
        Some(_) => (SIMULATED.to_vec(), BESIDE_SIMULATED),
        None => (ON_ONE_HOST.to_vec(), BESIDE),
    };
    if cluster.hosts.is_some() {
        faults.extend(ON_HOSTS);
    }
    let (mut counts, mut replaced) = (Counts::new(), 0);
    while !cluster.is_over() {
        let leader = cluster.leader().await;
        let any = random.below(cluster.count);
        let victim = leader.filter(|_| !random.one_in(3)).unwrap_or(any);
        let fault = random.pick(&faults);
        let until = Instant::now() + Duration::from_millis(200 + random.below(2_500) as u64);
        strike(&cluster, &mut random, fault, victim, until).await;
        *counts.entry(fault).or_default() += 1;
        if random.one_in(3) {
            let other = another(&cluster, &mut random, victim);
            let beside = random.pick(&besides);
            strike(&cluster, &mut random, beside, other, until).await;
            *counts.entry(beside).or_default() += 1;
        }
        tokio::time::sleep_until(until).await;
        heal(&cluster).await;
        sleep(Duration::from_millis(100 + random.below(900) as u64)).await;
        // Some faults later, if there is no leader now.
        replaced += cluster.replace_removed().await;
    }
    (counts, replaced)
}

fn another(cluster: &Cluster, random: &mut Random, victim: usize) -> usize {
    (victim + 1 + random.below(cluster.count - 1)) % cluster.count
}

async fn strike(
    cluster: &Cluster,
    random: &mut Random,
    fault: Fault,
    victim: usize,
    until: Instant,
) {
    let other = another(cluster, random, victim);
    let others = (0..cluster.count).filter(|&node| node != victim);
    match fault {
        Killed => cluster.kill(victim),
        AllKilled => (0..cluster.count).for_each(|node| cluster.kill(node)),
        HeldOneWay => cluster.hold(victim, other),
        HeldOut => others.for_each(|other| cluster.hold(victim, other)),
        HeldIn => others.for_each(|other| cluster.hold(other, victim)),
        Delayed => cluster.delay(Duration::from_millis(30)),
        Reset => cluster.ways.reset(),
        ClockOff => leap(cluster, victim, random.pick(&LEAPS)).await,
        TwoClocksOff => {
            leap(cluster, victim, random.pick(&LEAPS)).await;
            leap(cluster, other, random.pick(&STEPS)).await;
        }
        AloneAndBehind => {
            leap(cluster, victim, -3_000).await;
            others.for_each(|other| {
                cluster.hold(victim, other);
                cluster.hold(other, victim);
            });
        }
        Paused => {
            if let Some(node) = cluster.node(victim) {
                node.pause();
            }
        }
        LedByAnother => tell(cluster, "transfer", other, victim).await,
        TakenOut => tell(cluster, "remove", victim, other).await,
        LostOneWay => cluster.lose(victim, other),
        LostOut => others.for_each(|other| cluster.lose(victim, other)),
        LostIn => others.for_each(|other| cluster.lose(other, victim)),
        LostNowAndThen => {
            while Instant::now() < until {
                others.clone().for_each(|other| cluster.lose(victim, other));
                sleep(Duration::from_millis(5 + random.below(120) as u64)).await;
                cluster.mend();
                sleep(Duration::from_millis(5 + random.below(250) as u64)).await;
            }
        }
        Unplugged => cluster.unplug(victim),
        Slow => cluster.slow(victim),
        _ => strike_host(cluster, fault, victim),
    }
}

fn strike_host(cluster: &Cluster, fault: Fault, victim: usize) {
    let hosts = cluster.hosts.as_ref().expect("those are on hosts");
    match fault {
        DiskStuck => hosts.freeze(victim),
        DiskFull => hosts.fill(victim),
        PowerCut => cut_power(cluster, &[victim]),
        AllPowerCut => cut_power(cluster, &Vec::from_iter(0..cluster.count)),
        _ => unreachable!("that is on one host"),
    }
}

/// The others hear nothing from the hosts any more, not even that connections have ended.
fn cut_power(cluster: &Cluster, victims: &[usize]) {
    let hosts = cluster.hosts.as_ref().expect("they have disks");
    victims.iter().for_each(|&victim| hosts.unplug(victim));
    victims.iter().for_each(|&victim| cluster.kill(victim));
    victims.iter().for_each(|&victim| hosts.cut_power(victim));
}

async fn leap(cluster: &Cluster, victim: usize, by: i64) {
    cluster.ask(victim, &format!("ahead\t{by}")).await;
}

/// Asks a node to do something about another one, whatever comes of it.
async fn tell(cluster: &Cluster, what: &str, about: usize, by: usize) {
    if let Some(id) = cluster.ways.id_of(about) {
        cluster.ask(by, &format!("{what}\t{id}")).await;
    }
}

/// All run, hear each other, and have clocks that are nearly right.
pub async fn heal(cluster: &Cluster) {
    cluster.heal();
    for (number, ahead) in AHEAD.iter().enumerate().take(cluster.count) {
        if let Some(node) = cluster.node(number) {
            node.resume();
            node.ask_soon(&format!("ahead\t{ahead}")).await;
        }
        cluster.start_again(number).await;
    }
}
