//! Slots: which output run a record of a rewrite goes to.
//!
//! A slot is as wide as its records are far away: a record with remaining life R goes to a slot about R/8 wide. As in a
//! timing wheel, slots are narrow near their end and wide far from it. A slot too small for a table is joined with the
//! next *later* one. The cuts are planned from the inputs' statistics before a record is read.

use crate::base::Timestamp;

/// The remaining life of a record divided by the width of its slot.
const SLOTS_PER_LIFE: u64 = 8;

/// The end of the slot for a record that becomes obsolete at `obsolete_at`.
pub fn slot_end(obsolete_at: Timestamp, now: Timestamp) -> Timestamp {
    let width = 1u64 << (obsolete_at.since(now) / SLOTS_PER_LIFE).max(1).ilog2();
    Timestamp(
        (obsolete_at.0 / width)
            .saturating_add(1)
            .saturating_mul(width),
    )
}

/// Where to cut: ascending, the last one [`Timestamp::MAX`]; a record goes to the first cut at or after its
/// `obsolete_at`. `forecast` says how many bytes become obsolete when, in any order; slots of fewer than `min_bytes`
/// are joined.
pub fn plan(mut forecast: Vec<(Timestamp, u64)>, min_bytes: u64, now: Timestamp) -> Vec<Timestamp> {
    forecast.retain(|&(obsolete_at, _)| obsolete_at > now && obsolete_at != Timestamp::MAX);
    forecast.sort_unstable();
    let total: u64 = forecast.iter().map(|part| part.1).sum();
    let (mut cuts, mut inside, mut behind) = (vec![], 0, 0);
    let mut parts = forecast.iter().peekable();
    while let Some(&(obsolete_at, bytes)) = parts.next() {
        inside += bytes;
        let end = slot_end(obsolete_at, now);
        let slot_is_over = parts.peek().is_some_and(|next| slot_end(next.0, now) > end);
        // Behind the last slot too few bytes would be left for another one, so it takes them.
        if slot_is_over && inside >= min_bytes && total - behind - inside >= min_bytes {
            cuts.push(end);
            behind += inside;
            inside = 0;
        }
    }
    cuts.push(Timestamp::MAX);
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_fine_near_and_coarse_far() {
        let now = Timestamp(1_000_000);
        for life in [1u64, 10, 100, 1_000, 60_000, 3_600_000, 86_400_000] {
            let obsolete_at = now.after(life);
            let end = slot_end(obsolete_at, now);
            assert!(
                end > obsolete_at && end.since(obsolete_at) <= (life / 8).max(1),
                "{life}: {end:?}"
            );
        }
    }

    #[test]
    fn slots_that_are_not_worth_a_table_are_joined() {
        let now = Timestamp(0);
        let even: Vec<_> = (1..=1_000u64).map(|at| (Timestamp(at * 100), 10)).collect();
        let cuts = plan(even.clone(), 1_000, now);
        assert!(cuts.len() > 4 && cuts.len() <= 10, "{cuts:?}");
        assert!(cuts.is_sorted());
        assert_eq!(cuts.last(), Some(&Timestamp::MAX));
        assert_eq!(plan(even, 10_001, now), [Timestamp::MAX]);
        assert_eq!(plan(vec![], 1, now), [Timestamp::MAX]);
    }
}
