//! A database as a whole: what it holds and takes, reclaiming, checking, copying.

use std::io::{Write, stdout};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use ebbtide::{
    ContainerStats, Database, DefaultTtl, Error, Loss, RepairReport, Stats, VerifyReport,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::{show, store};

pub fn containers(dir: &Path, json: bool) -> Outcome {
    let db = store::read(dir)?;
    let mut out = stdout().lock();
    for name in db.containers() {
        match json {
            true => writeln!(out, "{}", json!({ "container": name }))?,
            false => writeln!(out, "{name}")?,
        }
    }
    Ok(())
}

pub fn stats(dir: &Path, container: Option<&str>, json: bool) -> Outcome {
    let db = store::read(dir)?;
    let names = match container {
        Some(name) => vec![store::container(&db, name)?.name().to_owned()],
        None => db.containers(),
    };
    let mut containers = vec![];
    for name in names {
        let container = store::container(&db, &name)?;
        containers.push((name, container.default_ttl(), container.stats()));
    }
    let whole = container.is_none().then(|| db.stats());
    let text = match (json, &whole) {
        (true, None) => containers
            .iter()
            .map(|of| container_json(of).to_string() + "\n")
            .collect(),
        (true, Some(whole)) => {
            let mut object = stats_json(whole);
            object["containers"] = containers.iter().map(container_json).collect();
            object.to_string() + "\n"
        }
        (false, None) => container_table(&containers),
        (false, Some(whole)) => format!("{}\n{}", stats_table(whole), container_table(&containers)),
    };
    Ok(stdout().lock().write_all(text.as_bytes())?)
}

type Named = (String, DefaultTtl, ContainerStats);

fn stats_table(stats: &Stats) -> String {
    let rows = [
        ("items live", show::count(stats.live_items)),
        ("bytes live", show::bytes(stats.live_bytes)),
        (
            "expired, not yet reclaimed",
            show::bytes(stats.expired_bytes),
        ),
        (
            "superseded, not yet merged",
            show::bytes(stats.superseded_bytes),
        ),
        ("oldest expired item", expired_for(stats.oldest_unreclaimed)),
        ("behind its deadline", behind(stats.overdue)),
        ("expiry to removal, half within", lag_of(stats, 0.5)),
        ("expiry to removal, at most", lag_of(stats, 1.0)),
        ("bytes on disk", show::bytes(stats.disk_bytes)),
        ("  of them tables", show::bytes(stats.table_bytes)),
        ("  of them log", show::bytes(stats.log_bytes)),
        ("runs", show::count(stats.runs)),
        ("tables", show::count(stats.tables)),
        ("containers", show::count(stats.containers)),
    ];
    let rows = rows.map(|(what, amount)| vec![what.to_owned(), amount]);
    show::table(&["DATABASE", ""], &rows)
}

fn container_table(containers: &[Named]) -> String {
    let header = [
        "CONTAINER",
        "DEFAULT TTL",
        "ITEMS",
        "LIVE",
        "EXPIRED",
        "SUPERSEDED",
        "DISK",
        "RUNS",
        "TABLES",
        "OLDEST EXPIRED",
        "NEXT",
    ];
    let row = |(name, default, stats): &Named| {
        let default = match default {
            DefaultTtl::After(time) => show::time(*time),
            other => show::default_ttl(*other),
        };
        vec![
            name.clone(),
            default,
            show::count(stats.live_items),
            show::bytes(stats.live_bytes),
            show::bytes(stats.expired_bytes),
            show::bytes(stats.superseded_bytes),
            show::bytes(stats.disk_bytes),
            show::count(stats.runs),
            show::count(stats.tables),
            expired_for(stats.oldest_unreclaimed),
            stats.explain.clone(),
        ]
    };
    show::table(&header, &containers.iter().map(row).collect::<Vec<_>>())
}

fn expired_for(moment: Option<SystemTime>) -> String {
    let ago = moment.and_then(|moment| moment.elapsed().ok());
    ago.map_or("-".to_owned(), |ago| format!("{} ago", show::time(ago)))
}

/// By how much a deadline was missed.
fn behind(overdue: Duration) -> String {
    match overdue.is_zero() {
        true => "-".to_owned(),
        false => show::time(overdue),
    }
}

/// Within what time this share of the expired bytes was given up; since the database was opened.
fn lag_of(stats: &Stats, share: f64) -> String {
    match stats.reclaim_lag.bytes() {
        0 => "-".to_owned(),
        _ => show::time(stats.reclaim_lag.quantile(share)),
    }
}

/// Log, flushes, merges.
pub fn bytes_written(stats: &Stats) -> u64 {
    stats.bytes_logged + stats.bytes_flushed + stats.bytes_merged
}

/// Every number by its name in the library.
pub fn stats_json(stats: &Stats) -> Value {
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
        "oldest_unreclaimed_ms": show::moment_json(stats.oldest_unreclaimed),
        "overdue_seconds": show::seconds_json(stats.overdue),
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

fn container_json((name, default, stats): &Named) -> Value {
    json!({
        "container": name,
        "default_ttl": show::default_ttl_json(*default),
        "live_items": stats.live_items,
        "live_bytes": stats.live_bytes,
        "expired_bytes": stats.expired_bytes,
        "superseded_bytes": stats.superseded_bytes,
        "tombstone_bytes": stats.tombstone_bytes,
        "stored_bytes": stats.stored_bytes,
        "disk_bytes": stats.disk_bytes,
        "memtable_bytes": stats.memtable_bytes,
        "oldest_unreclaimed_ms": show::moment_json(stats.oldest_unreclaimed),
        "overdue_seconds": show::seconds_json(stats.overdue),
        "runs": stats.runs,
        "tables": stats.tables,
        "range_deletes": stats.range_deletes,
        "explain": stats.explain,
    })
}

pub fn compact(dir: &Path, json: bool) -> Outcome {
    let db = store::write(dir)?;
    let before = db.stats();
    watched(&db, || db.compact())?;
    let after = db.stats();
    db.close()?;
    let mut out = stdout().lock();
    if json {
        let line = json!({ "before": stats_json(&before), "after": stats_json(&after) });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "on disk {} before, {} now; written {}, given back unread {}; runs left: {}",
            show::bytes(before.disk_bytes),
            show::bytes(after.disk_bytes),
            show::bytes(after.bytes_flushed + after.bytes_merged),
            show::bytes(after.bytes_dropped),
            after.runs,
        )?;
    }
    Ok(())
}

/// Does `work`; while it lasts, a line on the terminal tells how far it has come.
fn watched(db: &Database, work: impl FnOnce() -> ebbtide::Result<()> + Send) -> Outcome {
    let bar = ProgressBar::new_spinner();
    if bar.is_hidden() {
        return Ok(work()?);
    }
    let done = thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            let stats = db.stats();
            bar.set_message(format!(
                "{} written, {} on disk, {} expired and {} superseded left",
                show::bytes(stats.bytes_merged),
                show::bytes(stats.disk_bytes),
                show::bytes(stats.expired_bytes),
                show::bytes(stats.superseded_bytes),
            ));
            bar.tick();
            thread::sleep(Duration::from_millis(100));
        }
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    bar.finish_and_clear();
    Ok(done?)
}

pub fn verify(dir: &Path, json: bool) -> Outcome {
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            .expect("the template is well-formed"),
    );
    let report = ebbtide::verify(dir, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let mut out = stdout().lock();
    if json {
        writeln!(out, "{}", report_json(&report))?;
    } else {
        for fault in &report.faults {
            writeln!(out, "{}", fault_text(fault))?;
        }
        writeln!(
            out,
            "checked {}, {}, {}; faults: {}",
            show::counted(report.files, "file"),
            show::bytes(report.bytes),
            show::counted(report.records, "record"),
            report.faults.len(),
        )?;
    }
    out.flush()?;
    match report.faults.len() as u64 {
        0 => Ok(()),
        faults => Err(Failure::Refused(format!(
            "{} in {dir}: restore a checkpoint, or see what `ebbtide repair {dir}` can save",
            show::counted(faults, "fault"),
            dir = dir.display()
        ))),
    }
}

/// Without the advice that the error has for those who have yet to verify.
fn fault_text(fault: &Error) -> String {
    match fault {
        Error::Corruption { path, offset, what } => {
            format!("{} is damaged at byte {offset}: {what}", path.display())
        }
        other => other.to_string(),
    }
}

fn report_json(report: &VerifyReport) -> Value {
    let fault = |error: &Error| match error {
        Error::Corruption { path, offset, what } => {
            json!({ "path": path.to_string_lossy(), "offset": offset, "what": what })
        }
        other => json!({ "what": other.to_string() }),
    };
    json!({
        "files": report.files,
        "bytes": report.bytes,
        "records": report.records,
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
    })
}

pub fn repair(dir: &Path, yes: bool, json: bool) -> Outcome {
    let report = ebbtide::repair(dir, yes)?;
    let mut out = stdout().lock();
    if json {
        writeln!(out, "{}", repair_json(&report, yes))?;
    } else {
        for loss in &report.losses {
            writeln!(out, "{loss}")?;
        }
        for file in &report.set_aside {
            writeln!(out, "kept in lost/: {}", file.display())?;
        }
        writeln!(
            out,
            "what is live is known from {}",
            report.manifest.display()
        )?;
    }
    out.flush()?;
    if yes || report.losses.is_empty() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "nothing was changed; --yes leaves out {}",
        show::counted(report.losses.len() as u64, "damaged part")
    )))
}

fn repair_json(report: &RepairReport, done: bool) -> Value {
    let loss = |loss: &Loss| {
        json!({
            "what": loss.to_string(),
            "container": loss.container,
            "from": loss.from.escape_ascii().to_string(),
            "to": loss.to.as_ref().map(|to| to.escape_ascii().to_string()),
            "records": loss.records,
        })
    };
    json!({
        "done": done,
        "manifest": report.manifest.to_string_lossy(),
        "losses": report.losses.iter().map(loss).collect::<Vec<_>>(),
        "set_aside": report.set_aside.iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>(),
    })
}

pub fn checkpoint(dir: &Path, to: &Path, json: bool) -> Outcome {
    let db = store::write(dir)?;
    db.checkpoint(to)?;
    db.close()?;
    let mut out = stdout().lock();
    match json {
        true => writeln!(out, "{}", json!({ "checkpoint": to.to_string_lossy() }))?,
        false => writeln!(out, "checkpoint of {} in {}", dir.display(), to.display())?,
    }
    Ok(())
}
