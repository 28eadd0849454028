//! Lists, queries and change feeds of a part of a container that is neither a partition key's nor all: the documents are
//! read in the order of their keys, and those whose place is in the part are taken.
//!
//! A page of a query without ORDER BY, DISTINCT, aggregates and GROUP BY goes on behind the last document that was read; any
//! other is run anew for each page. Unlike a query of a partition key, or of all, one of many documents is not of one moment.

use std::time::{Instant, SystemTime};

use ebbtide_documents::query::{BoundQuery, Execution, Flow, Progress, Query};
use ebbtide_documents::{
    ChangeFeedPage, ChangeStart, ChangeStartAt, Container, Continuation, Document, Page,
    QueryLimits, Scope,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hash::digest;
use crate::partitions::{Layout, Range};
use crate::reply::Failure;
use crate::state::State;

const READ_AT_ONCE: usize = 1000;

/// A part of a container.
pub(crate) struct Within<'a> {
    container: &'a Container,
    layout: Layout,
    range: Range,
    now: SystemTime,
}

/// Where a query goes on.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// Of which query of which part it is.
    of: u32,
    after: Option<Continuation>,
    skipped: u64,
    emitted: u64,
    /// Rows that were told, of a query that is run anew.
    told: usize,
}

/// Where a query of all partitions goes on, one by one.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Across {
    partition: usize,
    rest: Option<Rest>,
}

/// A page of the rows of a query of all partitions: of one of them, which may have none.
pub(crate) fn across(
    partitions: usize,
    query: impl FnOnce(usize, Option<Rest>) -> Result<(Vec<String>, Option<Rest>), Failure>,
    from: Across,
) -> Result<(Vec<String>, Option<Across>), Failure> {
    if from.partition >= partitions {
        let message = "The continuation is not of this query.";
        return Err(Failure::bad_request(message));
    }
    let (rows, rest) = query(from.partition, from.rest)?;
    let partition = from.partition + usize::from(rest.is_none());
    let next = Across { partition, rest };
    Ok((rows, (partition < partitions).then_some(next)))
}

impl<'a> Within<'a> {
    pub fn new(state: &State, container: &'a Container, range: Range) -> Within<'a> {
        Within {
            container,
            layout: state.partitions.layout(container),
            range,
            now: state.now(),
        }
    }

    fn has(&self, document: &Document) -> bool {
        self.layout.has(&self.range, self.container, document)
    }

    pub fn list(&self, limit: usize, from: Option<Continuation>) -> Result<Page, Failure> {
        let mut from = from;
        loop {
            let scope = Scope::everything();
            let mut page = self.container.list(&scope, limit, from.as_ref())?;
            page.documents.retain(|document| self.has(document));
            if !page.documents.is_empty() || page.continuation.is_none() {
                return Ok(page);
            }
            from = page.continuation;
        }
    }

    pub fn changes(&self, at: ChangeStartAt, limit: usize) -> Result<ChangeFeedPage, Failure> {
        let mut at = at;
        loop {
            let mut page = self.container.changes(&ChangeStart::of_all(at), limit)?;
            page.documents.retain(|document| self.has(document));
            if !page.documents.is_empty() || !page.has_more {
                return Ok(page);
            }
            at = ChangeStartAt::After(page.version);
        }
    }

    /// A page of the rows of a query.
    pub fn query(
        &self,
        text: &str,
        parameters: &[(String, Value)],
        limits: &QueryLimits,
        from: Option<Rest>,
    ) -> Result<(Vec<String>, Option<Rest>), Failure> {
        let query = Query::parse(text)?.bind(parameters)?;
        let whole = serde_json::json!([text, parameters, self.range.from, self.range.to]);
        let of = digest(whole.to_string().as_bytes());
        let from = from.unwrap_or(Rest {
            of,
            ..Rest::default()
        });
        if from.of != of {
            let message = "The continuation is not of this query.";
            return Err(Failure::bad_request(message));
        }
        if query.is_streaming() {
            return self.stream(&query, limits, from);
        }
        let rows = self.rows(&query, limits)?;
        let (mut page, mut bytes, all) = (Vec::new(), 0, rows.len());
        for row in rows.into_iter().skip(from.told) {
            if !page.is_empty() && (page.len() >= limits.rows || bytes + row.len() > limits.bytes) {
                break;
            }
            bytes += row.len();
            page.push(row);
        }
        let told = from.told + page.len();
        Ok((page, (told < all).then_some(Rest { told, ..from })))
    }

    /// Pushes a document that is of the part.
    fn push(&self, execution: &mut Execution, document: &Document) -> Result<Flow, Failure> {
        Ok(execution.push(document.body(), document)?)
    }

    fn stream(
        &self,
        query: &BoundQuery,
        limits: &QueryLimits,
        from: Rest,
    ) -> Result<(Vec<String>, Option<Rest>), Failure> {
        let began = Instant::now();
        let progress = Progress {
            skipped: from.skipped,
            emitted: from.emitted,
        };
        let mut execution = query.resume(limits, self.now, progress);
        let (mut rest, mut is_enough) = (from.after, execution.is_done());
        loop {
            let scope = Scope::everything();
            let page = self.container.list(&scope, READ_AT_ONCE, rest.as_ref())?;
            for document in page.documents.iter().filter(|document| self.has(document)) {
                if is_enough {
                    // There is one more than the page takes.
                    let Progress { skipped, emitted } = execution.progress();
                    let rest = Rest {
                        after: rest,
                        skipped,
                        emitted,
                        ..from
                    };
                    return Ok((execution.take_rows(), Some(rest)));
                }
                is_enough = self.push(&mut execution, document)? == Flow::Enough;
                rest = Some(self.container.after(document));
                if execution.is_done() {
                    return Ok((execution.take_rows(), None));
                }
            }
            is_enough |= began.elapsed() > limits.time;
            rest = match page.continuation {
                None => return Ok((execution.take_rows(), None)),
                next => next,
            };
        }
    }

    /// All rows.
    fn rows(&self, query: &BoundQuery, limits: &QueryLimits) -> Result<Vec<String>, Failure> {
        let began = Instant::now();
        let whole = QueryLimits {
            rows: usize::MAX,
            bytes: usize::MAX,
            ..limits.clone()
        };
        let mut execution = query.start(&whole, self.now);
        let mut rest = None;
        loop {
            let scope = Scope::everything();
            let page = self.container.list(&scope, READ_AT_ONCE, rest.as_ref())?;
            for document in page.documents.iter().filter(|document| self.has(document)) {
                if self.push(&mut execution, document)? == Flow::Enough {
                    return Ok(execution.finish()?);
                }
            }
            rest = match page.continuation {
                None => return Ok(execution.finish()?),
                next => next,
            };
            if began.elapsed() > limits.time {
                let message = format!("The query took longer than {:?}.", limits.time);
                return Err(Failure::new(408, "RequestTimeout", message));
            }
        }
    }
}
