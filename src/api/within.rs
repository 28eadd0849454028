//! A container in a transaction: it shows what the transaction has written, and what is written waits in the transaction.
//!
//! Invariant: one call at a time has the lock of the transaction's state. A closure of the caller's runs without it, and may
//! use the transaction.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::api::arguments::{
    KeyBounds, all_keys, check_key, check_value_len, key_range, prefix_range,
};
use crate::api::container::Container;
use crate::api::iter::Keys;
use crate::api::read::drawn_below;
use crate::api::writing::Writes;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{Error, Result, Seq};
use crate::data::batch::{KeyRange, Op};
use crate::data::item::{Item, Value};
use crate::data::write::Written;
use crate::engine::{ContainerState, Handle, TransactionIter, TransactionState, UpdateAction};
use crate::expiry::Expire;

/// See the file's head. The methods without documentation are those of a container.
#[derive(Clone, Copy)]
pub struct Within<'t, 'c> {
    /// The transaction's database.
    pub engine: &'t Handle,
    /// The state of the transaction.
    pub transaction: &'t Mutex<TransactionState>,
    /// Of any database: one of another is refused.
    pub container: &'c Container,
}

impl<'t, 'c> Within<'t, 'c> {
    #[inline(always)]
    fn check(&self) -> Result<()> {
        match Arc::ptr_eq(self.engine, self.container.engine()) {
            true => Ok(()),
            false => Err(Error::invalid(
                "transaction",
                "over two databases",
                "containers of one database",
            )),
        }
    }

    #[inline(always)]
    fn lock(&self) -> Result<MutexGuard<'t, TransactionState>> {
        self.check()?;
        Ok(self.transaction.lock())
    }

    #[cfg(feature = "typed")]
    pub fn name(&self) -> &'c str {
        self.container.name()
    }

    #[inline(always)]
    pub fn item(&self, key: &[u8]) -> Result<Option<Item>> {
        check_key(key)?;
        let mut state = self.lock()?;
        Ok(state.item(self.engine, self.state(), key)?.0)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.item(key)?.map(Item::into_value))
    }

    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        let keys = keys.into_iter();
        keys.map(|key| self.get(key.as_ref())).collect()
    }

    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.item(key)?.is_some())
    }

    /// The items of a range, from both ends.
    pub fn scan(&self, range: KeyRange) -> TransactionIter<'t> {
        let state = self.check().map(|()| self.state().clone());
        TransactionIter::new(self.engine, self.transaction, state, range)
    }

    pub fn iter(&self) -> TransactionIter<'t> {
        self.scan(all_keys())
    }

    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TransactionIter<'t> {
        self.scan(prefix_range(prefix.as_ref()))
    }

    pub fn range(&self, range: impl KeyBounds) -> TransactionIter<'t> {
        self.scan(key_range(range))
    }

    pub fn keys(&self, range: impl KeyBounds) -> Keys<TransactionIter<'t>> {
        let items = self.range(range);
        Keys { items }
    }

    pub fn first(&self) -> Result<Option<Item>> {
        self.iter().next().transpose()
    }

    pub fn last(&self) -> Result<Option<Item>> {
        self.scan(all_keys()).next_back().transpose()
    }

    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }

    pub fn count(&self, range: impl KeyBounds) -> Result<u64> {
        self.range(range)
            .try_fold(0, |items, item| item.map(|_| items + 1))
    }

    pub fn count_up_to(&self, range: impl KeyBounds, most: u64) -> u64 {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let items = self.range(range).take(most);
        items.take_while(Result::is_ok).count() as u64
    }

    pub fn random(&self) -> Result<Option<Item>> {
        let mut number = RandomState::new().hash_one(0);
        let mut chance = |below| drawn_below(&mut number, below);
        {
            let mut state = self.lock()?;
            if !state.has_written(self.state())
                && let Some(item) = state.draw(self.engine, self.state(), &mut chance)?
            {
                return Ok(Some(item));
            }
        }
        let (mut chosen, mut items) = (None, 0);
        for item in self.iter() {
            let item = item?;
            items += 1;
            if chance(items) == 0 {
                chosen = Some(item);
            }
        }
        Ok(chosen)
    }

    pub fn expire_all(&self) -> Result<()> {
        let (container, what) = (self.state().id(), Expire::All);
        self.write_one(Op::Expire { container, what })
    }

    /// The answer to a write: it counts as written at the transaction's `now`, above all others.
    fn written(state: &TransactionState, is_written: bool) -> Option<Written> {
        is_written.then(|| Written::new(Seq::MAX, state.now()))
    }
}

impl Writes for Within<'_, '_> {
    type Failure = Error;

    fn state(&self) -> &Arc<ContainerState> {
        self.container.state()
    }

    fn check_open(&self) -> Result<()> {
        let state = self.lock()?;
        state.check(self.engine, self.state())
    }

    #[inline]
    fn write_one(&self, op: Op<'_>) -> Result<()> {
        let mut state = self.lock()?;
        state.write(self.engine, self.state(), op)
    }

    fn conditionally<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        mut decide: impl FnMut(Option<&Item>) -> UpdateAction<'v>,
    ) -> Result<Option<Written>> {
        check_key(key)?;
        check_value_len(value_len)?;
        let mut state = self.lock()?;
        let found = state.item(self.engine, self.state(), key)?;
        let action = decide(found.0.as_ref());
        let is_written = state.act(self.engine, self.state(), key, &found, action)?;
        Ok(Within::written(&state, is_written))
    }

    fn by_version<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        mut decide: impl FnMut(Option<Seq>) -> UpdateAction<'v>,
    ) -> Result<Option<Written>> {
        self.conditionally(key, value_len, |found| {
            decide(found.map(|item| item.version().seq()))
        })
    }

    /// Begins anew where another thread writes the key in this transaction meanwhile.
    fn decide<'v>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Item>) -> UpdateAction<'v>,
    ) -> Result<Option<Written>> {
        check_key(key)?;
        loop {
            let (own, found) = {
                let mut state = self.lock()?;
                let own = state.own_write(self.state(), key);
                (own, state.item(self.engine, self.state(), key)?)
            };
            let action = decide(found.0.as_ref());
            let mut state = self.lock()?;
            if state.own_write(self.state(), key) == own {
                let is_written = state.act(self.engine, self.state(), key, &found, action)?;
                return Ok(Within::written(&state, is_written));
            }
        }
    }

    fn decide_by_version<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        mut decide: impl FnMut(Option<Seq>) -> UpdateAction<'v>,
    ) -> Result<Option<Written>> {
        check_value_len(value_len)?;
        self.decide(key, |found| decide(found.map(|item| item.version().seq())))
    }

    fn touch_if(
        &self,
        key: &[u8],
        mut accepts: impl FnMut(Option<&Item>) -> bool,
    ) -> Result<Option<(Item, Written)>> {
        check_key(key)?;
        let mut state = self.lock()?;
        let (found, _) = state.item(self.engine, self.state(), key)?;
        if !accepts(found.as_ref()) {
            return Ok(None);
        }
        let is_written = state.touch(self.engine, self.state(), key)?;
        Ok(found.zip(Within::written(&state, is_written)))
    }
}
