//! The same loads on Ebbtide and its peers. README.md says what is measured and how.

mod book;
mod chart;
mod child;
mod compare;
mod engines;
mod latency;
mod loads;
mod machine;
mod parent;
mod rows;
mod summary;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use compare::Comparison;
use engines::Kind;
use loads::{Choice, Load, Name};
use parent::Setting;
use rows::parent::RowsPlan;
use rows::{Row, Scale};

/// A failure, for a person to read.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The same loads on Ebbtide and its peers.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Put engines under loads; samples and summaries go to a folder
    Run {
        /// The engines to run
        #[arg(long, value_delimiter = ',', default_values = ["ebbtide", "rocksdb", "fjall"])]
        engines: Vec<Kind>,
        /// The loads to run
        #[arg(long, value_delimiter = ',', default_values = ["field"])]
        loads: Vec<Name>,
        /// How often; rounds take turns among the engines
        #[arg(long, default_value_t = 1)]
        rounds: u32,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Tail latencies at half of the maximum, against the same load with nothing expiring
    Tails(Against),
    /// Throughput in a closed loop, against the same load with nothing expiring
    Throughput(Against),
    /// Work rows as fast as it goes, on a population of which nothing expires; outcomes go to a folder
    Rows(Rows),
    /// Print what is in a folder as Markdown
    Table {
        /// The result file of `run` or `rows`
        folder: PathBuf,
    },
    /// Draw what is in a folder: of rows, how Ebbtide compares; of loads, disk against live over time, and tail latencies
    Chart {
        /// The result file of `run` or `rows`
        folder: PathBuf,
        /// The drawing
        svg: PathBuf,
    },
    /// One engine under one load, in this process
    #[command(hide = true)]
    Child {
        /// A JSON object
        order: String,
    },
    /// One engine at one row, in this process
    #[command(hide = true)]
    Row {
        /// A JSON object
        order: String,
    },
    /// Puts what is to be found after a kill, and waits for it
    #[command(hide = true)]
    Leave {
        /// A JSON object
        order: String,
    },
}

#[derive(Args)]
struct Rows {
    /// The engines to run
    #[arg(long, value_delimiter = ',', default_values = ["ebbtide", "rocksdb", "fjall", "redb", "lmdb"])]
    engines: Vec<Kind>,
    /// The rows to run; `fill` is always one [default: all]
    #[arg(long, value_delimiter = ',')]
    rows: Vec<Row>,
    /// How many threads, for rows that take any number [default: 1, and 2 or 16 where that says more]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// How often; engines take turns
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How many items
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1 << 31))]
    items: u64,
    /// Bytes of a key: those beyond 16 are a prefix of all keys
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(rows::KEY_BYTES_MIN..=rows::KEY_BYTES_MAX))]
    key_bytes: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(rows::VALUE_BYTES_MIN..=1 << 20))]
    value_bytes: u64,
    /// Values that can be compressed to a half, and LZ4 where the engine has it
    #[arg(long)]
    lz4: bool,
    /// Seconds that a row goes on for; `fill` and `overwrite` put as many as there are items
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Bytes of a memtable, as in 4MiB
    #[arg(long, default_value = "64MiB", value_parser = parse_bytes)]
    memtable: u64,
    /// Bytes of the block cache, as in 256MiB [default: more than all data]
    #[arg(long, value_parser = parse_bytes)]
    cache: Option<u64>,
    /// Another population of the same kind
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the databases go [default: the system's folder for temporary files]
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Where the outcomes go
    #[arg(long, default_value = "out/rows")]
    out: PathBuf,
}

impl Rows {
    fn plan(self) -> RowsPlan {
        let rows = match self.rows.is_empty() {
            true => Row::value_variants().to_vec(),
            false => self.rows,
        };
        RowsPlan {
            engines: self.engines,
            rows,
            threads: self.threads,
            rounds: self.rounds,
            scale: Scale {
                items: self.items,
                key_bytes: self.key_bytes,
                value_bytes: self.value_bytes,
                lz4: self.lz4,
                seconds: self.seconds,
                memtable_bytes: self.memtable,
                cache_bytes: self.cache,
                seed: self.seed,
            },
            scratch: self.scratch.unwrap_or_else(std::env::temp_dir),
            out: self.out,
        }
    }
}

#[derive(Args)]
struct Against {
    /// The engine
    #[arg(long, default_value = "ebbtide")]
    engine: Kind,
    /// The load
    #[arg(long, default_value = "uniform")]
    load: Name,
    /// How often
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args)]
struct Shape {
    /// Puts a second; one get for every four
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u64).range(4..))]
    rate: u64,
    /// Seconds of load [default: 90; field10: 240]
    #[arg(long, value_parser = clap::value_parser!(u64).range(3..))]
    seconds: Option<u64>,
    /// Seconds of silence after it [default: 120; overwrite: 20]
    #[arg(long)]
    silence: Option<u64>,
    /// Bytes of a memtable, as in 4MiB
    #[arg(long, default_value = "64MiB", value_parser = parse_bytes)]
    memtable: u64,
    /// Live data in memtables: scales lifetimes or population
    #[arg(long)]
    live_memtables: Option<f64>,
    /// Another load of the same kind
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct PlaceArgs {
    /// Bytes of the block cache, as in 256MiB
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    cache: u64,
    /// Seconds after its expiry in which an item's bytes should be off the disk
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    reclaim_within: u64,
    /// Where the databases go [default: the system's folder for temporary files]
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Where samples and summaries go
    #[arg(long, default_value = "out")]
    out: PathBuf,
}

impl Shape {
    fn choice(&self, name: Name) -> Choice {
        Choice {
            name,
            rate: self.rate,
            seconds: self.seconds,
            silence: self.silence,
            memtable_bytes: self.memtable,
            live_memtables: self.live_memtables,
            lasting: false,
            seed: self.seed,
        }
    }
}

impl PlaceArgs {
    fn setting(&self) -> Setting {
        Setting {
            cache_bytes: self.cache,
            reclaim_within: self.reclaim_within,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            out: self.out.clone(),
        }
    }
}

impl Against {
    fn comparison(&self) -> Comparison {
        Comparison {
            engine: self.engine,
            load: self.shape.choice(self.load),
            rounds: self.rounds,
        }
    }
}

fn main() -> ExitCode {
    match obey(Arguments::parse().command) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(faults) => {
            eprintln!(
                "{faults} faults: items missing, expired or wrong ones returned, or runs that failed"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// How much went wrong.
fn obey(command: Command) -> Result<u64> {
    match command {
        Command::Run {
            engines,
            loads,
            rounds,
            shape,
            place,
        } => return run(&engines, &loads, rounds, &shape, &place.setting()),
        Command::Tails(against) => {
            return compare::tails(&against.place.setting(), &against.comparison());
        }
        Command::Throughput(against) => {
            return compare::throughput(&against.place.setting(), &against.comparison());
        }
        Command::Rows(rows) => return rows::parent::work(&rows.plan()),
        Command::Table { folder } => {
            print!("{}", table::markdown(&parent::read_all(&folder)?));
            print!(
                "{}",
                rows::table::markdown(&rows::parent::read_all(&folder)?)
            );
        }
        Command::Chart { folder, svg } => match rows::parent::read_all(&folder)? {
            rows if rows.is_empty() => chart::draw(&parent::read_all(&folder)?, &folder, &svg)?,
            rows => rows::chart::draw(&rows, &svg)?,
        },
        Command::Child { order } => {
            child::run(&serde_json::from_str(&order)?)?;
        }
        Command::Row { order } => {
            let outcome = rows::run(&serde_json::from_str(&order)?)?;
            println!("{}", serde_json::to_string(&outcome)?);
        }
        Command::Leave { order } => rows::leave(&serde_json::from_str(&order)?)?,
    }
    Ok(0)
}

fn run(
    engines: &[Kind],
    loads: &[Name],
    rounds: u32,
    shape: &Shape,
    setting: &Setting,
) -> Result<u64> {
    let mut faults = 0;
    for name in loads {
        for round in 1..=rounds {
            for engine in engines {
                let choice = shape.choice(*name);
                let label = label(*engine, &choice, round);
                if let Some(reason) = engine.unfit(&Load::new(choice)) {
                    eprintln!("{label}: left out, {reason}");
                    continue;
                }
                match parent::run(setting, *engine, choice, false, round, &label) {
                    Ok(summary) => faults += summary.answers.faults(),
                    Err(error) => {
                        eprintln!("{error}");
                        faults += 1;
                    }
                }
            }
        }
    }
    Ok(faults)
}

fn label(engine: Kind, choice: &Choice, round: u32) -> String {
    let load = choice.name.to_possible_value();
    let load = load.as_ref().map_or("", |load| load.get_name());
    let kib = choice.memtable_bytes >> 10;
    format!("{load}-{kib}k-{}-{round}", engine.name())
}

/// A number of bytes, with KiB, MiB or GiB after it or nothing.
fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let split = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = split.unwrap_or((text, &0));
    let parsed = number.trim().parse::<u64>().ok();
    let bytes = parsed.and_then(|number| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes >= 1 << 16)
        .ok_or_else(|| format!("{text:?} is not a number of bytes, at least 64KiB, as in 4MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use summary::{Order, Summary};

    fn short_run(out: &std::path::Path, engine: Kind, name: Name, closed: bool) -> Summary {
        let database = tempfile::tempdir().unwrap();
        let file = |kind| out.join(format!("{}-{name:?}-{closed}.{kind}", engine.name()));
        let order = Order {
            engine,
            load: Choice {
                name,
                rate: 2_000,
                seconds: Some(3),
                silence: Some(1),
                memtable_bytes: 1 << 20,
                live_memtables: Some(0.5),
                lasting: false,
                seed: 3,
            },
            closed,
            cache_bytes: 1 << 20,
            reclaim_within: 1,
            folder: database.path().to_owned(),
            samples: file("jsonl"),
            summary: file("json"),
            round: 1,
        };
        child::run(&order).unwrap()
    }

    #[test]
    fn a_short_run_adds_up_and_can_be_shown() {
        let out = tempfile::tempdir().unwrap();
        for name in [Name::Uniform, Name::Overwrite] {
            for engine in [Kind::Ebbtide, Kind::Fjall] {
                let summary = short_run(out.path(), engine, name, false);
                assert_eq!(summary.answers.faults(), 0, "{summary:?}");
                assert!(summary.answers.right > 0, "{summary:?}");
                assert!(summary.space_worst >= summary.space_mean, "{summary:?}");
                let slots = (1 << 19) / loads::LIVE_BYTES;
                if name == Name::Overwrite {
                    // Nothing expires and everything is put at the start: live data is known to the byte.
                    assert_eq!(summary.end_live_bytes, slots * loads::LIVE_BYTES);
                }
            }
        }
        let summaries = parent::read_all(out.path()).unwrap();
        assert_eq!(summaries.len(), 4);
        let text = table::markdown(&summaries);
        assert!(text.contains("## uniform, memtables of 1 MiB"), "{text}");
        assert!(text.contains("\n| fjall |"), "{text}");
        let svg = out.path().join("chart.svg");
        chart::draw(&summaries, out.path(), &svg).unwrap();
        assert!(std::fs::read_to_string(svg).unwrap().contains("overwrite"));
    }

    #[test]
    fn a_closed_loop_is_answered_too() {
        let out = tempfile::tempdir().unwrap();
        let summary = short_run(out.path(), Kind::Ebbtide, Name::Uniform, true);
        assert!(summary.answers.right > 0, "{summary:?}");
        assert_eq!(summary.answers.faults(), 0, "{summary:?}");
    }

    #[test]
    fn bytes_are_read_with_their_unit() {
        assert_eq!(parse_bytes("4MiB"), Ok(4 << 20));
        assert_eq!(parse_bytes("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("65536"), Ok(65_536));
        assert!(parse_bytes("4MB").is_err());
        assert!(parse_bytes("1KiB").is_err());
        assert!(parse_bytes("").is_err());
    }
}
