//! What a reader sees of merged sources: of every key the newest version up to its number, unless that is dead or a
//! range delete covers it.

use std::sync::Arc;

use crate::cover::Cover;
use crate::error::Result;
use crate::expiry::{Glance, Judge};
use crate::merge::{Cursor, Merge, Seek};
use crate::record::Header;
use crate::types::Seq;
use crate::value::Pair;

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
}

impl<C: Cursor> Walk<C> {
    /// Stands where `to` says.
    pub fn seek(cursors: Vec<C>, horizon: Horizon, to: Seek<'_>, judge: &Judge) -> Result<Self> {
        let merge = Merge::seek_under(horizon.cover.clone(), cursors, to, Some(judge))?;
        Ok(Walk {
            merge,
            horizon,
            forward: to.is_forward(),
        })
    }

    /// The next item that is seen at this moment, as far as `admits` allows its key. `decided` becomes the key about which
    /// was decided last, whether it is seen or not; what is left of that key is passed over.
    #[inline]
    pub fn next<F: FnOnce() -> Judge>(
        &mut self,
        glance: &mut Glance<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<(Pair, Header)>> {
        if self.forward {
            self.forwards(glance, decided, admits)
        } else {
            self.backwards(glance, decided, admits)
        }
    }

    #[inline]
    fn forwards<F: FnOnce() -> Judge>(
        &mut self,
        glance: &mut Glance<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<(Pair, Header)>> {
        let max = self.horizon.max;
        while let Some(head) = self.merge.head() {
            if head.header.seq > max || head.key == decided {
                self.merge.advance(Some(glance.judge()))?;
                continue;
            }
            if !admits(head.key) {
                return Ok(None);
            }
            decided.clear();
            decided.extend_from_slice(head.key);
            let header = head.header;
            if glance.dead(&header) || header.seq < self.horizon.cover.below(head.key) {
                self.merge.advance(Some(glance.judge()))?;
                continue;
            }
            let pair = self.merge.front().expect("a head has a cursor").pair()?;
            self.merge.advance(Some(glance.judge()))?;
            return Ok(Some((pair, header)));
        }
        Ok(None)
    }

    /// Versions of a key come oldest first here: the last one up to the horizon counts.
    fn backwards<F: FnOnce() -> Judge>(
        &mut self,
        glance: &mut Glance<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<(Pair, Header)>> {
        let max = self.horizon.max;
        while let Some(head) = self.merge.head() {
            if !admits(head.key) {
                return Ok(None);
            }
            decided.clear();
            decided.extend_from_slice(head.key);
            let covered_below = self.horizon.cover.below(head.key);
            let mut seen = None;
            while let Some(head) = self.merge.head()
                && head.key == decided
            {
                let header = head.header;
                if header.seq <= max {
                    let dead = glance.dead(&header) || header.seq < covered_below;
                    let front = self.merge.front().expect("a head has a cursor");
                    seen = if dead {
                        None
                    } else {
                        Some((front.pair()?, header))
                    };
                }
                self.merge.advance(Some(glance.judge()))?;
            }
            if seen.is_some() {
                return Ok(seen);
            }
        }
        Ok(None)
    }
}
