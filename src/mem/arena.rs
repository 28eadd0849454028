//! An arena: memory that only grows. Its contents never move, and are freed with the whole arena.
//!
//! ```text
//! Stored   [front] | seq and tag u64 | written_at u48 | value length u32 | key length u16 | check u32 | key | value
//!                  ^ a Stored points here, so that the key always lies 24 bytes further on
//! check            of all the rest, from a hash of key and value that was made when the record was encoded
//! seq and tag      the sequence number in the upper 60 bits, below them
//!          bit  0    it is a put
//!          bits 1-2  ttl: 0 absent, 1 never, 2 milliseconds
//!          bit  3    wide: ttl or written_at has more bits than there is usually room for
//! front    not wide: the ttl's milliseconds u32, when there are such
//!          wide: the ttl's milliseconds u64 | written_at u64
//! ```
//!
//! Fields are unaligned: padding would cost more bytes than it saves instructions.
//!
//! Invariants:
//! * A chunk is freed only when the [`Arena`]s with contents in it drop, and never moves. So a borrow of something in
//!   an arena may follow its pointers into the same arena.
//! * A [`Stored`] is written before its address is published, and never again. Its address is passed through [`Slot`]s,
//!   whose stores release and whose loads acquire: a thread that has the address sees the bytes. [`Link`]s do the same
//!   for everything else in an arena, which changes only through atomics.
//! * A sequence number has at most 60 bits: opening refuses higher ones than [`HIGHEST_NUMBER`], and no process makes
//!   as many writes again.
//! * All access to chunks is by raw pointers derived from their allocation; nobody borrows a chunk.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::new_record::{NewRecord, check_of, ends_of};
use super::pool::{CHUNK_MAX, Pool, Refused};
use crate::base::hash::RecordHash;
use crate::base::prefetch;
use crate::base::record::{Header, Kind, MAX_KEY_LEN, MAX_VALUE_LEN, RecordRef};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::base::{Error, HIGHEST_NUMBER, ItemTtl, Result as Answer, Seq, Timestamp};
use crate::env::Chunk;

/// The size of the smallest chunk, which an almost empty memtable takes.
const CHUNK_MIN: usize = 4 << 10;

/// Owns the chunks.
#[derive(Debug)]
pub struct Arena {
    chunks: Mutex<Chunks>,
    bytes: AtomicUsize,
    /// Whether its bytes count as pinned.
    retired: AtomicBool,
    pool: Arc<Pool>,
}

#[derive(Debug, Default)]
struct Chunks {
    own: Vec<Chunk>,
    /// Spares of which it has a part.
    shared: Vec<Arc<Chunk>>,
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.retired.load(Ordering::Relaxed) {
            self.pool.unpin(self.bytes());
        }
        self.pool.give(&mut self.chunks.get_mut().own);
    }
}

impl Arena {
    /// An empty arena that takes chunks from `pool` and returns them to it.
    pub fn new(pool: Arc<Pool>) -> Arena {
        Arena {
            chunks: Mutex::default(),
            bytes: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            pool,
        }
    }

    /// Bytes of all chunks except the untouched end of the last one: with it, a memtable would be full as soon as that
    /// chunk is allocated.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The pool that its full-sized chunks come from and return to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Notes that nothing more is added, and that only current holders need it: until they release it, it counts as
    /// pinned.
    pub fn retire(&self) {
        if !self.retired.swap(true, Ordering::Relaxed) {
            self.pool.pin(self.bytes());
        }
    }

    /// Called only by the one writer.
    fn count(&self, bytes: usize) {
        self.bytes.store(self.bytes() + bytes, Ordering::Relaxed);
    }

    /// A chunk of `len` bytes.
    fn chunk(&self, len: usize) -> Result<NonNull<u8>, Refused> {
        let chunk = if len == CHUNK_MAX {
            self.pool.take()?
        } else {
            self.pool.ask(len)?
        };
        let start = chunk.start();
        self.chunks.lock().own.push(chunk);
        Ok(start)
    }

    /// `len` bytes from the pool's spare.
    #[cold]
    fn spare(&self, len: usize) -> Result<NonNull<u8>, Refused> {
        let (chunk, start) = self.pool.take_spare(len)?;
        self.count(len);
        self.chunks.lock().shared.push(chunk);
        Ok(start)
    }
}

/// The address in an arena at which the next object is placed. Owned by the one writer.
#[derive(Debug)]
pub struct Brk {
    next: Cell<NonNull<u8>>,
    room: Cell<usize>,
}

// SAFETY: it is nothing but an address in a chunk, and only its owner writes from there on.
unsafe impl Send for Brk {}

impl Brk {
    /// For an arena without chunks.
    pub fn new() -> Brk {
        Brk {
            next: Cell::new(NonNull::dangling()),
            room: Cell::new(0),
        }
    }

    /// `layout.size()` uninitialised bytes that nothing else uses while `arena` lives.
    ///
    /// # Safety
    /// Every call on one `Brk` names the same arena.
    #[inline]
    unsafe fn take(&self, arena: &Arena, layout: Layout) -> Result<NonNull<u8>, Refused> {
        assert!(layout.align() <= Chunk::ALIGN);
        let (next, room) = (self.next.get(), self.room.get());
        let pad = next.as_ptr().align_offset(layout.align());
        let taken = pad + layout.size();
        if room < taken {
            return self.take_from_new(arena, layout.size());
        }
        arena.count(taken);
        self.room.set(room - taken);
        // SAFETY: at least `taken` bytes of the chunk are left, and its end is still an address of it.
        unsafe {
            self.next.set(next.add(taken));
            Ok(next.add(pad))
        }
    }

    /// `len` bytes from the start of a chunk: one of their own, when they are many, or the next one.
    #[cold]
    fn take_from_new(&self, arena: &Arena, len: usize) -> Result<NonNull<u8>, Refused> {
        let next_len = (arena.bytes() / 4).clamp(CHUNK_MIN, CHUNK_MAX) & !(CHUNK_MIN - 1);
        let of_its_own = len > next_len / 4;
        let chunk_len = if of_its_own { len } else { next_len };
        let Ok(start) = arena.chunk(chunk_len) else {
            return arena.spare(len);
        };
        if !of_its_own {
            arena.count(self.room.replace(chunk_len - len));
            // SAFETY: the chunk has at least `len` bytes, and its end is still an address of it.
            self.next.set(unsafe { start.add(len) });
        }
        arena.count(len);
        Ok(start)
    }

    /// Puts `value` into the arena. It is never dropped.
    ///
    /// # Safety
    /// Every call on one `Brk` names the same arena.
    pub unsafe fn place<'a, T>(&self, arena: &'a Arena, value: T) -> Result<&'a T, Refused> {
        const { assert!(!std::mem::needs_drop::<T>()) };
        // SAFETY: the caller's promise.
        let at = unsafe { self.take(arena, Layout::new::<T>()) }?.cast::<T>();
        // SAFETY: `take` gave room and alignment for a T that nothing else uses, for as long as the arena lives.
        unsafe {
            at.write(value);
            Ok(at.as_ref())
        }
    }

    /// Puts a record into the arena.
    ///
    /// # Safety
    /// Every call on one `Brk` names the same arena.
    pub unsafe fn store<'a>(
        &self,
        arena: &'a Arena,
        record: &NewRecord<'_>,
    ) -> Result<Stored<'a>, Refused> {
        let (header, key, value) = (&record.header, record.key, record.value);
        assert!(
            (1..=MAX_KEY_LEN).contains(&key.len()),
            "a key has 1 to 65535 bytes"
        );
        assert!(value.len() <= MAX_VALUE_LEN, "a value has at most 64 MiB");
        assert!(header.seq.0 < SEQ_END, "no database counts that far");
        let (ttl_tag, millis) = tag_of(header.ttl);
        let written_at = header.written_at.0;
        let is_wide = written_at >= WRITTEN_AT_END || millis > Some(u64::from(u32::MAX));
        let front = match millis {
            _ if is_wide => size_of::<Wide>(),
            Some(_) => size_of::<u32>(),
            None => 0,
        };
        let put = if header.is_tombstone() { 0 } else { PUT };
        let wide = if is_wide { WIDE } else { 0 };
        let seq_and_tag = header.seq.0 << TAG_BITS | put | ttl_tag | wide;
        let (key_len, value_len) = (key.len() as u16, value.len() as u32);
        let millis = millis.unwrap_or(0);
        let numbers = [seq_and_tag, written_at, millis];
        let fixed = Fixed {
            seq_and_tag,
            written_at_low: written_at as u32,
            written_at_high: (written_at >> 32) as u16,
            value_len,
            key_len,
            check: check_of(
                record.hash.whole,
                numbers,
                ends_of(seq_and_tag, key_len, value_len),
            ),
        };
        let len = front + size_of::<Fixed>() + key.len() + value.len();
        let layout =
            Layout::from_size_align(len, align_of::<Fixed>()).expect("far below isize::MAX");
        // SAFETY: the caller's promise; then every write stays inside the `len` bytes taken, and none asks for an
        // alignment.
        unsafe {
            let at = self.take(arena, layout)?.add(front).cast::<Fixed>();
            if is_wide {
                at.cast::<Wide>().sub(1).write(Wide { millis, written_at });
            } else if front > 0 {
                at.cast::<u32>().sub(1).write_unaligned(millis as u32);
            }
            at.write(fixed);
            let bytes = at.add(1).cast::<u8>().as_ptr();
            ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(key.len()), value.len());
            Ok(Stored {
                at,
                arena: PhantomData,
            })
        }
    }
}

/// The most bytes that a record takes besides its key and value, if it is in a chunk of its own.
pub const RECORD_MOST: usize = size_of::<Wide>() + size_of::<Fixed>() + Chunk::ALIGN;

const TAG_BITS: u32 = 4;
const PUT: u64 = 1;
const TTL_MASK: u64 = 3 << 1;
const TTL_ABSENT: u64 = 0;
const TTL_NEVER: u64 = 1 << 1;
const TTL_MILLIS: u64 = 2 << 1;
const WIDE: u64 = 1 << 3;

/// Above every sequence number that can be stored.
const SEQ_END: u64 = 1 << (u64::BITS - TAG_BITS);
const _: () = assert!(HIGHEST_NUMBER < SEQ_END / 2);
/// Above every moment that fits into the fixed part.
const WRITTEN_AT_END: u64 = 1 << 48;

/// The tag of a ttl, and its milliseconds if it has any.
fn tag_of(ttl: ItemTtl) -> (u64, Option<u64>) {
    match ttl {
        ItemTtl::Absent => (TTL_ABSENT, None),
        ItemTtl::Never => (TTL_NEVER, None),
        ItemTtl::Millis(millis) => (TTL_MILLIS, Some(millis)),
    }
}

/// The part of a stored record whose size is fixed.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Fixed {
    seq_and_tag: u64,
    written_at_low: u32,
    written_at_high: u16,
    value_len: u32,
    key_len: u16,
    check: u32,
}

const _: () = assert!(size_of::<Fixed>() == 24 && align_of::<Fixed>() == 1);

/// The fields in front of it when the numbers are larger than usual.
#[repr(C, packed)]
struct Wide {
    millis: u64,
    written_at: u64,
}

/// A record in an arena that lives at least as long as `'a`.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    at: NonNull<Fixed>,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: a shared borrow of bytes that nobody changes.
unsafe impl Send for Stored<'_> {}
// SAFETY: as above.
unsafe impl Sync for Stored<'_> {}

impl<'a> Stored<'a> {
    fn fixed(self) -> &'a Fixed {
        // SAFETY: written by `Brk::store` before this address was known, never again, and there as long as 'a.
        unsafe { self.at.as_ref() }
    }

    fn bytes(self, from: usize, len: usize) -> &'a [u8] {
        // SAFETY: only called for the key and the value, which `Brk::store` wrote behind the fixed part; see `fixed`.
        unsafe { std::slice::from_raw_parts(self.at.add(1).cast::<u8>().as_ptr().add(from), len) }
    }

    /// Its sequence number.
    #[inline]
    pub fn seq(self) -> Seq {
        Seq(self.fixed().seq_and_tag >> TAG_BITS)
    }

    /// Its key.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        self.bytes(0, self.key_len())
    }

    /// Its value.
    #[inline]
    pub fn value(self) -> &'a [u8] {
        self.bytes(self.key_len(), self.value_len())
    }

    /// Its key followed by its value.
    #[inline]
    pub fn piece(self) -> &'a [u8] {
        self.bytes(0, self.key_len() + self.value_len())
    }

    /// The length of its key.
    #[inline]
    pub fn key_len(self) -> usize {
        usize::from(self.fixed().key_len)
    }

    /// The length of its value.
    #[inline]
    pub fn value_len(self) -> usize {
        self.fixed().value_len as usize
    }

    /// Its weight; see [`RecordRef::weight`].
    pub fn weight(self) -> u64 {
        let record = RecordRef {
            header: self.header(),
            key: self.key(),
            value_len: self.value_len(),
        };
        record.weight()
    }

    /// Its header.
    #[inline]
    pub fn header(self) -> Header {
        let fixed = self.fixed();
        let tag = fixed.seq_and_tag;
        let (written_at, millis) = if tag & WIDE != 0 {
            // SAFETY: under this tag `Brk::store` wrote this in front of the fixed part.
            let wide = unsafe { self.at.cast::<Wide>().sub(1).read() };
            (wide.written_at, wide.millis)
        } else {
            let (low, high) = (fixed.written_at_low, fixed.written_at_high);
            let millis = match tag & TTL_MASK {
                // SAFETY: as above.
                TTL_MILLIS => unsafe { self.at.cast::<u32>().sub(1).read_unaligned() },
                _ => 0,
            };
            (u64::from(low) | u64::from(high) << 32, u64::from(millis))
        };
        Header {
            kind: if tag & PUT != 0 {
                Kind::Put
            } else {
                Kind::Tombstone
            },
            seq: self.seq(),
            written_at: Timestamp(written_at),
            ttl: match tag & TTL_MASK {
                TTL_ABSENT => ItemTtl::Absent,
                TTL_NEVER => ItemTtl::Never,
                _ => ItemTtl::Millis(millis),
            },
        }
    }

    /// Whether it is as it was stored.
    pub fn is_intact(self) -> bool {
        let fixed = self.fixed();
        let ends = ends_of(fixed.seq_and_tag, fixed.key_len, fixed.value_len);
        // Else the bytes of others, or of nobody, would be read.
        if fixed.check as u8 != ends {
            return false;
        }
        let header = self.header();
        let millis = match header.ttl {
            ItemTtl::Millis(millis) => millis,
            ItemTtl::Absent | ItemTtl::Never => 0,
        };
        let written_at = header.written_at.0;
        let low = (fixed.written_at_low, fixed.written_at_high);
        let numbers = [fixed.seq_and_tag, written_at, millis];
        let hash = RecordHash::of(self.key(), self.value()).whole;
        low == (written_at as u32, (written_at >> 32) as u16)
            && fixed.check == check_of(hash, numbers, ends)
    }

    /// Fails if it is not.
    pub fn check(self) -> Answer<()> {
        match self.is_intact() {
            true => Ok(()),
            false => Err(Error::MemoryCorruption {
                what: format!("the record at {:p} is not as it was stored", self.at),
            }),
        }
    }

    /// Prefetches its first bytes.
    #[inline]
    pub fn prefetch(self) {
        prefetch(self.fixed());
    }

    /// Prefetches its value, or the first lines of a long one: the processor's prefetcher continues from there.
    #[inline]
    pub fn prefetch_value(self) {
        let value = self.value();
        [value.first(), value.get(64), value.last()]
            .into_iter()
            .flatten()
            .for_each(prefetch);
    }

    /// Flips one of its bits, as failing memory would.
    #[cfg(any(test, feature = "unstable-internals"))]
    pub fn flip(self, bit: usize) {
        let tag = self.fixed().seq_and_tag;
        let front = match tag & TTL_MASK {
            _ if tag & WIDE != 0 => size_of::<Wide>(),
            TTL_MILLIS => size_of::<u32>(),
            _ => 0,
        };
        let len = front + size_of::<Fixed>() + self.piece().len();
        let (byte, mask) = (bit / 8 % len, 1 << (bit % 8));
        // SAFETY: it is one of the record's bytes; nothing else reads them meanwhile, for it is called by tests alone.
        unsafe { *self.at.cast::<u8>().sub(front).add(byte).as_ptr() ^= mask };
    }

    /// The record without the borrow of its arena.
    ///
    /// # Safety
    /// The result, and everything made of it, is not used after the arena is freed.
    pub unsafe fn detach(self) -> Stored<'static> {
        Stored {
            at: self.at,
            arena: PhantomData,
        }
    }
}

/// A slot for a record's address, itself in the record's arena.
#[derive(Debug)]
pub struct Slot(AtomicPtr<Fixed>);

impl Slot {
    /// An empty slot.
    pub fn empty() -> Slot {
        Slot(AtomicPtr::new(ptr::null_mut()))
    }

    /// The record in the slot.
    #[inline]
    pub fn load(&self) -> Option<Stored<'_>> {
        let at = NonNull::new(self.0.load(Ordering::Acquire))?;
        Some(Stored {
            at,
            arena: PhantomData,
        })
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    /// Stores a record's address.
    ///
    /// # Safety
    /// `stored` is in the same arena as the slot.
    #[inline]
    pub unsafe fn store(&self, stored: Option<Stored<'_>>) {
        self.0.store(address(stored), Ordering::Release);
    }

    /// Copies another slot of the same arena.
    ///
    /// # Safety
    /// Both slots lie in one arena.
    #[inline]
    pub unsafe fn copy(&self, other: &Slot) {
        self.0
            .store(other.0.load(Ordering::Relaxed), Ordering::Release);
    }
}

fn address(stored: Option<Stored<'_>>) -> *mut Fixed {
    stored.map_or(ptr::null_mut(), |stored| stored.at.as_ptr())
}

/// The address of a T in an arena: the arena of the link, or one that the link's owner holds.
#[derive(Debug)]
pub struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    /// A link to nothing.
    pub fn empty() -> Link<T> {
        Link(AtomicPtr::new(ptr::null_mut()))
    }

    /// The target of the link.
    #[inline]
    pub fn load(&self) -> Option<&T> {
        // SAFETY: null, or an address that `store` was given: initialised before, changed by atomics only, and there as
        // long as the arena, which outlives the link by the promise to `store`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the target.
    ///
    /// # Safety
    /// `to` lies in an arena that lives at least as long as the link, and changes only through atomics.
    #[inline]
    pub unsafe fn store(&self, to: &T) {
        self.0
            .store(ptr::from_ref(to).cast_mut(), Ordering::Release);
    }

    /// Copies another link's target.
    ///
    /// # Safety
    /// Both links lie in one arena.
    #[inline]
    pub unsafe fn copy(&self, other: &Link<T>) {
        self.0
            .store(other.0.load(Ordering::Relaxed), Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
