//! The dead records that a walk passes between two items: when to ask whether the rest of a range is known to be bare,
//! and the bare range that the walk reports.

use crate::data::bare_ranges::{BareRange, PASSED_LEAST, after, common};
use crate::data::batch::KeyRange;

/// After so many dead records a walk asks whether it is in a bare range, and then after as many again.
const ASKED_AFTER: usize = 16;

/// The keys between two items of a walk, in its direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bare {
    /// They come after this key; none: the walk began with them.
    near: Option<Vec<u8>>,
    /// They come before this key; none: the walk ended with them.
    far: Option<Vec<u8>>,
    passed: usize,
}

impl Bare {
    /// The same as a range, within the one that was walked.
    pub fn within(self, range: &KeyRange, forward: bool) -> BareRange {
        let (below, above) = match forward {
            true => (self.near, self.far),
            false => (self.far, self.near),
        };
        let bare = KeyRange {
            from: below.map_or(vec![], |below| after(&below)),
            to: above,
        };
        BareRange {
            range: common(&bare, range),
            passed: self.passed,
        }
    }
}

enum Near {
    /// The walk has had no item yet.
    Start,
    /// Few were passed since the last item.
    Unknown,
    Key(Vec<u8>),
}

/// The dead records that a walk has passed since its last item.
pub struct Between {
    near: Near,
    asked_at: usize,
    /// After so many dead records the next item ends a bare range: 0, so in any case, for the first item and the end.
    told_at: usize,
    found: Option<Box<Bare>>,
    /// Records passed in all, where many were passed at a time.
    passed: usize,
    /// How often dead records followed an item.
    stops: usize,
}

impl Default for Between {
    fn default() -> Self {
        Between {
            near: Near::Start,
            asked_at: ASKED_AFTER,
            told_at: 0,
            found: None,
            passed: 0,
            stops: 0,
        }
    }
}

impl Between {
    /// Whether to ask now.
    #[inline(always)]
    pub fn asks(&self, passed: usize) -> bool {
        passed >= self.asked_at
    }

    /// Notes that it is asked; `decided` is the last key that was passed.
    pub fn note_asked(&mut self, passed: usize, decided: &[u8]) {
        self.asked_at = passed + ASKED_AFTER;
        if let Near::Unknown = self.near {
            self.near = Near::Key(decided.to_vec());
        }
    }

    /// Whether an item that comes now is to be told: mostly nothing was passed before it, and nothing changes.
    #[inline(always)]
    pub fn is_told(&self, passed: usize) -> bool {
        passed >= self.told_at
    }

    /// An item follows what was passed, or a record that is dead and not for good.
    #[inline(always)]
    pub fn begin_anew(&mut self) {
        self.near = Near::Unknown;
        (self.asked_at, self.told_at) = (ASKED_AFTER, 1);
    }

    /// The walk has come to an item, or to the end of its range, with this key; none: there are no more records.
    #[inline(always)]
    pub fn end(&mut self, passed: usize, key: Option<&[u8]>) {
        if passed >= PASSED_LEAST {
            self.note_found(passed, key);
        }
        self.begin_anew();
    }

    #[cold]
    fn note_found(&mut self, passed: usize, key: Option<&[u8]>) {
        self.passed += passed;
        let most = self.found.as_ref().map_or(0, |most| most.passed);
        let near = match std::mem::replace(&mut self.near, Near::Unknown) {
            Near::Start => None,
            Near::Key(near) => Some(near),
            Near::Unknown => return,
        };
        if passed > most {
            let far = key.map(<[u8]>::to_vec);
            self.found = Some(Box::new(Bare { near, far, passed }));
        }
    }

    /// Notes that a dead record follows an item.
    pub fn note_stop(&mut self) {
        self.stops += 1;
    }

    /// How often that was so.
    pub fn stops(&self) -> usize {
        self.stops
    }

    /// About how many dead records were passed before the last item.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Where most was passed since this was last called, if it was many.
    pub fn take_found(&mut self) -> Option<Bare> {
        self.found.take().map(|found| *found)
    }

    /// Whether there is something for [`Between::take_found`].
    #[inline(always)]
    pub fn has_found(&self) -> bool {
        self.found.is_some()
    }
}
