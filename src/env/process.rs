//! The process and its threads: how much the device read for them, and their priority.

use std::cell::Cell;
#[cfg(target_os = "linux")]
use std::time::Duration;

/// The priority of a background thread relative to the user's. A thread may not raise a priority it has lowered when
/// its work becomes urgent, so it does not lower it further, and urgent work moves to another thread
/// (docs/decisions/pacing.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Equal.
    Usual,
    /// The user's threads go first when they wake, but it gets as much of a processor.
    Low,
    /// The user's threads go first, on the processor and at the device; it gets a tenth when they compete for a
    /// processor.
    Lowest,
}

/// The time slice of a thread with lower priority: the scheduler lets a thread with a shorter slice, as all usual ones
/// have, preempt it as soon as it wakes, not only when the slice or a tick is over. Not longer, because the slice is
/// also how long threads of *other* programs may run before ours.
#[cfg(target_os = "linux")]
const SLICE: Duration = Duration::from_millis(5);

/// Bytes that the device read, for pages that were not in memory; zero where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceReads {
    /// For all threads of the process.
    pub process: u64,
    /// For the calling one.
    pub here: u64,
    /// The calling thread's id.
    pub thread: u64,
}

impl DeviceReads {
    /// The readings now.
    #[cfg(target_os = "linux")]
    pub fn now() -> DeviceReads {
        let read = |path| {
            std::fs::read_to_string(path)
                .ok()
                .and_then(|text| read_bytes(&text))
        };
        DeviceReads {
            process: read("/proc/self/io").unwrap_or(0),
            here: read("/proc/thread-self/io").unwrap_or(0),
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u64,
        }
    }

    /// The readings now.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> DeviceReads {
        DeviceReads::default()
    }
}

/// Parses the line `read_bytes: N`.
#[cfg(target_os = "linux")]
fn read_bytes(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("read_bytes:"))?;
    number.trim().parse().ok()
}

thread_local! {
    static PRIORITY: Cell<Priority> = const { Cell::new(Priority::Usual) };
}

/// The priority that was set for the calling thread.
pub fn priority() -> Priority {
    PRIORITY.get()
}

/// Sets the priority of the calling thread. If that fails, it stays as it is.
pub fn set_priority(priority: Priority) {
    PRIORITY.set(priority);
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let nicer = match priority {
            Priority::Usual => return,
            Priority::Low => 0,
            Priority::Lowest => 10,
        };
        let thread = Some(rustix::thread::gettid());
        if let Ok(nice) = getpriority_process(thread) {
            let nice = (nice + nicer).min(19);
            let _ = setpriority_process(thread, nice);
            let _ = super::system::set_slice(SLICE, nice);
        }
        if priority == Priority::Lowest {
            let _ = super::system::lower_io_priority();
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = priority;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The calling thread's slice in nanoseconds, if the kernel supports that.
    fn slice() -> Option<u64> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
        let mut numbers = release.split('.').map_while(|part| part.parse().ok());
        let version: (u32, u32) = (numbers.next()?, numbers.next()?);
        let text = std::fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = text.lines().find(|line| line.starts_with("se.slice"))?;
        let slice = line.rsplit(':').next()?.trim().parse().ok()?;
        (version >= (6, 12)).then_some(slice)
    }

    #[test]
    fn a_thread_is_made_less_urgent_and_others_are_not() {
        use rustix::process::getpriority_process;
        use rustix::thread::gettid;
        let standing = || (getpriority_process(Some(gettid())).unwrap(), slice());
        let before = standing();
        let (nice, usual_slice) = before;
        let long = usual_slice.map(|_| SLICE.as_nanos() as u64);
        for (priority, expected) in [
            (Priority::Usual, before),
            (Priority::Low, (nice, long)),
            (Priority::Lowest, ((nice + 10).min(19), long)),
        ] {
            let given = std::thread::spawn(move || {
                set_priority(priority);
                standing()
            });
            assert_eq!(given.join().unwrap(), expected, "{priority:?}");
        }
        assert_eq!(standing(), before);
    }

    #[test]
    fn reads_of_a_thread_are_among_those_of_the_process() {
        let text = "rchar: 7\nsyscr: 1\nread_bytes: 4096\nwrite_bytes: 12\n";
        assert_eq!(read_bytes(text), Some(4096));
        assert_eq!(read_bytes("rchar: 7\n"), None);
        let reads = DeviceReads::now();
        assert!(reads.here <= DeviceReads::now().process);
        let other = std::thread::spawn(|| DeviceReads::now().thread);
        assert_ne!(other.join().unwrap(), reads.thread);
    }
}
