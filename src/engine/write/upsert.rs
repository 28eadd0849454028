//! Puts that tell the version which they replace: replaced.rs says how. Where that does not do, the item is read first, and put if
//! it is as it was (update.rs): under [`Durability::Sync`], whose earlier writes may not be seen yet; for a ttl that depends on what
//! is there; where the stamp alone is no judge, for time has gone back or settings are being changed.

use std::sync::Arc;

use crate::base::{Patience, Result, Seq, Wait};
use crate::data::batch::{Op, WriteTtl};
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::commit::Begun;
use crate::engine::write::update::{Decide, NewValue, UpdateAction};
use crate::engine::write::writes::weight;

impl Engine {
    /// Stores a value whatever is there, and tells the version of the live item that it has replaced. After an error of reading
    /// that version the value is stored, unless it was read first.
    #[inline(always)]
    pub fn upsert<P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        value: &[u8],
        ttl: WriteTtl,
    ) -> Result<(Begun, Option<Seq>), P::Failure> {
        match P::WAITS {
            true => Ok(self.upsert_waiting(state, key, value, ttl)?),
            false => self.upsert_by::<P>(state, key, value, ttl),
        }
    }

    /// Compiled here; a generic function is compiled with its caller's crate, where those of this one are not inlined.
    fn upsert_waiting(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        value: &[u8],
        ttl: WriteTtl,
    ) -> Result<(Begun, Option<Seq>)> {
        self.upsert_by::<Wait>(state, key, value, ttl)
    }

    #[inline(always)]
    fn upsert_by<P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        value: &[u8],
        ttl: WriteTtl,
    ) -> Result<(Begun, Option<Seq>), P::Failure> {
        let depends = matches!(ttl, WriteTtl::Keep | WriteTtl::Like(_));
        if !depends && self.options.durability == Durability::Buffered {
            let container = state.id();
            let put = Op::Put {
                container,
                ttl,
                key,
                value,
            };
            self.admit::<P>(state, weight(&put))?;
            let charge = self.charge_one::<P>(state, &put)?;
            let told = self.prepare_one(state, &put, charge, |prepared| {
                self.commit_telling::<P>(prepared)
            })?;
            if let Some((begun, replaced)) = told {
                return Ok((begun, replaced.live::<P>(self, key)?));
            }
        }
        let mut before = None;
        let mut put = |found| {
            before = found;
            UpdateAction::Put(NewValue::Lent(value), ttl)
        };
        let begun = self.update::<P>(state, key, Decide::Version(&mut put))?;
        Ok((begun.expect("a put is decided"), before))
    }
}
