//! Clients, and what they and the faults leave behind.

use std::sync::Arc;
use std::time::Duration;

use testkit::random::Random;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::faults::{self, Counts};
use super::feeds;
use super::history::{Level, Life, Op, Outcome, Place, What};
use super::last;
use super::pairs::{self, Turn};

const CLIENTS: u64 = 12;
/// More of them, of pairs.
const OF_PAIRS: u64 = 4;
/// Keys are left behind after so long, and with them what lost writes leave unsure.
const EPOCH: Duration = Duration::from_secs(2);

/// One client, which asks until all is over.
async fn client(cluster: Arc<Cluster>, mut random: Random) -> Vec<Op> {
    let mut ops: Vec<Op> = vec![];
    let mut token = Place::default();
    while !cluster.is_over() {
        let Some(node) = cluster.node(random.below(cluster.count)) else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        let epoch = cluster.elapsed().as_millis() / EPOCH.as_millis();
        let key = format!("{epoch}-{}", random.below(3));
        let what = choose(&cluster, &mut random, &key, &ops);
        let keeps_token = matches!(what, What::Read(_)) && random.one_in(2);
        let since = if keeps_token { token } else { Place::default() };
        let op = cluster.does(&node, &key, what, since).await;
        if let Some(place) = op.outcome.place() {
            token.index = token.index.max(place.index);
            token.at = token.at.max(place.at);
        }
        ops.push(op);
        cluster.pause(&mut random).await;
    }
    ops
}

fn choose(cluster: &Cluster, random: &mut Random, key: &str, ops: &[Op]) -> What {
    let value = cluster.new_value();
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

pub struct Played {
    /// In no order.
    pub ops: Vec<Op>,
    pub turns: Vec<Turn>,
    /// The violations of a copy by changes, and of the ends that a reader was told.
    pub of_feeds: Vec<String>,
    /// How many ends were told.
    pub ends: usize,
    pub faults: Counts,
    /// Nodes that were taken out, and had a successor.
    pub replaced: u64,
    /// By how much the term rose.
    pub terms: u64,
    /// By how many milliseconds a moment was ahead of its answer, at most, by the right clock: up to some hundred, and an hour if a
    /// clock leapt while fewer than three nodes were heard, for then there is no majority to ask.
    pub ahead_ms: i64,
}

/// Plays for so long, and looks that all is well once nothing happens any more.
pub async fn play(cluster: Arc<Cluster>, seed: u64, seconds: u64) -> Played {
    let first = cluster.term().await;
    let random = |number: u64| Random(seed << 16 | number);
    let clients: Vec<_> = (1..=CLIENTS)
        .map(|number| tokio::spawn(client(cluster.clone(), random(number))))
        .collect();
    let of_pairs: Vec<_> = (CLIENTS + 1..=CLIENTS + OF_PAIRS)
        .map(|number| tokio::spawn(pairs::client(cluster.clone(), random(number))))
        .collect();
    let copy = tokio::spawn(feeds::copy(cluster.clone(), random(CLIENTS + OF_PAIRS + 1)));
    let ends = feeds::all_ends(cluster.clone(), random(CLIENTS + OF_PAIRS + 2));
    let ends = tokio::spawn(ends);
    let faults = tokio::spawn(faults::play(cluster.clone(), random(0)));
    sleep(Duration::from_secs(seconds)).await;
    cluster.end();
    let (faults, replaced) = faults.await.unwrap();
    let mut ops = vec![];
    for client in clients {
        ops.extend(client.await.unwrap());
    }
    let mut turns = vec![];
    for client in of_pairs {
        turns.extend(client.await.unwrap());
    }
    let (state, latest) = last::look(&cluster, &mut ops).await;
    cluster.settle();
    let mut of_feeds = feeds::check_copy(copy.await.unwrap(), &state, latest);
    let ends = ends.await.unwrap();
    of_feeds.extend(feeds::check_ends(&ends, &turns, latest));
    let placed = ops.iter().filter(|op| op.what.is_linearizable());
    let placed = placed.filter_map(|op| Some((op, op.outcome.place()?.at as i64)));
    let wall = |nanos| cluster.wall_ms(nanos) as i64;
    Played {
        ahead_ms: placed
            .map(|(op, at)| at - wall(op.answered))
            .max()
            .unwrap_or(0),
        terms: cluster.term().await - first,
        ops,
        turns,
        of_feeds,
        ends: ends.ends.len(),
        faults,
        replaced,
    }
}
