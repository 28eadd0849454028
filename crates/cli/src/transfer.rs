//! Import and export of many items, one JSON object a line.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write, stdout};
use std::iter;
use std::path::{Path, PathBuf};
use std::process;
use std::time::SystemTime;

use ebbtide::{Container, DefaultTtl, Ttl};
use ebbtide_cli::json;
use ebbtide_control::{Answer, Change, NewItem, Request};
use indicatif::ProgressBar;
use serde_json::json;

use crate::arguments::{Export, Import};
use crate::failure::{self, Failure, Outcome};
use crate::input::{Lines, style};
use crate::interrupt::Undo;
use crate::items::warn_off;
use crate::store::Writer;
use crate::{show, store};
use ebbtide::shared::files;

/// A batch is written when it has this many items or bytes: enough to share the cost of a commit, few enough to be in
/// memory twice.
const BATCH_ITEMS: usize = 1_000;
const BATCH_BYTES: usize = 8 << 20;

pub fn import(import: &Import, json: bool) -> Outcome {
    let mut entries = Entries {
        lines: Lines::open(&import.file)?,
        import,
        read: 0,
        line: 0,
    };
    // If the first line is refused, nothing is created.
    let done = entries.next().and_then(|first| {
        let writer = store::create(&import.place.home, import.writing)?;
        let mut importer = Importer::new(&writer, &import.place.container)?;
        let done = match import.sorted {
            true => importer.load(first, &mut entries),
            false => importer.store(first, &mut entries),
        }?;
        writer.close()?;
        Ok(done)
    });
    let skipped = entries.lines.end();
    let done = done?;
    if done.without_effect > 0 {
        let ttls = show::counted(done.without_effect, "line");
        warn_off(&import.place, &format!("{ttls} with a ttl stored"));
    }
    if json {
        let mut line = json!({ "imported": done.imported, "skipped": skipped });
        if import.keep_times {
            line["expired"] = done.expired.into();
        }
        writeln!(stdout().lock(), "{line}")?;
        return Ok(());
    }
    let mut said = format!("{} imported", show::counted(done.imported, "line"));
    if done.expired > 0 {
        said += &format!(", {} of them expired already", show::count(done.expired));
    }
    if skipped > 0 {
        said += &format!(", {} skipped", show::counted(skipped, "bad line"));
    }
    failure::note(&said);
    Ok(())
}

/// The result of an import.
#[derive(Clone, Copy, Default)]
struct Done {
    imported: u64,
    /// Items that had expired when they were stored.
    expired: u64,
    /// Items whose ttl has no effect.
    without_effect: u64,
}

/// The items that the lines describe.
struct Entries<'a> {
    lines: Lines,
    import: &'a Import,
    read: u64,
    /// The number of the last one.
    line: u64,
}

impl Entries<'_> {
    fn next(&mut self) -> Outcome<Option<Written>> {
        loop {
            let read = self.read;
            let sorted = self.import.sorted;
            let stopped = |why: String| {
                let before = match sorted {
                    true => "nothing was stored".to_owned(),
                    false => format!("stored before it: {}", show::counted(read, "line")),
                };
                Failure::Refused(format!("{why} ({before})"))
            };
            let line = self.lines.next().map_err(|failure| match failure {
                Failure::Refused(why) => stopped(why),
                other => other,
            })?;
            let Some((number, line)) = line else {
                return Ok(None);
            };
            match self.import.parse(line) {
                Ok(written) => {
                    self.read += 1;
                    self.line = number;
                    return Ok(Some(written));
                }
                Err(error) if self.import.skip_bad => self.lines.skip(number, &error),
                Err(error) => return Err(stopped(format!("line {number}: {error}"))),
            }
        }
    }
}

impl Import {
    fn parse(&self, line: &[u8]) -> ebbtide::Result<Written> {
        let reading = json::LineFormat {
            key: self.key.as_deref(),
            from_export: self.from_export,
        };
        if self.keep_times {
            let (entry, written_at) = json::from_json_with_time(line, reading)?;
            return Ok((entry, Some(written_at)));
        }
        Ok((json::from_json(line, reading)?, None))
    }
}

/// An item, and when it was written if that is to be kept.
type Written = (json::Entry, Option<SystemTime>);

struct Importer<'a> {
    writer: &'a Writer,
    container: &'a str,
    /// The container's default; nobody is expected to change it meanwhile.
    default: DefaultTtl,
    items: Vec<NewItem>,
    bytes: usize,
    has_written: bool,
    done: Done,
}

impl<'a> Importer<'a> {
    fn new(writer: &'a Writer, container: &'a str) -> Outcome<Self> {
        let state = Request::State {
            container: container.to_owned(),
        };
        let default = match writer.ask(&state)? {
            Answer::State { default_ttl, .. } => default_ttl,
            _ => None,
        };
        Ok(Importer {
            writer,
            container,
            default: default.unwrap_or(DefaultTtl::NoDefault),
            items: vec![],
            bytes: 0,
            has_written: false,
            done: Done::default(),
        })
    }

    /// Items before a bad line are stored all the same, and the line's message says so.
    fn store(&mut self, first: Option<Written>, entries: &mut Entries<'_>) -> Outcome<Done> {
        let done = self.run(first, entries);
        // An empty file makes the container, too.
        if !self.items.is_empty() || !self.has_written {
            self.write()?;
        }
        done.map(|()| self.done)
    }

    fn run(&mut self, first: Option<Written>, entries: &mut Entries<'_>) -> Outcome {
        let mut next = first;
        while let Some((entry, written_at)) = next {
            self.push(entry, written_at)?;
            next = entries.next()?;
        }
        Ok(())
    }

    /// Loads all lines, which are sorted by key, or none.
    fn load(&mut self, first: Option<Written>, entries: &mut Entries<'_>) -> Outcome<Done> {
        let Writer::Own(db) = self.writer else {
            let why = "--sorted loads straight into tables, which takes a database that is open nowhere else: leave it out";
            return Err(Failure::Refused(why.to_owned()));
        };
        let is_new = !db.containers().iter().any(|known| known == self.container);
        let container = db.container(self.container)?;
        let (mut first, mut last, mut failure) = (Some(first), None, None);
        let items = iter::from_fn(|| {
            let next = first.take().map_or_else(|| entries.next(), Ok);
            let item = next.transpose()?.and_then(|(entry, written_at)| {
                let json::Entry { key, value, ttl } = self.prepared(entry, written_at);
                if last.as_ref().is_some_and(|last| key <= *last) {
                    let (line, key) = (entries.line, key.escape_ascii());
                    let why = "is not above the one before it (nothing was stored)";
                    return Err(Failure::Refused(format!(
                        "line {line}: its key \"{key}\" {why}"
                    )));
                }
                last = Some(key.clone());
                Ok((key, value, ttl))
            });
            Some(item.map_err(|failed| {
                failure = Some(failed);
                // Ends the load; the failure is shown in its place.
                ebbtide::Error::Closed
            }))
        });
        let loaded = container.bulk_load_with_ttl(items);
        let done = match failure {
            Some(failure) => Err(failure),
            None => loaded.map(|_| self.done).map_err(Failure::from),
        };
        if done.is_err() && is_new && container.is_empty().unwrap_or(false) {
            // The user gets the first error.
            let _ = db.drop_container(self.container);
        }
        done
    }

    /// The item with its ttl from now on, counted.
    fn prepared(&mut self, entry: json::Entry, written_at: Option<SystemTime>) -> json::Entry {
        let now = SystemTime::now();
        let ttl = match written_at {
            Some(written_at) => json::ttl_since(written_at, now, entry.ttl, self.default),
            None => entry.ttl,
        };
        let counts = self.default != DefaultTtl::Off;
        self.done.imported += 1;
        self.done.expired += u64::from(counts && matches!(ttl, Ttl::Until(end) if end <= now));
        let is_finite = matches!(ttl, Ttl::After(_) | Ttl::Until(_));
        self.done.without_effect += u64::from(!counts && is_finite);
        json::Entry { ttl, ..entry }
    }

    fn push(&mut self, entry: json::Entry, written_at: Option<SystemTime>) -> Outcome {
        let json::Entry { key, value, ttl } = self.prepared(entry, written_at);
        self.bytes += key.len() + value.len();
        self.items.push(NewItem { key, value, ttl });
        if self.items.len() >= BATCH_ITEMS || self.bytes >= BATCH_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Outcome {
        let items = std::mem::take(&mut self.items);
        (self.bytes, self.has_written) = (0, true);
        let put = Request::change(self.container, Change::Put(items));
        self.writer.ask(&put).map(drop)
    }
}

pub fn export(export: &Export, json: bool) -> Outcome {
    let place = &export.place;
    let db = store::read(&place.home)?;
    let container = store::container(&db, &place.container)?;
    let Some(path) = named(&export.file) else {
        let bar = match stdout().is_terminal() {
            true => ProgressBar::hidden(),
            false => export_bar(&container),
        };
        let mut out = BufWriter::new(stdout().lock());
        let exported = write_items(&container, &mut out, &bar, Failure::from)?;
        note_exported(exported);
        return Ok(());
    };
    let failed = |error| Failure::file("write", path, &error);
    let target = Target::of(path).map_err(failed)?;
    let mut out = BufWriter::new(&target.file);
    let exported = write_items(&container, &mut out, &export_bar(&container), failed)?;
    drop(out);
    target.finish().map_err(failed)?;
    match json {
        true => writeln!(stdout().lock(), "{}", json!({ "exported": exported }))?,
        false => note_exported(exported),
    }
    Ok(())
}

/// The file that output goes to; `None` is standard output, which `-` means, too.
pub fn named(file: &Option<PathBuf>) -> Option<&PathBuf> {
    file.as_ref().filter(|path| path.as_os_str() != "-")
}

/// Where an export goes: a file appears under its name when it is whole, and replaces the one that was there; a failed
/// export leaves that as it was. It has the rights of the one that was there, or those of the umask. A pipe or a device
/// is written to as it is.
pub struct Target {
    pub file: File,
    /// The file that is written, and its name when it is finished.
    renamed: Option<Renamed>,
}

struct Renamed {
    written: PathBuf,
    path: PathBuf,
    undo: Undo,
}

impl Target {
    pub fn of(path: &Path) -> io::Result<Target> {
        // Of a link, what it leads to.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let there = fs::metadata(&path).ok();
        if there.as_ref().is_some_and(|of| !of.is_file()) {
            let file = files::open_named(&path)?;
            let renamed = None;
            return Ok(Target { file, renamed });
        }
        let mut written = path.clone().into_os_string();
        written.push(format!(".{}.tmp", process::id()));
        let written = PathBuf::from(written);
        let removed = written.clone();
        let undo = Undo::by(move || drop(fs::remove_file(removed)))?;
        let file = files::create_in_place_of(there.as_ref(), &written)?;
        Ok(Target {
            file,
            renamed: Some(Renamed {
                written,
                path,
                undo,
            }),
        })
    }

    /// All is written: durable, it gets its name.
    pub fn finish(self) -> io::Result<()> {
        if let Some(renamed) = self.renamed {
            self.file.sync_all()?;
            fs::rename(&renamed.written, &renamed.path)?;
            renamed.undo.keep();
        }
        Ok(())
    }
}

fn note_exported(items: u64) {
    failure::note(&format_args!("{} exported", show::counted(items, "item")));
}

fn export_bar(container: &Container) -> ProgressBar {
    ProgressBar::new(container.stats().live_items)
        .with_style(style("{bar:40} {human_pos} items {per_sec} {eta}"))
}

fn write_items(
    container: &Container,
    out: &mut dyn Write,
    bar: &ProgressBar,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Outcome<u64> {
    let mut count = 0;
    for item in container.iter() {
        writeln!(out, "{}", json::to_json(&item?)).map_err(&failed)?;
        count += 1;
        bar.inc(1);
    }
    out.flush().map_err(&failed)?;
    bar.finish_and_clear();
    Ok(count)
}
