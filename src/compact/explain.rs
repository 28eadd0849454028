//! Describes the next job in words.

use std::collections::BTreeSet;

use crate::catalog::{Facts, RunId};
use crate::compact::choice::{Choice, Goals};
use crate::compact::estimate::expired_in_run;
use crate::expiry::ExpiryView;

/// One line: the next job, its size, and the reason.
pub fn explain(facts: &Facts, choice: &Choice, view: &ExpiryView, goals: &Goals) -> String {
    match choice {
        Choice::Drop(tables) => format!("drop {} tables: nothing in them matters", tables.len()),
        Choice::Join(runs) => format!("join {} runs: they do not overlap", runs.len()),
        Choice::Merge(rewrite) => {
            let chosen: BTreeSet<_> = rewrite.tables.iter().collect();
            let mut runs = BTreeSet::<RunId>::new();
            let (mut tables, mut bytes) = (0, 0);
            for (run, table) in facts
                .tables()
                .filter(|(_, table)| chosen.contains(&table.id))
            {
                runs.insert(run.id);
                (tables, bytes) = (tables + 1, bytes + table.bytes);
            }
            let (runs, why) = (runs.len(), &rewrite.why);
            format!("rewrite {tables} tables of {runs} runs, {bytes} bytes, {why}")
        }
        Choice::Rest { until } => {
            let stored: u64 = facts.runs.iter().map(|run| run.census.total().bytes).sum();
            let runs = facts.runs.iter();
            let expired: u64 = runs.map(|run| expired_in_run(run, view)).sum();
            let rest = match until {
                Some(until) => format!("rest for {} ms", until.since(view.now)),
                None => "rest".to_owned(),
            };
            let (runs, most) = (facts.runs.len(), goals.max_runs);
            format!("{rest}: {runs} runs of {most}, {expired} of {stored} bytes expired")
        }
    }
}
