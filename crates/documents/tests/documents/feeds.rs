//! Lists, the change feed, and ends.

use ebbtide::{ExpiryCursor, Version};
use ebbtide_documents::{
    ChangeStart, ChangeStartAt, Conditions, Container, Continuation, PartitionKey, Scope,
};

use super::{body, container, documents, key, refused, seconds};

fn ids(documents: &[ebbtide_documents::Document]) -> Vec<&str> {
    documents.iter().map(|document| &*document.id).collect()
}

#[test]
fn lists_go_on_by_plain_data() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    for n in 0..10 {
        c.create(&key(), &body(&format!("a{n}"), "")).unwrap();
    }
    c.create(&key(), &body("b", "")).unwrap();
    for id in ["a0", "a1"] {
        let text = format!("{{\"id\":\"{id}\",\"p\":\"l\"}}");
        c.create(&"l".into(), text.as_bytes()).unwrap();
    }
    let scope = Scope {
        partition_key: key(),
        id_prefix: "a".into(),
    };
    let (mut found, mut from): (Vec<String>, Option<Continuation>) = (vec![], None);
    loop {
        let page = c.list(&scope, 3, from.as_ref()).unwrap();
        assert!(page.documents.len() <= 3);
        found.extend(page.documents.iter().map(|document| document.id.clone()));
        let Some(next) = page.continuation else { break };
        from = Some(serde_json::from_str(&serde_json::to_string(&next).unwrap()).unwrap());
    }
    assert_eq!(found, (0..10).map(|n| format!("a{n}")).collect::<Vec<_>>());
    // A continuation of another scope, of nothing, and one of this scope with a key of another.
    let other = Scope::partition("l");
    refused(c.list(&other, 3, from.as_ref()), 400);
    let others = serde_json::to_value(c.list(&other, 1, None).unwrap().continuation).unwrap();
    for after in ["%".into(), others["after"].clone()] {
        let mut forged = serde_json::to_value(&from).unwrap();
        forged["after"] = after;
        let forged: Continuation = serde_json::from_value(forged).unwrap();
        refused(c.list(&scope, 3, Some(&forged)), 400);
    }
    refused(
        c.list(
            &Scope {
                partition_key: PartitionKey::default(),
                id_prefix: "a".into(),
            },
            3,
            None,
        ),
        400,
    );
    assert_eq!(
        c.list(&Scope::everything(), 100, None)
            .unwrap()
            .documents
            .len(),
        13
    );
    assert_eq!(
        c.list(&Scope::everything(), 13, None).unwrap().continuation,
        None
    );
}

fn all_changes(c: &Container, start: &ChangeStart, limit: usize) -> (Vec<String>, Version) {
    let (mut start, mut found) = (start.clone(), vec![]);
    loop {
        let page = c.changes(&start, limit).unwrap();
        found.extend(page.documents.iter().map(|document| document.id.clone()));
        start.at = ChangeStartAt::After(page.version);
        if !page.has_more {
            return (found, page.version);
        }
    }
}

#[test]
fn changes_are_in_the_order_of_versions() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":-1");
    let beginning = ChangeStart::of_all(ChangeStartAt::Beginning);
    let now = ChangeStart::of_all(ChangeStartAt::Now);
    assert!(!c.changes(&beginning, 10).unwrap().has_more);
    for id in ["c", "a", "d", "b"] {
        c.create(&key(), &body(id, "")).unwrap();
    }
    clock.advance(seconds(5));
    let moment = documents.engine().now();
    c.create(&"other".into(), b"{\"id\":\"e\",\"p\":\"other\",\"ttl\":3}")
        .unwrap();
    c.upsert(&key(), &body("c", ""), &Conditions::none())
        .unwrap();
    c.delete(&key(), "d", &Conditions::none()).unwrap();
    for limit in [1, 2, 3, 100] {
        assert_eq!(all_changes(&c, &beginning, limit).0, ["a", "b", "e", "c"]);
        let of_key = ChangeStart {
            partition_key: key(),
            ..beginning.clone()
        };
        assert_eq!(all_changes(&c, &of_key, limit).0, ["a", "b", "c"]);
        let of_moment = ChangeStart::of_all(ChangeStartAt::Moment(moment));
        assert_eq!(all_changes(&c, &of_moment, limit).0, ["e", "c"]);
        assert!(all_changes(&c, &now, limit).0.is_empty());
    }
    let (_, version) = all_changes(&c, &beginning, 2);
    let after = ChangeStart::of_all(ChangeStartAt::After(version));
    assert!(all_changes(&c, &after, 2).0.is_empty());
    c.touch(&key(), "a", &Conditions::none()).unwrap();
    assert_eq!(all_changes(&c, &after, 2).0, ["a"]);
    clock.advance(seconds(3));
    assert_eq!(all_changes(&c, &beginning, 2).0, ["b", "c", "a"]); // e has expired
}

/// A document that changes between two pages is told with its newest version, and nothing is left out.
#[test]
fn changes_between_pages() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    for n in 0..6 {
        c.create(&key(), &body(&n.to_string(), "")).unwrap();
    }
    let first = c
        .changes(&ChangeStart::of_all(ChangeStartAt::Beginning), 2)
        .unwrap();
    assert_eq!(ids(&first.documents), ["0", "1"]);
    c.upsert(&key(), &body("3", ""), &Conditions::none())
        .unwrap();
    c.upsert(&key(), &body("0", ""), &Conditions::none())
        .unwrap();
    c.delete(&key(), "4", &Conditions::none()).unwrap();
    c.create(&key(), &body("6", "")).unwrap();
    let rest = ChangeStart::of_all(ChangeStartAt::After(first.version));
    assert_eq!(all_changes(&c, &rest, 1).0, ["2", "5", "3", "0", "6"]);
    assert_eq!(all_changes(&c, &rest, 100).0, ["2", "5", "3", "0", "6"]);
}

#[test]
fn ends_are_told_once_and_at_the_end() {
    let (documents, clock) = documents();
    let c = container(
        &documents,
        ",\"defaultTtl\":-1,\"changeFeedPolicy\":{\"retentionDuration\":60}",
    );
    for (id, ttl) in [("b", 10), ("a", 5), ("c", 10), ("kept", -1), ("deleted", 3)] {
        c.create(&key(), &body(id, &format!(",\"ttl\":{ttl}")))
            .unwrap();
    }
    c.delete(&key(), "deleted", &Conditions::none()).unwrap();
    let mut cursor = ExpiryCursor::start();
    clock.advance(seconds(5) - std::time::Duration::from_millis(1));
    assert!(c.ends(&cursor, 10).unwrap().ends.is_empty());
    clock.advance(std::time::Duration::from_millis(1));
    let written = c
        .changes(&ChangeStart::of_all(ChangeStartAt::Beginning), 10)
        .unwrap();
    assert_eq!(ids(&written.documents), ["b", "c", "kept"]);
    let mut told = vec![];
    for _ in 0..2 {
        loop {
            let page = c.ends(&cursor, 1).unwrap();
            cursor = serde_json::from_str(&serde_json::to_string(&page.cursor).unwrap()).unwrap();
            told.extend(page.ends);
            if !page.has_more {
                break;
            }
        }
        clock.advance(seconds(60));
    }
    assert_eq!(
        told.iter().map(|end| &*end.document.id).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    assert!(
        told.iter()
            .all(|end| end.time_to_live_expired && end.document.expires_at == Some(end.expired_at))
    );
    assert_eq!(told[0].document.body(), body("a", ",\"ttl\":5"));
    assert_eq!(
        told[1].expired_at,
        told[1].document.written_at + seconds(10)
    );
    // By a command of the engine, not by time to live.
    c.items().expire_all().unwrap();
    clock.advance(seconds(1));
    let page = c.ends(&cursor, 10).unwrap();
    assert_eq!(
        (page.ends.len(), page.ends[0].time_to_live_expired),
        (1, false)
    );
}

#[test]
fn a_page_of_changes_is_bounded_by_bytes() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let text = format!(",\"x\":\"{}\"", "x".repeat(1_500_000));
    for id in ["a", "b", "c", "d"] {
        c.create(&key(), &body(id, &text)).unwrap();
    }
    let (mut at, mut pages) = (ChangeStartAt::Beginning, vec![]);
    loop {
        let page = c.changes(&ChangeStart::of_all(at), 100).unwrap();
        pages.push(page.documents.len());
        at = ChangeStartAt::After(page.version);
        if !page.has_more {
            break;
        }
    }
    assert_eq!(pages, [3, 1]);
}
