//! Resources of this process, as Linux counts them, zero on other systems; and this program again, for one test alone.

use std::fmt;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The name of a test of this program, whose module is at `module_path!()`.
pub fn test_name(module: &str, function: &str) -> String {
    match module.split_once("::") {
        Some((_, module)) => format!("{module}::{function}"),
        None => function.to_owned(),
    }
}

/// This program again, for one of its tests, which shows what it prints.
pub fn alone(module: &str, function: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = test_name(module, function);
    command.args(["--exact", &name, "--nocapture", "--test-threads=1", "-q"]);
    command
}

/// Whether this is a process for one test alone; if not, the test has run in one, and what it printed is printed.
pub fn is_alone(module: &str, function: &str) -> bool {
    const ALONE: &str = "EBBTIDE_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let done = alone(module, function).env(ALONE, "1").output().unwrap();
    println!("{}", String::from_utf8_lossy(&done.stdout));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    false
}

/// Resident memory, in bytes. The system reclaims file pages whenever it needs them; anonymous memory stays.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    /// Heap, memtables, stacks.
    pub anonymous: u64,
    /// Pages of mapped files: tables, the log's ring, the program. A page in two maps counts twice.
    pub of_files: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (anonymous, of_files) = (mib(self.anonymous), mib(self.of_files));
        write!(
            f,
            "{anonymous:.1} MiB anonymous, {of_files:.1} MiB of files"
        )
    }
}

/// The present resident memory.
pub fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    Memory {
        anonymous: field("RssAnon:"),
        of_files: field("RssFile:") + field("RssShmem:"),
    }
}

/// The processor time of all threads so far.
pub fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the program's name, which may contain anything; in hundredths of a second.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Samples resident memory every two milliseconds.
pub struct Watch {
    most: Arc<Mutex<Memory>>,
    ends: Arc<AtomicBool>,
}

impl Watch {
    /// From now on.
    pub fn start() -> Watch {
        let watch = Watch {
            most: Arc::default(),
            ends: Arc::default(),
        };
        let (most, ends) = (watch.most.clone(), watch.ends.clone());
        thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let now = memory();
                let mut most = most.lock().unwrap();
                most.anonymous = most.anonymous.max(now.anonymous);
                most.of_files = most.of_files.max(now.of_files);
                drop(most);
                thread::sleep(Duration::from_millis(2));
            }
        });
        watch
    }

    /// The maximum of each kind so far, perhaps at different moments.
    pub fn most(&self) -> Memory {
        *self.most.lock().unwrap()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}
