//! Goal: tasks that wait for an end or a write rest without a thread, and are woken by what they wait for. Method: one thread
//! that polls all, without a clock of the runtime's; waits of an hour that only what is tested can end.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ebbtide::tokio::{AsyncContainer, AsyncDatabase};
use ebbtide::{Change, Error, ExpirationCause, ExpiryCursor, Options, Ttl, Version, WatchEvent};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, LocalSet};

const HOUR: Duration = Duration::from_secs(3_600);

fn one_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

async fn items() -> (AsyncDatabase, AsyncContainer) {
    let db = AsyncDatabase::from(Options::temporary().unwrap());
    assert_eq!(db.path(), None);
    let items = db.container("items").await.unwrap();
    (db, items)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn many_tasks_that_rest_take_no_more_threads() {
    LocalSet::new().block_on(&one_thread(), async {
        let (db, items) = items().await;
        let (mut tasks, opened) = (JoinSet::new(), Rc::new(Cell::new(0)));
        for task in 0..200 {
            let (items, opened) = (items.clone(), opened.clone());
            tasks.spawn_local(async move {
                match task % 2 {
                    0 => {
                        let mut ended = items.expirations(ExpiryCursor::now()).await.unwrap();
                        opened.set(opened.get() + 1);
                        assert!(ended.wait(HOUR).await.unwrap());
                        let ended = ended.next().await.unwrap().unwrap();
                        ended.key().to_vec()
                    }
                    _ => {
                        let mut watch = items.watch("k"..).await.unwrap();
                        opened.set(opened.get() + 1);
                        assert!(watch.wait(HOUR).await.unwrap());
                        match watch.next().await.unwrap().unwrap() {
                            WatchEvent::Put(item) => item.key().to_vec(),
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
        while opened.get() < 200 {
            tokio::task::yield_now().await;
        }
        items.put_with_ttl("k", "", ms(30)).await.unwrap();
        while let Some(key) = tasks.join_next().await {
            assert_eq!(key.unwrap(), b"k");
        }
        let threads = db.async_stats().threads;
        assert!(
            threads <= 8,
            "four that read, and as many that write: {threads}"
        );
    });
}

#[test]
fn a_wait_that_is_dropped_loses_nothing_and_another_goes_on() {
    one_thread().block_on(async {
        let (_db, items) = items().await;
        let mut ended = items.expirations(ExpiryCursor::now()).await.unwrap();
        assert_eq!(ended.next_due().await, None);
        for round in 0..20 {
            let wait = ended.wait(HOUR);
            tokio::select! {
                biased;
                answer = wait => panic!("{answer:?}"),
                () = async { for _ in 0..round { tokio::task::yield_now().await } } => {}
            }
        }
        items.put_with_ttl("k", "", ms(10)).await.unwrap();
        assert!(ended.next_due().await.is_some());
        assert!(ended.wait(HOUR).await.unwrap());
        assert_eq!(ended.next().await.unwrap().unwrap().key(), b"k");
        assert!(!ended.wait(ms(2)).await.unwrap());
        // A cause that is not asked for wakes nobody for long.
        let mut by_default = items.expirations(ExpiryCursor::now()).await.unwrap();
        by_default = by_default.causes([ExpirationCause::Default]);
        items.put_with_ttl("own", "", ms(1)).await.unwrap();
        assert!(!by_default.wait(ms(20)).await.unwrap());
        assert!(by_default.next().await.is_none());
    });
}

#[test]
fn closing_wakes_who_rests() {
    one_thread().block_on(async {
        let (db, items) = items().await;
        let mut ended = items.expirations(ExpiryCursor::now()).await.unwrap();
        let mut watch = items.watch(..).await.unwrap();
        let (ended, watch, closed) = tokio::join!(ended.wait(HOUR), watch.wait(HOUR), async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            db.close().await
        });
        closed.unwrap();
        for error in [ended.unwrap_err(), watch.unwrap_err()] {
            assert!(matches!(error, Error::Closed), "{error}");
        }
    });
}

#[test]
fn pages_come_in_the_order_of_versions() {
    one_thread().block_on(async {
        let (db, items) = items().await;
        for key in ["c", "a", "b"] {
            items.put_with_ttl(key, "", Ttl::Never).await.unwrap();
        }
        let mut pages = db.changes_by_version(Version::start(), 2);
        let mut keys = vec![];
        while let Some(page) = pages.next().await {
            for change in page.unwrap() {
                if let Change::Put { item, .. } = change {
                    keys.push(item.key()[0]);
                }
            }
        }
        assert_eq!(keys, *b"cab");
        assert!(pages.next().await.is_none());
    });
}
