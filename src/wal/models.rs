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
use crate::base::{Seq, Timestamp, file_name};
use crate::env::{Fs, Ring, Sim, Survivors, words};

const DIR: &str = "/wal";

/// Two words.
const RING_LEN: usize = 16;

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

    fn load(&self, offset: usize, out: &mut [u8]) {
        words::load(&self.0, offset, out);
    }
}

/// At every moment an acknowledged frame is whole in the ring or whole in the segment; at the end all frames are in the
/// segment, and the ring is empty.
#[test]
fn a_frame_is_whole_in_one_place() {
    let frames = [[[1; 3], [2; 3]], [[3; 3], [4; 3]], [[5; 3], [6; 3]]];
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
        let store = Store::Ring(Buffered::new(Box::new(ring.clone()), RING_LEN));
        let log = Arc::new((segments, store));
        let in_segment = |from: usize, len: usize| {
            let file = sim.read(&dir.join(file_name::segment(1))).unwrap();
            file[HEADER_LEN + from..][..len].to_vec()
        };
        let (mut position, mut drainer) = (0, None);
        for frame in &frames {
            let [front, back] = frame;
            let bytes = frame.concat();
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
        assert_eq!(in_segment(0, position), frames.concat().concat());
        assert_eq!(ring.at(0, RING_LEN), [0; RING_LEN]);
    });
}

fn append(appender: &mut Appender, seq: u64) -> Position {
    let header = FrameHeader {
        kind: FrameKind::Batch,
        first_seq: Seq(seq),
        last_seq: Seq(seq),
        written_at: Timestamp(seq),
        settled: Timestamp(seq),
        edit: 1,
    };
    let payload = [seq as u8; 4];
    appender
        .append(&header, &payload, PayloadCrc::of(&payload))
        .unwrap()
}

/// After a power cut a frame is there whose sync was waited for, while others append and sync.
#[test]
fn one_sync_serves_many_and_covers_each() {
    check("syncs beside each other and an append", 2, || {
        let (sim, dir) = disk();
        let options = LogOptions {
            segment_bytes: 1 << 10,
            ring_bytes: None,
            identity: 42,
            ..LogOptions::new(&dir)
        };
        let fs = Arc::new(sim.clone());
        let (log, mut appender) = Log::create(fs, &options, 1, Seq(1), Timestamp(1), 1).unwrap();
        let calls = Elsewhere::new();
        let watching = calls.clone();
        sim.watch(move |_, _| watching.step());
        let sync = move |position, seq: u64| {
            log.sync_to(position).unwrap();
            calls.step();
            let left = sim.power_cut_with(Survivors::Nothing);
            let found = replay(&left, Path::new(DIR), 1, &mut |_| Ok(())).unwrap();
            assert!(found.last_seq >= Seq(seq), "{seq} was synced");
        };
        let first = append(&mut appender, 1);
        let other = {
            let sync = sync.clone();
            spawn(move || sync(first, 1))
        };
        let second = append(&mut appender, 2);
        sync(second, 2);
        other.join().unwrap();
    });
}
