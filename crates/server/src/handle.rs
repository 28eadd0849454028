//! The way of a request: from its parts to its answer.

use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{HeaderMap, Method, Response, Uri};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::auth::Signed;
use crate::limits::{BODY_BYTES, BODY_TIME, THROWN_AWAY_BYTES, fits};
use crate::path::{Path, Resource};
use crate::reply::{Answer, Failure};
use crate::request::Request;
use crate::state::{Frontend, Service, Shared, State};
use crate::{account, catalog, items, metrics, offers, own, page, query, status};

/// Answers a request; never fails.
pub(crate) async fn handle(
    state: Shared,
    memory: &'static Semaphore,
    request: hyper::Request<Incoming>,
) -> Response<Full<Bytes>> {
    let activity = activity(request.headers());
    let is_head = request.method() == Method::HEAD;
    let (outcome, request_bytes) = answer(&state, memory, request).await;
    let reply = outcome.unwrap_or_else(|failure| {
        if failure.status >= 500 && failure.status != 501 {
            tracing::error!(activity, status = failure.status, "{}", failure.message);
        }
        failure.into_reply(&activity)
    });
    state
        .frontend()
        .figures
        .count(reply.status, request_bytes, reply.body.len());
    tracing::debug!(
        activity,
        status = reply.status,
        bytes = reply.body.len(),
        "answered"
    );
    let charge = charge(request_bytes, reply.body.len());
    let mut reply = reply
        .with("x-ms-activity-id", activity)
        .with("x-ms-request-charge", charge)
        .with(
            "x-ms-serviceversion",
            concat!("version=", env!("CARGO_PKG_VERSION")),
        )
        .with(
            "x-ms-gatewayversion",
            concat!("version=", env!("CARGO_PKG_VERSION")),
        );
    if is_head {
        reply.body = Bytes::new();
    }
    reply.into_response()
}

/// The answer, and how many bytes the request's body had.
async fn answer(
    state: &Shared,
    memory: &'static Semaphore,
    request: hyper::Request<Incoming>,
) -> (Answer, usize) {
    let (parts, body) = request.into_parts();
    let path = match admit(state.frontend(), &parts.method, &parts.headers, &parts.uri) {
        Ok(path) => path,
        Err(failure) => return (Err(failure), 0),
    };
    // Held until the request is answered.
    let (body, _permits) = match whole(body, memory).await {
        Ok(whole) => whole,
        Err(failure) => return (Err(failure), 0),
    };
    let bytes = body.len();
    let query = parts.uri.query().unwrap_or_default().to_string();
    let method = if parts.method == Method::HEAD {
        Method::GET
    } else {
        parts.method
    };
    let request = Request {
        method,
        path,
        query,
        headers: parts.headers,
        body,
    };
    if let Some(writes) = writes(&request) {
        state.frontend().figures.came(writes);
    }
    if let Some(answer) = state.at_once(&request) {
        return (answer, bytes);
    }
    let state = state.clone();
    // The threads of the runtime are for connections; work that may wait for the disk has others.
    let work = tokio::task::spawn_blocking(move || {
        state.frontend().figures.work(|| state.route(&request))
    });
    let outcome = work.await.unwrap_or_else(|_| {
        Err(Failure::new(
            500,
            "InternalServerError",
            "The request made the server fail.",
        ))
    });
    (outcome, bytes)
}

/// The path of a request that may be answered.
fn admit(
    frontend: &Frontend,
    method: &Method,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Path, Failure> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST.as_str()).unwrap_or_default();
    // Of two hosts, and of the one in the line of the request, others may take the one that is not looked at here.
    let is_one = headers.get_all(HOST).iter().count() <= 1;
    if !is_one
        || !frontend.hosts.has(host)
        || !uri.host().is_none_or(|host| frontend.hosts.has(host))
    {
        let message =
            format!("This server is not known by the name {host:?}; --host gives it names.");
        return Err(Failure::new(403, "Forbidden", message));
    }
    let path = Path::parse(uri.path())
        .ok_or_else(|| Failure::bad_request("The path has escapes that are none of UTF-8."))?;
    let is_open = match path.resource {
        Resource::Health | Resource::Ready => true,
        // The page, which asks for the key, and not what SDKs ask for at the same path.
        Resource::Account => page::is_asked_for(headers),
        _ => false,
    };
    if let Some(key) = frontend.key.as_ref().filter(|_| !is_open) {
        let request = Signed {
            verb: method.as_str(),
            path: &path,
            authorization: text(AUTHORIZATION.as_str()),
            x_ms_date: text("x-ms-date"),
            date: text("date"),
        };
        // Not the database's clock, which clients may have moved.
        if let Some(why) = key.refuses(&request, SystemTime::now()) {
            return Err(Failure::new(401, "Unauthorized", why));
        }
    }
    Ok(path)
}

/// The whole body. Memory is taken for what has come, and not for what is announced.
async fn whole(
    mut body: Incoming,
    memory: &'static Semaphore,
) -> Result<(Bytes, Vec<SemaphorePermit<'static>>), Failure> {
    let read = async {
        let mut whole = BytesMut::new();
        let mut permits = Vec::new();
        let mut thrown_away = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Failure::bad_request(format!("The body cannot be read: {error}."))
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if thrown_away > 0 || whole.len() + data.len() > BODY_BYTES {
                // A client that is still sending would not see the answer.
                thrown_away += data.len();
                if thrown_away > THROWN_AWAY_BYTES {
                    break;
                }
                continue;
            }
            permits.push(fits(memory, data.len()).ok_or_else(|| Failure {
                retry_after: Some(crate::reply::RETRY_AFTER),
                ..Failure::new(
                    429,
                    "TooManyRequests",
                    "The bodies of the requests in progress fill the memory that they may have.",
                )
            })?);
            if whole.is_empty() && body.is_end_stream() {
                // It came in one piece, as most do, and is not copied.
                return Ok((data, permits));
            }
            whole.extend_from_slice(&data);
        }
        match thrown_away {
            0 => Ok((whole.freeze(), permits)),
            _ => Err(too_large()),
        }
    };
    let late = |_| Failure::new(408, "RequestTimeout", "The body did not come in time.");
    tokio::time::timeout(BODY_TIME, read).await.map_err(late)?
}

fn too_large() -> Failure {
    let message = format!("The body of a request has at most {BODY_BYTES} bytes.");
    Failure::new(413, "RequestEntityTooLarge", message)
}

impl Service for State {
    fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    fn at_once(&self, request: &Request) -> Option<Answer> {
        at_once(self, request)
    }

    fn route(&self, request: &Request) -> Answer {
        route(self, request)
    }
}

/// Answers that wait for nothing.
fn at_once(state: &State, request: &Request) -> Option<Answer> {
    match &request.path.resource {
        Resource::Document(database, container, id) => {
            items::read_at_once(state, request, database, container, id)
        }
        Resource::Documents(database, container) => {
            items::write_at_once(state, request, database, container)
        }
        _ => of_nothing(state.scheme, request),
    }
}

/// The answer to a request that is about no documents.
pub(crate) fn of_nothing(scheme: &str, request: &Request) -> Option<Answer> {
    match &request.path.resource {
        Resource::Account if request.method == Method::GET => {
            Some(match page::is_asked_for(&request.headers) {
                true => page::page(),
                false => account::account(scheme, request),
            })
        }
        Resource::Account => Some(Err(catalog::not_allowed())),
        Resource::Health => Some(own::health()),
        Resource::Absent(kind) => Some(Err(Failure::not_implemented(format!(
            "This server has no {kind}."
        )))),
        _ => None,
    }
}

/// Whether the request changes nothing.
#[cfg(feature = "cluster")]
pub(crate) fn writes_nothing(request: &Request) -> bool {
    match request.method {
        Method::GET => !request.is_true(items::TOUCH),
        Method::POST => query::is_query(request) || query::is_plan(request),
        _ => false,
    }
}

/// Whether the request changes documents; none where it is about none.
fn writes(request: &Request) -> Option<bool> {
    match request.path.resource {
        Resource::Documents(..) | Resource::Document(..) | Resource::DeletePartition(..) => {
            let reads = request.method == Method::GET
                || query::is_query(request)
                || query::is_plan(request);
            Some(!reads)
        }
        _ => None,
    }
}

pub(crate) fn route(state: &State, request: &Request) -> Answer {
    match &request.path.resource {
        Resource::Databases => catalog::databases(state, request),
        Resource::Database(database) => catalog::database(state, request, database),
        Resource::Containers(database) => catalog::containers(state, request, database),
        Resource::Container(database, id) => catalog::container(state, request, database, id),
        Resource::Documents(database, id) => items::documents(state, request, database, id),
        Resource::Document(database, coll, id) => {
            items::document(state, request, database, coll, id)
        }
        Resource::Ranges(database, id) => catalog::ranges(state, request, database, id),
        Resource::Conflicts(database, id) => catalog::conflicts(state, request, database, id),
        Resource::DeletePartition(database, id) => {
            items::delete_partition(state, request, database, id)
        }
        Resource::Due(database, id) => own::due(state, request, database, id),
        Resource::Ttl(database, id) => own::ttl(state, request, database, id),
        Resource::Offers => offers::offers(state, request),
        Resource::Offer(id) => offers::offer(state, request, id),
        Resource::Clock => own::clock(state, request),
        Resource::Metrics => metrics::metrics(state),
        Resource::Status => status::status(state),
        Resource::Ready => own::ready(state),
        Resource::Account => Err(catalog::not_allowed()),
        Resource::Conflict
        | Resource::Health
        | Resource::Cluster
        | Resource::Absent(_)
        | Resource::Unknown => Err(Failure::not_found("There is no such resource.")),
    }
}

/// The client's name for its request, or one of the moment.
fn activity(headers: &HeaderMap) -> String {
    let given = headers
        .get("x-ms-activity-id")
        .and_then(|value| value.to_str().ok());
    match given {
        Some(given) if !given.is_empty() && given.len() <= 64 => given.to_string(),
        _ => {
            let since = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            let bits = since.as_nanos();
            format!(
                "{:08x}-{:04x}-4000-8000-{:012x}",
                bits >> 64 & 0xffff_ffff,
                bits >> 48 & 0xffff,
                bits & 0xffff_ffff_ffff
            )
        }
    }
}

/// Request units in name alone: one per KiB that is answered, five per KiB that is sent.
fn charge(request_bytes: usize, response_bytes: usize) -> String {
    let kib = |bytes: usize| bytes.div_ceil(1024);
    (5 * kib(request_bytes) + kib(response_bytes))
        .max(1)
        .to_string()
}
