//! Whether a caller may wait. What callers of both kinds do is written once, over a [`Patience`]; of what only the other
//! kind needs, nothing is left in the compiled code.

use crate::base::Error;

/// Whether the caller may wait: [`Wait`] or [`Now`].
pub trait Patience {
    /// It may.
    const WAITS: bool;
    /// Why there is no answer.
    type Failure: From<Error>;

    /// Called before a step that waits, unless `is_ready` says that it need not. Whoever may wait does not ask.
    fn require(is_ready: impl FnOnce() -> bool) -> Result<(), Self::Failure>;

    /// Called before a step that waits.
    #[inline(always)]
    fn would_wait() -> Result<(), Self::Failure> {
        Self::require(|| false)
    }
}

/// The caller may wait, for as long as it takes.
#[derive(Clone, Copy, Debug)]
pub enum Wait {}

impl Patience for Wait {
    const WAITS: bool = true;
    type Failure = Error;

    #[inline(always)]
    fn require(_: impl FnOnce() -> bool) -> Result<(), Error> {
        Ok(())
    }
}

/// The caller's thread has others to serve: it gets an answer now or none.
#[derive(Clone, Copy, Debug)]
pub enum Now {}

impl Patience for Now {
    const WAITS: bool = false;
    type Failure = Unready;

    #[inline(always)]
    fn require(is_ready: impl FnOnce() -> bool) -> Result<(), Unready> {
        match is_ready() {
            true => Ok(()),
            false => Err(Unready::WouldWait),
        }
    }
}

/// The result of a call that never waits: its answer, or that it would have to wait for it.
///
/// ```
/// use ebbtide::{AtOnce, Database};
///
/// let folder = tempfile::tempdir()?;
/// let users = Database::open(folder.path())?.container("users")?;
/// users.put("u-1", "ada")?;
/// let name = match users.try_get("u-1")? {
///     AtOnce::Ready(name) => name,
///     AtOnce::WouldWait => users.get("u-1")?, // better on a thread that may wait
/// };
/// assert_eq!(name.unwrap(), "ada");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing was done if it would wait"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtOnce<T> {
    /// The answer.
    Ready(T),
    /// It would wait: for a file, a lock, room in memory, the end of a change. Nothing was done.
    WouldWait,
}

impl<T> AtOnce<T> {
    /// The result of an attempt, for users.
    #[inline(always)]
    pub(crate) fn of(attempt: Attempt<T>) -> Result<AtOnce<T>, Error> {
        match attempt {
            Ok(answer) => Ok(AtOnce::Ready(answer)),
            Err(Unready::WouldWait) => Ok(AtOnce::WouldWait),
            Err(Unready::Failed(error)) => Err(error),
        }
    }

    /// The answer, if there is one.
    pub fn ready(self) -> Option<T> {
        match self {
            AtOnce::Ready(answer) => Some(answer),
            AtOnce::WouldWait => None,
        }
    }
}

/// Why there is no answer now.
#[derive(Debug)]
pub enum Unready {
    /// It would wait: for a file, a lock, room in memory, the end of a change. Nothing was done.
    WouldWait,
    /// It failed, and would fail as well if it waited.
    Failed(Error),
}

/// The result of a step that does not wait.
pub type Attempt<T> = Result<T, Unready>;

impl From<Error> for Unready {
    fn from(error: Error) -> Unready {
        Unready::Failed(error)
    }
}
