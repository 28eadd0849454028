//! Queries of a container: by key where the filter says something of it, and else by a scan of the scope.
//!
//! A page is of one moment. It reads a snapshot, which freezes the writes; documents go on to expire while it is read. If at
//! its end all that were pushed are live still, then it shows the state of that moment: what the scan has left out had expired
//! before. Else it is read again; and where that happens each time, every document was judged when it was read.

use std::borrow::Cow;
use std::time::{Instant, SystemTime};

use ebbtide::{Bytes, Item};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::container::Container;
use crate::document::{rid_of, seconds};
use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::key_range::KeyRange;
use crate::narrow::key_ranges;
use crate::page::{Continuation, Origin, Scope};
use crate::query::{BoundQuery, Execution, Flow, Progress, Query, QueryLimits, System};
use crate::resource_id::ResourceId;

/// How often a page is read for one moment.
const TRIES: u32 = 3;
/// The clock is asked each time so many documents were pushed.
const CLOCK_EVERY: u32 = 64;

/// A page of rows of a query.
#[derive(Clone, Debug)]
pub struct QueryPage {
    /// The rows as JSON.
    pub rows: Vec<String>,
    /// Where the next page goes on; `None` at the end.
    pub continuation: Option<Continuation>,
}

/// The system properties of a document that is scanned, made where they are asked for.
struct Scanned<'i> {
    container: ResourceId,
    item: &'i Item,
}

impl System for Scanned<'_> {
    fn rid(&self) -> Cow<'_, str> {
        rid_of(self.container, self.item.key()).to_string().into()
    }

    fn self_link(&self) -> Cow<'_, str> {
        let (container, rid) = (self.container, self.rid());
        format!("dbs/{}/colls/{container}/docs/{rid}/", container.database()).into()
    }

    fn etag(&self) -> Cow<'_, str> {
        format!("\"{}\"", self.item.version()).into()
    }

    fn ts(&self) -> u64 {
        seconds(self.item.written_at())
    }
}

/// The result of one reading of a page.
struct Reading {
    execution: Execution,
    /// The last document that was pushed.
    last: Option<Bytes>,
    /// Whether documents may be left that were not pushed.
    has_more: bool,
    /// The first end of a document that was pushed.
    first_end: Option<SystemTime>,
}

impl Container {
    /// A page of the rows of a query, as JSON. What is selected, and how undefined values count, is as in Cosmos DB; what is
    /// not offered is refused by name.
    ///
    /// A query without ORDER BY, DISTINCT, aggregates and GROUP BY goes on where its page ended. Any other is run anew for
    /// each page, over the documents of then.
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
            let rows = query.start(limits, self.engine().now()).finish()?;
            return Ok(page_of(rows, limits, origin, from));
        }
        let ranges = key_ranges(self, scope, &query)?;
        if query.is_streaming() {
            return self.stream(&query, ranges, limits, origin, from);
        }
        let whole = QueryLimits {
            rows: usize::MAX,
            bytes: usize::MAX,
            ..limits.clone()
        };
        let reading =
            self.at_one_moment(limits, &ranges, || query.start(&whole, self.engine().now()))?;
        if reading.has_more {
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
        let (mut rest, mut progress) = (ranges, Progress::default());
        if let Some(from) = from {
            rest = from.rest_of_all(rest)?;
            (progress.skipped, progress.emitted) = (from.skipped, from.emitted);
        }
        let begin = || query.resume(limits, self.engine().now(), progress);
        let mut reading = self.at_one_moment(limits, &rest, begin)?;
        let has_more = reading.has_more && !reading.execution.is_done();
        let progress = reading.execution.progress();
        let rows = reading.execution.take_rows();
        let continuation = reading.last.filter(|_| has_more).map(|last| Continuation {
            skipped: progress.skipped,
            emitted: progress.emitted,
            ..Continuation::after(origin, &last)
        });
        Ok(QueryPage { rows, continuation })
    }

    /// Reads a page, so that it is of one moment if that can be.
    fn at_one_moment(
        &self,
        limits: &QueryLimits,
        ranges: &[KeyRange],
        begin: impl Fn() -> Execution,
    ) -> Result<Reading> {
        let mut tries = 1;
        loop {
            let reading = self.scan(limits, ranges, begin())?;
            let now = self.engine().now();
            if tries == TRIES || reading.first_end.is_none_or(|end| end > now) {
                return Ok(reading);
            }
            tries += 1;
        }
    }

    fn scan(
        &self,
        limits: &QueryLimits,
        ranges: &[KeyRange],
        mut execution: Execution,
    ) -> Result<Reading> {
        let (began, mut until_clock) = (Instant::now(), CLOCK_EVERY);
        let view = self.engine().snapshot().container(self.items().name())?;
        let (mut last, mut first_end) = (None, None);
        let mut is_enough = execution.is_done();
        'ranges: for range in ranges {
            for item in view.range(range.clone()) {
                let item = item?;
                if is_enough {
                    // There is one more than the page takes.
                    return Ok(Reading {
                        execution,
                        last,
                        has_more: true,
                        first_end,
                    });
                }
                let scanned = Scanned {
                    container: self.rid(),
                    item: &item,
                };
                let flow = execution.push(item.value(), &scanned)?;
                first_end = match (first_end, item.expires_at()) {
                    (Some(first), Some(end)) => Some(end.min(first)),
                    (first, end) => first.or(end),
                };
                last = Some(item.into_parts().0);
                until_clock -= 1;
                if until_clock == 0 {
                    until_clock = CLOCK_EVERY;
                    is_enough |= began.elapsed() > limits.time;
                }
                is_enough |= flow == Flow::Enough;
                if is_enough && execution.is_done() {
                    break 'ranges;
                }
            }
        }
        Ok(Reading {
            execution,
            last,
            has_more: false,
            first_end,
        })
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

/// The rows of a page, of all that there are: those behind the ones that were told, as far as the limits go.
fn page_of(
    rows: Vec<String>,
    limits: &QueryLimits,
    origin: Origin,
    from: Option<&Continuation>,
) -> QueryPage {
    let told = from.map_or(0, |from| from.told);
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
