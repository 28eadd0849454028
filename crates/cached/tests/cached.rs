//! Goal: the cache keeps what it is given, until the millisecond in which that ends, over restarts.
//!
//! Method: the calls of both traits by a clock that is moved by hand, and functions that their macro remembers.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cached::macros::concurrent_cached;
use cached::{ConcurrentCached, ConcurrentCachedAsync, SerializeCached, SerializeCachedAsync};
use cached_ebbtide::{AsyncEbbtideCache, EbbtideCache};
use ebbtide::{ContainerOptions, Database, DefaultTtl, Json, ManualClock, Options, Result};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

const MINUTE: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    cents: u64,
}

type Prices = EbbtideCache<String, Json<Price>>;

fn database(folder: &TempDir, clock: &ManualClock) -> Database {
    let options = Options::new().clock(clock.clone());
    options.open(folder.path()).unwrap()
}

fn prices(db: &Database) -> Prices {
    let a_minute = ContainerOptions::new().default_ttl(DefaultTtl::After(MINUTE));
    Prices::new(db.container_with("prices", a_minute).unwrap().typed())
}

#[test]
fn a_value_is_there_until_its_millisecond_and_over_a_restart() {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(1_800_000_000_000));
    let db = database(&folder, &clock);
    let (cache, tea, price) = (prices(&db), "tea".to_owned(), Price { cents: 300 });
    assert_eq!(cache.cache_set(tea.clone(), price.clone()).unwrap(), None);
    clock.advance(MINUTE / 2);
    db.close().unwrap();
    let db = database(&folder, &clock);
    let cache = prices(&db);
    clock.advance(MINUTE / 2 - MILLISECOND);
    assert_eq!(cache.cache_get(&tea).unwrap(), Some(price.clone()));
    clock.advance(MILLISECOND);
    assert_eq!(cache.cache_get(&tea).unwrap(), None);
    assert!(!cache.cache_contains(&tea).unwrap() && !cache.cache_delete(&tea).unwrap());
    assert_eq!(cache.cache_set(tea, price).unwrap(), None);
}

#[test]
fn each_call_answers_as_the_trait_says() {
    let db = Options::temporary().unwrap();
    let cache = prices(&db);
    let (tea, first, second) = ("tea".to_owned(), Price { cents: 1 }, Price { cents: 2 });
    cache.cache_set_ref(&tea, &first).unwrap();
    assert_eq!(
        cache.cache_set(tea.clone(), second.clone()).unwrap(),
        Some(first)
    );
    assert!(cache.cache_contains(&tea).unwrap());
    let removed = cache.cache_remove_entry(&tea).unwrap();
    assert_eq!(removed, Some((tea.clone(), second.clone())));
    assert_eq!(cache.cache_remove(&tea).unwrap(), None);
    cache.cache_set_ref(&tea, &second).unwrap();
    assert_eq!(cache.cache_remove(&tea).unwrap(), Some(second.clone()));
    let got = cache.cache_get_or_set_with(tea.clone(), || second.clone());
    assert_eq!(got.unwrap(), second);
    assert!(cache.cache_delete(&tea).unwrap() && !cache.cache_delete(&tea).unwrap());
    cache.cache_set_ref(&tea, &second).unwrap();
    cache.cache_clear().unwrap();
    assert!(!cache.cache_contains(&tea).unwrap());
}

#[test]
fn a_value_of_another_type_is_as_good_as_none() {
    let db = Options::temporary().unwrap();
    let (cache, tea, price) = (prices(&db), "tea".to_owned(), Price { cents: 1 });
    let former = db.container("prices").unwrap();
    for _ in 0..2 {
        former.put("tea", r#"{"price":1}"#).unwrap();
        assert_eq!(cache.cache_get(&tea).unwrap(), None);
        assert!(!cache.cache_contains(&tea).unwrap());
        assert_eq!(cache.cache_remove(&tea).unwrap(), None);
        assert!(former.is_empty().unwrap());
        former.put("tea", r#"{"price":1}"#).unwrap();
        assert_eq!(cache.cache_set(tea.clone(), price.clone()).unwrap(), None);
        assert_eq!(cache.cache_get(&tea).unwrap().as_ref(), Some(&price));
    }
}

#[tokio::test]
async fn tasks_have_the_same_cache() {
    let clock = ManualClock::new(1_800_000_000_000);
    let folder = TempDir::new().unwrap();
    let db = database(&folder, &clock);
    let (plain, tea) = (prices(&db), "tea".to_owned());
    let container = ebbtide::tokio::AsyncDatabase::from(db.clone());
    let container = container.container("prices").await.unwrap();
    let cache = AsyncEbbtideCache::<String, Json<Price>>::new(container.typed());
    let (first, second) = (Price { cents: 1 }, Price { cents: 2 });
    plain.cache_set_ref(&tea, &first).unwrap();
    assert_eq!(
        cache.async_cache_get(&tea).await.unwrap().as_ref(),
        Some(&first)
    );
    clock.advance(MINUTE - MILLISECOND);
    let set = cache.async_cache_set(tea.clone(), second.clone()).await;
    assert_eq!(set.unwrap(), Some(first.clone()));
    clock.advance(MINUTE - MILLISECOND);
    assert!(cache.async_cache_contains(&tea).await.unwrap());
    clock.advance(MILLISECOND);
    assert!(!cache.async_cache_contains(&tea).await.unwrap());
    cache.async_cache_set_ref(&tea, &first).await.unwrap();
    assert_eq!(cache.async_cache_remove(&tea).await.unwrap(), Some(first));
    db.container("prices")
        .unwrap()
        .put("tea", "no price")
        .unwrap();
    assert_eq!(cache.async_cache_get(&tea).await.unwrap(), None);
    assert_eq!(
        cache.async_cache_set(tea.clone(), second).await.unwrap(),
        None
    );
    assert!(cache.async_cache_delete(&tea).await.unwrap());
    cache.async_cache_clear().await.unwrap();
}

static CLOCK: LazyLock<ManualClock> = LazyLock::new(|| ManualClock::new(1_800_000_000_000));
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().unwrap());
static DB: LazyLock<Database> = LazyLock::new(|| database(&FOLDER, &CLOCK));
static ASKED: AtomicU64 = AtomicU64::new(0);

#[concurrent_cached(
    ty = "Prices",
    create = "{ prices(&DB) }",
    key = "String",
    convert = "{ item.to_owned() }",
    map_error = "|error| error"
)]
fn price_of(item: &str) -> Result<Price> {
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    let cents = item.len() as u64 + asked;
    Ok(Price { cents })
}

#[test]
fn a_function_is_remembered_for_as_long_as_its_container_says() {
    let first = price_of("tea").unwrap();
    assert_eq!(price_of("tea").unwrap(), first);
    CLOCK.advance(MINUTE - MILLISECOND);
    assert_eq!(price_of("tea").unwrap(), first);
    CLOCK.advance(MILLISECOND);
    assert_ne!(price_of("tea").unwrap(), first);
    assert_eq!(ASKED.load(Ordering::Relaxed), 2);
}
