//! Options for a container that exists: what of it is set otherwise, and the operations that set it so.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Patience, Result, Wait};
use crate::data::batch::Op;
use crate::data::write::Outcome;
use crate::engine::Engine;
use crate::engine::options::{ContainerOptions, OnExisting};
use crate::engine::parts::state::ContainerState;
use crate::engine::write::commit::Begun;
use crate::engine::write::writes::Writes;
use crate::expiry::DefaultMillis;
use crate::values::Quota;

/// A write that may go by a container's name.
pub(in crate::engine) enum Named<'a> {
    /// It is written.
    Write(Op<'a>),
    /// The container is there, and the batch changes its settings.
    Changed,
    /// It is left out.
    Skipped,
}

/// The settings of a container that are other than options say.
pub(in crate::engine) struct Differing {
    container: String,
    /// As it is set, and as the options say: of each setting that differs.
    found: Vec<String>,
    asked: Vec<String>,
    /// The operations that set it as the options say.
    pub ops: Vec<Op<'static>>,
    /// Whether something differs that cannot be changed.
    pub is_fixed: bool,
}

impl Differing {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// The error that shows both.
    pub fn refused(self) -> Error {
        Error::Differs {
            container: self.container,
            found: self.found.join(", "),
            asked: self.asked.join(", "),
        }
    }

    fn note(&mut self, name: &str, found: &dyn fmt::Debug, asked: &dyn fmt::Debug) {
        self.found.push(format!("{name}({found:?})"));
        self.asked.push(format!("{name}({asked:?})"));
    }
}

/// The error of a write that goes by a name which is not as it asks.
pub(in crate::engine) fn other_name(name: &str) -> Error {
    Error::Conflict {
        container: name.to_owned(),
        key: vec![],
    }
}

fn note_quota(quota: Option<Quota>) -> String {
    quota.map_or("no quota".to_owned(), |quota| {
        let (bytes, when_full) = (quota.max_live_bytes, quota.when_full);
        format!("max_live_bytes({bytes}), when_full({when_full:?})")
    })
}

impl Engine {
    /// The settings of a container that are other than options say. Where the batch has changed it itself, all that they
    /// say counts as such.
    pub(in crate::engine) fn differing(
        &self,
        state: &ContainerState,
        options: &ContainerOptions,
        is_changed: bool,
    ) -> Result<Differing> {
        let container = state.id();
        let mut differing = Differing {
            container: state.name().to_owned(),
            found: vec![],
            asked: vec![],
            ops: vec![],
            is_fixed: false,
        };
        if let Some(asked) = options.asked_default_ttl() {
            let (found, default) = (state.settings().default, DefaultMillis::from_public(asked)?);
            if found != default || is_changed {
                differing.note("default_ttl", &found.to_public(), &asked);
                differing.ops.push(Op::SetDefault { container, default });
            }
        }
        let compression = options
            .asked_compression()
            .filter(|asked| *asked != state.compression());
        if let Some(asked) = compression {
            differing.note("compression", &state.compression(), &asked);
            differing.is_fixed = true;
        }
        let found = state.feeds_keep();
        let keep = options.asked_keep_expired();
        if let Some(asked) = keep.filter(|asked| *asked != found || is_changed) {
            let of = Duration::from_millis;
            differing.note("keep_expired", &of(found), &of(asked));
            differing.ops.push(self.keep_expired(state, asked));
        }
        let found = self.quota(state);
        let quota = options.quota_over(found);
        quota.iter().try_for_each(Quota::check)?;
        if quota != found || is_changed && options.says_quota() {
            differing.found.push(note_quota(found));
            differing.asked.push(note_quota(quota));
            differing.ops.push(Op::SetQuota { container, quota });
        }
        Ok(differing)
    }

    /// The operation that sets how long what has ended is kept, in milliseconds.
    pub fn keep_expired(&self, state: &ContainerState, millis: u64) -> Op<'static> {
        let given = self.given_time.as_ref();
        let ends_dropped = given.map(|given| self.given_ends_dropped(given, state));
        Op::KeepExpired {
            container: state.id(),
            millis,
            ends_dropped: ends_dropped.unwrap_or_default(),
        }
    }

    /// Sees to it that a container is as options say, by one write, if they say that it may be changed.
    pub(in crate::engine) fn bring_to(
        &self,
        state: &Arc<ContainerState>,
        options: &ContainerOptions,
    ) -> Result<()> {
        if options.on_existing() == OnExisting::Keep {
            return Ok(());
        }
        let differing = self.differing(state, options, false)?;
        if differing.is_empty() {
            return Ok(());
        }
        if differing.is_fixed || options.on_existing() == OnExisting::Refuse {
            return Err(differing.refused());
        }
        self.check_writable()?;
        let mut writes = Writes::default();
        for op in differing.ops {
            writes.add(state, op)?;
        }
        let _known = state.allowance().known();
        self.write_conditional::<Wait>(&writes).map(drop)
    }

    /// Writes a batch that changes the settings of containers by their names, which come behind so many containers of its
    /// own. None: something it relies on has changed meanwhile.
    pub(in crate::engine) fn try_by_name<P: Patience>(
        &self,
        writes: &Writes,
        own: usize,
    ) -> Result<Option<(Begun, Vec<Outcome>)>, P::Failure> {
        let done = self.try_conditional::<P>(writes);
        let mut named = writes.states()[own..].iter();
        if done.is_err() && named.any(|state| state.check().is_err()) {
            // It was dropped, and its name is another's or nobody's.
            return Ok(None);
        }
        if matches!(done, Ok(Some(_))) {
            // Writers that knew the quotas from before may have left slack by those.
            for state in writes.states() {
                let _known = state.allowance().known();
                state.allowance().close();
            }
        }
        done
    }
}
