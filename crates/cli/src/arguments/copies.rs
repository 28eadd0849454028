//! The arguments of what keeps others up to date: changes, and exports.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ebbtide_cli::given;

use super::{ContainerArgs, Home};

#[derive(Args)]
pub struct Changes {
    #[command(flatten)]
    pub home: Home,
    /// One of its containers; without it, all
    #[arg(value_name = "CONTAINER")]
    pub container: Option<String>,
    /// Only what has changed since this version, which the last line of an earlier call has
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    pub since: u64,
    /// Go on with what changes from now on, until the reader leaves
    ///
    /// Beside the process that writes, which neither waits nor knows. A pass in which something has changed ends with a line
    /// of its version. Where some deletes are known no more, a line {"change":"anew"} says that all that was told before
    /// is to be forgotten, and everything follows.
    #[arg(long)]
    pub follow: bool,
    /// The time from one look to the next with --follow, 10ms to 1h
    #[arg(long, value_name = "TIME", default_value = "200ms", requires = "follow", value_parser = |text: &str| given::span_within(text, "10ms", "1h"))]
    pub every: Duration,
}

#[derive(Args)]
pub struct Export {
    #[command(flatten)]
    pub place: ContainerArgs,
    /// Replaced when all is written, and left as it is by an export that fails; without it, or by -, standard output
    #[arg(value_name = "FILE.jsonl")]
    pub file: Option<PathBuf>,
    /// Instead of lines, bring an analytical copy in this folder up to date: Parquet files, with what has changed since
    /// the last run
    ///
    /// A row for each put and each delete that a run meets: key, value, written_at, expires_at, version, run, deleted.
    /// Of the rows of a key that of the highest run counts. The guide has more, on its page of analytical copies.
    #[arg(long, value_name = "OUT", conflicts_with = "file")]
    pub parquet: Option<PathBuf>,
    /// How long a row is kept after it was written, whatever its ttl: -1 for good; off removes all rows. Needed once
    #[arg(
        long,
        value_name = "off|-1|TIME",
        requires = "parquet",
        allow_hyphen_values = true
    )]
    pub retention: Option<String>,
    /// Folders of a day, the default, or of an hour, by the time of writing (UTC)
    #[arg(long, value_name = "day|hour", requires = "parquet")]
    pub partition: Option<String>,
    /// Keys are text, in UTF-8
    #[arg(long, requires = "parquet")]
    pub utf8_keys: bool,
    /// Values are text, in UTF-8
    #[arg(long, requires = "parquet")]
    pub utf8_values: bool,
}
