//! Offers: the throughput that clients set. It is kept and told, and bounds nothing here.
//!
//! They are items of a container of the engine, `offers`: the `_rid` of their database or container, and the offer as JSON
//! without `_etag`.

use ebbtide_documents::ResourceId;
use serde_json::{Value, json};

use crate::catalog::not_allowed;
use crate::lists::{cut, page};
use crate::query;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;

/// The throughput of a container where nobody named one.
const SMALLEST: u64 = 400;

fn kept(state: &State) -> Result<ebbtide::Container, Failure> {
    Ok(state.documents.engine().container("offers")?)
}

/// The throughput that the request sets, as an offer's content has it.
pub(crate) fn wanted(request: &Request) -> Result<Option<Value>, Failure> {
    if let Some(settings) = request.header("x-ms-cosmos-offer-autopilot-settings") {
        return autoscale(settings).map(Some);
    }
    let Some(throughput) = request.header("x-ms-offer-throughput") else {
        return Ok(None);
    };
    match throughput.parse::<u64>() {
        Ok(throughput) if throughput >= SMALLEST => {
            Ok(Some(json!({ "offerThroughput": throughput })))
        }
        _ => Err(Failure::bad_request(format!(
            "The header x-ms-offer-throughput is a number from {SMALLEST}."
        ))),
    }
}

/// The content where nobody named a throughput.
pub(crate) fn smallest() -> Value {
    json!({ "offerThroughput": SMALLEST })
}

/// Keeps an offer of this content for what was created, if there is one.
pub(crate) fn create(
    state: &State,
    content: Option<Value>,
    rid: &ResourceId,
    link: &str,
) -> Result<(), Failure> {
    let Some(content) = content else {
        return Ok(());
    };
    let id = data_encoding::HEXLOWER.encode(rid.as_bytes());
    let offer = json!({
        "resource": link,
        "offerType": "Invalid",
        "offerResourceId": rid.to_string(),
        "offerVersion": "V2",
        "content": content,
        "id": id,
        "_rid": id,
        "_self": format!("offers/{id}/"),
    });
    Ok(kept(state)?.put(&id, offer.to_string())?)
}

fn autoscale(settings: &str) -> Result<Value, Failure> {
    let settings: Value = serde_json::from_str(settings).map_err(|error| {
        Failure::bad_request(format!(
            "The header x-ms-cosmos-offer-autopilot-settings is no JSON: {error}."
        ))
    })?;
    let most = settings
        .get("maxThroughput")
        .and_then(Value::as_u64)
        .unwrap_or(10 * SMALLEST);
    Ok(json!({ "offerThroughput": most / 10, "offerAutopilotSettings": settings }))
}

pub(crate) fn is_there(state: &State, rid: &ResourceId) -> Result<bool, Failure> {
    Ok(kept(state)?.contains(data_encoding::HEXLOWER.encode(rid.as_bytes()))?)
}

pub(crate) fn delete(state: &State, rid: &ResourceId) -> Result<(), Failure> {
    Ok(kept(state)?.delete(data_encoding::HEXLOWER.encode(rid.as_bytes()))?)
}

pub(crate) fn offers(state: &State, request: &Request) -> Answer {
    let mut rows = Vec::new();
    for item in &kept(state)? {
        let item = item?;
        rows.push((
            String::from_utf8_lossy(item.key()).into_owned(),
            written(&item),
        ));
    }
    match request.method.as_str() {
        "POST" => query::of_rows(state, request, "", "Offers", rows),
        "GET" => {
            let (rows, continuation) = cut(request, rows)?;
            Ok(page("", "Offers", &rows, continuation))
        }
        _ => Err(not_allowed()),
    }
}

pub(crate) fn offer(state: &State, request: &Request, id: &str) -> Answer {
    let kept = kept(state)?;
    let id = id.to_lowercase();
    let item = kept
        .item(&id)?
        .ok_or_else(|| Failure::not_found("There is no such offer."))?;
    match request.method.as_str() {
        "GET" => Ok(Reply::json(200, written(&item))),
        "PUT" => {
            let mut offer: Value = serde_json::from_slice(item.value()).unwrap_or_default();
            let asked: Value = serde_json::from_slice(&request.body)
                .map_err(|error| Failure::bad_request(format!("The body is no offer: {error}.")))?;
            offer["content"] = content(&asked)?;
            kept.put(&id, offer.to_string())?;
            let item = kept
                .item(&id)?
                .ok_or_else(|| Failure::not_found("There is no such offer."))?;
            Ok(Reply::json(200, written(&item)))
        }
        _ => Err(not_allowed()),
    }
}

fn content(asked: &Value) -> Result<Value, Failure> {
    let content = asked
        .get("content")
        .ok_or_else(|| Failure::bad_request("An offer has a content."))?;
    let settings = content
        .get("offerAutopilotSettings")
        .filter(|settings| !settings.is_null());
    if let Some(settings) = settings {
        return autoscale(&settings.to_string());
    }
    match content.get("offerThroughput").and_then(Value::as_u64) {
        Some(throughput) if throughput >= SMALLEST => Ok(json!({ "offerThroughput": throughput })),
        _ => Err(Failure::bad_request(format!(
            "The throughput of an offer is a number from {SMALLEST}."
        ))),
    }
}

/// With its system properties.
fn written(item: &ebbtide::Item) -> String {
    let mut offer: Value = serde_json::from_slice(item.value()).unwrap_or_default();
    let since = item
        .written_at()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    offer["_etag"] = json!(format!("\"{}\"", item.version()));
    offer["_ts"] = json!(since.as_secs());
    offer.to_string()
}
