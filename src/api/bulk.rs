//! Loading many sorted items at once.

use crate::api::arguments::check_item;
use crate::api::container::Container;
use crate::api::writing::write_ttl;
use crate::base::{Error, Result, Ttl};
use crate::data::batch::WriteTtl;
use crate::data::write::Written;
use crate::engine::LoadedItem;

impl Container {
    /// Loads items whose keys ascend, straight into tables: for many items this costs a fraction of what puts do. All
    /// take effect in one step, as one write with one version, when it returns, and survive a power cut from then on;
    /// until then nobody sees one of them. A load that fails leaves nothing behind. The loaded items take the place of
    /// older items with the same keys, also of those that were written while it went on. `written_at` is the moment at
    /// which it began.
    ///
    /// It takes as long as its items do to come; reads, writes and other loads go on meanwhile, until it takes effect
    /// at the end, for which writes wait some milliseconds. It holds two tables' blocks in memory and needs no room in
    /// the log. Of two loads at once, the one that ends last is the newest, and may write its tables a second time for
    /// that. An item whose lifetime is shorter than the load took has never been there, and [`Container::expirations`]
    /// may leave it out.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let c = Database::open(folder.path())?.container("c")?;
    /// c.put("k00007", "old")?;
    /// let numbers = (0..10_000).map(|n| (format!("k{n:05}"), n.to_string()));
    /// let written = c.bulk_load(numbers)?;
    /// assert_eq!(c.get("k00007")?.unwrap(), "7");
    /// assert_eq!(c.item("k09999")?.unwrap().version(), written.version());
    ///
    /// let error = c.bulk_load([("a", "1"), ("c", "2"), ("b", "3")]).unwrap_err();
    /// println!("{error}"); // names b and c
    /// assert!(c.get("a")?.is_none()); // nothing was loaded
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a key is not above the one before it, or a key or a value is out of its range;
    /// [`Error::QuotaFull`] if the container's quota or that of the database has no room for it;
    /// [`Error::TooManyCommands`] if the default was changed meanwhile and as many commands stand as are allowed; those
    /// of any write.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        items: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Written> {
        let items = items.into_iter();
        self.load(items.map(|(key, value)| Ok((key, value, Ttl::Inherit))))
    }

    /// Like [`Container::bulk_load`], of items with a ttl each, which counts from the beginning of the load; not
    /// [`Ttl::Keep`] or [`Ttl::Like`]. An error in the place of an item ends the load, and is returned.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let c = Database::open(folder.path())?.container("c")?;
    /// let hour = Duration::from_secs(3_600);
    /// c.bulk_load_with_ttl([Ok(("a", "1", Ttl::Never)), Ok(("b", "2", hour.into()))])?;
    /// assert!(c.item("b")?.unwrap().remaining() > Some(hour / 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bulk_load_with_ttl<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        items: impl IntoIterator<Item = Result<(K, V, Ttl)>>,
    ) -> Result<Written> {
        self.load(items.into_iter())
    }

    fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        mut items: impl Iterator<Item = Result<(K, V, Ttl)>>,
    ) -> Result<Written> {
        let mut next = |place: &mut LoadedItem| -> Result<bool> {
            let Some((key, value, ttl)) = items.next().transpose()? else {
                return Ok(false);
            };
            let (key, value) = (key.as_ref(), value.as_ref());
            check_item(key, value)?;
            let given = write_ttl(ttl)?;
            if let WriteTtl::Keep | WriteTtl::Like(_) = given {
                let allowed = "one that is to count from now on";
                return Err(Error::invalid("ttl", ttl.to_string(), allowed));
            }
            place.set(key, value, given);
            Ok(true)
        };
        self.engine().bulk_load(self.state(), &mut next)
    }
}
