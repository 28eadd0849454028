//! A [`CacheManager`] of the crate [http-cache](https://docs.rs/http-cache) over an [Ebbtide](ebbtide) database: responses on disk,
//! over restarts, each until it is of no use any more.
//!
//! ```
//! use std::time::Duration;
//! use ebbtide::tokio::AsyncDatabase;
//! use http_cache::{CacheMode, HttpCache, HttpCacheOptions};
//! use http_cache_ebbtide::EbbtideManager;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let db = AsyncDatabase::open(folder.path()).await?;
//! let a_day = Duration::from_secs(86_400);
//! let cache = HttpCache {
//!     mode: CacheMode::Default,
//!     manager: EbbtideManager::open(&db, "responses", a_day).await?,
//!     options: HttpCacheOptions::default(),
//! };
//! # let _ = cache;
//! # Ok(()) }
//! ```
//!
//! A response ends when it has been stale for as long as the manager keeps stale ones: `max-age`, `s-maxage`, `Expires`, `Age` and
//! the others say when it is ([`CachePolicy::time_to_live`]), and until its end the server can be asked whether it has
//! changed. With none, a response is gone in the millisecond in which it goes stale. No task evicts. How much is kept is bounded by
//! the container's quota: [`ContainerOptions::max_live_bytes`](ebbtide::ContainerOptions::max_live_bytes) or `ebbtide quota`.
//!
//! A response that was stored as another version of http-cache has it, and cannot be read, is as good as none.

use std::time::Duration;

use async_trait::async_trait;
use ebbtide::tokio::{AsyncDatabase, AsyncTypedContainer};
use ebbtide::{Error, Ttl};
use http_cache::{CacheManager, HttpResponse, Result};
use http_cache_semantics::CachePolicy;

/// Responses in a database. Cheap to clone; clones are the same cache.
#[derive(Clone, Debug)]
pub struct EbbtideManager {
    db: AsyncDatabase,
    responses: AsyncTypedContainer<String, (HttpResponse, CachePolicy)>,
    keep_stale: Duration,
}

impl EbbtideManager {
    /// A cache in the container `name`, which is created where it is missing and should be its own. A response is kept for
    /// `keep_stale` after it has gone stale.
    ///
    /// # Errors
    /// As of [`AsyncDatabase::container`].
    pub async fn open(
        db: &AsyncDatabase,
        name: &str,
        keep_stale: Duration,
    ) -> ebbtide::Result<EbbtideManager> {
        Ok(EbbtideManager {
            db: db.clone(),
            responses: db.typed(name).await?,
            keep_stale,
        })
    }

    /// When a response ends that is stored now.
    fn ttl(&self, policy: &CachePolicy) -> Ttl {
        let now = self.db.now();
        let kept = policy.time_to_live(now).checked_add(self.keep_stale);
        let end = kept.and_then(|kept| now.checked_add(kept));
        end.map_or(Ttl::Never, Ttl::Until)
    }
}

#[async_trait]
impl CacheManager for EbbtideManager {
    async fn get(&self, cache_key: &str) -> Result<Option<(HttpResponse, CachePolicy)>> {
        match self.responses.get(cache_key).await {
            Err(Error::Decode { .. }) => Ok(None),
            found => Ok(found?),
        }
    }

    async fn put(
        &self,
        cache_key: String,
        res: HttpResponse,
        policy: CachePolicy,
    ) -> Result<HttpResponse> {
        let ttl = self.ttl(&policy);
        let stored = (res, policy);
        self.responses
            .put_with_ttl(&cache_key, &stored, ttl)
            .await?;
        Ok(stored.0)
    }

    async fn delete(&self, cache_key: &str) -> Result<()> {
        Ok(self.responses.delete(cache_key).await?)
    }
}
