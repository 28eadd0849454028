//! Commands to whole containers.
//!
//! Invariant: an entry with a command has no other op, and its own reads go on showing the state before it: no op reads what a
//! command of its own entry has changed. Each command that is kept is one write of the batch, as versions count them.

use std::ops::Bound;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ebbtide::{Container, DefaultTtl, KeyBounds, Quota, Ttl};

use super::{Step, StepError, Write};
use crate::checks::{MOST_KEY_BYTES, check_name, check_ttl};
use crate::facts::{FACTS, quota_key};

/// The largest quota, as the engine has it.
const MOST_LIVE_BYTES: u64 = 1 << 62;

/// Whether no key is between these bounds.
fn is_empty(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    let behind = |key: &Vec<u8>| [key, &[0][..]].concat();
    let from = match start {
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => vec![],
    };
    match end {
        Bound::Included(key) => from >= behind(key),
        Bound::Excluded(key) => from >= *key,
        Bound::Unbounded => false,
    }
}

/// Commands to whole containers, of an op that is alone in its entry. The batch of such an entry is synced.
pub struct Commands<'s, 'a>(pub(super) &'s mut Step<'a>);

impl Commands<'_, '_> {
    fn push(
        &mut self,
        container: &str,
        write: impl FnOnce(Container) -> Write,
    ) -> Result<(), StepError> {
        let (_, container) = self.0.writable(container)?;
        self.0.writes.push(write(container));
        Ok(())
    }

    /// Deletes every item of a range; a bound of over 65 535 bytes refuses the op.
    ///
    /// # Errors
    /// As of [`Step::get`], as with all commands.
    pub fn delete_range(
        &mut self,
        container: &str,
        range: impl KeyBounds,
    ) -> Result<(), StepError> {
        let (start, end) = (
            range.start().map(<[u8]>::to_vec),
            range.end().map(<[u8]>::to_vec),
        );
        for bound in [&start, &end] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound
                && key.len() > MOST_KEY_BYTES
            {
                return Err(StepError::refuse(format!("a bound of {} bytes", key.len())));
            }
        }
        if is_empty(&start, &end) {
            // The engine takes it for no write.
            return self.0.writable(container).map(drop);
        }
        self.push(container, |of| Write::DeleteRange(of, start, end))
    }

    /// Changes the default ttl; one out of range refuses the op.
    pub fn set_default_ttl(
        &mut self,
        container: &str,
        default: DefaultTtl,
    ) -> Result<(), StepError> {
        if let DefaultTtl::After(lifetime) = default {
            check_ttl(Ttl::After(lifetime))?;
        }
        self.push(container, |of| Write::Default(of, default))
    }

    /// Expires whatever would end before this moment: [`Container::expire_before`].
    pub fn expire_before(&mut self, container: &str, moment: SystemTime) -> Result<(), StepError> {
        self.push(container, |of| Write::ExpireBefore(of, moment))
    }

    /// Expires whatever was written before this moment: [`Container::expire_written_before`].
    pub fn expire_written_before(
        &mut self,
        container: &str,
        moment: SystemTime,
    ) -> Result<(), StepError> {
        self.push(container, |of| Write::ExpireWrittenBefore(of, moment))
    }

    /// Expires every item.
    pub fn expire_all(&mut self, container: &str) -> Result<(), StepError> {
        self.push(container, Write::ExpireAll)
    }

    /// Changes how long ended items are kept for readers of expirations: [`Container::set_keep_expired`].
    pub fn set_keep_expired(&mut self, container: &str, keep: Duration) -> Result<(), StepError> {
        self.push(container, |of| Write::KeepExpired(of, keep))
    }

    /// Sets the quota of a container, or lifts it: a fact, which all replicas know. Apply does not go by it, for it would ask
    /// estimates: the node that leads refuses, or expires, before it proposes. A quota out of range refuses the op.
    pub fn set_quota(&mut self, container: &str, quota: Option<Quota>) -> Result<(), StepError> {
        self.0.writable(container)?;
        self.write_quota(container, quota)
    }

    fn write_quota(&mut self, container: &str, quota: Option<Quota>) -> Result<(), StepError> {
        let (key, (_, facts)) = (quota_key(container), self.0.container(FACTS)?);
        let Some(quota) = quota else {
            let is_this = |write: &Write| match write {
                Write::Put(to, of, ..) => to.name() == FACTS && *of == key,
                _ => false,
            };
            if self.0.open.quotas().contains_key(container) || self.0.writes.iter().any(is_this) {
                self.0.writes.push(Write::Delete(facts, key));
            }
            return Ok(());
        };
        let bytes = quota.max_live_bytes;
        if !(1..=MOST_LIVE_BYTES).contains(&bytes) {
            return Err(StepError::refuse(format!(
                "a quota of {bytes} bytes: it is from 1 to 2^62"
            )));
        }
        let quota = postcard::to_allocvec(&quota);
        let quota = quota.map_err(|error| StepError::refuse(error.to_string()))?;
        let put = Write::Put(facts, key, Bytes::from(quota), Ttl::Never);
        self.0.writes.push(put);
        Ok(())
    }

    /// Begins a later format of the log, which holds for all entries after this one. `members_at`: the index of the entry that made the
    /// members who have said that they speak it, as openraft's membership has it, or 0. `false`, and nothing is changed: the log has
    /// this format or a later one, or members have changed since.
    pub fn raise_format(&mut self, format: u32, members_at: u64) -> bool {
        let place = self.0.place;
        let is_raised = format > place.format && members_at == place.members_at;
        if is_raised {
            self.0.format = format;
        }
        is_raised
    }

    /// Makes a container, which ops of later entries can read and write; `false`: there is one of this name. A name or a ttl out of
    /// range, and a name that begins with `ebbtide-openraft`, refuse the op.
    pub fn create_container(&mut self, name: &str, default: DefaultTtl) -> Result<bool, StepError> {
        self.create_container_with(name, default, Duration::ZERO, None)
    }

    /// The same, with how long ended items are kept, and a quota.
    pub fn create_container_with(
        &mut self,
        name: &str,
        default: DefaultTtl,
        keep_expired: Duration,
        quota: Option<Quota>,
    ) -> Result<bool, StepError> {
        check_name(name)?;
        if let DefaultTtl::After(lifetime) = default {
            check_ttl(Ttl::After(lifetime))?;
        }
        let is_new = !self.0.has_container(name);
        if is_new {
            let create = Write::Create(name.to_owned(), default, keep_expired);
            self.0.writes.push(create);
            if quota.is_some() {
                self.write_quota(name, quota)?;
            }
        }
        Ok(is_new)
    }

    /// Drops a container with everything in it; `false`: there is none of this name. Do not drop one that the machine has named. A
    /// name that begins with `ebbtide-openraft` refuses the op.
    pub fn drop_container(&mut self, name: &str) -> Result<bool, StepError> {
        check_name(name)?;
        let is_there = self.0.has_container(name);
        if is_there {
            self.write_quota(name, None)?;
            self.0.writes.push(Write::Drop(name.to_owned()));
        }
        Ok(is_there)
    }
}
