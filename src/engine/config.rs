//! Options as text: what a config file says of a database.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::text::{Size, Span};
use crate::base::{Error, Result};
use crate::engine::options::{Durability, Options, Stall};
use crate::env::ClockBehind;
use crate::values::{Compression, Reads, WhenFull};

impl fmt::Display for Durability {
    /// `buffered`, `sync`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Buffered => "buffered",
            Durability::Sync => "sync",
        })
    }
}

impl FromStr for Durability {
    type Err = Error;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Durability> {
        match text {
            "buffered" => Ok(Durability::Buffered),
            "sync" => Ok(Durability::Sync),
            _ => Err(Error::invalid("durability", text, "buffered or sync")),
        }
    }
}

/// The settings that are plain data, each under the name of its method.
#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename = "Options")]
struct Plain {
    durability: Durability,
    sync_interval: Span,
    memtable_bytes: Size,
    cache_bytes: Size,
    compression: Compression,
    background_rate: Size,
    background_floor: Size,
    reclaim_within: Span,
    reclaim_strict: bool,
    max_clock_skew: Span,
    clock_behind: ClockBehind,
    max_runs: usize,
    on_stall: Stall,
    max_live_bytes: Option<Size>,
    when_full: WhenFull,
    given_time: bool,
    read_only: bool,
    among_other_files: bool,
    reads: Reads,
    catch_up_interval: Span,
    scrub_within: Option<Span>,
    paranoid_memory_checks: bool,
}

impl Default for Plain {
    fn default() -> Self {
        Plain::of(&Options::new())
    }
}

impl Plain {
    fn of(options: &Options) -> Plain {
        let size = |bytes: usize| Size(bytes as u64);
        Plain {
            durability: options.durability,
            sync_interval: Span(options.sync_interval),
            memtable_bytes: size(options.memtable_bytes),
            cache_bytes: size(options.cache_bytes),
            compression: options.compression,
            background_rate: Size(options.background_rate),
            background_floor: Size(options.background_floor),
            reclaim_within: Span(options.reclaim_within),
            reclaim_strict: options.reclaim_strict,
            max_clock_skew: Span(options.max_clock_skew),
            clock_behind: options.clock_behind,
            max_runs: options.max_runs,
            on_stall: options.on_stall,
            max_live_bytes: options.max_live_bytes.map(Size),
            when_full: options.when_full,
            given_time: options.given_time,
            read_only: options.read_only,
            among_other_files: options.among_other_files,
            reads: options.reads,
            catch_up_interval: Span(options.catch_up_interval),
            scrub_within: options.scrub_within.map(Span),
            paranoid_memory_checks: options.paranoid_memory_checks,
        }
    }

    /// By the methods, which limit what they are given.
    fn to_options(&self) -> Options {
        let size = |size: &Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        let span = |span: &Span| -> Duration { span.0 };
        let mut options = Options::new()
            .durability(self.durability)
            .sync_interval(span(&self.sync_interval))
            .memtable_bytes(size(&self.memtable_bytes))
            .cache_bytes(size(&self.cache_bytes))
            .compression(self.compression)
            .background_rate(self.background_rate.0)
            .background_floor(self.background_floor.0)
            .reclaim_within(span(&self.reclaim_within))
            .reclaim_strict(self.reclaim_strict)
            .max_clock_skew(span(&self.max_clock_skew))
            .clock_behind(self.clock_behind)
            .max_runs(self.max_runs)
            .on_stall(self.on_stall)
            .when_full(self.when_full)
            .read_only(self.read_only)
            .among_other_files(self.among_other_files)
            .reads(self.reads)
            .paranoid_memory_checks(self.paranoid_memory_checks)
            .catch_up_interval(span(&self.catch_up_interval))
            .scrub_within(self.scrub_within.as_ref().map(span));
        options.max_live_bytes = self.max_live_bytes.as_ref().map(|size| size.0);
        options.given_time = self.given_time;
        options
    }
}

impl Serialize for Options {
    /// All settings that are plain data: all but clock and listener.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Plain::of(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Options {
    /// For config files: each setting has the name of its method, those that are left out have their defaults, and an unknown
    /// name is an error. Times are texts as [`Ttl`](crate::Ttl) has lifetimes, or numbers of seconds; sizes are numbers of
    /// bytes, or texts like `64MiB`. Values are checked when a database is opened with them.
    ///
    /// ```
    /// use ebbtide::Options;
    ///
    /// let config = r#"{ "durability": "sync", "memtable_bytes": "16MiB", "reclaim_within": "10m" }"#;
    /// let options: Options = serde_json::from_str(config)?;
    /// let folder = tempfile::tempdir()?;
    /// options.open(folder.path())?;
    ///
    /// let error = serde_json::from_str::<Options>(r#"{ "memtable_byte": 1000000 }"#).unwrap_err();
    /// assert!(error.to_string().starts_with("unknown field `memtable_byte`, expected one of"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Options, D::Error> {
        let plain = Plain::deserialize(deserializer)?;
        Ok(plain.to_options())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn shown(options: &Options) -> String {
        format!("{options:?}")
    }

    /// Debug shows every setting that is plain data: none is forgotten here.
    #[test]
    fn each_setting_that_is_shown_is_read() {
        let json = r#"{
            "durability": "sync", "sync_interval": "250ms", "memtable_bytes": "16MiB", "cache_bytes": 1000000,
            "compression": "lz4", "background_rate": "10MB", "background_floor": "1 MB", "reclaim_within": "10m",
            "reclaim_strict": true, "max_clock_skew": 90, "clock_behind": "start_at_mark", "max_runs": 8,
            "on_stall": "fail", "max_live_bytes": "1GiB", "when_full": "expire_soonest", "given_time": true,
            "read_only": true, "among_other_files": true, "reads": "pread", "catch_up_interval": 0.5,
            "scrub_within": "30d", "paranoid_memory_checks": true
        }"#;
        let read: Options = serde_json::from_str(json).unwrap();
        let fields = |options: &Options| {
            let shown = shown(options);
            let shown = shown
                .trim_start_matches("Options { ")
                .trim_end_matches(", .. }");
            shown.split(", ").map(str::to_owned).collect::<Vec<_>>()
        };
        for (read, default) in fields(&read).into_iter().zip(fields(&Options::new())) {
            assert_ne!(read, default, "not read");
        }
        assert_eq!(read.max_live_bytes, Some(1 << 30));
        assert_eq!(read.catch_up_interval, Duration::from_millis(500));
        assert_eq!(read.scrub_within, Some(Duration::from_secs(30 * 86_400)));
        let written = serde_json::to_string(&read).unwrap();
        let again: Options = serde_json::from_str(&written).unwrap();
        assert_eq!(shown(&again), shown(&read));
    }

    #[test]
    fn nothing_written_is_the_default() {
        let read: Options = serde_json::from_str("{}").unwrap();
        assert_eq!(shown(&read), shown(&Options::new()));
        let written = serde_json::to_string(&Options::new()).unwrap();
        assert!(written.contains("\"sync_interval\":\"1s\""), "{written}");
    }

    #[test]
    fn limits_hold_for_what_is_read() {
        let json = r#"{ "memtable_bytes": 18446744073709551615, "sync_interval": "99999999999d" }"#;
        let read: Options = serde_json::from_str(json).unwrap();
        let given = Options::new()
            .memtable_bytes(usize::MAX)
            .sync_interval(Duration::MAX);
        assert_eq!(shown(&read), shown(&given));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (json, named) in [
            (r#"{"clock": 1}"#, "unknown field `clock`"),
            (
                r#"{"cache_bytes": "1M"}"#,
                "size 1M is not allowed: bytes, or as in 10MB",
            ),
            (
                r#"{"reclaim_within": "1y"}"#,
                "time 1y is not allowed: seconds, or as in 30m",
            ),
            (r#"{"reclaim_within": -1}"#, "time -1 is not allowed"),
            (r#"{"durability": "none"}"#, "unknown variant `none`"),
            (r#"{"read_only": "yes"}"#, "invalid type"),
        ] {
            let error = serde_json::from_str::<Options>(json).unwrap_err();
            assert!(error.to_string().starts_with(named), "{error}");
        }
    }

    proptest! {
        #[test]
        fn options_read_as_they_are_written(
            nanos: u64, bytes in 0_usize..1 << 50, rate: u64, runs: usize, live: Option<u64>, strict: bool,
        ) {
            let (time, mut options) = (Duration::from_nanos(nanos), Options::new());
            options.max_live_bytes = live;
            let options = options
                .sync_interval(time)
                .scrub_within(strict.then_some(time))
                .memtable_bytes(bytes)
                .background_rate(rate)
                .max_runs(runs)
                .reclaim_strict(strict);
            let json = serde_json::to_string(&options).unwrap();
            let read: Options = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(shown(&read), shown(&options));
        }
    }
}
