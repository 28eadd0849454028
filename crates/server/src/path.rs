//! Paths of requests, and the resources that they name.
//!
//! ```text
//! /                                         Account
//! /dbs                                      Databases
//! /dbs/DB                                   Database
//! /dbs/DB/colls                             Containers
//! /dbs/DB/colls/COLL                        Container
//! /dbs/DB/colls/COLL/docs                   Documents
//! /dbs/DB/colls/COLL/docs/ID                Document
//! /dbs/DB/colls/COLL/pkranges               Ranges
//! /dbs/DB/colls/COLL/conflicts, conflicts/ID  Conflicts, Conflict: there are none
//! /dbs/DB/colls/COLL/operations/partitionkeydelete
//! /dbs/DB/colls/COLL/_due, _ttl             of this server alone
//! /offers, /offers/ID                       Offers, Offer
//! /_clock, /_status, /_cluster, /metrics, /healthz, /readyz  of this server alone
//! ```
//!
//! DB, COLL and ID are ids, or `_rid`s as `_self` has them. A slash at the end is as none.

/// The resource that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Account,
    Databases,
    Database(String),
    Containers(String),
    Container(String, String),
    Documents(String, String),
    Document(String, String, String),
    Ranges(String, String),
    Conflicts(String, String),
    Conflict,
    DeletePartition(String, String),
    Due(String, String),
    Ttl(String, String),
    Offers,
    Offer(String),
    Clock,
    Status,
    Cluster,
    Metrics,
    Health,
    Ready,
    /// Kinds of resources that Cosmos DB has and this server does not.
    Absent(&'static str),
    Unknown,
}

/// A path: what it names, and what a signature of it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub resource: Resource,
    /// The kind of resource that a signature names: `docs`, or nothing for the account.
    pub kind: String,
    /// The decoded link that a signature names: the path itself, or that of the parent where it ends with a kind.
    pub link: String,
    /// The same link as it came.
    pub raw_link: String,
}

impl Path {
    /// None where an escape is not one of UTF-8.
    pub fn parse(path: &str) -> Option<Path> {
        let raw: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let parts = raw
            .iter()
            .map(|part| decode(part))
            .collect::<Option<Vec<_>>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        // Kinds and names take turns, so a path of an even length names one resource, and another its parent's list.
        let (kind, named) = match parts.len() {
            0 => ("", 0),
            length if length % 2 == 0 => (parts[length - 2], length),
            length => (parts[length - 1], length - 1),
        };
        // A deletion of a partition key is signed as one of that, of the container.
        let (kind, named) = match kind == "operations" {
            true => ("partitionkey", named - 2),
            false => (kind, named),
        };
        Some(Path {
            resource: resource(&parts),
            kind: kind.to_string(),
            link: parts[..named].join("/"),
            raw_link: raw[..named].join("/"),
        })
    }
}

fn resource(parts: &[&str]) -> Resource {
    let own = |text: &str| text.to_string();
    match *parts {
        [] => Resource::Account,
        ["dbs"] => Resource::Databases,
        ["dbs", db] => Resource::Database(own(db)),
        ["dbs", db, "colls"] => Resource::Containers(own(db)),
        ["dbs", db, "colls", coll] => Resource::Container(own(db), own(coll)),
        ["dbs", db, "colls", coll, "docs"] => Resource::Documents(own(db), own(coll)),
        ["dbs", db, "colls", coll, "docs", id] => Resource::Document(own(db), own(coll), own(id)),
        ["dbs", db, "colls", coll, "pkranges"] => Resource::Ranges(own(db), own(coll)),
        ["dbs", db, "colls", coll, "conflicts"] => Resource::Conflicts(own(db), own(coll)),
        ["dbs", _, "colls", _, "conflicts", _] => Resource::Conflict,
        ["dbs", db, "colls", coll, "operations", "partitionkeydelete"] => {
            Resource::DeletePartition(own(db), own(coll))
        }
        ["dbs", db, "colls", coll, "_due"] => Resource::Due(own(db), own(coll)),
        ["dbs", db, "colls", coll, "_ttl"] => Resource::Ttl(own(db), own(coll)),
        ["offers"] => Resource::Offers,
        ["offers", id] => Resource::Offer(own(id)),
        ["_clock"] => Resource::Clock,
        ["_status"] => Resource::Status,
        ["_cluster"] => Resource::Cluster,
        ["metrics"] => Resource::Metrics,
        ["healthz"] => Resource::Health,
        ["readyz"] => Resource::Ready,
        ["dbs", _, kind, ..] if kind != "colls" => absent(kind),
        ["dbs", _, "colls", _, kind, ..] => absent(kind),
        _ => Resource::Unknown,
    }
}

fn absent(kind: &str) -> Resource {
    match kind {
        "users" | "permissions" => Resource::Absent("users and permissions"),
        "sprocs" => Resource::Absent("stored procedures"),
        "triggers" => Resource::Absent("triggers"),
        "udfs" => Resource::Absent("user-defined functions"),
        "clientencryptionkeys" => Resource::Absent("client encryption keys"),
        "docs" => Resource::Absent("attachments"),
        _ => Resource::Unknown,
    }
}

/// The text with its escapes (`%2F`) undone.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first == b'%' {
            let (digits, others) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = others;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> String {
        text.to_string()
    }

    #[test]
    fn paths_name_resources_and_the_links_of_signatures() {
        for (path, resource, kind, link) in [
            ("/", Resource::Account, "", ""),
            ("/dbs", Resource::Databases, "dbs", ""),
            ("/dbs/a/", Resource::Database(own("a")), "dbs", "dbs/a"),
            (
                "/dbs/a/colls",
                Resource::Containers(own("a")),
                "colls",
                "dbs/a",
            ),
            (
                "//dbs/a/colls/b%20c/docs/%C3%A9/",
                Resource::Document(own("a"), own("b c"), own("é")),
                "docs",
                "dbs/a/colls/b c/docs/é",
            ),
            (
                "/dbs/a/colls/b/operations/partitionkeydelete",
                Resource::DeletePartition(own("a"), own("b")),
                "partitionkey",
                "dbs/a/colls/b",
            ),
            (
                "/dbs/a/colls/b/sprocs/x",
                Resource::Absent("stored procedures"),
                "sprocs",
                "dbs/a/colls/b/sprocs/x",
            ),
            (
                "/dbs/a/users",
                Resource::Absent("users and permissions"),
                "users",
                "dbs/a",
            ),
            ("/what", Resource::Unknown, "what", ""),
        ] {
            let parsed = Path::parse(path).unwrap();
            assert_eq!(
                (parsed.resource, &*parsed.kind, &*parsed.link),
                (resource, kind, link),
                "{path}"
            );
        }
    }

    #[test]
    fn escapes_that_are_none_are_refused() {
        for path in ["/dbs/%", "/dbs/%4", "/dbs/%zz", "/dbs/%+1", "/dbs/%ff"] {
            assert_eq!(Path::parse(path), None, "{path}");
        }
    }
}
