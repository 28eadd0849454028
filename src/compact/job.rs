//! Runs a job: merges its sources in order, judges every key, and writes the remaining records to the runs they belong
//! to.
//!
//! A job pins one read state, then reads the clock once, then settings and floors once, and judges by these. Records
//! that become obsolete at some time and those that never do go to different runs, dated ones by the slot in which they
//! become obsolete. A table is cut only between keys.
//!
//! ```text
//! record is live, and certainly the only one of its key?
//!     yes   judged alone (decide_alone), written from where it lies             most records
//!     no    all records of its key are collected (Group), judged, written       versions, tombstones, dead records
//! ```
//!
//! Both ways judge by the same function. On the first nothing is copied, and nothing is dropped: if a record were wrongly
//! taken for the only one, a record that shows nothing would stay, and nothing that shows would go.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::hash::hash_key;
use crate::base::record::{Header, RecordRef, key_prefix};
use crate::base::{ContainerId, Result, Seq, TableId, Timestamp};
use crate::catalog::Run;
use crate::compact::verdict::{Decision, OlderVersions, Verdict, decide, decide_alone};
use crate::data::cursor::Cursor;
use crate::data::merge::Merge;
use crate::data::visibility::is_superseded;
use crate::env::File;
use crate::expiry::{ExpiryView, Settings};
use crate::mem::RangeDeletes;
use crate::table::{FinishedTable, Probe, Table, TableBuilder, TableMeta, TableOptions};

/// The services of the engine that a job uses.
pub trait Host {
    /// Creates a table: its id, identity and file.
    fn create_table(&mut self) -> Result<(TableId, u64, Box<dyn File>)>;
    /// Called after this many more bytes were written: waits as long as the budget says, or ends the job with an error.
    fn spend(&mut self, bytes: u64) -> Result<()>;
    /// Called for an item that is not written again, which expired this many milliseconds ago.
    fn reclaim(&mut self, millis: u64, bytes: u64);
    /// Called for a dead record that is left out, of which the job has no newer version: `changes` can no longer tell
    /// its end to a copy that has an older version.
    fn forget(&mut self, seq: Seq);
}

/// The parameters of a job besides its sources.
pub struct Job {
    /// The container of its records.
    pub container: ContainerId,
    /// The clock and the settings, read once.
    pub view: ExpiryView,
    /// The sequence numbers of the open snapshots, ascending.
    pub snapshots: Vec<Seq>,
    /// The runs of the same read state that are not among the sources.
    pub other_runs: Vec<Arc<Run>>,
    /// Range deletes that are durable, or that the job's edit makes durable.
    pub range_deletes: Vec<Arc<RangeDeletes>>,
    /// The keys at which tables are cut, ascending.
    pub guards: Vec<Box<[u8]>>,
    /// Only a table of at least this many bytes is cut at a guard.
    pub least_table_bytes: u64,
    /// Where the dated output is cut, ascending; the last cut is [`Timestamp::MAX`]. Empty: everything goes to one run,
    /// dated or not.
    pub cuts: Vec<Timestamp>,
    /// How tables are built.
    pub options: TableOptions,
    /// The size at which tables are cut, in bytes.
    pub table_bytes: u64,
    /// The tables that are rewritten.
    pub inputs: Vec<TableId>,
    /// Hashes of the keys of oversized puts elsewhere: see [`oversized`](crate::compact::estimate::oversized).
    pub must_sample: Arc<HashSet<u64>>,
}

impl Job {
    /// Whether a range delete with a sequence number above `seq`, and up to `max`, covers a key.
    fn covers(&self, key: &[u8], seq: Seq, max: Seq) -> bool {
        let mut ranges = self.range_deletes.iter();
        ranges.any(|ranges| ranges.covers(key, seq, max))
    }

    /// The output has every range delete up to this sequence number applied: those below which no open snapshot needs a
    /// covered record.
    pub fn applied(&self) -> Seq {
        let oldest_snapshot = self.snapshots.first().copied().unwrap_or(Seq::MAX);
        self.last_range_delete(oldest_snapshot)
    }

    /// The highest sequence number of a range delete up to this one; 0 if there is none.
    fn last_range_delete(&self, up_to: Seq) -> Seq {
        let ranges = self.range_deletes.iter();
        let last = ranges.map(|ranges| ranges.last_up_to(up_to));
        last.max().unwrap_or_default()
    }
}

/// A run that was written.
pub struct Output {
    /// Its slot, by the index of the cut; the last index is for records that never become obsolete.
    pub slot: usize,
    /// The latest moment at which one of its records becomes obsolete.
    pub end: Timestamp,
    /// Its tables, in key order.
    pub tables: Vec<FinishedTable>,
}

/// Runs the job; returns the remaining records as finished and synced tables, which are not installed yet.
pub fn run<C: Cursor>(
    job: &Job,
    mut sources: Merge<C>,
    host: &mut dyn Host,
) -> Result<Vec<Output>> {
    let mut slots: Vec<Slot> = job.cuts.iter().map(|_| Slot::default()).collect();
    slots.push(Slot::default()); // for what never becomes obsolete
    let (mut group, mut decisions) = (Group::default(), vec![]);
    let mut older = OverlapProbe::new(job);
    let mut guards = Guards::new(&job.guards);
    while let Some(record) = sources.record() {
        if guards.pass(record.key) {
            for slot in &mut slots {
                slot.cut(job, host)?;
            }
        }
        if let Some(decision) = decide_borrowed(&sources, &record, job, &mut older)? {
            let front = sources.front().expect("a record has a cursor");
            write(&record, front.value()?, &decision, &mut slots, job, host)?;
            sources.advance(None)?;
            continue;
        }
        group.collect(&mut sources, job, &mut |millis, bytes| {
            host.reclaim(millis, bytes)
        })?;
        let (versions, snapshots) = (&group.headers, &job.snapshots);
        let mut older = older.of(&group.key);
        decide(versions, snapshots, &job.view, &mut older, &mut decisions)?;
        if let Some(seq) = forgotten(versions, &decisions, &older) {
            host.forget(seq);
        }
        for (at, decision) in decisions.iter().enumerate() {
            if let Some((record, value)) = group.left(at, decision) {
                write(&record, value, decision, &mut slots, job, host)?;
            }
        }
    }
    sources.end()?;
    let mut outputs = vec![];
    for (number, mut slot) in slots.into_iter().enumerate() {
        slot.finish_table(host)?;
        if !slot.tables.is_empty() {
            outputs.push(Output {
                slot: number,
                end: slot.end,
                tables: slot.tables,
            });
        }
    }
    Ok(outputs)
}

/// The decision on the first record, if it is live and certainly the only one of its key: then it is written from where
/// it lies. None: all records of its key are to be collected and judged together.
#[inline]
fn decide_borrowed<C: Cursor>(
    sources: &Merge<C>,
    record: &RecordRef<'_>,
    job: &Job,
    older: &mut OverlapProbe<'_>,
) -> Result<Option<Decision>> {
    let header = &record.header;
    if job.view.dead(header) || !sources.is_alone() {
        return Ok(None);
    }
    decide_alone(header, &job.snapshots, &job.view, &mut older.of(record.key))
}

/// The newest version of a key that a job holds, if it is left out and no range delete tells so.
fn forgotten(
    versions: &[Header],
    decisions: &[Decision],
    older: &impl OlderVersions,
) -> Option<Seq> {
    let (newest, decision) = versions.first().zip(decisions.first())?;
    let is_told = decision.verdict != Verdict::Drop || older.is_covered(newest.seq, Seq::MAX);
    (!is_told).then_some(newest.seq)
}

/// Writes what is left of a record to the run of its slot.
#[inline(always)]
fn write(
    record: &RecordRef<'_>,
    value: &[u8],
    decision: &Decision,
    slots: &mut [Slot],
    job: &Job,
    host: &mut dyn Host,
) -> Result<()> {
    let slot = match decision.obsolete_at {
        Timestamp::MAX => slots.len() - 1,
        obsolete_at => job.cuts.partition_point(|cut| *cut < obsolete_at),
    };
    slots[slot].add(record, value, decision.obsolete_at, job, host)
}

/// The keys at which tables are cut.
struct Guards<'a> {
    /// Those that were not passed.
    ahead: &'a [Box<[u8]>],
    /// That of the next one: mostly enough to compare.
    prefix: u64,
}

impl<'a> Guards<'a> {
    fn new(guards: &'a [Box<[u8]>]) -> Guards<'a> {
        let next = guards.first();
        Guards {
            ahead: guards,
            prefix: next.map_or(u64::MAX, |next| key_prefix(next)),
        }
    }

    /// Whether a key is the first one at or behind a guard. Keys ascend.
    #[inline(always)]
    fn pass(&mut self, key: &[u8]) -> bool {
        key_prefix(key) >= self.prefix && self.pass_some(key)
    }

    #[cold]
    fn pass_some(&mut self, key: &[u8]) -> bool {
        let passed = self.ahead.partition_point(|guard| **guard <= *key);
        *self = Guards::new(&self.ahead[passed..]);
        passed > 0
    }
}

/// Judges the sources as [`run`] does, and shows each record, with its value, as it would be written.
pub fn survivors<C: Cursor>(
    job: &Job,
    mut sources: Merge<C>,
    show: &mut dyn FnMut(&RecordRef<'_>, &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut group, mut decisions) = (Group::default(), vec![]);
    let mut older = OverlapProbe::new(job);
    while group.collect(&mut sources, job, &mut |_, _| {})? {
        let (versions, snapshots) = (&group.headers, &job.snapshots);
        let mut older = older.of(&group.key);
        decide(versions, snapshots, &job.view, &mut older, &mut decisions)?;
        for (at, decision) in decisions.iter().enumerate() {
            if let Some((record, value)) = group.left(at, decision) {
                show(&record, value)?;
            }
        }
    }
    Ok(())
}

/// All versions of one key, newest first. Versions that a newer one here supersedes for every reader are left out at
/// once, so that a key with a million versions needs no memory.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    headers: Vec<Header>,
    /// Empty for dead records, which are written as tombstones at most.
    values: Vec<HeldValue>,
    /// Copied values.
    copies: Vec<u8>,
}

/// A value of the group, whose source has moved on.
enum HeldValue {
    /// Its range in the copies.
    Copy(Range<usize>),
    /// A value too long to copy.
    Source(Bytes),
}

/// Values up to this length are copied, which is cheaper than to keep their source alive.
const COPIED_LEN: usize = 1 << 10;

impl Group {
    fn collect<C: Cursor>(
        &mut self,
        sources: &mut Merge<C>,
        job: &Job,
        reclaim: &mut impl FnMut(u64, u64),
    ) -> Result<bool> {
        self.headers.clear();
        self.values.clear();
        self.copies.clear();
        let Some(record) = sources.record() else {
            return sources.end().map(|()| false);
        };
        self.key.clear();
        self.key.extend_from_slice(record.key);
        while let Some(record) = sources.record()
            && record.key == self.key
        {
            let header = record.header;
            if !header.is_tombstone() && job.view.dead(&header) {
                let settings = &job.view.settings;
                let expired = settings.expires_at(&header);
                let is_older = header.seq < settings.floor_seq;
                let command = settings.commands.given_over(&header);
                let since = settings.overdue_since(expired, is_older, command);
                reclaim(job.view.now.since(since), record.weight());
            }
            let superseded = (self.headers.last())
                .is_some_and(|newer| is_superseded(newer.seq, header.seq, &job.snapshots));
            if !superseded {
                let front = sources.front().expect("a record has a cursor");
                let start = self.copies.len();
                let held = if job.view.dead(&header) {
                    HeldValue::Copy(0..0)
                } else if record.value_len > COPIED_LEN {
                    HeldValue::Source(front.value_bytes()?)
                } else {
                    self.copies.extend_from_slice(front.value()?);
                    HeldValue::Copy(start..self.copies.len())
                };
                self.values.push(held);
                self.headers.push(header);
            }
            sources.advance(None)?;
        }
        Ok(true)
    }

    /// The record and the value that a decision leaves of a version; `None`: nothing.
    #[inline]
    fn left(&self, at: usize, decision: &Decision) -> Option<(RecordRef<'_>, &[u8])> {
        let header = match decision.verdict {
            Verdict::Drop => return None,
            Verdict::Keep => self.headers[at],
            Verdict::Bury => Header::tombstone(self.headers[at].seq, self.headers[at].written_at),
        };
        let value = match &self.values[at] {
            HeldValue::Copy(range) => &self.copies[range.clone()],
            HeldValue::Source(bytes) => bytes,
        };
        let record = RecordRef {
            header,
            key: &self.key,
            value_len: value.len(),
        };
        Some((record, value))
    }
}

/// A run that is being written.
#[derive(Default)]
struct Slot {
    end: Timestamp,
    builder: Option<TableBuilder>,
    tables: Vec<FinishedTable>,
    /// Bytes of the table that is being built.
    written: u64,
    /// How many of these the budget was asked for.
    spent: u64,
}

impl Slot {
    #[inline(always)]
    fn add(
        &mut self,
        record: &RecordRef<'_>,
        value: &[u8],
        obsolete_at: Timestamp,
        job: &Job,
        host: &mut dyn Host,
    ) -> Result<()> {
        if self.written >= job.table_bytes
            && let Some(builder) = &self.builder
            && builder.last_key() != record.key
        {
            self.finish_table(host)?;
        }
        let builder = match &mut self.builder {
            Some(builder) => builder,
            None => self.builder.insert(begin_table(job, host)?),
        };
        builder.add(record, value)?;
        self.end = self.end.max(obsolete_at);
        self.written = builder.bytes();
        // Fewer than were spent, if a block that was counted uncompressed has been compressed since.
        let unspent = self.written.saturating_sub(self.spent);
        if unspent >= SPEND_BYTES {
            host.spend(unspent)?;
            self.spent = self.written;
        }
        Ok(())
    }

    /// Cuts the table if the next key is beyond a guard.
    fn cut(&mut self, job: &Job, host: &mut dyn Host) -> Result<()> {
        let worth = |builder: &TableBuilder| builder.bytes() >= job.least_table_bytes;
        if self.builder.as_ref().is_some_and(worth) {
            self.finish_table(host)?;
        }
        Ok(())
    }

    fn finish_table(&mut self, host: &mut dyn Host) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            let table = builder.finish()?;
            host.spend(table.len.saturating_sub(self.spent))?;
            (self.written, self.spent) = (0, 0);
            self.tables.push(table);
        }
        Ok(())
    }
}

fn begin_table(job: &Job, host: &mut dyn Host) -> Result<TableBuilder> {
    let (id, identity, file) = host.create_table()?;
    let meta = TableMeta {
        id,
        identity,
        container: job.container,
        settings: job.view.settings.of_a_table(),
    };
    let builder = TableBuilder::new(file, job.options, meta);
    Ok(builder.with_must_sample(job.must_sample.clone()))
}

/// The budget is asked each time this many bytes have been written.
const SPEND_BYTES: u64 = 64 << 10;

/// The runs outside the job, as the verdict needs them for one key. Every key is looked up in most runs, and most runs
/// do not have it: so the data that decides this is contiguous, and no table is touched.
struct OverlapProbe<'a> {
    job: &'a Job,
    /// The run with the latest expiry first.
    runs: Vec<RunPosition<'a>>,
    /// Up to this key the current tables of the runs are right; `None`: for all further keys.
    until: Option<&'a [u8]>,
    /// No range delete has a higher sequence number.
    newest_range: Seq,
}

/// A lookup of one key in them.
struct KeyProbe<'a, 'k> {
    others: &'k mut OverlapProbe<'a>,
    key: &'k [u8],
    asked: Option<(u64, Probe)>,
}

/// A run, and the position in it, which follows the keys.
struct RunPosition<'a> {
    run: &'a Run,
    /// The index of the table that may hold the current key.
    at: usize,
    /// The table's filter, once it was needed.
    filter: Option<&'a [u8]>,
    last_expiry: Timestamp,
    seq_min: Seq,
}

impl<'a> RunPosition<'a> {
    fn new(run: &'a Run, settings: &Settings) -> Self {
        RunPosition {
            run,
            at: 0,
            filter: None,
            last_expiry: run.census.last_expiry(settings),
            seq_min: run.census.seq_min,
        }
    }

    /// Goes to the first table that does not end before a key; returns that table's last key.
    fn walk_to(&mut self, key: &[u8]) -> Option<&'a [u8]> {
        let tables = &self.run.shared;
        while tables.get(self.at)?.last_key() < key {
            self.at += 1;
            self.filter = None;
        }
        Some(tables[self.at].last_key())
    }

    /// The table that may have versions of the current key.
    #[inline]
    fn holder(&mut self, probe: &Probe) -> Result<Option<&'a Arc<Table>>> {
        let filter = match self.filter {
            Some(filter) => filter,
            None => match self.run.shared.get(self.at) {
                Some(table) => *self.filter.insert(table.filter()?),
                None => return Ok(None),
            },
        };
        Ok(probe.passes(filter).then(|| &self.run.shared[self.at]))
    }
}

impl<'a> OverlapProbe<'a> {
    fn new(job: &'a Job) -> Self {
        let settings = &job.view.settings;
        let runs = job.other_runs.iter();
        let mut runs: Vec<_> = runs.map(|run| RunPosition::new(run, settings)).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.last_expiry));
        OverlapProbe {
            job,
            runs,
            until: Some(&[]),
            newest_range: job.last_range_delete(Seq::MAX),
        }
    }

    /// Whether one of the runs has a record that expires after a moment.
    #[inline]
    fn may_outlive(&self, moment: Timestamp) -> bool {
        let latest = self.runs.first();
        latest.is_some_and(|run| run.last_expiry > moment)
    }

    /// Moves the runs to a key. Keys ascend, so tables change only where one ends.
    fn walk_to(&mut self, key: &[u8]) {
        if self.until.is_some_and(|until| until < key) {
            let ends = self.runs.iter_mut().filter_map(|run| run.walk_to(key));
            self.until = ends.min();
        }
    }

    /// For a key, which is not below those before it.
    #[inline]
    fn of<'k>(&'k mut self, key: &'k [u8]) -> KeyProbe<'a, 'k> {
        KeyProbe {
            others: self,
            key,
            asked: None,
        }
    }
}

impl OlderVersions for KeyProbe<'_, '_> {
    #[inline]
    fn latest_live_expiry(&mut self, seq: Seq, outlives: Timestamp) -> Result<Option<Timestamp>> {
        if self.others.may_outlive(outlives) {
            self.look_up(seq, outlives)
        } else {
            Ok(None)
        }
    }

    #[inline]
    fn is_covered(&self, seq: Seq, max: Seq) -> bool {
        seq < self.others.newest_range && self.others.job.covers(self.key, seq, max)
    }
}

impl KeyProbe<'_, '_> {
    fn look_up(&mut self, seq: Seq, outlives: Timestamp) -> Result<Option<Timestamp>> {
        let (job, key) = (self.others.job, self.key);
        self.others.walk_to(key);
        let mut longest = outlives;
        for run in &mut self.others.runs {
            if run.last_expiry <= longest {
                break;
            }
            if run.seq_min >= seq {
                continue;
            }
            let (hash, probe) = self.asked.get_or_insert_with(|| {
                let hash = hash_key(key);
                (hash, Probe::of(hash))
            });
            let Some(table) = run.holder(probe)? else {
                continue;
            };
            let mut below = seq;
            while below > Seq(0)
                && let Some(found) = table.get(*hash, key, Seq(below.0 - 1))?
            {
                let header = found.header;
                if !job.view.dead(&header) && !job.covers(key, header.seq, seq) {
                    longest = longest.max(job.view.settings.expires_at(&header));
                }
                below = header.seq;
            }
        }
        Ok((longest > outlives).then_some(longest))
    }
}

#[cfg(test)]
mod tests;
