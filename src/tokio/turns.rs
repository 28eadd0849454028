//! Changes and expirations, for tasks. Their iterators end for now, and go on when they are asked again.
//!
//! ```text
//! next    something told ahead ──> it is given
//!         nothing              ──> the pool asks the iterator until it ends for now, fails, or has given a chunk
//! ```
//!
//! Invariants:
//!
//! 1. One job at a time asks the iterator: the next begins when all that the job before was told has been given. So an
//!    end or an error, with which a chunk ends, is given in the state in which it was met.
//! 2. Dropping a future loses nothing: a job's answer, and the changes it was told, stay here.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use ::tokio::task::coop::poll_proceed;

use crate::api::changes::{ChangePage, ChangePages, Changes};
use crate::api::expirations::{Expiration, ExpirationCause, Expirations, ExpiryCursor};
use crate::api::watch::{Watch, WatchEvent};
use crate::base::sync::Mutex;
use crate::base::{Error, Result};
use crate::data::change::Change;
use crate::data::version::Version;
use crate::engine::{Bell, Rest};
use crate::env::monotonic;
use crate::tokio::pool::Answer;
use crate::tokio::shared::{Shared, WorkQueue};

/// So many changes are told by one job.
const CHANGES: usize = 64;
/// And so many expirations: a key may be written anew between the job and the turn of the next one.
const EXPIRATIONS: usize = 1;

/// Asks an iterator whether there is something to tell, and for the bell that rings if there is.
type Look<S> = fn(&mut S) -> Result<(Rest, Arc<Bell>)>;

/// The answers of the iterator; `None`: it ended for now.
type Told<T> = VecDeque<Option<Result<T>>>;

/// See the file's head.
struct Turns<S, T> {
    told: Told<T>,
    job: Option<Answer<Told<T>>>,
    source: Arc<Mutex<S>>,
    next: fn(&mut S) -> Option<Result<T>>,
    /// So much is told by one job.
    most: usize,
    /// Last: it hands the database to a thread that may close it.
    shared: Arc<Shared>,
}

impl<S: Send + 'static, T: Send + 'static> Turns<S, T> {
    fn new(
        source: S,
        next: fn(&mut S) -> Option<Result<T>>,
        most: usize,
        shared: &Arc<Shared>,
    ) -> Self {
        Turns {
            told: VecDeque::new(),
            job: None,
            source: Arc::new(Mutex::new(source)),
            next,
            most,
            shared: shared.clone(),
        }
    }

    fn start(&self) -> Result<Answer<Told<T>>> {
        let (source, next, most) = (self.source.clone(), self.next, self.most);
        self.shared.start(WorkQueue::Read, move || {
            let (mut source, mut told) = (source.lock(), Told::new());
            while told.len() < most {
                let one = next(&mut source);
                let goes_on = matches!(one, Some(Ok(_)));
                told.push_back(one);
                if !goes_on {
                    break;
                }
            }
            Ok(told)
        })
    }

    /// Without a job: as the iterator does, this gives the error, and then an end.
    fn fail(&mut self, error: Error) -> Poll<Option<Result<T>>> {
        self.told.push_back(None);
        Poll::Ready(Some(Err(error)))
    }

    /// Works with the iterator itself, on a thread of the pool.
    async fn with<U: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut S) -> Result<U> + Send + 'static,
    ) -> Result<U> {
        let source = self.source.clone();
        let work = move || work(&mut source.lock());
        self.shared.pooled(WorkQueue::Read, work).await
    }

    /// Waits until there is something to tell, for at most so long.
    async fn wait(&mut self, timeout: Duration, look: Look<S>) -> Result<bool> {
        let begun = monotonic();
        loop {
            if !self.told.is_empty() || self.job.is_some() {
                return Ok(true);
            }
            let (Rest::For(rest), bell) = self.with(look).await? else {
                return Ok(true);
            };
            let left = timeout.saturating_sub(monotonic().saturating_sub(begun));
            if left.is_zero() {
                return Ok(false);
            }
            self.shared.timer.rest(&bell, rest.min(left)).await;
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let budget = ready!(poll_proceed(context));
        while self.told.is_empty() {
            let mut job = match self.job.take().map_or_else(|| self.start(), Ok) {
                Ok(job) => job,
                Err(error) => return self.fail(error),
            };
            match Pin::new(&mut job).poll(context) {
                Poll::Pending => {
                    self.job = Some(job);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(told)) => self.told = told,
                Poll::Ready(Err(error)) => return self.fail(error),
            }
        }
        budget.made_progress();
        Poll::Ready(self.told.pop_front().expect("something was told"))
    }
}

/// [`Changes`] for tasks; made by [`AsyncDatabase::changes`](crate::tokio::AsyncDatabase::changes) and
/// [`AsyncContainer::changes`](crate::tokio::AsyncContainer::changes).
#[must_use = "it tells nothing until it is asked, and keeps what it is to tell"]
pub struct AsyncChanges {
    version: Version,
    turns: Turns<Changes, Change>,
}

impl fmt::Debug for AsyncChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncChanges")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl AsyncChanges {
    pub(super) fn new(changes: Changes, shared: &Arc<Shared>) -> AsyncChanges {
        AsyncChanges {
            version: changes.version(),
            turns: Turns::new(changes, Changes::next, CHANGES, shared),
        }
    }

    /// The next change; `None` at the end of a pass, and after that the first of the next one. No stream for that reason.
    /// Dropping the future before it is ready loses no change. An error is followed by `None`, and then the same is tried again.
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<Change>> {
        let next = poll_fn(|context| self.turns.poll_next(context)).await;
        if next.is_none() {
            self.version = self.turns.source.lock().version();
        }
        next
    }

    /// As [`Changes::version`].
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }
}

/// [`Expirations`] for tasks; made by [`AsyncContainer::expirations`](crate::tokio::AsyncContainer::expirations).
#[must_use = "it gives nothing until it is asked, and keeps what it is to give"]
pub struct AsyncExpirations {
    cursor: ExpiryCursor,
    turns: Turns<Expirations, (Expiration, ExpiryCursor)>,
}

impl fmt::Debug for AsyncExpirations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncExpirations")
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl AsyncExpirations {
    pub(super) fn new(expirations: Expirations, shared: &Arc<Shared>) -> AsyncExpirations {
        let next = |source: &mut Expirations| {
            let next = source.next()?;
            Some(next.map(|expired| (expired, source.cursor())))
        };
        AsyncExpirations {
            cursor: expirations.cursor(),
            turns: Turns::new(expirations, next, EXPIRATIONS, shared),
        }
    }

    /// The next expiration; `None` when there is no more by now, and a later call may give some. No stream for that reason.
    /// Dropping the future before it is ready loses none. An error is followed by `None`, and then the same is tried again.
    ///
    /// Each is read by a thread of the pool, and handed out as it was then: a write of its key that is done between the two is
    /// not seen.
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<Expiration>> {
        let next = poll_fn(|context| self.turns.poll_next(context)).await?;
        Some(next.map(|(expired, cursor)| {
            self.cursor = cursor;
            expired
        }))
    }

    /// The position after the last expiration that was given.
    #[must_use]
    pub fn cursor(&self) -> ExpiryCursor {
        self.cursor.clone()
    }

    /// As [`Expirations::causes`].
    pub fn causes(self, causes: impl AsRef<[ExpirationCause]>) -> AsyncExpirations {
        self.turns.source.lock().only(causes.as_ref());
        self
    }

    /// As [`Expirations::next_due`].
    pub async fn next_due(&mut self) -> Option<SystemTime> {
        let due = self.turns.with(|source| Ok(source.next_due())).await;
        due.unwrap_or_else(|_| Some(self.turns.shared.db().now()))
    }

    /// As [`Expirations::wait`]; the task rests meanwhile, and no thread waits for it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ExpiryCursor, Options};
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokens = AsyncDatabase::from(Options::temporary()?).container("tokens").await?;
    /// let mut expired = tokens.expirations(ExpiryCursor::now()).await?;
    /// tokens.put_with_ttl("t-1", "ada", Duration::from_millis(20)).await?;
    /// while expired.wait(Duration::from_secs(60)).await? {
    ///     if let Some(ended) = expired.next().await.transpose()? {
    ///         assert_eq!(ended.key(), b"t-1");
    ///         break; // a program goes on
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.turns.wait(timeout, Expirations::look).await
    }
}

/// A [`Watch`] for tasks; made by [`AsyncContainer::watch`](crate::tokio::AsyncContainer::watch).
#[must_use = "it gives nothing until it is asked, and writers keep for it what it is to give"]
pub struct AsyncWatch {
    turns: Turns<Watch, WatchEvent>,
}

impl fmt::Debug for AsyncWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncWatch").finish_non_exhaustive()
    }
}

impl AsyncWatch {
    pub(super) fn new(watch: Watch, shared: &Arc<Shared>) -> AsyncWatch {
        AsyncWatch {
            turns: Turns::new(watch, Watch::next, CHANGES, shared),
        }
    }

    /// The next event; `None` when there is no more by now, and a later call may give some. No stream for that reason.
    /// Dropping the future before it is ready loses none. An error is followed by `None`, and then the same is tried again.
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<WatchEvent>> {
        poll_fn(|context| self.turns.poll_next(context)).await
    }

    /// As [`Watch::wait`]; the task rests meanwhile, and no thread waits for it.
    pub async fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.turns.wait(timeout, Watch::look).await
    }
}

/// [`ChangePages`] for tasks; made by
/// [`AsyncDatabase::changes_by_version`](crate::tokio::AsyncDatabase::changes_by_version).
#[must_use = "it tells nothing until it is asked, and keeps what it is to tell"]
pub struct AsyncChangePages {
    turns: Turns<ChangePages, ChangePage>,
}

impl fmt::Debug for AsyncChangePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncChangePages").finish_non_exhaustive()
    }
}

impl AsyncChangePages {
    pub(super) fn new(pages: ChangePages, shared: &Arc<Shared>) -> AsyncChangePages {
        AsyncChangePages {
            turns: Turns::new(pages, ChangePages::next, 1, shared),
        }
    }

    /// The next page; `None` at the end of a round, and after that the first of the next one. No stream for that reason.
    /// Dropping the future before it is ready loses no page. An error is followed by `None`, and then the same is tried again.
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<ChangePage>> {
        poll_fn(|context| self.turns.poll_next(context)).await
    }
}
