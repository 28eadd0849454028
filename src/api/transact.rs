//! Transactions of a database: one that is begun, and closures that are run until they commit.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::api::database::Database;
use crate::api::transaction::Transaction;
use crate::base::{Error, Result};
use crate::data::write::Written;
use crate::engine::Handle;
use crate::env::sleep;

/// How often a transaction is tried. With the rests in between, the last fails after some 300 ms.
const TRIES: u32 = 32;
/// The rest after the first try, doubled with each ...
const FIRST_REST: Duration = Duration::from_micros(10);
/// ... up to this.
const LONGEST_REST: Duration = Duration::from_millis(10);

impl Database {
    /// Runs `body` as a transaction and commits it: its reads and writes take effect at one moment, over any
    /// containers, as if it ran alone, or not at all. [`Transaction`] says what it sees, what a conflict is, what it
    /// costs.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let accounts = db.container("accounts")?;
    /// accounts.put("ada", "50")?;
    /// accounts.put("bob", "10")?;
    /// let transfer = |from: &str, to: &str, amount: u64| {
    ///     db.transaction(|tx| {
    ///         let balance = |name: &str| -> ebbtide::Result<u64> {
    ///             let value = tx.get(&accounts, name)?;
    ///             Ok(value.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap()))
    ///         };
    ///         let (before, after) = (balance(from)?, balance(to)?);
    ///         if before < amount {
    ///             return Ok(false); // nothing was written
    ///         }
    ///         tx.put(&accounts, from, (before - amount).to_string())?;
    ///         tx.put(&accounts, to, (after + amount).to_string())?;
    ///         Ok(true)
    ///     })
    /// };
    /// assert!(transfer("ada", "bob", 30)?); // from however many threads: nothing is lost, and nothing made
    /// assert!(!transfer("ada", "bob", 30)?);
    /// assert_eq!(accounts.get("bob")?.unwrap(), "40");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Retries.** On a conflict `body` is run again, in a new transaction, up to 32 times in all, with rests in
    /// between that grow from some 10 us to 10 ms: some 300 ms together. So it must do nothing else that may not be
    /// done twice. A caller that waits differently uses [`Database::begin`].
    ///
    /// # Errors
    /// The error of `body`, and then nothing was written; [`Error::Conflict`](crate::Error::Conflict) when the last try
    /// met a conflict too; otherwise those of [`Transaction::commit`].
    pub fn transaction<T>(&self, body: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        run(self.engine(), body).map(|(answer, _)| answer)
    }

    /// As [`Database::transaction`], with errors of the caller's own: an `Err` of `body` aborts, nothing is written, and
    /// it comes out as it is. With the answer comes what was written: the version and time of the commit, as
    /// [`Transaction::commit`] tells them.
    ///
    /// ```
    /// use ebbtide::{Database, Error};
    ///
    /// #[derive(Debug, PartialEq)]
    /// enum Refused {
    ///     Poor { has: u64 },
    ///     Failed(String),
    /// }
    ///
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Refused {
    ///         Refused::Failed(error.to_string())
    ///     }
    /// }
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (accounts, orders) = (db.container("accounts")?, db.container("orders")?);
    /// accounts.put("ada", 50u64.to_be_bytes())?;
    /// let order = |price: u64| {
    ///     db.try_transaction(|tx| -> Result<u64, Refused> {
    ///         tx.put(&orders, "ada", price.to_string())?;
    ///         let has = tx.get(&accounts, "ada")?.map_or(0, |has| u64::from_be_bytes(has[..].try_into().unwrap()));
    ///         let left = has.checked_sub(price).ok_or(Refused::Poor { has })?;
    ///         tx.put(&accounts, "ada", left.to_be_bytes())?;
    ///         Ok(left)
    ///     })
    /// };
    /// assert_eq!(order(60).unwrap_err(), Refused::Poor { has: 50 });
    /// assert!(orders.is_empty()?); // nothing was written
    /// let (left, written) = order(30).unwrap();
    /// assert_eq!((left, accounts.item("ada")?.unwrap().version()), (20, written.version()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A conflict is tried again as by [`Database::transaction`], whatever `body` made of it: a transaction that has met
    /// one cannot be committed, so an `Err` that it leads to is not believed before the last try.
    ///
    /// # Errors
    /// The error of `body`; and by its `From` the others of [`Database::transaction`].
    pub fn try_transaction<T, E: From<Error>>(
        &self,
        body: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<(T, Written), E> {
        run(self.engine(), body)
    }

    /// Begins a transaction, for callers that commit it and try again themselves. It waits for the write that is under
    /// way, and under [`Durability::Sync`](crate::Durability) for the syncs that others wait for.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let visits = db.container("visits")?;
    /// let count = loop {
    ///     let tx = db.begin();
    ///     let before = tx.get(&visits, "home")?;
    ///     let count: u64 = before.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap()) + 1;
    ///     tx.put(&visits, "home", count.to_string())?;
    ///     match tx.commit() {
    ///         Ok(_) => break count,
    ///         Err(error) if error.is_conflict() => continue,
    ///         Err(error) => return Err(error.into()),
    ///     }
    /// };
    /// assert_eq!(count, 1);
    ///
    /// let tx = db.begin();
    /// tx.delete_range(&visits, ..)?;
    /// drop(tx); // rolled back
    /// assert_eq!(visits.get("home")?.unwrap(), "1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&self) -> Transaction {
        Transaction::begin(self.engine())
    }
}

/// Runs `body` until it commits.
fn run<T, E: From<Error>>(
    engine: &Handle,
    mut body: impl FnMut(&Transaction) -> Result<T, E>,
) -> Result<(T, Written), E> {
    let (random, mut tries) = (RandomState::new(), 1);
    loop {
        let transaction = Transaction::begin(engine);
        let answer = body(&transaction);
        let is_in_conflict = transaction.is_in_conflict();
        match answer {
            Err(error) if !is_in_conflict || tries == TRIES => return Err(error),
            Err(_) => drop(transaction),
            Ok(answer) => match transaction.commit() {
                Ok(written) => return Ok((answer, written)),
                Err(error) if !error.is_conflict() || tries == TRIES => {
                    return Err(error.into());
                }
                Err(_) => {}
            },
        }
        let longest = LONGEST_REST.min(FIRST_REST.saturating_mul(1 << tries.min(20)));
        let share = (random.hash_one(tries) % 512 + 512) as u32;
        sleep(longest * share / 1024);
        tries += 1;
    }
}
