//! How keys and values are given and shown: as bytes, or as encoded text.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use ebbtide::MAX_VALUE_LEN;

use crate::failure::{Failure, Outcome};

#[derive(Args, Clone, Copy)]
pub struct Form {
    /// Keys and values are base64, as they are given and as they are shown
    ///
    /// Padded, as RFC 4648 has it. Spaces and line breaks in it count for nothing. With --json it is what is given that counts: JSON shows bytes that
    /// are no text in its own way.
    #[arg(long, conflicts_with = "hex")]
    base64: bool,
    /// Keys and values are hexadecimal digits, as given and as shown
    ///
    /// Spaces, line breaks and --json as with --base64.
    #[arg(long)]
    hex: bool,
}

impl Form {
    /// Whether bytes are shown as text.
    pub fn is_text(&self) -> bool {
        self.base64 || self.hex
    }

    /// Decodes a given key.
    pub fn key(&self, given: &OsStr) -> Outcome<Vec<u8>> {
        self.decode("key", given.as_bytes().to_vec())
    }

    /// Reads a given value: the argument itself, standard input (`-`), or a file (`@FILE`).
    pub fn value(&self, given: &OsStr) -> Outcome<Vec<u8>> {
        let bytes = match given.as_bytes() {
            b"-" => self.read_all(stdin().lock(), Path::new("standard input"))?,
            b"@" => {
                return Err(Failure::Refused(
                    "value @ names no file: @FILE for what a file holds, @@ for a value that begins with @"
                        .to_owned(),
                ));
            }
            [b'@', b'@', ..] => given.as_bytes()[1..].to_vec(),
            [b'@', path @ ..] => {
                let path = Path::new(OsStr::from_bytes(path));
                let file = File::open(path).map_err(|error| Failure::file("open", path, &error))?;
                self.read_all(file, path)?
            }
            bytes => bytes.to_vec(),
        };
        self.decode("value", bytes)
    }

    fn read_all(&self, input: impl Read, path: &Path) -> Outcome<Vec<u8>> {
        // Encoded text may be twice as long as its bytes, and have line breaks.
        let longest = MAX_VALUE_LEN << (2 * u32::from(self.is_text()));
        let mut bytes = vec![];
        let read = input.take(longest as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| Failure::file("read", path, &error))?;
        if bytes.len() > longest {
            return Err(Failure::Refused(format!(
                "{} is too long for a value: up to {MAX_VALUE_LEN} bytes (64 MiB)",
                path.display()
            )));
        }
        Ok(bytes)
    }

    fn decode(&self, what: &str, mut given: Vec<u8>) -> Outcome<Vec<u8>> {
        let (encoding, allowed) = match (self.base64, self.hex) {
            (true, _) => (BASE64, "--base64 takes padded base64"),
            (_, true) => (
                HEXLOWER_PERMISSIVE,
                "--hex takes pairs of hexadecimal digits",
            ),
            _ => return Ok(given),
        };
        given.retain(|byte| !byte.is_ascii_whitespace());
        let decoded = encoding.decode(&given);
        decoded.map_err(|error| {
            Failure::Refused(format!("{what} is not allowed: {allowed} ({error})"))
        })
    }

    /// Writes a key or a value in the chosen form.
    pub fn write(&self, out: &mut dyn Write, bytes: &[u8]) -> Outcome {
        match (self.base64, self.hex) {
            (true, _) => out.write_all(BASE64.encode(bytes).as_bytes())?,
            (_, true) => out.write_all(HEXLOWER.encode(bytes).as_bytes())?,
            _ => out.write_all(bytes)?,
        }
        Ok(())
    }
}
