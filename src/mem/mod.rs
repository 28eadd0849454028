//! The memtable: the newest writes, sorted, in memory, until a flush writes them to tables.
//!
//! ```text
//! insert ─ lock ─> tree: there ─> filter, if its key is new: "maybe there" ─> summary, length
//! load ── lock ─> arena ··· finish_load ─> filter, summary, length ─> tree, all at once
//! get ───────────> filter: no? nothing    ─> tree: newest version not above a sequence number
//! ```
//!
//! There is one writer at a time, ensured by a lock that only writers and, rarely, readers of the summary take. Other
//! readers take none. A record is visible once `insert` returns: to cursors perhaps a little earlier, to `get` only once
//! the filter has its key. Readers decide by sequence number what they use, and learn of a sequence number only after
//! `insert` has returned.
//!
//! * `pool`: memory that the arenas of a database share
//! * `new_record`: a record to be stored, and its check
//! * `arena`: memory that only grows, and records in it
//! * `filter`: which keys are certainly missing
//! * `kept`: bytes of records that outlive a borrow
//! * `node`, `tree`: the order of records
//! * `load`: filling an empty tree
//! * `ranges`: range deletes
//! * `summary`: statistics of all records
//! * `cursor`: iteration
//! * `random`: a record by chance

mod pool;
mod new_record;
mod arena;
// in the arena, or beside it
mod filter;
mod node;
mod ranges;
mod kept;
mod tree;
// on the tree
mod load;
mod cursor;
mod random;
mod summary;
#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::base::hash::{RecordHash, hash_key};
use crate::base::record::{Header, RecordRef};
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{CachePadded, Mutex};
use crate::base::{Result, Seq};
use crate::data::batch::KeyRange;
use crate::data::range_delete::RangeDelete;
use crate::expiry::Census;

pub use cursor::MemCursor;
pub use new_record::NewRecord;
pub use node::room_for;
pub use pool::Pool;
pub use ranges::RangeDeletes;
pub use summary::{Era, Newest, Summary};
pub use tree::Entry;

use filter::Filter;
use load::Loader;
use node::Inserted;
use pool::Refused;
use tree::{Tree, Writer};

/// Records and range deletes of one container.
#[derive(Debug)]
pub struct Memtable {
    tree: Arc<Tree>,
    filter: Filter,
    ranges: Arc<RangeDeletes>,
    /// The size at which it is sealed, about.
    bytes_max: usize,
    changing: CachePadded<Changing>,
}

/// The fields that every insert changes, in other cache lines than those that every get reads.
#[derive(Debug)]
struct Changing {
    len: AtomicUsize,
    /// [`Seq::MAX`] if it is empty.
    seq_min: AtomicU64,
    seq_max: AtomicU64,
    writing: Mutex<Writing>,
}

/// The writer's own state.
#[derive(Debug)]
struct Writing {
    tree: Loader,
    summary: Summary,
}

impl Default for Memtable {
    fn default() -> Self {
        Memtable::new()
    }
}

impl Memtable {
    /// An empty memtable, which takes next to no memory.
    pub fn new() -> Memtable {
        Memtable::with_pool(Arc::new(Pool::new(0)))
    }

    /// An empty memtable that takes memory from a pool and returns it there; it is expected to grow as large as the
    /// pool.
    pub fn with_pool(pool: Arc<Pool>) -> Memtable {
        let bytes_max = pool.bytes_max();
        let (tree, writer) = Writer::new(pool);
        Memtable {
            tree,
            filter: Filter::default(),
            ranges: Arc::default(),
            bytes_max,
            changing: CachePadded::new(Changing {
                len: AtomicUsize::new(0),
                seq_min: AtomicU64::new(u64::MAX),
                seq_max: AtomicU64::new(0),
                writing: Mutex::new(Writing {
                    tree: Loader::new(writer),
                    summary: Summary::default(),
                }),
            }),
        }
    }

    /// Adds a record. One with the same key and sequence number as an existing one is ignored, because a log may be
    /// replayed twice. After an error the record is not there. There is no error if the pool was prepared
    /// ([`Pool::prepare`], [`room_for`]).
    pub fn insert(&self, header: Header, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert_record(&NewRecord::of(header, key, value))?;
        Ok(())
    }

    /// The same; the version of the key that was the newest one before, if the record is it now.
    pub fn insert_record(&self, new: &NewRecord<'_>) -> Result<Option<Header>> {
        let (header, hash) = (new.header, new.hash.key);
        debug_assert_eq!(new.hash, RecordHash::of(new.key, new.value));
        self.filter.prefetch(hash);
        let mut writing = self.changing.writing.lock();
        let inserted = match writing.tree.insert(new) {
            Ok(Some(inserted)) => inserted,
            Ok(None) => return Ok(None),
            Err(refused) => return Err(refused.error()),
        };
        // Another version of the key has brought it into the filter.
        if inserted == Inserted::Alone {
            self.filter.add(hash, || self.room_for_more(self.len() + 1));
        }
        let record = RecordRef {
            header,
            key: new.key,
            value_len: new.value.len(),
        };
        writing.summary.add(&record, hash, inserted);
        self.count(header.seq);
        self.changing.len.store(self.len() + 1, Ordering::Relaxed);
        Ok(match inserted {
            Inserted::Over(before, _) => Some(before),
            Inserted::Alone | Inserted::Under => None,
        })
    }

    /// Brings what an insert of this key will need into the processor's caches, for a writer that waits for another one;
    /// `hash` is that of the key.
    pub fn prefetch(&self, hash: u64, key: &[u8]) {
        self.filter.prefetch(hash);
        self.tree.prefetch(key);
    }

    /// Like [`Memtable::insert`], but where the memtable has no records yet, this one is shown only after
    /// [`Memtable::finish_load`], which must come before anything else is written. For many records that is faster.
    #[inline]
    pub fn load(&self, header: Header, key: &[u8], value: &[u8]) -> Result<()> {
        let mut writing = self.changing.writing.lock();
        if writing.tree.may_load() {
            let loaded = writing.tree.load(&NewRecord::of(header, key, value));
            return loaded.map_err(Refused::error);
        }
        drop(writing);
        self.insert(header, key, value)
    }

    /// Whether records were loaded that are not shown yet.
    pub fn is_loaded(&self) -> bool {
        self.changing.writing.lock().tree.loaded() > 0
    }

    /// Shows the records that were loaded. After an error it may have some of them.
    pub fn finish_load(&self) -> Result<()> {
        let Writing { tree, summary } = &mut *self.changing.writing.lock();
        let loaded = tree.loaded();
        if loaded == 0 {
            return Ok(());
        }
        let expected = loaded + self.room_for_more(loaded);
        self.filter.begin(loaded);
        let built = tree.build(|stored, inserted| {
            let record = RecordRef {
                header: stored.header(),
                key: stored.key(),
                value_len: stored.value_len(),
            };
            let hash = hash_key(record.key);
            if inserted == Inserted::Alone {
                self.filter.add(hash, || expected - self.len());
            }
            summary.add(&record, hash, inserted);
            self.count(record.header.seq);
            self.changing.len.store(self.len() + 1, Ordering::Relaxed);
        });
        built.map_err(Refused::error)
    }

    /// Notes that no later writer or reader uses it: memory that is held from now on counts as pinned
    /// ([`Pool::pinned`]).
    pub fn retire(&self) {
        self.tree.retire();
    }

    /// How many more records fit, if they are like the present ones, so many.
    fn room_for_more(&self, present: usize) -> usize {
        let bytes = self.tree.bytes();
        let room = self.bytes_max.saturating_sub(bytes);
        room / (bytes / present.max(1)).max(1)
    }

    /// Adds a range delete, whose sequence number is higher than those of the present ones.
    pub fn delete_range(&self, range: KeyRange, seq: Seq) {
        let mut writing = self.changing.writing.lock();
        assert!(seq > self.ranges.seq_max(), "range deletes come in order");
        writing.summary.begin_era();
        self.ranges.push(RangeDelete { range, seq });
        self.count(seq);
    }

    #[inline]
    fn count(&self, seq: Seq) {
        let Changing {
            seq_min, seq_max, ..
        } = &*self.changing;
        seq_min.store(seq.0.min(self.seq_min().0), Ordering::Relaxed);
        seq_max.store(seq.0.max(self.seq_max().0), Ordering::Relaxed);
    }

    /// The newest version of `key` with a sequence number of at most `max`; `hash` is that of the key.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8], max: Seq) -> Option<Entry<'_>> {
        debug_assert_eq!(hash, hash_key(key));
        if self.filter.may_contain(hash) {
            self.tree.get(key, max)
        } else {
            None
        }
    }

    /// A range delete or a command to expire items follows: for estimates, older and newer records are counted apart.
    pub fn begin_era(&self) {
        self.changing.writing.lock().summary.begin_era();
    }

    /// Its range deletes.
    #[inline]
    pub fn range_deletes(&self) -> &Arc<RangeDeletes> {
        &self.ranges
    }

    /// Key and sequence number of a record by chance, each as likely as any other; `chance` returns a number below the
    /// given one. None: there are no records, or next to none.
    pub fn random(&self, chance: &mut dyn FnMut(u64) -> u64) -> Option<(Vec<u8>, Seq)> {
        let stored = self.tree.random(chance)?;
        Some((stored.key().to_vec(), stored.seq()))
    }

    /// Flips a bit of the newest record of a key, as failing memory would. False: it has none.
    #[cfg(any(test, feature = "unstable-internals"))]
    pub fn flip(&self, key: &[u8], bit: usize) -> bool {
        let entry = self.get(hash_key(key), key, Seq::MAX);
        entry.inspect(|entry| entry.flip(bit)).is_some()
    }

    /// A cursor without a position, which keeps the memtable's records alive.
    pub fn cursor(&self) -> MemCursor {
        match self.tree.is_paranoid() {
            true => MemCursor::paranoid(self.tree.clone()),
            false => MemCursor::new(self.tree.clone()),
        }
    }

    /// The same for a walk from the first record to the last that writes them elsewhere: it fails at a record that is not as it
    /// was stored, and at the end if records are missing.
    pub fn checked_cursor(&self) -> MemCursor {
        MemCursor::checked(self.tree.clone(), self.len())
    }

    /// Bytes of memory; never falls.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + self.filter.bytes() + self.ranges.bytes()
    }

    /// How many records there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.changing.len.load(Ordering::Relaxed)
    }

    /// Whether it has neither records nor range deletes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.ranges.is_empty()
    }

    /// The lowest sequence number of a record or range delete; [`Seq::MAX`] when there is none.
    pub fn seq_min(&self) -> Seq {
        Seq(self.changing.seq_min.load(Ordering::Relaxed))
    }

    /// The highest sequence number of a record or range delete; 0 when there is none.
    pub fn seq_max(&self) -> Seq {
        Seq(self.changing.seq_max.load(Ordering::Relaxed))
    }

    /// The life statistics of its records.
    pub fn census(&self) -> Census {
        self.changing.writing.lock().summary.census()
    }

    /// False: no record has a key with this hash. True is wrong for one key in a hundred.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Calls `ask` with the summary of all records. Writers wait meanwhile.
    pub fn summary<T>(&self, ask: impl FnOnce(&Summary) -> T) -> T {
        ask(&self.changing.writing.lock().summary)
    }
}
