//! `maxLiveBytes` over three nodes: whichever server is asked, and whichever node leads, a container keeps to it.

use serde_json::{Value, json};

use super::{CARTS, DOCS, World, leader, patiently};
use crate::client::{Client, KEY, Reply};

const LIMIT: u64 = 100_000;

fn defined(client: Client, more: &Value) -> Reply {
    let mut body =
        json!({"id": "carts", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    patiently(|| client.put(CARTS, &body.to_string(), &[]))
}

fn body(id: &str) -> String {
    json!({"id": id, "pk": "a", "text": "x".repeat(1_000)}).to_string()
}

fn create(client: Client, id: &str) -> Reply {
    patiently(|| client.create("carts", &body(id)))
}

/// Fills the container through all servers until one refuses; returns how many documents were made.
fn fill(clients: &[Client], from: usize) -> usize {
    for number in from..1_000 {
        let made = create(clients[number % clients.len()], &number.to_string());
        if made.status == 403 {
            assert_eq!(made.header("x-ms-substatus"), Some("1014"), "{}", made.body);
            return number - from;
        }
        assert_eq!(made.status, 201, "{}", made.body);
    }
    panic!("it takes anything")
}

#[test]
fn a_container_keeps_to_its_quota_at_each_server() {
    let mut world = World::new();
    let clients = world.clients();
    let limited = defined(clients[2], &json!({"maxLiveBytes": LIMIT}));
    assert_eq!(limited.status, 200, "{}", limited.body);
    for client in &clients {
        assert_eq!(client.get(CARTS, &[]).json()["maxLiveBytes"], json!(LIMIT));
    }
    let made = fill(&clients, 0);
    // Of some 1 080 bytes each.
    assert!((85..=98).contains(&made), "{made}");

    let lost = leader(clients[0], &world.nodes);
    world.servers.remove(lost).stop();
    for client in &world.clients() {
        create(*client, "more").is(403);
        patiently(|| client.put(&format!("{DOCS}/1"), &body("1"), &[KEY])).is(200);
    }
    world.servers.insert(lost, world.start(lost));

    let clients = world.clients();
    create(clients[lost], "more").is(403);
    let raised = defined(clients[lost], &json!({"maxLiveBytes": 2 * LIMIT}));
    assert_eq!(raised.status, 200, "{}", raised.body);
    let more = fill(&clients, made);
    assert!((85..=98).contains(&more), "{more}");
    patiently(|| clients[0].ask("DELETE", &format!("{DOCS}/1"), "", &[KEY])).is(204);
    create(clients[1], "more").is(201);
    let free = defined(
        clients[1],
        &json!({"changeFeedPolicy": {"retentionDuration": 5}}),
    );
    assert_eq!(free.status, 200, "{}", free.body);
    for client in &clients {
        assert!(client.get(CARTS, &[]).json()["maxLiveBytes"].is_null());
    }
    for number in 0..30 {
        create(clients[number % 3], &format!("free-{number}")).is(201);
    }
    world.compare();
}
