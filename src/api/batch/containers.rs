//! Changes of whole containers in a batch.

use std::time::{Duration, SystemTime};

use super::Batch;
use crate::api::container::Container;
use crate::base::{DefaultTtl, Timestamp, millis_up};
use crate::data::batch::Op;
use crate::engine::options::ContainerOptions;
use crate::expiry::{DefaultMillis, Expire};

impl Batch {
    /// Changes the container's default, as [`Container::set_default_ttl`] does. The whole batch is durable when the
    /// write returns.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Batch, Database, DefaultTtl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (logs, rules) = (db.container("logs")?, db.container("rules")?);
    /// let mut batch = Batch::new();
    /// batch.set_default_ttl(&logs, DefaultTtl::After(Duration::from_secs(86_400)));
    /// batch.put(&rules, "logs", "one day");
    /// db.write(batch)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_default_ttl(
        &mut self,
        container: impl AsRef<Container>,
        default: DefaultTtl,
    ) -> &mut Self {
        let container = container.as_ref();
        let default = DefaultMillis::from_public(default);
        let op = default.map(|default| move |container| Op::SetDefault { container, default });
        self.push(container, op)
    }

    /// Expires items of the container, as [`Container::expire_before`] does: those that were written before, also by
    /// this batch; items that the batch writes later stay. The whole batch is durable when the write returns.
    ///
    /// ```
    /// use ebbtide::{Batch, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let prices = db.container("prices")?;
    /// prices.put("gold", "of yesterday")?;
    /// let mut batch = Batch::new();
    /// batch.expire_all(&prices).put(&prices, "silver", "of today");
    /// db.write(batch)?; // nobody sees neither, or both
    /// assert!(prices.get("gold")?.is_none() && prices.get("silver")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expire_before(
        &mut self,
        container: impl AsRef<Container>,
        moment: SystemTime,
    ) -> &mut Self {
        let container = container.as_ref();
        let moment = Timestamp::from_system_time_up(moment);
        self.command(container, Expire::Before(moment))
    }

    /// Expires items of the container, as [`Container::expire_written_before`] does; see [`Batch::expire_before`].
    /// Items of the batch itself count as written at the moment of the batch.
    pub fn expire_written_before(
        &mut self,
        container: impl AsRef<Container>,
        moment: SystemTime,
    ) -> &mut Self {
        let container = container.as_ref();
        let moment = Timestamp::from_system_time_up(moment);
        self.command(container, Expire::WrittenBefore(moment))
    }

    /// Expires every item of the container, as [`Container::expire_all`] does; see [`Batch::expire_before`].
    pub fn expire_all(&mut self, container: impl AsRef<Container>) -> &mut Self {
        let container = container.as_ref();
        self.command(container, Expire::All)
    }

    /// Changes how long ended items of the container are kept, as [`Container::set_keep_expired`] does. The whole batch is
    /// durable when the write returns.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Batch, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (carts, rules) = (db.container("carts")?, db.container("rules")?);
    /// let mut batch = Batch::new();
    /// batch.set_keep_expired(&carts, Duration::from_secs(3600)).put(&rules, "carts", "remind within an hour");
    /// db.write(batch)?;
    /// assert_eq!(carts.keep_expired(), Duration::from_secs(3600));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_keep_expired(
        &mut self,
        container: impl AsRef<Container>,
        duration: Duration,
    ) -> &mut Self {
        let container = container.as_ref();
        let engine = container.engine();
        let op = engine.keep_expired(container.state(), millis_up(duration));
        self.push(container, Ok(move |_| op))
    }

    /// Makes a container, as [`Database::container_with`](crate::Database::container_with) does where there is none of
    /// this name. If there is one, the whole batch is a conflict, [`Error::Differs`](crate::Error::Differs) if the
    /// container is set otherwise than the options say; or, after [`Batch::on_miss`], this is left out. So it is,
    /// whatever was said before, if the options say [`ContainerOptions::or_keep`]; with [`ContainerOptions::or_change`]
    /// the batch sets what differs, and this counts as done. What the batch itself has dropped before is not there. The
    /// whole batch is durable when the write returns; the container has no handle before.
    ///
    /// ```
    /// use ebbtide::{Batch, ContainerOptions, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let tenants = db.container("tenants")?;
    /// let mut batch = Batch::new();
    /// batch.put(&tenants, "acme", "").create_container("orders of acme", ContainerOptions::new());
    /// db.write(&batch)?; // both, or neither
    /// assert_eq!(db.containers(), ["orders of acme", "tenants"]);
    /// assert!(db.write(&batch).unwrap_err().is_conflict());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_container(
        &mut self,
        name: impl AsRef<str>,
        options: ContainerOptions,
    ) -> &mut Self {
        let on_miss = self.on_miss;
        let added = self
            .writes
            .create_container(name.as_ref(), &options, on_miss);
        self.note(added)
    }

    /// Drops a container with everything in it, as [`Database::drop_container`](crate::Database::drop_container) does. If
    /// there is none of this name, the whole batch is a conflict; or, after [`Batch::on_miss`], this is left out. What the
    /// batch itself has made before is there. A later write of the batch to it is refused:
    /// [`Error::ContainerDropped`](crate::Error::ContainerDropped). The whole batch is durable when the write returns.
    ///
    /// ```
    /// use ebbtide::{Batch, ContainerOptions, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let today = db.container("today")?;
    /// today.put("k", "of yesterday")?;
    /// let mut batch = Batch::new();
    /// batch.drop_container("today").create_container("today", ContainerOptions::new());
    /// db.write(batch)?; // nobody sees a day without a container
    /// assert!(db.container("today")?.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_container(&mut self, name: impl AsRef<str>) -> &mut Self {
        let added = self.writes.drop_container(name.as_ref(), self.on_miss);
        self.note(added)
    }

    fn command(&mut self, container: &Container, what: Expire) -> &mut Self {
        self.push(container, Ok(|container| Op::Expire { container, what }))
    }
}
