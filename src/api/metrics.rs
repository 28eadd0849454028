//! Figures for the recorder of the crate `metrics`.

use crate::api::database::Database;
use crate::base::Result;

impl Database {
    /// Hands the database's figures to the recorder that the program has installed for the crate `metrics`: those of
    /// docs/metrics.md, with their units, at this moment. A database that is not read-only does so by itself every ten
    /// seconds. Takes some milliseconds; no other operation does anything for it.
    ///
    /// Where the calling thread has a recorder of its own (`metrics::with_local_recorder`), that gets them. A recorder must
    /// not use the database.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("c")?.put("k", "v")?;
    /// db.publish_metrics()?; // before an exporter is asked, say
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The folder cannot be read, or the database is closed.
    pub fn publish_metrics(&self) -> Result<()> {
        self.engine().publish_metrics()
    }
}
