//! The change feed: the latest version of each document, in the order of versions.
//!
//! ```text
//! A-IM: Incremental Feed
//! If-None-Match: "57"       goes on behind version 57; "*": behind all that was written
//! If-Modified-Since: ..     where there is no version: from this moment
//! etag: "63"                of the answer: where to go on; 304 where there is nothing new
//! ```

use ebbtide::Version;
use ebbtide_documents::{ChangeStart, ChangeStartAt, Container, Document, Etag};

use crate::items::{body, session};
use crate::lists::page;
use crate::places::Part;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::state::State;
use crate::within::Within;

pub(crate) fn changes(state: &State, request: &Request, container: &Container) -> Answer {
    if request
        .header("a-im")
        .is_some_and(|kind| !kind.eq_ignore_ascii_case("incremental feed"))
    {
        let message = "Of the change feed there is the latest version of each document (A-IM: Incremental Feed); all versions and deletes are not kept.";
        return Err(Failure::not_implemented(message));
    }
    let at = start(request)?;
    let layout = state.partitions.layout(container);
    let (documents, version) = match state.places.part(&layout, container, request)? {
        Part::Nothing => (Vec::new(), now_or(state, at)),
        Part::Of(partition_key) => {
            let page = container.changes(&ChangeStart { at, partition_key }, request.page()?)?;
            (page.documents, page.version)
        }
        Part::Within(range) => {
            let page = Within::new(state, container, range).changes(at, request.page()?)?;
            (page.documents, page.version)
        }
    };
    let etag = format!("\"{version}\"");
    if documents.is_empty() {
        return Ok(session(Reply::empty(304), version).with("etag", etag));
    }
    let rows: Vec<Vec<u8>> = documents.iter().map(row).collect();
    let reply = page(&container.rid().to_string(), "Documents", &rows, None);
    Ok(session(reply, version).with("etag", etag))
}

fn start(request: &Request) -> Result<ChangeStartAt, Failure> {
    Ok(
        match (request.etag("if-none-match")?, request.modified_since()) {
            (Some(Etag::Any), _) => ChangeStartAt::Now,
            (Some(Etag::Version(version)), _) => ChangeStartAt::After(version),
            (Some(Etag::Unknown), _) => {
                return Err(Failure::bad_request(
                    "The header If-None-Match is no version that this change feed gave.",
                ));
            }
            (None, Some(moment)) => ChangeStartAt::Moment(moment),
            (None, None) => ChangeStartAt::Beginning,
        },
    )
}

fn now_or(state: &State, at: ChangeStartAt) -> Version {
    match at {
        ChangeStartAt::After(version) => version,
        _ => state.documents.engine().last_version(),
    }
}

/// The document with its version as `_lsn`.
fn row(document: &Document) -> Vec<u8> {
    let mut row = body(document);
    row.pop();
    row.extend(format!(",\"_lsn\":{}}}", document.version).bytes());
    row
}
