//! Transactions: reads of one moment, and writes that are done only if all that was read still stands when they are.
//!
//! ```text
//! get, range ──> own writes ── not written ──> the view at the transaction's moment, and noted in the read set
//! commit     ──> read set and writes, in one op of the log (machine/): read again at the entry's time
//! ```
//!
//! Invariant: the read set has every key that was asked for, with the version shown or none, and every range as far as it was
//! consumed, with the digest of what it showed.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::time::SystemTime;

use bytes::Bytes;
use ebbtide::{KeyBounds, Ttl, Version};
use ebbtide_openraft::View;

use super::container::{bounds, life};
use super::{Container, Error, Item};
use crate::machine::MOST_READ;
use crate::machine::body::{Act, Body, KeyRead, RangeRead, ReadSet, When, Write, moment};
use crate::machine::digest::Digest;

/// Reads and writes of a closure that [`Node::transaction`](crate::Node::transaction) runs: serializable, with the ends of items. All
/// reads are of one moment, and see the transaction's own writes. It reads up to 10 000 items.
///
/// Calls wait for files, and are for the thread that the closure runs on.
pub struct Transaction {
    view: View,
    reads: ReadSet,
    read: usize,
    writes: BTreeMap<(String, Bytes), Act>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("now", &self.now())
            .field("read", &self.read)
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}

/// The item as an own write leaves it; its version and its end are not known yet.
fn own(key: &Bytes, act: &Act) -> Option<Item> {
    match act {
        Act::Put(value, _) => Some(Item {
            key: key.clone(),
            value: value.clone(),
            version: Version::start(),
            expires_at_ms: None,
        }),
        _ => None,
    }
}

impl Transaction {
    pub(crate) fn new(view: View) -> Transaction {
        Transaction {
            view,
            reads: ReadSet::default(),
            read: 0,
            writes: BTreeMap::new(),
        }
    }

    /// The moment by which its reads are judged.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        moment(self.view.at_ms)
    }

    fn note_read(&mut self, items: usize) -> Result<(), Error> {
        self.read += items;
        match self.read <= MOST_READ {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "a transaction reads up to {MOST_READ} items"
            ))),
        }
    }

    fn container(&self, container: &Container) -> Result<ebbtide::View, Error> {
        let name = container.name();
        self.view.container(name).map_err(|error| match error {
            ebbtide::Error::InvalidArgument { .. } => Error::NoContainer(name.to_owned()),
            error => error.into(),
        })
    }

    /// The item of a key, unless it has ended. One that the transaction has put has the version [`Version::start`] and no end.
    ///
    /// # Errors
    /// [`Error::NoContainer`], more reads than allowed, and the engine's.
    pub fn item(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Item>, Error> {
        let key = Bytes::copy_from_slice(key.as_ref());
        let place = (container.name().to_owned(), key.clone());
        if let Some(act) = self.writes.get(&place) {
            return Ok(own(&key, act));
        }
        self.note_read(1)?;
        let found = self.container(container)?.item(&key)?;
        self.reads.keys.push(KeyRead {
            container: place.0,
            key,
            version: found.as_ref().map(|item| item.version().as_u64()),
        });
        Ok(found.map(Item::of))
    }

    /// The value of a key, unless it has ended.
    ///
    /// # Errors
    /// As of [`Transaction::item`].
    pub fn get(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>, Error> {
        Ok(self.item(container, key)?.map(Item::into_value))
    }

    /// The first items of a range, up to so many, in the order of keys. An item that comes into what was read, or ends in it,
    /// before the transaction is done is a conflict.
    ///
    /// # Errors
    /// As of [`Transaction::item`].
    pub fn range(
        &mut self,
        container: &Container,
        range: impl KeyBounds,
        most: usize,
    ) -> Result<Vec<Item>, Error> {
        let (start, end) = bounds(&range);
        let name = container.name().to_owned();
        if most == 0 {
            return Ok(vec![]);
        }
        let stored = self.container(container)?;
        let stored = stored.range((start.clone(), end.clone()));
        let mut own = self.own_of(&name, &start, &end).into_iter().peekable();
        let (mut shown, mut digest, mut items) = (vec![], Digest::new(), 0);
        'stored: for item in stored {
            let item = item?;
            while let Some((_, own)) = own.next_if(|(key, _)| key[..] < *item.key()) {
                shown.extend(own);
                if shown.len() == most {
                    break 'stored;
                }
            }
            digest.add(item.key(), item.version().as_u64());
            items += 1;
            match own.next_if(|(key, _)| key[..] == *item.key()) {
                Some((_, own)) => shown.extend(own),
                None => shown.push(Item::of(item)),
            }
            if shown.len() == most || items > MOST_READ {
                break;
            }
        }
        // Own writes behind all that is stored.
        while shown.len() < most
            && let Some((_, own)) = own.next()
        {
            shown.extend(own);
        }
        // The part that was consumed ends with the last item shown, or with the range.
        let end = match shown.last().filter(|_| shown.len() == most) {
            Some(last) => Bound::Included(last.key.clone()),
            None => end,
        };
        self.note_read(items)?;
        self.reads.ranges.push(RangeRead {
            container: name,
            start,
            end,
            items: items as u64,
            digest: digest.finish(),
        });
        Ok(shown)
    }

    /// Keys of a range that the transaction has written, with the items that are there then.
    fn own_of(
        &self,
        container: &str,
        start: &Bound<Bytes>,
        end: &Bound<Bytes>,
    ) -> Vec<(Bytes, Option<Item>)> {
        let limits = (as_slice(start), as_slice(end));
        let is_here =
            |of: &str, key: &[u8]| of == container && RangeBounds::<[u8]>::contains(&limits, key);
        let own_writes = self.writes.iter();
        let own_writes = own_writes.filter(|((of, key), _)| is_here(of, key));
        own_writes
            .map(|((_, key), act)| (key.clone(), own(key, act)))
            .collect()
    }

    /// Stores an item, whose end is the container's default.
    pub fn put(&mut self, container: &Container, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        let place = (
            container.name().to_owned(),
            Bytes::copy_from_slice(key.as_ref()),
        );
        let act = Act::Put(value.into(), crate::machine::body::Life::Inherit);
        self.writes.insert(place, act);
    }

    /// Stores an item with a ttl of its own, which counts from when the transaction is done.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a ttl that is of one database ([`Ttl::Like`]).
    pub fn put_with_ttl(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
    ) -> Result<(), Error> {
        let place = (
            container.name().to_owned(),
            Bytes::copy_from_slice(key.as_ref()),
        );
        self.writes
            .insert(place, Act::Put(value.into(), life(ttl.into())?));
        Ok(())
    }

    /// Removes an item, whether it is there or not.
    pub fn delete(&mut self, container: &Container, key: impl AsRef<[u8]>) {
        let place = (
            container.name().to_owned(),
            Bytes::copy_from_slice(key.as_ref()),
        );
        self.writes.insert(place, Act::Delete);
    }

    pub(crate) fn at_ms(&self) -> u64 {
        self.view.at_ms
    }

    /// The op that commits it; `None`: there is nothing to write.
    pub(crate) fn into_body(self) -> Option<Body> {
        if self.writes.is_empty() {
            return None;
        }
        let write = |((container, key), act)| Write {
            container,
            key,
            when: When::Always,
            act,
        };
        Some(Body::Transaction {
            reads: self.reads,
            writes: self.writes.into_iter().map(write).collect(),
        })
    }
}

fn as_slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}
