//! Queries of a container: by key where the filter says something of it, by an index by name where there is one that pays
//! (lookup.rs), and else by a scan of the scope.
//!
//! A page is of one moment. It reads a snapshot, which freezes the writes; documents go on to expire while it is read. If at
//! its end all that were pushed are live still, then it shows the state of that moment: what the scan has left out had expired
//! before. Else it is read again; and where that happens each time, every document was judged when it was read.
//!
//! A query with ORDER BY goes on behind the last document of the page before, if an index has its order. Where that cannot
//! be, or does not pay, it is run anew: behind as many rows as were told.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::key_range::KeyRange;
use crate::lookup::MOST;
use crate::narrow::key_ranges;
use crate::page::{Continuation, Origin, Scope};
use crate::query::{BoundQuery, Execution, Progress, Query, QueryLimits};
use crate::reading::{Ends, Reader, Reading};

/// How often a page is read for one moment.
const TRIES: u32 = 3;
/// Streaming, so many documents are gathered by an index for each row that is wanted, at most.
const GATHERED: usize = 16;
/// For a page of more rows all documents are sorted.
const MOST_IN_ORDER: usize = 65_536;

/// A page of rows of a query.
#[derive(Clone, Debug)]
pub struct QueryPage {
    /// The rows as JSON.
    pub rows: Vec<String>,
    /// Where the next page goes on; `None` at the end.
    pub continuation: Option<Continuation>,
}

impl Container {
    /// A page of the rows of a query, as JSON. What is selected, and how undefined values count, is as in Cosmos DB; what is
    /// not offered is refused by name.
    ///
    /// A query without ORDER BY, DISTINCT, aggregates and GROUP BY goes on where its page ended, and so does one with ORDER BY
    /// by the path of an index. Any other is run anew for each page, over the documents of then.
    ///
    /// ```
    /// use ebbtide_documents::{ContainerDefinition, Documents, QueryLimits, Scope};
    ///
    /// let documents = Documents::with(ebbtide::Options::temporary()?)?;
    /// documents.create_database("shop")?;
    /// let stock = documents.create_container("shop", ContainerDefinition::new("stock", "/kind"))?;
    /// for (id, left) in [("sencha", 2), ("assam", 0), ("pu-erh", 7)] {
    ///     stock.create(&"tea".into(), format!(r#"{{"id":"{id}","kind":"tea","left":{left}}}"#).as_bytes())?;
    /// }
    /// let left = "SELECT VALUE c.id FROM c WHERE c.kind = @kind AND c.left > 0 ORDER BY c.left DESC";
    /// let parameters = [("@kind".to_owned(), "tea".into())];
    /// let page = stock.query(left, &parameters, &Scope::everything(), &QueryLimits::default(), None)?;
    /// assert_eq!(page.rows, [r#""pu-erh""#, r#""sencha""#]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BadRequest`](ErrorKind::BadRequest): what is no query, or a continuation of something else;
    /// [`RequestTimeout`](ErrorKind::RequestTimeout): it takes longer than the limits allow, and cannot go on in another page.
    pub fn query(
        &self,
        text: &str,
        parameters: &[(String, Value)],
        scope: &Scope,
        limits: &QueryLimits,
        from: Option<&Continuation>,
    ) -> Result<QueryPage> {
        let query = Query::parse(text)?.bind(parameters)?;
        let origin = Origin::of_query(self, scope, text, parameters);
        origin.check(from)?;
        if !query.reads_documents() {
            let rows = query.start(limits, self.store().now()).finish()?;
            return Ok(page_of(rows, limits, origin, from));
        }
        let ranges = key_ranges(self, scope, &query)?;
        if query.is_streaming() {
            return self.stream(&query, ranges, limits, origin, from);
        }
        if let Some(page) = self.in_order(&query, &ranges, limits, origin, from)? {
            return Ok(page);
        }
        let whole = QueryLimits {
            rows: usize::MAX,
            bytes: usize::MAX,
            ..limits.clone()
        };
        let begin = || query.start(&whole, self.store().now());
        let reading =
            self.at_one_moment(|| self.read_page(&query, &ranges, MOST, limits, begin))?;
        if reading.has_more && !reading.execution.is_done() {
            let message = format!(
                "The query took longer than {:?}, and has no rows before its end.",
                limits.time
            );
            return Err(Error::new(ErrorKind::RequestTimeout, message));
        }
        let rows = reading.execution.finish()?;
        Ok(page_of(rows, limits, origin, from))
    }

    /// A page of a query that goes on where the page before ended.
    fn stream(
        &self,
        query: &BoundQuery,
        ranges: Vec<KeyRange>,
        limits: &QueryLimits,
        origin: Origin,
        from: Option<&Continuation>,
    ) -> Result<QueryPage> {
        let (mut rest, progress) = (ranges, progress(from));
        if let Some(from) = from {
            rest = from.rest_of_all(rest)?;
        }
        let most = wanted(query, limits, progress).saturating_mul(GATHERED);
        let begin = || query.resume(limits, self.store().now(), progress);
        let reading = self.at_one_moment(|| self.read_page(query, &rest, most, limits, begin))?;
        let after = |last: &[u8]| Continuation::after(origin, last);
        Ok(page_behind(reading, after))
    }

    /// A page of a query with ORDER BY, if documents come in its order. It goes on where the page before ended.
    fn in_order(
        &self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        limits: &QueryLimits,
        origin: Origin,
        from: Option<&Continuation>,
    ) -> Result<Option<QueryPage>> {
        let after = from.map(Continuation::place).transpose()?;
        let (progress, is_told) = (progress(from), matches!(after, Some(None)));
        let wanted = wanted(query, limits, progress);
        if is_told || wanted > MOST_IN_ORDER || query.order_path().is_none() {
            return Ok(None);
        }
        let after = after.flatten();
        let reading = self.at_one_moment(|| {
            let Some(view) = self.index_view(&self.store().snapshot()?)? else {
                return Ok(None);
            };
            let execution = query.resume_in_order(limits, self.store().now(), progress);
            let reader = Reader::new(self.rid(), limits, execution);
            view.read_in_order(query, ranges, after.as_deref(), wanted, reader)
        })?;
        Ok(reading.map(|reading| {
            page_behind(reading, |last| Continuation {
                in_order: true,
                ..Continuation::after(origin, last)
            })
        }))
    }

    /// Reads a page, so that it is of one moment if that can be.
    fn at_one_moment<R: Ends>(&self, read: impl Fn() -> Result<R>) -> Result<R> {
        let mut tries = 1;
        loop {
            let reading = read()?;
            let (now, first_end) = (self.store().now(), reading.first_end());
            if tries == TRIES || self.store().is_replica() || first_end.is_none_or(|end| end > now)
            {
                return Ok(reading);
            }
            tries += 1;
        }
    }

    /// Reads the documents of ranges in the order of their keys: by an index those of which the query can be true, if that
    /// gathers no more keys than `most`.
    fn read_page(
        &self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        most: usize,
        limits: &QueryLimits,
        begin: impl Fn() -> Execution,
    ) -> Result<Reading> {
        let begin = || Reader::new(self.rid(), limits, begin());
        let snapshot = self.store().snapshot()?;
        if let Some(view) = self.index_view(&snapshot)?
            && let Some(reading) = view.read(query, ranges, most, begin)?
        {
            return Ok(reading);
        }
        let (view, mut reader) = (self.store().view(&snapshot, self.items())?, begin());
        'ranges: for range in ranges {
            for item in view.range(range.clone()) {
                if reader.take(item?, None)?.is_break() {
                    break 'ranges;
                }
            }
        }
        Ok(reader.finish())
    }

    /// All rows of a query, as values of Rust.
    ///
    /// # Errors
    /// Those of [`Container::query`], and [`BadRequest`](ErrorKind::BadRequest): a row is of another type.
    pub fn query_as<T: DeserializeOwned>(
        &self,
        text: &str,
        parameters: &[(String, Value)],
        scope: &Scope,
    ) -> Result<Vec<T>> {
        let (mut rows, mut from) = (vec![], None);
        loop {
            let page = self.query(
                text,
                parameters,
                scope,
                &QueryLimits::default(),
                from.as_ref(),
            )?;
            for row in &page.rows {
                rows.push(json::parse(row.as_bytes()).map_err(|error| {
                    Error::bad_request(format!("A row of the query is not of this type: {error}."))
                })?);
            }
            from = page.continuation;
            if from.is_none() {
                return Ok(rows);
            }
        }
    }
}

fn progress(from: Option<&Continuation>) -> Progress {
    from.map_or_else(Progress::default, |from| Progress {
        skipped: from.skipped,
        emitted: from.emitted,
    })
}

/// The rows of a page, and those that OFFSET leaves out before.
fn wanted(query: &BoundQuery, limits: &QueryLimits, progress: Progress) -> usize {
    let (limit, offset) = query.window();
    let rows = limit
        .saturating_sub(progress.emitted)
        .min(limits.rows as u64);
    let wanted = rows.saturating_add(offset.saturating_sub(progress.skipped));
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// The rows of a reading, behind whose last document the next page goes on.
fn page_behind(mut reading: Reading, after: impl Fn(&[u8]) -> Continuation) -> QueryPage {
    let has_more = reading.has_more && !reading.execution.is_done();
    let Progress { skipped, emitted } = reading.execution.progress();
    let last = reading.last.filter(|_| has_more);
    QueryPage {
        rows: reading.execution.take_rows(),
        continuation: last.map(|last| Continuation {
            skipped,
            emitted,
            ..after(&last)
        }),
    }
}

/// The rows of a page, of all that there are: those behind the ones that were told, as far as the limits go.
fn page_of(
    rows: Vec<String>,
    limits: &QueryLimits,
    origin: Origin,
    from: Option<&Continuation>,
) -> QueryPage {
    let told = from.map_or(0, Continuation::rows_told);
    let (mut page, mut bytes, all) = (vec![], 0, rows.len() as u64);
    for row in rows
        .into_iter()
        .skip(usize::try_from(told).unwrap_or(usize::MAX))
    {
        if !page.is_empty() && (page.len() >= limits.rows || bytes + row.len() > limits.bytes) {
            break;
        }
        bytes += row.len();
        page.push(row);
    }
    let told = told.saturating_add(page.len() as u64);
    QueryPage {
        continuation: (told < all).then(|| Continuation::after_rows(origin, told)),
        rows: page,
    }
}
