//! openraft's wish for a snapshot, after which it purges the log: the state is synced.

use std::sync::Arc;

use openraft::{
    ErrorVerb, RaftSnapshotBuilder, RaftTypeConfig, Snapshot, SnapshotMeta, StorageError,
};

use crate::facts;
use crate::failure::{of_snapshot, patiently};
use crate::shared::{Shared, Synced};
use crate::snapshot::SnapshotData;

/// Says what the state holds durably. It makes no copy: a snapshot is made when it is sent (I7).
pub struct SnapshotBuilder<C: RaftTypeConfig> {
    shared: Arc<Shared<C>>,
    synced: Synced<C>,
}

impl<C: RaftTypeConfig> SnapshotBuilder<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, synced: Synced<C>) -> SnapshotBuilder<C> {
        SnapshotBuilder { shared, synced }
    }
}

impl<C: RaftTypeConfig<SnapshotData = SnapshotData>> RaftSnapshotBuilder<C> for SnapshotBuilder<C> {
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, StorageError<C::NodeId>> {
        let open = self.shared.open();
        let known = facts::read::<C::NodeId, C::Node>(&open.db);
        let (known, last_membership) =
            known.map_err(|e| of_snapshot(ErrorVerb::Read, &std::io::Error::other(e)))?;
        let synced = patiently::<C, _>(|| open.db.sync()).await;
        synced.map_err(|e| of_snapshot(ErrorVerb::Write, &e))?;
        self.synced.tell(known.applied.clone());
        let snapshot_id = self.shared.snapshots().id(&known.applied);
        Ok(Snapshot {
            meta: SnapshotMeta {
                last_log_id: known.applied,
                last_membership,
                snapshot_id,
            },
            snapshot: Box::new(SnapshotData::unmade()),
        })
    }
}
