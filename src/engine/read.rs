//! Reads. Every one takes, in this order: picture, published number, clock, settings (see this folder's head).

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::KeyRange;
use crate::engine::open::Engine;
use crate::engine::state::{ContainerState, Picture, SnapshotPin};
use crate::error::Result;
use crate::expiry::Judge;
use crate::hash::hash_key;
use crate::mem::MemCursor;
use crate::merge::{Cursor, Position, Seek};
use crate::record::Header;
use crate::table::{self, RunCursor};
use crate::types::{Seq, Timestamp};
use crate::view::{Horizon, Visible, Walk};

/// Through what a container is read.
pub struct Reader<'a> {
    /// Which.
    pub state: &'a Arc<ContainerState>,
    /// As it was written then; `None` for now.
    pub snapshot: Option<&'a Arc<SnapshotPin>>,
}

/// An item that was found live.
pub struct Found {
    /// Its key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The rest.
    pub header: Header,
    /// Under the settings of now; [`Timestamp::MAX`] for never.
    pub expires_at: Timestamp,
}

/// Where the newest version of a key lies.
enum Hit<'a> {
    Memory(crate::mem::Entry<'a>),
    Disk(table::Found),
}

impl Hit<'_> {
    fn header(&self) -> Header {
        match self {
            Hit::Memory(entry) => entry.header,
            Hit::Disk(found) => found.header,
        }
    }

    fn value(&self) -> Result<Bytes> {
        match self {
            Hit::Memory(entry) => Ok(entry.value_bytes()),
            Hit::Disk(found) => found.value(),
        }
    }
}

/// The newest version of a key up to `max`, dead or not, unless a range delete covers it.
fn newest<'a>(picture: &'a Picture, key: &[u8], max: Seq) -> Result<Option<Hit<'a>>> {
    let hash = hash_key(key);
    let found = in_memory(picture, hash, key, max)
        .map_or_else(|| on_disk(picture, hash, key, max), |hit| Ok(Some(hit)))?;
    Ok(found.filter(|hit| hit.header().seq >= picture.covered_below(key, max)))
}

/// Memtables follow each other in time: the first that has a version has the newest.
fn in_memory<'a>(picture: &'a Picture, hash: u64, key: &[u8], max: Seq) -> Option<Hit<'a>> {
    picture
        .buffers()
        .find_map(|buffer| buffer.memtable.get(hash, key, max))
        .map(Hit::Memory)
}

/// Runs are asked in the order of their highest numbers, until what was found is newer than all that remain.
fn on_disk<'a>(picture: &'a Picture, hash: u64, key: &[u8], max: Seq) -> Result<Option<Hit<'a>>> {
    let mut best: Option<table::Found> = None;
    for run in &picture.version.runs {
        if best
            .as_ref()
            .is_some_and(|found| found.header.seq > run.census.seq_max)
        {
            break;
        }
        if run.census.seq_min > max {
            continue;
        }
        if let Some(found) = run.get(hash, key, max)?
            && best
                .as_ref()
                .is_none_or(|best| found.header.seq > best.header.seq)
        {
            best = Some(found);
        }
    }
    Ok(best.map(Hit::Disk))
}

impl Engine {
    /// The clock, then the settings: one judgement for one operation.
    #[inline]
    pub(super) fn judge(&self, state: &ContainerState) -> Judge {
        let now = self.clock.now();
        Judge {
            settings: state.settings(),
            now,
        }
    }

    fn read<T>(
        &self,
        reader: &Reader<'_>,
        key: &[u8],
        take: impl FnOnce(&Hit<'_>, &Judge) -> Result<T>,
    ) -> Result<Option<T>> {
        self.check_open(reader.state)?;
        let picture = reader.state.picture();
        let max = reader
            .snapshot
            .map_or_else(|| self.published(), |pin| pin.seq);
        let judge = self.judge(reader.state);
        match newest(&picture, key, max)? {
            Some(hit) if !judge.dead(&hit.header()) => take(&hit, &judge).map(Some),
            _ => Ok(None),
        }
    }

    /// The value of a live item.
    pub fn get(&self, reader: &Reader<'_>, key: &[u8]) -> Result<Option<Bytes>> {
        self.read(reader, key, |hit, _| hit.value())
    }

    /// Whether a live item has the key.
    pub fn contains(&self, reader: &Reader<'_>, key: &[u8]) -> Result<bool> {
        Ok(self.read(reader, key, |_, _| Ok(()))?.is_some())
    }

    /// A live item.
    pub fn item(&self, reader: &Reader<'_>, key: &[u8]) -> Result<Option<Found>> {
        self.read(reader, key, |hit, judge| found(hit, key, judge))
    }

    /// The newest version of a key, visible already or not, when it is live; for a write that depends on it.
    pub(super) fn newest_live(
        &self,
        picture: &Picture,
        key: &[u8],
        max: Seq,
        judge: &Judge,
    ) -> Result<Option<Found>> {
        match newest(picture, key, max)? {
            Some(hit) if !judge.dead(&hit.header()) => found(&hit, key, judge).map(Some),
            _ => Ok(None),
        }
    }

    /// The live items in a range.
    pub fn scan(engine: &Arc<Engine>, reader: &Reader<'_>, range: KeyRange) -> Result<Scan> {
        engine.check_open(reader.state)?;
        let picture = reader.state.pin();
        let max = reader
            .snapshot
            .map_or_else(|| engine.published(), |pin| pin.seq);
        Ok(Scan {
            engine: engine.clone(),
            state: reader.state.clone(),
            _pin: reader.snapshot.cloned(),
            range: Bounds {
                from: range.from,
                to: range.to,
            },
            horizon: Sight { picture, max },
            front: None,
            back: None,
            passed: Bytes::new(),
        })
    }
}

fn found(hit: &Hit<'_>, key: &[u8], judge: &Judge) -> Result<Found> {
    let header = hit.header();
    let expires_at = judge.settings.expires_at(&header);
    Ok(Found {
        key: Bytes::copy_from_slice(key),
        value: hit.value()?,
        header,
        expires_at,
    })
}

/// A memtable or a run, walked.
pub enum Source {
    /// In memory.
    Memory(MemCursor),
    /// On disk.
    Disk(RunCursor),
}

macro_rules! each {
    ($source:expr, $cursor:ident => $do:expr) => {
        match $source {
            Source::Memory($cursor) => $do,
            Source::Disk($cursor) => $do,
        }
    };
}

impl Cursor for Source {
    #[inline]
    fn position(&self) -> Position<'_> {
        each!(self, cursor => cursor.position())
    }

    fn seek(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        each!(self, cursor => cursor.seek(to, judge))
    }

    #[inline]
    fn advance(&mut self, judge: Option<&Judge>) -> Result<()> {
        each!(self, cursor => cursor.advance(judge))
    }

    fn retreat(&mut self, judge: Option<&Judge>) -> Result<()> {
        each!(self, cursor => cursor.retreat(judge))
    }

    fn enter(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        each!(self, cursor => cursor.enter(to, judge))
    }

    fn key_bytes(&self) -> Bytes {
        each!(self, cursor => cursor.key_bytes())
    }

    fn value_bytes(&self) -> Result<Bytes> {
        each!(self, cursor => cursor.value_bytes())
    }

    fn value(&self) -> Result<&[u8]> {
        each!(self, cursor => cursor.value())
    }
}

/// What a scan sees.
struct Sight {
    picture: Arc<Picture>,
    max: Seq,
}

impl Horizon for Sight {
    fn max(&self) -> Seq {
        self.max
    }

    fn covered_below(&self, key: &[u8]) -> Seq {
        self.picture.covered_below(key, self.max)
    }
}

impl Sight {
    /// Cursors over all that may hold something of a range.
    fn sources(&self, range: &Bounds) -> Vec<Source> {
        let buffers = self
            .picture
            .buffers()
            .filter(|buffer| !buffer.memtable.is_empty());
        let runs = self.picture.version.runs.iter().filter(|run| {
            run.census.seq_min <= self.max
                && run.last_key() >= range.from.as_slice()
                && range
                    .to
                    .as_ref()
                    .is_none_or(|to| run.first_key() < to.as_slice())
        });
        buffers
            .map(|buffer| Source::Memory(buffer.memtable.cursor()))
            .chain(runs.map(|run| Source::Disk(RunCursor::new(run.shared.clone()))))
            .collect()
    }
}

/// What is left of the range: keys at or above `from` and below `to`.
struct Bounds {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

/// Live items in the order of keys, from both ends. Each is judged when it is reached.
pub struct Scan {
    engine: Arc<Engine>,
    state: Arc<ContainerState>,
    _pin: Option<Arc<SnapshotPin>>,
    range: Bounds,
    horizon: Sight,
    front: Option<Walk<Source>>,
    back: Option<Walk<Source>>,
    /// The last key that the front gave out; empty before the first.
    passed: Bytes,
}

impl Scan {
    fn judge(&self) -> Result<Judge> {
        self.engine.check_open(&self.state)?;
        Ok(self.engine.judge(&self.state))
    }

    /// The next item from the front.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Found>> {
        let judge = self.judge()?;
        let walk = match &mut self.front {
            Some(walk) => walk,
            none => {
                let sources = self.horizon.sources(&self.range);
                none.insert(Walk::seek(
                    sources,
                    Seek::AtOrAfter(&self.range.from),
                    &judge,
                )?)
            }
        };
        let to = self.range.to.as_deref();
        let visible = walk.next(&self.horizon, &judge, |key| to.is_none_or(|to| key < to))?;
        Ok(visible.map(|visible| {
            self.passed = visible.key.clone();
            seen(visible, &judge)
        }))
    }

    /// The next item from the back.
    pub fn next_back(&mut self) -> Result<Option<Found>> {
        let judge = self.judge()?;
        let walk = match &mut self.back {
            Some(walk) => walk,
            none => {
                let sources = self.horizon.sources(&self.range);
                let to = self.range.to.as_deref().map_or(Seek::Last, Seek::Before);
                none.insert(Walk::seek(sources, to, &judge)?)
            }
        };
        let (from, passed) = (self.range.from.as_slice(), &self.passed);
        let visible = walk.next(&self.horizon, &judge, |key| key >= from && *key > **passed)?;
        Ok(visible.map(|visible| {
            self.range.to = Some(visible.key.to_vec());
            seen(visible, &judge)
        }))
    }
}

fn seen(visible: Visible, judge: &Judge) -> Found {
    let Visible { key, value, header } = visible;
    Found {
        key,
        value,
        header,
        expires_at: judge.settings.expires_at(&header),
    }
}
