//! Ranges as streams: chunks are read by the pool, items are judged when they are handed out.
//!
//! ```text
//! poll_next    items of a chunk ──> live still? ──> handed out
//!              none left ──> the cursor goes to the pool, reads a chunk, comes back with it
//! ```
//!
//! Invariants:
//!
//! 1. The cursor is here or in one job. Nothing is read ahead: the next chunk is asked for when the one before is used
//!    up, so a task that takes no items reads none, and a stream holds one chunk.
//! 2. An item that is handed out was live in that call: time passes between the read of its chunk and its turn.
//! 3. After an error, or the end, there is nothing.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::tokio::task::coop::poll_proceed;
use bytes::Bytes;
use futures_core::Stream;

use crate::api::cursor::{Cursor, Judge};
use crate::base::{Now, Result, Unready, Wait};
use crate::data::item::Item;
use crate::tokio::pool::Answer;
use crate::tokio::shared::{Shared, WorkQueue};

/// A cursor, the items it read, and whether these are all.
type Read = (Box<Cursor>, VecDeque<Item>, bool);

enum Turn {
    /// The cursor is here.
    Here(Box<Cursor>),
    /// It is in a job.
    Reading(Answer<Read>),
    Ended,
}

/// The items of a range, as a [`Stream`]; made by [`AsyncContainer::range`](crate::tokio::AsyncContainer::range) and its
/// like.
///
/// It shows the writes from before it was made, or before its snapshot was taken, and none later; whether an item is
/// live is judged when it is handed out. Items are read in chunks of up to 128 items, or of some 64 KiB, by a thread of
/// the pool, the next when the one before is used up. Dropping the stream ends it, also in the middle of a chunk. After
/// an error it has no more items.
///
/// ```
/// use ebbtide::tokio::AsyncDatabase;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let words = AsyncDatabase::open(folder.path()).await?.container("words").await?;
/// for word in ["ant", "bee", "cat"] {
///     words.put(word, "").await?;
/// }
/// let mut from_the_end = words.range("b"..).rev();
/// let mut seen = vec![];
/// while let Some(item) = from_the_end.next().await {
///     seen.push(item?.key().to_vec());
/// }
/// assert_eq!(seen, [b"cat", b"bee"]);
/// # Ok(()) }
/// ```
#[must_use = "items are read when they are asked for"]
pub struct ItemStream {
    found: VecDeque<Item>,
    turn: Turn,
    is_backwards: bool,
    /// Whether the cursor is to begin anew, at the end where the direction begins.
    is_to_begin: bool,
    /// Judges the items that the cursor reads.
    judge: Judge,
    shared: Arc<Shared>,
}

impl fmt::Debug for ItemStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemStream")
            .field("is_backwards", &self.is_backwards)
            .field("has_ended", &matches!(self.turn, Turn::Ended))
            .finish_non_exhaustive()
    }
}

impl ItemStream {
    pub(super) fn new(cursor: Cursor, shared: &Arc<Shared>) -> ItemStream {
        ItemStream {
            found: VecDeque::new(),
            judge: cursor.judge(),
            turn: Turn::Here(Box::new(cursor)),
            is_backwards: false,
            is_to_begin: true,
            shared: shared.clone(),
        }
    }

    /// The other way: it begins anew at the range's other end, whatever was taken from it before.
    pub fn rev(mut self) -> ItemStream {
        self.is_backwards = !self.is_backwards;
        self.is_to_begin = true;
        self.found.clear();
        self
    }

    /// The next item; `None` where none is left. Dropping the future before it is ready loses no item.
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<Item>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// An item of the chunk that is live still.
    fn take_live(&mut self) -> Result<Option<Item>, Unready> {
        while let Some(item) = self.found.front() {
            let is_live = self.judge.is_live::<Now>(item)?;
            let item = self.found.pop_front();
            if is_live {
                return Ok(item);
            }
        }
        Ok(None)
    }

    /// Sends the cursor off to read a chunk, or to judge items for which one has to wait.
    fn start(&mut self, mut cursor: Box<Cursor>) -> Result<Answer<Read>> {
        let (is_to_begin, is_backwards) = (self.is_to_begin, self.is_backwards);
        let mut found = std::mem::take(&mut self.found);
        self.is_to_begin = false;
        self.shared.start(WorkQueue::Read, move || {
            if is_to_begin {
                cursor.begin(is_backwards);
            }
            let judge = cursor.judge();
            // A failure to judge is met again by the read that follows.
            found.retain(|item| matches!(judge.is_live::<Wait>(item), Ok(true)));
            let mut has_ended = false;
            if found.is_empty() {
                found = cursor.items(is_backwards)?.into();
                has_ended = found.is_empty();
            }
            Ok((cursor, found, has_ended))
        })
    }

    /// The next item, or the end.
    fn step(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Item>>> {
        loop {
            match self.take_live() {
                Ok(Some(item)) => return Poll::Ready(Ok(Some(item))),
                Ok(None) | Err(Unready::WouldWait) => {}
                Err(Unready::Failed(error)) => return Poll::Ready(Err(error)),
            }
            match std::mem::replace(&mut self.turn, Turn::Ended) {
                Turn::Ended => return Poll::Ready(Ok(None)),
                Turn::Here(cursor) => self.turn = Turn::Reading(self.start(cursor)?),
                Turn::Reading(mut answer) => {
                    let Poll::Ready(read) = Pin::new(&mut answer).poll(context) else {
                        self.turn = Turn::Reading(answer);
                        return Poll::Pending;
                    };
                    let (cursor, found, has_ended) = read?;
                    // Items that were read before the direction changed do not count.
                    if !self.is_to_begin {
                        self.found = found;
                    }
                    if self.is_to_begin || !has_ended {
                        self.turn = Turn::Here(cursor);
                    }
                }
            }
        }
    }
}

impl Stream for ItemStream {
    type Item = Result<Item>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Item>>> {
        let budget = ready!(poll_proceed(context));
        let item = ready!(self.step(context));
        budget.made_progress();
        if !matches!(item, Ok(Some(_))) {
            self.turn = Turn::Ended;
            self.found.clear();
        }
        Poll::Ready(item.transpose())
    }
}

/// The keys of a range, as a [`Stream`]: an [`ItemStream`] without the values. Each is a copy.
#[must_use = "items are read when they are asked for"]
#[derive(Debug)]
pub struct KeyStream {
    pub(super) items: ItemStream,
}

impl KeyStream {
    /// See [`ItemStream::rev`].
    pub fn rev(self) -> KeyStream {
        KeyStream {
            items: self.items.rev(),
        }
    }

    /// See [`ItemStream::next`].
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        self.items.next().await.map(key_of)
    }
}

fn key_of(item: Result<Item>) -> Result<Bytes> {
    item.map(|item| Bytes::copy_from_slice(item.key()))
}

impl Stream for KeyStream {
    type Item = Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes>>> {
        let item = ready!(Pin::new(&mut self.items).poll_next(context));
        Poll::Ready(item.map(key_of))
    }
}
