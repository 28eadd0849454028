//! The facts of a report, read once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use ebbtide::{
    ContainerStats, Database, DefaultTtl, DiskHolder, DiskKind, DiskUsage, DueBucket, RunInfo,
    Stats,
};
use serde_json::Value;

use super::film::{Film, Stored};
use crate::failure::Outcome;

/// All that a report tells.
pub struct Facts {
    /// The folder, as it is called in the report.
    pub dir: String,
    pub now: SystemTime,
    pub stats: Stats,
    /// Damage that was found, and why background work fails.
    pub trouble: Vec<String>,
    pub last_version: u64,
    /// As `du` and `df` count: the sum is what `df` knows of.
    pub disk: Vec<Space>,
    pub containers: Vec<Of>,
    pub film: Film,
    /// So many frames are shown, the last ones.
    pub shown_edits: usize,
    /// So many bytes of keys may be shown.
    pub key_bytes: usize,
}

/// A container.
pub struct Of {
    pub name: String,
    pub default: DefaultTtl,
    pub stats: ContainerStats,
    pub due: Vec<DueBucket>,
    pub runs: Vec<RunInfo>,
    pub stored: Option<Stored>,
}

/// The use of a part of the disk space.
pub struct Space {
    pub what: String,
    pub bytes: u64,
    /// A class of style.css.
    pub colour: &'static str,
}

/// The names and keys that may be shown.
#[derive(Clone, Copy)]
pub struct Privacy {
    pub hide_names: bool,
    pub key_bytes: usize,
}

impl Facts {
    pub fn of(db: &Database, dir: &Path, shown_edits: usize, privacy: Privacy) -> Outcome<Facts> {
        let names = db.containers();
        let numbers: BTreeMap<&str, usize> = names.iter().map(String::as_str).zip(1..).collect();
        let called = |name: &str| match (privacy.hide_names, numbers.get(name)) {
            (false, _) => name.to_owned(),
            (true, Some(number)) => format!("container {number}"),
            (true, None) => "a container that was dropped".to_owned(),
        };
        let film = Film::of(db, &called)?;
        let mut containers = vec![];
        for name in &names {
            let container = db.container(name)?;
            let name = called(name);
            containers.push(Of {
                default: container.default_ttl(),
                stats: container.stats(),
                due: container.due(),
                runs: container.runs(),
                stored: film.containers.get(&name).cloned(),
                name,
            });
        }
        let stats = db.stats();
        let path = dir.display().to_string();
        let damage = stats.damage.iter().map(|damage| damage.what.clone());
        let trouble = damage.chain(stats.background_error.clone());
        let (dir, trouble) = match privacy.hide_names {
            true => (
                "a database".to_owned(),
                trouble.map(|what| what.replace(&path, "DIR")).collect(),
            ),
            false => (path, trouble.collect()),
        };
        Ok(Facts {
            dir,
            trouble,
            now: db.now(),
            disk: disk(&db.disk()?),
            stats,
            last_version: db.last_version().as_u64(),
            containers,
            film,
            shown_edits,
            key_bytes: privacy.key_bytes,
        })
    }
}

/// The rows of all containers together, by kind and by who keeps them.
fn disk(usage: &DiskUsage) -> Vec<Space> {
    let mut sums = BTreeMap::new();
    for row in &usage.rows {
        let sum: &mut u64 = sums
            .entry((row.unlinked, row.kind, row.holder))
            .or_default();
        *sum += row.bytes;
    }
    let space = |((unlinked, kind, holder), bytes): ((_, DiskKind, Option<DiskHolder>), _)| {
        let (words, colour) = of_kind(kind);
        let by = holder.map_or(String::new(), |holder| format!(", kept by a {holder}"));
        let without_name = if unlinked {
            ", without a name: not in du"
        } else {
            ""
        };
        Space {
            what: format!("{words}{by}{without_name}"),
            bytes,
            colour,
        }
    };
    sums.into_iter().map(space).collect()
}

/// In words, and a class of style.css.
fn of_kind(kind: DiskKind) -> (&'static str, &'static str) {
    match kind {
        DiskKind::Live => ("live items", "c0"),
        DiskKind::Expired => ("expired, not yet reclaimed", "c1"),
        DiskKind::Superseded => ("superseded, not yet merged", "c2"),
        DiskKind::Tombstones => ("tombstones", "c3"),
        DiskKind::Overhead => ("filters, indexes, rest of pages", "c6"),
        DiskKind::Log => ("log that is needed", "c4"),
        DiskKind::LogAhead => ("log, allocated ahead", "c7"),
        DiskKind::Running => ("files that jobs write", "c5"),
        DiskKind::Obsolete => ("obsolete files", "c1"),
        DiskKind::Manifest => ("manifest and its copy", "c3"),
        DiskKind::Folders => ("folders", "c6"),
        DiskKind::Lost => ("set aside by a repair", "c5"),
        other => (other.name(), "c6"),
    }
}

impl Of {
    /// The floors and commands, a line each, as the manifest has them.
    pub fn retention(&self, moment: &dyn Fn(u64) -> String) -> Vec<String> {
        let Some(stored) = &self.stored else {
            return vec![];
        };
        let settings = &stored.settings;
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
        let seq = number(settings, "floor_seq");
        let mut lines = vec![];
        for (name, what) in [
            (
                "inherit_floor",
                "items without a ttl of their own, written before",
            ),
            (
                "override_floor",
                "items with a ttl of their own that ended before",
            ),
        ] {
            let at = number(settings, name);
            if at > 0 && seq > 0 {
                lines.push(format!(
                    "floor: gone are {what} {}, below version {seq}",
                    moment(at)
                ));
            }
        }
        for command in settings["commands"].as_array().into_iter().flatten() {
            let seq = number(command, "seq");
            let (written, own) = (number(command, "written"), number(command, "override"));
            let mut reach = vec![];
            if written == u64::MAX {
                reach.push("all items".to_owned());
            } else if written > 0 {
                reach.push(format!("items written before {}", moment(written)));
            }
            if own > written {
                reach.push(format!(
                    "items that would have ended before {}",
                    moment(own)
                ));
            }
            let reach = reach.join(", and ");
            let at = moment(number(command, "at"));
            lines.push(format!(
                "command of {at}: gone are {reach}, below version {seq}"
            ));
        }
        lines
    }

    /// Bytes of files for each byte that is live; `None` without any.
    pub fn space_amplification(&self) -> Option<f64> {
        ratio(self.stats.disk_bytes, self.stats.live_bytes)
    }
}

pub fn ratio(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}
