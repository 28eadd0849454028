//! Watching a container: writes and ends as they happen.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::api::arguments::{KeyBounds, key_range};
use crate::api::container::Container;
use crate::api::expirations::Expiration;
use crate::base::{Result, Seq, Timestamp};
use crate::data::batch::KeyRange;
use crate::data::item::Item;
use crate::data::version::Version;
use crate::engine::{Bell, ContainerState, Engine, Rest, Seen, Watcher};

/// An event in a container: see [`Container::watch`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WatchEvent {
    /// An item was written: put, created, replaced, updated or touched.
    Put(Item),
    /// A key was deleted, whether it had an item or not.
    Delete {
        /// The key.
        key: Bytes,
        /// The version of this write.
        version: Version,
    },
    /// All items in a range of keys were deleted, of which some are watched.
    DeleteRange {
        /// The first key; empty: from the first on.
        from: Bytes,
        /// The first key after the range; `None`: there is no end.
        to: Option<Bytes>,
        /// The version of this write.
        version: Version,
    },
    /// An item has ended, by time, by a change of the default or by a command.
    Ended(Expiration),
    /// The watcher could not keep up: some events after this version were lost. [`Container::changes`] since then tells the
    /// state of each key that was written; items that have ended are not there any more.
    Lost {
        /// All writes up to this version were told.
        from: Version,
    },
}

/// The events of a container, in their order; see [`Container::watch`]. Not fused: `None` says that there is no more by now,
/// and a later call may give some.
#[must_use = "it gives nothing until it is asked, and writers keep for it what it is to give"]
pub struct Watch {
    /// None: it could not be opened, and each call tries again.
    watcher: Option<Watcher>,
    range: Arc<KeyRange>,
    since: Seq,
    has_failed: bool,
    container: Container,
}

impl Watch {
    /// Waits until there is something to give, for at most `timeout` of real time. False: there was nothing. A write wakes it
    /// at once, an end as with [`Expirations::wait`](crate::Expirations::wait).
    ///
    /// # Errors
    /// Those of [`Container::watch`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.with_watcher(|engine, state, watcher| engine.wait_to_watch(state, watcher, timeout))
    }

    /// The version up to which all writes were given, or said to be lost: from there [`Container::changes`] goes on where this
    /// watch was given up.
    #[must_use]
    pub fn told(&self) -> Version {
        let watcher = self.watcher.as_ref();
        Version::of(watcher.map_or(self.since, Watcher::last))
    }

    /// When the next item of the container ends, in the range or not, as known now; see
    /// [`Expirations::next_due`](crate::Expirations::next_due).
    pub fn next_due(&mut self) -> Option<SystemTime> {
        match self.with_watcher(Engine::next_watched_end) {
            Ok(due) => due.map(Timestamp::to_system_time),
            Err(_) => Some(self.container.engine().now().to_system_time()),
        }
    }

    /// Whether there is something to give, and the bell that rings if there is.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) fn look(&mut self) -> Result<(Rest, Arc<Bell>)> {
        self.with_watcher(|engine, state, watcher| {
            let rest = engine.look_to_watch(state, watcher)?;
            Ok((rest, watcher.bell().clone()))
        })
    }

    fn with_watcher<T>(
        &mut self,
        then: impl FnOnce(&Engine, &Arc<ContainerState>, &mut Watcher) -> Result<T>,
    ) -> Result<T> {
        let (engine, state) = (self.container.engine(), self.container.state());
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert(engine.watch(state, self.range.clone(), Some(self.since))?),
        };
        then(engine, state, watcher)
    }
}

impl Iterator for Watch {
    type Item = Result<WatchEvent>;

    /// The next event; `None` when there is no more by now. An error is followed by `None`, and then the same is tried again.
    fn next(&mut self) -> Option<Result<WatchEvent>> {
        if std::mem::take(&mut self.has_failed) {
            return None;
        }
        let next = self.with_watcher(Engine::next_watched).transpose()?;
        self.has_failed = next.is_err();
        Some(next.map(|seen| match seen {
            Seen::Put(item) => WatchEvent::Put(item),
            Seen::Delete(key, seq) => WatchEvent::Delete {
                key,
                version: Version::of(seq),
            },
            Seen::DeleteRange(range, seq) => WatchEvent::DeleteRange {
                from: range.from.into(),
                to: range.to.map(Bytes::from),
                version: Version::of(seq),
            },
            Seen::Ended(ended) => WatchEvent::Ended(Expiration::of(ended)),
            Seen::Lost(seq) => WatchEvent::Lost {
                from: Version::of(seq),
            },
        }))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("container", &self.container.name())
            .finish_non_exhaustive()
    }
}

impl Container {
    /// The writes to the keys of a range, and the ends of their items, as they happen from now on: in the order of versions,
    /// each end after the writes before it. The end of an item is not told if its key was written again before the watcher came
    /// to it. A write is told when others can read it, so under [`Durability::Sync`](crate::Durability::Sync) when it is synced.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options, WatchEvent};
    ///
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open_temporary()?;
    /// let locks = db.container("locks")?;
    /// let mut watch = locks.watch("job-".."job.");
    /// locks.put_with_ttl("job-7", "worker 3", Duration::from_secs(10))?;
    /// locks.put("other", "")?;
    /// clock.advance(Duration::from_secs(11));
    /// let mut seen = vec![];
    /// while watch.wait(Duration::ZERO)? { // a program waits for longer
    ///     for event in &mut watch {
    ///         match event? {
    ///             WatchEvent::Put(item) => seen.push(format!("{:?} has it", item.value())),
    ///             WatchEvent::Ended(ended) => seen.push(format!("{:?} let it go", ended.value())),
    ///             WatchEvent::Lost { from } => drop(locks.changes(from)), // read what there is now
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// assert_eq!(seen, [r#"b"worker 3" has it"#, r#"b"worker 3" let it go"#]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Bounded.** Up to 4096 writes, of 8 MiB together, wait for a watcher that does not take them. It is given these, then
    /// [`WatchEvent::Lost`], then what comes after that: so it never holds writers up, and always knows where it lost count. A
    /// bulk load counts as lost, and so do ends for which it comes a minute too late. To begin with all that is there, open
    /// the watch first, and then read: what is told may have been read already, by its version.
    ///
    /// **Costs.** Nothing where nobody watches. A watched write copies its key and value once for each watcher.
    ///
    /// # Errors
    /// The iterator gives those of [`Container::expirations`]; [`Error::ReadOnly`](crate::Error::ReadOnly) where the database
    /// is followed: there [`Container::changes`] tells.
    pub fn watch(&self, range: impl KeyBounds) -> Watch {
        let (range, since) = (Arc::new(key_range(range)), self.engine().last_visible());
        Watch {
            watcher: self.engine().watch(self.state(), range.clone(), None).ok(),
            range,
            since,
            has_failed: false,
            container: self.clone(),
        }
    }
}
