//! A cluster as one of its nodes has found it, alike for the command and for a server's page.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A cluster, as one of its nodes has found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The id of the cluster, 32 hexadecimal digits.
    pub cluster: String,
    /// The id of the node that was asked.
    pub node: u64,
    /// The term of the last election that it knows of.
    pub term: u64,
    /// The format of the log, as far as it has applied it; 0: it does not say.
    #[serde(default)]
    pub format: u16,
    /// The node that was asked lets nobody join without a token.
    #[serde(default)]
    pub joins_by_token: bool,
    /// The members, in the order of their ids.
    pub members: Vec<ClusterMember>,
}

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterMember {
    /// Drawn with its folder.
    pub id: u64,
    /// Where others reach it.
    pub addr: String,
    /// It counts for majorities.
    pub votes: bool,
    /// It leads, as far as the node that was asked knows.
    pub leads: bool,
    /// The index of the last entry that it has applied; none: it did not answer.
    pub applied: Option<u64>,
    /// The reason why it does not answer, waits, or has stopped.
    pub trouble: Option<String>,
    /// Free bytes of its disk.
    pub disk_free: Option<u64>,
    /// The newest format of the log that it speaks; none: the node that was asked has not heard it say so.
    #[serde(default)]
    pub speaks: Option<u16>,
    /// It was taken out, and is asked about itself.
    #[serde(default)]
    pub is_removed: bool,
    /// Its figures, where they were asked for, and it tells them.
    #[serde(default)]
    pub figures: Option<MemberFigures>,
}

/// The figures of a member; counts are since it was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberFigures {
    /// The term of the last election that it knows of.
    pub term: u64,
    /// The time of its own counts, in milliseconds.
    pub uptime_ms: u64,
    /// Ops that its callers had written.
    pub writes: u64,
    /// Reads of its callers; a snapshot is one.
    pub reads: u64,
    /// The time of what it has applied, in milliseconds since 1970.
    pub time_ms: u64,
    /// Items that end within ten seconds; estimated.
    pub ends: u64,
    /// Bytes of its state on disk.
    pub disk_bytes: u64,
    /// Live items of its state; estimated.
    pub live_items: u64,
    /// Bytes of these; estimated.
    pub live_bytes: u64,
    /// By how much ended items have missed the time by which they are off its disk, in milliseconds.
    pub overdue_ms: u64,
}

impl ClusterMember {
    /// `leader`, `voter`, or `learner`: it catches up, and does not count for majorities; `removed`: it was taken out.
    #[must_use]
    pub fn role(&self) -> &'static str {
        match (self.leads, self.votes) {
            _ if self.is_removed => "removed",
            (true, _) => "leader",
            (false, true) => "voter",
            (false, false) => "learner",
        }
    }
}

impl ClusterStatus {
    /// How many entries a member is behind the one that has applied most; none: it did not answer.
    #[must_use]
    pub fn lag(&self, member: &ClusterMember) -> Option<u64> {
        let most = self.members.iter().filter_map(|member| member.applied);
        Some(most.max()?.saturating_sub(member.applied?))
    }

    /// How far the time of what a member has applied is behind that of the newest, in milliseconds; none: it has not told figures.
    #[must_use]
    pub fn behind_ms(&self, member: &ClusterMember) -> Option<u64> {
        let figures = self
            .members
            .iter()
            .filter_map(|member| member.figures.as_ref());
        let newest = figures.map(|figures| figures.time_ms).max()?;
        Some(newest.saturating_sub(member.figures.as_ref()?.time_ms))
    }

    /// As JSON. Ids are strings, for they take all 64 bits.
    #[must_use]
    pub fn json(&self) -> Value {
        let members: Vec<Value> = self
            .members
            .iter()
            .map(|member| {
                json!({
                    "id": member.id.to_string(),
                    "address": member.addr,
                    "role": member.role(),
                    "applied": member.applied,
                    "lag": self.lag(member),
                    "trouble": member.trouble,
                    "disk_free": member.disk_free,
                    "speaks": member.speaks,
                })
            })
            .collect();
        json!({
            "cluster": self.cluster,
            "node": self.node.to_string(),
            "term": self.term,
            "format": self.format,
            "members": members,
        })
    }
}
