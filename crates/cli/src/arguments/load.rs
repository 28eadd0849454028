//! The arguments of what runs a load: the demo, and the replay of a trace.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ebbtide_cli::given;

#[derive(Args)]
pub struct Demo {
    /// A missing or empty folder, kept; without it a temporary one, removed at the end
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How long the load lasts (30, 2m), 2 to 86400 s; below 30 s, lifetimes shrink with it
    #[arg(long, value_name = "TIME", default_value = "30", value_parser = |text: &str| given::seconds_within(text, 2..=86_400))]
    pub seconds: u64,
    /// The choice of keys, values and operations: the same for the same number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args)]
pub struct Replay {
    /// The trace, plain or compressed by gzip; - for standard input
    #[arg(value_name = "FILE.csv|-")]
    pub file: PathBuf,
    /// A missing or empty folder, kept; without it a temporary one, removed at the end
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The name of the container that is made
    #[arg(long, value_name = "NAME", default_value = "cache")]
    pub container: String,
    /// How many times as fast as it happened, 1 to 1000000; 0 or max: as fast as it goes
    ///
    /// As fast as it goes, the database's clock follows the trace, so that lifetimes and hits are exactly the trace's;
    /// but reclaiming has less time than it would have had. With a factor the clock is real, and lifetimes and
    /// --reclaim-within are divided by the factor, to the millisecond.
    #[arg(
        long,
        value_name = "FACTOR",
        default_value = "max",
        allow_hyphen_values = true
    )]
    pub speed: String,
    /// At most so many operations
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Memory for writes before they are flushed, at least 4096 bytes
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = given::size)]
    pub memtable: u64,
    /// For how much of the trace's time expired bytes may stay on disk
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = given::span)]
    pub reclaim_within: Duration,
    /// Let each get that misses put an item of its line's value size and ttl, if it states a size
    ///
    /// For traces that hold reads alone. Where the puts that followed a miss are lines of the trace, they would be done
    /// twice.
    #[arg(long)]
    pub fill_on_miss: bool,
    /// Name the first twenty bad lines, and go on
    #[arg(long)]
    pub skip_bad: bool,
}
