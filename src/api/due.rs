//! The ends of items: the due curve, and items in the order of their ends.

use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};
use std::time::SystemTime;

use crate::api::container::Container;
use crate::base::{Result, Timestamp};
use crate::data::item::Item;

/// The items that end in a span of time, from the end of the bucket before to `until`, included, and the disk space
/// that comes back in it. Estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DueBucket {
    /// The last moment of the span; if it has passed, the bucket is about items that have ended and are still stored.
    pub until: SystemTime,
    /// Items that end.
    pub items: u64,
    /// Bytes of their keys and values, and some for each.
    pub bytes: u64,
    /// Bytes of files that are removed or rewritten without them by then, if nobody writes.
    pub disk_bytes: u64,
}

impl Container {
    /// The due curve: the items that end in each span of time, earliest first, and the disk space that comes back in
    /// it: of the past, ended items that are still stored; of the future, as if nobody writes and the default stays.
    /// Items that never end are in no bucket. At most some 70 buckets, the narrower, the nearer to now, which is the
    /// end of one; each ends with the last end in it, and there is none where nothing ends and nothing comes back. From
    /// statistics, within 5 % of what is stored; reads no item.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock).open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.put_with_ttl("soon", "v", Duration::from_secs(10))?;
    /// c.put_with_ttl("later", "v", Duration::from_secs(1_000))?;
    /// c.put_with_ttl("never", "v", Ttl::Never)?;
    /// let within = db.now() + Duration::from_secs(60);
    /// let soon = c.due().into_iter().filter(|due| due.until <= within);
    /// assert_eq!(soon.map(|due| due.items).sum::<u64>(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn due(&self) -> Vec<DueBucket> {
        let buckets = self.engine().due(self.state()).into_iter();
        buckets
            .map(|due| DueBucket {
                until: due.until.to_system_time(),
                items: due.ends.count,
                bytes: due.ends.bytes,
                disk_bytes: due.disk_bytes,
            })
            .collect()
    }

    /// The live items that end in a range of time, in the order of their ends, those of one end in the order of keys.
    /// Reads only the tables that have some. An item that is written, or ends, before it is reached is left out; so is
    /// one that is written after the iterator was made, unless it takes the place of another in time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock).open(folder.path())?;
    /// let c = db.container("c")?;
    /// for (key, seconds) in [("a", 30), ("b", 10), ("c", 3_600)] {
    ///     c.put_with_ttl(key, "v", Duration::from_secs(seconds))?;
    /// }
    /// let next = c.due_items(..db.now() + Duration::from_secs(60));
    /// let keys = next.map(|item| Ok(item?.key().to_vec())).collect::<ebbtide::Result<Vec<_>>>()?;
    /// assert_eq!(keys, [b"b", b"a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn due_items(&self, range: impl RangeBounds<SystemTime>) -> DueItems {
        // Moments are whole milliseconds: a bound between two is as good as the next.
        let up = |moment: &SystemTime| Timestamp::from_system_time_up(*moment);
        let down = |moment: &SystemTime| match up(moment) {
            up if up.to_system_time() == *moment => up.after(1),
            up => up,
        };
        let from = match range.start_bound() {
            Bound::Included(moment) => up(moment),
            Bound::Excluded(moment) => down(moment),
            Bound::Unbounded => Timestamp(0),
        };
        let to = match range.end_bound() {
            Bound::Included(moment) => down(moment),
            Bound::Excluded(moment) => up(moment),
            Bound::Unbounded => Timestamp::MAX,
        };
        let parts = match from < to {
            true => self.engine().due_parts(self.state(), from, to),
            false => vec![],
        };
        DueItems {
            container: self.clone(),
            from,
            parts: parts.into(),
            keys: VecDeque::new(),
        }
    }
}

/// Items in the order of their ends; see [`Container::due_items`].
pub struct DueItems {
    container: Container,
    /// Where the next part begins.
    from: Timestamp,
    /// The ends of the parts of time that are left.
    parts: VecDeque<Timestamp>,
    /// The rest of the current part.
    keys: VecDeque<(Timestamp, Vec<u8>)>,
}

impl fmt::Debug for DueItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueItems").finish_non_exhaustive()
    }
}

impl DueItems {
    fn step(&mut self) -> Result<Option<Item>> {
        loop {
            while let Some((end, key)) = self.keys.pop_front() {
                let item = self.container.item(&key)?;
                // With another end it was written since: it comes again at that end, or that has passed.
                if let Some(item) = item.filter(|item| item.end() == end) {
                    return Ok(Some(item));
                }
            }
            let Some(to) = self.parts.pop_front() else {
                return Ok(None);
            };
            let (engine, state) = (self.container.engine(), self.container.state());
            engine.check_open(state)?;
            self.keys = engine.due_keys(state, self.from, to)?.into();
            self.from = to;
        }
    }
}

impl Iterator for DueItems {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        let step = self.step();
        if step.is_err() {
            self.parts.clear();
            self.keys.clear();
        }
        step.transpose()
    }
}

impl FusedIterator for DueItems {}
