//! The log: any bytes as segments, any frames under right checksums, and what was appended, then damaged.

use std::path::Path;
use std::sync::Arc;

use ebbtide::internals::{
    FrameHeader, FrameKind, Fs, Log, LogOptions, Ops, PayloadCrc, Seq, Sim, Timestamp, put_varint,
    relogged, replay,
};

use super::input::Input;

const DIR: &str = "/wal";

/// Replays a chain that starts at segment 1.
pub fn log(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => raw(&mut input),
        1 => forged(&mut input),
        _ => appended(&mut input),
    }
}

/// Bytes of one segment, or of two, or of one and a ring.
fn raw(input: &mut Input<'_>) {
    let sim = folder();
    let name = ["000002.wal", "000001.ring", "000007.wal"][input.below(3)];
    let len = usize::from(input.u16());
    write(&sim, "000001.wal", input.take(len));
    if !input.is_empty() {
        write(&sim, name, input.rest());
    }
    let _ = read(&sim);
}

fn forged(input: &mut Input<'_>) {
    let sim = folder();
    let (two, identity, start) = (input.flag(), input.u64(), input.any_size() >> 1);
    let first = forge(input, identity, 1, start);
    if two {
        let start = start + (first.len() as u64 - 64);
        write(&sim, "000002.wal", &forge(input, identity, 2, start));
    }
    write(&sim, "000001.wal", &first);
    if let Ok((frames, _)) = read(&sim) {
        assert!(frames.len() * 16 <= first.len() + 64 * 256);
    }
}

/// A segment whose header and frames say whatever the input wants, under right checksums.
pub fn forge(input: &mut Input<'_>, identity: u64, number: u64, start: u64) -> Vec<u8> {
    let mut bytes = b"ebbtwal\0\x06\0\0\0".to_vec();
    let mut fields = vec![];
    for field in [identity, number, start] {
        fields.extend_from_slice(&field.to_le_bytes());
    }
    for _ in 0..3 {
        fields.extend_from_slice(&input.any_size().to_le_bytes());
    }
    let crc = crc32fast::hash(&[&bytes[..], &fields].concat());
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&fields);
    for _ in 0..input.below(8) {
        let position = start.saturating_add(bytes.len() as u64 - 64);
        let (kind, seldom) = (1 + input.below(3), input.below(8));
        let mut frame = vec![(kind | seldom << 2) as u8];
        let payload_len = input.below(64);
        let payload = input.take(payload_len);
        put_varint(&mut frame, payload.len() as u64);
        for _ in 0..3 + seldom.count_ones() {
            put_varint(&mut frame, input.any_size());
        }
        frame.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let place = [identity, number, position].map(u64::to_le_bytes).concat();
        let crc = crc32fast::hash(&[&place, &frame[..]].concat());
        frame.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&frame);
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// A replay finds the appended frames: all of them after a kill, all that were synced after a power cut, and after
/// damage a part from the front or an error.
fn appended(input: &mut Input<'_>) {
    let (sim, mut frames, mut synced) = (folder(), vec![], 0);
    let options = LogOptions {
        dir: DIR.into(),
        segment_bytes: 128 + 64 * input.below(8) as u64,
        first_segment_bytes: None,
        ring_bytes: input.flag().then_some(512),
        identity: input.u64(),
    };
    let (power, close) = (input.flag(), input.flag());
    let (damages, seed) = (input.below(4), input.u64());
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let (log, mut appender) = Log::create(fs, &options, 1, Seq(1), Timestamp(1_000), 1).unwrap();
    let damages = input.take(4 * damages);
    while !input.is_empty() && frames.len() < 64 {
        match input.below(8) {
            0 => {
                log.sync_to(log.end()).unwrap();
                synced = frames.len();
            }
            1 => log.drain().unwrap(),
            2 => log.prepare_next().unwrap(),
            _ => {
                let kind = [FrameKind::Batch, FrameKind::Relog][input.below(2)];
                let header = any_header(input, kind);
                let len = input.below(256);
                let payload = input.take(len);
                appender
                    .append(&header, payload, PayloadCrc::of(payload))
                    .unwrap();
                frames.push((header, payload.to_vec()));
            }
        }
    }
    if close {
        appender.close(&any_header(input, FrameKind::End)).unwrap();
        synced = frames.len();
    }
    let left = if power {
        sim.power_cut(seed)
    } else {
        sim.kill()
    };
    let (found, clean) = read(&left).expect("nothing is damaged yet");
    assert_eq!(clean, close);
    assert!(found.len() >= if power { synced } else { frames.len() });
    assert_prefix(&found, &frames);
    let whole = found.len();
    for damage in damages.as_chunks().0 {
        damage_one(&left, damage);
    }
    if let Ok((found, clean)) = read(&left) {
        assert_prefix(&found, &frames);
        assert!(!clean || found.len() == whole);
    }
}

type Shown = (FrameHeader, Vec<u8>);

fn assert_prefix(found: &[Shown], appended: &[Shown]) {
    assert!(found.len() <= appended.len());
    for (found, appended) in found.iter().zip(appended) {
        assert_eq!(found, appended);
    }
}

fn any_header(input: &mut Input<'_>, kind: FrameKind) -> FrameHeader {
    FrameHeader {
        kind,
        first_seq: Seq(input.any_size()),
        last_seq: Seq(input.any_size()),
        written_at: Timestamp(input.any_size()),
        settled: Timestamp(input.any_size()),
        edit: input.any_size(),
    }
}

/// Flips bits in a byte of a segment.
fn damage_one(sim: &Sim, damage: &[u8; 4]) {
    let mut names = sim.list(Path::new(DIR)).unwrap();
    names.retain(|name| name.ends_with(".wal"));
    names.sort();
    let path = Path::new(DIR).join(&names[usize::from(damage[0]) % names.len()]);
    let mut bytes = sim.read(&path).unwrap();
    let at = usize::from(u16::from_le_bytes([damage[1], damage[2]]));
    // A power cut may have left a prepared segment empty.
    let Some(at) = at.checked_rem(bytes.len()) else {
        return;
    };
    bytes[at] ^= damage[3];
    let file = sim.open(&path).unwrap();
    file.write_at(at as u64, &bytes[at..=at]).unwrap();
}

fn folder() -> Sim {
    let sim = Sim::new(1);
    sim.create_dir_all(Path::new(DIR)).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    sim
}

fn write(sim: &Sim, name: &str, bytes: &[u8]) {
    let file = sim.create(&Path::new(DIR).join(name)).unwrap();
    file.write_at(0, bytes).unwrap();
}

/// Every frame, and whether the log was closed.
fn read(sim: &Sim) -> ebbtide::Result<(Vec<Shown>, bool)> {
    let mut found = vec![];
    let replayed = replay(sim, Path::new(DIR), 1, &mut |frame| {
        Ops::new(frame.payload).for_each(drop);
        relogged(frame.payload).for_each(drop);
        found.push((frame.header, frame.payload.to_vec()));
        Ok(())
    });
    match replayed {
        Ok(replayed) => Ok((found, replayed.clean)),
        Err(error) => {
            assert!(error.is_corruption(), "{error}");
            Err(error)
        }
    }
}
