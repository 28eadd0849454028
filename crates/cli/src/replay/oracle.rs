//! The writes of a trace, and the right answers, computed without the database.

use std::collections::HashMap;

use crate::tally::Window;

/// The expiry of an item that never expires.
pub const NEVER: Window = (u64::MAX, u64::MAX);

/// With fewer items it is not worth forgetting expired ones.
const FEW: usize = 1 << 16;

/// The last write of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The operation that made the value, see [`super::made`].
    pub number: u64,
    pub len: usize,
    pub expiry: Window,
}

/// All items that may be live.
#[derive(Default)]
pub struct Oracle {
    items: HashMap<Vec<u8>, Written>,
    /// The number of items at which the expired ones are forgotten.
    limit: usize,
}

impl Oracle {
    /// The last write; `None` if no live item can be there.
    pub fn last(&self, key: &[u8]) -> Option<Written> {
        self.items.get(key).copied()
    }

    /// `now`: no later operation begins earlier.
    pub fn write(&mut self, key: &[u8], written: Written, now: u64) {
        match self.items.get_mut(key) {
            Some(last) => *last = written,
            None => drop(self.items.insert(key.to_vec(), written)),
        }
        if self.items.len() > self.limit {
            self.items.retain(|_, written| written.expiry.1 > now);
            self.limit = (2 * self.items.len()).max(FEW);
        }
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.items.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_expired_is_forgotten() {
        let mut oracle = Oracle::default();
        let written = |number: u64, expiry| Written {
            number,
            len: 0,
            expiry,
        };
        oracle.write(b"stays", written(1, NEVER), 0);
        oracle.write(b"deleted", written(2, NEVER), 0);
        oracle.delete(b"deleted");
        for number in 0..4 * FEW as u64 {
            let item = written(number, (number, number + 1));
            oracle.write(&number.to_be_bytes(), item, number);
        }
        assert!(oracle.items.len() <= FEW + 1);
        assert_eq!(oracle.last(b"stays"), Some(written(1, NEVER)));
        assert_eq!(oracle.last(b"deleted"), None);
        let last = 4 * FEW as u64 - 1;
        assert!(oracle.last(&last.to_be_bytes()).is_some());
    }
}
