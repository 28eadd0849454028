//! Goal: a log comes to a later format by an entry that says so, and by no other way; the state and its snapshots know it; and what a
//! program does not speak stops it, by an error that names both formats, before anything is changed (I10).
//!
//! Method: entries, one after the other, to states of programs that speak one format, or two.

use std::path::Path;
use std::sync::Arc;

use crate::common::{START, log_id};
use ebbtide::{ContainerOptions, ManualClock};
use ebbtide_openraft::{Entry, Machine, SnapshotData, StateOptions, StateStore, Step, StepError};
use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, Membership};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Ask {
    Put(String),
    /// Came with format 2.
    PutTwice(String),
    /// To this format, where members are of this entry.
    Raise(u32, u64),
    /// The same, and then it refuses.
    RaiseAndRefuse(u32, u64),
}

/// Speaks formats up to this one.
struct Notes(u32);

impl Machine for Notes {
    type Op = Ask;
    type Answer = bool;

    fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
        vec![("notes", ContainerOptions::new())]
    }

    fn format(&self) -> u32 {
        self.0
    }

    fn format_of(&self, op: &Ask) -> u32 {
        match op {
            Ask::Put(_) => 1,
            Ask::PutTwice(_) => 2,
            Ask::Raise(to, _) | Ask::RaiseAndRefuse(to, _) => *to,
        }
    }

    fn apply(&self, op: &Ask, step: &mut Step<'_>) -> Result<bool, StepError> {
        match op {
            Ask::Put(key) => step.put("notes", key, "1", ebbtide::Ttl::Never)?,
            Ask::PutTwice(key) => {
                for key in [key.clone(), format!("{key}-2")] {
                    step.put("notes", key, "2", ebbtide::Ttl::Never)?;
                }
            }
            Ask::Raise(to, at) | Ask::RaiseAndRefuse(to, at) => {
                let alone = StepError::refuse("it goes alone");
                let is_raised = step.commands().ok_or(alone)?.raise_format(*to, *at);
                return match op {
                    Ask::Raise(..) => Ok(is_raised),
                    _ => Err(StepError::refuse("it thinks better of it")),
                };
            }
        }
        Ok(true)
    }
}

openraft::declare_raft_types!(
    Program:
        D = Entry<Ask>,
        R = ebbtide_openraft::Applied<bool>,
        SnapshotData = SnapshotData,
);

type Store = StateStore<Program, Notes>;

fn open(folder: &Path, speaks: u32) -> Result<Store, String> {
    let state = StateOptions {
        clock: Arc::new(ManualClock::new(START)),
        ..StateOptions::default()
    };
    Store::open(folder, Notes(speaks), state).map_err(|error| error.to_string())
}

/// The answers to ops in an entry of this format.
async fn apply(
    state: &mut Store,
    index: u64,
    format: u32,
    ops: Vec<Ask>,
) -> Result<Vec<Option<bool>>, String> {
    let entry = Entry {
        format,
        stamp_ms: START,
        until_ms: START,
        ops: ops.into_iter().map(Into::into).collect(),
    };
    let entry = openraft::Entry {
        log_id: log_id(1, 1, index),
        payload: EntryPayload::Normal(entry),
    };
    let applied = state.apply([entry]).await.map_err(|e| e.to_string())?;
    let answers = applied[0].answers.iter();
    Ok(answers.map(|answer| answer.outcome.clone().ok()).collect())
}

/// Applies one op in an entry, and expects this answer.
async fn tells(state: &mut Store, index: u64, format: u32, ops: Vec<Ask>, told: Option<bool>) {
    let answers = apply(state, index, format, ops).await.unwrap();
    assert_eq!(answers, [told], "entry {index}");
}

async fn members(state: &mut Store, index: u64) {
    let members = Membership::new(vec![[1].into()], ());
    let entry = openraft::Entry {
        log_id: log_id(1, 1, index),
        payload: EntryPayload::Membership(members),
    };
    state.apply([entry]).await.unwrap();
}

fn keys(state: &Store) -> Vec<String> {
    let view = state.reader().view(0);
    let notes = view.container("notes").unwrap();
    let key = |item: ebbtide::Result<ebbtide::Item>| {
        String::from_utf8(item.unwrap().key().to_vec()).unwrap()
    };
    notes.range(..).map(key).collect()
}

#[track_caller]
fn names_both<T: std::fmt::Debug>(refused: Result<T, String>) {
    let text = refused.unwrap_err();
    assert!(
        text.contains("of format 2") && text.contains("up to 1"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_begins_a_later_format_for_those_behind_it_and_the_state_keeps_it() {
    let folder = testkit::scratch();
    let mut state = open(folder.path(), 2).unwrap();
    members(&mut state, 1).await;
    let reader = state.reader();
    assert_eq!(reader.format(), 1);
    let early = apply(&mut state, 2, 2, vec![Ask::PutTwice("a".into())]).await;
    let text = early.unwrap_err();
    assert!(
        text.contains("of format 2, and the log before it of format 1"),
        "{text}"
    );
    assert!(apply(&mut state, 2, 0, vec![]).await.is_err());
    assert!(keys(&state).is_empty() && reader.format() == 1);

    let beside = vec![Ask::Put("b".into()), Ask::Raise(2, 1)];
    assert_eq!(
        apply(&mut state, 2, 1, beside).await.unwrap(),
        [Some(true), None]
    );
    for (index, ask, told) in [
        (3, Ask::Raise(2, 0), Some(false)),
        (4, Ask::Raise(1, 1), Some(false)),
        (5, Ask::RaiseAndRefuse(2, 1), None),
    ] {
        tells(&mut state, index, 1, vec![ask], told).await;
        assert_eq!(reader.format(), 1, "after entry {index}");
    }
    // Members of a later entry have not been asked.
    members(&mut state, 6).await;
    let raise = |at| vec![Ask::Raise(2, at)];
    tells(&mut state, 7, 1, raise(1), Some(false)).await;
    tells(&mut state, 8, 1, raise(6), Some(true)).await;
    assert_eq!(reader.format(), 2);
    tells(&mut state, 9, 1, raise(6), Some(false)).await;
    let lower = vec![Ask::Raise(1, 6)];
    tells(&mut state, 10, 2, lower, Some(false)).await;
    assert_eq!(reader.format(), 2);
    let twice = vec![Ask::PutTwice("c".into())];
    assert_eq!(apply(&mut state, 11, 2, twice).await.unwrap(), [Some(true)]);
    assert_eq!(keys(&state), ["b", "c", "c-2"]);

    reader.close().unwrap();
    drop((state, reader));
    names_both(open(folder.path(), 1));
    let state = open(folder.path(), 2).unwrap();
    assert_eq!(state.reader().format(), 2);
    assert_eq!(keys(&state), ["b", "c", "c-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_does_not_speak_stops_it_before_anything_is_changed() {
    for (format, ops) in [
        (1, vec![Ask::Put("a".into()), Ask::PutTwice("b".into())]),
        (2, vec![Ask::Put("a".into())]),
        (1, vec![Ask::Raise(2, 0)]),
    ] {
        let folder = testkit::scratch();
        let mut old = open(folder.path(), 1).unwrap();
        names_both(apply(&mut old, 1, format, ops.clone()).await);
        assert!(keys(&old).is_empty() && old.reader().format() == 1);
        assert_eq!(old.reader().moment().applied, None);
        // A log of an unreleased version may have it in entries of format 1: one who speaks it applies it.
        if format == 1 {
            let mut new = open(&folder.path().join("new"), 2).unwrap();
            assert!(
                apply(&mut new, 1, 1, ops)
                    .await
                    .unwrap()
                    .iter()
                    .all(|told| *told == Some(true))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_the_format_and_is_taken_by_those_alone_who_speak_it() {
    let folder = testkit::scratch();
    let at = |name: &str| folder.path().join(name);
    let mut state = open(&at("one"), 2).unwrap();
    tells(&mut state, 1, 1, vec![Ask::Raise(2, 0)], Some(true)).await;
    apply(&mut state, 2, 2, vec![Ask::PutTwice("a".into())])
        .await
        .unwrap();
    for (name, speaks) in [("old", 1), ("new", 2)] {
        let snapshot = state.get_current_snapshot().await.unwrap().unwrap();
        let mut other = open(&at(name), speaks).unwrap();
        apply(&mut other, 1, 1, vec![Ask::Put("before".into())])
            .await
            .unwrap();
        let taken = other
            .install_snapshot(&snapshot.meta, snapshot.snapshot)
            .await;
        match speaks {
            1 => {
                names_both(taken.map_err(|error| error.to_string()));
                assert_eq!(
                    (keys(&other), other.reader().format()),
                    (vec!["before".into()], 1)
                );
                other.reader().close().unwrap();
                drop(other);
                assert_eq!(keys(&open(&at(name), 1).unwrap()), ["before"]);
            }
            _ => {
                taken.unwrap();
                assert_eq!(other.reader().format(), 2);
                let more = vec![Ask::PutTwice("b".into())];
                assert_eq!(apply(&mut other, 3, 2, more).await.unwrap(), [Some(true)]);
                assert_eq!(keys(&other), ["a", "a-2", "b", "b-2"]);
            }
        }
    }
}
