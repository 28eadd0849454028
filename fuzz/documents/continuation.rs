//! Continuations.

use ebbtide_documents::{Container, Continuation, PartitionKey, QueryLimits, Scope};
use serde_json::{Value, json};

use crate::container::{container, split};

thread_local! {
    static FILLED: Container = filled();
}

/// Documents of two partition keys.
fn filled() -> Container {
    let c = container(&["/pk"]);
    for pk in ["a", "b"] {
        for id in ["1", "2", "3", "4"] {
            let body = json!({ "id": id, "pk": pk }).to_string();
            c.create(&pk.into(), body.as_bytes()).expect("it is new");
        }
    }
    c
}

/// The members of a continuation that a client changed, as JSON: `of`, where it is missing, is that of a real one. It is
/// refused, or the page is of the scope, and no longer than asked.
pub fn document_continuation(data: &[u8]) {
    let (kind, members) = split(data);
    let Ok(Value::Object(members)) = serde_json::from_slice(members) else {
        return;
    };
    FILLED.with(|c| {
        let (scope, key) = (Scope::partition("a"), PartitionKey::from("a"));
        let text = match kind.first() {
            Some(b'q') => "SELECT * FROM c OFFSET 1 LIMIT 9",
            Some(b'o') => "SELECT * FROM c ORDER BY c.id DESC",
            _ => "",
        };
        let limits = QueryLimits {
            rows: 2,
            ..QueryLimits::default()
        };
        let ask = |from: Option<&Continuation>| match text {
            "" => c.list(&scope, 2, from).map(|page| {
                let rows = page.documents.iter().map(|document| document.to_json());
                (Vec::from_iter(rows), page.continuation)
            }),
            text => c
                .query(text, &[], &scope, &limits, from)
                .map(|page| (page.rows, page.continuation)),
        };
        let (_, real) = ask(None).expect("it begins");
        let mut changed = serde_json::to_value(real).expect("plain data");
        let object = changed.as_object_mut().expect("there is more than a page");
        object.extend(members);
        let Ok(from) = serde_json::from_value::<Continuation>(changed) else {
            return;
        };
        match ask(Some(&from)) {
            Ok((rows, _)) => {
                assert!(rows.len() <= 2);
                for row in rows {
                    let own = c.partition_key_of(row.as_bytes());
                    assert_eq!(own.expect("it is a document"), key);
                }
            }
            Err(error) => assert_eq!(error.status(), 400, "{error}"),
        }
    });
}
