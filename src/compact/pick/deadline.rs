//! *On time*: an item's bytes are removed from the disk `reclaim_within` after it expired, or an eighth of the longest
//! lifetime beside it, whichever is later.
//!
//! Tables whose oldest unreclaimed expiry nears its deadline are rewritten, with those that are due soon after, so that
//! the output is large enough to be cut into slots that end in time. A run that ends before its deadline is left alone:
//! it is dropped then without I/O.
//!
//! Example: items live 8 hours, so a deadline is 1 hour after an expiry. A table's oldest dead item expired at 12:00:
//! the table is rewritten from 12:45 on, and with it every free table whose deadline is no later than 13:30. The
//! [`pressure`] is three quarters then, and 1 at 13:00. Had the item still been in a memtable, that would have been
//! flushed at 12:30.

use std::collections::BTreeSet;

use crate::base::{TableId, Timestamp};
use crate::catalog::{Facts, RunFacts, TableFacts};
use crate::compact::choice::{Goals, Rewrite, Urgency, Why};
use crate::compact::pick::runs::FAN;
use crate::expiry::{Census, ExpiryView};

/// When the bytes of an item that expired at `expiry` must be gone, given the census of the records beside it.
pub fn deadline(expiry: Timestamp, census: &Census, view: &ExpiryView, goals: &Goals) -> Timestamp {
    let eighth = if goals.reclaim_strict {
        0
    } else {
        census.longest_life(&view.settings) / 8
    };
    expiry.after(goals.reclaim_within.max(eighth))
}

/// When the memtable of an item that expired at `expiry` is flushed: after half of the time to its deadline.
pub fn start_by(expiry: Timestamp, census: &Census, view: &ExpiryView, goals: &Goals) -> Timestamp {
    expiry.after(deadline(expiry, census, view, goals).since(expiry) / 2)
}

/// When a table is rewritten for its deadline: in the last quarter of the time to it, which is long enough for the
/// rewrite, and most runs have ended by themselves by then.
fn begin_by(expired: Timestamp, deadline: Timestamp) -> Timestamp {
    deadline.before(deadline.since(expired) / 4)
}

/// Picks the tables that are due and those that nearly are: alone, each would be too small to be cut, and would be due
/// again.
pub fn on_time(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
) -> Option<Rewrite> {
    let mut dead: Vec<(Timestamp, Timestamp, &TableFacts)> =
        with_deadlines(facts.free_runs(busy), view, goals).collect();
    dead.sort_by_key(|&(deadline, _, table)| (deadline, table.id));
    let &(deadline, expired, _) = dead.first()?;
    let span = deadline.since(expired);
    if begin_by(expired, deadline) > view.now {
        return None;
    }
    let most = (FAN as u64 * goals.memtable_bytes).max(facts.bytes() / 8);
    let soon = deadline.after(span / 2);
    let mut bytes = 0;
    let tables = dead
        .iter()
        .take_while(|(deadline, ..)| *deadline <= soon)
        .take_while(|(.., table)| {
            let first = bytes == 0;
            bytes += table.bytes;
            first || bytes <= most
        })
        .map(|(.., table)| table.id)
        .collect();
    Some(Rewrite {
        tables,
        cut: true,
        urgency: Urgency::Due,
        why: Why::OnTime { expired, deadline },
    })
}

/// The tables that must be rewritten for their expired records: with the deadline, and the oldest expiry.
fn with_deadlines<'a>(
    runs: impl Iterator<Item = &'a RunFacts>,
    view: &ExpiryView,
    goals: &Goals,
) -> impl Iterator<Item = (Timestamp, Timestamp, &'a TableFacts)> {
    let tables = runs.flat_map(|run| run.tables.iter().map(move |table| (run, table)));
    tables.filter_map(|(run, table)| {
        let expired = table.statistics.oldest_dead(view)?;
        let deadline = deadline(expired, &table.statistics.census, view, goals);
        // A run that ends before its deadline is dropped then without I/O.
        let waits = run.end_is_trusted(&view.settings) && run.end <= deadline;
        (!waits).then_some((deadline, expired, table))
    })
}

/// How near the nearest deadline is: 0 before work for it begins, then the share of the time that is over, up to 1.
/// Tables in a running job count too, because they hold the expired bytes until it is done.
pub fn pressure(facts: &Facts, view: &ExpiryView, goals: &Goals) -> f64 {
    let runs = facts.runs.iter().map(|run| run.as_ref());
    let tables = with_deadlines(runs, view, goals);
    let Some((deadline, expired, _)) = tables.min_by_key(|&(deadline, ..)| deadline) else {
        return 0.0;
    };
    if begin_by(expired, deadline) > view.now {
        return 0.0;
    }
    let span = deadline.since(expired).max(1);
    (view.now.since(expired) as f64 / span as f64).min(1.0)
}

/// When the first run ends or is due, if nobody writes and the settings stay.
pub fn next_due(facts: &Facts, view: &ExpiryView, goals: &Goals) -> Option<Timestamp> {
    let settings = &view.settings;
    let moments = facts.runs.iter().flat_map(|run| {
        let trusted = run.end_is_trusted(settings) && run.end != Timestamp::MAX;
        let end = trusted.then_some(run.end);
        let all_dead =
            Some(run.census.last_expiry(settings)).filter(|last| *last != Timestamp::MAX);
        let starts = run.tables.iter().flat_map(|table| {
            let census = &table.statistics.census;
            let next = census.first_expiry(settings);
            // The expiry of a record that a floor or a command has ended tells nothing.
            let expiries = next.into_iter().chain(table.statistics.oldest_dead(view));
            expiries.map(|expiry| begin_by(expiry, deadline(expiry, census, view, goals)))
        });
        [end, all_dead].into_iter().flatten().chain(starts)
    });
    moments.filter(|moment| *moment > view.now).min()
}
