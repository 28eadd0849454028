//! Prefetching: what is read soon is on its way to the caches meanwhile.

// An intrinsic of the processor.
#![allow(unsafe_code)]

/// Prefetches what is at this address into the cache, where the processor can. Pages that are not in memory are not
/// read.
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

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the cache lines of so many first bytes.
#[inline(always)]
pub fn prefetch_first(bytes: &[u8], most: usize) {
    let lines = bytes.chunks(LINE).take(most / LINE);
    lines.for_each(|line| prefetch(&line[0]));
}

/// Prefetches the cache lines of so many last bytes.
#[inline(always)]
pub fn prefetch_last(bytes: &[u8], most: usize) {
    let lines = bytes.rchunks(LINE).take(most / LINE);
    lines.for_each(|line| prefetch(&line[line.len() - 1]));
}

/// Prefetches the two cache lines that begin at this place in the bytes, if they have both.
#[inline(always)]
pub fn prefetch_lines(bytes: &[u8], at: usize) {
    let behind = bytes.get(at..);
    if let Some(lines) = behind.and_then(|behind| behind.first_chunk::<65>()) {
        prefetch(&lines[0]);
        prefetch(&lines[64]);
    }
}
