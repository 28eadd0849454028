//! Works the rows in child processes, one after the other, engines taking turns, and writes a JSON object a line.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::table::amount;
use super::{KEY_BYTES_MIN, Order, Outcome, Row, Scale};
use crate::Result;
use crate::engines::Kind;
use crate::parent::wait;

/// A child that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The rows and engines to run.
#[derive(Clone, Debug)]
pub struct RowsPlan {
    /// The engines to run.
    pub engines: Vec<Kind>,
    /// The rows to run.
    pub rows: Vec<Row>,
    /// How many threads, for rows that take any number; none: as is usual for the row.
    pub threads: Vec<u32>,
    /// How often.
    pub rounds: u32,
    /// The scale of all rows.
    pub scale: Scale,
    /// Where databases go, each round's into temporary folders of its own.
    pub scratch: PathBuf,
    /// Where the outcomes go.
    pub out: PathBuf,
}

impl RowsPlan {
    /// The rows with their threads, in the order in which they are worked: the first fills, so it is always there.
    fn steps(&self) -> Vec<(Row, u32)> {
        let mut rows = self.rows.clone();
        rows.push(Row::Fill);
        rows.sort_unstable();
        rows.dedup();
        let threads = |row: Row| match row.takes_threads() && !self.threads.is_empty() {
            true => &self.threads[..],
            false => row.usual_threads(),
        };
        let steps = |row| threads(row).iter().map(move |threads| (row, *threads));
        rows.into_iter().flat_map(steps).collect()
    }

    fn file(&self) -> PathBuf {
        let scale = &self.scale;
        let lz4 = if scale.lz4 { "-lz4" } else { "" };
        let key = match scale.key_bytes {
            KEY_BYTES_MIN => String::new(),
            bytes => format!("{bytes}+"),
        };
        let name = format!("rows-{}x{key}{}{lz4}.jsonl", scale.items, scale.value_bytes);
        self.out.join(name)
    }
}

/// Works them all; how much went wrong.
pub fn work(plan: &RowsPlan) -> Result<u64> {
    let unfit = |kind: &&Kind| !(kind.is_there() && kind.takes_any_order());
    if let Some(unfit) = plan.engines.iter().find(unfit) {
        let name = unfit.name();
        return Err(format!("{name} was not built, or needs keys that ascend with time").into());
    }
    fs::create_dir_all(&plan.out)?;
    fs::create_dir_all(&plan.scratch)?;
    let mut lines = File::create(plan.file())?;
    let (mut faults, mut engines) = (0, plan.engines.clone());
    for round in 1..=plan.rounds {
        let folder = tempfile::Builder::new()
            .prefix("peers-")
            .tempdir_in(&plan.scratch)?;
        for (row, threads) in plan.steps() {
            for engine in &engines {
                let order = Order {
                    engine: *engine,
                    row,
                    threads,
                    round,
                    scale: plan.scale,
                    folder: folder_of(folder.path(), *engine, row)?,
                };
                let label = format!("{round} {} {threads} {}", row.title(), engine.name());
                match one(&order) {
                    Ok(outcome) => {
                        eprintln!("{label}: {}", headline(&outcome));
                        faults += outcome.answers.faults();
                        serde_json::to_writer(&mut lines, &outcome)?;
                        lines.write_all(b"\n")?;
                    }
                    Err(error) => {
                        eprintln!("{label}: {error}");
                        faults += 1;
                    }
                }
            }
        }
        // The first of a round changes, so that a drift of the machine falls on all.
        engines.rotate_left(1);
    }
    Ok(faults)
}

/// Runs that must stay as they are get a folder of their own.
fn folder_of(round: &Path, engine: Kind, row: Row) -> Result<PathBuf> {
    let suffix = match row {
        _ if row.keeps_runs() && !engine.is_tree() => "-runs",
        _ => "",
    };
    let folder = round.join(format!("{}{suffix}", engine.name()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn headline(outcome: &Outcome) -> String {
    let figure = match outcome.order.row.is_timed() {
        true => format!("{} ms", amount(outcome.seconds * 1e3)),
        false => format!("{}/s", amount(outcome.rate())),
    };
    match outcome.answers.faults() {
        0 => figure,
        faults => format!("{figure}, {faults} FAULTS"),
    }
}

fn one(order: &Order) -> Result<Outcome> {
    if order.row == Row::Reopen {
        kill(order)?;
    }
    let mut child = spawn("row", order)?;
    let status = wait(&mut child, Instant::now() + PATIENCE)?;
    let mut text = String::new();
    child
        .stdout
        .take()
        .ok_or(UNHEARD)?
        .read_to_string(&mut text)?;
    match serde_json::from_str(&text) {
        Ok(outcome) if status.success() => Ok(outcome),
        _ => Err(format!("the child ended with {status}").into()),
    }
}

/// Has a child put what its log will hold, and kills it as soon as all of that is acknowledged.
fn kill(order: &Order) -> Result<()> {
    let mut child = spawn("leave", order)?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or(UNHEARD)?;
    BufReader::new(out).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    match line.as_str() {
        "left\n" => Ok(()),
        _ => Err("the child that was to be killed ended by itself".into()),
    }
}

const UNHEARD: &str = "a child has no standard output";

fn spawn(command: &str, order: &Order) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg(command).arg(serde_json::to_string(order)?);
    Ok(child.stdout(Stdio::piped()).spawn()?)
}

/// All outcomes in a folder, in the order of their files' names.
pub fn read_all(folder: &Path) -> Result<Vec<Outcome>> {
    let entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries.iter().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("rows-") && name.ends_with(".jsonl"))
    });
    files.sort();
    let mut outcomes = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        for line in text.lines() {
            outcomes.push(serde_json::from_str(line)?);
        }
    }
    Ok(outcomes)
}
