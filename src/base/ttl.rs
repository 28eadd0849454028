//! Ttls, as users give them and as they are stored.

use std::time::{Duration, SystemTime};

/// The longest lifetime, 2 147 483 647 seconds, in milliseconds.
pub const MAX_TTL_MILLIS: u64 = 2_147_483_647_000;

/// The lifetime of one item, as a write gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ttl {
    /// The container's default applies, whatever it is at the moment of reading.
    #[default]
    Inherit,
    /// The item never expires by itself.
    Never,
    /// The item expires this long after its last write: more than 0, at most 2 147 483 647 s; rounded up to 1 ms.
    After(Duration),
    /// The new value keeps the countdown of the live item that it replaces: the time from which it counts
    /// ([`Item::written_at`](crate::Item::written_at)) and the ttl; an item that inherits the default goes on
    /// inheriting it. If there is no live item, this is [`Ttl::Inherit`].
    Keep,
    /// The item expires at this moment; stored as the lifetime that ends then. A moment in the past is stored as
    /// lifetime 0, which is expired at once wherever ttl applies.
    Until(SystemTime),
}

impl From<Duration> for Ttl {
    /// [`Ttl::After`]; a write with a lifetime out of range is refused.
    fn from(lifetime: Duration) -> Ttl {
        Ttl::After(lifetime)
    }
}

/// The container's default ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DefaultTtl {
    /// Nothing expires, not even items with a ttl of their own.
    #[default]
    Off,
    /// Items with a ttl of their own expire; the others do not (Cosmos: -1).
    NoDefault,
    /// Items without a ttl of their own expire this long after their last write.
    After(Duration),
}

/// An item's own ttl as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemTtl {
    /// The container's default applies.
    Absent,
    /// Never expires.
    Never,
    /// Milliseconds after `written_at`; 0 only from [`Ttl::Until`] with a moment in the past.
    Millis(u64),
}

impl ItemTtl {
    /// As the public type.
    pub fn to_public(self) -> Ttl {
        match self {
            ItemTtl::Absent => Ttl::Inherit,
            ItemTtl::Never => Ttl::Never,
            ItemTtl::Millis(millis) => Ttl::After(Duration::from_millis(millis)),
        }
    }
}
