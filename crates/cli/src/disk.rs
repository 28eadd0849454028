//! The contents of a database's folder, as a table and as JSON.

use std::io::{Write, stdout};
use std::time::SystemTime;

use ebbtide::{DiskRow, DiskUsage};
use serde_json::{Value, json};

use crate::arguments::Home;
use crate::failure::Outcome;
use crate::{show, store, table};

pub fn disk(home: &Home, container: Option<&str>, json: bool) -> Outcome {
    let db = store::read(home)?;
    if let Some(name) = container {
        store::container(&db, name)?;
    }
    let mut usage = db.disk()?;
    if let Some(name) = container {
        let is_its = |row: &DiskRow| row.container.as_deref() == Some(name);
        usage.rows.retain(is_its);
    }
    let text = match json {
        true => usage_json(&usage).to_string() + "\n",
        false => usage_table(&usage),
    };
    Ok(stdout().lock().write_all(text.as_bytes())?)
}

const COLUMNS: [&str; 6] = ["KIND", "BYTES", "CONTAINER", "DUE", "KEPT BY", "SINCE"];

fn usage_table(usage: &DiskUsage) -> String {
    let named = usage.rows.iter().filter(|row| !row.unlinked);
    let mut lines: Vec<_> = named.map(cells).collect();
    let sum = |what: &str, bytes| {
        let mut cells = vec![String::new(); COLUMNS.len()];
        (cells[0], cells[1]) = (what.to_owned(), show::bytes(bytes));
        cells
    };
    lines.push(sum("as du counts", usage.bytes()));
    let unlinked = usage.rows.iter().filter(|row| row.unlinked);
    lines.extend(unlinked.map(cells));
    if usage.unlinked_bytes() > 0 {
        let all = usage.bytes() + usage.unlinked_bytes();
        lines.push(sum("as df counts", all));
    }
    table::fitted(&COLUMNS, &lines, table::columns())
}

/// In the order of the columns.
fn cells(row: &DiskRow) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or("-".to_owned());
    let container = row.container.as_deref().map(table::printable);
    vec![
        match row.unlinked {
            true => format!("{}, unlinked", row.kind),
            false => row.kind.to_string(),
        },
        show::bytes(row.bytes),
        or_none(container.map(|name| name.into_owned())),
        or_none(row.due.map(from_now)),
        or_none(row.holder.map(|holder| holder.to_string())),
        or_none(row.since.map(from_now)),
    ]
}

/// How long ago, or ahead.
fn from_now(moment: SystemTime) -> String {
    match moment.elapsed() {
        Ok(ago) => format!("{} ago", show::time(ago)),
        Err(ahead) => format!("in {}", show::time(ahead.duration())),
    }
}

/// Every field by its name in the library.
fn usage_json(usage: &DiskUsage) -> Value {
    let row = |row: &DiskRow| {
        json!({
            "kind": row.kind.name(),
            "container": row.container,
            "bytes": row.bytes,
            "due_ms": show::moment_json(row.due),
            "holder": row.holder.map(|holder| holder.name()),
            "since_ms": show::moment_json(row.since),
            "unlinked": row.unlinked,
        })
    };
    json!({
        "bytes": usage.bytes(),
        "unlinked_bytes": usage.unlinked_bytes(),
        "rows": usage.rows.iter().map(row).collect::<Vec<_>>(),
    })
}
