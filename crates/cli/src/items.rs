//! Single items.

use std::io::{IsTerminal, Write, stdout};

use ebbtide::{Explanation, StoredIn, Ttl};
use ebbtide_cli::{given, json};
use ebbtide_control::{Answer, Change, NewItem, Request};

use crate::arguments::{ContainerArgs, Key, Put, WrittenKey};
use crate::failure::{self, Failure, Outcome};
use crate::{ending, show, store};

pub fn put(put: &Put, json: bool) -> Outcome {
    let Key { place, key, form } = &put.item;
    let ttl = match &put.ttl {
        Some(text) => given::ttl(text)?,
        None => Ttl::Inherit,
    };
    let item = NewItem {
        key: form.key(key)?,
        value: form.value(&put.value)?,
        ttl,
    };
    let writer = store::create(&place.home, put.writing)?;
    let stored = writer.ask(&Request::change(&place.container, Change::Put(vec![item])))?;
    writer.close()?;
    if stored == (Answer::Put { is_off: true }) && matches!(ttl, Ttl::After(_)) {
        warn_off(place, "the item has a ttl");
    }
    if json {
        let line = serde_json::json!({ "container": place.container, "done": "put", "items": 1 });
        writeln!(stdout().lock(), "{line}")?;
    }
    Ok(())
}

/// Warns that a ttl was stored where ttl is off.
pub fn warn_off(place: &ContainerArgs, what: &str) {
    let ContainerArgs { home, container } = place;
    failure::say(&format_args!(
        "{what}, but ttl is off in {container:?}, so nothing expires there; `ebbtide ttl {} {container} -1` turns it on",
        home.dir.display(),
    ));
}

pub fn get(item: &Key, json: bool) -> Outcome {
    let Key { place, key, form } = item;
    let sought = form.key(key)?;
    let db = store::read(&place.home)?;
    let container = store::container(&db, &place.container)?;
    let found = container.item(&sought)?;
    let found = found.ok_or_else(|| no_item(item))?;
    let mut out = stdout().lock();
    if json {
        let line = json::to_json_with_remaining(&found, found.remaining());
        writeln!(out, "{line}")?;
    } else {
        form.write(&mut out, found.value())?;
        // Nothing is added for a program that reads the bytes; on a terminal the prompt goes on a line of its own.
        if form.is_text() || out.is_terminal() {
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}

pub fn why(item: &Key, json: bool) -> Outcome {
    let Key { place, key, form } = item;
    let sought = form.key(key)?;
    let db = store::read(&place.home)?;
    let why = store::container(&db, &place.container)?.explain(&sought)?;
    if why.versions.is_empty() {
        return Err(no_item(item));
    }
    let mut out = stdout().lock();
    match json {
        true => writeln!(out, "{}", why_json(&why))?,
        false => writeln!(out, "{why}")?,
    }
    Ok(out.flush()?)
}

fn why_json(why: &Explanation) -> serde_json::Value {
    let versions = why.versions.iter().map(|version| {
        let place = match &version.place {
            StoredIn::Table { path, run } => {
                serde_json::json!({ "table": path.to_string_lossy(), "run": run })
            }
            StoredIn::Memory { segments } => serde_json::json!({ "log_segments": segments }),
            _ => serde_json::Value::Null,
        };
        serde_json::json!({
            "version": version.version.as_u64(),
            "written_at_ms": show::moment_json(Some(version.written_at)),
            "delete": version.ttl.is_none(),
            "bytes": version.bytes,
            "fate": version.fate.to_string(),
            "place": place,
            "leaves_by_ms": show::moment_json(version.leaves_by),
        })
    });
    serde_json::json!({
        "now_ms": show::moment_json(Some(why.now)),
        "live": why.is_live(),
        "versions": versions.collect::<Vec<_>>(),
    })
}

pub fn delete(delete: &WrittenKey, json: bool) -> Outcome {
    let (place, key) = (&delete.item.place, delete.item.form.key(&delete.item.key)?);
    let writer = store::write(&place.home, delete.writing)?;
    let deleted = writer.ask(&Request::change(&place.container, Change::Delete { key }))?;
    writer.close()?;
    match deleted {
        Answer::Ended(ended) if json => ending::say(&place.container, "deleted", &ended, json),
        _ => Ok(()),
    }
}

pub fn touch(touch: &WrittenKey, json: bool) -> Outcome {
    let (place, key) = (&touch.item.place, touch.item.form.key(&touch.item.key)?);
    let writer = store::write(&place.home, touch.writing)?;
    let touched = writer.ask(&Request::change(&place.container, Change::Touch { key }))?;
    writer.close()?;
    let Answer::Until(end) = touched else {
        return Err(no_item(&touch.item));
    };
    if json {
        let line = serde_json::json!({
            "container": place.container,
            "done": "touched",
            "expires_at_ms": show::moment_json(end),
        });
        writeln!(stdout().lock(), "{line}")?;
    }
    Ok(())
}

fn no_item(item: &Key) -> Failure {
    let (key, container) = (item.key.to_string_lossy(), &item.place.container);
    Failure::NotFound(format!("there is no item {key:?} in {container:?}"))
}
