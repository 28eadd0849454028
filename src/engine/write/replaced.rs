//! The item that a put replaces, told without a read before it.
//!
//! ```text
//! under the commit lock   stamp, log, insert: the memtable names the version below, or has none: then keep the read state
//! afterwards              without a name: the newest version below the put, in sealed memtables and runs of that read state
//! ```
//!
//! The insert goes to the place of the older version in any case, so of a key that was written lately the answer costs
//! nothing; of another it costs the look that reading first would, and is not checked again.
//!
//! Invariants:
//!
//! 1. The version that is told was live at the stamp. From before the stamp until the put is seen, no reader answers that any
//!    version is dead ([`SEVERAL`]): so none saw it end before the put.
//! 2. The read state is taken under the lock after the insert: all versions below the put are in it, and stay in it.
//! 3. A caller that must not wait asks the memtables before the stamp whether they will tell.
//! 4. Only where each write is seen before it releases the lock: then all versions below the put have been seen.
//!
//! [`SEVERAL`]: crate::engine::parts::commit_dependency::SEVERAL

use std::sync::Arc;

use crate::base::record::Header;
use crate::base::{Now, Patience, Result, Seq, Timestamp};
use crate::data::batch::Op;
use crate::engine::Engine;
use crate::engine::parts::read_state::ReadState;
use crate::engine::read::point::newest_in_memory;
use crate::engine::write::prepared::Prepared;
use crate::expiry::ExpiryView;

/// The item that a put has replaced, as far as it is known under the commit lock.
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
    /// Under the commit lock, of a single put of this number that is in its memtable, over this version there.
    #[inline(always)]
    pub fn by(
        put: &Prepared<'_>,
        view: ExpiryView,
        (seq, over): (Seq, Option<Header>),
    ) -> Replaced {
        let state = &put.states()[0];
        let read_state = state.read_state();
        let below = match over {
            Some(over) if read_state.covers(put_key(put), over.seq, seq) => Below::Is(None),
            Some(over) => Below::Is(Some(over)),
            None if read_state.sealed.is_empty() && read_state.version.runs.is_empty() => {
                Below::Is(None)
            }
            None => Below::In(state.pin(), seq.before()),
        };
        Replaced { view, below }
    }

    /// The version, if it was live.
    #[inline(always)]
    pub fn live<P: Patience>(self, engine: &Engine, key: &[u8]) -> Result<Option<Seq>, P::Failure> {
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
    /// The view by which the item that a put of this moment replaces is judged. None: not by the stamp alone, for time has gone
    /// back, or the settings are being changed.
    #[inline(always)]
    pub(in crate::engine) fn view_at_stamp(
        &self,
        put: &Prepared<'_>,
        now: Timestamp,
    ) -> Option<ExpiryView> {
        let view = put.states()[0].view_for::<Now>(now);
        view.ok().filter(|_| self.clock.leads() == 0)
    }
}
