//! The arguments of `ebbtide cluster`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum ClusterAction {
    /// Print the members: what each is, how far it is behind, what troubles it
    ///
    /// Each member reports on itself. For one that does not answer within a second the reason is shown. LAG is the number of
    /// entries of the log that a member has yet to apply.
    #[command(after_help = "Example:\n  ebbtide cluster status data/1")]
    Status {
        /// The folder of a node that runs
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the command that starts a new member
    ///
    /// It is run where the member is to be, with a new folder and an address that the others reach. Without certificates
    /// (--cluster-cert) whoever reaches a node's address can join; with them, whoever has one of the cluster's authority.
    #[command(after_help = "Example:\n  ebbtide cluster add data/1")]
    Add {
        /// The folder of a node that runs
        #[arg(value_name = "DIR")]
        dir: PathBuf,
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
