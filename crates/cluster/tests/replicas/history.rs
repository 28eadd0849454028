//! Goal: whatever three nodes answer is the history of one container that one after the other used: each answer is what a
//! sequential model gives at its place in the log, at its moment.
//!
//! Method: tasks on all nodes write and read a few keys, with lives that end while clocks move; the node that leads is changed in
//! between. Writes are placed by their index and version, which are exact. What was not done, and each read, has to fit at some
//! place: of a write that was not done, in its entry; of a read, from the last write that was answered before it began on, up to its token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, Cluster};
use ebbtide::Ttl;
use ebbtide_cluster::{Error, Expect, Node};
use testkit::random::Random;

const KEYS: usize = 3;
const TASKS: usize = 6;
const STEPS: usize = 60;

#[derive(Clone, Debug)]
enum Did {
    /// A value and a life in milliseconds.
    Put(String, Option<u64>),
    Touch,
    Delete,
    Get(Option<String>),
}

#[derive(Clone, Debug)]
struct Event {
    key: usize,
    did: Did,
    /// `None`: always.
    expect: Option<Expect>,
    /// Of a write that was done.
    version: Option<u64>,
    index: u64,
    at: u64,
    /// The order in which calls began and were answered, over all tasks.
    began: u64,
    answered: u64,
}

async fn step(node: &Node, random: &mut Random, order: &AtomicU64, name: &str) -> Option<Event> {
    let key = random.below(KEYS);
    let c = node.container("c");
    let k = format!("k{key}");
    let life = [None, Some(40), Some(90)][random.below(3)];
    let ttl = life.map_or(Ttl::Never, |ms| Ttl::After(Duration::from_millis(ms)));
    let began = order.fetch_add(1, Ordering::SeqCst);
    let written =
        |did,
         expect,
         answer: Result<ebbtide_cluster::Answered<Option<ebbtide::Version>>, Error>| {
            let answer = answer.ok()?;
            Some((
                did,
                expect,
                answer.value.map(|version| version.as_u64()),
                answer.token,
            ))
        };
    let put = Did::Put(name.to_owned(), life);
    let (did, expect, version, token) = match random.below(7) {
        0 => written(
            put,
            None,
            c.put_with_ttl(&k, name.to_owned(), ttl)
                .await
                .map(|a| a.map(Some)),
        )?,
        1 => written(
            put,
            Some(Expect::Absent),
            c.create(&k, name.to_owned(), ttl).await,
        )?,
        2 => written(
            put,
            Some(Expect::Present),
            c.replace(&k, name.to_owned(), ttl).await,
        )?,
        3 => written(Did::Touch, Some(Expect::Present), c.touch(&k).await)?,
        4 => written(
            Did::Delete,
            Some(Expect::Present),
            c.delete_if(&k, Expect::Present).await,
        )?,
        _ => {
            let got = c.get(&k).await.ok()?;
            let text = got
                .value
                .map(|value| String::from_utf8(value.to_vec()).unwrap());
            (Did::Get(text), None, None, got.token)
        }
    };
    Some(Event {
        key,
        did,
        expect,
        version,
        index: token.index,
        at: token.at_ms,
        began,
        answered: order.fetch_add(1, Ordering::SeqCst),
    })
}

/// A value, its life and its end.
type State = Option<(String, Option<u64>, Option<u64>)>;

fn live(state: &State, at: u64) -> Option<&String> {
    let (value, _, end) = state.as_ref()?;
    end.is_none_or(|end| at < end).then_some(value)
}

fn holds(expect: Option<Expect>, state: &State, at: u64) -> bool {
    match expect {
        None => true,
        Some(Expect::Absent) => live(state, at).is_none(),
        Some(_) => live(state, at).is_some(),
    }
}

fn after(state: &State, write: &Event) -> State {
    let end = |life: Option<u64>| life.map(|ms| write.at + ms);
    match (&write.did, state) {
        (Did::Put(value, life), _) => Some((value.clone(), *life, end(*life))),
        (Did::Touch, Some((value, life, _))) => Some((value.clone(), *life, end(*life))),
        _ => None,
    }
}

/// The states of a key: before any write, and after each, with the place of that.
fn check_writes(events: &[Event], key: usize) -> Vec<(u64, State)> {
    let mut writes = BTreeMap::new();
    for event in events.iter().filter(|event| event.key == key) {
        if let Some(version) = event.version {
            assert!(
                writes.insert((event.index, version), event).is_none(),
                "two writes of one version"
            );
        }
    }
    let mut states: Vec<(u64, State)> = vec![(0, None)];
    let mut last = 0;
    for write in writes.values() {
        let (_, state) = states.last().unwrap();
        assert!(write.at >= last, "time goes back at {write:?}");
        assert!(
            holds(write.expect, state, write.at),
            "{write:?} over {state:?}"
        );
        last = write.at;
        states.push((write.index, after(state, write)));
    }
    states
}

fn check(events: &[Event]) {
    let states: Vec<_> = (0..KEYS).map(|key| check_writes(events, key)).collect();
    for event in events.iter().filter(|event| event.version.is_none()) {
        let states = &states[event.key];
        // The last state of earlier entries, and all of this one's.
        let before = states
            .iter()
            .rposition(|(index, _)| *index < event.index)
            .unwrap_or(0);
        let fits = match &event.did {
            Did::Get(value) => {
                // At the earliest what was answered before it began.
                let answered = events.iter().filter(|write| {
                    write.key == event.key
                        && write.version.is_some()
                        && write.answered < event.began
                });
                let first = answered.map(|write| write.index).max().unwrap_or(0);
                let from = states
                    .iter()
                    .rposition(|(index, _)| *index < first)
                    .unwrap_or(0);
                let upto = states
                    .iter()
                    .rposition(|(index, _)| *index <= event.index)
                    .unwrap_or(0);
                states[from..=upto]
                    .iter()
                    .any(|(_, state)| live(state, event.at) == value.as_ref())
            }
            _ => {
                let here = states[before..]
                    .iter()
                    .take_while(|(index, _)| *index <= event.index);
                here.into_iter()
                    .any(|(_, state)| !holds(event.expect, state, event.at))
            }
        };
        assert!(fits, "{event:?} fits nowhere: {states:?}");
    }
    // No moment of an answer lies before that of one that was answered before it began.
    for event in events {
        let before = events.iter().filter(|other| other.answered < event.began);
        let latest = before.map(|other| other.at).max().unwrap_or(0);
        assert!(
            event.at >= latest,
            "{event:?}: {latest} was answered before"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_answer_as_one() {
    for seed in 0..testkit::env("EBBTIDE_SEEDS", 2) {
        let cluster = Cluster::of(3).await;
        cluster.nodes[0].create_container("c").await.unwrap();
        let order = Arc::new(AtomicU64::new(0));
        let tasks = (0..TASKS).map(|task| {
            let (node, order) = (cluster.nodes[task % 3].clone(), order.clone());
            let mut random = Random(seed * 1_000 + task as u64);
            tokio::spawn(async move {
                let mut events = vec![];
                for n in 0..STEPS {
                    let name = format!("{task}-{n}");
                    // A write without an answer may be done or not, and is not placed: none may fail.
                    events.push(step(&node, &mut random, &order, &name).await.unwrap());
                }
                events
            })
        });
        let tasks: Vec<_> = tasks.collect();
        let mut random = Random(seed);
        while tasks.iter().any(|task| !task.is_finished()) {
            // Clocks differ, by less than makes a node unfit.
            let clock = &cluster.clocks[random.below(3)];
            let slowest = cluster.clocks.iter().map(common::wall).min().unwrap();
            if common::wall(clock) < slowest + 200 {
                clock.advance(Duration::from_millis(random.below(40) as u64));
            }
            if random.one_in(60) {
                let (by, to) = (random.below(3), random.below(3));
                let _ = cluster.nodes[by].transfer(cluster.nodes[to].id()).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut events = vec![];
        for task in tasks {
            events.extend(task.await.unwrap());
        }
        assert_eq!(events.len(), TASKS * STEPS);
        check(&events);
        let ended = events
            .iter()
            .filter(|event| matches!(event.did, Did::Get(None)));
        assert!(ended.count() > 0);
        cluster.close().await;
    }
}
