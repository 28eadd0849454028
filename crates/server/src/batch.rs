//! Transactional batches, and the bulk of some SDKs: the same operations, each for itself.

use std::fmt::Write;

use ebbtide::Version;
use ebbtide_documents::{BatchOperation, BatchResult, Container, PartitionKey};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::items::session;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;

/// Operations of one request.
const MOST: usize = 100;

pub(crate) fn batch(state: &State, request: &Request, container: &Container) -> Answer {
    if request.body.first().is_some_and(|byte| *byte >= 0x80) {
        let message = "This batch is in the binary format of the SDK for .NET, HybridRow, which this server does not read; \
            it takes batches as JSON.";
        return Err(Failure::bad_request(message));
    }
    let is_atomic = !request
        .header("x-ms-cosmos-batch-atomic")
        .is_some_and(|value| value.eq_ignore_ascii_case("false"));
    let (results, first) = if is_atomic {
        let key = request.partition_key()?.ok_or_else(|| {
            Failure::bad_request(
                "A batch has one partition key: the header x-ms-documentdb-partitionkey is missing.",
            )
        })?;
        let operations = BatchOperation::from_json(&request.body)?;
        let results = container.batch(&key, &operations)?;
        let first = first_write(&operations, &results);
        (results, first)
    } else {
        (bulk(request, container)?, None)
    };
    let fails = results.iter().any(|result| result.status >= 400);
    let reply = Reply::json(
        if fails { 207 } else { 200 },
        written(&results, request.is_minimal()),
    );
    let last = state.documents.engine().last_version();
    let mut reply = session(reply, last).with("x-ms-item-count", results.len());
    // A batch is one step of the container: its number is that of its first write.
    reply.headers.retain(|(name, _)| *name != "lsn");
    Ok(reply.with("lsn", first.unwrap_or(last)))
}

/// The version of the first document that the batch wrote.
fn first_write(operations: &[BatchOperation], results: &[BatchResult]) -> Option<Version> {
    let both = operations.iter().zip(results);
    let writes = both.filter(|(operation, _)| !matches!(operation, BatchOperation::Read(..)));
    writes
        .filter_map(|(_, result)| Some(result.document.as_ref()?.version))
        .min()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Keyed {
    /// JSON in a string, or as it is.
    partition_key: Option<Box<RawValue>>,
    operation_type: String,
}

fn bulk(request: &Request, container: &Container) -> Result<Vec<BatchResult>, Failure> {
    let malformed =
        |error: serde_json::Error| Failure::bad_request(format!("The body is no batch: {error}."));
    let operations: Vec<Box<RawValue>> =
        serde_json::from_slice(&request.body).map_err(malformed)?;
    if operations.len() > MOST {
        return Err(Failure::bad_request(format!(
            "A request has at most {MOST} operations, this one {}.",
            operations.len()
        )));
    }
    let goes_on = request.is_true("x-ms-cosmos-batch-continue-on-error");
    let mut results = Vec::new();
    let mut failed = false;
    for operation in operations {
        if failed && !goes_on {
            results.push(refused(424, "An operation before this one failed."));
            continue;
        }
        let keyed: Keyed = serde_json::from_str(operation.get()).map_err(malformed)?;
        let result = alone(request, container, &keyed, operation.get());
        let result = result.unwrap_or_else(|failure| BatchResult {
            sub_status: failure.sub_status,
            ..refused(
                failure.status,
                &format!("{}: {}", keyed.operation_type, failure.message),
            )
        });
        failed |= result.status >= 400;
        results.push(result);
    }
    Ok(results)
}

fn alone(
    request: &Request,
    container: &Container,
    keyed: &Keyed,
    operation: &str,
) -> Result<BatchResult, Failure> {
    let key = match &keyed.partition_key {
        Some(key) => PartitionKey::from_json(
            &serde_json::from_str::<String>(key.get()).unwrap_or_else(|_| key.get().to_string()),
        )?,
        None => request
            .partition_key()?
            .ok_or_else(|| Failure::bad_request("The operation has no partition key."))?,
    };
    let operations = BatchOperation::from_json(format!("[{operation}]").as_bytes())?;
    let mut results = container.batch(&key, &operations)?;
    results
        .pop()
        .ok_or_else(|| Failure::bad_request("The operation is none."))
}

fn refused(status: u16, message: &str) -> BatchResult {
    BatchResult {
        status,
        sub_status: 0,
        document: None,
        message: Some(message.to_string()),
    }
}

fn written(results: &[BatchResult], is_minimal: bool) -> Vec<u8> {
    let mut body = Vec::new();
    for result in results {
        body.push(if body.is_empty() { b'[' } else { b',' });
        let mut text = format!("{{\"statusCode\":{},\"requestCharge\":1", result.status);
        if result.sub_status != 0 {
            write!(text, ",\"subStatusCode\":{}", result.sub_status).expect("a string takes all");
        }
        if let Some(message) = &result.message {
            write!(
                text,
                ",\"message\":{}",
                serde_json::Value::from(message.as_str())
            )
            .expect("a string takes all");
        }
        if let Some(document) = &result.document {
            write!(
                text,
                ",\"eTag\":{}",
                serde_json::Value::from(document.etag())
            )
            .expect("a string takes all");
        }
        body.extend(text.bytes());
        if let Some(document) = result.document.as_ref().filter(|_| !is_minimal) {
            body.extend(b",\"resourceBody\":");
            document.write_json(&mut body);
        }
        body.push(b'}');
    }
    body.extend(if body.is_empty() { &b"[]"[..] } else { b"]" });
    body
}
