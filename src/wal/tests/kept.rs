//! Goal: a log that is kept is replayed up to its end and no further, then the chain that continues it, whatever is cut,
//! damaged or fails meanwhile. Method: logs of a killed process are kept, continued and killed again; every failure and
//! every power cut during that is played.

use super::*;
use crate::wal::chain::Prefix;
use crate::wal::keep::keep;

const FRAMES: u64 = 40;

/// A log of this many frames, of a process that was killed; the first `synced` of them were synced.
fn killed(sim: &Sim, frames: u64, synced: u64) -> Sim {
    let (log, mut appender) = create(sim, &options(Some(1_024)), 1).unwrap();
    for index in 0..frames {
        let end = append(&mut appender, index).unwrap();
        if index + 1 == synced {
            log.sync_to(end).unwrap();
        }
    }
    sim.kill()
}

fn whole() -> LogStart {
    LogStart {
        chain: 42,
        first: 1,
        ring: Some(1),
        prefix: None,
    }
}

/// The frames that a log shows, and the damage in it.
fn shown(sim: &Sim, log: LogStart, synced: Position) -> (Vec<u64>, Replayed, Option<Error>) {
    let mut indexes = vec![];
    let (found, damage) = salvage(sim, dir(), Some(log), synced, &mut |frame| {
        let index = (frame.header.first_seq.0 - 100) / 2;
        assert_eq!(frame.payload, payload(index));
        indexes.push(index);
        Ok(())
    })
    .unwrap();
    (indexes, found, damage)
}

fn kept(sim: &Sim) -> Result<Option<Kept>> {
    let (_, found, damage) = shown(sim, whole(), Position(0));
    assert_eq!(damage.map(|error| error.to_string()), None);
    keep(sim, dir(), &whole(), &found)
}

/// Begins the chain that continues a kept log, as an open does.
fn go_on(sim: &Sim, kept: Kept, first: u64) -> Result<(Arc<Log>, Appender)> {
    let options = LogOptions {
        identity: 43,
        ..options(Some(1_024))
    };
    let base = (Seq(100 + 2 * FRAMES), Timestamp(5_000));
    Log::create_behind(Some(kept), Arc::new(sim.clone()), &options, first, base, 9)
}

fn up_to(end: u64) -> Vec<u64> {
    (0..end).collect()
}

#[test]
fn a_kept_log_is_shown_before_the_chain_that_continues_it() {
    for synced in [0, 17, FRAMES] {
        let sim = killed(&world(1), FRAMES, synced);
        let (_, found, _) = shown(&sim, whole(), Position(0));
        assert_eq!(found.in_ring.is_empty(), synced == FRAMES);
        let kept = kept(&sim).unwrap().expect("no sync has failed");
        let (log, mut appender) = go_on(&sim, kept, found.next_segment).unwrap();
        let named = log.start(1);
        assert_eq!((named.oldest(), named.prefix.unwrap().end), (1, found.end));
        log.release_older().unwrap();
        // The frames that only the old ring had are in the segments.
        assert_eq!(sim.len(&dir().join("000001.ring")).unwrap(), None);
        // It is durable before anything follows, whatever a power cut leaves.
        for seed in 0..20 {
            let (indexes, _, damage) = shown(&sim.power_cut(seed), named, found.end);
            assert!(damage.is_none(), "{damage:?}");
            assert_eq!(indexes, up_to(FRAMES));
        }
        for index in FRAMES..FRAMES + 30 {
            append(&mut appender, index).unwrap();
        }
        let (indexes, again, damage) = shown(&sim.kill(), named, log.synced());
        assert!(damage.is_none(), "{damage:?}");
        assert_eq!(indexes, up_to(FRAMES + 30));
        assert_eq!(again.end, log.end());
        // A log with a prefix is not kept again.
        assert!(keep(&sim.kill(), dir(), &named, &again).unwrap().is_none());
    }
}

#[test]
fn a_kept_log_is_released_with_its_last_segment() {
    let sim = killed(&world(1), FRAMES, 0);
    let first = shown(&sim, whole(), Position(0)).1.next_segment;
    let (log, mut appender) = go_on(&sim, kept(&sim).unwrap().unwrap(), first).unwrap();
    for index in FRAMES..FRAMES + 30 {
        append(&mut appender, index).unwrap();
    }
    log.sync_to(log.end()).unwrap();
    let segments = log.segments();
    for segment in &segments {
        let named = log.start(segment.number);
        assert_eq!(named.oldest(), segment.number);
        assert_eq!(named.prefix.is_some(), segment.number < first);
        log.release_before(segment.number).unwrap();
        let (indexes, found, damage) = shown(&sim.kill(), named, log.synced());
        assert!(damage.is_none(), "{damage:?}");
        assert_eq!(found.segments[0].number, segment.number);
        let shown_from = FRAMES + 30 - indexes.len() as u64;
        assert_eq!(indexes, (shown_from..FRAMES + 30).collect::<Vec<_>>());
        let below = |name: &String| {
            file_name::parse_segment(name).is_some_and(|number| number < segment.number)
        };
        assert!(!sim.list(dir()).unwrap().iter().any(below));
    }
}

// The manifest says where the log ends. Frames behind that, whole and synced, are of a history that was given up.
#[test]
fn nothing_behind_the_end_comes_to_life() {
    let sim = world(1);
    let (log, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
    for index in 0..28 {
        append(&mut appender, index).unwrap();
    }
    // Nothing is in the ring alone, which later frames would take for theirs.
    log.sync_to(log.end()).unwrap();
    let (_, found, _) = shown(&sim.kill(), whole(), Position(0));
    let last = found.segments.last().unwrap().number;
    for index in 28..FRAMES + 40 {
        append(&mut appender, index).unwrap();
    }
    log.sync_to(log.end()).unwrap();
    let sim = sim.kill();
    let kept = keep(&sim, dir(), &whole(), &found).unwrap().unwrap();
    let end = kept.prefix.end;
    let segment = sim.read(&dir().join(file_name::segment(last))).unwrap();
    let start = found.end.0 - found.segments.last().unwrap().bytes;
    let behind = HEADER_LEN + (end.0 - start) as usize;
    assert_ne!(
        segment[behind..behind + 16],
        [0; 16],
        "the end is within a segment"
    );
    let (log, mut appender) = go_on(&sim, kept, 50).unwrap();
    for index in 90..95 {
        append(&mut appender, index).unwrap();
    }
    let (indexes, again, damage) = shown(&sim.kill(), log.start(1), end);
    assert!(damage.is_none(), "{damage:?}");
    assert_eq!(indexes, (0..28).chain(90..95).collect::<Vec<_>>());
    assert_eq!(again.end, log.end());
    let mut tailed = vec![];
    let visit = &mut |frame: &Frame<'_>| {
        tailed.push((frame.header.first_seq.0 - 100) / 2);
        Ok(())
    };
    let read = tail(
        &sim.kill(),
        dir(),
        &log.start(1),
        None,
        (u64::MAX, end),
        visit,
    )
    .unwrap();
    assert_eq!(tailed, indexes, "a follower reads the same");
    assert_eq!(read.place.segment, log.current_segment());
}

#[test]
fn a_log_that_ends_in_anything_but_zeros_is_not_kept() {
    let sim = killed(&world(1), FRAMES, 0);
    let (_, found, _) = shown(&sim, whole(), Position(0));
    let last = dir().join(file_name::segment(found.segments.last().unwrap().number));
    let bytes = sim.read(&last).unwrap();
    let at = bytes.len() - HEADER_LEN - 20;
    sim.open(&last)
        .unwrap()
        .write_at(at as u64, b"left")
        .unwrap();
    assert!(kept(&sim).unwrap().is_none());
    let sim = world(1);
    let (_, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
    append(&mut appender, 0).unwrap();
    appender.close(&header(0)).unwrap();
    assert!(kept(&sim.kill()).unwrap().is_none(), "it was closed");
}

// The system tells of a failed sync once. Later reads may still show the bytes that it failed to write.
#[test]
fn a_log_of_which_a_sync_may_have_failed_is_not_kept() {
    for then in [FailedSync::Kept, FailedSync::Forgotten] {
        let sim = world(1);
        let (log, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
        for index in 0..12 {
            append(&mut appender, index).unwrap();
        }
        sim.set_failed_sync(then);
        let plan = FaultPlan {
            at: sim.operations(),
            kind: Fault::Io,
            lasting: true,
        };
        sim.fail_where(plan, |call| call.operation == "sync");
        log.sync_to(log.end()).unwrap_err();
        let sim = sim.kill();
        assert!(kept(&sim).unwrap().is_none());
    }
    // Nor is one that an open has begun to sync.
    let sim = killed(&world(1), FRAMES, 9);
    assert!(kept(&sim).unwrap().is_some());
    assert!(kept(&sim).unwrap().is_none());
}

#[test]
fn a_crash_while_it_is_kept_leaves_the_log_as_it_was() {
    let prepare = || {
        let sim = killed(&world(1), FRAMES, 17);
        let (_, found, _) = shown(&sim, whole(), Position(0));
        (sim, found)
    };
    let continue_it = |sim: &Sim, found: &Replayed| -> Result<()> {
        let kept = keep(sim, dir(), &whole(), found)?.expect("no sync has failed");
        go_on(sim, kept, found.next_segment).map(drop)
    };
    let (sim, found) = prepare();
    let before = sim.operations();
    continue_it(&sim, &found).unwrap();
    assert!(sim.operations() > before + 10);
    for at in before + 1..=sim.operations() {
        for (then, lasting) in FailedSync::ALL.into_iter().zip([false, true, true]) {
            let (sim, found) = prepare();
            sim.set_failed_sync(then);
            let kind = Fault::Io;
            sim.fail(FaultPlan { at, kind, lasting });
            let failed = continue_it(&sim, &found).is_err();
            // The page cache may for some time still hold what a failed sync lost.
            let kept = match then {
                FailedSync::Kept => FRAMES,
                _ => 17,
            };
            let cuts = (0..8).map(|seed| (sim.power_cut(seed), 17));
            for (sim, least) in cuts.chain([(sim.kill(), kept)]) {
                let (indexes, _, damage) = shown(&sim, whole(), Position(0));
                assert!(damage.is_none(), "{at}, {failed}: {damage:?}");
                assert_eq!(indexes, up_to(indexes.len() as u64));
                assert!(indexes.len() as u64 >= least, "{at}, {failed}: {indexes:?}");
            }
        }
    }
}

#[test]
fn whatever_is_missing_before_the_end_is_damage() {
    let sim = killed(&world(1), FRAMES, 0);
    let (_, found, _) = shown(&sim, whole(), Position(0));
    let (log, mut appender) = go_on(&sim, kept(&sim).unwrap().unwrap(), 50).unwrap();
    let Prefix { end, .. } = log.start(1).prefix.unwrap();
    append(&mut appender, FRAMES).unwrap();
    log.sync_to(log.end()).unwrap();
    let last = found.segments.last().unwrap().number;
    assert!(last > 2);
    for number in 1..=last {
        let path = dir().join(file_name::segment(number));
        let sim = sim.kill();
        let mut bytes = sim.read(&path).unwrap();
        bytes[HEADER_LEN + 3] ^= 1;
        sim.open(&path).unwrap().write_at(0, &bytes).unwrap();
        let (indexes, found, damage) = shown(&sim, log.start(1), end);
        let damage = damage.expect("a frame is missing").to_string();
        assert!(damage.contains(&file_name::segment(number)), "{damage}");
        assert_eq!(indexes, up_to(indexes.len() as u64));
        assert_eq!(
            found.last_seq,
            header(FRAMES).last_seq,
            "what follows is known"
        );
        sim.remove(&path).unwrap();
        let (fewer, _, damage) = shown(&sim, log.start(1), end);
        assert!(damage.is_some() && fewer.len() <= indexes.len());
        let visit = &mut |_: &Frame<'_>| Ok(());
        let read = tail(
            &sim,
            dir(),
            &log.start(1),
            None,
            (u64::MAX, log.synced()),
            visit,
        );
        assert!(read.is_err());
    }
    // The prefix ends within a frame.
    let mut named = log.start(1);
    named.prefix.as_mut().unwrap().end = Position(end.0 - 1);
    assert!(shown(&sim.kill(), named, Position(0)).2.is_some());
}

#[test]
fn a_chain_that_does_not_go_on_where_the_prefix_ends_is_damage() {
    let sim = world(1);
    let (_, mut appender) = create(&sim, &options(Some(1_024)), 1).unwrap();
    let ends: Vec<Position> = (0..FRAMES)
        .map(|index| append(&mut appender, index).unwrap())
        .collect();
    let sim = sim.kill();
    let (log, mut appender) = go_on(&sim, kept(&sim).unwrap().unwrap(), 50).unwrap();
    append(&mut appender, FRAMES).unwrap();
    let mut named = log.start(1);
    // A frame less: up to there all is whole.
    named.prefix.as_mut().unwrap().end = ends[ends.len() - 2];
    let (indexes, _, damage) = shown(&sim.kill(), named, Position(0));
    let damage = damage.expect("a frame is missing between them").to_string();
    assert!(damage.contains("does not go on where"), "{damage}");
    assert_eq!(indexes, up_to(FRAMES - 1));
}
