//! Goal: the log takes every code path within a few hundred bytes, so that an interpreter can run it (.ci/miri).
//! Method: frames of some bytes, segments of some frames, and a ring that wraps more than once.

use super::*;

const RINGS: [Option<usize>; 2] = [None, Some(160)];
const FRAMES: u64 = 20;

fn begin(sim: &Sim, ring_bytes: Option<usize>) -> (Arc<Log>, Appender) {
    let options = LogOptions {
        segment_bytes: 256,
        ..options(ring_bytes)
    };
    create(sim, &options, 1).unwrap()
}

fn payload(index: u64) -> Vec<u8> {
    vec![index as u8; 8 + index as usize % 7]
}

fn append(appender: &mut Appender, index: u64) -> Position {
    let payload = payload(index);
    let end = appender.append(&header(index), &payload, PayloadCrc::of(&payload));
    end.unwrap()
}

fn replayed(sim: &Sim, first: u64) -> Result<(Vec<u64>, Replayed)> {
    replayed_with(payload, sim, first)
}

#[test]
fn frames_come_back_until_they_are_given_up() {
    for ring in RINGS {
        let sim = world(31);
        let (log, mut appender) = begin(&sim, ring);
        for index in 0..FRAMES {
            let end = append(&mut appender, index);
            if index % 5 == 0 {
                log.sync_to(end).unwrap();
            }
        }
        assert!(log.end().0 > 2 * 160, "the ring goes round");
        let all: Vec<u64> = (0..FRAMES).collect();
        assert_eq!(replayed(&sim.kill(), 1).unwrap().0, all);

        log.sync_to(log.end()).unwrap();
        log.release_before(log.current_segment()).unwrap();
        let first = log.all_segments()[0].number;
        assert!(first > 2, "{first}");
        for index in FRAMES..2 * FRAMES {
            append(&mut appender, index);
        }
        appender.close(&header(2 * FRAMES)).unwrap();
        let (indexes, found) = replayed(&sim.power_cut(2), first).unwrap();
        assert!(found.clean && indexes[0] > 0);
        assert_eq!(indexes, (indexes[0]..2 * FRAMES).collect::<Vec<_>>());
    }
}

#[test]
fn damage_is_an_error_or_the_end() {
    let sim = world(32);
    let (log, mut appender) = begin(&sim, None);
    for index in 0..FRAMES {
        append(&mut appender, index);
    }
    appender.close(&header(FRAMES)).unwrap();
    let mut refused = 0;
    for segment in log.segments() {
        let path = dir().join(file_name::segment(segment.number));
        let bytes = sim.read(&path).unwrap();
        for at in (7..bytes.len()).step_by(151) {
            let damaged = sim.open(&path).unwrap();
            damaged.write_at(at as u64, &[bytes[at] ^ 0x10]).unwrap();
            match replayed(&sim, 1) {
                Ok((indexes, _)) => {
                    assert_eq!(indexes, (0..indexes.len() as u64).collect::<Vec<_>>());
                }
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    refused += 1;
                }
            }
            damaged.write_at(at as u64, &[bytes[at]]).unwrap();
        }
    }
    assert!(refused > 2, "{refused}");
}

#[test]
fn writers_sync_beside_each_other() {
    for ring in RINGS {
        let sim = world(33);
        let (log, appender) = begin(&sim, ring);
        let appender = parking_lot::Mutex::new((appender, 0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..FRAMES / 2 {
                        let end = {
                            let (appender, index) = &mut *appender.lock();
                            *index += 1;
                            append(appender, *index - 1)
                        };
                        log.sync_to(end).unwrap();
                        assert!(log.synced() >= end);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..FRAMES {
                    log.drain().unwrap();
                    log.prepare_next().unwrap();
                }
            });
        });
        let (indexes, _) = replayed(&sim.power_cut(3), 1).unwrap();
        assert_eq!(indexes, (0..FRAMES).collect::<Vec<_>>());
    }
}
