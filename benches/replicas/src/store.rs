//! The state machine of the nodes, and what clients say to them.

use std::time::Duration;

use ebbtide::{ContainerOptions, DefaultTtl, Ttl};
use ebbtide_openraft::{Applied, Entry, Machine, SnapshotData, Step, StepError};
use serde::{Deserialize, Serialize};

pub const ITEMS: &str = "items";

/// An item to be put.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Put {
    pub key: u64,
    pub value: Vec<u8>,
    /// 0: it has no end.
    pub life_ms: u64,
}

pub struct Puts;

impl Machine for Puts {
    type Op = Vec<Put>;
    type Answer = ();

    fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
        vec![(ITEMS, ContainerOptions::new().default_ttl(DefaultTtl::Off))]
    }

    fn apply(&self, puts: &Vec<Put>, step: &mut Step<'_>) -> Result<(), StepError> {
        for put in puts {
            let ttl = match put.life_ms {
                0 => Ttl::Never,
                life => Ttl::After(Duration::from_millis(life)),
            };
            step.put(ITEMS, put.key.to_be_bytes(), &put.value, ttl)?;
        }
        Ok(())
    }
}

openraft::declare_raft_types!(
    pub Program: D = Entry<Vec<Put>>, R = Applied<()>, SnapshotData = SnapshotData,
);

#[derive(Serialize, Deserialize)]
pub enum Ask {
    Put(Vec<Put>),
    Get(u64),
    Status,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Value(Option<Vec<u8>>),
    Status(Status),
    Failed(String),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    pub leads: bool,
    /// The last entry that is applied.
    pub index: u64,
    /// Of the log, by `stats()`.
    pub syncs: u64,
    /// Written to the other nodes, calls and answers.
    pub raft_bytes: u64,
}
