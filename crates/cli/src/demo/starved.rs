//! How long the threads that a deadline depends on were ready, and the machine did not run them, according to the
//! scheduler (`/proc/self/task/*/schedstat`, Linux; on other systems it is unknown, and nothing is excused).
//!
//! Counted are the database's threads with the usual priority, and the observing thread. Not the merge thread: its low
//! priority is the database's own choice, and no excuse. Of two simultaneous waits the longer one counts, as far as two
//! readings show that.

use std::collections::BTreeMap;
use std::fs;

/// For each thread: nanoseconds it has waited for a processor.
type Waits = BTreeMap<u32, u64>;

#[derive(Default)]
pub struct Starved {
    seen: Waits,
    /// For each reading: its moment in milliseconds, and nanoseconds waited since the first one.
    looks: Vec<(u64, u64)>,
}

impl Starved {
    pub fn look(&mut self, now: u64) {
        self.note(now, waits());
    }

    fn note(&mut self, now: u64, waits: Waits) {
        let since = |(thread, wait): (&u32, &u64)| {
            let before = self.seen.get(thread).copied().unwrap_or(*wait);
            wait.saturating_sub(before)
        };
        let longest = waits.iter().map(since).max().unwrap_or(0);
        let total = self.looks.last().map_or(0, |&(_, total)| total);
        self.looks.push((now, total + longest));
        self.seen = waits;
    }

    /// Milliseconds waited since the last reading before this moment.
    pub fn since(&self, moment: u64) -> u64 {
        let before = self.looks.partition_point(|&(at, _)| at <= moment);
        let then = self.looks[..before].last().or(self.looks.first());
        let now = self.looks.last();
        now.zip(then)
            .map_or(0, |(now, then)| (now.1 - then.1) / 1_000_000)
    }
}

fn waits() -> Waits {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let waits = tasks.flatten().filter_map(|task| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let name = name.trim_end();
        let counts = thread == std::process::id()
            || (name.starts_with("ebbtide-") && name != "ebbtide-merge");
        let account = fs::read_to_string(task.path().join("schedstat")).ok()?;
        counts
            .then(|| wait_in(&account))
            .flatten()
            .map(|wait| (thread, wait))
    });
    waits.collect()
}

/// Parses `nanoseconds run, nanoseconds waited, times run`.
fn wait_in(account: &str) -> Option<u64> {
    account.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn waits_at_once_count_once_and_earlier_ones_not_at_all() {
        let mut starved = Starved::default();
        let at = |flush, hurry| Waits::from([(1, flush * SECOND), (2, hurry * SECOND)]);
        assert_eq!(starved.since(0), 0);
        starved.note(1_000, at(100, 7));
        assert_eq!(starved.since(0), 0, "what came before it is not the demo's");
        starved.note(2_000, at(101, 8));
        starved.note(3_000, at(101, 10));
        assert_eq!(starved.since(1_000), 3_000);
        assert_eq!(starved.since(1_999), 3_000);
        assert_eq!(starved.since(2_000), 2_000);
        assert_eq!(starved.since(9_000), 0);
        let (mut later, mut ended) = (at(103, 11), at(103, 11));
        later.insert(3, 500 * SECOND);
        starved.note(4_000, later);
        assert_eq!(
            starved.since(3_000),
            2_000,
            "a new thread has its account first"
        );
        ended.remove(&1);
        starved.note(5_000, ended);
        assert_eq!(starved.since(4_000), 0);
    }

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(wait_in("521372000 31845700000 911\n"), Some(31_845_700_000));
        assert_eq!(wait_in(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_looking_thread_and_those_of_a_database_are_counted_without_the_merge_thread() {
        let folder = tempfile::tempdir().unwrap();
        let db = ebbtide::Database::open(folder.path()).unwrap();
        assert!(waits().contains_key(&std::process::id()));
        // Three threads of this database, which get their names when they begin to run; other tests may have more.
        let named = (0..60_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            waits().len() >= 4
        });
        assert!(named, "{:?}", waits());
        db.close().unwrap();
    }
}
