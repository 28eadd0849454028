//! Replay: reads a chain back. Writes and repairs nothing.
//!
//! Replay decodes the frames from the first segment on. At every position it looks for the next frame in the segment's
//! file, then in the ring. Where neither has one, the segment ends; if the next segment of the chain starts at this
//! position, replay goes on there. Otherwise the log ends here, and everything behind the end, in segments and in the
//! ring, is searched for *evidence* that more was synced: a complete frame whose watermark is beyond the end. The note
//! behind the ring of how far the log was synced is evidence too, and so is the manifest's record of that.
//!
//! If the header at a segment's front is damaged, the one at its end is used. It is damage if the log is known to be
//! synced beyond the segment's start, by this segment or a later one, by the note or by the manifest; then nothing is lost.
//! Otherwise the log ends before the segment: a power cut took the header.
//!
//! A prefix is read first (replay/prefix.rs). It has its end in the manifest, so nothing is searched behind it.
//!
//! Frames behind headers that are both damaged are found too, if the segment starts at the end of the one before it. But the
//! base of their numbers is unknown: they are evidence, and their numbers are ignored.

mod ahead;
mod found;
mod prefix;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::base::{Error, Result, Seq, file_name};
use crate::env::{Fs, beside};
use crate::wal::chain::{LogStart, parse_ring};
use crate::wal::folder::{Folder, Loaded, Ring, zeros};
use crate::wal::frame::{
    Decoded, Decoder, FRAME_LEN_MIN, FrameHeader, FrameKind, HEADER_LEN, NoFrame, Position,
    SegmentHeader,
};
use ahead::Ahead;
pub use found::{Frame, Replayed, SegmentSummary};

/// Replays a chain that no manifest describes, from segment `first_segment` to the chain's end, in order. After an
/// error, frames already shown do not count.
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
        prefix: None,
    };
    match salvage(fs, dir, Some(log), Position(0), visit)? {
        (replayed, None) => Ok(replayed),
        (_, Some(damage)) => Err(damage),
    }
}

/// Like [`replay`], but returns damage of the log beside the frames found before it. The numbers and marks of complete
/// frames behind the damage raise the results too. A log that ends before `synced`, up to where its manifest knows it
/// to be synced, is damaged. If there is no log, nothing is found.
pub fn salvage(
    fs: &dyn Fs,
    dir: &Path,
    log: Option<LogStart>,
    synced: Position,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<(Replayed, Option<Error>)> {
    walk(fs, dir, log, synced, None, visit)
}

/// [`salvage`] for an open that will sync the log: another thread reads ahead and starts writeback (replay/ahead.rs).
pub fn salvage_ahead(
    fs: &dyn Fs,
    dir: &Path,
    log: Option<LogStart>,
    synced: Position,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<(Replayed, Option<Error>)> {
    let ahead = Ahead::default();
    let work = || walk(fs, dir, log, synced, Some(&ahead), visit);
    let may_keep = log.is_some_and(|log| log.prefix.is_none());
    let (aside, end) = (|| ahead.serve(fs, dir, may_keep), || ahead.end());
    beside("ebbtide-replay", aside, end, work)
}

fn walk(
    fs: &dyn Fs,
    dir: &Path,
    log: Option<LogStart>,
    synced: Position,
    ahead: Option<&Ahead>,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<(Replayed, Option<Error>)> {
    // Without the folder, the first segment counts as missing.
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
    if let Some(ahead) = ahead {
        ahead.ask(log.chain, log.first, vec![]);
    }
    let mut walk = Walk {
        folder: Folder::new(fs, dir),
        ahead,
        ring: Ring::of_chain(fs, dir, &log)?,
        synced,
        out,
        harmless: None,
    };
    let damage = match walk.prefix(&log, &numbers, visit)? {
        None => walk.chain(&log, &numbers, visit)?,
        damage => damage,
    };
    Ok((walk.out, damage))
}

/// No segment of the usual size takes more laps of its ring.
const LAPS_MAX: usize = 5;

struct Walk<'a> {
    folder: Folder<'a>,
    ahead: Option<&'a Ahead>,
    ring: Ring,
    synced: Position,
    out: Replayed,
    /// Damage by which nothing is lost; the first.
    harmless: Option<Error>,
}

/// The frame at a position; notes whether it is only in the ring.
#[inline(always)]
pub fn frame_at<'a>(
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
    /// Shows the frames of the chain up to its end; returns the damage there. `numbers` are those of all segments.
    fn chain(
        &mut self,
        log: &LogStart,
        numbers: &[u64],
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<Option<Error>> {
        let first = self.ahead.and_then(Ahead::take);
        let mut segment = match first.map_or_else(|| self.folder.first(log), Ok) {
            Ok(segment) => segment,
            Err(Error::Corruption { path, offset, what }) => {
                let behind = self.look_behind(log.chain, numbers)?;
                return Ok(Some(Error::corruption(path, offset, what + &behind)));
            }
            Err(error) => return Err(error),
        };
        if let Some(damage) = self.gap_before(log, &segment) {
            return Ok(Some(damage));
        }
        self.note_damage(&segment);
        loop {
            let (identity, number) = (segment.header().identity, segment.header().number + 1);
            if let Some(ahead) = self.ahead {
                ahead.ask(identity, number, self.folder.spare.take());
            }
            let end = self.segment(&segment, u64::MAX, visit)?;
            if self.out.clean {
                return Ok(self.harmless.take());
            }
            let peeked = self.folder.peek(identity, number)?;
            let is_next = |next: &Loaded| next.damage.is_none() && next.header().start == end;
            if peeked.as_ref().is_some_and(is_next) {
                // It certainly goes on there: so the memory of this segment is read into again.
                self.folder.spare.set(std::mem::take(&mut segment.bytes));
                let next = match self.ahead.and_then(Ahead::take) {
                    None => self.folder.next(segment.header())?,
                    next => next,
                };
                if let Some(next) = next {
                    segment = next;
                    continue;
                }
                // After a failed sync, the system may have let go of it in between.
                segment = self.folder.segment(number - 1)?;
            }
            match self.folder.next(segment.header())? {
                Some(next) if next.header().start == end && self.goes_on_in(&next)? => {
                    self.note_damage(&next);
                    segment = next;
                }
                _ => {
                    let later =
                        numbers.partition_point(|&number| number <= segment.header().number);
                    let damage = self.judge_end(&segment, end, &numbers[later..])?;
                    return Ok(damage.or(self.harmless.take()));
                }
            }
        }
    }

    /// The segment is the next one of the chain: the header at its front is whole, or the log is known to be synced beyond
    /// its start.
    fn goes_on_in(&self, next: &Loaded) -> Result<bool> {
        let start = next.header().start;
        let noted = self.ring.note.is_some_and(|note| note.position > start);
        if next.damage.is_none() || noted || self.synced.0 > start {
            return Ok(true);
        }
        let (identity, mut number) = (next.header().identity, next.header().number);
        let (mut read, mut position) = (None, start);
        loop {
            let segment = read.as_ref().unwrap_or(next);
            while let Some((found, _)) = frame_at(segment, &self.ring, position) {
                if found.watermark > start {
                    return Ok(true);
                }
                position += found.len as u64;
            }
            number += 1;
            match self.folder.of_chain(identity, number)? {
                Some(later) if later.header().start == position => read = Some(later),
                _ => return Ok(false),
            }
        }
    }

    /// A header at the front that is damaged, and is read at the end.
    fn note_damage(&mut self, segment: &Loaded) {
        if let (None, Some(Error::Corruption { path, offset, what })) =
            (&self.harmless, &segment.damage)
        {
            let what =
                format!("{what}; nothing is lost by it, for the segment ends in the same header");
            self.harmless = Some(Error::corruption(path, *offset, what));
        }
    }

    /// Shows the frames of a segment that begin before `until`; returns the position at which they end.
    fn segment(
        &mut self,
        segment: &Loaded,
        until: u64,
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<u64> {
        let header = segment.header();
        let (mut position, mut last_seq) = (header.start, Seq(0));
        self.out.edit = self.out.edit.max(header.edit);
        while position < until
            && let Some((found, in_ring)) = frame_at(segment, &self.ring, position)
        {
            let header = found.header;
            self.out.time_high_water = self.out.time_high_water.max(header.settled);
            self.out.edit = self.out.edit.max(header.edit);
            last_seq = last_seq.max(header.last_seq);
            let offset = segment.offset_of(position);
            if in_ring {
                let end = position + found.len as u64;
                match self.out.in_ring.last_mut() {
                    Some(last) if last.end == position => last.end = end,
                    _ => self.out.in_ring.push(position..end),
                }
            }
            position += found.len as u64;
            if header.kind == FrameKind::End {
                self.out.clean = true;
                break;
            }
            visit(&Frame {
                header,
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

    /// The log ends at position `end` of `segment`: a torn tail, unless the evidence or the manifest shows that it is
    /// damage.
    fn judge_end(&mut self, segment: &Loaded, end: u64, later: &[u64]) -> Result<Option<Error>> {
        let mut search = Search {
            end,
            has_evidence: false,
            last: None,
            reach: end,
            without_header: false,
            begun: segment.frames.frame(end, segment.from(end)) == Err(NoFrame::Unfinished),
        };
        let rest = segment.from(end);
        self.out.ends_in_zeros = zeros(rest) == rest.len();
        // A truncated file does not tell how long it was.
        let full_at = |header: &SegmentHeader, len: usize| {
            header.start + len.max(LAPS_MAX * self.ring.len) as u64
        };
        let mut chain = vec![SearchRange {
            frames: segment.frames.clone(),
            positions: end..full_at(segment.header(), segment.bytes.len()),
            counts: true,
        }];
        if !self.out.ends_in_zeros {
            search.scan(&chain[0], rest);
        }
        for &number in later {
            let identity = segment.header().identity;
            let (frames, len, bytes, counts) = match self.folder.of_chain(identity, number)? {
                Some(later) => {
                    search.begun = true;
                    (later.frames, later.bytes.len(), later.bytes, true)
                }
                None if number == segment.header().number + 1 => {
                    // A damaged header does not hide the frames of the segment that may start here.
                    let header = SegmentHeader {
                        number,
                        start: end,
                        ..*segment.header()
                    };
                    let bytes = self.folder.bytes(number)?.unwrap_or_default();
                    (Decoder::new(header), bytes.len(), bytes, false)
                }
                None => continue,
            };
            let header = frames.segment;
            let range = SearchRange {
                frames,
                positions: header.start..full_at(&header, len),
                counts,
            };
            search.scan(&range, bytes.get(HEADER_LEN..).unwrap_or(&[]));
            chain.push(range);
        }
        let known = self.out.in_ring.last().cloned().unwrap_or_default();
        search.scan_ring(&chain, &self.ring, &known);
        self.conclude(segment, end, &search, later)
    }

    /// The error for damage at the end, with the reason why it is damage.
    fn damage_at(
        &self,
        segment: &Loaded,
        end: u64,
        search: &Search,
        later: &[u64],
        why: &str,
    ) -> Result<Error> {
        let (path, offset, culprit) = self.culprit(segment, end, search, later)?;
        let note = self.ring.note.map_or(0, |note| note.position);
        let lost = search.lost(note.max(self.synced.0), self.out.last_seq);
        Ok(Error::corruption(
            path,
            offset,
            format!("{culprit}: {why}{lost}"),
        ))
    }

    /// Concludes from the search behind an end: the damage, or `None` where the log ends there.
    fn conclude(
        &mut self,
        segment: &Loaded,
        end: u64,
        search: &Search,
        later: &[u64],
    ) -> Result<Option<Error>> {
        let noted = self.ring.note.is_some_and(|note| note.position > end);
        let known = self.synced.0;
        let why = match (search.has_evidence, noted, known > end) {
            (true, ..) => "a later part of it says that this was synced".to_owned(),
            (_, true, _) => "its ring says that this was synced".to_owned(),
            (_, _, true) => format!(
                "the log ends at position {end}, but the manifest knows that it was synced up to position {known}: \
                 put the latest state of the folder wal back, or go on with what is here by a repair"
            ),
            _ => {
                if let Some(missing) = self.ring.missing.take() {
                    return Ok(Some(missing));
                }
                let torn = || (segment.path.clone(), segment.offset_of(end));
                self.out.torn = search.begun.then(torn);
                return Ok(None);
            }
        };
        let damage = self.damage_at(segment, end, search, later, &why)?;
        if let Some(last) = search.last {
            self.out.last_seq = self.out.last_seq.max(last.last_seq);
            self.out.time_high_water = self.out.time_high_water.max(last.settled);
            self.out.edit = self.out.edit.max(last.edit);
        }
        Ok(Some(damage))
    }

    /// If the log is damaged at its end: the file at fault, the offset in it, and the message. The next segment is at
    /// fault if it is missing or has no valid header, and no frame was begun behind the end in this one.
    fn culprit(
        &self,
        segment: &Loaded,
        end: u64,
        search: &Search,
        later: &[u64],
    ) -> Result<(PathBuf, u64, &'static str)> {
        let number = segment.header().number + 1;
        let next = self.folder.path(number);
        let rest = segment.from(end);
        let here = (
            segment.path.clone(),
            segment.offset_of(end),
            "the log is damaged here",
        );
        if zeros(rest) < rest.len() {
            return Ok(here);
        }
        let identity = segment.header().identity;
        if !later.contains(&number) {
            let mut after = later.iter();
            let goes_on = after.try_fold(false, |found, &number| -> Result<bool> {
                Ok(found || self.folder.of_chain(identity, number)?.is_some())
            })?;
            // If its ring has no note of that either, the folder may hold an earlier log that was put back.
            let is_noted = self.ring.note.is_some_and(|note| note.position > end);
            return Ok(match (goes_on, rest.is_empty() || !is_noted) {
                (true, _) => (next, 0, "the log segment is missing"),
                // A truncated file ends here.
                (false, true) => here,
                (false, false) => {
                    let what = "the log segment is missing, or the one before it has lost its end";
                    (next, 0, what)
                }
            });
        }
        let whole = self.folder.of_chain(identity, number)?;
        let whole = whole.filter(|next| next.damage.is_none());
        let bytes = self.folder.bytes(number)?.unwrap_or_default();
        let header = &bytes[..bytes.len().min(HEADER_LEN)];
        let is_begun = search.without_header || zeros(header) < header.len();
        Ok(match whole.is_none() && is_begun {
            true => (
                next,
                0,
                "the header of the log segment is damaged, or another one's",
            ),
            false => here,
        })
    }
}

/// A range of positions behind the end of the log in which frames of one segment may lie.
struct SearchRange {
    frames: Decoder,
    positions: Range<u64>,
    /// Whether the segment's header is valid, so that the numbers of its frames are known.
    counts: bool,
}

/// The result of a search behind the end of the log.
struct Search {
    end: u64,
    /// Whether a frame was found that knows the log to be synced beyond its end.
    has_evidence: bool,
    /// The last one of these whose numbers are known.
    last: Option<FrameHeader>,
    /// The end of the last frame that was found.
    reach: u64,
    /// Whether a frame was found in a segment whose header is damaged.
    without_header: bool,
    /// Whether a frame was begun behind the end.
    begun: bool,
}

impl Search {
    /// How many bytes of the log are lost from its end on, at least up to where it was synced, and which writes.
    /// `last_seq` is the last one left.
    fn lost(&self, synced: u64, last_seq: Seq) -> String {
        let bytes = self.reach.max(synced) - self.end;
        let writes = match self.last {
            Some(last) if last.last_seq > last_seq => {
                let (from, to) = (last_seq.0 + 1, last.last_seq.0);
                format!(", with the writes {from} to {to} where no table has them")
            }
            _ => String::new(),
        };
        match bytes {
            0 => String::new(),
            _ => format!("; lost are {bytes} bytes of it from here on{writes}"),
        }
    }

    fn note(&mut self, found: &Decoded<'_>, position: u64, counts: bool) {
        self.begun = true;
        self.reach = self.reach.max(position + found.len as u64);
        self.without_header |= !counts;
        if found.watermark <= self.end {
            return;
        }
        self.has_evidence = true;
        let before = self.last.map_or(Seq(0), |header| header.last_seq);
        if counts && found.header.last_seq >= before {
            self.last = Some(found.header);
        }
    }

    /// Looks for frames at every byte of `bytes`, which start where the range does.
    fn scan(&mut self, range: &SearchRange, bytes: &[u8]) {
        let mut at = zeros(bytes);
        while at + FRAME_LEN_MIN <= bytes.len() {
            let here = range.positions.start + at as u64;
            match range.frames.frame(here, &bytes[at..]) {
                Ok(found) => {
                    self.note(&found, here, range.counts);
                    at += found.len;
                }
                Err(_) => at += 1,
            }
            at += zeros(&bytes[at..]);
        }
    }

    /// Looks for frames that were not drained into the segments, at each position that a byte of the ring may have.
    /// Drained frames are zeroed, so no frame leads to the others: every byte of the ring may start a frame of any lap.
    /// Skips the bytes of the frames at `known` positions, which are complete, so no later frame was written over them.
    fn scan_ring(&mut self, chain: &[SearchRange], ring: &Ring, known: &Range<u64>) {
        let lap = ring.from(0).len() as u64;
        let mut slot = zeros(ring.from(0)) as u64;
        while slot < lap {
            // The first position at or after `start` that is stored in this slot.
            let first_from = |start: u64| start + (slot + lap - start % lap) % lap;
            let at = first_from(known.start);
            if at < known.end {
                slot += known.end - at;
                continue;
            }
            let bytes = ring.from(slot);
            let found = chain.iter().find_map(|range| {
                let Range { start, end } = range.positions;
                let mut positions = (first_from(start)..end).step_by(ring.len);
                positions.find_map(|at| {
                    let found = range.frames.frame(at, bytes).ok()?;
                    Some((found, at, range.counts))
                })
            });
            slot += found.map_or(1, |(found, at, counts)| {
                self.note(&found, at, counts);
                found.len as u64
            });
            slot += zeros(ring.from(slot)) as u64;
        }
    }
}
