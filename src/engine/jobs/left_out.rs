//! Notes of the records that a job leaves out and a reader may still ask for: deletes and ends, for changes since a
//! version (changes.rs), and items that have ended, for expirations (feed.rs).

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::{Seq, TableId, Timestamp};
use crate::catalog::ContainerVersion;
use crate::data::range_delete::RangeDelete;
use crate::engine::parts::read_state::Flushable;
use crate::expiry::{Census, ExpiryView};
use crate::mem::RangeDeletes;

/// The highest sequence number of those of these range deletes that a version lacks.
pub(in crate::engine) fn forgotten_ranges<'a>(
    ranges: impl Iterator<Item = &'a Arc<RangeDeletes>>,
    next: &ContainerVersion,
) -> Seq {
    let others = ranges.filter(|ranges| !Arc::ptr_eq(ranges, &next.range_deletes));
    let others: Vec<_> = others.filter(|ranges| !ranges.is_empty()).collect();
    if others.is_empty() {
        return Seq(0);
    }
    let stays: HashSet<&RangeDelete> = next.range_deletes.iter().collect();
    let gone = others.iter().flat_map(|ranges| ranges.iter());
    let gone = gone.filter(|delete| !stays.contains(delete));
    gone.map(|delete| delete.seq).max().unwrap_or_default()
}

/// The highest sequence number of the records in these tables of a version, but for tables that range deletes cover: these
/// tell it.
pub(in crate::engine) fn forgotten_tables(version: &ContainerVersion, gone: &[TableId]) -> Seq {
    let files = version.runs.iter().flat_map(|run| &run.files);
    let files = files.filter(|file| gone.contains(&file.record.id));
    let untold = files.filter_map(|file| {
        let (table, newest) = (&file.table, file.table.census().seq_max);
        let keys: (&[u8], &[u8]) = (table.first_key(), table.last_key());
        let is_told = version.range_deletes.covers_all(keys, newest, Seq::MAX);
        (!is_told).then_some(newest)
    });
    untold.max().unwrap_or_default()
}

/// The moment up to which ends are no longer known, and the highest sequence number of the changes that caused them,
/// once the records of a memtable over this version's runs are written or logged without those that are dead by this
/// view.
pub(in crate::engine) fn ends_without(
    version: &ContainerVersion,
    flushable: &Flushable,
    view: &ExpiryView,
) -> Option<(Timestamp, Seq)> {
    let stays = version.runs.iter().map(|run| run.census);
    let end = ends_dropped([flushable.memtable.census()].into_iter(), stays, view)?;
    Some((end, view.settings.last_change_seq()))
}

/// The moment up to which ends may be unknown once dead records of the `inputs` are left out: their own ends, and those
/// of the older records of their keys, which stay; none: no record is left out, as far as the census tells.
pub(in crate::engine) fn ends_dropped(
    inputs: impl Iterator<Item = Census>,
    stays: impl Iterator<Item = Census>,
    view: &ExpiryView,
) -> Option<Timestamp> {
    let (mut ends, mut may_uncover) = (None, false);
    for census in inputs {
        ends = ends.max(last_end(&census, view));
        may_uncover |= census.any_dead(view);
    }
    if may_uncover {
        ends = ends.max(stays.filter_map(|census| last_end(&census, view)).max());
    }
    // An item that a floor or a command has ended is dropped at moment 0, too.
    let judged = view.now.max(view.settings.last_change());
    ends.map(|end| end.min(judged))
}

/// The latest end among the gone records of a census; none if no record is gone.
fn last_end(census: &Census, view: &ExpiryView) -> Option<Timestamp> {
    census.oldest_dead(Seq(0), view)?;
    let by_clock = census.last_expiry(&view.settings);
    Some(by_clock.max(view.settings.last_change()))
}
