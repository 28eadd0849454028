//! Closing: end the threads -> sync the log and write its end mark -> record the log's end in the manifest -> release
//! the folder's lock.

use crate::base::{Result, Seq, Timestamp};
use crate::catalog::Change;
use crate::engine::Engine;
use crate::engine::jobs::background::tell;
use crate::wal::FrameKind;

/// If more bytes than this are unflushed, closing flushes them, so that the next open has little to replay.
const FLUSHED_AT_CLOSE: usize = 4 << 20;

impl Engine {
    /// Syncs the log, writes its end mark, records its end in the manifest, joins the threads, releases the folder's
    /// lock, and calls those who wait for a sync.
    pub fn close(&self) -> Result<()> {
        let closed = self.close_once();
        // Tells the remaining events; no lock is held any more.
        self.tell_listener();
        closed
    }

    fn close_once(&self) -> Result<()> {
        if self.throttle.unflushed() > FLUSHED_AT_CLOSE {
            // Only saves the next open time; if it fails, the log still holds everything.
            let _ = self.flush();
        }
        if !self.scheduler.close() {
            return Ok(());
        }
        for state in self.containers.all() {
            state.feeds().wake();
        }
        let merging = self.scheduler.lock_merging();
        let flushing = self.scheduler.lock_flushing();
        self.obsolete.remove_all();
        self.loads.close();
        let mut commit = self.commit_log.lock();
        let last = Seq(commit.next_seq().0 - 1);
        let end = self.frame_header(FrameKind::End, last, last);
        let result = self.commit_log.close(&mut commit, &end);
        if result.is_ok() && self.commit_log.begun().is_some() {
            // It is no mark: nothing relies on it, and the mark is the same in every database of one history.
            let given = self.given_time.as_ref();
            let time = given.map(|_| Change::ClosedAt(self.clock.now()));
            let changes: Vec<_> = time.into_iter().collect();
            // Records the log's end, so that an open notices if it was lost. If this fails, the log is closed all the
            // same.
            let _ = self.commit_log.all_before(&commit).and_then(|basis| {
                self.edit(&mut self.catalog.edit(), basis, changes, Timestamp(0))
            });
        }
        drop(commit);
        self.catalog.close();
        *self.lock.lock() = None;
        // A waiter may call the database.
        drop((flushing, merging));
        tell(self.sync_waiters.close(), &result);
        result
    }
}
