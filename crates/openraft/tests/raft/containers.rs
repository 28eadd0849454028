//! Goal: containers that entries make and drop, and their quotas, are the same on every replica, and after a power cut before any
//! call of the disk: answers, versions and items.
//!
//! Method: a log that makes, fills, drops and makes again is applied to a state that is left alone, to one that is opened again
//! before each entry, and to one that is cut off from power and applies again what it lost.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{START, block_on, log_id, watch_cuts};
use ebbtide::internals::Sim;
use ebbtide::{ContainerOptions, DefaultTtl, ManualClock, Options, Quota, WhenFull};
use ebbtide_openraft::{
    Entry, FORMAT, Machine, SnapshotData, StateOptions, StateStore, Step, StepError,
};
use openraft::EntryPayload;
use openraft::storage::RaftStateMachine;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Ask {
    Make(String, Option<u64>),
    Drop(String),
    /// In bytes.
    Quota(String, Option<u64>),
    /// With a quota.
    MakeWith(String, u64),
    Put(String, String, String),
}

/// Whether it was done, and the version of the last write.
type Told = Option<(bool, u64)>;

fn quota(max_live_bytes: u64) -> Quota {
    Quota {
        max_live_bytes,
        when_full: WhenFull::ExpireSoonest,
    }
}

struct Rooms;

impl Machine for Rooms {
    type Op = Ask;
    type Answer = Told;

    fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
        vec![]
    }

    fn apply(&self, op: &Ask, step: &mut Step<'_>) -> Result<Told, StepError> {
        let is_done = match op {
            Ask::Put(room, key, value) => {
                if !step.has_container(room) {
                    return Ok(None);
                }
                step.put(room, key, value, ebbtide::Ttl::Inherit)?;
                true
            }
            command => {
                let alone = StepError::refuse("it goes alone");
                let mut commands = step.commands().ok_or(alone)?;
                match command {
                    Ask::Make(room, Some(ms)) => {
                        let after = DefaultTtl::After(Duration::from_millis(*ms));
                        commands.create_container(room, after)?
                    }
                    Ask::Make(room, None) => {
                        commands.create_container(room, DefaultTtl::NoDefault)?
                    }
                    Ask::Drop(room) => commands.drop_container(room)?,
                    Ask::Quota(room, bytes) => {
                        commands.set_quota(room, bytes.map(quota))?;
                        true
                    }
                    Ask::MakeWith(room, bytes) => {
                        let keep = Duration::from_secs(60);
                        let quota = Some(quota(*bytes));
                        let default = DefaultTtl::NoDefault;
                        commands.create_container_with(room, default, keep, quota)?
                    }
                    Ask::Put(..) => unreachable!("it is no command"),
                }
            }
        };
        Ok(Some((is_done, step.version().as_u64())))
    }
}

openraft::declare_raft_types!(
    Program:
        D = Entry<Ask>,
        R = ebbtide_openraft::Applied<Told>,
        SnapshotData = SnapshotData,
);

type Store = StateStore<Program, Rooms>;

fn open(sim: &Sim) -> Result<Store, ebbtide::Error> {
    let state = StateOptions {
        options: Options::new().fs(Arc::new(sim.clone())).stepped(),
        clock: Arc::new(ManualClock::new(START)),
        ..StateOptions::default()
    };
    let options = state.options.clone().given_time();
    let db = options
        .sync_interval(Duration::from_secs(1_000_000))
        .open("/state")?;
    Ok(StateStore::over(db, Rooms, state).unwrap())
}

fn log() -> Vec<Vec<Ask>> {
    let make = |room: &str, ms| vec![Ask::Make(room.into(), ms)];
    let drop = |room: &str| vec![Ask::Drop(room.into())];
    let put = |room: &str, key: &str| Ask::Put(room.into(), key.into(), "v".into());
    vec![
        vec![put("a", "too early")],
        make("a", None),
        make("a", Some(5)),
        vec![put("a", "1"), put("b", "none"), put("a", "2")],
        make("b", Some(25)),
        vec![put("b", "3"), put("a", "4")],
        drop("a"),
        drop("a"),
        vec![put("a", "gone"), put("b", "5")],
        make("a", None),
        vec![put("a", "6")],
        make("ebbtide-openraft.mine", None),
        make("a/b", None),
        vec![Ask::Make("c".into(), None), put("a", "7")],
        vec![put("a", "8"), put("b", "9")],
        vec![Ask::Quota("a".into(), Some(700))],
        // Apply does not go by it.
        vec![put("a", &"k".repeat(900))],
        vec![Ask::Quota("a".into(), Some(1 << 63))],
        vec![Ask::MakeWith("d".into(), 50)],
        vec![Ask::MakeWith("d".into(), 60)],
        vec![Ask::Quota("b".into(), None), Ask::Quota("b".into(), None)],
        vec![Ask::Quota("b".into(), Some(40))],
        vec![Ask::Quota("b".into(), None)],
        vec![Ask::Quota("b".into(), None)],
        drop("d"),
        make("d", None),
        vec![put("d", "10"), put("a", "11")],
    ]
}

fn entry(index: u64, asks: &[Ask]) -> openraft::Entry<Program> {
    let at = START + 10 * index;
    openraft::Entry {
        log_id: log_id(1, 1, index),
        payload: EntryPayload::Normal(Entry {
            format: FORMAT,
            stamp_ms: at,
            until_ms: at,
            ops: asks.iter().map(|ask| ask.clone().into()).collect(),
        }),
    }
}

/// The answers and all that is there.
fn shown(state: &Store) -> String {
    let reader = state.reader();
    let view = reader.view(0);
    let rooms = reader.containers().into_iter().map(|room| {
        let items = view.container(&room).unwrap().range(..).map(|item| {
            let item = item.unwrap();
            format!(
                "{:?} {} {:?}",
                item.key(),
                item.version(),
                item.expires_at()
            )
        });
        (room, items.collect::<Vec<_>>())
    });
    let rooms = rooms.collect::<Vec<_>>();
    let quotas = ["a", "b", "d"].map(|room| reader.quota(room).map(|quota| quota.max_live_bytes));
    format!("{rooms:?} {quotas:?}")
}

fn apply(state: &mut Store, index: u64, asks: &[Ask]) -> Option<String> {
    let applied = block_on(state.apply([entry(index, asks)])).ok()?;
    Some(format!("{:?} {}", applied[0].answers, shown(state)))
}

fn next(state: &Store) -> u64 {
    let applied = state.reader().moment().applied;
    applied.map_or(0, |applied| applied.index + 1)
}

#[test]
fn containers_are_made_and_dropped_alike_whatever_a_replica_went_through() {
    let sim = Sim::new(1);
    let mut alone = open(&sim).unwrap();
    let expected: Vec<String> = log()
        .iter()
        .enumerate()
        .map(|(index, asks)| apply(&mut alone, index as u64, asks).unwrap())
        .collect();
    assert!(expected[14].contains("[57] "), "{}", expected[14]);
    assert_eq!(alone.reader().containers(), ["a", "b", "d"]);
    assert!(
        expected[18].ends_with("[Some(700), None, Some(50)]"),
        "{}",
        expected[18]
    );
    assert!(expected[21].ends_with("[Some(700), Some(40), Some(50)]"));
    assert!(expected[26].ends_with("[Some(700), None, None]"));
    assert!(expected[17].contains("from 1 to 2^62"), "{}", expected[17]);
    assert!(alone.reader().has_quotas());
    let room = alone.reader().container("a").unwrap();
    assert_eq!(room.quota(), None, "the engine has none");

    let sim = Sim::new(2);
    for (index, asks) in log().iter().enumerate() {
        let mut state = open(&sim).unwrap();
        let got = apply(&mut state, index as u64, asks).unwrap();
        assert_eq!(got, expected[index], "entry {index}");
        state.reader().close().unwrap();
    }

    let sim = Sim::new(3);
    let cuts = watch_cuts(&sim, 3);
    let mut state = open(&sim).unwrap();
    for (index, asks) in log().iter().enumerate() {
        apply(&mut state, index as u64, asks).unwrap();
    }
    sim.unwatch();
    let cuts = std::mem::take(&mut *cuts.lock().unwrap());
    assert!(cuts.len() > 20, "{} cuts", cuts.len());
    for (at, cut) in cuts.iter().enumerate() {
        let mut again = open(cut).unwrap();
        for index in next(&again)..log().len() as u64 {
            let got = apply(&mut again, index, &log()[index as usize]).unwrap();
            assert_eq!(
                got, expected[index as usize],
                "entry {index} after cut {at}"
            );
        }
    }
}
