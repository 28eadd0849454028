//! How a node is, and how the others say they are.
//!
//! Invariant: a survey waits for no leader and changes nothing, so that it tells something when least works.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::checking::peer;
use super::{Core, Node};
use crate::calls;
use crate::face::{Member, Status, Surveyed, Token, Told};

/// A member that works says how it is within this.
pub(super) const WITHIN: Duration = Duration::from_secs(1);

impl Node {
    /// How the node is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.0.status()
    }

    /// How all members are, each by its own word, and this node where it was taken out: in the order of their ids. Waits up to a
    /// second for those that do not answer.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// let [only] = &node.survey().await[..] else { panic!("it is a cluster of one") };
    /// assert!(only.member.leads && only.told.is_ok());
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    pub async fn survey(&self) -> Vec<Surveyed> {
        let mut asking = JoinSet::new();
        let mut members = self.members();
        if self.shared.standing.is_removed() {
            // The members that it knows are those from before.
            members.retain(|member| member.id != self.id());
            members.push(Member {
                id: self.id(),
                addr: self.addr().to_owned(),
                votes: false,
                leads: false,
            });
        }
        for member in members {
            let core = self.shared.0.clone();
            asking.spawn(async move {
                let told = core.told_by(&member).await;
                let speaks = core.speaks(member.id);
                Surveyed {
                    member,
                    told,
                    speaks,
                }
            });
        }
        let mut all = asking.join_all().await;
        all.sort_by_key(|surveyed| surveyed.member.id);
        all
    }
}

impl Core {
    pub(super) fn status(&self) -> Status {
        let (replica, place) = (&self.replica, self.replica.place());
        let id = self.identity.node;
        let trouble = self.serves().err().map(|error| error.to_string());
        let trouble = trouble.or_else(|| replica.failure());
        let trouble = trouble.or_else(|| self.rooms.trouble(replica.is_leading()));
        let trouble = trouble.or_else(|| replica.waits_for().map(|error| error.to_string()));
        let leader = replica.leader().map(|leader| leader.node);
        let members = replica.members();
        let votes = members.iter().any(|member| member.id == id && member.votes);
        Status {
            id,
            cluster: self.identity.cluster,
            addr: self.addr.clone(),
            leader,
            term: replica.term(),
            applied: Token {
                index: place.index,
                at_ms: place.time_ms,
            },
            purged: replica.purged(),
            format: replica.format(),
            speaks: self.speaks,
            is_ready: votes && leader.is_some() && self.is_caught_up() && trouble.is_none(),
            is_removed: self.standing.is_removed(),
            trouble,
            clock_behind_ms: self.clock_behind(),
            disk_free: self.rooms.free(),
            checked: self.checks.last(),
        }
    }

    /// By how much the median of the members' clocks is ahead of the own one.
    pub(super) fn clock_behind(&self) -> Option<i64> {
        let members = self.replica.members().into_iter();
        let members: Vec<u64> = members.map(|member| member.id).collect();
        self.calls
            .clocks()
            .median_ahead(self.identity.node, &members)
    }

    async fn told_by(self: &Arc<Core>, member: &Member) -> Result<Told, String> {
        if member.id == self.identity.node {
            return Ok(Told::of(self.status()));
        }
        let (question, to) = (bytes::Bytes::new(), peer(member));
        let asked = self.calls.ask(&to, calls::STATUS, question, WITHIN);
        let answer = asked.await.map_err(|e| calls::text(&e))?;
        calls::decode(&answer)
            .map_err(|_| "it is of a version that does not say how it is".to_owned())
    }
}
