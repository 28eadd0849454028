//! Goal: whatever is written, configured, flushed, merged, crashed and reopened, and whatever the clock does, readers
//! see what ttl.md says, whether or not compaction has run.
//!
//! Method: random histories from a seed, each step done by the engine on a simulated disk and by the model (its
//! definition, crates/testkit/src/model.rs), all answers compared as they come, and everything that can be seen every few
//! steps. A history that fails is made short and printed as a script for tests/scripts.
//!
//! `EBBTIDE_SEED` (the first seed), `EBBTIDE_CASES`, `EBBTIDE_STEPS` make it longer; with `EBBTIDE_SHRINK=0` a history that
//! fails is not made short; `EBBTIDE_HISTORY` names a file with the steps of a history that observers had a part in, which
//! is played again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ebbtide::Reads;
use ebbtide::internals::pretend_memory_is_short;
use testkit::observed::{Observed, Observer, everyone};
use testkit::op::{Op, parse};
use testkit::random::{Random, history, setup, shrink, with_loads, with_observers};
use testkit::world::{Setup, World};

/// Between two looks at everything.
const LOOK_EVERY: usize = 16;

/// How often observers did and met things.
type Met = BTreeMap<&'static str, usize>;

fn play(
    setup: &Setup,
    seed: u64,
    ops: &[Op],
    observers: Vec<Box<dyn Observer>>,
) -> Result<Met, (usize, String)> {
    let mut world = World::new(setup.clone(), seed);
    world.counting = true;
    world.persistent = true;
    let mut observed = Observed { world, observers };
    let took = |at: usize, observed: &mut Observed| match ops.get(at) {
        Some(op) => observed.run(op).map(drop),
        None => observed.end(),
    };
    for at in 0..=ops.len() {
        let step = catch_unwind(AssertUnwindSafe(|| {
            took(at, &mut observed)?;
            // A look opens the database, which is not for the time between a crash and the step that reopens it.
            if at % LOOK_EVERY == 0 && observed.world.is_open() {
                observed.world.check()
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
    Ok((observed.observers.iter())
        .flat_map(|observer| observer.counts())
        .collect())
}

/// Plays the cases from a seed, with settings that `adapt` changes.
fn play_all(adapt: impl Fn(u64, Setup) -> Setup) {
    play_histories(adapt, |_, ops| ops, Vec::new);
}

/// The same with histories that `change` changes.
fn play_histories(
    adapt: impl Fn(u64, Setup) -> Setup,
    change: impl Fn(&mut Random, Vec<Op>) -> Vec<Op>,
    observers: impl Fn() -> Vec<Box<dyn Observer>>,
) -> Met {
    let mut met = Met::new();
    let first = testkit::env("EBBTIDE_SEED", 1);
    let cases = testkit::env("EBBTIDE_CASES", 12);
    let steps = testkit::env("EBBTIDE_STEPS", 1_000) as usize;
    for seed in first..first + cases {
        let mut random = Random(seed);
        let setup = adapt(seed, setup(&mut random));
        let ops = history(&mut random, steps);
        let ops = change(&mut random, ops);
        let (at, difference) = match play(&setup, seed, &ops, observers()) {
            Ok(some) => {
                some.into_iter()
                    .for_each(|(what, count)| *met.entry(what).or_default() += count);
                continue;
            }
            Err(failed) => failed,
        };
        if testkit::env("EBBTIDE_SHRINK", 1) == 0 {
            panic!("seed {seed}, step {at}: {difference}");
        }
        eprintln!("seed {seed}, step {at}: {difference}\nmaking it short ...");
        let short = shrink(ops[..(at + 1).min(ops.len())].to_vec(), |ops| {
            play(&setup, seed, ops, observers()).is_err()
        });
        let (_, shortest) =
            play(&setup, seed, &short, observers()).expect_err("it went on failing");
        let script: String = short.iter().map(|op| format!("{op}\n")).collect();
        panic!(
            "seed {seed}, step {at}: {difference}\n\n{}\n{script}check\n\nfails so: {shortest}",
            setup.step()
        );
    }
    met
}

#[test]
fn every_history_is_seen_as_the_model_says() {
    play_all(|_, setup| setup);
}

#[test]
fn so_is_it_with_bulk_loads_among_the_writes() {
    play_histories(|_, setup| setup, with_loads, Vec::new);
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

/// Transactions held open, readers of expirations, copies kept by changes, followers and quotas, beside all of it.
#[test]
fn so_it_is_for_all_that_observe_one_history() {
    let names: Vec<&'static str> = everyone().iter().map(|observer| observer.name()).collect();
    let change = |random: &mut Random, ops| {
        let ops = with_loads(random, ops);
        with_observers(random, &names, ops)
    };
    if let Ok(file) = std::env::var("EBBTIDE_HISTORY") {
        let text = std::fs::read_to_string(file).unwrap();
        let ops: Vec<Op> = text.lines().map(|line| parse(line).unwrap()).collect();
        play(&Setup::default(), 1, &ops, everyone()).unwrap();
        return;
    }
    let met = play_histories(|_, setup| setup, change, everyone);
    println!("FIGURE observed: {met:?}");
    if testkit::env("EBBTIDE_CASES", 12) >= 12 {
        let enough = [
            ("commits", 50),
            ("conflicts", 30),
            ("ends given", 500),
            ("passes", 60),
            ("copies anew", 10),
            ("catching up", 100),
            ("puts taken", 500),
            ("puts refused", 50),
            ("room made", 1),
        ];
        for (what, least) in enough {
            assert!(met[what] >= least, "{what}: {met:?}");
        }
    }
}
