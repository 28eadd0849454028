//! Goal: whatever is written, configured, flushed, merged, crashed and reopened, and whatever the clock does, readers
//! see what ttl.md says, whether or not compaction has run.
//!
//! Method: random histories from a seed, each step done by the engine on a simulated disk and by the model (its
//! definition, crates/testkit/src/model.rs), all answers compared as they come, and everything that can be seen every few
//! steps. A history that fails is made short and printed as a script for tests/scripts.
//!
//! `EBBTIDE_SEED` (the first seed), `EBBTIDE_CASES`, `EBBTIDE_STEPS` make it longer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ebbtide::Reads;
use ebbtide::internals::pretend_memory_is_short;
use testkit::op::Op;
use testkit::random::{Random, history, setup, shrink, with_loads};
use testkit::world::{Setup, World};

/// Between two looks at everything.
const LOOK_EVERY: usize = 16;

fn play(setup: &Setup, seed: u64, ops: &[Op]) -> Result<(), (usize, String)> {
    let mut world = World::new(setup.clone(), seed);
    world.counting = true;
    world.persistent = true;
    let took = |at: usize, world: &mut World| match ops.get(at) {
        Some(op) => world.run(op).map(drop),
        None => world.check(),
    };
    for at in 0..=ops.len() {
        let step = catch_unwind(AssertUnwindSafe(|| {
            took(at, &mut world)?;
            // A look opens the database, which is not for the time between a crash and the step that reopens it.
            if at % LOOK_EVERY == 0 && world.is_open() {
                world.check()
            } else {
                Ok(())
            }
        }));
        let difference = match step {
            Ok(Ok(())) => continue,
            Ok(Err(difference)) => difference,
            Err(panic) => format!("panic: {}", testkit::panic_text(&*panic)),
        };
        return Err((at, difference));
    }
    Ok(())
}

/// Plays the cases from a seed, with settings that `adapt` changes.
fn play_all(adapt: impl Fn(u64, Setup) -> Setup) {
    play_histories(adapt, |_, ops| ops);
}

/// The same with histories that `change` changes.
fn play_histories(
    adapt: impl Fn(u64, Setup) -> Setup,
    change: impl Fn(&mut Random, Vec<Op>) -> Vec<Op>,
) {
    let first = testkit::env("EBBTIDE_SEED", 1);
    let cases = testkit::env("EBBTIDE_CASES", 12);
    let steps = testkit::env("EBBTIDE_STEPS", 1_000) as usize;
    for seed in first..first + cases {
        let mut random = Random(seed);
        let setup = adapt(seed, setup(&mut random));
        let ops = history(&mut random, steps);
        let ops = change(&mut random, ops);
        let Err((at, difference)) = play(&setup, seed, &ops) else {
            continue;
        };
        eprintln!("seed {seed}, step {at}: {difference}\nmaking it short ...");
        let short = shrink(ops[..(at + 1).min(ops.len())].to_vec(), |ops| {
            play(&setup, seed, ops).is_err()
        });
        let (_, shortest) = play(&setup, seed, &short).expect_err("it went on failing");
        let script: String = short.iter().map(|op| format!("{op}\n")).collect();
        panic!(
            "seed {seed}, step {at}: {difference}\n\n{}\n{script}check\n\nfails so: {shortest}",
            setup.step()
        );
    }
}

#[test]
fn every_history_is_seen_as_the_model_says() {
    play_all(|_, setup| setup);
}

#[test]
fn so_is_it_with_bulk_loads_among_the_writes() {
    play_histories(|_, setup| setup, with_loads);
}

/// Gets take cached records in the place of blocks.
#[test]
fn so_is_it_where_memory_is_short() {
    pretend_memory_is_short(true);
    play_all(|seed, setup| Setup {
        reads: [Reads::Map, Reads::Pread][seed as usize % 2],
        ..setup
    });
}
