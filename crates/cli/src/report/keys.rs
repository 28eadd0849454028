//! Where tables lie among the keys, without telling the keys.
//!
//! ```text
//! run 1   [a ---- f]      [m -- p]          keys that begin or end a table   a  c  f  m  p
//! run 2      [c ------------ m]             their ranks                      1  2  3  4  5
//! ```
//!
//! Between two neighbours lies a step of one and the same width, or none where no table has keys.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use ebbtide::{RunInfo, TableInfo};

/// The first and last keys of all tables of a container, in their order.
pub struct Ranks<'a> {
    /// Rank, from 1, and steps before it.
    keys: BTreeMap<&'a [u8], (usize, usize)>,
    steps: usize,
}

impl<'a> Ranks<'a> {
    pub fn of(runs: &'a [RunInfo]) -> Ranks<'a> {
        let tables = || runs.iter().flat_map(|run| &run.tables);
        // How many tables begin and end at a key.
        let mut edges = BTreeMap::<&[u8], (i64, i64)>::new();
        for table in tables() {
            edges.entry(&table.first_key).or_default().0 += 1;
            edges.entry(&table.last_key).or_default().1 += 1;
        }
        let (mut keys, mut steps, mut open) = (BTreeMap::new(), 0, 0);
        for (at, (key, (begin, end))) in edges.into_iter().enumerate() {
            steps += usize::from(open > 0);
            keys.insert(key, (at + 1, steps));
            open += begin - end;
        }
        Ranks { keys, steps }
    }

    fn place(&self, key: &[u8]) -> (usize, usize) {
        self.keys.get(key).copied().unwrap_or_default()
    }

    /// From the first key of a table to its last, in thousandths of all steps.
    pub fn span(&self, table: &TableInfo) -> (f64, f64) {
        let place = |key| 1_000.0 * self.place(key).1 as f64 / self.steps as f64;
        match self.steps {
            0 => (0.0, 1_000.0),
            _ => (place(&table.first_key), place(&table.last_key)),
        }
    }

    /// The same in words: ranks, or as many bytes of the keys, in hexadecimal digits.
    pub fn words(&self, table: &TableInfo, key_bytes: usize) -> String {
        let ends = [&table.first_key, &table.last_key];
        if key_bytes == 0 {
            let [first, last] = ends.map(|key| self.place(key).0);
            return format!("#{first} to #{last} of {}", self.keys.len());
        }
        let [first, last] = ends.map(|key| {
            let cut = if key.len() > key_bytes { "…" } else { "" };
            HEXLOWER.encode(&key[..key_bytes.min(key.len())]) + cut
        });
        format!("{first} to {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> (tempfile::TempDir, Vec<RunInfo>) {
        let folder = tempfile::tempdir().unwrap();
        let db = ebbtide::Database::open(folder.path()).unwrap();
        let c = db.container("c").unwrap();
        for (first, last) in [("secret-a", "secret-f"), ("secret-m", "secret-p")] {
            c.put(first, "").unwrap();
            c.put(last, "").unwrap();
            db.flush().unwrap();
        }
        (folder, c.runs())
    }

    #[test]
    fn between_tables_there_is_no_step() {
        let (_folder, mut runs) = runs();
        runs.sort_by_key(|run| run.id);
        // Two that lie apart, whether they are still two runs or were joined.
        let tables: Vec<_> = runs.iter().flat_map(|run| &run.tables).collect();
        assert_eq!(tables.len(), 2);
        let ranks = Ranks::of(&runs);
        assert_eq!(ranks.span(tables[0]), (0.0, 500.0));
        assert_eq!(ranks.span(tables[1]), (500.0, 1_000.0));
        assert_eq!(ranks.words(tables[0], 0), "#1 to #2 of 4");
        assert_eq!(ranks.words(tables[1], 2), "7365… to 7365…");
        assert_eq!(
            ranks.words(tables[1], 8),
            "7365637265742d6d to 7365637265742d70"
        );
    }
}
