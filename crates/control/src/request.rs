//! Requests and answers, as values and as lines of JSON.
//!
//! Keys, values and paths are bytes, in base64; lifetimes are text, as the command line takes them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ebbtide::{DefaultTtl, Quota, Ttl, WhenFull};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cluster::ClusterStatus;
use crate::words;

/// The version of what is said on the socket.
pub const VERSION: u32 = 1;

/// A request to the process that has the database open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// A change of a container: [`Answer::Ended`], or [`Answer::Done`].
    Change {
        /// The container.
        container: String,
        /// The change.
        change: Change,
    },
    /// How much this change would end at once: [`Answer::Ended`].
    Preview {
        /// The container.
        container: String,
        /// The change, which is not made.
        change: Change,
    },
    /// The time and a container's default: [`Answer::State`].
    State {
        /// The container.
        container: String,
    },
    /// A compaction: [`Answer::Compacted`].
    Compact,
    /// A copy in a folder that is missing or empty.
    Checkpoint {
        /// The folder, from the root on.
        #[serde(with = "bytes_of_path")]
        to: PathBuf,
    },
    /// The members of a cluster, of one of its nodes: [`Answer::Cluster`].
    ClusterStatus,
    /// The same with the figures of all members.
    ClusterTop,
    /// Of a node of a cluster: takes the member of this id, or at this address, out.
    ClusterRemove {
        /// A number or `name:port`.
        member: String,
    },
    /// Of a node of a cluster: makes a token by which one new node may join: [`Answer::Token`].
    ClusterToken {
        /// Until it ends.
        seconds: u64,
    },
    /// Of a node of a cluster: lets the member of this id, or at this address, lead.
    ClusterLead {
        /// A number or `name:port`.
        member: String,
    },
}

/// A change of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Change {
    /// Puts items, all or none. Makes the container if it is missing, as [`Change::DefaultTtl`] does.
    Put(Vec<NewItem>),
    /// Deletes an item.
    Delete {
        /// Its key.
        #[serde(with = "base64")]
        key: Vec<u8>,
    },
    /// Restarts an item's countdown: [`Answer::Until`].
    Touch {
        /// Its key.
        #[serde(with = "base64")]
        key: Vec<u8>,
    },
    /// Deletes a range of keys.
    DeleteRange {
        /// The first.
        #[serde(with = "base64")]
        from: Vec<u8>,
        /// The one behind the last; none: to the end.
        to: Option<Key>,
    },
    /// Deletes every item.
    Clear,
    /// Drops the container.
    Drop,
    /// Expires what would end before a moment.
    ExpireBefore(SystemTime),
    /// Expires what was written before a moment.
    ExpireWrittenBefore(SystemTime),
    /// Expires every item.
    ExpireAll,
    /// Sets the default ttl.
    DefaultTtl(DefaultTtl),
    /// Sets or lifts the quota.
    Quota(Option<Quota>),
}

/// An item to be put.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewItem {
    /// Its key.
    #[serde(with = "base64")]
    pub key: Vec<u8>,
    /// Its value.
    #[serde(with = "base64")]
    pub value: Vec<u8>,
    /// Its ttl.
    pub ttl: Ttl,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key(#[serde(with = "base64")] pub Vec<u8>);

impl Request {
    /// A change of a container.
    pub fn change(container: impl Into<String>, change: Change) -> Request {
        let container = container.into();
        Request::Change { container, change }
    }

    /// How much a change would end.
    pub fn preview(container: impl Into<String>, change: Change) -> Request {
        let container = container.into();
        Request::Preview { container, change }
    }

    /// Whether it only looks.
    pub(crate) fn is_look(&self) -> bool {
        use Request::{ClusterStatus, ClusterTop, Preview, State};
        matches!(
            self,
            Preview { .. } | State { .. } | ClusterStatus | ClusterTop
        )
    }

    /// The line by which it is sent.
    pub(crate) fn line(&self) -> serde_json::Result<Vec<u8>> {
        #[derive(Serialize)]
        struct Sent<'a> {
            version: u32,
            request: &'a Request,
        }
        let sent = Sent {
            version: VERSION,
            request: self,
        };
        let mut line = serde_json::to_vec(&sent)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads a line.
    pub(crate) fn parse(line: &[u8]) -> Result<Request, Failed> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Received<'a> {
            version: u32,
            #[serde(borrow)]
            request: &'a RawValue,
        }
        let is_none =
            |error: serde_json::Error| Failed::Refused(format!("this is no request: {error}"));
        let received: Received<'_> = serde_json::from_slice(line).map_err(is_none)?;
        if received.version != VERSION {
            return Err(Failed::Refused(format!(
                "the process that has the database open speaks version {VERSION} of the control socket, and was asked in \
                 version {}: use a command of its own version",
                received.version
            )));
        }
        serde_json::from_str(received.request.get()).map_err(is_none)
    }
}

/// As in the shell, without keys and values.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Change { container, change } => change.fmt_of(container, f),
            Request::Preview { container, change } => {
                change.fmt_of(container, f)?;
                f.write_str(" (preview)")
            }
            Request::State { container } => write!(f, "ttl {container}"),
            Request::Compact => f.write_str("compact"),
            Request::Checkpoint { to } => write!(f, "checkpoint {}", to.display()),
            Request::ClusterStatus => f.write_str("cluster status"),
            Request::ClusterTop => f.write_str("top"),
            Request::ClusterRemove { member } => write!(f, "cluster remove {member}"),
            Request::ClusterToken { .. } => f.write_str("cluster token"),
            Request::ClusterLead { member } => write!(f, "cluster leader {member}"),
        }
    }
}

impl Change {
    fn fmt_of(&self, container: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let utc = ebbtide::shared::utc;
        match self {
            Change::Put(items) => write!(f, "put {container} ({})", items.len()),
            Change::Delete { .. } => write!(f, "delete {container}"),
            Change::Touch { .. } => write!(f, "touch {container}"),
            Change::DeleteRange { .. } => write!(f, "delete-range {container}"),
            Change::Clear => write!(f, "clear {container}"),
            Change::Drop => write!(f, "drop {container}"),
            Change::ExpireBefore(moment) => {
                write!(f, "expire {container} --before {}", utc(*moment))
            }
            Change::ExpireWrittenBefore(moment) => {
                write!(f, "expire {container} --written-before {}", utc(*moment))
            }
            Change::ExpireAll => write!(f, "expire {container} --all"),
            Change::DefaultTtl(default) => write!(f, "ttl {container} {default}"),
            Change::Quota(None) => write!(f, "quota {container} none"),
            Change::Quota(Some(quota)) => {
                write!(f, "quota {container} {}", quota.max_live_bytes)?;
                match quota.when_full {
                    WhenFull::ExpireSoonest => f.write_str(" --when-full expire-soonest"),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// It was done, and there is nothing to say.
    Done,
    /// So much has ended by it, or would end.
    Ended(Ending),
    /// Items were put.
    Put {
        /// Ttl is off in the container.
        is_off: bool,
    },
    /// The item ends then; none: never.
    Until(Option<SystemTime>),
    /// There is no such item.
    NoItem,
    /// The quota was set.
    Quota {
        /// Live bytes of the container, about.
        live_bytes: u64,
    },
    /// The time and a container's default.
    State {
        /// The time by which items are judged.
        now: SystemTime,
        /// The default; none: there is no such container.
        default_ttl: Option<DefaultTtl>,
    },
    /// The figures before and after, as [`figures`](crate::figures) has them.
    Compacted {
        /// Before.
        before: Value,
        /// After.
        after: Value,
    },
    /// The members of a cluster.
    Cluster(ClusterStatus),
    /// A token.
    Token(Secret),
}

/// Text that is shown to the asker alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// How much ends at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Items.
    pub items: u64,
    /// Bytes of them; none: they were not looked at.
    pub bytes: Option<u64>,
    /// The items were counted, and are not an estimate.
    pub is_counted: bool,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes written since the database was opened.
    pub bytes_merged: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of expired items on disk.
    pub expired_bytes: u64,
    /// Bytes of superseded versions on disk.
    pub superseded_bytes: u64,
}

/// Why a request was not done, in words for a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failed {
    /// There is no such item or container.
    NotFound(String),
    /// It is refused, or failed.
    Refused(String),
    /// Too many ask at once.
    Busy,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::NotFound(why) | Failed::Refused(why) => f.write_str(why),
            Failed::Busy => f.write_str(
                "the process that has the database open is busy with other requests: try again",
            ),
        }
    }
}

impl std::error::Error for Failed {}

impl From<ebbtide::Error> for Failed {
    fn from(error: ebbtide::Error) -> Failed {
        Failed::Refused(words::in_words(&error))
    }
}

/// A line from the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is at work.
    Progress(Progress),
    /// The answer.
    Done(Answer),
    /// The other answer.
    Failed(Failed),
}

impl Reply {
    /// Its line.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("an answer has a form");
        line.push(b'\n');
        line
    }
}

mod base64 {
    use data_encoding::BASE64;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&BASE64.encode_display(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64.decode(text.as_bytes()).map_err(D::Error::custom)
    }
}

mod bytes_of_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    use serde::{Deserializer, Serializer};

    use super::{Path, PathBuf, base64};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        base64::serialize(path.as_os_str().as_bytes(), serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let bytes = base64::deserialize(deserializer)?;
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_without_keys_and_values() {
        let item = NewItem {
            key: b"secret".to_vec(),
            value: b"secret".to_vec(),
            ttl: Ttl::Never,
        };
        let key = item.key.clone();
        for change in [
            Change::Put(vec![item]),
            Change::Delete { key: key.clone() },
            Change::Touch { key: key.clone() },
            Change::DeleteRange {
                from: key.clone(),
                to: Some(Key(key)),
            },
        ] {
            let told = Request::change("c", change).to_string();
            assert!(told.contains(" c") && !told.contains("secret"), "{told}");
        }
        let week = DefaultTtl::After(std::time::Duration::from_secs(7 * 86_400));
        let told = Request::change("c", Change::DefaultTtl(week)).to_string();
        assert_eq!(told, "ttl c 7d");
    }

    #[test]
    fn a_request_of_another_version_is_refused_by_its_version() {
        let line = br#"{"version":2,"request":{"of":"another kind"}}"#;
        let why = Request::parse(line).unwrap_err().to_string();
        assert!(
            why.contains("speaks version 1") && why.contains("asked in version 2"),
            "{why}"
        );
    }
}
