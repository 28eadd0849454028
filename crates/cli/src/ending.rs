//! Changes that end items as a whole: how many that is, the question before, and the word after.

use std::io::{Write, stdout};

use ebbtide_control::{Answer, Change, Ending, MOST_COUNTED, Request};
use serde_json::json;

use crate::arguments::ContainerArgs;
use crate::failure::{self, Outcome};
use crate::store::Writer;
use crate::{ask, show};

/// A change that ends items, after which they are `expired`, for instance.
pub struct Ends<'a> {
    pub place: &'a ContainerArgs,
    /// Of the container's name, and of how much ends.
    pub question: fn(&str, &str) -> String,
    pub done: &'static str,
    pub change: Change,
}

impl Ends<'_> {
    /// Asks, and goes on after a yes.
    pub fn ask(&self, writer: &Writer, yes: bool) -> Outcome {
        let would = about(&self.preview(writer)?);
        ask::unless(yes, &(self.question)(&self.place.container, &would))
    }

    pub fn preview(&self, writer: &Writer) -> Outcome<Ending> {
        let request = Request::preview(&self.place.container, self.change.clone());
        Ok(ending(writer.ask(&request)?))
    }

    /// Makes it, and closes.
    pub fn make(&self, writer: Writer) -> Outcome<Ending> {
        let request = Request::change(&self.place.container, self.change.clone());
        let ended = ending(writer.ask(&request)?);
        writer.close()?;
        Ok(ended)
    }

    /// Says what has ended, or would.
    pub fn say(&self, ended: &Ending, json: bool) -> Outcome {
        say(&self.place.container, self.done, ended, json)
    }
}

/// Says what became of items of a container.
pub fn say(container: &str, done: &str, ended: &Ending, json: bool) -> Outcome {
    if !json {
        failure::note(&format_args!("{container:?} {done}: {}", about(ended)));
        return Ok(());
    }
    let mut line = json!({ "container": container, "done": done });
    match ended.is_counted {
        true => line["items"] = ended.items.into(),
        false => line["items_estimate"] = ended.items.into(),
    }
    if let Some(bytes) = ended.bytes {
        line["bytes_estimate"] = bytes.into();
    }
    Ok(writeln!(stdout().lock(), "{line}")?)
}

/// The answer, of what ends nothing too.
fn ending(answer: Answer) -> Ending {
    match answer {
        Answer::Ended(ending) => ending,
        _ => Ending::default(),
    }
}

/// `about 1,200 items, 220 KiB`, `3 items`, `100,000 items or more`.
pub fn about(ending: &Ending) -> String {
    if ending.is_counted {
        let items = show::counted(ending.items, "item");
        let more = if ending.items == MOST_COUNTED {
            " or more"
        } else {
            ""
        };
        return format!("{items}{more}");
    }
    let items = show::counted(show::about(ending.items), "item");
    let bytes = ending.bytes.map(show::bytes);
    format!(
        "about {items}{}",
        bytes.map_or(String::new(), |bytes| format!(", {bytes}"))
    )
}
