//! Comparison of the replicas: each digests what is visible at one place of the log and one moment, and the digests are compared.
//!
//! ```text
//! Node::check, or the leader each check_every ──> Check in the log
//!     each replica: apply takes a snapshot (begin) ──> a thread digests it ──> found(index)
//! the node that checks asks all for their digests ──> tells all (Checked) ──> heard: a node that differs from a majority stops
//! ```
//!
//! Invariants:
//!
//! 1. A digest is a function of the log up to its entry: purges, merges and restarts do not show in it.
//! 2. Apply waits for no digest, and nothing in the log depends on one.
//! 3. A node stops only where more than half of the nodes that vote have one digest, and its own is another one. It stays stopped:
//!    the file `differs` in its folder says so.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::shared::files;
use ebbtide::{Clock, DefaultTtl, Item, Snapshot, Ttl};
use ebbtide_openraft::View;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::face::Token;

const NAME: &str = "differs";
/// As many digests are kept, for those who ask late.
const KEPT: usize = 4;
/// A digest that nobody wants any more ends after so many items.
const LOOK: u64 = 1_024;

/// A comparison of all nodes' states: containers with their default ttls, items with their keys, versions, values, ttls and ends,
/// as far as they are visible at one place of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Checked {
    /// The place of the log, and the moment by which ends were judged.
    pub at: Token,
    /// The members, in the order of their ids.
    pub nodes: Vec<CheckedNode>,
}

/// A node in a [`Checked`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckedNode {
    /// The node's id.
    pub id: u64,
    /// It counts for majorities.
    pub votes: bool,
    /// The digest of its state; or the reason why there is none: it was away, too far behind, or could not read.
    pub digest: Result<u64, String>,
}

impl Checked {
    /// All nodes whose digests came have the same one.
    #[must_use]
    pub fn agree(&self) -> bool {
        let mut digests = self
            .nodes
            .iter()
            .filter_map(|node| node.digest.as_ref().ok());
        let first = digests.next();
        digests.all(|digest| Some(digest) == first)
    }

    /// The nodes whose digest is not the one that more than half of all voting nodes have; none, where there is no such one.
    #[must_use]
    pub fn differing(&self) -> Vec<u64> {
        let Some(agreed) = self.majority() else {
            return vec![];
        };
        let is_other = |node: &&CheckedNode| node.digest.as_ref().is_ok_and(|it| *it != agreed);
        let differing = self.nodes.iter().filter(is_other);
        differing.map(|node| node.id).collect()
    }

    /// The nodes without a digest.
    #[must_use]
    pub fn absent(&self) -> Vec<u64> {
        let absent = self.nodes.iter().filter(|node| node.digest.is_err());
        absent.map(|node| node.id).collect()
    }

    fn majority(&self) -> Option<u64> {
        let voters = || self.nodes.iter().filter(|node| node.votes);
        let count = |digest: u64| voters().filter(|node| node.digest == Ok(digest)).count();
        let digests = voters().filter_map(|node| node.digest.as_ref().ok());
        let mut digests = digests.copied();
        digests.find(|digest| count(*digest) * 2 > voters().count())
    }
}

/// The answer to the question for a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Digested {
    /// The entry is not applied here, or is long ago.
    Unknown,
    UnderWay,
    Done(u64),
    Failed(String),
}

#[derive(Default)]
struct State {
    found: BTreeMap<u64, Digested>,
    last: Option<Checked>,
    /// The index of the check that found it.
    differs: Option<u64>,
    /// The own uptime when the last check began here.
    began_ms: u64,
    is_closed: bool,
}

/// The checks of a node. See the file's head.
pub struct Checks {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checks {
    /// Those of a node's folder.
    pub fn open(folder: &Path, clock: Arc<dyn Clock>) -> io::Result<Checks> {
        let state = State {
            differs: read(&folder.join(NAME))?,
            began_ms: clock.uptime(),
            ..State::default()
        };
        Ok(Checks {
            folder: folder.to_owned(),
            clock,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Digests a view by a thread of its own.
    pub fn begin(&self, index: u64, view: View, defaults: Vec<(String, DefaultTtl)>) {
        {
            let mut state = lock(&self.state);
            state.began_ms = self.clock.uptime();
            // An entry that apply tries again has the same view.
            if state.is_closed || state.found.contains_key(&index) {
                return;
            }
            state.found.insert(index, Digested::UnderWay);
            while state.found.len() > KEPT {
                state.found.pop_first();
            }
        }
        let shared = self.state.clone();
        let digesting = move || {
            let is_wanted = || {
                let state = lock(&shared);
                !state.is_closed && state.found.contains_key(&index)
            };
            let digest = digest(&view, &defaults, is_wanted);
            drop(view);
            put(
                &shared,
                index,
                digest.map_or_else(Digested::Failed, Digested::Done),
            );
        };
        let thread = std::thread::Builder::new().name("ebbtide-check".to_owned());
        if let Err(error) = thread.spawn(digesting) {
            put(&self.state, index, Digested::Failed(error.to_string()));
        }
    }

    /// The digest at the check of this index.
    pub fn found(&self, index: u64) -> Digested {
        let found = lock(&self.state).found.get(&index).cloned();
        found.unwrap_or(Digested::Unknown)
    }

    /// A check began here no later than this ago.
    pub fn is_due(&self, every: Duration) -> bool {
        let passed = self
            .clock
            .uptime()
            .saturating_sub(lock(&self.state).began_ms);
        u128::from(passed) >= every.as_millis()
    }

    /// Notes a comparison, and whether this node stops by it, which is so if it returns true.
    pub fn heard(&self, checked: Checked, own: u64) -> bool {
        let index = checked.at.index;
        let mut state = lock(&self.state);
        let told = checked.nodes.iter().find(|node| node.id == own);
        // By its own digest, whatever others were told.
        let is_own = |node: &CheckedNode| match (&node.digest, state.found.get(&index)) {
            (Ok(told), Some(Digested::Done(found))) => told == found,
            _ => false,
        };
        let differs = told.is_some_and(is_own) && checked.differing().contains(&own);
        if state.last.as_ref().is_none_or(|last| last.at < checked.at) {
            state.last = Some(checked);
        }
        if differs && state.differs.is_none() {
            state.differs = Some(index);
            // Where it cannot be written the node has stopped until it is opened again, and is found again.
            let _ = write(&self.folder, index);
        }
        differs
    }

    /// The index of the check by which the node has stopped.
    pub fn differs(&self) -> Option<u64> {
        lock(&self.state).differs
    }

    pub fn last(&self) -> Option<Checked> {
        lock(&self.state).last.clone()
    }

    /// Ends digests that are under way.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
    }
}

fn put(state: &Mutex<State>, index: u64, digested: Digested) {
    if let Some(found) = lock(state).found.get_mut(&index) {
        *found = digested;
    }
}

fn read(path: &Path) -> io::Result<Option<u64>> {
    match fs::read_to_string(path) {
        // It counts, whatever became of the number.
        Ok(text) => Ok(Some(text.trim().parse().unwrap_or(0))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(folder: &Path, index: u64) -> io::Result<()> {
    let mut file = files::create(&folder.join(NAME))?;
    writeln!(file, "{index}")?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// All that a snapshot shows, container by container and key by key.
fn digest(
    snapshot: &Snapshot,
    defaults: &[(String, DefaultTtl)],
    is_wanted: impl Fn() -> bool,
) -> Result<u64, String> {
    let mut digest = Digest(XxHash3_64::new());
    let text = |error: ebbtide::Error| error.to_string();
    // A container that is dropped meanwhile is still read to its end.
    let views = defaults.iter().map(|(name, _)| snapshot.container(name));
    let views: Result<Vec<_>, _> = views.collect();
    let mut items = 0_u64;
    for (view, (name, default)) in views.map_err(text)?.iter().zip(defaults) {
        digest.bytes(name.as_bytes());
        digest.default(*default);
        for item in view.range(..) {
            digest.item(&item.map_err(text)?);
            items += 1;
            if items.is_multiple_of(LOOK) && !is_wanted() {
                return Err("the node closes, or later checks have begun".to_owned());
            }
        }
        // As no item begins.
        digest.number(u64::MAX);
    }
    Ok(digest.0.finish())
}

struct Digest(XxHash3_64);

impl Digest {
    fn number(&mut self, number: u64) {
        self.0.write(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.write(bytes);
    }

    fn moment(&mut self, moment: SystemTime) {
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.number(since.as_millis() as u64);
    }

    fn default(&mut self, default: DefaultTtl) {
        let (kind, millis) = match default {
            DefaultTtl::Off => (0, 0),
            DefaultTtl::NoDefault => (1, 0),
            DefaultTtl::After(lifetime) => (2, lifetime.as_millis() as u64),
            _ => (3, 0),
        };
        self.number(kind);
        self.number(millis);
    }

    fn item(&mut self, item: &Item) {
        self.bytes(item.key());
        self.bytes(item.value());
        self.number(item.version().as_u64());
        self.moment(item.written_at());
        match item.ttl() {
            Ttl::Inherit => self.number(0),
            Ttl::Never => self.number(1),
            Ttl::After(lifetime) => {
                self.number(2);
                self.number(lifetime.as_millis() as u64);
            }
            _ => self.number(3),
        }
        match item.expires_at() {
            Some(end) => self.moment(end),
            None => self.number(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests;
