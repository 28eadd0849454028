//! Commands on containers: their names and their default ttl.

use std::io::{Write, stdout};

use ebbtide_cli::json;
use serde_json::json;

use crate::arguments::{Home, Place, Writing};
use crate::failure::Outcome;
use crate::{show, store};

pub fn containers(home: &Home, json: bool) -> Outcome {
    let db = store::read(home)?;
    let mut out = stdout().lock();
    for name in db.containers() {
        match json {
            true => writeln!(out, "{}", json!({ "container": name }))?,
            false => writeln!(out, "{name}")?,
        }
    }
    Ok(())
}

pub fn ttl(place: &Place, default: Option<&str>, json: bool) -> Outcome {
    if let Some(text) = default {
        let default = json::parse_default_ttl(text)?;
        return store::create(place, Writing { sync: false }, |_, container| {
            Ok(container.set_default_ttl(default)?)
        });
    }
    let db = store::read(&place.home)?;
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
