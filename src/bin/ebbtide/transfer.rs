//! Many items: import and export, one JSON object a line.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write, stdin, stdout};
use std::path::Path;

use ebbtide::{Batch, Container, Database, json};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::arguments::{Import, Place};
use crate::failure::{Failure, Outcome};
use crate::{show, store};

/// A batch is written when it holds so many items or bytes: enough that the turn it takes is shared by many, little
/// enough to lie in memory twice.
const BATCH_ITEMS: usize = 1_000;
const BATCH_BYTES: usize = 8 << 20;

/// The longest line of an item: each byte of a value of 64 MiB as an escape of six, and as much again for its key.
const MAX_LINE: u64 = 512 << 20;

pub fn import(import: &Import, json: bool) -> Outcome {
    let (mut input, bar) = open(&import.file)?;
    let (db, container) = store::create(&import.place)?;
    let mut importer = Importer::new(&db, &container, bar);
    let done = importer.run(&mut *input, import);
    // What was read before a bad line is stored all the same, and the line's message says so.
    importer.write()?;
    importer.bar.finish_and_clear();
    db.close()?;
    done?;
    let (imported, skipped) = (importer.imported, importer.skipped);
    let mut out = stdout().lock();
    if json {
        writeln!(
            out,
            "{}",
            json!({ "imported": imported, "skipped": skipped })
        )?;
    } else {
        write!(out, "{} lines imported", show::count(imported))?;
        match skipped {
            0 => writeln!(out)?,
            _ => writeln!(out, ", {} bad lines skipped", show::count(skipped))?,
        }
    }
    Ok(())
}

/// The lines to read, and a bar that moves with them when somebody is watching.
fn open(path: &Path) -> Outcome<(Box<dyn BufRead>, ProgressBar)> {
    if path == Path::new("-") {
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} {bytes} {bytes_per_sec}"));
        return Ok((Box::new(BufReader::new(bar.wrap_read(stdin()))), bar));
    }
    let file = File::open(path).map_err(|error| Failure::file("open", path, &error))?;
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = ProgressBar::new(len).with_style(style(
        "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    ));
    let input = BufReader::with_capacity(1 << 20, bar.wrap_read(file));
    Ok((Box::new(input), bar))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}

struct Importer<'a> {
    db: &'a Database,
    container: &'a Container,
    bar: ProgressBar,
    batch: Batch,
    batch_bytes: usize,
    imported: u64,
    skipped: u64,
}

impl<'a> Importer<'a> {
    fn new(db: &'a Database, container: &'a Container, bar: ProgressBar) -> Self {
        Importer {
            db,
            container,
            bar,
            batch: Batch::new(),
            batch_bytes: 0,
            imported: 0,
            skipped: 0,
        }
    }

    fn run(&mut self, input: &mut dyn BufRead, import: &Import) -> Outcome {
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            number += 1;
            let read = input.take(MAX_LINE).read_until(b'\n', &mut line);
            let len = read.map_err(|error| Failure::file("read", &import.file, &error))?;
            if len == 0 {
                return Ok(());
            }
            if len as u64 == MAX_LINE {
                return Err(Failure::Refused(format!(
                    "line {number} is longer than 512 MiB"
                )));
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match json::from_json(&line, &import.key) {
                Ok(entry) => self.push(entry)?,
                Err(error) if import.skip_bad => {
                    self.skipped += 1;
                    self.bar
                        .suspend(|| eprintln!("ebbtide: line {number}: {error}"));
                }
                Err(error) => {
                    let before = show::count(self.imported);
                    return Err(Failure::Refused(format!(
                        "line {number}: {error} ({before} lines before it are stored)"
                    )));
                }
            }
        }
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
        false => writeln!(out, "{} items exported", show::count(exported))?,
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
