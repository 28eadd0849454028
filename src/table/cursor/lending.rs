//! Lending from the lane of a cursor's block: all its records, or none, are certain to be shown.

use super::{Loaded, State, TableCursor};
use crate::data::cursor::Cursor;
use crate::data::lent::{Ask, Lent, Stand};
use crate::table::lane::Lane;

impl TableCursor {
    /// The number by which `lent` holds the body of the current block, if that has a lane and all its records are
    /// certainly shown.
    #[inline]
    fn hold_lane(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> Option<u32> {
        let loaded = self.loaded.as_mut()?;
        if loaded.lent.0 != ask.view.call {
            let layout = loaded.layout;
            let lane = *loaded
                .lane
                .get_or_insert_with(|| Lane::of(&layout.block(&loaded.body)));
            let is_certain = lane.is_some_and(|lane| self.is_certain(&lane, ask));
            let loaded = self.loaded.as_mut()?;
            let owner = is_certain.then(|| lent.hold(loaded.body.clone()));
            loaded.lent = (ask.view.call, owner.unwrap_or(0));
        }
        let (_, owner) = self.loaded.as_ref()?.lent;
        (owner > 0).then_some(owner)
    }

    /// Lends from the lane of the current block, if all its records are certainly shown.
    #[inline(always)]
    pub(super) fn lend_by(
        &mut self,
        lend: impl FnOnce(&Lane, &[u8], usize, &Ask<'_>, (u32, &mut Lent)) -> (Stand, usize),
        ask: &Ask<'_>,
        lent: &mut Lent,
    ) -> Stand {
        if !self.is_on_record() {
            return Stand::Same;
        }
        let Some(owner) = self.hold_lane(ask, lent) else {
            return Stand::Same;
        };
        let Loaded { body, lane, .. } = self.loaded();
        let lane = lane.as_ref().and_then(Option::as_ref);
        let Some(lane) = lane.filter(|lane| lane.uniform.earliest.seq >= ask.above) else {
            return Stand::Same;
        };
        let (stand, at) = lend(lane, body, self.at, ask, (owner, lent));
        if stand != Stand::Same {
            (self.state, self.at) = (State::InLane, at);
        }
        stand
    }

    /// Whether all records of the current block are visible, live, and newer than all range deletes over their keys.
    fn is_certain(&self, lane: &Lane, ask: &Ask<'_>) -> bool {
        let Lane { uniform, .. } = lane;
        let seq_max = uniform.seq_max.min(self.table.census().seq_max);
        let is_covered = || {
            let block = self.block();
            let keys = block
                .key(0)
                .and_then(|first| Ok((first, block.key(lane.count() - 1)?)));
            keys.map_or(true, |(first, last)| {
                uniform.earliest.seq < self.tombstones.max_over(first, last)
            })
        };
        seq_max <= ask.view.max
            && !ask.view.later.dead(&uniform.earliest)
            && (self.tombstones.is_empty() || !is_covered())
    }
}
