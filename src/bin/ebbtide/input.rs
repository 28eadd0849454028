//! Lines of a file or of standard input, counted, with a bar that moves with them when somebody is watching.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, Outcome};

/// The longest line of an item: each byte of a value of 64 MiB as an escape of six, and as much again for its key.
const MAX_LINE: u64 = 512 << 20;

pub struct Lines {
    path: PathBuf,
    input: Box<dyn BufRead>,
    pub bar: ProgressBar,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// `-` is standard input.
    pub fn open(path: &Path) -> Outcome<Lines> {
        let (input, bar): (Box<dyn BufRead>, _) = if path == Path::new("-") {
            let bar = ProgressBar::new_spinner()
                .with_style(style("{spinner} {bytes} {bytes_per_sec} {msg}"));
            (Box::new(BufReader::new(bar.wrap_read(stdin()))), bar)
        } else {
            let file = File::open(path).map_err(|error| Failure::file("open", path, &error))?;
            let len = file.metadata().map_or(0, |metadata| metadata.len());
            let bar = ProgressBar::new(len).with_style(style(
                "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}",
            ));
            let input = BufReader::with_capacity(1 << 20, bar.wrap_read(file));
            (Box::new(input), bar)
        };
        Ok(Lines {
            path: path.to_owned(),
            input,
            bar,
            line: vec![],
            number: 0,
        })
    }

    /// The next line that is not blank, and its number from 1 on.
    pub fn next(&mut self) -> Outcome<Option<(u64, &[u8])>> {
        loop {
            self.line.clear();
            self.number += 1;
            let mut input = (&mut self.input).take(MAX_LINE);
            let read = input.read_until(b'\n', &mut self.line);
            match read.map_err(|error| Failure::file("read", &self.path, &error))? {
                0 => return Ok(None),
                len if len as u64 == MAX_LINE => {
                    let number = self.number;
                    return Err(Failure::Refused(format!(
                        "line {number} is longer than 512 MiB"
                    )));
                }
                _ if self.line.trim_ascii().is_empty() => {}
                _ => return Ok(Some((self.number, &self.line))),
            }
        }
    }

    /// Says on standard error why a line is left out.
    pub fn name_bad(&self, number: u64, why: &dyn Display) {
        self.bar
            .suspend(|| eprintln!("ebbtide: line {number}: {why}"));
    }
}

pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}
