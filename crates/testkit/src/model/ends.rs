//! When each item of a container has ended and why, by the definition: its end under the settings of then, or the change or
//! the command that ended it first.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Ttl,
    Default,
    /// A change of the default, under which it had ended already.
    Change,
    Command,
}

/// The end of an item whose key was not written since.
#[derive(Clone, PartialEq, Eq)]
pub struct Ended {
    pub at: u64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub cause: Cause,
    /// The place of its write in the order.
    pub order: u64,
}

impl Version {
    /// Its end under a setting. None at all: it is a delete, or has ended before.
    pub(super) fn end(&self, standard: Standard) -> Option<Option<(u64, Cause)>> {
        let (_, life) = self.put.as_ref()?;
        if self.gone.is_some() {
            return None;
        }
        let cause = match life {
            Life::Own(_) => Cause::Ttl,
            Life::Inherit | Life::Never => Cause::Default,
        };
        Some(end(self.written_at, *life, standard).map(|end| (end, cause)))
    }
}

impl Model {
    /// The ends before a moment, in their order, then by key: of items that were not written over, or deleted, since.
    pub fn ended(&self, container: &str, before: u64) -> Vec<Ended> {
        let contents = &self.containers[container];
        let keys = contents.versions.keys();
        let newest = keys.filter_map(|key| Some((key, contents.newest(key, u64::MAX)?)));
        let ended = newest.filter_map(|(key, version)| {
            let (value, _) = version.put.as_ref()?;
            let gone = version.gone.or_else(|| version.end(contents.standard)?);
            let (at, cause) = gone.filter(|(at, _)| *at < before)?;
            Some(Ended {
                at,
                key: key.clone(),
                value: value.clone(),
                cause,
                order: version.order,
            })
        });
        let mut ended: Vec<Ended> = ended.collect();
        ended.sort_by(|one, other| (one.at, &one.key).cmp(&(other.at, &other.key)));
        ended
    }
}
