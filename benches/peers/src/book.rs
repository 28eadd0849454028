//! The driver's record of the truth: the live items, to the byte, and the answers that a get may give.
//!
//! One cell a slot, one word a cell, so that the reader judges while the writer writes:
//!
//! ```text
//!   63     62..23                 22..0
//!   known  live_until (ms)        doubt (ms)
//! ```
//!
//! An item must be there before `live_until`, counted from the clock before its put, and must be gone from `live_until +
//! doubt` on, counted from the clock after it; between the two either answer is right. A cell is 0 while its put is under
//! way. A get is judged if its cell was the same before and after it.
//!
//! Live bytes are kept by the moment of their expiry, in buckets of [`BUCKET_MS`].

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::loads::{LIVE_BYTES, Load, Put};

const BUCKET_MS: u64 = 10;
const KNOWN: u64 = 1 << 63;
const DOUBT_BITS: u32 = 23;
const DOUBT_MAX: u64 = (1 << DOUBT_BITS) - 1;
/// `live_until` of what never expires.
const NEVER: u64 = (1 << 40) - 1;

/// The wall clock, in milliseconds since the Unix epoch: the same that every engine here goes by.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// The right answer of a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was right.
    Right,
    /// A live item was missing.
    Missing,
    /// An expired item was returned.
    Expired,
    /// Another item's value was returned.
    Wrong,
    /// Both answers would have been right.
    Open,
}

/// The truth about one run.
pub struct Book {
    base_ms: u64,
    /// How far around an expiry nobody is blamed, in milliseconds.
    tolerance_ms: u64,
    cells: Vec<AtomicU64>,
    /// Live bytes by when they expire; the last bucket: after the run.
    buckets: Vec<AtomicI64>,
    /// Slots that have been put: all below it, for fresh keys.
    slots: AtomicU64,
    keys_are_fresh: bool,
}

impl Book {
    /// An empty one for a load that begins about now and is over in `seconds`.
    pub fn new(load: &Load, seconds: u64, tolerance_ms: u64) -> Book {
        let buckets = seconds * 1_000 / BUCKET_MS + 2;
        Book {
            base_ms: wall_ms(),
            tolerance_ms,
            cells: (0..load.window()).map(|_| AtomicU64::new(0)).collect(),
            buckets: (0..buckets).map(|_| AtomicI64::new(0)).collect(),
            slots: AtomicU64::new(0),
            keys_are_fresh: load.keys_are_fresh(),
        }
    }

    /// Before a put: nothing is known of its slot.
    pub fn begin(&self, put: Put) -> PutUnderWay {
        let before_ms = wall_ms();
        let former = self.cell(put.slot).swap(0, SeqCst);
        PutUnderWay { before_ms, former }
    }

    /// After it: what must be there from now on, and until when.
    pub fn end(&self, put: Put, begun: &PutUnderWay) {
        let took = wall_ms().saturating_sub(begun.before_ms);
        let live_until = match put.ttl_ms {
            Some(ttl) => (begun.before_ms + ttl - self.base_ms).min(NEVER - 1),
            None => NEVER,
        };
        if begun.former != 0 && !self.keys_are_fresh {
            let bucket = self.bucket(live_until_of(begun.former));
            bucket.fetch_sub(LIVE_BYTES as i64, Relaxed);
        }
        self.bucket(live_until)
            .fetch_add(LIVE_BYTES as i64, Relaxed);
        let cell = KNOWN | live_until << DOUBT_BITS | took.min(DOUBT_MAX);
        self.cell(put.slot).store(cell, SeqCst);
        self.slots.fetch_max(put.slot + 1, SeqCst);
    }

    /// A slot for a get, from two random numbers: mostly of a live item, one in eight of any recent one.
    pub fn pick(&self, mut hash: u64) -> Option<u64> {
        let slots = self.slots.load(SeqCst);
        let window = (self.cells.len() as u64).min(slots);
        if window == 0 {
            return None;
        }
        let any = hash.is_multiple_of(8);
        let now = wall_ms() - self.base_ms;
        let mut slot = 0;
        for _ in 0..8 {
            hash = crate::loads::mix(hash);
            slot = slots - 1 - hash % window;
            if any || live_until_of(self.cell(slot).load(Relaxed)) > now {
                break;
            }
        }
        Some(slot)
    }

    /// Before a get.
    pub fn look(&self, slot: u64) -> Look {
        let cell = self.cell(slot).load(SeqCst);
        // A fresh key's cell may by now be a later one's, whose put has then at least begun.
        let reused =
            self.keys_are_fresh && slot + self.cells.len() as u64 <= self.slots.load(SeqCst);
        Look {
            slot,
            cell: if reused { 0 } else { cell },
            before_ms: wall_ms(),
        }
    }

    /// After it: `found` is the tag of the value, if there was one.
    pub fn judge(&self, look: &Look, found: Option<u64>, tag: u64) -> Verdict {
        let after_ms = wall_ms();
        let (cell, tolerance) = (look.cell, self.tolerance_ms);
        if found.is_some_and(|found| found != tag) {
            return Verdict::Wrong;
        }
        let doubt = cell & DOUBT_MAX;
        if cell == 0 || doubt == DOUBT_MAX || self.cell(look.slot).load(SeqCst) != cell {
            return Verdict::Open;
        }
        let live_until = live_until_of(cell);
        let was_live = after_ms - self.base_ms + tolerance < live_until;
        let was_gone = look.before_ms - self.base_ms >= live_until + doubt + tolerance;
        match found {
            None if was_live => Verdict::Missing,
            Some(_) if was_gone && live_until != NEVER => Verdict::Expired,
            _ if was_live || was_gone => Verdict::Right,
            _ => Verdict::Open,
        }
    }

    /// Bytes of all live items, to the width of a bucket.
    pub fn live_bytes(&self) -> u64 {
        let now = (wall_ms() - self.base_ms) / BUCKET_MS;
        let from = (now as usize + 1).min(self.buckets.len() - 1);
        let live: i64 = self.buckets[from..].iter().map(|b| b.load(Relaxed)).sum();
        live.max(0) as u64
    }

    fn cell(&self, slot: u64) -> &AtomicU64 {
        &self.cells[(slot % self.cells.len() as u64) as usize]
    }

    fn bucket(&self, live_until: u64) -> &AtomicI64 {
        let last = self.buckets.len() - 1;
        &self.buckets[((live_until / BUCKET_MS) as usize).min(last)]
    }
}

/// A put under way.
pub struct PutUnderWay {
    /// The clock before it.
    pub before_ms: u64,
    former: u64,
}

/// A get under way.
pub struct Look {
    slot: u64,
    cell: u64,
    /// The clock before it.
    pub before_ms: u64,
}

fn live_until_of(cell: u64) -> u64 {
    (cell & !KNOWN) >> DOUBT_BITS
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;
    use crate::loads::{Choice, Name};

    fn book(name: Name) -> Book {
        let load = Load::new(Choice {
            name,
            rate: 10,
            seconds: Some(10),
            silence: Some(0),
            memtable_bytes: 1 << 20,
            live_memtables: None,
            lasting: false,
            seed: 1,
        });
        Book::new(&load, 100, 0)
    }

    fn put(book: &Book, slot: u64, ttl_ms: Option<u64>) {
        let put = Put { slot, ttl_ms };
        let begun = book.begin(put);
        book.end(put, &begun);
    }

    #[test]
    fn a_get_is_judged_by_the_life_of_its_item() {
        let book = book(Name::Field);
        put(&book, 0, Some(60_000));
        put(&book, 1, Some(1));
        put(&book, 2, None);
        sleep(Duration::from_millis(20));
        let verdict = |slot, found| book.judge(&book.look(slot), found, 9);
        assert_eq!(verdict(0, Some(9)), Verdict::Right);
        assert_eq!(verdict(0, None), Verdict::Missing);
        assert_eq!(verdict(0, Some(8)), Verdict::Wrong);
        assert_eq!(verdict(1, None), Verdict::Right);
        assert_eq!(verdict(1, Some(9)), Verdict::Expired);
        assert_eq!(verdict(2, Some(9)), Verdict::Right);
        assert_eq!(verdict(2, None), Verdict::Missing);
    }

    #[test]
    fn a_get_beside_a_put_of_its_key_is_not_judged() {
        let book = book(Name::Overwrite);
        put(&book, 5, None);
        let look = book.look(5);
        let again = Put {
            slot: 5,
            ttl_ms: Some(60_000),
        };
        let begun = book.begin(again);
        assert_eq!(book.judge(&look, None, 9), Verdict::Open);
        assert_eq!(book.judge(&book.look(5), None, 9), Verdict::Open);
        book.end(again, &begun);
        assert_eq!(book.judge(&look, None, 9), Verdict::Open);
        assert_eq!(book.judge(&book.look(5), None, 9), Verdict::Missing);
    }

    #[test]
    fn live_bytes_count_the_newest_version_until_it_expires() {
        let book = book(Name::Overwrite);
        put(&book, 0, None);
        put(&book, 1, Some(5_000));
        put(&book, 1, Some(6_000));
        put(&book, 2, Some(1));
        sleep(Duration::from_millis(2 * BUCKET_MS + 1));
        assert_eq!(book.live_bytes(), 2 * LIVE_BYTES);
        put(&book, 2, Some(7_000));
        assert_eq!(book.live_bytes(), 3 * LIVE_BYTES);
        put(&book, 0, Some(1));
        sleep(Duration::from_millis(2 * BUCKET_MS + 1));
        assert_eq!(book.live_bytes(), 2 * LIVE_BYTES);
    }

    #[test]
    fn gets_ask_mostly_for_live_items() {
        let book = book(Name::Field);
        for slot in 0..100 {
            put(&book, slot, Some(if slot % 2 == 0 { 60_000 } else { 1 }));
        }
        sleep(Duration::from_millis(10));
        let picked = (0..1_000).filter_map(|n| book.pick(crate::loads::mix(n)));
        let live = picked.filter(|slot| slot % 2 == 0).count();
        assert!((850..1_000).contains(&live), "{live}");
    }
}
