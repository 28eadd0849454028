//! Changes of the catalogue by operations of the log.

use super::{Catalogue, Change, ContainerRecord};
use crate::base::{ContainerId, Seq, Timestamp};
use crate::data::new_container::NewContainer;
use crate::expiry::Settings;

/// The changes by one frame of the log: durable there, and repeated by the next edit.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The last sequence number of the frame, or of one operation in it.
    pub seq: Seq,
    /// The settled time that it relied on.
    pub settled: Timestamp,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

impl Catalogue {
    /// Applies what was logged, but for settings that an edit has changed later; or says why it does not fit.
    pub fn note(&mut self, logged: &Logged) -> Result<(), String> {
        self.time_high_water = self.time_high_water.max(logged.settled);
        let is_known = |change: &Change| match change {
            Change::Settings(id, _, seq) => {
                let record = self.containers.get(id);
                record.is_some_and(|record| record.settings_seq >= *seq)
            }
            _ => false,
        };
        let news = logged.changes.iter().filter(|change| !is_known(change));
        let mut news: Vec<Change> = news.cloned().collect();
        news.push(Change::Repeated(logged.seq));
        self.change_all(&news)
    }
}

impl ContainerRecord {
    /// Of a container that the write of this sequence number makes.
    pub fn of_new(id: ContainerId, created: Seq, new: &NewContainer<'_>) -> ContainerRecord {
        ContainerRecord {
            id,
            name: new.name.to_owned(),
            created,
            compression: new.compression,
            settings: Settings::new(new.default),
            settings_seq: created,
            quota: new.quota,
            flushed: Seq(0),
            runs: vec![],
            range_deletes: vec![],
            changes_from: Seq(0),
            keep_expired: new.keep_expired,
            ends_dropped: Timestamp(0),
        }
    }
}
