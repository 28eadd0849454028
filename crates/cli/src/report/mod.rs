//! `ebbtide report`: what a database is, on one page for people, or as text for a bug report.
//!
//! ```text
//! facts.rs   read once: statistics, due curves, runs, disk, settings
//! film.rs    the manifest's edits, and what each did
//! keys.rs    where tables lie among the keys, without the keys
//! text.rs    the text, and amounts in words
//! json.rs    the same as JSON
//! ends.rs    what ends, as it is drawn: the past, bars that grow, never
//! verdict.rs what is to be known first, in words
//! html.rs    pieces of a page: escaping, tables, pictures
//! page.rs    the page; with style.css and film.js
//! ```
//!
//! Its reader may not be meant to see the data, so it has no value and, unless asked for, no key: tables lie at ranks.
//! Names are escaped wherever they stand.

mod ends;
mod facts;
pub mod film;
mod html;
mod json;
mod keys;
mod page;
mod text;
mod verdict;

use std::io::{Write, stdout};

use crate::arguments;
use crate::failure::{self, Failure, Outcome};
use crate::store;
use crate::transfer::{Target, named};
use facts::{Facts, Privacy};

pub fn report(report: &arguments::Report, json: bool) -> Outcome {
    let db = store::read(&report.home)?;
    let privacy = Privacy {
        hide_names: report.hide_names,
        key_bytes: usize::try_from(report.keys).unwrap_or(usize::MAX),
    };
    let facts = Facts::of(&db, &report.home.dir, report.edits, privacy)?;
    let made = match (json, report.text) {
        (true, _) => json::json(&facts).to_string() + "\n",
        (_, true) => text::text(&facts),
        _ => page::page(&facts),
    };
    let Some(path) = named(&report.output) else {
        return Ok(stdout().lock().write_all(made.as_bytes())?);
    };
    let failed = |error| Failure::file("write", path, &error);
    let target = Target::of(path).map_err(failed)?;
    (&target.file).write_all(made.as_bytes()).map_err(failed)?;
    target.finish().map_err(failed)?;
    failure::note(&format_args!("written to {}", path.display()));
    Ok(())
}
