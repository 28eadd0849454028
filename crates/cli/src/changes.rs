//! `ebbtide changes`: what has changed since a version, a line of JSON for each change.
//!
//! ```text
//! {"change":"containers","names":["a","b"]}                               one was dropped: these are all
//! {"change":"created","container":"a","version":7}                        it is empty before what follows
//! {"change":"expiry","container":"a","default_ttl":60,"rule":{...}}       what is gone by this rule is to be removed
//! {"change":"delete_range","container":"a","version":9,"from":KEY,"to":KEY}    null: there is no bound
//! {"change":"put","container":"a","version":12,"expires_ms":1772366400000,"item":ITEM}    null: it does not expire
//! {"change":"delete","container":"a","version":13,"item":KEY}
//! {"change":"version","version":13}                                       all up to here is told; the last line
//! {"change":"anew"}                                                       with --follow: forget all, everything follows
//! ```
//!
//! ITEM is a line of `export`, KEY `{"_key":"..."}` or `{"_key_base64":"..."}`.

use std::io::{BufWriter, Write, stdout};
use std::thread;

use ebbtide::{Change, ExpiryRule, Options, Version};
use ebbtide_cli::json;
use serde_json::{Value, json};

use crate::arguments::Changes;
use crate::failure::Outcome;
use crate::{show, store};

pub fn changes(settings: &Changes) -> Outcome {
    let db = match settings.follow {
        true => Options::new().follow(&settings.home.dir)?,
        false => store::read(&settings.home)?,
    };
    let name = settings.container.as_deref();
    let container = name.map(|name| store::container(&db, name)).transpose()?;
    let changes_since = |since| match &container {
        Some(container) => container.changes(since),
        None => db.changes(since),
    };
    let mut out = BufWriter::new(stdout().lock());
    let mut changes = changes_since(Version::from_u64(settings.since));
    let mut is_first = true;
    loop {
        let was = changes.version();
        match pass(&mut changes, &mut out) {
            Err(error) if settings.follow && error.is_changes_gone() => {
                writeln!(out, r#"{{"change":"anew"}}"#)?;
                changes = changes_since(Version::start());
                continue;
            }
            told => told??,
        }
        let version = changes.version();
        if is_first || version != was {
            writeln!(out, r#"{{"change":"version","version":{version}}}"#)?;
        }
        out.flush()?;
        if !settings.follow {
            return Ok(());
        }
        is_first = false;
        thread::sleep(settings.every);
        db.catch_up()?;
    }
}

/// Prints the changes of one pass.
fn pass(changes: &mut ebbtide::Changes, out: &mut dyn Write) -> ebbtide::Result<Outcome> {
    for change in changes {
        let Some(line) = line(&change?) else { continue };
        if let Err(error) = writeln!(out, "{line}") {
            return Ok(Err(error.into()));
        }
    }
    Ok(Ok(()))
}

/// A change as a line; none for one of a kind that this command does not know yet.
fn line(change: &Change) -> Option<String> {
    Some(match change {
        Change::Containers { names } => {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            json!({ "change": "containers", "names": names }).to_string()
        }
        Change::Created { container, version } => {
            format!("{},\"version\":{version}}}", begun("created", container))
        }
        Change::Expiry { container, rule } => {
            let default = show::default_ttl_json(rule.default_ttl());
            let begun = begun("expiry", container);
            format!("{begun},\"default_ttl\":{default},\"rule\":{}}}", of(rule))
        }
        Change::DeleteRange {
            container,
            from,
            to,
            version,
        } => {
            let bound = |key: Option<&[u8]>| key.map_or("null".to_owned(), json::key_to_json);
            let from = bound((!from.is_empty()).then_some(from));
            let to = bound(to.as_deref());
            let begun = begun("delete_range", container);
            format!("{begun},\"version\":{version},\"from\":{from},\"to\":{to}}}")
        }
        Change::Put { container, item } => format!(
            "{},\"version\":{},\"expires_ms\":{},\"item\":{}}}",
            begun("put", container),
            item.version(),
            show::moment_json(item.expires_at()),
            json::to_json(item),
        ),
        Change::Delete {
            container,
            key,
            version,
        } => format!(
            "{},\"version\":{version},\"item\":{}}}",
            begun("delete", container),
            json::key_to_json(key),
        ),
        _ => return None,
    })
}

/// How a line about a container begins.
fn begun(change: &str, container: &str) -> String {
    let container = Value::from(container);
    format!("{{\"change\":\"{change}\",\"container\":{container}")
}

fn of(rule: &ExpiryRule) -> String {
    serde_json::to_string(rule).expect("numbers and names")
}
