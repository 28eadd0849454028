//! A node that was taken out of its cluster learns it: the others send it nothing any more, so it asks them.
//!
//! ```text
//! hears no leader ── asks all that it knows: am I a member? ──> by the last change of members that is committed, no ──> Removed
//! ```
//!
//! Invariants:
//!
//! 1. The answer is by a committed change of members that is no older than what the asker knows of members. Ids are not used again, so
//!    it stays true.
//! 2. A node that is still on its way in asks nobody.
//! 3. A node that has learned it knows it when it is opened again, whoever runs then (identity.rs).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ebbtide::Clock;

use super::Core;
use super::checking::peer;
use super::identity::Identity;
use super::surveying::WITHIN;
use crate::calls;
use crate::face::Error;

/// A node that has heard no leader for so long asks, in milliseconds of the own uptime.
const SILENT_MS: u64 = 2_000;

/// Whether a node is a member, as far as it has been told.
pub(super) struct Standing {
    folder: PathBuf,
    /// It began, joined, or was a member before.
    is_placed: AtomicBool,
    is_removed: AtomicBool,
}

impl Standing {
    pub(super) fn of(folder: &Path, identity: &Identity) -> Standing {
        Standing {
            folder: folder.to_owned(),
            is_placed: AtomicBool::new(false),
            is_removed: AtomicBool::new(identity.was_removed),
        }
    }

    pub(super) fn placed(&self) {
        self.is_placed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}

impl Core {
    /// An error where this node is a member no more.
    pub(super) fn is_in(&self) -> Result<(), Error> {
        match self.standing.is_removed() {
            true => Err(Error::Removed {
                node: self.identity.node,
            }),
            false => Ok(()),
        }
    }

    fn hears_nobody(&self) -> bool {
        let uptime = self.clock.uptime();
        let is_recent = |heard: u64| uptime.saturating_sub(heard) <= SILENT_MS;
        self.replica.leader().is_none() || !self.heard_at().is_some_and(is_recent)
    }

    /// Asks the others whether this node is a member, where it hears no leader.
    pub(super) async fn ask_standing(self: &Arc<Core>) {
        let standing = &self.standing;
        let is_placed = standing.is_placed.load(Ordering::Relaxed);
        if !is_placed || standing.is_removed() || self.replica.is_leading() || !self.hears_nobody()
        {
            return;
        }
        let known = self.replica.members_at();
        let members = self.replica.members().into_iter();
        let mut asking = tokio::task::JoinSet::new();
        for member in members.filter(|member| member.id != self.identity.node) {
            let core = self.clone();
            asking.spawn(async move {
                let (nothing, to) = (Bytes::new(), peer(&member));
                let asked = core.calls.ask(&to, calls::STANDING, nothing, WITHIN);
                let answer = asked.await.ok()?;
                calls::decode::<Option<u64>>(&answer).ok().flatten()
            });
        }
        while let Some(answer) = asking.join_next().await {
            let removed_at = answer.ok().flatten();
            if removed_at.is_some_and(|index| index >= known) {
                self.remove().await;
                return;
            }
        }
    }

    async fn remove(&self) {
        let (identity, folder) = (self.identity, self.standing.folder.clone());
        // Where that fails it asks again when it is opened.
        let _ = tokio::task::spawn_blocking(move || identity.removed(&folder)).await;
        self.standing.is_removed.store(true, Ordering::Relaxed);
        self.replica.removed();
    }
}
