//! The item that a put replaces, told without a read before it.
//!
//! ```text
//! under the commit lock   take the read state; stamp, log, insert: the insert finds the version below in the active memtable
//! afterwards              where it found none: the newest version below the put, in the sealed memtables and runs of that state
//! ```
//!
//! The insert goes to the place of the older version in any case, so of a key that was written lately the answer costs
//! nothing; of another it costs the look that reading first would, and is not checked again.
//!
//! Invariants:
//!
//! 1. The version that is told was live at the stamp. From before the stamp until the put is seen, no reader answers that any
//!    version is dead ([`SEVERAL`]): so none saw it end before the put.
//! 2. The read state is taken under the lock and before the stamp: it has all versions below the put but those that a job found dead
//!    before; and its active memtable is that of the put.
//! 3. A caller that must not wait asks the memtables of that same state before the stamp. In a later one a flush may have moved
//!    the version to a file, when the put can be taken back no more.
//! 4. Only where each write is seen before it releases the lock: then all versions below the put have been seen.
//!
//! [`SEVERAL`]: crate::engine::parts::commit_dependency::SEVERAL

use std::sync::Arc;

use crate::base::record::Header;
use crate::base::sync::Guard;
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
        (read_state, view): (Guard<Arc<ReadState>>, ExpiryView),
        (seq, over): (Seq, Option<Header>),
    ) -> Replaced {
        let below = match over {
            Some(over) if read_state.covers(put_key(put), over.seq, seq) => Below::Is(None),
            Some(over) => Below::Is(Some(over)),
            None if read_state.sealed.is_empty() && read_state.version.runs.is_empty() => {
                Below::Is(None)
            }
            None => Below::In(Arc::clone(&read_state), seq.before()),
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

/// Under the commit lock, before the stamp: the state in which the version below a single put is. A caller that must not wait gets
/// it only if its memtables tell that version.
#[inline(always)]
pub(in crate::engine) fn state_below<P: Patience>(
    put: &Prepared<'_>,
) -> Result<Guard<Arc<ReadState>>, P::Failure> {
    let below = put.states()[0].read_state();
    P::require(|| {
        below.version.runs.is_empty() || newest_in_memory(&below, put_key(put)).is_some()
    })?;
    Ok(below)
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
