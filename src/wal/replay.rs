//! Reading a chain back. Nothing is written, appended or repaired.
//!
//! The frames are walked from the first segment on. At every position the next frame is looked for in the segment's
//! file, then in the ring. Where neither has one, the segment is over; if the next one of the chain starts here, the walk
//! goes on in it. Else the log ends here, and all that lies behind, in segments and in the ring, is searched for a
//! *witness*: a whole frame whose watermark is beyond the end. The note behind the ring, of how far the log was synced, is
//! one too, and so is what the manifest says of that.
//!
//! Behind a header that is damaged the frames of a segment are found as well, where it starts at the end of the one before
//! it. But nobody knows what their numbers are counted from: they bear witness, and their numbers count for nothing.
//!
//! How much is read into memory is what files of the log may have, not what the file system says that they have.

use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::base::coding::Malformed;

use crate::base::{Error, Result, Seq, Timestamp, file_name};
use crate::env::Fs;
use crate::wal::frame::{
    Decoded, Decoder, FORMAT_VERSION, FRAME_LEN_MIN, FrameHead, FrameKind, HEADER_LEN, HeaderFault,
    NoFrame, Position, RING_TAIL_LEN, RingMark, SYNCED_NOTE_LEN, SegmentHeader, SyncedNote,
};
use crate::wal::segments::{LogStart, parse_ring, ring_name};
use crate::wal::writer::RING_LEN_MAX;

/// A frame, as replay shows it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Everything but the payload.
    pub head: FrameHead,
    /// What was appended.
    pub payload: &'a [u8],
    /// The segment to which it belongs.
    pub path: &'a Path,
    /// Where it starts there.
    pub offset: u64,
}

impl Frame<'_> {
    /// What to say of a payload that is whole and makes no sense.
    pub fn corruption(&self, malformed: &Malformed) -> Error {
        let what = format!("in the log frame that starts here, {malformed}");
        Error::corruption(self.path, self.offset, what)
    }
}

/// What a segment held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// In the file's name.
    pub number: u64,
    /// The highest sequence number in it; 0 when it has no frame.
    pub last_seq: Seq,
    /// Bytes of its frames.
    pub bytes: u64,
}

/// What replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The highest sequence number; 0 when there was no frame.
    pub last_seq: Seq,
    /// The highest settled time.
    pub mark: Timestamp,
    /// The highest edit number: a manifest that ends before it is damaged.
    pub edit: u64,
    /// The log was closed, and is whole.
    pub clean: bool,
    /// Where more was begun than is there: the tail of a power cut.
    pub torn: Option<(PathBuf, u64)>,
    /// Above every number in the folder, and that of the first segment: where the next chain may start.
    pub next_segment: u64,
    /// Where its frames end.
    pub end: Position,
    /// The segments of the chain up to its end.
    pub segments: Vec<SegmentSummary>,
}

/// Shows every frame of a chain of which no manifest says anything, from segment `first_segment` to the chain's end, in
/// order. The frames shown before an error count for nothing.
pub fn replay(
    fs: &dyn Fs,
    dir: &Path,
    first_segment: u64,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<Replayed> {
    let rings = fs.list(dir)?;
    let rings = rings.iter().filter_map(|name| parse_ring(name));
    let first = Folder::new(fs, dir).segment(first_segment)?;
    let log = LogStart {
        chain: first.header().identity,
        first: first_segment,
        ring: rings.filter(|&number| number <= first_segment).max(),
    };
    match salvage(fs, dir, Some(log), Position(0), visit)? {
        (replayed, None) => Ok(replayed),
        (_, Some(damage)) => Err(damage),
    }
}

/// As [`replay`], but damage of the log is not the end: it is returned beside what was found, which is all before it.
/// Numbers and marks are those of whole frames behind it too, where they are higher. A log that ends before `synced`, up
/// to where its manifest knows that it was synced, is damaged. Where there is no log, nothing is found.
pub fn salvage(
    fs: &dyn Fs,
    dir: &Path,
    log: Option<LogStart>,
    synced: Position,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<(Replayed, Option<Error>)> {
    // Without the folder the first segment is missing.
    let names = match fs.is_dir(dir) {
        true => fs.list(dir)?,
        false => vec![],
    };
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| file_name::parse_segment(name))
        .collect();
    numbers.sort_unstable();
    let rings = names.iter().filter_map(|name| parse_ring(name));
    let highest = numbers.iter().copied().chain(rings).max();
    let first = log.map_or(0, |log| log.first);
    let out = Replayed {
        next_segment: highest.unwrap_or(0).max(first) + 1,
        ..Replayed::default()
    };
    let Some(log) = log else {
        return Ok((out, None));
    };
    let mut walk = Walk {
        folder: Folder::new(fs, dir),
        ring: Ring::of_chain(fs, dir, &log)?,
        synced,
        out,
        of_ring: 0..0,
    };
    let mut segment = match walk.folder.first(&log) {
        Ok(segment) => segment,
        Err(damage @ Error::Corruption { .. }) => {
            walk.look_behind(log.chain, &numbers)?;
            return Ok((walk.out, Some(damage)));
        }
        Err(error) => return Err(error),
    };
    let mut damage = None;
    loop {
        let end = walk.segment(&segment, visit)?;
        if walk.out.clean {
            break;
        }
        let next = walk.folder.next(segment.header())?;
        match next {
            Some(next) if next.header().start == end => {
                let read = std::mem::replace(&mut segment, next);
                walk.folder.spare.set(read.bytes);
            }
            _ => {
                let later = numbers.partition_point(|&number| number <= segment.header().number);
                damage = walk.judge_end(&segment, end, &numbers[later..])?;
                break;
            }
        }
    }
    Ok((walk.out, damage))
}

/// A segment's file.
pub(super) struct Loaded {
    frames: Decoder,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Loaded {
    pub(super) fn header(&self) -> &SegmentHeader {
        &self.frames.segment
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn offset_of(&self, position: u64) -> u64 {
        HEADER_LEN as u64 + (position - self.header().start)
    }

    /// The bytes from a position on; none when that is behind the file's end.
    fn from(&self, position: u64) -> &[u8] {
        let offset = usize::try_from(self.offset_of(position)).unwrap_or(usize::MAX);
        self.bytes.get(offset..).unwrap_or(&[])
    }
}

pub(super) struct Folder<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    /// Of a segment that was read, for one that will be.
    spare: Cell<Vec<u8>>,
}

/// No segment's file is longer, in bytes: a batch has at most half of it.
const SEGMENT_LEN_MAX: u64 = 2 << 30;

impl<'a> Folder<'a> {
    pub(super) fn new(fs: &'a dyn Fs, dir: &'a Path) -> Folder<'a> {
        Folder {
            fs,
            dir,
            spare: Cell::default(),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(file_name::segment(number))
    }

    /// The bytes of a segment's file, when there is one.
    fn bytes(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(number);
        match self.fs.len(&path)? {
            Some(len) if len > SEGMENT_LEN_MAX => {
                let what = format!("no log segment is {len} bytes long");
                Err(Error::corruption(path, SEGMENT_LEN_MAX, what))
            }
            // Not by a map: a device that fails while a database is opened is an error.
            Some(_) => Ok(Some(self.fs.read_into(&path, self.spare.take())?)),
            None => Ok(None),
        }
    }

    /// The segment that the manifest names.
    pub(super) fn first(&self, log: &LogStart) -> Result<Loaded> {
        let found = self.segment(log.first)?;
        if found.header().identity != log.chain {
            let what = "this is not the log of this manifest, but of another database, or of another time of this one: \
                        put the folder back that belongs to it";
            return Err(Error::corruption(found.path, 0, what));
        }
        Ok(found)
    }

    /// A segment that was durable, so that nothing excuses its absence.
    fn segment(&self, number: u64) -> Result<Loaded> {
        let path = self.path(number);
        let Some(bytes) = self.bytes(number)? else {
            return Err(Error::corruption(path, 0, "the log segment is missing"));
        };
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) if header.number == number => header,
            Ok(_) => return Err(Error::corruption(path, 0, "this is another log segment")),
            Err(HeaderFault::Malformed(fault)) => {
                return Err(Error::corruption(path, fault.offset as u64, fault.what));
            }
            Err(HeaderFault::Version(found)) => return Err(unsupported(path, found)),
        };
        Ok(Loaded {
            frames: Decoder::new(header),
            path,
            bytes,
        })
    }

    /// The segment after this one, when it was begun and its header is whole.
    pub(super) fn next(&self, header: &SegmentHeader) -> Result<Option<Loaded>> {
        self.of_chain(header.identity, header.number + 1)
    }

    fn of_chain(&self, identity: u64, number: u64) -> Result<Option<Loaded>> {
        let path = self.path(number);
        let Some(bytes) = self.bytes(number)? else {
            return Ok(None);
        };
        match SegmentHeader::decode(&bytes) {
            Ok(header) if header.number == number && header.identity == identity => {
                Ok(Some(Loaded {
                    frames: Decoder::new(header),
                    path,
                    bytes,
                }))
            }
            Err(HeaderFault::Version(found)) => Err(unsupported(path, found)),
            _ => Ok(None),
        }
    }
}

fn unsupported(path: PathBuf, found: u32) -> Error {
    Error::UnsupportedFormat {
        path,
        found,
        supported: FORMAT_VERSION,
    }
}

/// No segment of the usual size takes more laps of its ring.
const LAPS_MAX: usize = 5;

/// The ring's bytes, twice over, so that every stretch of a lap lies in one piece.
pub(super) struct Ring {
    len: usize,
    twice: Vec<u8>,
    /// What stands behind it.
    note: Option<SyncedNote>,
    /// The chain has one, and it is not there.
    missing: Option<Error>,
}

impl Ring {
    pub(super) fn of_chain(fs: &dyn Fs, dir: &Path, log: &LogStart) -> Result<Ring> {
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
        // Twice as much is not asked for before it is known that this is a ring.
        if found.is_some_and(|len| (RING_TAIL_LEN as u64..=RING_LEN_MAX as u64).contains(&len)) {
            let mut bytes = fs.read_into(&path, vec![])?;
            let tail = bytes.split_off(bytes.len() - RING_TAIL_LEN);
            let (note, mark) = tail.split_at(SYNCED_NOTE_LEN);
            let identity = log.chain;
            if (RingMark { identity }).is(mark) {
                (ring.len, ring.twice) = (bytes.len(), bytes.repeat(2));
                ring.note = SyncedNote::decode(identity, note);
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

    /// The chain's ring is here, if it has one.
    pub(super) fn check(&self) -> Result<()> {
        self.missing.clone().map_or(Ok(()), Err)
    }

    /// One lap, from a position on.
    pub(super) fn from(&self, position: u64) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        let at = (position % self.len as u64) as usize;
        &self.twice[at..at + self.len]
    }
}

struct Walk<'a> {
    folder: Folder<'a>,
    ring: Ring,
    /// The positions of the last frames that were found in the ring alone, one behind the other.
    of_ring: Range<u64>,
    synced: Position,
    out: Replayed,
}

/// The frame at a position, and that it is in the ring alone.
pub(super) fn frame_at<'a>(
    segment: &'a Loaded,
    ring: &'a Ring,
    position: u64,
) -> Option<(Decoded<'a>, bool)> {
    let frames = &segment.frames;
    if let Ok(in_file) = frames.frame(position, segment.from(position)) {
        return Some((in_file, false));
    }
    let in_ring = frames.frame(position, ring.from(position)).ok()?;
    Some((in_ring, true))
}

impl Walk<'_> {
    /// Shows the frames of a segment; returns the position at which they end.
    fn segment(
        &mut self,
        segment: &Loaded,
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<u64> {
        let header = segment.header();
        let (mut position, mut last_seq) = (header.start, Seq(0));
        self.out.edit = self.out.edit.max(header.edit);
        while let Some((found, in_ring)) = frame_at(segment, &self.ring, position) {
            let head = found.head;
            self.out.mark = self.out.mark.max(head.settled);
            self.out.edit = self.out.edit.max(head.edit);
            last_seq = last_seq.max(head.last_seq);
            let offset = segment.offset_of(position);
            if in_ring {
                if self.of_ring.end != position {
                    self.of_ring.start = position;
                }
                self.of_ring.end = position + found.len as u64;
            }
            position += found.len as u64;
            if head.kind == FrameKind::End {
                self.out.clean = true;
                break;
            }
            visit(&Frame {
                head,
                payload: found.payload,
                path: &segment.path,
                offset,
            })?;
        }
        self.out.end = Position(position);
        self.out.last_seq = self.out.last_seq.max(last_seq);
        self.out.segments.push(SegmentSummary {
            number: header.number,
            last_seq,
            bytes: position - header.start,
        });
        Ok(position)
    }

    /// Takes the numbers and marks of the chain's segments, of which the first one is lost, and nothing else.
    fn look_behind(&mut self, identity: u64, numbers: &[u64]) -> Result<()> {
        for &number in numbers {
            if let Some(segment) = self.folder.of_chain(identity, number)? {
                self.segment(&segment, &mut |_| Ok(()))?;
            }
        }
        self.out.segments.clear();
        self.out.clean = false;
        Ok(())
    }

    /// The log ends at position `end` of `segment`: a torn tail, if neither a witness nor the
    /// manifest says otherwise, else damage.
    fn judge_end(&mut self, segment: &Loaded, end: u64, later: &[u64]) -> Result<Option<Error>> {
        let mut search = Search {
            end,
            witnessed: false,
            last: None,
            begun: segment.frames.frame(end, segment.from(end)) == Err(NoFrame::Unfinished),
        };
        // A file that was cut off does not say how long it was.
        let full_at = |header: &SegmentHeader, len: usize| {
            header.start + len.max(LAPS_MAX * self.ring.len) as u64
        };
        let mut chain = vec![Stretch {
            frames: segment.frames.clone(),
            positions: end..full_at(segment.header(), segment.bytes.len()),
            counts: true,
        }];
        search.scan(&chain[0], segment.from(end));
        for &number in later {
            let identity = segment.header().identity;
            let (frames, bytes, counts) = match self.folder.of_chain(identity, number)? {
                Some(later) => {
                    search.begun = true;
                    (later.frames, later.bytes, true)
                }
                None if number == segment.header().number + 1 => {
                    // A damaged header does not hide the frames of the segment that may start here.
                    let header = SegmentHeader {
                        number,
                        start: end,
                        ..*segment.header()
                    };
                    (
                        Decoder::new(header),
                        self.folder.bytes(number)?.unwrap_or_default(),
                        false,
                    )
                }
                None => continue,
            };
            let header = frames.segment;
            let stretch = Stretch {
                frames,
                positions: header.start..full_at(&header, bytes.len()),
                counts,
            };
            search.scan(&stretch, bytes.get(HEADER_LEN..).unwrap_or(&[]));
            chain.push(stretch);
        }
        search.scan_ring(&chain, &self.ring, &self.of_ring);
        self.conclude(segment, end, &search)
    }

    /// What the search behind an end says of it.
    fn conclude(&mut self, segment: &Loaded, end: u64, search: &Search) -> Result<Option<Error>> {
        let offset = segment.offset_of(end);
        if search.witnessed {
            if let Some(last) = search.last {
                self.out.last_seq = self.out.last_seq.max(last.last_seq);
                self.out.mark = self.out.mark.max(last.settled);
                self.out.edit = self.out.edit.max(last.edit);
            }
            let what = "the log is damaged here: a later part of it says that this was synced";
            return Ok(Some(Error::corruption(&segment.path, offset, what)));
        }
        if self.ring.note.is_some_and(|note| note.position > end) {
            let what = "the log is damaged here: its ring says that this was synced";
            return Ok(Some(Error::corruption(&segment.path, offset, what)));
        }
        let known = self.synced.0;
        if known > end {
            let what = format!(
                "the log ends here, at position {end}, but the manifest knows that it was synced up to position {known}: \
                 put the latest state of the folder wal back, or go on with what is here by a repair"
            );
            return Ok(Some(Error::corruption(&segment.path, offset, what)));
        }
        if let Some(missing) = self.ring.missing.take() {
            return Ok(Some(missing));
        }
        self.out.torn = search.begun.then(|| (segment.path.clone(), offset));
        Ok(None)
    }
}

/// Where frames of a segment may lie behind the end of the log.
struct Stretch {
    frames: Decoder,
    positions: Range<u64>,
    /// The segment's header is whole, so that the numbers of its frames are known.
    counts: bool,
}

/// What lies behind the end of the log.
struct Search {
    end: u64,
    /// A frame was found that knows the log synced beyond its end.
    witnessed: bool,
    /// The last one of these whose numbers are known.
    last: Option<FrameHead>,
    /// Something was begun behind the end.
    begun: bool,
}

impl Search {
    fn note(&mut self, found: &Decoded<'_>, counts: bool) {
        self.begun = true;
        if found.watermark <= self.end {
            return;
        }
        self.witnessed = true;
        let before = self.last.map_or(Seq(0), |head| head.last_seq);
        if counts && found.head.last_seq >= before {
            self.last = Some(found.head);
        }
    }

    /// Looks for frames at every byte: `bytes` start where the stretch does.
    fn scan(&mut self, stretch: &Stretch, bytes: &[u8]) {
        let mut at = zeros(bytes);
        while at + FRAME_LEN_MIN <= bytes.len() {
            let here = stretch.positions.start + at as u64;
            match stretch.frames.frame(here, &bytes[at..]) {
                Ok(found) => {
                    self.note(&found, stretch.counts);
                    at += found.len;
                }
                Err(_) => at += 1,
            }
            at += zeros(&bytes[at..]);
        }
    }

    /// Looks for frames that were not brought into the segments yet, each with the positions that it may hold. What was
    /// is zeroed, so that nothing leads to them: every byte of the ring may be the start of one, of any lap. But for
    /// those of the frames at `known` positions, which are whole, so that nothing later was stored over them.
    fn scan_ring(&mut self, chain: &[Stretch], ring: &Ring, known: &Range<u64>) {
        let lap = ring.len as u64;
        let mut slot = zeros(ring.from(0)) as u64;
        while slot < lap {
            // The first position from `start` on that has this slot.
            let first_from = |start: u64| start + (slot + lap - start % lap) % lap;
            let at = first_from(known.start);
            if at < known.end {
                slot += known.end - at;
                continue;
            }
            let bytes = ring.from(slot);
            let found = chain.iter().find_map(|stretch| {
                let Range { start, end } = stretch.positions;
                let mut positions = (first_from(start)..end).step_by(ring.len);
                let found = positions.find_map(|at| stretch.frames.frame(at, bytes).ok())?;
                Some((found, stretch.counts))
            });
            slot += found.map_or(1, |(found, counts)| {
                self.note(&found, counts);
                found.len as u64
            });
            slot += zeros(ring.from(slot)) as u64;
        }
    }
}

/// How many zeros stand in front: no frame begins with one, and most of what is searched is zero, because files are
/// allocated ahead.
fn zeros(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<16>();
    let whole = 16 * chunks.iter().take_while(|chunk| **chunk == [0; 16]).count();
    whole + bytes[whole..].iter().take_while(|byte| **byte == 0).count()
}
