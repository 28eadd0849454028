//! Commands on many items of a container: those in a range of keys, or all.

use std::io::{BufWriter, Write, stdout};
use std::ops::Bound;

use ebbtide::{Bytes, Container, Item};
use ebbtide_cli::json;
use ebbtide_control::{Change, Key};
use serde_json::json;

use crate::arguments::{Count, DeleteRange, Emptied, Range, Scan};
use crate::ending::Ends;
use crate::failure::{Failure, Outcome};
use crate::store;

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

pub fn delete_range(delete: &DeleteRange, json: bool) -> Outcome {
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
    let (from, to) = keys_of(&delete.range)?;
    let ends = Ends {
        place: &delete.place,
        question: |name, about| format!("delete {about} of {name:?}"),
        done: "deleted",
        change: Change::DeleteRange {
            from,
            to: to.map(Key),
        },
    };
    let writer = store::write(&delete.place.home, delete.writing)?;
    let ended = ends.make(writer)?;
    ends.say(&ended, json)
}

pub fn clear(clear: &Emptied, json: bool) -> Outcome {
    let question = |name: &str, about: &str| format!("clear {name:?} of {about}");
    empty(clear, json, question, "cleared", Change::Clear)
}

pub fn drop(drop: &Emptied, json: bool) -> Outcome {
    let question = |name: &str, about: &str| format!("drop {name:?} with {about}");
    empty(drop, json, question, "dropped", Change::Drop)
}

fn empty(
    emptied: &Emptied,
    json: bool,
    question: fn(&str, &str) -> String,
    done: &'static str,
    change: Change,
) -> Outcome {
    let ends = Ends {
        place: &emptied.place,
        question,
        done,
        change,
    };
    let writer = store::write_once(&emptied.place.home)?;
    ends.ask(&writer, emptied.yes)?;
    let ended = ends.make(writer)?;
    ends.say(&ended, json)
}

fn bounds(range: &Range) -> Outcome<Bounds> {
    let (from, to) = keys_of(range)?;
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    Ok((Bound::Included(from), to))
}

/// The first key, and the one behind the last.
fn keys_of(range: &Range) -> Outcome<(Vec<u8>, Option<Vec<u8>>)> {
    let key = |given: &Option<_>| given.as_deref().map(|key| range.form.key(key)).transpose();
    let mut from = key(&range.from)?.unwrap_or_default();
    let mut to = key(&range.to)?;
    if let Some(prefix) = key(&range.prefix)? {
        if let Some(behind) = behind(&prefix) {
            to = Some(to.map_or(behind.clone(), |to| to.min(behind)));
        }
        from = from.max(prefix);
    }
    Ok((from, to))
}

/// The lowest key after all that start with a prefix, if there is one.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}
