//! Changes of the catalogue by operations of the log.

use super::{Change, ContainerRecord};
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
