//! The promises that hold once nothing happens any more.

use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::faults;
use super::feeds::State;
use super::history::{Level, Op, Place, What};
use super::node::lasts;

/// All works again within this.
const WELL: Duration = Duration::from_secs(30);

/// Every node writes, all have one state, and every key is read at each: the operations are added. Returns the state, and the moment
/// after which what is in it ends.
pub async fn look(cluster: &Cluster, ops: &mut Vec<Op>) -> (State, u64) {
    let token = all_write(cluster, ops).await;
    let mut keys: Vec<String> = ops.iter().map(|op| op.key.clone()).collect();
    keys.sort();
    keys.dedup();
    for number in 0..cluster.count {
        let node = cluster.node(number).expect("all run");
        for key in &keys {
            let read = What::Read(Level::Local);
            ops.push(cluster.does(&node, key, read, token).await);
        }
    }
    let state = have_one_state(cluster, token).await;
    let checked = cluster.node(0).expect("all run").ask("check").await;
    assert_eq!(checked.as_deref(), Some("alike"));
    state
}

async fn all_write(cluster: &Cluster, ops: &mut Vec<Op>) -> Place {
    let begun = Instant::now();
    let mut token = Place::default();
    for number in 0..cluster.count {
        loop {
            let node = cluster.node(number).expect("all run");
            let put = What::Put(format!("last-{}", cluster.nanos()), None);
            let op = cluster.does(&node, "last", put, Place::default()).await;
            let place = op.outcome.place();
            ops.push(op);
            if let Some(place) = place {
                token = place;
                break;
            }
            if begun.elapsed() > WELL {
                panic!("node {number} never came back{}", told(cluster).await);
            }
            faults::heal(cluster).await;
            cluster.replace_removed().await;
        }
    }
    token
}

async fn told(cluster: &Cluster) -> String {
    let mut told = String::new();
    for number in 0..cluster.count {
        let status = cluster.ask(number, "status").await;
        let put = cluster.ask(number, "last\t0\t0\tput\tlast\t-").await;
        told.push_str(&format!("\n{status:?}\n    {put:?}"));
    }
    told
}

/// Key by key the same version, value and end.
async fn have_one_state(cluster: &Cluster, token: Place) -> (State, u64) {
    let mut states: Vec<(u64, State)> = vec![];
    for number in 0..cluster.count {
        let line = format!("\t{}\t{}", token.index, token.at);
        let node = cluster.node(number).expect("all run");
        let text = node.ask(&format!("all{line}")).await.expect("it works");
        let mut parts = text.split('\t');
        let at = parts.next().unwrap();
        let at = at
            .parse()
            .unwrap_or_else(|_| panic!("node {number}: {text}"));
        let item = |part: &str| {
            part.split_once(' ')
                .map(|(key, item)| (key.to_owned(), item.to_owned()))
        };
        states.push((at, parts.filter_map(item).collect()));
    }
    // Between two looks an item may end.
    let latest = states.iter().map(|(at, _)| *at).max().unwrap();
    for (_, state) in &mut states {
        state.retain(|_, item| lasts(item, latest));
    }
    let first = &states[0].1;
    assert!(!first.is_empty());
    for (number, (_, state)) in states.iter().enumerate() {
        assert_eq!(state, first, "of node {number} and of node 0");
    }
    (states.swap_remove(0).1, latest)
}
