//! Lists of resources, a page at a time: `{"_rid":"..","Databases":[..],"_count":2}`.

use data_encoding::BASE64URL_NOPAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::reply::{Failure, Reply};
use crate::request::Request;

/// A page of JSON texts.
pub(crate) fn page<T: AsRef<[u8]>>(
    rid: &str,
    member: &str,
    rows: &[T],
    continuation: Option<String>,
) -> Reply {
    let bytes: usize = rows.iter().map(|row| row.as_ref().len() + 1).sum();
    let mut body = Vec::with_capacity(bytes + 96);
    body.extend(format!("{{\"_rid\":\"{rid}\",\"{member}\":[").bytes());
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend(row.as_ref());
    }
    body.extend(format!("],\"_count\":{}}}", rows.len()).bytes());
    Reply::json(200, body)
        .with("x-ms-item-count", rows.len())
        .with_some("x-ms-continuation", continuation)
}

/// The part of a list that is in memory whole which the request asks for; each row has an id, in whose order they are.
pub(crate) fn cut(
    request: &Request,
    rows: Vec<(String, String)>,
) -> Result<(Vec<String>, Option<String>), Failure> {
    let after: Option<String> = continuation(request)?;
    let most = request.page()?;
    let mut left = rows
        .into_iter()
        .filter(|(id, _)| after.as_ref().is_none_or(|after| id > after))
        .peekable();
    let mut last = None;
    let mut taken = Vec::new();
    while taken.len() < most
        && let Some((id, row)) = left.next()
    {
        last = Some(id);
        taken.push(row);
    }
    let next = last.filter(|_| left.peek().is_some());
    Ok((taken, next.map(|id| continue_after(&id))))
}

/// Where the page that the request asks for goes on.
pub(crate) fn continuation<T: DeserializeOwned>(request: &Request) -> Result<Option<T>, Failure> {
    let Some(text) = request
        .header("x-ms-continuation")
        .filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    let json = BASE64URL_NOPAD.decode(text.as_bytes()).ok();
    let from = json.and_then(|json| serde_json::from_slice(&json).ok());
    from.map(Some).ok_or_else(|| {
        Failure::bad_request("The header x-ms-continuation is none that this server gave.")
    })
}

/// The header for where the next page goes on.
pub(crate) fn continue_after(from: &impl Serialize) -> String {
    let json = serde_json::to_vec(from).expect("plain data becomes JSON");
    BASE64URL_NOPAD.encode(&json)
}
