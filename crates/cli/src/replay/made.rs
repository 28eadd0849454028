//! Generated values for a trace, which has only their lengths: the number of the operation that wrote one, then
//! pseudo-random bytes computed from it. So values need not be kept to be recognized.

use std::iter::{once, repeat_with};

use crate::random::Random;

/// The value of `len` bytes that operation `number` writes.
pub fn value(number: u64, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len.next_multiple_of(8));
    for word in words(number).take(len.div_ceil(8)) {
        value.extend_from_slice(&word);
    }
    value.truncate(len);
    value
}

/// Whether `value` is the value of `len` bytes that operation `number` wrote.
pub fn is(value: &[u8], number: u64, len: usize) -> bool {
    let mut parts = value.chunks(8).zip(words(number));
    value.len() == len && parts.all(|(part, word)| *part == word[..part.len()])
}

fn words(number: u64) -> impl Iterator<Item = [u8; 8]> {
    let mut random = Random::new(number);
    once(number)
        .chain(repeat_with(move || random.next()))
        .map(u64::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_again() {
        for len in [0, 1, 7, 8, 9, 100] {
            let made = value(300, len);
            assert_eq!(made.len(), len);
            assert!(is(&made, 300, len));
            assert!(!is(&made, 300, len + 1));
            assert_eq!(is(&made, 301, len), len == 0);
        }
        let mut other = value(300, 100);
        other[99] ^= 1;
        assert!(!is(&other, 300, 100));
    }
}
