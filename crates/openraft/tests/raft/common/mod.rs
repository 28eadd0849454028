//! The program that tests run: named numbers and texts, each with a life.

pub mod model;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{ContainerOptions, DefaultTtl, Ttl};
use ebbtide_openraft::{Entry, FORMAT, Machine, Op, SnapshotData, StateStore, Step, StepError};
use openraft::{CommittedLeaderId, EntryPayload, LogId};
use serde::{Deserialize, Serialize};
use testkit::random::Random;

pub const START: u64 = 1_800_000_000_000;
pub const NAMES: [&str; 2] = ["a", "b"];

/// A lifetime, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    Inherit,
    Never,
    For(u64),
    Until(u64),
    Keep,
}

impl Life {
    pub fn ttl(self) -> Ttl {
        let millis = Duration::from_millis;
        match self {
            Life::Inherit => Ttl::Inherit,
            Life::Never => Ttl::Never,
            Life::For(ms) => Ttl::After(millis(ms)),
            Life::Until(ms) => Ttl::Until(std::time::UNIX_EPOCH + millis(ms)),
            Life::Keep => Ttl::Keep,
        }
    }
}

/// Requests of clients; keys are of container `.0` of [`NAMES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    Put(usize, String, String, Life),
    Create(usize, String, String, Life),
    Touch(usize, String),
    Delete(usize, String),
    Take(usize, String),
    Count(usize, String, String),
    /// Counts up; the item's life goes on.
    Add(usize, String, u64),
    /// Writes two keys, then refuses if the third one is there.
    Refuse(usize, String, String, String),
    CompareAndPut(usize, String, String, u64),
    Default(usize, Option<u64>),
    DeleteRange(usize, String, String),
    ExpireBefore(usize, u64),
    ExpireAll(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    Done(bool),
    Item(Option<String>, Option<u64>),
    Number(u64),
}

pub type Applied = ebbtide_openraft::Applied<Told>;
pub type Store = StateStore<Program, Counters>;

openraft::declare_raft_types!(
    pub Program:
        D = Entry<Ask>,
        R = Applied,
        SnapshotData = SnapshotData,
);

#[derive(Clone, Copy)]
pub struct Counters;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl Machine for Counters {
    type Op = Ask;
    type Answer = Told;

    fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
        NAMES.map(|name| (name, ContainerOptions::new())).to_vec()
    }

    fn apply(&self, op: &Ask, step: &mut Step<'_>) -> Result<Told, StepError> {
        let told = match op {
            Ask::Put(c, key, value, life) => {
                step.put(NAMES[*c], key, value, life.ttl())?;
                Told::Done(true)
            }
            Ask::Create(c, key, value, life) => {
                let is_free = step.get(NAMES[*c], key)?.is_none();
                if is_free {
                    step.put(NAMES[*c], key, value, life.ttl())?;
                }
                Told::Done(is_free)
            }
            Ask::Touch(c, key) => match step.get(NAMES[*c], key)? {
                Some(item) => {
                    step.put(NAMES[*c], key, &item.value, item.ttl())?;
                    Told::Done(true)
                }
                None => Told::Done(false),
            },
            Ask::Delete(c, key) => {
                step.delete(NAMES[*c], key)?;
                Told::Done(true)
            }
            Ask::Take(c, key) => {
                let item = step.get(NAMES[*c], key)?;
                if item.is_some() {
                    step.delete(NAMES[*c], key)?;
                }
                let ends = item.as_ref().and_then(|item| item.expires_at);
                Told::Item(item.map(|item| text(&item.value)), ends.map(millis))
            }
            Ask::Count(c, from, to) => {
                let items = step.range(NAMES[*c], &from[..]..&to[..], 5)?;
                let sum = items
                    .iter()
                    .map(|(key, item)| (key.len() + item.value.len()) as u64);
                Told::Number(items.len() as u64 * 1_000 + sum.sum::<u64>())
            }
            Ask::Add(c, key, by) => {
                let item = step.get(NAMES[*c], key)?;
                let number = item
                    .and_then(|item| text(&item.value).parse().ok())
                    .unwrap_or(0u64);
                step.put(NAMES[*c], key, (number + by).to_string(), Ttl::Keep)?;
                Told::Number(number + by)
            }
            Ask::Refuse(c, one, two, unless) => {
                step.put(NAMES[*c], one, "refused", Ttl::Never)?;
                step.delete(NAMES[*c], two)?;
                if step.get(NAMES[*c], unless)?.is_some() {
                    return Err(StepError::refuse("it is there"));
                }
                Told::Done(true)
            }
            Ask::CompareAndPut(c, key, value, version) => {
                let item = step.get(NAMES[*c], key)?;
                let found = item
                    .and_then(|item| item.version)
                    .map(|version| version.as_u64());
                let is_same = found == Some(*version);
                if is_same {
                    step.put(NAMES[*c], key, value, Ttl::Inherit)?;
                }
                Told::Done(is_same)
            }
            command => self.command(command, step)?,
        };
        Ok(told)
    }
}

impl Counters {
    fn command(&self, op: &Ask, step: &mut Step<'_>) -> Result<Told, StepError> {
        let Some(mut commands) = step.commands() else {
            return Err(StepError::refuse("it goes alone"));
        };
        match op {
            Ask::Default(c, ms) => {
                let after = |ms| DefaultTtl::After(Duration::from_millis(ms));
                commands.set_default_ttl(NAMES[*c], ms.map_or(DefaultTtl::NoDefault, after))?;
            }
            Ask::DeleteRange(c, from, to) => {
                commands.delete_range(NAMES[*c], &from[..]..&to[..])?
            }
            Ask::ExpireBefore(c, ms) => {
                let moment = std::time::UNIX_EPOCH + Duration::from_millis(*ms);
                commands.expire_before(NAMES[*c], moment)?;
            }
            Ask::ExpireAll(c) => commands.expire_all(NAMES[*c])?,
            _ => unreachable!("it is no command"),
        }
        Ok(Told::Done(true))
    }
}

pub fn millis(moment: std::time::SystemTime) -> u64 {
    moment
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

pub fn log_id(term: u64, node: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, node), index)
}

pub fn entry(
    log_id: LogId<u64>,
    stamp_ms: u64,
    until_ms: u64,
    ops: Vec<Op<Ask>>,
) -> openraft::Entry<Program> {
    let entry = Entry {
        format: FORMAT,
        stamp_ms,
        until_ms,
        ops,
    };
    openraft::Entry {
        log_id,
        payload: EntryPayload::Normal(entry),
    }
}

pub fn put(key: &str, life: Life) -> Op<Ask> {
    Ask::Put(0, key.into(), "v".into(), life).into()
}

/// Time is paused: it passes when nothing else can go on.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(future)
}

/// The disks that power cuts would leave, before each call from now on.
pub fn watch_cuts(sim: &Sim, seed: u64) -> Arc<Mutex<Vec<Sim>>> {
    let cuts: Arc<Mutex<Vec<Sim>>> = Arc::default();
    let (taken, chance) = (cuts.clone(), Mutex::new(Random(seed)));
    sim.watch(move |sim, _| {
        let chance = chance.lock().unwrap().next();
        taken.lock().unwrap().push(sim.power_cut(chance));
    });
    cuts
}
