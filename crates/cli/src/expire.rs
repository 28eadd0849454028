//! Expiring items of a container on command.

use std::io::{Write, stdout};
use std::time::SystemTime;

use ebbtide_cli::given;
use ebbtide_control::{Answer, Change, Request};

use crate::arguments::{ContainerArgs, Expire};
use crate::ending::{self, Ends};
use crate::failure::{Failure, Outcome};
use crate::store::Writer;
use crate::{moment, store};

pub fn expire(expire: &Expire, json: bool) -> Outcome {
    let ContainerArgs { home, container } = &expire.place;
    let writer = match expire.dry_run {
        true => Writer::Own(store::read(home)?),
        false => store::write_once(home)?,
    };
    let state = Request::State {
        container: container.clone(),
    };
    let Answer::State { now, .. } = writer.ask(&state)? else {
        unreachable!("the state was asked for");
    };
    let ends = Ends {
        place: &expire.place,
        question: expire_question,
        done: if expire.dry_run { "nothing" } else { "expired" },
        change: told(expire, now)?,
    };
    if expire.dry_run {
        let would = ends.preview(&writer)?;
        if json {
            return ends.say(&would, json);
        }
        writeln!(stdout().lock(), "would expire {}", ending::about(&would))?;
        return Ok(());
    }
    ends.ask(&writer, expire.yes)?;
    let ended = ends.make(writer)?;
    ends.say(&ended, json)
}

/// Of a change that expires, a new default too.
pub fn expire_question(container: &str, about: &str) -> String {
    format!("expire {about} of {container:?}")
}

fn told(expire: &Expire, now: SystemTime) -> Outcome<Change> {
    Ok(match (&expire.before, &expire.written_before) {
        (Some(text), _) => Change::ExpireBefore(given::moment(text, now)?),
        (None, Some(text)) => Change::ExpireWrittenBefore(past(text, now)?),
        (None, None) => Change::ExpireAll,
    })
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
