//! The room of a lending call: how many items and bytes it is to lend. Its limits stay as long as the call, and what
//! was taken only grows, but for items that are taken back.

/// How much a call has lent, and how much it is to lend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    pub(super) items: usize,
    /// The bytes of keys and values.
    pub(super) bytes: usize,
    pub(super) enough: usize,
    pub(super) most: usize,
    pub(super) full_bytes: usize,
}

impl Room {
    /// Whether nothing more is to be lent.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.items >= self.enough || self.bytes >= self.full_bytes
    }

    /// How many more items there is room for, if they cost next to nothing.
    #[inline]
    pub fn items(&self) -> usize {
        self.most.saturating_sub(self.items)
    }

    /// Takes room for so many items of so many bytes together, unless they would fill it by their bytes.
    #[inline]
    pub fn take_all(&mut self, items: usize, bytes: usize) -> bool {
        let fits = self.bytes + bytes < self.full_bytes;
        if fits {
            self.items += items;
            self.bytes += bytes;
        }
        fits
    }

    /// Takes room for an item of so many bytes.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes;
    }
}
