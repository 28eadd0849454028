//! Documents: read, written and deleted one at a time.

use ebbtide::{AtOnce, Version};
use ebbtide_documents::{Conditions, Container, Document, Etag, PartitionKey, Patch, ResourceId};

use crate::catalog::not_allowed;
use crate::date;
use crate::lists::{continuation, continue_after, page};
use crate::offers;
use crate::places::Part;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;
use crate::within::Within;
use crate::{batch, changes, query};

/// The header by which a read restarts the countdown of what it reads.
pub(crate) const TOUCH: &str = "x-ebbtide-touch";
/// A thread that others wait for works on a body of so many bytes for some microseconds.
const LARGEST_AT_ONCE: usize = 16 << 10;

pub(crate) fn documents(state: &State, request: &Request, database: &str, id: &str) -> Answer {
    let container = offers::container(state, database, id)?;
    let answer = match request.method.as_str() {
        "GET" if request.header("a-im").is_some() => changes::changes(state, request, &container),
        "GET" => list(state, request, &container),
        "POST" if query::is_plan(request) => query::plan(state, request, &container),
        "POST" if query::is_query(request) => query::query(state, request, &container),
        "POST" if request.is_true("x-ms-cosmos-is-batch-request") => {
            batch::batch(state, request, &container)
        }
        "POST" => write(state, request, &container, database),
        _ => Err(not_allowed()),
    };
    Ok(of_partition(state, request, &container, answer?))
}

fn list(state: &State, request: &Request, container: &Container) -> Answer {
    let rid = container.rid().to_string();
    let layout = state.partitions.layout(container);
    let (rows, next) = match state.places.part(&layout, container, request)? {
        Part::Nothing => (Vec::new(), None),
        Part::Of(key) => {
            let scope = ebbtide_documents::Scope::partition(key);
            let from = continuation(request)?;
            let page = container.list(&scope, request.page()?, from.as_ref())?;
            (page.documents, page.continuation)
        }
        Part::Within(range) => {
            let page = Within::new(state, container, range)
                .list(request.page()?, continuation(request)?)?;
            (page.documents, page.continuation)
        }
    };
    let rows: Vec<Vec<u8>> = rows.iter().map(body).collect();
    let next = next.map(|next| continue_after(&next));
    let version = state.documents.engine().last_version();
    Ok(session(page(&rid, "Documents", &rows, next), version))
}

/// A document is created, or written whether it is there or not.
fn write(state: &State, request: &Request, container: &Container, database: &str) -> Answer {
    let key = match request.partition_key()? {
        Some(key) => key,
        None => container.partition_key_of(&request.body)?,
    };
    let (document, created) = if is_upsert(request) {
        container.upsert(&key, &request.body, &request.conditions()?)?
    } else {
        (container.create(&key, &request.body)?, true)
    };
    Ok(write_reply(
        state, request, container, database, &document, created,
    ))
}

fn is_upsert(request: &Request) -> bool {
    request.is_true("x-ms-documentdb-is-upsert")
}

/// The answer to a write of one document that is not large, where nothing has to be waited for.
pub(crate) fn write_at_once(
    state: &State,
    request: &Request,
    database: &str,
    coll: &str,
) -> Option<Answer> {
    if request.method != hyper::Method::POST
        || request.body.len() > LARGEST_AT_ONCE
        || query::is_plan(request)
        || query::is_query(request)
        || request.is_true("x-ms-cosmos-is-batch-request")
    {
        return None;
    }
    let container = offers::container(state, database, coll).ok()?;
    let key = request.partition_key().ok()??;
    let written = if is_upsert(request) {
        container.try_upsert(&key, &request.body, &request.conditions().ok()?)
    } else {
        let created = container.try_create(&key, &request.body);
        created.map(|created| match created {
            AtOnce::Ready(document) => AtOnce::Ready((document, true)),
            AtOnce::WouldWait => AtOnce::WouldWait,
        })
    };
    match written {
        Ok(AtOnce::Ready((document, created))) => {
            let reply = write_reply(state, request, &container, database, &document, created);
            Some(Ok(of_partition(state, request, &container, reply)))
        }
        Ok(AtOnce::WouldWait) => None,
        Err(error) => Some(Err(error.into())),
    }
}

fn write_reply(
    state: &State,
    request: &Request,
    container: &Container,
    database: &str,
    document: &Document,
    created: bool,
) -> Reply {
    let status = if created { 201 } else { 200 };
    let body = if request.is_minimal() {
        Vec::new()
    } else {
        body(document)
    };
    let reply = Reply::json(status, body);
    described(state, reply, document, container, database)
}

pub(crate) fn document(
    state: &State,
    request: &Request,
    database: &str,
    coll: &str,
    id: &str,
) -> Answer {
    let container = offers::container(state, database, coll)?;
    let reply = one(state, request, &container, database, id)?;
    Ok(of_partition(state, request, &container, reply))
}

fn one(
    state: &State,
    request: &Request,
    container: &Container,
    database: &str,
    id: &str,
) -> Answer {
    let key = key(request)?;
    let id = &by_id(container, &key, id)?;
    let conditions = request.conditions()?;
    let document = match request.method.as_str() {
        "GET" => {
            let document = if request.is_true(TOUCH) {
                container.read_and_touch(&key, id)?
            } else {
                container.read(&key, id)?
            };
            return Ok(read_reply(
                state,
                &conditions,
                &document,
                container,
                database,
            ));
        }
        "PUT" => container.replace(&key, id, &request.body, &conditions)?,
        "PATCH" => container.patch(&key, id, &Patch::from_json(&request.body)?, &conditions)?,
        "DELETE" => {
            container.delete(&key, id, &conditions)?;
            let reply = Reply::empty(204);
            let version = state.documents.engine().last_version();
            return Ok(placed(state, session(reply, version), container, database));
        }
        _ => return Err(not_allowed()),
    };
    let body = if request.is_minimal() {
        Vec::new()
    } else {
        body(&document)
    };
    Ok(described(
        state,
        Reply::json(200, body),
        &document,
        container,
        database,
    ))
}

/// The answer to a read of a document by its id, where no disk has to be waited for.
pub(crate) fn read_at_once(
    state: &State,
    request: &Request,
    database: &str,
    coll: &str,
    id: &str,
) -> Option<Answer> {
    if request.method != hyper::Method::GET || request.is_true(TOUCH) {
        return None;
    }
    let container = offers::container(state, database, coll).ok()?;
    let key = request.partition_key().ok()??;
    match container.try_read(&key, id) {
        Ok(AtOnce::Ready(document)) => {
            let conditions = request.conditions().ok()?;
            let reply = read_reply(state, &conditions, &document, &container, database);
            Some(Ok(of_partition(state, request, &container, reply)))
        }
        // Nothing of this id may be what a `_rid` names.
        Ok(AtOnce::WouldWait) | Err(_) => None,
    }
}

fn read_reply(
    state: &State,
    conditions: &Conditions,
    document: &Document,
    container: &Container,
    database: &str,
) -> Reply {
    let known = match conditions.if_none_match {
        Some(Etag::Any) => true,
        Some(Etag::Version(version)) => version == document.version,
        _ => false,
    };
    let reply = if known {
        Reply::empty(304)
    } else {
        Reply::json(200, body(document))
    };
    // Of a write it is the version written; of a read, how far the container is.
    let mut reply = described(state, reply, document, container, database);
    reply.headers.retain(|(name, _)| *name != "lsn");
    reply.with("lsn", state.documents.engine().last_version())
}

fn key(request: &Request) -> Result<PartitionKey, Failure> {
    request.partition_key()?.ok_or_else(|| {
        let message = "The partition key of the document is missing: the header x-ms-documentdb-partitionkey.";
        Failure::bad_request(message).sub_status(1001)
    })
}

/// The id, where the path has one; where it has a `_rid`, that of its document. A document whose id reads as the `_rid` of
/// another comes first.
fn by_id(container: &Container, key: &PartitionKey, id: &str) -> Result<String, Failure> {
    match id.parse::<ResourceId>() {
        Ok(rid) if rid.as_bytes().starts_with(container.rid().as_bytes()) => {
            Ok(match container.read(key, id) {
                Ok(_) => id.to_string(),
                Err(_) => container.id_of(key, &rid)?,
            })
        }
        _ => Ok(id.to_string()),
    }
}

pub(crate) fn body(document: &Document) -> Vec<u8> {
    let mut body = Vec::with_capacity(document.body().len() + 256);
    document.write_json(&mut body);
    body
}

/// With what headers say of a document.
fn described(
    state: &State,
    reply: Reply,
    document: &Document,
    container: &Container,
    database: &str,
) -> Reply {
    let reply = reply
        .with("etag", document.etag())
        .with("x-ms-item-lsn", document.version)
        .with_some("x-ebbtide-expires-at", document.expires_at.map(date::iso));
    placed(state, session(reply, document.version), container, database)
}

/// With the place of the container, by which SDKs keep session tokens.
fn placed(state: &State, reply: Reply, container: &Container, database: &str) -> Reply {
    // It is an id, unless it reads as a `_rid`.
    let found = match database.parse::<ResourceId>() {
        Ok(_) => state.documents.database(database).ok(),
        Err(_) => None,
    };
    let database = found.map_or_else(|| database.to_string(), |database| database.id);
    reply
        .with(
            "x-ms-alt-content-path",
            format!("dbs/{database}/colls/{}", container.definition().id),
        )
        .with("x-ms-content-path", container.rid())
}

pub(crate) fn session(reply: Reply, version: Version) -> Reply {
    reply
        .with("x-ms-session-token", format!("0:-1#{version}"))
        .with("lsn", version)
        .with("x-ms-documentdb-partitionkeyrangeid", 0)
}

/// With the number of the partition that the request is about, where there are several.
fn of_partition(state: &State, request: &Request, container: &Container, reply: Reply) -> Reply {
    if !state.partitions.are_several(container) {
        return reply;
    }
    let number = state.partitions.layout(container).of_request(request);
    let mut reply = reply;
    for (name, value) in &mut reply.headers {
        match (*name, value.strip_prefix("0:")) {
            ("x-ms-session-token", Some(version)) => *value = format!("{number}:{version}"),
            ("x-ms-documentdb-partitionkeyrangeid", _) => *value = number.to_string(),
            _ => {}
        }
    }
    reply
}

/// `POST .../operations/partitionkeydelete`: one range delete.
pub(crate) fn delete_partition(
    state: &State,
    request: &Request,
    database: &str,
    coll: &str,
) -> Answer {
    if request.method != hyper::Method::POST {
        return Err(not_allowed());
    }
    let container = offers::container(state, database, coll)?;
    container.delete_partition(&key(request)?)?;
    Ok(session(
        Reply::empty(200),
        state.documents.engine().last_version(),
    ))
}
