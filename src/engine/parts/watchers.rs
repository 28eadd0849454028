//! Those who watch a container's writes: a queue for each.
//!
//! ```text
//! a write, in the range ──▶ queue: put, put, delete      full ──▶ lost: from the first that found no place, to the last
//! under the commit lock     taken when it is published            taken when the queue is empty; then it fills again
//! ```
//!
//! Invariants:
//!
//! 1. Each write in the range that was noted since the queue was opened was taken, is in the queue, or lies among the lost
//!    ones. Those in the queue are older than the lost ones, and ascend.
//! 2. A queue has at most [`MOST`] writes, and [`MOST_BYTES`] of keys and values, or one.
//! 3. A watcher that rests is woken by the next write in its range.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::record::Header;
use crate::base::sync::Mutex;
use crate::base::{Seq, Timestamp};
use crate::data::batch::KeyRange;
use crate::engine::parts::bell::Bell;

/// So many writes are queued for a watcher that does not take them ...
const MOST: usize = 1 << 12;
/// ... and so many bytes of keys and values.
const MOST_BYTES: usize = 8 << 20;

/// A write, as it was noted, and the moment of its commit.
pub enum Noted {
    /// A put, or a delete. Its item may count its life from an earlier moment.
    Record(Timestamp, Header, Bytes, Bytes),
    /// A range delete.
    Range(Timestamp, Seq, KeyRange),
}

impl Noted {
    /// Its sequence number.
    pub fn seq(&self) -> Seq {
        match self {
            Noted::Record(_, header, ..) => header.seq,
            Noted::Range(_, seq, _) => *seq,
        }
    }

    /// The moment of its commit.
    pub fn at(&self) -> Timestamp {
        match self {
            Noted::Record(at, ..) | Noted::Range(at, ..) => *at,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Noted::Record(.., key, value) => key.len() + value.len(),
            Noted::Range(.., range) => range.from.len() + range.to.as_ref().map_or(0, Vec::len),
        }
    }
}

/// Writes that found no place: the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWrites {
    /// The first.
    pub first: Seq,
    /// The last.
    pub last: Seq,
}

/// The answer to a watcher.
pub enum Taken {
    /// The first of the queue.
    Write(Noted),
    /// The writes that found no place; the queue fills again.
    Lost(LostWrites),
    /// Nothing, or nothing that it wants yet.
    Nothing,
}

struct Queue {
    id: u64,
    range: Arc<KeyRange>,
    noted: VecDeque<Noted>,
    bytes: usize,
    lost: Option<LostWrites>,
    /// Whether the bell is to be rung.
    rests: bool,
    bell: Arc<Bell>,
}

impl Queue {
    fn has_room(&self, bytes: usize) -> bool {
        self.lost.is_none()
            && self.noted.len() < MOST
            && (self.noted.is_empty() || self.bytes + bytes <= MOST_BYTES)
    }

    fn note(&mut self, seq: Seq, bytes: usize, noted: impl FnOnce() -> Noted) {
        if self.has_room(bytes) {
            self.bytes += bytes;
            self.noted.push_back(noted());
        } else {
            self.lose(seq);
        }
        self.wake();
    }

    fn lose(&mut self, seq: Seq) {
        let first = self.lost.map_or(seq, |lost| lost.first);
        self.lost = Some(LostWrites { first, last: seq });
    }

    fn wake(&mut self) {
        if std::mem::take(&mut self.rests) {
            self.bell.ring();
        }
    }

    fn take(&mut self, wants: impl FnOnce(&Noted) -> bool) -> Taken {
        match self.noted.front() {
            Some(noted) if wants(noted) => {
                self.bytes -= noted.bytes();
                Taken::Write(self.noted.pop_front().expect("it is there"))
            }
            Some(_) => Taken::Nothing,
            None => self.lost.take().map_or(Taken::Nothing, Taken::Lost),
        }
    }
}

/// See the file's head.
#[derive(Default)]
pub struct Watchers {
    open: Mutex<Vec<Queue>>,
}

impl Watchers {
    /// Notes a put or a delete for those who watch its key. The caller holds the commit lock, so for all of these.
    pub fn note(&self, at: Timestamp, header: &Header, key: &[u8], value: &[u8]) {
        let bytes = key.len() + value.len();
        for queue in self.open.lock().iter_mut() {
            if queue.range.contains(key) {
                let copy = Bytes::copy_from_slice;
                let noted = || Noted::Record(at, *header, copy(key), copy(value));
                queue.note(header.seq, bytes, noted);
            }
        }
    }

    /// Notes a range delete for those who watch some of its keys.
    pub fn note_range(&self, (at, seq): (Timestamp, Seq), range: &KeyRange) {
        let begins_in =
            |one: &KeyRange, other: &KeyRange| other.to.as_ref().is_none_or(|to| one.from < *to);
        for queue in self.open.lock().iter_mut() {
            if begins_in(range, &queue.range) && begins_in(&queue.range, range) {
                let noted = Noted::Range(at, seq, range.clone());
                queue.note(seq, noted.bytes(), || noted);
            }
        }
    }

    /// Notes more writes than a queue holds, which have this sequence number.
    pub fn note_many(&self, seq: Seq) {
        for queue in self.open.lock().iter_mut() {
            queue.lose(seq);
            queue.wake();
        }
    }

    /// Opens a queue. Where some writes were lost before, those are the first that it gives.
    pub fn open(
        self: &Arc<Self>,
        range: Arc<KeyRange>,
        bell: &Arc<Bell>,
        lost: Option<LostWrites>,
    ) -> WatchPin {
        let mut open = self.open.lock();
        let last = open.iter().map(|queue| queue.id).max();
        let id = last.map_or(0, |last| last + 1);
        open.push(Queue {
            id,
            range,
            noted: VecDeque::new(),
            bytes: 0,
            lost,
            rests: false,
            bell: bell.clone(),
        });
        WatchPin {
            id,
            watchers: self.clone(),
        }
    }
}

/// An open queue; it closes when this is dropped.
pub struct WatchPin {
    id: u64,
    watchers: Arc<Watchers>,
}

impl WatchPin {
    fn with<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut open = self.watchers.open.lock();
        let mut queues = open.iter_mut();
        change(
            queues
                .find(|queue| queue.id == self.id)
                .expect("it is open"),
        )
    }

    /// Takes the first write, if it is wanted now.
    pub fn take(&self, wants: impl FnOnce(&Noted) -> bool) -> Taken {
        self.with(|queue| queue.take(wants))
    }

    /// The answer about the first write; none: there is no write to take.
    pub fn first<T>(&self, ask: impl FnOnce(&Noted) -> T) -> Option<T> {
        self.with(|queue| queue.noted.front().map(ask))
    }

    /// Has the bell rung by the next write; false: there is something to take.
    pub fn rest(&self) -> bool {
        self.with(|queue| {
            queue.rests = queue.noted.is_empty() && queue.lost.is_none();
            queue.rests
        })
    }

    /// It has another bell.
    pub fn set_bell(&self, bell: &Arc<Bell>) {
        self.with(|queue| queue.bell = bell.clone());
    }
}

impl Drop for WatchPin {
    fn drop(&mut self) {
        let mut open = self.watchers.open.lock();
        open.retain(|queue| queue.id != self.id);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::ItemTtl;
    use crate::base::record::Kind;

    fn watch(watchers: &Arc<Watchers>, from: &[u8]) -> (WatchPin, Arc<Bell>) {
        let (bell, to) = (Arc::default(), None);
        let range = KeyRange {
            from: from.to_vec(),
            to,
        };
        (watchers.open(Arc::new(range), &bell, None), bell)
    }

    fn put(watchers: &Watchers, seq: u64, key: &[u8], value: &[u8]) {
        let header = Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(seq),
            ttl: ItemTtl::Never,
        };
        watchers.note(header.written_at, &header, key, value);
    }

    /// The sequence numbers of all that is taken; of lost ones, the first and the last.
    fn all(pin: &WatchPin) -> (Vec<u64>, Option<(u64, u64)>) {
        let mut seqs = vec![];
        loop {
            match pin.take(|_| true) {
                Taken::Write(noted) => seqs.push(noted.seq().0),
                Taken::Lost(lost) => return (seqs, Some((lost.first.0, lost.last.0))),
                Taken::Nothing => return (seqs, None),
            }
        }
    }

    #[test]
    fn a_full_queue_keeps_what_it_has_and_says_what_it_lost() {
        let watchers = Arc::new(Watchers::default());
        let ((pin, _), (other, _)) = (watch(&watchers, b""), watch(&watchers, b"b"));
        let count = MOST as u64 + 5;
        (1..=count).for_each(|seq| put(&watchers, seq, b"a", b"v"));
        put(&watchers, count + 1, b"b", b"v");
        let (seqs, lost) = all(&pin);
        assert!(seqs.into_iter().eq(1..=MOST as u64));
        assert_eq!(lost, Some((MOST as u64 + 1, count + 1)));
        assert_eq!(all(&other), (vec![count + 1], None));
        put(&watchers, count + 2, b"a", b"v");
        assert_eq!(all(&pin), (vec![count + 2], None));
    }

    #[test]
    fn its_bytes_are_bounded_and_one_write_always_has_a_place() {
        let watchers = Arc::new(Watchers::default());
        let (pin, _) = watch(&watchers, b"");
        let value = vec![0; MOST_BYTES];
        put(&watchers, 1, b"a", &value);
        put(&watchers, 2, b"b", b"");
        assert_eq!(all(&pin), (vec![1], Some((2, 2))));
        let half = vec![0; MOST_BYTES / 2 - 1];
        (3..6).for_each(|seq| put(&watchers, seq, b"a", &half));
        assert_eq!(all(&pin), (vec![3, 4], Some((5, 5))));
        put(&watchers, 6, b"a", &half);
        watchers.note_many(Seq(7));
        assert_eq!(all(&pin), (vec![6], Some((7, 7))));
    }

    #[test]
    fn a_range_delete_is_noted_where_it_meets_the_range() {
        let watchers = Arc::new(Watchers::default());
        let ((all_keys, _), (from_b, _)) = (watch(&watchers, b""), watch(&watchers, b"b"));
        let range = |from: &[u8], to: &[u8]| KeyRange::of_bounds(from, to);
        let at = |n| (Timestamp(n), Seq(n));
        watchers.note_range(at(1), &range(b"", b"b"));
        watchers.note_range(at(2), &range(b"a", b"c"));
        watchers.note_range(at(3), &range(b"x", b""));
        assert_eq!(all(&all_keys).0, [1, 2, 3]);
        assert_eq!(all(&from_b).0, [2, 3]);
    }

    #[test]
    fn who_rests_is_woken_once() {
        let watchers = Arc::new(Watchers::default());
        let (pin, bell) = watch(&watchers, b"b");
        let rang = || bell.wake_task(std::task::Waker::noop());
        assert!(pin.rest());
        put(&watchers, 1, b"a", b"");
        assert!(!rang(), "not in its range");
        put(&watchers, 2, b"b", b"");
        put(&watchers, 3, b"b", b"");
        assert!(rang() && !rang());
        assert!(!pin.rest(), "there is something to take");
        assert_eq!(all(&pin).0, [2, 3]);
        assert!(pin.rest() && pin.first(|_| ()).is_none());
    }
}
