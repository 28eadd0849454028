//! The published figures of the database, and when they are due again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::env::monotonic;

/// The threads publish this often.
const INTERVAL: Duration = Duration::from_secs(10);

/// See the file's head.
pub struct Publisher(Mutex<Published>);

struct Published {
    /// When the threads publish again.
    due: Duration,
    /// The containers with published figures; `None`: nothing was ever published.
    containers: Option<BTreeSet<String>>,
}

impl Publisher {
    /// Nothing was published.
    pub fn new() -> Publisher {
        Publisher(Mutex::new(Published {
            due: monotonic() + INTERVAL,
            containers: None,
        }))
    }

    /// Whether it is time; then the next time is an interval later.
    pub fn is_due(&self) -> bool {
        let (now, mut published) = (monotonic(), self.0.lock());
        let is_due = now >= published.due;
        if is_due {
            published.due = now + INTERVAL;
        }
        is_due
    }

    /// Takes the containers with published figures; `None`: nothing was ever published, or another thread took them.
    pub fn take(&self) -> Option<BTreeSet<String>> {
        self.0.lock().containers.take()
    }

    /// Adds to the containers that others put meanwhile.
    pub fn put(&self, containers: BTreeSet<String>) {
        let mut published = self.0.lock();
        let all = published.containers.get_or_insert_default();
        all.extend(containers);
    }
}
