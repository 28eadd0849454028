//! Updates of one key: read it, decide, write; unless it is no longer as it was read. Conditional writes of one key are
//! updates.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::record::Header;
use crate::base::{Patience, Result, Seq, Wait};
use crate::data::batch::{Op, WriteTtl};
use crate::data::item::Item;
use crate::engine::Engine;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::commit::Begun;
use crate::engine::write::observed::{Observed, WriteMoment};
use crate::engine::write::prepared::Prepared;
use crate::expiry::{ExpiryView, ExpiryViews};

/// The action of an update on the item it read.
pub enum UpdateAction<'v> {
    /// Nothing.
    Keep,
    /// It is written.
    Put(NewValue<'v>, WriteTtl),
    /// It is deleted; where no live item is, this is the same as nothing.
    Delete,
}

/// A value that is to be written.
pub enum NewValue<'v> {
    /// The caller's.
    Lent(&'v [u8]),
    /// The update's own, or shared with the item that was read.
    Held(Bytes),
}

impl NewValue<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            NewValue::Lent(bytes) => bytes,
            NewValue::Held(bytes) => bytes,
        }
    }

    /// For one that keeps it.
    pub(in crate::engine) fn into_bytes(self) -> Bytes {
        match self {
            NewValue::Lent(bytes) => Bytes::copy_from_slice(bytes),
            NewValue::Held(bytes) => bytes,
        }
    }
}

/// Chooses what to do with a key.
pub enum Decide<'a, 'v> {
    /// By its live item.
    Item(&'a mut dyn FnMut(Option<Item>) -> UpdateAction<'v>),
    /// By the version of its live item, whose value is not read.
    Version(&'a mut dyn FnMut(Option<Seq>) -> UpdateAction<'v>),
}

impl UpdateAction<'_> {
    /// The write that it is to a key with this live version, if it is one. A life that passes after `view` is written, and
    /// is over.
    pub(in crate::engine) fn op<'a>(
        &'a self,
        state: &ContainerState,
        key: &'a [u8],
        live: Option<&Header>,
        view: &ExpiryView,
    ) -> Option<Op<'a>> {
        let container = state.id();
        let (value, ttl) = match self {
            UpdateAction::Delete => return live.map(|_| Op::Delete { container, key }),
            UpdateAction::Keep => return None,
            UpdateAction::Put(value, WriteTtl::Like(countdown)) => {
                match view.settings.ttl_like(*countdown, view.now) {
                    Some(ttl) => (value, WriteTtl::since(*countdown, ttl)),
                    None => return Some(Op::Delete { container, key }),
                }
            }
            UpdateAction::Put(value, ttl) => (value, ttl.over(live)),
        };
        Some(Op::Put {
            container,
            ttl,
            key,
            value: value.bytes(),
        })
    }
}

impl Engine {
    /// Reads a key, lets `decide` choose what to do with it, and does that, unless meanwhile the key was written, or
    /// died or came back by the clock: then it starts over. Also when there is nothing to do, it checks that the key is
    /// unchanged. None: the item was not changed.
    #[inline(always)]
    pub fn update<P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: Decide<'_, '_>,
    ) -> Result<Option<Begun>, P::Failure> {
        match P::WAITS {
            true => Ok(self.update_waiting(state, key, decide)?),
            false => self.update_by::<P>(state, key, decide),
        }
    }

    /// Compiled here; a generic function is compiled with its caller's crate, where those of this one are not inlined.
    fn update_waiting(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: Decide<'_, '_>,
    ) -> Result<Option<Begun>> {
        self.update_by::<Wait>(state, key, decide)
    }

    #[inline(always)]
    fn update_by<P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        mut decide: Decide<'_, '_>,
    ) -> Result<Option<Begun>, P::Failure> {
        loop {
            // The size of the write is not known yet; most are small.
            self.admit::<P>(state, 1)?;
            let reads_value = matches!(decide, Decide::Item(_));
            let (mut observed, live, item) = self.look::<P>(state, key, reads_value)?;
            if observed.ends_unseen(self.commit_log.published()) {
                P::would_wait()?;
                self.make_visible(observed.checked())?;
                continue;
            }
            let action = match &mut decide {
                Decide::Item(decide) => decide(item),
                Decide::Version(decide) => decide(live.map(|live| live.seq)),
            };
            let view = &observed.containers[0].views.now;
            let done = match action.op(state, key, live.as_ref(), view) {
                None => self.is_still::<P>(&observed)?.then_some(None),
                Some(op) => {
                    let charge = self.charge_one::<P>(state, &op)?;
                    let over =
                        |prepared: &Prepared<'_>| self.commit_over::<P>(prepared, &mut observed);
                    self.prepare_one(state, &op, charge, over)?.ok().map(Some)
                }
            };
            match done {
                Some(done) => return Ok(done),
                None => P::would_wait()?,
            }
        }
    }

    /// Reads the live version of a key, and its item if the value is to be read, for an update to decide on.
    fn look<'k, P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        key: &'k [u8],
        reads_value: bool,
    ) -> Result<(Observed<'k>, Option<Header>, Option<Item>), P::Failure> {
        // The sequence number comes before the read state: then the read state holds every write up to it.
        let mut observed = Observed::new(self.commit_log.latest());
        let read_state = state.pin();
        let (settings_seq, views) = self.views_and_seq::<P>(state)?;
        let (checked, view) = (observed.checked(), &views.now);
        let (version, item) = match reads_value {
            true => self.newest_checked::<P>(&read_state, key, checked, view)?,
            false => (self.newest_version::<P>(&read_state, key, checked)?, None),
        };
        let live = version.filter(|version| !view.dead(version));
        let place = observed.add(state, settings_seq, views);
        observed.note(place, Cow::Borrowed(key), version.as_ref());
        Ok((observed, live, item))
    }

    /// Views, and the write that changed their settings last.
    pub(in crate::engine) fn views_and_seq<P: Patience>(
        &self,
        state: &ContainerState,
    ) -> Result<(Seq, ExpiryViews), P::Failure> {
        loop {
            let seq = state.settings_seq();
            let views = self.exact_views::<P>(state)?;
            if seq == state.settings_seq() {
                return Ok((seq, views));
            }
            P::would_wait()?;
        }
    }

    /// Whether all reads of one container still hold, once they are visible: then an update may end without a write.
    pub(in crate::engine) fn is_still<P: Patience>(
        &self,
        observed: &Observed<'_>,
    ) -> Result<bool, P::Failure> {
        P::require(|| self.commit_log.published() >= observed.checked())?;
        self.make_visible(observed.checked())?;
        for of in &observed.containers {
            let views = self.exact_views::<P>(&of.state)?;
            let moment = WriteMoment {
                first: observed.checked().next(),
                now: views.now.now,
                settled: views.settled.now,
            };
            let mut versions = of.versions();
            if let Some(seq) = versions.find(|seq| self.commit_log.is_relied_on(*seq)) {
                P::would_wait()?;
                self.wait_if_relied_on(seq);
                return Ok(false);
            }
            if observed.fault_at(&moment)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
