//! The result of a replay, as a table or as one JSON object.

use std::io::{Write, stdout};
use std::time::Duration;

use ebbtide::Stats;
use serde_json::{Map, Value, json};

use super::player::{Count, Player};
use super::trace::Kind;
use crate::failure::Outcome;
use crate::histogram::Histogram;
use crate::show;
use crate::stats::bytes_written;
use crate::table;

/// Bytes on disk per live byte, over all readings since the first flush: before, there is only the log.
#[derive(Default)]
pub struct Samples {
    looks: u64,
    sum: f64,
    worst: f64,
}

impl Samples {
    pub fn add(&mut self, stats: &Stats) {
        if stats.flushes > 0 && stats.live_bytes > 0 {
            let ratio = stats.disk_bytes as f64 / stats.live_bytes as f64;
            self.looks += 1;
            self.sum += ratio;
            self.worst = self.worst.max(ratio);
        }
    }

    /// Mean and worst; `None` when nothing was flushed.
    fn ratios(&self) -> Option<(f64, f64)> {
        (self.looks > 0).then(|| (self.sum / self.looks as f64, self.worst))
    }
}

pub struct Report {
    pub player: Player,
    pub samples: Samples,
    /// The time from the first moment of the trace to the last.
    pub trace_time: Duration,
    /// The duration of the replay.
    pub took: Duration,
    /// The largest delay of an operation.
    pub latest: Duration,
    /// Bad lines.
    pub skipped: u64,
    /// The statistics at the end of the trace.
    pub stats: Stats,
}

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

impl Report {
    /// The broken promises, in words.
    pub fn broken(&self) -> Vec<String> {
        self.player.tally.broken()
    }

    pub fn print(&self, json: bool) -> Outcome {
        let mut out = stdout().lock();
        if json {
            return Ok(writeln!(out, "{}", self.json())?);
        }
        write!(
            out,
            "{} of {} played in {}",
            show::counted(self.player.played, "operation"),
            show::time(self.trace_time),
            show::time(self.took),
        )?;
        match self.skipped {
            0 => writeln!(out, "\n")?,
            _ => writeln!(
                out,
                ", {} skipped\n",
                show::counted(self.skipped, "bad line")
            )?,
        }
        writeln!(out, "{}", self.operations())?;
        writeln!(out, "{}", self.latencies())?;
        for (what, amount) in self.rows() {
            writeln!(out, "{what:<43}{amount}")?;
        }
        if self.broken().is_empty() {
            writeln!(out, "\nEvery answer was right.")?;
        }
        Ok(())
    }

    /// The kinds that the trace has.
    fn kinds(&self) -> impl Iterator<Item = (Kind, Count)> {
        let kinds = Kind::ALL.into_iter().zip(self.player.counts);
        kinds.filter(|(_, count)| count.played > 0)
    }

    fn operations(&self) -> String {
        let row = |name: &str, count: Count| {
            vec![
                name.to_owned(),
                show::count(count.played),
                show::count(count.done),
            ]
        };
        let mut rows: Vec<_> = self
            .kinds()
            .map(|(kind, count)| row(kind.name(), count))
            .collect();
        let fills = self.player.fills;
        if fills > 0 {
            let count = Count {
                played: fills,
                done: fills,
            };
            rows.push(row("put after a miss", count));
        }
        table::whole(&["OPERATION", "PLAYED", "HIT OR DONE"], &rows)
    }

    fn latencies(&self) -> String {
        let row = |what: &str, histogram: &Histogram| {
            let mut row = vec![what.to_owned()];
            let times = self.times(histogram);
            row.extend(times.map(|time| time.map_or("-".to_owned(), show::time)));
            row
        };
        let rows = [
            row("reads", &self.player.reads),
            row("writes", &self.player.writes),
        ];
        table::whole(&["LATENCY", "P50", "P99", "P99.9", "MOST"], &rows)
    }

    /// The quantiles, and the longest.
    fn times(&self, histogram: &Histogram) -> [Option<Duration>; 4] {
        let times = histogram.read();
        let longest = histogram.longest();
        let [half, most, nearly_all] =
            QUANTILES.map(|share| times.quantile(share).map(|time| time.min(longest)));
        [half, most, nearly_all, half.map(|_| longest)]
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let stats = &self.stats;
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let percent = |share| format!("{:.1} % of {}", 100.0 * share, show::count(self.reads()));
        let disk = format!(
            "{}, of them log {}",
            show::bytes(stats.disk_bytes),
            show::bytes(stats.log_bytes),
        );
        let ratios = self.samples.ratios();
        let removed = |time: Duration| match stats.reclaim_lag.bytes() {
            0 => "-".to_owned(),
            _ => show::time(self.player.pace.lengthened(time)),
        };
        let mut rows = vec![
            ("hit rate", or_dash(self.hit_rate().map(percent))),
            ("items live", show::count(stats.live_items)),
            ("bytes live", show::bytes(stats.live_bytes)),
            ("bytes on disk", disk),
            (
                "disk to live since the first flush, mean",
                or_dash(ratios.map(|(mean, _)| format!("{mean:.2}"))),
            ),
            (
                "disk to live since the first flush, worst",
                or_dash(ratios.map(|(_, worst)| format!("{worst:.2}"))),
            ),
            (
                "bytes written per byte put",
                or_dash(self.written().map(|written| format!("{written:.2}"))),
            ),
            (
                "expired, not yet reclaimed",
                show::bytes(stats.expired_bytes),
            ),
            (
                "from expiry to removal, half within",
                removed(stats.reclaim_lag.quantile(0.5)),
            ),
            (
                "from expiry to removal, at most",
                removed(stats.reclaim_lag.longest()),
            ),
        ];
        if self.latest > Duration::ZERO {
            rows.push(("behind the trace, at most", show::time(self.latest)));
        }
        rows
    }

    fn json(&self) -> Value {
        let latency = |histogram| {
            let [half, most, nearly_all, longest] = self.times(histogram).map(show::micros_json);
            json!({ "p50": half, "p99": most, "p99.9": nearly_all, "max": longest })
        };
        let operations: Map<String, Value> = self
            .kinds()
            .map(|(kind, count)| {
                let counts = json!({ "played": count.played, "done": count.done });
                (kind.name().to_owned(), counts)
            })
            .collect();
        let tally = self.player.tally;
        let (mean, worst) = self.samples.ratios().unzip();
        let lag = &self.stats.reclaim_lag;
        let removed = |time: Duration| {
            (lag.bytes() > 0).then(|| show::seconds_json(self.player.pace.lengthened(time)))
        };
        json!({
            "played": self.player.played,
            "skipped": self.skipped,
            "operations": operations,
            "fills": self.player.fills,
            "trace_seconds": self.trace_time.as_secs(),
            "seconds": show::seconds_json(self.took),
            "behind_max_seconds": show::seconds_json(self.latest),
            "hit_rate": self.hit_rate(),
            "checked": tally.reads,
            "expired_returned": tally.expired_returned,
            "live_missed": tally.lost,
            "wrong_answers": tally.wrong,
            "reads_micros": latency(&self.player.reads),
            "writes_micros": latency(&self.player.writes),
            "disk_to_live_mean": mean,
            "disk_to_live_worst": worst,
            "written_per_byte_put": self.written(),
            "removed_bytes": lag.bytes(),
            "removal_p50_seconds": removed(lag.quantile(0.5)),
            "removal_max_seconds": removed(lag.longest()),
            "stats": ebbtide_control::figures(&self.stats),
            "broken": self.broken(),
        })
    }

    fn reads(&self) -> u64 {
        self.read_counts().map(|count| count.played).sum()
    }

    fn hit_rate(&self) -> Option<f64> {
        let hits: u64 = self.read_counts().map(|count| count.done).sum();
        (self.reads() > 0).then(|| hits as f64 / self.reads() as f64)
    }

    fn read_counts(&self) -> impl Iterator<Item = Count> {
        [Kind::Get, Kind::Gets]
            .into_iter()
            .map(|kind| self.player.counts[kind as usize])
    }

    /// Bytes to disk per byte put: log, flushes, merges.
    fn written(&self) -> Option<f64> {
        let put = self.stats.bytes_put;
        (put > 0).then(|| bytes_written(&self.stats) as f64 / put as f64)
    }
}
