//! Commands on a whole database: reclaiming, checking, copying.

use std::io::{Write, stdout};
use std::path::Path;

use ebbtide::{Error, Loss, Options, RepairReport, VerifyReport};
use ebbtide_control::{Answer, Progress, Request};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::arguments::Home;
use crate::failure::{self, Failure, Outcome};
use crate::{show, store};

pub fn compact(home: &Home, json: bool) -> Outcome {
    let writer = store::write_once(home)?;
    let bar = ProgressBar::new_spinner();
    let done = writer.watched(&Request::Compact, &mut |progress: &Progress| {
        bar.set_message(format!(
            "{} written, {} on disk, {} expired and {} superseded left",
            show::bytes(progress.bytes_merged),
            show::bytes(progress.disk_bytes),
            show::bytes(progress.expired_bytes),
            show::bytes(progress.superseded_bytes),
        ));
        bar.tick();
    });
    bar.finish_and_clear();
    let Answer::Compacted { before, after } = done? else {
        unreachable!("a compaction was asked for");
    };
    writer.close()?;
    if json {
        let line = json!({ "before": before, "after": after });
        writeln!(stdout().lock(), "{line}")?;
        return Ok(());
    }
    let figure = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
    let done = |name| figure(&after, name).saturating_sub(figure(&before, name));
    failure::note(&format_args!(
        "on disk {} before, {} now; written {}, given back unread {}; runs left: {}",
        show::bytes(figure(&before, "disk_bytes")),
        show::bytes(figure(&after, "disk_bytes")),
        show::bytes(done("bytes_flushed") + done("bytes_merged")),
        show::bytes(done("bytes_dropped")),
        figure(&after, "runs"),
    ));
    Ok(())
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
    let writer = store::copy(home)?;
    writer.checkpoint(home, to)?;
    writer.close()?;
    if json {
        let line = json!({ "checkpoint": to.to_string_lossy() });
        writeln!(stdout().lock(), "{line}")?;
    } else {
        let dir = home.dir.display();
        failure::note(&format_args!("checkpoint of {dir} in {}", to.display()));
    }
    Ok(())
}
