//! Commands on backups.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::time::SystemTime;

use ebbtide_backup::{Backups, Folder, Keep, Later};
use serde_json::json;

use crate::arguments::{Backup, BackupAction, Home, Restore};
use crate::failure::{self, Failure, Outcome};
use crate::interrupt::Undo;
use crate::store::Writer;
use crate::{show, store, table};

impl From<ebbtide_backup::Error> for Failure {
    fn from(error: ebbtide_backup::Error) -> Self {
        match error {
            ebbtide_backup::Error::NotFound { .. } => Failure::NotFound(error.to_string()),
            _ => Failure::Refused(error.to_string()),
        }
    }
}

/// The backups in the folder or the store of this name.
fn backups(to: &str, rate: Option<u64>) -> Outcome<Backups> {
    let backups = match to.contains("://") {
        true => in_cloud(to)?,
        false => Backups::open(Folder::new(to)),
    };
    Ok(match rate {
        Some(rate) => backups.rate(rate),
        None => backups,
    })
}

/// Works with backups; a signal that ends the process gives back what that holds in the store and beside folders.
fn at_work<T>(
    backups: Backups,
    work: impl FnOnce(&Backups) -> ebbtide_backup::Result<T>,
) -> Outcome<T> {
    let backups = Arc::new(backups);
    let given_up = Arc::clone(&backups);
    let undo = Undo::by(move || given_up.give_up());
    let undo =
        undo.map_err(|error| Failure::Refused(format!("cannot wait for signals: {error}")))?;
    let done = work(&backups);
    // All is given back, or as whole as it can be.
    undo.keep();
    Ok(done?)
}

#[cfg(feature = "cloud")]
fn in_cloud(to: &str) -> Outcome<Backups> {
    Ok(Backups::open(ebbtide_backup::Cloud::open(to)?))
}

#[cfg(not(feature = "cloud"))]
fn in_cloud(to: &str) -> Outcome<Backups> {
    Err(Failure::Refused(format!(
        "{to}: this command was built without object stores; build it with `--features cloud`, or name a folder"
    )))
}

/// The same, if there is a backup: a wrong name is no empty store.
fn some_backups(of: &str, rate: Option<u64>) -> Outcome<Backups> {
    let backups = backups(of, rate)?;
    match backups.list()?.is_empty() {
        true => Err(Failure::NotFound(format!("there is no backup in {of}"))),
        false => Ok(backups),
    }
}

/// Fails if a path, which need not exist, lies in a folder: both would be lost with that folder.
fn expect_outside(path: &Path, folder: &Path) -> Outcome {
    let path = absolute(path)?;
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    let is_inside = |folder: PathBuf| there.is_some_and(|there| there.starts_with(folder));
    match folder.canonicalize().is_ok_and(is_inside) {
        true => Err(Failure::Refused(format!(
            "{} lies in {}: name a folder outside",
            path.display(),
            folder.display()
        ))),
        false => Ok(()),
    }
}

pub fn backup(backup: &Backup, json: bool) -> Outcome {
    match (&backup.action, &backup.dir, &backup.to) {
        (Some(action), ..) => act(action, json),
        (None, Some(dir), Some(to)) => {
            let home = Home {
                dir: dir.clone(),
                wait: backup.wait,
            };
            expect_no_action(dir)?;
            let mut backups = backups(to, backup.rate)?;
            if let Some(time) = backup.skip_ending_within {
                backups = backups.skip_ending_within(time);
            }
            make(backups, &home, to, json)
        }
        _ => unreachable!("both are required without a command"),
    }
}

/// A word that is nearly one of the commands here, and names no folder.
fn expect_no_action(dir: &Path) -> Outcome {
    let word = dir.to_string_lossy();
    let likely = ebbtide_control::likely(&word, ["ledger", "prove", "prune"]);
    match likely.is_empty() || dir.exists() {
        true => Ok(()),
        false => Err(Failure::Refused(format!(
            "there is no database in {word}{likely}"
        ))),
    }
}

/// Nothing is stored among files of others: in a folder that is missing, empty, or a store already.
fn expect_store(to: &str) -> Outcome {
    let refused = |why: &str| Err(Failure::Refused(format!("{to} {why}")));
    let path = Path::new(to);
    match path.metadata() {
        _ if to.contains("://") => Ok(()),
        Err(_) if path.is_symlink() => refused("is a link that leads nowhere"),
        Err(_) => Ok(()),
        Ok(found) if !found.is_dir() => refused("is no folder"),
        Ok(_) => {
            let is_store = Folder::new(path).is_store();
            match is_store.map_err(|error| Failure::file("list", path, &error))? {
                true => Ok(()),
                false => refused(
                    "holds other things and no backups: they are stored in a folder that is missing or empty",
                ),
            }
        }
    }
}

fn make(backups: Backups, home: &Home, to: &str, json: bool) -> Outcome {
    expect_outside(Path::new(to), &home.dir)?;
    expect_store(to)?;
    let writer = store::copy(home)?;
    let copy = |to: &Path| copied(&writer, home, to);
    let report = at_work(backups, |backups| backups.backup_of(&copy, &home.dir))?;
    writer.close()?;
    let line = json!({
        "backup": report.number,
        "files": report.files,
        "bytes": report.bytes,
        "uploaded_files": report.uploaded_files,
        "uploaded_bytes": report.uploaded_bytes,
        "left_out_bytes": report.left_out_bytes,
    });
    say(json, line, || {
        let left_out = match report.left_out_bytes {
            0 => String::new(),
            bytes => format!(
                "; {} were left out, because all in them ends too soon",
                show::bytes(bytes)
            ),
        };
        format!(
            "backup {} of {} in {to}: {}, of which {} were not there yet{left_out}",
            report.number,
            home.dir.display(),
            show::bytes(report.bytes),
            show::bytes(report.uploaded_bytes),
        )
    })
}

/// The copy that is read.
fn copied(writer: &Writer, home: &Home, to: &Path) -> ebbtide_backup::Result<()> {
    match writer {
        Writer::Own(db) => Ok(db.checkpoint(to)?),
        Writer::Other(_) => writer
            .checkpoint(home, to)
            .map_err(|failure| ebbtide_backup::Error::Refused(failure.why().to_owned())),
    }
}

fn act(action: &BackupAction, json: bool) -> Outcome {
    match action {
        BackupAction::Ledger { home, to } => {
            expect_outside(Path::new(to), &home.dir)?;
            expect_store(to)?;
            let backups = backups(to, None)?;
            let writer = store::copy(home)?;
            let copy = |to: &Path| copied(&writer, home, to);
            let number = at_work(backups, |backups| backups.ledger_of(&copy, &home.dir))?;
            writer.close()?;
            say(json, json!({ "ledger": number }), || {
                format!("ledger {number} of {} in {to}", home.dir.display())
            })
        }
        BackupAction::Prove { to } => prove(to, json),
        BackupAction::Prune {
            to,
            keep,
            break_lease,
        } => {
            let keep = Keep {
                count: Some(*keep),
                ..Keep::default()
            };
            let backups = some_backups(to, None)?;
            if *break_lease {
                let broken = backups.break_leases()?;
                failure::note(&format_args!("removed {}", show::counted(broken, "lease")));
            }
            note_strangers(&backups)?;
            let pruned = at_work(backups, |backups| backups.prune(keep))?;
            let line = json!({
                "backups": pruned.backups,
                "ledgers": pruned.ledgers,
                "objects": pruned.objects,
                "ended_objects": pruned.ended_objects,
            });
            say(json, line, || {
                let ended = match pruned.ended_objects {
                    0 => String::new(),
                    ended => format!(", {} of which have ended", show::count(ended)),
                };
                format!(
                    "removed from {to}: {}, {}, {}{ended}",
                    show::counted(pruned.backups, "backup"),
                    show::counted(pruned.ledgers, "ledger"),
                    show::counted(pruned.objects, "object"),
                )
            })
        }
    }
}

/// Names what lies among backups and is none.
fn note_strangers(backups: &Backups) -> Outcome {
    let strangers = backups.strangers()?;
    if !strangers.is_empty() {
        failure::note(&format!(
            "no backup's, and left alone: {}",
            strangers.join(", ")
        ));
    }
    Ok(())
}

fn prove(to: &str, json: bool) -> Outcome {
    let beside = match to.contains("://") {
        true => std::env::temp_dir().join(format!("ebbtide-prove-{}", std::process::id())),
        false => PathBuf::from(to),
    };
    let backups = some_backups(to, None)?;
    note_strangers(&backups)?;
    let proof = at_work(backups, |backups| backups.prove(&beside))?;
    let line = json!({
        "backups": proof.backups,
        "bytes": proof.bytes,
        "ended_bytes": proof.ended_bytes,
        "oldest_expired": show::moment_json(proof.oldest_expired),
    });
    say(json, line, || {
        let expired = match (proof.oldest_expired, proof.ended_bytes) {
            (Some(moment), _) => format!("the oldest expired byte in them expired {}", ago(moment)),
            (None, 0) => "no expired byte is in them".to_owned(),
            (None, _) => "no other expired byte is in them".to_owned(),
        };
        let ended = match proof.ended_bytes {
            0 => String::new(),
            bytes => format!(
                "; of tables in which nothing is left {} are stored, until a prune",
                show::bytes(bytes)
            ),
        };
        format!(
            "restored and checked {}, {}{ended}; {expired}",
            show::counted(proof.backups, "backup"),
            show::bytes(proof.bytes),
        )
    })
}

/// Prints the object on standard output, or the text on standard error.
fn say(json: bool, line: serde_json::Value, text: impl FnOnce() -> String) -> Outcome {
    match json {
        true => writeln!(stdout().lock(), "{line}")?,
        false => failure::note(&text()),
    }
    Ok(())
}

fn ago(moment: SystemTime) -> String {
    let age = SystemTime::now().duration_since(moment);
    format!("{} ago", show::time(age.unwrap_or_default()))
}

pub fn list(to: &str, json: bool) -> Outcome {
    let backups = some_backups(to, None)?;
    note_strangers(&backups)?;
    let list = backups.list()?;
    let mut out = stdout().lock();
    if json {
        for backup in list {
            let line = json!({
                "backup": backup.number,
                "taken_at": show::moment_json(Some(backup.taken_at)),
                "files": backup.files,
                "bytes": backup.bytes,
            });
            writeln!(out, "{line}")?;
        }
    } else {
        let row = |backup: &ebbtide_backup::Backup| {
            vec![
                backup.number.to_string(),
                ago(backup.taken_at),
                show::count(backup.files),
                show::bytes(backup.bytes),
            ]
        };
        let rows: Vec<_> = list.iter().map(row).collect();
        let header = ["Backup", "Made", "Files", "Size"];
        write!(out, "{}", table::fitted(&header, &rows, table::columns()))?;
    }
    Ok(out.flush()?)
}

pub fn restore(restore: &Restore, json: bool) -> Outcome {
    let later = match restore.as_it_was {
        true => Later::Ignore,
        false => Later::Tell,
    };
    expect_outside(&restore.dir, Path::new(&restore.from))?;
    let backups = some_backups(&restore.from, restore.rate)?;
    let restored = at_work(backups, |backups| {
        backups.restore(restore.at, &restore.dir, later)
    })?;
    let line = json!({
        "backup": restored.number,
        "files": restored.files,
        "bytes": restored.bytes,
        "ledgers": restored.ledgers,
        "ended_files": restored.ended_files,
        "as_it_was": restore.as_it_was,
    });
    say(json, line, || {
        let later = match restore.as_it_was {
            true => "AS IT WAS: what was expired by a command or a changed default since, and dropped containers, are \
                     back"
                .to_owned(),
            false => format!("what expired since is gone ({} applied)", show::counted(restored.ledgers, "ledger")),
        };
        format!(
            "backup {} of {} in {}, {}; {later}",
            restored.number,
            restore.from,
            restore.dir.display(),
            show::bytes(restored.bytes),
        )
    })
}
