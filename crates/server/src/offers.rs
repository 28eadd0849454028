//! Offers: the throughput that clients set. It is kept and told, and bounds nothing here; the one that a container is created
//! with says how many partitions it has.
//!
//! They are records in the engine's container `offers`: the `_rid` of their database or container, and the offer as JSON without
//! `_etag`.

use std::collections::HashSet;

use ebbtide::Item;
use ebbtide_documents::{Container, Documents, ErrorKind, Records, ResourceId};
use serde_json::{Value, json};

use crate::catalog::not_allowed;
use crate::lists::{cut, page};
use crate::partitions::{Partitions, of_throughput};
use crate::query;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;

/// The throughput of a container where nobody named one.
const SMALLEST: u64 = 400;
/// The container of the engine.
const NAME: &str = "offers";

/// The member of an offer's content that has the number of partitions, in an object; what an offer is changed to leaves it.
const INFO: &str = "collectionThroughputInfo";

/// The content of a container's offer with the number of partitions, where that is not one.
pub(crate) fn divided(mut content: Value) -> (Value, usize) {
    let most = &content["offerAutopilotSettings"]["maxThroughput"];
    let throughput = most.as_u64().or(content["offerThroughput"].as_u64());
    let count = of_throughput(throughput.unwrap_or(SMALLEST));
    if count > 1 {
        content[INFO] = json!({ "numPhysicalPartitions": count });
    }
    (content, count as usize)
}

/// The containers of several partitions.
pub(crate) fn partitions(documents: &Documents) -> ebbtide_documents::Result<Partitions> {
    let partitions = Partitions::default();
    for item in documents.records(NAME).all()? {
        let offer: Value = serde_json::from_slice(item.value()).unwrap_or_default();
        let rid = offer["offerResourceId"].as_str().unwrap_or_default();
        if let (Some(count), Ok(rid)) = (count_in(&offer), rid.parse()) {
            partitions.set(rid, count);
        }
    }
    Ok(partitions)
}

fn count_in(offer: &Value) -> Option<usize> {
    let count = offer["content"][INFO]["numPhysicalPartitions"].as_u64();
    count.map(|count| count as usize)
}

/// A container. Over a cluster another node may have made it, and the offer that it was made with says its partitions.
pub(crate) fn container(state: &State, database: &str, id: &str) -> Result<Container, Failure> {
    let container = state.documents.container(database, id)?;
    let rid = container.rid();
    if state.documents.are_replicated()
        && !state.partitions.are_known(rid)
        && let Some(item) = kept(state).item(id_of(&rid))?
    {
        let offer: Value = serde_json::from_slice(item.value()).unwrap_or_default();
        let count = count_in(&offer).unwrap_or(1);
        state.partitions.learn(rid, count);
    }
    Ok(container)
}

fn kept(state: &State) -> Records {
    state.documents.records(NAME)
}

fn id_of(rid: &ResourceId) -> String {
    data_encoding::HEXLOWER.encode(rid.as_bytes())
}

/// The offers of databases and containers that are there. Of one that was deleted while it was made, an offer may be left.
fn of_what_is_there(state: &State) -> Result<Vec<Item>, Failure> {
    let mut there = HashSet::new();
    for database in state.documents.databases()? {
        there.insert(id_of(&database.rid));
        match state.documents.containers(&database.id) {
            Ok(containers) => there.extend(containers.iter().map(|it| id_of(&it.rid()))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut offers = kept(state).all()?;
    offers.retain(|item| str::from_utf8(item.key()).is_ok_and(|id| there.contains(id)));
    Ok(offers)
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
    let id = id_of(rid);
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
    Ok(kept(state).put(&id, offer.to_string())?)
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
    Ok(kept(state).item(id_of(rid))?.is_some())
}

pub(crate) fn delete(state: &State, rid: &ResourceId) -> Result<(), Failure> {
    Ok(kept(state).delete(id_of(rid))?)
}

pub(crate) fn offers(state: &State, request: &Request) -> Answer {
    let mut rows = Vec::new();
    for item in of_what_is_there(state)? {
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
    let kept = kept(state);
    let id = id.to_lowercase();
    let mut offers = of_what_is_there(state)?.into_iter();
    let item = offers
        .find(|item| item.key() == id.as_bytes())
        .ok_or_else(|| Failure::not_found("There is no such offer."))?;
    match request.method.as_str() {
        "GET" => Ok(Reply::json(200, written(&item))),
        "PUT" => {
            let mut offer: Value = serde_json::from_slice(item.value()).unwrap_or_default();
            let asked: Value = serde_json::from_slice(&request.body)
                .map_err(|error| Failure::bad_request(format!("The body is no offer: {error}.")))?;
            let info = offer["content"].get(INFO).cloned();
            offer["content"] = content(&asked)?;
            if let Some(info) = info {
                offer["content"][INFO] = info;
            }
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
