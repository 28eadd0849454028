//! The edits of the manifest as a film: a frame for each, with what it changed and the runs of the containers concerned.
//!
//! The library gives the edits as the JSON that is stored (docs/format.md). The first one is the sum of all before;
//! each other one changes what the ones before it add up to. This command names the parts of an edit that it does not
//! know, and skips them, so that the film of a later version can be seen too.
//!
//! Of keys nothing is shown: those of range deletes are left out.

use std::collections::BTreeMap;

use ebbtide::Database;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::show;

/// The history that the edits of a manifest tell.
pub struct Film {
    /// One for each edit, oldest first.
    pub frames: Vec<Frame>,
    /// Settings and compression of each container after the last edit, as they are stored.
    pub containers: BTreeMap<String, Stored>,
}

/// The changes of one edit.
pub struct Frame {
    pub number: u64,
    /// The highest settled time on which something durable relied, milliseconds since 1970.
    pub at: u64,
    pub kind: Kind,
    /// The edit in a line.
    pub title: String,
    /// Each of its changes, in a line.
    pub changes: Vec<String>,
    /// The runs of the containers of which it changed some, afterwards, and those that it removed.
    pub pictures: Vec<Picture>,
    /// Bytes up to here, since the first edit.
    pub written: Written,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All that was before.
    Sum,
    Flush,
    Merge,
    /// Tables went unread.
    Removal,
    Other,
}

#[derive(Clone, Copy, Default)]
pub struct Written {
    pub logged: u64,
    pub flushed: u64,
    pub merged: u64,
    pub dropped: u64,
}

pub struct Picture {
    pub container: String,
    /// Those that end first come first.
    pub runs: Vec<Run>,
}

#[derive(Clone)]
pub struct Run {
    pub id: u64,
    /// Milliseconds since 1970; `None`: never.
    pub end: Option<u64>,
    /// Id and bytes of each.
    pub tables: Vec<(u64, u64)>,
    pub fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Stays,
    Comes,
    Goes,
}

#[derive(Clone)]
pub struct Stored {
    pub name: String,
    pub compression: String,
    pub settings: Value,
    runs: BTreeMap<u64, Run>,
}

impl Run {
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.1).sum()
    }

    fn of(run: &Value) -> Run {
        let tables = run["tables"].as_array().into_iter().flatten();
        Run {
            id: number(&run["id"]),
            end: run["end"].as_u64(),
            tables: tables
                .map(|table| (number(&table["id"]), number(&table["len"])))
                .collect(),
            fate: Fate::Comes,
        }
    }
}

impl Film {
    /// Reads the manifest; `name` says what a container is called.
    pub fn of(db: &Database, name: &dyn Fn(&str) -> String) -> Outcome<Film> {
        let mut projector = Projector {
            name,
            containers: BTreeMap::new(),
            log: None,
            written: Written::default(),
        };
        let mut frames = vec![];
        for (at, text) in db.edits()?.iter().enumerate() {
            let edit = serde_json::from_str(text);
            let edit = edit.map_err(|error| Failure::Refused(format!("no edit: {error}")))?;
            frames.push(projector.frame(&edit, at == 0));
        }
        let containers = projector.containers.into_values();
        Ok(Film {
            frames,
            containers: containers
                .map(|container| (container.name.clone(), container))
                .collect(),
        })
    }
}

impl Written {
    /// Bytes written for each byte of the log. `None` without any, and where much more was flushed than was logged: then
    /// that was logged before the first edit, as after an open.
    pub fn amplification(&self) -> Option<f64> {
        let all = self.logged + self.flushed + self.merged;
        let is_of_this_log = self.flushed <= self.logged.saturating_mul(2);
        (self.logged > 0 && is_of_this_log).then(|| all as f64 / self.logged as f64)
    }
}

/// The sum of the edits so far.
struct Projector<'a> {
    name: &'a dyn Fn(&str) -> String,
    containers: BTreeMap<u64, Stored>,
    /// Up to where the log was synced.
    log: Option<u64>,
    written: Written,
}

/// The changes of an edit to one container.
#[derive(Default)]
struct Touched {
    is_flushed: bool,
    added: Vec<Run>,
    removed: Vec<Run>,
}

impl Projector<'_> {
    fn frame(&mut self, edit: &Value, is_sum: bool) -> Frame {
        let (mut words, mut touched) = (vec![], BTreeMap::<u64, Touched>::new());
        let changes = edit["changes"].as_array().into_iter().flatten();
        let known = changes.flat_map(|change| change.as_object().into_iter().flatten());
        for (what, change) in known {
            words.extend(self.change(what, change, &mut touched, is_sum));
        }
        let (kind, title) = match is_sum {
            true => (Kind::Sum, self.sum()),
            false => self.title(&touched, &words),
        };
        let pictures = match is_sum {
            true => vec![],
            false => touched
                .iter()
                .filter_map(|(id, of)| self.picture(*id, of))
                .collect(),
        };
        for container in self.containers.values_mut() {
            let runs = container.runs.values_mut();
            runs.for_each(|run| run.fate = Fate::Stays);
        }
        Frame {
            number: number(&edit["number"]),
            at: number(&edit["mark"]),
            kind,
            title,
            changes: words,
            pictures,
            written: self.written,
        }
    }

    fn sum(&self) -> String {
        let runs = || self.containers.values().flat_map(|of| of.runs.values());
        format!(
            "the sum of all edits before: {}, {}, {}",
            show::counted(self.containers.len() as u64, "container"),
            show::counted(runs().count() as u64, "run"),
            show::bytes(runs().map(Run::bytes).sum())
        )
    }

    /// Applies a change, and says it in words, unless it is of no interest.
    fn change(
        &mut self,
        what: &str,
        change: &Value,
        touched: &mut BTreeMap<u64, Touched>,
        is_sum: bool,
    ) -> Option<String> {
        match what {
            "create_container" => {
                let stored = self.create(change);
                return (!is_sum).then(|| format!("{}: created", stored.name));
            }
            "drop_container" => {
                let gone = self.containers.remove(&number(change));
                return gone.map(|gone| format!("{}: dropped", gone.name));
            }
            "log" => return Some(log_words(change)),
            "log_synced" => return Some(self.log_synced(number(change), is_sum)),
            "used" => return None,
            _ => {}
        }
        let id = number(&change[0]);
        let Some(container) = self.containers.get_mut(&id) else {
            return Some(what.replace('_', " "));
        };
        let of = touched.entry(id).or_default();
        let words = match what {
            "settings" => {
                container.settings = change[1].clone();
                settings_words(&container.settings)
            }
            "flushed" => {
                of.is_flushed = true;
                format!("flushed up to version {}", change[1])
            }
            "add_run" => {
                let run = Run::of(&change[1]);
                let words = format!("run {} comes: {}", run.id, run_words(&run));
                of.added.push(run.clone());
                container.runs.insert(run.id, run);
                words
            }
            "remove_run" => {
                let gone = container.runs.remove(&number(&change[1]))?;
                let words = format!("run {} goes: {}", gone.id, run_words(&gone));
                of.removed.push(Run {
                    fate: Fate::Goes,
                    ..gone
                });
                words
            }
            "add_range_delete" => format!("range delete of version {}", change[1]["seq"]),
            "remove_range_delete" => {
                format!("range delete of version {} hides nothing more", change[1])
            }
            other => other.replace('_', " "),
        };
        Some(format!("{}: {words}", container.name))
    }

    fn create(&mut self, record: &Value) -> &Stored {
        let runs = record["runs"].as_array().into_iter().flatten();
        let stored = Stored {
            name: (self.name)(record["name"].as_str().unwrap_or_default()),
            compression: match &record["compression"] {
                Value::String(name) => name.to_lowercase(),
                other => other.to_string(),
            },
            settings: record["settings"].clone(),
            runs: runs.map(Run::of).map(|run| (run.id, run)).collect(),
        };
        let id = number(&record["id"]);
        self.containers.insert(id, stored);
        &self.containers[&id]
    }

    fn log_synced(&mut self, position: u64, is_sum: bool) -> String {
        // A chain that begins anew counts from zero.
        let before = self.log.filter(|before| *before <= position).unwrap_or(0);
        if !is_sum {
            self.written.logged += position - before;
        }
        self.log = Some(position);
        format!("log synced up to {}", show::bytes(position))
    }

    /// Counts what was written, and says what kind of edit it is.
    fn title(&mut self, touched: &BTreeMap<u64, Touched>, words: &[String]) -> (Kind, String) {
        let (mut kind, mut parts) = (Kind::Other, vec![]);
        for (id, of) in touched {
            let ids = |runs: &[Run]| -> Vec<u64> {
                let tables = runs.iter().flat_map(|run| &run.tables);
                tables.map(|table| table.0).collect()
            };
            let (stay, came) = (ids(&of.removed), ids(&of.added));
            let bytes = |runs: &[Run], but: &[u64]| -> u64 {
                let tables = runs.iter().flat_map(|run| &run.tables);
                let others = tables.filter(|table| !but.contains(&table.0));
                others.map(|table| table.1).sum()
            };
            let (new, gone) = (bytes(&of.added, &stay), bytes(&of.removed, &came));
            let name = self.containers.get(id).map_or("", |of| &of.name);
            let (new_runs, gone_runs) = (
                show::counted(of.added.len() as u64, "run"),
                show::counted(of.removed.len() as u64, "run"),
            );
            if of.is_flushed && of.added.is_empty() && of.removed.is_empty() {
                kind = Kind::Flush;
                parts.push(format!("flush of {name}: nothing of it is needed"));
            } else if of.is_flushed && of.removed.is_empty() {
                self.written.flushed += new;
                kind = Kind::Flush;
                parts.push(format!(
                    "flush of {name}: {} into {new_runs}",
                    show::bytes(new)
                ));
            } else if new > 0 {
                self.written.merged += new;
                kind = Kind::Merge;
                parts.push(format!(
                    "merge in {name}: {gone_runs}, {} into {new_runs}, {}",
                    show::bytes(gone),
                    show::bytes(new)
                ));
            } else if gone > 0 {
                self.written.dropped += gone;
                kind = Kind::Removal;
                parts.push(format!(
                    "removal in {name}: {} given back unread",
                    show::bytes(gone)
                ));
            } else if !of.removed.is_empty() {
                parts.push(format!("{gone_runs} of {name} joined into {new_runs}"));
            }
        }
        match parts.is_empty() {
            true => (kind, words.first().cloned().unwrap_or_default()),
            false => (kind, parts.join("; ")),
        }
    }

    fn picture(&self, id: u64, of: &Touched) -> Option<Picture> {
        if of.added.is_empty() && of.removed.is_empty() {
            return None;
        }
        let container = self.containers.get(&id)?;
        let mut runs: Vec<Run> = container
            .runs
            .values()
            .chain(&of.removed)
            .cloned()
            .collect();
        runs.sort_by_key(|run| (run.end.unwrap_or(u64::MAX), run.id));
        Some(Picture {
            container: container.name.clone(),
            runs,
        })
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn run_words(run: &Run) -> String {
    let tables = show::counted(run.tables.len() as u64, "table");
    format!("{tables}, {}", show::bytes(run.bytes()))
}

fn log_words(log: &Value) -> String {
    match log["first"].as_u64() {
        Some(first) => format!("log needed from segment {first} on"),
        None => "no log is needed".to_owned(),
    }
}

/// The default, and how many commands stand.
pub fn settings_words(settings: &Value) -> String {
    let default = match &settings["default"] {
        Value::String(word) if word == "off" => "off".to_owned(),
        Value::Object(of) => {
            let millis = std::time::Duration::from_millis(of.get("millis").map_or(0, number));
            format!("{} s", millis.as_secs_f64())
        }
        _ => "-1".to_owned(),
    };
    let commands = settings["commands"].as_array().map_or(0, Vec::len) as u64;
    match commands {
        0 => format!("default ttl {default}"),
        some => format!(
            "default ttl {default}, {} to expire",
            show::counted(some, "command")
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebbtide::{DefaultTtl, ManualClock, Options};

    use super::*;

    /// The film counts what the database that made it has counted, and calls each edit what it was.
    #[test]
    fn what_was_written_is_known_from_edits_alone() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone()).memtable_bytes(1 << 20);
        let db = options.open(folder.path()).unwrap();
        let c = db.container("c").unwrap();
        c.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))
            .unwrap();
        for round in 0..3 {
            for item in 0..500 {
                let ttl = Duration::from_secs(60 + 10 * (item % 7));
                c.put_with_ttl(format!("{item:04}"), [round; 100], ttl)
                    .unwrap();
            }
            db.flush().unwrap();
        }
        db.compact().unwrap();
        clock.advance(Duration::from_secs(130));
        db.compact().unwrap();
        let (film, stats) = (Film::of(&db, &str::to_owned).ok().unwrap(), db.stats());
        let last = film.frames.last().unwrap();
        let written = last.written;
        assert!(written.flushed > 0 && written.merged > 0 && written.dropped > 0);
        assert_eq!(
            [written.flushed, written.merged, written.dropped],
            [stats.bytes_flushed, stats.bytes_merged, stats.bytes_dropped]
        );
        assert!(written.logged > 0 && written.logged <= stats.bytes_logged);
        let of_kind = |kind| {
            film.frames
                .iter()
                .filter(|frame| frame.kind == kind)
                .count() as u64
        };
        assert_eq!(of_kind(Kind::Sum), 1);
        assert_eq!(of_kind(Kind::Flush), 3);
        assert!(of_kind(Kind::Merge) >= 1 && of_kind(Kind::Removal) >= 1);
        // Each picture has what was there before and what came, and the last one nothing that stays.
        let pictures: Vec<_> = film
            .frames
            .iter()
            .flat_map(|frame| &frame.pictures)
            .collect();
        assert!(pictures[0].runs.iter().all(|run| run.fate == Fate::Comes));
        let last = pictures.last().unwrap();
        assert!(last.runs.iter().all(|run| run.fate == Fate::Goes));
        assert_eq!(
            settings_words(&film.containers["c"].settings),
            "default ttl 60 s"
        );
    }

    /// Items flushed after an open were logged before the manifest's first edit: the film knows no amount for them.
    #[test]
    fn what_was_logged_before_is_not_compared() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().memtable_bytes(4 << 20);
        let put = |db: &Database, items: u32| {
            let c = db.container("c").unwrap();
            (0..items).for_each(|n| c.put(n.to_be_bytes(), [7; 100]).unwrap());
            db.flush().unwrap();
            let film = Film::of(db, &str::to_owned).ok().unwrap();
            film.frames.last().unwrap().written
        };
        let db = options.open(folder.path()).unwrap();
        assert!(put(&db, 5_000).amplification().is_some());
        let c = db.container("c").unwrap();
        (0..5_000u32).for_each(|n| c.put(n.to_be_bytes(), [8; 100]).unwrap());
        drop((db, c));
        let db = options.open(folder.path()).unwrap();
        let written = put(&db, 1);
        assert!(written.flushed > 500_000, "{}", written.flushed);
        assert!(written.logged > 0 && written.logged < written.flushed / 2);
        assert_eq!(written.amplification(), None);
        assert!(put(&db, 10_000).amplification().is_some());
    }

    #[test]
    fn an_edit_of_a_later_version_is_named() {
        let mut projector = Projector {
            name: &str::to_owned,
            containers: BTreeMap::new(),
            log: None,
            written: Written::default(),
        };
        let edit = serde_json::json!({
            "number": 7, "mark": 1, "changes": [{ "new_thing": [1, 2] }, { "used": {} }],
        });
        let frame = projector.frame(&edit, false);
        assert_eq!((frame.number, frame.title.as_str()), (7, "new thing"));
    }
}
