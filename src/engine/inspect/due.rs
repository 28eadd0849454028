//! The due curve: how much of a container ends when, and how much disk space comes back when, from statistics alone;
//! and the keys of the items that end in a span of time.
//!
//! ```text
//!             past                    now         future
//! buckets     ...  -4 min  -1 min     |   1 min  5 min  1 h  ...        the narrower, the nearer to now
//! items       ended, and stored yet   |   live, and end by then
//! disk        due, and not yet back   |   files that go then, whole or rewritten
//! ```
//!
//! A bucket ends where a bucket of an expiry histogram ends, so that a group of ends between gaps stays one group; or
//! where settings have changed, or disk space comes back. As many items end between two bounds as the estimate of live
//! items falls by between them, under the settings of now; so hidden versions are not counted, and the sum is right. A
//! past moment is judged by the settings of then; so an item that a change or a command has ended is in the bucket of
//! that moment.
//!
//! Disk space of a table comes back when its run ends, if that end can be trusted, or else when its items are due, each
//! with its share of the file: in a table without live items as soon as they have ended, in others by their deadline.
//! All that is later by the time for which ended items are kept for readers of expirations: jobs judge by a moment that
//! is so much earlier.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::record::RecordRef;
use crate::base::{Result, Timestamp};
use crate::catalog::ContainerVersion;
use crate::compact::deadline;
use crate::data::cursor::{Cursor, Position, Seek};
use crate::engine::Engine;
use crate::engine::inspect::report::{estimate, estimates};
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{Census, ExpiryView, Settings, Tally};
use crate::table::RunCursor;

/// At most so many buckets for ends on either side of now, and half as many for disk space that comes back.
const MOST: usize = 24;

/// The items that end, and the disk space that comes back, after the bucket before and up to `until`.
pub struct Due {
    /// The last moment of the bucket.
    pub until: Timestamp,
    /// The items that end.
    pub ends: Tally,
    /// The disk space that comes back.
    pub disk_bytes: u64,
}

impl Engine {
    /// The due curve of a container, earliest first.
    pub fn due(&self, state: &ContainerState) -> Vec<Due> {
        let (read_state, view) = (state.pin(), self.expiry_view(state));
        let settings = state.whole_settings();
        let mut back = BTreeMap::<Timestamp, u64>::new();
        self.each_return(state, &read_state.version, &view, |_, when, bytes| {
            *back.entry(when).or_default() += bytes;
        });
        let ends = ends(&read_state, &view.settings);
        let ends = ends.into_iter().map(|(end, _)| end);
        let mut bounds = self::bounds(ends.chain(settings.changed_at()), view.now, MOST);
        bounds.extend(self::bounds(back.keys().copied(), view.now, MOST / 2));
        bounds.sort_unstable();
        bounds.dedup();
        let (past, future) = bounds.split_at(bounds.partition_point(|until| *until < view.now));
        let expired = |until: &Timestamp| {
            let then = ExpiryView::at(*until, || settings.at(*until));
            estimate(&read_state, &then).expired
        };
        let mut so_far: Vec<Tally> = past.iter().map(expired).collect();
        let view_at = |until: &Timestamp| ExpiryView::at(*until, || view.settings.clone());
        let views: Vec<ExpiryView> = future.iter().map(view_at).collect();
        let live = estimates(&read_state, &views);
        so_far.extend(live.iter().map(|then| {
            let mut ended = live[0].expired;
            ended.add(live[0].live.less(then.live));
            ended
        }));
        let (mut buckets, mut before, mut last) = (vec![], Tally::default(), None);
        for (&until, so_far) in bounds.iter().zip(so_far) {
            let space = back.range((
                last.map_or(Bound::Unbounded, Bound::Excluded),
                Bound::Included(until),
            ));
            buckets.push(Due {
                until,
                ends: so_far.less(before),
                disk_bytes: space.map(|(_, bytes)| bytes).sum(),
            });
            (before, last) = (so_far, Some(until));
        }
        buckets.retain(|due| due.ends.count > 0 || due.disk_bytes > 0);
        buckets
    }

    /// The moment by which the disk space of all ended items in tables is to come back; `None` if none has ended.
    pub(in crate::engine) fn ended_comes_back(
        &self,
        state: &ContainerState,
        version: &ContainerVersion,
        view: &ExpiryView,
    ) -> Option<Timestamp> {
        let mut last = None;
        self.each_return(state, version, view, |end, when, _| {
            if end <= view.now {
                last = last.max(Some(when));
            }
        });
        last
    }

    /// Visits the ends in tables: each end, the moment at which its disk space comes back, and its bytes.
    pub(in crate::engine) fn each_return(
        &self,
        state: &ContainerState,
        version: &ContainerVersion,
        view: &ExpiryView,
        mut visit: impl FnMut(Timestamp, Timestamp, u64),
    ) {
        let (goals, settings) = (self.goals(), state.whole_settings());
        let held = self.held_for_readers(state);
        let runs = version.runs.iter();
        let tables = runs.flat_map(|run| run.tables.iter().map(move |table| (run, table)));
        for (run, table) in tables {
            let (statistics, census) = (&table.statistics, &table.statistics.census);
            let trusted = run.end_is_trusted(&view.settings).then_some(run.end);
            let all_dead = census.all_dead(view);
            let all = census.total().bytes.max(1);
            for (end, bytes) in statistics.ends(&settings) {
                let by = match all_dead {
                    true => end.after(held).max(view.now),
                    false => deadline(end, census, view, &goals).after(held),
                };
                let when = trusted.map_or(by, |end| by.min(end.after(held)));
                let share = u128::from(bytes) * u128::from(table.bytes) / u128::from(all);
                visit(end, when, share as u64);
            }
        }
    }

    /// So many milliseconds after its end an item is kept for readers of expirations.
    pub(in crate::engine) fn held_for_readers(&self, state: &ContainerState) -> u64 {
        let settled = self.clock.read().settled;
        let horizon = match &self.given_time {
            Some(given) => given.purge_horizon(self.given_ends_dropped(given, state)),
            None => state.feeds().purge_horizon(settled),
        };
        settled.since(horizon)
    }
}

/// About so many keys are gathered at a time.
const GATHERED: u64 = 1 << 18;

impl Engine {
    /// Where to cut a span of time so that about as many items end in each part as are gathered at a time: the ends of the
    /// parts, ascending; the last is `to`.
    pub fn due_parts(
        &self,
        state: &ContainerState,
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<Timestamp> {
        let (read_state, settings) = (state.pin(), state.settings());
        let mut ends: Vec<(Timestamp, Tally)> = ends(&read_state, &settings);
        ends.retain(|(end, _)| (from..to).contains(end));
        ends.sort_unstable_by_key(|(end, _)| *end);
        let (mut parts, mut count) = (vec![], 0);
        for (end, tally) in ends {
            count += tally.count;
            if count >= GATHERED && end.after(1) < to {
                parts.push(end.after(1));
                count = 0;
            }
        }
        parts.push(to);
        parts.dedup();
        parts
    }

    /// The keys of items that end from `from` on and before `to`, with their ends, in this order; some may have been written
    /// since. Reads only the tables that have such records.
    pub fn due_keys(
        &self,
        state: &ContainerState,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<(Timestamp, Vec<u8>)>> {
        let (read_state, view) = (state.pin(), self.expiry_view(state));
        let mut keys = vec![];
        let mut gather = |record: &RecordRef<'_>| {
            let end = view.settings.expires_at(&record.header);
            if (from..to).contains(&end) && !view.dead(&record.header) {
                keys.push((end, record.key.to_vec()));
            }
        };
        let has_some = |census: &Census| census.may_end_within(&view.settings, from, to);
        for flushable in read_state.flushables() {
            if has_some(&flushable.memtable.census()) {
                each(flushable.memtable.cursor(), &mut gather)?;
            }
        }
        for run in &read_state.version.runs {
            for file in run
                .files
                .iter()
                .filter(|file| has_some(&file.table.statistics().census))
            {
                let table: Arc<[_]> = [file.table.clone()].into();
                each(RunCursor::new(table), &mut gather)?;
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// Visits every record.
pub(in crate::engine) fn each(
    mut cursor: impl Cursor,
    show: &mut dyn FnMut(&RecordRef<'_>),
) -> Result<()> {
    cursor.start_seek(Seek::First, None)?;
    while !cursor.poll_seek(Seek::First, None)? {}
    while let Position::Record(record) = cursor.position() {
        show(&record);
        cursor.advance(None)?;
    }
    Ok(())
}

/// The ends of all stored records, each with how much ends then, in no order.
pub(in crate::engine) fn ends(
    read_state: &ReadState,
    settings: &Settings,
) -> Vec<(Timestamp, Tally)> {
    let mut all = vec![];
    for flushable in read_state.flushables() {
        flushable.memtable.summary(|summary| {
            let eras = summary.eras();
            all.extend(eras.flat_map(|era| era.ends(settings)));
        });
    }
    for run in &read_state.version.runs {
        let tables = run.tables.iter();
        all.extend(tables.flat_map(|table| table.statistics.histograms.ends(settings)));
    }
    all
}

/// The ends of the buckets that hold these moments and now: each end is the last moment in its bucket, and now is one
/// of the ends. At most `most` on either side of now.
fn bounds(
    moments: impl IntoIterator<Item = Timestamp>,
    now: Timestamp,
    most: usize,
) -> Vec<Timestamp> {
    let moments = moments.into_iter().chain([now]);
    let mut moments: Vec<_> = moments.filter(|at| *at < Timestamp::MAX).collect();
    moments.sort_unstable();
    moments.dedup();
    let (past, future) = moments.split_at(moments.partition_point(|moment| *moment <= now));
    // Wider buckets where there would be too many.
    let side = |moments: &[Timestamp]| {
        let narrower = [1, 2, 4, 6].map(|eighths| ends_of_buckets(moments, now, eighths));
        let mut few = narrower.into_iter().filter(|ends| ends.len() <= most);
        few.next()
            .unwrap_or_else(|| ends_of_buckets(moments, now, 7))
    };
    [side(past), side(future)].concat()
}

/// The last moments of buckets that are no wider than so many eighths of their distance from now; a bucket reaches from
/// its first moment to its last.
fn ends_of_buckets(moments: &[Timestamp], now: Timestamp, eighths: u64) -> Vec<Timestamp> {
    let distance = |moment: Timestamp| moment.0.abs_diff(now.0);
    let (mut ends, mut first) = (vec![], None);
    for &moment in moments {
        let fits = |first: Timestamp| {
            let most = distance(first).max(distance(moment)) / 8 * eighths;
            moment.since(first) <= most
        };
        match ends.last_mut() {
            Some(end) if first.is_some_and(fits) => *end = moment,
            _ => {
                first = Some(moment);
                ends.push(moment);
            }
        }
    }
    ends
}
