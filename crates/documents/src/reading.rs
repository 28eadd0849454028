//! The documents of a page, as they are read: pushed into the query one by one, until it has enough.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::{Instant, SystemTime};

use ebbtide::{Bytes, Item};

use crate::document::{rid_of, seconds};
use crate::error::Result;
use crate::query::{Execution, Flow, QueryLimits, System};
use crate::resource_id::ResourceId;

/// The clock is asked each time so many documents were pushed.
const CLOCK_EVERY: u32 = 64;

/// The system properties of a document that is read, made where they are asked for.
struct Scanned<'i> {
    container: ResourceId,
    item: &'i Item,
}

impl System for Scanned<'_> {
    fn rid(&self) -> Cow<'_, str> {
        rid_of(self.container, self.item.key()).to_string().into()
    }

    fn self_link(&self) -> Cow<'_, str> {
        let (container, rid) = (self.container, self.rid());
        format!("dbs/{}/colls/{container}/docs/{rid}/", container.database()).into()
    }

    fn etag(&self) -> Cow<'_, str> {
        format!("\"{}\"", self.item.version()).into()
    }

    fn ts(&self) -> u64 {
        seconds(self.item.written_at())
    }
}

/// The result of one reading of a page.
pub struct Reading {
    pub execution: Execution,
    /// The place of the last document that was pushed.
    pub last: Option<Bytes>,
    /// Whether documents may be left that were not pushed.
    pub has_more: bool,
    first_end: Option<SystemTime>,
}

/// A reading, or none.
pub trait Ends {
    /// The first end of a document that was pushed.
    fn first_end(&self) -> Option<SystemTime>;
}

impl Ends for Reading {
    fn first_end(&self) -> Option<SystemTime> {
        self.first_end
    }
}

impl Ends for Option<Reading> {
    fn first_end(&self) -> Option<SystemTime> {
        self.as_ref()?.first_end
    }
}

/// A reading that goes on.
pub struct Reader<'l> {
    container: ResourceId,
    limits: &'l QueryLimits,
    began: Instant,
    until_clock: u32,
    is_enough: bool,
    reading: Reading,
}

impl<'l> Reader<'l> {
    pub fn new(container: ResourceId, limits: &'l QueryLimits, execution: Execution) -> Self {
        Reader {
            container,
            limits,
            began: Instant::now(),
            until_clock: CLOCK_EVERY,
            is_enough: execution.is_done(),
            reading: Reading {
                execution,
                last: None,
                has_more: false,
                first_end: None,
            },
        }
    }

    /// Takes the next document; its place is its key where none is given. `Break`: it takes no more.
    pub fn take(&mut self, item: Item, place: Option<Bytes>) -> Result<ControlFlow<()>> {
        let reading = &mut self.reading;
        if self.is_enough {
            // There is one more than the page takes.
            reading.has_more = true;
            return Ok(ControlFlow::Break(()));
        }
        let scanned = Scanned {
            container: self.container,
            item: &item,
        };
        let flow = reading.execution.push(item.value(), &scanned)?;
        reading.first_end = match (reading.first_end, item.expires_at()) {
            (Some(first), Some(end)) => Some(end.min(first)),
            (first, end) => first.or(end),
        };
        reading.last = Some(place.unwrap_or_else(|| item.into_parts().0));
        self.until_clock -= 1;
        if self.until_clock == 0 {
            self.until_clock = CLOCK_EVERY;
            self.is_enough |= self.began.elapsed() > self.limits.time;
        }
        self.is_enough |= flow == Flow::Enough;
        Ok(match self.is_enough && reading.execution.is_done() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    pub fn finish(self) -> Reading {
        self.reading
    }
}
