//! The version that a job's result leads to, and the changes of range deletes that lead there.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::base::{ContainerId, Seq};
use crate::catalog::{Change, ContainerVersion, Run};
use crate::data::range_delete::{RangeDelete, discernible};
use crate::engine::parts::read_state::Flushable;
use crate::mem::RangeDeletes;

/// The version without the runs `removed`, with those `added`, and with those range deletes of the version and of the
/// memtable that was `flushed` which are still needed. With it: the sequence numbers of the open snapshots, ascending.
pub(in crate::engine) fn next_version(
    current: &ContainerVersion,
    removed: &[Arc<Run>],
    added: &[Arc<Run>],
    flushed: Option<(&Arc<Flushable>, &[Seq])>,
) -> ContainerVersion {
    let stays = |run: &&Arc<Run>| removed.iter().all(|gone| gone.id != run.id);
    let runs = current.runs.iter().filter(stays).chain(added);
    let next = ContainerVersion::new(runs.cloned().collect(), current.range_deletes.clone());
    let own = flushed.map(|(flushable, snapshots)| (flushable.memtable.range_deletes(), snapshots));
    let range_deletes = needed_ranges(&next, own);
    ContainerVersion {
        range_deletes,
        ..next
    }
}

/// The range deletes of a version, and those of a memtable flushed to it, that still hide a record from some reader.
/// `snapshots`: the sequence numbers of the open snapshots, ascending.
fn needed_ranges(
    version: &ContainerVersion,
    flushed: Option<(&Arc<RangeDeletes>, &[Seq])>,
) -> Arc<RangeDeletes> {
    let own = flushed.filter(|(own, _)| !own.is_empty());
    let mut all: Vec<&RangeDelete> = version.range_deletes.iter().collect();
    let before = all.len();
    if let Some((own, _)) = own {
        // After an interrupted flush the catalogue already has some of them.
        all.extend(own.iter());
        all.sort_by_key(|delete| delete.seq);
        all.dedup();
    }
    let shows = match own {
        Some((_, snapshots)) => discernible(&all, snapshots),
        None => vec![true; all.len()],
    };
    let needed = all.into_iter().zip(shows);
    let needed = needed.filter(|(delete, shows)| *shows && version.needs(delete));
    let needed: Vec<&RangeDelete> = needed.map(|(delete, _)| delete).collect();
    let there = version.range_deletes.iter();
    if needed.len() == before && needed.iter().zip(there).all(|(a, b)| **a == *b) {
        return version.range_deletes.clone();
    }
    Arc::new(needed.into_iter().cloned().collect())
}

/// The approximate maximum length of an edit in bytes, not counting one range delete.
const EDIT_BYTES: usize = 1 << 20;

/// The changes from one version's range deletes to the next version's, in one part for each edit that they take. A
/// removal names a sequence number and removes all range deletes that have it. A repair may give one sequence number to
/// several; those that stay are added again.
pub(in crate::engine) fn range_changes(
    id: ContainerId,
    current: &ContainerVersion,
    next: &ContainerVersion,
) -> Vec<Vec<Change>> {
    if Arc::ptr_eq(&current.range_deletes, &next.range_deletes) {
        return vec![];
    }
    let old: HashSet<&RangeDelete> = current.range_deletes.iter().collect();
    let new: HashSet<&RangeDelete> = next.range_deletes.iter().collect();
    let gone = current.range_deletes.iter();
    let gone = gone.filter(|delete| !new.contains(delete));
    let gone: BTreeSet<Seq> = gone.map(|delete| delete.seq).collect();
    let added = |delete: &RangeDelete| Change::AddRangeDelete(id, delete.clone());
    let (mut parts, mut bytes) = (vec![vec![]], 0);
    let come = next.range_deletes.iter();
    for delete in come.filter(|delete| !old.contains(delete)) {
        let to = delete.range.to.as_ref().map_or(0, |to| to.len());
        // An edit stores two digits a byte, and some bytes around them.
        let len = 2 * (delete.range.from.len() + to) + 64;
        if bytes > 0 && bytes + len > EDIT_BYTES {
            bytes = 0;
            parts.push(vec![]);
        }
        bytes += len;
        parts
            .last_mut()
            .expect("there is a part")
            .push(added(delete));
    }
    let last = parts.last_mut().expect("there is a part");
    last.extend(gone.iter().map(|seq| Change::RemoveRangeDelete(id, *seq)));
    let stays = next.range_deletes.iter();
    let stays = stays.filter(|delete| gone.contains(&delete.seq));
    last.extend(stays.map(added));
    parts
}
