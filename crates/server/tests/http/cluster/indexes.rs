//! Indexes by name over three nodes: what a query answers by one, at whichever server, is what a scan answers, while servers write, the
//! policy changes at any of them, and the one that builds an index is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use testkit::random::Random;

use super::{CARTS, DOCS, Process, World, addresses, compare_and_look, leader, patiently, spawn};
use crate::client::{Client, KEY, Reply};

const POLICIES: [&[&str]; 5] = [
    &["/a/?"],
    &["/b/?"],
    &["/a/?", "/b/?"],
    &["/b/?", "/a/?", "/c/d/?"],
    &["/*"],
];
const PROGRESS: &str = "x-ms-documentdb-collection-index-transformation-progress";

fn define(client: Client, policy: &[&str], default: i64) -> u16 {
    let included = Vec::from_iter(policy.iter().map(|path| json!({"path": path})));
    let body = json!({
        "id": "carts", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
        "defaultTtl": default, "indexingPolicy": {"includedPaths": included},
    });
    patiently(|| client.put(CARTS, &body.to_string(), &[])).status
}

fn value(random: &mut Random) -> &'static str {
    random.pick(&["0", "1", "2", "3", "\"x\"", "\"xy\"", "null", "true", "[1]"])
}

fn body(random: &mut Random, id: usize) -> String {
    let (a, b, d) = (value(random), value(random), value(random));
    let ttl = random.pick(&["", ",\"ttl\":1", ",\"ttl\":-1", ",\"ttl\":600"]);
    format!("{{\"id\":\"{id}\",\"pk\":\"a\",\"a\":{a},\"b\":{b},\"c\":{{\"d\":{d}}}{ttl}}}")
}

/// Any write of a document, at this server.
fn write(random: &mut Random, client: Client) {
    let id = random.below(60);
    let (path, text) = (format!("{DOCS}/{id}"), body(random, id));
    let kind = random.below(6);
    let done = match kind {
        0 => client.ask("DELETE", &path, "", &[KEY]),
        1 => {
            let set = format!(r#"[{{"op":"set","path":"/a","value":{}}}]"#, value(random));
            client.ask("PATCH", &path, &set, &[KEY])
        }
        2 => client.put(&path, &text, &[KEY]),
        3 => {
            let upsert = |text: &str| json!({"operationType": "Upsert", "resourceBody": serde_json::from_str::<Value>(text).unwrap()});
            let other = random.below(60);
            let operations = json!([upsert(&text), upsert(&body(random, other))]);
            let is_batch = ("x-ms-cosmos-is-batch-request", "true");
            client.post(DOCS, &operations.to_string(), &[KEY, is_batch])
        }
        _ => {
            let upserts = ("x-ms-documentdb-is-upsert", "true");
            client.post(DOCS, &text, &[KEY, upserts])
        }
    };
    // The first three are of a document that may not be there.
    let mut fine = vec![200, 201, 204, 408, 429];
    fine.extend((kind < 3).then_some(404));
    assert!(
        fine.contains(&done.status),
        "{kind}: {} {}",
        done.status,
        done.body
    );
}

/// Some queries at a server, by an index and by conditions and orders of the same meaning that none serves.
fn look(random: &mut Random, client: Client) {
    for _ in 0..8 {
        let path = random.pick(&["c.a", "c.b", "c.c.d"]);
        let condition = match random.below(3) {
            0 => format!("{path} = {}", value(random)),
            1 => format!("{path} >= {} AND c.a != 1", value(random)),
            _ => format!("{path} IN ({}, {})", value(random), value(random)),
        };
        let (order, sorted) = match random.below(3) {
            0 => (
                format!(" ORDER BY {path} DESC"),
                format!(" ORDER BY {path} DESC, c.none"),
            ),
            _ => (String::new(), String::new()),
        };
        // Of documents that do not end meanwhile.
        let stays = "(NOT IS_DEFINED(c.ttl) OR c.ttl != 1)";
        let rows = |text: String| {
            let found = patiently(|| client.query("carts", &text, &[])).is(200);
            found.json()["Documents"].clone()
        };
        let by_index = rows(format!(
            "SELECT c.id, c.a FROM c WHERE {condition} AND {stays}{order}"
        ));
        let by_scan = rows(format!(
            "SELECT c.id, c.a FROM c WHERE NOT (NOT ({condition})) AND {stays}{sorted}"
        ));
        assert_eq!(by_index, by_scan, "{condition}{order}");
    }
}

#[test]
fn answers_by_an_index_are_those_of_a_scan_at_each_server() {
    let world = World::new();
    let clients = world.clients();
    let mut random = Random(testkit::env("SEED", 38));
    for _ in 0..testkit::env("ROUNDS", 6) {
        let is_over = AtomicBool::new(false);
        let seeds = [random.next(), random.next(), random.next()];
        std::thread::scope(|scope| {
            for (client, seed) in clients.iter().zip(seeds) {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut random = Random(seed);
                    while !is_over.load(Ordering::Relaxed) {
                        write(&mut random, *client);
                    }
                });
            }
            for _ in 0..3 {
                let (client, policy) = (random.pick(&clients), random.pick(&POLICIES));
                let default = random.pick(&[-1, -1, 600]);
                assert_eq!(define(client, policy, default), 200);
                for client in &clients {
                    (0..5).for_each(|_| write(&mut random, *client));
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for client in &clients {
            look(&mut random, *client);
        }
    }
    world.compare();
}

fn has_policy(container: &Reply, policy: &[&str]) -> bool {
    let of_policy = container.json()["indexingPolicy"]["includedPaths"].clone();
    let paths = of_policy.as_array().unwrap().iter();
    paths.map(|path| &path["path"]).eq(policy)
}

/// Creates so many documents by batches of a hundred, with so many values of `a`.
fn fill(clients: &[Client], documents: usize, values: usize, text: &str) {
    let is_batch = ("x-ms-cosmos-is-batch-request", "true");
    for from in (0..documents).step_by(100) {
        let create = |n: usize| {
            let body =
                json!({"id": n.to_string(), "pk": "a", "a": n % values, "b": n % 7, "text": text});
            json!({"operationType": "Create", "resourceBody": body})
        };
        let operations = json!(Vec::from_iter((from..from + 100).map(create))).to_string();
        let at = clients[from / 100 % clients.len()];
        patiently(|| at.post(DOCS, &operations, &[KEY, is_batch])).is(200);
    }
}

/// Whether an index is built is told by each server; here until it is so, as queries of users go on.
fn wait_until_built(client: Client) {
    loop {
        let reply = patiently(|| client.get(CARTS, &[]));
        if reply.header(PROGRESS) == Some("100") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn an_index_is_built_though_nodes_are_killed_that_do() {
    const DOCUMENTS: usize = 1_500;
    let folder = tempfile::tempdir().unwrap();
    let nodes = addresses();
    let begin = |number| spawn(folder.path(), &nodes, number);
    let mut processes: Vec<Process> = (0..3).map(begin).collect();
    let first = processes[0].1;
    first.post("/dbs", r#"{"id":"shop"}"#, &[]).is(201);
    first.container("carts", "");
    fill(&[first], DOCUMENTS, 100, "");
    for (round, policy) in [&["/a/?"][..], &["/b/?", "/a/?"], &["/b/?"]]
        .into_iter()
        .enumerate()
    {
        // The one that builds leads, or it does not.
        let leads = leader(processes[0].1, &nodes);
        let builds = (leads + round) % 3;
        let (at, other) = (processes[builds].1, processes[(builds + 1) % 3].1);
        std::thread::scope(|scope| {
            let asked = scope.spawn(move || {
                // Its answer is lost with it.
                let _ = std::panic::catch_unwind(|| define(at, policy, -1));
            });
            // Until a part of the index is there, as others see it, or it was quicker.
            while !has_policy(&patiently(|| other.get(CARTS, &[])), policy) {}
            processes[builds].0.kill().unwrap();
            processes[builds].0.wait().unwrap();
            asked.join().unwrap();
        });
        let upserts = ("x-ms-documentdb-is-upsert", "true");
        let text = format!(r#"{{"id":"1","pk":"a","a":7,"b":{round}}}"#);
        assert!(
            [200, 201].contains(&patiently(|| other.post(DOCS, &text, &[KEY, upserts])).status)
        );
        wait_until_built(other);
        processes[builds] = begin(builds);
        for Process(_, client) in &processes {
            let count = |condition: &str| {
                let text = format!("SELECT VALUE COUNT(1) FROM c WHERE {condition}");
                patiently(|| client.query("carts", &text, &[])).json()["Documents"].clone()
            };
            assert_eq!(count("c.a = 7"), json!([16]));
            assert_eq!(count("c.b = 3"), count("NOT (NOT (c.b = 3))"));
        }
    }
    drop(processes);
    compare_and_look(folder.path(), &nodes, |engine| {
        let names = engine.containers();
        let entries = names.iter().find(|name| name.ends_with("#index")).unwrap();
        for name in [entries, entries.trim_end_matches("#index")] {
            let there = engine
                .snapshot()
                .container(name)
                .unwrap()
                .count(..)
                .unwrap();
            assert_eq!(there, DOCUMENTS as u64, "{name}");
        }
    });
}

/// For docs/measurements/queries.md, by a release build: an equality of ten documents among many, by a scan and by an index.
#[test]
#[ignore = "it measures"]
fn how_long_an_equality_takes() {
    let documents = testkit::env("DOCUMENTS", 100_000) as usize;
    let world = World::new();
    let clients = world.clients();
    let begun = Instant::now();
    let text = "x".repeat(200);
    fill(&clients, documents, documents / 10, &text);
    println!("{documents} documents: {:?}", begun.elapsed());
    let write = |n: usize| {
        let upserts = ("x-ms-documentdb-is-upsert", "true");
        let body = format!(r#"{{"id":"{n}","pk":"a","a":{n},"text":"{text}"}}"#);
        clients[0].post(DOCS, &body, &[KEY, upserts]).is(200);
    };
    let look = || {
        (0..300).for_each(write);
        let begun = Instant::now();
        (300..600).for_each(write);
        println!("an upsert: {:?}", begun.elapsed() / 300);
        for (number, client) in clients.iter().enumerate() {
            let ask = || {
                let begun = Instant::now();
                let found = client.query("carts", "SELECT c.id FROM c WHERE c.a = 777", &[KEY]);
                assert_eq!(found.rows().len(), 10, "{}", found.body);
                begun.elapsed()
            };
            let times = Vec::from_iter((0..20).map(|_| ask()));
            println!("server {number}: at best {:?}", times.iter().min().unwrap());
        }
    };
    look();
    let begun = Instant::now();
    assert_eq!(define(clients[1], &["/a/?"], -1), 200);
    println!("the index is built: {:?}", begun.elapsed());
    look();
    world.compare();
}
