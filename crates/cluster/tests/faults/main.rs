//! Goal: whatever happens to three nodes, every answer has its place in the log and its moment, nothing that ended is shown, moments
//! never go back, and the nodes are alike afterwards.
//!
//! Method: each node is a process (this program again), behind a proxy that can hold up what goes from one node to another in one
//! direction (ways.rs). Clients write and read a few keys through all of them and write down what was asked and answered
//! (history.rs), while nodes are killed, ways are cut, delayed and reset, and clocks are moved. Then placement.rs looks for the place
//! of each answer.
//!
//! `EBBTIDE_FAULT_SECONDS` says how long (default 12), `EBBTIDE_SEED` where the choices start. The faults repeat with the seed; what
//! they meet does not.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

mod history;
mod load;
mod placement;
mod process;
mod ways;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_its_place_whatever_happens_to_the_nodes() {
    let seconds = testkit::env("EBBTIDE_FAULT_SECONDS", 12);
    let seed = testkit::env("EBBTIDE_SEED", 1);
    let ops = load::play(seed, seconds).await;
    let checked = placement::check(&ops);
    println!(
        "FIGURE cluster faults: seed {seed}, {seconds} s, {} operations, {} answers placed, {} by writes without an answer, {} violations",
        ops.len(),
        checked.answers,
        checked.by_lost,
        checked.violations.len(),
    );
    let shown = checked
        .violations
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(checked.violations.is_empty(), "seed {seed}:\n{shown}");
    assert!(checked.answers > 100, "next to nothing was answered");
}
