//! The exchange of digests (check.rs).
//!
//! Invariant: the node that checks judges nobody. It tells all digests to all, and each finds out for itself whether it stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Core, Node};
use crate::calls;
use crate::check::{Checked, CheckedNode, Digested};
use crate::face::{Error, Member};
use crate::machine::body::Body;
use crate::net::Peer;

/// Between two questions for a digest.
const PAUSE: Duration = Duration::from_millis(20);

impl Node {
    /// Compares the states of all nodes now, at one place of the log, and returns when their digests have come. The leader does it
    /// by itself, too ([`NodeOptions::check_every`](crate::NodeOptions::check_every)).
    ///
    /// Each node reads all that it has by a thread beside its work; purges wait for that. A node that does not answer, or has not
    /// applied the place within [`NodeOptions::patience`](crate::NodeOptions::patience), is told as absent and does not stop; one
    /// that was away is compared at the next check.
    /// A node that differs from the one state of more than half of the nodes that vote stops for good, and says so: all its calls
    /// are [`Error::Differs`]. It still stores the log, so that the majority of disks is no smaller.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// let checked = node.check().await?;
    /// assert!(checked.agree() && checked.absent().is_empty());
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of a write.
    pub async fn check(&self) -> Result<Checked, Error> {
        self.shared.0.check().await
    }
}

impl Core {
    pub(super) async fn check(self: &Arc<Core>) -> Result<Checked, Error> {
        let at = self.write(Body::Check).await?.token;
        let mut asking = JoinSet::new();
        for member in self.replica.members() {
            let core = self.clone();
            asking.spawn(async move { core.digest_of(member, at.index).await });
        }
        let mut nodes = asking.join_all().await;
        nodes.sort_by_key(|node| node.id);
        let checked = Checked { at, nodes };
        let told = calls::encode(&checked);
        let mut telling = JoinSet::new();
        for member in self.replica.members() {
            if member.id == self.identity.node {
                continue;
            }
            let (core, told, to) = (self.clone(), told.clone(), peer(&member));
            telling.spawn(async move {
                let ask = core.calls.ask(&to, calls::CHECKED, told, core.patience);
                let _ = ask.await;
            });
        }
        telling.join_all().await;
        self.heard_checked(checked.clone());
        Ok(checked)
    }

    async fn digest_of(&self, member: Member, index: u64) -> CheckedNode {
        let mut deadline = Instant::now() + self.patience;
        let digest = loop {
            let why = match self.ask_digest(&member, index).await {
                Ok(Digested::Done(digest)) => break Ok(digest),
                Ok(Digested::Failed(why)) => break Err(why),
                // It reads as long as it takes.
                Ok(Digested::UnderWay) => {
                    deadline = Instant::now() + self.patience;
                    continue;
                }
                Ok(Digested::Unknown) => "it is behind".to_owned(),
                Err(why) => why,
            };
            if Instant::now() >= deadline {
                break Err(why);
            }
        };
        CheckedNode {
            id: member.id,
            votes: member.votes,
            digest,
        }
    }

    async fn ask_digest(&self, member: &Member, index: u64) -> Result<Digested, String> {
        tokio::time::sleep(PAUSE).await;
        if member.id == self.identity.node {
            return Ok(self.checks.found(index));
        }
        let within = self.patience.min(Duration::from_secs(1));
        let (question, to) = (calls::encode(&index), peer(member));
        let asked = self.calls.ask(&to, calls::DIGEST, question, within);
        let answer = asked.await.map_err(|e| calls::text(&e))?;
        calls::decode(&answer).map_err(|e| e.to_string())
    }

    pub(super) fn heard_checked(&self, checked: Checked) {
        if self.checks.heard(checked, self.identity.node) {
            self.replica.differs();
        }
    }

    /// An error where this node has stopped, for its state is not that of the others, or it is a member no more.
    pub(super) fn serves(&self) -> Result<(), Error> {
        match self.checks.differs() {
            None => self.is_in(),
            Some(index) => Err(Error::Differs {
                node: self.identity.node,
                index,
            }),
        }
    }
}

pub(super) fn peer(member: &Member) -> Peer {
    Peer {
        node: member.id,
        addr: member.addr.clone(),
    }
}
