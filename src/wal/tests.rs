//! Goal: every appended frame is replayed, in order and once, whatever is released, refused or synced by others.
//! Method: small segments and rings in the simulated file system, and both stores. Damage and crashes have files of
//! their own.

mod ahead;
mod crash;
mod damage;
mod files;
mod kept;
mod small;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{HEADER_LEN, Position, RING_TAIL_LEN};
use super::segments::SegmentInfo;
use super::*;
use crate::base::{Error, Result, Seq, Timestamp, file_name};
use crate::env::{Disk, FailedSync, Fault, FaultPlan, Fs, RING_WORD, Sim};

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

fn header(index: u64) -> FrameHeader {
    FrameHeader {
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
    appender.append(&header(index), &payload, PayloadCrc::of(&payload))
}

/// The indexes of the replayed frames, each checked against what was appended.
fn replayed(fs: &dyn Fs, first: u64) -> Result<(Vec<u64>, Replayed)> {
    replayed_with(payload, fs, first)
}

/// The same for other payloads.
fn replayed_with(
    payload: fn(u64) -> Vec<u8>,
    fs: &dyn Fs,
    first: u64,
) -> Result<(Vec<u64>, Replayed)> {
    let mut indexes = vec![];
    let replayed = replay(fs, dir(), first, &mut |frame| {
        let index = (frame.header.first_seq.0 - 100) / 2;
        assert_eq!(
            (frame.header, frame.payload),
            (header(index), &payload(index)[..])
        );
        indexes.push(index);
        Ok(())
    })?;
    Ok((indexes, replayed))
}

#[test]
fn frames_come_back_in_order_over_many_segments() {
    for ring in RINGS {
        let sim = world(1);
        let (log, mut appender) = create(&sim, &options(ring), 7).unwrap();
        for index in 0..100 {
            let end = append(&mut appender, index).unwrap();
            assert_eq!(log.end(), end);
            assert_eq!(log.current_segment(), appender.segment());
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
        assert_eq!(found.time_high_water, header(99).settled);
        assert_eq!((found.edit, found.clean), (12, false));
        assert_eq!(found.torn, None);
        assert_eq!(found.next_segment, log.current_segment() + 1);
        let live: Vec<_> = segments.iter().map(|info| info.number).collect();
        let seen: Vec<_> = found.segments.iter().map(|info| info.number).collect();
        assert_eq!(live, seen);
        let bytes: u64 = found.segments.iter().map(|segment| segment.bytes).sum();
        assert_eq!(bytes, log.end().0);

        appender.close(&header(99)).unwrap();
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
        segment_bytes: 224,
        ..options(None)
    };
    let (log, mut appender) = create(&sim, &options, 1).unwrap();
    let end = appender
        .append(&header(0), b"first", PayloadCrc::of(b"first"))
        .unwrap();
    log.sync_to(end).unwrap();
    appender
        .append(&header(4), b"second", PayloadCrc::of(b"second"))
        .unwrap();
    appender.close(&header(4)).unwrap();
    let bytes = sim.read(&dir().join("000001.wal")).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "6562627477616c0008000000359effbf2a00000000000000",
        "0100000000000000000000000000000064000000000000008813000000000000",
        "0300000000000000",
        "05050000000257ee719263799a506669727374",
        "0e06001050020269111fb6c8e900457365636f6e64",
        "0f0000105002020000000094f933a2",
    );
    assert_eq!(&hex[..expected.len()], expected);
    let (between, end) = hex[expected.len()..].split_at(2 * (224 - HEADER_LEN) - expected.len());
    assert!(between.bytes().all(|digit| digit == b'0'));
    assert_eq!(end, &expected[..2 * HEADER_LEN]);
}

#[test]
fn what_is_given_up_is_in_no_file() {
    for ring in RINGS {
        let sim = world(7);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for index in 0..400 {
            // One size for all, so that old frames stand where new ones would.
            let frame = FrameHeader {
                kind: FrameKind::Batch,
                ..header(index)
            };
            let end = appender
                .append(&frame, &[7; 100], PayloadCrc::of(&[7; 100]))
                .unwrap();
            log.sync_to(end).unwrap();
            log.release_before(log.current_segment()).unwrap();
            names.extend(sim.list(dir()).unwrap());
            if index % 10 == 0 {
                appender.rotate(&frame).unwrap();
                log.sync_newest().unwrap();
                log.release_before(log.current_segment()).unwrap();
                for name in sim.list(dir()).unwrap() {
                    let bytes = sim.read(&dir().join(name)).unwrap();
                    assert!(bytes.windows(100).all(|window| window != [7; 100]));
                }
            }
            let mut shown = vec![];
            replay(&sim.kill(), dir(), log.current_segment(), &mut |frame| {
                shown.push((frame.header.first_seq.0 - 100) / 2);
                Ok(())
            })
            .unwrap();
            let from = index + 1 - shown.len() as u64;
            assert_eq!(shown, (from..=index).collect::<Vec<_>>());
        }
        assert!(names.len() > 20, "the numbers rise");
        let files = sim.list(dir()).unwrap();
        assert!(files.len() <= 3, "and the files are few: {files:?}");
        let full = sim.allocated(&dir().join(file_name::segment(log.current_segment())));
        assert_eq!(full.unwrap(), 2_048);
    }
}

#[test]
fn a_new_chain_removes_what_was_before_it_when_told_to() {
    let sim = world(8);
    let (_, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
    for index in 0..31 {
        append(&mut appender, index).unwrap();
    }
    let sim = sim.kill();
    let next = 50;
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
                for seed in 0.. {
                    log.drain().unwrap();
                    log.prepare_next().unwrap();
                    let synced = log.synced();
                    let (_, found) = replayed(&sim.power_cut(seed), 1).unwrap();
                    let bytes: u64 = found.segments.iter().map(|segment| segment.bytes).sum();
                    assert!(bytes >= synced.0, "{bytes} are left of {synced:?}");
                    if found.last_seq == header(399).last_seq {
                        break;
                    }
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
fn a_segment_is_given_up_only_when_it_is_synced() {
    for ring in RINGS {
        let sim = world(14);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        for index in 0..30 {
            append(&mut appender, index).unwrap();
        }
        let before = log.all_segments();
        log.release_before(log.current_segment()).unwrap();
        assert_eq!(log.all_segments(), before);
        assert_eq!(log.segments().len(), 1, "the others are not in use");
        log.sync_to(log.end()).unwrap();
        log.release_rest().unwrap();
        assert_eq!(log.all_segments().len(), 1);
    }
}

#[test]
fn a_segment_without_frames_is_a_link_of_the_chain() {
    for ring in RINGS {
        let sim = world(15);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        let end = append(&mut appender, 0).unwrap();
        log.sync_to(end).unwrap();
        // The file is looked for, created, allocated and has its header, twice; the frame is not written.
        sim.fail(FaultPlan {
            at: sim.operations() + 6,
            kind: Fault::Full,
            lasting: false,
        });
        assert!(append(&mut appender, 13).unwrap_err().is_full());
        let mut add = |index: u64, payload: &[u8]| {
            appender
                .append(&header(index), payload, PayloadCrc::of(payload))
                .unwrap()
        };
        add(1, &[1; 9_000]);
        let end = add(2, &[2; 9_000]);
        assert_eq!(log.segments().len(), 4);
        log.sync_to(end).unwrap();
        for seed in 0..40 {
            let mut shown = vec![];
            replay(&sim.power_cut(seed), dir(), 1, &mut |frame| {
                shown.push(frame.header.last_seq.0);
                Ok(())
            })
            .unwrap();
            assert_eq!(shown, [101, 103, 105]);
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
            kind: Fault::Io,
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
        sim.set_capacity(2_048 + 1_024 + 100);
        let mut index = 0;
        let error = loop {
            match append(&mut appender, index) {
                Ok(_) => index += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_full() && log.failure().is_none());
        assert!(log.prepare_next().unwrap_err().is_full());
        sim.set_capacity(u64::MAX);
        for index in index..40 {
            append(&mut appender, index).unwrap();
        }
        log.sync_to(log.end()).unwrap();
        let (indexes, _) = replayed(&sim.power_cut(1), 1).unwrap();
        assert_eq!(indexes, (0..40).collect::<Vec<_>>());
    }
}

/// Goal: an append never overwrites bytes that are not drained, nor does the rest of its last word. Method: frames behind a
/// drain that would use the ring's free room up to some bytes less than all, all of it, and some bytes more.
#[test]
fn a_ring_is_filled_to_its_last_word_and_not_beyond() {
    let room = 1_024 - RING_TAIL_LEN;
    for total in room - 2 * RING_WORD..room + RING_WORD {
        let sim = world(17);
        let (log, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
        let mut payloads: Vec<Vec<u8>> = vec![];
        let mut take = |len: usize| {
            let payload = vec![payloads.len() as u8 + 1; len];
            let end = appender.append(&header(0), &payload, PayloadCrc::of(&payload));
            payloads.push(payload);
            end.unwrap().0 as usize
        };
        let drained = take(300);
        assert_ne!(drained % RING_WORD, 0, "within a word");
        log.drain().unwrap();
        let second = take(300);
        let around = second - drained - 300;
        // Over the ring's end, so that the last one is behind it.
        let third = take(400);
        let last = take(drained + total - third - around);
        assert_eq!(last, drained + total);
        let mut shown = vec![];
        replay(&sim.kill(), dir(), 1, &mut |frame| {
            shown.push(frame.payload.to_vec());
            Ok(())
        })
        .unwrap();
        assert!(shown == payloads, "{} frames are whole", shown.len());
    }
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
    let (_, found) = replayed(&sim, 1).unwrap();
    assert_eq!(found.next_segment, 10, "none of ours counts that far");
}

#[test]
fn a_later_segment_of_another_version_is_refused() {
    for (version, advice) in [(5, "use the build that wrote it"), (9, "use a newer build")] {
        let sim = world(18);
        let (log, mut appender) = create(&sim, &options(None), 1).unwrap();
        for index in 0..30 {
            append(&mut appender, index).unwrap();
        }
        assert!(log.current_segment() > 2);
        let path = dir().join(file_name::segment(2));
        let mut header = sim.read(&path).unwrap()[..HEADER_LEN].to_vec();
        header[8] = version;
        let crc = crc32fast::hash(&[&header[..12], &header[16..]].concat());
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        sim.open(&path).unwrap().write_at(0, &header).unwrap();
        let error = replayed(&sim, 1).unwrap_err();
        assert!(
            matches!(&error, Error::UnsupportedFormat { path: at, found, .. }
                if *at == path && *found == u32::from(version)),
            "{error}"
        );
        assert!(error.to_string().contains(advice), "{error}");
    }
}

#[test]
fn a_chain_does_not_go_on_in_another_one_that_begins_where_it_ends() {
    for ring in RINGS {
        let sim = world(19);
        let _empty = create(&sim, &options(ring), 1).unwrap();
        let other = LogOptions {
            identity: 43,
            ..options(ring)
        };
        let (log, mut appender) = create(&sim, &other, 2).unwrap();
        let end = append(&mut appender, 0).unwrap();
        log.sync_to(end).unwrap();
        let (indexes, found) = replayed(&sim, 1).unwrap();
        assert_eq!((indexes.len(), found.segments.len()), (0, 1));
    }
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
                    (frame.header, frame.payload),
                    (header(count), &payload(count)[..])
                );
                count += 1;
                Ok(())
            });
            assert_eq!((count, found.unwrap().clean), (1_000, clean));
        };
        shown(false);
        appender.close(&header(999)).unwrap();
        shown(true);
    }
}
