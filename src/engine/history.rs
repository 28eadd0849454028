//! What an edit of the manifest relies on.
//!
//! History is one order of everything: writes in the log, edits in the manifest. The commit turn gives it.
//!
//! ```text
//! log         w w w w | w w w | w w            w: writes
//! manifest            e       e                e: edits, each with its place in the order
//!             synced before e
//! ```
//!
//! What lasts lacks nothing that came before it, and relies on no write that does not last. So an edit is committed with a
//! [`Basis`], which is made only once the log is synced as far as the edit relies on it. With the writes come the times
//! that they relied on: an edit carries the highest of these as its mark, and its own.
//!
//! | edit | relies on | basis |
//! | --- | --- | --- |
//! | the default changes; a container is made or dropped | all that came before it | [`Engine::all_before`], in the turn |
//! | a flush, range deletes with it; the log's first segment is named | what was written up to a moment before | [`Engine::all_so_far`] |
//! | tables are merged, joined or dropped | tables, whose writes were durable before them, and a time of its own | [`Basis::TABLES`] |
//! | a new log is begun; the log is closed | all that came before it | [`Engine::all_before`] |
//!
//! After a failed sync of the log there is no basis but tables: what gives back room goes on, nothing else does. Without a
//! log, after an open that found no room for one, everything is durable: that open has synced what it read.

use std::marker::PhantomData;

use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result, Seq, Timestamp};
use crate::catalog::{Change, Manifest};
use crate::engine::core::{Engine, Turn};

/// Proof that what an edit relies on is durable. For as long as it borrows the turn nothing can be written that it lacks.
#[derive(Clone, Copy)]
pub(super) struct Basis<'turn> {
    /// The highest time on which these writes relied.
    mark: Timestamp,
    /// The last number among them.
    last: Seq,
    turn: PhantomData<&'turn Turn>,
}

impl Basis<'_> {
    /// Tables alone: a table is written after the log was synced past its records, or from such tables.
    pub(super) const TABLES: Basis<'static> = Basis {
        mark: Timestamp(0),
        last: Seq(0),
        turn: PhantomData,
    };

    /// Every write up to this number is durable.
    pub(super) fn covers(&self, seq: Seq) -> bool {
        seq <= self.last
    }
}

impl Engine {
    /// Most of what [`Engine::all_before`] will sync, so that the turn is not held for it.
    pub(super) fn sync_ahead(&self) -> Result<()> {
        self.log.get().map_or(Ok(()), |log| log.sync_to(log.end()))
    }

    /// In the turn: all that came before is durable, and seen.
    pub(super) fn all_before<'turn>(&self, _turn: &'turn Turn) -> Result<Basis<'turn>> {
        self.sync_ahead()?;
        let last = self.latest();
        self.publish(last);
        Ok(Basis {
            mark: self.rely_on(Timestamp(0)),
            last,
            turn: PhantomData,
        })
    }

    /// What is written by now is durable and seen, and any segment of the log may be named by the manifest.
    pub(super) fn all_so_far(&self) -> Result<Basis<'static>> {
        let log = self.log()?;
        let (position, last, mark) = {
            let _turn = self.turn.lock();
            (log.end(), self.latest(), self.rely_on(Timestamp(0)))
        };
        log.sync_to(position)?;
        log.sync_newest()?;
        self.publish(last);
        Ok(Basis {
            mark,
            last,
            turn: PhantomData,
        })
    }

    /// Makes changes of the catalogue durable, as one edit, which relies on the moment `settled` beside its basis. Every
    /// edit of an open database comes this way.
    pub(super) fn edit(
        &self,
        manifest: &mut Option<Manifest>,
        basis: Basis<'_>,
        changes: Vec<Change>,
        settled: Timestamp,
    ) -> Result<()> {
        let open = manifest.as_mut().ok_or(Error::Closed)?;
        self.rely_on(settled);
        let done = open.commit(changes, basis.mark.max(settled));
        if done.is_ok() {
            let edit = open.catalogue().edit;
            self.durable_edit.store(edit, Ordering::Release);
        }
        self.note_doubt(manifest);
        done
    }
}
