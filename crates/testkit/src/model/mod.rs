//! The model: the engine's promises about expiry, by their definition.
//!
//! It keeps every version of every key with its place in the order of writes. The newest version that a reader may see
//! hides all older ones for good; it is *gone* if at any moment since it was written it was expired under the settings
//! then in force. There are no floors here: whenever a container's default changes, each version that is expired at
//! that moment under the old default is marked as gone. Between changes the settings are constant and relied-on time
//! only grows, so the marks and the plain rule of the present are enough for every moment in between.
//!
//! History is one order of everything: commits, changes of a default, containers created and dropped. It is kept as a
//! list, and a prefix of it, such as a power cut leaves, is replayed from the beginning.
//!
//! Nothing here calls the engine.

use std::collections::BTreeMap;

mod ends;
mod time;
mod write;

pub use ends::{Cause, Ended};
pub use time::Time;
pub use write::{BatchStep, Given, Need, Refused, Write};

pub const MAX_TTL: u64 = 2_147_483_647_000;

/// A container's setting. Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    Off,
    NoDefault,
    After(u64),
}

/// A command that a container is told: moments in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expire {
    Before(u64),
    WrittenBefore(u64),
    All,
}

/// The lifetime of an item. Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Inherit,
    Never,
    Own(u64),
}

/// When an item expires under one setting, by the table.
fn end(written_at: u64, life: Life, standard: Standard) -> Option<u64> {
    match (life, standard) {
        (_, Standard::Off) | (Life::Never, _) | (Life::Inherit, Standard::NoDefault) => None,
        (Life::Inherit, Standard::After(n)) => Some(written_at + n),
        (Life::Own(m), Standard::NoDefault | Standard::After(_)) => Some(written_at + m),
    }
}

fn expired(written_at: u64, life: Life, standard: Standard, now: u64) -> bool {
    end(written_at, life, standard).is_some_and(|end| end <= now)
}

#[derive(Clone, Debug)]
struct Version {
    /// Its place in the order of writes.
    order: u64,
    written_at: u64,
    /// Value and lifetime; none for a delete.
    put: Option<(Vec<u8>, Life)>,
    /// When it ended and why, if that was before the settings changed last, or by it.
    gone: Option<(u64, Cause)>,
}

#[derive(Clone, Debug)]
struct RangeDelete {
    order: u64,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

/// The event at one place in the order; the last one if several have it.
#[derive(Clone, Debug)]
struct Event {
    order: u64,
    /// The settled time on which it relied; 0: none.
    settled: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Commit { writes: Vec<Write>, written_at: u64 },
    Create { name: String, standard: Standard },
    Drop { name: String },
    SetStandard { container: String, to: Standard },
    Expire { container: String, what: Expire },
}

impl RangeDelete {
    fn covers(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }
}

#[derive(Clone, Debug)]
struct Contents {
    born: u64,
    standard: Standard,
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    range_deletes: Vec<RangeDelete>,
}

impl Contents {
    /// The newest write of a key up to `at`, if no range delete covers it.
    fn newest(&self, key: &[u8], at: u64) -> Option<&Version> {
        let versions = self.versions.get(key)?;
        let newest = (versions.iter().rev()).find(|version| version.order <= at)?;
        let ranges = self.range_deletes.iter().rev();
        let mut newer = ranges.take_while(|range| range.order > newest.order);
        let is_covered = newer.any(|range| range.order <= at && range.covers(key));
        (!is_covered).then_some(newest)
    }
}

/// An item as a reader sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub written_at: u64,
    pub life: Life,
    pub expires_at: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub time: Time,
    containers: BTreeMap<String, Contents>,
    /// The place of the latest write.
    pub order: u64,
    events: Vec<Event>,
}

impl Model {
    pub fn new(time: Time) -> Model {
        Model {
            time,
            containers: BTreeMap::new(),
            order: 0,
            events: vec![],
        }
    }

    pub fn containers(&self) -> Vec<String> {
        self.containers.keys().cloned().collect()
    }

    pub fn has(&self, container: &str) -> bool {
        self.containers.contains_key(container)
    }

    pub fn create_container(&mut self, name: &str, standard: Standard) {
        let name = name.to_owned();
        self.happens(0, What::Create { name, standard });
    }

    pub fn drop_container(&mut self, name: &str) -> bool {
        let is_there = self.has(name);
        if is_there {
            let name = name.to_owned();
            self.happens(0, What::Drop { name });
        }
        is_there
    }

    pub fn standard(&self, container: &str) -> Standard {
        self.containers[container].standard
    }

    /// Commits writes with one stamp, which is returned.
    pub fn commit(&mut self, writes: &[Write]) -> u64 {
        let parts: Vec<BatchStep> = writes.iter().cloned().map(BatchStep::Write).collect();
        self.try_commit(&parts).expect("it asks for nothing")
    }

    /// Commits with conditions, each of which sees what came before it.
    pub fn try_commit(&mut self, parts: &[BatchStep]) -> Result<u64, Refused> {
        let asks = |part: &BatchStep| !matches!(part, BatchStep::Write(_));
        let sets = |part: &BatchStep| matches!(part, BatchStep::Write(write) if write.is_setting());
        let before = (parts.iter().any(asks) || parts.iter().any(sets)).then(|| self.clone());
        let mut writes = vec![];
        let mut refused = None;
        for part in parts {
            let write = match part {
                BatchStep::Require(container, key, need) => {
                    let live = self.live(container, key);
                    let holds = match need {
                        Need::Absent => live.is_none(),
                        Need::Present => live.is_some(),
                        Need::Order(order) => live == Some(*order),
                    };
                    if holds {
                        continue;
                    }
                    refused = Some(Refused::Conflict(container.clone(), key.clone()));
                    break;
                }
                BatchStep::Touch(container, key) => match self.find(container, key, u64::MAX) {
                    Some(seen) => Write::Put {
                        container: container.clone(),
                        key: key.clone(),
                        value: seen.value,
                        ttl: Given::Life(seen.life),
                    },
                    None => {
                        refused = Some(Refused::Conflict(container.clone(), key.clone()));
                        break;
                    }
                },
                BatchStep::Write(write) => write.clone(),
            };
            writes.push(self.part(write));
        }
        if refused.is_none() && parts.iter().any(sets) && self.time.unsettled() {
            refused = Some(Refused::Unsettled);
        }
        if let (Some(refused), Some(before)) = (refused, before) {
            *self = before;
            return Err(refused);
        }
        Ok(self.parts_done(writes))
    }

    /// One write of a commit that is under way, which sees those before it, as the commit has it.
    pub fn part(&mut self, write: Write) -> Write {
        let write = self.looked_up(write);
        let (written_at, settled) = (self.time.now(), self.time.settled);
        self.order += 1;
        self.write(&write, written_at, settled);
        write
    }

    /// The commit of these parts is done; its stamp is returned.
    pub fn parts_done(&mut self, writes: Vec<Write>) -> u64 {
        let (written_at, settled) = (self.time.now(), self.time.settled);
        if !writes.is_empty() {
            self.events.push(Event {
                order: self.order,
                settled,
                what: What::Commit { writes, written_at },
            });
        }
        written_at
    }

    /// Resolves a write that keeps a lifetime.
    fn looked_up(&mut self, mut write: Write) -> Write {
        if let Write::Put {
            container,
            key,
            ttl: ttl @ Given::Keep,
            ..
        } = &mut write
        {
            let live = self.find(container, key, u64::MAX);
            *ttl = live.map_or(Given::Life(Life::Inherit), |seen| {
                Given::Kept(seen.written_at, seen.life)
            });
        }
        write
    }

    /// The place in the order of the live item's last write.
    pub fn live(&mut self, container: &str, key: &[u8]) -> Option<u64> {
        self.find(container, key, u64::MAX)?;
        let versions = &self.containers[container].versions[key];
        versions.last().map(|version| version.order)
    }

    /// Changes a default; refused while a lead is unsettled.
    pub fn set_standard(&mut self, container: &str, to: Standard) -> bool {
        if self.time.unsettled() {
            return false;
        }
        let container = container.to_owned();
        self.happens(self.time.settled, What::SetStandard { container, to });
        true
    }

    /// Tells a container to expire items; refused while a lead is unsettled.
    pub fn expire(&mut self, container: &str, what: Expire) -> bool {
        if self.time.unsettled() {
            return false;
        }
        let container = container.to_owned();
        self.happens(self.time.settled, What::Expire { container, what });
        true
    }

    fn happens(&mut self, settled: u64, what: What) {
        self.apply(settled, &what);
        self.events.push(Event {
            order: self.order,
            settled,
            what,
        });
    }

    fn contents(&mut self, container: &str) -> &mut Contents {
        self.containers
            .get_mut(container)
            .expect("the container is there")
    }

    fn apply(&mut self, settled: u64, what: &What) {
        match what {
            What::Commit { writes, written_at } => {
                for write in writes {
                    self.order += 1;
                    self.write(write, *written_at, settled);
                }
            }
            What::Create { name, standard } => {
                self.order += 1;
                let contents = Contents {
                    born: self.order,
                    standard: *standard,
                    versions: BTreeMap::new(),
                    range_deletes: vec![],
                };
                self.containers.entry(name.clone()).or_insert(contents);
            }
            What::Drop { name } => {
                self.order += 1;
                self.containers.remove(name);
            }
            What::SetStandard { container, to } => {
                self.order += 1;
                self.change(container, *to, settled);
            }
            What::Expire { container, what } => {
                self.order += 1;
                self.command(container, *what, settled);
            }
        }
    }

    /// Everything is there that was written before.
    fn command(&mut self, container: &str, what: Expire, settled: u64) {
        let contents = self.contents(container);
        let standard = contents.standard;
        for version in contents.versions.values_mut().flatten() {
            let Some(end) = version.end(standard) else {
                continue;
            };
            let reaches = match what {
                Expire::Before(moment) => end.is_some_and(|(end, _)| end < moment),
                Expire::WrittenBefore(moment) => version.written_at < moment,
                Expire::All => true,
            };
            if reaches {
                let natural = end.filter(|(end, _)| *end <= settled);
                version.gone = Some(natural.unwrap_or((settled, Cause::Command)));
            }
        }
    }

    fn change(&mut self, container: &str, to: Standard, settled: u64) {
        let contents = self.contents(container);
        let before = std::mem::replace(&mut contents.standard, to);
        for version in contents.versions.values_mut().flatten() {
            let over = |standard| {
                let end = version.end(standard).flatten();
                end.filter(|(end, _)| *end <= settled)
            };
            // An item that ends in the very moment of the change has its end there either way.
            let by_change = || {
                let (end, cause) = over(to)?;
                Some(match end < settled {
                    true => (settled, Cause::Change),
                    false => (end, cause),
                })
            };
            version.gone = version.gone.or(over(before)).or_else(by_change);
        }
    }

    fn write(&mut self, write: &Write, stamp: u64, settled: u64) {
        let order = self.order;
        let mut written_at = stamp;
        let (container, key, put) = match write {
            Write::Put {
                container,
                key,
                value,
                ttl,
            } => {
                let life;
                (written_at, life) = ttl.at(stamp);
                (container, key, Some((value.clone(), life)))
            }
            Write::SetStandard { container, to } => {
                return self.change(container, *to, settled);
            }
            Write::Expire { container, what } => return self.command(container, *what, settled),
            Write::Delete { container, key } => (container, key, None),
            Write::DeleteRange {
                container,
                from,
                to,
            } => {
                let range = RangeDelete {
                    order,
                    from: from.clone(),
                    to: to.clone(),
                };
                self.contents(container).range_deletes.push(range);
                return;
            }
        };
        let version = Version {
            order,
            written_at,
            put,
            gone: None,
        };
        let versions = &mut self.contents(container).versions;
        versions.entry(key.clone()).or_default().push(version);
    }

    /// The item under a key, as of the write `at`.
    pub fn find(&mut self, container: &str, key: &[u8], at: u64) -> Option<Seen> {
        let now = self.time.now();
        let contents = &self.containers[container];
        let newest = contents.newest(key, at)?;
        let (value, life) = newest.put.as_ref()?;
        if newest.gone.is_some() || expired(newest.written_at, *life, contents.standard, now) {
            return None;
        }
        Some(Seen {
            key: key.to_vec(),
            value: value.clone(),
            written_at: newest.written_at,
            life: *life,
            expires_at: end(newest.written_at, *life, contents.standard),
        })
    }

    /// All items from `from` to `to`, exclusive, in order, as of the write `at`.
    pub fn scan(&mut self, container: &str, from: &[u8], to: Option<&[u8]>, at: u64) -> Vec<Seen> {
        if to.is_some_and(|to| to <= from) {
            return vec![];
        }
        let keys: Vec<Vec<u8>> = self.containers[container]
            .versions
            .range(from.to_vec()..)
            .map(|(key, _)| key.clone())
            .take_while(|key| to.is_none_or(|to| key.as_slice() < to))
            .collect();
        keys.iter()
            .filter_map(|key| self.find(container, key, at))
            .collect()
    }

    /// Every key that was ever written.
    pub fn keys(&self, container: &str) -> Vec<Vec<u8>> {
        self.containers[container]
            .versions
            .keys()
            .cloned()
            .collect()
    }

    /// Whether the container was there at the write `at`.
    pub fn had(&self, container: &str, at: u64) -> bool {
        self.containers
            .get(container)
            .is_some_and(|contents| contents.born <= at)
    }

    /// The place in the order at which the container was made.
    pub fn born(&self, container: &str) -> Option<u64> {
        Some(self.containers.get(container)?.born)
    }

    /// The writes of commits after `order`. None: settings were changed since.
    pub fn written_since(&self, order: u64) -> Option<Vec<&Write>> {
        let since = self.events.iter().filter(|event| event.order > order);
        let mut writes = vec![];
        for event in since {
            let What::Commit { writes: of, .. } = &event.what else {
                return None;
            };
            writes.extend(of);
        }
        let has_settings = writes.iter().any(|write| write.is_setting());
        (!has_settings).then_some(writes)
    }

    /// The number of changes of a default and commands so far.
    pub fn changes(&self) -> usize {
        let of = |event: &Event| match &event.what {
            What::SetStandard { .. } | What::Expire { .. } => 1,
            What::Commit { writes, .. } => writes.iter().filter(|write| write.is_setting()).count(),
            What::Create { .. } | What::Drop { .. } => 0,
        };
        self.events.iter().map(of).sum()
    }

    /// The places of events above `low`, and `low` itself, newest first: where a power cut may have cut.
    pub fn cuts(&self, low: u64) -> Vec<u64> {
        let orders = self.events.iter().map(|event| event.order);
        let mut cuts: Vec<u64> = orders.filter(|&order| order > low).collect();
        cuts.insert(0, low);
        cuts.reverse();
        cuts
    }

    /// Forgets everything after `order`.
    pub fn truncate(&mut self, order: u64) {
        self.events.retain(|event| event.order <= order);
        (self.containers, self.order) = (BTreeMap::new(), 0);
        for event in std::mem::take(&mut self.events) {
            self.apply(event.settled, &event.what);
            self.events.push(event);
        }
    }

    /// The lowest possible recovered mark, if everything up to `order` survives.
    pub fn mark_least(&self, order: u64) -> u64 {
        let events = self.events.iter().filter(|event| event.order <= order);
        events.map(|event| event.settled).max().unwrap_or(0)
    }
}
