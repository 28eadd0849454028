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
}

impl ClusterMember {
    /// `leader`, `voter`, or `learner`: it catches up, and does not count for majorities.
    #[must_use]
    pub fn role(&self) -> &'static str {
        match (self.leads, self.votes) {
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
                })
            })
            .collect();
        json!({
            "cluster": self.cluster,
            "node": self.node.to_string(),
            "term": self.term,
            "members": members,
        })
    }
}
