//! The arguments of the commands on backups.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ebbtide_cli::given;

use super::Home;

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "ebbtide backup [OPTIONS] <DIR> <TO>\n       \
                      ebbtide backup ledger [OPTIONS] <DIR> <TO>\n       \
                      ebbtide backup prove [OPTIONS] <TO>\n       \
                      ebbtide backup prune [OPTIONS] <TO> --keep <N>"
)]
pub struct Backup {
    /// The folder of the database; ./prove for one that is called as a command here is
    #[arg(value_name = "DIR", required = true)]
    pub dir: Option<PathBuf>,
    /// The folder of the backups, or s3://BUCKET/PREFIX, gs://, az:// where the command was built with them
    #[arg(value_name = "TO", required = true)]
    pub to: Option<String>,
    /// How long to wait while another process has the database open and does not listen, before it is read beside that process
    #[arg(long, value_name = "TIME", value_parser = given::span)]
    pub wait: Option<Duration>,
    /// The most bytes a second that are stored (10MB, 64MiB)
    #[arg(long, value_name = "BYTES", value_parser = given::rate)]
    pub rate: Option<u64>,
    /// Leave out tables in which all ends so soon (30m, 1h, 2d): by the next backup
    ///
    /// Where some are left out, a restore of this backup shows nothing that was to end before then.
    #[arg(long, value_name = "TIME", value_parser = given::span)]
    pub skip_ending_within: Option<Duration>,
    #[command(subcommand)]
    pub action: Option<BackupAction>,
}

#[derive(Subcommand)]
pub enum BackupAction {
    /// Store only what ended items as a whole: changed defaults, commands, drops, deleted ranges
    ///
    /// Cheap enough for every few minutes, so that a restore of the last backup brings back nothing that has expired.
    Ledger {
        #[command(flatten)]
        home: Home,
        /// The folder of the backups, or s3://BUCKET/PREFIX, gs://, az:// where the command was built with them
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Restore every backup beside TO, or in the folder for temporary files, and check it, then remove that again
    ///
    /// Says how long ago the oldest byte expired that a backup still holds.
    Prove {
        /// The folder of the backups, or s3://BUCKET/PREFIX, gs://, az:// where the command was built with them
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Remove all but the last backups, and what none of these needs
    ///
    /// Tables in which nothing is left go from backups that stay, too: all in them has expired by the last backup or ledger.
    Prune {
        /// The folder of the backups, or s3://BUCKET/PREFIX, gs://, az:// where the command was built with them
        #[arg(value_name = "TO")]
        to: String,
        /// So many stay, at least 1
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        keep: u64,
        /// Remove the leases of killed processes first; only if you know that nobody is at work in the backups
        #[arg(long)]
        break_lease: bool,
    },
}

#[derive(Args)]
pub struct Restore {
    /// The folder of the backups, or s3://BUCKET/PREFIX, gs://, az:// where the command was built with them
    #[arg(value_name = "FROM")]
    pub from: String,
    /// The folder of the database
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The backup of this number; without it, the last one
    #[arg(long, value_name = "N")]
    pub at: Option<u64>,
    /// Bring back what was expired since by a command or a changed default, and dropped containers
    #[arg(long)]
    pub as_it_was: bool,
    /// The most bytes a second that are read (10MB, 64MiB)
    #[arg(long, value_name = "BYTES", value_parser = given::rate)]
    pub rate: Option<u64>,
}
