//! Reads the segments of a chain ahead of its replay, in a thread of its own, and starts to write them to the device.
//!
//! ```text
//! replay       read the ring | check 5              | check 6              | check 7
//! the thread   read 5        | write 5 back, read 6 | write 6 back, read 7 | write 7 back
//! ```
//!
//! * Writeback is a hint, so that the open waits less when it syncs the log that it keeps (wal/keep.rs); with a prefix it
//!   keeps none. It starts when the segment is in memory, and not before: when a write fails, the system may forget what it
//!   holds of the file.
//! * The thread finds a whole segment of the chain or nothing. Then the replay reads the segment itself, and meets the error.
//! * The replay waits for a segment that is being read. One that is not begun it reads itself, so it needs no thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::base::sync::{Condvar, Mutex};
use crate::env::Fs;
use crate::wal::folder::{Folder, Loaded};

/// The segment that is read ahead.
#[derive(Default)]
pub struct Ahead {
    segment: Mutex<Segment>,
    changed: Condvar,
}

#[derive(Default)]
enum Segment {
    /// None is asked for.
    #[default]
    Unknown,
    /// The replay asks for a segment of this chain with this number, to be read into the memory of `spare`.
    Asked {
        identity: u64,
        number: u64,
        spare: Vec<u8>,
    },
    /// The thread reads it.
    Begun,
    /// The thread has read it, if it was there.
    Read(Option<Loaded>),
    /// The replay is over.
    Ended,
}

impl Ahead {
    /// Asks for a segment.
    pub fn ask(&self, identity: u64, number: u64, spare: Vec<u8>) {
        self.set(Segment::Asked {
            identity,
            number,
            spare,
        });
    }

    /// The segment that was asked for last, if it was found.
    pub fn take(&self) -> Option<Loaded> {
        let mut segment = self.segment.lock();
        while matches!(*segment, Segment::Begun) {
            self.changed.wait(&mut segment);
        }
        match std::mem::take(&mut *segment) {
            Segment::Read(found) => found,
            _ => None,
        }
    }

    /// The replay is over.
    pub fn end(&self) {
        self.set(Segment::Ended);
    }

    fn set(&self, to: Segment) {
        *self.segment.lock() = to;
        self.changed.notify_one();
    }

    /// Reads the requested segments until the end; starts writeback of each, if it is to be `kept`.
    pub fn serve(&self, fs: &dyn Fs, dir: &Path, kept: bool) {
        let folder = Folder::new(fs, dir);
        while let Some((identity, number, spare)) = self.begin() {
            folder.spare.set(spare);
            // A panic is the replay's too, which reads it again; here, it would wait for ever.
            let read = AssertUnwindSafe(|| folder.of_chain(identity, number).unwrap_or_default());
            let found = catch_unwind(read).unwrap_or_default();
            let path = found.as_ref().map(|found| found.path.clone());
            let mut segment = self.segment.lock();
            if matches!(*segment, Segment::Begun) {
                *segment = Segment::Read(found);
                self.changed.notify_one();
            }
            drop(segment);
            if let Some(file) = path.filter(|_| kept).and_then(|path| fs.open(&path).ok()) {
                file.start_writing(0, file.len().unwrap_or_default());
            }
        }
    }

    /// Waits for the next request; `None` at the end.
    fn begin(&self) -> Option<(u64, u64, Vec<u8>)> {
        let mut segment = self.segment.lock();
        loop {
            match std::mem::replace(&mut *segment, Segment::Begun) {
                Segment::Asked {
                    identity,
                    number,
                    spare,
                } => return Some((identity, number, spare)),
                Segment::Ended => return None,
                other => *segment = other,
            }
            self.changed.wait(&mut segment);
        }
    }
}
