//! Goal: whatever happens to the disk, replay shows a prefix of what was appended, every frame that was acknowledged
//! when a process is killed, every frame that was synced when power is cut; and damage to what was synced is an error.
//! Method: small segments and rings in the simulated file system; every operation fails once, every byte is flipped and
//! every length is cut off, and the outcome is compared with what the frames' places and watermarks say.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::HEADER_LEN;
use super::*;
use crate::env::{Disk, FaultPlan, Fs, Sim};
use crate::error::{Error, Result};
use crate::types::{Seq, Timestamp, file_name};

const DIR: &str = "/db/wal";
const RINGS: [Option<usize>; 2] = [None, Some(1_024)];

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn world(seed: u64) -> Sim {
    let sim = Sim::new(seed);
    sim.create_dir_all(dir()).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    sim
}

fn options(ring_bytes: Option<usize>) -> LogOptions {
    LogOptions {
        segment_bytes: 2_048,
        ring_bytes,
        identity: 42,
        ..LogOptions::new(dir())
    }
}

fn create(sim: &Sim, options: &LogOptions, first: u64) -> Result<(Arc<Log>, Appender)> {
    let fs = Arc::new(sim.clone());
    Log::create(fs, options, first, Seq(100), Timestamp(5_000), 3)
}

fn head(index: u64) -> FrameHead {
    FrameHead {
        kind: if index % 5 == 4 {
            FrameKind::Relog
        } else {
            FrameKind::Batch
        },
        first_seq: Seq(100 + 2 * index),
        last_seq: Seq(101 + 2 * index),
        written_at: Timestamp(5_000 + index * 10),
        settled: Timestamp(5_000 + index * 10 - index % 3),
        edit: 3 + index / 10,
    }
}

/// Mostly small; now and then one that is more than half a ring, or more than a segment.
fn payload(index: u64) -> Vec<u8> {
    let len = match index % 17 {
        7 => 700,
        13 => 3_000,
        _ => 40 + index % 90,
    };
    (0..len).map(|at| (index * 31 + at) as u8).collect()
}

fn append(appender: &mut Appender, index: u64) -> Result<Position> {
    let payload = payload(index);
    appender.append(&head(index), &payload, PayloadCrc::of(&payload))
}

/// The indexes of the frames that replay shows; each is what was appended.
fn replayed(fs: &dyn Fs, first: u64) -> Result<(Vec<u64>, Replayed)> {
    let mut indexes = vec![];
    let replayed = replay(fs, dir(), first, &mut |frame| {
        let index = (frame.head.first_seq.0 - 100) / 2;
        assert_eq!(
            (frame.head, frame.payload),
            (head(index), &payload(index)[..])
        );
        indexes.push(index);
        Ok(())
    })?;
    Ok((indexes, replayed))
}

fn rewrite(sim: &Sim, path: &Path, bytes: &[u8]) {
    let file = sim.open(path).unwrap();
    file.truncate(0).unwrap();
    file.write_at(0, bytes).unwrap();
}

#[test]
fn frames_come_back_in_order_over_many_segments() {
    for ring in RINGS {
        let sim = world(1);
        let (log, mut appender) = create(&sim, &options(ring), 7).unwrap();
        for index in 0..100 {
            let end = append(&mut appender, index).unwrap();
            assert_eq!(log.end(), end);
            if index % 9 == 0 {
                log.sync_to(end).unwrap();
                assert_eq!(log.synced(), end);
            }
        }
        let segments = log.segments();
        assert!(segments.len() > 5);
        assert_eq!(segments.last().unwrap().number, log.current_segment());
        let (indexes, found) = replayed(&sim.kill(), 7).unwrap();
        assert_eq!(indexes, (0..100).collect::<Vec<_>>());
        assert_eq!(found.last_seq, Seq(299));
        assert_eq!(found.mark, head(99).settled);
        assert_eq!((found.edit, found.clean), (12, false));
        assert_eq!(found.torn, None);
        assert_eq!(found.next_segment, log.current_segment() + 1);
        let of = |info: &SegmentInfo| (info.number, info.last_seq);
        let live: Vec<_> = segments.iter().map(of).collect();
        let of = |summary: &SegmentSummary| (summary.number, summary.last_seq);
        let seen: Vec<_> = found.segments.iter().map(of).collect();
        assert_eq!(live, seen);

        appender.close(&head(99)).unwrap();
        for seed in 0..20 {
            let (indexes, found) = replayed(&sim.power_cut(seed), 7).unwrap();
            assert_eq!(indexes.len(), 100);
            assert!(found.clean && found.torn.is_none());
        }
        let third = segments[2].number;
        let (indexes, _) = replayed(&sim, third).unwrap();
        let first_there = indexes[0];
        assert_eq!(indexes, (first_there..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_whole_folder_is_the_format() {
    let sim = world(2);
    let options = LogOptions {
        segment_bytes: 160,
        ..options(None)
    };
    let (log, mut appender) = create(&sim, &options, 1).unwrap();
    let end = appender
        .append(&head(0), b"first", PayloadCrc::of(b"first"))
        .unwrap();
    log.sync_to(end).unwrap();
    appender
        .append(&head(4), b"second", PayloadCrc::of(b"second"))
        .unwrap();
    appender.close(&head(4)).unwrap();
    let bytes = sim.read(&dir().join("000001.wal")).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "");
}

/// A place of a frame, and what it says of those before it.
struct Placed {
    segment: u64,
    offset: u64,
    len: u64,
    position: u64,
    watermark: u64,
}

/// A chain of some segments, synced here and there, and where its frames lie. Its last frames are not synced, so that
/// the watermark of one proves all that is synced.
fn chain(sim: &Sim) -> Vec<Placed> {
    let (log, mut appender) = create(sim, &options(None), 1).unwrap();
    let (mut placed, mut segment, mut start) = (vec![], 1, 0);
    for index in 0..30 {
        let (position, watermark) = (log.end().0, log.synced().0);
        let end = append(&mut appender, index).unwrap();
        if log.current_segment() != segment {
            (segment, start) = (log.current_segment(), position);
        }
        placed.push(Placed {
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
    placed
}

/// Replays after damage, and compares with what the frames that are whole allow. `harmed` says which bytes, by segment
/// and from where to where, are not what was written.
fn check_damage(sim: &Sim, placed: &[Placed], segment: u64, from: u64, to: u64, gone: bool) {
    let what = format!("segment {segment}, bytes {from} to {to}");
    let header_harmed = from < HEADER_LEN as u64;
    let whole = |frame: &Placed| {
        frame.segment != segment || frame.offset + frame.len <= from || to <= frame.offset
    };
    let outcome = replayed(sim, 1);
    if header_harmed && segment == 1 {
        assert!(outcome.unwrap_err().is_corruption(), "{what}");
        return;
    }
    let shown = placed
        .iter()
        .position(|frame| !whole(frame) || header_harmed && frame.segment == segment)
        .unwrap_or(placed.len());
    let end = placed.get(shown).map_or(u64::MAX, |frame| frame.position);
    let witness = placed[shown..]
        .iter()
        .filter(|frame| whole(frame) && !(gone && frame.segment == segment))
        .any(|frame| frame.watermark > end);
    match outcome {
        Ok((indexes, found)) => {
            assert!(!witness, "{what}: damage to synced frames went unnoticed");
            assert_eq!(indexes, (0..shown as u64).collect::<Vec<_>>(), "{what}");
            assert!(!found.clean);
        }
        Err(Error::Corruption { path, offset, .. }) => {
            assert!(witness, "{what}: a torn tail was taken for damage");
            let at = &placed[shown];
            let there = (dir().join(file_name::segment(at.segment)), at.offset);
            let before = &placed[shown - 1];
            let behind = (
                dir().join(file_name::segment(before.segment)),
                before.offset + before.len,
            );
            assert!([there, behind].contains(&(path, offset)), "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

fn segments_of(placed: &[Placed]) -> Vec<(u64, PathBuf)> {
    let last = placed.last().unwrap().segment;
    let path = |number| (number, dir().join(file_name::segment(number)));
    (1..=last).map(path).collect()
}

#[test]
fn every_flipped_byte_is_noticed_or_a_torn_tail() {
    let sim = world(3);
    let placed = chain(&sim);
    for (number, path) in segments_of(&placed) {
        let bytes = sim.read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            rewrite(&sim, &path, &bad);
            check_damage(&sim, &placed, number, at as u64, at as u64 + 1, false);
        }
        rewrite(&sim, &path, &bytes);
    }
}

#[test]
fn every_lost_end_is_noticed_or_a_torn_tail() {
    let sim = world(4);
    let placed = chain(&sim);
    for (number, path) in segments_of(&placed) {
        let bytes = sim.read(&path).unwrap();
        for len in 0..bytes.len() {
            rewrite(&sim, &path, &bytes[..len]);
            let gone = len < HEADER_LEN;
            check_damage(&sim, &placed, number, len as u64, u64::MAX, gone);
        }
        sim.remove(&path).unwrap();
        check_damage(&sim, &placed, number, 0, u64::MAX, true);
        sim.create(&path).unwrap().write_at(0, &bytes).unwrap();
    }
    assert_eq!(replayed(&sim, 1).unwrap().0.len(), placed.len());
}

/// A history of appends and all else that a log is asked, up to the first failure.
#[derive(Default)]
struct History {
    /// The segment of each frame that was acknowledged.
    segments: Vec<u64>,
    /// How many were synced.
    synced: usize,
    /// The segment that a manifest would name; 0 when there is no log yet.
    first: u64,
    closed: bool,
}

impl History {
    fn run(&mut self, sim: &Sim, options: &LogOptions, frames: u64) -> Result<()> {
        let (log, mut appender) = create(sim, options, 1)?;
        self.first = 1;
        for index in 0..frames {
            let end = append(&mut appender, index)?;
            self.segments.push(log.current_segment());
            if log.wants_upkeep() && index % 2 == 0 {
                log.drain()?;
                log.prepare_next()?;
            }
            if index % 8 == 5 {
                log.sync_to(end)?;
                self.synced = self.segments.len();
            }
            if index % 20 == 19 {
                let durable = log.segments().into_iter().filter(|info| info.durable);
                self.first = durable.last().unwrap().number;
                log.release_before(self.first)?;
            }
        }
        if frames % 2 == 0 {
            appender.close(&head(frames - 1))?;
            self.synced = self.segments.len();
            self.closed = true;
        }
        Ok(())
    }

    /// The index of the first frame that replay should show.
    fn start(&self) -> u64 {
        self.segments
            .iter()
            .take_while(|&&segment| segment < self.first)
            .count() as u64
    }

    /// What replay shows begins right and holds at least `least` of the frames, and at most one that was refused.
    fn check(&self, sim: &Sim, least: usize, what: &str) {
        if self.first == 0 {
            return;
        }
        let (indexes, found) =
            replayed(sim, self.first).unwrap_or_else(|error| panic!("{what}: {error}"));
        let start = self.start();
        let end = start + indexes.len() as u64;
        assert_eq!(indexes, (start..end).collect::<Vec<_>>(), "{what}");
        assert!(end >= least as u64, "{what}: {end} of {least}");
        assert!(end <= self.segments.len() as u64 + 1, "{what}");
        assert!(found.clean || !self.closed, "{what}");
        assert!(found.next_segment > *self.segments.last().unwrap_or(&1));
    }
}

#[test]
fn every_failure_at_every_operation_leaves_what_was_promised() {
    for ring in RINGS {
        for frames in [60, 61] {
            let whole = world(5);
            History::default()
                .run(&whole, &options(ring), frames)
                .unwrap();
            for at in world(5).operations() + 1..=whole.operations() {
                for (kind, lasting) in [
                    (io::ErrorKind::Other, true),
                    (io::ErrorKind::StorageFull, false),
                ] {
                    let sim = world(5);
                    sim.fail(FaultPlan { at, kind, lasting });
                    let mut history = History::default();
                    let failed = history.run(&sim, &options(ring), frames).is_err();
                    let what = format!("ring {ring:?}, operation {at}, {kind}, failed {failed}");
                    history.check(&sim.kill(), history.segments.len(), &what);
                    for seed in 0..4 {
                        let cut = sim.power_cut(at * 10 + seed);
                        history.check(&cut, history.synced, &format!("{what}, cut {seed}"));
                    }
                }
            }
        }
    }
}

#[test]
fn every_power_cut_leaves_what_was_synced() {
    for ring in RINGS {
        for frames in 1..60 {
            let sim = world(frames);
            let mut history = History::default();
            history.run(&sim, &options(ring), frames).unwrap();
            history.check(&sim.kill(), history.segments.len(), "killed");
            for seed in 0..30 {
                let cut = sim.power_cut(seed);
                history.check(
                    &cut,
                    history.synced,
                    &format!("{ring:?}, {frames} frames, cut {seed}"),
                );
            }
        }
    }
}

#[test]
fn an_interrupted_recovery_starts_over_with_the_old_chain() {
    for ring in RINGS {
        let sim = world(6);
        let mut history = History::default();
        history.run(&sim, &options(ring), 31).unwrap();
        let sim = sim.kill();
        let (before, found) = replayed(&sim, history.first).unwrap();
        let next = LogOptions {
            identity: 43,
            ..options(ring)
        };
        let (log, mut appender) = create(&sim, &next, found.next_segment).unwrap();
        for index in 0..20 {
            let end = append(&mut appender, index).unwrap();
            log.sync_to(end).unwrap();
        }
        let sim = sim.kill();
        let (again, found_again) = replayed(&sim, history.first).unwrap();
        assert_eq!(before, again);
        assert!(found_again.next_segment > log.current_segment());
        let (indexes, _) = replayed(&sim, found.next_segment).unwrap();
        assert_eq!(indexes, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn recycled_files_show_nothing_of_their_earlier_use() {
    for ring in RINGS {
        let sim = world(7);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for index in 0..400 {
            // One size for all, so that old frames stand where new ones would.
            let frame = FrameHead {
                kind: FrameKind::Batch,
                ..head(index)
            };
            let end = appender
                .append(&frame, &[7; 100], PayloadCrc::of(&[7; 100]))
                .unwrap();
            log.sync_to(end).unwrap();
            log.release_before(log.current_segment()).unwrap();
            names.extend(sim.list(dir()).unwrap());
            let mut shown = vec![];
            replay(&sim.kill(), dir(), log.current_segment(), &mut |frame| {
                shown.push((frame.head.first_seq.0 - 100) / 2);
                Ok(())
            })
            .unwrap();
            let from = index + 1 - shown.len() as u64;
            assert_eq!(shown, (from..=index).collect::<Vec<_>>());
        }
        assert!(names.len() > 20, "the numbers rise");
        let files = sim.list(dir()).unwrap();
        assert!(files.len() <= 5, "and the files are few: {files:?}");
        let full = sim.allocated(&dir().join(file_name::segment(log.current_segment())));
        assert_eq!(full.unwrap(), 2_048);
    }
}

#[test]
fn a_new_chain_removes_what_was_before_it_when_told_to() {
    let sim = world(8);
    History::default()
        .run(&sim, &options(Some(1_024)), 31)
        .unwrap();
    let sim = sim.kill();
    let next = replayed(&sim, 1).err().map_or(0, |_| 0) + 50;
    let before = sim.list(dir()).unwrap();
    assert!(before.iter().any(|name| name.ends_with(".ring")));
    let (log, appender) = create(&sim, &options(None), next).unwrap();
    log.release_before(next - 1).unwrap();
    assert_eq!(sim.list(dir()).unwrap().len(), before.len() + 1);
    log.release_before(next).unwrap();
    assert_eq!(sim.list(dir()).unwrap(), [file_name::segment(next)]);
    drop(appender);
}

#[test]
fn one_sync_serves_all_that_wait() {
    for ring in RINGS {
        let sim = world(9);
        let (log, appender) = create(&sim, &options(ring), 1).unwrap();
        let appender = parking_lot::Mutex::new((appender, 0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let end = {
                            let (appender, index) = &mut *appender.lock();
                            *index += 1;
                            append(appender, *index - 1).unwrap()
                        };
                        log.sync_to(end).unwrap();
                        assert!(log.synced() >= end);
                    }
                });
            }
            scope.spawn(|| {
                while log.synced().0 == 0 || log.synced() < log.end() {
                    log.drain().unwrap();
                    log.prepare_next().unwrap();
                    log.release_before(0).unwrap();
                }
            });
        });
        for seed in 0..10 {
            let (indexes, _) = replayed(&sim.power_cut(seed), 1).unwrap();
            assert_eq!(indexes, (0..400).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_failed_sync_is_final() {
    for ring in RINGS {
        let sim = world(10);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        let first = append(&mut appender, 0).unwrap();
        log.sync_to(first).unwrap();
        let second = append(&mut appender, 1).unwrap();
        log.drain().unwrap();
        sim.fail(FaultPlan {
            at: 0,
            kind: io::ErrorKind::Other,
            lasting: false,
        });
        assert!(matches!(log.sync_to(second), Err(Error::Io { .. })));
        for _ in 0..2 {
            assert!(matches!(log.sync_to(second), Err(Error::Poisoned { .. })));
            assert!(matches!(
                append(&mut appender, 2),
                Err(Error::Poisoned { .. })
            ));
            assert!(matches!(log.drain(), Err(Error::Poisoned { .. })));
        }
        assert!(log.failure().is_some());
        assert_eq!(log.synced(), first);
        log.sync_to(first).unwrap();
    }
}

#[test]
fn a_full_disk_refuses_one_append_and_takes_it_later() {
    for ring in RINGS {
        let sim = world(11);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        sim.set_capacity(2_048 * 2 + 1_024);
        let mut index = 0;
        let error = loop {
            match append(&mut appender, index) {
                Ok(_) => index += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_full() && log.failure().is_none());
        assert!(log.prepare_next().is_ok_and(|()| false) || sim.list(dir()).unwrap().len() <= 3);
        sim.set_capacity(u64::MAX);
        for index in index..40 {
            append(&mut appender, index).unwrap();
        }
        log.sync_to(log.end()).unwrap();
        let (indexes, _) = replayed(&sim.power_cut(1), 1).unwrap();
        assert_eq!(indexes, (0..40).collect::<Vec<_>>());
    }
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
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        rewrite(&sim, &ring, &bad);
        let (indexes, _) = replayed(&sim, 1).unwrap();
        assert!(indexes == (0..6).collect::<Vec<_>>() || indexes == (0..7).collect::<Vec<_>>());
    }
    // The frame in the ring bears witness of what lies in the segment.
    rewrite(&sim, &ring, &bytes);
    let segment = dir().join("000001.wal");
    sim.open(&segment)
        .unwrap()
        .write_at(HEADER_LEN as u64 + 3, &[0xff; 4])
        .unwrap();
    let zeroed = vec![0; bytes.len()];
    assert_eq!(
        replayed(&sim, 1).unwrap().0.len(),
        7,
        "the ring still has it"
    );
    rewrite(&sim, &ring, &zeroed);
    assert!(
        replayed(&sim, 1).unwrap().0.is_empty(),
        "no witness is left"
    );
    let mut bad = bytes.clone();
    bad[3..7].fill(0xff);
    rewrite(&sim, &ring, &bad);
    assert!(replayed(&sim, 1).unwrap_err().is_corruption());
}

#[test]
fn segments_of_another_version_or_place_are_refused() {
    let sim = world(13);
    assert!(
        replayed(&sim, 1).unwrap_err().is_corruption(),
        "none is there"
    );
    let (_, mut appender) = create(&sim, &options(None), 1).unwrap();
    append(&mut appender, 0).unwrap();
    sim.hard_link(&dir().join("000001.wal"), &dir().join("000009.wal"))
        .unwrap();
    assert!(replayed(&sim, 9).unwrap_err().is_corruption());
    assert_eq!(replayed(&sim, 1).unwrap().1.next_segment, 10);
    sim.create(&dir().join(format!("{}.wal", u64::MAX)))
        .unwrap();
    assert!(replayed(&sim, 1).unwrap_err().is_corruption());
}

#[test]
fn both_stores_work_on_a_real_disk() {
    for ring_bytes in [None, Some(64 << 10)] {
        let folder = tempfile::tempdir().unwrap();
        let options = LogOptions {
            segment_bytes: 32 << 10,
            ring_bytes,
            ..LogOptions::new(folder.path())
        };
        let (log, mut appender) =
            Log::create(Arc::new(Disk), &options, 1, Seq(0), Timestamp(0), 0).unwrap();
        for index in 0..1_000 {
            let end = append(&mut appender, index).unwrap();
            if index % 100 == 99 {
                log.sync_to(end).unwrap();
            }
        }
        let shown = |clean: bool| {
            let mut count = 0;
            let found = replay(&Disk, folder.path(), 1, &mut |frame| {
                assert_eq!(
                    (frame.head, frame.payload),
                    (head(count), &payload(count)[..])
                );
                count += 1;
                Ok(())
            });
            assert_eq!((count, found.unwrap().clean), (1_000, clean));
        };
        shown(false);
        appender.close(&head(999)).unwrap();
        shown(true);
    }
}
