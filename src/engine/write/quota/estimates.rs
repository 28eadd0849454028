//! Estimates of live bytes, as they are and as they will be.
//!
//! ```text
//! LiveEstimate of each container ── now, at a later moment, after expire_before(T)
//! LiveGrowth of the writes to come ── less what they replace, unless that is expired by then
//! ```

use std::sync::Arc;

use crate::base::{ContainerId, Seq, Timestamp};
use crate::engine::inspect::due::ends;
use crate::engine::inspect::report::estimate;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{Expire, ExpiryView, SettingsChange};

/// Before any end.
pub(super) const SOONEST: Timestamp = Timestamp(1);

/// An item that writes replace.
pub(super) struct Replaced {
    container: ContainerId,
    end: Timestamp,
    bytes: u64,
}

/// By how much writes would make live bytes grow.
pub(super) struct LiveGrowth {
    weight: u64,
    replaces: Vec<Replaced>,
}

impl Replaced {
    pub(super) fn new(container: ContainerId, end: Timestamp, bytes: u64) -> Replaced {
        Replaced {
            container,
            end,
            bytes,
        }
    }
}

impl LiveGrowth {
    /// By so many bytes, and less by what they replace.
    pub(super) fn new(weight: u64, replaces: Vec<Replaced>) -> LiveGrowth {
        LiveGrowth { weight, replaces }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes_after(|_| Timestamp(0))
    }

    /// The same once all items of each container have ended that end by a moment, so that none of them is replaced.
    pub(super) fn bytes_after(&self, end_of: impl Fn(ContainerId) -> Timestamp) -> u64 {
        let stays = |item: &&Replaced| item.end > end_of(item.container);
        let replaced = self.replaces.iter().filter(stays).map(|item| item.bytes);
        self.weight.saturating_sub(replaced.sum())
    }
}

/// The moments up to which items are to be expired: at most one for a container.
#[derive(Default)]
pub(super) struct Expirations(Vec<(LiveEstimate, Timestamp)>);

impl Expirations {
    /// Each container, and its moment.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&LiveEstimate, Timestamp)> {
        self.0.iter().map(|(one, end)| (one, *end))
    }

    pub(super) fn of(&self, container: ContainerId) -> Timestamp {
        let own = self.0.iter().find(|(one, _)| one.state.id() == container);
        own.map_or(Timestamp(0), |(_, end)| *end)
    }

    pub(super) fn add(&mut self, one: LiveEstimate, end: Timestamp) {
        self.0
            .retain(|(other, _)| other.state.id() != one.state.id());
        self.0.push((one, end));
    }
}

/// A container as it is.
pub(super) struct LiveEstimate {
    state: Arc<ContainerState>,
    read_state: Arc<ReadState>,
    view: ExpiryView,
}

impl LiveEstimate {
    /// By this view, of the state that is there now.
    pub(super) fn new(state: Arc<ContainerState>, view: ExpiryView) -> LiveEstimate {
        LiveEstimate {
            read_state: state.pin(),
            state,
            view,
        }
    }

    pub(super) fn state(&self) -> &Arc<ContainerState> {
        &self.state
    }

    /// The moment it is of.
    pub(super) fn now(&self) -> Timestamp {
        self.view.now
    }

    pub(super) fn live_bytes(&self) -> u64 {
        estimate(&self.read_state, &self.view).live.bytes
    }

    /// The same at a later moment, if nobody writes and the settings stay.
    pub(super) fn live_bytes_at(&self, moment: Timestamp) -> u64 {
        let view = ExpiryView::at(moment, || self.view.settings.clone());
        estimate(&self.read_state, &view).live.bytes
    }

    /// The same if all was expired that ends at or before this moment.
    pub(super) fn live_bytes_after(&self, end: Timestamp) -> u64 {
        let command = SettingsChange::Expire(Expire::Before(end.after(1)));
        let settings = &self.view.settings;
        let settings = settings.after(command, self.view.now, Seq::MAX);
        let view = ExpiryView::at(self.view.now, || settings);
        estimate(&self.read_state, &view).live.bytes
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        let ends = ends(&self.read_state, &self.view.settings).into_iter();
        ends.map(|(end, _)| end)
    }
}

/// The next moment at which live bytes become fewer. Not every record with an end in histograms is live: some are
/// hidden, some have ended on command.
pub(super) fn frees_at(seen: &[LiveEstimate], now: Timestamp) -> Option<Timestamp> {
    let mut ends: Vec<_> = seen.iter().flat_map(LiveEstimate::ends).collect();
    ends.retain(|end| *end > now && *end < Timestamp::MAX);
    ends.sort_unstable();
    let live_at =
        |moment: Timestamp| -> u64 { seen.iter().map(|one| one.live_bytes_at(moment)).sum() };
    let live = live_at(now);
    let none_less = ends.partition_point(|end| live_at(*end) >= live);
    ends.get(none_less).copied()
}

/// When the next item may end, by histograms.
pub(super) fn next_end(seen: &[LiveEstimate], now: Timestamp) -> Option<Timestamp> {
    let ends = seen.iter().flat_map(LiveEstimate::ends);
    ends.filter(|end| *end > now && *end < Timestamp::MAX).min()
}
