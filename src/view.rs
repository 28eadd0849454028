//! What a reader sees of merged sources: of every key the newest version up to its number, unless that is dead or a
//! range delete covers it.

use std::sync::Arc;

use crate::cover::Cover;
use crate::error::Result;
use crate::expiry::{Glance, Judge, Judges};
use crate::item::Item;
use crate::merge::{Cursor, Merge, Seek};
use crate::record::{Header, key_head};
use crate::types::Seq;

/// Both keys are equal. Mostly they are not, and their heads tell.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && key_head(a) == key_head(b) && a == b
}

/// What a reader sees.
#[derive(Clone, Debug)]
pub struct Horizon {
    /// Later writes are not seen.
    pub max: Seq,
    /// What is deleted by range up to then.
    pub cover: Arc<Cover>,
}

/// One end of a scan: walks in one direction.
pub struct Walk<C> {
    merge: Merge<C>,
    horizon: Horizon,
    forward: bool,
    /// What stands in front was given out.
    given: bool,
}

impl<C: Cursor> Walk<C> {
    /// Stands where `to` says.
    pub fn seek(cursors: Vec<C>, horizon: Horizon, to: Seek<'_>, judge: &Judge) -> Result<Self> {
        let merge = Merge::seek_under(horizon.cover.clone(), cursors, to, Some(judge))?;
        Ok(Walk {
            merge,
            horizon,
            forward: to.is_forward(),
            given: false,
        })
    }

    /// The next item that is seen at this moment, as far as `admits` allows its key. `decided` becomes the key about which
    /// was decided last, whether it is seen or not; what is left of that key is passed over.
    #[inline]
    pub fn next<F: Fn() -> Judges>(
        &mut self,
        glance: &mut Glance<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<Item>> {
        if self.forward {
            self.forwards(glance, decided, admits)
        } else {
            self.backwards(glance, decided, admits)
        }
    }

    // Not inlined: so the item is made where it is wanted, and not carried there.
    #[inline(never)]
    fn forwards<F: Fn() -> Judges>(
        &mut self,
        glance: &mut Glance<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<Item>> {
        let max = self.horizon.max;
        loop {
            // Not before the next item is wanted: so this one is not carried past the step.
            if std::mem::replace(&mut self.given, true)
                && let Err(error) = self.merge.advance(Some(glance.for_good()))
            {
                return Some(Err(error));
            }
            let head = self.merge.head()?;
            let header = head.header;
            if header.seq > max || is_same(head.key, decided) {
                continue;
            }
            if !admits(head.key) {
                return None;
            }
            decided.clear();
            decided.extend_from_slice(head.key);
            if !glance.dead(&header) && header.seq >= self.horizon.cover.below(head.key) {
                return Some(self.item(glance, header));
            }
        }
    }

    /// What stands in front.
    #[inline(always)]
    fn item<F: Fn() -> Judges>(&self, glance: &Glance<'_, F>, header: Header) -> Result<Item> {
        let pair = self.merge.front().expect("a head has a cursor").pair()?;
        Ok(Item::new(pair, &header, glance.expires_at(&header)))
    }

    /// Versions of a key come oldest first here: the last one up to the horizon counts.
    fn backwards<F: Fn() -> Judges>(
        &mut self,
        glance: &mut Glance<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<Item>> {
        let max = self.horizon.max;
        while let Some(head) = self.merge.head() {
            if !admits(head.key) {
                return None;
            }
            decided.clear();
            decided.extend_from_slice(head.key);
            let covered_below = self.horizon.cover.below(head.key);
            let mut item = None;
            while let Some(head) = self.merge.head()
                && is_same(head.key, decided)
            {
                let header = head.header;
                if header.seq <= max {
                    let dead = glance.dead(&header) || header.seq < covered_below;
                    item = (!dead).then(|| self.item(glance, header));
                }
                if let Err(error) = self.merge.advance(Some(glance.for_good())) {
                    return Some(Err(error));
                }
            }
            if item.is_some() {
                return item;
            }
        }
        None
    }
}
