//! Single items, scans of them, and the default ttl.

use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::ops::Bound;

use ebbtide::{Container, Item, Iter, Ttl};
use ebbtide_cli::json;
use serde_json::json;

use crate::arguments::{Place, Put, Scan};
use crate::failure::{Failure, Outcome};
use crate::{show, store};

pub fn put(put: &Put) -> Outcome {
    let ttl = match &put.ttl {
        Some(text) => json::parse_ttl(text)?,
        None => Ttl::Inherit,
    };
    store::create(&put.place, |_, container| {
        Ok(container.put_with_ttl(&put.key, &put.value, ttl)?)
    })
}

pub fn get(place: &Place, key: &str, json: bool) -> Outcome {
    let db = store::read(&place.dir)?;
    let container = store::container(&db, &place.container)?;
    let item = container.item(key)?.ok_or_else(|| no_item(place, key))?;
    let mut out = stdout().lock();
    if json {
        writeln!(out, "{}", json::to_json(&item))?;
    } else {
        out.write_all(item.value())?;
        // Nothing is added for a program that reads the bytes; a person's prompt belongs on a line of its own.
        if out.is_terminal() {
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}

pub fn delete(place: &Place, key: &str) -> Outcome {
    let db = store::write(&place.dir)?;
    store::container(&db, &place.container)?.delete(key)?;
    Ok(db.close()?)
}

pub fn touch(place: &Place, key: &str) -> Outcome {
    let db = store::write(&place.dir)?;
    if !store::container(&db, &place.container)?.touch(key)? {
        return Err(no_item(place, key));
    }
    Ok(db.close()?)
}

pub fn scan(scan: &Scan, json: bool) -> Outcome {
    let db = store::read(&scan.place.dir)?;
    let container = store::container(&db, &scan.place.container)?;
    let items = chosen(&container, scan);
    let items: Box<dyn Iterator<Item = ebbtide::Result<Item>>> = match scan.reverse {
        true => Box::new(items.rev()),
        false => Box::new(items),
    };
    let mut out = BufWriter::new(stdout().lock());
    for item in items.take(scan.limit.unwrap_or(usize::MAX)) {
        let item = item?;
        if json {
            writeln!(out, "{}", json::to_json(&item))?;
        } else {
            out.write_all(item.key())?;
            out.write_all(b"\t")?;
            out.write_all(item.value())?;
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}

/// The items that a scan asks for, from the first key to the last.
fn chosen(container: &Container, scan: &Scan) -> Iter {
    let mut from = scan.from.clone().unwrap_or_default().into_bytes();
    let mut to = scan.to.clone().map(String::into_bytes);
    if let Some(prefix) = scan.prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
        let mut behind = prefix.clone().into_bytes();
        // No byte of UTF-8 is 0xff, so the last one can be raised.
        *behind.last_mut().expect("not empty") += 1;
        from = from.max(prefix.clone().into_bytes());
        to = Some(to.map_or(behind.clone(), |to| to.min(behind)));
    }
    container.range((
        Bound::Included(from),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    ))
}

pub fn ttl(place: &Place, default: Option<&str>, json: bool) -> Outcome {
    if let Some(text) = default {
        let default = json::parse_default_ttl(text)?;
        return store::create(
            place,
            |_, container| Ok(container.set_default_ttl(default)?),
        );
    }
    let db = store::read(&place.dir)?;
    let default = store::container(&db, &place.container)?.default_ttl();
    let mut out = stdout().lock();
    if json {
        let line =
            json!({ "container": place.container, "default_ttl": show::default_ttl_json(default) });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "{}", show::default_ttl(default))?;
    }
    Ok(())
}

fn no_item(place: &Place, key: &str) -> Failure {
    Failure::NotFound(format!("there is no item {key:?} in {:?}", place.container))
}
