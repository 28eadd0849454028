//! Writes: sent to the node that leads, and again until there is an answer or time is over.
//!
//! Invariant: an op keeps its id in each attempt, so that it is done once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebbtide::Clock;
use ebbtide_openraft::{Answer, Op, OpId, Refused};
use tokio::time::{Instant, timeout};

use super::Core;
use super::joining::changed;
use crate::calls::{self, Asked, Change, Changed, WriteQuestion, Written};
use crate::face::{Answered, Error, Token, Transaction};
use crate::machine::body::{Body, Command, Reply};
use crate::raft::{NotChanged, Stop};
use crate::room::Plan;

/// The most writes of a batch or a transaction: each is read and decided alone when it is applied.
const MOST_WRITES: usize = 10_000;
/// The longest op: it goes in one message with others.
const MOST_OP_BYTES: usize = 4 << 20;
/// An attempt that has no answer for so long is made again, for the leader may be gone.
const ATTEMPT: Duration = Duration::from_secs(1);
const NO_TOKEN: &str = "a new node shows a token, which an operator makes";
const PAUSE: Duration = Duration::from_millis(50);

impl<T> From<Result<T, Stop>> for Asked<T> {
    fn from(result: Result<T, Stop>) -> Asked<T> {
        match result {
            Ok(done) => Asked::Done(done),
            Err(Stop::NotLeading) => Asked::NotLeading,
            Err(Stop::Lost(why)) => Asked::Lost(why),
            Err(Stop::Closed) => Asked::Lost("the node is closing".to_owned()),
        }
    }
}

/// The value of a closure of a transaction, the place at which it read, and the op that commits it.
type Attempt<T> = (T, Token, Option<Body>);

impl Core {
    pub(super) fn op(&self, body: Body) -> Op<Body> {
        let id = OpId {
            client: self.client,
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            // Neither too old nor ahead by the log's time, which alone judges it.
            born_ms: self.clock.wall().max(self.replica.place().time_ms),
        };
        Op { id: Some(id), body }
    }

    /// Asks the node that leads, whichever that is, until it has answered or time is over.
    pub(super) async fn ask_leader<T, F>(
        &self,
        within: Duration,
        attempt: impl Fn(Duration) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Asked<T>>,
    {
        let deadline = Instant::now() + within;
        let mut lost = None;
        let mut waits = Error::NoLeader;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_closed.load(Ordering::Relaxed) {
                return Err(lost.map_or(Error::Closed, Error::Unknown));
            }
            if let Err(removed) = self.is_in() {
                return Err(lost.map_or(removed, Error::Unknown));
            }
            if left.is_zero() {
                return Err(lost.map_or(waits, Error::Unknown));
            }
            match attempt(left).await {
                Asked::Done(done) => return Ok(done),
                Asked::NotLeading => {}
                Asked::Lost(why) => lost = Some(why),
                // An attempt without an answer may have done it, and then the leader says so, whatever room it has for others.
                Asked::NoRoom
                | Asked::Full(_)
                | Asked::TooManyCommands(_)
                | Asked::NotSpoken { .. }
                    if lost.is_some() => {}
                Asked::NoRoom => return Err(Error::NoRoom),
                Asked::Full(full) => return Err(full.into()),
                Asked::TooManyCommands(container) => return Err(calls::too_many(container)),
                // All speak it, and the leader is about to raise the format.
                Asked::NotSpoken { format, nodes } if nodes.is_empty() => {
                    waits = Error::NotSpoken { format, nodes };
                }
                Asked::NotSpoken { format, nodes } => {
                    return Err(Error::NotSpoken { format, nodes });
                }
            }
            self.replica.change(PAUSE.min(left)).await;
        }
    }

    /// Does an op, once.
    pub async fn write(&self, body: Body) -> Result<Answered<Reply>, Error> {
        if body.writes() > MOST_WRITES {
            let text = format!(
                "{} writes in one: there are up to {MOST_WRITES}",
                body.writes()
            );
            return Err(Error::Invalid(text));
        }
        self.serves()?;
        let op = self.op(body);
        let question = calls::encode(&op);
        if question.len() > MOST_OP_BYTES {
            return Err(Error::Invalid(format!(
                "a write of {} bytes: it has up to 4 MiB",
                question.len()
            )));
        }
        let was_lost = AtomicBool::new(false);
        let attempt = |left: Duration| {
            let (op, question, was_lost) = (op.clone(), question.clone(), &was_lost);
            async move {
                let asked = self.write_by_leader(op, question, left.min(ATTEMPT)).await;
                was_lost.fetch_or(matches!(asked, Asked::Lost(_)), Ordering::Relaxed);
                asked
            }
        };
        let answer: Answer<Reply> = self.ask_leader(self.patience, attempt).await?;
        self.counts.wrote();
        told(answer, was_lost.into_inner())
    }

    async fn write_by_leader(
        &self,
        op: WriteQuestion,
        question: Bytes,
        within: Duration,
    ) -> Written {
        let Some(leader) = self.replica.leader() else {
            return Asked::NotLeading;
        };
        if leader.node == self.identity.node {
            let written = timeout(within, self.write_here(op)).await;
            return written.unwrap_or_else(|_| silent());
        }
        if let Some(withheld) = self.withheld(leader.node, &op.body) {
            return withheld;
        }
        let calls = &self.calls;
        calls
            .ask_leader(&leader, calls::WRITE, question, within)
            .await
    }

    /// Does an op as the leader.
    pub(super) async fn write_here(&self, op: WriteQuestion) -> Written {
        if !self.replica.is_leading() {
            return Asked::NotLeading;
        }
        match self.rooms.plan() {
            Plan::Write => {}
            Plan::HandOver(_) => return Asked::NotLeading,
            Plan::Refuse => return Asked::NoRoom,
        }
        if let Some(refused) = self.unspoken(&op.body) {
            return refused;
        }
        match self.charge(&op).await {
            Ok(charge) => self.propose(op, charge).await.into(),
            Err(refused) => refused,
        }
    }

    /// A command to a container.
    pub async fn command(&self, container: &str, what: Command) -> Result<Answered<Reply>, Error> {
        let container = container.to_owned();
        self.write(Body::Command { container, what }).await
    }

    /// Changes members by the node that leads.
    pub(super) async fn change(
        self: &Arc<Core>,
        change: Change,
        within: Duration,
    ) -> Result<(), Error> {
        let question = calls::encode(&change);
        let attempt = |left: Duration| {
            let (change, question) = (change.clone(), question.clone());
            async move {
                let Some(leader) = self.replica.leader() else {
                    return Asked::NotLeading;
                };
                if leader.node == self.identity.node {
                    return self.change_here(change).await;
                }
                let calls = &self.calls;
                calls
                    .ask_leader(&leader, calls::CHANGE, question, left)
                    .await
            }
        };
        let done: Result<(), String> = self.ask_leader(within, attempt).await?;
        changed(Asked::Done(done))
    }

    /// Changes members as the leader. A change that has begun goes on when nobody waits for it any more.
    pub(super) async fn change_here(self: &Arc<Core>, change: Change) -> Changed {
        if !self.replica.is_leading() {
            return Asked::NotLeading;
        }
        let core = self.clone();
        let changing = tokio::spawn(async move {
            match change {
                Change::Move { id, .. } if !core.replica.has_member(id) => Ok(()),
                Change::Join {
                    id,
                    addr,
                    within_ms,
                    token,
                } => {
                    if !core.replica.has_member(id) {
                        core.admit(id, &token).await?;
                    }
                    core.add(id, &addr, within_ms).await
                }
                Change::Add { id, .. } if core.joins_by_token && !core.replica.has_member(id) => {
                    Err(NO_TOKEN.to_owned().into())
                }
                Change::Add {
                    id,
                    addr,
                    within_ms,
                }
                | Change::Move {
                    id,
                    addr,
                    within_ms,
                } => core.add(id, &addr, within_ms).await,
                Change::Remove { id } => core.replica.remove(id).await,
                Change::Lead { id } => core.hand_over(id).await.map_err(NotChanged::from),
                Change::Elect => Err("this node leads".to_owned().into()),
            }
        });
        match changing.await {
            Ok(Ok(())) => Asked::Done(Ok(())),
            Ok(Err(NotChanged::Refused(why))) => Asked::Done(Err(why)),
            // The next leader is asked again, which finds what is done as done.
            Ok(Err(NotChanged::Lost(why))) => Asked::Lost(why),
            Err(error) => Asked::Lost(error.to_string()),
        }
    }

    async fn add(self: &Arc<Core>, id: u64, addr: &str, within_ms: u64) -> Result<(), NotChanged> {
        let within = Duration::from_millis(within_ms).min(self.join_within);
        let speaks = match self.replica.has_member(id) {
            true => self.speaks(id),
            false => Some(self.ask_format(id, addr, within).await?),
        };
        self.replica.add(id, addr, speaks, within).await
    }

    /// Lets another node lead: this one falls silent until nobody takes it for the leader, and that one becomes a candidate.
    pub(super) async fn hand_over(&self, to: u64) -> Result<(), String> {
        if to == self.identity.node {
            return Ok(());
        }
        let members = self.replica.members().into_iter();
        let member = members
            .filter(|member| member.votes)
            .find(|member| member.id == to);
        let member = member.ok_or_else(|| format!("{to} is no member that votes"))?;
        let peer = crate::net::Peer {
            node: to,
            addr: member.addr,
        };
        let lease = self.replica.lease();
        let _silent = self.replica.hand_over();
        tokio::time::sleep(lease + lease / 4).await;
        let elect = calls::encode(&Change::Elect);
        for _ in 0..4 {
            let _ = self
                .calls
                .ask(&peer, calls::CHANGE, elect.clone(), lease)
                .await;
            let deadline = Instant::now() + lease;
            while Instant::now() < deadline {
                self.replica.change(PAUSE).await;
                match self.replica.leader() {
                    Some(leader) if leader.node == to => return Ok(()),
                    _ => {}
                }
            }
        }
        Err("it was not elected".to_owned())
    }

    /// Runs the closure of a transaction once.
    pub(super) async fn attempt<T, E, F>(&self, work: Arc<F>) -> Result<Attempt<T>, E>
    where
        F: Fn(&mut Transaction) -> Result<T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let at_ms = self
            .place_of(crate::ReadLevel::Linearizable, Token::default())
            .await?;
        let reader = self.replica.reading();
        let run = move || {
            let mut tx = Transaction::new(reader.view(at_ms));
            let value = work(&mut tx)?;
            let token = Token {
                index: reader.seen(),
                at_ms: tx.at_ms(),
            };
            Ok((value, token, tx.into_body()))
        };
        match tokio::task::spawn_blocking(run).await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::Closed.into()),
        }
    }
}

/// `was_lost`: an earlier attempt had no answer.
fn told(answer: Answer<Reply>, was_lost: bool) -> Result<Answered<Reply>, Error> {
    let token = Token {
        index: answer.index,
        at_ms: answer.at_ms,
    };
    match answer.outcome {
        Ok(reply) => Ok(Answered::new(reply, token)),
        // The log's time has leapt since that attempt, which may have been done before.
        Err(refused @ Refused::TooOld) if was_lost => Err(Error::Unknown(refused.to_string())),
        Err(refused) => Err(Error::Invalid(refused.to_string())),
    }
}

fn silent<T>() -> Asked<T> {
    Asked::Lost("there was no answer in time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_that_comes_too_late_says_nothing_of_the_attempt_before() {
        let answer = || Answer {
            index: 5,
            at_ms: 3_600_000,
            outcome: Err(Refused::TooOld),
        };
        assert!(matches!(told(answer(), true), Err(Error::Unknown(_))));
        assert!(matches!(told(answer(), false), Err(Error::Invalid(_))));
    }
}
