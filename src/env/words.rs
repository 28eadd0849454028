//! Bytes in shared words: concurrent stores to other bytes of the same word are not lost.
//!
//! Everything is relaxed; the caller orders stores and loads of the same bytes.

use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
pub const WORD: usize = size_of::<u64>();

/// Stores part of a word: the bytes of `value` under `mask`. Only the difference is applied, so that the others keep
/// concurrent stores.
#[inline]
fn store_part(word: &AtomicU64, value: u64, mask: u64) {
    let before = word.load(Ordering::Relaxed);
    word.fetch_xor((before ^ value) & mask, Ordering::Relaxed);
}

/// Stores `bytes` from byte `within` of a word on, which has room for them.
fn store_few(word: &AtomicU64, within: usize, bytes: &[u8]) {
    let (mut value, mut mask) = ([0; WORD], [0; WORD]);
    value[within..within + bytes.len()].copy_from_slice(bytes);
    mask[within..within + bytes.len()].fill(0xff);
    store_part(word, u64::from_ne_bytes(value), u64::from_ne_bytes(mask));
}

/// The mask of the bytes of a word from byte `from` on, in the order of memory.
#[inline]
fn from_byte(from: usize) -> u64 {
    (u64::MAX << (8 * from)).to_le()
}

/// Stores whole words, the first of `words`, of which there are enough.
#[inline(always)]
fn store_whole(words: &[AtomicU64], bytes: &[[u8; WORD]]) {
    let store = |words: &[AtomicU64], bytes: &[[u8; WORD]]| {
        for (word, bytes) in words.iter().zip(bytes) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    };
    // Four at a time: the compiler does not unroll a loop over single ones.
    let (fours, few) = words[..bytes.len()].as_chunks::<4>();
    let (bytes_of_fours, bytes_of_few) = bytes.as_chunks::<4>();
    for (words, bytes) in fours.iter().zip(bytes_of_fours) {
        store(words, bytes);
    }
    store(few, bytes_of_few);
}

/// Copies `bytes` to `offset`, in bytes.
pub fn store(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    let (mut at, within) = (offset / WORD, offset % WORD);
    let (Some(first), Some(last)) = (bytes.first_chunk::<WORD>(), bytes.last_chunk::<WORD>())
    else {
        return store_short(words, offset, bytes);
    };
    let mut rest = bytes;
    if within > 0 {
        // The first eight bytes, moved up to their place.
        let value = u64::from_le_bytes(*first) << (8 * within);
        store_part(&words[at], value.to_le(), from_byte(within));
        (at, rest) = (at + 1, &bytes[WORD - within..]);
    }
    let (middle, tail) = rest.as_chunks::<WORD>();
    store_whole(&words[at..], middle);
    if !tail.is_empty() {
        // The last eight bytes, moved down to their place.
        let value = u64::from_le_bytes(*last) >> (8 * (WORD - tail.len()));
        store_part(
            &words[at + middle.len()],
            value.to_le(),
            !from_byte(tail.len()),
        );
    }
}

/// Copies `front` to `offset`, and `back` behind it, where nobody else stores up to the end of the last word: what that has
/// left is zero afterwards. So of all words only the first is shared, and takes a read-modify-write.
#[inline(always)]
pub fn append(words: &[AtomicU64], offset: usize, front: &[u8], back: &[u8]) {
    let (Some(first), Some(last), Some(next), Some(end)) = (
        front.first_chunk::<WORD>(),
        front.last_chunk::<WORD>(),
        back.first_chunk::<WORD>(),
        back.last_chunk::<WORD>(),
    ) else {
        store(words, offset, front);
        return store(words, offset + front.len(), back);
    };
    let (mut at, within, mut rest) = (offset / WORD, offset % WORD, front);
    if within > 0 {
        let value = u64::from_le_bytes(*first) << (8 * within);
        store_part(&words[at], value.to_le(), from_byte(within));
        (at, rest) = (at + 1, &front[WORD - within..]);
    }
    let (middle, tail) = rest.as_chunks::<WORD>();
    store_whole(&words[at..], middle);
    (at, rest) = (at + middle.len(), back);
    if !tail.is_empty() {
        // The last bytes of the front, moved down, and the first ones of the back, moved up.
        let end = u64::from_le_bytes(*last) >> (8 * (WORD - tail.len()));
        let start = u64::from_le_bytes(*next) << (8 * tail.len());
        words[at].store((end | start).to_le(), Ordering::Relaxed);
        (at, rest) = (at + 1, &back[WORD - tail.len()..]);
    }
    let (middle, tail) = rest.as_chunks::<WORD>();
    store_whole(&words[at..], middle);
    if !tail.is_empty() {
        let value = u64::from_le_bytes(*end) >> (8 * (WORD - tail.len()));
        words[at + middle.len()].store(value.to_le(), Ordering::Relaxed);
    }
}

/// Copies fewer bytes than a word has, which may be in two.
fn store_short(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    let within = offset % WORD;
    let (front, back) = bytes.split_at(bytes.len().min(WORD - within));
    for (word, within, part) in [(0, within, front), (1, 0, back)] {
        if !part.is_empty() {
            store_few(&words[offset / WORD + word], within, part);
        }
    }
}

/// Loads whole words, the first of `words`, of which there are enough.
#[inline(always)]
fn load_whole(words: &[AtomicU64], bytes: &mut [[u8; WORD]]) {
    let load = |words: &[AtomicU64], bytes: &mut [[u8; WORD]]| {
        for (word, bytes) in words.iter().zip(bytes) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    };
    // Four at a time, as they are stored.
    let (fours, few) = words[..bytes.len()].as_chunks::<4>();
    let (bytes_of_fours, bytes_of_few) = bytes.as_chunks_mut::<4>();
    for (words, bytes) in fours.iter().zip(bytes_of_fours) {
        load(words, bytes);
    }
    load(few, bytes_of_few);
}

/// Copies `out.len()` bytes from `offset`.
pub fn load(words: &[AtomicU64], offset: usize, out: &mut [u8]) {
    let (mut at, within) = (offset / WORD, offset % WORD);
    let bytes_at = |at: usize| words[at].load(Ordering::Relaxed).to_ne_bytes();
    let head = (offset.wrapping_neg() % WORD).min(out.len());
    let (head, rest) = out.split_at_mut(head);
    if !head.is_empty() {
        head.copy_from_slice(&bytes_at(at)[within..within + head.len()]);
        at += 1;
    }
    let (middle, tail) = rest.as_chunks_mut::<WORD>();
    load_whole(&words[at..], middle);
    if !tail.is_empty() {
        tail.copy_from_slice(&bytes_at(at + middle.len())[..tail.len()]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Goal: the bytes stored, and no others, are changed, wherever they begin and end in a word. Method: all places and
    /// lengths up to some words, over bytes that are all different from those stored.
    #[test]
    fn what_is_stored_is_there_and_nothing_else_is_touched() {
        let stored: Vec<u8> = (1..=40).collect();
        for offset in 0..2 * WORD {
            for len in 0..=stored.len() {
                let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(u64::MAX)).collect();
                store(&words, offset, &stored[..len]);
                let mut expected = [0xff; 8 * WORD];
                expected[offset..offset + len].copy_from_slice(&stored[..len]);
                let mut all = [0; 8 * WORD];
                load(&words, 0, &mut all);
                assert_eq!(all, expected, "{len} bytes at {offset}");
            }
        }
    }

    /// Goal: what is appended lies behind what is there, keeps it, and leaves zeros up to the end of its last word, whatever
    /// was there. Method: all places, and all lengths of the two parts.
    #[test]
    fn what_is_appended_lies_behind_what_is_there() {
        let stored: Vec<u8> = (1..=40).collect();
        for offset in 0..WORD {
            for (len, cut) in (0..=40).flat_map(|len| (0..=len).map(move |cut| (len, cut))) {
                let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(u64::MAX)).collect();
                let (front, back) = stored[..len].split_at(cut);
                append(&words, offset, front, back);
                let end = offset + len;
                let mut expected = [0xff; 8 * WORD];
                expected[offset..end].copy_from_slice(&stored[..len]);
                let mut all = [0; 8 * WORD];
                load(&words, 0, &mut all);
                let free = end..end.next_multiple_of(WORD);
                // Parts shorter than a word are stored byte by byte, and leave the free bytes as they were.
                if cut >= WORD && len - cut >= WORD {
                    expected[free].fill(0);
                }
                assert_eq!(all, expected, "{cut} of {len} bytes at {offset}");
            }
        }
    }
}
