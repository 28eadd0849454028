//! Queries over documents, in the dialect of Cosmos DB's NoSQL API.
//!
//! A [`Query`] is read from its text and bound to its parameters. What it says of keys narrows the documents that are read;
//! these are pushed into its [`Execution`] one by one. The storage is none of its business: a document is bytes.
//!
//! ```
//! use std::time::UNIX_EPOCH;
//! use ebbtide_documents::query::{NoSystem, Query, QueryLimits};
//!
//! # fn main() -> ebbtide_documents::Result<()> {
//! let query = Query::parse("SELECT c.name, c.price * 2 AS twice FROM c WHERE c.price < @most")?;
//! let query = query.bind(&[("@most".to_owned(), 10.into())])?;
//! let mut execution = query.start(&QueryLimits::default(), UNIX_EPOCH);
//! execution.push(br#"{"id":"1","name":"tea","price":4.5}"#, &NoSystem)?;
//! execution.push(br#"{"id":"2","name":"ink","price":12}"#, &NoSystem)?;
//! assert_eq!(execution.finish()?, [r#"{"name":"tea","twice":9}"#]);
//! # Ok(()) }
//! ```

mod escape;
mod function;
mod ast;
mod lexer;
mod scan;
mod value;
mod like;
mod eval;
mod call;
mod aggregate;
mod parser;
mod expression;
mod compile;
mod narrow;
mod indexed;
mod execute;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use execute::Execution;
pub(crate) use indexed::{IndexValue, PathReader};
pub use narrow::{KeyCondition, Scalar, ValueRange};

use crate::body::MemberPath;
use crate::error::{Error, Result};
use ast::Expr;
use compile::Plan;
use eval::{Node, Property};
use parser::Parsed;
use value::Value;

/// A query's text is no longer.
pub const MAX_TEXT_BYTES: usize = 512 << 10;

/// A query, before its parameters have values. Displayed, it is a text of the same meaning.
pub struct Query {
    parsed: Parsed,
}

/// A query with its parameters, ready to run. Clone: one more handle.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    plan: Arc<Plan>,
    info: Arc<QueryInfo>,
}

/// The bounds of one call of a query.
#[derive(Clone, Debug)]
pub struct QueryLimits {
    /// Rows of one page.
    pub rows: usize,
    /// Bytes of the rows of one page.
    pub bytes: usize,
    /// Time for one page. An [`Execution`] has no clock: its caller looks.
    pub time: Duration,
    /// Bytes that ORDER BY, DISTINCT and GROUP BY hold until the end.
    pub held_bytes: usize,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            rows: 1_000,
            bytes: 4 << 20,
            time: Duration::from_secs(5),
            held_bytes: 256 << 20,
        }
    }
}

/// The properties that a document has beside its JSON. Each is asked for only where a row shows it.
pub trait System {
    /// `_rid`.
    fn rid(&self) -> Cow<'_, str>;
    /// `_self`.
    fn self_link(&self) -> Cow<'_, str>;
    /// `_etag`, with its quotation marks.
    fn etag(&self) -> Cow<'_, str>;
    /// `_ts`, in seconds since 1970.
    fn ts(&self) -> u64;
    /// The document with its system properties.
    fn append_to(&self, text: &str) -> String {
        let text = text.trim_end();
        let Some(inner) = text.strip_suffix('}') else {
            return text.to_owned();
        };
        let mut out = String::with_capacity(text.len() + 200);
        out.push_str(inner);
        for (name, value) in [
            ("_rid", self.rid()),
            ("_self", self.self_link()),
            ("_etag", self.etag()),
        ] {
            out.push_str(if out.trim_end().ends_with('{') {
                "\""
            } else {
                ",\""
            });
            out.push_str(name);
            out.push_str("\":");
            escape::write(&value, &mut out);
        }
        out.push_str(",\"_attachments\":\"attachments/\",\"_ts\":");
        out.push_str(&self.ts().to_string());
        out.push('}');
        out
    }
}

/// For JSON that is no document of a container: its properties are empty, and rows show the JSON alone.
#[derive(Clone, Copy, Debug)]
pub struct NoSystem;

impl System for NoSystem {
    fn rid(&self) -> Cow<'_, str> {
        "".into()
    }

    fn self_link(&self) -> Cow<'_, str> {
        "".into()
    }

    fn etag(&self) -> Cow<'_, str> {
        "".into()
    }

    fn ts(&self) -> u64 {
        0
    }

    fn append_to(&self, text: &str) -> String {
        text.to_owned()
    }
}

impl dyn System + '_ {
    fn value(&self, property: Property) -> Value<'_> {
        match property {
            Property::Rid => Value::String(self.rid()),
            Property::SelfLink => Value::String(self.self_link()),
            Property::Etag => Value::String(self.etag()),
            Property::Attachments => Value::String("attachments/".into()),
            Property::Ts => Value::number(self.ts() as f64),
        }
    }
}

/// Whether an [`Execution`] takes more documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// The page is full, or no document can add a row ([`Execution::is_done`]).
    Enough,
}

/// How far OFFSET and LIMIT are. Plain data, for a continuation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that OFFSET left out.
    pub skipped: u64,
    /// Rows that were given.
    pub emitted: u64,
}

/// The clauses of a query, as a query plan tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryInfo {
    /// SELECT DISTINCT.
    pub distinct: bool,
    /// SELECT VALUE.
    pub value: bool,
    /// TOP.
    pub top: Option<u64>,
    /// OFFSET and LIMIT.
    pub window: Option<(u64, u64)>,
    /// The keys of ORDER BY: whether each descends.
    pub order: Vec<bool>,
    /// The names of the aggregates: `Count`, `Sum`, `Min`, `Max`, `Average`.
    pub aggregates: Vec<&'static str>,
    /// Whether all that is selected is the value of one aggregate, as in `SELECT VALUE COUNT(1)`.
    pub one_aggregate: bool,
    /// GROUP BY.
    pub grouped: bool,
}

/// A key of ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// `/a/b`, where the key is what documents have at a path.
    pub path: Option<String>,
    /// DESC.
    pub descending: bool,
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// 400 with the position, in bytes from 0, of what is no query of the dialect.
    pub fn parse(text: &str) -> Result<Query> {
        parser::parse(text).map(|parsed| Query { parsed })
    }

    /// Gives the parameters their values: each by its name, `@` included. Those that the query does not use are ignored.
    ///
    /// # Errors
    ///
    /// 400 where a parameter has no value, or one that its place does not take, or a path stands beside aggregates that is
    /// no key of GROUP BY.
    pub fn bind(self, parameters: &[(String, serde_json::Value)]) -> Result<BoundQuery> {
        let select = &self.parsed.select;
        let value = match &select.projection {
            ast::Projection::Value(expr) => Some(matches!(expr, Expr::Aggregate(..))),
            _ => None,
        };
        let order = select.order.iter().map(|key| key.descending).collect();
        let (windowed, grouped) = (select.window.is_some(), !select.group.is_empty());
        let plan = compile::compile(self.parsed, parameters)?;
        let info = QueryInfo {
            distinct: plan.distinct,
            value: value.is_some(),
            top: plan.top,
            window: windowed.then_some((plan.offset, plan.limit)),
            order,
            aggregates: plan
                .aggregates
                .iter()
                .map(|(aggregate, _)| aggregate.name())
                .collect(),
            one_aggregate: value == Some(true) && !grouped,
            grouped,
        };
        Ok(BoundQuery {
            plan: Arc::new(plan),
            info: Arc::new(info),
        })
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parsed.select.fmt(f)
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parsed.select.fmt(f)
    }
}

impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        self.parsed.select == other.parsed.select
    }
}

impl BoundQuery {
    /// The condition that WHERE sets for `id` and for the values at the partition key's paths (`/a/b`). No document that it
    /// leaves out can be a row; one that it admits is still to be pushed.
    #[must_use]
    pub fn key_condition(&self, partition_paths: &[String]) -> KeyCondition {
        narrow::key_condition(&self.plan, partition_paths)
    }

    /// The condition that WHERE sets for the value at one path (`/a/b`), as [`BoundQuery::key_condition`] does; `None` where
    /// there is none.
    #[must_use]
    pub fn indexed(&self, path: &str) -> Option<ValueRange> {
        let range = narrow::of_path(&self.plan, &narrow::steps(path));
        (range != ValueRange::Any).then_some(range)
    }

    /// The keys of ORDER BY; `None` without one, and where there is only one row.
    #[must_use]
    pub fn order(&self) -> Option<Vec<OrderBy>> {
        let keys = self.plan.order.iter().map(|(node, descending)| OrderBy {
            path: match node {
                Node::Slot(slot) if self.plan.reads_documents() => {
                    narrow::pointer(self.plan.paths.path(*slot))
                }
                _ => None,
            },
            descending: *descending,
        });
        (!self.plan.order.is_empty()).then(|| keys.collect())
    }

    /// Its clauses.
    #[must_use]
    pub fn info(&self) -> &QueryInfo {
        &self.info
    }

    /// Whether it has a FROM. Without one it has one row, and reads no document.
    #[must_use]
    pub fn reads_documents(&self) -> bool {
        self.plan.source.is_some()
    }

    /// Whether each document's rows are final when it was pushed, and depend on no other document but by OFFSET and LIMIT:
    /// a page then goes on behind the last document of the one before, by [`BoundQuery::resume`].
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        let plan = &self.plan;
        plan.source.is_some() && !plan.is_grouped() && !plan.distinct && plan.order.is_empty()
    }

    /// Runs it, with `now` as the time that it tells.
    #[must_use]
    pub fn start(&self, limits: &QueryLimits, now: SystemTime) -> Execution {
        Execution::new(&self.plan, limits, now, false, Progress::default())
    }

    /// Runs it over documents that come in the order of its ORDER BY.
    #[must_use]
    pub fn start_in_order(&self, limits: &QueryLimits, now: SystemTime) -> Execution {
        Execution::new(&self.plan, limits, now, true, Progress::default())
    }

    /// The condition that WHERE sets for the value at the path of an index.
    pub(crate) fn condition(&self, path: &MemberPath) -> ValueRange {
        indexed::condition(&self.plan, path)
    }

    /// The path of ORDER BY, and whether it descends, where documents in its order need no sorting.
    pub(crate) fn order_path(&self) -> Option<(MemberPath, bool)> {
        indexed::order(&self.plan)
    }

    /// How many rows there may be, and how many documents' rows OFFSET leaves out before.
    pub(crate) fn window(&self) -> (u64, u64) {
        (self.plan.limit, self.plan.offset)
    }

    /// As [`BoundQuery::resume`], over documents that come in the order of its ORDER BY.
    pub(crate) fn resume_in_order(
        &self,
        limits: &QueryLimits,
        now: SystemTime,
        progress: Progress,
    ) -> Execution {
        Execution::new(&self.plan, limits, now, true, progress)
    }

    /// Goes on behind the documents of which a former execution told its progress.
    #[must_use]
    pub fn resume(&self, limits: &QueryLimits, now: SystemTime, progress: Progress) -> Execution {
        Execution::new(&self.plan, limits, now, false, progress)
    }
}

/// A query that is refused for what stands at a position.
fn refused(at: usize, what: impl fmt::Display) -> Error {
    Error::bad_request(format!("at position {at} of the query: {what}"))
}
