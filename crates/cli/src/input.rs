//! Lines of a file or of standard input, counted, with a progress bar on a terminal. Input compressed by gzip is
//! recognized by its first bytes and decompressed.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, stdin};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{self, Failure, Outcome};
use crate::show;

/// The longest line of an item: each byte of a value of 64 MiB as an escape of six, and as much again for its key.
const MAX_LINE: u64 = 512 << 20;

/// How many bad lines are reported in full; more would bury other messages.
const NAMED: u64 = 20;

/// The mark that some editors put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const GZIP: &[u8] = b"\x1f\x8b";

/// The first bytes of input that is not UTF-8 text, what it is, and what converts it to text.
const NOT_TEXT: [(&[u8], &str, &str); 3] = [
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc"),
    (b"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
];

pub struct Lines {
    path: PathBuf,
    input: Box<dyn BufRead>,
    pub bar: ProgressBar,
    line: Vec<u8>,
    number: u64,
    /// Bad lines that were skipped.
    skipped: u64,
}

impl Lines {
    /// Opens a file, or standard input for `-`. Refuses input that, by its first bytes, is neither text nor text
    /// compressed by gzip, and skips a byte order mark.
    pub fn open(path: &Path) -> Outcome<Lines> {
        let (mut input, bar): (Box<dyn BufRead>, _) = if path == Path::new("-") {
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
        let failed = |error| Failure::file("read", path, &error);
        let mut start = first_bytes(&mut input).map_err(failed)?;
        if start.starts_with(GZIP) {
            let compressed = Cursor::new(start).chain(input);
            input = Box::new(BufReader::new(MultiGzDecoder::new(compressed)));
            start = first_bytes(&mut input).map_err(failed)?;
        }
        for (begin, what, tool) in NOT_TEXT {
            if start.starts_with(begin) {
                let path = path.display();
                return Err(Failure::Refused(format!(
                    "{path} is {what}: give the output of `{tool}` to standard input, with - for the file"
                )));
            }
        }
        if start.starts_with(BYTE_ORDER_MARK) {
            start.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Lines {
            path: path.to_owned(),
            input: Box::new(Cursor::new(start).chain(input)),
            bar,
            line: vec![],
            number: 0,
            skipped: 0,
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

    /// Skips a line, and reports why on standard error if it is one of the first.
    pub fn skip(&mut self, number: u64, why: &dyn Display) {
        self.skipped += 1;
        if self.skipped <= NAMED {
            self.bar
                .suspend(|| failure::say(&format_args!("line {number}: {why}")));
        }
    }

    /// Removes the bar and reports the number of bad lines that were not reported; returns how many were skipped in
    /// all.
    pub fn end(&self) -> u64 {
        self.bar.finish_and_clear();
        if self.skipped > NAMED {
            let more = show::counted(self.skipped - NAMED, "more bad line");
            failure::say(&format_args!("{more} left out"));
        }
        self.skipped
    }
}

/// The first bytes, which identify the kind of input.
fn first_bytes(input: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    input.take(4).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}
