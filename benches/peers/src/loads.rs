//! The loads: which key is put when, and how long it lives. A load is a pure function of its options and its seed.
//!
//! ```text
//!            fill (as fast as it goes)            load (open loop, at a rate)          silence
//!   |-- what a load that ran for ever ----|-- put 0, put 1, put 2, ... ---------|-- no operation --|
//!       would have left alive
//! ```
//!
//! A *slot* names a key. Loads with fresh keys give every put a slot of its own; loads with a population put the same
//! slots again and again. Whatever is random about put `n` is a hash of (seed, n), so that any put can be told from its
//! number alone.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;
/// Bytes that a put hands to an engine.
pub const PUT_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
/// Bytes that a live item counts: key, value, and 16 bytes for the metadata that any engine keeps of it.
pub const LIVE_BYTES: u64 = PUT_BYTES + 16;
/// One get for so many puts.
pub const PUTS_PER_GET: u64 = 4;

/// A lifetime under which nothing expires while anyone is looking: ten years.
const LASTING_MS: u64 = 10 * 365 * 24 * 3_600 * 1_000;
/// No get asks for a key that was put longer ago than so many puts: bounds the driver's own memory.
const WINDOW_MAX: u64 = 16 << 20;

/// The loads by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    /// Lifetimes of 5 to 25 s for nine of ten items, 60 s for the tenth; starts empty
    Field,
    /// The same with lifetimes ten times as long, and so with ten times the live data
    Field10,
    /// One lifetime for all, keys in the order of time: a time series
    Fixed,
    /// One lifetime for all, keys anywhere: sessions or tokens under a default
    Tokens,
    /// Lifetimes uniform over a factor of ten
    Uniform,
    /// Log-normal lifetimes, sigma 1.8: five orders of magnitude
    Lognormal,
    /// Sessions that are put again thirty times within a lifetime
    Refresh,
    /// Uniform overwrites of a population that never expires
    Overwrite,
    /// Uniform lifetimes, but half of the data at the start and a quarter of the puts never expire
    Mixed,
}

/// The choices of the command line about a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Its name.
    pub name: Name,
    /// Puts a second.
    pub rate: u64,
    /// Seconds of load; `None`: what suits it.
    pub seconds: Option<u64>,
    /// Seconds of silence after it; `None`: what suits it.
    pub silence: Option<u64>,
    /// The engines' memtables.
    pub memtable_bytes: u64,
    /// Live data in memtables; lifetimes or population are scaled to it. `None`: as the load has it.
    pub live_memtables: Option<f64>,
    /// Nothing expires: what reclaiming is compared with.
    pub lasting: bool,
    /// Two loads that differ in the seed alone are of the same kind.
    pub seed: u64,
}

/// How long items live, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lives {
    Never,
    Fixed(f64),
    Uniform { from: f64, to: f64 },
    Field { from: f64, to: f64, tenth: f64 },
    Lognormal { median: f64 },
}

/// The log-normal's sigma, and how far from its median it is cut off on either side: 2.5 orders of magnitude.
const SIGMA: f64 = 1.8;
const CUT: f64 = 316.0;

impl Lives {
    fn scaled(self, by: f64) -> Lives {
        match self {
            Lives::Never => Lives::Never,
            Lives::Fixed(life) => Lives::Fixed(life * by),
            Lives::Uniform { from, to } => Lives::Uniform {
                from: from * by,
                to: to * by,
            },
            Lives::Field { from, to, tenth } => Lives::Field {
                from: from * by,
                to: to * by,
                tenth: tenth * by,
            },
            Lives::Lognormal { median } => Lives::Lognormal {
                median: median * by,
            },
        }
    }

    fn mean(self) -> f64 {
        match self {
            Lives::Never => f64::INFINITY,
            Lives::Fixed(life) => life,
            Lives::Uniform { from, to } => (from + to) / 2.0,
            Lives::Field { from, to, tenth } => 0.9 * (from + to) / 2.0 + 0.1 * tenth,
            // By the formula, less the 4 % that the cut takes (the tests measure it).
            Lives::Lognormal { median } => 0.96 * median * (SIGMA * SIGMA / 2.0).exp(),
        }
    }

    fn longest(self) -> f64 {
        match self {
            Lives::Never => f64::INFINITY,
            Lives::Fixed(life) => life,
            Lives::Uniform { to, .. } => to,
            Lives::Field { tenth, .. } => tenth,
            Lives::Lognormal { median } => median * CUT,
        }
    }

    /// The lifetime that a hash stands for.
    fn draw(self, hash: u64) -> f64 {
        match self {
            Lives::Never => f64::INFINITY,
            Lives::Fixed(life) => life,
            Lives::Uniform { from, to } => from + (to - from) * unit(hash),
            Lives::Field { tenth, .. } if hash.is_multiple_of(10) => tenth,
            Lives::Field { from, to, .. } => from + (to - from) * unit(hash),
            Lives::Lognormal { median } => {
                let radius = (-2.0 * (1.0 - unit(hash)).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * unit(mix(hash))).cos();
                median * (SIGMA * normal).exp().clamp(1.0 / CUT, CUT)
            }
        }
    }
}

/// The choice of the slot that a put goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Every put has a slot of its own, its key anywhere.
    Fresh,
    /// Every put has a slot of its own, its key behind all earlier ones.
    InOrder,
    /// Any of so many slots, each as likely.
    Population(u64),
}

/// One put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Names the key.
    pub slot: u64,
    /// How long it lives from now; `None`: it never expires.
    pub ttl_ms: Option<u64>,
}

/// A load, worked out from its [`Choice`].
#[derive(Clone, Debug)]
pub struct Load {
    /// The choice that it was made from.
    pub choice: Choice,
    /// Seconds of load.
    pub seconds: u64,
    /// Seconds of silence after it.
    pub silence: u64,
    /// Seconds after which its figures count.
    pub warmup: u64,
    /// Why then.
    pub warmup_rule: &'static str,
    keys: Keys,
    lives: Lives,
    /// The share of puts that never expire.
    never: f64,
    filled: bool,
}

impl Load {
    /// Works one out.
    pub fn new(choice: Choice) -> Load {
        let (keys, lives, never) = shape(choice.name, choice.rate);
        let filled = choice.name != Name::Field;
        let mut load = Load {
            choice,
            seconds: 0,
            silence: 0,
            warmup: 0,
            warmup_rule: "",
            keys,
            lives,
            never,
            filled,
        };
        if let Some(memtables) = choice.live_memtables {
            load.scale(memtables * choice.memtable_bytes as f64 / load.live_bytes());
        }
        load.plan_times();
        load
    }

    fn scale(&mut self, by: f64) {
        self.lives = self.lives.scaled(by);
        if let Keys::Population(slots) = &mut self.keys {
            *slots = ((*slots as f64 * by) as u64).max(1);
        }
    }

    fn plan_times(&mut self) {
        let usual = match self.choice.name {
            Name::Field10 => 240,
            _ => 90,
        };
        self.seconds = self.choice.seconds.unwrap_or(usual);
        let (third, longest) = (self.seconds / 3, self.lives.longest() / 1e3);
        (self.warmup, self.warmup_rule) = if longest <= self.seconds as f64 / 2.0 {
            (longest.ceil() as u64, "the longest lifetime")
        } else {
            (third, "a third of the load")
        };
        let quiet = if self.lives == Lives::Never { 20 } else { 120 };
        self.silence = self.choice.silence.unwrap_or(quiet);
    }

    /// The live data of the steady state, or of the start where live data only grows.
    pub fn live_bytes(&self) -> f64 {
        let items = match self.keys {
            Keys::Population(slots) => slots as f64,
            _ => self.dated_items() * if self.never > 0.0 { 2.0 } else { 1.0 },
        };
        items * LIVE_BYTES as f64
    }

    fn dated_items(&self) -> f64 {
        self.choice.rate as f64 * (1.0 - self.never) * self.lives.mean() / 1e3
    }

    /// The longest lifetime in milliseconds; `None` if something never expires.
    pub fn longest_ms(&self) -> Option<u64> {
        let longest = self.lives.longest();
        let bounded = self.never == 0.0 && longest.is_finite();
        bounded.then(|| match self.choice.lasting {
            true => LASTING_MS,
            false => longest.ceil() as u64,
        })
    }

    /// Whether anything expires while anyone is looking.
    pub fn expires(&self) -> bool {
        self.lives != Lives::Never && !self.choice.lasting
    }

    /// Whether no key is put twice.
    pub fn keys_are_fresh(&self) -> bool {
        !matches!(self.keys, Keys::Population(_))
    }

    /// Whether every key lies behind all earlier ones.
    pub fn keys_are_in_order(&self) -> bool {
        self.keys == Keys::InOrder
    }

    /// How many slots the driver must keep in mind for judging gets.
    pub fn window(&self) -> u64 {
        let longest = match self.lives.longest() {
            longest if longest.is_finite() => longest,
            _ => 1e3 * self.seconds as f64,
        };
        match self.keys {
            Keys::Population(slots) => slots,
            _ => ((1.1 * longest / 1e3 * self.choice.rate as f64) as u64).clamp(1, WINDOW_MAX),
        }
    }

    /// The items that a load of infinite length would have left alive, oldest first, each with its remaining life.
    pub fn fill(&self) -> Box<dyn Iterator<Item = Put> + '_> {
        if !self.filled {
            return Box::new(std::iter::empty());
        }
        match self.keys {
            Keys::Population(slots) => Box::new((0..slots).map(|slot| self.fill_slot(slot))),
            _ => Box::new(self.fill_fresh().enumerate().map(|(n, remains)| Put {
                slot: n as u64,
                ttl_ms: remains,
            })),
        }
    }

    /// The age of a slot's newest put is exponential, the mean being the time between two.
    fn fill_slot(&self, slot: u64) -> Put {
        let between = self.window() as f64 / self.choice.rate as f64 * 1e3;
        let age = -between * (1.0 - unit(self.hash(FILL, slot))).ln();
        let ttl_ms = match self.lives.longest() {
            life if life.is_finite() => Some(self.ttl_ms((life - age).max(1.0))),
            _ => None,
        };
        Put { slot, ttl_ms }
    }

    /// Of put `v` before the start: what remains of its life, if anything does. Never-expiring items come between.
    fn fill_fresh(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        let back = (self.lives.longest() / 1e3 * self.choice.rate as f64) as u64;
        let dated = (0..back).rev().filter_map(move |v| {
            if unit(self.hash(NEVER, v)) < self.never {
                return None;
            }
            let age = v as f64 * 1e3 / self.choice.rate as f64;
            let remains = self.lives.draw(self.hash(FILL, v)) - age;
            (remains >= 1.0).then(|| Some(self.ttl_ms(remains)))
        });
        let with_never = self.never > 0.0;
        dated.flat_map(move |ttl| std::iter::once(ttl).chain(with_never.then_some(None)))
    }

    /// Put `n` of the load; fresh keys are numbered on from the fill's.
    pub fn put(&self, n: u64, filled: u64) -> Put {
        let hash = self.hash(LOAD, n);
        let slot = match self.keys {
            Keys::Population(slots) => hash % slots,
            _ => filled + n,
        };
        let never = self.never > 0.0 && unit(self.hash(NEVER, n)) < self.never;
        let ttl_ms = match self.lives.draw(mix(hash)) {
            life if life.is_finite() && !never => Some(self.ttl_ms(life)),
            _ => None,
        };
        Put { slot, ttl_ms }
    }

    fn ttl_ms(&self, life: f64) -> u64 {
        if self.choice.lasting {
            LASTING_MS
        } else {
            (life.round() as u64).max(1)
        }
    }

    /// The key of a slot.
    pub fn key(&self, slot: u64) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        let high = match self.keys {
            Keys::InOrder => slot,
            _ => self.hash(KEY, slot),
        };
        key[..8].copy_from_slice(&high.to_be_bytes());
        key[8..].copy_from_slice(&self.tag(slot).to_be_bytes());
        key
    }

    /// The first bytes of every value of a slot, so that a get that finds another slot's value is noticed.
    pub fn tag(&self, slot: u64) -> u64 {
        self.hash(TAG, slot)
    }

    fn hash(&self, stream: u64, n: u64) -> u64 {
        mix(mix(self.choice.seed ^ stream).wrapping_add(n))
    }
}

/// Streams of random numbers that have nothing to do with each other.
const LOAD: u64 = 1 << 56;
const FILL: u64 = 2 << 56;
const NEVER: u64 = 3 << 56;
const KEY: u64 = 4 << 56;
const TAG: u64 = 5 << 56;

/// Keys, lifetimes, and the share that never expires.
fn shape(name: Name, rate: u64) -> (Keys, Lives, f64) {
    let field = Lives::Field {
        from: 5e3,
        to: 25e3,
        tenth: 60e3,
    };
    let uniform = Lives::Uniform {
        from: 4e3,
        to: 40e3,
    };
    match name {
        Name::Field => (Keys::Fresh, field, 0.0),
        Name::Field10 => (Keys::Fresh, field.scaled(10.0), 0.0),
        Name::Fixed => (Keys::InOrder, Lives::Fixed(20e3), 0.0),
        Name::Tokens => (Keys::Fresh, Lives::Fixed(20e3), 0.0),
        Name::Uniform => (Keys::Fresh, uniform, 0.0),
        Name::Lognormal => (Keys::Fresh, Lives::Lognormal { median: 4e3 }, 0.0),
        Name::Refresh => {
            let life = 600e3;
            let sessions = (rate as f64 * life / 1e3 / 30.0) as u64;
            (Keys::Population(sessions), Lives::Fixed(life), 0.0)
        }
        Name::Overwrite => (Keys::Population(rate * 20), Lives::Never, 0.0),
        Name::Mixed => (Keys::Fresh, uniform, 0.25),
    }
}

/// The finaliser of SplitMix64: every bit of the result hangs on every bit of `n`.
pub fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// From 0 to below 1, by the upper 53 bits.
pub fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Name; 9] = [
        Name::Field,
        Name::Field10,
        Name::Fixed,
        Name::Tokens,
        Name::Uniform,
        Name::Lognormal,
        Name::Refresh,
        Name::Overwrite,
        Name::Mixed,
    ];

    fn choice(name: Name) -> Choice {
        Choice {
            name,
            rate: 1_000,
            seconds: None,
            silence: None,
            memtable_bytes: 64 << 10,
            live_memtables: None,
            lasting: false,
            seed: 7,
        }
    }

    #[test]
    fn a_load_is_a_function_of_its_seed() {
        for name in ALL {
            let (one, same) = (Load::new(choice(name)), Load::new(choice(name)));
            let other = Load::new(Choice {
                seed: 8,
                ..choice(name)
            });
            let puts = |load: &Load| (0..1_000).map(|n| load.put(n, 0)).collect::<Vec<_>>();
            assert_eq!(puts(&one), puts(&same));
            assert!(one.fill().eq(same.fill()));
            assert_ne!(one.key(3), other.key(3));
        }
    }

    #[test]
    fn lifetimes_have_their_means_and_bounds() {
        for lives in [
            Lives::Fixed(50.0),
            Lives::Uniform {
                from: 10.0,
                to: 100.0,
            },
            Lives::Field {
                from: 5.0,
                to: 25.0,
                tenth: 60.0,
            },
            Lives::Lognormal { median: 10.0 },
        ] {
            let drawn: Vec<f64> = (0..1_000_000).map(|n| lives.draw(mix(n))).collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            assert!((mean / lives.mean() - 1.0).abs() < 0.03, "{lives:?} {mean}");
            assert!(drawn.iter().all(|life| *life <= lives.longest()));
        }
    }

    #[test]
    fn lognormal_spans_five_orders_of_magnitude() {
        let lives = Lives::Lognormal { median: 10.0 };
        let drawn: Vec<f64> = (0..1_000_000).map(|n| lives.draw(mix(n))).collect();
        let least = drawn.iter().copied().fold(f64::INFINITY, f64::min);
        let most = drawn.iter().copied().fold(0.0, f64::max);
        assert!(most / least > 9e4);
        let below = drawn.iter().filter(|life| **life < 10.0).count();
        assert!((490_000..510_000).contains(&below));
    }

    #[test]
    fn live_data_is_scaled_to_memtables() {
        for name in ALL {
            let load = Load::new(Choice {
                live_memtables: Some(40.0),
                ..choice(name)
            });
            let wanted = 40.0 * (64 << 10) as f64;
            assert!((load.live_bytes() / wanted - 1.0).abs() < 0.01, "{name:?}");
            if load.filled {
                let filled = load.fill().count() as f64 * LIVE_BYTES as f64;
                assert!((filled / wanted - 1.0).abs() < 0.1, "{name:?} {filled}");
            }
        }
    }

    #[test]
    fn fresh_keys_differ_and_series_keys_ascend() {
        let load = Load::new(choice(Name::Field));
        let keys: std::collections::HashSet<_> = (0..100_000).map(|n| load.key(n)).collect();
        assert_eq!(keys.len(), 100_000);
        let series = Load::new(choice(Name::Fixed));
        let keys: Vec<_> = (0..1_000)
            .map(|n| series.key(series.put(n, 5).slot))
            .collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_lasting_load_puts_the_same_keys_and_nothing_expires() {
        let lasting = Load::new(Choice {
            lasting: true,
            ..choice(Name::Mixed)
        });
        let expiring = Load::new(choice(Name::Mixed));
        for n in 0..1_000 {
            let (one, other) = (lasting.put(n, 0), expiring.put(n, 0));
            assert_eq!(one.slot, other.slot);
            assert_eq!(one.ttl_ms, other.ttl_ms.map(|_| LASTING_MS));
        }
    }

    #[test]
    fn refresh_comes_thirty_times_within_a_lifetime() {
        let load = Load::new(choice(Name::Refresh));
        let per_session = load.choice.rate as f64 / load.window() as f64;
        let in_lifetime = per_session * load.longest_ms().unwrap() as f64 / 1e3;
        assert!((in_lifetime - 30.0).abs() < 0.1);
    }

    #[test]
    fn warm_up_says_its_rule() {
        let field = Load::new(choice(Name::Field));
        assert_eq!(
            (field.warmup, field.warmup_rule),
            (30, "a third of the load")
        );
        let fixed = Load::new(choice(Name::Fixed));
        assert_eq!(
            (fixed.warmup, fixed.warmup_rule),
            (20, "the longest lifetime")
        );
    }
}
