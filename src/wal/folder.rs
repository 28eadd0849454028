//! The files of a log, as recovery reads them. A file whose header, identity or number is not as expected is damaged.
//! If the header at its front is damaged, the one at its end is used.
//!
//! A file longer than any that the log writes is refused before memory for it is allocated.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use crate::base::{Error, Result, file_name};
use crate::env::Fs;
use crate::wal::chain::{LogStart, ring_name};
use crate::wal::frame::{
    Decoder, FORMAT_VERSION, HEADER_LEN, HeaderFault, RING_TAIL_LEN, RingMark, SYNCED_NOTE_LEN,
    SegmentHeader, SyncedNote,
};
use crate::wal::writer::RING_LEN_MAX;

/// A segment's file, read into memory.
pub struct Loaded {
    pub frames: Decoder,
    pub path: PathBuf,
    /// Header and frames, without the header at the end.
    pub bytes: Vec<u8>,
    /// The header at the front is damaged, and the one at the end counts.
    pub damage: Option<Error>,
}

impl Loaded {
    /// A segment's file of this number.
    fn of(number: u64, path: &Path, mut bytes: Vec<u8>) -> Result<Loaded> {
        let front = match SegmentHeader::decode(&bytes) {
            Err(HeaderFault::Version(found)) => return Err(unsupported(path.into(), found)),
            Err(HeaderFault::Malformed(fault)) => {
                Err(Error::corruption(path, fault.offset as u64, fault.what))
            }
            Ok(header) if header.number == number => Ok(header),
            Ok(_) => Err(Error::corruption(path, 0, "this is another log segment")),
        };
        let back_at = bytes.len().saturating_sub(HEADER_LEN).max(HEADER_LEN);
        let back = SegmentHeader::decode(&bytes[back_at.min(bytes.len())..]).ok();
        let back = back.filter(|header| header.number == number);
        // A file that was cut off ends in frames.
        if back.is_some() {
            bytes.truncate(back_at);
        }
        let (header, damage) = match (front, back) {
            (Ok(front), _) => (front, None),
            (Err(damage), Some(back)) => (back, Some(damage)),
            (Err(damage), None) => return Err(damage),
        };
        Ok(Loaded {
            frames: Decoder::new(header),
            path: path.into(),
            bytes,
            damage,
        })
    }
    pub fn header(&self) -> &SegmentHeader {
        &self.frames.segment
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn offset_of(&self, position: u64) -> u64 {
        HEADER_LEN as u64 + (position - self.header().start)
    }

    /// The bytes from a position on; empty if that is behind the file's end.
    pub fn from(&self, position: u64) -> &[u8] {
        let offset = usize::try_from(self.offset_of(position)).unwrap_or(usize::MAX);
        self.bytes.get(offset..).unwrap_or(&[])
    }
}

/// The folder with the files of a log.
pub struct Folder<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    /// The buffer of a segment that was read, for the next one.
    pub spare: Cell<Vec<u8>>,
}

/// The longest file of a segment, in bytes: a batch has at most half of it.
const SEGMENT_LEN_MAX: u64 = 2 << 30;

impl<'a> Folder<'a> {
    /// Reads nothing yet.
    pub fn new(fs: &'a dyn Fs, dir: &'a Path) -> Folder<'a> {
        Folder {
            fs,
            dir,
            spare: Cell::default(),
        }
    }

    pub fn path(&self, number: u64) -> PathBuf {
        self.dir.join(file_name::segment(number))
    }

    /// The bytes of a segment's file, if it exists.
    pub fn bytes(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(number);
        match self.fs.len(&path)? {
            Some(len) if len > SEGMENT_LEN_MAX => {
                let what = format!("no log segment is {len} bytes long");
                Err(Error::corruption(path, SEGMENT_LEN_MAX, what))
            }
            // Read, not mapped: an I/O error of the device must be an error of the open.
            Some(_) => Ok(Some(self.fs.read_into(&path, self.spare.take())?)),
            None => Ok(None),
        }
    }

    /// The segment that the manifest names.
    pub fn first(&self, log: &LogStart) -> Result<Loaded> {
        let found = self.segment(log.first)?;
        if found.header().identity != log.chain {
            let what = "this is not the log of this manifest, but of another database, or of another time of this one: \
                        put the folder back that belongs to it";
            return Err(Error::corruption(found.path, 0, what));
        }
        Ok(found)
    }

    /// A segment that was durable, so it is an error if it is missing.
    pub fn segment(&self, number: u64) -> Result<Loaded> {
        let path = self.path(number);
        let Some(bytes) = self.bytes(number)? else {
            return Err(Error::corruption(path, 0, "the log segment is missing"));
        };
        Loaded::of(number, &path, bytes)
    }

    /// The segment after this one, if it was begun and one of its headers is complete.
    pub fn next(&self, header: &SegmentHeader) -> Result<Option<Loaded>> {
        self.of_chain(header.identity, header.number + 1)
    }

    pub fn of_chain(&self, identity: u64, number: u64) -> Result<Option<Loaded>> {
        if self.peek(identity, number)?.is_none() {
            return Ok(None);
        }
        let path = self.path(number);
        match self.bytes(number)? {
            Some(bytes) => own(Loaded::of(number, &path, bytes), identity),
            None => Ok(None),
        }
    }

    /// [`Folder::of_chain`] without the frames: only the ends of the file are read.
    pub fn peek(&self, identity: u64, number: u64) -> Result<Option<Loaded>> {
        let path = self.path(number);
        if self.fs.len(&path)?.is_none() {
            return Ok(None);
        }
        let ends = self.fs.read_ends(&path, HEADER_LEN)?;
        own(Loaded::of(number, &path, ends), identity)
    }
}

/// A segment, if it is one of this chain.
fn own(found: Result<Loaded>, identity: u64) -> Result<Option<Loaded>> {
    match found {
        Ok(found) if found.header().identity == identity => Ok(Some(found)),
        Err(error @ Error::UnsupportedFormat { .. }) => Err(error),
        _ => Ok(None),
    }
}

fn unsupported(path: PathBuf, found: u32) -> Error {
    Error::UnsupportedFormat {
        path,
        found,
        supported: FORMAT_VERSION,
    }
}

/// The ring's bytes, twice over, so that every lap is one contiguous slice.
pub struct Ring {
    pub len: usize,
    /// None where all are zero.
    twice: Vec<u8>,
    /// The note behind the ring.
    pub note: Option<SyncedNote>,
    /// The error, if the chain has a ring whose file is missing.
    pub missing: Option<Error>,
}

impl Ring {
    pub fn of_chain(fs: &dyn Fs, dir: &Path, log: &LogStart) -> Result<Ring> {
        let mut ring = Ring {
            len: 0,
            twice: vec![],
            note: None,
            missing: None,
        };
        let Some(number) = log.ring else {
            return Ok(ring);
        };
        let path = dir.join(ring_name(number));
        let found = fs.len(&path)?;
        // Memory is not allocated before the length shows that this is a ring.
        if found.is_some_and(|len| (RING_TAIL_LEN as u64..=RING_LEN_MAX as u64).contains(&len)) {
            let mut bytes = fs.read_into(&path, vec![])?;
            let len = bytes.len().saturating_sub(RING_TAIL_LEN);
            let (note, mark) = bytes[len..].split_at(SYNCED_NOTE_LEN.min(bytes.len() - len));
            let identity = log.chain;
            if (RingMark { identity }).is(mark) {
                ring.note = SyncedNote::decode(identity, note);
                ring.len = len;
                // Drained frames are zeroed, so mostly nothing is left.
                if zeros(&bytes[..len]) < len {
                    bytes.truncate(len);
                    bytes.extend_from_within(..);
                    ring.twice = bytes;
                }
                return Ok(ring);
            }
        }
        let what = match found {
            None => "the log was written through this ring, which is missing",
            Some(_) => "the log was written through a ring of this name, and this is not it",
        };
        ring.missing = Some(Error::corruption(path, 0, what));
        Ok(ring)
    }

    /// Fails if the chain has a ring whose file is missing.
    pub fn check(&self) -> Result<()> {
        self.missing.clone().map_or(Ok(()), Err)
    }

    /// One lap, from a position on; empty where no frame is in the ring.
    pub fn from(&self, position: u64) -> &[u8] {
        if self.twice.is_empty() {
            return &[];
        }
        let at = (position % self.len as u64) as usize;
        &self.twice[at..at + self.len]
    }
}

/// The number of leading zeros: no frame begins with one, and most of the searched bytes are zero, because files are
/// allocated ahead.
pub fn zeros(bytes: &[u8]) -> usize {
    if bytes.first().is_none_or(|first| *first != 0) {
        return 0;
    }
    // A block is folded without a branch, by whole registers.
    let (blocks, _) = bytes.as_chunks::<256>();
    let is_zero = |block: &&[u8; 256]| block.iter().fold(0, |all, byte| all | byte) == 0;
    let whole = 256 * blocks.iter().take_while(is_zero).count();
    whole + bytes[whole..].iter().take_while(|byte| **byte == 0).count()
}
