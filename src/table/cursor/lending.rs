//! The lane of a cursor's block: all its records, or none, are certain to be shown.

use super::TableCursor;
use crate::data::lent::{Ask, Lent};
use crate::table::lane::Alike;

impl TableCursor {
    /// Whether the records of the current block are alike, and all are certainly shown. Then `lent` holds its body.
    #[inline]
    pub(super) fn hold_certain(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> bool {
        let Some(loaded) = &mut self.loaded else {
            return false;
        };
        if loaded.lent.0 != ask.view.call {
            let layout = loaded.layout;
            let alike = *loaded
                .alike
                .get_or_insert_with(|| Alike::of(&layout.block(&loaded.body)));
            let is_certain = alike.is_some_and(|alike| self.is_certain(&alike, ask));
            self.hold(is_certain, ask, lent);
        }
        let loaded = self.loaded();
        let alike = loaded.alike.as_ref().and_then(Option::as_ref);
        loaded.lent.1 > 0 && alike.is_some_and(|alike| alike.uniform.earliest.seq >= ask.above)
    }

    /// Keeps the answer for the rest of the call.
    fn hold(&mut self, is_certain: bool, ask: &Ask<'_>, lent: &mut Lent) {
        if let Some(loaded) = &mut self.loaded {
            let owner = is_certain.then(|| lent.hold(loaded.body.clone()));
            loaded.lent = (ask.view.call, owner.unwrap_or(0));
        }
    }

    /// Whether all records of the current block are visible, live, and newer than all range deletes over their keys.
    fn is_certain(&self, alike: &Alike, ask: &Ask<'_>) -> bool {
        let Alike { uniform, shape } = alike;
        let seq_max = uniform.seq_max.min(self.table.census().seq_max);
        let is_covered = || {
            let block = self.block();
            let keys = block
                .key(0)
                .and_then(|first| Ok((first, block.key(shape.count - 1)?)));
            keys.map_or(true, |(first, last)| {
                uniform.earliest.seq < self.tombstones.max_over(first, last)
            })
        };
        seq_max <= ask.view.max
            && !ask.view.later.dead(&uniform.earliest)
            && (self.tombstones.is_empty() || !is_covered())
    }
}
