//! Goal: each file is created, grown, synced and removed when it must be, not before. Method: the list of segments is
//! compared with the disk and with the calls it received.

use std::sync::Mutex;

use super::*;

fn path(number: u64) -> PathBuf {
    dir().join(file_name::segment(number))
}

fn append_bytes(appender: &mut Appender, len: usize) -> Position {
    let payload = vec![7; len];
    let header = header(0);
    appender
        .append(&header, &payload, PayloadCrc::of(&payload))
        .unwrap()
}

/// The segments that `work` syncs.
fn synced_by(sim: &Sim, work: impl FnOnce()) -> Vec<u64> {
    let synced = Arc::new(Mutex::new(vec![]));
    sim.watch({
        let synced = synced.clone();
        move |_, call| {
            let name = call.path.file_name().unwrap().to_str().unwrap();
            if call.operation == "sync" {
                synced
                    .lock()
                    .unwrap()
                    .extend(file_name::parse_segment(name));
            }
        }
    });
    work();
    sim.unwatch();
    let synced = synced.lock().unwrap();
    synced.clone()
}

// Otherwise a frame acknowledged in the ring might find no room when it is drained into its segment.
#[test]
fn no_frame_makes_a_file_longer_than_was_reserved() {
    for prepared in [false, true] {
        let sim = world(20);
        let options = LogOptions {
            segment_bytes: 500,
            ..options(Some(4_096))
        };
        let (log, mut appender) = create(&sim, &options, 1).unwrap();
        for len in [100, 300, 64, 1_500, 10] {
            if prepared {
                log.prepare_next().unwrap();
            }
            append_bytes(&mut appender, len);
            if len % 3 == 0 {
                log.drain().unwrap();
            }
            let info = *log.segments().last().unwrap();
            assert_eq!(sim.len(&path(info.number)).unwrap(), Some(info.bytes));
            assert!(info.bytes >= 500 && log.end().0 - info.start.0 + 64 <= info.bytes);
        }
        let sizes = || {
            let of = |info: &SegmentInfo| sim.len(&path(info.number)).unwrap();
            log.segments().iter().map(of).collect::<Vec<_>>()
        };
        let before = sizes();
        log.drain().unwrap();
        assert_eq!(sizes(), before);
    }
}

/// The length of a shortest frame with numbers like those appended here.
fn shortest() -> u64 {
    let (_, mut appender) = create(&world(28), &options(None), 1).unwrap();
    append_bytes(&mut appender, 0).0
}

#[test]
fn numbers_are_counted_from_the_segment_that_they_stand_in() {
    let (log, mut appender) = create(&world(30), &options(None), 1).unwrap();
    let far = FrameHeader {
        first_seq: Seq(1 << 50),
        last_seq: Seq((1 << 50) + 1),
        written_at: Timestamp(1 << 45),
        settled: Timestamp(1 << 45),
        edit: 1 << 40,
        ..header(0)
    };
    let len = |appender: &mut Appender| {
        let start = log.end().0;
        let end = appender.append(&far, b"", PayloadCrc::of(b"")).unwrap();
        end.0 - start
    };
    assert!(len(&mut appender) > shortest());
    appender.rotate(&far).unwrap();
    assert_eq!(len(&mut appender), shortest());
}

#[test]
fn a_segment_is_filled_to_its_last_byte() {
    for (room, last) in [(3 * shortest(), 1), (3 * shortest() - 1, 2)] {
        let options = LogOptions {
            segment_bytes: 2 * HEADER_LEN as u64 + room,
            ..options(None)
        };
        let (log, mut appender) = create(&world(21), &options, 1).unwrap();
        for _ in 0..3 {
            append_bytes(&mut appender, 0);
        }
        assert_eq!(log.current_segment(), last);
    }
}

#[test]
fn frames_of_every_size_come_back() {
    for ring in [None, Some(1_024), Some(512 << 10)] {
        let sim = world(22);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        let sizes = [0, 70_000, 1, 64 << 10, (64 << 10) + 1, 300_000, 20];
        for len in sizes {
            append_bytes(&mut appender, len);
        }
        log.sync_to(log.end()).unwrap();
        let mut shown = vec![];
        replay(&sim.power_cut(1), dir(), 1, &mut |frame| {
            shown.push(frame.payload.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(shown, sizes);
    }
}

// Between its two pieces, at the end of the ring and at the front of it.
#[test]
fn a_drain_leaves_alone_what_is_being_appended() {
    let sim = world(29);
    let options = LogOptions {
        segment_bytes: 16_384,
        ..options(Some(1_024))
    };
    let (log, mut appender) = create(&sim, &options, 1).unwrap();
    append_bytes(&mut appender, 300);
    log.drain().unwrap();
    append_bytes(&mut appender, 300);
    append_bytes(&mut appender, 300);
    let stores = Mutex::new(0);
    sim.watch({
        let log = log.clone();
        move |_, call| {
            if call.operation == "store" {
                let nth = {
                    let mut stores = stores.lock().unwrap();
                    *stores += 1;
                    *stores
                };
                if nth == 2 {
                    log.drain().unwrap();
                }
            }
        }
    });
    let end = append_bytes(&mut appender, 300);
    sim.unwatch();
    assert!(end.0 > 1_024, "it goes over the end of the ring");
    let (count, _) = replayed_any(&sim.kill());
    assert_eq!(count, 4);
}

#[test]
fn a_sync_concerns_what_is_not_durable_yet() {
    for ring in RINGS {
        let sim = world(23);
        let (log, mut appender) = create(&sim, &options(ring), 1).unwrap();
        for index in 0..30 {
            append(&mut appender, index).unwrap();
        }
        let all: Vec<u64> = log.segments().iter().map(|info| info.number).collect();
        let sync = || log.sync_to(log.end()).unwrap();
        assert_eq!(synced_by(&sim, sync), all);
        assert_eq!(synced_by(&sim, sync), [0; 0]);
        append_bytes(&mut appender, 10);
        let newest = log.current_segment();
        assert_eq!(synced_by(&sim, sync), [newest]);
        appender.rotate(&header(30)).unwrap();
        assert_eq!(log.current_segment(), newest + 1);
        append_bytes(&mut appender, 10);
        assert_eq!(synced_by(&sim, sync), [newest + 1]);
        appender.rotate(&header(31)).unwrap();
        append_bytes(&mut appender, 10);
        appender.rotate(&header(32)).unwrap();
        let last = || *log.segments().last().unwrap();
        assert_eq!(synced_by(&sim, sync), [newest + 2], "the last is empty");
        assert!(!last().durable);
        let sync_newest = || log.sync_newest().unwrap();
        assert_eq!(synced_by(&sim, sync_newest), [newest + 3]);
        assert!(last().durable);
        assert_eq!(synced_by(&sim, sync_newest), [0; 0]);
        appender.rotate(&header(33)).unwrap();
        assert_eq!(log.current_segment(), newest + 3, "it has no frame yet");
        let (_, found) = replayed_any(&sim.power_cut(2));
        assert_eq!(found.segments.last().unwrap().number, newest + 3);
    }
}

fn replayed_any(sim: &Sim) -> (usize, Replayed) {
    let mut count = 0;
    let found = replay(sim, dir(), 1, &mut |_| {
        count += 1;
        Ok(())
    });
    (count, found.unwrap())
}

#[test]
fn segments_go_up_to_the_first_that_is_needed() {
    let sim = world(24);
    let (log, mut appender) = create(&sim, &options(None), 1).unwrap();
    for _ in 0..4 {
        append_bytes(&mut appender, 1_500);
    }
    let numbers = || {
        let live = log.all_segments();
        live.iter().map(|info| info.number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(), [1, 2, 3, 4]);
    let end_of_first = log.segments()[1].start;
    log.release_before(3).unwrap();
    assert_eq!(numbers(), [1, 2, 3, 4], "nothing is synced");
    log.sync_to(end_of_first).unwrap();
    log.release_before(3).unwrap();
    assert_eq!(numbers(), [3, 4]);
    assert_eq!(sim.list(dir()).unwrap().len(), 2);
}

#[test]
fn a_segment_is_stale_from_the_first_moment_that_was_told() {
    let sim = world(25);
    let (log, mut appender) = create(&sim, &options(None), 1).unwrap();
    for _ in 0..4 {
        append_bytes(&mut appender, 1_500);
    }
    log.mark_stale(2..=3, Timestamp(70));
    log.mark_stale(3..=4, Timestamp(50));
    log.mark_stale(4..=4, Timestamp(60));
    let since: Vec<_> = log.segments().iter().map(|info| info.stale_since).collect();
    assert_eq!(since, [u64::MAX, 70, 50, 50].map(Timestamp));
}

#[test]
fn a_chain_that_is_given_up_leaves_those_before_it() {
    let sim = world(26);
    let (_, mut appender) = create(&sim, &options(Some(1_024)), 3).unwrap();
    append_bytes(&mut appender, 10);
    let before = sim.list(dir()).unwrap();
    let (log, mut appender) = create(&sim, &options(Some(1_024)), 4).unwrap();
    for _ in 0..3 {
        append_bytes(&mut appender, 1_500);
    }
    assert!(log.current_segment() > 4);
    remove_chain(&sim, dir(), 4);
    assert_eq!(sim.list(dir()).unwrap(), before);
}

#[test]
fn upkeep_is_wanted_for_a_segment_in_use_and_a_ring_half_full() {
    let frame = shortest();
    let options = |ring_bytes| LogOptions {
        segment_bytes: 2 * HEADER_LEN as u64 + 8 * 2 * frame,
        ring_bytes,
        ..options(None)
    };
    let sim = world(27);
    let (log, mut appender) = create(&sim, &options(None), 1).unwrap();
    let wanted_after_one = |appender: &mut Appender, log: &Log| {
        append_bytes(appender, 0);
        log.wants_upkeep()
    };
    assert!(!log.wants_upkeep());
    assert!(
        !wanted_after_one(&mut appender, &log),
        "at rest it is to take little"
    );
    assert!(wanted_after_one(&mut appender, &log), "an eighth is used");
    log.prepare_next().unwrap();
    assert!(!log.wants_upkeep());
    assert!(sim.len(&path(2)).unwrap().is_some());
    appender.rotate(&header(0)).unwrap();
    assert_eq!(log.current_segment(), 2);
    let after = [(); 2].map(|()| wanted_after_one(&mut appender, &log));
    assert_eq!(after, [false, true], "the prepared one is in use");

    let ring = Some(4 * frame as usize + RING_TAIL_LEN);
    let (log, mut appender) = create(&world(27), &options(ring), 1).unwrap();
    log.prepare_next().unwrap();
    let after = [(); 3].map(|()| wanted_after_one(&mut appender, &log));
    assert_eq!(after, [false, false, true]);
    log.drain().unwrap();
    assert!(!log.wants_upkeep());
}
