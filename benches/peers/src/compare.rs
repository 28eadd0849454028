//! The foreground cost of expiry: a load against the same puts with lifetimes so long that nothing expires, in rounds
//! that take turns.
//!
//! * `throughput`: closed loop, operations a second;
//! * `tails`: open loop at half of what the closed loop reached, p99.9.

use crate::Result;
use crate::engines::Kind;
use crate::loads::{Choice, PUTS_PER_GET};
use crate::parent::{self, Setting};
use crate::summary::Summary;
use crate::table::Spread;

/// The two loads of a comparison and its rounds.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The engine.
    pub engine: Kind,
    /// The load; its rate is measured, and its live data scaled to that.
    pub load: Choice,
    /// How often.
    pub rounds: u32,
}

/// Both sides of every round.
struct Rounds {
    expiring: Vec<Summary>,
    lasting: Vec<Summary>,
}

/// Operations a second, closed loop, with and without expiry.
pub fn throughput(setting: &Setting, comparison: &Comparison) -> Result<u64> {
    let rate = probe(setting, comparison)?;
    let rounds = play(setting, comparison, "throughput", rate, true)?;
    println!(
        "| {} | expiring | nothing expires | ratio |",
        comparison.engine.name()
    );
    println!("|---|---|---|---|");
    rounds.print("operations a second", 0, |s| s.rate);
    rounds.print("bytes written per byte put", 2, |s| s.written_whole);
    rounds.print("cores used by other processes", 2, |s| s.other_cores);
    Ok(rounds.faults())
}

/// Tail latencies, open loop at half of the closed loop's rate, with and without expiry.
pub fn tails(setting: &Setting, comparison: &Comparison) -> Result<u64> {
    let rate = probe(setting, comparison)? / 2;
    let rounds = play(setting, comparison, "tails", rate, false)?;
    println!(
        "| {}, {rate} puts/s | expiring | nothing expires | ratio |",
        comparison.engine.name()
    );
    println!("|---|---|---|---|");
    rounds.print("put p99, ms", 3, |s| s.put.p99_ms);
    rounds.print("put p99.9, ms", 3, |s| s.put.p999_ms);
    rounds.print("put max, ms", 1, |s| s.put.max_ms);
    rounds.print("get p99, ms", 3, |s| s.get.p99_ms);
    rounds.print("get p99.9, ms", 3, |s| s.get.p999_ms);
    rounds.print("get max, ms", 1, |s| s.get.max_ms);
    rounds.print("the driver's own waking, p99.9, ms", 3, |s| s.wake.p999_ms);
    rounds.print("cores used by other processes", 2, |s| s.other_cores);
    Ok(rounds.faults())
}

/// Puts a second in a closed loop of the expiring load: the maximum that half is taken of. Asked twice, because lifetimes
/// that keep the live data at its size hang on the rate.
fn probe(setting: &Setting, comparison: &Comparison) -> Result<u64> {
    let mut rate = comparison.load.rate;
    for time in 1..=2 {
        let load = Choice {
            rate,
            silence: Some(0),
            ..comparison.load
        };
        let label = format!("probe-{}-{time}", comparison.engine.name());
        let summary = parent::run(setting, comparison.engine, load, true, 0, &label)?;
        let share = PUTS_PER_GET as f64 / (PUTS_PER_GET + 1) as f64;
        rate = (summary.rate * share) as u64;
    }
    Ok(rate)
}

fn play(
    setting: &Setting,
    comparison: &Comparison,
    what: &str,
    rate: u64,
    closed: bool,
) -> Result<Rounds> {
    let engine = comparison.engine;
    let mut rounds = Rounds {
        expiring: Vec::new(),
        lasting: Vec::new(),
    };
    let one = |lasting: bool, round: u32| {
        let load = Choice {
            rate,
            silence: Some(0),
            lasting,
            ..comparison.load
        };
        let side = if lasting { "lasting" } else { "expiring" };
        let label = format!("{what}-{}-{side}-{round}", engine.name());
        parent::run(setting, engine, load, closed, round, &label)
    };
    for round in 1..=comparison.rounds {
        // The first of a round changes, so that a drift of the machine falls on both.
        for lasting in [round % 2 == 0, round % 2 == 1] {
            let summary = one(lasting, round)?;
            match lasting {
                true => rounds.lasting.push(summary),
                false => rounds.expiring.push(summary),
            }
        }
    }
    Ok(rounds)
}

impl Rounds {
    fn print(&self, title: &str, digits: usize, of: fn(&Summary) -> f64) {
        let pairs = self.expiring.iter().zip(&self.lasting);
        let ratio = Spread::of(pairs.map(|(expiring, lasting)| of(expiring) / of(lasting)));
        let side = |side: &[Summary], digits| show(Spread::of(side.iter().map(of)), digits);
        println!(
            "| {title} | {} | {} | {} |",
            side(&self.expiring, digits),
            side(&self.lasting, digits),
            show(ratio, 2)
        );
    }

    fn faults(&self) -> u64 {
        let all = self.expiring.iter().chain(&self.lasting);
        all.map(|s| s.answers.faults()).sum()
    }
}

fn show(spread: Option<Spread>, digits: usize) -> String {
    let Some(Spread {
        least,
        median,
        most,
    }) = spread
    else {
        return String::new();
    };
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}
