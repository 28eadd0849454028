//! Figures of the system: a folder's allocated bytes, the bytes that the process wrote and the memory that it holds,
//! and the use of the processors.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of the blocks allocated to everything below a folder. What vanishes meanwhile counts nothing.
pub fn allocated_bytes(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => match allocated_bytes(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                below => sum += meta.blocks() * 512 + below.unwrap_or(0),
            },
            Ok(meta) => sum += meta.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

/// Bytes that this process has had written, or has made dirty in the page cache (`write_bytes`).
pub fn written_bytes() -> io::Result<u64> {
    field("/proc/self/io", "write_bytes:")
}

/// Bytes of memory that are this process's own and not a file's (`RssAnon`).
pub fn anonymous_bytes() -> io::Result<u64> {
    Ok(field("/proc/self/status", "RssAnon:")? * 1_024)
}

/// The most memory that was resident, mapped files included (`VmHWM`).
pub fn most_resident_bytes() -> io::Result<u64> {
    Ok(field("/proc/self/status", "VmHWM:")? * 1_024)
}

/// Processor time since some moment in the past, in the system's ticks.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    own: u64,
    busy: u64,
    all: u64,
}

/// The use of the processors between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// This process, in cores.
    pub own_cores: f64,
    /// Everything else, and what a host took away, in cores.
    pub other_cores: f64,
}

impl Cpu {
    /// Up to now.
    pub fn now() -> io::Result<Cpu> {
        let text = fs::read_to_string("/proc/stat")?;
        let first = text.lines().next().unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
        let times = first.split_whitespace().skip(1).take(8);
        let times: Vec<u64> = times.map_while(|time| time.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = times[..] else {
            return Err(io::Error::other("/proc/stat has no times"));
        };
        let busy = user + nice + system + irq + softirq + steal;
        Ok(Cpu {
            own: own_ticks()?,
            busy,
            all: busy + idle + iowait,
        })
    }

    /// Between then and `self`.
    pub fn since(&self, then: &Cpu) -> Usage {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let per_core = (self.all - then.all).max(1) as f64 / cores;
        let own = (self.own - then.own) as f64 / per_core;
        Usage {
            own_cores: own,
            other_cores: ((self.busy - then.busy) as f64 / per_core - own).max(0.0),
        }
    }
}

/// User and system time of all threads of this process.
fn own_ticks() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // The name, in brackets, may hold anything; utime and stime are the 12th and 13th behind it.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let times = behind.split_whitespace().skip(11).take(2);
    let times: Option<Vec<u64>> = times.map(|time| time.parse().ok()).collect();
    match times.as_deref() {
        Some([user, system]) => Ok(user + system),
        _ => Err(io::Error::other("/proc/self/stat has no times")),
    }
}

fn field(file: &str, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{file} has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_takes_what_its_files_take() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        let empty = allocated_bytes(folder.path()).unwrap();
        let file = folder.path().join("below/file");
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        let full = allocated_bytes(folder.path()).unwrap();
        assert!(
            (full - empty).abs_diff(1 << 20) <= 64 << 10,
            "{empty} {full}"
        );
    }

    #[test]
    fn a_busy_process_is_seen_to_be_busy() {
        let before = Cpu::now().unwrap();
        let begin = std::time::Instant::now();
        let mut n = 0u64;
        while begin.elapsed().as_millis() < 300 {
            n = std::hint::black_box(n.wrapping_mul(3) + 1);
        }
        let usage = Cpu::now().unwrap().since(&before);
        assert!(usage.own_cores > 0.0, "{usage:?}");
    }

    #[test]
    fn the_process_accounts_for_itself() {
        assert!(anonymous_bytes().unwrap() > 100_000);
        let before = written_bytes().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &vec![1; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        // Nothing is counted where temporary files live in memory.
        let counted = written_bytes().unwrap() - before;
        assert!(counted == 0 || counted >= 1 << 20);
    }
}
