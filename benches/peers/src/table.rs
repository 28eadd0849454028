//! Summaries as Markdown tables: one a load, a row an engine, medians of its rounds.

use std::fmt::Write;

use clap::ValueEnum;

use crate::engines::Kind;
use crate::loads::Name;
use crate::summary::Summary;

/// The middle of some values, or the mean of the two in the middle; with their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The middle.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of values, if there are any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Spread {
            least,
            median,
            most,
        })
    }
}

/// A load of one size.
pub type Group = (Name, u64);

/// The loads that summaries are of, in the order of the command line's list.
pub fn groups(summaries: &[Summary]) -> Vec<Group> {
    let mut groups: Vec<Group> = summaries.iter().map(group_of).collect();
    groups.sort_by_key(|(name, memtable)| {
        let place = Name::value_variants().iter().position(|n| n == name);
        (*memtable, place)
    });
    groups.dedup();
    groups
}

/// The load of a summary.
pub fn group_of(summary: &Summary) -> Group {
    let load = summary.order.load;
    (load.name, load.memtable_bytes)
}

/// The engines that have been under a load, in the order of the command line's list, with their rounds.
pub fn rows(summaries: &[Summary], group: Group) -> Vec<(Kind, Vec<&Summary>)> {
    let of = |kind: &Kind| -> Vec<&Summary> {
        let rounds = summaries.iter().filter(|s| group_of(s) == group);
        rounds.filter(|s| s.order.engine == *kind).collect()
    };
    let rows = Kind::value_variants().iter().map(|kind| (*kind, of(kind)));
    rows.filter(|(_, rounds)| !rounds.is_empty()).collect()
}

/// The tables of all loads.
pub fn markdown(summaries: &[Summary]) -> String {
    let mut text = String::new();
    for group in groups(summaries) {
        table(&mut text, group, &rows(summaries, group)).expect("a String takes everything");
    }
    text
}

type Column = (&'static str, fn(&Summary) -> f64, usize);

/// Bytes of a MiB.
pub const MIB: f64 = (1 << 20) as f64;

const COLUMNS: [Column; 14] = [
    ("disk / live, mean", |s| s.space_mean, 2),
    ("worst", |s| s.space_worst, 2),
    ("written / put, steady", |s| s.written_steady, 2),
    ("whole", |s| s.written_whole, 2),
    ("put p50, ms", |s| s.put.p50_ms, 3),
    ("put p99", |s| s.put.p99_ms, 2),
    ("put p99.9", |s| s.put.p999_ms, 2),
    ("put max", |s| s.put.max_ms, 1),
    ("get p99.9, ms", |s| s.get.p999_ms, 2),
    ("disk at the end, MiB", |s| s.end_disk_bytes as f64 / MIB, 1),
    ("live at the end, MiB", |s| s.end_live_bytes as f64 / MIB, 1),
    ("memory, MiB", |s| s.anonymous_bytes as f64 / MIB, 0),
    ("cores used", |s| s.own_cores, 2),
    ("by others", |s| s.other_cores, 2),
];

fn table(text: &mut String, group: Group, rows: &[(Kind, Vec<&Summary>)]) -> std::fmt::Result {
    let Some(first) = rows.first().and_then(|(_, rounds)| rounds.first()) else {
        return Ok(());
    };
    heading(text, group, first)?;
    write!(text, "| engine ")?;
    for (title, ..) in COLUMNS {
        write!(text, "| {title} ")?;
    }
    writeln!(
        text,
        "| written / put, own count | expired left, MiB | runs, most | expiry to removal, half, s | all | past the deadline, most, s | faults |"
    )?;
    writeln!(
        text,
        "|---|{}---|---|---|---|---|---|---|",
        "---|".repeat(COLUMNS.len())
    )?;
    for (kind, rounds) in rows {
        write!(text, "| {} ", kind.name())?;
        for (_, of, digits) in COLUMNS {
            cell(text, rounds.iter().map(|s| of(s)), digits)?;
        }
        cell(text, rounds.iter().filter_map(|s| s.written_own), 2)?;
        let expired = rounds.iter().filter_map(|s| s.end_own.expired_bytes);
        cell(text, expired.map(|bytes| bytes as f64 / MIB), 1)?;
        let runs = rounds.iter().filter_map(|s| s.runs_most);
        cell(text, runs.map(|runs| runs as f64), 0)?;
        let removal = || rounds.iter().filter_map(|s| s.end_own.removal_s);
        cell(text, removal().map(|(half, _)| half), 1)?;
        cell(text, removal().map(|(_, all)| all), 1)?;
        cell(text, rounds.iter().filter_map(|s| s.overdue_most), 1)?;
        let faults: u64 = rounds.iter().map(|s| s.answers.faults()).sum();
        let unserved: u64 = rounds.iter().map(|s| s.unserved).sum();
        writeln!(
            text,
            "| {faults}{} |",
            if unserved > 0 { ", fell behind" } else { "" }
        )?;
    }
    writeln!(text)?;
    ratios(text, rows)
}

fn heading(text: &mut String, (name, memtable): Group, first: &Summary) -> std::fmt::Result {
    let (load, plain) = (&first.order.load, name.to_possible_value());
    let name = plain.as_ref().map_or("", |name| name.get_name());
    let memtable_mib = memtable as f64 / MIB;
    writeln!(text, "## {name}, memtables of {memtable_mib} MiB\n")?;
    let live = first.live_bytes / MIB;
    let pace = match first.order.closed {
        true => "as fast as it goes".to_owned(),
        false => format!("{} puts/s", load.rate),
    };
    writeln!(
        text,
        "{pace}, {} s of load and {} s of silence; {live:.0} MiB live ({:.1} memtables); figures from second {} on ({}).\n",
        first.seconds,
        first.silence,
        first.live_bytes / memtable as f64,
        first.warmup,
        first.warmup_rule,
    )
}

fn cell(
    text: &mut String,
    values: impl IntoIterator<Item = f64>,
    digits: usize,
) -> std::fmt::Result {
    match Spread::of(values) {
        None => write!(text, "| "),
        Some(spread) if spread.least == spread.most => {
            write!(text, "| {:.digits$} ", spread.median)
        }
        Some(Spread {
            least,
            median,
            most,
        }) => write!(
            text,
            "| {median:.digits$} ({least:.digits$} to {most:.digits$}) "
        ),
    }
}

/// Ebbtide against each of the others.
fn ratios(text: &mut String, rows: &[(Kind, Vec<&Summary>)]) -> std::fmt::Result {
    let Some((_, own)) = rows.iter().find(|(kind, _)| *kind == Kind::Ebbtide) else {
        return Ok(());
    };
    let peers = || rows.iter().filter(|(kind, _)| *kind != Kind::Ebbtide);
    if peers().next().is_none() {
        return Ok(());
    }
    write!(text, "| Ebbtide against ")?;
    for (kind, _) in peers() {
        write!(text, "| {} ", kind.name())?;
    }
    writeln!(text, "|\n|---|{}", "---|".repeat(peers().count()))?;
    for (title, of) in [
        ("disk / live, mean", COLUMNS[0].1),
        ("disk / live, worst", COLUMNS[1].1),
        ("written / put, steady", COLUMNS[2].1),
        ("written / put, whole", COLUMNS[3].1),
        ("put p99.9", COLUMNS[6].1),
        ("get p99.9", COLUMNS[8].1),
    ] {
        write!(text, "| {title} ")?;
        for (_, rounds) in peers() {
            write!(text, "| {:.2} x ", median(own, of) / median(rounds, of))?;
        }
        writeln!(text, "|")?;
    }
    writeln!(text)
}

fn median(rounds: &[&Summary], of: fn(&Summary) -> f64) -> f64 {
    Spread::of(rounds.iter().map(|s| of(s))).map_or(f64::NAN, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_middle() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 2.0]).map(|s| s.median), Some(2.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).map(|s| s.median), Some(2.5));
        assert_eq!(
            spread(&[4.0, 1.0]).map(|s| (s.least, s.most)),
            Some((1.0, 4.0))
        );
    }
}
