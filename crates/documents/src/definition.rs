//! The definition of a container.

use std::time::Duration;

use ebbtide::DefaultTtl;
use serde_json::{Map, Value, json};

use crate::body::{MemberPath, SYSTEM, check_name, utf8};
use crate::error::{Error, Result};
use crate::partition_key::MAX_PARTS;

/// The highest default ttl, in seconds.
const MAX_TTL: i64 = 2_147_483_647;
/// A container has up to so many indexes by name.
pub const MAX_INDEXES: usize = 32;
/// The member that is always left out of the index, as Cosmos DB says it.
const ETAG_PATH: &str = "/\"_etag\"/?";

/// The indexing mode of a container. Consistent and Lazy are the same here: the engine's census, by which items expire, is
/// always there and always right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexingMode {
    /// `consistent`.
    #[default]
    Consistent,
    /// `lazy`.
    Lazy,
    /// `none`: such a container has no time to live.
    None,
}

impl IndexingMode {
    fn name(self) -> &'static str {
        match self {
            IndexingMode::Consistent => "consistent",
            IndexingMode::Lazy => "lazy",
            IndexingMode::None => "none",
        }
    }
}

/// The indexing policy of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Indexing {
    /// Its mode.
    pub mode: IndexingMode,
    /// The policy as it was given; empty where none was.
    pub policy: Map<String, Value>,
}

impl Indexing {
    /// The paths of `includedPaths` that name one value, as `/user/?`, without their end: of each the container keeps an
    /// index. All other paths of a policy are shown as they were given, and change nothing.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let included = self.policy.get("includedPaths").and_then(Value::as_array);
        let paths = included.into_iter().flatten();
        let paths = paths.filter_map(|path| path.get("path")?.as_str()?.strip_suffix("/?"));
        paths
            .filter(|path| member_path(path).is_ok())
            .map(str::to_owned)
            .collect()
    }

    /// The same as members, each once; none where the mode is [`IndexingMode::None`]. What is the system's is not in the body of
    /// a document, and has no index.
    pub(crate) fn member_paths(&self) -> Vec<MemberPath> {
        let mut paths: Vec<MemberPath> = vec![];
        if self.mode == IndexingMode::None {
            return paths;
        }
        for path in self
            .paths()
            .iter()
            .filter_map(|path| member_path(path).ok())
        {
            if !paths.contains(&path) && !SYSTEM.contains(&path[0].as_str()) {
                paths.push(path);
            }
        }
        paths
    }

    fn from_value(value: Value) -> Result<Indexing> {
        let Value::Object(policy) = value else {
            return Err(Error::bad_request("indexingPolicy is to be an object."));
        };
        let mode = match policy.get("indexingMode") {
            None => IndexingMode::Consistent,
            Some(mode) => {
                let name = mode.as_str().unwrap_or_default().to_ascii_lowercase();
                let modes = [
                    IndexingMode::Consistent,
                    IndexingMode::Lazy,
                    IndexingMode::None,
                ];
                let known = modes.into_iter().find(|mode| mode.name() == name);
                known.ok_or_else(|| {
                    Error::bad_request(format!(
                        "indexingMode is consistent, lazy or none, not {mode}."
                    ))
                })?
            }
        };
        Ok(Indexing { mode, policy })
    }

    /// The policy with what Cosmos DB adds where it was not given.
    fn to_value(&self) -> Value {
        let mut policy = self.policy.clone();
        policy.insert("indexingMode".into(), self.mode.name().into());
        let is_on = self.mode != IndexingMode::None;
        policy.entry("automatic").or_insert(is_on.into());
        let everything = if is_on {
            json!([{"path": "/*"}])
        } else {
            json!([])
        };
        let included = policy.entry("includedPaths").or_insert(everything);
        for path in included.as_array_mut().into_iter().flatten() {
            // How a path is indexed is no setting any more.
            path.as_object_mut().map(|path| path.remove("indexes"));
        }
        let excluded = policy.entry("excludedPaths").or_insert(json!([]));
        if let (true, Some(excluded)) = (is_on, excluded.as_array_mut()) {
            let names_it = |path: &Value| path.get("path").is_some_and(|path| path == ETAG_PATH);
            if !excluded.iter().any(names_it) {
                excluded.push(json!({"path": ETAG_PATH}));
            }
        }
        Value::Object(policy)
    }
}

/// The definition of a container, as its creator gave it.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::DefaultTtl;
/// use ebbtide_documents::{ContainerDefinition, IndexingMode};
///
/// let hour = br#"{"id": "sessions", "partitionKey": {"paths": ["/user"]}, "defaultTtl": 3600}"#;
/// let mut sessions = ContainerDefinition::from_json(hour)?;
/// assert_eq!(sessions.default_ttl, DefaultTtl::After(Duration::from_secs(3_600)));
/// sessions.indexing.mode = IndexingMode::None;
/// assert!(sessions.check().is_err()); // time to live needs the index
/// sessions.default_ttl = DefaultTtl::Off;
/// sessions.check()?;
/// # Ok::<(), ebbtide_documents::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDefinition {
    /// Its id: 1 to 1 023 bytes without `/ \ ? #`.
    pub id: String,
    /// 1 to 3 paths, as `/tenant`.
    pub partition_key: Vec<String>,
    /// `defaultTtl`: whole seconds.
    pub default_ttl: DefaultTtl,
    /// `analyticalStorageTtl`: the retention of copies for analysis, whole seconds. It is kept for those that make them.
    pub analytical_ttl: DefaultTtl,
    /// `indexingPolicy`.
    pub indexing: Indexing,
    /// `maxLiveBytes`: the container takes no more than this, and answers 403 until documents expire or are deleted.
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

    /// From the body of a request. System properties are left out.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): what is missing or not allowed.
    pub fn from_json(json: &[u8]) -> Result<ContainerDefinition> {
        let definition = ContainerDefinition::from_stored(json)?;
        definition.check()?;
        Ok(definition)
    }

    /// The same without what [`ContainerDefinition::check`] asks for now: one that was accepted stays.
    pub(crate) fn from_stored(json: &[u8]) -> Result<ContainerDefinition> {
        utf8(json)?;
        let object: Value = serde_json::from_slice(json)
            .map_err(|error| Error::bad_request(format!("The body is no JSON: {error}.")))?;
        let Value::Object(mut members) = object else {
            return Err(Error::bad_request("The body is to be an object."));
        };
        for own in [
            "_rid",
            "_self",
            "_etag",
            "_ts",
            "_docs",
            "_sprocs",
            "_triggers",
            "_udfs",
            "_conflicts",
        ] {
            members.remove(own);
        }
        let id = match members.remove("id") {
            Some(Value::String(id)) => id,
            _ => {
                return Err(Error::bad_request("A container needs an id."));
            }
        };
        let partition_key = take_paths(&mut members)?;
        let max_live_bytes = match members.remove("maxLiveBytes") {
            None | Some(Value::Null) => None,
            Some(bytes) => Some(bytes.as_u64().filter(|bytes| *bytes > 0).ok_or_else(|| {
                Error::bad_request(format!(
                    "maxLiveBytes is a whole number above 0, not {bytes}."
                ))
            })?),
        };
        Ok(ContainerDefinition {
            id,
            partition_key,
            default_ttl: parse_ttl("defaultTtl", members.remove("defaultTtl"))?,
            analytical_ttl: parse_ttl(
                "analyticalStorageTtl",
                members.remove("analyticalStorageTtl"),
            )?,
            indexing: members
                .remove("indexingPolicy")
                .map_or(Ok(Indexing::default()), Indexing::from_value)?,
            max_live_bytes,
            other: members,
        })
    }

    /// As JSON, without system properties; the indexing policy with what Cosmos DB adds where it was not given.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.members(self.indexing.to_value())).to_string()
    }

    /// The same as it was given, to be stored.
    pub(crate) fn to_stored(&self) -> Value {
        let mut policy = self.indexing.policy.clone();
        if self.indexing.mode != IndexingMode::Consistent || !policy.is_empty() {
            policy.insert("indexingMode".into(), self.indexing.mode.name().into());
        }
        Value::Object(self.members(Value::Object(policy)))
    }

    fn members(&self, policy: Value) -> Map<String, Value> {
        let mut members = self.other.clone();
        members.insert("id".into(), self.id.as_str().into());
        members.insert("indexingPolicy".into(), policy);
        let key = members.entry("partitionKey").or_insert(json!({}));
        if let Value::Object(key) = key {
            key.insert("paths".into(), self.partition_key.clone().into());
            let kind = if self.partition_key.len() > 1 {
                "MultiHash"
            } else {
                "Hash"
            };
            key.entry("kind").or_insert(kind.into());
        }
        let ttls = [
            ("defaultTtl", self.default_ttl),
            ("analyticalStorageTtl", self.analytical_ttl),
        ];
        for (name, ttl) in ttls {
            if let Some(seconds) = seconds(ttl) {
                members.insert(name.into(), seconds.into());
            }
        }
        if let Some(bytes) = self.max_live_bytes {
            members.insert("maxLiveBytes".into(), bytes.into());
        }
        members
    }

    /// Fails where no container may be so. By the rule of indexing, a default ttl, -1 included, and indexing mode none
    /// do not go together.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest), [`NotImplemented`](crate::ErrorKind::NotImplemented): unique keys.
    pub fn check(&self) -> Result<()> {
        check_name(&self.id)?;
        if !(1..=MAX_PARTS).contains(&self.partition_key.len()) {
            let message = format!(
                "A partition key has 1 to {MAX_PARTS} paths, not {}.",
                self.partition_key.len()
            );
            return Err(Error::bad_request(message));
        }
        let paths = self.member_paths()?;
        for (at, path) in paths.iter().enumerate() {
            if SYSTEM.contains(&path[0].as_str()) || paths[..at].contains(path) {
                return Err(Error::bad_request(format!(
                    "{} is no path of a partition key: it is a system property, or there twice.",
                    self.partition_key[at]
                )));
            }
        }
        for (name, ttl) in [
            ("defaultTtl", self.default_ttl),
            ("analyticalStorageTtl", self.analytical_ttl),
        ] {
            check_ttl(name, ttl)?;
        }
        self.keep_expired()?;
        if self.indexing.mode == IndexingMode::None && self.default_ttl != DefaultTtl::Off {
            return Err(Error::bad_request(
                "Time to live needs the index: where indexingMode is none, there can be no defaultTtl.",
            ));
        }
        let indexes = self.indexing.member_paths().len();
        if indexes > MAX_INDEXES {
            return Err(Error::bad_request(format!(
                "includedPaths names up to {MAX_INDEXES} single paths, each of which is an index; these are {indexes}."
            )));
        }
        let unique = self
            .other
            .get("uniqueKeyPolicy")
            .and_then(|policy| policy.get("uniqueKeys"));
        if unique
            .and_then(Value::as_array)
            .is_some_and(|keys| !keys.is_empty())
        {
            return Err(Error::not_implemented("Unique keys are not offered here."));
        }
        Ok(())
    }

    /// How long expired documents are kept for [`Container::ends`](crate::Container::ends): `retentionDuration` of
    /// `changeFeedPolicy`, in minutes.
    pub(crate) fn keep_expired(&self) -> Result<Duration> {
        let policy = self.other.get("changeFeedPolicy");
        let Some(minutes) = policy.and_then(|policy| policy.get("retentionDuration")) else {
            return Ok(Duration::ZERO);
        };
        // A year, which is more than Cosmos DB allows.
        let allowed = minutes.as_u64().filter(|minutes| *minutes <= 525_600);
        let minutes = allowed.ok_or_else(|| {
            Error::bad_request(format!(
                "retentionDuration is up to 525600 whole minutes, not {minutes}."
            ))
        })?;
        Ok(Duration::from_secs(60 * minutes))
    }

    /// The members on the way to each part of a partition key.
    pub(crate) fn member_paths(&self) -> Result<Vec<MemberPath>> {
        self.partition_key
            .iter()
            .map(|path| member_path(path))
            .collect()
    }
}

/// The members of a path, as `/a/"b c"` or `/a/'b c'`.
pub fn member_path(path: &str) -> Result<MemberPath> {
    let wrong = || {
        Error::bad_request(format!(
            "The path {path:?} is to be one as /tenant or /user/id."
        ))
    };
    let mut rest = path.strip_prefix('/').ok_or_else(wrong)?;
    let mut members = vec![];
    loop {
        let (name, after) = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => rest[1..].split_once(quote).ok_or_else(wrong)?,
            _ => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        };
        if name.is_empty() || matches!(name, "*" | "?" | "[]") {
            return Err(wrong());
        }
        members.push(name.to_owned());
        match after.strip_prefix('/') {
            Some(more) => rest = more,
            None if after.is_empty() => return Ok(members),
            None => return Err(wrong()),
        }
    }
}

/// Takes the paths out of `partitionKey`, whose other members stay.
fn take_paths(members: &mut Map<String, Value>) -> Result<Vec<String>> {
    let wrong = || Error::bad_request("partitionKey is to be an object with 1 to 3 paths.");
    let key = members
        .get_mut("partitionKey")
        .and_then(Value::as_object_mut)
        .ok_or_else(wrong)?;
    let Some(Value::Array(paths)) = key.remove("paths") else {
        return Err(wrong());
    };
    let paths = paths.into_iter().map(|path| match path {
        Value::String(path) => Ok(path),
        _ => Err(wrong()),
    });
    paths.collect()
}

fn parse_ttl(name: &str, value: Option<Value>) -> Result<DefaultTtl> {
    let value = value.unwrap_or_default();
    match (&value, value.as_i64()) {
        (Value::Null, _) => Ok(DefaultTtl::Off),
        (_, Some(-1)) => Ok(DefaultTtl::NoDefault),
        (_, Some(seconds @ 1..=MAX_TTL)) => Ok(DefaultTtl::After(Duration::from_secs(
            seconds.unsigned_abs(),
        ))),
        _ => Err(wrong_ttl(name, &value.to_string())),
    }
}

fn wrong_ttl(name: &str, given: &str) -> Error {
    Error::bad_request(format!(
        "{name} is null (off), -1 (on, without default), or whole seconds from 1 to {MAX_TTL}, and not {given}."
    ))
}

fn check_ttl(name: &str, ttl: DefaultTtl) -> Result<()> {
    match ttl {
        DefaultTtl::After(after)
            if after.subsec_nanos() != 0 || !(1..=MAX_TTL as u64).contains(&after.as_secs()) =>
        {
            Err(wrong_ttl(name, &format!("{after:?}")))
        }
        _ => Ok(()),
    }
}

/// As JSON has it; `None`: off.
fn seconds(ttl: DefaultTtl) -> Option<i64> {
    match ttl {
        DefaultTtl::NoDefault => Some(-1),
        // In whole seconds, unless it was changed elsewhere.
        DefaultTtl::After(after) => i64::try_from(after.as_millis().div_ceil(1_000)).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_members() {
        let path = |path: &str| member_path(path).ok();
        assert_eq!(path("/a"), Some(vec!["a".to_owned()]));
        assert_eq!(
            path("/a/\"b/c\"/d"),
            Some(vec!["a".into(), "b/c".into(), "d".into()])
        );
        assert_eq!(
            path("/'a\" 1'/'b/c'"),
            Some(vec!["a\" 1".into(), "b/c".into()])
        );
        for wrong in [
            "/'a", "/'a\"", "", "/", "a", "//a", "/a/", "/a//b", "/*", "/a/?", "/a/[]", "/\"a",
            "/\"a\"b",
        ] {
            assert_eq!(path(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_stored_comes_back() {
        let texts = [
            r#"{"id":"a","partitionKey":{"paths":["/p"],"kind":"Hash","version":2},"indexingPolicy":{"indexingMode":"Lazy"},"x":{"y":1}}"#,
            r#"{"id":"a","partitionKey":{"paths":["/p","/q"]},"defaultTtl":-1,"analyticalStorageTtl":7,"maxLiveBytes":5}"#,
            r#"{"id":"a","partitionKey":{"paths":["/p"]},"defaultTtl":null,"indexingPolicy":{"indexingMode":"none","automatic":false}}"#,
        ];
        for text in texts {
            let given = ContainerDefinition::from_json(text.as_bytes()).unwrap();
            let stored = given.to_stored().to_string();
            let again = ContainerDefinition::from_json(stored.as_bytes()).unwrap();
            assert_eq!(again.to_json(), given.to_json());
            assert_eq!(again.to_stored().to_string(), stored);
        }
    }

    #[test]
    fn the_policy_is_echoed_with_its_default() {
        let echoed = |policy: &str| {
            let text = format!(
                "{{\"id\":\"a\",\"partitionKey\":{{\"paths\":[\"/p\"]}},\"indexingPolicy\":{policy}}}"
            );
            let json = ContainerDefinition::from_json(text.as_bytes())
                .unwrap()
                .to_json();
            serde_json::from_str::<Value>(&json).unwrap()["indexingPolicy"].clone()
        };
        let default = json!({
            "indexingMode": "consistent", "automatic": true,
            "includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": ETAG_PATH}],
        });
        assert_eq!(echoed("{}"), default);
        let excluded = &echoed(r#"{"excludedPaths":[{"path":"/a/*"}]}"#)["excludedPaths"];
        assert_eq!(excluded, &json!([{"path": "/a/*"}, {"path": ETAG_PATH}]));
        assert_eq!(
            echoed(r#"{"indexingMode":"none"}"#)["includedPaths"],
            json!([])
        );
    }
}
