//! The words that every layer shares: sequence numbers, identities, moments, lifetimes, file names.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The place of one record in the total order of all writes of a database. 0 stands before every write.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Seq(pub u64);

impl Seq {
    /// Above every sequence number: "the newest version there is".
    pub const MAX: Seq = Seq(u64::MAX);

    /// The number after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

/// Names a table file; never reused within a database.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct TableId(pub u64);

/// Names a container for good; a container that is dropped and created anew gets another one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct ContainerId(pub u32);

/// A moment: milliseconds since the Unix epoch.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than every moment: "never".
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// This moment and `millis` more; stands still at [`Timestamp::MAX`].
    pub fn after(self, millis: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(millis))
    }

    /// This moment less `millis`; stands still at the epoch.
    pub fn before(self, millis: u64) -> Timestamp {
        Timestamp(self.0.saturating_sub(millis))
    }

    /// Milliseconds from `earlier` to this moment, 0 when it is not earlier.
    pub fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment as the standard library writes it.
    pub fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH
            .checked_add(Duration::from_millis(self.0))
            .unwrap_or(UNIX_EPOCH)
    }

    /// A moment of the standard library, rounded up to a whole millisecond; before the epoch is the epoch.
    pub fn from_system_time_up(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp(millis_up(since)),
            Err(_) => Timestamp(0),
        }
    }
}

impl fmt::Display for Timestamp {
    /// UTC, as RFC 3339 with milliseconds: `2026-03-01T12:00:00.250Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, in_day) = (self.0 / 86_400_000, self.0 % 86_400_000);
        // Civil date from a day count, by 400-year eras that start on 1 March (H. Hinnant, "chrono-compatible
        // low-level date algorithms").
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
        let (second, milli) = (in_day / 1_000 % 60, in_day % 1_000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
}

/// Whole milliseconds of a duration, rounded up.
pub fn millis_up(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// The longest lifetime, 2 147 483 647 seconds, in milliseconds.
pub const MAX_TTL_MILLIS: u64 = 2_147_483_647_000;

/// The lifetime of one item, as a write gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ttl {
    /// The container's default counts, whatever it is at the moment of asking.
    #[default]
    Inherit,
    /// The item never expires by itself.
    Never,
    /// The item expires this long after its last write: more than 0, at most 2 147 483 647 s; rounded up to 1 ms.
    After(Duration),
    /// Stored as the lifetime that ends at this moment; one that has passed is kept as lifetime 0: expired from the
    /// start wherever ttl counts.
    Until(SystemTime),
}

/// The container's setting: what becomes of items without a ttl of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DefaultTtl {
    /// Nothing expires, not even items with a ttl of their own.
    #[default]
    Off,
    /// Items with a ttl of their own expire; the others do not (Cosmos: -1).
    NoDefault,
    /// Items without a ttl of their own expire this long after their last write.
    After(Duration),
}

/// An item's own ttl as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemTtl {
    /// The container's default counts.
    Absent,
    /// Never expires.
    Never,
    /// Milliseconds after `written_at`; 0 only from [`Ttl::Until`] a moment that had passed.
    Millis(u64),
}

impl ItemTtl {
    /// As the public interface shows it.
    pub fn to_public(self) -> Ttl {
        match self {
            ItemTtl::Absent => Ttl::Inherit,
            ItemTtl::Never => Ttl::Never,
            ItemTtl::Millis(millis) => Ttl::After(Duration::from_millis(millis)),
        }
    }
}

/// How the bytes of tables come into memory. The log and the manifest are always read by calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reads {
    /// Through memory maps: the fastest, and without a copy. Each part of a table is brought in by a call that reports a
    /// failing device as an error before it is touched for the first time; but what the system evicts later and cannot
    /// read again raises SIGBUS, which ends the process.
    #[default]
    Map,
    /// By `pread`: a failing device is always an error. Blocks go through the cache of decoded blocks
    /// (`Options::cache_bytes`); filters and indexes, 2 to 4 % of the tables, stay in memory from their first use on;
    /// every table holds a file descriptor.
    Pread,
}

/// How the blocks and the large values of a table are stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// As they are: reads hand out the file's own bytes, without a copy.
    #[default]
    None,
    /// By LZ4, each block and each large value by itself, where that saves at least an eighth; decoded blocks are
    /// kept in the cache.
    Lz4,
}

/// No database counts that far: files, edits, writes. A larger number on disk was made up, and is refused before one that
/// follows it overflows.
pub const HIGHEST_NUMBER: u64 = 1 << 56;

/// Names of the files in a database folder; the one place that spells them.
pub mod file_name {
    use super::{HIGHEST_NUMBER, TableId};

    /// Held while a process has the database open.
    pub const LOCK: &str = "LOCK";
    /// The folder of log segments.
    pub const WAL_DIR: &str = "wal";
    /// The folder of tables.
    pub const TABLES_DIR: &str = "tables";
    /// The folder of the manifest's copy.
    pub const COPY_DIR: &str = "copy";
    /// The folder of what a repair put aside.
    pub const LOST_DIR: &str = "lost";
    /// Ends the name of a file that is not whole yet.
    pub const TEMPORARY: &str = ".tmp";

    /// `manifest-000042`
    pub fn manifest(number: u64) -> String {
        format!("manifest-{number:06}")
    }

    /// `000042.manifest`, inside [`COPY_DIR`]: the copy of a manifest.
    pub fn copy(number: u64) -> String {
        format!("{number:06}.manifest")
    }

    /// `000042.wal`, inside [`WAL_DIR`].
    pub fn segment(number: u64) -> String {
        format!("{number:06}.wal")
    }

    /// `000042.table`, inside [`TABLES_DIR`].
    pub fn table(id: TableId) -> String {
        format!("{:06}.table", id.0)
    }

    /// The number in a manifest's name.
    pub fn parse_manifest(name: &str) -> Option<u64> {
        number(name.strip_prefix("manifest-")?)
    }

    /// The number in the name of a manifest's copy.
    pub fn parse_copy(name: &str) -> Option<u64> {
        number(name.strip_suffix(".manifest")?)
    }

    /// The number in a segment's name.
    pub fn parse_segment(name: &str) -> Option<u64> {
        number(name.strip_suffix(".wal")?)
    }

    /// The identity in a table's name.
    pub fn parse_table(name: &str) -> Option<TableId> {
        number(name.strip_suffix(".table")?).map(TableId)
    }

    /// A file that is named by a number, as all in the folders above are, whole or not.
    pub fn is_numbered(name: &str) -> bool {
        let digits = name.split_once('.').map_or("", |(digits, _)| digits);
        digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Only what the functions above print is read back: a file of another spelling is not ours.
    fn number(digits: &str) -> Option<u64> {
        let value: u64 = digits.parse().ok()?;
        (value <= HIGHEST_NUMBER && digits == format!("{value:06}")).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            Timestamp(951_782_400_001).to_string(),
            "2000-02-29T00:00:00.001Z"
        );
        assert_eq!(
            Timestamp(1_772_366_400_250).to_string(),
            "2026-03-01T12:00:00.250Z"
        );
    }

    #[test]
    fn file_names_are_read_back_exactly() {
        assert_eq!(
            file_name::parse_table(&file_name::table(TableId(7))),
            Some(TableId(7))
        );
        assert_eq!(file_name::parse_segment("1234567.wal"), Some(1_234_567));
        assert_eq!(file_name::parse_manifest(&file_name::manifest(0)), Some(0));
        assert_eq!(file_name::parse_copy(&file_name::copy(9)), Some(9));
        for foreign in [
            "7.table",
            "+00007.table",
            "000007.table.tmp",
            "0000007.table",
            ".table",
        ] {
            assert_eq!(file_name::parse_table(foreign), None, "{foreign}");
        }
    }
}
