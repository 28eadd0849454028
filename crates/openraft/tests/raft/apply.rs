//! Goal: apply is a function of the state and the entry: however a replica's database was flushed, merged, opened again, killed
//! or cut off from power, it gives the answers, items, versions and ends that every other one gives, and those of a model.
//!
//! Method: a random log, of several leaders with clocks of their own, is applied to two states. One is left alone and purges
//! nothing; with the other everything is done that no answer may show, and its clock lets it purge all it may. After each entry
//! both are read whole. Another log is cut off before calls of the disk; what was lost is applied again.

use std::sync::Arc;
use std::time::Duration;

use crate::common::model::Model;
use crate::common::{
    Applied, Ask, Counters, Life, NAMES, Program, START, Store, block_on, entry, log_id, millis,
    put, watch_cuts,
};
use ebbtide::internals::Sim;
use ebbtide::{ManualClock, Options};
use ebbtide_openraft::{Answer, Op, OpId, Refused, StateOptions, StateStore};
use openraft::storage::RaftStateMachine;
use openraft::{Entry, EntryPayload, Membership};
use testkit::random::Random;

fn options(sim: &Sim, clock: u64) -> StateOptions {
    StateOptions {
        options: Options::new()
            .memtable_bytes(64 << 10)
            .max_runs(3)
            .fs(Arc::new(sim.clone()))
            .sizes(512, 16 << 10, 32 << 10)
            .stepped(),
        reclaim_within: Duration::from_secs(8),
        clock: Arc::new(ManualClock::new(clock)),
        ..StateOptions::default()
    }
}

/// A replica: its disk, its database and its state.
struct Replica {
    clock: u64,
    db: ebbtide::Database,
    state: Store,
}

impl Replica {
    fn open(sim: &Sim, clock: u64) -> Replica {
        let state = options(sim, clock);
        let db = state
            .options
            .clone()
            .given_time()
            .sync_interval(Duration::from_secs(1_000_000));
        let db = db
            .reclaim_within(state.reclaim_within)
            .open("/state")
            .unwrap();
        let state = StateStore::over(db.clone(), Counters, state).unwrap();
        Replica { clock, db, state }
    }

    fn apply(&mut self, entry: Entry<Program>) -> Applied {
        let applied = block_on(self.state.apply([entry]));
        applied.unwrap().pop().unwrap()
    }

    /// The index of the next entry.
    fn next(&self) -> usize {
        let applied = self.state.reader().moment().applied;
        applied.map_or(0, |applied| applied.index as usize + 1)
    }

    fn shown(&self, container: usize) -> Vec<(String, String, Option<u64>, u64)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let view = self.state.reader().view(0);
        let items = view.container(NAMES[container]).unwrap();
        let items = items.range(..).map(|item| {
            let item = item.unwrap();
            let end = item.expires_at().map(millis);
            (
                text(item.key()),
                text(item.value()),
                end,
                item.version().as_u64(),
            )
        });
        items.collect()
    }
}

fn seeds(most: u64) -> u64 {
    testkit::env("EBBTIDE_SEEDS", most)
}

fn key(random: &mut Random) -> String {
    format!("k{:02}", random.below(12))
}

fn life(random: &mut Random, now: u64) -> Life {
    match random.below(8) {
        0 => Life::Inherit,
        1 => Life::Never,
        2 => Life::Keep,
        3 => Life::Until(now + 300 - random.below(400) as u64),
        4 if random.one_in(5) => Life::For(0),
        _ => Life::For(1 + random.below(600) as u64),
    }
}

fn ask(random: &mut Random, n: usize, now: u64) -> Ask {
    let c = random.below(NAMES.len());
    let (one, two) = (key(random), key(random));
    let value = format!("value {n}");
    match random.below(24) {
        0..7 => Ask::Put(c, one, value, life(random, now)),
        7..11 => Ask::Create(c, one, value, life(random, now)),
        11..13 => Ask::Touch(c, one),
        13 => Ask::Delete(c, one),
        14 => Ask::Take(c, one),
        15 => Ask::Count(c, one, two),
        16..18 => Ask::Add(c, one, 1),
        18 => Ask::Refuse(c, one, two, key(random)),
        19 => Ask::CompareAndPut(c, one, value, u64::MAX),
        20 => Ask::Default(c, (!random.one_in(3)).then(|| 1 + random.below(500) as u64)),
        21 => Ask::DeleteRange(c, one.clone().min(two.clone()), one.max(two)),
        22 => Ask::ExpireBefore(c, now + 100 - random.below(200) as u64),
        _ => Ask::ExpireAll(c),
    }
}

/// A log of several leaders: each has a clock of its own, and one of a term may take it over from another.
fn log(random: &mut Random, entries: usize) -> Vec<Entry<Program>> {
    let (mut term, mut node, mut clock) = (1, 1, START);
    let mut ids: Vec<OpId> = vec![];
    let mut make = |index: usize| {
        clock += random.below(60) as u64;
        let is_blank = index == 0 || random.one_in(12);
        if is_blank {
            (term, node) = match random.below(3) {
                0 => (term, node + 1),
                _ => (term + 1, 1 + random.below(3) as u64),
            };
            clock = clock + 150 - random.below(300) as u64;
        }
        if random.one_in(60) {
            clock += 20 * 60 * 1_000;
        }
        let id = log_id(term, node, index as u64);
        if is_blank {
            let payload = match random.one_in(3) {
                true => EntryPayload::Membership(Membership::new(vec![[1, 2, 3].into()], ())),
                false => EntryPayload::Blank,
            };
            return Entry {
                log_id: id,
                payload,
            };
        }
        let mut op = |n| {
            let body = ask(random, index * 10 + n, clock);
            let id = match random.below(6) {
                0 if !ids.is_empty() => Some(ids[ids.len() - 1 - random.below(ids.len().min(8))]),
                1..3 => {
                    let born_ms = clock + 700 - random.below(1_000) as u64;
                    ids.push(OpId {
                        client: 7,
                        serial: ids.len() as u64,
                        born_ms,
                    });
                    ids.last().copied()
                }
                _ => None,
            };
            Op { id, body }
        };
        let count = [0, 1, 1, 2, 4][index % 5];
        let ops = (0..count).map(&mut op).collect();
        entry(id, clock, clock + 200, ops)
    };
    (0..entries).map(&mut make).collect()
}

/// Everything that no answer may show.
fn wear(replica: Replica, sim: &mut Sim, random: &mut Random) -> Replica {
    match random.below(9) {
        0 => replica.db.flush().unwrap(),
        1 => replica.db.compact().unwrap(),
        2 => drop(replica.db.step().unwrap()),
        3 => replica.db.sync().unwrap(),
        4 => {
            let clock = replica.clock;
            drop(replica);
            return Replica::open(sim, clock);
        }
        5 => {
            *sim = sim.kill();
            return Replica::open(sim, replica.clock);
        }
        6 => {
            *sim = sim.power_cut(random.next());
            return Replica::open(sim, replica.clock);
        }
        _ => {}
    }
    replica
}

#[test]
fn two_replicas_and_the_model_agree_after_each_entry() {
    for seed in 0..seeds(12) {
        let mut random = Random(seed);
        let log = log(&mut random, 200);
        let (left_alone, mut worn_out) = (Sim::new(seed), Sim::new(seed + 1));
        // A replica whose clock stands at 1970 purges nothing, one whose clock is ahead all that it may.
        let mut alone = Replica::open(&left_alone, 0);
        let mut worn = Replica::open(&worn_out, START * 2);
        let (mut model, mut answers) = (Model::default(), vec![]);
        for (n, entry) in log.iter().enumerate() {
            let about = format!("seed {seed}, entry {n}: {entry:?}");
            worn = wear(worn, &mut worn_out, &mut random);
            // A power cut takes entries that were not synced; the log has them.
            for lost in worn.next()..n {
                assert_eq!(
                    worn.apply(log[lost].clone()),
                    answers[lost],
                    "{about}, again {lost}"
                );
            }
            let told = model.apply(entry);
            assert_eq!(alone.apply(entry.clone()), told, "{about}");
            assert_eq!(worn.apply(entry.clone()), told, "{about}");
            answers.push(told);
            for container in 0..NAMES.len() {
                let shown = alone.shown(container);
                assert_eq!(worn.shown(container), shown, "{about}");
                let items = shown
                    .into_iter()
                    .map(|(key, value, end, _)| (key, value, end));
                assert_eq!(items.collect::<Vec<_>>(), model.shown(container), "{about}");
            }
            let moment = worn.state.reader().moment();
            assert_eq!(
                (moment.time_ms, moment.until_ms),
                (model.time, model.until),
                "{about}"
            );
        }
    }
}

#[test]
fn a_power_cut_before_any_call_of_the_disk_leaves_a_state_that_goes_on_alike() {
    for seed in 0..seeds(3) {
        let mut random = Random(1_000 + seed);
        let log = log(&mut random, 60);
        let sim = Sim::new(seed);
        let mut replica = Replica::open(&sim, START * 2);
        let cuts = watch_cuts(&sim, seed);
        let mut answers = vec![];
        for entry in &log {
            answers.push(replica.apply(entry.clone()));
            match random.below(6) {
                0 => replica.db.flush().unwrap(),
                1 => replica.db.compact().unwrap(),
                2 => drop(replica.db.step().unwrap()),
                3 => replica.db.sync().unwrap(),
                _ => {}
            }
        }
        sim.unwatch();
        let cuts = std::mem::take(&mut *cuts.lock().unwrap());
        assert!(cuts.len() > 200, "{} cuts", cuts.len());
        for (at, cut) in cuts.iter().enumerate() {
            let mut again = Replica::open(cut, START * 2);
            for n in again.next()..log.len() {
                assert_eq!(
                    again.apply(log[n].clone()),
                    answers[n],
                    "seed {seed}, cut {at}, entry {n}"
                );
            }
            for container in 0..NAMES.len() {
                assert_eq!(
                    again.shown(container),
                    replica.shown(container),
                    "seed {seed}, cut {at}"
                );
            }
        }
    }
}

fn alone(clock: u64) -> (Sim, Replica) {
    let sim = Sim::new(1);
    let replica = Replica::open(&sim, clock);
    (sim, replica)
}

fn is_there(replica: &Replica, key: &str, at_ms: u64) -> bool {
    let found = replica.state.reader().get("a", key, at_ms);
    found.unwrap().item.is_some()
}

/// openraft elects a second leader in a term where it has the higher id.
#[test]
fn the_second_leader_of_a_term_goes_on_where_the_first_may_have_answered() {
    let (_, mut replica) = alone(START);
    let put = vec![put("k", Life::For(150))];
    replica.apply(entry(log_id(5, 1, 0), START, START + 200, put));
    let blank = Entry {
        log_id: log_id(5, 2, 1),
        payload: EntryPayload::Blank,
    };
    assert_eq!(replica.apply(blank).at_ms, START + 200);
    assert!(
        !is_there(&replica, "k", 0),
        "the first leader may have answered that it is gone"
    );
    // Its own clock is behind; time is not.
    let late = replica.apply(entry(log_id(5, 2, 2), START + 10, START + 210, vec![]));
    assert_eq!(late.at_ms, START + 200);
    let moment = replica.state.reader().moment();
    assert_eq!(
        (moment.time_ms, moment.until_ms),
        (START + 200, START + 210)
    );
}

#[test]
fn an_item_is_gone_in_the_millisecond_in_which_it_ends() {
    let (_, mut replica) = alone(START);
    let put = vec![put("k", Life::For(150))];
    replica.apply(entry(log_id(1, 1, 0), START, START + 200, put));
    assert!(is_there(&replica, "k", START + 149));
    assert!(!is_there(&replica, "k", START + 150));
    let view = replica.state.reader().view(START + 150);
    assert_eq!(
        (view.at_ms, view.container("a").unwrap().count(..).unwrap()),
        (START + 150, 0)
    );
    let create = |index, stamp| {
        let ask = Ask::Create(0, "k".into(), "new".into(), Life::Never);
        entry(log_id(1, 1, index), stamp, stamp, vec![ask.into()])
    };
    let done = |applied: Applied| {
        matches!(
            applied.answers[0].outcome,
            Ok(crate::common::Told::Done(true))
        )
    };
    assert!(!done(replica.apply(create(1, START + 149))));
    assert!(done(replica.apply(create(2, START + 150))));
}

#[test]
fn a_repetition_is_answered_as_before_and_one_that_is_too_old_is_refused() {
    let (_, mut replica) = alone(START);
    let id = OpId {
        client: 1,
        serial: 1,
        born_ms: START,
    };
    let add = |index, stamp| {
        let body = Ask::Add(0, "n".into(), 1);
        entry(
            log_id(1, 1, index),
            stamp,
            stamp,
            vec![
                Op {
                    id: Some(id),
                    body: body.clone(),
                },
                Op { id: Some(id), body },
            ],
        )
    };
    let first = Answer {
        index: 0,
        at_ms: START,
        outcome: Ok(crate::common::Told::Number(1)),
    };
    assert_eq!(
        replica.apply(add(0, START)).answers,
        [first.clone(), first.clone()]
    );
    let ten_minutes = START + 600_000;
    assert_eq!(
        replica.apply(add(1, ten_minutes)).answers,
        [first.clone(), first]
    );
    let refused = replica.apply(add(2, ten_minutes + 1)).answers;
    assert!(
        refused
            .iter()
            .all(|answer| answer.outcome == Err(Refused::TooOld))
    );
    let ahead = OpId {
        client: 2,
        serial: 1,
        born_ms: ten_minutes + 501,
    };
    let op = Op {
        id: Some(ahead),
        body: Ask::Add(0, "n".into(), 1),
    };
    let refused = replica
        .apply(entry(log_id(1, 1, 3), ten_minutes + 1, 0, vec![op]))
        .answers;
    assert_eq!(refused[0].outcome, Err(Refused::FromTheFuture));
}

/// A want of room differs between replicas, and is no answer.
#[test]
fn a_full_disk_makes_apply_wait_and_not_answer() {
    let sim = Sim::new(1);
    let mut replica = Replica::open(&sim, START);
    let fill = |index: u64| {
        let value = "v".repeat(60_000);
        entry(
            log_id(1, 1, index),
            START + index,
            0,
            vec![Ask::Put(0, format!("{index}"), value, Life::Never).into()],
        )
    };
    replica.apply(fill(0));
    sim.set_capacity(1 << 20);
    let reader = replica.state.reader();
    let applied = block_on(async {
        let mut index = 1;
        loop {
            // Time is paused: it passes when nothing else can go on.
            let entries = [fill(index)];
            let applying = replica.state.apply(entries);
            tokio::pin!(applying);
            match tokio::time::timeout(Duration::from_secs(5), &mut applying).await {
                Ok(applied) => drop(applied.unwrap()),
                Err(_) => {
                    assert!(reader.waits_for().unwrap().is_retryable());
                    sim.set_capacity(u64::MAX);
                    return (index, applying.await.unwrap());
                }
            }
            index += 1;
            assert!(index < 1_000, "the disk is never full");
        }
    });
    assert_eq!(applied.0, applied.1[0].index);
    assert!(reader.waits_for().is_none());
    assert!(is_there(&replica, "0", 0));
}

#[test]
fn an_entry_that_is_applied_already_stops_the_node() {
    let (_, mut replica) = alone(START);
    let one = entry(log_id(1, 1, 0), START, START, vec![put("k", Life::Never)]);
    replica.apply(one.clone());
    assert!(block_on(replica.state.apply([one])).is_err());
    let mut later = entry(log_id(1, 1, 1), START, START, vec![]);
    let EntryPayload::Normal(normal) = &mut later.payload else {
        unreachable!()
    };
    normal.format += 1;
    let error = block_on(replica.state.apply([later])).unwrap_err();
    assert!(error.to_string().contains("format 2"), "{error}");
}
