//! Models of the log: frames are appended to the ring while others are drained and zeroed, and one sync serves many.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{FrameHeader, FrameKind, HEADER_LEN, PayloadCrc, Position, SegmentHeader};
use super::replay::replay;
use super::segments::Segments;
use super::store::{Buffered, Store, frame_len};
use super::writer::{Appender, Log, LogOptions};
use crate::base::sync::atomic::AtomicU64;
use crate::base::sync::{Elsewhere, check, spawn};
use crate::base::{Error, Seq, Timestamp, file_name};
use crate::env::{Fault, FaultPlan, Fs, Ring, Sim, Survivors, words};

const DIR: &str = "/wal";

/// Six words: three frames of 17 bytes do not fit.
const RING_LEN: usize = 48;

fn disk() -> (Sim, PathBuf) {
    let (sim, dir) = (Sim::new(1), Path::new(DIR));
    sim.create_dir_all(dir).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    (sim, dir.to_owned())
}

/// A ring like the system's, without the mapped file.
#[derive(Clone)]
struct Words(Arc<[AtomicU64]>);

impl Words {
    fn empty() -> Words {
        let words = RING_LEN.div_ceil(words::WORD);
        Words((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// The bytes from `position` on.
    fn at(&self, position: usize, len: usize) -> Vec<u8> {
        let mut all = [0; RING_LEN];
        self.load(0, &mut all);
        (position..position + len)
            .map(|at| all[at % RING_LEN])
            .collect()
    }
}

impl Ring for Words {
    fn store(&self, offset: usize, bytes: &[u8]) {
        words::store(&self.0, offset, bytes);
    }

    fn append(&self, offset: usize, front: &[u8], back: &[u8]) {
        words::append(&self.0, offset, front, back);
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        words::load(&self.0, offset, out);
    }
}

/// At every moment an acknowledged frame is whole in the ring or whole in the segment; at the end all frames are in the
/// segment, and the ring is empty.
#[test]
fn a_frame_is_whole_in_one_place() {
    // Long enough for whole words, and over their borders.
    let frames = [1, 3, 5].map(|n: u8| (vec![n; 9], vec![n + 1; 8]));
    check("appends beside a drain", 3, move || {
        let (sim, dir) = disk();
        let segments = Segments::new(Arc::new(sim.clone()), &dir, 256, 1).unwrap();
        let header = SegmentHeader {
            identity: 42,
            number: 1,
            start: 0,
            base_seq: Seq(1),
            base_written_at: Timestamp(1),
            edit: 1,
        };
        let segment = segments.begin(header, 0).unwrap();
        let ring = Words::empty();
        let store = Store::Ring(Buffered::new(Box::new(ring.clone()), RING_LEN, 0));
        let log = Arc::new((segments, store));
        let in_segment = |from: usize, len: usize| {
            let file = sim.read(&dir.join(file_name::segment(1))).unwrap();
            file[HEADER_LEN + from..][..len].to_vec()
        };
        let (mut position, mut drainer) = (0, None);
        for frame in &frames {
            let (front, back) = frame;
            let bytes = [&front[..], back].concat();
            log.1
                .append(&log.0, &segment, position as u64, [front, back])
                .unwrap();
            // The ring first: a frame that has left it is in the segment by then.
            let is_whole = ring.at(position, bytes.len()) == bytes
                || in_segment(position, bytes.len()) == bytes;
            assert!(is_whole, "the frame at {position} is torn");
            position += frame_len([front, back]) as usize;
            drainer.get_or_insert_with(|| {
                let log = log.clone();
                spawn(move || log.1.drain(&log.0).unwrap())
            });
        }
        drainer.expect("one was started").join().unwrap();
        log.1.drain(&log.0).unwrap();
        let all = frames
            .iter()
            .flat_map(|(front, back)| [&front[..], back].concat());
        assert_eq!(in_segment(0, position), all.collect::<Vec<_>>());
        assert_eq!(ring.at(0, RING_LEN), [0; RING_LEN]);
    });
}

fn header(seq: u64) -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Batch,
        first_seq: Seq(seq),
        last_seq: Seq(seq),
        written_at: Timestamp(seq),
        settled: Timestamp(seq),
        edit: 1,
    }
}

fn append(appender: &mut Appender, seq: u64) -> Position {
    let payload = [seq as u8; 4];
    appender
        .append(&header(seq), &payload, PayloadCrc::of(&payload))
        .unwrap()
}

/// A log on a disk each of whose calls is a step.
struct World {
    sim: Sim,
    calls: Elsewhere,
    log: Arc<Log>,
}

impl World {
    fn new() -> (World, Appender) {
        let (sim, dir) = disk();
        let options = LogOptions {
            segment_bytes: 1 << 10,
            ring_bytes: None,
            identity: 42,
            ..LogOptions::new(&dir)
        };
        let fs = Arc::new(sim.clone());
        let (log, appender) = Log::create(fs, &options, 1, Seq(1), Timestamp(1), 1).unwrap();
        let calls = Elsewhere::new();
        let watching = calls.clone();
        sim.watch(move |_, _| watching.step());
        (World { sim, calls, log }, appender)
    }

    /// After a power cut now, the writes acknowledged up to `seq` are there.
    fn assert_synced(&self, seq: u64) {
        self.calls.step();
        let left = self.sim.power_cut_with(Survivors::Nothing);
        let found = replay(&left, Path::new(DIR), 1, &mut |_| Ok(())).unwrap();
        assert!(found.last_seq >= Seq(seq), "{seq} was synced");
    }
}

/// After a power cut a frame is there whose sync was waited for, while others append and sync. Some wait for the sync
/// under way, some for the next one; nobody waits for ever.
#[test]
fn one_sync_serves_many_and_covers_each() {
    for (syncs, interruptions) in [(2, 3), (3, 2)] {
        let what = format!("{syncs} syncs beside each other and appends");
        check(&what, interruptions, move || {
            let (world, mut appender) = World::new();
            let world = Arc::new(world);
            let sync = |seq: u64, position| {
                let world = world.clone();
                move || {
                    world.log.sync_to(position).unwrap();
                    world.assert_synced(seq);
                }
            };
            let others: Vec<_> = (1..syncs)
                .map(|seq| spawn(sync(seq, append(&mut appender, seq))))
                .collect();
            sync(syncs, append(&mut appender, syncs))();
            for other in others {
                other.join().unwrap();
            }
        });
    }
}

/// A failed sync reaches all who wait, for it and for the next one.
#[test]
fn a_failed_sync_reaches_all_who_wait() {
    for round in [0, 1] {
        let what = format!("syncs beside each other, of which number {round} fails");
        check(&what, 2, move || {
            let (world, mut appender) = World::new();
            let ends = [1, 2, 3].map(|seq| append(&mut appender, seq));
            world.sim.fail(FaultPlan {
                at: round,
                kind: Fault::Io,
                lasting: false,
            });
            let sync = |end| {
                let log = world.log.clone();
                move || log.sync_to(end)
            };
            let others = [ends[0], ends[1]].map(|end| spawn(sync(end)));
            let own = sync(ends[2])();
            let [first, second] = others.map(|other| other.join().unwrap());
            let synced = world.log.synced();
            for (outcome, end) in [first, second, own].iter().zip(ends) {
                assert_eq!(outcome.is_ok(), end <= synced, "{outcome:?}");
            }
            // One round may have served all of them.
            assert!(round > 0 || world.log.failure().is_some());
            assert_eq!(world.log.failure().is_none(), ends[2] <= synced);
        });
    }
}

/// A waiter for a sync is told of the end of the log by a failed write, or was synced; none waits for ever. With three
/// interruptions (`EBBTIDE_INTERRUPTIONS=3`: 630 000 orders in 200 s) two threads wait for the next sync when the log
/// ends in the midst of one.
#[test]
fn the_end_of_the_log_reaches_all_who_wait() {
    check("syncs beside a failure elsewhere", 2, || {
        let (world, mut appender) = World::new();
        let world = Arc::new(world);
        let sync = |seq, end| {
            let world = world.clone();
            move || match world.log.sync_to(end) {
                Ok(()) => world.assert_synced(seq),
                Err(error) => assert!(matches!(error, Error::Poisoned { .. }), "{error}"),
            }
        };
        let mut others: Vec<_> = [1, 2]
            .map(|seq| spawn(sync(seq, append(&mut appender, seq))))
            .into();
        let own = sync(3, append(&mut appender, 3));
        let log = world.log.clone();
        others.push(spawn(move || drop(log.end_with(Error::Closed))));
        own();
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Closing beside a wait: both end, and all is synced.
#[test]
fn a_log_is_closed_while_others_wait_for_a_sync() {
    check("syncs beside the end", 2, || {
        let (world, mut appender) = World::new();
        let world = Arc::new(world);
        let syncs = [1, 2].map(|seq| {
            let (world, end) = (world.clone(), append(&mut appender, seq));
            spawn(move || {
                world.log.sync_to(end).unwrap();
                world.assert_synced(seq);
            })
        });
        appender.close(&header(2)).unwrap();
        world.assert_synced(2);
        for sync in syncs {
            sync.join().unwrap();
        }
    });
}
