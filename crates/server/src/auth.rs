//! Signatures of requests by the account's key.
//!
//! ```text
//! authorization: type%3dmaster%26ver%3d1.0%26sig%3dBASE64
//! signed by HMAC-SHA256, with the key's bytes:
//!     verb \n kind \n link \n x-ms-date \n date \n      all but a link by names in lower case
//! ```

use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::date;
use crate::path::{Path, decode};

/// A signature is good for so long before and after its date, as Cosmos DB has it.
const GOOD_FOR: Duration = Duration::from_secs(15 * 60);

/// The account's key.
pub(crate) struct Key(Vec<u8>);

impl Key {
    /// The key as accounts show it, in base64. None where it is not that, or empty.
    pub fn parse(text: &str) -> Option<Key> {
        let bytes = BASE64.decode(text.trim().as_bytes()).ok()?;
        (!bytes.is_empty()).then_some(Key(bytes))
    }

    /// Why the request is not to be answered, if it is not.
    pub fn refuses(&self, request: &Signed<'_>, now: SystemTime) -> Option<&'static str> {
        let Some(signature) = request.authorization.and_then(signature) else {
            return Some(
                "The request has no signature by a master key: the header authorization is missing or of another kind.",
            );
        };
        let dated = request.x_ms_date.or(request.date).and_then(date::parse);
        let Some(dated) = dated else {
            return Some(
                "The request has no date that can be read: the header x-ms-date is missing or malformed.",
            );
        };
        let apart = now
            .duration_since(dated)
            .unwrap_or_else(|ahead| ahead.duration());
        if apart > GOOD_FOR {
            return Some(
                "The date of the request is more than 15 minutes from the server's clock.",
            );
        }
        // SDKs differ in whether they sign what they send or what it means, and in the case of a link by `_rid`s.
        let (link, raw) = (&request.path.link, &request.path.raw_link);
        let last = link.rsplit('/').next().unwrap_or_default();
        let links = [link.clone(), raw.clone(), last.to_lowercase()];
        // Some sign a deletion of a partition key as one of the container.
        let kinds = match request.path.kind.as_str() {
            "partitionkey" => &["partitionkey", "colls"][..],
            kind => &[kind],
        };
        let fits = links.iter().any(|link| {
            kinds
                .iter()
                .any(|kind| self.signs(&text(request, kind, link), &signature))
        });
        (!fits).then_some("The signature is not that of the request by the account's key.")
    }

    /// Compares in a time that does not depend on the signature.
    fn signs(&self, text: &str, signature: &[u8]) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        mac.update(text.as_bytes());
        mac.verify_slice(signature).is_ok()
    }
}

/// The signed parts of a request.
pub(crate) struct Signed<'a> {
    pub verb: &'a str,
    pub path: &'a Path,
    pub authorization: Option<&'a str>,
    pub x_ms_date: Option<&'a str>,
    pub date: Option<&'a str>,
}

fn text(request: &Signed<'_>, kind: &str, link: &str) -> String {
    let lower = |text: Option<&str>| text.unwrap_or_default().to_lowercase();
    format!(
        "{}\n{}\n{link}\n{}\n{}\n",
        request.verb.to_lowercase(),
        kind.to_lowercase(),
        lower(request.x_ms_date),
        // A date of its own is signed where there is no x-ms-date alone.
        if request.x_ms_date.is_some() {
            String::new()
        } else {
            lower(request.date)
        },
    )
}

/// The bytes of the signature in the header.
fn signature(header: &str) -> Option<Vec<u8>> {
    let text = decode(header)?;
    let mut is_master = false;
    let mut signature = None;
    for member in text.split('&') {
        match member.split_once('=')? {
            ("type", kind) => is_master = kind == "master",
            ("sig", value) => signature = BASE64.decode(value.as_bytes()).ok(),
            _ => {}
        }
    }
    signature.filter(|_| is_master)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Cosmos DB's page on access control, and the key of its emulator.
    const KEY: &str =
        "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";
    const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
    const SIGNED: &str =
        "type%3dmaster%26ver%3d1.0%26sig%3dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2bc%2bc%3d";

    fn refused(
        path: &str,
        authorization: Option<&str>,
        x_ms_date: Option<&str>,
        seconds_later: u64,
    ) -> Option<&'static str> {
        let path = Path::parse(path).unwrap();
        let request = Signed {
            verb: "GET",
            path: &path,
            authorization,
            x_ms_date,
            date: None,
        };
        let now = date::parse(DATE).unwrap() + Duration::from_secs(seconds_later);
        Key::parse(KEY).unwrap().refuses(&request, now)
    }

    #[test]
    fn the_published_example_is_accepted() {
        assert_eq!(refused("/dbs/ToDoList", Some(SIGNED), Some(DATE), 0), None);
        assert_eq!(
            refused("/dbs/ToDoList/", Some(SIGNED), Some(DATE), 900),
            None
        );
    }

    #[test]
    fn what_differs_in_anything_is_refused() {
        let other_kind = SIGNED.replace("master", "resource");
        for (path, authorization, date, later) in [
            ("/dbs/ToDoLists", Some(SIGNED), Some(DATE), 0),
            ("/dbs/todolist", Some(SIGNED), Some(DATE), 0),
            ("/dbs/ToDoList/colls", Some(SIGNED), Some(DATE), 0),
            ("/dbs/ToDoList", Some(&*other_kind), Some(DATE), 0),
            ("/dbs/ToDoList", None, Some(DATE), 0),
            ("/dbs/ToDoList", Some(SIGNED), None, 0),
            (
                "/dbs/ToDoList",
                Some(SIGNED),
                Some("Thu, 27 Apr 2017 00:51:13 GMT"),
                0,
            ),
            ("/dbs/ToDoList", Some(SIGNED), Some(DATE), 901),
            ("/dbs/ToDoList", Some("Bearer x"), Some(DATE), 0),
        ] {
            assert!(
                refused(path, authorization, date, later).is_some(),
                "{path} {authorization:?} {date:?} {later}"
            );
        }
    }

    #[test]
    fn a_key_is_base64_and_not_empty() {
        assert!(
            Key::parse("").is_none()
                && Key::parse("not a key").is_none()
                && Key::parse(&format!("{KEY}\n")).is_some()
        );
    }
}
