//! Goal: whatever the wall clock does, no expired item is shown, no live item is purged, and the refusal of a clock
//! says how to continue.
//!
//! Method: a matrix of every jump from 1 ms to 10 years, forwards and backwards, and a clock that stops, at every
//! moment that matters: while running, across a reopen after a clean close, a kill and a power cut, between the steps
//! of merges, and just before the first item is purged or its run dropped; with `Refuse` and with `StartAtMark`. The
//! model keeps the promises about time by their definition, and everything visible is compared with it after each step.
//! Finally the clock is corrected: items that a wrong clock only hid must be there again.
//!
//! For jobs that read the clock during their work, a clock jumps at its n-th reading, for every n.
//!
//! `EBBTIDE_CASES` repeats the matrix with as many different items (default 1).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide::internals::Sim;
use ebbtide::{
    Clock, ClockBehind, ContainerOptions, Database, DefaultTtl, Error, Item, ManualClock,
};
use testkit::model::{Life, Standard};
use testkit::op::{ALL, Op, Span, StepTtl};
use testkit::random::Random;
use testkit::stage::{after, in_steps, ms, open, seconds};
use testkit::world::{START, Setup, World, millis};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

const JUMPS: [u64; 7] = [1, SECOND, MINUTE, HOUR, DAY, 30 * DAY, 10 * YEAR];

/// When the clock jumps.
#[derive(Clone, Copy, Debug)]
enum JumpAt {
    Running,
    /// Also behind a change of the default, which only a settled clock may make.
    Settings,
    CleanReopen,
    KilledReopen,
    PowerCutReopen,
    /// Between two steps of merging.
    Merging,
    /// One millisecond before the run of short lives may be dropped.
    BeforeDrop,
    /// The same, and it stands from there on.
    Frozen,
}

const MOMENTS: [JumpAt; 8] = [
    JumpAt::Running,
    JumpAt::Settings,
    JumpAt::CleanReopen,
    JumpAt::KilledReopen,
    JumpAt::PowerCutReopen,
    JumpAt::Merging,
    JumpAt::BeforeDrop,
    JumpAt::Frozen,
];

/// Lives on both sides of every jump.
const LIVES: [u64; 9] = [
    5 * SECOND,
    30 * SECOND,
    10 * MINUTE,
    2 * HOUR,
    3 * DAY,
    60 * DAY,
    YEAR,
    12 * YEAR,
    68 * YEAR,
];

struct History {
    world: World,
    steps: u64,
    said: Vec<String>,
}

impl History {
    fn run(&mut self, op: Op) -> String {
        self.steps += 1;
        self.said.push(op.to_string());
        match self.world.run(&op) {
            Ok(shown) => shown,
            Err(difference) => panic!("{}\n{difference}", self.said.join("\n")),
        }
    }

    fn check(&mut self) {
        if self.world.is_open() {
            self.run(Op::Check);
        }
    }

    /// Puts of every life, inherited ones among them.
    fn fill(&mut self, round: usize, random: &mut Random) {
        for (n, life) in LIVES.into_iter().enumerate() {
            for copy in 0..4 {
                let key = format!("{n}-{copy}-{}", random.below(3)).into_bytes();
                let value = vec![b'a' + round as u8; 20 + random.below(300)];
                let ttl = match copy {
                    0 => StepTtl::Life(Life::Inherit),
                    1 => StepTtl::Life(Life::Never),
                    _ => StepTtl::Life(Life::Own(life)),
                };
                self.run(Op::Put("c".into(), key, value, ttl));
            }
        }
    }
}

/// One cell of the matrix; answers how many steps were compared.
fn one(moment: JumpAt, by: i64, behind: ClockBehind, seed: u64) -> u64 {
    let mut random = Random(seed);
    let setup = Setup {
        behind,
        reclaim_within: SECOND,
        strict: true,
        ..Setup::default()
    };
    let mut history = History {
        world: World::new(setup, seed),
        steps: 0,
        said: vec![format!("# {moment:?}, {by} ms, {behind:?}, seed {seed}")],
    };
    history.run(Op::Open("c".into(), Standard::After(20 * MINUTE)));
    for round in 0..3 {
        history.fill(round, &mut random);
        history.run(Op::Flush);
        history.run(Op::Advance(3 * SECOND));
    }
    history.fill(3, &mut random);
    history.run(Op::Sync);
    let jump = |history: &mut History| {
        history.run(Op::Jump(by));
        history.check();
    };
    match moment {
        JumpAt::Running | JumpAt::Settings => jump(&mut history),
        JumpAt::CleanReopen => {
            history.run(Op::Close);
            jump(&mut history);
            history.run(Op::Reopen(vec![]));
        }
        JumpAt::KilledReopen => {
            history.run(Op::Crash);
            jump(&mut history);
            history.run(Op::Reopen(vec![]));
        }
        JumpAt::PowerCutReopen => {
            history.run(Op::PowerCut(seed));
            jump(&mut history);
            history.run(Op::Reopen(vec![]));
        }
        JumpAt::Merging => {
            history.run(Op::Step(2));
            jump(&mut history);
            history.run(Op::Step(1));
        }
        JumpAt::BeforeDrop | JumpAt::Frozen => {
            history.run(Op::Flush);
            history.run(Op::Advance(5 * SECOND - 1));
            jump(&mut history);
        }
    }
    let refused = !history.world.is_open();
    if refused {
        // Refused, as it should be, and the words say how to go on.
        let text = refusal(&history.world);
        assert!(
            text.contains("correct the clock") && text.contains("StartAtMark"),
            "{text}"
        );
    } else {
        history.check();
        if matches!(moment, JumpAt::Settings) {
            history.run(Op::SetTtl("c".into(), Standard::Off));
            history.check();
            history.run(Op::SetTtl("c".into(), Standard::After(HOUR)));
            history.check();
        }
        history.run(Op::Step(ALL));
        history.check();
        if !matches!(moment, JumpAt::Frozen) {
            for pass in [MINUTE, 4 * MINUTE] {
                history.run(Op::Advance(pass));
                history.run(Op::Step(ALL));
                history.check();
            }
        }
        history.fill(4, &mut random);
        history.run(Op::Flush);
        history.run(Op::Step(ALL));
        history.check();
        history.run(Op::Scan(None, "c".into(), Span::default(), true));
    }
    // The clock is put right; what a lead only hid is there again, and the model knows what.
    history.run(Op::Jump(-by));
    history.check();
    history.run(Op::Step(ALL));
    history.check();
    history.run(Op::Crash);
    let start = ("clock-behind".to_owned(), "start".to_owned());
    history.run(Op::Reopen(vec![start]));
    history.check();
    history.run(Op::Advance(2 * HOUR));
    history.run(Op::Compact);
    history.check();
    history.steps
}

/// The refusal of an open with the clock behind.
fn refusal(world: &World) -> String {
    let options = world.setup.options(&world.sim, &world.clock);
    match options.open(testkit::world::path()) {
        Err(error @ Error::ClockBehind { .. }) => error.to_string(),
        Err(error) => panic!("refused, but with {error}"),
        Ok(_) => panic!("refused, and then not"),
    }
}

#[test]
fn no_jump_of_the_clock_shows_or_purges_what_it_should_not() {
    let (mut cells, mut steps) = (0, 0);
    let first = testkit::env("EBBTIDE_SEED", 1);
    for seed in first..first + testkit::env("EBBTIDE_CASES", 1) {
        for moment in MOMENTS {
            for behind in [ClockBehind::Refuse, ClockBehind::StartAtMark] {
                let jumps = JUMPS.into_iter().flat_map(|by| [by as i64, -(by as i64)]);
                for by in jumps.chain([0]) {
                    let cell = || one(moment, by, behind, seed);
                    steps += catch_unwind(AssertUnwindSafe(cell)).unwrap_or_else(|panic| {
                        panic!(
                            "{moment:?}, {by} ms, {behind:?}, seed {seed}: {}",
                            testkit::panic_text(panic.as_ref())
                        )
                    });
                    cells += 1;
                }
            }
        }
    }
    println!(
        "FIGURE clock: {cells} cases of {} jumps, {steps} steps compared, 0 violations",
        2 * JUMPS.len() + 1
    );
}

/// A clock whose wall leads by `by` between its readings number `from` and `to`.
#[derive(Clone)]
struct Fickle {
    clock: ManualClock,
    readings: Arc<AtomicU64>,
    from: u64,
    to: u64,
    by: i64,
}

impl Clock for Fickle {
    fn wall(&self) -> u64 {
        let reading = self.readings.fetch_add(1, Ordering::SeqCst);
        let wrong = (self.from..self.to).contains(&reading);
        let by = if wrong { self.by } else { 0 };
        self.clock.wall().saturating_add_signed(by)
    }

    fn uptime(&self) -> u64 {
        self.clock.uptime()
    }
}

const STAYS: u32 = 24;

/// A short history of flushes, merges and drops. None: it ended before that reading came.
fn fickle(from: u64, to: u64, by: i64) -> Option<()> {
    let sim = Sim::new(from);
    let clock = ManualClock::new(START);
    let fickle = Fickle {
        clock: clock.clone(),
        readings: Arc::default(),
        from,
        to,
        by,
    };
    let open = |fickle: Fickle| {
        in_steps(&sim, &fickle)
            .memtable_bytes(8 << 10)
            .max_runs(2)
            .reclaim_within(seconds(1))
            .reclaim_strict(true)
            .clock_behind(ClockBehind::StartAtMark)
            .sizes(128, 2 << 10, 8 << 10)
            .open(Path::new("/db"))
            .unwrap()
    };
    let live = |db: &Database| {
        let counts = ContainerOptions::new().default_ttl(DefaultTtl::NoDefault);
        let c = db.container_with("c", counts).unwrap();
        for _ in 0..3 {
            for n in 0..STAYS {
                // A day and a year end behind no jump that is corrected; seconds do.
                let stay = after([DAY, YEAR][n as usize % 2]);
                c.put_with_ttl(format!("stay-{n}"), [b'x'; 60], stay)
                    .unwrap();
                let go = after(2_000);
                c.put_with_ttl(format!("go-{n}"), [b'y'; 60], go).unwrap();
            }
            db.flush().unwrap();
            for _ in 0..4 {
                clock.advance(ms(700));
                while db.step().unwrap() {}
            }
        }
        c
    };
    let db = open(fickle.clone());
    let c = live(&db);
    let reached = fickle.readings.load(Ordering::SeqCst);
    // By now the clock is right again, and the lead forgotten.
    let right = Fickle { by: 0, ..fickle };
    let compare = |c: &ebbtide::Container, when: &str| {
        for n in 0..STAYS {
            let what = format!("{when}: item {n}, {by} ms at readings {from} to {to}");
            assert!(c.contains(format!("stay-{n}")).unwrap(), "{what}: purged");
        }
        // Items that were stamped in the future expire later, and not sooner.
        for item in c.iter() {
            let ends = item.unwrap().expires_at().unwrap();
            assert!(millis(ends) > clock.wall(), "{when}: expired, and shown");
        }
    };
    if reached > to {
        clock.advance(seconds(2));
        compare(&c, "running");
        drop((c, db));
        let db = open(right);
        compare(&db.container("c").unwrap(), "opened again");
        db.compact().unwrap();
        compare(&db.container("c").unwrap(), "compacted");
    }
    (reached > from).then_some(())
}

#[test]
fn a_clock_that_is_wrong_in_the_midst_of_a_job_purges_nothing() {
    let mut histories = 0;
    for by in [MINUTE, HOUR, 2 * DAY, 10 * YEAR] {
        for by in [by as i64, -(by as i64)] {
            let mut from = 1;
            while fickle(from, from + 3, by).is_some() {
                histories += 1;
                from += 7;
            }
        }
    }
    assert!(histories > 100, "{histories}");
    println!("FIGURE clock within jobs: {histories} histories, 0 violations");
}

/// A clock that tells for less what it will not be for ten seconds yet.
#[derive(Clone)]
struct Vague(ManualClock);

impl Clock for Vague {
    fn wall(&self) -> u64 {
        self.0.wall()
    }

    fn uptime(&self) -> u64 {
        self.0.uptime()
    }

    fn wall_at_most(&self) -> Option<u64> {
        Some(self.0.wall() + 10 * SECOND)
    }
}

/// Goal: a clock that is vague makes nothing end sooner or later. Method: items of all lives up to thirty seconds, in
/// memory and in tables, read in every way at every moment around an end.
#[test]
fn a_vague_clock_is_exact_to_the_millisecond() {
    let time = ManualClock::new(1_767_225_600_000);
    let (db, c) = open(in_steps(&Sim::new(1), &Vague(time.clone())));
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let lives: Vec<u64> = (0..60).map(|n| 1 + n * SECOND / 2).collect();
    for (n, life) in lives.iter().enumerate() {
        let ttl = after(*life);
        c.put_with_ttl([n as u8], "v", ttl).unwrap();
        if n == lives.len() / 2 {
            db.flush().unwrap();
        }
    }
    let mut now = 0;
    for (ending, end) in lives.iter().enumerate() {
        for moment in [end - 1, *end] {
            time.advance(ms(moment - now));
            now = moment;
            // First of all: nobody has read the clock since.
            let found = c.get([ending as u8]).unwrap().is_some();
            assert_eq!(found, now < *end, "{ending} at {now}");
            let alive: Vec<u8> = (0..lives.len() as u8)
                .filter(|n| lives[usize::from(*n)] > now)
                .collect();
            let key = |item: ebbtide::Result<Item>| item.unwrap().key()[0];
            let mut backwards: Vec<u8> = c.iter().rev().map(key).collect();
            backwards.reverse();
            assert_eq!(c.iter().map(key).collect::<Vec<_>>(), alive, "at {now}");
            assert_eq!(backwards, alive, "at {now}");
            for n in 0..lives.len() as u8 {
                let there = (c.get([n]).unwrap().is_some(), c.contains([n]).unwrap());
                let expected = alive.contains(&n);
                assert_eq!(there, (expected, expected), "{n} at {now}");
            }
        }
    }
}
