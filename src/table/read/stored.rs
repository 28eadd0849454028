//! The parts of a table, read and checked: shared by reader, verification and salvage.

use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use crate::base::coding::{ByteReader, Malformed};
use crate::base::{ContainerId, Error, Result, Seq, TableId};
use crate::table::encode::block::{Extent, TRAILER_LEN, Trailer};
use crate::table::encode::filter;
use crate::table::encode::format::{FOOTER_LEN, Footer};
use crate::table::encode::statistics::Statistics;
use crate::table::read::source::{Access, Source, Stored};

/// The manifest's row of a table: a file that differs is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its id.
    pub id: TableId,
    /// The container of its records.
    pub container: ContainerId,
    /// Bytes of the file.
    pub len: u64,
    /// The checksum of its footer.
    pub crc: u32,
}

impl Expected {
    /// The error for a file that is this one, and not `wanted`.
    fn unlike(&self, wanted: &Expected) -> String {
        if self.id != wanted.id {
            format!("this is table {}, not table {}", self.id.0, wanted.id.0)
        } else if self.container != wanted.container {
            let (own, wanted) = (self.container.0, wanted.container.0);
            format!("this table is of container {own}, not of container {wanted}")
        } else if self.len != wanted.len {
            let (own, wanted) = (self.len, wanted.len);
            format!("this table has {own} bytes, and the manifest names one of {wanted}")
        } else {
            "this is another table of the same name and length".to_owned()
        }
    }
}

impl Stored {
    /// The large value of `len` bytes at an extent, read and checked now.
    pub fn large_value(&self, footer: &Footer, extent: &Extent, len: usize) -> Result<Bytes> {
        let end = extent.offset.checked_add(extent.stored_len);
        let Some(end) = end.filter(|end| *end <= footer.filter_at) else {
            return Err(self.fault(extent.offset, "a large value lies outside the data"));
        };
        let bytes = self.view(&(extent.offset..end), Access::Sequential)?;
        self.check_value(extent, &bytes)?;
        let unpacked = extent.codec.unpack(bytes, len)?;
        unpacked.map_err(|what| self.fault(extent.offset, what))
    }

    /// The block at `place`, read and checked now.
    pub fn block(&self, place: &Range<u64>, access: Access) -> Result<(Bytes, Trailer)> {
        let block = self.part(place, access)?;
        let trailer = self.sound_trailer(place, &block)?;
        Ok((block, trailer))
    }

    /// The trailer of the block at `place`, which is checked now.
    pub fn sound_trailer(&self, place: &Range<u64>, block: &[u8]) -> Result<Trailer> {
        let trailer = self.trailer(place, block)?;
        let covered = &block[..block.len() - 4];
        self.check(place.start, covered, trailer.crc, "a block")?;
        Ok(trailer)
    }

    /// The trailer of the block at `place`.
    #[inline]
    pub fn trailer(&self, place: &Range<u64>, block: &[u8]) -> Result<Trailer> {
        Trailer::read(block).map_err(|bad| self.fault_in(place, bad))
    }

    /// The error for the block at `place`.
    #[cold]
    pub fn fault_in(&self, place: &Range<u64>, bad: Malformed) -> Error {
        self.fault(place.start, format!("{bad} of the block there"))
    }

    /// The decompressed body of a block.
    pub fn unpacked(&self, place: &Range<u64>, block: &Bytes, trailer: &Trailer) -> Result<Bytes> {
        let body = block.slice(..block.len() - TRAILER_LEN);
        let unpacked = trailer.codec.unpack(body, trailer.body_len)?;
        unpacked.map_err(|what| self.fault(place.start, what))
    }

    /// Checks the checksum of a large value's stored bytes.
    pub fn check_value(&self, extent: &Extent, stored: &[u8]) -> Result<()> {
        self.touch(stored)?;
        self.check(extent.offset, stored, extent.crc, "a large value")
    }
}

/// The bytes of a file that ends in a sound footer, and the footer with its checksum.
fn with_footer(source: Source, path: PathBuf) -> Result<(Stored, Footer, u32)> {
    let mut stored = Stored {
        source,
        path,
        identity: 0,
    };
    let (footer, crc) = stored.footer()?;
    stored.identity = footer.identity;
    Ok((stored, footer, crc))
}

/// The highest sequence number in a table of which no manifest says anything.
pub fn highest_seq(source: Source, path: PathBuf) -> Result<Seq> {
    let (stored, footer, _) = with_footer(source, path)?;
    Ok(read_statistics(&stored, &footer)?.census.seq_max)
}

/// Opens the bytes of a table: its footer must be sound and of the expected table.
pub fn open_stored(source: Source, path: PathBuf, expected: Expected) -> Result<(Stored, Footer)> {
    let (stored, footer, crc) = with_footer(source, path)?;
    let end = stored.source.len();
    let found = Expected {
        id: footer.id,
        container: footer.container,
        len: end,
        crc,
    };
    let footer_at = end - FOOTER_LEN as u64;
    if found != expected {
        return Err(stored.fault(footer_at, found.unlike(&expected)));
    }
    let filter_len = footer.index_at - footer.filter_at;
    if !filter_len.is_multiple_of(filter::FILTER_BLOCK_LEN as u64) {
        return Err(stored.fault(footer_at, "the filter has part of a block"));
    }
    Ok((stored, footer))
}

/// The statistics, checked against the file.
pub fn read_statistics(stored: &Stored, footer: &Footer) -> Result<Statistics> {
    let at = footer.statistics_at;
    let part = stored.part(
        &(at..stored.source.len() - FOOTER_LEN as u64),
        Access::Random,
    )?;
    stored.check(at, &part, footer.statistics_crc, "the statistics")?;
    let statistics = Statistics::decode(&mut ByteReader::new(&part))
        .map_err(|bad| stored.fault(at + bad.offset as u64, bad.what))?;
    let (blocks, large) = (statistics.blocks, statistics.large_values);
    let fit =
        blocks > 0 && blocks <= footer.filter_at / TRAILER_LEN as u64 && large <= footer.filter_at;
    if !fit {
        return Err(stored.fault(at, "more blocks than there is room for"));
    }
    Ok(statistics)
}
