//! The promises that hold once nothing happens any more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::faults;
use super::history::{Level, Op, Place, What};

/// All works again within this.
const WELL: Duration = Duration::from_secs(30);

/// Every node writes, all have one state, and every key is read at each: the operations are added.
pub async fn look(cluster: &Cluster, ops: &mut Vec<Op>) {
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
    have_one_state(cluster, token).await;
    let checked = cluster.node(0).expect("all run").ask("check").await;
    assert_eq!(checked.as_deref(), Some("alike"));
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
async fn have_one_state(cluster: &Cluster, token: Place) {
    let mut states: Vec<(u64, BTreeMap<String, String>)> = vec![];
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
    let lasts = |item: &String| {
        let end = item.rsplit(' ').next().expect("it has three parts");
        end.parse::<u64>().map_or(true, |end| end > latest)
    };
    for (_, state) in &mut states {
        state.retain(|_, item| lasts(item));
    }
    let first = &states[0].1;
    assert!(!first.is_empty());
    for (number, (_, state)) in states.iter().enumerate() {
        assert_eq!(state, first, "of node {number} and of node 0");
    }
}
