//! Databases and containers.

use ebbtide_documents::{Container, ContainerDefinition, DatabaseInfo, ResourceId};
use serde::Deserialize;
use serde_json::json;

use crate::lists::{cut, page};
use crate::offers;
use crate::query;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;

#[derive(Deserialize)]
struct WithId {
    id: String,
}

fn id_of(body: &[u8]) -> Result<String, Failure> {
    serde_json::from_slice::<WithId>(body)
        .map(|with| with.id)
        .map_err(|error| {
            Failure::bad_request(format!("The body is no JSON object with an id: {error}."))
        })
}

pub(crate) fn databases(state: &State, request: &Request) -> Answer {
    let rows = || -> Result<Vec<_>, Failure> {
        Ok(state
            .documents
            .databases()?
            .into_iter()
            .map(|database| (database.id.clone(), database.to_json()))
            .collect())
    };
    match request.method.as_str() {
        "GET" => listed(request, "", "Databases", rows()?),
        "POST" if query::is_query(request) => {
            query::of_rows(state, request, "", "Databases", rows()?)
        }
        "POST" => {
            let offer = offers::wanted(request)?;
            let database = state.documents.create_database(&id_of(&request.body)?)?;
            offers::create(state, offer, &database.rid, &link(&database, None))?;
            Ok(database_reply(201, &database, request))
        }
        _ => Err(not_allowed()),
    }
}

pub(crate) fn database(state: &State, request: &Request, id: &str) -> Answer {
    let database = state.documents.database(id)?;
    match request.method.as_str() {
        "GET" => Ok(database_reply(200, &database, request)),
        "DELETE" => {
            let containers = state.documents.containers(&database.id)?;
            state
                .documents
                .delete_database_if(&database.id, &request.conditions()?)?;
            for container in containers {
                offers::delete(state, &container.rid())?;
                state.partitions.set(container.rid(), 1);
            }
            offers::delete(state, &database.rid)?;
            Ok(Reply::empty(204))
        }
        _ => Err(not_allowed()),
    }
}

fn database_reply(status: u16, database: &DatabaseInfo, request: &Request) -> Reply {
    let body = if status == 201 && request.is_minimal() {
        String::new()
    } else {
        database.to_json()
    };
    Reply::json(status, body)
        .with("etag", format!("\"{}\"", database.version))
        .with("lsn", database.version)
        .with("x-ms-content-path", database.rid)
}

pub(crate) fn containers(state: &State, request: &Request, database: &str) -> Answer {
    let database = state.documents.database(database)?;
    let rows = || -> Result<Vec<_>, Failure> {
        let containers = state.documents.containers(&database.id)?;
        Ok(containers
            .iter()
            .map(|container| (container.definition().id.clone(), container.to_json()))
            .collect())
    };
    let rid = database.rid.to_string();
    match request.method.as_str() {
        "GET" => listed(request, &rid, "DocumentCollections", rows()?),
        "POST" if query::is_query(request) => {
            query::of_rows(state, request, &rid, "DocumentCollections", rows()?)
        }
        "POST" => {
            let offer = offers::wanted(request)?;
            let definition = ContainerDefinition::from_json(&request.body)?;
            let container = state.documents.create_container(&database.id, definition)?;
            // Where the database has a throughput, its containers share that.
            let shares = offers::is_there(state, &database.rid)?;
            let offer = offer.or_else(|| (!shares).then(offers::smallest));
            let divided = offer.map(offers::divided);
            let partitions = divided.as_ref().map_or(1, |(_, count)| *count);
            let offer = divided.map(|(offer, _)| offer);
            offers::create(
                state,
                offer,
                &container.rid(),
                &link(&database, Some(&container)),
            )?;
            state.partitions.set(container.rid(), partitions);
            Ok(container_reply(state, 201, &container, request))
        }
        _ => Err(not_allowed()),
    }
}

pub(crate) fn container(state: &State, request: &Request, database: &str, id: &str) -> Answer {
    let container = offers::container(state, database, id)?;
    let etag = |container: &Container| member(container, "_etag").unwrap_or_default();
    match request.method.as_str() {
        "GET" => {
            if request
                .header("if-none-match")
                .is_some_and(|known| known == etag(&container))
            {
                return Ok(Reply::empty(304).with("etag", etag(&container)));
            }
            Ok(container_reply(state, 200, &container, request))
        }
        "PUT" => {
            let definition = ContainerDefinition::from_json(&request.body)?;
            if definition.id != container.definition().id {
                return Err(Failure::bad_request(
                    "The id of a container cannot be changed.",
                ));
            }
            let container = state.documents.replace_container_if(
                database,
                definition,
                &request.conditions()?,
            )?;
            Ok(container_reply(state, 200, &container, request))
        }
        "DELETE" => {
            let id = &container.definition().id;
            state
                .documents
                .delete_container_if(database, id, &request.conditions()?)?;
            offers::delete(state, &container.rid())?;
            state.partitions.set(container.rid(), 1);
            Ok(Reply::empty(204))
        }
        _ => Err(not_allowed()),
    }
}

/// A member of the resource's JSON.
fn member(container: &Container, name: &str) -> Option<String> {
    let json: serde_json::Value = serde_json::from_str(&container.to_json()).ok()?;
    Some(json.get(name)?.as_str()?.to_string())
}

fn container_reply(state: &State, status: u16, container: &Container, request: &Request) -> Reply {
    let version = state.documents.engine().last_version();
    let stats = container.items().stats();
    let kib = stats.stored_bytes.div_ceil(1024);
    let mut body = container.to_json();
    if request.is_true("x-ms-documentdb-populatepartitionstatistics") {
        let statistics = json!([{ "id": "0", "sizeInKB": kib, "documentCount": stats.live_items, "partitionKeys": [] }]);
        body.pop();
        body.push_str(&format!(",\"statistics\":{statistics}}}"));
    }
    if status == 201 && request.is_minimal() {
        body.clear();
    }
    let usage = format!(
        "functions=0;storedProcedures=0;triggers=0;documentSize={};documentsSize={kib};documentsCount={};collectionSize={};",
        kib / 1024,
        stats.live_items,
        stats.disk_bytes.div_ceil(1024),
    );
    let quota = "functions=0;storedProcedures=0;triggers=0;documentSize=-1;documentsSize=-1;documentsCount=-1;collectionSize=-1;";
    let wants_quota = request.is_true("x-ms-documentdb-populatequotainfo");
    let are_whole = container.indexes().iter().all(|(_, is_whole)| *is_whole);
    let progress = if are_whole { 100 } else { 0 };
    Reply::json(status, body)
        .with_some("etag", member(container, "_etag"))
        .with("lsn", version)
        .with("x-ms-session-token", format!("0:-1#{version}"))
        .with("x-ms-content-path", container.rid())
        .with(
            "x-ms-documentdb-collection-index-transformation-progress",
            progress,
        )
        .with_some("x-ms-resource-usage", wants_quota.then_some(usage))
        .with_some("x-ms-resource-quota", wants_quota.then_some(quota))
}

/// The partitions of a container. SDKs ask until there is nothing new.
pub(crate) fn ranges(state: &State, request: &Request, database: &str, id: &str) -> Answer {
    let container = offers::container(state, database, id)?;
    let rid = container.rid();
    let etag = format!("\"{rid}\"");
    if request
        .header("if-none-match")
        .is_some_and(|known| known == etag)
    {
        return Ok(Reply::empty(304).with("etag", etag));
    }
    let link = member(&container, "_self").unwrap_or_default();
    let layout = state.partitions.layout(&container);
    let rows: Result<Vec<String>, Failure> = (0..layout.count)
        .map(|number| {
            let of_range = (number as u64 + 2).to_le_bytes();
            let own = [rid.as_bytes(), &of_range[..7], &[0x50]].concat();
            let own = ResourceId::from_bytes(&own)?;
            let range = layout.range(number);
            let range = json!({
                "_rid": own.to_string(),
                "id": number.to_string(),
                "_etag": etag,
                "minInclusive": range.from,
                "maxExclusive": range.to,
                "ridPrefix": number,
                "_self": format!("{link}pkranges/{own}/"),
                "throughputFraction": 1.0 / layout.count as f64,
                "status": "online",
                "parents": [],
                "_ts": 0,
                "_lsn": 1,
            });
            Ok(range.to_string())
        })
        .collect();
    let list = page(&rid.to_string(), "PartitionKeyRanges", &rows?, None);
    Ok(list.with("etag", etag))
}

/// With one region for writes there are no conflicts.
pub(crate) fn conflicts(state: &State, request: &Request, database: &str, id: &str) -> Answer {
    let rid = state.documents.container(database, id)?.rid().to_string();
    match request.method.as_str() {
        "POST" if !query::is_of_all_by_intention(request)? => Err(query::crosses_partitions()),
        "GET" | "POST" => Ok(page::<&str>(&rid, "Conflicts", &[], None)),
        _ => Err(not_allowed()),
    }
}

fn listed(request: &Request, rid: &str, member: &str, rows: Vec<(String, String)>) -> Answer {
    let (rows, continuation) = cut(request, rows)?;
    Ok(page(rid, member, &rows, continuation))
}

/// The link that `_self` of the resource is.
fn link(database: &DatabaseInfo, container: Option<&Container>) -> String {
    match container {
        Some(container) => format!("dbs/{}/colls/{}/", database.rid, container.rid()),
        None => format!("dbs/{}/", database.rid),
    }
}

pub(crate) fn not_allowed() -> Failure {
    Failure::new(405, "MethodNotAllowed", "This resource has no such method.")
}
