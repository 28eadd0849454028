//! Any bytes as a stream of choices. At its end the stream goes on as zeros, so that every input is whole.

/// The rest of an input.
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Input { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Up to `len` bytes.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn number<const LEN: usize>(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(LEN);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    pub fn u8(&mut self) -> u8 {
        self.number::<1>() as u8
    }

    pub fn u16(&mut self) -> u16 {
        self.number::<2>() as u16
    }

    pub fn u64(&mut self) -> u64 {
        self.number::<8>()
    }

    /// A number below `n`, which is at most 256: one byte.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// A number of any size, small ones as likely as large ones: a byte says how many more bytes it has.
    pub fn any_size(&mut self) -> u64 {
        match self.below(5) {
            0 => self.number::<1>(),
            1 => self.number::<2>(),
            2 => self.number::<4>(),
            3 => self.number::<8>(),
            _ => u64::MAX - self.number::<1>(),
        }
    }
}
