//! Goal: a response is there until it has been stale for as long as it was to be kept, to the millisecond, and over a restart.
//!
//! Method: the calls of the manager, by a clock that is moved by hand, with policies of that time.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use ebbtide::tokio::AsyncDatabase;
use ebbtide::{ManualClock, Options};
use http_cache::{CacheManager, HttpResponse, HttpVersion};
use http_cache_ebbtide::EbbtideManager;
use http_cache_semantics::{CacheOptions, CachePolicy};
use tempfile::TempDir;

const MINUTE: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);
const KEY: &str = "GET:https://example.org/";

async fn database(folder: &TempDir, clock: &ManualClock) -> AsyncDatabase {
    let options = Options::new().clock(clock.clone());
    AsyncDatabase::open_with(&options, folder.path())
        .await
        .unwrap()
}

fn response(headers: &[(&str, &str)]) -> HttpResponse {
    let headers = headers
        .iter()
        .map(|&(name, value)| (name.into(), value.into()));
    HttpResponse {
        body: (0..=255).collect(),
        headers: HashMap::from_iter(headers),
        status: 200,
        url: "https://example.org/".parse().unwrap(),
        version: HttpVersion::Http11,
    }
}

fn policy(of: &HttpResponse, at: SystemTime) -> CachePolicy {
    let request = http::Request::get("https://example.org/").body(()).unwrap();
    let response = http::Response::from_parts(of.parts().unwrap(), ());
    CachePolicy::new_options(&request, &response, at, CacheOptions::default())
}

async fn put(manager: &EbbtideManager, response: &HttpResponse, at: SystemTime) {
    let put = manager.put(KEY.into(), response.clone(), policy(response, at));
    assert_eq!(put.await.unwrap().body, response.body);
}

async fn is_there(manager: &EbbtideManager) -> bool {
    manager.get(KEY).await.unwrap().is_some()
}

#[tokio::test]
async fn a_response_ends_when_it_has_been_stale_for_long_enough() {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(1_800_000_000_000));
    let db = database(&folder, &clock).await;
    let received = db.now();
    for keep_stale in [Duration::ZERO, MINUTE / 2] {
        let manager = EbbtideManager::open(&db, "responses", keep_stale)
            .await
            .unwrap();
        // Of the two minutes it spent half a one in a cache before this, and a quarter before it was stored.
        let response = response(&[("cache-control", "max-age=120"), ("age", "30")]);
        put(&manager, &response, db.now() - MINUTE / 4).await;
        clock.advance(MINUTE + MINUTE / 4 + keep_stale - MILLISECOND);
        let (found, policy) = manager.get(KEY).await.unwrap().unwrap();
        assert_eq!(
            (found.body, found.headers),
            (response.body, response.headers)
        );
        assert_eq!(policy.is_stale(db.now()), !keep_stale.is_zero());
        clock.advance(MILLISECOND);
        assert!(!is_there(&manager).await && policy.is_stale(db.now()));
    }
    assert!(db.now() > received + 2 * MINUTE);
}

#[tokio::test]
async fn what_is_stale_at_once_and_what_hardly_ever_is() {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(1_800_000_000_000));
    let db = database(&folder, &clock).await;
    let manager = EbbtideManager::open(&db, "responses", Duration::ZERO)
        .await
        .unwrap();
    put(
        &manager,
        &response(&[("cache-control", "no-cache")]),
        db.now(),
    )
    .await;
    assert!(!is_there(&manager).await);
    for age in ["31536000000", "18446744073709551615"] {
        let header = format!("public, max-age={age}");
        put(&manager, &response(&[("cache-control", &header)]), db.now()).await;
        clock.advance(365 * 24 * 60 * MINUTE);
        assert!(is_there(&manager).await);
    }
    manager.delete(KEY).await.unwrap();
    assert!(!is_there(&manager).await);
    manager.delete(KEY).await.unwrap();
}

#[tokio::test]
async fn a_restart_keeps_responses_and_other_bytes_are_none() {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(1_800_000_000_000));
    let db = database(&folder, &clock).await;
    let manager = EbbtideManager::open(&db, "responses", MINUTE)
        .await
        .unwrap();
    put(
        &manager,
        &response(&[("cache-control", "max-age=60")]),
        db.now(),
    )
    .await;
    db.close().await.unwrap();
    manager.get(KEY).await.unwrap_err();

    let db = database(&folder, &clock).await;
    let manager = EbbtideManager::open(&db, "responses", MINUTE)
        .await
        .unwrap();
    assert!(is_there(&manager).await);
    let responses = db.container("responses").await.unwrap();
    responses.put(KEY, "of another version").await.unwrap();
    assert!(!is_there(&manager).await);
    put(
        &manager,
        &response(&[("cache-control", "max-age=60")]),
        db.now(),
    )
    .await;
    assert!(is_there(&manager).await);
}
