//! Goal: damage to synced bytes is an error that says where, and damage to others only shortens the log. Method: every
//! byte of a chain is flipped and every file truncated at every length; positions and watermarks of the frames left
//! whole tell the right result.

use super::*;
use crate::wal::frame::{RING_TAIL_LEN, RingMark, SYNCED_NOTE_LEN};

/// A ring's file without its note of the last sync.
fn forget_note(ring: &mut [u8]) {
    let note_at = ring.len() - RING_TAIL_LEN;
    ring[note_at..][..SYNCED_NOTE_LEN].fill(0);
}

fn rewrite(sim: &Sim, path: &Path, bytes: &[u8]) {
    let file = sim.open(path).unwrap();
    file.truncate(0).unwrap();
    file.write_at(0, bytes).unwrap();
}

/// A frame's position, and what it says of the frames before it.
struct LoggedFrame {
    segment: u64,
    offset: u64,
    len: u64,
    position: u64,
    watermark: u64,
}

/// A chain of some segments, synced now and then, and the positions of its frames. Its last frames are not synced, so
/// one's watermark is evidence of everything that is synced.
fn chain(sim: &Sim) -> Vec<LoggedFrame> {
    chain_of(sim, 30)
}

/// The same of so many frames, of which nothing behind the 27th is synced.
fn chain_of(sim: &Sim, count: u64) -> Vec<LoggedFrame> {
    let (log, mut appender) = create(sim, &options(None), 1).unwrap();
    let (mut frames, mut segment, mut start) = (vec![], 1, 0);
    for index in 0..count {
        let (position, watermark) = (log.end().0, log.synced().0);
        let end = append(&mut appender, index).unwrap();
        if log.current_segment() != segment {
            (segment, start) = (log.current_segment(), position);
        }
        frames.push(LoggedFrame {
            segment,
            offset: HEADER_LEN as u64 + position - start,
            len: end.0 - position,
            position,
            watermark,
        });
        if [3, 4, 11, 20, 26].contains(&index) {
            log.sync_to(end).unwrap();
        }
    }
    frames
}

/// Replays after damage, and compares with what the frames left whole allow. `harmed` lists the changed bytes, by
/// segment and range.
fn check_damage(sim: &Sim, frames: &[LoggedFrame], segment: u64, from: u64, to: u64, gone: bool) {
    let what = format!("segment {segment}, bytes {from} to {to}");
    let header_harmed = from < HEADER_LEN as u64;
    let whole = |frame: &LoggedFrame| {
        frame.segment != segment || frame.offset + frame.len <= from || to <= frame.offset
    };
    let outcome = replayed(sim, 1);
    if to <= HEADER_LEN as u64 {
        check_front(sim, frames, segment);
        return;
    }
    if header_harmed && segment == 1 {
        assert!(outcome.unwrap_err().is_corruption(), "{what}");
        return;
    }
    let shown = frames
        .iter()
        .position(|frame| !whole(frame) || header_harmed && frame.segment == segment)
        .unwrap_or(frames.len());
    let end = frames.get(shown).map_or(u64::MAX, |frame| frame.position);
    let evidence = frames[shown..]
        .iter()
        .filter(|frame| whole(frame) && !(gone && frame.segment == segment))
        .any(|frame| frame.watermark > end);
    match outcome {
        Ok((indexes, found)) => {
            assert!(!evidence, "{what}: damage to synced frames went unnoticed");
            assert_eq!(indexes, (0..shown as u64).collect::<Vec<_>>(), "{what}");
            assert!(!found.clean);
        }
        Err(Error::Corruption { path, offset, .. }) => {
            assert!(evidence, "{what}: a torn tail was taken for damage");
            let at = &frames[shown];
            let there = (dir().join(file_name::segment(at.segment)), at.offset);
            // If a segment does not begin, the one before it ends too early.
            let behind = shown.checked_sub(1).map(|before| {
                let before = &frames[before];
                let path = dir().join(file_name::segment(before.segment));
                (path, before.offset + before.len)
            });
            let found = Some((path, offset));
            // A segment with an invalid header is itself at fault.
            let header = (dir().join(file_name::segment(at.segment)), 0);
            let header = (header_harmed && at.segment == segment).then_some(header);
            assert!([Some(there), behind, header].contains(&found), "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// The header at a segment's front is damaged, and nothing else: that is told if the segment was synced, and nothing is
/// lost; else the log ends before it. Answers whether it was synced.
fn check_front(sim: &Sim, frames: &[LoggedFrame], segment: u64) -> bool {
    let start = frames.partition_point(|frame| frame.segment < segment);
    let synced = frames.iter().map(|frame| frame.watermark).max().unwrap();
    let was_durable = segment == 1 || synced > frames[start].position;
    let (log, path) = (whole_chain(), dir().join(file_name::segment(segment)));
    let mut indexes = vec![];
    let (_, damage) = salvage(sim, dir(), Some(log), Position(0), &mut |frame| {
        indexes.push((frame.header.first_seq.0 - 100) / 2);
        Ok(())
    })
    .unwrap();
    let left = if was_durable { frames.len() } else { start };
    assert_eq!(indexes, (0..left as u64).collect::<Vec<_>>(), "{segment}");
    match damage {
        Some(Error::Corruption { path: at, what, .. }) if was_durable => {
            assert_eq!(at, path);
            assert!(what.contains("nothing is lost by it"), "{what}");
        }
        None if !was_durable => {}
        other => panic!("{segment}: {other:?}"),
    }
    was_durable
}

/// The log of [`chain`].
fn whole_chain() -> LogStart {
    LogStart {
        chain: 42,
        first: 1,
        ring: None,
        prefix: None,
    }
}

fn segments_of(frames: &[LoggedFrame]) -> Vec<(u64, PathBuf)> {
    let last = frames.last().unwrap().segment;
    let path = |number| (number, dir().join(file_name::segment(number)));
    (1..=last).map(path).collect()
}

#[test]
fn every_flipped_byte_is_noticed_or_a_torn_tail() {
    let sim = world(3);
    let frames = chain(&sim);
    for (number, path) in segments_of(&frames) {
        let bytes = sim.read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            rewrite(&sim, &path, &bad);
            check_damage(&sim, &frames, number, at as u64, at as u64 + 1, false);
        }
        rewrite(&sim, &path, &bytes);
    }
}

#[test]
fn a_header_whole_at_the_end_alone_is_lost_by_a_power_cut_or_damage() {
    let sim = world(3);
    let frames = chain_of(&sim, 36);
    let mut synced = vec![];
    for (number, path) in segments_of(&frames) {
        let bytes = sim.read(&path).unwrap();
        let front = &bytes[..HEADER_LEN];
        assert_eq!(front, &bytes[bytes.len() - HEADER_LEN..]);
        let other = if number == 1 { 2 } else { 1 };
        let other = sim.read(&dir().join(file_name::segment(other))).unwrap();
        for bad in [&[0; HEADER_LEN], &[0xff; HEADER_LEN], &other[..HEADER_LEN]] {
            rewrite(&sim, &path, &[bad, &bytes[HEADER_LEN..]].concat());
            synced.push(check_front(&sim, &frames, number));
        }
        rewrite(&sim, &path, &bytes);
    }
    assert!(synced.contains(&true) && synced.contains(&false));
}

#[test]
fn every_lost_end_is_noticed_or_a_torn_tail() {
    let sim = world(4);
    let frames = chain(&sim);
    for (number, path) in segments_of(&frames) {
        let bytes = sim.read(&path).unwrap();
        for len in 0..bytes.len() {
            rewrite(&sim, &path, &bytes[..len]);
            let gone = len < HEADER_LEN;
            check_damage(&sim, &frames, number, len as u64, u64::MAX, gone);
        }
        sim.remove(&path).unwrap();
        check_damage(&sim, &frames, number, 0, u64::MAX, true);
        sim.create(&path).unwrap().write_at(0, &bytes).unwrap();
    }
    assert_eq!(replayed(&sim, 1).unwrap().0.len(), frames.len());
}

#[test]
fn a_damaged_ring_costs_only_what_was_not_synced() {
    let sim = world(12);
    let (log, mut appender) = create(&sim, &options(Some(4_096)), 1).unwrap();
    for index in 0..6 {
        append(&mut appender, index).unwrap();
    }
    log.sync_to(log.end()).unwrap();
    for index in 6..7 {
        append(&mut appender, index).unwrap();
    }
    let ring = dir().join("000001.ring");
    let bytes = sim.read(&ring).unwrap();
    let mark_at = bytes.len() - RING_TAIL_LEN + SYNCED_NOTE_LEN;
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        rewrite(&sim, &ring, &bad);
        match replayed(&sim, 1) {
            Ok((indexes, _)) => assert!(at < mark_at && (6..=7).contains(&indexes.len())),
            Err(error) => assert!(at >= mark_at && error.is_corruption(), "{error}"),
        }
    }
    // The frame in the ring is evidence of those in the segment, which the ring no longer holds.
    rewrite(&sim, &ring, &bytes);
    let segment = dir().join("000001.wal");
    sim.open(&segment)
        .unwrap()
        .write_at(HEADER_LEN as u64 + 3, &[0xff; 4])
        .unwrap();
    assert!(replayed(&sim, 1).unwrap_err().is_corruption());
    // Also when nothing else is left, and in any lap of the ring.
    let len = sim.len(&segment).unwrap().unwrap() as usize;
    let wiped = vec![0; len - HEADER_LEN];
    let file = sim.open(&segment).unwrap();
    file.write_at(HEADER_LEN as u64, &wiped).unwrap();
    assert!(replayed(&sim, 1).unwrap_err().is_corruption());
    let mark = RingMark { identity: 42 };
    rewrite(
        &sim,
        &ring,
        &[&vec![0; mark_at], &mark.encode()[..]].concat(),
    );
    assert!(
        replayed(&sim, 1).unwrap().0.is_empty(),
        "no evidence is left"
    );
}

#[test]
fn damage_to_what_was_synced_last_is_noticed_when_nothing_was_written_after_it() {
    let sim = world(18);
    let (log, mut appender) = create(&sim, &options(Some(4_096)), 1).unwrap();
    for index in 0..6 {
        append(&mut appender, index).unwrap();
        log.sync_to(log.end()).unwrap();
    }
    let (segment, end) = (dir().join("000001.wal"), log.end().0);
    let bytes = sim.read(&segment).unwrap();
    let all = (0..6).collect::<Vec<_>>();
    for at in HEADER_LEN..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        rewrite(&sim, &segment, &bad);
        let was_synced = at < HEADER_LEN + end as usize;
        match replayed(&sim, 1) {
            Ok((indexes, _)) => assert!(!was_synced && indexes == all, "byte {at}"),
            Err(error) => assert!(was_synced && error.is_corruption(), "byte {at}: {error}"),
        }
        rewrite(&sim, &segment, &bytes[..at]);
        assert_eq!(replayed(&sim, 1).is_err(), was_synced, "{at} bytes");
    }
    rewrite(&sim, &segment, &bytes);
    // Losing the note alone loses nothing, and a note of another chain is ignored.
    let ring = dir().join("000001.ring");
    let bytes = sim.read(&ring).unwrap();
    for at in bytes.len() - RING_TAIL_LEN..bytes.len() - RING_TAIL_LEN + SYNCED_NOTE_LEN {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        rewrite(&sim, &ring, &bad);
        assert_eq!(replayed(&sim, 1).unwrap().0, all);
    }
    rewrite(&sim, &ring, &bytes);
    let other = LogOptions {
        identity: 43,
        ..options(None)
    };
    let (log, mut appender) = create(&sim, &other, 7).unwrap();
    append(&mut appender, 0).unwrap();
    log.sync_to(log.end()).unwrap();
    assert!(salvaged(&sim, log.start(7), 0).is_none());
}

#[test]
fn what_only_the_ring_holds_is_evidence_in_any_lap() {
    for (lap, segments) in (1..8).flat_map(|lap| [(lap, 1), (lap, 2)]) {
        let sim = world(16);
        let options = LogOptions {
            segment_bytes: 16_384,
            ..options(Some(1_024))
        };
        let (log, mut appender) = create(&sim, &options, 1).unwrap();
        let mut index = 0;
        while log.end().0 < lap * 1_024 {
            append(&mut appender, index).unwrap();
            index += 1;
            if index == 1 && segments == 2 {
                appender.rotate(&header(index)).unwrap();
            }
        }
        log.sync_to(log.end()).unwrap();
        // Small enough for the ring.
        appender
            .append(&header(index), &[7; 60], PayloadCrc::of(&[7; 60]))
            .unwrap();
        assert_eq!(log.current_segment(), segments);
        // Everything synced is lost, and the note of it, so that only a frame in the ring has evidence.
        let ring = dir().join("000001.ring");
        let mut bytes = sim.read(&ring).unwrap();
        forget_note(&mut bytes);
        rewrite(&sim, &ring, &bytes);
        let files = (1..=segments).map(|number| dir().join(file_name::segment(number)));
        let files: Vec<_> = files.map(|path| sim.open(&path).unwrap()).collect();
        for file in &files {
            file.write_at(HEADER_LEN as u64, &[0; 16_384 - HEADER_LEN])
                .unwrap();
        }
        let is_damaged = || replayed(&sim, 1).is_err_and(|error| error.is_corruption());
        assert!(is_damaged(), "lap {lap} over {segments}");
        // A truncated file does not tell how long it was: it may have been this long.
        for file in &files {
            file.truncate(HEADER_LEN as u64).unwrap();
        }
        assert!(is_damaged() || lap >= 5, "lap {lap} over {segments}");
    }
}

#[test]
fn whole_frames_in_the_ring_hide_no_evidence_behind_them() {
    let sim = world(19);
    let options = LogOptions {
        segment_bytes: 16_384,
        ..options(Some(4_096))
    };
    let (log, mut appender) = create(&sim, &options, 1).unwrap();
    let mut starts = vec![];
    for index in 0..4 {
        starts.push(log.end().0 as usize);
        append(&mut appender, index).unwrap();
    }
    let ring = dir().join("000001.ring");
    let before = sim.read(&ring).unwrap();
    log.sync_to(log.end()).unwrap();
    append(&mut appender, 4).unwrap();
    // As if the drain of these frames had not reached the disk: they are in the ring, and not in the segment.
    let mut bytes = sim.read(&ring).unwrap();
    bytes
        .iter_mut()
        .zip(before)
        .for_each(|(to, from)| *to |= from);
    forget_note(&mut bytes);
    rewrite(&sim, &ring, &bytes);
    let segment = sim.open(&dir().join(file_name::segment(1))).unwrap();
    segment
        .write_at(HEADER_LEN as u64, &[0; 16_384 - HEADER_LEN])
        .unwrap();
    assert_eq!(replayed(&sim, 1).unwrap().0, [0, 1, 2, 3, 4]);
    for start in starts {
        let mut bad = bytes.clone();
        bad[start] ^= 0x40;
        rewrite(&sim, &ring, &bad);
        let refused = replayed(&sim, 1).is_err_and(|error| error.is_corruption());
        assert!(refused, "without the frame at {start}");
    }
}

/// A chain that was synced after each of six frames; the later frames are only in the ring, as a kill leaves it.
fn killed() -> (Sim, LogStart) {
    let sim = world(31);
    let (log, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
    for index in 0..6 {
        append(&mut appender, index).unwrap();
        log.sync_to(log.end()).unwrap();
    }
    append(&mut appender, 6).unwrap();
    (sim.kill(), log.start(1))
}

/// The damage of a log that was synced up to this position, according to its manifest.
fn salvaged(sim: &Sim, log: LogStart, synced: u64) -> Option<Error> {
    let (_, damage) = salvage(sim, dir(), Some(log), Position(synced), &mut |_| Ok(())).unwrap();
    assert!(damage.iter().all(Error::is_corruption));
    damage
}

// Acknowledged writes are in no other file.
#[test]
fn a_log_without_its_ring_is_damaged() {
    let (sim, log) = killed();
    let ring = dir().join("000001.ring");
    assert!(salvaged(&sim, log, 0).is_none());
    let bytes = sim.read(&ring).unwrap();
    let foreign = RingMark { identity: 43 }.encode();
    let of_another = [&bytes[..bytes.len() - foreign.len()], &foreign].concat();
    for other in [&bytes[..40], &bytes[..8], b"", &of_another] {
        rewrite(&sim, &ring, other);
        assert!(salvaged(&sim, log, 0).is_some(), "{} bytes", other.len());
    }
    sim.remove(&ring).unwrap();
    let damage = salvaged(&sim, log, 0).unwrap().to_string();
    assert!(damage.contains("000001.ring"), "{damage}");
    // A chain that never had a ring is not missing one.
    let log = LogStart { ring: None, ..log };
    assert!(salvaged(&sim, log, 0).is_none());
}

// A closed log is all in segments.
#[test]
fn a_log_that_was_closed_needs_no_ring() {
    let sim = world(32);
    let (log, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
    append(&mut appender, 0).unwrap();
    appender.close(&header(1)).unwrap();
    sim.remove(&dir().join("000001.ring")).unwrap();
    assert!(salvaged(&sim, log.start(1), log.synced().0).is_none());
}

// When nothing else in the log is evidence of it.
#[test]
fn a_log_that_ends_before_its_manifest_says_is_damaged() {
    let sim = world(34);
    let (log, mut appender) = create(&sim, &options(None), 1).unwrap();
    let mut ends = [0; 4];
    for (end, index) in ends.iter_mut().zip(0..) {
        *end = append(&mut appender, index).unwrap().0;
    }
    log.sync_to(log.end()).unwrap();
    let [_, _, before, end] = ends;
    let log = log.start(1);
    assert!(salvaged(&sim, log, end).is_none());
    let segment = sim.open(&dir().join(file_name::segment(1))).unwrap();
    let (offset, len) = (HEADER_LEN as u64 + before, (end - before) as usize);
    segment.write_at(offset, &vec![0; len]).unwrap();
    for synced in [0, before] {
        assert!(salvaged(&sim, log, synced).is_none(), "{synced}");
    }
    for synced in [before + 1, end] {
        let damage = salvaged(&sim, log, synced).unwrap();
        let is_here = matches!(damage, Error::Corruption { offset: at, .. } if at == offset);
        assert!(is_here, "{damage}");
        let (has, knows) = (before.to_string(), synced.to_string());
        let said = damage.to_string();
        assert!(said.contains(&has) && said.contains(&knows), "{said}");
    }
}

#[test]
fn segments_of_another_chain_are_refused() {
    let (sim, log) = killed();
    let chain = log.chain + 1;
    let damage = salvaged(&sim, LogStart { chain, ..log }, 0).unwrap();
    assert!(damage.to_string().contains("another database"), "{damage}");
}

// The base of the numbers behind a damaged header is in it: with another base, a sound manifest would look damaged.
/// The error of a chain, synced up to its last frame but two, after `harm` was done to it.
fn blamed(harm: impl FnOnce(&Sim, &[LoggedFrame])) -> (PathBuf, u64, String) {
    let sim = world(3);
    let frames = chain(&sim);
    harm(&sim, &frames);
    match replayed(&sim, 1).unwrap_err() {
        Error::Corruption { path, offset, what } => (path, offset, what),
        other => panic!("{other}"),
    }
}

#[test]
fn the_file_that_is_to_blame_is_named_with_what_is_lost() {
    let of = |number| dir().join(file_name::segment(number));
    let last_before = |frames: &[LoggedFrame], segment| {
        let at = frames.iter().position(|frame| frame.segment == segment);
        header(at.unwrap() as u64).first_seq.0 - 1
    };
    for (how, header_bytes) in [("missing", 0), ("header", HEADER_LEN), ("header", 1)] {
        let mut lost = String::new();
        let (path, offset, what) = blamed(|sim, frames| {
            let synced = frames.iter().map(|frame| frame.watermark).max().unwrap();
            let first = frames.iter().find(|frame| frame.segment == 2).unwrap();
            assert!(first.position < synced);
            match header_bytes {
                0 => sim.remove(&of(2)).unwrap(),
                len => {
                    let file = sim.open(&of(2)).unwrap();
                    let back = sim.len(&of(2)).unwrap().unwrap() - HEADER_LEN as u64;
                    file.write_at(0, &vec![0xaa; len]).unwrap();
                    file.write_at(back, &[0; HEADER_LEN]).unwrap();
                }
            }
            let end = frames
                .last()
                .map(|frame| frame.position + frame.len)
                .unwrap();
            lost = format!(
                "lost are {} bytes of it from here on, with the writes {} to {} where no table has them",
                end - first.position,
                last_before(frames, 2) + 1,
                header(29).last_seq.0
            );
        });
        assert_eq!((path, offset), (of(2), 0), "{how}: {what}");
        assert!(
            what.contains(how) && what.ends_with(&lost),
            "{what}, not {lost}"
        );
    }
    // The end of a segment is in the segment itself.
    let (path, _, what) = blamed(|sim, frames| {
        let last = frames.iter().rfind(|frame| frame.segment == 1).unwrap();
        let file = sim.open(&of(1)).unwrap();
        file.write_at(last.offset, &[0xaa; 4]).unwrap();
    });
    assert_eq!(path, of(1), "{what}");
    // Nothing tells where a damaged first segment starts.
    let sim = world(3);
    chain(&sim);
    sim.remove(&of(1)).unwrap();
    let log = whole_chain();
    let Some(Error::Corruption { path, what, .. }) = salvaged(&sim, log, 0) else {
        panic!("it is missing")
    };
    assert_eq!(path, of(1));
    let up_to = format!("up to write {}", header(29).last_seq.0);
    assert!(what.contains("missing") && what.ends_with(&up_to), "{what}");
}

#[test]
fn a_frame_behind_a_damaged_header_is_evidence_and_tells_no_numbers() {
    let sim = world(33);
    let (log, mut appender) = create(&sim, &options(None), 1).unwrap();
    append(&mut appender, 0).unwrap();
    let far = FrameHeader {
        first_seq: Seq(1_000),
        last_seq: Seq(1_000),
        written_at: Timestamp(900_000),
        settled: Timestamp(900_000),
        edit: 700,
        ..header(0)
    };
    appender.rotate(&far).unwrap();
    let again = PayloadCrc::of(b"");
    let end = appender.append(&far, b"", again).unwrap();
    log.sync_to(end).unwrap();
    let less = FrameHeader { edit: 690, ..far };
    appender.append(&less, b"", again).unwrap();
    let second = sim.open(&dir().join(file_name::segment(2))).unwrap();
    second.write_at(20, &[0xff]).unwrap();
    let len = second.len().unwrap();
    second.write_at(len - 1, &[0xff]).unwrap();
    let (found, damage) = salvage(
        &sim,
        dir(),
        Some(log.start(1)),
        Position(0),
        &mut |_| Ok(()),
    )
    .unwrap();
    assert!(damage.is_some(), "its watermark is beyond the end");
    let of_first = (header(0).last_seq, header(0).settled, header(0).edit);
    assert_eq!(
        (found.last_seq, found.time_high_water, found.edit),
        of_first
    );
}
