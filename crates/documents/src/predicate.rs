//! The condition of a patch: true or not of one document.

use std::borrow::Cow;
use std::time::SystemTime;

use crate::document::Document;
use crate::error::Result;
use crate::query::{Query, QueryLimits, System};

impl System for Document {
    fn rid(&self) -> Cow<'_, str> {
        Document::rid(self).to_string().into()
    }

    fn self_link(&self) -> Cow<'_, str> {
        Document::self_link(self).into()
    }

    fn etag(&self) -> Cow<'_, str> {
        Document::etag(self).into()
    }

    fn ts(&self) -> u64 {
        Document::ts(self)
    }
}

/// Whether `FROM c WHERE ...` is true of a document.
pub fn holds(condition: &str, document: &Document, now: SystemTime) -> Result<bool> {
    let query = Query::parse(&format!("SELECT VALUE 1 {condition}"))?.bind(&[])?;
    let mut execution = query.start(&QueryLimits::default(), now);
    execution.push(document.body(), document)?;
    Ok(!execution.finish()?.is_empty())
}
