//! The time of a database whose program gives it.

use std::time::SystemTime;

use crate::api::database::Database;
use crate::api::snapshot::Snapshot;
use crate::base::{Result, Timestamp};

impl Database {
    /// Moves the time to `moment`; an earlier one than [`Database::now`] changes nothing. For databases whose time is
    /// given ([`Options::given_time`](crate::Options::given_time), which has an example).
    ///
    /// # Errors
    /// [`Error::TimeIsNotGiven`](crate::Error::TimeIsNotGiven).
    pub fn advance_to(&self, moment: SystemTime) -> Result<()> {
        self.engine()
            .advance_to(Timestamp::from_system_time(moment))
    }

    /// Allows what has ended up to `limit` to be purged, where time is given: before the first call nothing is. It is
    /// durable when this returns, with all that was written before; a lower limit than before changes nothing. Where
    /// items are purged, and where not yet, differs between databases of one history. So ends up to the limit, less
    /// [`keep_expired`](crate::ContainerOptions::keep_expired), are told by no
    /// [`expirations`](crate::Container::expirations) any more, purged or not.
    ///
    /// A limit that is ahead of time, say the end of all time, allows what has ended by the time of the last write.
    ///
    /// # Errors
    /// [`Error::TimeIsNotGiven`](crate::Error::TimeIsNotGiven), and those of a write.
    pub fn set_purge_limit(&self, limit: SystemTime) -> Result<()> {
        self.engine()
            .set_purge_limit(Timestamp::from_system_time(limit))
    }

    /// A snapshot, all of it judged at `moment`, or now if that is later, and by the settings of now: where time is given
    /// it shows what has ended since. What it may show is not purged as long as it is held.
    ///
    /// Where time is not given, its containers are [`Error::TimeIsNotGiven`](crate::Error::TimeIsNotGiven).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use ebbtide::Options;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Options::new().given_time().open(folder.path())?;
    /// let c = db.container("c")?;
    /// let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    /// db.advance_to(start)?;
    /// c.put_with_ttl("k", "v", Duration::from_secs(10))?;
    /// let then = db.snapshot_at(start);
    /// db.advance_to(start + Duration::from_secs(60))?;
    /// assert!(c.get("k")?.is_none());
    /// assert_eq!(then.container("c")?.get("k")?.unwrap(), "v");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot_at(&self, moment: SystemTime) -> Snapshot {
        let moment = Timestamp::from_system_time(moment);
        match self.engine().snapshot_at(moment) {
            Ok(pin) => Snapshot::new(self.engine().clone(), pin),
            Err(refusal) => Snapshot::refused(self.engine().clone(), refusal),
        }
    }
}
