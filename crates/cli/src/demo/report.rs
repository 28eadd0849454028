//! The output of the demo: a line a second, and the result.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use ebbtide::Stats;
use serde_json::{Value, json};

use super::meter::MeterSample;
use super::{GRACE, OPERATIONS_A_SECOND, Scale, WORKERS, spark};
use crate::arguments::Demo;
use crate::failure::Outcome;
use crate::show;
use crate::stats::bytes_written;
use crate::tally::Tally;

pub struct Reporter {
    json: bool,
    /// For each line so far: bytes on disk, and live bytes.
    disk: Vec<u64>,
    live: Vec<u64>,
}

/// The header of the lines.
const COLUMNS: &str =
    "ITEMS, LIVE: what readers see; TABLES, LOG: on disk; EXPIRED: not yet given back";

/// One line.
pub struct Second {
    pub at: Duration,
    pub stats: Stats,
    /// The operations since the previous line, while there is load.
    pub load: Option<MeterSample>,
}

/// The result of the demo.
pub struct Report {
    pub tally: Tally,
    /// Bytes in tables per byte live, at most.
    pub highest_ratio: f64,
    /// Items whose removal was timed.
    pub removed: usize,
    pub removal_p50: Option<Duration>,
    pub removal_longest: Duration,
    /// The longest removal without the time in which the machine did not run the threads for it.
    pub removal_longest_let_run: Duration,
    /// The promised time.
    pub removed_within: Duration,
    /// How long after the load's end the last table was removed, if it was.
    pub emptied: Option<Duration>,
    /// The statistics at the end of the load.
    pub at_end: Stats,
    /// The statistics when no table was left, or none should have been.
    pub stats: Stats,
}

impl Report {
    /// Bytes written to disk per byte put.
    fn written_per_byte_put(&self) -> f64 {
        bytes_written(&self.stats) as f64 / self.stats.bytes_put.max(1) as f64
    }

    /// Bytes that the database wrote after the load ended.
    fn written_at_rest(&self) -> u64 {
        bytes_written(&self.stats) - bytes_written(&self.at_end)
    }

    /// The broken promises, in words.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = self.tally.broken();
        if self.emptied.is_none() {
            broken.push("tables were left when everything had expired".to_owned());
        }
        if self.removal_longest_let_run > self.removed_within + GRACE {
            broken.push(format!(
                "an expired item was on disk for {}",
                show::time(self.removal_longest)
            ));
        }
        broken
    }

    /// One sentence, for a demo that broke no promise.
    fn proved(&self) -> String {
        let so_far = match self.late() {
            None => "",
            Some(_) => ",\nas far as this machine let the database run",
        };
        format!(
            "Proved: none of {} showed an expired session or missed\n\
             a live one, and the bytes of each were off the disk within {} of its end,\n\
             without a call or a write{so_far}.",
            show::counted(self.tally.reads, "answer"),
            show::time(self.removed_within + GRACE),
        )
    }

    /// The promises kept late through no fault of the database, in words.
    pub fn late(&self) -> Option<String> {
        (self.removal_longest > self.removed_within + GRACE).then(|| {
            format!(
                "late: an expired item was on disk for {}, but this machine did not run the threads that remove it for {} of that",
                show::time(self.removal_longest),
                show::time(self.removal_longest - self.removal_longest_let_run),
            )
        })
    }
}

impl Reporter {
    pub fn new(json: bool) -> Reporter {
        Reporter {
            json,
            disk: vec![],
            live: vec![],
        }
    }

    pub fn opening(&self, folder: &Path, settings: &Demo, scale: &Scale) -> Outcome {
        if self.json {
            return Ok(());
        }
        let mut out = stdout().lock();
        writeln!(
            out,
            "A session store under load for {}: {} operations a second, which are\n\
             logins, refreshes, reads and logouts; sessions live {} to {}.\n\
             Every answer is checked. The folder of the database:\n{}\n",
            show::time(Duration::from_secs(settings.seconds)),
            show::count(WORKERS * OPERATIONS_A_SECOND),
            show::time(scale.lifetimes.shortest),
            show::time(scale.lifetimes.longest),
            folder.display(),
        )?;
        writeln!(
            out,
            "{COLUMNS}\n\n   TIME      ITEMS      LIVE    TABLES       LOG   EXPIRED    OPS/S      P99"
        )?;
        Ok(())
    }

    pub fn second(&mut self, second: &Second) -> Outcome {
        let Second { at, stats, load } = second;
        self.disk.push(stats.table_bytes + stats.log_bytes);
        self.live.push(stats.live_bytes);
        let mut out = stdout().lock();
        if self.json {
            let mut line = ebbtide_control::figures(stats);
            line["at_seconds"] = show::seconds_json(*at);
            if let Some(load) = load {
                line["puts"] = load.puts.into();
                line["gets"] = load.gets.into();
                line["p50_micros"] = show::micros_json(load.quantile(0.5));
                line["p99_micros"] = show::micros_json(load.quantile(0.99));
            }
            return Ok(writeln!(out, "{line}")?);
        }
        write!(
            out,
            "{:>5} s  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}",
            at.as_secs(),
            show::count(stats.live_items),
            show::bytes(stats.live_bytes),
            show::bytes(stats.table_bytes),
            show::bytes(stats.log_bytes),
            show::bytes(stats.expired_bytes),
        )?;
        match load {
            None => writeln!(out)?,
            Some(load) => writeln!(
                out,
                "  {:>7}  {:>7}",
                show::count(load.puts + load.gets),
                load.quantile(0.99).map_or("-".to_owned(), show::time),
            )?,
        }
        Ok(())
    }

    pub fn resting(&self) -> Outcome {
        if !self.json {
            writeln!(stdout().lock(), "\nNo load and no write from here on.\n")?;
        }
        Ok(())
    }

    /// `in_folder`: the bytes of all files, as the file system counts them.
    pub fn closing(&self, report: &Report, in_folder: u64) -> Outcome {
        let mut out = stdout().lock();
        if self.json {
            return Ok(writeln!(out, "{}", closing_json(report, in_folder))?);
        }
        let Tally {
            reads,
            expired_returned,
            lost,
            wrong,
        } = report.tally;
        let never = "never".to_owned();
        let rows = [
            (
                "expired or deleted items returned",
                format!("{expired_returned} of {}", show::counted(reads, "answer")),
            ),
            ("live items missed", lost.to_string()),
            ("answers unlike what was written", wrong.to_string()),
            (
                "last table removed after the last write",
                report.emptied.map_or(never, show::time),
            ),
            (
                "  written meanwhile by the database",
                show::bytes(report.written_at_rest()),
            ),
            ("left in the folder", show::bytes(in_folder)),
            (
                "  of them log, allocated ahead",
                show::bytes(report.stats.log_bytes),
            ),
            (
                "tables to live data, at most",
                format!("{:.2}", report.highest_ratio),
            ),
            (
                "bytes written per byte put",
                format!("{:.2}", report.written_per_byte_put()),
            ),
            (
                "from expiry to removal, half within",
                report.removal_p50.map_or("-".to_owned(), show::time),
            ),
            (
                "from expiry to removal, at most",
                show::time(report.removal_longest),
            ),
            (
                "  promised, with 1 s for a late look",
                show::time(report.removed_within + GRACE),
            ),
            ("  of so many items", show::count(report.removed as u64)),
        ];
        writeln!(out)?;
        for (what, amount) in rows {
            writeln!(out, "{what:<41}{amount}")?;
        }
        writeln!(out, "\n{}", self.drawn())?;
        if report.broken().is_empty() {
            writeln!(out, "\n{}", report.proved())?;
        }
        Ok(())
    }

    /// Bytes on disk above live bytes, on the same scale.
    fn drawn(&self) -> String {
        let most = |amounts: &[u64]| amounts.iter().copied().max().unwrap_or(0);
        let (disk, live) = (most(&self.disk), most(&self.live));
        let line = |what, amounts, highest| {
            let bars = spark::line(amounts, disk.max(live));
            format!("{what}  {bars}  up to {}", show::bytes(highest))
        };
        let lines = [
            line("disk", &self.disk, disk),
            line("live", &self.live, live),
        ];
        lines.join("\n")
    }
}

fn closing_json(report: &Report, in_folder: u64) -> Value {
    json!({
        "reads": report.tally.reads,
        "expired_returned": report.tally.expired_returned,
        "live_missed": report.tally.lost,
        "wrong_answers": report.tally.wrong,
        "emptied_after_seconds": report.emptied.map(show::seconds_json),
        "written_at_rest_bytes": report.written_at_rest(),
        "in_folder_bytes": in_folder,
        "highest_tables_to_live": report.highest_ratio,
        "written_per_byte_put": report.written_per_byte_put(),
        "removals_timed": report.removed,
        "removal_p50_seconds": report.removal_p50.map(show::seconds_json),
        "removal_max_seconds": show::seconds_json(report.removal_longest),
        "removal_max_let_run_seconds": show::seconds_json(report.removal_longest_let_run),
        "removal_promised_seconds": show::seconds_json(report.removed_within),
        "broken": report.broken(),
        "late": report.late(),
    })
}
