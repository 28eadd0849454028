//! The names of the files in a database folder, defined only here.

use crate::base::{HIGHEST_NUMBER, TableId};

/// Held while a process has the database open.
pub const LOCK: &str = "LOCK";
/// The folder of log segments.
pub const WAL_DIR: &str = "wal";
/// The folder of tables.
pub const TABLES_DIR: &str = "tables";
/// The folder of the manifest's copy.
pub const COPY_DIR: &str = "copy";
/// The folder for files that a repair set aside.
pub const LOST_DIR: &str = "lost";
/// All folders in that of a database.
pub const FOLDERS: [&str; 4] = [TABLES_DIR, WAL_DIR, COPY_DIR, LOST_DIR];
/// The folder that a file system has in its root.
pub const OF_FILE_SYSTEM: &str = "lost+found";
/// The suffix of a file that is not complete yet.
pub const TEMPORARY: &str = ".tmp";

/// `manifest-000042`
pub fn manifest(number: u64) -> String {
    format!("manifest-{number:06}")
}

/// `000042.manifest`, inside [`COPY_DIR`]: the copy of a manifest.
pub fn copy(number: u64) -> String {
    format!("{number:06}.manifest")
}

/// `000042.none`, inside [`COPY_DIR`]: records that this manifest has no copy.
pub fn no_copy(number: u64) -> String {
    format!("{number:06}.none")
}

/// `000042.wal`, inside [`WAL_DIR`].
pub fn segment(number: u64) -> String {
    format!("{number:06}.wal")
}

/// `000042.table`, inside [`TABLES_DIR`].
pub fn table(id: TableId) -> String {
    format!("{:06}.table", id.0)
}

/// `000042.table.tmp`, inside [`TABLES_DIR`]: a table that a bulk load is writing.
pub fn loading(id: TableId) -> String {
    table(id) + TEMPORARY
}

/// The number in a manifest's name.
pub fn parse_manifest(name: &str) -> Option<u64> {
    number(name.strip_prefix("manifest-")?)
}

/// The number in the name of a manifest's copy.
pub fn parse_copy(name: &str) -> Option<u64> {
    number(name.strip_suffix(".manifest")?)
}

/// The number in the name of the file that records that a manifest has no copy.
pub fn parse_no_copy(name: &str) -> Option<u64> {
    number(name.strip_suffix(".none")?)
}

/// The number in a segment's name.
pub fn parse_segment(name: &str) -> Option<u64> {
    number(name.strip_suffix(".wal")?)
}

/// The id in a table's name.
pub fn parse_table(name: &str) -> Option<TableId> {
    number(name.strip_suffix(".table")?).map(TableId)
}

/// Whether it is a manifest, complete or not.
pub fn is_manifest(name: &str) -> bool {
    parse_manifest(name.strip_suffix(TEMPORARY).unwrap_or(name)).is_some()
}

/// Whether a database gives this name to something in its folder.
pub fn is_own(name: &str) -> bool {
    [LOCK, WAL_DIR, TABLES_DIR, COPY_DIR, LOST_DIR].contains(&name) || is_manifest(name)
}

/// Whether it is a numbered file, as all in the folders above are, complete or not.
pub fn is_numbered(name: &str) -> bool {
    let digits = name.split_once('.').map_or("", |(digits, _)| digits);
    digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Only names that the functions above print are parsed: a file with another spelling is not the database's.
fn number(digits: &str) -> Option<u64> {
    let value: u64 = digits.parse().ok()?;
    (value <= HIGHEST_NUMBER && digits == format!("{value:06}")).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_read_back_exactly() {
        assert_eq!(parse_table(&table(TableId(7))), Some(TableId(7)));
        assert_eq!(parse_segment("1234567.wal"), Some(1_234_567));
        assert_eq!(parse_manifest(&manifest(0)), Some(0));
        assert_eq!(parse_copy(&copy(9)), Some(9));
        for foreign in [
            "7.table",
            "+00007.table",
            "000007.table.tmp",
            "0000007.table",
            ".table",
        ] {
            assert_eq!(parse_table(foreign), None, "{foreign}");
        }
    }
}
