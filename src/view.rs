//! What a reader sees of merged sources: of every key the newest version up to its number, unless that is dead or a
//! range delete covers it.

use bytes::Bytes;

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

/// Up to where a reader sees, and what is deleted for it.
pub trait Horizon {
    /// Later writes are not seen.
    fn max(&self) -> Seq;
    /// Records of the key with a lower number are gone by a range delete.
    fn covered_below(&self, key: &[u8]) -> Seq;
}

/// One end of a scan: walks in one direction.
pub struct Walk<C> {
    merge: Merge<C>,
    forward: bool,
    /// The key that was decided last; what is left of it is passed over.
    decided: Bytes,
}

impl<C: Cursor> Walk<C> {
    /// Stands where `to` says.
    pub fn seek(cursors: Vec<C>, to: Seek<'_>, judge: &Judge) -> Result<Self> {
        let merge = Merge::seek(cursors, to, Some(judge))?;
        Ok(Walk {
            merge,
            forward: to.is_forward(),
            decided: Bytes::new(),
        })
    }

    /// The next item that is seen at this moment, as far as `admits` allows its key.
    pub fn next(
        &mut self,
        horizon: &impl Horizon,
        judge: &Judge,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Visible>> {
        if self.forward {
            self.forwards(horizon, judge, admits)
        } else {
            self.backwards(horizon, judge, admits)
        }
    }

    fn forwards(
        &mut self,
        horizon: &impl Horizon,
        judge: &Judge,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Visible>> {
        let max = horizon.max();
        while let Some(head) = self.merge.head() {
            if head.header.seq > max || *head.key == *self.decided {
                self.merge.advance(Some(judge))?;
                continue;
            }
            if !admits(head.key) {
                return Ok(None);
            }
            let front = self.merge.front().expect("a head has a cursor");
            self.decided = front.key_bytes();
            let header = head.header;
            if judge.dead(&header) || header.seq < horizon.covered_below(head.key) {
                self.merge.advance(Some(judge))?;
                continue;
            }
            let visible = Visible {
                key: self.decided.clone(),
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
        horizon: &impl Horizon,
        judge: &Judge,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Visible>> {
        let max = horizon.max();
        while let Some(head) = self.merge.head() {
            if !admits(head.key) {
                return Ok(None);
            }
            let key = self.merge.front().expect("a head has a cursor").key_bytes();
            let covered_below = horizon.covered_below(&key);
            let mut seen = None;
            while let Some(head) = self.merge.head()
                && *head.key == *key
            {
                let header = head.header;
                if header.seq <= max {
                    let dead = judge.dead(&header) || header.seq < covered_below;
                    let front = self.merge.front().expect("a head has a cursor");
                    seen = if dead {
                        None
                    } else {
                        Some((front.value_bytes()?, header))
                    };
                }
                self.merge.advance(Some(judge))?;
            }
            if let Some((value, header)) = seen {
                return Ok(Some(Visible { key, value, header }));
            }
        }
        Ok(None)
    }
}
