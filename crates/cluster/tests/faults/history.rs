//! Questions with their answers, and the moments of both.

/// In milliseconds; `None`: for ever.
pub type Life = Option<u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Linearizable,
    Bounded,
    Local,
}

/// Values are written once each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Put(String, Life),
    Create(String, Life),
    /// Where the item has this version.
    PutIf(String, Life, u64),
    Delete,
    Take,
    Touch,
    Read(Level),
}

impl What {
    pub fn is_write(&self) -> bool {
        !matches!(self, What::Read(_))
    }

    pub fn is_linearizable(&self) -> bool {
        self.is_write() || *self == What::Read(Level::Linearizable)
    }

    pub fn value(&self) -> Option<(&str, Life)> {
        match self {
            What::Put(value, life) | What::Create(value, life) | What::PutIf(value, life, _) => {
                Some((value, *life))
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub version: u64,
    pub value: String,
    pub expires: Option<u64>,
}

/// A place in the log, and a moment in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub index: u64,
    pub at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The version that was written.
    Wrote(Place, u64),
    /// A condition did not hold, or there was no item.
    Missed(Place),
    /// The item that was read or taken.
    Item(Place, Shown),
    /// It was said that nothing was done.
    NotDone,
    /// Nobody said.
    Unknown,
}

impl Outcome {
    pub fn place(&self) -> Option<Place> {
        match self {
            Outcome::Wrote(place, _) | Outcome::Missed(place) | Outcome::Item(place, _) => {
                Some(*place)
            }
            _ => None,
        }
    }
}

/// One operation. Times are nanoseconds of the one who asked.
#[derive(Clone, Debug)]
pub struct Op {
    pub key: String,
    pub what: What,
    /// The token that went along.
    pub since: Place,
    pub invoked: u64,
    pub answered: u64,
    pub outcome: Outcome,
}
