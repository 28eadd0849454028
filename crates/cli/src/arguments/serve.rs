//! The arguments of `ebbtide serve`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub struct Serve {
    /// The folder of the database, made where it is missing
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// A database in memory, gone with the process
    #[arg(long, conflicts_with = "dir")]
    pub temporary: bool,
    /// A node of a cluster, which listens here for the others; without --cluster-cert only on loopback
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "temporary")]
    pub cluster: Option<String>,
    /// The member whose cluster a new folder joins; without it a new folder begins a cluster
    #[arg(long, value_name = "NAME:PORT", requires = "cluster")]
    pub join: Option<String>,
    /// The file with the token by which a new folder joins: `ebbtide cluster token` makes one
    #[arg(long, value_name = "FILE", requires = "join")]
    pub token_file: Option<PathBuf>,
    /// Let new nodes in by a token alone, here and at all other nodes
    #[arg(long, requires = "cluster")]
    pub join_by_token: bool,
    /// Where the others reach the node: where it listens unless given
    #[arg(long, value_name = "NAME:PORT", requires = "cluster")]
    pub advertise: Option<String>,
    /// The certificate that the node shows to the others, in PEM; it names the host of their addresses
    #[arg(
        long,
        value_name = "FILE",
        requires = "cluster_key",
        requires = "cluster_authority"
    )]
    pub cluster_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cluster_cert")]
    pub cluster_key: Option<PathBuf>,
    /// The authorities whose certificates the others show, in PEM
    #[arg(long, value_name = "FILE", requires = "cluster_cert")]
    pub cluster_authority: Option<PathBuf>,
    /// Where to listen: 127.0.0.1:8081 unless given; without --key-file only on loopback
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<String>,
    /// A clock that moves by POST /_clock alone, or the system's
    #[arg(long, value_name = "system|manual")]
    pub clock: Option<String>,
    /// Answer only requests that are signed by the key in this file, in base64
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// A name of the server besides addresses and localhost; again for more
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// HTTPS, by the certificates in this file of PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The private key of the first certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// HTTPS, by a certificate that is made at the start and that clients have to be told to trust
    #[arg(long, conflicts_with = "cert")]
    pub tls_temporary: bool,
    /// Connections at once: 12000 unless given
    #[arg(long, value_name = "NUMBER")]
    pub max_connections: Option<u64>,
    /// No control socket: the other commands cannot change the database meanwhile
    #[arg(long)]
    pub no_control: bool,
    /// How log lines are written, on standard error
    #[arg(long, value_name = "text|json")]
    pub log: Option<String>,
    /// Of which level on
    #[arg(long, value_name = "error|warn|info|debug")]
    pub log_level: Option<String>,
    /// A file of JSON with what these flags say; flags and variables of the environment (EBBTIDE_HTTP) go before it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
