//! Questions of every part of the engine: whether reads and writes are allowed, and by which time and settings to
//! judge.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{Error, Patience, Result, Seq, Timestamp, Wait, file_name};
use crate::catalog::Change;
use crate::engine::Engine;
use crate::engine::options::{Background, Options};
use crate::engine::parts::catalog::Editing;
use crate::engine::parts::commit_log::Basis;
use crate::engine::parts::given_time::GivenTime;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::env::{SettledClock, monotonic};
use crate::expiry::{ExpiryView, ExpiryViews, Settings};
use crate::wal::{FrameHeader, FrameKind};

/// The time by which the sync interval and rest are counted: in stepped mode the clock's, because a test can advance that.
pub(super) fn log_time(options: &Options, clock: &SettledClock) -> Duration {
    match options.background {
        Background::Threads => monotonic(),
        Background::Stepped => clock.uptime(),
    }
}

impl Engine {
    /// The database's folder; none: it is in memory.
    pub fn path(&self) -> Option<&Path> {
        (!self.fs.is_in_memory()).then_some(&self.path)
    }

    pub(super) fn tables_dir(&self) -> PathBuf {
        self.path.join(file_name::TABLES_DIR)
    }

    pub(super) fn wal_dir(&self) -> PathBuf {
        self.path.join(file_name::WAL_DIR)
    }

    /// Fails if reads are not allowed.
    #[inline]
    pub fn check_open(&self, state: &ContainerState) -> Result<()> {
        self.scheduler.check_open()?;
        state.check()
    }

    /// Fails if writes are not allowed.
    #[inline(always)]
    pub fn check_writable(&self) -> Result<()> {
        let log = self.commit_log.begun();
        let is_writable = !self.scheduler.is_closing()
            && !self.options.read_only
            && !log.is_some_and(|log| log.has_failed())
            && !self.catalog.is_in_doubt();
        match is_writable {
            true => Ok(()),
            false => self.check_writable_again(),
        }
    }

    /// Returns the reason why writes are not allowed, unless they are allowed by now.
    #[cold]
    fn check_writable_again(&self) -> Result<()> {
        self.scheduler.check_open()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        if let Some(failure) = self.commit_log.begun().and_then(|log| log.failure()) {
            return Err(failure);
        }
        self.catalog.check_known()
    }

    /// Makes changes of the catalogue durable, as one edit, which relies on the moment `settled` besides its basis and
    /// records how far the log is synced.
    pub(super) fn edit(
        &self,
        editing: &mut Editing<'_>,
        basis: Basis<'_>,
        mut changes: Vec<Change>,
        settled: Timestamp,
    ) -> Result<()> {
        self.commit_log.rely_on(settled);
        let catalogue = editing.catalogue()?;
        let synced = self.commit_log.synced();
        // First, because it describes the log that is named before these changes.
        let news = synced.and_then(|synced| catalogue.news_of(synced));
        changes.splice(0..0, news);
        editing.commit(basis, changes, settled)?;
        // All that was noted is said.
        self.obsolete.retire_held(|| self.clock.now());
        Ok(())
    }

    /// Makes an edit of what operations of the log have changed: then the log need not hold them.
    pub fn repeat_logged(&self) -> Result<()> {
        let mut editing = self.catalog.edit();
        self.edit(&mut editing, Basis::TABLES, vec![], Timestamp(0))
    }

    /// Takes a snapshot of the published writes.
    pub fn snapshot(&self) -> SnapshotPin {
        let register = || self.snapshots.register(|| self.commit_log.published());
        match &self.follower {
            None => register(),
            Some(follower) => follower.pin(register),
        }
    }

    /// The same for a user, who may hold it for long.
    pub fn held_snapshot(&self) -> SnapshotPin {
        let pin = self.snapshot();
        self.snapshots.note_held(&pin, self.clock.now());
        pin
    }

    /// The header of a frame that holds no write and relies on no moment.
    pub(super) fn frame_header(
        &self,
        kind: FrameKind,
        first_seq: Seq,
        last_seq: Seq,
    ) -> FrameHeader {
        let (now, edit) = (self.clock.now(), self.catalog.durable_edit());
        self.commit_log
            .frame_header(kind, (first_seq, last_seq), now, edit)
    }

    /// The time for reads and stamps.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Tells the clock that the wall clock is right.
    pub fn confirm_clock(&self) {
        self.clock.confirm();
        self.scheduler.wake(Thread::Merge);
    }

    /// The views of one operation, at a time at which the clock did not go back.
    pub(super) fn expiry_views(&self, state: &ContainerState) -> ExpiryViews {
        let views = self.exact_views::<Wait>(state);
        views.expect("whoever waits gets them")
    }

    /// The same for callers that may wait, and for those that may not.
    pub(super) fn exact_views<P: Patience>(
        &self,
        state: &ContainerState,
    ) -> Result<ExpiryViews, P::Failure> {
        loop {
            let leads = self.clock.leads();
            let reading = self.clock.read();
            let settings = state.settings_for::<P>()?;
            let views = ExpiryViews::at(reading.now, reading.settled, || settings);
            if self.clock.leads() == leads {
                return Ok(views);
            }
            P::would_wait()?;
        }
    }

    /// The view at the time for reads alone.
    pub(super) fn expiry_view(&self, state: &ContainerState) -> ExpiryView {
        self.expiry_views(state).now
    }

    /// The view at a moment that is later than now by so many milliseconds at least; cheaper.
    #[inline]
    pub(super) fn later_view_by(&self, state: &ContainerState, millis: u64) -> ExpiryView {
        ExpiryView::at(self.clock.at_most().after(millis), || state.settings())
    }

    /// The view in settled time, for jobs: earlier by the time for which ended items are kept for readers of
    /// expirations.
    pub(super) fn settled_view(&self, state: &ContainerState) -> ExpiryView {
        if let Some(given) = &self.given_time {
            return self.purge_view(given, state);
        }
        // Nothing is purged while the clock is doubted: at moment 0 only items that a floor covers have expired.
        let purge_time = self.clock.purge_time();
        let settled = purge_time.unwrap_or_else(|| self.clock.read().settled);
        let moment = state.feeds().purge_horizon(settled);
        let now = purge_time.map_or(Timestamp(0), |_| moment);
        ExpiryView::at(now, || match moment < settled {
            true => state.whole_settings().that_had_ended(now),
            false => (*state.whole_settings()).clone(),
        })
    }

    /// The same where time is given: by a moment that its limit allows.
    fn purge_view(&self, given: &GivenTime, state: &ContainerState) -> ExpiryView {
        let moment = given.purge_horizon(self.given_ends_dropped(given, state));
        let settings = state.whole_settings();
        // The items that had ended by then are not known any more; an open view may show some of them.
        let is_forgotten = moment < settings.known_from().before(1);
        match is_forgotten && given.oldest_held().is_some() {
            true => ExpiryView::at(Timestamp(0), Settings::default),
            false => ExpiryView::at(moment, || settings.that_had_ended(moment)),
        }
    }

    /// See [`GivenTime::ends_dropped`].
    pub(super) fn given_ends_dropped(
        &self,
        given: &GivenTime,
        state: &ContainerState,
    ) -> Timestamp {
        given.ends_dropped(self.mark(), self.clock.now(), state.feeds().keep())
    }

    /// The time by which jobs judge where nothing is kept; none: they purge nothing.
    pub(super) fn purge_time(&self) -> Option<Timestamp> {
        match &self.given_time {
            Some(_) => Some(self.mark()),
            None => self.clock.purge_time(),
        }
    }

    /// The highest time on which something relied so far.
    pub(super) fn mark(&self) -> Timestamp {
        self.commit_log.rely_on(Timestamp(0))
    }

    /// The basis of an edit that rewrites tables, which relies on the time by which the rewrite judged. Before the
    /// manifest is locked: where time is given, the log is synced up to there.
    pub(super) fn basis_of_purge(&self) -> Result<Basis<'static>> {
        match &self.given_time {
            Some(_) if self.commit_log.begun().is_some() => self.commit_log.all_so_far(),
            _ => Ok(Basis::TABLES),
        }
    }
}
