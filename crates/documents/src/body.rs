//! The body of a document that is to be written: checked in one pass, with what the engine is to know of it.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use ebbtide::Ttl;

use crate::error::{Error, ErrorKind, Result};
use crate::json::{self, Broken, Member};
use crate::partition_key::{FoundKey, FoundPart, PartitionKeyPart};
use crate::resource_id::ResourceId;

/// The largest body.
pub const MAX_BODY: usize = 2 << 20;
/// The longest id, in bytes.
pub const MAX_ID: usize = 1_023;
/// The highest ttl, in seconds.
const MAX_TTL: i64 = 2_147_483_647;

/// The members that are the system's: never stored.
pub const SYSTEM: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// The members on the way to a value.
pub type MemberPath = Vec<String>;

/// A body that may be stored.
#[derive(Debug)]
pub struct Body<'a> {
    pub id: Cow<'a, str>,
    pub ttl: Ttl,
    pub partition_key: FoundKey<'a>,
    /// From brace to brace, without what is the system's.
    pub stored: Cow<'a, [u8]>,
}

impl<'a> Body<'a> {
    /// Checks a body for a container of these partition key paths.
    pub fn parse(body: &'a [u8], paths: &[MemberPath]) -> Result<Body<'a>> {
        if body.len() > MAX_BODY {
            return Err(too_large("A document", body.len()));
        }
        let text = utf8(body)?;
        let mut found = Found::new(text, paths);
        json::document(text, |member| found.member(member)).map_err(|at| broken(text, at))?;
        found.finish()
    }
}

/// The findings of a pass over the members.
struct Found<'a, 'p> {
    text: &'a str,
    paths: &'p [MemberPath],
    id: Option<&'a str>,
    ttl: Option<&'a str>,
    /// The text of the first member of each path.
    roots: [Option<&'a str>; crate::partition_key::MAX_PARTS],
    twice: Option<String>,
    /// The members of the system, with a comma each.
    cuts: Vec<Range<usize>>,
    /// The end of the last member, and whether one before it is kept.
    end: usize,
    keeps_one: bool,
    /// A cut that ends where the next member begins.
    is_cutting: bool,
}

impl<'a, 'p> Found<'a, 'p> {
    fn new(text: &'a str, paths: &'p [MemberPath]) -> Found<'a, 'p> {
        Found {
            text,
            paths,
            id: None,
            ttl: None,
            roots: [None; 3],
            twice: None,
            cuts: vec![],
            end: 0,
            keeps_one: false,
            is_cutting: false,
        }
    }

    #[inline(always)]
    fn member(&mut self, member: Member<'a>) {
        if std::mem::take(&mut self.is_cutting)
            && let Some(cut) = self.cuts.last_mut()
        {
            cut.end = member.span.start;
        }
        let name = &*member.name;
        let mut stands_twice = match name {
            "id" => self.id.replace(member.value).is_some(),
            "ttl" => self.ttl.replace(member.value).is_some(),
            _ => false,
        };
        for (root, path) in self.roots.iter_mut().zip(self.paths) {
            if path[0] == *name {
                stands_twice |= root.replace(member.value).is_some();
            }
        }
        if stands_twice {
            self.twice = Some(name.to_owned());
        }
        match name.starts_with('_') && SYSTEM.contains(&name) {
            false => self.keeps_one = true,
            true if self.keeps_one => self.cuts.push(self.end..member.span.end),
            true => {
                self.cuts.push(member.span.clone());
                self.is_cutting = true;
            }
        }
        self.end = member.span.end;
    }

    fn finish(self) -> Result<Body<'a>> {
        if let Some(name) = self.twice {
            return Err(Error::bad_request(format!(
                "The member {name:?} stands twice in the document."
            )));
        }
        let id = self
            .id
            .ok_or_else(|| Error::bad_request("A document needs an id."))?;
        let id = json::string(id)
            .ok_or_else(|| Error::bad_request("The id of a document is to be a string."))?;
        check_id(&id)?;
        let parts = self.roots.iter().zip(self.paths);
        let parts = parts.map(|(root, path)| part_at(*root, &path[1..]));
        Ok(Body {
            id,
            ttl: self.ttl.map_or(Ok(Ttl::Inherit), parse_ttl)?,
            partition_key: FoundKey::of(parts)?,
            stored: without(self.text.trim_ascii(), &self.cuts, self.text),
        })
    }
}

/// The bytes of `text`, a part of `whole`, without these ranges of `whole`.
fn without<'a>(text: &'a str, cuts: &[Range<usize>], whole: &str) -> Cow<'a, [u8]> {
    if cuts.is_empty() {
        return Cow::Borrowed(text.as_bytes());
    }
    let skipped = whole.len() - whole.trim_ascii_start().len();
    let (bytes, mut at) = (text.as_bytes(), 0);
    let mut kept = Vec::with_capacity(bytes.len());
    for cut in cuts {
        kept.extend_from_slice(&bytes[at..cut.start - skipped]);
        at = cut.end - skipped;
    }
    kept.extend_from_slice(&bytes[at..]);
    Cow::Owned(kept)
}

/// The part of a partition key that is at the end of a path, of which the first member was found.
fn part_at<'a>(root: Option<&'a str>, rest: &[String]) -> Result<FoundPart<'a>> {
    const UNDEFINED: FoundPart<'_> = FoundPart::Other(PartitionKeyPart::Undefined);
    let Some(mut text) = root else {
        return Ok(UNDEFINED);
    };
    for name in rest {
        let members = json::members(text).unwrap_or_default();
        match members.iter().rfind(|member| member.name == *name) {
            Some(found) => text = found.value,
            None => return Ok(UNDEFINED),
        }
    }
    // As Cosmos DB has it, an object or an array is no part of a key.
    if text.trim_start().starts_with(['{', '[']) {
        return Ok(UNDEFINED);
    }
    FoundPart::of_text(text).ok_or_else(|| {
        Error::bad_request("A member of a document that is a partition key is to be a string, number, boolean or null.")
    })
}

/// The text of a body.
pub fn utf8(body: &[u8]) -> Result<&str> {
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Error::bad_request(format!("The body is not UTF-8 at byte {at}."))
    })
}

/// The error for a body that is no JSON object.
pub fn broken(text: &str, Broken { at, what }: Broken) -> Error {
    let found = text.get(at..).and_then(|rest| rest.chars().next());
    let found = found.map_or("the end".to_owned(), |found| format!("{found:?}"));
    Error::bad_request(format!(
        "The body is no JSON as it is accepted here: at byte {at}, {what} was expected, not {found}."
    ))
}

/// The error for what has more bytes than it may have.
pub fn too_large(what: &str, len: usize) -> Error {
    let message = format!(
        "{what} has up to {MAX_BODY} bytes; this one has {len}. Request size is too large."
    );
    Error::new(ErrorKind::RequestEntityTooLarge, message)
}

fn is_reserved(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\' | b'?' | b'#')
}

/// Fails for an id that no document, container or database may have.
pub fn check_id(id: &str) -> Result<()> {
    let is_allowed = (1..=MAX_ID).contains(&id.len()) && !id.bytes().any(is_reserved);
    if !is_allowed {
        let shown: String = id.chars().take(100).collect();
        let message = format!(
            "An id has 1 to {MAX_ID} bytes without / \\ ? #; this one is {shown:?}, {} bytes.",
            id.len()
        );
        return Err(Error::bad_request(message));
    }
    Ok(())
}

/// The id of a database or container, which links name by its id or its `_rid`: so it is none of these.
pub fn check_name(id: &str) -> Result<()> {
    match id.parse::<ResourceId>() {
        Ok(_) => Err(Error::bad_request(format!(
            "{id:?} has the form of a resource id, which links would take it for."
        ))),
        Err(_) => check_id(id),
    }
}

/// The ttl that the text of a value says.
fn parse_ttl(text: &str) -> Result<Ttl> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(Ttl::Never),
        Ok(seconds @ 1..=MAX_TTL) => Ok(Ttl::After(Duration::from_secs(seconds.unsigned_abs()))),
        _ => {
            let shown: String = text.chars().take(100).collect();
            Err(Error::bad_request(format!(
                "The ttl of a document is -1 (never), or whole seconds from 1 to {MAX_TTL}, and not {shown}."
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<MemberPath> {
        let path = |path: &&str| path.split('/').skip(1).map(str::to_owned).collect();
        paths.iter().map(path).collect()
    }

    /// Every place at which the system's members may stand.
    #[test]
    fn takes_out_what_is_the_systems_and_nothing_else() {
        let own = ["\"id\" : \"1\"", "\"_tsx\":1.50", "\"a\":{\"_ts\":1}"];
        let system = "\"_ts\" : {\"b\":[1]}";
        for at in 0..=own.len() {
            for twice in [false, true] {
                let mut members = own.to_vec();
                members.insert(at, system);
                if twice {
                    members.insert(at, "\"_e\\u0074ag\":\"x\"");
                }
                let body = format!(" {{ {} }} ", members.join(" , "));
                let stored = Body::parse(body.as_bytes(), &[])
                    .unwrap()
                    .stored
                    .into_owned();
                assert_eq!(
                    String::from_utf8(stored).unwrap(),
                    format!("{{ {} }}", own.join(" , ")),
                    "{body}"
                );
            }
        }
        let body =
            "{\"_ts\":1,\"id\":\"1\",\"_rid\":\"\",\"_self\":0,\"_etag\":[],\"_attachments\":null}";
        assert_eq!(
            &*Body::parse(body.as_bytes(), &[]).unwrap().stored,
            b"{\"id\":\"1\"}"
        );
    }

    #[test]
    fn finds_partition_keys() {
        let key = |body: &str, at: &[&str]| {
            Body::parse(body.as_bytes(), &paths(at))
                .map(|body| body.partition_key.into_owned().to_json())
        };
        assert_eq!(
            key(r#"{"id":"1","a":{"b":"x"}}"#, &["/a/b"]).unwrap(),
            r#"["x"]"#
        );
        assert_eq!(key(r#"{"id":"1","a":7}"#, &["/a/b"]).unwrap(), "[{}]");
        assert_eq!(
            key(r#"{"id":"1","a":null}"#, &["/a", "/b", "/id"]).unwrap(),
            r#"[null,{},"1"]"#
        );
        assert_eq!(
            key(r#"{"id":"1","a":{"b":true,"c":1.0}}"#, &["/a/b", "/a/c"]).unwrap(),
            "[true,1]"
        );
        assert_eq!(key(r#"{"id":"1"}"#, &[]).unwrap(), "[]");
        for no_part in ["[]", "{}", "[1]"] {
            let body = format!("{{\"id\":\"1\",\"a\":{no_part}}}");
            assert_eq!(key(&body, &["/a"]).unwrap(), "[{}]");
        }
        assert!(key(r#"{"id":"1","a":1,"a":2}"#, &["/a"]).is_err());
    }

    #[test]
    fn ids_are_checked() {
        let id = |id: &str| {
            Body::parse(format!("{{\"id\":{id}}}").as_bytes(), &[]).map(|body| body.id.into_owned())
        };
        assert_eq!(id("\"\\u00e9 x\"").unwrap(), "é x");
        for refused in [
            "\"\"",
            "1",
            "null",
            "\"a/b\"",
            "\"a\\\\b\"",
            "\"a?\"",
            "\"#\"",
            "\"\\u002f\"",
        ] {
            assert_eq!(
                id(refused).unwrap_err().kind(),
                ErrorKind::BadRequest,
                "{refused}"
            );
        }
        let long = |n: usize| format!("\"{}\"", "x".repeat(n));
        assert!(id(&long(1_023)).is_ok() && id(&long(1_024)).is_err());
        assert!(Body::parse(b"{}", &[]).is_err() && Body::parse(b"[]", &[]).is_err());
        assert!(Body::parse(b"{\"id\":\"1\"}x", &[]).is_err());
        assert!(Body::parse(b"{\"id\":\"\xff\"}", &[]).is_err());
    }

    #[test]
    fn ttls_are_checked() {
        let ttl = |ttl: &str| {
            Body::parse(format!("{{\"id\":\"1\",\"ttl\":{ttl}}}").as_bytes(), &[])
                .map(|body| body.ttl)
        };
        let seconds = |n| Ttl::After(Duration::from_secs(n));
        assert_eq!(ttl("-1").unwrap(), Ttl::Never);
        assert_eq!(ttl("1").unwrap(), seconds(1));
        assert_eq!(ttl("2147483647").unwrap(), seconds(2_147_483_647));
        for refused in [
            "null",
            "0",
            "-10",
            "-2",
            "\"60\"",
            "1.5",
            "2147483648",
            "60.0",
            "6e1",
            "-0",
            "true",
            "[60]",
            "{}",
            "99999999999999999999",
        ] {
            let error = ttl(refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRequest);
            assert!(error.to_string().contains(refused), "{error}");
        }
    }
}
