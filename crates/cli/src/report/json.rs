//! The report as one JSON object.

use serde_json::{Value, json};

use super::facts::{Facts, Of};
use super::film::Frame;
use super::keys;
use crate::stats::container_json;
use crate::{moment, show};

pub fn json(facts: &Facts) -> Value {
    let frames = &facts.film.frames;
    let shown = &frames[frames.len() - facts.shown_edits.min(frames.len())..];
    let mut all = ebbtide_control::figures(&facts.stats);
    // The paths in it may be private.
    all["damage"] = facts.trouble.as_slice().into();
    all["database"] = facts.dir.as_str().into();
    all["now_ms"] = show::moment_json(Some(facts.now));
    all["last_version"] = facts.last_version.into();
    all["disk"] = facts
        .disk
        .iter()
        .map(|row| json!({ "for": row.what.as_str(), "bytes": row.bytes }))
        .collect();
    all["containers"] = facts
        .containers
        .iter()
        .map(|of| container(of, facts))
        .collect();
    all["edits"] = shown.iter().map(edit).collect();
    all
}

fn container(of: &Of, facts: &Facts) -> Value {
    let mut all = container_json(&of.name, of.default, &of.stats);
    all["due"] = of
        .due
        .iter()
        .map(|due| {
            json!({
                "until_ms": show::moment_json(Some(due.until)),
                "items": due.items,
                "bytes": due.bytes,
                "disk_bytes": due.disk_bytes,
            })
        })
        .collect();
    let ranks = keys::Ranks::of(&of.runs);
    all["run_list"] = of
        .runs
        .iter()
        .map(|run| {
            let tables = run.tables.iter().map(|table| {
                json!({
                    "table": table.id,
                    "file_bytes": table.file_bytes,
                    "records": table.records,
                    "stored_bytes": table.stored_bytes,
                    "expired_bytes": table.expired_bytes,
                    "keys": ranks.words(table, facts.key_bytes),
                    "first_version": table.first_version.as_u64(),
                    "last_version": table.last_version.as_u64(),
                })
            });
            json!({
                "run": run.id,
                "end_ms": show::moment_json(run.end),
                "tables": tables.collect::<Vec<_>>(),
            })
        })
        .collect();
    all["retention"] = of
        .retention(&|millis| moment::date_and_time(moment::of_millis(millis)))
        .into();
    all
}

fn edit(frame: &Frame) -> Value {
    json!({
        "edit": frame.number,
        "at_ms": frame.at,
        "did": frame.title,
        "changes": frame.changes,
    })
}
