//! Expiring items of a container on command.

use std::io::{Write, stdout};
use std::time::SystemTime;

use ebbtide::{Container, Preview};
use serde_json::json;

use crate::arguments::{Expire, Place};
use crate::failure::{self, Outcome};
use crate::{moment, show, store};

/// What is told.
enum Told {
    Before(SystemTime),
    WrittenBefore(SystemTime),
    All,
}

impl Told {
    fn of(expire: &Expire, now: SystemTime) -> Outcome<Told> {
        Ok(match (&expire.before, &expire.written_before) {
            (Some(text), _) => Told::Before(moment::parse(text, now)?),
            (None, Some(text)) => Told::WrittenBefore(moment::parse(text, now)?),
            (None, None) => Told::All,
        })
    }

    /// Estimates of the items and of the bytes that would be gone.
    fn preview(&self, items: &Container) -> (u64, u64) {
        let Preview { items, bytes, .. } = match self {
            Told::Before(moment) => items.preview_expire_before(*moment),
            Told::WrittenBefore(moment) => items.preview_expire_written_before(*moment),
            Told::All => {
                let stats = items.stats();
                return (stats.live_items, stats.live_bytes);
            }
        };
        (items, bytes)
    }

    fn tell(&self, items: &Container) -> ebbtide::Result<()> {
        match self {
            Told::Before(moment) => items.expire_before(*moment),
            Told::WrittenBefore(moment) => items.expire_written_before(*moment),
            Told::All => items.expire_all(),
        }
    }
}

pub fn expire(expire: &Expire, json: bool) -> Outcome {
    let Place { home, container } = &expire.place;
    if expire.dry_run {
        let db = store::read(home)?;
        let items = store::container(&db, container)?;
        let would = Told::of(expire, db.now())?.preview(&items);
        let (items, bytes) = would;
        if json {
            return done(json, container, "nothing", would);
        }
        let (items, bytes) = (show::counted(items, "item"), show::bytes(bytes));
        writeln!(stdout().lock(), "would expire about {items}, {bytes}")?;
        return Ok(());
    }
    let db = store::write_once(home)?;
    let items = store::container(&db, container)?;
    let told = Told::of(expire, db.now())?;
    let would = told.preview(&items);
    told.tell(&items)?;
    db.close()?;
    done(json, container, "expired", would)
}

fn done(json: bool, container: &str, what: &str, (items, bytes): (u64, u64)) -> Outcome {
    if json {
        let line = json!({
            "container": container,
            "done": what,
            "items_estimate": items,
            "bytes_estimate": bytes,
        });
        writeln!(stdout().lock(), "{line}")?;
    } else {
        let (items, bytes) = (show::counted(items, "item"), show::bytes(bytes));
        failure::note(&format_args!(
            "{container:?} {what}: about {items}, {bytes}"
        ));
    }
    Ok(())
}
