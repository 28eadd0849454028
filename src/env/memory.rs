//! Where bytes are that are read soon: in the processor's cache, and of maps in memory at all.

#![allow(unsafe_code)]

use std::io;

#[cfg(all(target_os = "linux", not(miri)))]
use rustix::{io::Errno, mm::Advice};

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
