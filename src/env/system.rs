//! System calls that the standard library does not offer: allocation of memory by pages; maps of files, and prefetching
//! into memory; and calls that take only numbers. All unsafe code of this folder is here, but that of aio.rs.
//!
//! Why the maps are sound:
//! * A mapped file does not change or shrink while it is held: [`super::Fs::map`] is for finished files, and a database
//!   folder belongs to one process by its lock. If the device fails under a page that is not in memory, the access
//!   raises a signal; [`fault_in`] turns that into an error, while the page stays in memory.
//! * A ring's map lives as long as the ring, its length is kept beside it and every access is checked against it. All
//!   bytes are accessed through relaxed 64-bit atomics, aligned to eight, so that no two accesses race, and threads
//!   that store different bytes of one word do not undo each other. The file is allocated to its end, so that a store
//!   cannot meet a full disk.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
#[cfg(all(target_os = "linux", not(miri)))]
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

use bytes::Bytes;
use memmap2::{Mmap, MmapMut, MmapOptions, MmapRaw};

use super::fs::Ring;
use super::words::{self, WORD};
use crate::base::error::{self, Error};
use crate::base::sync::atomic::AtomicU64;
#[cfg(all(target_os = "linux", not(miri)))]
use rustix::{io::Errno, mm::Advice};

/// Uninitialised memory that does not move. A large chunk takes no memory before it is touched, and is returned to the
/// system when dropped, not to the allocator, which would keep memory below blocks that are still in use.
#[derive(Debug)]
pub struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
    /// `None` for a small chunk, which the allocator owns.
    pages: Option<MmapMut>,
}

// SAFETY: a chunk is memory without a thread of its own; this type only frees it.
unsafe impl Send for Chunk {}
// SAFETY: a shared chunk gives only its address.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Chunks start on a cache line, so that their contents can.
    pub const ALIGN: usize = 64;
    /// A chunk of at least this size is mapped by the system; a smaller one is the allocator's.
    pub const MAPPED_LEAST: usize = 1 << 20;

    /// A chunk of `len` bytes, at least one; `None` if the system refuses memory.
    pub fn new(len: usize) -> Option<Chunk> {
        assert!(len > 0);
        let layout =
            Layout::from_size_align(len, Chunk::ALIGN).expect("a record is far below isize::MAX");
        let (start, pages) = if len >= Chunk::MAPPED_LEAST && !cfg!(miri) {
            let mut pages = MmapMut::map_anon(len).ok()?;
            (NonNull::new(pages.as_mut_ptr())?, Some(pages))
        } else {
            // SAFETY: the layout's size is not zero.
            (NonNull::new(unsafe { alloc(layout) })?, None)
        };
        Some(Chunk {
            start,
            layout,
            pages,
        })
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of a byte of it, or of its end.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len(), "outside the chunk");
        // SAFETY: it is an address of the chunk, or its end.
        unsafe { self.start.add(offset) }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Whether the system has provided the first pages of a mapped chunk.
    #[cfg(test)]
    pub fn is_populated(&self) -> bool {
        let pages = self.pages.as_ref();
        pages.is_some_and(|pages| is_resident(&pages[..64 * 4_096]))
    }

    /// Has the system provide all pages of a mapped chunk, so that no access waits for one. Where it cannot, the first
    /// access to a page still does.
    pub fn populate(&self) {
        #[cfg(target_os = "linux")]
        let _ = (self.pages.as_ref()).map(|pages| pages.advise(memmap2::Advice::PopulateWrite));
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.pages.is_none() {
            // SAFETY: allocated with this layout in `Chunk::new`, and freed only here.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// Zeroed memory, or an error if there is no memory: for lengths that come from files. Most of a long one takes no memory
/// before it is stored to.
pub fn zeros(len: usize) -> error::Result<Vec<u8>> {
    let refused = || Error::out_of_memory(len);
    let layout = Layout::array::<u8>(len).map_err(|_| refused())?;
    if len == 0 {
        return Ok(vec![]);
    }
    // SAFETY: the layout's size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
    // SAFETY: the allocator has given `len` bytes there, by the layout by which a vector frees them, and all are set.
    Ok(unsafe { Vec::from_raw_parts(start.as_ptr(), len, len) })
}

/// Reads the pages of a map's bytes into memory, so that a failing device is an error here, not a signal at the first
/// access. If the system evicts them later, the next access reads them again, and a failure then is still a signal.
/// Kernels before 5.14 do nothing.
pub fn fault_in(bytes: &[u8]) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(miri)))]
    if let Err(error @ (Errno::FAULT | Errno::IO | Errno::HWPOISON)) =
        advise(bytes, Advice::LinuxPopulateRead)
    {
        return Err(error.into());
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = bytes;
    // Otherwise the kernel does not know the call, or is short of memory: the access itself will show.
    Ok(())
}

/// Whether reading some bytes of a map needs no device now, as far as the system tells: of a file that this process may
/// neither write nor owns it says yes always. One call, of some hundred nanoseconds; more bytes than this asks about are
/// taken not to be there.
pub fn is_resident(bytes: &[u8]) -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        if SEEN.get().is_pretended() {
            return false;
        }
        const MOST_PAGES: usize = 128;
        let page = rustix::param::page_size();
        let lead = bytes.as_ptr() as usize % page;
        let pages = (lead + bytes.len()).div_ceil(page);
        let mut resident = [0; MOST_PAGES];
        if pages > MOST_PAGES {
            return false;
        }
        let from = bytes.as_ptr().wrapping_sub(lead).cast_mut().cast();
        // SAFETY: the call looks at no memory but `resident`, which has a byte for each page of the range.
        let done = unsafe { libc::mincore(from, lead + bytes.len(), resident.as_mut_ptr()) };
        done == 0 && resident[..pages].iter().all(|page| page & 1 != 0)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = bytes;
        false
    }
}

/// Tells the system that some bytes of a map are read soon, without waiting.
pub fn will_need(bytes: &[u8]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = advise(bytes, Advice::WillNeed);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = bytes;
}

/// Whether this thread recently had to read from a device. The system counts that for each thread, for calls and for
/// missing pages of maps; it is queried once in many calls.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub fn memory_is_short() -> bool {
    Seen::is_short_after(1)
}

/// The same for a caller that must not wait: queried more often, so that it waits for few pages before it knows.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub fn memory_was_short() -> bool {
    Seen::is_short_after(Seen::SOONER)
}

/// The same as of the last query, which is not repeated as long as memory was not short then.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub fn memory_was_known_short() -> bool {
    SEEN.get().is_short && memory_is_short()
}

#[cfg(all(target_os = "linux", not(miri)))]
thread_local! {
    static SEEN: Cell<Seen> = const { Cell::new(Seen { calls_left: 0, read: 0, is_short: false }) };
}

/// For tests: from now on memory is short for the calling thread, and nothing of a map is resident; or all is queried
/// again.
#[cfg(any(test, feature = "unstable-internals"))]
pub fn pretend_memory_is_short(is_short: bool) {
    #[cfg(all(target_os = "linux", not(miri)))]
    SEEN.set(Seen {
        calls_left: if is_short { Seen::PRETENDED } else { 0 },
        read: 0,
        is_short,
    });
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = is_short;
}

/// A thread's last query.
#[cfg(all(target_os = "linux", not(miri)))]
#[derive(Clone, Copy)]
struct Seen {
    /// Calls until the next query.
    calls_left: u32,
    /// [`device_waits`] at the last query.
    read: libc::c_long,
    is_short: bool,
}

#[cfg(all(target_os = "linux", not(miri)))]
impl Seen {
    /// More calls than any test makes, to the highest number.
    const PRETENDED: u32 = u32::MAX;
    /// A call that must not wait counts as so many.
    const SOONER: u32 = 16;

    #[inline]
    fn is_short_after(calls: u32) -> bool {
        let mut seen = SEEN.get();
        match seen.calls_left.checked_sub(calls) {
            Some(left) => seen.calls_left = left,
            None => seen.look(),
        }
        SEEN.set(seen);
        seen.is_short
    }

    /// Only a pretended query is that far away.
    fn is_pretended(&self) -> bool {
        self.calls_left > Seen::PRETENDED / 2
    }

    #[cold]
    fn look(&mut self) {
        let read = device_waits();
        (self.is_short, self.read) = (read > self.read, read);
        // A query costs as much as a get from memory.
        self.calls_left = if self.is_short { 64 } else { 512 };
    }
}

/// Other systems are not queried.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn memory_is_short() -> bool {
    false
}

/// Other systems are not queried: what is mapped may be on a device.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn memory_was_short() -> bool {
    true
}

/// Other systems are not queried: filters and indexes are taken to stay in memory.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn memory_was_known_short() -> bool {
    false
}

/// How often this thread waited for a device: blocks that it read, and pages for which another had asked.
#[cfg(all(target_os = "linux", not(miri)))]
fn device_waits() -> libc::c_long {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes no more than such a structure, for which all zeros are a value.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        let usage = usage.assume_init();
        usage.ru_inblock + usage.ru_majflt
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn advise(bytes: &[u8], advice: Advice) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let within = bytes.as_ptr() as usize % rustix::param::page_size();
    let start = bytes.as_ptr().wrapping_sub(within);
    // SAFETY: the advices above change no byte. They reach whole pages that hold a part of `bytes`, so they are mapped.
    unsafe { rustix::mm::madvise(start.cast_mut().cast(), within + bytes.len(), advice) }
}

/// Maps a finished, non-empty file: nobody writes or truncates it while it is mapped.
pub(super) fn map(file: &File, advice: memmap2::Advice) -> io::Result<Bytes> {
    // SAFETY: the file is finished (see this file's head).
    let map = unsafe { Mmap::map(file)? };
    let _ = map.advise(advice);
    Ok(Bytes::from_owner(map))
}

/// A ring in a mapped file.
pub(super) struct MappedRing {
    map: MmapRaw,
    len: usize,
}

impl MappedRing {
    /// Maps the first `len` bytes of a file, rounded up to a whole word; the file is at least as long.
    pub(super) fn new(file: &File, len: usize) -> io::Result<MappedRing> {
        let map = MmapOptions::new()
            .len(len.next_multiple_of(WORD))
            .map_raw(file)?;
        populate(&map)?;
        Ok(MappedRing { map, len })
    }

    /// The words of the map. The last one may reach past `len`, never past the page.
    fn words(&self) -> &[AtomicU64] {
        assert_eq!(
            size_of::<AtomicU64>(),
            WORD,
            "models have rings of their own"
        );
        // SAFETY: the map starts at a page, so words are aligned; it was made `len` rounded up to whole words long, and
        // it lives as long as `self`. Nothing else in this process reaches these bytes but through such words.
        unsafe {
            std::slice::from_raw_parts(
                self.map.as_ptr().cast::<AtomicU64>(),
                self.len.div_ceil(WORD),
            )
        }
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} lie outside a ring of {}",
            self.len
        );
    }
}

impl Ring for MappedRing {
    fn store(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        words::store(self.words(), offset, bytes);
    }

    fn append(&self, offset: usize, front: &[u8], back: &[u8]) {
        self.check(offset, front.len() + back.len());
        words::append(self.words(), offset, front, back);
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        words::load(self.words(), offset, out);
    }
}

/// Reads every page of a ring in, ready for stores. Kernels before 5.14 cannot; there the first store to a page takes
/// the fault.
#[cfg(target_os = "linux")]
fn populate(map: &MmapRaw) -> io::Result<()> {
    match map.advise(memmap2::Advice::PopulateWrite) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

#[cfg(not(target_os = "linux"))]
fn populate(_: &MmapRaw) -> io::Result<()> {
    Ok(())
}

/// Starts writeback of a range of a file, without waiting for it.
#[cfg(target_os = "linux")]
pub(super) fn start_writing(file: &File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd;
    let (fd, offset, len) = (file.as_raw_fd(), offset as i64, len as i64);
    // SAFETY: the call takes a descriptor, which `file` keeps open, and numbers; it touches no memory. A failure here
    // comes again in the file's sync: only a call that waits for pages takes note of their errors.
    let _ = unsafe { libc::sync_file_range(fd, offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn start_writing(_: &File, _: u64, _: u64) {}

/// Lowers the thread's priority at the device: the lowest level of the usual class, not the idle class, in which I/O
/// that a journal waits for would wait behind everything.
#[cfg(target_os = "linux")]
pub(super) fn lower_io_priority() -> io::Result<()> {
    const WHO_THREAD: libc::c_int = 1;
    const BEST_EFFORT: libc::c_int = 2 << 13;
    const LOWEST_LEVEL: libc::c_int = 7;
    // SAFETY: the call takes numbers and touches no memory; 0 is the calling thread.
    let done = unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            WHO_THREAD,
            0,
            BEST_EFFORT | LOWEST_LEVEL,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the calling thread's time slice and its `nice` value. Kernels before 6.12 support only the latter.
#[cfg(target_os = "linux")]
pub(super) fn set_slice(slice: std::time::Duration, nice: i32) -> io::Result<()> {
    const KEEP_POLICY: u64 = 8;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: KEEP_POLICY,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the call reads a structure that outlives it; the zeros are the calling thread and no flags.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
