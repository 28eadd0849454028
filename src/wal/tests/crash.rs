//! Goal: every frame acknowledged survives a kill, every frame synced survives a power cut, and what is left is a prefix.
//! Method: one history, in which every operation fails in turn, once or for good, each followed by a kill and by power cuts.

use super::*;

/// A history of appends and of every other call of a log, up to the first failure.
#[derive(Default)]
struct History {
    /// The segment of each frame that was acknowledged.
    segments: Vec<u64>,
    /// How many were synced.
    synced: usize,
    /// The segment that a manifest would name; 0 when there is no log yet.
    first: u64,
    closed: bool,
    /// Room may run out, also for the end mark.
    short: bool,
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
                let mut durable = log.segments().into_iter().filter(|info| info.durable);
                self.first = durable.next_back().unwrap().number;
                log.release_before(self.first)?;
            }
        }
        if frames.is_multiple_of(2) {
            appender.close(&header(frames - 1))?;
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

    /// Checks that replay shows at least `least` of the frames, in order from the first, and at most one that was
    /// refused.
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
        assert!(found.clean || self.short || !self.closed, "{what}");
        assert!(found.next_segment > found.segments.last().unwrap().number);
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
                for (kind, lasting) in [(Fault::Io, true), (Fault::Full, false)] {
                    let loses = [FailedSync::Forgotten, FailedSync::Reverted][at as usize % 2];
                    for then in [FailedSync::Kept, loses] {
                        let sim = world(5);
                        sim.set_failed_sync(then);
                        sim.fail(FaultPlan { at, kind, lasting });
                        let mut history = History {
                            short: matches!(kind, Fault::Full),
                            ..History::default()
                        };
                        let failed = history.run(&sim, &options(ring), frames).is_err();
                        let what = format!("ring {ring:?}, {at}, {kind:?}, {then:?}, {failed}");
                        // The page cache may for some time still hold what a failed sync lost.
                        let kept = match then {
                            FailedSync::Kept => history.segments.len(),
                            _ => history.synced,
                        };
                        history.check(&sim.kill(), kept, &what);
                        for seed in 0..2 {
                            let cut = sim.power_cut(at * 10 + seed);
                            history.check(&cut, history.synced, &format!("{what}, cut {seed}"));
                        }
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
