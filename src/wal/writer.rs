//! Appending frames, and group commit: one sync for many waiters.
//!
//! The [`Appender`] is guarded by the commit lock. The [`Log`] beside it is shared: any thread may ask it to sync. One
//! of the waiting threads, the *leader*, syncs for all, up to the log's end when it begins (src/wal/group.rs).
//!
//! A failed sync is final, because the system may have thrown away what it could not write: the failure is latched, and
//! every later append and sync returns [`Error::Poisoned`]. A failed write of a frame is final too, unless the system
//! was out of some resource. A segment that cannot be begun fails only its append. The folder is held open, so that
//! syncing its names needs no resource that may be exhausted.
//!
//! Locks: that of the group is released before files are touched. A drain holds the ring's buffer, and takes the locks of
//! `Segments` after it.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::base::counters::{WaitCounter, Waits};
use crate::base::sync::CachePadded;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{Error, Result, Seq, Timestamp, spans};
use crate::env::{Fs, Ring, monotonic};
use crate::wal::chain::{LogStart, ring_name};
use crate::wal::frame::{
    Encoder, FrameHead, FrameHeader, FrameKind, HEAD_LEN_MAX, NO_SYNC, PayloadCrc, Position,
    RING_TAIL_LEN, RingMark, SYNCED_NOTE_LEN, SYNCS_AT, SegmentHeader, SyncedNote,
};
use crate::wal::group::{Group, Lead, Seat};
use crate::wal::segments::{Kept, LentSegments, Segment, SegmentInfo, Segments};
use crate::wal::store::{Buffered, Store, frame_len};

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The folder of the segments; it exists.
    pub dir: PathBuf,
    /// The size of a segment's file, in bytes; a larger frame gets a file of its own size.
    pub segment_bytes: u64,
    /// The size of the first file, if it differs.
    pub first_segment_bytes: Option<u64>,
    /// The size of the ring's file, in bytes; `None` writes each frame to its segment, for tests.
    pub ring_bytes: Option<usize>,
    /// The chain's identity: a new one at every open.
    pub identity: u64,
}

impl LogOptions {
    /// The defaults, and a random identity.
    pub fn new(dir: &Path) -> LogOptions {
        LogOptions {
            dir: dir.to_owned(),
            segment_bytes: 64 << 20,
            first_segment_bytes: None,
            ring_bytes: Some(4 << 20),
            identity: RandomState::new().hash_one(dir),
        }
    }
}

/// The longest file of a ring, in bytes, so that recovery knows how much it may read into memory.
pub const RING_LEN_MAX: usize = 16 << 20;

/// The next segment is prepared when an eighth of a segment is full: early, because the segment may be left at any
/// moment, but not before it is used, so that an idle log takes little room. After a failed try, when another eighth is
/// full.
const PREPARE_SHARE: u64 = 8;

/// The position at which the next segment is prepared.
fn prepare_from(segment: &Segment) -> u64 {
    let start = segment.header.start;
    start + (segment.full_at() - start) / PREPARE_SHARE
}

/// Creates a ring in which no sync is under way. Its mark is synced here, and its name with that of the first segment,
/// before a manifest names the chain.
fn begin_ring(fs: &dyn Fs, path: &Path, len: usize, identity: u64) -> Result<Box<dyn Ring>> {
    assert!(len <= RING_LEN_MAX, "recovery would refuse it");
    // Continues with a file that an earlier attempt left.
    let file = match fs.len(path)? {
        Some(_) => fs.open(path)?,
        None => fs.create(path)?,
    };
    let note_at = len - RING_TAIL_LEN;
    file.write_at((note_at + SYNCS_AT) as u64, &NO_SYNC.to_le_bytes())?;
    let mark_at = note_at + SYNCED_NOTE_LEN;
    file.write_at(mark_at as u64, &RingMark { identity }.encode())?;
    file.sync()?;
    fs.ring(path, len)
}

/// Where the frames of a chain are stored that starts at this position.
fn begin_store(
    fs: &dyn Fs,
    options: &LogOptions,
    log: &LogStart,
    start: Position,
) -> Result<Store> {
    let (Some(len), Some(number)) = (options.ring_bytes, log.ring) else {
        return Ok(Store::Direct);
    };
    let path = options.dir.join(ring_name(number));
    let ring = begin_ring(fs, &path, len, options.identity)?;
    let buffered = Buffered::new(ring, len - RING_TAIL_LEN, start.0);
    Ok(Store::Ring(buffered))
}

/// The shared side of the log.
pub struct Log {
    /// All of it, as a manifest names it.
    whole: LogStart,
    segments: Segments,
    store: Store,
    end: AtomicU64,
    group: Group,
    /// Once the newest segment reaches this position, the next one should be prepared.
    prepare_from: AtomicU64,
    /// In cache lines of its own: a writer that waits for the commit lock looks at it, and every append changes the rest.
    failure: CachePadded<OnceLock<Arc<Error>>>,
    syncs: WaitCounter,
}

impl Log {
    /// Starts a new chain with segment `first_segment`, above every number in the folder. When it returns, that segment
    /// is durable, and a manifest may name it. Sequence numbers and times near `base_seq` and `written_at` are encoded
    /// in fewer bytes.
    pub fn create(
        fs: Arc<dyn Fs>,
        options: &LogOptions,
        first_segment: u64,
        base_seq: Seq,
        written_at: Timestamp,
        edit: u64,
    ) -> Result<(Arc<Log>, Appender)> {
        Log::create_behind(
            None,
            fs,
            options,
            first_segment,
            (base_seq, written_at),
            edit,
        )
    }

    /// The same, as the continuation of an earlier log where that was kept.
    pub fn create_behind(
        kept: Option<Kept>,
        fs: Arc<dyn Fs>,
        options: &LogOptions,
        first_segment: u64,
        (base_seq, base_written_at): (Seq, Timestamp),
        edit: u64,
    ) -> Result<(Arc<Log>, Appender)> {
        let whole = LogStart {
            chain: options.identity,
            first: first_segment,
            ring: options.ring_bytes.map(|_| first_segment),
            prefix: kept.as_ref().map(|kept| kept.prefix),
        };
        let start = whole.prefix.map_or(Position(0), |prefix| prefix.end);
        let mut segments = Segments::new(
            Arc::clone(&fs),
            &options.dir,
            options.segment_bytes,
            first_segment,
        )?;
        if let Some(kept) = kept {
            segments = segments.behind(kept);
        }
        let store = begin_store(fs.as_ref(), options, &whole, start)?;
        let header = SegmentHeader {
            identity: options.identity,
            number: first_segment,
            start: start.0,
            base_seq,
            base_written_at,
            edit,
        };
        let first_len = options.first_segment_bytes.unwrap_or(options.segment_bytes);
        let segment = segments.begin_file(header, first_len)?;
        segments.sync_newest()?;
        let log = Arc::new(Log {
            whole,
            segments,
            store,
            end: AtomicU64::new(start.0),
            group: Group::from(start),
            prepare_from: AtomicU64::new(prepare_from(&segment)),
            failure: CachePadded::default(),
            syncs: WaitCounter::default(),
        });
        let appender = Appender {
            log: Arc::clone(&log),
            encoder: Encoder::new(segment.header),
            segment,
            end: start.0,
        };
        Ok((log, appender))
    }

    /// The log as a manifest names it, if `first` is the first segment that is needed; 0: all are.
    pub fn start(&self, first: u64) -> LogStart {
        self.whole.needed_from(first)
    }

    /// The end of the last frame.
    pub fn end(&self) -> Position {
        Position(self.end.load(Ordering::Acquire))
    }

    /// The position up to which the log survives a power cut.
    pub fn synced(&self) -> Position {
        self.group.synced()
    }

    /// That position, and the chain's identity.
    pub fn synced_note(&self) -> SyncedNote {
        self.note(self.synced())
    }

    fn note(&self, position: Position) -> SyncedNote {
        SyncedNote {
            identity: self.whole.chain,
            position: position.0,
        }
    }

    /// Whether a failure has ended this log.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// The failure that ended this log, if one did.
    pub fn failure(&self) -> Option<Error> {
        let cause = Arc::clone(self.failure.get()?);
        Some(Error::Poisoned { cause })
    }

    #[inline]
    fn check(&self) -> Result<()> {
        match self.has_failed() {
            false => Ok(()),
            true => Err(self.failure().expect("it stays")),
        }
    }

    /// Latches a failure.
    fn latch(&self, error: Error) -> Error {
        let _ = self.failure.set(Arc::new(error.clone()));
        error
    }

    /// Ends the log, because it holds a write that the memtable did not take: no other write may follow before the log
    /// was replayed. Returns the error that every later write gets.
    pub fn end_with(&self, error: Error) -> Error {
        let first = self.latch(error);
        self.failure().unwrap_or(first)
    }

    /// Latches a failure, unless a resource was exhausted: it may be there later, and the frame that failed is not
    /// complete.
    fn latch_unless_short(&self, error: Error) -> Error {
        if error.is_shortage() {
            return error;
        }
        self.latch(error)
    }

    /// Begins the next segment at `position`, for a frame with this header.
    fn roll(
        &self,
        before: &SegmentHeader,
        position: u64,
        header: &FrameHeader,
        frame_len: u64,
    ) -> Result<Arc<Segment>> {
        let header = SegmentHeader {
            start: position,
            base_seq: header.first_seq,
            base_written_at: header.written_at,
            edit: header.edit,
            ..*before
        };
        let segment = self.segments.begin(header, frame_len)?;
        self.prepare_from
            .store(prepare_from(&segment), Ordering::Relaxed);
        Ok(segment)
    }

    /// Makes the log durable up to `position` or further. Waits if another thread is syncing.
    pub fn sync_to(&self, position: Position) -> Result<()> {
        assert!(position <= self.end(), "only what was appended is synced");
        let mut seat = Seat::default();
        while self.synced() < position {
            // A failure of the log is found by the leader. A thread that was woken to lead must not leave before.
            if let Some(lead) = self.group.wait_or_lead(position, &mut seat) {
                return self.sync_for_all(lead);
            }
        }
        Ok(())
    }

    fn sync_for_all(&self, mut lead: Lead<'_>) -> Result<()> {
        let target = lead.gather(|| self.end());
        self.sync_all(target)?;
        lead.synced();
        Ok(())
    }

    fn sync_all(&self, target: Position) -> Result<()> {
        self.drain()?;
        self.syncs.begin();
        let (_span, began) = (spans::sync(), monotonic());
        self.noting(|| self.segments.sync(self.synced().0, target.0))?;
        self.syncs.end(monotonic().saturating_sub(began));
        self.store.note_synced(self.note(target));
        Ok(())
    }

    /// Syncs segments, of which the ring tells that it is under way. A failure ends the log.
    fn noting(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        self.store.sync_begins();
        sync().map_err(|error| self.latch(error))?;
        self.store.sync_succeeded();
        Ok(())
    }

    /// How often it was synced, and how long that took.
    pub fn syncs(&self) -> Waits {
        self.syncs.get()
    }

    /// Copies appended frames into the segments' files. Called in the background when [`Log::wants_upkeep`].
    pub fn drain(&self) -> Result<()> {
        self.check()?;
        self.store
            .drain(&self.segments)
            .map_err(|error| self.latch_unless_short(error))
    }

    /// Reserves the file of the next segment. Called in the background when [`Log::wants_next`]. After a failure it is
    /// retried only when this segment is fuller, because each try costs the disk; an append that needs the file tries
    /// as well.
    pub fn prepare_next(&self) -> Result<()> {
        self.check()?;
        let (from, end) = (self.prepare_from.load(Ordering::Relaxed), self.end().0);
        self.segments.prepare().inspect_err(|_| {
            let later = end + self.segments.segment_bytes() / PREPARE_SHARE;
            // If a segment was begun meanwhile, it has set the position for its successor.
            let _ = self.prepare_from.compare_exchange(
                from,
                later,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        })
    }

    /// Whether a write found no room for the next segment, and no later one did.
    pub fn is_refused(&self) -> bool {
        self.segments.is_refused()
    }

    /// Allows the last prepared segment to be begun, because nothing of the log is needed. If none is prepared, the
    /// next one is a small one.
    pub fn spend_next(&self) -> Result<()> {
        self.segments.spend_next()
    }

    /// How much room [`Log::lend_prepared`] frees, in bytes.
    pub fn lendable(&self) -> u64 {
        self.segments.lendable()
    }

    /// Lends the room of the prepared segments, if there are any; no segment is begun meanwhile.
    pub fn lend_prepared(&self) -> LentSegments<'_> {
        self.segments.lend_prepared()
    }

    /// Whether [`Log::prepare_next`] is due.
    #[inline]
    pub fn wants_next(&self) -> bool {
        let in_use = self.end.load(Ordering::Relaxed) >= self.prepare_from.load(Ordering::Relaxed);
        in_use && !self.segments.is_prepared()
    }

    /// Whether [`Log::drain`] or [`Log::prepare_next`] would save an append some waiting.
    #[inline]
    pub fn wants_upkeep(&self) -> bool {
        self.wants_next() || self.store.wants_drain()
    }

    /// The segments of this chain that may be needed, oldest first; the last one is the current one.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.segments.in_use()
    }

    /// The same, behind those that wait to be removed.
    pub fn all_segments(&self) -> Vec<SegmentInfo> {
        self.segments.all()
    }

    /// Pins alone keep the segments below this number.
    pub fn kept_below(&self) -> u64 {
        self.segments.kept_below()
    }

    /// The number of the current segment.
    pub fn current_segment(&self) -> u64 {
        let segments = self.segments.all();
        segments.last().expect("a log has a segment").number
    }

    /// Removes every file older than segment `number`, which the manifest durably names as the first one. Segments that
    /// are not synced to their end stay.
    pub fn release_before(&self, number: u64) -> Result<()> {
        self.segments.release_before(number, self.synced().0)
    }

    /// Removes what an earlier release could not remove.
    pub fn release_rest(&self) -> Result<()> {
        self.segments.release_rest(self.synced().0)
    }

    /// Pins the segments from number `first` on, which the manifest durably names as the first one.
    pub fn pin_from(self: &Arc<Self>, first: u64) -> SegmentPin {
        self.segments.pin_from(first);
        let log = Arc::clone(self);
        SegmentPin { log, first }
    }

    /// Removes all files from before this log, which the manifest durably names.
    pub fn release_older(&self) -> Result<()> {
        self.segments.release_older()
    }

    /// Makes the newest segment durable, even if it has no frame yet, so that a manifest may name it.
    pub fn sync_newest(&self) -> Result<()> {
        self.check()?;
        self.noting(|| self.segments.sync_newest())
    }

    /// Marks these segments as holding stale frames from `now` on.
    pub fn mark_stale(&self, numbers: RangeInclusive<u64>, now: Timestamp) {
        self.segments.mark_stale(numbers, now);
    }
}

/// Pins segments of a log until it is dropped.
pub struct SegmentPin {
    log: Arc<Log>,
    first: u64,
}

impl Drop for SegmentPin {
    fn drop(&mut self) {
        let given_up = self.log.segments.unpin_from(self.first);
        // A later release removes the segments that this one fails to remove.
        let _ = self.log.release_before(given_up);
    }
}

/// The exclusive side of the log, guarded by the commit lock.
pub struct Appender {
    log: Arc<Log>,
    segment: Arc<Segment>,
    end: u64,
    encoder: Encoder,
}

impl Appender {
    /// The number of the segment that holds the last frame.
    pub fn segment(&self) -> u64 {
        self.segment.header.number
    }

    /// Makes the next frame begin a new segment, with a header close to this one; does nothing if the newest has no
    /// frame yet.
    pub fn rotate(&mut self, header: &FrameHeader) -> Result<()> {
        if self.end > self.segment.header.start {
            self.roll(header, 0)?;
        }
        Ok(())
    }

    fn roll(&mut self, header: &FrameHeader, frame_len: u64) -> Result<()> {
        self.segment = self
            .log
            .roll(&self.segment.header, self.end, header, frame_len)?;
        self.encoder = Encoder::new(self.segment.header);
        Ok(())
    }

    /// A frame with so much payload is appended without a file being touched, and so without waiting for one.
    pub fn takes_at_once(&self, payload_len: usize) -> bool {
        let len = (HEAD_LEN_MAX + payload_len) as u64;
        self.end + len <= self.segment.full_at() && self.log.store.takes_at_once(self.end, len)
    }

    /// Appends a frame; when it returns, the frame survives a killed process. Returns the frame's end, which is the
    /// argument for [`Log::sync_to`]. After an error the frame is not in the log, with one exception: after a failed
    /// write, recovery may find it, and the log accepts no other frame.
    pub fn append(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        payload_crc: PayloadCrc,
    ) -> Result<Position> {
        self.log.check()?;
        let (position, watermark) = (self.end, self.log.synced().0);
        let mut head = FrameHead::empty();
        let encode = |encoder: &Encoder, head: &mut FrameHead| {
            let of_payload = (payload.len(), payload_crc);
            encoder.head(head, (position, watermark), header, of_payload);
        };
        encode(&self.encoder, &mut head);
        let len = (head.bytes().len() + payload.len()) as u64;
        if position + len > self.segment.full_at() {
            // Relative to the new segment's header, the frame is no longer than before.
            self.roll(header, len)?;
            encode(&self.encoder, &mut head);
        }
        let frame = [head.bytes(), payload];
        let log = &*self.log;
        log.store
            .append(&log.segments, &self.segment, position, frame)
            .map_err(|error| log.latch_unless_short(error))?;
        self.end = position + frame_len(frame);
        log.end.store(self.end, Ordering::Release);
        Ok(Position(self.end))
    }

    /// Syncs everything, then writes and syncs an end mark. `header` has the last sequence number and the times. If room
    /// or memory is short, the log ends without the mark: everything before it is durable, and the ring records that.
    pub fn close(mut self, header: &FrameHeader) -> Result<()> {
        let log = Arc::clone(&self.log);
        log.sync_to(log.end())?;
        let header = FrameHeader {
            kind: FrameKind::End,
            ..*header
        };
        let marked = self.append(&header, &[], PayloadCrc::of(&[]));
        match marked.and_then(|end| log.sync_to(end)) {
            Err(short) if short.is_shortage() && log.check().is_ok() => Ok(()),
            marked => marked,
        }
    }
}
