//! Events of background work: the trait that a program implements, and the events that it is told.

use std::time::Duration;

use crate::base::Error;

/// Is told of background work, by `Options::listener`. Each method does nothing unless it is implemented.
///
/// One thread of the database makes all calls, one after the other, in the order in which things happened; it holds no
/// lock and does no other work. So a listener may use the database, and a slow one delays nothing but later calls: 1
/// 024 events wait for it at most, and later ones are only counted ([`EventListener::on_lost`]). A panic in it is
/// caught, and ends that call alone. The thread that closes the database tells the waiting events. The database holds
/// the listener: one that holds a `Database` in turn keeps it open for ever.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::mpsc::{Sender, channel};
/// use ebbtide::{EventListener, FlushEvent, Options};
///
/// struct Tells(Sender<u64>);
///
/// impl EventListener for Tells {
///     fn on_flush_completed(&self, flush: &FlushEvent) {
///         let _ = self.0.send(flush.table_bytes);
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// let (told, heard) = channel();
/// let db = Options::new().listener(Arc::new(Tells(told))).open(folder.path())?;
/// db.container("c")?.put("k", "v")?;
/// db.flush()?;
/// assert!(heard.recv()? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait EventListener: Send + Sync {
    /// Memtables are about to be flushed.
    fn on_flush_begin(&self, flush: &FlushEvent) {
        let _ = flush;
    }
    /// That flush has ended.
    fn on_flush_completed(&self, flush: &FlushEvent) {
        let _ = flush;
    }
    /// Tables are about to be merged or rewritten.
    fn on_compaction_begin(&self, compaction: &CompactionEvent) {
        let _ = compaction;
    }
    /// That merge or rewrite has ended.
    fn on_compaction_completed(&self, compaction: &CompactionEvent) {
        let _ = compaction;
    }
    /// Tables of which nothing matters any more have left the database, without being read.
    fn on_reclaim(&self, reclaim: &ReclaimEvent) {
        let _ = reclaim;
    }
    /// Writers were slowed or stopped. A summary, at most once a second.
    fn on_stall(&self, stalls: &StallEvent) {
        let _ = stalls;
    }
    /// The log was synced. A summary, at most once a second.
    fn on_sync(&self, syncs: &SyncEvent) {
        let _ = syncs;
    }
    /// Background work failed; it is tried again.
    fn on_background_error(&self, error: &BackgroundErrorEvent) {
        let _ = error;
    }
    /// A request that came by the database's control socket has been answered.
    fn on_control(&self, control: &ControlEvent) {
        let _ = control;
    }
    /// So many events before this call were not told, because too many waited.
    fn on_lost(&self, events: u64) {
        let _ = events;
    }
}

/// A flush of memtables.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlushEvent {
    /// The containers whose memtables are flushed, by one edit.
    pub containers: Vec<String>,
    /// Bytes of memory that they take.
    pub memtable_bytes: u64,
    /// Bytes of tables written; 0 at the beginning.
    pub table_bytes: u64,
    /// How long it took; zero at the beginning.
    pub took: Duration,
    /// Why it failed, if it did.
    pub error: Option<Error>,
}

/// A merge or rewrite of tables.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompactionEvent {
    /// Whose tables.
    pub container: String,
    /// Why, in words for people.
    pub reason: String,
    /// How many tables are read.
    pub input_tables: u64,
    /// Their bytes.
    pub input_bytes: u64,
    /// Bytes of tables written; 0 at the beginning.
    pub output_bytes: u64,
    /// How long it took, with more urgent work that went first; zero at the beginning.
    pub took: Duration,
    /// Why it ended early, if it did. What was done until then stays.
    pub error: Option<Error>,
}

/// Tables that were dropped unread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimEvent {
    /// Whose tables.
    pub container: String,
    /// How many.
    pub tables: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Writers that waited since the last event of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallEvent {
    /// How many were slowed or stopped.
    pub stalls: u64,
    /// How long they waited together.
    pub waited: Duration,
}

/// Syncs of the log since the last event of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncEvent {
    /// How many.
    pub syncs: u64,
    /// How long they took together.
    pub took: Duration,
}

/// A request by the control socket, which the crate `ebbtide-control` opens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlEvent {
    /// The request in words, without keys and values: `ttl sessions 7d`.
    pub request: String,
    /// The process that asked, where the system tells it.
    pub process: Option<u32>,
    /// How long it took.
    pub took: Duration,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl ControlEvent {
    /// A request that has been answered.
    #[must_use]
    pub fn new(
        request: String,
        process: Option<u32>,
        took: Duration,
        error: Option<String>,
    ) -> Self {
        ControlEvent {
            request,
            process,
            took,
            error,
        }
    }
}

/// A failure of background work.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackgroundErrorEvent {
    /// The work: the name of its thread, or what it was for.
    pub work: &'static str,
    /// The error.
    pub error: Error,
}
