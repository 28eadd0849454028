//! Time to live: which ttls there are, and when documents end, by a clock that the test moves.

use serde_json::Value;

use crate::client::{KEY, start};

/// The table of the contract: the container's default, the document's ttl, and after how many seconds it ends.
#[test]
fn a_document_ends_by_its_ttl_and_the_default_of_its_container() {
    for (default, ttl, ends) in [
        ("", "", None),
        ("", r#","ttl":10"#, None),
        ("", r#","ttl":-1"#, None),
        (r#","defaultTtl":null"#, r#","ttl":10"#, None),
        (r#","defaultTtl":-1"#, "", None),
        (r#","defaultTtl":-1"#, r#","ttl":-1"#, None),
        (r#","defaultTtl":-1"#, r#","ttl":10"#, Some(10)),
        (r#","defaultTtl":20"#, "", Some(20)),
        (r#","defaultTtl":20"#, r#","ttl":-1"#, None),
        (r#","defaultTtl":20"#, r#","ttl":10"#, Some(10)),
        (r#","defaultTtl":20"#, r#","ttl":30"#, Some(30)),
        (
            r#","defaultTtl":-1"#,
            r#","ttl":2147483647"#,
            Some(2_147_483_647_u64),
        ),
    ] {
        let name = format!("{default} {ttl}");
        let (_server, client) = start();
        client.container("c", default);
        let created = client.create("c", &format!("{{\"id\":\"1\",\"pk\":\"a\"{ttl}}}"));
        assert_eq!(created.status, 201, "{name}: {}", created.body);
        assert_eq!(
            created.header("x-ebbtide-expires-at").is_some(),
            ends.is_some(),
            "{name}"
        );
        let Some(seconds) = ends else {
            client.advance("3000d");
            assert_eq!(client.read("c", "1").status, 200, "{name}");
            continue;
        };
        client.advance(&format!("{}ms", seconds * 1000 - 1));
        assert_eq!(
            client.read("c", "1").status,
            200,
            "{name}: a millisecond before its end"
        );
        client.advance("1ms");
        let gone = client.read("c", "1");
        assert_eq!(
            (gone.status, gone.json()["code"].as_str()),
            (404, Some("NotFound")),
            "{name}: at its end"
        );
        assert_eq!(
            client.query("c", "SELECT * FROM c", &[]).rows(),
            Vec::<Value>::new(),
            "{name}"
        );
        assert_eq!(
            client.create("c", r#"{"id":"1","pk":"a"}"#).status,
            201,
            "{name}: its id is free"
        );
    }
}

#[test]
fn other_ttls_are_refused_and_nothing_is_stored() {
    let (_server, client) = start();
    client.container("c", r#","defaultTtl":-1"#);
    for ttl in [
        "null",
        "0",
        "-10",
        "-2",
        "\"60\"",
        "1.5",
        "2147483648",
        "true",
        "[]",
        "1e3x",
    ] {
        let refused = client.create("c", &format!("{{\"id\":\"1\",\"pk\":\"a\",\"ttl\":{ttl}}}"));
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (400, Some("BadRequest")),
            "{ttl}: {}",
            refused.body
        );
        assert_eq!(client.read("c", "1").status, 404, "{ttl}");
    }
    for default in ["0", "-10", "\"60\"", "1.5", "2147483648"] {
        let body = format!(
            "{{\"id\":\"d\",\"partitionKey\":{{\"paths\":[\"/pk\"]}},\"defaultTtl\":{default}}}"
        );
        assert_eq!(
            client.post("/dbs/shop/colls", &body, &[]).status,
            400,
            "{default}"
        );
        assert_eq!(
            client.get("/dbs/shop/colls/d", &[]).status,
            404,
            "{default}"
        );
    }
}

#[test]
fn time_to_live_needs_an_index() {
    let (_server, client) = start();
    let body = |default: &str, mode: &str| {
        format!(
            "{{\"id\":\"n\",\"partitionKey\":{{\"paths\":[\"/pk\"]}},\"indexingPolicy\":{{\"indexingMode\":\"{mode}\",\"automatic\":false}}{default}}}"
        )
    };
    let made = |default, mode| client.post("/dbs/shop/colls", &body(default, mode), &[]);
    let changed = |default, mode| client.put("/dbs/shop/colls/n", &body(default, mode), &[]);
    let minute = r#","defaultTtl":60"#;
    made(minute, "none").is(400);
    made("", "none").is(201);
    changed(minute, "none").is(400);
    changed(minute, "consistent").is(200);
    changed(minute, "none").is(400);
}

#[test]
fn a_changed_default_counts_for_all_and_a_write_restarts_the_countdown() {
    let (_server, client) = start();
    client.container("c", r#","defaultTtl":100"#);
    for id in ["1", "2"] {
        client.create("c", &format!("{{\"id\":\"{id}\",\"pk\":\"a\"}}"));
    }
    client.advance("60s");
    let upsert = [("x-ms-documentdb-is-upsert", "true")];
    client
        .post("/dbs/shop/colls/c/docs", r#"{"id":"2","pk":"a"}"#, &upsert)
        .is(200);
    let preview = client.get("/dbs/shop/colls/c/_ttl?default=50", &[]).json();
    assert_eq!(
        (&preview["defaultTtl"], &preview["documents"]),
        (&100.into(), &2.into()),
        "{preview}"
    );
    assert_eq!(preview["dryRun"]["documentsThatEnd"], 1, "{preview}");
    client.get("/dbs/shop/colls/c/_ttl?default=0", &[]).is(400);
    assert_eq!(client.read("c", "1").status, 200, "a dry run ends nothing");
    let body =
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":50}"#;
    client.put("/dbs/shop/colls/c", body, &[]).is(200);
    assert_eq!(
        (client.read("c", "1").status, client.read("c", "2").status),
        (404, 200)
    );
}

#[test]
fn a_read_may_restart_the_countdown() {
    let (_server, client) = start();
    client.container("c", r#","defaultTtl":100"#);
    let created = client.create("c", r#"{"id":"1","pk":"a"}"#);
    client.advance("60s");
    assert_eq!(
        client.read("c", "1").header("x-ebbtide-expires-at"),
        created.header("x-ebbtide-expires-at")
    );
    let touched = client
        .get(
            "/dbs/shop/colls/c/docs/1",
            &[KEY, ("x-ebbtide-touch", "true")],
        )
        .is(200);
    assert!(touched.header("x-ebbtide-expires-at") > created.header("x-ebbtide-expires-at"));
    client.advance("60s");
    client.read("c", "1").is(200);
    client.advance("40s");
    client.read("c", "1").is(404);
}

#[test]
fn what_ends_when_is_told() {
    let (_server, client) = start();
    client.container("c", r#","defaultTtl":-1"#);
    client.create("c", r#"{"id":"1","pk":"a","ttl":60}"#);
    client.create("c", r#"{"id":"2","pk":"a","ttl":86400}"#);
    client.create("c", r#"{"id":"3","pk":"a"}"#);
    let due = client.get("/dbs/shop/colls/c/_due", &[]).json();
    let documents: u64 = due["due"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| bucket["documents"].as_u64().unwrap())
        .sum();
    assert_eq!(documents, 2, "{due}");
}
