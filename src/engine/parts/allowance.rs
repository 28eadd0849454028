//! The bytes that a quota lets writes add before live bytes are estimated anew. A container has one, and the database
//! has one.
//!
//! ```text
//! 0 ......................... live at the estimate | in flight | slack ............ | limit
//!                                                   <- charged <- taken by charges
//! ```
//!
//! An estimate of live bytes is too dear for each write. So a write takes its bytes from the slack that the last estimate
//! left ([`Charge`]), as if it replaced nothing and nothing ended meanwhile. Only when that is used up live bytes are
//! estimated again (quota.rs).
//!
//! Invariants:
//!
//! 1. Every byte that is written under a quota is in the slack taken since the last estimate, in flight, or seen by an
//!    estimate. Slack is closed before the bytes in flight are read, and these before the estimate; so a byte may be
//!    counted twice, but none is missed.
//! 2. Only the holder of `known` gives slack.

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{Seq, Timestamp};
use crate::values::{Quota, WhenFull};

/// See the file's head.
pub struct Allowance {
    /// Twice the limit, and 1 more for [`WhenFull::ExpireSoonest`]; 0: no limit.
    quota: AtomicU64,
    slack: AtomicU64,
    /// Bytes that were charged and are perhaps not in a memtable yet.
    in_flight: AtomicU64,
    known: Mutex<Option<Known>>,
}

/// An estimate of live bytes, and how long it stands.
#[derive(Clone, Copy)]
pub struct Known {
    /// Bytes.
    pub live: u64,
    /// It stands as long as nothing was written and no settings were changed since: see `Engine::mark_of`.
    pub mark: (Seq, u64),
    /// The moment it is of.
    pub at: Timestamp,
    /// When the next item ends.
    pub until: Timestamp,
}

impl Allowance {
    /// Without slack: the first write has live bytes estimated.
    pub fn new(quota: Option<Quota>) -> Allowance {
        Allowance {
            quota: AtomicU64::new(pack(quota)),
            slack: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            known: Mutex::new(None),
        }
    }

    /// Whether there is a quota.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.quota.load(Ordering::Relaxed) != 0
    }

    /// The quota.
    pub fn quota(&self) -> Option<Quota> {
        let packed = self.quota.load(Ordering::Relaxed);
        let when_full = match packed & 1 {
            0 => WhenFull::Refuse,
            _ => WhenFull::ExpireSoonest,
        };
        (packed != 0).then_some(Quota {
            max_live_bytes: packed >> 1,
            when_full,
        })
    }

    /// Sets the quota. Where there are writers, the caller holds `known`.
    pub fn set(&self, quota: Option<Quota>) {
        self.quota.store(pack(quota), Ordering::Relaxed);
        self.slack.store(0, Ordering::Relaxed);
    }

    /// Takes bytes from the slack, if there are as many.
    pub fn take(&self, bytes: u64) -> bool {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        let less = |slack: u64| slack.checked_sub(bytes);
        let (release, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        let is_taken = self.slack.fetch_update(release, relaxed, less).is_ok();
        if !is_taken {
            self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// The last estimate. Its holder may close and open the slack.
    pub fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock()
    }

    /// Takes all slack away; returns the bytes in flight.
    pub fn close(&self) -> u64 {
        self.slack.swap(0, Ordering::AcqRel);
        self.in_flight.load(Ordering::Acquire)
    }

    /// Charges these bytes, and leaves so much slack.
    pub fn open(&self, bytes: u64, slack: u64) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        self.slack.store(slack, Ordering::Release);
    }
}

fn pack(quota: Option<Quota>) -> u64 {
    quota.map_or(0, |quota| {
        let expires = quota.when_full == WhenFull::ExpireSoonest;
        quota.max_live_bytes << 1 | u64::from(expires)
    })
}

/// Bytes that a write takes of allowances: in flight until this is dropped, which is after they are in a memtable, or will
/// never be.
#[derive(Default)]
pub struct Charge<'a>(Vec<(&'a Allowance, u64)>);

impl<'a> Charge<'a> {
    /// The charge of a write that no quota applies to.
    pub const NONE: Charge<'static> = Charge(vec![]);

    /// Adds bytes that were taken, or charged.
    pub fn add(&mut self, allowance: &'a Allowance, bytes: u64) {
        self.0.push((allowance, bytes));
    }
}

impl Drop for Charge<'_> {
    #[inline]
    fn drop(&mut self) {
        for (allowance, bytes) in &self.0 {
            allowance.in_flight.fetch_sub(*bytes, Ordering::Release);
        }
    }
}
