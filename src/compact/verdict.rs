//! The verdict: keep, bury or drop, for every version of one key that a job holds.
//!
//! Example, at `now` = 61 s, with a snapshot at 15. A flush holds two versions of a key: 20, written at 1 s with a ttl
//! of one minute, and 10, with a ttl of 30 days. 20 is dead, but the snapshot needs 10: 10 is kept, and so 20 is
//! buried, or every reader from 20 on would see 10 again. Without the snapshot 10 is superseded, and 20 hides nothing
//! any more: both are dropped. If an older run had a version 5, live for another hour, then 10 would be dropped and 20
//! stay as a tombstone that becomes obsolete in an hour.
//!
//! For one record, with `now`, settings and floors read once for the whole job (src/data/visibility.rs says which snapshots
//! see it):
//!
//! * (a) a newer record of its key is in this job, and no open snapshot `s` has `seq <= s < newer.seq`: **drop**;
//! * (r) a range delete above it covers it, and no open snapshot has `seq <= s < range.seq`: **drop**;
//! * (b) neither expired nor a tombstone: **keep**;
//! * (c) dead, and an older version of its key that is not gone *now* may exist, in this job's own output or in any
//!   older source: **bury** (keep the key, as a tombstone);
//! * (d) else: **drop**.
//!
//! Why no reader can tell. A reader at `s` (a snapshot, or the newest sequence number) sees of a key the newest version
//! with a sequence number at most `s`; if that version is dead, or covered by a range delete at most `s`, it sees
//! nothing. A reader's clock never lies before the job's `now`, and expiry is final, so a record that is dead at `now`
//! is dead for every later reader.
//!
//! * A record that (a) drops is not the newest at any reader's `s`: those at or above `newer.seq` see `newer` or
//!   something newer still. If `newer` is dropped too, it is by (a), to which the same applies, or by (r), which covers
//!   the older record as well, or by (d): then no older version that is not gone exists anywhere, this one included,
//!   because the question of (d) is asked of every source, and in the job's own output nothing older is live.
//!   (`newer` dead, this one live and dropped by (a): it is in no output, so it can come back nowhere.)
//! * A record that (r) drops is seen by no reader: those from `range.seq` on see the range delete, which stays in the
//!   catalogue as long as an older source overlaps it; and everything this record hid is older, so covered too.
//! * (b) changes nothing. A record that (c) buries showed nothing and hides as before.
//! * A record that (d) drops showed nothing. It hid older versions, all of which are gone now and for ever: those in
//!   the job, by looking at what it outputs; those outside, by asking every source whose lowest sequence number is
//!   below this record's. No older version can appear later: memtables are installed in the order in which they were
//!   sealed, and a bulk load together with what was in memory before it.
//!
//! `now` may be earlier than the clock, for readers of expirations (engine/parts/feeds.rs), with the settings of that moment: then
//! what has ended since counts as live, and is kept.
//!
//! Whole tables go by the same rules, unread (pick/ended.rs):
//!
//! * (t) every record of a table is **dropped** at once in three cases.
//!   1. *Its run's end has passed, and can be trusted under the settings of now.* Each record was written to the run with
//!      the moment at which it becomes obsolete, at or before the run's end: then it is a tombstone or dead, and every older
//!      version that it hid is dead too, wherever a merge has carried it since. That is (d). The end is trusted if the
//!      settings of today let nothing live longer than those under which it was found did.
//!   2. *All its records are dead, and no table that overlaps it and has an older record holds one that is not dead.* Then
//!      whatever older version any of them hides is dead. That is (d) again, asked of all keys at once.
//!   3. *Range deletes cover all of its keys, with numbers above its highest, and no open snapshot that sees one of its
//!      records is older than these.* That is (r), for a reader of any of its records.
//!
//! Several tables that are dropped together do not need each other: dead records hide nothing from each other, and what
//! (t) drops of one table shows nothing to a reader whether or not the other is there.

use crate::base::record::Header;
use crate::base::{Result, Seq, Timestamp};
use crate::data::visibility::{first_reader, is_superseded};
use crate::expiry::ExpiryView;

/// The verdict on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written unchanged.
    Keep,
    /// Its key is written, as a tombstone.
    Bury,
    /// It is left out.
    Drop,
}

/// A verdict, and when the written record becomes obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// When the record shows nothing and hides only records that are gone: [`Timestamp::MAX`] for never. Meaningless if
    /// it is dropped.
    pub obsolete_at: Timestamp,
}

/// Answers questions about versions of a key outside the job.
pub trait OlderVersions {
    /// Of the versions of the key below `seq` in sources outside the job: the latest expiry of one that is not gone
    /// and not covered for a reader at `seq`; `None` when all are gone or there are none. Sources in which nothing
    /// expires after `outlives` need not be asked.
    fn latest_live_expiry(&mut self, seq: Seq, outlives: Timestamp) -> Result<Option<Timestamp>>;
    /// Whether a range delete with a sequence number above `seq`, and up to `max`, covers the key.
    fn is_covered(&self, seq: Seq, max: Seq) -> bool;
}

/// Judges the versions of one key that a job holds, newest first. `snapshots` are the sequence numbers of the open
/// snapshots, ascending. `decisions` gets one for each version, in the same order.
pub fn decide(
    versions: &[Header],
    snapshots: &[Seq],
    view: &ExpiryView,
    older: &mut impl OlderVersions,
    decisions: &mut Vec<Decision>,
) -> Result<()> {
    debug_assert!(versions.windows(2).all(|pair| pair[0].seq > pair[1].seq));
    decisions.clear();
    decisions.resize(
        versions.len(),
        Decision {
            verdict: Verdict::Drop,
            obsolete_at: Timestamp(0),
        },
    );
    // The latest expiry of the live versions that are written, all older than the current one.
    let mut latest_written: Option<Timestamp> = None;
    for at in (0..versions.len()).rev() {
        let header = &versions[at];
        if at > 0 && is_superseded(versions[at - 1].seq, header.seq, snapshots) {
            continue; // (a)
        }
        let dead = view.dead(header);
        let Some(decision) = judge(header, dead, latest_written, snapshots, view, older)? else {
            continue;
        };
        if decision.verdict == Verdict::Keep {
            latest_written = latest_written.max(Some(view.settings.expires_at(header)));
        }
        decisions[at] = decision;
    }
    Ok(())
}

/// Judges the only version of a key that a job holds, which is not dead, as [`decide`] does. None: it is dropped.
#[inline(always)]
pub fn decide_alone(
    header: &Header,
    snapshots: &[Seq],
    view: &ExpiryView,
    older: &mut impl OlderVersions,
) -> Result<Option<Decision>> {
    judge(header, false, None, snapshots, view, older)
}

/// Judges a version that no newer one in the job supersedes; `dead`: whether it is. `latest_written` is the latest expiry
/// of the live versions that the job writes, all of which are older. None: it is dropped.
#[inline(always)]
fn judge(
    header: &Header,
    dead: bool,
    latest_written: Option<Timestamp>,
    snapshots: &[Seq],
    view: &ExpiryView,
    older: &mut impl OlderVersions,
) -> Result<Option<Decision>> {
    if older.is_covered(header.seq, first_reader(header.seq, snapshots)) {
        return Ok(None); // (r)
    }
    let expires = if dead {
        view.now
    } else {
        view.settings.expires_at(header)
    };
    let hidden = if expires == Timestamp::MAX {
        None
    } else {
        latest_written.max(older.latest_live_expiry(header.seq, expires)?)
    };
    Ok(match (dead, hidden) {
        (true, None) => None, // (d)
        (true, Some(obsolete_at)) => Some(Decision {
            verdict: Verdict::Bury,
            obsolete_at,
        }), // (c)
        (false, hidden) => Some(Decision {
            verdict: Verdict::Keep,
            obsolete_at: expires.max(hidden.unwrap_or_default()),
        }), // (b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ItemTtl;
    use crate::base::record::Kind;
    use crate::expiry::{DefaultMillis, Settings};

    const DAY: u64 = 86_400_000;

    /// Versions of the key outside the job, and the range deletes that cover it.
    #[derive(Default)]
    struct OtherSources {
        older: Vec<Header>,
        ranges: Vec<u64>,
        now: u64,
    }

    impl OlderVersions for OtherSources {
        fn latest_live_expiry(
            &mut self,
            seq: Seq,
            outlives: Timestamp,
        ) -> Result<Option<Timestamp>> {
            let view = on(self.now);
            let older = self
                .older
                .iter()
                .filter(|header| header.seq < seq && !view.dead(header));
            Ok(older
                .map(|header| view.settings.expires_at(header))
                .filter(|end| *end > outlives)
                .max())
        }

        fn is_covered(&self, seq: Seq, max: Seq) -> bool {
            let mut ranges = self.ranges.iter().map(|&range| Seq(range));
            ranges.any(|range| range > seq && range <= max)
        }
    }

    fn on(now: u64) -> ExpiryView {
        ExpiryView::at(Timestamp(now), || Settings::new(DefaultMillis::NoDefault))
    }

    fn put(seq: u64, written_at: u64, millis: u64) -> Header {
        let ttl = if millis == 0 {
            ItemTtl::Never
        } else {
            ItemTtl::Millis(millis)
        };
        Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(written_at),
            ttl,
        }
    }

    fn verdicts(
        versions: &[Header],
        snapshots: &[u64],
        now: u64,
        mut others: OtherSources,
    ) -> Vec<(Verdict, u64)> {
        others.now = now;
        let snapshots: Vec<Seq> = snapshots.iter().map(|&seq| Seq(seq)).collect();
        let mut decisions = vec![];
        decide(versions, &snapshots, &on(now), &mut others, &mut decisions).unwrap();
        decisions
            .iter()
            .map(|s| {
                (
                    s.verdict,
                    if s.verdict == Verdict::Drop {
                        0
                    } else {
                        s.obsolete_at.0
                    },
                )
            })
            .collect()
    }

    /// Breaks a build that looks for older versions only outside the job: a snapshot keeps the long-lived version, and
    /// the short-lived one above it must stay as a tombstone.
    #[test]
    fn a_version_kept_for_a_snapshot_must_go_on_being_hidden() {
        let versions = [put(20, 1_000, 60_000), put(10, 0, 30 * DAY)];
        let kept = (Verdict::Keep, 30 * DAY);
        assert_eq!(
            verdicts(&versions, &[15], 61_000, OtherSources::default()),
            [(Verdict::Bury, 30 * DAY), kept]
        );
        assert_eq!(
            verdicts(&versions, &[], 61_000, OtherSources::default()),
            [(Verdict::Drop, 0), (Verdict::Drop, 0)]
        );
        assert_eq!(
            verdicts(&versions, &[15], 60_999, OtherSources::default()),
            [(Verdict::Keep, 30 * DAY), kept]
        );
    }

    #[test]
    fn the_dead_hide_what_lives_elsewhere() {
        let others = || OtherSources {
            older: vec![put(5, 0, 500)],
            ..OtherSources::default()
        };
        assert_eq!(
            verdicts(&[put(9, 0, 100)], &[], 100, others()),
            [(Verdict::Bury, 500)]
        );
        assert_eq!(
            verdicts(&[put(9, 0, 100)], &[], 500, others()),
            [(Verdict::Drop, 0)]
        );
        assert_eq!(
            verdicts(&[put(9, 0, 100)], &[], 99, others()),
            [(Verdict::Keep, 500)]
        );
        assert_eq!(
            verdicts(&[put(4, 0, 100)], &[], 100, others()),
            [(Verdict::Drop, 0)],
            "it is not older"
        );
        assert_eq!(
            verdicts(&[put(9, 0, 900)], &[], 100, others()),
            [(Verdict::Keep, 900)]
        );
        let tombstone = Header::tombstone(Seq(9), Timestamp(0));
        assert_eq!(
            verdicts(&[tombstone], &[], 100, others()),
            [(Verdict::Bury, 500)]
        );
        assert_eq!(
            verdicts(&[tombstone], &[], 100, OtherSources::default()),
            [(Verdict::Drop, 0)]
        );
    }

    #[test]
    fn range_deletes_drop_what_no_snapshot_sees() {
        let others = || OtherSources {
            ranges: vec![12, 30],
            ..OtherSources::default()
        };
        assert_eq!(
            verdicts(&[put(9, 0, 0)], &[], 1, others()),
            [(Verdict::Drop, 0)]
        );
        assert_eq!(
            verdicts(&[put(9, 0, 0)], &[12], 1, others()),
            [(Verdict::Drop, 0)]
        );
        assert_eq!(
            verdicts(&[put(9, 0, 0)], &[9], 1, others()),
            [(Verdict::Keep, u64::MAX)]
        );
        assert_eq!(
            verdicts(&[put(31, 0, 0)], &[], 1, others()),
            [(Verdict::Keep, u64::MAX)]
        );
    }
}
