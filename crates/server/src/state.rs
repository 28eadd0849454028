//! The state that all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use ebbtide::ManualClock;
use ebbtide_documents::Documents;

use crate::auth::Key;
use crate::hosts::Hosts;
use crate::places::Places;

pub(crate) struct State {
    pub documents: Documents,
    /// Requests are signed with this one, where there is one.
    pub key: Option<Key>,
    pub hosts: Hosts,
    /// The clock of the database, where clients may move it.
    pub clock: Option<ManualClock>,
    pub places: Places,
    pub figures: Figures,
    /// `http` or `https`.
    pub scheme: &'static str,
}

pub(crate) type Shared = Arc<State>;

impl State {
    /// The database's now, by which documents expire and dates are judged.
    pub fn now(&self) -> SystemTime {
        self.documents.engine().now()
    }
}

/// Counts of requests since the start.
#[derive(Default)]
pub(crate) struct Figures {
    requests: [AtomicU64; 6],
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

    /// Of the statuses from 100 times the class on.
    pub fn requests(&self, class: usize) -> u64 {
        self.requests[class].load(Ordering::Relaxed)
    }
}
