//! Transactional batches, and bulk.

use serde_json::{Value, json};

use crate::client::{Client, KEY, Reply, start};

const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "true");

fn batch(client: Client, operations: &Value, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[BATCH], headers].concat();
    client.post("/dbs/shop/colls/c/docs", &operations.to_string(), &headers)
}

fn statuses(reply: &Reply) -> Vec<u64> {
    reply
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["statusCode"].as_u64().unwrap())
        .collect()
}

#[test]
fn all_operations_of_a_batch_are_done_or_none() {
    let (_server, client) = start();
    client.container("c", "");
    client.create("c", r#"{"id":"old","pk":"a","n":1}"#);
    let operations = json!([
        { "operationType": "Create", "resourceBody": { "id": "1", "pk": "a" } },
        { "operationType": "Upsert", "resourceBody": { "id": "2", "pk": "a" } },
        { "operationType": "Replace", "id": "old", "resourceBody": { "id": "old", "pk": "a", "n": 2 } },
        { "operationType": "Read", "id": "old" },
        { "operationType": "Patch", "id": "old", "resourceBody": { "operations": [{ "op": "incr", "path": "/n", "value": 1 }] } },
        { "operationType": "Delete", "id": "1" },
    ]);
    let done = batch(client, &operations, &[KEY]);
    assert_eq!(
        (done.status, statuses(&done)),
        (200, vec![201, 201, 200, 200, 200, 204]),
        "{}",
        done.body
    );
    let results = done.json();
    assert_eq!(
        (
            &results[3]["resourceBody"]["n"],
            &results[4]["resourceBody"]["n"]
        ),
        (&2.into(), &3.into())
    );
    assert_eq!(results[4]["eTag"], client.read("c", "old").json()["_etag"]);
    client.read("c", "1").is(404);

    let operations = json!([
        { "operationType": "Upsert", "resourceBody": { "id": "3", "pk": "a" } },
        { "operationType": "Create", "resourceBody": { "id": "old", "pk": "a" } },
        { "operationType": "Delete", "id": "old" },
    ]);
    let refused = batch(client, &operations, &[KEY]);
    assert_eq!(
        (refused.status, statuses(&refused)),
        (207, vec![424, 409, 424]),
        "{}",
        refused.body
    );
    assert_eq!(
        (client.read("c", "3").status, client.read("c", "old").status),
        (404, 200)
    );

    let stale = json!([{ "operationType": "Replace", "id": "old", "ifMatch": "\"1\"", "resourceBody": { "id": "old", "pk": "a" } }]);
    assert_eq!(statuses(&batch(client, &stale, &[KEY])), [412]);
}

#[test]
fn a_batch_has_bounds() {
    let (_server, client) = start();
    client.container("c", "");
    assert_eq!(
        batch(client, &json!([]), &[]).status,
        400,
        "without a partition key"
    );
    let many: Vec<Value> = (0..101).map(|n| json!({ "operationType": "Upsert", "resourceBody": { "id": n.to_string(), "pk": "a" } })).collect();
    batch(client, &Value::from(many), &[KEY]).is(400);
    let binary = client
        .ask(
            "POST",
            "/dbs/shop/colls/c/docs",
            "\u{81}\u{ff}",
            &[BATCH, KEY],
        )
        .is(400);
    assert!(binary.body.contains("HybridRow"), "{}", binary.body);
    assert_eq!(
        client
            .query("c", "SELECT VALUE COUNT(1) FROM c", &[])
            .json()["Documents"],
        json!([0])
    );
}

#[test]
fn the_operations_of_a_bulk_are_each_for_itself() {
    let (_server, client) = start();
    client.container("c", "");
    client.create("c", r#"{"id":"1","pk":"a"}"#);
    let operations = json!([
        { "operationType": "Create", "partitionKey": "[\"a\"]", "resourceBody": { "id": "1", "pk": "a" } },
        { "operationType": "Create", "partitionKey": "[\"b\"]", "resourceBody": { "id": "2", "pk": "b" } },
        { "operationType": "Nonsense", "partitionKey": "[\"b\"]" },
    ]);
    let bulk = ("x-ms-cosmos-batch-atomic", "false");
    let stopped = batch(client, &operations, &[bulk]);
    assert_eq!(statuses(&stopped), [409, 424, 424], "{}", stopped.body);
    let goes_on = batch(
        client,
        &operations,
        &[bulk, ("x-ms-cosmos-batch-continue-on-error", "true")],
    );
    assert_eq!(statuses(&goes_on), [409, 201, 400], "{}", goes_on.body);
}
