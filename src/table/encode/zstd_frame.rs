//! zstd, where this build has it.

#[cfg(feature = "zstd")]
pub use with::{Packer, unpack};
#[cfg(not(feature = "zstd"))]
pub use without::{Packer, unpack};

#[cfg(feature = "zstd")]
mod with {
    use std::cell::RefCell;

    use zstd::bulk::{Compressor, Decompressor};
    use zstd::zstd_safe::{compress_bound, get_frame_content_size};

    use crate::base::Result;
    use crate::env::zeros;

    /// See [`Compression::Zstd`](crate::Compression), where the figures are.
    const LEVEL: i32 = 1;

    thread_local! {
        /// It has 160 KiB, and making one takes as long as decompressing a block.
        static DECOMPRESSOR: RefCell<Decompressor<'static>> = RefCell::default();
    }

    /// The content of a frame, which states that it has so many bytes; `None` when it is no such frame.
    pub fn unpack(stored: &[u8], len: usize) -> Result<Option<Vec<u8>>> {
        if !matches!(get_frame_content_size(stored), Ok(Some(stated)) if stated == len as u64) {
            return Ok(None);
        }
        let mut out = zeros(len)?;
        let unpacked =
            DECOMPRESSOR.with_borrow_mut(|zstd| zstd.decompress_to_buffer(stored, &mut out[..]));
        Ok(unpacked.is_ok_and(|found| found == len).then_some(out))
    }

    /// Compresses, and reuses its memory.
    #[derive(Default)]
    pub struct Packer(Option<Compressor<'static>>);

    impl Packer {
        /// Writes a frame to the start of `out`, which grows as it must; how long it is, or `None` where that fails.
        pub fn pack(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
            let room = compress_bound(bytes.len());
            if out.len() < room {
                out.resize(room, 0);
            }
            let zstd = match &mut self.0 {
                Some(zstd) => zstd,
                none => none.insert(Compressor::new(LEVEL).ok()?),
            };
            zstd.compress_to_buffer(bytes, &mut out[..]).ok()
        }
    }
}

#[cfg(not(feature = "zstd"))]
mod without {
    use crate::base::Result;
    use crate::values::Compression;

    pub fn unpack(_: &[u8], _: usize) -> Result<Option<Vec<u8>>> {
        Compression::Zstd.check(|| "what is stored".to_owned())?;
        unreachable!("this build has no zstd")
    }

    /// Compresses nothing: no container has this compression.
    #[derive(Default)]
    pub struct Packer;

    impl Packer {
        pub fn pack(&mut self, _: &[u8], _: &mut Vec<u8>) -> Option<usize> {
            None
        }
    }
}
