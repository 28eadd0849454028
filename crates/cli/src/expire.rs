//! Expiring items of a container on command.

use std::io::{Write, stdout};
use std::time::SystemTime;

use ebbtide::{Container, Preview};
use ebbtide_cli::given;
use serde_json::json;

use crate::arguments::{ContainerArgs, Expire};
use crate::failure::{self, Failure, Outcome};
use crate::{ask, moment, show, store};

/// The command that a container is told.
enum Told {
    Before(SystemTime),
    WrittenBefore(SystemTime),
    All,
}

impl Told {
    fn of(expire: &Expire, now: SystemTime) -> Outcome<Told> {
        Ok(match (&expire.before, &expire.written_before) {
            (Some(text), _) => Told::Before(given::moment(text, now)?),
            (None, Some(text)) => Told::WrittenBefore(past(text, now)?),
            (None, None) => Told::All,
        })
    }

    fn preview(&self, items: &Container) -> Ending {
        Ending::of(match self {
            Told::Before(moment) => items.preview_expire_before(*moment),
            Told::WrittenBefore(moment) => items.preview_expire_written_before(*moment),
            Told::All => {
                let stats = items.stats();
                let (items, bytes) = (stats.live_items, stats.live_bytes);
                return Ending { items, bytes };
            }
        })
    }

    fn tell(&self, items: &Container) -> ebbtide::Result<()> {
        match self {
            Told::Before(moment) => items.expire_before(*moment),
            Told::WrittenBefore(moment) => items.expire_written_before(*moment),
            Told::All => items.expire_all(),
        }
    }
}

/// A moment before which something can have been written.
fn past(text: &str, now: SystemTime) -> Outcome<SystemTime> {
    let moment = given::moment(text, now)?;
    if moment <= now {
        return Ok(moment);
    }
    Err(Failure::Refused(format!(
        "--written-before {text} is not allowed: {} is yet to come, it is {}; --all expires every item",
        moment::date_and_time(moment),
        moment::date_and_time(now),
    )))
}

/// Estimates of what ends at once.
#[derive(Clone, Copy)]
pub struct Ending {
    pub items: u64,
    bytes: u64,
}

impl Ending {
    pub fn of(Preview { items, bytes, .. }: Preview) -> Ending {
        Ending { items, bytes }
    }

    /// Goes on after a yes.
    pub fn ask(&self, yes: bool, container: &str) -> Outcome {
        ask::unless(yes, &format!("expire {} of {container:?}", self.about()))
    }

    fn about(&self) -> String {
        let (items, bytes) = (
            show::counted(show::about(self.items), "item"),
            show::bytes(self.bytes),
        );
        format!("about {items}, {bytes}")
    }

    /// Says that it has ended, or that nothing was done.
    pub fn say(&self, json: bool, container: &str, what: &str) -> Outcome {
        if json {
            let line = json!({
                "container": container,
                "done": what,
                "items_estimate": self.items,
                "bytes_estimate": self.bytes,
            });
            writeln!(stdout().lock(), "{line}")?;
        } else {
            failure::note(&format_args!("{container:?} {what}: {}", self.about()));
        }
        Ok(())
    }
}

pub fn expire(expire: &Expire, json: bool) -> Outcome {
    let ContainerArgs { home, container } = &expire.place;
    if expire.dry_run {
        let db = store::read(home)?;
        let items = store::container(&db, container)?;
        let would = Told::of(expire, db.now())?.preview(&items);
        if json {
            return would.say(json, container, "nothing");
        }
        writeln!(stdout().lock(), "would expire {}", would.about())?;
        return Ok(());
    }
    let db = store::write_once(home)?;
    let items = store::container(&db, container)?;
    let told = Told::of(expire, db.now())?;
    let would = told.preview(&items);
    would.ask(expire.yes, container)?;
    told.tell(&items)?;
    db.close()?;
    would.say(json, container, "expired")
}
