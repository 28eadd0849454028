//! Outcomes as Markdown: what each engine reached and how Ebbtide compares, latencies, and what it took.

use std::fmt::Write;

use clap::ValueEnum;

use super::{Outcome, Row, Scale};
use crate::engines::Kind;
use crate::table::{MIB, Spread};

/// Outcomes of one scale.
pub struct Group<'a> {
    /// Of which.
    pub scale: Scale,
    outcomes: Vec<&'a Outcome>,
}

/// A row with its number of threads.
pub type Line = (Row, u32);

impl<'a> Group<'a> {
    /// By scale, in the order in which these come.
    pub fn of_all(outcomes: &'a [Outcome]) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for outcome in outcomes {
            let scale = outcome.order.scale;
            match groups.iter_mut().find(|group| group.scale == scale) {
                Some(group) => group.outcomes.push(outcome),
                None => groups.push(Group {
                    scale,
                    outcomes: vec![outcome],
                }),
            }
        }
        groups
    }

    /// Its engines, in the order of the command line's list.
    pub fn engines(&self) -> Vec<Kind> {
        let there = |kind: &&Kind| self.outcomes.iter().any(|o| o.order.engine == **kind);
        let kinds = Kind::value_variants().iter();
        kinds.filter(there).copied().collect()
    }

    /// The engines that Ebbtide is compared with.
    pub fn peers(&self) -> Vec<Kind> {
        let mut engines = self.engines();
        match engines.contains(&Kind::Ebbtide) {
            true => engines.retain(|kind| *kind != Kind::Ebbtide),
            false => engines.clear(),
        }
        engines
    }

    /// Its lines, in the order of the command line's list.
    pub fn lines(&self) -> Vec<Line> {
        let line = |o: &&Outcome| (o.order.row, o.order.threads);
        let mut lines: Vec<Line> = self.outcomes.iter().map(line).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    fn spread(&self, line: Line, kind: Kind, of: fn(&Outcome) -> f64) -> Option<Spread> {
        let rounds = self.outcomes.iter();
        let rounds = rounds.filter(|o| (o.order.row, o.order.threads) == line);
        Spread::of(rounds.filter(|o| o.order.engine == kind).map(|o| of(o)))
    }

    fn median(&self, line: Line, kind: Kind, of: fn(&Outcome) -> f64) -> Option<f64> {
        self.spread(line, kind, of).map(|spread| spread.median)
    }

    /// How many times as fast as a peer Ebbtide is, by the medians; `None` where that says nothing.
    pub fn ratio(&self, line: Line, peer: Kind) -> Option<f64> {
        if !line.0.is_compared() {
            return None;
        }
        let own = self.median(line, Kind::Ebbtide, Outcome::rate)?;
        Some(own / self.median(line, peer, Outcome::rate)?)
    }

    /// The table's title, for a person to read.
    pub fn title(&self) -> String {
        let (scale, lz4) = (self.scale, if self.scale.lz4 { ", LZ4" } else { "" });
        let (items, value_bytes) = (grouped(scale.items), grouped(scale.value_bytes));
        let key_bytes = scale.key_bytes;
        format!("{items} items of {key_bytes} + {value_bytes} bytes{lz4}")
    }
}

/// A line's title.
pub fn title((row, threads): Line) -> String {
    match threads {
        1 => row.title().to_owned(),
        threads => format!("{}, {threads} threads", row.title()),
    }
}

/// Three digits of it, with `k` for thousands and `M` for millions.
pub fn amount(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n >= 999_500.0 => (n / 1e6, " M"),
        n if n >= 999.5 => (n / 1e3, " k"),
        n => (n, ""),
    };
    let digits = match scaled {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        n if n >= 0.9995 => 2,
        _ => 3,
    };
    format!("{scaled:.digits$}{unit}")
}

/// With spaces between thousands.
fn grouped(number: u64) -> String {
    match number {
        n if n < 1_000 => n.to_string(),
        n => format!("{} {:03}", grouped(n / 1_000), n % 1_000),
    }
}

/// The tables of all scales.
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for group in Group::of_all(outcomes) {
        tables(&mut text, &group).expect("a String takes everything");
    }
    text
}

fn tables(text: &mut String, group: &Group<'_>) -> std::fmt::Result {
    writeln!(text, "## {}\n", group.title())?;
    rates(text, group)?;
    latencies(text, group)?;
    expenses(text, group)
}

/// A table's head: its first column, then the engines, then more.
fn head(text: &mut String, first: &str, columns: &[String]) -> std::fmt::Result {
    writeln!(text, "| {first} | {} |", columns.join(" | "))?;
    writeln!(text, "|---|{}", "---|".repeat(columns.len()))
}

fn names(kinds: &[Kind]) -> Vec<String> {
    kinds.iter().map(|kind| kind.name().to_owned()).collect()
}

fn rates(text: &mut String, group: &Group<'_>) -> std::fmt::Result {
    let mut columns = names(&group.engines());
    columns.extend(names(&group.peers()).iter().map(|peer| format!("x {peer}")));
    head(text, "operations a second", &columns)?;
    for line in group.lines() {
        let of: fn(&Outcome) -> f64 = match line.0.is_timed() {
            true => |outcome| outcome.seconds * 1e3,
            false => Outcome::rate,
        };
        let unit = if line.0.is_timed() { ", ms" } else { "" };
        write!(text, "| {}{unit} ", title(line))?;
        for kind in group.engines() {
            match group.spread(line, kind, of) {
                None => write!(text, "| ")?,
                Some(spread) if spread.least == spread.most => {
                    write!(text, "| {} ", amount(spread.median))?;
                }
                Some(Spread {
                    least,
                    median,
                    most,
                }) => {
                    let (least, most) = (amount(least), amount(most));
                    write!(text, "| {} ({least} to {most}) ", amount(median))?;
                }
            }
        }
        for peer in group.peers() {
            match group.ratio(line, peer) {
                None => write!(text, "| ")?,
                Some(ratio) => write!(text, "| {ratio:.2} ")?,
            }
        }
        writeln!(text, "|")?;
    }
    writeln!(text)
}

fn latencies(text: &mut String, group: &Group<'_>) -> std::fmt::Result {
    head(text, "p50 / p99 / p99.9, µs", &names(&group.engines()))?;
    for line in group.lines().into_iter().filter(|(row, _)| !row.is_timed()) {
        write!(text, "| {} ", title(line))?;
        for kind in group.engines() {
            let at = |of| group.median(line, kind, of).map(|ms: f64| amount(ms * 1e3));
            let tail = [
                at(|o| o.latency.p50_ms),
                at(|o| o.latency.p99_ms),
                at(|o| o.latency.p999_ms),
            ];
            match tail {
                [Some(p50), Some(p99), Some(p999)] => write!(text, "| {p50} / {p99} / {p999} ")?,
                _ => write!(text, "| ")?,
            }
        }
        writeln!(text, "|")?;
    }
    writeln!(text)
}

type Expense = (&'static str, Row, fn(&Outcome) -> f64);

const EXPENSES: [Expense; 10] = [
    ("opening after the compaction, ms", Row::Get, |o| {
        o.open_seconds * 1e3
    }),
    ("disk after the fill, MiB", Row::Fill, |o| {
        o.disk_bytes as f64 / MIB
    }),
    ("disk after the compaction, MiB", Row::Compact, |o| {
        o.disk_bytes as f64 / MIB
    }),
    ("disk after overwriting, MiB", Row::Overwrite, |o| {
        o.disk_bytes as f64 / MIB
    }),
    ("written per byte put, fill", Row::Fill, written_per_byte),
    (
        "written per byte put, overwriting",
        Row::Overwrite,
        written_per_byte,
    ),
    ("memory not a file's after the fill, MiB", Row::Fill, |o| {
        o.anonymous_bytes as f64 / MIB
    }),
    ("memory not a file's after gets, MiB", Row::Get, |o| {
        o.anonymous_bytes as f64 / MIB
    }),
    ("resident at most, fill, MiB", Row::Fill, |o| {
        o.resident_bytes as f64 / MIB
    }),
    ("resident at most, gets, MiB", Row::Get, |o| {
        o.resident_bytes as f64 / MIB
    }),
];

fn written_per_byte(outcome: &Outcome) -> f64 {
    let put =
        outcome.operations * (outcome.order.scale.key_bytes + outcome.order.scale.value_bytes);
    outcome.written_bytes as f64 / put as f64
}

fn expenses(text: &mut String, group: &Group<'_>) -> std::fmt::Result {
    head(text, "what it took", &names(&group.engines()))?;
    for (title, row, of) in EXPENSES {
        let lines = group.lines();
        let Some(line) = lines.iter().find(|(one, _)| *one == row) else {
            continue;
        };
        write!(text, "| {title} ")?;
        for kind in group.engines() {
            let figure = group.median(*line, kind, of).map(amount);
            write!(text, "| {} ", figure.unwrap_or_default())?;
        }
        writeln!(text, "|")?;
    }
    write!(text, "| cores used by others, at most ")?;
    for kind in group.engines() {
        let of_kind = group.outcomes.iter().filter(|o| o.order.engine == kind);
        let most = of_kind.map(|o| o.other_cores).fold(0.0, f64::max);
        write!(text, "| {most:.2} ")?;
    }
    writeln!(text, "|\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        for (number, text) in [
            (2_714_000.0, "2.71 M"),
            (174_230.0, "174 k"),
            (999_700.0, "1.00 M"),
            (9_000.0, "9.00 k"),
            (830.4, "830"),
            (0.0091, "0.009"),
        ] {
            assert_eq!(amount(number), text);
        }
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(100), "100");
        assert_eq!(grouped(1_000_000), "1 000 000");
    }
}
