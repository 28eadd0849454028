//! The room that containers with quotas have left for writes, as the node that leads counts it (quotas.rs).
//!
//! ```text
//! estimate ──> open: slack, for writes that come ── take ──> in flight ── applied, or lost ──> in the estimated state, or nowhere
//! ```
//!
//! Invariants:
//!
//! 1. A charge lives from the decision about an op until it is applied here, or known to be lost: whoever waits for it may give up.
//! 2. Slack is of one quota and one term: in another term other nodes have proposed.
//! 3. The allowance of a container goes once it has no quota and nothing of it is in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebbtide::Quota;
use tokio::sync::OwnedMutexGuard;

/// The allowances of containers, by their names.
#[derive(Default)]
pub(super) struct Quotas(Mutex<HashMap<String, Arc<Allowance>>>);

/// The bytes that a container lets writes add before live bytes are estimated anew.
#[derive(Default)]
pub(super) struct Allowance {
    state: Mutex<Slack>,
    /// One estimates at a time, and others wait for the slack.
    estimating: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Slack {
    /// The quota and the term that it is of.
    of: Option<(Quota, u64)>,
    left: u64,
    in_flight: u64,
}

impl Quotas {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Allowance>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, container: &str) -> Arc<Allowance> {
        self.lock().entry(container.to_owned()).or_default().clone()
    }

    /// Forgets the containers that have no quota any more.
    pub(super) fn forget(&self, has_quota: impl Fn(&str) -> bool) {
        let is_held = |allowance: &Arc<Allowance>| Arc::strong_count(allowance) > 1;
        let mut all = self.lock();
        all.retain(|name, allowance| is_held(allowance) || has_quota(name));
    }
}

impl Allowance {
    fn lock(&self) -> MutexGuard<'_, Slack> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else estimates.
    pub(super) async fn estimate(&self) -> OwnedMutexGuard<()> {
        self.estimating.clone().lock_owned().await
    }

    /// Takes bytes from the slack, if it has them.
    pub(super) fn take(&self, of: (Quota, u64), bytes: u64) -> bool {
        let mut slack = self.lock();
        let fits = slack.of == Some(of) && bytes <= slack.left;
        if fits {
            slack.left -= bytes;
            slack.in_flight += bytes;
        }
        fits
    }

    /// Leaves no slack to others; returns the bytes in flight.
    pub(super) fn close(&self) -> u64 {
        let mut slack = self.lock();
        slack.left = 0;
        slack.in_flight
    }

    /// After an estimate: takes bytes, and leaves so much to others.
    pub(super) fn open(&self, of: (Quota, u64), bytes: u64, left: u64) {
        let mut slack = self.lock();
        (slack.of, slack.left) = (Some(of), left);
        slack.in_flight += bytes;
    }
}

/// The holdings of an op in flight.
#[derive(Default)]
pub(super) struct Charge {
    bytes: Vec<(Arc<Allowance>, u64)>,
    /// Of a command to expire items: no other is under way.
    command: Option<OwnedMutexGuard<()>>,
}

impl Charge {
    pub(super) fn of(command: Option<OwnedMutexGuard<()>>) -> Charge {
        Charge {
            bytes: vec![],
            command,
        }
    }

    /// Bytes that were taken from an allowance.
    pub(super) fn add(&mut self, allowance: Arc<Allowance>, bytes: u64) {
        self.bytes.push((allowance, bytes));
    }

    pub(super) fn is_none(&self) -> bool {
        self.bytes.is_empty() && self.command.is_none()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for (allowance, bytes) in &self.bytes {
            allowance.lock().in_flight -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use ebbtide::WhenFull;

    use super::*;

    #[test]
    fn what_is_kept_of_a_container_goes_with_its_quota_and_not_while_something_is_in_flight() {
        let quotas = Quotas::default();
        let of = (
            Quota {
                max_live_bytes: 100,
                when_full: WhenFull::Refuse,
            },
            1,
        );
        for name in ["limited", "in flight", "dropped"] {
            quotas.of(name).open(of, 0, 10);
        }
        let mut charge = Charge::default();
        let allowance = quotas.of("in flight");
        assert!(allowance.take(of, 4) && !allowance.take(of, 7));
        charge.add(allowance, 4);
        let names = || {
            let mut names: Vec<_> = quotas.lock().keys().cloned().collect();
            names.sort();
            names
        };
        quotas.forget(|name| name == "limited");
        assert_eq!(names(), ["in flight", "limited"]);
        assert_eq!(quotas.of("in flight").close(), 4);
        drop(charge);
        assert_eq!(quotas.of("in flight").close(), 0);
        quotas.forget(|name| name == "limited");
        assert_eq!(names(), ["limited"]);
        assert!(quotas.of("limited").take(of, 10), "its slack stays");
    }
}
