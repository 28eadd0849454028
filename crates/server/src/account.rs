//! The account: what an SDK asks first.

use std::fmt::Write;

use serde_json::json;

use crate::reply::{Answer, Reply};
use crate::request::Request;

/// The one region; some SDKs want to know its name.
const REGION: &str = "Local";

/// `GET /` of an SDK: the account, whose one region is this server as the client named it.
pub(crate) fn account(scheme: &str, request: &Request) -> Answer {
    let host = request.header("host").unwrap_or("localhost");
    let endpoint = format!("{scheme}://{host}/");
    let locations = json!([{ "name": REGION, "databaseAccountEndpoint": endpoint }]);
    let body = json!({
        "_self": "",
        "id": "ebbtide",
        "_rid": "ebbtide",
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": locations,
        "readableLocations": locations,
        "enableMultipleWriteLocations": false,
        "continuousBackupEnabled": false,
        "userReplicationPolicy": { "asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 1 },
        "userConsistencyPolicy": { "defaultConsistencyLevel": "Session" },
        "systemReplicationPolicy": { "minReplicaSetSize": 1, "maxReplicasetSize": 1 },
        "readPolicy": { "primaryReadCoefficient": 1, "secondaryReadCoefficient": 1 },
        "queryEngineConfiguration": query_engine(),
    });
    Ok(Reply::json(200, body.to_string()))
}

/// Bounds that SDKs for .NET and Java hand to the library that makes their query plans.
fn query_engine() -> String {
    let mut text = String::from("{");
    for (name, value) in [
        ("maxSqlQueryInputLength", "524288"),
        ("maxJoinsPerSqlQuery", "0"),
        ("maxLogicalAndPerSqlQuery", "2000"),
        ("maxLogicalOrPerSqlQuery", "2000"),
        ("maxUdfRefPerSqlQuery", "0"),
        ("maxInExpressionItemsCount", "16000"),
        ("queryMaxInMemorySortDocumentCount", "500"),
        ("maxQueryRequestTimeoutFraction", "0.9"),
        ("sqlAllowNonFiniteNumbers", "false"),
        ("sqlAllowAggregateFunctions", "true"),
        ("sqlAllowSubQuery", "false"),
        ("sqlAllowScalarSubQuery", "false"),
        ("allowNewKeywords", "true"),
        ("sqlAllowLike", "true"),
        ("sqlAllowGroupByClause", "true"),
        ("maxSpatialQueryCells", "12"),
        ("spatialMaxGeometryPointCount", "256"),
        ("sqlDisableOptimizationFlags", "0"),
        ("enableSpatialIndexing", "false"),
    ] {
        let comma = if text.len() > 1 { "," } else { "" };
        write!(text, "{comma}\"{name}\":{value}").expect("a string takes all");
    }
    text.push('}');
    text
}
