//! Reads of many keys, in groups. For each group memtables are searched one key after the other, and runs in the steps of
//! [`Lookup`], for all keys side by side.
//!
//! A group has one [`ReadPoint`] and one look at the clock. Where that leaves open whether a version is live, its key is read
//! again, as a single read.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::hash::hash_key;
use crate::base::{Result, Seq, Wait};
use crate::catalog::Run;
use crate::engine::parts::read_state::ReadState;
use crate::engine::read::point::{Hit, ReadPoint, in_memory};
use crate::table::{Lookup, Table, TableHit};

/// Keys of a group: about as many cache lines as a core can load at once.
const GROUP: usize = 16;

/// A key and the version found.
struct Wanted<'a> {
    key: &'a [u8],
    hash: u64,
    hit: Option<Hit<'a>>,
}

impl Wanted<'_> {
    /// Whether a run may have a newer version than the one found. No run has one newer than a memtable's.
    fn may_be_in(&self, run: &Run) -> bool {
        match &self.hit {
            None => true,
            Some(Hit::Memory(_)) => false,
            Some(Hit::Disk(found)) => found.header.seq < run.census.seq_max,
        }
    }

    fn take(&mut self, found: TableHit) {
        let is_newer = |hit: &Hit<'_>| hit.header().seq < found.header.seq;
        if self.hit.as_ref().is_none_or(is_newer) {
            self.hit = Some(Hit::Disk(found));
        }
    }
}

/// Finds the newest versions up to `max`, dead or not, of those keys that no range delete covers.
fn newest_of(read_state: &ReadState, wanted: &mut [Wanted<'_>], max: Seq) -> Result<()> {
    let mut asked = Vec::with_capacity(wanted.len());
    for run in &read_state.version.runs {
        if run.census.seq_min <= max {
            look_up(run, wanted, max, &mut asked)?;
        }
    }
    for wanted in wanted {
        let covered = |hit: &mut Hit<'_>| read_state.covers(wanted.key, hit.header().seq, max);
        wanted.hit.take_if(covered);
    }
    Ok(())
}

/// Looks up in a run the keys that it may have; `asked` is room for which of them and in which table.
fn look_up<'a>(
    run: &'a Run,
    wanted: &mut [Wanted<'_>],
    max: Seq,
    asked: &mut Vec<(usize, &'a Arc<Table>)>,
) -> Result<()> {
    asked.clear();
    for (number, wanted) in wanted.iter().enumerate() {
        if wanted.may_be_in(run)
            && let Some(table) = run.table_for(wanted.key)
        {
            Lookup::announce(table, wanted.hash)?;
            asked.push((number, table));
        }
    }
    let mut lookups = vec![];
    for &mut (number, table) in asked {
        let Wanted { key, hash, .. } = wanted[number];
        if let Some(lookup) = Lookup::start(table, hash, key)? {
            lookups.push((number, lookup));
        }
    }
    Lookup::read_blocks(lookups.iter_mut().map(|(_, lookup)| lookup));
    for (_, lookup) in &mut lookups {
        lookup.find_entry()?;
    }
    for (number, lookup) in lookups {
        if let Some(found) = lookup.finish(max)? {
            wanted[number].take(found);
        }
    }
    Ok(())
}

impl ReadPoint<'_, Wait> {
    /// The values of live items, in the order of the keys: each as [`ReadPoint::get`] would find it.
    pub fn get_many<K: AsRef<[u8]>>(mut self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let mut values = Vec::with_capacity(keys.len());
        for (number, group) in keys.chunks(GROUP).enumerate() {
            if number > 0 {
                self = self.renewed()?;
            }
            self.get_group(group, &mut values)?;
        }
        Ok(values)
    }

    #[cold]
    fn get_anew(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.renewed()?.get(key)
    }

    fn get_group<K: AsRef<[u8]>>(&self, keys: &[K], values: &mut Vec<Option<Bytes>>) -> Result<()> {
        let (read_state, max) = self.seen();
        let mut wanted: Vec<_> = keys
            .iter()
            .map(|key| {
                let (key, hash) = (key.as_ref(), hash_key(key.as_ref()));
                let hit = in_memory(read_state, hash, key, max);
                Wanted { key, hash, hit }
            })
            .collect();
        newest_of(read_state, &mut wanted, max)?;
        let view = self.view()?;
        for Wanted { key, hit, .. } in wanted {
            let Some(hit) = hit else {
                self.wait_for_catch_up()?;
                values.push(None);
                continue;
            };
            if self.checks() {
                hit.check()?;
            }
            values.push(match self.is_live(&hit.header(), &view) {
                Some(true) => Some(hit.value::<Wait>()?),
                Some(false) => None,
                None => self.get_anew(key)?,
            });
        }
        Ok(())
    }
}
