//! *Ended* tables are dropped: by an edit of the catalogue, without I/O on tables.
//!
//! A table is obsolete if its run's end has passed and can be trusted; or if all its records are dead, and so are those
//! of every older table that overlaps it, so that it hides nothing; or if range deletes cover it whole, and no snapshot
//! is older than these. Clause (t) of the proof in verdict.rs shows that no reader can tell.
//!
//! Example, at `now` = 100. Run A was written in a slot that ends at 90: it is dropped. Run B ends at 200, but each
//! item of its table 7 expired by 80. Table 3 of the older run C overlaps it and has an item that expires at 500: table
//! 7 may hide an older version of that key, and stays. When C was rewritten without the overlap, or has expired too,
//! table 7 is dropped.

use std::collections::BTreeSet;

use crate::base::{Seq, TableId};
use crate::catalog::{Facts, TableFacts};
use crate::data::visibility::first_reader;
use crate::expiry::ExpiryView;

/// The obsolete tables.
pub fn ended(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
) -> Vec<TableId> {
    // Few tables are dead as a rule, and only these are compared with the others.
    let census = |table: &TableFacts| table.statistics.census;
    let alive: Vec<&TableFacts> = facts
        .tables()
        .map(|(_, table)| table)
        .filter(|table| !census(table).all_dead(view))
        .collect();
    let hides = |table: &TableFacts| {
        let newest = census(table).seq_max;
        alive
            .iter()
            .any(|other| census(other).seq_min < newest && other.overlaps(table))
    };
    let is_covered = |table: &TableFacts| {
        let (oldest, newest) = (census(table).seq_min, census(table).seq_max);
        let keys: (&[u8], &[u8]) = (&table.statistics.first_key, &table.statistics.last_key);
        let reader = first_reader(oldest, snapshots);
        facts.range_deletes.covers_all(keys, newest, reader)
    };
    let free = facts.tables().filter(|(run, _)| !run.holds_any(busy));
    let ended = free.filter(|(run, table)| {
        run.has_ended(view) || is_covered(table) || (census(table).all_dead(view) && !hides(table))
    });
    ended.map(|(_, table)| table.id).collect()
}
