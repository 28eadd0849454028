//! Memory that only grows: what is put there stays where it is until the whole arena goes.
//!
//! ```text
//! Stored   [ttl in milliseconds u64] | seq u64 | written_at u64 | value length u32 | key length u16 | tag u8 | 0 u8
//!          | key | value                              the ttl stands there only when the tag says so
//!                                     ^ a Stored points at `seq`, so that the key always lies 24 bytes further on
//! tag      bits 0-1  kind, as in record.rs
//!          bits 2-3  ttl: 0 absent, 1 never, 2 milliseconds stand in front
//! ```
//!
//! Invariants:
//! * A chunk is given back only when its [`Arena`] drops, and never moves. So whoever borrows something that lies in an
//!   arena may follow its pointers into the same arena for as long as the borrow.
//! * A [`Stored`] is written before its address is, and never again. Its address travels through [`Slot`]s, whose stores
//!   release and whose loads acquire: who has the address sees the bytes. [`Link`]s do the same for whatever else lies in
//!   an arena, which changes only through atomics.
//! * Everything reaches chunks by raw pointers that come from their allocation; nobody ever borrows a chunk.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::record::{Head, Header, Kind, MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::types::{ItemTtl, Seq, Timestamp};

/// The smallest chunk: what an almost empty memtable costs.
const CHUNK_MIN: usize = 4 << 10;
/// The largest chunk that is shared; with a quarter of what is there already as the size of the next, an arena is at
/// most about a quarter larger than its content.
const CHUNK_MAX: usize = 1 << 20;
/// Chunks start on a cache line, so that nodes can.
const CHUNK_ALIGN: usize = 64;

/// Full-sized chunks that arenas gave back, for the next ones: their pages need not be asked for again, which costs as
/// much as an insert.
#[derive(Debug)]
pub struct Pool {
    chunks: Mutex<Vec<Chunk>>,
    chunks_max: usize,
}

impl Pool {
    /// An empty pool that keeps up to `bytes`.
    pub fn new(bytes: usize) -> Pool {
        Pool {
            chunks: Mutex::default(),
            chunks_max: bytes / CHUNK_MAX,
        }
    }

    /// Bytes that it keeps now.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.chunks.lock().len() * CHUNK_MAX
    }

    fn give(&self, returned: &mut Vec<Chunk>) {
        let mut chunks = self.chunks.lock();
        let room = self.chunks_max.saturating_sub(chunks.len());
        let full_sized = returned.extract_if(.., |chunk| chunk.layout.size() == CHUNK_MAX);
        chunks.extend(full_sized.take(room));
    }
}

/// Owns the chunks.
#[derive(Debug)]
pub struct Arena {
    chunks: Mutex<Vec<Chunk>>,
    bytes: AtomicUsize,
    pool: Arc<Pool>,
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.pool.give(self.chunks.get_mut());
    }
}

#[derive(Debug)]
struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a chunk is memory without a thread of its own; this type only frees it.
unsafe impl Send for Chunk {}

impl Chunk {
    fn new(len: usize) -> Chunk {
        assert!(len > 0);
        let layout =
            Layout::from_size_align(len, CHUNK_ALIGN).expect("a record is far below isize::MAX");
        // SAFETY: the layout's size is not zero.
        match NonNull::new(unsafe { alloc(layout) }) {
            Some(start) => Chunk { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `Chunk::new`, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Arena {
    /// An empty arena that takes from and gives to `pool`.
    pub fn new(pool: Arc<Pool>) -> Arena {
        Arena {
            chunks: Mutex::default(),
            bytes: AtomicUsize::new(0),
            pool,
        }
    }

    /// Bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A chunk of `len` bytes.
    fn chunk(&self, len: usize) -> NonNull<u8> {
        let recycled = if len == CHUNK_MAX {
            self.pool.chunks.lock().pop()
        } else {
            None
        };
        let chunk = recycled.unwrap_or_else(|| Chunk::new(len));
        let start = chunk.start;
        self.chunks.lock().push(chunk);
        self.bytes.fetch_add(len, Ordering::Relaxed);
        start
    }
}

/// The place in an arena where the next thing goes. It belongs to the one writer.
#[derive(Debug)]
pub struct Brk {
    next: Cell<NonNull<u8>>,
    room: Cell<usize>,
}

// SAFETY: it is nothing but an address in a chunk, and only its owner writes from there on.
unsafe impl Send for Brk {}

impl Brk {
    /// The end of an arena without chunks.
    pub fn new() -> Brk {
        Brk {
            next: Cell::new(NonNull::dangling()),
            room: Cell::new(0),
        }
    }

    /// `layout.size()` bytes, not initialised, that nothing else uses as long as `arena` lives.
    ///
    /// # Safety
    /// Every call on one `Brk` names the same arena.
    unsafe fn take(&self, arena: &Arena, layout: Layout) -> NonNull<u8> {
        assert!(layout.align() <= CHUNK_ALIGN);
        let (mut next, mut room) = (self.next.get(), self.room.get());
        let mut pad = next.as_ptr().align_offset(layout.align());
        if room < pad + layout.size() {
            let len = (arena.bytes() / 4).clamp(CHUNK_MIN, CHUNK_MAX) & !(CHUNK_MIN - 1);
            if layout.size() > len / 4 {
                return arena.chunk(layout.size());
            }
            (next, room, pad) = (arena.chunk(len), len, 0);
        }
        let taken = pad + layout.size();
        self.room.set(room - taken);
        // SAFETY: at least `taken` bytes of the chunk are left, and its end is still an address of it.
        unsafe {
            self.next.set(next.add(taken));
            next.add(pad)
        }
    }

    /// Puts `value` into the arena. It is never dropped.
    ///
    /// # Safety
    /// Every call on one `Brk` names the same arena.
    pub unsafe fn place<'a, T>(&self, arena: &'a Arena, value: T) -> &'a T {
        const { assert!(!std::mem::needs_drop::<T>()) };
        // SAFETY: the caller's promise.
        let at = unsafe { self.take(arena, Layout::new::<T>()) }.cast::<T>();
        // SAFETY: `take` gave room and alignment for a T that nothing else uses, for as long as the arena lives.
        unsafe {
            at.write(value);
            at.as_ref()
        }
    }

    /// Puts a record into the arena.
    ///
    /// # Safety
    /// Every call on one `Brk` names the same arena.
    pub unsafe fn store<'a>(
        &self,
        arena: &'a Arena,
        header: &Header,
        key: &[u8],
        value: &[u8],
    ) -> Stored<'a> {
        assert!(
            (1..=MAX_KEY_LEN).contains(&key.len()),
            "a key has 1 to 65535 bytes"
        );
        assert!(value.len() <= MAX_VALUE_LEN, "a value has at most 64 MiB");
        let (ttl_tag, millis) = match header.ttl {
            ItemTtl::Absent => (0, None),
            ItemTtl::Never => (1, None),
            ItemTtl::Millis(millis) => (2, Some(millis)),
        };
        let fixed = Fixed {
            seq: header.seq.0,
            written_at: header.written_at.0,
            value_len: value.len() as u32,
            key_len: key.len() as u16,
            tag: header.kind as u8 | ttl_tag << 2,
            zero: 0,
        };
        let front = if millis.is_some() {
            size_of::<u64>()
        } else {
            0
        };
        let len = front + size_of::<Fixed>() + key.len() + value.len();
        let layout =
            Layout::from_size_align(len, align_of::<Fixed>()).expect("far below isize::MAX");
        // SAFETY: the caller's promise; then every write stays inside the `len` bytes taken, which are aligned for u64
        // and hence for Fixed behind it.
        unsafe {
            let start = self.take(arena, layout);
            if let Some(millis) = millis {
                start.cast::<u64>().write(millis);
            }
            let at = start.add(front).cast::<Fixed>();
            at.write(fixed);
            let bytes = at.add(1).cast::<u8>().as_ptr();
            ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(key.len()), value.len());
            Stored {
                at,
                arena: PhantomData,
            }
        }
    }
}

/// The part of a stored record whose size is fixed.
#[derive(Clone, Copy)]
#[repr(C)]
struct Fixed {
    seq: u64,
    written_at: u64,
    value_len: u32,
    key_len: u16,
    tag: u8,
    zero: u8,
}

const _: () = assert!(size_of::<Fixed>() == 24 && align_of::<Fixed>() == align_of::<u64>());

/// A record in an arena that lives at least as long as `'a`.
#[derive(Clone, Copy)]
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

    /// Its number.
    #[inline]
    pub fn seq(self) -> Seq {
        Seq(self.fixed().seq)
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

    /// Its key, and behind that its value.
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

    /// What it counts for.
    pub fn weight(self) -> u64 {
        let head = Head {
            header: self.header(),
            key: self.key(),
            value_len: self.value_len(),
        };
        head.weight()
    }

    /// Everything else about it.
    #[inline]
    pub fn header(self) -> Header {
        let fixed = self.fixed();
        Header {
            kind: if fixed.tag & 3 == Kind::Put as u8 {
                Kind::Put
            } else {
                Kind::Tombstone
            },
            seq: Seq(fixed.seq),
            written_at: Timestamp(fixed.written_at),
            ttl: match fixed.tag >> 2 {
                0 => ItemTtl::Absent,
                1 => ItemTtl::Never,
                // SAFETY: under this tag `Brk::store` wrote the ttl in front of the fixed part.
                _ => ItemTtl::Millis(unsafe { self.at.cast::<u64>().sub(1).read() }),
            },
        }
    }

    /// Brings the first bytes into the cache.
    #[inline]
    pub fn prefetch(self) {
        prefetch(self.fixed());
    }

    /// The same without a borrow of its arena.
    ///
    /// # Safety
    /// What is made of it is not used after the arena is gone.
    pub unsafe fn detach(self) -> Stored<'static> {
        Stored {
            at: self.at,
            arena: PhantomData,
        }
    }
}

/// A place for a record's address, itself in the record's arena.
#[derive(Debug)]
pub struct Slot(AtomicPtr<Fixed>);

impl Slot {
    /// Holds nothing.
    pub fn empty() -> Slot {
        Slot(AtomicPtr::new(ptr::null_mut()))
    }

    /// What the slot holds.
    #[inline]
    pub fn load(&self) -> Option<Stored<'_>> {
        let at = NonNull::new(self.0.load(Ordering::Acquire))?;
        Some(Stored {
            at,
            arena: PhantomData,
        })
    }

    /// It holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    /// Puts a record there.
    ///
    /// # Safety
    /// `stored` lies in the arena in which the slot does.
    #[inline]
    pub unsafe fn store(&self, stored: Option<Stored<'_>>) {
        self.0.store(address(stored), Ordering::Release);
    }

    /// Makes it hold what `other`, a slot of the same arena, holds.
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

/// A place for the address of a T that lies in an arena: in the one where the link lies, or in the one that the link's
/// owner keeps.
#[derive(Debug)]
pub struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    /// Leads nowhere.
    pub fn empty() -> Link<T> {
        Link(AtomicPtr::new(ptr::null_mut()))
    }

    /// What the link leads to.
    #[inline]
    pub fn load(&self) -> Option<&T> {
        // SAFETY: null, or an address that `store` was given: initialised before, changed by atomics only, and there as
        // long as the arena, which outlives the link by the promise to `store`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Leads it to `to`.
    ///
    /// # Safety
    /// `to` lies in an arena that lives at least as long as the link, and changes only through atomics.
    #[inline]
    pub unsafe fn store(&self, to: &T) {
        self.0
            .store(ptr::from_ref(to).cast_mut(), Ordering::Release);
    }

    /// Makes it lead where `other` does.
    ///
    /// # Safety
    /// Both links lie in one arena.
    #[inline]
    pub unsafe fn copy(&self, other: &Link<T>) {
        self.0
            .store(other.0.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Brings what lies there into the cache, where the processor knows how to be asked.
#[inline]
pub fn prefetch<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ptr::from_ref(at).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
