//! The state of a copy: a line of JSON, and a line with its checksum.
//!
//! ```text
//! {"format":1,"container":"sessions","database":81985529216486895,"partition":"day", ... ,"version":17,"run":3,"files":[{"path":"date=...", ...}]}
//! 5f0e6b2a8c3d4e1f      XXH3 of the bytes of the first line, 64 bits
//! ```
//!
//! Files stand in the order of their runs.

use std::time::Duration;

use ebbtide::{DefaultTtl, ExpiryRule};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{Error, Result, Settings};

const FORMAT: u32 = 1;

/// The folders that a copy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partition {
    /// `date=2026-11-25`.
    #[default]
    Day,
    /// `date=2026-11-25/hour=10`.
    Hour,
}

impl Partition {
    /// Its length, in milliseconds.
    pub fn millis(self) -> u64 {
        match self {
            Partition::Day => 86_400_000,
            Partition::Hour => 3_600_000,
        }
    }
}

/// See the file's head.
#[derive(Serialize, Deserialize)]
pub struct State {
    format: u32,
    container: String,
    /// [`Database::identity`](ebbtide::Database::identity) of the database of which it is a copy, where that is known.
    #[serde(default)]
    database: Option<u64>,
    pub partition: Partition,
    pub utf8_keys: bool,
    pub utf8_values: bool,
    #[serde(with = "retention")]
    pub retention: DefaultTtl,
    /// All up to here is in the copy; 0: nothing is.
    pub version: u64,
    /// How many runs there were.
    pub run: u64,
    /// The time of the last run, in milliseconds since 1970; it never falls.
    pub time_ms: u64,
    /// By which rule the copy's ends were told.
    pub rule: Option<ExpiryRule>,
    pub files: Vec<File>,
}

/// A file of the copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// In the folder of the copy.
    pub path: String,
    pub rows: u64,
    pub bytes: u64,
    /// The highest time of writing in it, in milliseconds since 1970.
    pub written_max: u64,
}

impl State {
    /// The state that a run of this container of a database of this identity begins with.
    pub fn next(
        before: Option<State>,
        database: Option<u64>,
        container: &str,
        settings: &Settings,
    ) -> Result<State> {
        let mut state = match before {
            Some(state) => state,
            None => State {
                format: FORMAT,
                container: container.to_owned(),
                database: None,
                partition: settings.partition.unwrap_or_default(),
                utf8_keys: settings.utf8_keys,
                utf8_values: settings.utf8_values,
                retention: settings.retention.ok_or_else(|| {
                    Error::new("how long are rows kept? --retention off, -1 (for good) or a time such as 90d; the runs after this keep to it")
                })?,
                version: 0,
                run: 0,
                time_ms: 0,
                rule: None,
                files: vec![],
            },
        };
        let out = settings.out.display();
        if state.container != container {
            let of = &state.container;
            return Err(Error::new(format!("{out} is a copy of container {of:?}")));
        }
        if let (Some(of), Some(given)) = (state.database, database)
            && of != given
        {
            return Err(Error::new(format!(
                "{out} is a copy of a container {container:?} of another database, whose versions are not those of this one: \
                 give that database or a copy of it, or make a new copy in another folder"
            )));
        }
        state.database = state.database.or(database);
        let is_other = settings.partition.is_some_and(|to| to != state.partition)
            || settings.utf8_keys && !state.utf8_keys
            || settings.utf8_values && !state.utf8_values;
        if is_other {
            return Err(Error::new(format!(
                "{out} was begun with another --partition, --utf8-keys or --utf8-values: these stay"
            )));
        }
        state.retention = settings.retention.unwrap_or(state.retention);
        state.run += 1;
        Ok(state)
    }

    /// Whether what was written then is past the retention.
    pub fn is_past(&self, written_at: u64) -> bool {
        match self.retention {
            DefaultTtl::After(kept) => {
                written_at.saturating_add(kept.as_millis() as u64) <= self.time_ms
            }
            DefaultTtl::NoDefault => false,
            _ => true,
        }
    }

    /// Leaves out the files all of whose rows are past it; with retention off the copy is as if it had never been.
    pub fn forget_past(&mut self) {
        let files = std::mem::take(&mut self.files);
        let kept = files
            .into_iter()
            .filter(|file| !self.is_past(file.written_max));
        self.files = kept.collect();
        if self.retention == DefaultTtl::Off {
            (self.version, self.rule, self.database) = (0, None, None);
        }
    }

    pub fn encode(&self) -> String {
        let line = serde_json::to_string(self).expect("numbers and names");
        let sum = XxHash3_64::oneshot(line.as_bytes());
        format!("{line}\n{sum:016x}\n")
    }

    /// Reads the text that [`State::encode`] made; the error says what is wrong.
    pub fn decode(text: &str) -> std::result::Result<State, String> {
        let (line, sum) = text.split_once('\n').ok_or("it has one line")?;
        let expected = format!("{:016x}\n", XxHash3_64::oneshot(line.as_bytes()));
        if sum != expected {
            return Err("its checksum is another".to_owned());
        }
        let state: State = serde_json::from_str(line).map_err(|error| error.to_string())?;
        match state.format {
            FORMAT => Ok(state),
            other => Err(format!(
                "its format is {other}, and this build knows {FORMAT}"
            )),
        }
    }
}

/// A retention as `null` (off), -1 (for good) or seconds.
mod retention {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        of: &DefaultTtl,
        to: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let seconds = match of {
            DefaultTtl::After(kept) => Some(kept.as_secs() as i64),
            DefaultTtl::NoDefault => Some(-1),
            _ => None,
        };
        seconds.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> std::result::Result<DefaultTtl, D::Error> {
        Ok(match Option::<i64>::deserialize(from)? {
            None => DefaultTtl::Off,
            Some(seconds @ 0..) => DefaultTtl::After(Duration::from_secs(seconds as u64)),
            Some(_) => DefaultTtl::NoDefault,
        })
    }
}
