//! What the process and its threads are to the system: how much the device read for them, how urgent they are.

/// How much less urgent than the others a background thread is, in steps of `nice`: with 10 it gets a tenth of
/// what another thread gets when they compete for a processor. A thread may not take it back when its work becomes
/// urgent, so it is not more (DESIGN.md, "Pacing").
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

/// Bytes that the device read, for pages that were not in memory; zero where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceReads {
    /// For all threads of the process.
    pub process: u64,
    /// For the calling one.
    pub here: u64,
    /// The calling thread's number.
    pub thread: u64,
}

impl DeviceReads {
    /// Up to now.
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

    /// Up to now.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> DeviceReads {
        DeviceReads::default()
    }
}

/// The line `read_bytes: N`.
#[cfg(target_os = "linux")]
fn read_bytes(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("read_bytes:"))?;
    number.trim().parse().ok()
}

/// Makes the calling thread less urgent than others, for the processor and for the device. Where that cannot be, it
/// stays as it is.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let thread = Some(rustix::thread::gettid());
        if let Ok(nice) = getpriority_process(thread) {
            let _ = setpriority_process(thread, nice + NICER);
        }
        let _ = super::disk::lower_io_priority();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_made_less_urgent_and_others_are_not() {
        use rustix::process::getpriority_process;
        use rustix::thread::gettid;
        let before = getpriority_process(Some(gettid())).unwrap();
        let lowered = std::thread::spawn(|| {
            lower_priority();
            getpriority_process(Some(gettid())).unwrap()
        });
        assert_eq!(lowered.join().unwrap(), (before + NICER).min(19));
        assert_eq!(getpriority_process(Some(gettid())).unwrap(), before);
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
