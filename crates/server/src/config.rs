//! How a server is configured.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::limits::CONNECTIONS;

/// The configuration of a server. As a file it is JSON with these members, all of which may be left out.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Config {
    /// The folder of the database; none with `temporary`.
    pub dir: Option<PathBuf>,
    /// A database in memory, gone with the process.
    pub temporary: bool,
    /// Where a node of a cluster listens for the others; none: the folder is a database of its own. Without `cluster-cert` only on
    /// loopback.
    pub cluster: Option<SocketAddr>,
    /// Where the others reach the node, `name:port`; none: where it listens.
    pub advertise: Option<String>,
    /// A member of the cluster that a new folder joins, `name:port`; none: it begins a cluster of its own.
    pub join: Option<String>,
    /// A file with the token that a new folder shows to join.
    pub token_file: Option<PathBuf>,
    /// Whether a new node is let in by a token alone; the same at all nodes.
    pub join_by_token: bool,
    /// The certificate that the node shows to the others, in PEM.
    pub cluster_cert: Option<PathBuf>,
    /// Its private key, in PEM.
    pub cluster_key: Option<PathBuf>,
    /// The authorities whose certificates the others show, in PEM.
    pub cluster_authority: Option<PathBuf>,
    /// Where to listen. Without `key-file` or by HTTP alone, only on loopback.
    pub http: SocketAddr,
    /// Whose time it is.
    pub clock: ClockKind,
    /// A file with the account's key in base64, by which requests have to be signed.
    pub key_file: Option<PathBuf>,
    /// Names of the server besides addresses and localhost.
    pub hosts: Vec<String>,
    /// The certificates of HTTPS, in PEM.
    pub cert: Option<PathBuf>,
    /// The private key of the first certificate, in PEM.
    pub key: Option<PathBuf>,
    /// HTTPS by a certificate that is made at the start.
    pub tls_temporary: bool,
    /// Connections at once.
    pub max_connections: usize,
    /// Whether the command `ebbtide` may change the database meanwhile, by its control socket.
    pub control: bool,
    /// How log lines are written.
    pub log: LogFormat,
    /// Of which level on.
    pub log_level: LogLevel,
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockKind {
    /// The system's.
    #[default]
    System,
    /// It begins with the system's, and moves by `POST /_clock` alone.
    Manual,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// The levels of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// And what is not as it should be.
    Warn,
    /// And when it starts and ends.
    #[default]
    Info,
    /// And each request.
    Debug,
}

/// The members of a file.
fn members(path: &Path) -> Result<Map<String, Value>, ServeError> {
    let fails = |error: &dyn fmt::Display| ServeError::new(format!("{}: {error}.", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fails(&error))?;
    serde_json::from_str(&text).map_err(|error| fails(&error))
}

/// The member that a variable of the environment is, if it is one.
fn of_environment(name: &str, text: &str) -> Option<(String, Value)> {
    let member = name
        .strip_prefix("EBBTIDE_")?
        .to_lowercase()
        .replace('_', "-");
    let value = match member.as_str() {
        "hosts" => text.split(',').map(str::trim).collect(),
        "temporary" | "tls-temporary" | "control" | "max-connections" | "join-by-token" => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        }
        "dir" | "http" | "clock" | "key-file" | "cert" | "key" | "log" | "log-level"
        | "cluster" | "advertise" | "join" | "token-file" | "cluster-cert" | "cluster-key"
        | "cluster-authority" => Value::from(text),
        _ => return None,
    };
    Some((member, value))
}

impl Default for Config {
    fn default() -> Config {
        Config {
            dir: None,
            temporary: false,
            cluster: None,
            advertise: None,
            join: None,
            token_file: None,
            join_by_token: false,
            cluster_cert: None,
            cluster_key: None,
            cluster_authority: None,
            http: SocketAddr::from(([127, 0, 0, 1], 8081)),
            clock: ClockKind::default(),
            key_file: None,
            hosts: Vec::new(),
            cert: None,
            key: None,
            tls_temporary: false,
            max_connections: CONNECTIONS,
            control: true,
            log: LogFormat::default(),
            log_level: LogLevel::default(),
        }
    }
}

impl Config {
    /// The configuration of a file of JSON.
    ///
    /// # Errors
    /// The file cannot be read, or has other members.
    pub fn from_file(path: &Path) -> Result<Config, ServeError> {
        Config::assemble(Some(path), std::iter::empty(), Map::new())
    }

    /// The configuration that a file, the environment and flags make together: each goes before those to its left. Flags
    /// are members as a file has them; the variable of `max-connections` is `EBBTIDE_MAX_CONNECTIONS`, and that of `hosts`
    /// has commas between them.
    ///
    /// # Errors
    /// Those of [`Config::from_file`], and a value that is none of its member.
    pub fn assemble(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: Map<String, Value>,
    ) -> Result<Config, ServeError> {
        let mut members = match file {
            Some(path) => members(path)?,
            None => Map::new(),
        };
        members.extend(environment.filter_map(|(name, text)| of_environment(&name, &text)));
        members.extend(flags);
        serde_json::from_value(Value::Object(members))
            .map_err(|error| ServeError::new(format!("The configuration: {error}.")))
    }

    /// Refuses what would leave the data open to others, and what contradicts itself.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        if self.dir.is_none() != self.temporary {
            return Err(ServeError::new(
                "A server has either a folder or --temporary.",
            ));
        }
        if self.key_file.is_none() && !self.http.ip().is_loopback() {
            let message = format!(
                "{} is not of this machine alone: requests have to be signed, by --key-file.",
                self.http.ip()
            );
            return Err(ServeError::new(message));
        }
        self.check_cluster()
    }

    fn check_cluster(&self) -> Result<(), ServeError> {
        let tls = [
            &self.cluster_cert,
            &self.cluster_key,
            &self.cluster_authority,
        ];
        let given = tls.iter().filter(|file| file.is_some()).count();
        let Some(address) = self.cluster else {
            let is_bare = given == 0
                && self.join.is_none()
                && self.token_file.is_none()
                && !self.join_by_token
                && self.advertise.is_none();
            return is_bare.then_some(()).ok_or_else(|| {
                let message = "--join, --advertise, tokens and the certificates of a cluster are for a node: \
                               where it listens says --cluster.";
                ServeError::new(message)
            });
        };
        let message = if self.temporary || self.clock == ClockKind::Manual {
            "A node of a cluster has a folder and the system's clock.".to_owned()
        } else if address.port() == 0 {
            "The others have to find the node again: --cluster takes a port that stays.".to_owned()
        } else if given != 0 && given != tls.len() {
            "Nodes show each other certificates by all of --cluster-cert, --cluster-key and \
             --cluster-authority, or by none."
                .to_owned()
        } else if given == 0 && !address.ip().is_loopback() {
            format!(
                "{} is not of this machine alone: nodes have to show certificates, by --cluster-cert, \
                 --cluster-key and --cluster-authority.",
                address.ip()
            )
        } else if address.ip().is_unspecified() && self.advertise.is_none() {
            format!(
                "The others do not reach the node at {}: --advertise says where.",
                address.ip()
            )
        } else {
            return Ok(());
        };
        Err(ServeError::new(message))
    }
}

/// A server that cannot be started: one plain sentence.
#[derive(Debug)]
pub struct ServeError(String);

impl ServeError {
    pub(crate) fn new(message: impl Into<String>) -> ServeError {
        ServeError(message.into())
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_members_that_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.json");
        std::fs::write(&path, r#"{"dir": "data", "http": "127.0.0.1:9000", "clock": "manual", "log": "json", "max-connections": 5}"#).unwrap();
        let config = Config::from_file(&path).unwrap();
        assert_eq!(
            (
                config.http.port(),
                config.clock,
                config.log,
                config.max_connections
            ),
            (9000, ClockKind::Manual, LogFormat::Json, 5)
        );
        assert!(config.check().is_ok());
        std::fs::write(&path, r#"{"dirs": "data"}"#).unwrap();
        assert!(
            Config::from_file(&path)
                .unwrap_err()
                .to_string()
                .contains("dirs")
        );
    }

    #[test]
    fn flags_go_before_the_environment_and_it_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.json");
        std::fs::write(
            &path,
            r#"{"dir": "of-file", "max-connections": 1, "clock": "manual"}"#,
        )
        .unwrap();
        let environment = |pairs: &[(&str, &str)]| {
            let own = pairs
                .iter()
                .map(|(name, text)| (name.to_string(), text.to_string()));
            own.collect::<Vec<_>>().into_iter()
        };
        let given = environment(&[
            ("EBBTIDE_MAX_CONNECTIONS", "2"),
            ("EBBTIDE_HOSTS", "a.example, b.example"),
            ("EBBTIDE_REWRITE", "1"),
            ("HOME", "x"),
        ]);
        let flags = serde_json::json!({"dir": "of-flags"})
            .as_object()
            .unwrap()
            .clone();
        let config = Config::assemble(Some(&path), given, flags).unwrap();
        assert_eq!(config.dir.as_deref(), Some(Path::new("of-flags")));
        assert_eq!(
            (config.max_connections, config.clock),
            (2, ClockKind::Manual)
        );
        assert_eq!(config.hosts, ["a.example", "b.example"]);
        for (name, text) in [
            ("EBBTIDE_MAX_CONNECTIONS", "many"),
            ("EBBTIDE_HTTP", "here"),
            ("EBBTIDE_TEMPORARY", "perhaps"),
        ] {
            assert!(
                Config::assemble(None, environment(&[(name, text)]), Map::new()).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn unsigned_requests_are_taken_from_this_machine_alone() {
        let at = |http: &str, key_file: Option<&str>| {
            let config = Config {
                temporary: true,
                http: http.parse().unwrap(),
                key_file: key_file.map(PathBuf::from),
                ..Config::default()
            };
            config.check().is_ok()
        };
        assert!(at("127.0.0.1:0", None) && at("[::1]:0", None) && at("0.0.0.0:0", Some("key")));
        assert!(!at("0.0.0.0:0", None) && !at("192.0.2.1:80", None) && !at("[::]:0", None));
        let node = |cluster: &str, with_certificates: bool| {
            let file = || with_certificates.then(|| PathBuf::from("pem"));
            let config = Config {
                dir: Some("data".into()),
                cluster: Some(cluster.parse().unwrap()),
                cluster_cert: file(),
                cluster_key: file(),
                cluster_authority: file(),
                ..Config::default()
            };
            config.check().is_ok()
        };
        assert!(node("127.0.0.1:7421", false) && node("192.0.2.1:7421", true));
        assert!(!node("192.0.2.1:7421", false) && !node("127.0.0.1:0", false));
        assert!(!node("0.0.0.0:7421", true), "nobody is reached there");
        let both = Config {
            temporary: true,
            dir: Some("data".into()),
            ..Config::default()
        };
        assert!(both.check().is_err() && Config::default().check().is_err());
        let no_node = Config {
            dir: Some("data".into()),
            join: Some("127.0.0.1:7421".to_owned()),
            ..Config::default()
        };
        assert!(no_node.check().is_err());
    }
}
