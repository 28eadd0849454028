//! Goal: a program written against the public API compiles and does what it says: every name and shape of the sketch in
//! the project's description, as an outside program would use them.
//!
//! Method: one program that uses them all, in the order of the sketch.

use std::time::{Duration, SystemTime};

use ebbtide::{
    Batch, Bytes, Clock, ClockBehind, Compression, Container, ContainerOptions, ContainerStats,
    Database, DefaultTtl, Durability, Error, IndexedContainer, Item, ManualClock, Options, Result,
    Snapshot, Stall, Stats, Transaction, Ttl, TypedContainer, Update, Updated, Value, Written,
};

/// A clock of one's own.
struct Fixed;

impl Clock for Fixed {
    fn wall(&self) -> u64 {
        1_800_000_000_000
    }

    fn uptime(&self) -> u64 {
        0
    }
}

fn open_with_everything(path: &std::path::Path, clock: ManualClock) -> Result<Database> {
    Options::new()
        .durability(Durability::Buffered)
        .durability(Durability::Sync)
        .sync_interval(Duration::from_secs(1))
        .memtable_bytes(8 << 20)
        .cache_bytes(8 << 20)
        .compression(Compression::None)
        .compression(Compression::Lz4)
        .background_rate(64 << 20)
        .reclaim_within(Duration::from_secs(600))
        .reclaim_strict(true)
        .max_clock_skew(Duration::from_secs(3_600))
        .clock_behind(ClockBehind::Refuse)
        .clock_behind(ClockBehind::StartAtMark)
        .max_runs(16)
        .on_stall(Stall::Wait)
        .on_stall(Stall::Fail)
        .clock(clock)
        .read_only(false)
        .open(path)
}

#[test]
fn a_program_uses_all_of_it() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let plain: Database = Database::open(folder.path().join("plain"))?;
    plain.close()?;
    Options::new()
        .clock(Fixed)
        .open(folder.path().join("fixed"))?
        .close()?;

    let clock = ManualClock::new(1_800_000_000_000);
    let db: Database = open_with_everything(&folder.path().join("db"), clock.clone())?;
    let c: Container = db.container("sessions")?;
    let options = ContainerOptions::new()
        .default_ttl(DefaultTtl::NoDefault)
        .compression(Compression::None);
    let other: Container = db.container_with("other", options)?;
    let names: Vec<String> = db.containers();
    assert_eq!(names, ["other", "sessions"]);

    use_container(&c, &clock)?;
    use_batch(&db, &c, &other)?;
    use_transactions(&db, &c, &other)?;
    use_snapshot(&db, &c)?;
    use_maintenance(&db, &c, &folder.path().join("copy"))?;
    compose(&db)?;

    let dropped: bool = db.drop_container("other")?;
    assert!(dropped);
    let error: Error = other.get("k").unwrap_err();
    assert!(
        error.is_closed() && !error.is_corruption() && !error.is_full() && !error.is_retryable()
    );
    let _: &dyn std::error::Error = &error;
    clock.set(1_900_000_000_000);
    clock.jump(1_800_000_000_000);
    db.close()
}

fn use_container(c: &Container, clock: &ManualClock) -> Result<()> {
    c.set_default_ttl(DefaultTtl::Off)?;
    c.set_default_ttl(DefaultTtl::NoDefault)?;
    c.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))?;
    assert_eq!(c.default_ttl(), DefaultTtl::After(Duration::from_secs(60)));

    c.put("a", "1")?;
    c.put(b"b", vec![2u8])?;
    c.put(String::from("c"), &[3u8][..])?;
    c.put_with_ttl("d", "4", Ttl::Inherit)?;
    c.put_with_ttl("e", "5", Ttl::Never)?;
    c.put_with_ttl("f", "6", Ttl::After(Duration::from_secs(5)))?;
    c.put_with_ttl(
        "g",
        "7",
        Ttl::Until(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_009)),
    )?;
    let created: bool = c.create("a", "x", Ttl::Inherit)?;
    let replaced: bool = c.replace("nothing", "x", Ttl::Inherit)?;
    let touched: bool = c.touch("a")?;
    assert_eq!((created, replaced, touched), (false, false, true));

    let kept: bool = c.update("a", |_: Option<&Item>| Update::Keep)?;
    let put: bool = c.update("n", |item| {
        let n = item.map_or(0, |item| item.value().len());
        Update::Put(vec![0; n + 1], Ttl::Inherit)
    })?;
    let deleted: bool = c.update("n", |_| Update::Delete)?;
    assert_eq!((kept, put, deleted), (false, true, true));
    c.delete("b")?;
    c.delete_range("c".."d")?;

    let value: Option<Value> = c.get("a")?;
    let value: Value = value.unwrap().clone();
    let bytes: &[u8] = &value;
    assert_eq!(bytes, b"1");
    let item: Item = c.item("f")?.unwrap();
    assert_eq!(
        (item.key(), item.value().len(), item.ttl()),
        (&b"f"[..], 1, Ttl::After(Duration::from_secs(5)))
    );
    let (written, expires): (SystemTime, Option<SystemTime>) =
        (item.written_at(), item.expires_at());
    assert_eq!(expires, Some(written + Duration::from_secs(5)));
    let there: bool = c.contains("e")?;
    assert!(there);

    clock.advance(Duration::from_secs(5));
    let key = |item: Result<Item>| item.map(|item| item.key().to_vec());
    let all: Vec<Vec<u8>> = c.iter().map(key).collect::<Result<_>>()?;
    assert_eq!(all, [b"a", b"d", b"e", b"g"]);
    let back: Vec<Vec<u8>> = c.range("b".."e").rev().map(key).collect::<Result<_>>()?;
    assert_eq!(back, [b"d"]);
    assert_eq!(c.range("d"..="e").count(), 2);
    assert_eq!(c.range(b"d".to_vec()..).count(), 3);
    assert_eq!(c.prefix("e").next_back().unwrap()?.key(), b"e");
    Ok(())
}

fn use_batch(db: &Database, c: &Container, other: &Container) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(c, "batch", "1");
    batch.put_with_ttl(other, "batch", "2", Ttl::Never);
    batch.delete(c, "a");
    assert_eq!(batch.len(), 3);
    db.write(batch)?;
    let mut batch = Batch::new();
    batch.put(c, "forgotten", "1");
    batch.clear();
    db.write(batch)?;
    assert!(
        c.contains("batch")?
            && other.contains("batch")?
            && !c.contains("a")?
            && !c.contains("forgotten")?
    );
    Ok(())
}

fn use_transactions(db: &Database, c: &Container, other: &Container) -> Result<()> {
    let moved: usize = db.transaction(|tx| {
        let there: Option<Value> = tx.get(c, "batch")?;
        let item: Option<Item> = tx.item(other, "batch")?;
        assert!(there.is_some() && item.is_some() && tx.contains(c, "e")?);
        tx.put(c, "moved", "1")?;
        tx.put_with_ttl(other, "moved", "2", Duration::from_secs(5))?;
        let (_created, _replaced, _touched): (bool, bool, bool) = (
            tx.create(c, "moved", "", Ttl::Inherit)?,
            tx.replace(c, "moved", "1", Ttl::Keep)?,
            tx.touch(c, "moved")?,
        );
        tx.delete(c, "moved")?;
        let back: Vec<Item> = tx.range(other, "a"..).rev().collect::<Result<_>>()?;
        tx.delete_range(other, "moved".."movee")?;
        Ok(back.len())
    })?;
    assert_eq!(moved, 2);
    let tx: Transaction = db.begin();
    assert!(tx.get(c, "moved")?.is_none());
    tx.put(c, "moved", "1")?;
    let written: Written = tx.commit()?;
    assert_eq!(c.item("moved")?.unwrap().version(), written.version());
    c.delete("moved")
}

/// An error of the program's own.
#[derive(Debug)]
struct Own;

impl From<Error> for Own {
    fn from(_: Error) -> Own {
        Own
    }
}

fn compose(db: &Database) -> Result<()> {
    let c: &Container = &db.container("composed")?;
    let typed: TypedContainer<String, u32> = db.typed("typed")?;
    let done: std::result::Result<(u64, Written), Own> = db.try_transaction(|tx| {
        let put = |_: Option<&Item>| Update::Put(vec![1], Ttl::Inherit);
        let changed: bool = tx.update(c, "own", put)?;
        let told: Updated = tx.fetch_update(c, "more", put)?;
        let longer: bool = tx.expire(c, "own", Duration::from_secs(60))?;
        assert!(changed && told.before.is_none() && longer && tx.touch(c, "own")?);
        let many: Vec<Option<Value>> = tx.get_many(c, ["own", "none"])?;
        let keys: Vec<Bytes> = tx.keys(c, ..).collect::<Result<_>>()?;
        let (first, last): (Option<Item>, Option<Item>) = (tx.first(c)?, tx.last(c)?);
        let random: Option<Item> = tx.random(c)?;
        assert!(many[0].is_some() && keys.len() == 2 && random.is_some());
        assert!(first.unwrap().key() == b"more" && last.unwrap().key() == b"own");
        let taken: Option<Item> = tx.take(c, "more")?;
        assert!(taken.is_some());
        let own = tx.typed(&typed);
        own.put("k", &1)?;
        let there: Option<u32> = own.get("k")?;
        assert_eq!(there, Some(1));
        let count: u64 = tx.count(c, ..)?;
        Ok(count)
    });
    assert_eq!((done.unwrap().0, typed.get("k")?), (1, Some(1)));
    let tx = db.begin();
    tx.expire_all(c)?;
    tx.rollback();
    tx.commit()?;
    let aborted = db.try_transaction(|tx| -> std::result::Result<(), Own> {
        tx.expire_all(c)?;
        Err(Own)
    });
    assert!(aborted.is_err() && c.contains("own")?);
    let c = db.container("indexed")?;
    let indexed = IndexedContainer::new(&c, |_key, value| [value.to_vec()])?;
    indexed.put("k", "v")?;
    assert_eq!(indexed.index().items("v").count(), 1);
    Ok(())
}

fn use_snapshot(db: &Database, c: &Container) -> Result<()> {
    let snapshot: Snapshot = db.snapshot();
    c.put("later", "1")?;
    let view = snapshot.container("sessions")?;
    assert!(view.get("later")?.is_none() && view.item("batch")?.is_some() && view.contains("e")?);
    assert_eq!(
        (
            view.iter().count(),
            view.range("a".."c").count(),
            view.prefix("bat").count()
        ),
        (4, 1, 1)
    );
    Ok(())
}

fn use_maintenance(db: &Database, c: &Container, copy: &std::path::Path) -> Result<()> {
    db.sync()?;
    db.flush()?;
    db.compact()?;
    db.checkpoint(copy)?;
    let stats: Stats = db.stats();
    assert!(stats.disk_bytes > 0);
    let stats: ContainerStats = c.stats();
    let (_live, _expired, disk, _runs) = (
        stats.live_bytes,
        stats.expired_bytes,
        stats.disk_bytes,
        stats.runs,
    );
    let _oldest: Option<SystemTime> = stats.oldest_unreclaimed;
    assert!(disk > 0);
    db.confirm_clock();
    db.set_background_rate(1 << 20);
    let clone = db.clone();
    std::thread::spawn(move || clone.stats()).join().unwrap();
    Ok(())
}
