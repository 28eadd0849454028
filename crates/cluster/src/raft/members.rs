//! The members of a cluster: a node is a learner until it has caught up, and then votes.
//!
//! Invariant: a node that becomes a member speaks the format of the log, which is not raised meanwhile (`changing`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{ClientWriteError, RaftError};
use openraft::{BasicNode, ChangeMembers, Raft, StoredMembership};

use ebbtide_openraft::Op;

use super::{Replica, Types};
use crate::face::Member;
use crate::machine::body::Body;

/// A change that has no answer for so long holds up the next one no more.
const LONGEST: Duration = Duration::from_secs(20);

/// See the file's head.
pub struct Members(Arc<StoredMembership<u64, BasicNode>>);

impl Members {
    pub fn of(raft: &Raft<Types>) -> Members {
        Members(raft.metrics().borrow().membership_config.clone())
    }

    fn is_voter(&self, id: u64) -> bool {
        self.0.membership().voter_ids().any(|voter| voter == id)
    }

    fn addr(&self, id: u64) -> Option<&str> {
        self.0.membership().get_node(&id).map(|node| &node.addr[..])
    }

    pub fn list(&self, leader: Option<u64>) -> Vec<Member> {
        let members = self.0.membership().nodes().map(|(id, node)| Member {
            id: *id,
            addr: node.addr.clone(),
            votes: self.is_voter(*id),
            leads: leader == Some(*id),
        });
        members.collect()
    }
}

/// The reason why members were not changed.
#[derive(Debug)]
pub enum NotChanged {
    /// The change cannot be.
    Refused(String),
    /// The leader is lost, or says nothing: it may be done, and the next leader knows.
    Lost(String),
}

impl From<String> for NotChanged {
    fn from(why: String) -> NotChanged {
        NotChanged::Refused(why)
    }
}

impl From<RaftError<u64, ClientWriteError<u64, BasicNode>>> for NotChanged {
    fn from(error: RaftError<u64, ClientWriteError<u64, BasicNode>>) -> NotChanged {
        match error.forward_to_leader::<BasicNode>() {
            Some(_) => NotChanged::Lost(error.to_string()),
            None => NotChanged::Refused(error.to_string()),
        }
    }
}

/// Why a node cannot be of a cluster.
pub fn too_old(format: u16, speaks: u16) -> String {
    format!(
        "the log is of format {format}, and the new node speaks formats up to {speaks}: start a newer version"
    )
}

impl Replica {
    /// The index of the last change of members that this node knows, committed or not; 0: it knows none.
    pub fn members_at(&self) -> u64 {
        let log_id = *Members::of(&self.raft).0.log_id();
        log_id.map_or(0, |log_id| log_id.index)
    }

    /// The index of the last change of members, if it is committed and a node is none of them.
    pub fn removed_at(&self, id: u64) -> Option<u64> {
        let members = Members::of(&self.raft);
        let index = members.0.log_id().as_ref()?.index;
        (index <= self.place().index && members.addr(id).is_none()).then_some(index)
    }

    /// Whether this node votes, as far as it knows.
    pub fn is_voter(&self) -> bool {
        Members::of(&self.raft).is_voter(self.id)
    }

    /// Whether a node is a member, or learns to become one.
    pub fn has_member(&self, id: u64) -> bool {
        Members::of(&self.raft).addr(id).is_some()
    }

    /// Whether this node votes and is reached at this address, as far as it knows.
    pub fn is_member_at(&self, addr: &str) -> bool {
        let members = Members::of(&self.raft);
        members.is_voter(self.id) && members.addr(self.id) == Some(addr)
    }

    /// As the leader: makes a node a member that votes, reached at this address. One that is a member already may have moved; one that
    /// is none `speaks` formats of the log up to this.
    pub async fn add(
        &self,
        id: u64,
        addr: &str,
        speaks: Option<u16>,
        within: Duration,
    ) -> Result<(), NotChanged> {
        {
            let _one = self.changing.lock().await;
            let node = BTreeMap::from([(id, BasicNode::new(addr))]);
            let members = Members::of(&self.raft);
            let format = self.format();
            if members.addr(id).is_none() && speaks < Some(format) {
                return Err(too_old(format, speaks.unwrap_or_default()).into());
            }
            if members.addr(id).is_some_and(|known| known != addr) {
                let moved = ChangeMembers::SetNodes(node.clone());
                self.change_members(moved, true).await?;
            }
            if members.is_voter(id) {
                return Ok(());
            }
            let learner = self.raft.add_learner(id, BasicNode::new(addr), false);
            answered(learner).await?;
        }
        // openraft would wait, too, but takes a node that is up to 5 000 entries behind for one that has caught up. Others may change
        // members meanwhile.
        let caught_up = tokio::time::timeout(within, self.catches_up(id)).await;
        caught_up.map_err(|_| format!("the node has not caught up within {within:?}"))??;
        let _one = self.changing.lock().await;
        if Members::of(&self.raft).addr(id).is_none() {
            return Err("it was taken out meanwhile".to_owned().into());
        }
        let voters = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.change_members(voters, true).await
    }

    /// As the leader: waits until a learner has the entries that the log has now.
    async fn catches_up(&self, id: u64) -> Result<(), NotChanged> {
        let lost = |why: &str| NotChanged::Lost(why.to_owned());
        let mut metrics = self.raft.metrics();
        let last = metrics.borrow_and_update().last_log_index;
        loop {
            {
                let metrics = metrics.borrow_and_update();
                let replication = metrics.replication.as_ref();
                let replication = replication.ok_or_else(|| lost("this node leads no more"))?;
                let matched = replication.get(&id).copied().flatten();
                if matched.map(|log_id| log_id.index) >= last {
                    return Ok(());
                }
            }
            let changed = metrics.changed().await;
            changed.map_err(|_| lost("this node is closing"))?;
        }
    }

    /// As the leader: raises the format of the log, unless members are being changed.
    pub async fn raise_format(&self, op: Op<Body>) {
        if let Ok(_one) = self.changing.try_lock() {
            let _ = self.write(op).await;
        }
    }

    /// As the leader: takes a node out.
    pub async fn remove(&self, id: u64) -> Result<(), NotChanged> {
        let _one = self.changing.lock().await;
        let members = Members::of(&self.raft);
        if members.addr(id).is_none() {
            return Ok(());
        }
        if members.is_voter(id) && members.0.membership().voter_ids().count() == 1 {
            return Err("it is the only node that votes".to_owned().into());
        }
        let gone = BTreeSet::from([id]);
        let change = match members.is_voter(id) {
            true => ChangeMembers::RemoveVoters(gone),
            false => ChangeMembers::RemoveNodes(gone),
        };
        self.change_members(change, false).await
    }

    async fn change_members(
        &self,
        change: ChangeMembers<u64, BasicNode>,
        retain: bool,
    ) -> Result<(), NotChanged> {
        answered(self.raft.change_membership(change, retain)).await
    }
}

/// The answer of openraft, which never gives one where a snapshot comes over the change.
async fn answered<T>(
    change: impl Future<Output = Result<T, RaftError<u64, ClientWriteError<u64, BasicNode>>>>,
) -> Result<(), NotChanged> {
    let answer = tokio::time::timeout(LONGEST, change).await;
    let none = || format!("there was no answer within {LONGEST:?}: it may be done");
    answer.map_err(|_| NotChanged::Lost(none()))??;
    Ok(())
}

#[cfg(test)]
impl Replica {
    /// As the leader: makes a node a member that does not vote.
    pub async fn add_learner(&self, id: u64, addr: &str) {
        let added = self.raft.add_learner(id, BasicNode::new(addr), false);
        added.await.expect("this node leads");
    }
}
