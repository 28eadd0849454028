//! The change feed, and the ends of documents.
//!
//! A page of the change feed: a pass over what was written since its beginning, which goes by keys, keeps the keys of the
//! lowest versions; then each is read, and told if it has that version still. One that was written again since has a version
//! above all of the pass, and is told then; one that has expired or was deleted is not told. A pass keeps more than a page
//! needs, for the pages that follow it.

use std::collections::BTreeSet;
use std::time::SystemTime;

use ebbtide::{Change, Expiration, ExpirationCause, ExpiryCursor, Version};

use crate::container::Container;
use crate::document::{Document, id_in};
use crate::error::Result;
use crate::key_range::KeyRange;
use crate::last_pass::{ChangeStart, ChangeStartAt, Rest};
use crate::partition_key::ItemKey;

/// The keys that a pass keeps, if a page is no larger: some megabytes.
const KEPT: usize = 16_384;
/// A page ends with the document by which it has this many bytes.
const PAGE_BYTES: usize = 4 << 20;

/// A page of the latest versions of documents, in the order of versions.
#[derive(Clone, Debug)]
pub struct ChangeFeedPage {
    /// The documents; none where there is nothing more now.
    pub documents: Vec<Document>,
    /// All up to this was told: the next page goes on [`After`](ChangeStartAt::After) it.
    pub version: Version,
    /// Whether there may be more now.
    pub has_more: bool,
}

/// A document that has expired.
#[derive(Clone, Debug)]
pub struct End {
    /// As it was.
    pub document: Document,
    /// When it ended.
    pub expired_at: SystemTime,
    /// By its ttl or a default, and not by a command of the engine.
    pub time_to_live_expired: bool,
}

/// A page of ends, in their order.
#[derive(Clone, Debug)]
pub struct EndsPage {
    /// The ends.
    pub ends: Vec<End>,
    /// Where the next page goes on: plain data.
    pub cursor: ExpiryCursor,
    /// Whether there may be more now.
    pub has_more: bool,
}

impl Container {
    /// A page of up to `limit` documents, at least one, and some 4 MiB, in the order of their versions: of each its latest version alone, and
    /// neither deletes nor ends. What was told stays told: a page is of documents as they are when it is made.
    ///
    /// ```
    /// use ebbtide_documents::{ChangeStart, ChangeStartAt, ContainerDefinition, Documents};
    ///
    /// let documents = Documents::with(ebbtide::Options::temporary()?)?;
    /// documents.create_database("shop")?;
    /// let orders = documents.create_container("shop", ContainerDefinition::new("orders", "/id"))?;
    /// for id in ["b", "a"] {
    ///     orders.create(&id.into(), format!(r#"{{"id":"{id}"}}"#).as_bytes())?;
    /// }
    /// let first = orders.changes(&ChangeStart::of_all(ChangeStartAt::Beginning), 1)?;
    /// assert_eq!((&*first.documents[0].id, first.has_more), ("b", true));
    /// let second = orders.changes(&ChangeStart::of_all(ChangeStartAt::After(first.version)), 10)?;
    /// assert_eq!((&*second.documents[0].id, second.has_more), ("a", false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): no partition key of this container.
    pub fn changes(&self, from: &ChangeStart, limit: usize) -> Result<ChangeFeedPage> {
        self.store().catch_up(self.items())?;
        let mut page = self.page_of_changes(from, limit.max(1))?;
        while page.documents.is_empty() && page.has_more {
            let at = ChangeStartAt::After(page.version);
            page = self.page_of_changes(&ChangeStart { at, ..from.clone() }, limit.max(1))?;
        }
        Ok(page)
    }

    /// The same, perhaps without documents though there is more: what was to be told has changed again, or expired.
    fn page_of_changes(&self, from: &ChangeStart, limit: usize) -> Result<ChangeFeedPage> {
        let kept = self.last_pass().take(from);
        let is_of_now = kept.is_none();
        let passed = kept.map_or_else(|| self.pass(from, limit.max(KEPT)), Ok);
        // Also where it is of an earlier page, which another thread may have made meanwhile.
        self.store().renew()?;
        let mut rest = passed?;
        let (mut documents, mut bytes, mut read) = (vec![], 0, 0);
        for (version, key) in rest.found.iter().take(limit) {
            if bytes >= PAGE_BYTES {
                break;
            }
            read += 1;
            if let Some(item) = self.store().item(self.items(), key)?
                && item.version() == *version
            {
                bytes += item.value().len();
                documents.push(self.of_item(item)?);
            }
        }
        let page: Vec<_> = rest.found.drain(..read).collect();
        let version = match page.last() {
            Some((version, _)) if !rest.found.is_empty() => *version,
            _ => rest.up_to,
        };
        let has_more = match rest.found.is_empty() {
            true => rest.has_more || !is_of_now && self.engine().last_version() > version,
            false => true,
        };
        if !rest.found.is_empty() {
            let at = ChangeStartAt::After(version);
            rest.start = ChangeStart { at, ..from.clone() };
            self.last_pass().keep(rest);
        }
        Ok(ChangeFeedPage {
            documents,
            version,
            has_more,
        })
    }

    /// Reads the keys of the lowest versions since a start, up to `most`.
    fn pass(&self, start: &ChangeStart, most: usize) -> Result<Rest> {
        let range = self.range_of(&start.partition_key)?;
        let (since, not_before) = match start.at {
            ChangeStartAt::Beginning => (Version::start(), None),
            ChangeStartAt::Now => (self.engine().last_version(), None),
            ChangeStartAt::After(version) => (version, None),
            ChangeStartAt::Moment(moment) => (Version::start(), Some(moment)),
        };
        let mut pass = self.pass_since(since, since, &range, not_before, most);
        if let Err(ebbtide::Error::ChangesGone { .. }) = pass {
            // Deletes and ends left the disk, which are not told anyway.
            pass = self.pass_since(Version::start(), since, &range, not_before, most);
        }
        Ok(pass?)
    }

    fn pass_since(
        &self,
        read_from: Version,
        since: Version,
        range: &KeyRange,
        not_before: Option<SystemTime>,
        most: usize,
    ) -> ebbtide::Result<Rest> {
        let mut lowest = BTreeSet::new();
        let mut has_more = false;
        let mut changes = self.items().changes(read_from);
        for change in &mut changes {
            let Change::Put { item, .. } = change? else {
                continue;
            };
            let is_before = not_before.is_some_and(|moment| item.written_at() < moment);
            let is_told = item.version() > since && !is_before && range.contains(item.key());
            if is_told {
                lowest.insert((item.version(), item.key().to_vec()));
                if lowest.len() > most {
                    has_more = true;
                    lowest.pop_last();
                }
            }
        }
        let last = lowest.last().map(|(version, _)| *version);
        Ok(Rest {
            start: ChangeStart::of_all(ChangeStartAt::After(since)),
            up_to: last
                .filter(|_| has_more)
                .unwrap_or(changes.version().max(since)),
            found: lowest.into_iter().collect(),
            has_more,
        })
    }

    /// A page of up to `limit` documents, at least one, that have expired, in the order of their ends: each once, from its end
    /// on and not from its purge, with its body. What is to be told later than it happens needs `retentionDuration` of
    /// `changeFeedPolicy` in the container's definition.
    ///
    /// # Errors
    /// [`Gone`](crate::ErrorKind::Gone): documents that ended since were purged already; start anew with
    /// [`ExpiryCursor::start`].
    pub fn ends(&self, from: &ExpiryCursor, limit: usize) -> Result<EndsPage> {
        let limit = limit.max(1);
        let (expirations, cursor) = self.store().ends(self.items(), from, limit)?;
        let ends = expirations.into_iter().map(|end| self.end_of(end));
        let ends = ends.collect::<Result<Vec<_>>>()?;
        Ok(EndsPage {
            has_more: ends.len() == limit,
            cursor,
            ends,
        })
    }

    fn end_of(&self, expiration: Expiration) -> Result<End> {
        let expired_at = expiration.expired_at();
        let document = Document {
            id: id_in(expiration.key(), self.paths().len())?.to_owned(),
            version: expiration.version(),
            written_at: expiration.written_at(),
            expires_at: Some(expired_at),
            container: self.rid(),
            key: ItemKey::from_slice(expiration.key()),
            body: expiration.value().clone().into_bytes(),
        };
        Ok(End {
            document,
            expired_at,
            time_to_live_expired: expiration.cause() != ExpirationCause::Command,
        })
    }
}
