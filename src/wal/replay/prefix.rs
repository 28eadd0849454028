//! The prefix of a log: what an open kept of the log before (src/wal/keep.rs). Its end is known, and all of it was durable
//! before a manifest named it. So what is missing before the end is damage, and what follows it is no part of the log.
//! Where the prefix is damaged the log ends, with the chain after it.

use super::{Frame, Walk};
use crate::base::{Error, Result, Seq};
use crate::wal::chain::{LogStart, Prefix};
use crate::wal::folder::Loaded;
use crate::wal::frame::Position;

impl Walk<'_> {
    /// Shows the frames of the prefix, if the log has one; returns the damage in it.
    pub(super) fn prefix(
        &mut self,
        log: &LogStart,
        numbers: &[u64],
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<Option<Error>> {
        let Some(prefix) = log.prefix else {
            return Ok(None);
        };
        let Some(damage) = self.whole_prefix(&prefix, visit)? else {
            return Ok(None);
        };
        let (end, segments) = (self.out.end, std::mem::take(&mut self.out.segments));
        self.look_behind(prefix.chain, numbers)?;
        self.look_behind(log.chain, numbers)?;
        (self.out.end, self.out.segments) = (end, segments);
        Ok(Some(damage))
    }

    fn whole_prefix(
        &mut self,
        prefix: &Prefix,
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<Option<Error>> {
        let until = prefix.end.0;
        let first = self.folder.first(&LogStart {
            chain: prefix.chain,
            first: prefix.first,
            ring: None,
            prefix: None,
        });
        let mut segment = match first {
            Err(damage @ Error::Corruption { .. }) => return Ok(Some(damage)),
            first => first?,
        };
        loop {
            self.note_damage(&segment);
            let end = self.segment(&segment, until, visit)?;
            if end == until {
                self.folder.spare.set(segment.bytes);
                return Ok(None);
            }
            match self.folder.next(segment.header())? {
                Some(next) if next.header().start == end && end < until => segment = next,
                _ => {
                    let (path, offset) = (segment.path.clone(), segment.offset_of(end));
                    let what = format!(
                        "the log is damaged here: this part of it ends at position {end}, and an open has found it whole \
                         up to position {until}"
                    );
                    return Ok(Some(Error::corruption(path, offset, what)));
                }
            }
        }
    }

    /// The damage, if this first segment of a chain does not begin where the prefix ends.
    pub(super) fn gap_before(&self, log: &LogStart, first: &Loaded) -> Option<Error> {
        let prefix = log.prefix?;
        let what = "this log segment does not go on where the log before it ends";
        let is_gap = first.header().start != prefix.end.0;
        is_gap.then(|| Error::corruption(first.path.clone(), 0, what))
    }

    /// Takes only the numbers and marks of the chain's segments, because its first segment is lost; returns a
    /// description of what is in them.
    pub(super) fn look_behind(&mut self, identity: u64, numbers: &[u64]) -> Result<String> {
        let (mut bytes, mut reach) = (0, Seq(0));
        for &number in numbers {
            if let Some(segment) = self.folder.of_chain(identity, number)? {
                let end = self.segment(&segment, u64::MAX, &mut |_| Ok(()))?;
                bytes += end - segment.header().start;
                reach = self.out.last_seq;
            }
        }
        self.out.segments.clear();
        (self.out.clean, self.out.end) = (false, Position(0));
        Ok(match bytes {
            0 => String::new(),
            _ => format!(
                "; with it goes all of the log, of which {bytes} bytes in later segments are whole, up to write {}",
                reach.0
            ),
        })
    }
}
