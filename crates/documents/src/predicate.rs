//! The condition of a patch: true or not of one document.

use std::borrow::Cow;
use std::time::SystemTime;

use crate::document::Document;
use crate::error::{Error, Result};
use crate::query::{BoundQuery, Query, QueryLimits, System};

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

/// The query that has a row where the condition is true. Of a query it has FROM and WHERE alone.
fn query_of(condition: &str) -> Result<BoundQuery> {
    let begins = condition.trim_start().as_bytes().get(..4);
    let begins = begins.is_some_and(|word| word.eq_ignore_ascii_case(b"from"));
    let query = Query::parse(&format!("SELECT VALUE 1 {condition}"))?.bind(&[])?;
    let info = query.info();
    let has_more = !info.order.is_empty() || info.window.is_some() || info.grouped;
    if !begins || has_more {
        return Err(Error::bad_request(
            "The condition of a patch is as FROM c WHERE c.a = 1, without more clauses.",
        ));
    }
    Ok(query)
}

/// Fails where it is no condition.
pub fn check(condition: &str) -> Result<()> {
    query_of(condition).map(drop)
}

/// Whether `FROM c WHERE ...` is true of a document.
pub fn holds(condition: &str, document: &Document, now: SystemTime) -> Result<bool> {
    let query = query_of(condition)?;
    let mut execution = query.start(&QueryLimits::default(), now);
    execution.push(document.body(), document)?;
    Ok(!execution.finish()?.is_empty())
}
