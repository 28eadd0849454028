//! Single items.

use std::io::{IsTerminal, Write, stdout};

use ebbtide::{DefaultTtl, Explanation, StoredIn, Ttl};
use ebbtide_cli::{given, json};

use crate::arguments::{ContainerArgs, Key, Put, WrittenKey};
use crate::failure::{self, Failure, Outcome};
use crate::{show, store};

pub fn put(put: &Put) -> Outcome {
    let Key { place, key, form } = &put.item;
    let ttl = match &put.ttl {
        Some(text) => given::ttl(text)?,
        None => Ttl::Inherit,
    };
    let (key, value) = (form.key(key)?, form.value(&put.value)?);
    let is_off = store::create(place, put.writing, |_, container| {
        container.put_with_ttl(&key, &value, ttl)?;
        Ok(container.default_ttl() == DefaultTtl::Off)
    })?;
    if is_off && matches!(ttl, Ttl::After(_)) {
        warn_off(place, "the item has a ttl");
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

pub fn delete(delete: &WrittenKey) -> Outcome {
    let Key { place, key, form } = &delete.item;
    let key = form.key(key)?;
    let db = store::write(&place.home, delete.writing)?;
    store::container(&db, &place.container)?.delete(key)?;
    Ok(db.close()?)
}

pub fn touch(touch: &WrittenKey) -> Outcome {
    let Key { place, key, form } = &touch.item;
    let key = form.key(key)?;
    let db = store::write(&place.home, touch.writing)?;
    if !store::container(&db, &place.container)?.touch(key)? {
        return Err(no_item(&touch.item));
    }
    Ok(db.close()?)
}

fn no_item(item: &Key) -> Failure {
    let (key, container) = (item.key.to_string_lossy(), &item.place.container);
    Failure::NotFound(format!("there is no item {key:?} in {container:?}"))
}
