//! Filling a cache, for tasks: see api/get_with.rs. The value is made by the task; the transaction around it is begun and
//! committed by threads of the pool.
use bytes::Bytes;

use crate::api::get_with::{Begun, CacheFill};
use crate::base::{Error, Result, Ttl};
use crate::data::item::Value;
use crate::engine::{FillCaller, FillRole};
use crate::tokio::container::AsyncContainer;
use crate::tokio::read::bytes;
use crate::tokio::shared::WorkQueue;

impl AsyncContainer {
    /// As [`Container::get_with`](crate::Container::get_with): of the tasks and threads that ask for a key at the same moment
    /// one makes its value. If its future is dropped, the next one does. A closure that asks for its own key waits for ever.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::Options;
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rates = AsyncDatabase::from(Options::temporary()?).container("rates").await?;
    /// let ask = async || Ok(("1.09", Duration::from_secs(60))); // of whoever knows it
    /// let (one, other) = tokio::join!(rates.get_with("EUR/USD", ask), rates.get_with("EUR/USD", ask));
    /// assert_eq!(one?, other?);
    /// # Ok(()) }
    /// ```
    pub async fn get_with<V: Into<Bytes>, T: Into<Ttl>>(
        &self,
        key: impl AsRef<[u8]>,
        make: impl AsyncFnOnce() -> Result<(V, T)>,
    ) -> Result<Value> {
        self.try_get_with(key, make).await
    }

    /// As [`Container::try_get_with`](crate::Container::try_get_with); see [`AsyncContainer::get_with`].
    pub async fn try_get_with<V: Into<Bytes>, T: Into<Ttl>, E: From<Error>>(
        &self,
        key: impl AsRef<[u8]>,
        make: impl AsyncFnOnce() -> Result<(V, T), E>,
    ) -> Result<Value, E> {
        let key = bytes(key);
        loop {
            if let Some(value) = self.get(&key).await? {
                return Ok(value);
            }
            let filling = match self.as_sync().state().fills().begin(&key, FillCaller::Task) {
                FillRole::Fill(filling) => filling,
                FillRole::Wait(fill) => {
                    fill.over().await;
                    continue;
                }
            };
            let of = self.as_sync().clone();
            let begin = move || CacheFill::begin(of, key, filling);
            return match self.shared().pooled(WorkQueue::Read, begin).await? {
                Begun::Found(value) => Ok(value),
                Begun::Fill(fill) => {
                    let (value, ttl) = make().await?;
                    let (value, ttl) = (value.into(), ttl.into());
                    let store = move || fill.store(value, ttl);
                    Ok(self.shared().pooled(WorkQueue::Write, store).await?)
                }
            };
        }
    }
}
