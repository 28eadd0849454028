//! Read-ahead for iterations over the blocks of a table.

use std::ops::Range;

use crate::table::read::source::Access;

/// The state of the read-ahead: at first none, then some blocks at a time, and twice as many each time. After a long
/// forward iteration the system reads ahead, in larger reads.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// The range of the file that was requested last.
    asked: Range<u64>,
    /// The number of blocks visited before that.
    steps: usize,
    is_far: bool,
}

impl ReadAhead {
    /// Shorter iterations do not read ahead.
    const STEPS: usize = 4;
    const LEAST: u64 = 32 << 10;
    const FAR: u64 = 128 << 10;
    const MOST: u64 = 1 << 20;

    /// How the iteration accesses the table from here.
    pub fn access(&self) -> Access {
        match self.is_far {
            true => Access::Sequential,
            false => Access::Random,
        }
    }

    /// The range to request before a seek comes to the block at `place`, if memory is short: as much again in the
    /// direction of the iteration, which is still one read. The read-ahead then continues from the block after these.
    pub fn begin(&mut self, place: &Range<u64>, forward: bool, end: u64) -> Range<u64> {
        let len = place.end - place.start;
        self.steps = Self::STEPS - 1;
        self.asked = match forward {
            true => place.start..end.min(place.end + len),
            false => place.start.saturating_sub(len)..place.end,
        };
        self.asked.clone()
    }

    /// The range to request before the iteration comes to `place`; `None`: nothing. Blocks end at `end`.
    pub fn step(&mut self, place: &Range<u64>, forward: bool, end: u64) -> Option<Range<u64>> {
        if self.steps < Self::STEPS {
            self.steps += 1;
            return None;
        }
        let is_asked = self.asked.start <= place.start && place.end <= self.asked.end;
        if self.is_far || is_asked {
            return None;
        }
        let len = (2 * (self.asked.end - self.asked.start)).clamp(Self::LEAST, Self::MOST);
        if forward && len > Self::FAR {
            self.is_far = true;
            return None;
        }
        self.asked = match forward {
            true => place.start..end.min(place.start + len).max(place.end),
            false => place.end.saturating_sub(len).min(place.start)..place.end,
        };
        Some(self.asked.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4 << 10;

    /// Visits these blocks of a table of a thousand; returns the requests, with the blocks at which they were made, and
    /// the access after that.
    fn walk(blocks: impl Iterator<Item = u64>, forward: bool) -> (Vec<(u64, Range<u64>)>, Access) {
        let (mut read_ahead, mut asked) = (ReadAhead::default(), vec![]);
        for block in blocks {
            let place = block * BLOCK..(block + 1) * BLOCK;
            if let Some(range) = read_ahead.step(&place, forward, 1_000 * BLOCK) {
                asked.push((block, range.start / BLOCK..range.end / BLOCK));
            }
        }
        (asked, read_ahead.access())
    }

    #[test]
    fn short_walks_ask_for_nothing() {
        assert_eq!(walk(10..14, true), (vec![], Access::Random));
        assert_eq!(walk((6..10).rev(), false), (vec![], Access::Random));
    }

    #[test]
    fn each_asks_for_twice_as_much_until_the_system_reads_ahead() {
        let asked = vec![(14, 14..22), (22, 22..38), (38, 38..70)];
        assert_eq!(walk(10..70, true), (asked.clone(), Access::Random));
        assert_eq!(walk(10..1_000, true), (asked, Access::Sequential));
    }

    #[test]
    fn where_memory_is_short_a_walk_asks_from_its_beginning() {
        let (place, end) = (10 * BLOCK..11 * BLOCK, 1_000 * BLOCK);
        let mut forwards = ReadAhead::default();
        assert_eq!(forwards.begin(&place, true, end), place.start..12 * BLOCK);
        let next = 11 * BLOCK..12 * BLOCK;
        assert_eq!(forwards.step(&next, true, end), None);
        let next = 12 * BLOCK..13 * BLOCK;
        let asked = 12 * BLOCK..20 * BLOCK;
        assert_eq!(forwards.step(&next, true, end), Some(asked));
        let mut backwards = ReadAhead::default();
        assert_eq!(backwards.begin(&place, false, end), 9 * BLOCK..place.end);
        let first = 0..BLOCK;
        assert_eq!(backwards.begin(&first, false, end), first);
        assert_eq!(forwards.begin(&(999 * BLOCK..end), true, end).end, end);
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_blocks() {
        let asked = vec![(999, 999..1_000)];
        assert_eq!(walk(995..1_000, true), (asked, Access::Random));
        let (asked, access) = walk((0..1_000).rev(), false);
        let lens: Vec<u64> = asked
            .iter()
            .map(|(_, range)| range.end - range.start)
            .collect();
        assert_eq!(lens, [8, 16, 32, 64, 128, 256, 256, 236]);
        assert!(asked.iter().all(|(block, range)| range.end == block + 1));
        assert_eq!(access, Access::Random);
    }
}
