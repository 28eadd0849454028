//! Counts right and wrong answers, by what the oracle itself wrote and when.
//!
//! An oracle knows between which readings of the clock an item was written, and so between which moments it expires. An
//! answer given between the readings `asked` and `answered` is wrong if the item was expired by `asked` and was found,
//! or cannot have expired by `answered` and was not found.

/// An operation began at the first moment and ended at the second, in milliseconds.
pub type Window = (u64, u64);

/// The judged answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Answers that were judged.
    pub reads: u64,
    /// Items that were there although they had expired or were deleted.
    pub expired_returned: u64,
    /// Items that were missing although they were alive.
    pub lost: u64,
    /// Items that came with another value, ttl or time than they were written with.
    pub wrong: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.reads += other.reads;
        self.expired_returned += other.expired_returned;
        self.lost += other.lost;
        self.wrong += other.wrong;
    }

    /// Judges whether an item was found by an operation between two moments: `expiry` says between which moments it
    /// expires, `None` that it was never written or is deleted.
    pub fn judge(&mut self, found: bool, expiry: Option<Window>, (asked, answered): Window) {
        let (earliest, latest) = expiry.unwrap_or((0, 0));
        self.reads += 1;
        self.expired_returned += u64::from(found && latest <= asked);
        self.lost += u64::from(!found && answered < earliest);
    }

    /// The broken promises, in words.
    pub fn broken(&self) -> Vec<String> {
        let Tally {
            expired_returned,
            lost,
            wrong,
            ..
        } = self;
        let promises = [
            (
                *expired_returned,
                "reads that returned an expired or deleted item",
            ),
            (*lost, "reads that missed a live item"),
            (*wrong, "answers that were not what was written"),
        ];
        let broken = promises.into_iter().filter(|(times, _)| *times > 0);
        broken
            .map(|(times, what)| format!("{what}: {times}"))
            .collect()
    }
}
