//! Goal: no answer of any leader goes back in time, shows what has ended, or has no place in the log, in every order in which
//! nodes, messages and clients can take their steps; and each rule of the protocol is needed for it.
//!
//! Method: a model checker ([stateright](https://docs.rs/stateright)) plays all histories of three nodes, a change of leader, one
//! write and two reads, which draw from the crate's own `LogTime` and apply by its own `moments.rs`. Then each rule is broken, and
//! the checker must find a history that shows it.

mod cluster;
mod history;
#[path = "../../../openraft/src/moments.rs"]
mod moments;

use std::fmt::Debug;

use ebbtide_openraft::RESERVE_MS;
use stateright::{Checker, HasDiscoveries, Model, Property};

use cluster::{Entry, LeaderId, Node, State as Applied, Told};
use history::{Ask, History, Shown};

/// The end of the item that is there from the start, in milliseconds; a put or a longer life ends at `KEPT`.
const ENDS: u64 = 150;
const KEPT: u64 = 10_000;

/// The readings of a clock at any moment: behind, after the end and below the first `until`, and beyond that.
const WALLS: [u64; 4] = [0, 180, 300, 450];
const _: () = assert!(
    ENDS < WALLS[1]
        && WALLS[1] < RESERVE_MS
        && RESERVE_MS < WALLS[2]
        && WALLS[3] < WALLS[2] + RESERVE_MS
);

/// The steps of a linearizable read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Draw,
    Wait,
    ReadIndex,
    Read,
}

/// The rules of the protocol. All hold, but those that a test breaks.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Apply compares leader ids, and not terms.
    leader_ids: bool,
    /// Apply knows an entry's until.
    until: bool,
    /// A tick is applied before a read is answered at a moment beyond `until`.
    tick: bool,
    /// A client that gives up closes nothing.
    outcome: bool,
    /// A ticket that is held when the node leads again stays open.
    held: bool,
    /// A linearizable read.
    order: &'static [Part],
}

const RULES: Rules = Rules {
    leader_ids: true,
    until: true,
    tick: true,
    outcome: true,
    held: true,
    order: &[Part::Draw, Part::Wait, Part::ReadIndex, Part::Read],
};

/// A write whose moment is drawn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Write {
    call: usize,
    node: usize,
    ticket: u8,
    stamped: (u64, u64),
    is_proposed: bool,
}

/// A read under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Read {
    call: usize,
    node: usize,
    done: usize,
    /// The number of its ticket.
    ticket: Option<u8>,
    at: u64,
    /// It needs a tick, which is not drawn yet; or that tick's ticket.
    needs_tick: bool,
    tick: Option<u8>,
    /// How many entries were applied when it was read.
    seen: Option<Vec<Entry>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: Vec<Node>,
    elections: usize,
    write: Option<Write>,
    read: Option<Read>,
    reads: usize,
    history: History,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Elect(usize, usize, LeaderId),
    Send(usize, usize),
    Apply(usize),
    /// The node's `LogTime` hears that the leadership is over.
    Quit(usize),
    DrawWrite(usize, u64),
    Propose,
    /// A read is asked for, or asked again where a leadership has ended.
    Ask(usize),
    /// The next part of the read; a draw is at this wall.
    Part(u64),
    Tick(u64),
}

struct Protocol {
    rules: Rules,
    write: Ask,
    /// Whether the client of the write waits for its answer.
    waits: bool,
    /// Steps that have been taken when it begins.
    before: Vec<Step>,
    /// The nodes that are elected, in turn; the first that leads is 0.
    elected: &'static [usize],
    reads: usize,
    /// The readings of clocks when a read is drawn by the first leader, and by any other.
    walls: [&'static [u64]; 2],
}

impl Protocol {
    fn new(rules: Rules, write: Ask) -> Protocol {
        Protocol {
            rules,
            write,
            waits: true,
            before: vec![],
            elected: &[1],
            reads: 2,
            walls: [&[WALLS[1], WALLS[2]], &[WALLS[0], WALLS[2]]],
        }
    }

    /// Whether the read's next part can be done.
    fn is_due(&self, state: &State, read: &Read) -> bool {
        let node = &state.nodes[read.node];
        let is_ticked = match read.tick {
            Some(ticket) => node.told.contains(&Told::Applied(ticket)),
            None => !read.needs_tick,
        };
        is_ticked
            && match self.rules.order[read.done] {
                Part::Draw => node.draws(),
                Part::Wait => {
                    let mut asking = node.clone();
                    let drawn = read
                        .ticket
                        .or_else(|| node.draws().then(|| asking.draw_read(0).0));
                    drawn.is_some_and(|ticket| asking.time().cleared(ticket) == Some(Ok(())))
                }
                Part::ReadIndex => {
                    let own = |entry: &Entry| entry.leader == node.vote;
                    cluster::is_followed(&state.nodes, read.node)
                        && node.log[..node.applied].last().is_some_and(own)
                }
                Part::Read => true,
            }
    }

    fn do_part(&self, state: &mut State, wall: u64) {
        let read = state.read.as_mut().expect("it is under way");
        let node = &mut state.nodes[read.node];
        match self.rules.order[read.done] {
            Part::Draw => {
                let (ticket, at, needs_tick) = node.draw_read(wall);
                (read.ticket, read.at) = (Some(ticket), at);
                read.needs_tick = needs_tick && self.rules.tick;
            }
            Part::Wait | Part::ReadIndex => {}
            Part::Read => read.seen = Some(node.log[..node.applied].to_vec()),
        }
        read.done += 1;
        if read.done == self.rules.order.len() {
            let read = state.read.take().expect("it is under way");
            let seen = read.seen.expect("it has read");
            let found = Applied::after(&seen, &self.rules);
            let at = read.at.max(found.moments.time_ms);
            let shown = Shown {
                value: Ask::Read.on(found.item, at).1,
                at,
                seen: seen.len(),
            };
            state.history.answer(read.call, shown);
        }
    }

    fn draw_write(&self, state: &mut State, n: usize, wall: u64) {
        let (ticket, stamped) = state.nodes[n].draw_write(wall);
        state.write = Some(Write {
            call: state.history.ask(self.write),
            node: n,
            ticket,
            stamped,
            is_proposed: false,
        });
        if !self.waits && !self.rules.outcome {
            state.nodes[n].told.push(Told::Applied(ticket));
        }
    }

    fn propose(&self, state: &mut State) {
        let write = state.write.as_mut().expect("it is drawn");
        write.is_proposed = true;
        let node = &mut state.nodes[write.node];
        if !node.leads {
            return node.told.push(Told::Drops(write.ticket));
        }
        node.log.push(Entry {
            leader: node.vote,
            stamped: Some(write.stamped),
            ticket: Some(write.ticket),
            call: Some((write.call, self.write)),
        });
    }

    fn tick(&self, state: &mut State, wall: u64) {
        let read = state.read.as_mut().expect("it is under way");
        let node = &mut state.nodes[read.node];
        let (ticket, stamped) = node.draw_write(wall);
        read.tick = Some(ticket);
        node.log.push(Entry {
            leader: node.vote,
            stamped: Some(stamped),
            ticket: Some(ticket),
            call: None,
        });
    }

    fn ask(&self, state: &mut State, node: usize) {
        let again = state.read.take().map(|read| read.call);
        let call = again.unwrap_or_else(|| {
            state.reads += 1;
            state.history.ask(Ask::Read)
        });
        state.read = Some(Read {
            call,
            node,
            done: 0,
            ticket: None,
            at: 0,
            needs_tick: false,
            tick: None,
            seen: None,
        });
    }

    fn apply(&self, state: &mut State, n: usize) {
        let answered = cluster::apply(&mut state.nodes[n], &self.rules);
        let waits = |write: &Write| self.waits && write.node == n;
        if let Some((call, shown)) = answered.filter(|_| state.write.as_ref().is_some_and(waits)) {
            state.history.answer(call, shown);
        }
    }

    fn elect(&self, state: &mut State, candidate: usize, voter: usize, id: LeaderId) {
        state.elections += 1;
        cluster::elect(&mut state.nodes, candidate, voter, id);
    }

    fn of_nodes(&self, state: &State, steps: &mut Vec<Step>) {
        for (n, node) in state.nodes.iter().enumerate() {
            for other in (0..3).filter(|other| *other != n) {
                let follower = &state.nodes[other];
                if self.elected.get(state.elections) == Some(&n) {
                    let term = node.vote.0.max(follower.vote.0);
                    let ids = [(term, n as u8), (term + 1, n as u8)];
                    let may_elect = |id: &LeaderId| cluster::may_elect(node, follower, *id);
                    let won = ids.into_iter().find(may_elect);
                    steps.extend(won.map(|id| Step::Elect(n, other, id)));
                }
                let has_news = follower.vote != node.vote || follower.log != node.log;
                if node.leads && follower.vote <= node.vote && has_news {
                    steps.push(Step::Send(n, other));
                }
            }
            if cluster::may_apply(&state.nodes, n) {
                steps.push(Step::Apply(n));
            }
            if !node.leads && node.draws() {
                steps.push(Step::Quit(n));
            }
        }
    }

    fn of_clients(&self, state: &State, steps: &mut Vec<Step>) {
        let leading = |n: &usize| state.nodes[*n].draws();
        match &state.write {
            None => {
                let walls = [WALLS[0], WALLS[2]];
                let drawn = (0..3)
                    .filter(leading)
                    .flat_map(|n| walls.map(|wall| (n, wall)));
                steps.extend(drawn.map(|(n, wall)| Step::DrawWrite(n, wall)));
            }
            Some(write) => {
                if !write.is_proposed {
                    steps.push(Step::Propose);
                }
            }
        }
        let Some(read) = &state.read else {
            if state.reads < self.reads {
                steps.extend((0..3).filter(leading).map(Step::Ask));
            }
            return;
        };
        if !leading(&read.node) {
            steps.extend((0..3).filter(leading).map(Step::Ask));
        }
        if read.needs_tick && read.tick.is_none() {
            if leading(&read.node) && state.nodes[read.node].leads {
                steps.push(Step::Tick(WALLS[0]));
            }
        } else if self.is_due(state, read) {
            match self.rules.order[read.done] {
                Part::Draw => {
                    let walls = self.walls[read.node.min(1)];
                    steps.extend(walls.iter().copied().map(Step::Part));
                }
                _ => steps.push(Step::Part(0)),
            }
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let first = State {
            nodes: cluster::nodes(),
            elections: 0,
            write: None,
            read: None,
            reads: 0,
            history: History::default(),
        };
        let mut steps = self.before.iter().cloned();
        let begins = steps.try_fold(first, |state, step| self.next_state(&state, step));
        begins.into_iter().collect()
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.of_nodes(state, steps);
        self.of_clients(state, steps);
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        match step {
            Step::Elect(candidate, voter, id) => self.elect(&mut state, candidate, voter, id),
            Step::Send(from, to) => cluster::send(&mut state.nodes, from, to),
            Step::Apply(n) => self.apply(&mut state, n),
            Step::Quit(n) => state.nodes[n].told.push(Told::Quits),
            Step::DrawWrite(n, wall) => self.draw_write(&mut state, n, wall),
            Step::Propose => self.propose(&mut state),
            Step::Ask(n) => self.ask(&mut state, n),
            Step::Part(wall) => self.do_part(&mut state, wall),
            Step::Tick(wall) => self.tick(&mut state, wall),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        vec![
            Property::always(ONE_TIME, |model: &Protocol, state: &State| {
                model.has_one_time(state)
            }),
            Property::always(FORWARD, |_, state: &State| state.history.never_goes_back()),
            Property::always(GONE, |_, state: &State| {
                state.history.what_has_ended_stays_away()
            }),
            Property::always(ORDER, |_, state: &State| state.history.has_an_order()),
            Property::always(PLACE, |model: &Protocol, state: &State| {
                model.have_places(state)
            }),
            Property::sometimes("two lead in one term", |_, state: &State| {
                let leading = state.nodes.iter().filter(|node| node.draws());
                leading.filter(|node| node.vote.0 == 1).count() == 2
            }),
            Property::sometimes("a write lands under the next leader", |_, state: &State| {
                let landed = |entry: &Entry| entry.call.is_some() && entry.leader == (1, 0);
                let next = &state.nodes[1];
                next.draws() && next.log[..next.applied].iter().any(landed)
            }),
            Property::sometimes("two leaders answer", |_, state: &State| {
                state.nodes[1].draws() && state.history.shown().count() == state.reads.max(2)
            }),
        ]
    }
}

const ONE_TIME: &str = "time is a function of the log and never goes back";
const FORWARD: &str = "no answer goes back in time";
const GONE: &str = "what has ended is not shown again";
const ORDER: &str = "the answers have an order";
const PLACE: &str = "each answer has a place in the log";

impl Protocol {
    /// Nodes that have applied as much have the same behind them, and its time goes on.
    fn has_one_time(&self, state: &State) -> bool {
        let applied = |node: &Node| node.log[..node.applied].to_vec();
        let logs: Vec<Vec<Entry>> = state.nodes.iter().map(applied).collect();
        let longest = logs.iter().max_by_key(|log| log.len());
        longest.is_none_or(|longest| {
            let times = (0..=longest.len()).map(|n| self.time_after(&longest[..n]));
            logs.iter().all(|log| longest.starts_with(log)) && times.is_sorted()
        })
    }

    fn time_after(&self, entries: &[Entry]) -> u64 {
        Applied::after(entries, &self.rules).moments.time_ms
    }

    /// An entry that a read has not seen is of no earlier moment.
    fn have_places(&self, state: &State) -> bool {
        let reads = state.history.shown().filter(|(ask, _)| *ask == Ask::Read);
        reads.into_iter().all(|(_, shown)| {
            let later = |node: &Node| {
                node.applied <= shown.seen || self.time_after(&node.log[..=shown.seen]) >= shown.at
            };
            state.nodes.iter().all(later)
        })
    }
}

/// Plays all of it.
fn holds(model: Protocol) {
    let checker = model.checker().threads(2);
    checker.spawn_bfs().join().assert_properties();
}

/// Plays until the property fails.
fn is_broken(model: Protocol, property: &'static str) {
    let rules = model.rules;
    let until = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().threads(2).finish_when(until);
    let path = checker.spawn_bfs().join().discovery(property);
    let path = path.unwrap_or_else(|| panic!("nothing shows it under {rules:?}"));
    println!("{rules:?}: {property}: {:?}", path.into_actions());
}

#[test]
fn all_rules_together_hold() {
    holds(Protocol::new(RULES, Ask::Put));
    let waits = false;
    let gives_up = Protocol::new(RULES, Ask::Keep);
    holds(Protocol { waits, ..gives_up });
}

#[test]
fn terms_in_the_place_of_leader_ids_are_found_out() {
    let leader_ids = false;
    is_broken(
        keeping(Rules {
            leader_ids,
            ..RULES
        }),
        FORWARD,
    );
    is_broken(
        keeping(Rules {
            leader_ids,
            ..RULES
        }),
        GONE,
    );
}

#[test]
fn entries_without_until_are_found_out() {
    let until = false;
    is_broken(keeping(Rules { until, ..RULES }), FORWARD);
    is_broken(keeping(Rules { until, ..RULES }), GONE);
}

#[test]
fn an_answer_beyond_until_without_a_tick_is_found_out() {
    is_broken(
        keeping(Rules {
            tick: false,
            ..RULES
        }),
        FORWARD,
    );
}

#[test]
fn a_ticket_that_is_closed_at_a_time_out_is_found_out() {
    let gives_up = Protocol {
        waits: false,
        ..keeping(Rules {
            outcome: false,
            ..RULES
        })
    };
    is_broken(gives_up, GONE);
}

#[test]
fn reads_in_another_order_are_found_out() {
    use Part::{Draw, Read, ReadIndex, Wait};
    let orders: [(&[Part], _); 5] = [
        (&[Draw, ReadIndex, Read], ORDER),
        (&[Draw, Wait, Read], FORWARD),
        (&[Wait, Draw, ReadIndex, Read], ORDER),
        (&[Read, Draw, Wait, ReadIndex], ORDER),
        (&[Draw, Read, Wait, ReadIndex], ORDER),
    ];
    for (order, property) in orders {
        is_broken(keeping(Rules { order, ..RULES }), property);
    }
}

/// It has to come after the read was asked for.
#[test]
fn the_round_of_read_index_may_come_earlier_or_later() {
    use Part::{Draw, Read, ReadIndex, Wait};
    let orders: [&[Part]; 3] = [
        &[ReadIndex, Draw, Wait, Read],
        &[Draw, ReadIndex, Wait, Read],
        &[Draw, Wait, Read, ReadIndex],
    ];
    for order in orders {
        let one = keeping(Rules { order, ..RULES });
        holds(Protocol { reads: 1, ..one });
    }
}

/// The node loses the leadership and has it again before a write of the first one is proposed.
#[test]
fn a_ticket_that_is_forgotten_when_its_node_leads_again_is_found_out() {
    let again = |held| Protocol {
        waits: false,
        before: vec![
            Step::DrawWrite(0, WALLS[0]),
            Step::Elect(1, 2, (1, 1)),
            Step::Elect(0, 2, (2, 0)),
        ],
        elected: &[],
        walls: [&WALLS[2..], &[]],
        ..keeping(Rules { held, ..RULES })
    };
    is_broken(again(false), PLACE);
    let played = again(true).checker().threads(2).spawn_bfs().join();
    for name in [ONE_TIME, FORWARD, GONE, ORDER, PLACE] {
        played.assert_no_discovery(name);
    }
}

fn keeping(rules: Rules) -> Protocol {
    Protocol::new(rules, Ask::Keep)
}
