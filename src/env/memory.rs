//! Memory: pages of the program's own, and where bytes are that are read soon: in the processor's cache, and of maps in
//! memory at all.

#![allow(unsafe_code)]

#[cfg(all(target_os = "linux", not(miri)))]
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

use memmap2::MmapMut;

use crate::base::error::{self, Error};
#[cfg(all(target_os = "linux", not(miri)))]
use rustix::{io::Errno, mm::Advice};

/// Memory of its own, from a page's start on. It takes none before it is touched, and goes back to the system when it is
/// dropped, not to the allocator, which would keep what is below something that is still in use.
#[derive(Debug)]
pub struct Pages {
    map: MmapMut,
}

impl Pages {
    /// `len` bytes, more than none; nothing when the system does not give them.
    pub fn new(len: usize) -> Option<Pages> {
        MmapMut::map_anon(len).ok().map(|map| Pages { map })
    }

    /// The first byte.
    pub fn start(&mut self) -> NonNull<u8> {
        NonNull::new(self.map.as_mut_ptr()).expect("nothing is mapped at address 0")
    }
}

/// So many zeros, or the error that there is no memory for them: for lengths that come from outside.
pub fn zeros(len: usize) -> error::Result<Vec<u8>> {
    let mut bytes = vec![];
    bytes
        .try_reserve_exact(len)
        .map_err(|_| Error::out_of_memory(len))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Brings what lies there into the cache, where the processor knows how to be asked. What is not in memory stays where it
/// is.
#[inline]
pub fn prefetch<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Brings the pages of some bytes into memory, if a map is behind them, so that the device's failure is an error here and
/// no signal at the first access. What the system evicts later is read again at the next access, and a failure then is a
/// signal: that window is left. Kernels before 5.14 do nothing.
pub fn fault_in(bytes: &[u8]) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(miri)))]
    if let Err(error @ (Errno::FAULT | Errno::IO | Errno::HWPOISON)) =
        advise(bytes, Advice::LinuxPopulateRead)
    {
        return Err(error.into());
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = bytes;
    // Else the kernel does not know the call, or is short of memory: the access itself will tell.
    Ok(())
}

/// Says that some bytes of a map are read soon, and does not wait for them.
pub fn will_need(bytes: &[u8]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = advise(bytes, Advice::WillNeed);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = bytes;
}

/// Whether this thread had to read from a device of late. The system counts that for each thread, by calls or because a
/// page of a map was not in memory; it is asked once in so many calls.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub fn memory_is_short() -> bool {
    thread_local!(static SEEN: Cell<Seen> = const { Cell::new(Seen { calls_left: 0, read: 0, is_short: false }) });
    let mut seen = SEEN.get();
    match seen.calls_left.checked_sub(1) {
        Some(left) => seen.calls_left = left,
        None => seen.look(),
    }
    SEEN.set(seen);
    seen.is_short
}

/// What a thread knows of its reading.
#[cfg(all(target_os = "linux", not(miri)))]
#[derive(Clone, Copy)]
struct Seen {
    /// Until the system is asked again.
    calls_left: u32,
    /// From devices, when it was asked last.
    read: libc::c_long,
    is_short: bool,
}

#[cfg(all(target_os = "linux", not(miri)))]
impl Seen {
    #[cold]
    fn look(&mut self) {
        let read = blocks_read();
        (self.is_short, self.read) = (read > self.read, read);
        // Asking costs as much as a get from memory.
        self.calls_left = if self.is_short { 64 } else { 512 };
    }
}

/// Elsewhere nobody is asked.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn memory_is_short() -> bool {
    false
}

/// By this thread, from devices.
#[cfg(all(target_os = "linux", not(miri)))]
fn blocks_read() -> libc::c_long {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes no more than such a structure, for which all zeros are a value.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_inblock
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
