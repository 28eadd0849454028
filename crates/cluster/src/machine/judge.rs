//! The conditions of writes: whether an op writes anything.
//!
//! ```text
//! apply ──> judge ── over a step: what stands at the entry's time, and what the entry has written
//! leader ─> judge ── over what it shows now: an op that writes nothing is proposed whatever a quota says, for an answer
//! ```
//!
//! Invariant: whatever apply decides by conditions it decides here. The leader's judgement is a guess, for others write meanwhile.

use std::collections::HashMap;

use ebbtide_openraft::{Step, StepError, View};

use super::body::{Act, Reply, When, Write};
use super::version_of;

/// The items that conditions are about.
pub trait Standing {
    type Error;

    fn has_container(&self, name: &str) -> bool;

    /// The version of an item.
    fn version(&mut self, container: &str, key: &[u8]) -> Result<Option<u64>, Self::Error>;
}

impl Standing for Step<'_> {
    type Error = StepError;

    fn has_container(&self, name: &str) -> bool {
        Step::has_container(self, name)
    }

    fn version(&mut self, container: &str, key: &[u8]) -> Result<Option<u64>, StepError> {
        Ok(version_of(self.get(container, key)?.as_ref()))
    }
}

impl Standing for View {
    type Error = ebbtide::Error;

    fn has_container(&self, name: &str) -> bool {
        self.container(name).is_ok()
    }

    fn version(&mut self, container: &str, key: &[u8]) -> ebbtide::Result<Option<u64>> {
        let item = self.container(container)?.item(key)?;
        Ok(item.map(|item| item.version().as_u64()))
    }
}

pub fn missing(container: &str, standing: &impl Standing) -> Option<Reply> {
    let is_there = standing.has_container(container);
    (!is_there).then(|| Reply::NoContainer(container.to_owned()))
}

pub fn holds(when: When, version: Option<u64>) -> bool {
    match when {
        When::Always => true,
        When::Absent => version.is_none(),
        When::Present => version.is_some(),
        When::Version(asked) => version == Some(asked),
    }
}

fn conflict(container: &str, key: &bytes::Bytes) -> Reply {
    Reply::Conflict {
        container: container.to_owned(),
        key: key.clone(),
    }
}

/// The reason why nothing is written, if there is one: conditions are judged before anything is, but see what the writes before
/// them will do.
pub fn judge<S: Standing>(writes: &[Write], standing: &mut S) -> Result<Option<Reply>, S::Error> {
    let mut containers = writes.iter().flat_map(|write| {
        let of = match &write.act {
            Act::PutLike(_, of, _) => Some(of),
            _ => None,
        };
        [Some(&write.container), of].into_iter().flatten()
    });
    if let Some(stop) = containers.find_map(|container| missing(container, standing)) {
        return Ok(Some(stop));
    }
    let mut own = HashMap::new();
    for write in writes {
        let place = (&write.container, &write.key);
        let holds = match (own.get(&place), write.when) {
            (_, When::Always) => true,
            // Its own write has no version that it could have asked for.
            (Some(_), When::Version(_)) => false,
            (Some(is_there), When::Absent) => !is_there,
            (Some(is_there), When::Present) => *is_there,
            (None, when) => holds(when, standing.version(&write.container, &write.key)?),
        };
        if !holds {
            return Ok(Some(conflict(&write.container, &write.key)));
        }
        if let Act::PutLike(_, of, key) = &write.act
            && (own.contains_key(&(of, key)) || standing.version(of, key)?.is_none())
        {
            return Ok(Some(conflict(of, key)));
        }
        match write.act {
            Act::Put(..) | Act::PutLike(..) => own.insert(place, true),
            Act::Delete | Act::Take => own.insert(place, false),
            Act::Touch | Act::Expire(_) | Act::Require => None,
        };
    }
    Ok(None)
}
