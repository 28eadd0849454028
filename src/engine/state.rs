//! What the engine holds of a container, and what readers pin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::expiry::{DefaultMillis, Settings};
use crate::mem::Memtable;
use crate::types::{Compression, ContainerId, Seq, Timestamp};
use crate::version::Version;

/// A memtable and where the log holds it.
pub struct Buffer {
    /// Its records.
    pub memtable: Memtable,
    /// The first log segment that holds one of them; `u64::MAX` while there is none.
    segment: AtomicU64,
    /// Bytes of the memtable that the engine's sums hold.
    counted: AtomicUsize,
}

impl Buffer {
    /// An empty one.
    pub fn new() -> Arc<Buffer> {
        Arc::new(Buffer {
            memtable: Memtable::new(),
            segment: AtomicU64::new(u64::MAX),
            counted: AtomicUsize::new(0),
        })
    }

    /// What it has grown by since the last call; the caller, who holds the turn, adds that to the engine's sums.
    pub fn count_growth(&self) -> usize {
        let bytes = self.memtable.bytes();
        bytes - self.counted.swap(bytes, Ordering::Relaxed)
    }

    /// What the engine's sums hold of it.
    pub fn counted(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }

    /// The first log segment that is needed for it.
    pub fn segment(&self) -> Option<u64> {
        Some(self.segment.load(Ordering::Acquire)).filter(|segment| *segment != u64::MAX)
    }

    /// Something of it was logged in `segment`.
    pub fn logged_in(&self, segment: u64) {
        self.segment.fetch_min(segment, Ordering::AcqRel);
    }

    /// All of it was logged again, from `segment` on.
    pub fn relogged_in(&self, segment: u64) {
        self.segment.store(segment, Ordering::Release);
    }
}

/// Everything of a container at one moment: newer before older.
pub struct Picture {
    /// Takes writes.
    pub active: Arc<Buffer>,
    /// Full, waiting to be flushed; newest first.
    pub sealed: Vec<Arc<Buffer>>,
    /// On disk.
    pub version: Arc<Version>,
}

impl Picture {
    /// The memtables, newest first.
    pub fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// The highest number up to `max` of a range delete that covers the key.
    pub fn covered_below(&self, key: &[u8], max: Seq) -> Seq {
        let in_memory = self
            .buffers()
            .flat_map(|buffer| buffer.memtable.range_deletes());
        let newest = in_memory
            .filter(|delete| delete.seq <= max && delete.range.contains(key))
            .map(|delete| delete.seq)
            .max();
        match newest {
            Some(seq) => seq,
            None => self.version.covered_below(key, max),
        }
    }
}

/// A container.
pub struct ContainerState {
    id: ContainerId,
    name: String,
    /// The number of its creation.
    pub(super) created: Seq,
    pub(super) compression: Compression,
    pub(super) dropped: AtomicBool,
    settings: SettingsCell,
    picture: ArcSwap<Picture>,
    /// Held while the picture is replaced.
    installing: Mutex<()>,
    /// Everything up to this number is in runs.
    flushed: AtomicU64,
}

impl ContainerState {
    pub(super) fn new(
        record: &crate::version::ContainerRecord,
        version: Version,
    ) -> ContainerState {
        let picture = Picture {
            active: Buffer::new(),
            sealed: vec![],
            version: Arc::new(version),
        };
        ContainerState {
            id: record.id,
            name: record.name.clone(),
            created: record.created,
            compression: record.compression,
            dropped: AtomicBool::new(false),
            settings: SettingsCell::new(record.settings),
            picture: ArcSwap::from_pointee(picture),
            installing: Mutex::new(()),
            flushed: AtomicU64::new(record.flushed.0),
        }
    }

    /// Its number.
    pub fn id(&self) -> ContainerId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Settings and floors, as one value.
    #[inline]
    pub fn settings(&self) -> Settings {
        self.settings.load()
    }

    pub(super) fn set_settings(&self, settings: &Settings) {
        self.settings.store(settings);
    }

    /// Everything of it, for as long as the guard is held.
    #[inline]
    pub(super) fn picture(&self) -> arc_swap::Guard<Arc<Picture>> {
        self.picture.load()
    }

    pub(super) fn pin(&self) -> Arc<Picture> {
        self.picture.load_full()
    }

    /// Replaces the picture by what `change` makes of it.
    pub(super) fn install(&self, change: impl FnOnce(&Picture) -> Picture) {
        let _installing = self.installing.lock();
        let next = change(&self.picture.load());
        self.picture.store(Arc::new(next));
    }

    pub(super) fn flushed(&self) -> Seq {
        Seq(self.flushed.load(Ordering::Acquire))
    }

    pub(super) fn set_flushed(&self, seq: Seq) {
        self.flushed.store(seq.0, Ordering::Release);
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::ContainerDropped {
                name: self.name.clone(),
            });
        }
        Ok(())
    }
}

/// Settings that are read as one value without a lock: a sequence lock, whose only writer holds the commit turn.
struct SettingsCell {
    /// Odd while the words are being replaced.
    version: AtomicU64,
    words: [AtomicU64; 4],
}

impl SettingsCell {
    fn new(settings: Settings) -> Self {
        let cell = SettingsCell {
            version: AtomicU64::new(0),
            words: Default::default(),
        };
        cell.store(&settings);
        cell
    }

    fn store(&self, settings: &Settings) {
        let default = match settings.default {
            DefaultMillis::Off => 0,
            DefaultMillis::NoDefault => u64::MAX,
            DefaultMillis::Millis(millis) => millis,
        };
        let floors = [
            settings.inherit_floor.0,
            settings.override_floor.0,
            settings.floor_seq.0,
        ];
        let before = self.version.load(Ordering::Relaxed);
        self.version.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self
            .words
            .iter()
            .zip([default, floors[0], floors[1], floors[2]])
        {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(before + 2, Ordering::Release);
    }

    #[inline]
    fn load(&self) -> Settings {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let [default, inherit_floor, override_floor, floor_seq] =
                std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before % 2 == 0 && self.version.load(Ordering::Relaxed) == before {
                return Settings {
                    default: match default {
                        0 => DefaultMillis::Off,
                        u64::MAX => DefaultMillis::NoDefault,
                        millis => DefaultMillis::Millis(millis),
                    },
                    inherit_floor: Timestamp(inherit_floor),
                    override_floor: Timestamp(override_floor),
                    floor_seq: Seq(floor_seq),
                };
            }
            std::hint::spin_loop();
        }
    }
}

/// The numbers of the open snapshots, each as often as it is held.
#[derive(Default)]
pub struct Snapshots {
    open: Mutex<BTreeMap<Seq, usize>>,
}

impl Snapshots {
    /// Registers a snapshot of what `published` says under the lock: jobs that read the list later know of it, and
    /// those that read it before hold only records up to an earlier published number.
    pub(super) fn register(self: &Arc<Self>, published: impl FnOnce() -> Seq) -> SnapshotPin {
        let mut open = self.open.lock();
        let seq = published();
        *open.entry(seq).or_default() += 1;
        SnapshotPin {
            seq,
            snapshots: self.clone(),
        }
    }

    /// Ascending.
    pub(super) fn list(&self) -> Vec<Seq> {
        self.open.lock().keys().copied().collect()
    }

    pub(super) fn count(&self) -> usize {
        self.open.lock().values().sum()
    }
}

/// Keeps the versions that a snapshot sees.
pub struct SnapshotPin {
    pub(super) seq: Seq,
    snapshots: Arc<Snapshots>,
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut open = self.snapshots.open.lock();
        if let Some(count) = open.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.seq);
            }
        }
    }
}
