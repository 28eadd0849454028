//! Who sees a record, as far as its number decides that.
//!
//! Example: snapshots at 15 and 40 are open. A record of number 10 is seen first at 15, and so is one of number 15 itself;
//! one of number 20 is seen first at 40, and one of number 50 only by readers that are still to come. A version 20 of a key
//! hides its version 10 from the snapshot at 40, but not from the one at 15: 10 is not superseded. A version 12 would hide it
//! from both, and from all to come: then it is.
//!
//! Jobs ask this of versions (compact/verdict.rs, rule (a)), of what a range delete covers (rule (r)), and of range deletes
//! themselves (range_delete.rs).

use crate::base::Seq;

/// The lowest sequence number at which anybody reads that sees a record of this sequence number, unless something hides
/// it: of an open snapshot, or else [`Seq::MAX`], for all that are still to come. `snapshots` ascend.
#[inline]
pub fn first_reader(seq: Seq, snapshots: &[Seq]) -> Seq {
    let at = snapshots.partition_point(|snapshot| *snapshot < seq);
    snapshots.get(at).copied().unwrap_or(Seq::MAX)
}

/// Nobody sees the older of two writes any more, because whoever could sees the newer one, which hides it: of two versions
/// of a key, or of a range delete and what it covers.
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
