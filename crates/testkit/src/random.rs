//! Random histories from a seed, and shrinking of failing ones.

use std::collections::BTreeMap;

use ebbtide::{Compression, Durability};

use crate::model::{Life, Standard};
use crate::observed::QUOTAS;
use crate::op::{
    ALL, BatchOp, Bytes, Change, INHERIT, LoadPart, Op, Span, StepExpire, StepTtl, Wanted, expand,
};
use crate::world::Setup;

/// SplitMix64 (S. Vigna): one word of state, every seed is good.
pub struct Random(pub u64);

impl Random {
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound`, exclusive.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// The same of larger numbers.
    pub fn number(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Options with sizes so small that a few steps make runs, slots, merges and log segments.
pub fn setup(random: &mut Random) -> Setup {
    Setup {
        durability: random.pick(&[Durability::Buffered, Durability::Buffered, Durability::Sync]),
        memtable: random.pick(&[8 << 10, 16 << 10, 32 << 10]),
        block: random.pick(&[64, 128, 256]),
        table: random.pick(&[1 << 10, 2 << 10, 4 << 10]),
        segment: random.pick(&[4 << 10, 8 << 10, 16 << 10]),
        max_runs: random.pick(&[2, 3, 4, 6]),
        reclaim_within: random.pick(&[1_000, 5_000, 30_000]),
        strict: random.one_in(3),
        skew: random.pick(&[10_000, 60_000, 600_000]),
        compression: random.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]),
        ..Setup::default()
    }
}

/// The kinds of steps in a history: some histories leave out whole kinds, so that the others get further.
struct Flavour {
    keys: usize,
    containers: usize,
    /// Changes of settings, leaps of the clock, crashes, snapshots, range deletes, big values.
    settings: bool,
    leaps: bool,
    crashes: bool,
    snapshots: bool,
    ranges: bool,
    big: bool,
}

/// A history of this many steps.
pub fn history(random: &mut Random, steps: usize) -> Vec<Op> {
    let flavour = Flavour {
        keys: random.pick(&[6, 20, 40, 60]),
        containers: 1 + random.below(3),
        settings: !random.one_in(4),
        leaps: random.one_in(3),
        crashes: !random.one_in(4),
        snapshots: !random.one_in(3),
        ranges: !random.one_in(3),
        big: !random.one_in(3),
    };
    let mut ops = vec![];
    for n in 0..flavour.containers {
        let standard = random.pick(&[Standard::Off, Standard::NoDefault, Standard::After(20_000)]);
        ops.push(Op::Open(format!("c{n}"), standard));
    }
    while ops.len() < steps {
        ops.push(step(random, &flavour, ops.len()));
    }
    ops
}

fn step(random: &mut Random, flavour: &Flavour, n: usize) -> Op {
    loop {
        let op = match random.below(1_000) {
            0..300 => write(random, flavour, n),
            300..400 => conditional_write(random, flavour, n),
            400..450 => Op::Delete(container(random, flavour), key(random, flavour)),
            450..480 => batch(random, flavour, n),
            480..500 if flavour.ranges => {
                Op::DeleteRange(container(random, flavour), span(random, flavour))
            }
            500..600 => time(random, flavour),
            600..630 if flavour.settings => match random.one_in(3) {
                true => Op::ExpireItems(container(random, flavour), expire(random)),
                false => Op::SetTtl(container(random, flavour), standard(random)),
            },
            630..680 => Op::Step(random.pick(&[1, 1, 2, 5, ALL])),
            680..720 => Op::Flush,
            720..725 => Op::Compact,
            725..735 => Op::Sync,
            735..800 if flavour.snapshots => pinned(random, flavour),
            800..940 => read(random, flavour),
            940..946 => Op::Hold(container(random, flavour), key(random, flavour)),
            946..952 if flavour.crashes => Op::Crash,
            952..958 if flavour.crashes => Op::PowerCut(random.next() % 1_000_000),
            958..961 if flavour.crashes => Op::Reopen(vec![]),
            961..963 => Op::Drop(container(random, flavour)),
            963..965 => Op::Checkpoint,
            965..967 => Op::Containers,
            967..970 => Op::Check,
            _ => continue,
        };
        return op;
    }
}

fn container(random: &mut Random, flavour: &Flavour) -> String {
    format!("c{}", random.below(flavour.containers))
}

fn key(random: &mut Random, flavour: &Flavour) -> Bytes {
    key_of(random, flavour.keys)
}

/// One of so many keys of all kinds.
pub fn key_of(random: &mut Random, keys: usize) -> Bytes {
    let n = random.below(keys);
    match n % 8 {
        0 => format!("k{n}").into_bytes(),
        1 => expand(&format!("long{n}*90")),
        2 => vec![b'k', 0, n as u8],
        3 => vec![0xff, 0xff, n as u8],
        _ => format!("key-{n:03}").into_bytes(),
    }
}

fn value(random: &mut Random, flavour: &Flavour, n: usize) -> Bytes {
    let len = match random.below(40) {
        0 if flavour.big => 6_000,
        1..=4 if flavour.big => 700,
        5..=20 => 120,
        21..=30 => 40,
        _ => 0,
    };
    expand(&format!("v{n}*{len}"))
}

fn ttl(random: &mut Random) -> StepTtl {
    match random.below(14) {
        12..14 => StepTtl::Keep,
        0..5 => StepTtl::Life(Life::Inherit),
        5 => StepTtl::Life(Life::Never),
        6..9 => StepTtl::Life(Life::Own(random.pick(&[1, 500, 2_000, 8_000, 20_000]))),
        9 => StepTtl::Life(Life::Own(random.pick(&[
            60_000,
            600_000,
            86_400_000,
            2_147_483_647_000,
        ]))),
        10 => StepTtl::Until(random.pick(&[-5_000, 0, -86_400_000])),
        _ => StepTtl::Until(random.pick(&[1, 3_000, 30_000, 3_600_000, 2_147_483_647_001])),
    }
}

fn standard(random: &mut Random) -> Standard {
    match random.below(6) {
        0 | 1 => Standard::Off,
        2 => Standard::NoDefault,
        _ => Standard::After(random.pick(&[1, 1_000, 5_000, 20_000, 100_000, 10_000_000])),
    }
}

fn expire(random: &mut Random) -> StepExpire {
    let offsets = [-20_000, -1_000, -1, 0, 1, 1_000, 5_000, 20_000, 10_000_000];
    let offset = random.pick(&offsets);
    match random.below(8) {
        0 => StepExpire::All,
        1..4 => StepExpire::WrittenBefore(offset),
        _ => StepExpire::Before(offset),
    }
}

fn span(random: &mut Random, flavour: &Flavour) -> Span {
    let (a, b) = (key(random, flavour), key(random, flavour));
    match random.below(8) {
        0 => Span {
            from: a,
            to: None,
            prefix: false,
        },
        1 => Span {
            from: vec![],
            to: Some(a),
            prefix: false,
        },
        2 => Span {
            from: b"key-0".to_vec(),
            to: None,
            prefix: true,
        },
        _ => Span {
            to: Some(a.clone().max(b.clone())),
            from: a.min(b),
            prefix: false,
        },
    }
}

fn write(random: &mut Random, flavour: &Flavour, n: usize) -> Op {
    Op::Put(
        container(random, flavour),
        key(random, flavour),
        value(random, flavour, n),
        ttl(random),
    )
}

fn conditional_write(random: &mut Random, flavour: &Flavour, n: usize) -> Op {
    let (c, k) = (container(random, flavour), key(random, flavour));
    match random.below(9) {
        7 => Op::Take(c, k),
        8 => Op::Expire(
            c,
            k,
            random.pick(&[
                StepTtl::Life(Life::Never),
                StepTtl::Life(Life::Own(2_000)),
                StepTtl::Until(3_000),
                StepTtl::Until(-1),
            ]),
        ),
        0 => Op::Create(c, k, value(random, flavour, n), ttl(random)),
        1 => Op::Replace(c, k, value(random, flavour, n), ttl(random)),
        2 | 3 => Op::Touch(c, k),
        _ => {
            let change = match random.below(5) {
                0 => Change::Keep,
                1 => Change::Delete,
                2 | 3 => Change::Append(b"+".to_vec()),
                _ => Change::Put(value(random, flavour, n), ttl(random)),
            };
            Op::Update(c, k, change)
        }
    }
}

/// Every second one has conditions, or other writes than puts and deletes.
fn batch(random: &mut Random, flavour: &Flavour, n: usize) -> Op {
    let writes = 1 + random.below(8);
    let kinds = random.pick(&[8, 8, 13, 16]);
    let one = |random: &mut Random| {
        let (c, k) = (container(random, flavour), key(random, flavour));
        match random.below(kinds) {
            0 | 1 => BatchOp::Delete(c, k),
            8 => BatchOp::Touch(c, k),
            9 => BatchOp::Create(c, k, value(random, flavour, n), ttl(random)),
            10 => BatchOp::Replace(c, k, value(random, flavour, n), ttl(random)),
            11 if flavour.ranges => BatchOp::DeleteRange(c, span(random, flavour)),
            12 if flavour.settings && random.one_in(2) => BatchOp::ExpireItems(c, expire(random)),
            12 if flavour.settings => BatchOp::SetTtl(c, standard(random)),
            13 | 14 => {
                let wanted = [Wanted::Absent, Wanted::Present, Wanted::Same, Wanted::Same];
                BatchOp::Require(c, k, random.pick(&wanted))
            }
            15 => random.pick(&[BatchOp::Sync, BatchOp::Require(c, k, Wanted::Other)]),
            _ => BatchOp::Put(c, k, value(random, flavour, n), ttl(random)),
        }
    };
    // Long batches with conditions rarely succeed.
    let writes = if kinds == 8 { writes } else { 1 + writes / 2 };
    Op::Batch((0..writes).map(|_| one(random)).collect())
}

fn time(random: &mut Random, flavour: &Flavour) -> Op {
    match random.below(20) {
        0..2 if flavour.leaps => Op::Jump(random.pick(&[-1, -3_000, -40_000, -700_000])),
        2..4 if flavour.leaps => Op::Jump(random.pick(&[1, 5_000, 100_000, 1_000_000, 30_000_000])),
        4 if flavour.leaps => Op::ConfirmClock,
        5 => Op::Advance(random.pick(&[60_000, 600_000, 4_000_000])),
        _ => Op::Advance(random.pick(&[1, 1, 10, 499, 500, 1_000, 2_000, 5_000, 20_000])),
    }
}

fn pinned(random: &mut Random, flavour: &Flavour) -> Op {
    let name = format!("s{}", random.below(3));
    match random.below(8) {
        0 | 1 => Op::Snapshot(name),
        2 => Op::Release(name),
        3 => Op::Iter(name, container(random, flavour), span(random, flavour)),
        4 => Op::Iter(name, container(random, flavour), Span::default()),
        5 => Op::Back(name, 1 + random.below(4)),
        _ => Op::Next(name, 1 + random.below(4)),
    }
}

fn read(random: &mut Random, flavour: &Flavour) -> Op {
    let c = container(random, flavour);
    match random.below(5) {
        0 => Op::Get(None, c, key(random, flavour)),
        1 => Op::Item(None, c, key(random, flavour)),
        _ => Op::Scan(None, c, span(random, flavour), random.one_in(2)),
    }
}

/// Puts a bulk load in the place of each second flush and of some puts: of keys that the history puts elsewhere, with some
/// of its steps while the load goes on. Some loads are refused.
pub fn with_loads(random: &mut Random, mut ops: Vec<Op>) -> Vec<Op> {
    let puts: Vec<Op> = (ops.iter().filter(|op| matches!(op, Op::Put(..))))
        .cloned()
        .collect();
    let meanwhile: Vec<Op> = (ops.iter().filter(|op| goes_with_a_load(op)))
        .cloned()
        .collect();
    for (at, op) in ops.iter_mut().enumerate() {
        let is_one = match op {
            Op::Flush => random.one_in(2),
            Op::Put(..) => random.one_in(20),
            _ => false,
        };
        if is_one && !puts.is_empty() {
            *op = load(random, at, &puts, &meanwhile);
        }
    }
    ops
}

/// Puts steps of observers between those of a history, and steps on the containers that have a quota.
pub fn with_observers(random: &mut Random, names: &[&'static str], ops: Vec<Op>) -> Vec<Op> {
    let open = QUOTAS.map(|name| Op::Open(name.to_owned(), Standard::NoDefault));
    let mut all = open.to_vec();
    for op in ops {
        all.push(op);
        if random.one_in(3) {
            let name = random.pick(names).to_owned();
            all.push(Op::Observe(name, random.next() % 1_000_000));
        }
        if random.one_in(30) {
            let name = random.pick(&QUOTAS).to_owned();
            all.push(match random.below(16) {
                0 => Op::Drop(name),
                1..4 => Op::SetTtl(name, standard(random)),
                4..8 => Op::ExpireItems(name, expire(random)),
                _ => Op::Delete(name, format!("{:04}", random.below(150)).into_bytes()),
            });
        }
    }
    all
}

/// The load's container stays, and the clock does not jump.
fn goes_with_a_load(op: &Op) -> bool {
    matches!(
        op,
        Op::Advance(_)
            | Op::Put(..)
            | Op::Create(..)
            | Op::Touch(..)
            | Op::Update(..)
            | Op::Delete(..)
            | Op::DeleteRange(..)
            | Op::SetTtl(..)
            | Op::ExpireItems(..)
            | Op::Flush
            | Op::Step(_)
            | Op::Compact
            | Op::Checkpoint
            | Op::Scan(..)
            | Op::Snapshot(_)
            | Op::Iter(..)
            | Op::Next(..)
    )
}

fn load(random: &mut Random, at: usize, puts: &[Op], meanwhile: &[Op]) -> Op {
    let (mut container, mut items) = (String::new(), BTreeMap::new());
    for _ in 0..1 + random.below(24) {
        if let Op::Put(c, key, value, ttl) = &puts[random.below(puts.len())]
            && (items.is_empty() || *c == container)
        {
            let ttl = match ttl {
                StepTtl::Keep if !random.one_in(20) => INHERIT,
                ttl => *ttl,
            };
            let value = [value.as_slice(), at.to_string().as_bytes()].concat();
            container.clone_from(c);
            items.insert(key.clone(), (value, ttl));
        }
    }
    let items = items.into_iter();
    let items = items.map(|(key, (value, ttl))| LoadPart::Item(key, value, ttl));
    let mut parts: Vec<LoadPart> = items.collect();
    if random.one_in(10) {
        // Out of order, or twice.
        parts.push(parts[random.below(parts.len())].clone());
    }
    if random.one_in(2) {
        for _ in 0..1 + random.below(3) {
            let step = LoadPart::Meanwhile(random.pick(meanwhile));
            parts.insert(random.below(parts.len() + 1), step);
        }
    }
    if random.one_in(3) {
        // A default is tried and lifted: the load began before the floor that this leaves.
        let (short, lifted) = (
            Standard::After(1_000),
            random.pick(&[Standard::NoDefault, Standard::After(crate::model::MAX_TTL)]),
        );
        let tried = [
            Op::SetTtl(container.clone(), short),
            Op::Advance(2_000),
            Op::SetTtl(container.clone(), lifted),
        ];
        let at = random.below(parts.len() + 1);
        parts.splice(at..at, tried.map(LoadPart::Meanwhile));
    }
    Op::Load(container, parts)
}

/// Removes parts of a failing history, long ones first, while it still fails.
pub fn shrink(mut ops: Vec<Op>, fails: impl Fn(&[Op]) -> bool) -> Vec<Op> {
    let mut width = ops.len() / 2;
    while width > 0 {
        let mut at = 0;
        let before = ops.len();
        while at < ops.len() {
            let mut shorter = ops.clone();
            shorter.drain(at..(at + width).min(ops.len()));
            if fails(&shorter) {
                ops = shorter;
            } else {
                at += width;
            }
        }
        // The last round is repeated while it still removes something.
        if width > 1 || ops.len() == before {
            width /= 2;
        }
    }
    ops
}
