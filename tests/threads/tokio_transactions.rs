//! Goal: tasks have transactions, typed containers and what tells of the database, with the answers of the calls that wait,
//! and no call holds up the thread that polls it.
//!
//! Method: one thread polls everything; the answers of both kinds of handles side by side.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::tokio::{AsyncContainer, AsyncDatabase};
use ebbtide::{
    Batch, Durability, Error, Item, ManualClock, Options, Quota, Result, Transaction, Ttl, Update,
    WhenFull,
};
use tokio::runtime::Builder;

const START: u64 = 1_800_000_000_000;

fn run(test: impl AsyncFnOnce(AsyncDatabase, AsyncContainer, ManualClock)) {
    let clock = ManualClock::new(START);
    let options = Options::new()
        .clock(clock.clone())
        .fs(Arc::new(Sim::new(1)));
    Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(async {
            let db = AsyncDatabase::open_with(&options, "/db").await.unwrap();
            let items = db.container("items").await.unwrap();
            test(db, items, clock).await;
        });
}

#[derive(Debug)]
enum Own {
    Poor(u64),
    Failed(Error),
}

impl From<Error> for Own {
    fn from(error: Error) -> Own {
        Own::Failed(error)
    }
}

#[test]
fn a_closure_is_run_until_it_commits() {
    run(async |db, items, _clock| {
        let own = items.clone();
        let mut tries = 0;
        let answer = db.transaction(move |tx| {
            tries += 1;
            let _ = tx.get(&own, "n")?;
            tx.put(&own, "n", "own")?;
            if tries < 3 {
                own.as_sync().put("n", "another's")?;
            }
            Ok(tries)
        });
        assert_eq!(answer.await.unwrap(), 3);
        assert_eq!(items.get("n").await.unwrap().unwrap(), "own");
        let own = items.clone();
        let poor = db.try_transaction(move |tx: &Transaction| -> Result<(), Own> {
            tx.put(&own, "n", "never")?;
            Err(Own::Poor(7))
        });
        assert!(matches!(poor.await, Err(Own::Poor(7))));
        let own = items.clone();
        let wrong = db.try_transaction(move |tx: &Transaction| -> Result<(), Own> {
            Ok(tx.put(&own, "", "never")?)
        });
        assert!(matches!(
            wrong.await,
            Err(Own::Failed(Error::InvalidArgument { .. }))
        ));
        let own = items.clone();
        let done = db.try_transaction(move |tx: &Transaction| -> Result<u8, Own> {
            tx.put(&own, "n", "last")?;
            Ok(1)
        });
        let (answer, written) = done.await.unwrap();
        let item = items.item("n").await.unwrap().unwrap();
        assert_eq!((answer, item.version()), (1, written.version()));
        // A closed database: the caller's error, too.
        db.close().await.unwrap();
        let closed = db.try_transaction(|_: &Transaction| Ok::<_, Own>(()));
        assert!(matches!(closed.await, Err(Own::Failed(error)) if error.is_closed()));
    });
}

#[test]
fn one_that_was_begun_has_the_calls_of_a_transaction() {
    run(async |db, items, clock| {
        items.put("k", "1").await.unwrap();
        let tx = db.begin().await.unwrap();
        assert_eq!(tx.now(), db.now());
        assert_eq!(tx.get(&items, "k").await.unwrap().unwrap(), "1");
        tx.put(&items, "k", "2").await.unwrap();
        assert_eq!(tx.item(&items, "k").await.unwrap().unwrap().value(), "2");
        assert!(tx.contains(items.as_sync(), "k").await.unwrap());
        assert!(tx.create(&items, "new", "1", Ttl::Inherit).await.unwrap());
        assert!(
            !tx.replace(&items, "absent", "1", Ttl::Inherit)
                .await
                .unwrap()
        );
        assert!(tx.touch(&items, "new").await.unwrap());
        assert!(
            tx.expire(&items, "new", Duration::from_secs(9))
                .await
                .unwrap()
        );
        let many = tx.get_many(&items, ["new", "none"]).await.unwrap();
        assert!(many[0].is_some() && many[1].is_none());
        let longer = |item: Option<&Item>| {
            Update::Put([&item.unwrap().value()[..], b"!"].concat(), Ttl::Keep)
        };
        assert!(tx.update(&items, "k", longer).await.unwrap());
        let done = tx.fetch_update(&items, "k", longer).await.unwrap();
        assert_eq!(done.before.unwrap().value(), "2!");
        let is_there = |found: Option<ebbtide::Version>| found.is_some();
        let put = tx.put_if(&items, "absent", "1", Ttl::Inherit, is_there);
        assert!(put.await.unwrap().written.is_none());
        assert_eq!(tx.count(&items, ..).await.unwrap(), 2);
        assert_eq!(tx.range(&items, "k".., 1).await.unwrap()[0].value(), "2!!");
        let keys = tx.keys(&items, .., 1).await.unwrap();
        assert_eq!(keys, vec!["k"]);
        assert_eq!(tx.prefix(&items, "ne", 9).await.unwrap()[0].key(), b"new");
        assert_eq!(tx.count_up_to(&items, .., 1).await.unwrap(), 1);
        let until = tx.touch_until(&items, "new").await.unwrap();
        assert_eq!(until, Some(tx.now() + Duration::from_secs(9)));
        let touched = tx.get_and_touch(&items, "new").await.unwrap();
        assert_eq!(touched.unwrap().expires_at(), until);
        assert_eq!(tx.first(&items).await.unwrap().unwrap().key(), b"k");
        assert_eq!(tx.last(&items).await.unwrap().unwrap().key(), b"new");
        assert!(tx.random(&items).await.unwrap().is_some());
        assert_eq!(tx.take(&items, "k").await.unwrap().unwrap().value(), "2!!");
        tx.put_with_ttl(&items, "put", "1", Duration::from_secs(5))
            .await
            .unwrap();
        tx.delete(&items, "new").await.unwrap();
        tx.delete_range(&items, "x"..).await.unwrap();
        tx.durability(Durability::Sync).await.unwrap();
        clock.advance(Duration::from_secs(1));
        let written = tx.commit().await.unwrap();
        let put = items.item("put").await.unwrap().unwrap();
        assert_eq!(put.written_at(), written.written_at());
        assert_eq!(items.count(..).await.unwrap(), 1);
        // Rolled back, dropped, in conflict.
        let tx = db.begin().await.unwrap();
        tx.expire_all(&items).await.unwrap();
        assert!(tx.is_empty(&items).await.unwrap());
        tx.rollback().await.unwrap();
        tx.commit().await.unwrap();
        let tx = db.begin().await.unwrap();
        tx.put(&items, "dropped", "").await.unwrap();
        drop(tx);
        assert_eq!(items.count(..).await.unwrap(), 1);
        let tx = db.begin().await.unwrap();
        tx.get(&items, "put").await.unwrap();
        items.put("put", "2").await.unwrap();
        tx.put(&items, "derived", "").await.unwrap();
        assert!(tx.commit().await.unwrap_err().is_conflict());
    });
}

/// A commit whose future is dropped before it was polled never begins; one that was polled is done whole.
#[test]
fn a_dropped_commit_is_done_whole_or_not_at_all() {
    run(async |db, items, _clock| {
        for polls in [0, 1] {
            let tx = db.begin().await.unwrap();
            tx.put(&items, "a", "").await.unwrap();
            tx.put(&items, "b", "").await.unwrap();
            {
                let mut commit = pin!(tx.commit());
                for _ in 0..polls {
                    let mut context = Context::from_waker(Waker::noop());
                    let answer = commit.as_mut().poll(&mut context);
                    assert!(answer.is_pending() || matches!(answer, Poll::Ready(Ok(_))));
                }
            }
            db.sync().await.unwrap();
            let count = items.count(..).await.unwrap();
            assert!(
                count == 0 || polls > 0 && count == 2,
                "{count} after {polls}"
            );
        }
    });
}

#[test]
fn batches_take_handles_of_tasks() {
    run(async |db, items, _clock| {
        let other = db.container("other").await.unwrap();
        let mut batch = Batch::new();
        batch.put(&items, "a", "1").put(other.as_sync(), "b", "1");
        batch
            .create(&other, "c", "1", Ttl::Inherit)
            .touch(&items, "a");
        db.write(batch).await.unwrap();
        assert!(items.contains("a").await.unwrap());
        assert_eq!(other.count(..).await.unwrap(), 2);
    });
}

#[test]
fn what_tells_of_the_database_tells_tasks_the_same() {
    run(async |db, items, clock| {
        items
            .put_with_ttl("k", "v", Duration::from_secs(60))
            .await
            .unwrap();
        let waits = items.as_sync();
        assert_eq!(db.now(), db.as_sync().now());
        let stats = items.stats().await.unwrap();
        assert_eq!(
            (stats.live_items, stats.live_bytes),
            (1, waits.stats().live_bytes)
        );
        assert_eq!(items.due().await.unwrap(), waits.due());
        let quota = Quota {
            max_live_bytes: 1 << 20,
            when_full: WhenFull::Refuse,
        };
        items.set_quota(Some(quota)).await.unwrap();
        assert_eq!(items.quota().await.unwrap(), waits.quota());
        assert!(waits.quota().is_some());
        clock.advance(Duration::from_secs(60));
        let why = items.explain("k").await.unwrap();
        assert_eq!(why.to_string(), waits.explain("k").unwrap().to_string());
        assert!(!why.is_live());
        let disk = db.disk().await.unwrap();
        assert_eq!(disk.rows.len(), db.as_sync().disk().unwrap().rows.len());
    });
}

#[test]
fn typed_containers_have_their_calls_in_tasks() {
    use ebbtide::TypedUpdate;
    run(async |db, _items, _clock| {
        let hits = db.typed::<(String, u64), u32>("hits").await.unwrap();
        hits.put(("home", 9), &1).await.unwrap();
        hits.put_with_ttl(("home", 10), &2, Duration::from_secs(60))
            .await
            .unwrap();
        assert!(!hits.create(("home", 9), &7, Ttl::Inherit).await.unwrap());
        assert!(hits.replace(("home", 9), &3, Ttl::Inherit).await.unwrap());
        assert_eq!(hits.get(("home", 9)).await.unwrap(), Some(3));
        assert_eq!(hits.item(("home", 10)).await.unwrap().unwrap().value, 2);
        let many = hits.get_many([("none", 1), ("home", 9)]).await.unwrap();
        assert_eq!(many, [None, Some(3)]);
        assert!(hits.touch(("home", 10)).await.unwrap());
        assert!(hits.expire(("home", 10), Ttl::Never).await.unwrap());
        let raise = |item: Option<&ebbtide::TypedItem<(String, u64), u32>>| {
            TypedUpdate::Put(item.map_or(0, |item| item.value) + 10, Ttl::Keep)
        };
        assert!(hits.update(("home", 9), raise).await.unwrap());
        let done = hits.fetch_update(("home", 9), raise).await.unwrap();
        assert_eq!(done.before.unwrap().value, 13);
        let accepts = move |found| found == done.written.as_ref().map(|done| done.version());
        let put = hits.put_if(("home", 9), &23, Ttl::Inherit, accepts);
        assert!(put.await.unwrap().written.is_some());
        let mut back = hits.range(("home", 9)..).rev();
        assert_eq!(back.next().await.unwrap().unwrap().value, 2);
        assert_eq!(back.next().await.unwrap().unwrap().value, 23);
        assert!(back.next().await.is_none());
        let mut keys = hits.keys(..);
        assert_eq!(keys.next().await.unwrap().unwrap(), ("home".to_owned(), 9));
        assert_eq!(hits.first().await.unwrap().unwrap().value, 23);
        assert_eq!(hits.last().await.unwrap().unwrap().value, 2);
        assert_eq!(hits.count(..).await.unwrap(), 2);
        assert_eq!(hits.take(("home", 10)).await.unwrap().unwrap().value, 2);
        assert!(hits.prefix(("none",)).next().await.is_none());
        // Refused, and left as it is, where the stored bytes are not of the types.
        let key = hits
            .as_sync()
            .first()
            .unwrap()
            .unwrap()
            .stored
            .key()
            .to_vec();
        hits.untyped().put(&key, [0xff; 9]).await.unwrap();
        let wrong = hits.update(("home", 9), raise).await.unwrap_err();
        assert!(matches!(wrong, Error::Decode { .. }));
        assert!(hits.contains(("home", 9)).await.unwrap());
        assert!(hits.iter().next().await.unwrap().is_err());
        // A transaction over them, aborted by an error of one's own.
        let accounts = db.typed::<String, u64>("accounts").await.unwrap();
        let of = accounts.clone();
        let paid = db.try_transaction(move |tx| -> Result<(), Own> {
            tx.typed(of.as_sync()).put("ada", &20)?;
            Err(Own::Poor(20))
        });
        assert!(matches!(paid.await, Err(Own::Poor(20))));
        assert!(accounts.is_empty().await.unwrap());
        hits.delete(("home", 9)).await.unwrap();
        hits.delete_range(..).await.unwrap();
        assert!(hits.is_empty().await.unwrap());
    });
}

/// A future of each can be sent to another thread.
#[test]
fn the_futures_can_be_spawned() {
    fn is_send<T: Send>(_: &T) {}
    run(async |db, items, _clock| {
        is_send(&db.begin());
        is_send(&db.transaction(|_| Ok(())));
        let tx = db.begin().await.unwrap();
        is_send(&tx.put(&items, "k", "v"));
        is_send(&tx.update(&items, "k", |_| Update::Keep));
        is_send(&items.explain("k"));
        {
            let typed = items.typed::<String, u64>();
            is_send(&typed.get_with("k", async || Ok((1, Ttl::Never))));
            is_send(&typed.put("k", &1));
            is_send(&typed.update("k", |_| ebbtide::TypedUpdate::Keep));
        }
        is_send(&tx.commit());
    });
}

#[test]
fn typed_containers_and_views_have_the_calls_of_those_that_wait() {
    run(async |db, items, clock| {
        let ages = items.typed::<String, u8>();
        let minute = Duration::from_secs(60);
        ages.put_with_ttl("ada", &36, minute).await.unwrap();
        ages.put("bob", &20).await.unwrap();
        let then = db.snapshot().container("items").await.unwrap();
        let then = then.typed::<String, u8>();
        assert_eq!(then.name(), ages.name());
        clock.advance(Duration::from_secs(50));
        let touched = ages.get_and_touch("ada").await.unwrap().unwrap();
        assert_eq!(touched.value, 36);
        assert_eq!(touched.stored.expires_at(), Some(db.now() + minute));
        clock.advance(Duration::from_secs(5));
        let until = ages.touch_until("ada").await.unwrap();
        assert_eq!(until, Some(db.now() + minute));
        assert_eq!(ages.touch_until("eve").await.unwrap(), None);
        assert!(ages.get_and_touch("eve").await.unwrap().is_none());
        // An item of other types is told, and not touched.
        items.put_with_ttl("odd", "", minute).await.unwrap();
        let odd = items.item("odd").await.unwrap().unwrap();
        clock.advance(Duration::from_secs(5));
        let wrong = ages.get_and_touch("odd").await;
        assert!(matches!(wrong, Err(Error::Decode { .. })), "{wrong:?}");
        let same = items.item("odd").await.unwrap().unwrap();
        assert_eq!(same.version(), odd.version());
        items.delete("odd").await.unwrap();

        ages.put("ada", &37).await.unwrap();
        ages.delete("bob").await.unwrap();
        assert_eq!(ages.count_up_to("a".."c", 9).await.unwrap(), 1);
        assert_eq!(ages.random().await.unwrap().unwrap().value, 37);
        assert_eq!(then.get("bob").await.unwrap(), Some(20));
        let values = then.get_many(["bob", "ada"]).await.unwrap();
        assert_eq!(values, [Some(20), None], "her minute was over");
        let mut seen = vec![];
        let mut stream = then.clone().iter().rev();
        while let Some(item) = stream.next().await {
            seen.push(item.unwrap().key);
        }
        assert_eq!(seen, ["bob"]);
        assert_eq!(then.count("b"..).await.unwrap(), 1);
    });
}

/// Of tasks and threads that ask at once one makes the value, and where its future is dropped another does.
#[test]
fn a_cache_is_filled_by_one_of_those_that_ask() {
    run(async |_db, items, _clock| {
        let minute = Duration::from_secs(60);
        let made = AtomicU64::new(0);
        let make = async || {
            tokio::task::yield_now().await;
            made.fetch_add(1, Ordering::Relaxed);
            Ok(("made", minute))
        };
        let (one, other) = tokio::join!(items.get_with("k", make), items.get_with("k", make));
        assert_eq!(one.unwrap(), other.unwrap());
        assert_eq!(made.load(Ordering::Relaxed), 1);

        // The first is in its closure when it is dropped; a thread and a task wait for it.
        let (inside, is_inside) = tokio::sync::oneshot::channel::<()>();
        let mut first = Box::pin(items.get_with("dropped", async || {
            inside.send(()).unwrap();
            std::future::pending::<Result<(&str, Duration)>>().await
        }));
        tokio::select! {
            _ = &mut first => unreachable!(),
            is_inside = is_inside => is_inside.unwrap(),
        }
        let of = items.as_sync().clone();
        let thread = std::thread::spawn(move || of.get_with("dropped", || Ok(("next", minute))));
        let mut second = Box::pin(items.get_with("dropped", async || Ok(("next", minute))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert_eq!(second.await.unwrap(), "next");
        assert_eq!(thread.join().unwrap().unwrap(), "next");

        // An own error, and what is written meanwhile.
        let poor = items.try_get_with("own", async || Err::<(&str, Ttl), _>(Own::Poor(3)));
        assert!(matches!(poor.await, Err(Own::Poor(3))));
        let of = items.clone();
        let overtaken = items.get_with("own", async || {
            of.put("own", "another's").await?;
            Ok(("made", minute))
        });
        assert_eq!(overtaken.await.unwrap(), "another's");
    });
}
