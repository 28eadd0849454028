//! The state that all connections share: of every server the [`Frontend`]; of one over a database of its own the [`State`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use ebbtide::ManualClock;
use ebbtide_documents::Documents;

use crate::auth::Key;
use crate::hosts::Hosts;
use crate::partitions::Partitions;
use crate::places::Places;
use crate::reply::Answer;
use crate::request::Request;

/// The part that answers requests: a database of documents, or a node of a cluster.
pub(crate) trait Service: Send + Sync + 'static {
    fn frontend(&self) -> &Frontend;

    /// The answer to a request for which nothing has to be waited for.
    fn at_once(&self, request: &Request) -> Option<Answer>;

    /// The answer to any other, by a thread that may wait.
    fn route(&self, request: &Request) -> Answer;
}

pub(crate) type Shared = Arc<dyn Service>;

/// The part of the state that admits and counts requests, whatever answers them.
pub(crate) struct Frontend {
    /// Requests are signed with this one, where there is one.
    pub key: Option<Key>,
    pub hosts: Hosts,
    pub figures: Figures,
    /// Connections at once.
    pub most_connections: usize,
}

pub(crate) struct State {
    pub frontend: Arc<Frontend>,
    pub documents: Documents,
    /// The clock of the database, where clients may move it.
    pub clock: Option<ManualClock>,
    pub partitions: Partitions,
    pub places: Places,
    /// `http` or `https`.
    pub scheme: &'static str,
}

impl State {
    /// The database's now, by which documents expire and dates are judged; over a cluster that of the request's reads.
    pub fn now(&self) -> SystemTime {
        self.documents.now()
    }
}

/// Counts of requests since the start.
#[derive(Default)]
pub(crate) struct Figures {
    requests: [AtomicU64; 6],
    reads: AtomicU64,
    writes: AtomicU64,
    /// Requests that threads work on.
    working: AtomicU64,
    pub connections: AtomicU64,
    pub refused_connections: AtomicU64,
    pub request_bytes: AtomicU64,
    pub response_bytes: AtomicU64,
}

impl Figures {
    pub fn count(&self, status: u16, request_bytes: usize, response_bytes: usize) {
        let class = usize::from(status / 100).min(5);
        self.requests[class].fetch_add(1, Ordering::Relaxed);
        self.request_bytes
            .fetch_add(request_bytes as u64, Ordering::Relaxed);
        self.response_bytes
            .fetch_add(response_bytes as u64, Ordering::Relaxed);
    }

    /// Counts a request for documents, or one that changes them.
    pub fn came(&self, writes: bool) {
        let count = if writes { &self.writes } else { &self.reads };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Works on a request, which counts meanwhile.
    pub fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Working<'a>(&'a AtomicU64);
        impl Drop for Working<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.working.fetch_add(1, Ordering::Relaxed);
        // A panic ends the work, too.
        let _working = Working(&self.working);
        work()
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    pub fn working(&self) -> u64 {
        self.working.load(Ordering::Relaxed)
    }

    pub fn open_connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Of the statuses from 100 times the class on.
    pub fn requests(&self, class: usize) -> u64 {
        self.requests[class].load(Ordering::Relaxed)
    }
}
