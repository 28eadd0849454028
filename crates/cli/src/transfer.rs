//! Many items: import and export, one JSON object a line.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::path::Path;

use ebbtide::{Batch, Container, Database};
use ebbtide_cli::json;
use indicatif::ProgressBar;
use serde_json::json;

use crate::arguments::{Import, Place};
use crate::failure::{Failure, Outcome};
use crate::input::{Lines, style};
use crate::{show, store};

/// A batch is written when it holds so many items or bytes: enough that the turn it takes is shared by many, little
/// enough to lie in memory twice.
const BATCH_ITEMS: usize = 1_000;
const BATCH_BYTES: usize = 8 << 20;

pub fn import(import: &Import, json: bool) -> Outcome {
    let mut entries = Entries {
        lines: Lines::open(&import.file)?,
        import,
        read: 0,
    };
    // A line that is refused at once creates nothing.
    let imported = entries.next().and_then(|first| {
        store::create(&import.place, |db, container| {
            let mut importer = Importer::new(db, container);
            let done = importer.run(first, &mut entries);
            // What was read before a bad line is stored all the same, and the line's message says so.
            importer.write()?;
            done.map(|()| importer.imported)
        })
    });
    let skipped = entries.lines.end();
    let imported = imported?;
    let mut out = stdout().lock();
    if json {
        writeln!(
            out,
            "{}",
            json!({ "imported": imported, "skipped": skipped })
        )?;
    } else {
        write!(out, "{} imported", show::counted(imported, "line"))?;
        match skipped {
            0 => writeln!(out)?,
            _ => writeln!(out, ", {} skipped", show::counted(skipped, "bad line"))?,
        }
    }
    Ok(())
}

/// The items that the lines describe.
struct Entries<'a> {
    lines: Lines,
    import: &'a Import,
    read: u64,
}

impl Entries<'_> {
    fn next(&mut self) -> Outcome<Option<json::Entry>> {
        while let Some((number, line)) = self.lines.next()? {
            match json::from_json(line, &self.import.key) {
                Ok(entry) => {
                    self.read += 1;
                    return Ok(Some(entry));
                }
                Err(error) if self.import.skip_bad => self.lines.skip(number, &error),
                Err(error) => {
                    let before = show::counted(self.read, "line");
                    return Err(Failure::Refused(format!(
                        "line {number}: {error} (stored before it: {before})"
                    )));
                }
            }
        }
        Ok(None)
    }
}

struct Importer<'a> {
    db: &'a Database,
    container: &'a Container,
    batch: Batch,
    batch_bytes: usize,
    imported: u64,
}

impl<'a> Importer<'a> {
    fn new(db: &'a Database, container: &'a Container) -> Self {
        Importer {
            db,
            container,
            batch: Batch::new(),
            batch_bytes: 0,
            imported: 0,
        }
    }

    fn run(&mut self, first: Option<json::Entry>, entries: &mut Entries<'_>) -> Outcome {
        let mut next = first;
        while let Some(entry) = next {
            self.push(entry)?;
            next = entries.next()?;
        }
        Ok(())
    }

    fn push(&mut self, entry: json::Entry) -> Outcome {
        self.batch_bytes += entry.key.len() + entry.value.len();
        self.batch
            .put_with_ttl(self.container, &entry.key, &entry.value, entry.ttl);
        self.imported += 1;
        if self.batch.len() >= BATCH_ITEMS || self.batch_bytes >= BATCH_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Outcome {
        if !self.batch.is_empty() {
            self.db.write(&self.batch)?;
        }
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }
}

pub fn export(place: &Place, file: Option<&Path>, json: bool) -> Outcome {
    let db = store::read(&place.dir)?;
    let container = store::container(&db, &place.container)?;
    let Some(path) = file else {
        let bar = match stdout().is_terminal() {
            true => ProgressBar::hidden(),
            false => export_bar(&container),
        };
        let mut out = BufWriter::new(stdout().lock());
        write_items(&container, &mut out, &bar, Failure::from)?;
        return Ok(());
    };
    let failed = |error| Failure::file("write", path, &error);
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    let exported = write_items(&container, &mut out, &export_bar(&container), failed)?;
    out.get_ref().sync_all().map_err(failed)?;
    let mut out = stdout().lock();
    match json {
        true => writeln!(out, "{}", json!({ "exported": exported }))?,
        false => writeln!(out, "{} exported", show::counted(exported, "item"))?,
    }
    Ok(())
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
