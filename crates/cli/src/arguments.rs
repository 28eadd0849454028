//! The arguments of the command line. Values are checked where they are used, so that an error reads the same there and
//! in the library.

mod backup;
mod cluster;
mod copies;
mod documents;
mod help;
mod load;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use ebbtide_cli::given;

use crate::form::Form;
use crate::table;

pub use backup::{Backup, BackupAction, Restore};
pub use cluster::ClusterAction;
pub use copies::{Changes, Export};
pub use documents::{DocumentAction, DocumentId, DocumentsArgs, MadeContainer};
pub use help::command;
pub use load::{Demo, Replay};
pub use serve::Serve;

const AFTER: &str = "\
`ebbtide COMMAND --help` says more about each command. Times are seconds, or as
in 30m, 7d, 1h30m; sizes are bytes, or as in 10MB, 64MiB.

Exit status: 0 done, 1 not found, 2 wrong use or an error (one line on standard
error says which), 3 a demo on a machine too busy for it.";

/// A storage engine for data with a deadline
///
/// An item is gone for every reader when it expires, and its disk space comes back soon after. DIR is the folder of a
/// database, CONTAINER a named set of items in it, with its own default ttl.
#[derive(Parser)]
#[command(
    name = "ebbtide",
    version,
    arg_required_else_help = true,
    term_width = table::columns(),
    after_help = AFTER
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
    /// Store an item
    ///
    /// Creates the database and the container where they are missing, but no database in a folder that holds other
    /// things.
    Put(Put),
    /// Print the value of an item, byte for byte
    ///
    /// With --json, the item as `export` writes it, and `_remaining`: the seconds until it expires, or null.
    Get(Key),
    /// Print why a key is found or not, and when its bytes leave
    ///
    /// Each stored version of it: where it lies, what ends or hides it. Exit status 1 when nothing is stored of it, or nothing any more.
    Why(Key),
    /// Delete an item; that there is none is no error
    Delete(WrittenKey),
    /// Restart the countdown of an item
    Touch(WrittenKey),
    /// Print live items by their keys: KEY, tab, VALUE a line
    ///
    /// Keys and values are printed byte for byte; --json, --base64 and --hex tell line breaks and tabs in them from those
    /// between them.
    Scan(Scan),
    /// Print the keys of live items, one a line
    Keys(Scan),
    /// Count the live items, all or those of a range of keys
    ///
    /// Exact, and reads each of them; `stats` has an estimate at once.
    Count(Count),
    /// Delete every item of a range of keys, in one step
    ///
    /// At least one of --prefix, --from and --to must say which. Does not ask; says how many they were, up to 100000.
    DeleteRange(DeleteRange),
    /// Delete every item of a container, which stays
    ///
    /// Its default ttl stays too. Asks first, unless --yes is given.
    Clear(Emptied),
    /// Expire items at once, whatever time they had left
    ///
    /// In one step, however many they are; what is written later is not concerned. Nothing brings them back. Says how many
    /// they are and asks first, unless --yes is given; --dry-run only says it.
    Expire(Expire),
    /// Drop a container, with its items and its default ttl
    ///
    /// Asks first, unless --yes is given.
    Drop(Emptied),
    /// Show or set what becomes of items without a ttl of their own
    ///
    /// Setting creates the database and the container where they are missing. A change counts at once for every item,
    /// whenever it was written; what is expired already stays gone. Where it ends items at once, it says how many they are
    /// and asks first, unless --yes is given.
    Ttl {
        #[command(flatten)]
        place: ContainerArgs,
        /// off: nothing expires; -1: only items with a ttl of their own do; or a lifetime (90, 30m, 7d, 1h30m), of 1 to
        /// 2147483647 s
        #[arg(value_name = "off|-1|TIME", allow_negative_numbers = true)]
        default: Option<String>,
        /// Change nothing: say how much this default would end now, and how much others near it
        #[arg(long, requires = "default", conflicts_with = "yes")]
        preview: bool,
        /// Do not ask; needed where items would end at once and there is no terminal to ask on
        #[arg(long, requires = "default")]
        yes: bool,
    },
    /// Show, set or lift the most live bytes that a container may hold
    ///
    /// Expired, deleted and replaced items do not count. Stored items stay, also where they exceed it, which is said.
    Quota {
        #[command(flatten)]
        place: ContainerArgs,
        /// Bytes (7000000, 10MB, 64MiB), from 1 to 2^62; none: no limit
        #[arg(value_name = "BYTES|none")]
        limit: Option<String>,
        /// The effect of a write that would exceed it: refuse, the default, or expire-soonest: expire the items that
        /// end soonest to make room
        #[arg(long, value_name = "refuse|expire-soonest", requires = "limit")]
        when_full: Option<String>,
    },
    /// Store one item for each line of a file, a JSON object
    ///
    /// The value is the object without its "ttl", which becomes the item's; of a line of an export, without all that export
    /// adds. A bad line is named by its number and ends the import; the lines before it are stored. Creates what is missing,
    /// as put does.
    Import(Import),
    /// Print live items as JSON, one object a line, for import
    ///
    /// Each line has the item's key, value and ttl, and when it was written (`_ts_ms`, milliseconds since 1970).
    Export(Export),
    /// Print what has changed since a version, a JSON object a line
    ///
    /// Of each key its newest state: {"change":"put"}, with the item as `export` writes it, or {"change":"delete"}. Before
    /// the keys of a container come, where they changed, its making, its rule of expiry, and ranges that were deleted. The
    /// last line, {"change":"version"}, has the version from which the next call goes on, by --since.
    ///
    /// The end of an item that was told before is not told: its line says when it ends. Deletes and ends are
    /// removed from the disk in time: if some since that version could be missing, the exit status is 2, and the copy is to be made
    /// anew without --since.
    Changes(Changes),
    /// Print the names of the containers
    Containers(Home),
    /// Print what a database, or one container of it, holds and takes
    ///
    /// Of all containers, a table with as many columns as the terminal has room for (80 characters where there is no
    /// terminal); of one container, everything.
    Stats {
        #[command(flatten)]
        home: Home,
        /// One of its containers; without it, all
        #[arg(value_name = "CONTAINER")]
        container: Option<String>,
        /// The contents of the folder, in rows that add up to what `du` says of it
        ///
        /// With a container, its rows. What a running process pins, only that process knows.
        #[arg(long)]
        disk: bool,
    },
    /// Watch what a database or a cluster does
    ///
    /// Beside the process that writes, which neither waits nor knows: rates of writes, log, flushes and merges, live bytes
    /// against disk, containers, the runs of one with what comes back next, the last edits. Not shown is what no file tells:
    /// latencies, stalls, and what a job does at this moment. Keys: q quits, arrows select a container, s sorts, p pauses.
    ///
    /// Of the folder of a node that runs: a row for each node of its cluster, by the word of each about itself. LAG is the number of
    /// entries that it has yet to apply, BEHIND how far the time of what it has applied is behind the newest, WRITES and READS what its own
    /// callers have asked, ENDS an estimate of the items that end within the next ten seconds; LIVE, DISK and OVERDUE are of its state.
    Top(Top),
    /// Write a page that shows what a database is made of
    ///
    /// The ends of its items, its runs, its disk space, its last edits. One file of HTML that needs no network; --text
    /// writes the same as text, which fits into a bug report. It has the names of containers, unless --hide-names is
    /// given, no value, and of keys nothing unless --keys asks for it.
    Report(Report),
    /// Reclaim and merge until nothing more is gained by it
    Compact(Home),
    /// Read and check every byte
    ///
    /// Each fault is named by its file and offset, on standard output; then the exit status is 2.
    Verify(Home),
    /// Leave out what is damaged, and name each loss
    ///
    /// Versions that the damaged parts may have hidden go too: an older version never comes back.
    ///
    /// Changes nothing without --yes: then it only says what would be lost, and the exit status is 2. Damaged files are kept
    /// in the folder `lost` of the database, expired and deleted bytes in them too. Make a copy of the folder before.
    Repair {
        #[command(flatten)]
        home: Home,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Bring a database of an older version of the format to this one
    ///
    /// Writes manifest and log anew; tables stay. Says what it did. Never makes a new database. Make a copy of the folder
    /// before: older builds do not read it any more.
    Upgrade(Home),
    /// Make a consistent copy, itself a database
    ///
    /// In a folder that is missing or empty; with hard links where it can.
    Checkpoint {
        #[command(flatten)]
        home: Home,
        /// The folder of the copy
        #[arg(value_name = "TO")]
        to: PathBuf,
    },
    /// Make a backup: only tables that no earlier one has are stored
    ///
    /// Of a database that is in use as well. TO is a folder, or a store that `ebbtide backup --help` names, one for each
    /// database. `restore` brings back nothing that has expired since: what came after a backup stands in later ones, and in
    /// ledgers.
    Backup(Backup),
    /// Print the backups in a store
    Backups {
        /// The folder or the store of the backups
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Restore a backup into a folder that is missing or empty
    ///
    /// Every byte is checked. Items that have expired since stay gone, also by a command or a changed default, and so
    /// do dropped containers and deleted ranges, as far as a later backup or ledger says. Items that were deleted or
    /// overwritten one by one are as they were.
    Restore(Restore),
    /// Keep and query JSON documents, by the rules of Cosmos DB
    ///
    /// Each has an id, a partition key at a path, and by "ttl" a lifetime in seconds. What is in containers of documents, the
    /// commands on items are not to change.
    Doc {
        #[command(subcommand)]
        action: DocumentAction,
    },
    /// Serve documents on the protocol of Azure Cosmos DB
    ///
    /// Its SDKs create, read, query and follow them, and each ends to the millisecond. Prints the URL when it answers, and
    /// ends at SIGTERM or Ctrl-C. With --temporary --clock manual it is an emulator for tests, which move its clock past a
    /// ttl. A build has it with the feature `serve`.
    ///
    /// With --cluster the folder is that of a node, which shares what it has with the others of its cluster. A build has that
    /// with the feature `cluster`.
    Serve(Box<Serve>),
    /// Print the members of a cluster, and change them
    ///
    /// DIR is the folder of one of its nodes, which runs on this machine by `ebbtide serve DIR --cluster`; any of them will do.
    Cluster {
        #[command(subcommand)]
        action: ClusterAction,
    },
    /// Run a session store under load, then watch its disk empty itself
    ///
    /// Exit status 2: a promise was broken. 3: it was kept late, but no later than by what the machine did not let the
    /// database's threads run, as Linux accounts for it.
    Demo(Demo),
    /// Play a trace of a real cache, and check every answer
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
    /// Print a script that has a shell complete this command
    ///
    /// For bash: `ebbtide completions bash > ~/.local/share/bash-completion/completions/ebbtide`.
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Print the manual page of this, or of one of its commands
    ///
    /// To read one: `ebbtide man put > ebbtide-put.1 && man ./ebbtide-put.1`.
    Man {
        /// One of them; without it, the whole
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
}

/// A database.
#[derive(Args)]
pub struct Home {
    /// The folder of the database
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// How long to wait while another process has the database open
    ///
    /// Where that process listens on its control socket, it does what changes the database, at once. Where it does not: without
    /// this option, or when it still has the database open after that time (20, 1m), what only reads is done beside it, and
    /// says so; else that is an error.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = given::span)]
    pub wait: Option<Duration>,
}

/// A container of a database.
#[derive(Args)]
pub struct ContainerArgs {
    #[command(flatten)]
    pub home: Home,
    /// The name of the container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

/// How a command writes.
#[derive(Args, Clone, Copy)]
pub struct Writing {
    /// Sync each write to the disk before the next one
    ///
    /// Without it all writes are synced once, before the command ends. So it makes a difference to an import, which writes
    /// up to 1000 lines at a time.
    #[arg(long)]
    pub sync: bool,
}

/// An item.
#[derive(Args)]
pub struct Key {
    #[command(flatten)]
    pub place: ContainerArgs,
    /// The key, 1 to 65535 bytes; behind -- where it begins with -
    #[arg(allow_negative_numbers = true)]
    pub key: OsString,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Args)]
pub struct WrittenKey {
    #[command(flatten)]
    pub item: Key,
    #[command(flatten)]
    pub writing: Writing,
}

#[derive(Args)]
pub struct Put {
    #[command(flatten)]
    pub item: Key,
    /// The value, up to 64 MiB; - is what standard input holds, @FILE what a file holds
    ///
    /// Byte for byte, a line break at the end too. @@ stands for an @ that begins a value; one that is a mere - comes by
    /// standard input.
    #[arg(allow_negative_numbers = true)]
    pub value: OsString,
    /// A lifetime (90, 30m, 7d, 1h30m), of 1 to 2147483647 s, or -1 for never; without it the container's default counts
    #[arg(long, value_name = "TIME|-1", allow_hyphen_values = true)]
    pub ttl: Option<String>,
    #[command(flatten)]
    pub writing: Writing,
}

/// A range of keys.
#[derive(Args)]
pub struct Range {
    /// Only keys that start with this
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub prefix: Option<OsString>,
    /// Only keys from this one on
    #[arg(long, value_name = "A", allow_hyphen_values = true)]
    pub from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub to: Option<OsString>,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Args)]
pub struct Scan {
    #[command(flatten)]
    pub place: ContainerArgs,
    #[command(flatten)]
    pub range: Range,
    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,
    /// At most so many items
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<usize>,
}

#[derive(Args)]
pub struct Count {
    #[command(flatten)]
    pub place: ContainerArgs,
    #[command(flatten)]
    pub range: Range,
}

#[derive(Args)]
pub struct DeleteRange {
    #[command(flatten)]
    pub place: ContainerArgs,
    #[command(flatten)]
    pub range: Range,
    #[command(flatten)]
    pub writing: Writing,
}

/// A container that is emptied, or goes.
#[derive(Args)]
pub struct Emptied {
    #[command(flatten)]
    pub place: ContainerArgs,
    /// Do not ask; needed where there is no terminal to ask on
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args)]
#[command(
    group = clap::ArgGroup::new("which").required(true).args(["before", "written_before", "all"]),
    override_usage = "ebbtide expire [OPTIONS] <DIR> <CONTAINER> --before <MOMENT>\n       \
                      ebbtide expire [OPTIONS] <DIR> <CONTAINER> --written-before <MOMENT>\n       \
                      ebbtide expire [OPTIONS] <DIR> <CONTAINER> --all"
)]
pub struct Expire {
    #[command(flatten)]
    pub place: ContainerArgs,
    /// Items that would end before this moment, by their own ttl or the container's default
    ///
    /// A date (2026-03-01, in UTC, or 2026-03-01T12:00:00Z, or 2026-03-01T13:00:00+01:00), seconds since 1970, or a time
    /// from now (-30m, +1h30m, +2d).
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub before: Option<String>,
    /// Items written before this moment, whatever their ttl; a moment that is yet to come is refused
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub written_before: Option<String>,
    /// Every item
    #[arg(long)]
    pub all: bool,
    /// Only say how much it would be
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do not ask; needed where there is no terminal to ask on
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args)]
pub struct Import {
    #[command(flatten)]
    pub place: ContainerArgs,
    /// The file, plain or compressed by gzip; - for standard input
    #[arg(value_name = "FILE.jsonl|-")]
    pub file: PathBuf,
    /// The member that holds the key of objects of your own: a string, a number, or MongoDB's {"$oid": ..}; needed but for
    /// lines of an export
    #[arg(long, value_name = "FIELD")]
    pub key: Option<String>,
    /// The lines are an export's, also where they do not begin as export writes them
    ///
    /// Then `_key`, `_key_base64`, `_ts`, `_ts_ms`, `ttl`, `_ttl_ms`, `_remaining`, `_value` and `_value_base64` belong to the
    /// item. A line that begins with `_key`, `_ts` and `_ts_ms`, as export writes it, is taken for one without this.
    #[arg(long)]
    pub from_export: bool,
    /// Name the first twenty bad lines, and go on
    #[arg(long)]
    pub skip_bad: bool,
    /// Load the lines, which are sorted by key, straight into tables: all at once, or none
    ///
    /// Faster than without it. The bytes of each key are above those of the key before it. All lines take effect together at
    /// the end, also beside items that are there and in their place; a line out of order, or a bad one, is named, and
    /// nothing is stored.
    #[arg(long)]
    pub sorted: bool,
    /// Let each item expire when it would have, had it been written here when its line says
    ///
    /// A line says that by `_ts_ms`, in milliseconds since 1970, or else by `_ts`, in seconds; one without either is bad.
    /// The import keeps the moment at which the item expires, to the millisecond (to the second with `_ts`): by its
    /// ttl, or by the container's default as it is now. Not kept is when it was written: that is the time of the
    /// import. So `touch` restarts what was left, and an item that had no ttl of its own, in a container with a
    /// default, has one then. Items that never expire are stored as without --keep-times; those that have expired
    /// already are stored as expired.
    #[arg(long)]
    pub keep_times: bool,
    #[command(flatten)]
    pub writing: Writing,
}

#[derive(Args)]
pub struct Top {
    /// The folder of the database, or of a node that runs
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print one frame as text, with the rates of an interval of a second at most; of a cluster all columns, or JSON
    #[arg(long)]
    pub once: bool,
    /// The time from one look to the next, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| given::span_within(text, "100ms", "1h"))]
    pub every: Duration,
}

#[derive(Args)]
pub struct Report {
    #[command(flatten)]
    pub home: Home,
    /// Replaced when all is written; without it, or by -, standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Text instead of a page
    #[arg(long)]
    pub text: bool,
    /// How many edits of the manifest are shown, the last ones
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub edits: usize,
    /// Show so many bytes of the first and last keys of tables, in hexadecimal digits; else only how they are ordered
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = given::size)]
    pub keys: u64,
    /// Call containers by numbers, in the order of their names, and leave out where the database is
    #[arg(long)]
    pub hide_names: bool,
}
