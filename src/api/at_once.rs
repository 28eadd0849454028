//! Writes of one item that are done without waiting, or not at all.

use crate::api::container::Container;
use crate::api::writing::{NotWaiting, Writes as _};
use crate::base::{AtOnce, Result, Ttl};
use crate::data::version::Version;
use crate::data::write::{PutIf, Upserted};

impl Container {
    /// As [`Container::upsert`], if nothing is to be waited for. [`AtOnce::WouldWait`]: nothing was written. When it would wait is
    /// said at [`Database::try_write`](crate::Database::try_write).
    ///
    /// # Errors
    /// Those of [`Container::put_with_ttl`].
    pub fn try_upsert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<AtOnce<Upserted>> {
        if self.engine().syncs_writes() {
            return Ok(AtOnce::WouldWait);
        }
        let writing = self.writing_by(NotWaiting);
        AtOnce::of(writing.upsert(key.as_ref(), value.as_ref(), ttl.into()))
    }

    /// As [`Container::put_if`], if nothing is to be waited for. [`AtOnce::WouldWait`]: nothing was written, whether or not
    /// `accepts` was asked. When it would wait is said at [`Database::try_write`](crate::Database::try_write).
    ///
    /// ```
    /// use ebbtide::{AtOnce, Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let pages = Database::open(folder.path())?.container("pages")?;
    /// let put = match pages.try_put_if("home", "text", Ttl::Inherit, |found| found.is_none())? {
    ///     AtOnce::Ready(put) => put,
    ///     AtOnce::WouldWait => pages.put_if("home", "text", Ttl::Inherit, |found| found.is_none())?,
    /// };
    /// assert!(put.written.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Container::put_if`].
    pub fn try_put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        accepts: impl FnMut(Option<Version>) -> bool,
    ) -> Result<AtOnce<PutIf>> {
        if self.engine().syncs_writes() {
            return Ok(AtOnce::WouldWait);
        }
        let writing = self.writing_by(NotWaiting);
        AtOnce::of(writing.put_if(key.as_ref(), value.as_ref(), ttl.into(), accepts))
    }
}
