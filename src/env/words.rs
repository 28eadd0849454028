//! Bytes in shared words: concurrent stores to other bytes of the same word are not lost.
//!
//! Everything is relaxed; the caller orders stores and loads of the same bytes.

use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
pub const WORD: usize = size_of::<u64>();

/// Stores part of the first word: `bytes`, fewer than a word has after `within`. Only the difference is applied, so
/// that other bytes of the word keep concurrent stores.
#[inline]
fn store_edge(words: &[AtomicU64], within: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let before = words[0].load(Ordering::Relaxed).to_ne_bytes();
    let mut changed = [0; WORD];
    for ((changed, before), byte) in changed[within..]
        .iter_mut()
        .zip(&before[within..])
        .zip(bytes)
    {
        *changed = before ^ byte;
    }
    words[0].fetch_xor(u64::from_ne_bytes(changed), Ordering::Relaxed);
}

/// Copies `bytes` to `offset`, in bytes.
pub fn store(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    let (mut at, mut rest) = (offset / WORD, bytes);
    let within = offset % WORD;
    if within > 0 || rest.len() < WORD {
        let (edge, behind) = rest.split_at(rest.len().min(WORD - within));
        store_edge(&words[at..], within, edge);
        (at, rest) = (at + 1, behind);
    }
    let (middle, tail) = rest.as_chunks::<WORD>();
    for (word, bytes) in words[at..].iter().zip(middle) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    store_edge(&words[at + middle.len()..], 0, tail);
}

/// Copies `out.len()` bytes from `offset`.
pub fn load(words: &[AtomicU64], offset: usize, out: &mut [u8]) {
    let mut words = words[offset / WORD..].iter();
    let mut next = || {
        words
            .next()
            .map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .expect("the range was checked")
    };
    let within = offset % WORD;
    let head = (offset.wrapping_neg() % WORD).min(out.len());
    let (head, rest) = out.split_at_mut(head);
    if !head.is_empty() {
        head.copy_from_slice(&next()[within..within + head.len()]);
    }
    let (middle, tail) = rest.as_chunks_mut::<WORD>();
    for bytes in middle {
        *bytes = next();
    }
    if !tail.is_empty() {
        tail.copy_from_slice(&next()[..tail.len()]);
    }
}
