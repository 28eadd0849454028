//! Parts of the key range: a rewrite goes part by part, so that replaced tables are removed as it goes, and finished
//! parts stay when it is interrupted.
//!
//! All versions of a key lie in one table of a run, so a job is complete in itself if its key range cuts through no
//! table of the rewrite. To that end all jobs cut their tables at the same keys, the *guards*, which are computed for
//! each rewrite, at keys where most tables of the container are cut already.

use crate::base::TableId;
use crate::catalog::{Facts, TableFacts};

/// A cut is not worth a file for tables of fewer bytes than this fraction (1/4) of a part.
const LEAST_SHARE: u64 = 4;

/// The keys at which the tables of a container are cut so that `parts` parts have about the same bytes: first keys of
/// tables, those that cut through the fewest bytes of other tables.
pub fn guards(facts: &Facts, parts: u64) -> Vec<Box<[u8]>> {
    if parts < 2 {
        return vec![];
    }
    let mut by_first: Vec<&TableFacts> = facts.tables().map(|(_, table)| table).collect();
    by_first.sort_by(|a, b| a.statistics.first_key.cmp(&b.statistics.first_key));
    let mut by_last = by_first.clone();
    by_last.sort_by(|a, b| a.statistics.last_key.cmp(&b.statistics.last_key));
    let total = facts.bytes().max(1);
    // Bytes of tables that begin before a key, and that end before it; the difference is in tables across the key, and
    // half of that counts as before it.
    let (mut begun, mut ended, mut last) = (0u64, 0u64, 0);
    let mut best: Vec<Option<(u64, u64, &[u8])>> = vec![None; parts as usize];
    for table in &by_first {
        let key = &table.statistics.first_key;
        while last < by_last.len() && by_last[last].statistics.last_key < *key {
            ended += by_last[last].bytes;
            last += 1;
        }
        let (straddling, before) = (begun - ended, ended.midpoint(begun));
        // The nearest of the places where an even partition would cut.
        let nearest = ((2 * before * parts / total).div_ceil(2)).min(parts) as usize;
        let cuts = *key > by_first[0].statistics.first_key;
        if cuts && (1..parts as usize).contains(&nearest) {
            let slot = &mut best[nearest];
            if slot.is_none_or(|(least, ..)| straddling < least) {
                *slot = Some((straddling, before, key));
            }
        }
        begun += table.bytes;
    }
    let (mut guards, mut from) = (vec![], 0);
    for (_, before, key) in best.into_iter().flatten() {
        if before - from >= total / (LEAST_SHARE * parts) {
            guards.push(key.into());
            from = before;
        }
    }
    guards
}

/// Cuts the inputs of a rewrite into parts with whole tables, in key order, of at least `bytes` each where that is
/// possible.
pub fn parts(tables: &[&TableFacts], bytes: u64) -> Vec<Vec<TableId>> {
    let mut tables = tables.to_vec();
    tables.sort_by(|a, b| a.statistics.first_key.cmp(&b.statistics.first_key));
    let (mut parts, mut part, mut held) = (vec![], vec![], 0);
    let mut last: &[u8] = &[];
    for table in tables {
        let statistics = &table.statistics;
        if held >= bytes && *statistics.first_key > *last {
            parts.push(std::mem::take(&mut part));
            held = 0;
        }
        last = last.max(&statistics.last_key);
        held += table.bytes;
        part.push(table.id);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::hash::hash_key;
    use crate::base::record::{Header, Kind, RecordRef};
    use crate::base::{ItemTtl, Seq, Timestamp};
    use crate::catalog::{RunFacts, RunId};
    use crate::expiry::{Census, DefaultMillis, Settings};
    use crate::table::Collector;

    fn table(id: u64, first: u8, last: u8, bytes: u64) -> TableFacts {
        let (mut collector, mut census) = (Collector::default(), Census::default());
        for key in [[first], [last]] {
            let header = Header {
                kind: Kind::Put,
                seq: Seq(id),
                written_at: Timestamp(0),
                ttl: ItemTtl::Never,
            };
            let record = RecordRef {
                header,
                key: &key,
                value_len: 0,
            };
            collector.add(&record, hash_key(&key), true);
            census.add(&record);
        }
        collector.add_block(&census, &[last]);
        TableFacts {
            id: TableId(id),
            bytes,
            statistics: Arc::new(collector.finish(Settings::default())),
        }
    }

    fn container(runs: Vec<Vec<TableFacts>>) -> Facts {
        let run = |(id, tables): (usize, Vec<TableFacts>)| {
            Arc::new(RunFacts {
                id: RunId(id as u64),
                end: Timestamp::MAX,
                end_assumes: DefaultMillis::Off,
                applied: Seq(0),
                census: Census::default(),
                bytes: tables.iter().map(|table| table.bytes).sum(),
                tables,
            })
        };
        Facts {
            runs: runs.into_iter().enumerate().map(run).collect(),
            range_deletes: Arc::default(),
        }
    }

    #[test]
    fn a_part_ends_where_no_table_straddles() {
        let tables = [
            table(1, 0, 99, 10),
            table(2, 100, 200, 10),
            table(3, 0, 50, 10),
            table(4, 51, 99, 10),
            table(5, 100, 149, 10),
            table(6, 150, 250, 10),
        ];
        let all: Vec<&TableFacts> = tables.iter().collect();
        let ids = |bytes: u64| -> Vec<Vec<u64>> {
            let parts = parts(&all, bytes);
            parts
                .iter()
                .map(|part| part.iter().map(|id| id.0).collect())
                .collect()
        };
        assert_eq!(ids(1), [[1, 3, 4], [2, 5, 6]]);
        assert_eq!(ids(31), [[1, 3, 4, 2, 5, 6]], "so much at least");
        let apart: Vec<&TableFacts> = tables[2..].iter().collect();
        assert_eq!(parts(&apart, 1).len(), 4);
    }

    #[test]
    fn guards_lie_where_tables_are_cut_already() {
        let cut_alike = |id: u64| vec![table(id, 0, 99, 10), table(id + 1, 100, 250, 10)];
        let odd = vec![table(90, 0, 120, 10), table(91, 121, 250, 10)];
        let facts = container(vec![cut_alike(1), odd, cut_alike(3), cut_alike(5)]);
        assert_eq!(guards(&facts, 2), [vec![100].into_boxed_slice()]);
        assert!(guards(&facts, 1).is_empty());
        assert!(guards(&container(vec![]), 10).is_empty());
        let whole = container(vec![vec![table(1, 0, 250, 10)], vec![table(2, 0, 250, 10)]]);
        assert!(guards(&whole, 10).is_empty(), "no table is cut yet");
    }
}
