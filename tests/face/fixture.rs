//! A database on a real disk, by a clock that moves only when told to, with one container.

use std::time::Duration;

use ebbtide::{Container, Database, Error, ManualClock, Options};
use tempfile::TempDir;

pub const NOW: u64 = 1_800_000_000_000;

pub struct Fixture {
    pub folder: TempDir,
    pub clock: ManualClock,
    pub db: Database,
    pub c: Container,
}

pub fn options(clock: &ManualClock) -> Options {
    Options::new().clock(clock.clone()).memtable_bytes(1 << 20)
}

pub fn fixture() -> Fixture {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(NOW));
    let db = options(&clock).open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    Fixture {
        folder,
        clock,
        db,
        c,
    }
}

pub fn keys(c: &Container) -> Vec<Vec<u8>> {
    c.iter().map(|item| item.unwrap().key().to_vec()).collect()
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The error is about an argument, and says what was given and what is allowed.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: ebbtide::Result<T>, what: &str, words: &[&str]) {
    match result {
        Err(error @ Error::InvalidArgument { what: found, .. }) => {
            assert_eq!(found, what);
            let text = error.to_string();
            for word in words {
                assert!(text.contains(word), "{text:?} does not say {word:?}");
            }
            assert!(
                !error.is_corruption()
                    && !error.is_full()
                    && !error.is_retryable()
                    && !error.is_closed()
            );
        }
        other => panic!("{other:?} where {what} is out of range"),
    }
}
