//! The readers of a container's expirations, and what jobs keep for them.
//!
//! ```text
//!       dropped       jobs judge by       position of a reader        now
//! ─────────┼────────────────┼────────────────────┼──────────────────────┼──▶ ends
//!   may be gone     what ended is stored    not given yet
//! ```
//!
//! Jobs judge by an earlier moment than now, so that records which have ended since are kept as they are; only the
//! readers here see them. The moment is `keep_expired` before now, and before the position of each open reader, though
//! at most [`READER_HOLD`] before now. A job that judges by an earlier moment drops the records that it would have
//! dropped then, and none for a later reason ([`Settings::that_had_ended`]): the proof in verdict.rs needs nothing
//! else.
//!
//! Invariants:
//!
//! 1. `dropped` is no earlier than the end of any item whose newest record a job has left out, nor than the end of an
//!    older record of the key that is still stored: no record shows any more that it was replaced or deleted. It is
//!    noted before the read state without the record is installed, and is durable by the same edit.
//! 2. While a reader is open, each write that may end before the last end that it has gathered is noted for it, before the
//!    write is visible.
//! 3. A reader that waits is woken by each write that may end before the moment for which it waits, and by each change of
//!    settings. It says for what it waits before it looks for the last time: so what it has not seen wakes it.

use std::mem::take;
use std::sync::Arc;

use crate::base::record::Header;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::{ItemTtl, Seq, Timestamp};
use crate::data::batch::KeyRange;
use crate::engine::parts::bell::Bell;
use crate::engine::parts::watchers::{LostWrites, WatchPin, Watchers};
use crate::expiry::{DefaultMillis, Settings};

/// An item that ended less than this ago is kept for an open reader that has not come so far, in milliseconds.
pub const READER_HOLD: u64 = 60_000;
/// So many writes are noted for a reader; it gathers anew after more.
const NOTED: usize = 1 << 16;
/// ... or after more bytes of keys.
const NOTED_BYTES: usize = 4 << 20;

/// See the file's head.
#[derive(Default)]
pub struct Feeds {
    /// Items that ended less than so many milliseconds ago are kept.
    keep: AtomicU64,
    /// See invariant 1; 0: nothing was dropped.
    dropped: AtomicU64,
    /// The highest sequence number of the changes that may have ended the items dropped last. Stored under the readers'
    /// lock.
    dropped_by: AtomicU64,
    /// Whether a reader is open: each write asks.
    is_read: AtomicBool,
    readers: Mutex<Vec<FeedReader>>,
    /// Each of them has a reader open.
    watchers: Arc<Watchers>,
}

/// An open reader.
struct FeedReader {
    id: u64,
    /// It needs the ends from here on.
    position: Timestamp,
    /// At the position itself it needs only ends by a write above this sequence number, if there is one.
    above: Option<Seq>,
    /// A job has left out an item that ended there or later.
    has_missed: bool,
    wants: Wants,
    /// The writes that end its wait; none: it does not wait.
    waits: Option<Wants>,
    bell: Arc<Bell>,
    /// The writes it wants.
    noted: Vec<(Header, Box<[u8]>)>,
    /// The bytes of their keys.
    noted_bytes: usize,
    /// There were more of them, and none is noted.
    is_full: bool,
}

impl FeedReader {
    /// Whether it needs the ends at this moment by writes up to this sequence number.
    fn needs(&self, end: Timestamp, by: Seq) -> bool {
        let is_new = || self.above.is_none_or(|above| by > above);
        self.position < end || self.position == end && is_new()
    }

    fn note(&mut self, header: &Header, key: &[u8]) {
        if self.is_full {
            return;
        }
        if self.noted.len() >= NOTED || self.noted_bytes + key.len() > NOTED_BYTES {
            // It gathers anew, so these are of no use.
            self.take_noted();
            self.is_full = true;
            return;
        }
        self.noted_bytes += key.len();
        self.noted.push((*header, key.into()));
    }

    fn take_noted(&mut self) -> Vec<(Header, Box<[u8]>)> {
        self.noted_bytes = 0;
        take(&mut self.noted)
    }
}

/// The writes that a reader wants to know of.
#[derive(Clone, Copy)]
pub struct Wants {
    /// Those with a ttl of their own that end before this moment.
    own: Timestamp,
    /// Those without one that were written before this moment.
    inherit: Timestamp,
}

impl Wants {
    /// All that may end.
    pub const ALL: Wants = Wants {
        own: Timestamp::MAX,
        inherit: Timestamp::MAX,
    };

    /// Those that end up to a moment under these settings.
    pub fn up_to(moment: Timestamp, settings: &Settings) -> Wants {
        let own = moment.after(1);
        let inherit = match (settings.default, moment) {
            (DefaultMillis::Millis(_), Timestamp::MAX) => Timestamp::MAX,
            (DefaultMillis::Millis(n), _) => own.before(n),
            _ => Timestamp(0),
        };
        Wants { own, inherit }
    }

    fn meet(&self, header: &Header) -> bool {
        match header.ttl {
            _ if header.is_tombstone() => false,
            ItemTtl::Never => false,
            ItemTtl::Absent => header.written_at < self.inherit,
            ItemTtl::Millis(millis) => header.written_at.after(millis) < self.own,
        }
    }
}

/// The writes noted for a reader since it asked last.
pub struct Noted {
    /// The writes.
    pub writes: Vec<(Header, Box<[u8]>)>,
    /// There were too many: some are missing.
    pub is_full: bool,
}

impl Feeds {
    /// Of a container that was opened.
    pub fn new(keep: u64, dropped: Timestamp) -> Feeds {
        Feeds {
            keep: AtomicU64::new(keep),
            dropped: AtomicU64::new(dropped.0),
            dropped_by: AtomicU64::new(u64::MAX),
            ..Feeds::default()
        }
    }

    /// How long ended items are kept, in milliseconds.
    pub fn keep(&self) -> u64 {
        self.keep.load(Ordering::Acquire)
    }

    /// Sets that, and up to which moment ends are known no more whatever is kept from now on; it is durable.
    pub fn set_keep(&self, millis: u64, dropped: Timestamp) {
        self.dropped.fetch_max(dropped.0, Ordering::AcqRel);
        self.keep.store(millis, Ordering::Release);
    }

    /// The moment by which a job judges that begins at this settled moment.
    pub fn purge_horizon(&self, settled: Timestamp) -> Timestamp {
        let mut moment = settled.before(self.keep());
        if self.is_read.load(Ordering::Acquire) {
            let readers = self.readers.lock();
            if let Some(position) = readers.iter().map(|reader| reader.position).min() {
                let held = position.before(1).max(settled.before(READER_HOLD));
                moment = moment.min(held);
            }
        }
        moment
    }

    /// The moment up to which ends are no longer known; none: all are known.
    pub fn dropped(&self) -> Option<Timestamp> {
        let dropped = self.dropped.load(Ordering::Acquire);
        (dropped > 0).then_some(Timestamp(dropped))
    }

    /// Notes, of a container that nobody reads yet, that all ends after this moment are known.
    pub fn none_dropped_after(&self, moment: Timestamp) {
        self.dropped.fetch_min(moment.0, Ordering::AcqRel);
    }

    /// Notes that items which ended up to this moment, by changes up to this sequence number, may be missing in the
    /// read state that is installed next.
    pub fn note_dropped(&self, end: Timestamp, by: Seq) {
        let mut readers = self.readers.lock();
        let last = self.dropped.fetch_max(end.0, Ordering::AcqRel);
        match end.0.cmp(&last) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => drop(self.dropped_by.fetch_max(by.0, Ordering::Relaxed)),
            std::cmp::Ordering::Greater => self.dropped_by.store(by.0, Ordering::Relaxed),
        }
        let missing = readers.iter_mut().filter(|one| one.needs(end, by));
        missing.for_each(|one| one.has_missed = true);
    }

    /// Notes a write of this moment for the readers and watchers that want it. The caller holds the commit lock.
    #[inline]
    pub fn note(&self, at: Timestamp, header: &Header, key: &[u8], value: &[u8]) {
        if self.is_read.load(Ordering::Acquire) {
            self.note_for_readers(at, header, key, value);
        }
    }

    /// Notes a range delete for those who watch.
    pub fn note_range(&self, written: (Timestamp, Seq), from: &[u8], to: &[u8]) {
        if self.is_read.load(Ordering::Acquire) {
            self.watchers
                .note_range(written, &KeyRange::of_bounds(from, to));
        }
    }

    /// Opens a queue of writes for one who has a reader open.
    pub fn watch(
        &self,
        range: Arc<KeyRange>,
        bell: &Arc<Bell>,
        lost: Option<LostWrites>,
    ) -> WatchPin {
        self.watchers.open(range, bell, lost)
    }

    #[cold]
    fn note_for_readers(&self, at: Timestamp, header: &Header, key: &[u8], value: &[u8]) {
        for reader in self.readers.lock().iter_mut() {
            if reader.wants.meet(header) {
                reader.note(header, key);
            }
            if reader.waits.is_some_and(|waits| waits.meet(header)) {
                reader.bell.ring();
            }
        }
        self.watchers.note(at, header, key, value);
    }

    /// Wakes the readers that wait: the settings have changed, or nothing is given any more.
    pub fn wake(&self) {
        if self.is_read.load(Ordering::Acquire) {
            let readers = self.readers.lock();
            readers.iter().for_each(|reader| reader.bell.ring());
        }
    }

    /// Notes more writes than a reader would keep, of this sequence number: each gathers anew. The caller holds the commit
    /// lock.
    pub fn note_many(&self, seq: Seq) {
        self.watchers.note_many(seq);
        let mut readers = self.readers.lock();
        for reader in readers.iter_mut() {
            reader.take_noted();
            reader.is_full = true;
            reader.bell.ring();
        }
    }

    /// Opens a reader that wants all writes; returns its pin and its position. Ended items are kept for it from the
    /// position on; at the position itself only those that ended by a write above a sequence number, if one is given.
    /// `position` is called when every job that begins later will keep them. If it says that the reader asks for all ends
    /// from there on, items that were left out before count as missed, too.
    pub fn open(
        self: &Arc<Self>,
        position: impl FnOnce() -> (Timestamp, Option<Seq>, bool),
    ) -> (FeedPin, Timestamp, Option<Seq>) {
        let mut readers = self.readers.lock();
        self.is_read.store(true, Ordering::Release);
        let (position, above, asks) = position();
        let last = readers.iter().map(|reader| reader.id).max();
        let id = last.map_or(0, |last| last + 1);
        let mut reader = FeedReader {
            id,
            position,
            above,
            has_missed: false,
            wants: Wants::ALL,
            waits: None,
            bell: Arc::default(),
            noted: vec![],
            noted_bytes: 0,
            is_full: false,
        };
        let by = Seq(self.dropped_by.load(Ordering::Relaxed));
        let has_missed = |end: Timestamp| reader.needs(end, by);
        reader.has_missed = asks && self.dropped().is_some_and(has_missed);
        readers.push(reader);
        let (feeds, bell) = (self.clone(), readers[readers.len() - 1].bell.clone());
        (FeedPin { id, feeds, bell }, position, above)
    }
}

/// An open reader's hold; the reader closes when it is dropped.
pub struct FeedPin {
    id: u64,
    feeds: Arc<Feeds>,
    bell: Arc<Bell>,
}

impl FeedPin {
    fn with<T>(&self, change: impl FnOnce(&mut FeedReader) -> T) -> T {
        let mut readers = self.feeds.readers.lock();
        let mut readers = readers.iter_mut();
        change(
            readers
                .find(|reader| reader.id == self.id)
                .expect("it is open"),
        )
    }

    /// It needs the ends from here on.
    pub fn advance_to(&self, position: Timestamp) {
        self.with(|reader| {
            if reader.position != position {
                (reader.position, reader.above) = (position, None);
            }
        });
    }

    /// Whether a job has left out an item that ended at its position or later.
    pub fn has_missed(&self) -> bool {
        self.with(|reader| reader.has_missed)
    }

    /// Sets the writes that are noted from now on.
    pub fn want(&self, wants: Wants) {
        self.with(|reader| reader.wants = wants);
    }

    /// From now on these writes end its wait; false: one that is noted does.
    pub fn wait_for(&self, waits: Wants) -> bool {
        self.with(|reader| {
            reader.waits = Some(waits);
            let mut noted = reader.noted.iter();
            !reader.is_full && !noted.any(|(header, _)| waits.meet(header))
        })
    }

    /// It does not wait any more.
    pub fn end_wait(&self) {
        self.with(|reader| reader.waits = None);
    }

    /// The bell that wakes it.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The writes since the last call.
    pub fn take(&self) -> Noted {
        self.with(|reader| Noted {
            writes: reader.take_noted(),
            is_full: take(&mut reader.is_full),
        })
    }
}

impl Drop for FeedPin {
    fn drop(&mut self) {
        let mut readers = self.feeds.readers.lock();
        readers.retain(|reader| reader.id != self.id);
        self.feeds
            .is_read
            .store(!readers.is_empty(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::record::Kind;

    fn put(ttl: ItemTtl) -> Header {
        Header {
            kind: Kind::Put,
            seq: Seq(7),
            written_at: Timestamp(1_000),
            ttl,
        }
    }

    /// Each of these wakes a reader that waits for an end at 2 000, or does not.
    #[test]
    fn a_reader_that_waits_is_woken_by_what_brings_an_end_nearer() {
        let feeds = Arc::new(Feeds::default());
        let (pin, ..) = feeds.open(|| (Timestamp(1_000), None, false));
        let rang = || pin.bell().wake_task(std::task::Waker::noop());
        let settings = Settings {
            default: DefaultMillis::Millis(700),
            ..Settings::default()
        };
        let waits = Wants::up_to(Timestamp(2_000), &settings);
        feeds.note(Timestamp(0), &put(ItemTtl::Millis(100)), b"k", b"");
        assert!(!rang(), "it does not wait");
        assert!(!pin.wait_for(waits), "it has not taken what is noted");
        assert_eq!(pin.take().writes.len(), 1);
        assert!(pin.wait_for(waits));
        feeds.note(Timestamp(0), &put(ItemTtl::Millis(1_001)), b"k", b"");
        feeds.note(Timestamp(0), &put(ItemTtl::Never), b"k", b"");
        assert!(!rang(), "later");
        feeds.note(Timestamp(0), &put(ItemTtl::Millis(1_000)), b"k", b"");
        assert!(rang());
        feeds.note(Timestamp(0), &put(ItemTtl::Absent), b"k", b"");
        assert!(rang(), "by the default");
        feeds.note_many(Seq(8));
        assert!(rang());
        feeds.wake();
        assert!(rang(), "by a change");
        pin.end_wait();
        feeds.note(Timestamp(0), &put(ItemTtl::Millis(1)), b"k", b"");
        assert!(!rang());
    }
}
