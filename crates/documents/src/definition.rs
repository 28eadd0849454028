//! The definition of a container.

use ebbtide::DefaultTtl;
use serde_json::{Map, Value};

use crate::error::Result;

/// The indexing mode of a container. Consistent and Lazy are the same here: the engine's census, by which items expire, is
/// always there and always right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexingMode {
    /// `consistent`.
    #[default]
    Consistent,
    /// `lazy`.
    Lazy,
    /// `none`: no time to live.
    None,
}

/// The indexing policy of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Indexing {
    /// Its mode.
    pub mode: IndexingMode,
    /// The policy as it was given; empty where none was.
    pub policy: Map<String, Value>,
}

/// The definition of a container, as its creator gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDefinition {
    /// Its id.
    pub id: String,
    /// 1 to 3 paths, as `/tenant`.
    pub partition_key: Vec<String>,
    /// `defaultTtl`.
    pub default_ttl: DefaultTtl,
    /// `analyticalStorageTtl`: the retention of copies for analysis.
    pub analytical_ttl: DefaultTtl,
    /// `indexingPolicy`.
    pub indexing: Indexing,
    /// `maxLiveBytes`: the container takes no more than this.
    pub max_live_bytes: Option<u64>,
    /// All other members, as they were given.
    pub other: Map<String, Value>,
}

impl ContainerDefinition {
    /// One of this id, with one partition key path, time to live off.
    pub fn new(
        id: impl Into<String>,
        partition_key_path: impl Into<String>,
    ) -> ContainerDefinition {
        ContainerDefinition {
            id: id.into(),
            partition_key: vec![partition_key_path.into()],
            default_ttl: DefaultTtl::Off,
            analytical_ttl: DefaultTtl::Off,
            indexing: Indexing::default(),
            max_live_bytes: None,
            other: Map::new(),
        }
    }

    /// From the body of a request.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn from_json(json: &[u8]) -> Result<ContainerDefinition> {
        let _ = json;
        todo!()
    }

    /// As JSON, without system properties.
    #[must_use]
    pub fn to_json(&self) -> String {
        todo!()
    }
}
