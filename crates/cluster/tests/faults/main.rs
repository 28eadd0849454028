//! Goal: whatever happens to three nodes, every answer has its place in the log and its moment, nothing that ended is shown, moments
//! never go back, and the nodes are alike afterwards.
//!
//! Method: each node is a process (this program again), behind a proxy that can hold up what goes from one node to another in one
//! direction (ways.rs). Clients write and read a few keys through all of them and write down what was asked and answered
//! (history.rs), while faults.rs breaks things. Then placement.rs looks for the place of each answer, linearizable.rs for an order
//! of those that are linearizable, and last.rs compares the states of the nodes. Other clients write two items at once, by batches and
//! transactions (pairs.rs), and readers of changes and of ends go from node to node (feeds.rs).
//!
//! `EBBTIDE_FAULT_SECONDS` says how long (default 9), `EBBTIDE_SEED` where the choices start, `EBBTIDE_NODES` how many nodes (3).
//! With `EBBTIDE_HOSTS`, which tests/real/hosts sets and cleans up after, each node has a host of its own (hosts.rs), so that packets
//! and power can be lost. The faults repeat with the seed; what they meet does not.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

mod cluster;
mod faults;
mod feeds;
mod history;
mod hosts;
mod last;
mod linearizable;
mod load;
mod node;
mod pairs;
mod placement;
mod process;
mod ways;

use history::Outcome;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_its_place_whatever_happens_to_the_nodes() {
    let seconds = testkit::env("EBBTIDE_FAULT_SECONDS", 9);
    let seed = testkit::env("EBBTIDE_SEED", 1);
    let nodes = testkit::env("EBBTIDE_NODES", 3) as usize;
    let hosts = std::env::var("EBBTIDE_HOSTS").ok();
    let played = load::play(seed, seconds, nodes, hosts.as_deref()).await;
    let ops = &played.ops;
    let checked = placement::check(ops);
    let ordered = linearizable::check(ops);
    let (wrong, turns) = pairs::check(&played.turns);
    let unknown = ops.iter().filter(|op| op.outcome == Outcome::Unknown);
    let not_done = ops.iter().filter(|op| op.outcome == Outcome::NotDone);
    let violations =
        checked.violations.len() + ordered.without.len() + wrong.len() + played.of_feeds.len();
    let count = |(fault, count)| format!("{count} {fault:?}");
    let faults: Vec<String> = played.faults.iter().map(count).collect();
    println!(
        "FIGURE cluster faults: seed {seed}, {nodes} nodes, {seconds} s, {} operations, {} not done, {} without an answer; {} faults \
         ({}), {} replaced, {} terms; {} answers placed, {} by writes without an answer; {} ordered, {} keys of up to {}; {turns} \
         answers of pairs, {} ends told; at most {} ms ahead; {violations} violations",
        ops.len(),
        not_done.count(),
        unknown.count(),
        played.faults.values().sum::<u64>(),
        faults.join(", "),
        played.replaced,
        played.terms,
        checked.answers,
        checked.by_lost,
        ordered.ops,
        ordered.keys,
        ordered.longest,
        played.ends,
        played.ahead_ms,
    );
    let shown = checked
        .violations
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(checked.violations.is_empty(), "seed {seed}:\n{shown}");
    let shown = Vec::from_iter(wrong.iter().take(10).map(String::as_str)).join("\n");
    assert!(wrong.is_empty(), "seed {seed}: pairs:\n{shown}");
    let of_feeds = Vec::from_iter(played.of_feeds.iter().take(10).map(String::as_str)).join("\n");
    assert!(of_feeds.is_empty(), "seed {seed}: feeds:\n{of_feeds}");
    assert!(turns > 20, "next to nothing was answered of pairs");
    if let Some(key) = ordered.without.first() {
        let mut of_key: Vec<_> = ops.iter().filter(|op| op.key == *key).collect();
        of_key.sort_by_key(|op| op.invoked);
        of_key.iter().for_each(|op| println!("{op:?}"));
    }
    let without = &ordered.without;
    assert!(without.is_empty(), "seed {seed}: no order of {without:?}");
    assert!(checked.answers > 100, "next to nothing was answered");
}
