//! Writes of one document: bodies, ids, partition keys, conditions, etags.

use ebbtide::{AtOnce, Version, WhenFull};
use ebbtide_documents::{Conditions, ContainerDefinition, Etag, PartitionKey, Patch, ResourceId};

use super::{body, container, documents, key, refused};

#[test]
fn a_body_comes_back_as_it_was_written() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let text = "{ \"id\" : \"1\" , \"p\":\"k\", \"n\":1.50e+2, \"big\":123456789012345678901234567890, \"a\":1, \"a\":2, \"s\":\"\\u0041\" }";
    c.create(&key(), text.as_bytes()).unwrap();
    let read = c.read(&key(), "1").unwrap();
    assert_eq!(read.body(), text.as_bytes());
    // A client sends back the system's members, too; they are not stored.
    let sent = read.to_json();
    let again = c
        .replace(&key(), "1", sent.as_bytes(), &Conditions::none())
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(again.body()),
        text.replace(" }", "}")
    );
    let json: serde_json::Value = serde_json::from_str(&again.to_json()).unwrap();
    assert_eq!(json["_etag"], again.etag());
    assert_eq!(json["_ts"], again.ts());
    assert_eq!(json["_rid"], again.rid().to_string());
    assert_eq!(json["_self"], again.self_link());
    assert_eq!(again.rid(), read.rid());
    assert!(again.rid().as_bytes().starts_with(c.rid().as_bytes()));
    assert_eq!(
        json["_rid"]
            .as_str()
            .unwrap()
            .parse::<ResourceId>()
            .unwrap(),
        again.rid()
    );
    assert_eq!(c.id_of(&key(), &again.rid()).unwrap(), "1");
    assert!(
        matches!(c.try_read(&key(), "1").unwrap(), AtOnce::Ready(found) if found.version == again.version)
    );
}

#[test]
fn what_is_no_document_is_refused() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    for wrong in [
        "",
        "[]",
        "1",
        "{}",
        "{\"id\":1,\"p\":\"k\"}",
        "{\"id\":\"1\",\"p\":\"k\"",
        "{\"id\":\"1\",\"p\":\"k\",\"x\":1e999}",
    ] {
        refused(c.create(&key(), wrong.as_bytes()), 400);
    }
    refused(c.create(&key(), &body("a/b", "")), 400);
    let deep = |n: usize| {
        body(
            "deep",
            &format!(",\"x\":{}{}", "[".repeat(n), "]".repeat(n)),
        )
    };
    refused(c.create(&key(), &deep(128)), 400);
    c.create(&key(), &deep(127)).unwrap();
    let long = |n: usize| body("long", &format!(",\"x\":\"{}\"", "x".repeat(n)));
    let around = long(0).len();
    refused(c.create(&key(), &long((2 << 20) - around + 1)), 413);
    c.create(&key(), &long((2 << 20) - around)).unwrap();
    for id in ["", "a/b", "a\\b", "a?b", "a#b", &"x".repeat(1_024)] {
        refused(c.read(&key(), id), 400);
    }
}

#[test]
fn the_partition_key_is_that_of_the_document() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let (none, patch) = (
        Conditions::none(),
        Patch::from_json(br#"[{"op":"set","path":"/p","value":"other"}]"#).unwrap(),
    );
    c.create(&key(), &body("1", "")).unwrap();
    let other = PartitionKey::from("other");
    for error in [
        refused(c.create(&other, &body("2", "")), 400),
        refused(c.upsert(&other, &body("1", ""), &none), 400),
        refused(
            c.replace(&key(), "1", br#"{"id":"1","p":"other"}"#, &none),
            400,
        ),
        refused(c.patch(&key(), "1", &patch, &none), 400),
        refused(c.create(&PartitionKey::default(), &body("2", "")), 400),
    ] {
        assert_eq!(error.sub_status(), 1001, "{error}");
    }
    // One id in several partitions: absent, null and the rest are not the same.
    for json in [
        "[{}]", "[null]", "[true]", "[false]", "[0]", "[\"\"]", "[1.5]",
    ] {
        let key = PartitionKey::from_json(json).unwrap();
        let member = match json {
            "[{}]" => String::new(),
            json => format!(",\"p\":{}", &json[1..json.len() - 1]),
        };
        let body = format!("{{\"id\":\"1\"{member}}}");
        assert_eq!(c.partition_key_of(body.as_bytes()).unwrap(), key);
        c.create(&key, body.as_bytes()).unwrap();
        assert_eq!(c.read(&key, "1").unwrap().body(), body.as_bytes());
    }
}

#[test]
fn a_document_is_replaced_by_one_of_another_id() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":-1");
    let none = Conditions::none();
    let old = c.create(&key(), &body("old", ",\"ttl\":5")).unwrap();
    c.create(&key(), &body("other", "")).unwrap();
    // Nothing is done where the other id has a document, or the condition does not hold.
    refused(c.replace(&key(), "old", &body("other", ""), &none), 409);
    refused(c.replace(&key(), "none", &body("new", ""), &none), 404);
    let stale = Conditions::if_match(Version::from_u64(old.version.as_u64() + 1));
    refused(c.replace(&key(), "old", &body("new", ""), &stale), 412);
    assert_eq!(c.read(&key(), "old").unwrap().version, old.version);
    refused(c.read(&key(), "new"), 404);
    let current = Conditions::if_match(old.version);
    let text = body("new", ",\"ttl\":7,\"n\":1");
    let new = c.replace(&key(), "old", &text, &current).unwrap();
    refused(c.read(&key(), "old"), 404);
    let read = c.read(&key(), "new").unwrap();
    assert_eq!((new.version, new.rid()), (read.version, read.rid()));
    assert_eq!((new.body(), new.expires_at), (&text[..], read.expires_at));
    assert!(new.version > old.version && new.rid() != old.rid());
    // The document of the other id may have expired.
    clock.advance(std::time::Duration::from_secs(7));
    refused(c.replace(&key(), "new", &body("again", ""), &none), 404);
    c.replace(&key(), "other", &body("new", ""), &none).unwrap();
    assert_eq!(c.items().count(..).unwrap(), 1);
}

#[test]
fn writes_without_waiting_are_those_that_wait() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":-1");
    let none = Conditions::none();
    let first = c.try_create(&key(), &body("1", ",\"ttl\":5")).unwrap();
    let AtOnce::Ready(first) = first else {
        unreachable!("nothing is there")
    };
    let read = c.read(&key(), "1").unwrap();
    assert_eq!(
        (first.version, first.expires_at),
        (read.version, read.expires_at)
    );
    assert_eq!(
        c.try_create(&key(), &body("1", "")).unwrap_err().status(),
        409
    );
    let stale = Conditions::if_match(Version::from_u64(first.version.as_u64() + 1));
    let refused = c.try_upsert(&key(), &body("1", ""), &stale).unwrap_err();
    assert_eq!(refused.status(), 412);
    let other = c.try_upsert(&PartitionKey::from("x"), &body("1", ""), &none);
    assert_eq!(other.unwrap_err().sub_status(), 1001);
    for (id, is_new) in [("1", false), ("2", true)] {
        let text = body(id, ",\"n\":2,\"ttl\":7");
        let Ok(AtOnce::Ready((written, created))) = c.try_upsert(&key(), &text, &none) else {
            unreachable!("it is in memory")
        };
        assert_eq!((written.body(), created), (&text[..], is_new));
        assert_eq!(c.read(&key(), id).unwrap().version, written.version);
    }
    clock.advance(std::time::Duration::from_secs(7));
    let again = c.try_create(&key(), &body("1", "")).unwrap();
    assert!(matches!(again, AtOnce::Ready(_)), "it had expired");
}

#[test]
fn hierarchical_partition_keys() {
    let (documents, _) = documents();
    let mut definition = ContainerDefinition::new("h", "/tenant");
    definition.partition_key = vec!["/tenant".into(), "/user/id".into()];
    let c = documents.create_container("db", definition).unwrap();
    let create = |id: &str, tenant: &str, user: &str| {
        let body =
            format!("{{\"id\":\"{id}\",\"tenant\":\"{tenant}\",\"user\":{{\"id\":\"{user}\"}}}}");
        c.create(
            &PartitionKey::from_json(&format!("[\"{tenant}\",\"{user}\"]")).unwrap(),
            body.as_bytes(),
        )
        .unwrap();
    };
    create("1", "acme", "ada");
    create("2", "acme", "bob");
    create("3", "acmeb", "ada");
    refused(c.read(&PartitionKey::from("acme"), "1"), 400);
    let ids = |key: PartitionKey| {
        let page = c
            .list(&ebbtide_documents::Scope::partition(key), 10, None)
            .unwrap();
        page.documents
            .into_iter()
            .map(|document| document.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(PartitionKey::from("acme")), ["1", "2"]);
    c.delete_partition(&PartitionKey::from("acme")).unwrap();
    assert_eq!(ids(PartitionKey::default()), ["3"]);
    refused(c.delete_partition(&PartitionKey::default()), 400);
}

/// Each condition against a document that is there and one that is not, for each write.
#[test]
fn conditions() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let stale = c.create(&key(), &body("1", "")).unwrap().etag();
    let patch = Patch::from_json(br#"[{"op":"set","path":"/a","value":1}]"#).unwrap();
    // If-Match, If-None-Match, whether a document that is there is written.
    let table = [
        ("", "", true),
        ("current", "", true),
        ("*", "", true),
        ("stale", "", false),
        ("\"some-tag\"", "", false),
        ("", "current", false),
        ("", "*", false),
        ("", "stale", true),
        ("", "some-tag", true),
        ("current", "stale", true),
        ("current", "current", false),
        ("stale", "stale", false),
    ];
    for write in 0..5 {
        for (if_match, if_none_match, is_done) in table {
            let now = c
                .upsert(&key(), &body("1", ""), &Conditions::none())
                .unwrap()
                .0;
            let etag = |name: &str| match name {
                "" => None,
                "current" => Some(now.etag().parse::<Etag>().unwrap()),
                "stale" => Some(stale.parse().unwrap()),
                text => Some(text.parse().unwrap()),
            };
            let conditions = Conditions {
                if_match: etag(if_match),
                if_none_match: etag(if_none_match),
            };
            let act = |id: &str| match write {
                0 => c.upsert(&key(), &body(id, ""), &conditions).map(drop),
                1 => c.replace(&key(), id, &body(id, ""), &conditions).map(drop),
                2 => c.patch(&key(), id, &patch, &conditions).map(drop),
                3 => c.touch(&key(), id, &conditions).map(drop),
                _ => c.delete(&key(), id, &conditions),
            };
            match (write, conditions.if_match) {
                (0, None) => act("absent").unwrap(),
                (0, Some(_)) => drop(refused(act("absent"), 412)),
                _ => drop(refused(act("absent"), 404)),
            }
            let _ = c.delete(&key(), "absent", &Conditions::none());
            match is_done {
                true => act("1").unwrap(),
                false => {
                    refused(act("1"), 412);
                    assert_eq!(c.read(&key(), "1").unwrap().version, now.version);
                }
            }
        }
    }
}

#[test]
fn a_patch_with_a_condition() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    c.create(&key(), &body("1", ",\"n\":1,\"price\":1.50"))
        .unwrap();
    let patch = Patch::from_json(br#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"from c where c.n < 3"}"#).unwrap();
    for n in [2, 3] {
        let patched = c.patch(&key(), "1", &patch, &Conditions::none()).unwrap();
        assert_eq!(
            patched.body(),
            body("1", &format!(",\"n\":{n},\"price\":1.50"))
        );
    }
    refused(c.patch(&key(), "1", &patch, &Conditions::none()), 412);
    for wrong in [
        "from c where",
        "",
        "where true",
        ", 2 from c",
        "from c where true order by c.n",
        "from c offset 0 limit 1",
        "from c group by c.n",
    ] {
        let wrong = patch.clone().with_condition(wrong);
        refused(c.patch(&key(), "1", &wrong, &Conditions::none()), 400);
    }
    for wrong in ["/m~", "/m~2n", "/a/~/b"] {
        let wrong = format!("[{{\"op\":\"set\",\"path\":\"{wrong}\",\"value\":1}}]");
        assert_eq!(
            Patch::from_json(wrong.as_bytes()).unwrap_err().status(),
            400
        );
    }
    let by_system = patch.with_condition("from c where c._ts > 0 and c.id = '1'");
    c.patch(&key(), "1", &by_system, &Conditions::none())
        .unwrap();
}

#[test]
fn a_full_container_refuses() {
    let (documents, _) = documents();
    let c = container(&documents, ",\"maxLiveBytes\":4000");
    let refusal = (0..100).find_map(|n| {
        c.create(
            &key(),
            &body(&n.to_string(), &format!(",\"x\":\"{}\"", "x".repeat(500))),
        )
        .err()
    });
    let refusal = refusal.unwrap();
    assert_eq!(
        (refusal.status(), refusal.sub_status()),
        (403, 1014),
        "{refusal}"
    );
    // The setting of an operator stays when the definition is replaced.
    let mut quota = c.items().quota().unwrap();
    quota.when_full = WhenFull::ExpireSoonest;
    c.items().set_quota(Some(quota)).unwrap();
    let mut bounded = ContainerDefinition::new("c", "/p");
    bounded.max_live_bytes = Some(5_000);
    documents.replace_container("db", bounded).unwrap();
    quota.max_live_bytes = 5_000;
    assert_eq!(c.items().quota(), Some(quota));
    let unbounded = ContainerDefinition::new("c", "/p");
    documents.replace_container("db", unbounded).unwrap();
    c.create(
        &key(),
        &body("more", &format!(",\"x\":\"{}\"", "x".repeat(9_000))),
    )
    .unwrap();
}
