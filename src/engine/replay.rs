//! Bringing into memtables what the log holds and runs do not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::batch::{KeyRange, Ops, Relogged, relogged};
use crate::engine::state::ContainerState;
use crate::engine::write::insert;
use crate::env::Fs;
use crate::error::{Error, Result};
use crate::types::{ContainerId, HIGHEST_NUMBER};
use crate::version::Catalogue;
use crate::wal::{Frame, FrameKind, Replayed, salvage};

/// What to say of a sequence number above [`HIGHEST_NUMBER`].
pub(super) const MADE_UP: &str = "no database counts that many writes";

type States = BTreeMap<ContainerId, Arc<ContainerState>>;

/// Brings it in, up to the log's damage if there is any, which is returned beside what was found.
pub(super) fn replay_into(
    fs: &dyn Fs,
    wal_dir: &Path,
    catalogue: &Catalogue,
    states: &States,
) -> Result<(Replayed, Option<Error>)> {
    let (first, closed) = (catalogue.log, catalogue.log_is_closed);
    salvage(fs, wal_dir, first, closed, &mut |frame| {
        insert_frame(frame, states)
    })
}

fn insert_frame(frame: &Frame<'_>, states: &States) -> Result<()> {
    let malformed = |what| frame.corruption(&what);
    if frame.head.first_seq.0 > HIGHEST_NUMBER {
        return Err(Error::corruption(frame.path, frame.offset, MADE_UP));
    }
    match frame.head.kind {
        FrameKind::Batch => {
            let mut seq = frame.head.first_seq;
            for op in Ops::new(frame.payload) {
                let op = op.map_err(malformed)?;
                if let Some(state) = states.get(&op.container())
                    && seq > state.flushed()
                {
                    insert(&state.picture().active, &op, seq, frame.head.written_at);
                }
                seq = seq.next();
            }
        }
        FrameKind::Relog => {
            for entry in relogged(frame.payload) {
                insert_relogged(&entry.map_err(malformed)?, states);
            }
        }
        FrameKind::End => {}
    }
    Ok(())
}

fn insert_relogged(entry: &Relogged<'_>, states: &States) {
    let (container, seq) = match *entry {
        Relogged::Record {
            container, header, ..
        } => (container, header.seq),
        Relogged::Range { container, seq, .. } => (container, seq),
    };
    let Some(state) = states.get(&container).filter(|state| seq > state.flushed()) else {
        return;
    };
    let memtable = &state.picture().active.memtable;
    match *entry {
        Relogged::Record {
            header, key, value, ..
        } => memtable.insert(header, key, value),
        Relogged::Range { from, to, .. } => {
            let to = (!to.is_empty()).then(|| to.to_vec());
            memtable.delete_range(
                KeyRange {
                    from: from.to_vec(),
                    to,
                },
                seq,
            );
        }
    }
}
