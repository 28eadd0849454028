//! The use of the database's folder.

use crate::api::database::Database;
use crate::base::Result;
use crate::values::disk_usage::DiskUsage;

impl Database {
    /// The use of the database's folder, in rows that add up to the figure of `du`; see [`DiskUsage`]. Reads the folder
    /// and statistics, and no item: some milliseconds. Under load, files that change meanwhile may be missing.
    ///
    /// A database that is open read-only has it too, also as a follower: only that lists the files that it keeps on disk
    /// itself, though the writing process has removed them.
    ///
    /// ```
    /// use ebbtide::{Database, DiskHolder};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("c")?.put("k", "v")?;
    /// db.flush()?;
    /// let usage = db.disk()?;
    /// // Who keeps what would be gone otherwise, and since when?
    /// for row in usage.rows.iter().filter(|row| row.holder == Some(DiskHolder::Value)) {
    ///     println!("{} bytes are kept by values since {:?}", row.bytes, row.since);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The folder cannot be read, or the database is closed.
    pub fn disk(&self) -> Result<DiskUsage> {
        self.engine().disk()
    }
}
