//! Commands on many items of a container: those in a range of keys, or all.

use std::io::{BufWriter, Write, stdout};
use std::ops::Bound;

use ebbtide::{Bytes, Container, Item};
use ebbtide_cli::json;
use serde_json::json;

use crate::arguments::{ContainerArgs, Count, DeleteRange, Emptied, Range, Scan};
use crate::failure::{self, Failure, Outcome};
use crate::{ask, show, store};

/// From the first key to the last.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub fn scan(scan: &Scan, json: bool) -> Outcome {
    let form = scan.range.form;
    print(scan, Container::range, |out, item: Item| {
        if json {
            return Ok(writeln!(out, "{}", json::to_json(&item))?);
        }
        form.write(out, item.key())?;
        out.write_all(b"\t")?;
        form.write(out, item.value())?;
        Ok(out.write_all(b"\n")?)
    })
}

pub fn keys(scan: &Scan, json: bool) -> Outcome {
    let form = scan.range.form;
    print(scan, Container::keys, |out, key: Bytes| {
        if json {
            return Ok(writeln!(out, "{}", json::key_to_json(&key))?);
        }
        form.write(out, &key)?;
        Ok(out.write_all(b"\n")?)
    })
}

/// Prints a line for each result of a scan.
fn print<T, I: DoubleEndedIterator<Item = ebbtide::Result<T>>>(
    scan: &Scan,
    all: impl FnOnce(&Container, Bounds) -> I,
    mut line: impl FnMut(&mut dyn Write, T) -> Outcome,
) -> Outcome {
    let bounds = bounds(&scan.range)?;
    let db = store::read(&scan.place.home)?;
    let mut all = all(&store::container(&db, &scan.place.container)?, bounds);
    let mut out = BufWriter::new(stdout().lock());
    for _ in 0..scan.limit.unwrap_or(usize::MAX) {
        let next = match scan.reverse {
            true => all.next_back(),
            false => all.next(),
        };
        let Some(next) = next else { break };
        line(&mut out, next?)?;
    }
    Ok(out.flush()?)
}

pub fn count(count: &Count, json: bool) -> Outcome {
    let bounds = bounds(&count.range)?;
    let db = store::read(&count.place.home)?;
    let container = store::container(&db, &count.place.container)?;
    let items = container.count(bounds)?;
    let mut out = stdout().lock();
    match json {
        true => {
            let line = json!({ "container": count.place.container, "count": items });
            writeln!(out, "{line}")?;
        }
        false => writeln!(out, "{items}")?,
    }
    Ok(())
}

pub fn delete_range(delete: &DeleteRange) -> Outcome {
    let Range {
        prefix, from, to, ..
    } = &delete.range;
    // An empty argument, perhaps of an unset variable, would mean everything.
    let given = [prefix, from, to];
    if !given.into_iter().flatten().any(|word| !word.is_empty()) {
        return Err(Failure::Refused(
            "which keys? --prefix, --from and --to say it; `ebbtide clear` deletes all".to_owned(),
        ));
    }
    let bounds = bounds(&delete.range)?;
    let db = store::write(&delete.place.home, delete.writing)?;
    let container = store::container(&db, &delete.place.container)?;
    container.delete_range(bounds)?;
    db.close()?;
    let name = &delete.place.container;
    failure::note(&format_args!("all of this range in {name:?} is deleted"));
    Ok(())
}

pub fn clear(clear: &Emptied, json: bool) -> Outcome {
    let ContainerArgs { home, container } = &clear.place;
    let db = store::write_once(home)?;
    let items = store::container(&db, container)?;
    let live = items.stats().live_items;
    ask::unless(
        clear.yes,
        &format!("clear {container:?} of {}", about(live)),
    )?;
    items.clear()?;
    db.close()?;
    done(json, "cleared", container, live)
}

pub fn drop(drop: &Emptied, json: bool) -> Outcome {
    let ContainerArgs { home, container } = &drop.place;
    let db = store::write_once(home)?;
    let live = store::container(&db, container)?.stats().live_items;
    ask::unless(
        drop.yes,
        &format!("drop {container:?} with {}", about(live)),
    )?;
    db.drop_container(container)?;
    db.close()?;
    done(json, "dropped", container, live)
}

/// Formats an estimate.
fn about(items: u64) -> String {
    format!("about {}", show::counted(items, "item"))
}

fn done(json: bool, what: &str, container: &str, live: u64) -> Outcome {
    if json {
        let line = json!({ "container": container, "done": what, "items_estimate": live });
        writeln!(stdout().lock(), "{line}")?;
    } else {
        failure::note(&format_args!("{container:?} {what}: {}", about(live)));
    }
    Ok(())
}

fn bounds(range: &Range) -> Outcome<Bounds> {
    let key = |given: &Option<_>| given.as_deref().map(|key| range.form.key(key)).transpose();
    let mut from = key(&range.from)?.unwrap_or_default();
    let mut to = key(&range.to)?;
    if let Some(prefix) = key(&range.prefix)? {
        if let Some(behind) = behind(&prefix) {
            to = Some(to.map_or(behind.clone(), |to| to.min(behind)));
        }
        from = from.max(prefix);
    }
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    Ok((Bound::Included(from), to))
}

/// The lowest key after all that start with a prefix, if there is one.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}
