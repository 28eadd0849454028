//! Goal: whenever power is cut, also while the database recovers from an earlier cut, what was acknowledged and synced is
//! there, of the rest a prefix in whole batches, and nothing that was expired, deleted or overwritten comes back.
//!
//! Method: each history is played twice on a simulated disk. The first time tells what the model knows after each step.
//! The second time, power is cut before every call that changes something on the disk, stores into the log's ring
//! included. What a cut leaves (nothing that was not synced, everything, names alone, data alone, and subsets by seed) is
//! opened, compared with the model and compacted, and compared again. While it is opened, power is cut before every such
//! call once more.
//!
//! Operations that change what containers are stand in the log, and are repeated by the next edit: each of them, before each
//! kind of edit, is cut in the same way, and compared with what is shown after each step.
//!
//! The fixed histories are cut at one call in `EBBTIDE_STRIDE` (1 is all of them), with `EBBTIDE_SUBSETS` subsets each,
//! and again in the recovery of one cut in `EBBTIDE_AGAIN`. Random ones follow, from `EBBTIDE_SEED` on, for
//! `EBBTIDE_SECONDS`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebbtide::internals::{Call, Sim, Survivors};
use ebbtide::{
    Batch, Compression, ContainerOptions, Database, DefaultTtl, Durability, ManualClock, OnMiss,
    Options, Quota, WhenFull,
};
use testkit::env;
use testkit::op::{Op, parse};
use testkit::random::{Random, history, setup, with_loads};
use testkit::world::{Setup, World};

const HISTORIES: [&str; 5] = [
    // Writes of every kind, changes of settings, slots that end, in one container.
    "open a 20s
     put a k1 one*300 | put a k2 two*300 ttl=5s | put a k3 three*300 ttl=-1 | touch a k1
     create a k4 four | replace a k2 again*200 ttl=2s | update a k3 append + | delete a k4
     flush
     put a k1 new*400 ttl=60s | put a k5 five*700 | delete-range a k2..k3 | advance 3s | put a k6 six*100 ttl=1s
     set-ttl a 4s
     put a k7 seven*300 | flush | advance 2s | step all
     set-ttl a off
     put a k8 eight*500 | put a k1 last*100 | sync | put a k9 nine*900
     flush | step all | set-ttl a 30s | advance 40s | step all
     delete a k8 | put a k2 back*100 | compact | put a k3 end*100",
    // Batches over containers, one of which is dropped and made anew; a checkpoint.
    "open a -1 | open b 10s
     batch put a x 1*200 ; put b x 1*200 ; delete a y | batch put a y 2*200 ttl=3s ; put b y 2*200
     flush | batch put b x 3*300 ; delete a x | put b z z*100
     checkpoint
     batch put a z 4*100 ; put b z 4*100 | drop b | put a w 5*100
     open b off | batch put b x 6*300 ; put a x 6*300 | flush
     batch delete b x ; put a x 7 ; put b v 7*50 | step all | advance 5s | step all
     delete-range a x.. | put a y 8*600 | flush | compact | batch put a q 9 ; put b q 9",
    // Segments of the log come and go; one container is written seldom; memtables fill up by themselves; the database is
    // closed and opened.
    "open a 8s | open b off
     put b seldom s*200
     put a f0 f*900 | put a f1 f*900 | put a f2 f*900 | put a f3 f*900 | put a f4 f*900 | put a f5 f*900 | put a f6 f*900
     step all | put a f1 g*900 | put a f2 g*900 | put a f7 g*900 | put a f8 g*900 | put a f9 g*900
     step all | advance 4s | step all | crash | put a f3 h*500 | sync | delete b seldom | advance 4s | step all
     reopen | put a f4 i*900 | put a f5 i*900 | big a big | flush | advance 9s | step all | put b k end",
    // Batches with conditions, that keep lives, delete ranges and change defaults, also of containers that hold nothing;
    // what they say of defaults stands in the log alone, is said by an edit, and is replayed.
    "open a -1 | open b 20s | open c off
     batch create a k 1*100 ttl=9s ; put b k 1*100 ; set-ttl c 5s | put c k 1*200 | put a l 2*300 ttl=4s
     batch touch a k ; put a l 3*300 ttl=keep ; create b n 1 ; delete-range b k..l | put b o 4*100
     batch create a k 2 ; set-ttl a off | batch require b n same ; set-ttl b 3s ; put b n 2*200 ; touch b n ; sync
     flush | batch set-ttl a off ; put a m 5*200 ttl=keep ; delete-range a l.. | crash | batch replace a k 6*300 ttl=keep ; set-ttl a 7s
     advance 4s | step all | batch set-ttl b 30s ; require b n absent ; create b n 3*100 | set-ttl c -1 | take a k
     batch set-ttl c 1s ; put c l 7*200 ; delete-range a .. | reopen | drop b | batch set-ttl a 2s ; put c k 8*100 ttl=keep
     step all | advance 2s | batch set-ttl c off ; set-ttl a -1 ; create a k 9*100 | compact | expire a k ttl=1s | checkpoint",
    // Bulk loads over live items and beside writes, flushes and merges, one of them refused, one that is passed by another.
    "open a 20s | open b -1 | put a k1 1*200 | put a k2 1*300 ttl=5s | put b x 1*100
     load a k1 2*300 ; a k3 2*400 ttl=3s ; a k5 2*100 | put a k2 3*200 | put b x 2*300
     load a k1 4*200 ttl=2s ; + put a k1 5*100 ; + flush ; a k2 4*300 ; + delete-range a k2..k4 ; a k4 4*600 ; + put b y 1*700
     load a k3 6 ; + put a k6 6*300 ; a k2 6 | advance 3s | step all
     load b w 7*100 ; b x 7*200 ttl=4s ; + load b v 8*100 ; b z 7*900 | delete a k1 | set-ttl a 9s | sync | put a k1 9*300
     flush | load a k1 9*100 ; + compact ; a k7 9*100 ttl=-1 ; + set-ttl a off ; a k8 9*800 | put a k8 end | compact | advance 9s
     load a k0 10*100 | crash | load b x 11*300 until=-1s ; + put b x 12*100 ; b z 11*200 | step all | expire-all b | compact",
];

fn steps(text: &str) -> Vec<Op> {
    // A value of more than 16 KiB stands outside its block.
    let big = format!("put a big v*{}", 20 << 10);
    let lines = text
        .lines()
        .flat_map(|line| line.split(" | "))
        .map(str::trim);
    lines
        .map(|line| {
            if line == "big a big" {
                big.as_str()
            } else {
                line
            }
        })
        .map(|line| parse(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// How often power is cut, and what is kept then.
#[derive(Clone, Copy)]
struct CutPlan {
    /// One call in so many.
    stride: u64,
    /// Besides the four kinds of survivors.
    subsets: u64,
    /// In the recovery of one cut in so many.
    again: u64,
    seed: u64,
}

impl CutPlan {
    fn kept(&self, call: u64) -> impl Iterator<Item = Survivors> {
        let fixed = [
            Survivors::Nothing,
            Survivors::Everything,
            Survivors::Names,
            Survivors::Data,
        ];
        let mut random = Random(self.seed ^ call << 20);
        let subsets = (0..self.subsets).map(move |_| Survivors::Chance(random.next()));
        fixed.into_iter().chain(subsets)
    }
}

#[derive(Default)]
struct Count {
    calls: AtomicU64,
    cuts: AtomicU64,
    again: AtomicU64,
}

/// The models that may be found if power is cut in one step: the one after it, and the one before it, which also says
/// what is synced.
struct CutWorlds {
    before: World,
    after: World,
}

impl CutWorlds {
    fn worlds(&self, sim: &Sim) -> [World; 2] {
        let after = self.after.after_cut(sim.kill());
        [
            after.synced_as_in(&self.before),
            self.before.after_cut(sim.kill()),
        ]
    }

    /// One of the two explains what a cut left, then and later.
    fn check(&self, sim: &Sim) -> Result<(), String> {
        let [mut after, mut before] = self.worlds(sim);
        let Err(difference) = follow(&mut after) else {
            return Ok(());
        };
        follow(&mut before)
            .map_err(|other| format!("{difference}\n   or, without the step: {other}"))
    }
}

fn follow(world: &mut World) -> Result<(), String> {
    world.persistent = true;
    world.db()?;
    world.check()?;
    world.run(&Op::Compact)?;
    world.check_scans()?;
    world.run(&Op::Advance(3_000))?;
    world.check_scans()?;
    world.run(&Op::Close)?;
    world.check_scans_of_all()
}

/// Plays a history twice, the second time with cuts.
fn play(setup: &Setup, ops: &[Op], plan: CutPlan, count: &Arc<Count>) -> Result<(), String> {
    let world = || {
        let mut world = World::new(setup.clone(), plan.seed);
        (world.counting, world.persistent) = (true, true);
        world
    };
    let mut first = world();
    let mut known = vec![first.after_cut(first.sim.clone())];
    for op in ops {
        first.run(op).map_err(|e| format!("{op}: {e}"))?;
        known.push(first.after_cut(first.sim.clone()));
    }
    let moment = Arc::new(Mutex::new(None::<CutWorlds>));
    let calls = Arc::new(AtomicU64::new(0));
    let failure = Arc::new(Mutex::new(None::<String>));
    let watch = {
        let (moment, failure, count) = (moment.clone(), failure.clone(), count.clone());
        move |sim: &Sim, call: &Call<'_>| {
            let moment = moment.lock().unwrap();
            let Some(moment) = &*moment else {
                return;
            };
            let number = calls.fetch_add(1, Ordering::Relaxed);
            count.calls.fetch_add(1, Ordering::Relaxed);
            if !call.changes() || number % plan.stride != plan.seed % plan.stride {
                return;
            }
            let what = format!("{} {}", call.operation, call.path.display());
            let result = cut_here(sim, moment, plan, number, &count);
            if let Err(error) = result {
                failure
                    .lock()
                    .unwrap()
                    .get_or_insert(format!("power cut before call {number}, {what}: {error}"));
            }
        }
    };
    let mut second = world();
    let mut known = known.into_iter();
    let mut before = known.next().expect("the first");
    for (op, after) in ops.iter().zip(known) {
        // A power cut tells no time, so none is made while the clock is turned.
        let turns = matches!(op, Op::Advance(_) | Op::Jump(_) | Op::ConfirmClock);
        let next = CutWorlds {
            before: before.after_cut(before.sim.clone()),
            after: after.after_cut(after.sim.clone()),
        };
        *moment.lock().unwrap() = (!turns).then_some(next);
        second.sim.watch(watch.clone());
        second
            .run(op)
            .map_err(|e| format!("{op}, played again: {e}"))?;
        *moment.lock().unwrap() = None;
        before = after;
        if let Some(failure) = failure.lock().unwrap().take() {
            return Err(format!("{op}: {failure}"));
        }
    }
    Ok(())
}

fn cut_here(
    sim: &Sim,
    moment: &CutWorlds,
    plan: CutPlan,
    number: u64,
    count: &Count,
) -> Result<(), String> {
    for kept in plan.kept(number) {
        let left = sim.power_cut_with(kept);
        let check = || moment.check(&left);
        quietly(check).map_err(|error| format!("{kept:?}: {error}"))?;
        let cuts = count.cuts.fetch_add(1, Ordering::Relaxed);
        if !cuts.is_multiple_of(plan.again) {
            continue;
        }
        for (at, left) in cuts_in_recovery(&left, moment, cuts)
            .into_iter()
            .enumerate()
        {
            let check = || moment.check(&left);
            quietly(check)
                .map_err(|error| format!("{kept:?}, cut again in recovery, {at}: {error}"))?;
            count.again.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The disks that power cuts leave before each call of an open that changes something.
fn cuts_in_recovery(left: &Sim, moment: &CutWorlds, seed: u64) -> Vec<Sim> {
    let images = Arc::new(Mutex::new(vec![]));
    let [mut world, _] = moment.worlds(left);
    let taken = images.clone();
    world.sim.watch(move |sim, call| {
        if call.changes() {
            let mut taken = taken.lock().unwrap();
            let seed = seed << 20 | taken.len() as u64;
            taken.push(sim.power_cut(seed));
        }
    });
    world.persistent = true;
    // Whether it is what it should be was asked before.
    let _ = world.db();
    world.sim.unwatch();
    std::mem::take(&mut *images.lock().unwrap())
}

fn quietly(check: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(check))
        .unwrap_or_else(|panic| Err(format!("panic: {}", testkit::panic_text(&*panic))))
}

fn setups() -> [Setup; 2] {
    let buffered = Setup {
        memtable: 8 << 10,
        segment: 4 << 10,
        max_runs: 2,
        reclaim_within: 2_000,
        ..Setup::default()
    };
    let sync = Setup {
        durability: Durability::Sync,
        compression: Compression::Lz4,
        ..buffered.clone()
    };
    [buffered, sync]
}

fn figure(what: &str, count: &Count) {
    let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
    println!(
        "FIGURE simulated power cuts, {what}: {} calls seen, {} cuts, {} more in recovery, 0 violations",
        get(&count.calls),
        get(&count.cuts),
        get(&count.again)
    );
}

#[test]
fn power_may_be_cut_before_every_call() {
    let count = Arc::new(Count::default());
    let plan = CutPlan {
        stride: env("EBBTIDE_STRIDE", 149),
        subsets: env("EBBTIDE_SUBSETS", 2),
        again: env("EBBTIDE_AGAIN", 40),
        seed: env("EBBTIDE_SEED", 1),
    };
    std::thread::scope(|scope| {
        for setup in setups() {
            let count = count.clone();
            scope.spawn(move || {
                for (index, text) in HISTORIES.iter().enumerate() {
                    let played = play(&setup, &steps(text), plan, &count);
                    played.unwrap_or_else(|e| panic!("history {index}, {}: {e}", setup.step()));
                }
            });
        }
    });
    figure("fixed histories", &count);
}

#[test]
fn power_may_be_cut_anywhere_in_random_histories() {
    cut_random_histories(false, "random histories");
}

#[test]
fn power_may_be_cut_anywhere_in_random_histories_with_bulk_loads() {
    cut_random_histories(true, "random histories with bulk loads");
}

fn cut_random_histories(has_loads: bool, what: &str) {
    let count = Arc::new(Count::default());
    let until = Instant::now() + Duration::from_secs(env("EBBTIDE_SECONDS", 0));
    let next = AtomicU64::new(env("EBBTIDE_SEED", 1));
    let one = || {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let mut random = Random(seed);
        let setup = setup(&mut random);
        let mut ops = history(&mut random, 120);
        if has_loads {
            ops = with_loads(&mut random, ops);
        }
        let plan = CutPlan {
            stride: 97,
            subsets: 3,
            again: 50,
            seed,
        };
        let played = play(&setup, &ops, plan, &count);
        played.unwrap_or_else(|e| panic!("seed {seed}, {}: {e}", setup.step()));
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                one();
                while Instant::now() < until {
                    one();
                }
            });
        }
    });
    figure(what, &count);
}

type Work = fn(&Database);

/// Operations that change what containers are: each is in the log before an edit says it.
const CHANGES: [(&str, Work); 10] = [
    ("create", |db| {
        let options = ContainerOptions::new()
            .default_ttl(DefaultTtl::After(Duration::from_secs(60)))
            .keep_expired(Duration::from_secs(9));
        db.container_with("made", options).unwrap();
    }),
    ("put", |db| {
        let made = db.container("made").unwrap();
        made.put("k", "in what was made").unwrap();
    }),
    ("default", |db| {
        let c = db.container("c").unwrap();
        c.set_default_ttl(DefaultTtl::After(Duration::from_secs(90)))
            .unwrap();
    }),
    ("quota", |db| {
        let quota = Quota {
            max_live_bytes: 1 << 20,
            when_full: WhenFull::ExpireSoonest,
        };
        db.container("c").unwrap().set_quota(Some(quota)).unwrap();
    }),
    ("keep expired", |db| {
        let c = db.container("c").unwrap();
        c.set_keep_expired(Duration::from_secs(30)).unwrap();
    }),
    ("batch", |db| {
        let c = db.container("c").unwrap();
        let mut batch = Batch::new();
        batch.put(&c, "k", "in a batch").drop_container("made");
        batch.create_container("made", ContainerOptions::new());
        batch.set_default_ttl(&c, DefaultTtl::NoDefault);
        batch.on_miss(OnMiss::Skip).drop_container("none");
        db.write(batch).unwrap();
    }),
    ("command", |db| {
        db.container("c").unwrap().expire_all().unwrap();
    }),
    ("put again", |db| {
        db.container("made").unwrap().put("k", "v").unwrap();
    }),
    ("no quota", |db| {
        db.container("c").unwrap().set_quota(None).unwrap();
    }),
    ("drop", |db| {
        assert!(db.drop_container("made").unwrap());
    }),
];

/// Work whose edits repeat them, or release the log that they stand in.
const EDITS: [(&str, Work); 4] = [
    ("none", |_| {}),
    ("flush", |db| {
        let c = db.container("c").unwrap();
        c.put("flushed", [7; 300]).unwrap();
        db.flush().unwrap();
    }),
    ("work", |db| {
        let c = db.container("c").unwrap();
        let mut batch = Batch::new();
        for n in 0..12u8 {
            batch.put(&c, [n], [n; 400]);
        }
        db.write(batch).unwrap();
        while db.step().unwrap() {}
    }),
    ("compact", |db| {
        db.compact().unwrap();
    }),
];

/// All that a database says of its containers.
fn shown(db: &Database) -> Vec<String> {
    let names = db.containers().into_iter();
    let shown = names.map(|name| {
        let c = db.container(&name).unwrap();
        let items: Vec<_> = c.iter().map(|item| item.unwrap()).collect();
        let (quota, keep) = (c.quota(), c.keep_expired());
        format!("{name} {:?} {quota:?} {keep:?} {items:?}", c.default_ttl())
    });
    shown.collect()
}

fn small(sim: &Sim, clock: &ManualClock) -> Database {
    Options::new()
        .durability(Durability::Sync)
        .memtable_bytes(8 << 10)
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 4 << 10, 4 << 10)
        .open("/db")
        .unwrap()
}

/// A cut left the state after one of these steps, and later work does not change what is shown of it.
fn expect_one_of(
    (what, edit): (&str, &str),
    left: &Sim,
    clock: &ManualClock,
    steps: &[&Vec<String>],
) {
    let db = small(left, clock);
    let found = shown(&db);
    assert!(
        steps.contains(&&found),
        "{what}, edits by {edit}: {found:#?} is none of {steps:#?}"
    );
    db.compact().unwrap();
    assert_eq!(shown(&db), found);
    db.container("c").unwrap().put("later", "").unwrap();
    let _ = db.container("later").unwrap();
    drop(db);
    let again = shown(&small(&left.kill(), clock));
    assert_eq!(again.len(), found.len() + 1);
}

#[test]
fn power_may_be_cut_between_each_operation_and_each_edit() {
    let stride = env("EBBTIDE_STRIDE", 11);
    let cuts = Arc::new(AtomicU64::new(0));
    for (edit, work) in EDITS {
        let (sim, clock) = (Sim::new(1), ManualClock::new(1_800_000_000_000));
        let db = small(&sim, &clock);
        db.container("c").unwrap().put("k", "v").unwrap();
        let mut before = shown(&db);
        let calls = Arc::new(AtomicU64::new(0));
        for (name, change) in CHANGES {
            for (what, work) in [(name, change), (edit, work)] {
                let taken = Arc::new(Mutex::new(vec![]));
                let (images, calls) = (taken.clone(), calls.clone());
                sim.watch(move |sim, call| {
                    let number = calls.fetch_add(1, Ordering::Relaxed);
                    if call.changes() && number.is_multiple_of(stride) {
                        let kept = [
                            Survivors::Nothing,
                            Survivors::Everything,
                            Survivors::Chance(number),
                        ];
                        let images = &mut images.lock().unwrap();
                        images.extend(kept.map(|kept| sim.power_cut_with(kept)));
                    }
                });
                work(&db);
                sim.unwatch();
                let after = shown(&db);
                let images = std::mem::take(&mut *taken.lock().unwrap());
                for left in &images {
                    expect_one_of((what, edit), left, &clock, &[&before, &after]);
                    cuts.fetch_add(1, Ordering::Relaxed);
                }
                // When it is over, all of it is durable.
                for kept in [Survivors::Nothing, Survivors::Chance(7)] {
                    let left = sim.power_cut_with(kept);
                    expect_one_of((what, edit), &left, &clock, &[&after]);
                }
                before = after;
            }
        }
    }
    let cuts = cuts.load(Ordering::Relaxed);
    println!("FIGURE power cuts between operations and edits: {cuts} cuts, 0 violations");
}
