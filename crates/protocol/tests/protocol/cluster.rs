//! Nodes, their logs and their leaders: openraft, as far as time depends on it.
//!
//! An election, and a message to a follower with its answer, are one step each. Clocks are not kept: each moment that is drawn
//! is drawn at any of a few walls, so clocks are skewed and leap as they like. What a node's leader draws is drawn from the crate's
//! own `LogTime`, which is made anew for each step from the calls that it has had.

use std::task::{Context, Poll, Waker};

use ebbtide_openraft::{LogTime, NotLeading, RESERVE_MS, ReadTicket, WriteTicket};

use crate::history::{Ask, Item, Shown};
use crate::moments::Moments;
use crate::{ENDS, Rules};

/// Term and node, compared in this order.
pub type LeaderId = (u8, u8);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub leader: LeaderId,
    /// Stamp and until; a blank entry has none.
    pub stamped: Option<(u64, u64)>,
    /// The ticket of its leader's node, and the call that it is of; a tick is of none.
    pub ticket: Option<u8>,
    pub call: Option<(usize, Ask)>,
}

/// Calls of a node's `LogTime`; tickets are numbered as they are drawn, those of writes and of reads apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Leads(u64, u64),
    Quits,
    Writes(u64),
    Reads(u64),
    Applied(u8),
    /// Its proposal has failed, or its leadership is over.
    Drops(u8),
}

/// The crate's `LogTime`, and its tickets.
pub struct Time {
    time: LogTime,
    writes: Vec<Option<WriteTicket>>,
    reads: Vec<Option<ReadTicket>>,
}

impl Time {
    fn after(told: &[Told]) -> Time {
        let mut all = Time {
            time: LogTime::new(),
            writes: vec![],
            reads: vec![],
        };
        for told in told {
            match *told {
                Told::Leads(time, until) => all.time.lead(time, until),
                Told::Quits => all.time.quit(),
                Told::Writes(wall) => all.writes.push(all.time.draw_write(wall).ok()),
                Told::Reads(wall) => all.reads.push(all.time.draw_read(wall).ok()),
                Told::Applied(n) => {
                    let ticket = all.writes[usize::from(n)].take();
                    ticket.into_iter().for_each(WriteTicket::applied);
                }
                Told::Drops(n) => all.writes[usize::from(n)] = None,
            }
        }
        all
    }

    /// None: it is to wait.
    pub fn cleared(&self, read: u8) -> Option<Result<(), NotLeading>> {
        let Some(ticket) = &self.reads[usize::from(read)] else {
            return Some(Err(NotLeading));
        };
        let waits = std::pin::pin!(self.time.cleared(ticket));
        match waits.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }
}

/// A state, after some entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub moments: Moments,
    pub item: Item,
    leader: Option<LeaderId>,
    /// Of the last entry.
    pub value: Option<u8>,
}

impl State {
    pub fn after(entries: &[Entry], rules: &Rules) -> State {
        let mut state = State {
            moments: Moments::default(),
            item: Some((1, ENDS)),
            leader: None,
            value: None,
        };
        entries.iter().for_each(|entry| state.apply(entry, rules));
        state
    }

    fn apply(&mut self, entry: &Entry, rules: &Rules) {
        let stamped = match rules.until {
            true => entry.stamped,
            false => entry.stamped.map(|(stamp, _)| (stamp, 0)),
        };
        self.moments = match rules.leader_ids {
            true => self
                .moments
                .after(self.leader.as_ref(), &entry.leader, stamped),
            false => {
                let term = self.leader.map(|(term, _)| term);
                self.moments.after(term.as_ref(), &entry.leader.0, stamped)
            }
        };
        self.leader = Some(entry.leader);
        if let Some((_, ask)) = entry.call {
            (self.item, self.value) = ask.on(self.item, self.moments.time_ms);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The leader that it follows, or is.
    pub vote: LeaderId,
    pub log: Vec<Entry>,
    /// How many entries are applied.
    pub applied: usize,
    /// Whether openraft's core leads by this vote.
    pub leads: bool,
    pub told: Vec<Told>,
}

impl Node {
    pub fn time(&self) -> Time {
        Time::after(&self.told)
    }

    /// Whether its `LogTime` is leading, which hears later of an end than openraft's core.
    pub fn draws(&self) -> bool {
        self.time().time.is_leading()
    }

    pub fn state(&self, rules: &Rules) -> State {
        State::after(&self.log[..self.applied], rules)
    }

    /// The number of the write that it draws, with stamp and until.
    pub fn draw_write(&mut self, wall: u64) -> (u8, (u64, u64)) {
        self.told.push(Told::Writes(wall));
        let writes = self.time().writes;
        let ticket = writes.last().and_then(Option::as_ref).expect("it leads");
        let stamped = (ticket.stamp_ms, ticket.until_ms);
        (writes.len() as u8 - 1, stamped)
    }

    /// The number of the read that it draws, with its moment and whether that needs a tick.
    pub fn draw_read(&mut self, wall: u64) -> (u8, u64, bool) {
        self.told.push(Told::Reads(wall));
        let reads = self.time().reads;
        let ticket = reads.last().and_then(Option::as_ref).expect("it leads");
        (reads.len() as u8 - 1, ticket.at_ms, ticket.needs_tick)
    }

    /// Its `LogTime` hears of another leadership of the node.
    fn begin_anew(&mut self, rules: &Rules) {
        if self.draws() {
            self.told.push(Told::Quits);
        }
        if !rules.held {
            let drawn = self.time().writes.len() as u8;
            self.told.extend((0..drawn).map(Told::Drops));
        }
    }

    fn last(&self) -> (Option<LeaderId>, usize) {
        (self.log.last().map(|entry| entry.leader), self.log.len())
    }

    fn follow(&mut self, leader: LeaderId) {
        if self.leads && self.vote != leader {
            let waits = |entry: &&Entry| entry.leader == self.vote;
            let tickets = self.log[self.applied..].iter().filter(waits);
            let failed: Vec<u8> = tickets.filter_map(|entry| entry.ticket).collect();
            self.told.extend(failed.into_iter().map(Told::Drops));
            self.leads = false;
        }
        self.vote = leader;
    }
}

/// Three nodes, of which the first leads, with an item of value 1 that all have applied.
pub fn nodes() -> Vec<Node> {
    let leader = (1, 0);
    let entry = |stamped| Entry {
        leader,
        stamped,
        ticket: None,
        call: None,
    };
    let log = vec![entry(None), entry(Some((0, RESERVE_MS)))];
    let node = |n| Node {
        vote: leader,
        log: log.clone(),
        applied: 2,
        leads: n == 0,
        told: if n == 0 {
            vec![Told::Leads(0, RESERVE_MS)]
        } else {
            vec![]
        },
    };
    (0..3).map(node).collect()
}

/// Whether both grant the candidate this id.
pub fn may_elect(candidate: &Node, voter: &Node, id: LeaderId) -> bool {
    id > candidate.vote && id > voter.vote && candidate.last() >= voter.last()
}

pub fn elect(nodes: &mut [Node], candidate: usize, voter: usize, id: LeaderId) {
    for n in [candidate, voter] {
        nodes[n].follow(id);
    }
    nodes[candidate].leads = true;
    nodes[candidate].log.push(Entry {
        leader: id,
        stamped: None,
        ticket: None,
        call: None,
    });
}

/// The leader's log, and how much of it the leader has applied, to a follower.
pub fn send(nodes: &mut [Node], from: usize, to: usize) {
    let (vote, log, applied) = (
        nodes[from].vote,
        nodes[from].log.clone(),
        nodes[from].applied,
    );
    nodes[to].follow(vote);
    nodes[to].log = log;
    nodes[to].applied = nodes[to].applied.max(applied);
}

/// Two of three follow this leader.
pub fn is_followed(nodes: &[Node], leader: usize) -> bool {
    let vote = nodes[leader].vote;
    nodes[leader].leads && nodes.iter().filter(|node| node.vote == vote).count() >= 2
}

/// Whether the leader's next entry is committed: two have it and one of the leader's own that follows it.
pub fn may_apply(nodes: &[Node], leader: usize) -> bool {
    let node = &nodes[leader];
    let next = node.applied..node.log.len();
    node.leads
        && next.into_iter().any(|at| {
            let has_it =
                |other: &&Node| other.vote == node.vote && other.log.get(at) == node.log.get(at);
            node.log[at].leader == node.vote && nodes.iter().filter(has_it).count() >= 2
        })
}

/// Applies the leader's next entry. Returns the answer to its call.
pub fn apply(node: &mut Node, rules: &Rules) -> Option<(usize, Shown)> {
    let entry = node.log[node.applied].clone();
    node.applied += 1;
    let state = node.state(rules);
    if entry.leader != node.vote {
        return None;
    }
    match entry.ticket {
        None => {
            node.begin_anew(rules);
            let Moments { time_ms, until_ms } = state.moments;
            node.told.push(Told::Leads(time_ms, until_ms));
        }
        Some(ticket) => node.told.push(Told::Applied(ticket)),
    }
    entry.call.map(|(call, _)| {
        let shown = Shown {
            value: state.value,
            at: state.moments.time_ms,
            seen: node.applied,
        };
        (call, shown)
    })
}
