//! The tables that bulk loads write, under names that no catalogue knows, until one is about to name them.
//!
//! ```text
//! create: 000042.table.tmp -> written, synced -> give_names: 000042.table -> an edit names it
//!                                     \-> remove: the load failed          (the next open removes what a crash leaves)
//! ```
//!
//! Invariant: a file is created, renamed or removed here only while the database is open. Closing removes those that
//! are left and lets no more come, so a load that outlasts its database touches no file of the next open of the folder.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::base::{Error, Result, TableId, file_name};
use crate::env::{File, Fs};

/// See the file's head.
pub struct Loads {
    fs: Arc<dyn Fs>,
    tables_dir: PathBuf,
    /// The tables without a name; none: the database is closed.
    unnamed: Mutex<Option<BTreeSet<TableId>>>,
}

impl Loads {
    /// Without tables.
    pub fn new(fs: Arc<dyn Fs>, tables_dir: PathBuf) -> Loads {
        Loads {
            fs,
            tables_dir,
            unnamed: Mutex::new(Some(BTreeSet::new())),
        }
    }

    /// Creates the file of a new table.
    pub fn create(&self, id: TableId) -> Result<Box<dyn File>> {
        let mut unnamed = self.unnamed.lock();
        let unnamed = unnamed.as_mut().ok_or(Error::Closed)?;
        let file = self.fs.create(&self.path(id))?;
        unnamed.insert(id);
        Ok(file)
    }

    /// Gives tables the names by which a catalogue knows them; makes these not durable.
    pub fn give_names(&self, tables: &[TableId]) -> Result<()> {
        let mut unnamed = self.unnamed.lock();
        let unnamed = unnamed.as_mut().ok_or(Error::Closed)?;
        for &id in tables {
            let name = self.tables_dir.join(file_name::table(id));
            self.fs.rename(&self.path(id), &name)?;
            unnamed.remove(&id);
        }
        Ok(())
    }

    /// Removes those of these tables that were given no name.
    pub fn remove(&self, tables: &[TableId]) {
        if let Some(unnamed) = self.unnamed.lock().as_mut() {
            let left = tables.iter().filter(|id| unnamed.remove(id));
            left.for_each(|id| self.remove_file(*id));
        }
    }

    /// Removes all that are left; no more come.
    pub fn close(&self) {
        let left = self.unnamed.lock().take();
        left.iter().flatten().for_each(|id| self.remove_file(*id));
    }

    fn remove_file(&self, id: TableId) {
        // The next open removes what stays.
        let _ = self.fs.remove(&self.path(id));
    }

    fn path(&self, id: TableId) -> PathBuf {
        self.tables_dir.join(file_name::loading(id))
    }
}
