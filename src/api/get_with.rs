//! Filling a cache: the live item of a key, or else a value that the caller makes, which is stored.
//!
//! ```text
//! get ── live ──> it
//!  └─ none ── another makes it ──> wait, and look again           engine/parts/fills.rs
//!       └─ a transaction reads that it is absent ── make ── put ── commit ──> what was made
//!                                                                    └─ the key was written meanwhile ──> what is live,
//!                                                                       or else what was made, which is not stored
//! ```
//!
//! Invariant: a value is stored only if the key was not written, deleted or expired by a command since before the value was
//! made. So whoever invalidates a key after its source has changed never meets what was made of the source before.

use bytes::Bytes;

use crate::api::container::Container;
use crate::api::transaction::Transaction;
use crate::base::{Error, Result, Ttl};
use crate::data::item::Value;
use crate::engine::{FillCaller, FillRole, Filling};

/// A key that had no live item, and whose value the caller makes.
pub(crate) struct CacheFill {
    container: Container,
    key: Vec<u8>,
    transaction: Transaction,
    /// Last: when others look again, the value is stored.
    _filling: Filling,
}

/// The key as it is when its turn has come.
pub(crate) enum Begun {
    /// It has a live item by now.
    Found(Value),
    /// It has none.
    Fill(Box<CacheFill>),
}

impl CacheFill {
    pub(crate) fn begin(container: Container, key: Vec<u8>, filling: Filling) -> Result<Begun> {
        loop {
            let transaction = Transaction::begin_strict(container.engine());
            match transaction.get(&container, &key) {
                Ok(Some(value)) => return Ok(Begun::Found(value)),
                Ok(None) => {
                    return Ok(Begun::Fill(Box::new(CacheFill {
                        container,
                        key,
                        transaction,
                        _filling: filling,
                    })));
                }
                // A job came in between.
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn store(self, value: Bytes, ttl: Ttl) -> Result<Value> {
        let (of, key) = (&self.container, &self.key);
        let put = self.transaction.put_with_ttl(of, key, &value, ttl);
        match put.and_then(|()| self.transaction.commit()) {
            Ok(_) => Ok(Value::from(value)),
            Err(error) if error.is_conflict() => {
                Ok(of.get(key)?.unwrap_or_else(|| Value::from(value)))
            }
            Err(error) => Err(error),
        }
    }
}

impl Container {
    /// The value of a live item; where there is none, that which `make` returns, which is stored with its lifetime: a cache
    /// in one call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Options, Ttl};
    ///
    /// let rates = Options::temporary()?.container("rates")?;
    /// let mut asked = 0;
    /// for _ in 0..3 {
    ///     let rate = rates.get_with("EUR/USD", || {
    ///         asked += 1; // of whoever knows it
    ///         Ok(("1.09", Duration::from_secs(60)))
    ///     })?;
    ///     assert_eq!(rate, "1.09");
    /// }
    /// assert_eq!(asked, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Many at once.** Of the callers that ask for one key at the same moment, threads and tasks of this process, one makes
    /// the value. The others wait and look again; if it has failed or panicked, the next of them makes it. Other keys do not
    /// wait. A closure that asks for its own key is not kept waiting; where it has another thread ask, or where two closures ask
    /// for each other's keys, both wait for ever.
    ///
    /// **Invalidation.** If the key was written or deleted while the value was made, or the container's default was changed or
    /// items expired by command, the value is not stored: the answer is what is live then, or, if nothing is, the value that was
    /// made. So change the source, then [`Container::delete`] the key: nobody finds there what was made before. This is as
    /// exact as a transaction, which it is: what others overwrite meanwhile is kept in memory as long as `make` runs.
    ///
    /// # Errors
    /// That of `make`, and then nothing is stored; those of [`Container::get`] and [`Container::put`]: also if the value that
    /// was made cannot be stored.
    pub fn get_with<V: Into<Bytes>, T: Into<Ttl>>(
        &self,
        key: impl AsRef<[u8]>,
        make: impl FnOnce() -> Result<(V, T)>,
    ) -> Result<Value> {
        self.try_get_with(key, make)
    }

    /// As [`Container::get_with`], with errors of the caller's own.
    ///
    /// # Errors
    /// That of `make`, as it is; the others by its `From`.
    pub fn try_get_with<V: Into<Bytes>, T: Into<Ttl>, E: From<Error>>(
        &self,
        key: impl AsRef<[u8]>,
        make: impl FnOnce() -> Result<(V, T), E>,
    ) -> Result<Value, E> {
        let key = key.as_ref();
        loop {
            if let Some(value) = self.get(key)? {
                return Ok(value);
            }
            let filling = match self.state().fills().begin(key, FillCaller::Thread) {
                FillRole::Fill(filling) => filling,
                FillRole::Wait(fill) => {
                    fill.wait();
                    continue;
                }
            };
            return match CacheFill::begin(self.clone(), key.to_vec(), filling)? {
                Begun::Found(value) => Ok(value),
                Begun::Fill(fill) => {
                    let (value, ttl) = make()?;
                    Ok(fill.store(value.into(), ttl.into())?)
                }
            };
        }
    }
}
