//! What a reader sees of merged sources: of every key the newest version up to its number, unless that is dead or a
//! range delete covers it.

use std::sync::Arc;

use bytes::Bytes;

use crate::cover::Cover;
use crate::error::Result;
use crate::expiry::Judge;
use crate::merge::{Cursor, Merge, Seek};
use crate::record::Header;
use crate::types::Seq;

/// An item that is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// Its key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The rest.
    pub header: Header,
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
    /// The key that was decided last; what is left of it is passed over.
    decided: Vec<u8>,
}

impl<C: Cursor> Walk<C> {
    /// Stands where `to` says.
    pub fn seek(cursors: Vec<C>, horizon: Horizon, to: Seek<'_>, judge: &Judge) -> Result<Self> {
        let merge = Merge::seek_under(horizon.cover.clone(), cursors, to, Some(judge))?;
        Ok(Walk {
            merge,
            horizon,
            forward: to.is_forward(),
            decided: vec![],
        })
    }

    /// The next item that is seen at this moment, as far as `admits` allows its key.
    pub fn next(
        &mut self,
        judge: &Judge,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Visible>> {
        if self.forward {
            self.forwards(judge, admits)
        } else {
            self.backwards(judge, admits)
        }
    }

    fn forwards(
        &mut self,
        judge: &Judge,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Visible>> {
        let max = self.horizon.max;
        while let Some(head) = self.merge.head() {
            if head.header.seq > max || head.key == self.decided {
                self.merge.advance(Some(judge))?;
                continue;
            }
            if !admits(head.key) {
                return Ok(None);
            }
            self.decided.clear();
            self.decided.extend_from_slice(head.key);
            let header = head.header;
            if judge.dead(&header) || header.seq < self.horizon.cover.below(head.key) {
                self.merge.advance(Some(judge))?;
                continue;
            }
            let front = self.merge.front().expect("a head has a cursor");
            let visible = Visible {
                key: front.key_bytes(),
                value: front.value_bytes()?,
                header,
            };
            self.merge.advance(Some(judge))?;
            return Ok(Some(visible));
        }
        Ok(None)
    }

    /// Versions of a key come oldest first here: the last one up to the horizon counts.
    fn backwards(
        &mut self,
        judge: &Judge,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Visible>> {
        let max = self.horizon.max;
        while let Some(head) = self.merge.head() {
            if !admits(head.key) {
                return Ok(None);
            }
            self.decided.clear();
            self.decided.extend_from_slice(head.key);
            let covered_below = self.horizon.cover.below(head.key);
            let mut seen = None;
            while let Some(head) = self.merge.head()
                && head.key == self.decided
            {
                let header = head.header;
                if header.seq <= max {
                    let dead = judge.dead(&header) || header.seq < covered_below;
                    let front = self.merge.front().expect("a head has a cursor");
                    seen = if dead {
                        None
                    } else {
                        Some((front.key_bytes(), front.value_bytes()?, header))
                    };
                }
                self.merge.advance(Some(judge))?;
            }
            if let Some((key, value, header)) = seen {
                return Ok(Some(Visible { key, value, header }));
            }
        }
        Ok(None)
    }
}
