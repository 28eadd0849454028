//! The changes of a database, for the keeper of a copy.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::base::record::{Header, Kind};
use crate::base::{DefaultTtl, ItemTtl, Timestamp, Ttl};
use crate::data::item::Item;
use crate::data::version::Version;
use crate::expiry::Settings;

/// One of the changes since a version: see [`Database::changes`](crate::Database::changes), which also has an example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A container was dropped. These are all that there are: a copy of any other is to be dropped, too.
    Containers {
        /// Their names, sorted.
        names: Vec<Arc<str>>,
    },
    /// A container was made: it is empty before the changes that follow. One of the same name that the copy has was
    /// dropped.
    Created {
        /// Its name.
        container: Arc<str>,
        /// The version of its creation.
        version: Version,
    },
    /// The default ttl was changed, or items were expired on command. All items of the copy that are gone by this rule are
    /// to be removed; from now on it judges the others.
    Expiry {
        /// The container's name.
        container: Arc<str>,
        /// The rule by which items of the container end.
        rule: ExpiryRule,
    },
    /// All items in a range of keys were deleted; what was written to it later follows.
    DeleteRange {
        /// The container's name.
        container: Arc<str>,
        /// The first key; empty: from the first on.
        from: Bytes,
        /// The first key after the range; `None`: there is no end.
        to: Option<Bytes>,
        /// The version of this write.
        version: Version,
    },
    /// A key has a new live item.
    Put {
        /// The container's name.
        container: Arc<str>,
        /// Key, value, version, time and ttl.
        item: Item,
    },
    /// The item of a key was deleted, or was written and has ended since.
    Delete {
        /// The container's name.
        container: Arc<str>,
        /// The key.
        key: Bytes,
        /// The version of the write that deleted it, or whose item has ended.
        version: Version,
    },
}

/// The rule by which items of a container end: its default ttl, and the effect of earlier defaults and commands. It is
/// plain data, to be stored with a copy by any format of serde: a copy that goes on from its version is told the rule
/// only when it changes.
///
/// A rule that was changed before it was told holds until that change, and judges later moments by it; the next pass tells the
/// one that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryRule(Told);

/// The fields, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Told {
    #[serde(flatten)]
    settings: Settings,
    /// The last moment at which these were the settings; none: they are still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

impl serde::Serialize for ExpiryRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return self.0.serialize(serializer);
        }
        // A format without names could not leave fields out.
        let text = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

impl<'de> serde::Deserialize<'de> for ExpiryRule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Told::deserialize(deserializer).map(ExpiryRule);
        }
        let text = String::deserialize(deserializer)?;
        let told = serde_json::from_str(&text).map_err(serde::de::Error::custom)?;
        Ok(ExpiryRule(told))
    }
}

impl ExpiryRule {
    /// `until`: when they changed, if they have.
    pub(crate) fn new(settings: &Settings, until: Option<Timestamp>) -> ExpiryRule {
        ExpiryRule(Told {
            settings: settings.without_past(),
            until,
        })
    }

    /// The default ttl.
    #[must_use]
    pub fn default_ttl(&self) -> DefaultTtl {
        self.0.settings.default.to_public()
    }

    /// Whether an item is gone at a moment, rounded up to 1 ms: it has expired, or had before this rule came. `ttl` is what
    /// [`Item::ttl`] says.
    #[must_use]
    pub fn is_gone(
        &self,
        version: Version,
        written_at: SystemTime,
        ttl: Ttl,
        at: SystemTime,
    ) -> bool {
        let written_at = Timestamp::from_system_time_up(written_at);
        let millis = |ttl: Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let header = Header {
            kind: Kind::Put,
            seq: version.seq(),
            written_at,
            ttl: match ttl {
                Ttl::Inherit | Ttl::Keep => ItemTtl::Absent,
                Ttl::Never => ItemTtl::Never,
                Ttl::Since(countdown) => countdown.ttl(),
                Ttl::After(ttl) => ItemTtl::Millis(millis(ttl)),
                Ttl::Until(end) => {
                    ItemTtl::Millis(Timestamp::from_system_time_up(end).since(written_at))
                }
            },
        };
        let at = Timestamp::from_system_time_up(at);
        let at = self.0.until.map_or(at, |until| at.min(until));
        self.0.settings.gone(&header, at)
    }
}
