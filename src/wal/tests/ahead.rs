//! Goal: a replay with a thread that reads ahead shows and says what it does alone, whatever becomes of the files, and
//! nothing waits for it. Method: each log is replayed both ways.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// The frames that a replay shows, by index, and what it answers.
type Shown = (Vec<u64>, String);

/// Replays, with another thread or alone; shows up to `most` frames, then the visitor fails.
fn shown(sim: &Sim, log: LogStart, most: usize, is_ahead: bool) -> Shown {
    let mut indexes = vec![];
    let visit = &mut |frame: &Frame<'_>| {
        if indexes.len() == most {
            return Err(Error::corruption(frame.path, frame.offset, "planned"));
        }
        indexes.push((frame.header.first_seq.0 - 100) / 2);
        Ok(())
    };
    let answer = match is_ahead {
        true => salvage_ahead(sim, dir(), Some(log), Position(0), visit),
        false => salvage(sim, dir(), Some(log), Position(0), visit),
    };
    (indexes, format!("{answer:?}"))
}

fn both_ways(sim: &Sim, log: LogStart, most: usize) -> [Shown; 2] {
    [false, true].map(|is_ahead| shown(sim, log, most, is_ahead))
}

/// A log of 100 frames in many segments, synced up to some of them.
fn begin(ring: Option<usize>, seed: u64) -> (Sim, Arc<Log>, Appender) {
    let sim = world(seed);
    let (log, mut appender) = create(&sim, &options(ring), 7).unwrap();
    for index in 0..100 {
        let end = append(&mut appender, index).unwrap();
        if index == 60 {
            log.sync_to(end).unwrap();
        }
    }
    (sim, log, appender)
}

#[test]
fn logs_are_read_ahead_as_without() {
    for ring in RINGS {
        let (sim, log, appender) = begin(ring, 41);
        let start = log.start(0);
        let [alone, ahead] = both_ways(&sim.kill(), start, usize::MAX);
        assert_eq!(alone.0, (0..100).collect::<Vec<_>>());
        assert_eq!(alone, ahead);
        for most in [0, 1, 30, 99] {
            let [alone, ahead] = both_ways(&sim.kill(), start, most);
            assert_eq!((alone.0.len(), &alone), (most, &ahead));
        }
        for seed in 0..20 {
            let [alone, ahead] = both_ways(&sim.power_cut(seed), start, usize::MAX);
            assert!(alone.0.len() > 60);
            assert_eq!(alone, ahead);
        }
        appender.close(&header(99)).unwrap();
        let [alone, ahead] = both_ways(&sim.kill(), start, usize::MAX);
        assert_eq!(alone, ahead);
    }
}

#[test]
fn damage_is_told_as_without() {
    let (sim, log, _appender) = begin(None, 42);
    let start = log.start(0);
    let mut kinds = std::collections::BTreeSet::new();
    for segment in log.segments() {
        let path = dir().join(file_name::segment(segment.number));
        let bytes = sim.read(&path).unwrap();
        let file_of = |sim: &Sim| sim.open(&path).unwrap();
        // The header at the front, at the end, both; a frame; the file's end; the file.
        let len = bytes.len() as u64;
        for harm in [&[3][..], &[len - 3], &[3, len - 3], &[200], &[]] {
            let damaged = sim.kill();
            for at in harm {
                let flipped = bytes[*at as usize] ^ 0x40;
                file_of(&damaged).write_at(*at, &[flipped]).unwrap();
            }
            if harm.is_empty() {
                file_of(&damaged).truncate(len / 2).unwrap();
            }
            let [alone, ahead] = both_ways(&damaged, start, usize::MAX);
            assert_eq!(alone, ahead, "{segment:?} {harm:?}");
            kinds.insert(alone.0.len());
        }
        let missing = sim.kill();
        missing.remove(&path).unwrap();
        let [alone, ahead] = both_ways(&missing, start, usize::MAX);
        assert_eq!(alone, ahead, "{segment:?}");
    }
    assert!(kinds.len() > 5, "{kinds:?}");
}

/// The device cannot read a segment, at each try or only at the first one: then a second read succeeds.
#[test]
fn a_device_that_fails_is_told_as_without() {
    let (sim, log, _appender) = begin(None, 43);
    let start = log.start(0);
    let [whole, _] = both_ways(&sim.kill(), start, usize::MAX);
    for segment in log.segments() {
        for lasting in [true, false] {
            let found = [false, true].map(|is_ahead| {
                let failing = sim.kill();
                let path = dir().join(file_name::segment(segment.number));
                let plan = FaultPlan {
                    at: 0,
                    kind: Fault::Io,
                    lasting,
                };
                failing.fail_where(plan, move |call| call.path == path);
                shown(&failing, start, usize::MAX, is_ahead)
            });
            let [alone, ahead] = &found;
            assert!(alone == ahead || (!lasting && *ahead == whole), "{found:?}");
        }
    }
}

#[test]
fn a_visitor_that_panics_ends_both() {
    let (sim, log, _appender) = begin(Some(1_024), 44);
    let visit = &mut |_: &Frame<'_>| panic!("planned");
    let replay = || salvage_ahead(&sim, dir(), Some(log.start(0)), Position(0), visit);
    assert!(catch_unwind(AssertUnwindSafe(replay)).is_err());
}
