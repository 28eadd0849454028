//! Operations of a program that gives the time: it moves it, says how far purges may go, and reads at a moment.

use std::sync::Arc;

use crate::base::{Error, Result, Timestamp};
use crate::catalog::Change;
use crate::engine::Engine;
use crate::engine::parts::given_time::GivenTime;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::env::ClockBehind;
use crate::values::choices::Quota;

impl Engine {
    fn expect_given_time(&self) -> Result<&Arc<GivenTime>> {
        self.given_time.as_ref().ok_or(Error::TimeIsNotGiven)
    }

    /// Fails where time is given: the result of `what` differs between databases of one history.
    pub fn refuse_in_given_time(&self, what: &'static str) -> Result<()> {
        match &self.given_time {
            Some(_) => Err(Error::TimeIsGiven { what }),
            None => Ok(()),
        }
    }

    /// Fails for a quota that expires items, where time is given: it goes by estimates.
    pub(in crate::engine) fn check_quota(&self, quota: Option<Quota>) -> Result<()> {
        match quota {
            Some(quota) if quota.expires() => {
                self.refuse_in_given_time("a quota that expires items")
            }
            _ => Ok(()),
        }
    }

    /// Time is this moment, unless it is later already.
    pub fn advance_to(&self, moment: Timestamp) -> Result<()> {
        self.expect_given_time()?;
        self.check_writable()?;
        self.clock.advance_to(moment, ClockBehind::StartAtMark)
    }

    /// Lets purges go up to this moment: durable, with all that was written before.
    pub fn set_purge_limit(&self, limit: Timestamp) -> Result<()> {
        let given = self.expect_given_time()?;
        self.check_writable()?;
        if limit <= given.limit() {
            return Ok(());
        }
        let commit = self.commit_log.lock();
        let basis = self.commit_log.all_before(&commit)?;
        let mut manifest = self.catalog.edit();
        // Items that have ended by now may be purged by this alone, without a later write.
        let relied_on = limit.min(self.clock.now());
        self.edit(
            &mut manifest,
            basis,
            vec![Change::GivenTime(limit)],
            relied_on,
        )?;
        drop((manifest, commit));
        given.raise_limit(limit);
        self.scheduler.wake(Thread::Merge);
        Ok(())
    }

    /// A snapshot of the published writes, all of it judged at `moment`, or now if that is later.
    pub fn snapshot_at(&self, moment: Timestamp) -> Result<SnapshotPin> {
        let given = self.expect_given_time()?;
        // No change of settings comes in between.
        let _commit = self.commit_log.lock();
        let pin = self.held_snapshot();
        let states = self.containers.all().into_iter();
        let settings = states.map(|state| (state.id(), state.whole_settings()));
        Ok(pin.judged_at(given.hold(moment, self.clock.now(), settings)))
    }
}
