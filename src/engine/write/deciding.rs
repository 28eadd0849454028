//! Keys on which closures of updates are deciding, on this thread.
//!
//! ```text
//! update k ── its closure is shown k ── and writes k itself ──> an error, of that write and of the update
//!                                    └─ and answers ──────────> k is written, if it is as it was shown
//! ```
//!
//! Without this an update would find its key changed by its own closure, call that again, and never end.
//!
//! Invariant: a key is here while a closure that decides on it runs on this thread, and no longer.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::data::batch::{KeyRange, Op};
use crate::engine::parts::state::ContainerState;
use crate::engine::write::prepared::Prepared;

struct Decided {
    /// The container's, which its update holds: it is compared, and not used.
    state: *const ContainerState,
    key: Vec<u8>,
    /// Whether a write of it was refused.
    is_refused: bool,
}

thread_local! {
    /// How many there are. Mostly none: then no write looks further.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// Behind those, memory for the next.
    static DECIDED: RefCell<Vec<Decided>> = const { RefCell::new(vec![]) };
}

/// Removes the last one when it is dropped, after a panic too.
struct Running;

impl Running {
    fn begin(state: &Arc<ContainerState>, key: &[u8]) -> Running {
        DECIDED.with_borrow_mut(|decided| {
            let count = COUNT.get();
            if decided.len() == count {
                decided.push(Decided {
                    state: std::ptr::null(),
                    key: vec![],
                    is_refused: false,
                });
            }
            let next = &mut decided[count];
            next.state = Arc::as_ptr(state);
            next.key.clear();
            next.key.extend_from_slice(key);
            next.is_refused = false;
            COUNT.set(count + 1);
        });
        Running
    }

    fn is_refused(&self) -> bool {
        let last = COUNT.get() - 1;
        DECIDED.with_borrow(|decided| decided[last].is_refused)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        COUNT.set(COUNT.get() - 1);
    }
}

/// Has a closure decide on a key. Fails if it has tried to write that key itself.
pub fn deciding<T>(
    state: &Arc<ContainerState>,
    key: &[u8],
    decide: impl FnOnce() -> T,
) -> Result<T> {
    let running = Running::begin(state, key);
    let decided = decide();
    match running.is_refused() {
        true => Err(refusal(state)),
        false => Ok(decided),
    }
}

/// Fails if one of these writes is of a key on which a closure decides that makes them.
#[inline]
pub(in crate::engine) fn check_decided(writes: &Prepared<'_>) -> Result<()> {
    match COUNT.get() {
        0 => Ok(()),
        _ => check_all(writes),
    }
}

#[cold]
fn check_all(writes: &Prepared<'_>) -> Result<()> {
    let mut ops = writes.decoded();
    ops.try_for_each(|op| {
        let mut states = writes.states().iter();
        let state = states.find(|state| state.id() == op.container());
        state.map_or(Ok(()), |state| check_op(state, &op))
    })
}

/// The same of one write.
#[inline]
pub(in crate::engine) fn check_op(state: &Arc<ContainerState>, op: &Op<'_>) -> Result<()> {
    check_keys(state, |key| match *op {
        Op::Put { key: written, .. } | Op::Delete { key: written, .. } => written == key,
        Op::DeleteRange { from, to, .. } => KeyRange::of_bounds(from, to).contains(key),
        // An update begins anew after each change of the settings.
        _ => op.of_settings().is_some(),
    })
}

/// The same of a write of the keys for which this is true.
#[inline]
pub(in crate::engine) fn check_keys(
    state: &Arc<ContainerState>,
    is_written: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    if COUNT.get() == 0 {
        return Ok(());
    }
    DECIDED.with_borrow_mut(|decided| {
        let mut decided = decided[..COUNT.get()].iter_mut();
        let same = |one: &&mut Decided| one.state == Arc::as_ptr(state) && is_written(&one.key);
        match decided.find(same) {
            Some(one) => {
                one.is_refused = true;
                Err(refusal(state))
            }
            None => Ok(()),
        }
    })
}

fn refusal(state: &ContainerState) -> Error {
    let given = format!(
        "by the closure that decides on its key, in container {:?},",
        state.name()
    );
    Error::invalid(
        "write",
        given,
        "the closure answers what is to be written, or whether",
    )
}
