//! A walk over a memtable.

use std::sync::Arc;

use bytes::Bytes;

use super::node::Gap;
use super::tree::{Tree, Window};
use crate::error::Result;
use crate::expiry::Judge;
use crate::merge::{Cursor, Position, Seek};
use crate::record::Head;
use crate::types::Seq;

/// A place in a memtable, which it keeps. It sees every record that was inserted before it was sent somewhere by
/// [`Cursor::seek`], and those inserted later if it comes by late enough; each once, always in order. It knows no ghosts,
/// and nothing it does fails.
pub struct MemCursor {
    window: Window,
}

impl MemCursor {
    pub(super) fn new(tree: Arc<Tree>) -> MemCursor {
        MemCursor {
            window: Window::new(tree),
        }
    }
}

impl Cursor for MemCursor {
    #[inline]
    fn position(&self) -> Position<'_> {
        match self.window.stored() {
            None => Position::End,
            Some(stored) => Position::Record(Head {
                header: stored.header(),
                key: stored.key(),
                value_len: stored.value_len(),
            }),
        }
    }

    fn seek(&mut self, to: Seek<'_>, _: Option<&Judge>) -> Result<()> {
        // Of one key, the newest version comes first and the oldest last.
        match to {
            Seek::First => self.window.first(),
            Seek::AtOrAfter(key) => self.window.behind(&Gap::before(key, Seq::MAX)),
            Seek::After(key) => self.window.behind(&Gap::after(key, Seq(0))),
            Seek::Last => self.window.last(),
            Seek::AtOrBefore(key) => self.window.in_front(&Gap::after(key, Seq(0))),
            Seek::Before(key) => self.window.in_front(&Gap::before(key, Seq::MAX)),
        }
        Ok(())
    }

    #[inline]
    fn advance(&mut self, _: Option<&Judge>) -> Result<()> {
        self.window.advance();
        Ok(())
    }

    #[inline]
    fn retreat(&mut self, _: Option<&Judge>) -> Result<()> {
        self.window.retreat();
        Ok(())
    }

    fn enter(&mut self, _: Seek<'_>, _: Option<&Judge>) -> Result<()> {
        unreachable!("a memtable has no ghosts")
    }

    fn key_bytes(&self) -> Bytes {
        self.window.key_bytes().expect(NO_RECORD)
    }

    fn value_bytes(&self) -> Result<Bytes> {
        Ok(self.window.value_bytes().expect(NO_RECORD))
    }

    fn value(&self) -> Result<&[u8]> {
        Ok(self.window.stored().expect(NO_RECORD).value())
    }
}

const NO_RECORD: &str = "the cursor stands on a record";
