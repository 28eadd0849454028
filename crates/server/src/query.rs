//! Queries, and the plans that SDKs ask for.
//!
//! SDKs merge nothing: the server answers ORDER BY, aggregates, DISTINCT and OFFSET itself. Of a container of one partition
//! the plan says that the query is to be sent as it is to the whole range. Of one of several it says so where the rows of all
//! partitions are those of the one behind those of the other; else it has the query sent to the first alone, with a mark in
//! front by which that answers for all. A query that names a partition, without the mark, is of that one alone.

use std::time::{Duration, Instant, SystemTime};

use ebbtide_documents::query::{Flow, NoSystem, Query, QueryInfo, ValueRange};
use ebbtide_documents::{Container, PartitionKey, QueryLimits, Scope};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::items::session;
use crate::lists::{continuation, continue_after, page};
use crate::partitions::Range;
use crate::places::Part;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;
use crate::within::{Within, across};

/// The mark of a query that is answered for all partitions.
const OF_ALL: &str = "/* of all partitions */ ";
/// Bytes of the rows of a page: what Cosmos DB answers at most.
const PAGE_BYTES: usize = 4 << 20;
/// A page is ended, or a query that cannot be cut refused, after so long.
const PAGE_TIME: Duration = Duration::from_secs(5);

pub(crate) fn is_plan(request: &Request) -> bool {
    request.is_true("x-ms-cosmos-is-query-plan-request")
}

pub(crate) fn is_query(request: &Request) -> bool {
    let content_type = request.header("content-type").unwrap_or_default();
    request.is_true("x-ms-documentdb-isquery")
        || content_type.starts_with("application/query+json")
        || content_type.starts_with("application/sql")
}

#[derive(Deserialize)]
struct Body {
    query: String,
    #[serde(default)]
    parameters: Vec<Parameter>,
}

#[derive(Deserialize)]
struct Parameter {
    name: String,
    #[serde(default)]
    value: Value,
}

fn body(request: &Request) -> Result<(String, Vec<(String, Value)>), Failure> {
    if request
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("application/sql"))
    {
        let text = String::from_utf8(request.body.to_vec())
            .map_err(|_| Failure::bad_request("The query is not UTF-8."))?;
        return Ok((text, Vec::new()));
    }
    let body: Body = serde_json::from_slice(&request.body)
        .map_err(|error| Failure::bad_request(format!("The body is no query: {error}.")))?;
    Ok((
        body.query,
        body.parameters
            .into_iter()
            .map(|parameter| (parameter.name, parameter.value))
            .collect(),
    ))
}

/// The plan of a query. A container of one partition has it as it is sent. One of several has the rows of each, one
/// partition's behind the other's; where that is not the result, the first answers for all.
pub(crate) fn plan(state: &State, request: &Request, container: &Container) -> Answer {
    let (text, parameters) = body(request)?;
    let query = Query::parse(&text)?;
    let layout = state.partitions.layout(container);
    let (mut top, mut rewritten, mut range) = (None, String::new(), Range::all());
    if layout.count > 1 {
        let query = query.bind(&parameters)?;
        check_features(request, query.info())?;
        match query.info().window {
            None if query.is_streaming() => top = query.info().top,
            _ => (rewritten, range) = (format!("{OF_ALL}{text}"), layout.range(0)),
        }
    }
    let plan = json!({
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": "None",
            "top": top,
            "rewrittenQuery": rewritten,
            "groupByExpressions": [],
            "groupByAliases": [],
            "groupByAliasToAggregateType": {},
            "orderBy": [],
            "orderByExpressions": [],
            "aggregates": [],
            "hasSelectValue": false,
            "hasNonStreamingOrderBy": false,
        },
        "queryRanges": [{ "min": range.from, "max": range.to, "isMinInclusive": true, "isMaxInclusive": false }],
    });
    Ok(Reply::json(200, plan.to_string()))
}

/// Refuses what the SDK says that it cannot merge, as Cosmos DB does: aggregates that are not all that is selected.
fn check_features(request: &Request, info: &QueryInfo) -> Result<(), Failure> {
    let has_others = !info.aggregates.is_empty() && !info.one_aggregate && !info.grouped;
    let features = request.header("x-ms-cosmos-supported-query-features");
    match features {
        Some(features) if has_others && !features.contains("NonValueAggregate") => {
            Err(Failure::bad_request(
                "Of several partitions this SDK takes an aggregate as the one value that is selected: SELECT VALUE.",
            ))
        }
        _ => Ok(()),
    }
}

fn limits(request: &Request) -> Result<QueryLimits, Failure> {
    Ok(QueryLimits {
        rows: request.page()?,
        bytes: PAGE_BYTES,
        time: PAGE_TIME,
        ..QueryLimits::default()
    })
}

/// The documents that a query is of.
enum Asked {
    /// The part that the request names, or all.
    Part,
    /// All, whatever the request names.
    All,
    /// Each partition, one by one.
    Each,
}

pub(crate) fn query(state: &State, request: &Request, container: &Container) -> Answer {
    let began = Instant::now();
    let (text, parameters) = body(request)?;
    let layout = state.partitions.layout(container);
    let (text, asked) = match text.strip_prefix(OF_ALL) {
        Some(text) => (text.to_owned(), Asked::All),
        None => {
            let asked = asked(request, &text, &parameters, container, layout.count)?;
            (text, asked)
        }
    };
    let (rows, next) = match asked {
        Asked::Part => {
            let part = state.places.part(&layout, container, request)?;
            of_part(state, request, container, &text, &parameters, part)?
        }
        Asked::All => {
            let all = Part::Of(PartitionKey::default());
            of_part(state, request, container, &text, &parameters, all)?
        }
        Asked::Each => {
            let limits = limits(request)?;
            let query = |number, rest| {
                let range = layout.range(number);
                let within = Within::new(state, container, range);
                within.query(&text, &parameters, &limits, rest)
            };
            let from = continuation(request)?.unwrap_or_default();
            let (rows, next) = across(layout.count, query, from)?;
            (rows, next.map(|next| continue_after(&next)))
        }
    };
    let reply = page(&container.rid().to_string(), "Documents", &rows, next);
    let reply = session(reply, state.documents.engine().last_version());
    let reply = reply.with_some(
        "x-ms-cosmos-index-utilization",
        index_metrics(request, container)?,
    );
    Ok(measured(request, reply, rows.len(), began.elapsed()))
}

/// A page of rows, and where the next one goes on.
fn of_part(
    state: &State,
    request: &Request,
    container: &Container,
    text: &str,
    parameters: &[(String, Value)],
    part: Part,
) -> Result<(Vec<String>, Option<String>), Failure> {
    let limits = limits(request)?;
    Ok(match part {
        Part::Nothing => (of_nothing(text, parameters, state.now())?, None),
        Part::Within(range) => {
            let within = Within::new(state, container, range);
            let (rows, next) = within.query(text, parameters, &limits, continuation(request)?)?;
            (rows, next.map(|next| continue_after(&next)))
        }
        Part::Of(key) => {
            let (scope, from) = (Scope::partition(key), continuation(request)?);
            let page = container.query(text, parameters, &scope, &limits, from.as_ref())?;
            let next = page.continuation.map(|next| continue_after(&next));
            (page.rows, next)
        }
    })
}

/// As Cosmos DB has it, a query of all partitions is one by intention: the request says so, or names a part, or the query
/// names a partition key. Where there are several, one whose rows are those of each is answered; any other has a plan.
fn asked(
    request: &Request,
    text: &str,
    parameters: &[(String, Value)],
    container: &Container,
    partitions: usize,
) -> Result<Asked, Failure> {
    let is_of_all = is_of_all_by_intention(request)?;
    if names_part(request)? || partitions == 1 && is_of_all {
        return Ok(Asked::Part);
    }
    let query = Query::parse(text)?.bind(parameters)?;
    let keys = query.key_condition(&container.definition().partition_key);
    let bounds = (query.info().top, query.info().window);
    match keys.partition.first() {
        Some(ValueRange::OneOf(values)) if values.len() == 1 => Ok(Asked::Part),
        _ if is_of_all && query.is_streaming() && bounds == (None, None) => Ok(Asked::Each),
        _ if is_of_all => {
            let message = "The container has several partitions: this query is to have a plan, and to be sent to each.";
            Err(Failure::bad_request(message).sub_status(1004))
        }
        _ => Err(crosses_partitions()),
    }
}

/// Whether the request names a part of the container, or all of it.
pub(crate) fn is_of_all_by_intention(request: &Request) -> Result<bool, Failure> {
    Ok(request.is_true("x-ms-documentdb-query-enablecrosspartition") || names_part(request)?)
}

fn names_part(request: &Request) -> Result<bool, Failure> {
    Ok(request.header("x-ms-start-epk").is_some()
        || request
            .header("x-ms-documentdb-partitionkeyrangeid")
            .is_some()
        || request.partition_key()?.is_some())
}

pub(crate) fn crosses_partitions() -> Failure {
    Failure::bad_request(
        "A query of all partitions has the header x-ms-documentdb-query-enablecrosspartition, or names a partition key.",
    )
}

/// The index that the query used, as SDKs read it: documents are in the order of their partition keys, so one of a partition
/// key reads no others.
fn index_metrics(request: &Request, container: &Container) -> Result<Option<String>, Failure> {
    if !request.is_true("x-ms-cosmos-populateindexmetrics") {
        return Ok(None);
    }
    let parts = request.partition_key()?.map_or(0, |key| key.parts().len());
    let definition = container.definition();
    let paths = definition.partition_key.iter().take(parts);
    let used: Vec<Value> = paths
        .map(|path| {
            json!({
                "FilterExpression": "",
                "IndexSpec": format!("{path}/?"),
                "FilterPreciseSet": true,
                "IndexPreciseSet": true,
                "IndexImpactScore": "High",
            })
        })
        .collect();
    let metrics = json!({
        "UtilizedSingleIndexes": used,
        "PotentialSingleIndexes": [],
        "UtilizedCompositeIndexes": [],
        "PotentialCompositeIndexes": [],
    });
    Ok(Some(
        data_encoding::BASE64.encode(metrics.to_string().as_bytes()),
    ))
}

/// With the headers in which SDKs look for figures of a query.
fn measured(request: &Request, reply: Reply, rows: usize, took: Duration) -> Reply {
    let bytes = reply.body.len();
    let milliseconds = took.as_secs_f64() * 1e3;
    let metrics = request.is_true("x-ms-documentdb-populatequerymetrics").then(|| {
        format!(
            "totalExecutionTimeInMs={milliseconds:.2};queryCompileTimeInMs=0.00;queryLogicalPlanBuildTimeInMs=0.00;\
             queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs={milliseconds:.2};\
             indexLookupTimeInMs=0.00;instructionCount=0;documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;\
             userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={rows};retrievedDocumentSize={bytes};\
             outputDocumentCount={rows};outputDocumentSize={bytes};writeOutputTimeInMs=0.00;indexUtilizationRatio=0.00"
        )
    });
    reply.with_some("x-ms-documentdb-query-metrics", metrics)
}

/// The rows of a query of no documents.
fn of_nothing(
    text: &str,
    parameters: &[(String, Value)],
    now: SystemTime,
) -> Result<Vec<String>, Failure> {
    rows(text, parameters, now, &[])
}

/// A query of resources that are in memory as JSON.
pub(crate) fn of_rows(
    state: &State,
    request: &Request,
    rid: &str,
    member: &str,
    of: Vec<(String, String)>,
) -> Answer {
    let (text, parameters) = body(request)?;
    let bodies: Vec<String> = of.into_iter().map(|(_, body)| body).collect();
    let found = rows(&text, &parameters, state.now(), &bodies)?;
    let from: usize = continuation(request)?.unwrap_or_default();
    let (from, to) = (
        from.min(found.len()),
        from.saturating_add(request.page()?).min(found.len()),
    );
    let next = (to < found.len()).then(|| continue_after(&to));
    Ok(page(rid, member, &found[from..to], next))
}

fn rows(
    text: &str,
    parameters: &[(String, Value)],
    now: SystemTime,
    bodies: &[String],
) -> Result<Vec<String>, Failure> {
    let query = Query::parse(text)?.bind(parameters)?;
    let limits = QueryLimits {
        rows: usize::MAX,
        bytes: usize::MAX,
        ..QueryLimits::default()
    };
    let mut execution = query.start(&limits, now);
    for body in bodies {
        if execution.push(body.as_bytes(), &NoSystem)? == Flow::Enough {
            break;
        }
    }
    Ok(execution.finish()?)
}
