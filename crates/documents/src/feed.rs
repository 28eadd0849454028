//! The change feed, and the ends of documents.

use std::time::SystemTime;

use ebbtide::{ExpiryCursor, Version};

use crate::document::Document;
use crate::partition_key::PartitionKey;

/// Where a change feed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeStartAt {
    /// With the first change.
    Beginning,
    /// Behind all changes that were made.
    Now,
    /// Behind this version, as [`ChangeFeedPage::version`] has it.
    After(Version),
    /// With the first change of this moment or later.
    Moment(SystemTime),
}

/// What a change feed tells.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeStart {
    /// Where it begins.
    pub at: ChangeStartAt,
    /// Of the documents of a partition key or a prefix of one; without parts: of all.
    pub partition_key: PartitionKey,
}

/// A page of the latest versions of documents, in the order of versions.
#[derive(Clone, Debug)]
pub struct ChangeFeedPage {
    /// The documents.
    pub documents: Vec<Document>,
    /// All up to this was told: where the next page goes on.
    pub version: Version,
    /// Whether there is more now.
    pub has_more: bool,
}

/// A document that has expired.
#[derive(Clone, Debug)]
pub struct End {
    /// As it was.
    pub document: Document,
    /// When it ended.
    pub expired_at: SystemTime,
    /// By its ttl or the default, and not by a command or quota.
    pub time_to_live_expired: bool,
}

/// A page of ends, in their order.
#[derive(Clone, Debug)]
pub struct EndsPage {
    /// The ends.
    pub ends: Vec<End>,
    /// Where the next page goes on: plain data.
    pub cursor: ExpiryCursor,
    /// Whether there is more now.
    pub has_more: bool,
}
