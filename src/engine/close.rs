//! Closing: threads end -> the log is synced and ended with an end mark -> the manifest says how far it goes -> the
//! folder's lock goes.

use crate::base::{Result, Seq, Timestamp};
use crate::engine::Engine;
use crate::engine::background::tell;
use crate::wal::FrameKind;

/// More unflushed bytes than this are flushed when the database is closed, so that the next open has little to replay.
const FLUSHED_AT_CLOSE: usize = 4 << 20;

impl Engine {
    /// Syncs the log, ends it with an end mark, says so in the manifest, joins the threads, lets go of the lock, tells
    /// who waits for a sync.
    pub fn close(&self) -> Result<()> {
        if self.throttle.unflushed() > FLUSHED_AT_CLOSE {
            // For the next open's sake; when it fails, the log has it all.
            let _ = self.flush();
        }
        if !self.scheduler.close() {
            return Ok(());
        }
        let _merging = self.scheduler.lock_merging();
        let _flushing = self.scheduler.lock_flushing();
        self.obsolete.remove_all();
        let mut commit = self.commit_log.lock();
        let last = Seq(commit.next_seq().0 - 1);
        let end = self.frame_header(FrameKind::End, last, last);
        let result = self.commit_log.close(&mut commit, &end);
        if result.is_ok() && self.commit_log.begun().is_some() {
            // How far the log goes, so that a lost end of it is noticed. When this fails, the log is closed all the same.
            let _ = self
                .commit_log
                .all_before(&commit)
                .and_then(|basis| self.edit(&mut self.catalog.edit(), basis, vec![], Timestamp(0)));
        }
        drop(commit);
        self.catalog.close();
        *self.lock.lock() = None;
        tell(self.sync_waiters.close(), &result);
        result
    }
}
