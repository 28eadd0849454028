//! The arguments of `ebbtide cluster`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use ebbtide_cli::given;

#[derive(Subcommand)]
pub enum ClusterAction {
    /// Print the members: what each is, how far it is behind, what troubles it
    ///
    /// Each member reports on itself. For one that does not answer within a second the reason is shown. LAG is the number of
    /// entries of the log that a member has yet to apply, SPEAKS the newest format of the log that its version speaks: the log comes
    /// to a later format by itself when all members speak it.
    #[command(after_help = "Example:\n  ebbtide cluster status data/1")]
    Status {
        /// The folder of a node that runs
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the command that starts a new member
    ///
    /// It is run where the member is to be, with a new folder and an address that the others reach. Without certificates
    /// (--cluster-cert) whoever reaches a node's address can join; with them, whoever has one of the cluster's authority. Nodes that
    /// are started with --join-by-token ask for a token, too: `ebbtide cluster token`.
    #[command(after_help = "Example:\n  ebbtide cluster add data/1")]
    Add {
        /// The folder of a node that runs
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print a token by which one new member may join
    ///
    /// It is a secret, which the new node is given in a file: `ebbtide serve NEW_DIR --cluster ... --join ... --token-file FILE`. The
    /// cluster keeps no more than its digest. Where nodes are started with --join-by-token nobody joins without one.
    #[command(after_help = "Example:\n  ebbtide cluster token data/1 > token")]
    Token {
        /// The folder of a node that runs
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// It ends after this time (90, 30m, 7d): 1s to 30d
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = given::token_life)]
        lasts: Duration,
    },
    /// Take a member out of the cluster, for good
    ///
    /// Its folder cannot come back: let a new folder join instead. From then on majorities are counted without it.
    #[command(after_help = "Example:\n  ebbtide cluster remove data/1 127.0.0.1:7423")]
    Remove {
        /// The folder of a node that runs
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Its id or its address, as `status` prints them
        #[arg(value_name = "MEMBER")]
        member: String,
    },
    /// Print the member that leads, or let another one lead
    ///
    /// Exit status 1: none leads. Writes wait while the leader changes, for about a second.
    #[command(after_help = "Example:\n  ebbtide cluster leader data/1 127.0.0.1:7422")]
    Leader {
        /// The folder of a node that runs
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// The one that is to lead: its id or its address, as `status` prints them
        #[arg(value_name = "MEMBER")]
        member: Option<String>,
    },
}
