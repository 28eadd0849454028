//! Runs each order in a child process, one after the other, so that memory, the system's account of what was written, and
//! failures are separate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::engines::Kind;
use crate::loads::{Choice, Load};
use crate::summary::{Order, Summary};

/// A child that takes longer than its load and silence and this is ended.
const PATIENCE: Duration = Duration::from_secs(900);

/// The settings that all orders of one call share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// How soon after its expiry an item's bytes should be off the disk, in seconds.
    pub reclaim_within: u64,
    /// Where databases go, each into a temporary folder of its own.
    pub scratch: PathBuf,
    /// Where samples and summaries go.
    pub out: PathBuf,
}

/// Runs one engine under one load. `label` names its files.
pub fn run(
    setting: &Setting,
    engine: Kind,
    load: Choice,
    closed: bool,
    round: u32,
    label: &str,
) -> Result<Summary> {
    fs::create_dir_all(&setting.out)?;
    fs::create_dir_all(&setting.scratch)?;
    let folder = tempfile::Builder::new()
        .prefix("peers-")
        .tempdir_in(&setting.scratch)?;
    let order = Order {
        engine,
        load,
        closed,
        cache_bytes: setting.cache_bytes,
        reclaim_within: setting.reclaim_within,
        folder: folder.path().to_owned(),
        samples: setting.out.join(format!("{label}.jsonl")),
        summary: setting.out.join(format!("{label}.json")),
        round,
    };
    // A summary that an earlier run left must not be read as this run's.
    let _ = fs::remove_file(&order.summary);
    let plan = Load::new(load);
    eprintln!(
        "{label}: {:.0} MiB live, {} s of load, {} s of silence",
        plan.live_bytes() / f64::from(1 << 20),
        plan.seconds,
        plan.silence,
    );
    let status = obey(&order, Duration::from_secs(2 * plan.seconds + plan.silence))?;
    match read(&order.summary) {
        Ok(summary) if status.success() => Ok(summary),
        _ => Err(format!("{label}: the child ended with {status}").into()),
    }
}

fn obey(order: &Order, planned: Duration) -> Result<ExitStatus> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(serde_json::to_string(order)?)
        .spawn()?;
    wait(&mut child, Instant::now() + planned + PATIENCE)
}

/// Waits for a child, and ends it at the deadline.
pub fn wait(child: &mut Child, deadline: Instant) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The summary in a file.
pub fn read(file: &Path) -> Result<Summary> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

/// All summaries of a folder, in the order of their file names.
pub fn read_all(folder: &Path) -> Result<Vec<Summary>> {
    let entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries.iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "json"));
    files.sort();
    files.iter().map(|file| read(file)).collect()
}
