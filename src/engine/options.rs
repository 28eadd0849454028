//! Every setting of a database, each with its default, unit and range.

mod container;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result};
use crate::env::{Clock, ClockBehind, DatabaseClock, Disk, Fs};
use crate::values::listener::EventListener;
use crate::values::{Compression, Quota, Reads, WhenFull};

pub use container::ContainerOptions;
pub(in crate::engine) use container::OnExisting;

/// When a write counts as done. As text, with serde too: `buffered`, `sync`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    /// An acknowledged write survives a killed process, and a power cut once it has been synced: within
    /// [`Options::sync_interval`].
    #[default]
    Buffered,
    /// An acknowledged write survives a power cut. Concurrent writers share one sync.
    Sync,
}

/// The behaviour of a write when memory is full because flushing falls behind.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stall {
    /// It waits until there is room; if the flush it waits for fails, it returns that error.
    #[default]
    Wait,
    /// It returns [`Error::Stalled`], and nothing is written.
    Fail,
}

/// How background work runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Background {
    /// On threads of its own.
    #[default]
    Threads,
    /// Only when a test asks for a step, so that a whole history can be replayed.
    Stepped,
}

/// Longer times count as this: it is further ahead than any clock, and sums of it do not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
/// More bytes count as this: more than there are, and small multiples of it do not overflow.
const MOST_BYTES: usize = usize::MAX / 16;

/// How to open a database. Times of more than 100 years count as 100 years, sizes of more than a sixteenth of
/// [`usize::MAX`] as that.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Durability, Options};
///
/// let folder = tempfile::tempdir()?;
/// let db = Options::new()
///     .durability(Durability::Sync)
///     .memtable_bytes(16 << 20)
///     .reclaim_within(Duration::from_secs(600))
///     .open(folder.path())?;
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "settings count for what is opened with them"]
pub struct Options {
    pub(crate) durability: Durability,
    pub(crate) sync_interval: Duration,
    pub(crate) memtable_bytes: usize,
    pub(crate) cache_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) background_rate: u64,
    pub(crate) background_floor: u64,
    pub(crate) reclaim_within: Duration,
    pub(crate) reclaim_strict: bool,
    pub(crate) max_clock_skew: Duration,
    pub(crate) clock_behind: ClockBehind,
    pub(crate) max_runs: usize,
    pub(crate) on_stall: Stall,
    pub(crate) max_live_bytes: Option<u64>,
    pub(crate) when_full: WhenFull,
    pub(crate) clock: DatabaseClock,
    pub(crate) given_time: bool,
    pub(crate) read_only: bool,
    pub(crate) among_other_files: bool,
    pub(crate) reads: Reads,
    pub(crate) catch_up_interval: Duration,
    pub(crate) scrub_within: Option<Duration>,
    pub(crate) paranoid_memory_checks: bool,
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) background: Background,
    pub(crate) block_bytes: usize,
    pub(crate) table_bytes: u64,
    /// `None`: the length that [`Options::segment_len`] computes.
    pub(crate) segment_bytes: Option<u64>,
}

/// Leaves out clock and listener, which need not implement Debug.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("sync_interval", &self.sync_interval)
            .field("memtable_bytes", &self.memtable_bytes)
            .field("cache_bytes", &self.cache_bytes)
            .field("compression", &self.compression)
            .field("background_rate", &self.background_rate)
            .field("background_floor", &self.background_floor)
            .field("reclaim_within", &self.reclaim_within)
            .field("reclaim_strict", &self.reclaim_strict)
            .field("max_clock_skew", &self.max_clock_skew)
            .field("clock_behind", &self.clock_behind)
            .field("given_time", &self.given_time)
            .field("max_runs", &self.max_runs)
            .field("on_stall", &self.on_stall)
            .field("max_live_bytes", &self.max_live_bytes)
            .field("when_full", &self.when_full)
            .field("read_only", &self.read_only)
            .field("among_other_files", &self.among_other_files)
            .field("reads", &self.reads)
            .field("catch_up_interval", &self.catch_up_interval)
            .field("scrub_within", &self.scrub_within)
            .field("paranoid_memory_checks", &self.paranoid_memory_checks)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// Every setting at its default.
    pub fn new() -> Self {
        Options {
            durability: Durability::Buffered,
            sync_interval: Duration::from_secs(1),
            memtable_bytes: 64 << 20,
            cache_bytes: 256 << 20,
            compression: Compression::None,
            background_rate: 256 << 20,
            background_floor: 16 << 20,
            reclaim_within: Duration::from_secs(3_600),
            reclaim_strict: false,
            max_clock_skew: Duration::from_secs(3_600),
            clock_behind: ClockBehind::Refuse,
            max_runs: 20,
            on_stall: Stall::Wait,
            max_live_bytes: None,
            when_full: WhenFull::Refuse,
            clock: DatabaseClock::System,
            given_time: false,
            read_only: false,
            among_other_files: false,
            reads: Reads::Map,
            catch_up_interval: Duration::from_millis(100),
            scrub_within: None,
            paranoid_memory_checks: false,
            listener: None,
            fs: Arc::new(Disk),
            background: Background::Threads,
            block_bytes: 8 << 10,
            table_bytes: 64 << 20,
            segment_bytes: None,
        }
    }

    /// When a write counts as done. Default: [`Durability::Buffered`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The most that a power cut can cost under [`Durability::Buffered`], besides what is written while a sync is under way.
    /// So where the device stands still, a power cut costs what was written since. Default 1 s, at least 1 ms.
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.sync_interval = interval.min(LONGEST);
        self
    }

    /// Bytes of memory for the writes of all containers together before they are flushed to tables. Default 64 MiB, at
    /// least 4 KiB. Up to three times as much is used while flushing catches up; then writes stall as
    /// [`Options::on_stall`] says. Memory unused for some seconds is returned to the system.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes.min(MOST_BYTES);
        self
    }

    /// Bytes of memory for decompressed blocks, and under [`Reads::Pread`] for all blocks; else uncompressed ones are read
    /// where the system caches them. While memory is short, gets that read from the device cache the record that they
    /// found instead of its block, in the same memory, and mostly read past the system's cache; an expired record leaves it
    /// within `reclaim_within`. Default 256 MiB.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes.min(MOST_BYTES);
        self
    }

    /// How blocks of containers created from now on are compressed. Default: [`Compression::None`].
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The cap on merging and reclaiming, in bytes a second, counting their writes and the device's reads for them. The
    /// log, flushes and the device's reads for others are never held back, and merging and reclaiming use only what
    /// these leave of the rate. They use all of it when a deadline is near, the disk is nearly full (less than 5 % or 2
    /// GiB free, whichever is less) or runs have piled up to twice [`Options::max_runs`]. Default 256 MiB, at least 1.
    /// May be changed later: `Database::set_background_rate`.
    pub fn background_rate(mut self, bytes_per_second: u64) -> Self {
        self.background_rate = bytes_per_second;
        self
    }

    /// The rate that merging and reclaiming always have, in bytes a second, however much the log, flushes and reads
    /// take. Default 16 MiB; 0 counts as 1, and more than [`Options::background_rate`] as that. May be changed later:
    /// `Database::set_background_floor`.
    pub fn background_floor(mut self, bytes_per_second: u64) -> Self {
        self.background_floor = bytes_per_second;
        self
    }

    /// No live file holds the bytes of an item that expired longer ago than this, or, if that is more, than an eighth
    /// of the longest lifetime stored beside it. Default 1 h, at least 1 ms.
    pub fn reclaim_within(mut self, time: Duration) -> Self {
        self.reclaim_within = time.min(LONGEST);
        self
    }

    /// Whether [`Options::reclaim_within`] holds even where an eighth of the longest lifetime is more, at the cost of
    /// more rewriting. Default false.
    pub fn reclaim_strict(mut self, strict: bool) -> Self {
        self.reclaim_strict = strict;
        self
    }

    /// How far the wall clock may be ahead of the time that has passed before it is doubted, and how far it may be
    /// behind the last recorded time on open. Default 1 h.
    pub fn max_clock_skew(mut self, skew: Duration) -> Self {
        self.max_clock_skew = skew.min(LONGEST);
        self
    }

    /// The behaviour of an open when the wall clock is behind the last recorded time by more than the skew. Default:
    /// [`ClockBehind::Refuse`].
    ///
    /// ```
    /// use ebbtide::{ClockBehind, Error, ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let at = |millis| Options::new().clock(ManualClock::new(millis));
    /// at(1_800_000_000_000).open(folder.path())?.container("c")?.put("k", "v")?;
    /// let years_ago = at(1_600_000_000_000);
    /// let error = years_ago.open(folder.path()).unwrap_err();
    /// assert!(matches!(error, Error::ClockBehind { .. }));
    /// let db = years_ago.clock_behind(ClockBehind::StartAtMark).open(folder.path())?;
    /// assert!(db.container("c")?.contains("k")?); // time stands where it was
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock_behind(mut self, behind: ClockBehind) -> Self {
        self.clock_behind = behind;
        self
    }

    /// How many runs a container settles at: fewer cost more rewriting, more cost reads. Scans that read many runs have
    /// them merged earlier, once reading them has cost about as much as merging them. Default 20, from 2 to 1 000.
    pub fn max_runs(mut self, runs: usize) -> Self {
        self.max_runs = runs;
        self
    }

    /// The behaviour of a write when flushing falls behind. Default: [`Stall::Wait`].
    pub fn on_stall(mut self, stall: Stall) -> Self {
        self.on_stall = stall;
        self
    }

    /// The listener that is told of background work. Default: none. A database that is read-only tells it nothing.
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The most live bytes of all containers together; see [`Quota`]. It counts while the database is open with this
    /// option, beside the quotas of containers. Default: no limit. From 1 to 2^62 bytes.
    pub fn max_live_bytes(mut self, bytes: u64) -> Self {
        self.max_live_bytes = Some(bytes);
        self
    }

    /// The behaviour of a write that would exceed [`Options::max_live_bytes`]. Default: [`WhenFull::Refuse`]. With
    /// [`WhenFull::ExpireSoonest`] the items of all containers that end soonest are expired.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// The quota of the whole database.
    pub(crate) fn quota(&self) -> Option<Quota> {
        self.max_live_bytes.map(|max_live_bytes| Quota {
            max_live_bytes,
            when_full: self.when_full,
        })
    }

    /// The source of time. Default: the system's clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = DatabaseClock::Custom(Arc::new(clock));
        self
    }

    /// Time is not a clock's but what [`Database::advance_to`](crate::Database::advance_to) says: for a state machine
    /// that must give the same answers wherever it is run. A database is made with it and keeps it: another open for
    /// writing is an [error](crate::Error::TimeIsGiven), and so is this one of a database that goes by a clock.
    ///
    /// An open starts at the time of a [`Database::close`](crate::Database::close), or after a crash of the last write that
    /// is there. No rule about clocks applies. Nothing is purged before
    /// [`Database::set_purge_limit`](crate::Database::set_purge_limit) allows it. Quotas that expire items and bulk loads
    /// are refused, and commands may stand in any number.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use ebbtide::Options;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Options::new().given_time().open(folder.path())?;
    /// let c = db.container("c")?;
    /// let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    /// db.advance_to(start)?;
    /// c.put_with_ttl("k", "v", Duration::from_secs(10))?;
    /// db.advance_to(start + Duration::from_secs(9))?;
    /// assert!(c.contains("k")?);
    /// db.advance_to(start + Duration::from_secs(10))?;
    /// assert!(!c.contains("k")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn given_time(mut self) -> Self {
        self.given_time = true;
        self
    }

    /// Whether to open without writing anything, not even a repair, together with other read-only opens. Default false.
    ///
    /// ```
    /// use ebbtide::{Database, Error, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// Database::open(folder.path())?.container("c")?.put("k", "v")?;
    /// let c = Options::new().read_only(true).open(folder.path())?.container("c")?;
    /// assert_eq!(c.get("k")?.unwrap(), "v");
    /// assert!(matches!(c.put("k", "w"), Err(Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a new database may be made in a folder that holds other things; without it, an open that finds other things
    /// and no database there is refused, since such a folder was mostly named by mistake. Default false. Where there is a
    /// database, other things beside it do not matter.
    ///
    /// ```
    /// use ebbtide::{Database, Error, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("notes.txt"), "others' work")?;
    /// let refused = Database::open(folder.path()).unwrap_err();
    /// assert!(matches!(refused, Error::ForeignFolder { .. }));
    /// Options::new().among_other_files(true).open(folder.path())?.close()?;
    /// Database::open(folder.path())?; // there is one
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn among_other_files(mut self, may: bool) -> Self {
        self.among_other_files = may;
        self
    }

    /// How long a follower waits between two looks for new writes: see [`Options::follow`]. A look that finds nothing
    /// new reads a few bytes. Default 100 ms, at least 1 ms.
    pub fn catch_up_interval(mut self, interval: Duration) -> Self {
        self.catch_up_interval = interval.min(LONGEST);
        self
    }

    /// How tables are read into memory. Default: [`Reads::Map`].
    pub fn reads(mut self, reads: Reads) -> Self {
        self.reads = reads;
        self
    }

    /// The time within which a background scrub reads and checks every table once, using what
    /// [`Options::background_rate`] leaves. Damage is listed in `Stats::damage`, and is the error of the next merge
    /// that needs the table. Default `None`: never; a month is usual.
    pub fn scrub_within(mut self, time: Option<Duration>) -> Self {
        self.scrub_within = time.map(|time| time.min(LONGEST));
        self
    }

    /// Whether reads hold each record that they find in a memtable to its check, as flushes always do, and each block of a table to
    /// its checksum, as merges always do: a bit that has flipped in memory is an error,
    /// [`Error::MemoryCorruption`](crate::Error::MemoryCorruption) or [`Error::Corruption`](crate::Error::Corruption), and not an
    /// answer. A record of a memtable whose key is another one now is not found under its own. The filters and indexes of tables are
    /// checked once, as they always are. It costs a hash of each record that is read from a memtable and a checksum of each block,
    /// some 8 KiB a get; nothing is cached, reads that must not wait (`try_get`) read no table, and scans no longer pass dead records
    /// of memtables unread. Default false.
    pub fn paranoid_memory_checks(mut self, check: bool) -> Self {
        self.paranoid_memory_checks = check;
        self
    }

    /// The size of a log segment: an eighth of a memtable, so that the log takes little more than its records, but not
    /// too small to be worth a file.
    pub(crate) fn segment_len(&self) -> u64 {
        let memtable = self.memtable_bytes as u64;
        let usual = (memtable / 8).clamp(memtable.min(256 << 10), 16 << 20);
        self.segment_bytes.unwrap_or(usual)
    }

    /// The most bytes of records that are logged again at once, because the commit lock is held meanwhile.
    pub(crate) fn relog_bytes(&self) -> usize {
        (512 << 10).min(self.memtable_bytes / 16)
    }

    /// The size of the ring in front of the log: a segment's, so that both fill at the same time, but no larger than
    /// what fills before the log thread drains it.
    pub(crate) fn ring_len(&self) -> usize {
        self.segment_len().clamp(4 << 10, 4 << 20) as usize
    }

    /// Checks that every setting is in its range.
    pub(crate) fn check(&self) -> Result<()> {
        let compression = self.compression;
        compression.check(|| format!("compression {compression:?}"))?;
        self.quota().iter().try_for_each(Quota::check)?;
        let (milli, page) = ("at least 1 ms", "at least 4096 bytes");
        for (what, given, least, allowed) in [
            ("sync_interval", self.sync_interval.as_millis(), 1, milli),
            (
                "catch_up_interval",
                self.catch_up_interval.as_millis(),
                1,
                milli,
            ),
            ("memtable_bytes", self.memtable_bytes as u128, 4 << 10, page),
            (
                "background_rate",
                self.background_rate.into(),
                1,
                "at least 1 byte a second",
            ),
            ("reclaim_within", self.reclaim_within.as_millis(), 1, milli),
        ] {
            if given < least {
                return Err(Error::invalid(what, given.to_string(), allowed));
            }
        }
        if !(2..=1_000).contains(&self.max_runs) {
            return Err(Error::invalid(
                "max_runs",
                self.max_runs.to_string(),
                "from 2 to 1000",
            ));
        }
        Ok(())
    }
}

/// Settings that only tests of the engine need.
#[cfg(any(test, feature = "unstable-internals"))]
#[doc(hidden)]
impl Options {
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    /// Background work is done only by `Database::step`.
    pub fn stepped(mut self) -> Self {
        self.background = Background::Stepped;
        self
    }

    pub fn sizes(mut self, block_bytes: usize, table_bytes: u64, segment_bytes: u64) -> Self {
        (self.block_bytes, self.table_bytes) = (block_bytes, table_bytes);
        self.segment_bytes = Some(segment_bytes);
        self
    }
}
