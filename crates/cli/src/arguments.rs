//! What can be said on the command line. Values are checked where they are used, so that a refusal reads the same there
//! and in the library.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A storage engine for data with a deadline: exact expiry on read, disk space given back on time.
#[derive(Parser)]
#[command(
    name = "ebbtide",
    version,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done, 1 not found, 2 wrong use or an error, 3 a demo on a machine too busy for it."
)]
pub struct Arguments {
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Store an item; creates the database and the container where they are missing, but no database among other files
    Put(Put),
    /// Print the value of an item, byte for byte
    Get {
        #[command(flatten)]
        place: Place,
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Delete an item; that there is none is no error
    Delete {
        #[command(flatten)]
        place: Place,
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Restart the countdown of an item
    Touch {
        #[command(flatten)]
        place: Place,
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Print live items in the order of their keys: KEY, tab, VALUE a line
    Scan(Scan),
    /// Show or set what becomes of items without a ttl of their own
    ///
    /// Setting creates the database and the container where they are missing. A change counts at once for every item,
    /// whenever it was written; what is expired already stays gone.
    Ttl {
        #[command(flatten)]
        place: Place,
        /// off: nothing expires; -1: only items with a ttl of their own do; or seconds, 1 to 2147483647
        #[arg(value_name = "off|-1|SECONDS", allow_negative_numbers = true)]
        default: Option<String>,
    },
    /// Store one item for each line of a file, a JSON object
    ///
    /// The value is the object without the members that belong to the item: "ttl", and those that export adds. A bad
    /// line is named by its number and ends the import; the lines before it are stored.
    Import(Import),
    /// Print live items as JSON, one object a line, as import reads them
    Export {
        #[command(flatten)]
        place: Place,
        /// Written anew; without it, standard output
        #[arg(value_name = "FILE.jsonl")]
        file: Option<PathBuf>,
    },
    /// Print the names of the containers
    Containers {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print what a database, or one container of it, holds and takes
    Stats {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        #[arg(value_name = "CONTAINER")]
        container: Option<String>,
    },
    /// Reclaim and merge until nothing is left that could be gained by it
    Compact {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Read and check every byte; each fault is named by its file and offset, on standard output
    Verify {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Leave out what is damaged, and what that may have hidden; each loss is named
    ///
    /// Changes nothing without --yes: then it only says what would be lost, and the exit status is 2. Damaged files are kept
    /// in the folder `lost` of the database, expired and deleted bytes in them too. Make a copy of the folder before.
    Repair {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Make a consistent copy, itself a database, in a folder that is missing or empty
    Checkpoint {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        #[arg(value_name = "TO")]
        to: PathBuf,
    },
    /// Run a session store under load, then watch the disk fall to nothing without a write
    ///
    /// Exit status 2: a promise was broken. 3: it was kept late, but no later than by what the machine did not let the
    /// database's threads run, as Linux accounts for it.
    Demo(Demo),
    /// Play a trace of a real cache against a database, and check every answer
    ///
    /// Each line of the trace is `timestamp,key,key size,value size,client,operation,ttl` in seconds and bytes, as in the
    /// public traces of twitter/cache-trace; ttl 0 is none. Values are made up, keys take the size that is stated.
    ///
    /// get and gets read. set puts. add puts if there is no live item; replace and cas put if there is one. append and
    /// prepend make a live item longer by the value size, incr and decr change it and keep its size; all four keep the
    /// moment at which it expires. delete deletes.
    ///
    /// A bad line is named by its number and ends the replay. A wrong answer makes the exit status 2. Keys of live items
    /// are kept in memory to check by.
    Replay(Replay),
}

/// A container of a database.
#[derive(Args)]
pub struct Place {
    /// The folder of the database
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

#[derive(Args)]
pub struct Put {
    #[command(flatten)]
    pub place: Place,
    #[arg(allow_negative_numbers = true)]
    pub key: String,
    #[arg(allow_negative_numbers = true)]
    pub value: String,
    /// Seconds, 1 to 2147483647, or -1 for never; without it the container's default counts
    #[arg(long, value_name = "SECONDS|-1", allow_hyphen_values = true)]
    pub ttl: Option<String>,
}

#[derive(Args)]
pub struct Scan {
    #[command(flatten)]
    pub place: Place,
    /// Only keys that start with this
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub prefix: Option<String>,
    /// Only keys from this one on
    #[arg(long, value_name = "A", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Only keys before this one
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,
    /// At most so many items
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<usize>,
}

#[derive(Args)]
pub struct Import {
    #[command(flatten)]
    pub place: Place,
    /// - for standard input
    #[arg(value_name = "FILE.jsonl|-")]
    pub file: PathBuf,
    /// The member that holds the key, a string or a number; a line without it may have the one that export writes
    #[arg(long, value_name = "FIELD", default_value = ebbtide_cli::json::KEY)]
    pub key: String,
    /// Name the first twenty bad lines, and go on
    #[arg(long)]
    pub skip_bad: bool,
}

#[derive(Args)]
pub struct Demo {
    /// A missing or empty folder, kept; without it a temporary one, removed at the end
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How long the load lasts, 2 to 86400; below 30, lifetimes shrink with it
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub seconds: u64,
    /// Which keys, values and operations: the same for the same number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args)]
pub struct Replay {
    /// - for standard input
    #[arg(value_name = "FILE.csv|-")]
    pub file: PathBuf,
    /// A missing or empty folder, kept; without it a temporary one, removed at the end
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
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
    /// Bytes of memory for writes before they are flushed, at least 4096
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub memtable: usize,
    /// Seconds of the trace's time for which expired bytes may stay on disk
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    pub reclaim_within: u64,
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
