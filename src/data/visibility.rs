//! Visibility of records by their sequence numbers.
//!
//! Example: snapshots at 15 and 40 are open. The first reader of a record with sequence number 10 is the snapshot at 15, and
//! so it is for 15; for 20 it is the snapshot at 40, and for 50 later readers only. A version 20 of a key hides its version 10
//! from the snapshot at 40, but not from the one at 15: 10 is not superseded. A version 12 hides it from both, and from all
//! later readers: then 10 is superseded.
//!
//! Jobs use this for versions (compact/verdict.rs, rule (a)), for records that a range delete covers (rule (r)), and for
//! range deletes themselves (range_delete.rs).

use crate::base::Seq;

/// The lowest sequence number of a reader that sees a record with this sequence number, unless it is hidden: that of an open
/// snapshot, or [`Seq::MAX`] for later readers. `snapshots` ascend.
#[inline]
pub fn first_reader(seq: Seq, snapshots: &[Seq]) -> Seq {
    let at = snapshots.partition_point(|snapshot| *snapshot < seq);
    snapshots.get(at).copied().unwrap_or(Seq::MAX)
}

/// Whether no reader sees the older of two writes, because every reader that could also sees the newer one, which hides it:
/// two versions of a key, or a record and a range delete that covers it.
#[inline]
pub fn is_superseded(newer: Seq, older: Seq, snapshots: &[Seq]) -> bool {
    first_reader(older, snapshots) >= newer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_as_told() {
        let snapshots = [Seq(15), Seq(40)];
        let first = [10, 15, 20, 50].map(|seq| first_reader(Seq(seq), &snapshots));
        assert_eq!(first, [Seq(15), Seq(15), Seq(40), Seq::MAX]);
        assert!(!is_superseded(Seq(20), Seq(10), &snapshots));
        assert!(is_superseded(Seq(12), Seq(10), &snapshots));
        assert!(is_superseded(Seq(15), Seq(10), &snapshots));
        assert!(is_superseded(Seq(11), Seq(10), &[]));
    }
}
