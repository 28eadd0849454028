//! Puts that tell the version which they replace.
//!
//! ```text
//! under the commit lock   stamp, log, insert: the memtable names the version below, or has none: then keep the read state
//! afterwards              without a name: the newest version below the put, in sealed memtables and runs of that read state
//! ```
//!
//! The insert goes to the place of the older version in any case, so of a key that was written lately the answer costs
//! nothing; of another it costs the look that reading first would, and is not checked again. Where that does not do, the item
//! is read first, and put if it is as it was (update.rs): under [`Durability::Sync`], whose earlier writes may not be seen yet;
//! for a ttl that depends on what is there; where the stamp alone is no judge, for time has gone back or settings are being
//! changed.
//!
//! Invariants:
//!
//! 1. What is told was live at the stamp. From before the stamp until the put is seen, no reader answers that any version is
//!    dead ([`SEVERAL`]): so none saw it end before the put.
//! 2. The read state is taken under the lock after the insert: all versions below the put are in it, and stay in it.
//! 3. A caller that must not wait asks the memtables before the stamp whether they will tell.
//!
//! [`SEVERAL`]: crate::engine::parts::commit_dependency::SEVERAL

use std::sync::Arc;

use crate::base::record::Header;
use crate::base::{Patience, Result, Seq, Wait};
use crate::data::batch::{Op, WriteTtl};
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::point::newest_in_memory;
use crate::engine::write::commit::{Begun, Logged};
use crate::engine::write::prepared::Prepared;
use crate::engine::write::update::{Decide, NewValue, UpdateAction};
use crate::engine::write::writes::weight;
use crate::expiry::ExpiryView;

/// What a put has replaced, as far as it is known under the commit lock.
pub(in crate::engine) struct Replaced {
    /// As of the stamp.
    view: ExpiryView,
    below: Below,
}

/// The version below a put.
enum Below {
    Is(Option<Header>),
    /// The newest one up to this number.
    In(Arc<ReadState>, Seq),
}

impl Replaced {
    /// Under the commit lock, of a single put that is in its memtable.
    #[inline(always)]
    pub fn by(put: &Prepared<'_>, view: ExpiryView, logged: &Logged) -> Replaced {
        let state = &put.states()[0];
        let read_state = state.read_state();
        let below = match logged.over {
            Some(over) if read_state.covers(put_key(put), over.seq, logged.first) => {
                Below::Is(None)
            }
            Some(over) => Below::Is(Some(over)),
            None if read_state.sealed.is_empty() && read_state.version.runs.is_empty() => {
                Below::Is(None)
            }
            None => Below::In(state.pin(), logged.first.before()),
        };
        Replaced { view, below }
    }

    /// The version, if it was live.
    #[inline(always)]
    fn live<P: Patience>(self, engine: &Engine, key: &[u8]) -> Result<Option<Seq>, P::Failure> {
        let version = match self.below {
            Below::Is(version) => version,
            Below::In(read_state, max) => engine.newest_version::<P>(&read_state, key, max)?,
        };
        let live = version.filter(|version| !self.view.dead(version));
        Ok(live.map(|live| live.seq))
    }
}

fn put_key<'a>(put: &Prepared<'a>) -> &'a [u8] {
    match put.single() {
        Some((Op::Put { key, .. }, ..)) => key,
        _ => unreachable!("it is one put"),
    }
}

/// Under the commit lock: whether the memtables know the version below a single put.
pub(in crate::engine) fn tells_in_memory(put: &Prepared<'_>) -> bool {
    let read_state = put.states()[0].read_state();
    read_state.version.runs.is_empty() || newest_in_memory(&read_state, put_key(put)).is_some()
}

impl Engine {
    /// Stores a value whatever is there, and tells the version of the live item that it has replaced. If that cannot be read,
    /// the value is stored all the same.
    #[inline(always)]
    pub fn upsert<P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        value: &[u8],
        ttl: WriteTtl,
    ) -> Result<(Begun, Option<Seq>), P::Failure> {
        match P::WAITS {
            true => Ok(self.upsert_waiting(state, key, value, ttl)?),
            false => self.upsert_by::<P>(state, key, value, ttl),
        }
    }

    /// Compiled here; a generic function is compiled with its caller's crate, where those of this one are not inlined.
    fn upsert_waiting(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        value: &[u8],
        ttl: WriteTtl,
    ) -> Result<(Begun, Option<Seq>)> {
        self.upsert_by::<Wait>(state, key, value, ttl)
    }

    #[inline(always)]
    fn upsert_by<P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        value: &[u8],
        ttl: WriteTtl,
    ) -> Result<(Begun, Option<Seq>), P::Failure> {
        let depends = matches!(ttl, WriteTtl::Keep | WriteTtl::Like(_));
        if !depends && self.options.durability == Durability::Buffered {
            let container = state.id();
            let put = Op::Put {
                container,
                ttl,
                key,
                value,
            };
            self.admit::<P>(state, weight(&put))?;
            let charge = self.charge_one::<P>(state, &put)?;
            let told = self.prepare_one(state, &put, charge, |prepared| {
                self.commit_telling::<P>(prepared)
            })?;
            if let Some((begun, replaced)) = told {
                return Ok((begun, replaced.live::<P>(self, key)?));
            }
        }
        let mut before = None;
        let mut put = |found| {
            before = found;
            UpdateAction::Put(NewValue::Lent(value), ttl)
        };
        let begun = self.update::<P>(state, key, Decide::Version(&mut put))?;
        Ok((begun.expect("a put is decided"), before))
    }
}
