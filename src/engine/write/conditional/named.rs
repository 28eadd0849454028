//! Operations of a batch that go by a container's name: making one, and dropping one.

use super::Plan;
use crate::base::{ContainerId, Result};
use crate::data::batch::Op;
use crate::data::new_container::NewContainer;
use crate::engine::options::OnExisting;
use crate::engine::write::differing::{Named, other_name};
use crate::engine::write::writes::check_size;

impl<'a> Plan<'a> {
    /// The operation with the container that its name goes to.
    pub(super) fn find_named(&mut self, op: Op<'a>, at: usize) -> Result<Named<'a>> {
        let name = match op {
            Op::Create { new, .. } => {
                let new = NewContainer::decode(new);
                new.expect("a batch was encoded by this program").name
            }
            Op::Drop { name, .. } => name,
            op => return Ok(Named::Write(op)),
        };
        let there = match self.names.get(name) {
            Some(there) => *there,
            None => {
                let state = self.engine.containers.get(name);
                let there = state.map(|state| state.id());
                self.observed.names.push((name.to_owned(), there));
                there
            }
        };
        let (op, is_now) = match (op, there) {
            (Op::Create { new, .. }, None) => {
                let container = self.engine.catalog.new_container();
                (Op::Create { container, new }, Some(container))
            }
            (Op::Drop { name, .. }, Some(container)) => {
                self.dropped.insert(container);
                (Op::Drop { container, name }, None)
            }
            (Op::Create { .. }, Some(container)) => {
                return self.find_existing(name, container, at);
            }
            _ if self.writes.is_skipped_on_miss(at) => return Ok(Named::Skipped),
            _ => return Err(other_name(name)),
        };
        self.names.insert(name, is_now);
        Ok(Named::Write(op))
    }

    /// For a container to be made whose name is that of this one.
    fn find_existing(
        &mut self,
        name: &str,
        container: ContainerId,
        at: usize,
    ) -> Result<Named<'a>> {
        let options = self.writes.options_of(at);
        let may_change = options.on_existing() == OnExisting::Change;
        let is_skipped = self.writes.is_skipped_on_miss(at) && !may_change;
        if is_skipped || options.on_existing() == OnExisting::Keep {
            return Ok(Named::Skipped);
        }
        let mut names = self.observed.names.iter();
        if !names.any(|(_, there)| *there == Some(container)) {
            // The batch itself has made it.
            return Err(other_name(name));
        }
        let mut there = self.writes.states().iter();
        let is_known = !may_change || there.any(|state| state.id() == container);
        let state = self.engine.containers.get(name);
        let Some(state) = state.filter(|state| is_known && state.id() == container) else {
            self.is_outdated = true;
            return Ok(Named::Skipped);
        };
        let is_changed = may_change && self.observed.changes_state;
        let differing = self.engine.differing(&state, options, is_changed)?;
        if may_change && !differing.is_fixed {
            let mut ops = differing.ops.into_iter();
            ops.try_for_each(|op| self.add(op, None, None))?;
            return Ok(Named::Changed);
        }
        Err(match differing.is_empty() {
            true => other_name(name),
            false => differing.refused(),
        })
    }

    /// Adds the making of a container to what the log will hold.
    pub(super) fn add_new(&mut self, container: ContainerId, new: &[u8], at: usize) -> Result<()> {
        let mut new = NewContainer::decode(new).expect("a batch was encoded by this program");
        if self.writes.options_of(at).asked_compression().is_none() {
            new.compression = self.engine.options.compression;
        }
        let compression = new.compression;
        compression.check(|| format!("compression {compression:?}"))?;
        let new = new.encode();
        let payload = self.payload.as_mut().expect("names are filled in");
        Op::Create {
            container,
            new: &new,
        }
        .encode(payload);
        (self.observed.changes_state, self.len) = (true, self.len + 1);
        check_size(payload)
    }
}
