//! Commands on a whole database: reclaiming, checking, copying.

use std::io::{Write, stdout};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ebbtide::{Database, Error, Loss, Options, RepairReport, VerifyReport};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::arguments::Home;
use crate::failure::{self, Failure, Outcome};
use crate::stats::stats_json;
use crate::{show, store};

pub fn compact(home: &Home, json: bool) -> Outcome {
    let db = store::write_once(home)?;
    let before = db.stats();
    watched(&db, || db.compact())?;
    db.close()?;
    // Tables that were replaced are removed a few at a time, and all of them by the end.
    let after = db.stats();
    if json {
        let line = json!({ "before": stats_json(&before), "after": stats_json(&after) });
        writeln!(stdout().lock(), "{line}")?;
    } else {
        failure::note(&format_args!(
            "on disk {} before, {} now; written {}, given back unread {}; runs left: {}",
            show::bytes(before.disk_bytes),
            show::bytes(after.disk_bytes),
            show::bytes(after.bytes_flushed + after.bytes_merged),
            show::bytes(after.bytes_dropped),
            after.runs,
        ));
    }
    Ok(())
}

/// Runs `work`; meanwhile a line on the terminal shows its progress.
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

pub fn verify(home: &Home, json: bool) -> Outcome {
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            .expect("the template is well-formed"),
    );
    let checked = store::while_locked(home, || {
        ebbtide::verify(&home.dir, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })
    });
    bar.finish_and_clear();
    let report = match checked {
        // To follow is to check manifest and log.
        Err(Error::Locked { .. }) => store::follow(home)?.verify()?,
        done => done?,
    };
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
            dir = home.dir.display()
        ))),
    }
}

pub fn upgrade(home: &Home, json: bool) -> Outcome {
    let done = store::patiently(home, || Options::new().upgrade(&home.dir))?;
    let mut out = stdout().lock();
    match json {
        true => writeln!(out, "{}", json!({ "from": done.from, "to": done.to }))?,
        false if done.from == done.to => writeln!(out, "it is of version {} already", done.to)?,
        false => writeln!(
            out,
            "manifest and log written anew: version {} before, {} now; the tables stay as they were",
            done.from, done.to
        )?,
    }
    Ok(())
}

/// Without the error's advice to verify.
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

pub fn repair(home: &Home, yes: bool, json: bool) -> Outcome {
    let report = store::patiently(home, || ebbtide::repair(&home.dir, yes))?;
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

pub fn checkpoint(home: &Home, to: &Path, json: bool) -> Outcome {
    let db = store::copy(home)?;
    db.checkpoint(to)?;
    db.close()?;
    if json {
        let line = json!({ "checkpoint": to.to_string_lossy() });
        writeln!(stdout().lock(), "{line}")?;
    } else {
        let dir = home.dir.display();
        failure::note(&format_args!("checkpoint of {dir} in {}", to.display()));
    }
    Ok(())
}
