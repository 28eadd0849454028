//! Databases, containers and documents: what is answered to each method.

use crate::client::{KEY, start};

#[test]
fn databases_and_containers_are_made_listed_and_deleted() {
    let (_server, client) = start();
    let again = client.post("/dbs", r#"{"id":"shop"}"#, &[]);
    again.is_refused(409, "Conflict");
    client.post("/dbs", r#"{"id":"bar"}"#, &[]).is(201);
    let page = client.get("/dbs", &[("x-ms-max-item-count", "1")]);
    assert_eq!(
        (&page.json()["Databases"][0]["id"], &page.json()["_count"]),
        (&"bar".into(), &1.into())
    );
    let next = page.header("x-ms-continuation").unwrap();
    let page = client.get(
        "/dbs",
        &[("x-ms-max-item-count", "1"), ("x-ms-continuation", next)],
    );
    assert_eq!(
        (
            &page.json()["Databases"][0]["id"],
            page.header("x-ms-continuation")
        ),
        (&"shop".into(), None)
    );
    client
        .get("/dbs", &[("x-ms-continuation", "nonsense!")])
        .is(400);

    client.container("c", "");
    let made = client.get("/dbs/shop/colls/c", &[]);
    let (link, policy) = (
        made.json()["_self"].as_str().unwrap().to_string(),
        made.json()["indexingPolicy"]["indexingMode"].clone(),
    );
    assert_eq!(policy, "consistent");
    assert_eq!(
        client.get(&format!("/{link}"), &[]).json(),
        made.json(),
        "by its link of _rids"
    );
    let found = client.post(
        "/dbs/shop/colls",
        r#"{"query":"SELECT * FROM r WHERE r.id = @id","parameters":[{"name":"@id","value":"c"}]}"#,
        &[("x-ms-documentdb-isquery", "true")],
    );
    assert_eq!(
        found.json()["DocumentCollections"][0]["_rid"],
        made.json()["_rid"]
    );
    client
        .ask("DELETE", "/dbs/shop/colls/c", "", &[("if-match", "\"1\"")])
        .is(412);
    client.ask("DELETE", "/dbs/shop/colls/c", "", &[]).is(204);
    let gone = client.create("c", r#"{"id":"1","pk":"a"}"#);
    gone.is_refused_as(404, "1003");
    client.ask("DELETE", "/dbs/shop", "", &[]).is(204);
    client.get("/dbs/shop", &[]).is(404);
}

#[test]
fn a_document_is_created_read_replaced_patched_and_deleted() {
    let (_server, client) = start();
    client.container("c", "");
    let created = client
        .create("c", r#"{"id":"1","pk":"a","n":1.50}"#)
        .is(201);
    assert!(
        created.body.contains("\"n\":1.50"),
        "numbers stay as they were written: {}",
        created.body
    );
    for name in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
        assert!(!created.json()[name].is_null(), "{name}");
    }
    assert_eq!(created.header("etag"), created.json()["_etag"].as_str());
    let token = format!("0:-1#{}", created.header("etag").unwrap().trim_matches('"'));
    assert_eq!(created.header("x-ms-session-token"), Some(&*token));
    assert_eq!(
        created.header("x-ms-alt-content-path"),
        Some("dbs/shop/colls/c")
    );
    let conflict = client.create("c", r#"{"id":"1","pk":"a"}"#);
    conflict.is_refused(409, "Conflict");

    let read = client.read("c", "1");
    assert_eq!((read.status, &read.body), (200, &created.body));
    let link = format!("/{}", read.json()["_self"].as_str().unwrap());
    assert_eq!(
        client.get(&link, &[KEY]).body,
        read.body,
        "by its link of _rids"
    );
    let path = "/dbs/shop/colls/c/docs/1";
    client.get(path, &[]).is_refused_as(400, "1001");
    let of = |key| client.get(path, &[("x-ms-documentdb-partitionkey", key)]);
    of("[\"b\"]").is(404);
    of("a").is(400);

    assert_eq!(
        client
            .put(path, r#"{"id":"1","pk":"a","n":2}"#, &[KEY])
            .json()["n"],
        2
    );
    let patch = r#"{"condition":"from c where c.n = 2","operations":[{"op":"incr","path":"/n","value":3},{"op":"add","path":"/m","value":[]}]}"#;
    let patched = client.ask("PATCH", path, patch, &[KEY]);
    assert_eq!(
        (patched.status, &patched.json()["n"], &patched.json()["m"]),
        (200, &5.into(), &serde_json::json!([]))
    );
    assert_eq!(
        client.ask("PATCH", path, patch, &[KEY]).status,
        412,
        "the condition holds no more"
    );
    client.ask("DELETE", path, "", &[KEY]).is(204);
    client.ask("DELETE", path, "", &[KEY]).is(404);
    client.ask("TRACE", path, "", &[KEY]).is(405);
}

#[test]
fn conditions_are_of_etags() {
    let (_server, client) = start();
    client.container("c", r#","defaultTtl":10"#);
    let path = "/dbs/shop/colls/c/docs/1";
    let first = client
        .create("c", r#"{"id":"1","pk":"a"}"#)
        .header("etag")
        .unwrap()
        .to_string();
    client.get(path, &[KEY, ("if-none-match", &first)]).is(304);
    let second = client.put(
        path,
        r#"{"id":"1","pk":"a","n":1}"#,
        &[KEY, ("if-match", &first)],
    );
    let second = second.is(200).header("etag").unwrap().to_string();
    client.get(path, &[KEY, ("if-none-match", &first)]).is(200);
    for (method, body) in [
        ("PUT", r#"{"id":"1","pk":"a","n":2}"#),
        ("DELETE", ""),
        ("PATCH", r#"[{"op":"set","path":"/n","value":2}]"#),
    ] {
        let refused = client.ask(method, path, body, &[KEY, ("if-match", &first)]);
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (412, Some("PreconditionFailed")),
            "{method}"
        );
    }
    let read = client.read("c", "1");
    assert_eq!(
        (&read.json()["n"], read.header("etag")),
        (&1.into(), Some(&*second)),
        "nothing was done"
    );
    client.advance("10s");
    assert_eq!(
        client
            .put(
                path,
                r#"{"id":"1","pk":"a"}"#,
                &[KEY, ("if-match", &second)]
            )
            .status,
        404,
        "an expired document matches nothing"
    );
}

#[test]
fn answers_to_writes_have_no_body_where_none_is_wanted() {
    let (_server, client) = start();
    client.container("c", "");
    let minimal = [KEY, ("prefer", "return=minimal")];
    let created = client.post("/dbs/shop/colls/c/docs", r#"{"id":"1","pk":"a"}"#, &minimal);
    assert_eq!((created.status, &*created.body), (201, ""));
    assert!(created.header("etag").is_some());
    let replaced = client.put(
        "/dbs/shop/colls/c/docs/1",
        r#"{"id":"1","pk":"a","n":1}"#,
        &minimal,
    );
    assert_eq!((replaced.status, &*replaced.body), (200, ""));
    assert_eq!(
        client.get("/dbs/shop/colls/c/docs/1", &minimal).json()["n"],
        1
    );
}

#[test]
fn a_partition_is_deleted_whole() {
    let (_server, client) = start();
    client.container("c", "");
    for (id, pk) in [("1", "a"), ("2", "a"), ("3", "b")] {
        client.create("c", &format!("{{\"id\":\"{id}\",\"pk\":\"{pk}\"}}"));
    }
    let all = "/dbs/shop/colls/c/operations/partitionkeydelete";
    client.post(all, "", &[]).is(400);
    client.post(all, "", &[KEY]).is(200);
    assert_eq!(
        client.query("c", "SELECT VALUE c.id FROM c", &[]).json()["Documents"],
        serde_json::json!(["3"])
    );
}

#[test]
fn throughput_is_kept_and_told() {
    let (_server, client) = start();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
    client
        .post("/dbs/shop/colls", body, &[("x-ms-offer-throughput", "300")])
        .is(400);
    let made = client
        .post("/dbs/shop/colls", body, &[("x-ms-offer-throughput", "500")])
        .is(201);
    let query = serde_json::json!({ "query": "SELECT * FROM root WHERE root.resource = @link", "parameters": [{ "name": "@link", "value": made.json()["_self"] }] });
    let found = client
        .post(
            "/offers",
            &query.to_string(),
            &[("x-ms-documentdb-isquery", "true")],
        )
        .json();
    let mut offer = found["Offers"][0].clone();
    assert_eq!(offer["content"]["offerThroughput"], 500, "{found}");
    offer["content"]["offerThroughput"] = 600.into();
    let path = format!("/{}", offer["_self"].as_str().unwrap());
    client.put(&path, &offer.to_string(), &[]).is(200);
    assert_eq!(
        client.get(&path, &[]).json()["content"]["offerThroughput"],
        600
    );
    client.ask("DELETE", "/dbs/shop/colls/c", "", &[]);
    client.get(&path, &[]).is(404);
}
