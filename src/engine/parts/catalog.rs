//! The durable catalogue, and the only way to change it.
//!
//! ```text
//! Catalog::edit -> Editing: one at a time -> commit(basis, changes) -> durable, or nothing has happened, or in doubt
//! ```
//!
//! Invariants:
//!
//! 1. Every edit of an open database comes with a [`Basis`]: proof that the writes it relies on are durable.
//! 2. `durable_edit` is the number of the last durable edit; frames of the log carry it.
//! 3. While it is unknown whether an edit took effect (it is *in doubt*), no table that it may name is removed and no
//!    write is accepted.
//! 4. Table, run and container ids are never reused.
//! 5. What operations of the log have changed is noted here while the commit lock is held under which they were logged, and
//!    repeated by the next edit, whatever its purpose (catalog/manifest.rs). Releasing a log segment takes an edit, and
//!    one under which a frame is logged is not released before the lock is. So the manifest has the change before the
//!    frame goes.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{ContainerId, Error, Result, TableId, Timestamp, file_name};
use crate::catalog::{Catalogue, Change, Logged, Manifest, RunId};
use crate::engine::parts::commit_log::Basis;
use crate::env::Fs;

/// See the file's head.
pub struct Catalog {
    fs: Arc<dyn Fs>,
    tables_dir: PathBuf,
    /// [`Catalogue::database`], which no edit of an open database changes.
    database: u64,
    /// None: the database is closed or read-only.
    manifest: Mutex<Option<Manifest>>,
    /// Copy of [`Manifest::is_in_doubt`].
    in_doubt: AtomicBool,
    /// Tables that an edit in doubt may have named.
    doubtful: Mutex<Vec<TableId>>,
    durable_edit: AtomicU64,
    next_table: AtomicU64,
    next_run: AtomicU64,
    next_container: AtomicU32,
}

impl Catalog {
    /// Continues from the recovered catalogue; without a manifest it never changes.
    pub fn new(
        fs: Arc<dyn Fs>,
        tables_dir: PathBuf,
        manifest: Option<Manifest>,
        recovered: &Catalogue,
    ) -> Catalog {
        Catalog {
            fs,
            tables_dir,
            database: recovered.database,
            manifest: Mutex::new(manifest),
            in_doubt: AtomicBool::new(false),
            doubtful: Mutex::default(),
            durable_edit: AtomicU64::new(recovered.edit),
            next_table: AtomicU64::new(recovered.next_table),
            next_run: AtomicU64::new(recovered.next_run),
            next_container: AtomicU32::new(recovered.next_container),
        }
    }

    /// The identity of the database; 0: unknown.
    pub fn database(&self) -> u64 {
        self.database
    }

    /// Locks the catalogue for edits: nobody else changes it while this is held.
    pub fn edit(&self) -> Editing<'_> {
        Editing {
            catalog: self,
            manifest: self.manifest.lock(),
        }
    }

    /// The number of the last edit that is durable.
    #[inline]
    pub fn durable_edit(&self) -> u64 {
        self.durable_edit.load(Ordering::Acquire)
    }

    /// A new table id.
    pub fn new_table(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// A new run id.
    pub fn new_run(&self) -> RunId {
        RunId(self.next_run.fetch_add(1, Ordering::Relaxed))
    }

    /// A new container id.
    pub fn new_container(&self) -> ContainerId {
        ContainerId(self.next_container.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether an edit may be in doubt; see [`Catalog::check_known`].
    #[inline]
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// Fails while an edit is in doubt that cannot be confirmed: if that edit dropped a container, say, it would take
    /// later writes with it.
    #[inline]
    pub fn check_known(&self) -> Result<()> {
        match self.is_in_doubt() {
            true => self.edit().confirm(),
            false => Ok(()),
        }
    }

    /// Removes tables that no edit names.
    pub fn remove_tables(&self, tables: &[TableId]) {
        for id in tables {
            // The next open removes what stays.
            let _ = self.fs.remove(&self.tables_dir.join(file_name::table(*id)));
        }
    }

    /// Removes tables that were not installed: at once, or as soon as it is certain that no edit names them.
    pub fn give_up_tables(&self, tables: Vec<TableId>) {
        // Held so that no edit comes between the check and the removal.
        let editing = self.edit();
        if editing.is_in_doubt() {
            self.doubtful.lock().extend(tables);
        } else {
            self.remove_tables(&tables);
        }
    }

    /// Bytes of the manifest and of its copy.
    pub fn bytes(&self) -> u64 {
        self.manifest.lock().as_ref().map_or(0, Manifest::len)
    }

    /// From now on nothing changes the catalogue.
    pub fn close(&self) {
        *self.manifest.lock() = None;
    }
}

/// The catalogue, locked for one edit or more.
pub struct Editing<'a> {
    catalog: &'a Catalog,
    manifest: MutexGuard<'a, Option<Manifest>>,
}

impl Editing<'_> {
    /// The durable catalogue.
    pub fn catalogue(&self) -> Result<&Catalogue> {
        let manifest = self.manifest.as_ref().ok_or(Error::Closed)?;
        Ok(manifest.catalogue())
    }

    /// Whether it is unknown if a failed edit took effect.
    pub fn is_in_doubt(&self) -> bool {
        self.manifest.as_ref().is_some_and(Manifest::is_in_doubt)
    }

    /// Makes changes durable, as one edit. It relies on the moment `settled` besides its basis.
    pub fn commit(
        &mut self,
        basis: Basis<'_>,
        changes: Vec<Change>,
        settled: Timestamp,
    ) -> Result<()> {
        let open = self.manifest.as_mut().ok_or(Error::Closed)?;
        let done = open.commit(changes, basis.time_high_water().max(settled));
        if done.is_ok() {
            let edit = open.catalogue().edit;
            self.catalog.durable_edit.store(edit, Ordering::Release);
        }
        self.note_doubt();
        done
    }

    /// Notes what operations of the log have changed, which are durable there. The caller holds the commit lock.
    pub fn note(&mut self, logged: Logged) {
        if let Some(manifest) = self.manifest.as_mut() {
            manifest.note(logged);
        }
    }

    /// Whether so much is noted that an edit is to say it.
    pub fn wants_edit(&self) -> bool {
        self.manifest.as_ref().is_some_and(Manifest::wants_edit)
    }

    /// How much [`Editing::lend_room`] frees at most, in bytes.
    pub fn lendable(&self) -> u64 {
        self.manifest.as_ref().map_or(0, Manifest::lendable)
    }

    /// Frees the room reserved for edits, as far as it can be spared, until [`Editing::reserve`].
    pub fn lend_room(&mut self) {
        if let Some(manifest) = self.manifest.as_mut() {
            manifest.lend_room();
        }
    }

    /// Reserves room for edits again, if the disk has it.
    pub fn reserve(&mut self) {
        if let Some(manifest) = self.manifest.as_mut() {
            manifest.reserve();
        }
    }

    /// Resolves an edit in doubt.
    fn confirm(&mut self) -> Result<()> {
        let confirmed = self.manifest.as_mut().ok_or(Error::Closed)?.resolve_doubt();
        self.note_doubt();
        confirmed
    }

    fn note_doubt(&self) {
        let in_doubt = self.is_in_doubt();
        self.catalog.in_doubt.store(in_doubt, Ordering::Release);
        if !in_doubt {
            let tables = std::mem::take(&mut *self.catalog.doubtful.lock());
            self.catalog.remove_tables(&tables);
        }
    }
}
