//! Opening a database: in a folder, beside the process that writes it, in memory.

use std::path::Path;
use std::sync::Arc;

use crate::api::database::Database;
use crate::base::{Error, Result};
use crate::engine::Engine;
use crate::engine::options::Options;
use crate::env::MemoryDisk;

impl Options {
    /// Opens the database in a folder; creates both if they are missing, unless read-only.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.check()?;
        Ok(Database::new(Engine::open(path.as_ref(), self)?))
    }

    /// A new database in memory, with every setting at its default: for tests, and for caches that begin empty. It works as
    /// one in a folder does and keeps nothing: when its last handle is dropped, its memory is given back, but for
    /// what values that were read still hold. No file is made. [`Options::open_temporary`] is the same with other
    /// settings.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::Options;
    ///
    /// let cache = Options::temporary()?.container("cache")?;
    /// cache.put_with_ttl("k", "v", Duration::from_secs(60))?;
    /// assert_eq!(cache.get("k")?.unwrap(), "v");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn temporary() -> Result<Database> {
        Options::new().open_temporary()
    }

    /// A new database in memory, with these settings; see [`Options::temporary`]. Each call makes another one. Beside the
    /// memory of [`Options::memtable_bytes`] it takes that of the stored items, and of the log, which is as large as what is
    /// not flushed. [`Options::max_live_bytes`] bounds the items.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open_temporary()?;
    /// let sessions = db.container("sessions")?;
    /// sessions.put_with_ttl("s-1", "ada", Duration::from_secs(60))?;
    /// clock.advance(Duration::from_secs(60));
    /// assert!(sessions.get("s-1")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a setting out of range, and with
    /// [`Options::read_only`]: there is nothing to read. [`Database::checkpoint`] of it is one, too.
    pub fn open_temporary(&self) -> Result<Database> {
        if self.read_only {
            let allowed = "false for a database in memory";
            return Err(Error::invalid("read_only", "true", allowed));
        }
        let folder = Path::new("/memory");
        let mut options = self.clone();
        options.fs = Arc::new(MemoryDisk::new(folder));
        options.open(folder)
    }

    /// Opens the database in a folder to read it beside the process that writes it, or where nobody does. It takes no
    /// lock and writes nothing, and the writer neither waits for it nor knows of it. A write shows within
    /// [`Options::catch_up_interval`], and at once after [`Database::catch_up`].
    ///
    /// A follower shows a prefix of the writer's history, the state that an open would recover if the writer were
    /// killed at that moment: `Buffered` writes that are not synced, too, and a `Sync` write that is not acknowledged
    /// yet. Items are judged at each read by the follower's own clock ([`Options::clock`]), which is no earlier than
    /// the time on which the writer has relied. So until the follower has caught up, an item can be gone here that a
    /// refresh or a longer default, which it has not seen, keeps alive in the writer. If the whole content of the
    /// folder is replaced by an older or another database, that one is followed from then on. A snapshot, and an
    /// iterator, stays with the state in which it was made, and keeps the disk space of the files it reads, also of
    /// those that the writer has removed meanwhile.
    ///
    /// It needs memory for the records that the writer has not flushed, twice for a moment after each of its flushes. A
    /// call that would change something answers [`Error::ReadOnly`](crate::Error::ReadOnly), but for
    /// [`Database::checkpoint`], which writes to another folder.
    ///
    /// ```
    /// use ebbtide::{Database, Error, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let writer = Database::open(folder.path())?.container("c")?; // mostly in another process
    /// writer.put("k", "1")?;
    /// let follower = Options::new().follow(folder.path())?;
    /// let c = follower.container("c")?;
    /// assert_eq!(c.get("k")?.unwrap(), "1");
    /// writer.put("k", "2")?;
    /// follower.catch_up()?;
    /// assert_eq!(c.get("k")?.unwrap(), "2");
    /// assert!(matches!(c.put("k", "3"), Err(Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) when there is no database; damage, and a clock that is too far
    /// behind, as [`Options::open`] has them. A file that the writer has just removed is none: it is looked for
    /// again.
    pub fn follow(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.check()?;
        Ok(Database::new(Engine::follow(path.as_ref(), self)?))
    }
}
