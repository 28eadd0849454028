//! Doing what a request says with an open database.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Batch, Container, Database, DefaultTtl, Preview, Stats};
use serde_json::{Value, json};

use crate::request::{Answer, Change, Ending, Failed, Key, NewItem, Progress, Request};
use crate::words;

type Result<T> = std::result::Result<T, Failed>;

/// Items of a range that are counted one by one before it is deleted; of more it is said that there are as many.
pub const MOST_COUNTED: u64 = 100_000;

/// The time between two looks at work that is under way.
const TICK: Duration = Duration::from_millis(200);

/// Does what a request says. A compaction ends early when `goes_on` says no.
///
/// # Errors
/// Why it was not done.
pub fn perform(
    db: &Database,
    request: &Request,
    goes_on: &(dyn Fn() -> bool + Sync),
) -> Result<Answer> {
    match request {
        Request::Change { container, change } => make(db, container, change),
        Request::Preview { container, change } => preview(db, container, change).map(Answer::Ended),
        Request::State { container } => Ok(Answer::State {
            now: db.now(),
            default_ttl: found(db, container)?.map(|container| container.default_ttl()),
        }),
        Request::Compact => {
            let before = figures(&db.stats());
            match db.compact_while(goes_on)? {
                true => Ok(Answer::Compacted {
                    before,
                    after: figures(&db.stats()),
                }),
                false => Err(Failed::Refused("the compaction was interrupted".to_owned())),
            }
        }
        Request::Checkpoint { to } => {
            db.checkpoint(to)?;
            Ok(Answer::Done)
        }
        Request::ClusterStatus
        | Request::ClusterTop
        | Request::ClusterRemove { .. }
        | Request::ClusterToken { .. }
        | Request::ClusterLead { .. } => {
            let why = "this is a database of its own, and no node of a cluster";
            Err(Failed::Refused(why.to_owned()))
        }
    }
}

/// The same; calls `tick` every 200 ms meanwhile, which says whether it should go on.
///
/// # Errors
/// Why it was not done.
pub fn watched(
    db: &Database,
    request: &Request,
    tick: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Answer> {
    let goes_on = AtomicBool::new(true);
    let (ending, ended) = channel::<()>();
    thread::scope(|scope| {
        let goes_on = &goes_on;
        let worker = scope.spawn(move || {
            // Dropped at the end, also of a panic.
            let _ending = ending;
            perform(db, request, &|| goes_on.load(Ordering::Relaxed))
        });
        while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            if !tick(&progress(db)) {
                goes_on.store(false, Ordering::Relaxed);
            }
        }
        let done = worker.join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn progress(db: &Database) -> Progress {
    let stats = db.stats();
    Progress {
        bytes_merged: stats.bytes_merged,
        disk_bytes: stats.disk_bytes,
        expired_bytes: stats.expired_bytes,
        superseded_bytes: stats.superseded_bytes,
    }
}

/// A container that exists.
///
/// # Errors
/// [`Failed::NotFound`], with the name that was likely meant.
pub fn container(db: &Database, name: &str) -> Result<Container> {
    found(db, name)?.ok_or_else(|| {
        let likely = words::likely(name, db.containers());
        Failed::NotFound(format!("there is no container {name:?}{likely}"))
    })
}

fn found(db: &Database, name: &str) -> Result<Option<Container>> {
    match db.containers().iter().any(|known| known == name) {
        true => Ok(Some(db.container(name)?)),
        false => Ok(None),
    }
}

fn preview(db: &Database, name: &str, change: &Change) -> Result<Ending> {
    let items = match change {
        // They make a container that is missing.
        Change::Put(_) | Change::DefaultTtl(_) => match found(db, name)? {
            Some(items) => items,
            None => return Ok(Ending::default()),
        },
        _ => container(db, name)?,
    };
    let estimate = |items, bytes| Ending {
        items,
        bytes: Some(bytes),
        is_counted: false,
    };
    let of = |Preview { items, bytes, .. }| estimate(items, bytes);
    Ok(match change {
        Change::DefaultTtl(default) => of(items.preview_default_ttl(*default)),
        Change::ExpireBefore(moment) => of(items.preview_expire_before(*moment)),
        Change::ExpireWrittenBefore(moment) => of(items.preview_expire_written_before(*moment)),
        Change::ExpireAll => {
            let stats = items.stats();
            estimate(stats.live_items, stats.live_bytes)
        }
        Change::Clear | Change::Drop => Ending {
            items: items.stats().live_items,
            ..Ending::default()
        },
        Change::DeleteRange { from, to } => Ending {
            items: items.count_up_to(bounds(from, to), MOST_COUNTED),
            bytes: None,
            is_counted: true,
        },
        _ => Ending::default(),
    })
}

fn make(db: &Database, name: &str, change: &Change) -> Result<Answer> {
    match change {
        Change::Put(_) | Change::DefaultTtl(_) => {
            let is_new = !db.containers().iter().any(|known| known == name);
            let items = db.container(name)?;
            let made = change_of(&items, change, db);
            if made.is_err() && is_new && items.is_empty().unwrap_or(false) {
                // The first error is told.
                let _ = db.drop_container(name);
            }
            made
        }
        _ => change_of(&container(db, name)?, change, db),
    }
}

fn change_of(items: &Container, change: &Change, db: &Database) -> Result<Answer> {
    // Afterwards it could not be counted.
    let ending = preview(db, items.name(), change)?;
    match change {
        Change::Put(new) => {
            put(items, new, db)?;
            let is_off = items.default_ttl() == DefaultTtl::Off;
            return Ok(Answer::Put { is_off });
        }
        Change::Delete { key } => {
            let deleted = items.take(key)?;
            return Ok(Answer::Ended(Ending {
                items: deleted.is_some().into(),
                bytes: None,
                is_counted: true,
            }));
        }
        Change::Touch { key } => {
            let item = items.get_and_touch(key)?;
            let end = |item: ebbtide::Item| Answer::Until(item.expires_at());
            return Ok(item.map_or(Answer::NoItem, end));
        }
        Change::Quota(quota) => {
            items.set_quota(*quota)?;
            let live_bytes = items.stats().live_bytes;
            return Ok(Answer::Quota { live_bytes });
        }
        Change::DeleteRange { from, to } => items.delete_range(bounds(from, to))?,
        Change::Clear => items.clear()?,
        Change::Drop => drop(db.drop_container(items.name())?),
        Change::ExpireBefore(moment) => items.expire_before(*moment)?,
        Change::ExpireWrittenBefore(moment) => items.expire_written_before(*moment)?,
        Change::ExpireAll => items.expire_all()?,
        Change::DefaultTtl(default) => items.set_default_ttl(*default)?,
    }
    Ok(Answer::Ended(ending))
}

fn put(items: &Container, new: &[NewItem], db: &Database) -> ebbtide::Result<()> {
    let mut batch = Batch::new();
    for NewItem { key, value, ttl } in new {
        batch.put_with_ttl(items, key, value, *ttl);
    }
    db.write(&batch)
}

fn bounds<'a>(from: &'a [u8], to: &'a Option<Key>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let to = to.as_ref();
    let to = to.map_or(Bound::Unbounded, |to| Bound::Excluded(to.0.as_slice()));
    (Bound::Included(from), to)
}

/// Every figure of a database by its name in the library.
#[must_use]
pub fn figures(stats: &Stats) -> Value {
    json!({
        "live_items": stats.live_items,
        "live_bytes": stats.live_bytes,
        "expired_bytes": stats.expired_bytes,
        "superseded_bytes": stats.superseded_bytes,
        "tombstone_bytes": stats.tombstone_bytes,
        "stored_bytes": stats.stored_bytes,
        "disk_bytes": stats.disk_bytes,
        "log_bytes": stats.log_bytes,
        "table_bytes": stats.table_bytes,
        "pinned_bytes": stats.pinned_bytes,
        "pinned_memtable_bytes": stats.pinned_memtable_bytes,
        "memtable_bytes": stats.memtable_bytes,
        "oldest_unreclaimed_ms": millis(stats.oldest_unreclaimed),
        "overdue_seconds": seconds(stats.overdue),
        "runs": stats.runs,
        "tables": stats.tables,
        "snapshots": stats.snapshots,
        "bytes_put": stats.bytes_put,
        "bytes_logged": stats.bytes_logged,
        "bytes_flushed": stats.bytes_flushed,
        "bytes_merged": stats.bytes_merged,
        "bytes_dropped": stats.bytes_dropped,
        "flushes": stats.flushes,
        "merges": stats.merges,
        "stalls": stats.stalls,
        "stall_seconds": seconds(stats.stall_time),
        "syncs": stats.syncs,
        "sync_seconds": seconds(stats.sync_time),
        "expired_misses": stats.expired_misses,
        "bytes_scrubbed": stats.bytes_scrubbed,
        "damage": stats.damage.iter().map(|damage| json!({
            "path": damage.path.to_string_lossy(),
            "offset": damage.offset,
            "what": damage.what,
        })).collect::<Vec<_>>(),
        "reclaim_lag": stats.reclaim_lag.steps().map(|(time, bytes)| json!({
            "within_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            "bytes": bytes,
        })).collect::<Vec<_>>(),
    })
}

/// Milliseconds since 1970.
fn millis(moment: Option<SystemTime>) -> Value {
    let since = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    since.map_or(Value::Null, |since| (since.as_millis() as u64).into())
}

/// To the millisecond.
fn seconds(time: Duration) -> Value {
    ((time.as_secs_f64() * 1_000.0).round() / 1_000.0).into()
}
