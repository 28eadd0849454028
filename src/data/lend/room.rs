//! The room of a lending call: how many items and bytes it is to lend.
//!
//! Invariant: its limits stay as long as the call. What was taken grows, but for items that are taken back.

/// How much a call has lent, and how much it is to lend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    items: usize,
    /// The bytes of keys and values.
    bytes: usize,
    enough: usize,
    most: usize,
    full_bytes: usize,
}

impl Room {
    /// For items one by one up to `enough`, slices of records as long as there is not enough and up to `most` items, and
    /// no more when keys and values come to `full_bytes`.
    pub fn new((enough, most): (usize, usize), full_bytes: usize) -> Room {
        Room {
            enough,
            most,
            full_bytes,
            ..Room::default()
        }
    }

    /// How many items were taken.
    #[inline(always)]
    pub fn taken(&self) -> usize {
        self.items
    }

    /// How many items are missing to enough.
    #[inline]
    pub fn missing(&self) -> usize {
        self.enough.saturating_sub(self.items)
    }

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

    /// Takes back an item of so many bytes.
    pub fn take_back(&mut self, bytes: usize) {
        self.items -= 1;
        self.bytes -= bytes;
    }
}
