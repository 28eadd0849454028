//! Goal: tasks get the answers of the calls that wait; no call holds up the thread that polls it, whatever it waits for; and
//! a future that is dropped leaves nothing in part.
//!
//! Method: the same random operations by both kinds of handles. Futures polled some times and dropped. A disk on which a
//! call is held until another task of the same, only thread has run: a call that waits on that thread never ends.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ebbtide::internals::{Fs, Sim};
use ebbtide::tokio::{AsyncChanges, AsyncContainer, AsyncDatabase};
use ebbtide::{
    Batch, Change, Container, Database, DefaultTtl, Durability, ExpiryCursor, Item, ManualClock,
    Options, Reads, Result, Ttl, Update, Version,
};
use testkit::patience::{comes_true, wait_until};
use testkit::random::Random;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

const START: u64 = 1_800_000_000_000;

/// One thread polls everything.
fn one_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn disk() -> Sim {
    let sim = Sim::new(1);
    sim.create_dir_all(Path::new("/")).unwrap();
    sim
}

fn on(sim: &Sim) -> Options {
    Options::new().fs(Arc::new(sim.clone()))
}

async fn open(options: &Options, path: &str) -> (AsyncDatabase, AsyncContainer) {
    let db = AsyncDatabase::open_with(options, path).await.unwrap();
    let items = db.container("items").await.unwrap();
    (db, items)
}

/// Calls on a disk that are held until they are let go.
#[derive(Clone, Default)]
struct Gate {
    is_shut: Arc<AtomicBool>,
    held: Arc<AtomicUsize>,
}

impl Gate {
    /// Before each call of this name on a path that holds `part`.
    fn before(sim: &Sim, name: &'static str, part: &'static str) -> Gate {
        let gate = Gate::default();
        let watching = gate.clone();
        sim.watch(move |_, call| {
            let is_it = call.operation == name && call.path.to_string_lossy().contains(part);
            if is_it && watching.is_shut.load(Ordering::SeqCst) {
                watching.held.fetch_add(1, Ordering::SeqCst);
                let opened = comes_true(|| !watching.is_shut.load(Ordering::SeqCst));
                assert!(opened, "no other task ran while a call was held");
            }
        });
        gate
    }

    fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    /// How many calls it holds or held.
    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Another task: waits until a call is held, does `meanwhile`, and lets it go.
    async fn open_after(&self, meanwhile: impl Future<Output = ()>) {
        while self.held() == 0 {
            yield_now().await;
        }
        meanwhile.await;
        self.is_shut.store(false, Ordering::SeqCst);
    }
}

async fn all<T>(mut stream: impl AsyncIterator<T>) -> Vec<T> {
    let mut all = vec![];
    while let Some(one) = stream.step().await {
        all.push(one.unwrap());
    }
    all
}

/// The step that both kinds of streams have.
trait AsyncIterator<T> {
    fn step(&mut self) -> impl Future<Output = Option<Result<T>>>;
}

impl AsyncIterator<Item> for ebbtide::tokio::ItemStream {
    fn step(&mut self) -> impl Future<Output = Option<Result<Item>>> {
        self.next()
    }
}

impl AsyncIterator<ebbtide::Bytes> for ebbtide::tokio::KeyStream {
    fn step(&mut self) -> impl Future<Output = Option<Result<ebbtide::Bytes>>> {
        self.next()
    }
}

/// All that an item shows, but for where it stands in the history.
fn shown(item: &Item) -> (Vec<u8>, Vec<u8>, Ttl, Option<std::time::SystemTime>) {
    let (key, value) = (item.key().to_vec(), item.value().to_vec());
    (key, value, item.ttl(), item.expires_at())
}

fn ttl_of(random: &mut Random) -> Ttl {
    match random.below(4) {
        0 => Ttl::Inherit,
        1 => Ttl::Never,
        2 => Ttl::Keep,
        _ => Ttl::After(Duration::from_millis(1 + random.below(2_000) as u64)),
    }
}

fn grow(item: Option<&Item>) -> Update {
    match item {
        Some(item) if item.value().len() > 40 => Update::Delete,
        Some(item) => Update::Put([item.value(), &b"+"[..]].concat(), Ttl::Keep),
        None => Update::Put(b"new".to_vec(), Ttl::Inherit),
    }
}

/// One operation on a key, by both; each answer is compared.
async fn operate(random: &mut Random, tasks: &AsyncContainer, waits: &Container) {
    let key = format!("key-{:02}", random.below(60));
    let value = vec![b'v'; random.below(60)];
    let ttl = ttl_of(random);
    let is_ok = |one: &Result<bool>, other: &Result<bool>| match (one, other) {
        (Ok(one), Ok(other)) => assert_eq!(one, other),
        (one, other) => assert_eq!(one.is_err(), other.is_err()),
    };
    let (key, value) = (&key, &value);
    match random.below(14) {
        0 | 1 => {
            tasks.put_with_ttl(key, value, ttl).await.unwrap();
            waits.put_with_ttl(key, value, ttl).unwrap();
        }
        2 => is_ok(
            &tasks.create(key, value, ttl).await,
            &waits.create(key, value, ttl),
        ),
        3 => is_ok(
            &tasks.replace(key, value, ttl).await,
            &waits.replace(key, value, ttl),
        ),
        4 if value.len() < 20 => is_ok(&tasks.touch(key).await, &waits.touch(key)),
        4 if value.len() < 40 => assert_eq!(
            tasks.touch_until(key).await.unwrap(),
            waits.touch_until(key).unwrap()
        ),
        4 => {
            let one = tasks.get_and_touch(key).await.unwrap();
            let other = waits.get_and_touch(key).unwrap();
            assert_eq!(one.as_ref().map(shown), other.as_ref().map(shown));
        }
        5 => is_ok(&tasks.expire(key, ttl).await, &waits.expire(key, ttl)),
        6 => {
            let (one, other) = (tasks.take(key).await.unwrap(), waits.take(key).unwrap());
            assert_eq!(one.as_ref().map(shown), other.as_ref().map(shown));
        }
        7 => is_ok(&tasks.update(key, grow).await, &waits.update(key, grow)),
        8 => {
            tasks.delete(key).await.unwrap();
            waits.delete(key).unwrap();
        }
        9 => {
            let to = format!("{key}5");
            tasks.delete_range(key..&to).await.unwrap();
            waits.delete_range(key..&to).unwrap();
        }
        10 => {
            let keys = (0..60).map(|n| format!("key-{n:02}"));
            let (one, other) = (tasks.get_many(keys.clone()).await, waits.get_many(keys));
            assert_eq!(one.unwrap(), other.unwrap());
        }
        11 => {
            assert_eq!(
                tasks.count(key..).await.unwrap(),
                waits.count(key..).unwrap()
            );
            let (one, other) = (tasks.first().await.unwrap(), waits.first().unwrap());
            assert_eq!(one.as_ref().map(shown), other.as_ref().map(shown));
        }
        12 => {
            let seen: Vec<_> = all(tasks.range(..).rev()).await.iter().map(shown).collect();
            let other = waits.range(..).rev();
            let other: Vec<_> = other.map(|item| shown(&item.unwrap())).collect();
            assert_eq!(seen, other);
        }
        _ => {
            let seen = all(tasks.keys(key..)).await;
            let other: Vec<_> = waits.keys(key..).map(Result::unwrap).collect();
            assert_eq!(seen, other);
        }
    }
    let (one, other) = (tasks.item(key).await.unwrap(), waits.item(key).unwrap());
    assert_eq!(one.as_ref().map(shown), other.as_ref().map(shown));
    assert_eq!(tasks.get(key).await.unwrap(), waits.get(key).unwrap());
    assert_eq!(tasks.contains(key).await.unwrap(), one.is_some());
}

#[test]
fn answers_are_those_of_the_calls_that_wait() {
    one_thread().block_on(async {
        for (seed, durability) in [(1, Durability::Buffered), (2, Durability::Sync)] {
            for reads in [Reads::Map, Reads::Pread] {
                let (mut random, clock) = (Random(seed), ManualClock::new(START));
                let sim = disk();
                let options = on(&sim)
                    .clock(clock.clone())
                    .reads(reads)
                    .durability(durability);
                let (db, tasks) = open(&options, "/tasks").await;
                let other = options.open("/waits").unwrap();
                let waits = other.container("items").unwrap();
                for step in 0..600 {
                    operate(&mut random, &tasks, &waits).await;
                    clock.advance(Duration::from_millis(random.below(20) as u64));
                    if step % 150 == 100 {
                        db.flush().await.unwrap();
                        other.flush().unwrap();
                    }
                    if step == 300 {
                        let default = DefaultTtl::After(Duration::from_millis(900));
                        tasks.set_default_ttl(default).await.unwrap();
                        waits.set_default_ttl(default).unwrap();
                    }
                }
                let stats = db.async_stats();
                // Both ways were gone, however busy the machine is.
                assert!(stats.inline > 100 && stats.pooled > 50, "{stats:?}");
                db.close().await.unwrap();
            }
        }
    });
}

/// Polls a future some times, and drops it when it is not ready by then.
fn poll_some<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..times {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return Some(answer);
        }
    }
    None
}

#[test]
fn a_batch_whose_future_is_dropped_is_there_whole_or_not_at_all() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let sim = disk();
        // So small that some batches meet full memtables, and go to the pool.
        let options = on(&sim).durability(durability).memtable_bytes(64 << 10);
        let db = options.open("/db").unwrap();
        let (left, right) = (
            db.container("left").unwrap(),
            db.container("right").unwrap(),
        );
        let tasks = AsyncDatabase::from(db.clone());
        let (mut random, runtime) = (Random(7), one_thread());
        let mut done = vec![];
        for n in 0..1_500u64 {
            let key = n.to_be_bytes();
            let mut batch = Batch::new();
            batch.put(&left, key, [1; 200]).put(&right, key, [2; 200]);
            if random.one_in(3) {
                // Then it may have to look, and waits.
                batch.require(&left, b"none", ebbtide::Expect::Absent);
            }
            // Some are awaited, so that some are done however busy the machine is.
            let answer = match random.below(5) {
                4 => Some(runtime.block_on(tasks.commit(batch))),
                polls => poll_some(tasks.commit(batch), polls),
            };
            if let Some(answer) = answer {
                answer.unwrap();
                done.push(key);
            }
        }
        drop(tasks);
        // Calls that a thread of the pool has begun are done before the database ends.
        db.close().unwrap();
        let db = options.open("/db").unwrap();
        let (left, right) = (
            db.container("left").unwrap(),
            db.container("right").unwrap(),
        );
        for n in 0..1_500u64 {
            let key = n.to_be_bytes();
            let (one, other) = (left.contains(key).unwrap(), right.contains(key).unwrap());
            assert_eq!(one, other, "batch {n} is there in part");
        }
        assert!(done.iter().all(|key| left.contains(key).unwrap()));
        assert!(done.len() > 200, "{}", done.len());
    }
}

#[test]
fn a_future_that_is_not_polled_does_nothing_and_one_that_began_is_done() {
    let sim = disk();
    let db = on(&sim).durability(Durability::Sync).open("/db").unwrap();
    let items = db.container("items").unwrap();
    let gate = Gate::before(&sim, "sync", "wal");
    gate.shut();
    one_thread().block_on(async {
        let tasks = AsyncDatabase::from(db.clone());
        let own = tasks.container("items").await;
        // A container is made by an edit, whose sync is not one of the log.
        let own = own.unwrap();
        drop(own.put("never", "polled"));
        assert!(
            poll_some(own.put("begun", "whole"), 1).is_none(),
            "it awaits its sync"
        );
        assert!(
            !own.contains("begun").await.unwrap(),
            "seen before it is synced"
        );
        gate.is_shut.store(false, Ordering::SeqCst);
        tasks.sync().await.unwrap();
    });
    assert_eq!(items.get("begun").unwrap().unwrap(), "whole");
    assert!(!items.contains("never").unwrap());
}

/// While a call of the disk is held, another task of the same thread reads and writes what is in memory.
fn goes_on_while_held(sim: &Sim, gate: &Gate, options: &Options, reads: bool) {
    one_thread().block_on(async {
        let (db, items) = open(options, "/db").await;
        items.put("cold", [7; 300]).await.unwrap();
        // In another block, so that the table's index is read before the gate is shut, and the block of `cold` is not.
        for n in 0..100u32 {
            items.put(format!("other-{n}"), [7; 300]).await.unwrap();
        }
        items.put("warm", [7; 300]).await.unwrap();
        db.flush().await.unwrap();
        items.get("warm").await.unwrap();
        let buffered = AsyncDatabase::from(on(sim).open("/other").unwrap());
        let other = buffered.container("items").await.unwrap();
        gate.shut();
        let held = async {
            match reads {
                true => assert_eq!(items.get("cold").await.unwrap().unwrap(), [7; 300]),
                false => items.put("k", "synced").await.unwrap(),
            }
        };
        let meanwhile = async {
            for n in 0..300u32 {
                other.put(n.to_be_bytes(), "v").await.unwrap();
                assert!(other.contains(n.to_be_bytes()).await.unwrap());
            }
        };
        tokio::join!(held, gate.open_after(meanwhile));
        assert!(gate.held() > 0);
    });
}

#[test]
fn a_runtime_of_one_thread_goes_on_while_a_sync_is_held() {
    let sim = disk();
    let gate = Gate::before(&sim, "sync", "/db/wal");
    let options = on(&sim).durability(Durability::Sync);
    goes_on_while_held(&sim, &gate, &options, false);
}

#[test]
fn a_runtime_of_one_thread_goes_on_while_a_read_is_held() {
    let sim = disk();
    let gate = Gate::before(&sim, "read", "/db/tables");
    goes_on_while_held(&sim, &gate, &on(&sim).reads(Reads::Pread), true);
}

#[test]
fn a_runtime_of_one_thread_goes_on_while_writers_are_stalled() {
    let sim = disk();
    let gate = Gate::before(&sim, "write", "/db/tables");
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim).memtable_bytes(64 << 10), "/db").await;
        items.put("k", "v").await.unwrap();
        gate.shut();
        let written = Cell::new(0);
        // Far more than memory takes while nothing is flushed.
        let writer = async {
            for n in 0..600u32 {
                items.put(n.to_be_bytes(), [1; 1_000]).await.unwrap();
                written.set(n);
            }
        };
        // Until the writer is stopped, and not only slowed down: then it gets no further.
        let reader = gate.open_after(async {
            let (mut seen, mut since) = (0, Instant::now());
            while since.elapsed() < Duration::from_millis(200) {
                assert_eq!(items.get("k").await.unwrap().unwrap(), "v");
                yield_now().await;
                if written.get() != seen || db.as_sync().stats().stalls == 0 {
                    (seen, since) = (written.get(), Instant::now());
                }
            }
        });
        tokio::join!(writer, reader);
        assert_eq!(items.count(..).await.unwrap(), 601);
    });
}

#[test]
fn one_sync_serves_all_tasks_that_wait() {
    let sim = disk();
    let gate = Gate::before(&sim, "sync", "/db/wal");
    one_thread().block_on(async {
        let (_db, items) = open(&on(&sim).durability(Durability::Sync), "/db").await;
        gate.shut();
        type Put<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
        let put = |n: u32| -> Put<'_> { Box::pin(items.put(n.to_be_bytes(), "v")) };
        let mut puts: Vec<Put<'_>> = (0..1_000).map(put).collect();
        let mut context = Context::from_waker(Waker::noop());
        for put in &mut puts {
            // Where the budget of this task is used up, the poll does nothing: the next one does.
            for _ in 0..2 {
                assert!(put.as_mut().poll(&mut context).is_pending());
                yield_now().await;
            }
        }
        gate.is_shut.store(false, Ordering::SeqCst);
        let before = gate.held();
        for put in puts {
            put.await.unwrap();
        }
        assert!(gate.held() - before <= 1, "{} syncs were held", gate.held());
        assert_eq!(items.count(..).await.unwrap(), 1_000);
    });
}

#[test]
fn ten_thousand_tasks_that_wait_take_no_more_threads() {
    let sim = disk();
    let gate = Gate::before(&sim, "read", "/db/tables");
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim).reads(Reads::Pread).cache_bytes(0), "/db").await;
        items.put("cold", [7; 300]).await.unwrap();
        db.flush().await.unwrap();
        gate.shut();
        let one = |_| {
            let items = items.clone();
            tokio::spawn(async move { items.get("cold").await.unwrap().unwrap().len() })
        };
        let tasks: Vec<_> = (0..10_000).map(one).collect();
        gate.open_after(async {
            // All of them have gone to the pool.
            while db.async_stats().pooled < 10_000 {
                yield_now().await;
            }
            let threads = db.async_stats().threads;
            assert!(threads <= 4 + 1 + 1, "{threads} threads");
        })
        .await;
        for task in tasks {
            assert_eq!(task.await.unwrap(), 300);
        }
    });
}

#[test]
fn what_is_in_memory_is_answered_inline() {
    let folder = tempfile::tempdir().unwrap();
    one_thread().block_on(async {
        let options = Options::new();
        let (db, items) = open(&options, folder.path().to_str().unwrap()).await;
        let before = db.async_stats();
        for n in 0..500u32 {
            items.put(n.to_be_bytes(), "v").await.unwrap();
            assert!(items.contains(n.to_be_bytes()).await.unwrap());
            assert!(items.touch(n.to_be_bytes()).await.unwrap());
            assert!(
                !items
                    .create(n.to_be_bytes(), "w", Ttl::Inherit)
                    .await
                    .unwrap()
            );
        }
        let after = db.async_stats();
        // The commit lock may be held for a moment by a thread of the database.
        assert!(after.inline - before.inline > 1_000, "{after:?}");
        assert!(items.take(3u32.to_be_bytes()).await.unwrap().is_some());
        assert!(items.get(3u32.to_be_bytes()).await.unwrap().is_none());
    });
}

#[test]
fn a_table_that_was_read_before_is_read_inline() {
    let sim = disk();
    one_thread().block_on(async {
        for (reads, path) in [(Reads::Pread, "/pread"), (Reads::Map, "/map")] {
            let (db, items) = open(&on(&sim).reads(reads), path).await;
            for n in 0..500u32 {
                items.put(n.to_be_bytes(), "v").await.unwrap();
            }
            db.flush().await.unwrap();
            let lookups = async || {
                let before = db.async_stats().pooled;
                for n in 0..1_000u32 {
                    assert_eq!(items.contains(n.to_be_bytes()).await.unwrap(), n < 500);
                }
                db.async_stats().pooled - before
            };
            let first = lookups().await;
            assert!(first > 0, "{reads:?}: nothing was read by the pool");
            let again = lookups().await;
            assert!(
                again == 0 || !cfg!(target_os = "linux"),
                "{reads:?}: {again}"
            );
        }
    });
}

#[test]
fn an_item_that_expired_while_its_chunk_waited_is_not_handed_out() {
    let (sim, clock) = (disk(), ManualClock::new(START));
    one_thread().block_on(async {
        let (_db, items) = open(&on(&sim).clock(clock.clone()), "/db").await;
        for n in 0..20u8 {
            let ttl = Duration::from_secs(if n % 2 == 0 { 60 } else { 600 });
            items.put_with_ttl([n], "v", ttl).await.unwrap();
        }
        let mut stream = items.range(..);
        assert_eq!(stream.next().await.unwrap().unwrap().key(), [0]);
        clock.advance(Duration::from_secs(60));
        let keys = all(stream).await;
        let expected: Vec<u8> = (0..20).filter(|n| n % 2 == 1).collect();
        assert_eq!(
            keys.iter().map(|item| item.key()[0]).collect::<Vec<_>>(),
            expected
        );
        // A change of the settings counts too.
        let mut stream = items.keys(..);
        assert_eq!(stream.next().await.unwrap().unwrap(), [1][..]);
        items.put([1], "inherits").await.unwrap();
        let mut stream = items.range(..=[1]);
        clock.advance(Duration::from_secs(5));
        items
            .set_default_ttl(DefaultTtl::After(Duration::from_secs(5)))
            .await
            .unwrap();
        assert!(stream.next().await.is_none());
    });
}

#[test]
fn streams_go_both_ways_and_see_what_was_there_when_they_were_made() {
    let sim = disk();
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim), "/db").await;
        for n in 0..1_000u32 {
            items.put(n.to_be_bytes(), vec![0; 100]).await.unwrap();
        }
        let snapshot = db.snapshot();
        let (forwards, backwards) = (items.keys(..), items.keys(..).rev());
        items.put(5_000u32.to_be_bytes(), "later").await.unwrap();
        items.delete_range(..100u32.to_be_bytes()).await.unwrap();
        db.flush().await.unwrap();
        let ascending: Vec<_> = (0..1_000u32).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(all(forwards).await, ascending);
        let mut seen = all(backwards).await;
        seen.reverse();
        assert_eq!(seen, ascending);
        let view = snapshot.container("items").await.unwrap();
        assert_eq!(view.count(..).await.unwrap(), 1_000);
        assert_eq!(
            view.get(7u32.to_be_bytes()).await.unwrap().unwrap().len(),
            100
        );
        assert_eq!(items.count(..).await.unwrap(), 901);
        // Turned round in the middle, it begins anew; dropped there, it is forgotten.
        let mut turned = items.range(..);
        for _ in 0..200 {
            turned.next().await.unwrap().unwrap();
        }
        let last = turned.rev().next().await.unwrap().unwrap();
        assert_eq!(last.key(), 5_000u32.to_be_bytes());
        let mut dropped = items.range(..);
        // Mostly it is not answered yet, but the pool may be quick.
        let _ = poll_some(dropped.next(), 1);
        drop(dropped);
        db.flush().await.unwrap();
    });
}

/// The keys that a pass tells, and an end of it.
async fn told(changes: &mut AsyncChanges) -> Vec<String> {
    let mut told = vec![];
    while let Some(change) = changes.next().await {
        told.push(match change.unwrap() {
            Change::Put { item, .. } => String::from_utf8(item.key().to_vec()).unwrap(),
            Change::Delete { key, .. } => format!("without {}", key.escape_ascii()),
            Change::Created { .. } | Change::Expiry { .. } => continue,
            other => panic!("{other:?}"),
        });
    }
    told
}

/// The loaded items come from a task of the only thread, so a load that held that thread would never end.
#[test]
fn a_bulk_load_asks_for_its_items_on_a_thread_of_the_pool() {
    let sim = disk();
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim), "/db").await;
        items.put("k0001", "old").await.unwrap();
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let minute = Ttl::After(Duration::from_secs(60));
        let load = items.bulk_load_with_ttl(receiver);
        let send = async {
            for n in 0..200 {
                let mut item = Ok((format!("k{n:04}"), "loaded", minute));
                while let Err(error) = sender.try_send(item) {
                    let std::sync::mpsc::TrySendError::Full(unsent) = error else {
                        panic!("the load has ended");
                    };
                    item = unsent;
                    yield_now().await;
                }
                assert_eq!(items.count(..).await.unwrap(), 1);
            }
            drop(sender);
        };
        let (loaded, ()) = tokio::join!(load, send);
        let (version, last) = (loaded.unwrap().version(), items.last().await);
        let last = last.unwrap().unwrap();
        assert_eq!((last.version(), last.ttl()), (version, minute));
        assert_eq!(items.get("k0001").await.unwrap().unwrap(), "loaded");
        assert_eq!(items.count(..).await.unwrap(), 200);

        let error = items.bulk_load([("y", "1"), ("x", "2")]).await;
        let error = error.unwrap_err().to_string();
        let same = items.as_sync().bulk_load([("y", "1"), ("x", "2")]);
        assert_eq!(error, same.unwrap_err().to_string());
        let broken = [Ok(("y", "1", Ttl::Never)), Err(ebbtide::Error::Stalled)];
        let error = items.bulk_load_with_ttl(broken).await.unwrap_err();
        assert!(matches!(error, ebbtide::Error::Stalled));
        assert!(!items.contains("y").await.unwrap());
        db.close().await.unwrap();
        let error = items.bulk_load([("y", "1")]).await.unwrap_err();
        assert!(error.is_closed());
    });
}

#[test]
fn a_bulk_load_whose_future_is_dropped_is_done_whole_or_never_begins() {
    let sim = disk();
    let db = on(&sim).open("/db").unwrap();
    let own = AsyncDatabase::from(db.clone());
    let items = db.container("items").unwrap();
    one_thread().block_on(async {
        let tasks = own.container("items").await.unwrap();
        let pairs = |name: &'static str| (0..500).map(move |n| (format!("{name}{n:04}"), "v"));
        drop(tasks.bulk_load(pairs("unpolled")));
        let (has_begun, goes_on) = (Arc::new(AtomicBool::new(false)), Gate::default());
        goes_on.shut();
        let (begun, gate) = (has_begun.clone(), goes_on.clone());
        let held = pairs("begun").inspect(move |_| {
            begun.store(true, Ordering::SeqCst);
            assert!(comes_true(|| !gate.is_shut.load(Ordering::SeqCst)));
        });
        {
            let mut load = pin!(tasks.bulk_load(held));
            let mut context = Context::from_waker(Waker::noop());
            assert!(load.as_mut().poll(&mut context).is_pending());
            assert!(comes_true(|| has_begun.load(Ordering::SeqCst)));
        }
        goes_on.is_shut.store(false, Ordering::SeqCst);
    });
    wait_until("it is loaded", || !items.is_empty().unwrap());
    assert_eq!(items.prefix("begun").count(), 500);
    assert_eq!(items.iter().count(), 500);
}

#[test]
fn changes_are_told_in_passes_whatever_is_dropped() {
    let sim = disk();
    let gate = Gate::before(&sim, "read", "/db/tables");
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim).reads(Reads::Pread), "/db").await;
        let keys: Vec<String> = (0..1_000).map(|n| format!("k{n:04}")).collect();
        for key in &keys {
            items.put(key, "v").await.unwrap();
        }
        db.flush().await.unwrap();
        let mut changes = db.changes(Version::start());
        gate.shut();
        for _ in 0..3 {
            // Begun, and dropped while its job is held.
            assert!(poll_some(changes.next(), 1).is_none());
        }
        gate.open_after(async {}).await;
        assert_eq!(changes.version(), Version::start());
        assert_eq!(told(&mut changes).await, keys);
        let first = changes.version();
        assert!(first > Version::start());
        items.put("new", "v").await.unwrap();
        items.delete("k0007").await.unwrap();
        db.container("other")
            .await
            .unwrap()
            .put("x", "v")
            .await
            .unwrap();
        // A version is of whole passes, also where all of this one was read ahead.
        assert!(changes.next().await.unwrap().is_ok());
        assert_eq!(changes.version(), first);
        assert_eq!(told(&mut changes).await, ["new", "x"]);
        assert!(told(&mut changes).await.is_empty());
        assert!(changes.version() > first);
        let own = told(&mut items.changes(first)).await;
        assert_eq!(own, ["without k0007", "new"]);
        db.close().await.unwrap();
        assert!(changes.next().await.unwrap().unwrap_err().is_closed());
    });
}

#[test]
fn expirations_come_once_and_in_order() {
    let (sim, clock) = (disk(), ManualClock::new(START));
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim).clock(clock.clone()), "/db").await;
        let mut expired = items.expirations(ExpiryCursor::now()).await.unwrap();
        for (key, seconds) in [("c", 1), ("a", 3), ("b", 2), ("d", 9)] {
            let ttl = Duration::from_secs(seconds);
            items.put_with_ttl(key, "v", ttl).await.unwrap();
        }
        assert!(expired.next().await.is_none());
        clock.advance(Duration::from_secs(5));
        assert_eq!(expired.next().await.unwrap().unwrap().key(), b"c");
        let mut other = items.expirations(expired.cursor()).await.unwrap();
        for reader in [&mut expired, &mut other] {
            let (b, a) = (reader.next().await, reader.next().await);
            assert_eq!(
                (b.unwrap().unwrap().key(), a.unwrap().unwrap().key()),
                (&b"b"[..], &b"a"[..])
            );
            assert!(reader.next().await.is_none());
        }
        // None is read ahead: what is written anew before its turn is left out.
        for key in ["e", "f"] {
            let ttl = Duration::from_secs(1);
            items.put_with_ttl(key, "v", ttl).await.unwrap();
        }
        clock.advance(Duration::from_secs(2));
        assert_eq!(expired.next().await.unwrap().unwrap().key(), b"e");
        items.put("f", "anew").await.unwrap();
        assert!(expired.next().await.is_none());
        db.close().await.unwrap();
        assert!(expired.next().await.unwrap().unwrap_err().is_closed());
    });
}

#[test]
fn closing_ends_streams_and_calls() {
    let sim = disk();
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim), "/db").await;
        for n in 0..1_000u32 {
            items.put(n.to_be_bytes(), "v").await.unwrap();
        }
        let (mut begun, mut unbegun) = (items.range(..), items.keys(..).rev());
        begun.next().await.unwrap().unwrap();
        db.close().await.unwrap();
        assert!(begun.next().await.unwrap().unwrap_err().is_closed());
        assert!(begun.next().await.is_none());
        assert!(unbegun.next().await.unwrap().unwrap_err().is_closed());
        assert!(items.get("k").await.unwrap_err().is_closed());
        assert!(items.put("k", "v").await.unwrap_err().is_closed());
        assert!(db.sync().await.unwrap_err().is_closed());
    });
}

#[test]
fn the_last_handle_closes_the_database_without_waiting() {
    let sim = disk();
    let gate = Gate::before(&sim, "sync", "/db/wal");
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim), "/db").await;
        items.put("k", "v").await.unwrap();
        gate.shut();
        drop((db, items)); // closing syncs
        gate.open_after(async {}).await;
    });
    let reopened = comes_true(|| on(&sim).open("/db").is_ok());
    assert!(reopened, "the folder is never free");
    wait_until("it is there", || {
        let db: Result<Database> = on(&sim).open("/db");
        db.is_ok_and(|db| db.container("items").unwrap().contains("k").unwrap())
    });
}

#[test]
fn a_panic_of_a_closure_goes_on_in_its_task() {
    let sim = disk();
    let gate = Gate::before(&sim, "read", "/db/tables");
    one_thread().block_on(async {
        let (db, items) = open(&on(&sim).reads(Reads::Pread), "/db").await;
        items.put("cold", "v").await.unwrap();
        db.flush().await.unwrap();
        gate.shut();
        let own = items.clone();
        let task = tokio::spawn(async move { own.update("cold", |_| panic!("not this")).await });
        gate.open_after(async {}).await;
        let panic = task.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"not this"));
        assert_eq!(items.get("cold").await.unwrap().unwrap(), "v");
    });
}
