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
mod simulation;
mod ways;

use std::fmt;
use std::sync::Arc;

use history::Outcome;
use load::Played;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_its_place_whatever_happens_to_the_nodes() {
    let seconds = testkit::env("EBBTIDE_FAULT_SECONDS", 9);
    let seed = testkit::env("EBBTIDE_SEED", 1);
    let nodes = testkit::env("EBBTIDE_NODES", 3) as usize;
    let hosts = std::env::var("EBBTIDE_HOSTS").ok();
    let cluster = cluster::Cluster::start(nodes, hosts.as_deref()).await;
    let played = load::play(Arc::new(cluster), seed, seconds).await;
    let name = format!("seed {seed}, {nodes} nodes, {seconds} s");
    let seen = Seen::of(&name, &played);
    println!("FIGURE cluster faults: {name}, {seen}");
}

/// Figures of what was played, in which each answer has its place.
#[derive(Default)]
struct Seen {
    ops: usize,
    not_done: usize,
    unknown: usize,
    faults: faults::Counts,
    replaced: u64,
    terms: u64,
    placed: usize,
    by_lost: usize,
    ordered: usize,
    keys: usize,
    longest: usize,
    turns: usize,
    ends: usize,
    ahead_ms: i64,
}

impl Seen {
    /// Looks for the place of each answer. Panics with those that have none.
    fn of(name: &str, played: &Played) -> Seen {
        let ops = &played.ops;
        let checked = placement::check(ops);
        let ordered = linearizable::check(ops);
        let (of_pairs, turns) = pairs::check(&played.turns);
        if let Some(key) = ordered.without.first() {
            let mut of_key: Vec<_> = ops.iter().filter(|op| op.key == *key).collect();
            of_key.sort_by_key(|op| op.invoked);
            of_key.iter().for_each(|op| println!("{op:?}"));
        }
        let found = [
            ("answers", &checked.violations),
            ("pairs", &of_pairs),
            ("feeds", &played.of_feeds),
            ("keys without an order", &ordered.without),
        ];
        for (what, wrong) in found {
            let shown = Vec::from_iter(wrong.iter().take(10).map(String::as_str)).join("\n");
            assert!(wrong.is_empty(), "{name}: {} {what}:\n{shown}", wrong.len());
        }
        assert!(turns > 20, "{name}: next to nothing was answered of pairs");
        assert!(
            checked.answers > 100,
            "{name}: next to nothing was answered"
        );
        let count = |outcome| ops.iter().filter(|op| op.outcome == outcome).count();
        Seen {
            ops: ops.len(),
            not_done: count(Outcome::NotDone),
            unknown: count(Outcome::Unknown),
            faults: played.faults.clone(),
            replaced: played.replaced,
            terms: played.terms,
            placed: checked.answers,
            by_lost: checked.by_lost,
            ordered: ordered.ops,
            keys: ordered.keys,
            longest: ordered.longest,
            turns,
            ends: played.ends,
            ahead_ms: played.ahead_ms,
        }
    }

    fn add(&mut self, other: Seen) {
        self.ops += other.ops;
        self.not_done += other.not_done;
        self.unknown += other.unknown;
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self.replaced += other.replaced;
        self.terms += other.terms;
        self.placed += other.placed;
        self.by_lost += other.by_lost;
        self.ordered += other.ordered;
        self.keys += other.keys;
        self.longest = self.longest.max(other.longest);
        self.turns += other.turns;
        self.ends += other.ends;
        self.ahead_ms = self.ahead_ms.max(other.ahead_ms);
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |(fault, count)| format!("{count} {fault:?}");
        let faults: Vec<String> = self.faults.iter().map(count).collect();
        write!(
            f,
            "{} operations, {} not done, {} without an answer; {} faults ({}), {} replaced, {} terms; {} answers placed, {} by writes \
             without an answer; {} ordered, {} keys of up to {}; {} answers of pairs, {} ends told; at most {} ms ahead; 0 violations",
            self.ops,
            self.not_done,
            self.unknown,
            self.faults.values().sum::<u64>(),
            faults.join(", "),
            self.replaced,
            self.terms,
            self.placed,
            self.by_lost,
            self.ordered,
            self.keys,
            self.longest,
            self.turns,
            self.ends,
            self.ahead_ms,
        )
    }
}
