//! The expirations of a container: each end of an item, once, in the order of ends.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::container::Container;
use crate::base::{Result, Timestamp, millis_up};
use crate::data::item::Value;
use crate::data::version::Version;
use crate::engine::{Bell, ContainerState, Ended, Engine, Feed, FeedPosition, Rest};
use crate::expiry::Cause;

/// The cause of an item's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpirationCause {
    /// A ttl of its own.
    Ttl,
    /// The container's default ttl.
    Default,
    /// A change of the default ttl, under which it had ended already: the change is its end.
    Change,
    /// A command: [`Container::expire_before`] and its neighbours. The command is its end.
    Command,
}

impl ExpirationCause {
    fn of(cause: Cause) -> ExpirationCause {
        match cause {
            Cause::Own => ExpirationCause::Ttl,
            Cause::Default => ExpirationCause::Default,
            Cause::Change => ExpirationCause::Change,
            Cause::Command => ExpirationCause::Command,
        }
    }

    fn inner(self) -> Cause {
        match self {
            ExpirationCause::Ttl => Cause::Own,
            ExpirationCause::Default => Cause::Default,
            ExpirationCause::Change => Cause::Change,
            ExpirationCause::Command => Cause::Command,
        }
    }
}

/// An item that has expired, as it was.
#[derive(Clone)]
pub struct Expiration(Ended);

impl Expiration {
    pub(crate) fn of(ended: Ended) -> Expiration {
        Expiration(ended)
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.0.key
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// Its value, without the rest.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.0.value
    }

    /// When it was written last.
    #[must_use]
    pub fn written_at(&self) -> SystemTime {
        self.0.header.written_at.to_system_time()
    }

    /// The version of its last write.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.0.header.seq)
    }

    /// The moment from which it is gone.
    #[must_use]
    pub fn expired_at(&self) -> SystemTime {
        self.0.at.to_system_time()
    }

    /// The cause of its end.
    #[must_use]
    pub fn cause(&self) -> ExpirationCause {
        ExpirationCause::of(self.0.cause)
    }
}

impl fmt::Debug for Expiration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiration")
            .field("key", &self.key().escape_ascii().to_string())
            .field("value", &self.0.value)
            .field("expired_at", &self.0.at.to_string())
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

/// Where a reader of [`Container::expirations`] is: plain data, to be stored with the results of the reader, by any
/// format of serde. It is good across reopens, kills and changes of settings, for the container that it is of.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ExpiryCursor(FeedPosition);

impl ExpiryCursor {
    /// The oldest expiration that is still known when the reader is first asked for one. Such a reader is never refused for
    /// what was known before, and left out: what is off the disk, and what earlier changes and commands than the 64 latest
    /// have ended. Where that matters, begin at [`ExpiryCursor::at`] a moment: then it is an error.
    #[must_use]
    pub fn start() -> ExpiryCursor {
        ExpiryCursor(FeedPosition::Start)
    }

    /// The time at which the reader is opened: it gives the items that expire from then on. Items that had expired by
    /// then are left out, also in the same millisecond.
    #[must_use]
    pub fn now() -> ExpiryCursor {
        ExpiryCursor(FeedPosition::Now)
    }

    /// A moment, rounded up to a millisecond: the reader gives the items that expire from then on. If it is the moment
    /// of the opening, this is the same as [`ExpiryCursor::now`].
    #[must_use]
    pub fn at(moment: SystemTime) -> ExpiryCursor {
        ExpiryCursor(FeedPosition::From(Timestamp::from_system_time_up(moment)))
    }
}

/// Expirations in the order of their ends, then of keys; see [`Container::expirations`]. Not fused: `None` says that there
/// is no more by now, and a later call may give some.
#[must_use = "it gives nothing until it is asked, and keeps what it is to give"]
pub struct Expirations {
    /// None: it could not be opened, and each call tries again.
    feed: Option<Feed>,
    from: FeedPosition,
    causes: Option<Vec<Cause>>,
    container: Container,
    has_failed: bool,
}

impl Expirations {
    /// The position after the last expiration that was given.
    #[must_use]
    pub fn cursor(&self) -> ExpiryCursor {
        let feed = self.feed.as_ref();
        ExpiryCursor(feed.map_or_else(|| self.from.clone(), Feed::place))
    }
}

impl Expirations {
    /// From now on gives only the items that ended by these causes, and passes over the others.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ExpirationCause, ExpiryCursor, ManualClock, Options};
    ///
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open_temporary()?;
    /// let carts = db.container("carts")?;
    /// let by_time = [ExpirationCause::Ttl, ExpirationCause::Default];
    /// let mut forgotten = carts.expirations(ExpiryCursor::now()).causes(by_time);
    /// carts.put_with_ttl("ada", "3 books", Duration::from_secs(10))?;
    /// carts.expire_all()?; // a sale is over: nobody is to be reminded
    /// carts.put_with_ttl("bob", "a lamp", Duration::from_secs(10))?;
    /// clock.advance(Duration::from_secs(20));
    /// assert_eq!(forgotten.next().unwrap()?.key(), b"bob");
    /// assert!(forgotten.next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn causes(mut self, causes: impl AsRef<[ExpirationCause]>) -> Expirations {
        self.only(causes.as_ref());
        self
    }

    pub(crate) fn only(&mut self, causes: &[ExpirationCause]) {
        let causes: Vec<_> = causes.iter().map(|cause| cause.inner()).collect();
        if let Some(feed) = &mut self.feed {
            feed.only(causes.clone());
        }
        self.causes = Some(causes);
    }

    /// When the next item ends that is to be given, as known now; if it has ended already, it is given by the next call.
    /// `None`: no item has an end. A write, or a change of the default, may move it. It reads the item as a get does, and
    /// others whose end is not theirs any more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ExpiryCursor, ManualClock, Options};
    ///
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open_temporary()?;
    /// let carts = db.container("carts")?;
    /// let mut expired = carts.expirations(ExpiryCursor::now());
    /// assert_eq!(expired.next_due(), None);
    /// carts.put_with_ttl("ada", "3 books", Duration::from_secs(10))?;
    /// assert_eq!(expired.next_due(), Some(db.now() + Duration::from_secs(10)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Where the iterator would give an error, this is the time of now: ask it, and it gives that.
    pub fn next_due(&mut self) -> Option<SystemTime> {
        match self.with_feed(Engine::next_end) {
            Ok(due) => due.map(Timestamp::to_system_time),
            Err(_) => Some(self.container.engine().now().to_system_time()),
        }
    }

    /// Waits until there is something to give, for at most `timeout` of real time. False: there was nothing. It rests until
    /// the next item ends, and is woken by a write that ends before, a change of settings, and the close of the database. It
    /// looks again once a second, because the system's clock can leap, and 20 times a second where a program has a clock of its
    /// own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ExpiryCursor, Options};
    ///
    /// let tokens = Options::temporary()?.container("tokens")?;
    /// let mut expired = tokens.expirations(ExpiryCursor::now());
    /// tokens.put_with_ttl("t-1", "ada", Duration::from_millis(20))?;
    /// while expired.wait(Duration::from_secs(60))? {
    ///     if let Some(ended) = expired.next().transpose()? {
    ///         assert_eq!(ended.key(), b"t-1");
    ///         break; // a program goes on
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As the iterator gives them; [`Error::Closed`](crate::Error::Closed) when the database is closed meanwhile.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.with_feed(|engine, state, feed| engine.wait_for_end(state, feed, timeout))
    }

    /// Whether there is something to give, and the bell that rings if there is.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) fn look(&mut self) -> Result<(Rest, Arc<Bell>)> {
        self.with_feed(|engine, state, feed| {
            let rest = engine.look_for_end(state, feed)?;
            Ok((rest, feed.bell().clone()))
        })
    }

    fn with_feed<T>(
        &mut self,
        then: impl FnOnce(&Engine, &Arc<ContainerState>, &mut Feed) -> Result<T>,
    ) -> Result<T> {
        let (engine, state) = (self.container.engine(), self.container.state());
        let feed = match &mut self.feed {
            Some(feed) => feed,
            none => {
                let mut feed = engine.feed(state, self.from.clone())?;
                self.causes
                    .iter()
                    .for_each(|causes| feed.only(causes.clone()));
                none.insert(feed)
            }
        };
        then(engine, state, feed)
    }
}

impl Iterator for Expirations {
    type Item = Result<Expiration>;

    /// The next expiration; `None` when there is no more by now. An error is followed by `None`, and then the same is
    /// tried again.
    fn next(&mut self) -> Option<Result<Expiration>> {
        if std::mem::take(&mut self.has_failed) {
            return None;
        }
        let next = self.with_feed(Engine::next_ended).transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next.map(|ended| ended.map(Expiration))
    }
}

impl fmt::Debug for Expirations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expirations")
            .field("cursor", &self.cursor())
            .finish_non_exhaustive()
    }
}

impl Container {
    /// The items that expire, each once, at its end and not when its bytes are removed, also those that nobody reads: in the
    /// order of their ends, with one end in the order of keys, and with the value they had. The iterator ends when it has
    /// caught up, and goes on when it is asked again: ask as often as you want to know, for it costs some microseconds when
    /// nothing has expired; or wait ([`Expirations::wait`]).
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ExpirationCause, ExpiryCursor, ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open(folder.path())?;
    /// let carts = db.container("carts")?;
    /// let mut expired = carts.expirations(ExpiryCursor::now());
    /// carts.put_with_ttl("ada", "3 books", Duration::from_secs(10))?;
    /// carts.put_with_ttl("bob", "a lamp", Duration::from_secs(20))?;
    /// assert!(expired.next().is_none()); // not yet
    /// clock.advance(Duration::from_secs(15));
    /// let ada = expired.next().unwrap()?;
    /// assert_eq!((ada.key(), &ada.value()[..]), (&b"ada"[..], &b"3 books"[..]));
    /// assert_eq!(ada.cause(), ExpirationCause::Ttl);
    ///
    /// let cursor = expired.cursor(); // plain data: store it with what was done
    /// drop(expired);
    /// clock.advance(Duration::from_secs(15));
    /// let mut expired = carts.expirations(cursor);
    /// assert_eq!(expired.next().unwrap()?.key(), b"bob");
    /// assert!(expired.next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// An item that is replaced or deleted before its end has no expiration. One whose key has been written anew since is left
    /// out, so that an expiration never follows a newer write. An end is given once its millisecond is over, by settled time:
    /// not while the wall clock leads and is in doubt.
    ///
    /// An item that has ended is kept for an open reader that has not come so far, for at most a minute after its end.
    /// A reader that is away longer needs [`ContainerOptions::keep_expired`](crate::ContainerOptions::keep_expired).
    /// The database knows which items each of the 64 latest changes of the default and commands has ended; a reader
    /// that is further behind gets the error. [`WhenFull::ExpireSoonest`](crate::WhenFull::ExpireSoonest) gives a
    /// command each time that it makes room.
    ///
    /// The database records with its next write, or when it is closed, that an end was given; after a kill before that,
    /// only the cursor tells. So open the reader at its stored cursor before anything else is read: if the clock was
    /// set back meanwhile, time starts at the cursor, and items that were given as ended are not seen again.
    ///
    /// # Errors
    /// The iterator gives [`Error::ExpirationsGone`](crate::Error::ExpirationsGone) when some that were asked for are not on
    /// disk any more; [`Error::ClockBehind`](crate::Error::ClockBehind) when the clock is further behind the cursor
    /// than [`Options::max_clock_skew`](crate::Options::max_clock_skew);
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) where the database is followed.
    pub fn expirations(&self, from: ExpiryCursor) -> Expirations {
        let ExpiryCursor(from) = from;
        Expirations {
            // Ended items are kept for it from now on.
            feed: self.engine().feed(self.state(), from.clone()).ok(),
            from,
            causes: None,
            container: self.clone(),
            has_failed: false,
        }
    }

    /// How long ended items are kept; see [`ContainerOptions::keep_expired`](crate::ContainerOptions::keep_expired).
    #[must_use]
    pub fn keep_expired(&self) -> Duration {
        Duration::from_millis(self.state().feeds_keep())
    }

    /// Changes how long ended items are kept; the change is durable when this returns. Items that are not on disk any
    /// more do not come back.
    ///
    /// # Errors
    /// As any write.
    pub fn set_keep_expired(&self, duration: Duration) -> Result<()> {
        self.engine()
            .set_keep_expired(self.state(), millis_up(duration))
    }
}
