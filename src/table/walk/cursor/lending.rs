//! The uniform block of a cursor's block: all its records, or none, are certain to be shown.

use super::TableCursor;
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{Ask, CertainView, Lent};
use crate::table::walk::uniform_block::Alike;

impl TableCursor {
    /// Whether the records of the current block are alike, and all are certainly shown. Then `lent` holds its body.
    #[inline]
    pub(super) fn hold_certain(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> bool {
        let is_certain = self.is_block_certain(ask.view);
        let Some(loaded) = &mut self.loaded else {
            return false;
        };
        let alike = loaded.alike.as_ref().and_then(Option::as_ref);
        let holds =
            is_certain && alike.is_some_and(|alike| alike.uniform.earliest.seq >= ask.above);
        if holds && loaded.lent.0 != ask.call {
            loaded.lent = (ask.call, lent.hold(loaded.body.clone()));
        }
        holds
    }

    /// Whether the records of the current block are alike, and all are certainly shown.
    #[inline]
    fn is_block_certain(&mut self, view: &CertainView) -> bool {
        match &self.loaded {
            Some(loaded) if loaded.certain.0 == view.number => loaded.certain.1,
            Some(_) => self.ask_block(view),
            None => false,
        }
    }

    /// Keeps the answer for as long as the view holds.
    fn ask_block(&mut self, view: &CertainView) -> bool {
        let loaded = self.loaded();
        let block = loaded.layout.block(&loaded.body);
        let alike = loaded.alike.unwrap_or_else(|| Alike::of(&block));
        let is_certain = alike.is_some_and(|alike| self.is_certain(&alike, view));
        if let Some(loaded) = &mut self.loaded {
            loaded.alike = Some(alike);
            loaded.certain = (view.number, is_certain);
        }
        is_certain
    }

    /// The items behind the current one in the current block, if all its records are certainly shown and the fields of
    /// their headers are in one word.
    pub(super) fn certain_slice(&self, ask: &Ask<'_>) -> Option<BlockSlice> {
        let loaded = self.loaded();
        let block = loaded.layout.block(&loaded.body);
        let alike = loaded.alike.unwrap_or_else(|| Alike::of(&block))?;
        if alike.uniform.earliest.seq < ask.above || !self.is_certain(&alike, ask.view) {
            return None;
        }
        let headers = block.packing.in_one_word()?;
        let block = (alike.shape, headers.of_uniform_block(&alike.uniform));
        BlockSlice::behind(self.at, &loaded.body, block, ask)
    }

    /// Called when it stands in its uniform block, which may be that of a slice: nobody has asked for it then.
    #[inline]
    pub(super) fn know_uniform_block(&mut self) {
        if let Some(loaded) = &mut self.loaded
            && loaded.alike.is_none()
        {
            loaded.alike = Some(Alike::of(&loaded.layout.block(&loaded.body)));
        }
    }

    /// Whether all records of the current block are visible, live, and newer than all range deletes over their keys.
    fn is_certain(&self, alike: &Alike, view: &CertainView) -> bool {
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
        seq_max <= view.max
            && !view.later.dead(&uniform.earliest)
            && (self.tombstones.is_empty() || !is_covered())
    }
}
