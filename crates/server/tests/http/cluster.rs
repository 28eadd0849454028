//! Goal: documents over three nodes are one set of documents, whichever server is asked: no answer is older than what was answered
//! before or than its session token says, none shows what has ended, and the nodes' states stay the same. Method: three servers in
//! this process, each over a node, or in processes of their own that are killed.

mod feeds;
mod indexes;
mod quotas;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use ebbtide::Database;
use ebbtide_cluster::{Node, shared};
use ebbtide_server::{Config, Server};
use serde_json::{Value, json};

use crate::client::{Client, KEY, Reply};
use crate::killed::spawn_as;

const CARTS: &str = "/dbs/shop/colls/carts";
const DOCS: &str = "/dbs/shop/colls/carts/docs";
const TOKEN: &str = "x-ms-session-token";
const LEVEL: &str = "x-ms-consistency-level";

fn addresses() -> Vec<SocketAddr> {
    let sockets = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let sockets: Vec<_> = sockets.collect();
    let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap());
    addresses.collect()
}

struct World {
    folder: tempfile::TempDir,
    nodes: Vec<SocketAddr>,
    servers: Vec<Server>,
}

impl World {
    /// Three servers, with a database and a container that two of them have made.
    fn new() -> World {
        let mut world = World {
            folder: tempfile::tempdir().unwrap(),
            nodes: addresses(),
            servers: vec![],
        };
        for number in 0..3 {
            world.servers.push(world.start(number));
        }
        let clients = world.clients();
        clients[0].post("/dbs", r#"{"id":"shop"}"#, &[]).is(201);
        clients[1].container("carts", r#","defaultTtl":-1"#);
        world
    }

    fn start(&self, number: usize) -> Server {
        let mut config = Config::default();
        config.dir = Some(self.folder.path().join(number.to_string()));
        config.http = "127.0.0.1:0".parse().unwrap();
        config.cluster = Some(self.nodes[number]);
        config.join = (number > 0).then(|| self.nodes[0].to_string());
        Server::start(&config).unwrap()
    }

    fn clients(&self) -> Vec<Client> {
        let clients = self.servers.iter().map(|server| Client(server.address()));
        clients.collect()
    }

    /// Stops all servers, and has the nodes compare what they have.
    fn compare(self) {
        self.servers.into_iter().for_each(Server::stop);
        compare(self.folder.path(), &self.nodes);
    }
}

/// Opens the nodes of these folders, which nobody has open, and has them compare what they have.
fn compare(folder: &Path, nodes: &[SocketAddr]) {
    compare_and_look(folder, nodes, |_| ());
}

/// The same, and looks at the state of each.
fn compare_and_look(folder: &Path, nodes: &[SocketAddr], look: impl Fn(&Database)) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut opened = vec![];
        for (number, address) in nodes.iter().enumerate() {
            let options = Node::options().listen(*address);
            let options = options.patience(Duration::from_secs(20));
            let folder = folder.join(number.to_string());
            opened.push(options.open(folder).await.unwrap());
        }
        let checked = opened[0].check().await.unwrap();
        let is_whole = checked.agree() && checked.absent().is_empty();
        assert!(is_whole, "{checked:?}");
        for node in opened {
            look(&shared::database(&node));
            node.close().await.unwrap();
        }
    });
}

/// Asked again while the cluster elects a leader: SDKs do so, too.
fn patiently(ask: impl Fn() -> Reply) -> Reply {
    let begun = Instant::now();
    loop {
        let reply = ask();
        if ![408, 429].contains(&reply.status) || begun.elapsed() > Duration::from_secs(60) {
            return reply;
        }
    }
}

fn etag(reply: &Reply) -> String {
    reply.header("etag").unwrap().to_owned()
}

/// The session token of an answer: the text, the index and the moment.
fn token(reply: &Reply) -> (String, u64, u64) {
    let text = reply.header(TOKEN).unwrap();
    let (index, at_ms) = text
        .strip_prefix("0:-1#")
        .and_then(|text| text.split_once("#0="))
        .unwrap_or_else(|| panic!("{text}"));
    let number = |text: &str| text.parse().unwrap();
    (text.to_owned(), number(index), number(at_ms))
}

/// The statuses of the operations of a batch.
fn batch(client: Client, operations: &Value) -> Vec<u64> {
    let is_batch = ("x-ms-cosmos-is-batch-request", "true");
    let reply = client.post(DOCS, &operations.to_string(), &[KEY, is_batch]);
    let results = reply.json();
    let results = results.as_array().unwrap().iter();
    let status = |result: &Value| result["statusCode"].as_u64().unwrap();
    results.map(status).collect()
}

#[test]
fn whichever_server_is_asked_documents_are_the_same() {
    let world = World::new();
    let clients = world.clients();
    for (number, client) in clients.iter().enumerate() {
        let body = format!(r#"{{"id":"{number}","pk":"a","n":{number}}}"#);
        let created = client.create("carts", &body).is(201);
        for other in &clients {
            let read = other.read("carts", &number.to_string());
            assert_eq!((read.status, &read.body), (200, &created.body));
            assert_eq!(etag(&read), etag(&created));
            other.create("carts", &body).is(409);
        }
    }
    let path = format!("{DOCS}/0");
    let first = etag(&clients[2].read("carts", "0"));
    let body = r#"{"id":"0","pk":"a","n":10}"#;
    let matching = |etag: &str| clients[0].put(&path, body, &[KEY, ("if-match", etag)]);
    let second = matching(&first).is(200);
    matching(&first).is(412);
    let read = clients[1].read("carts", "0");
    assert_eq!(etag(&read), etag(&second));
    let known = [KEY, ("if-none-match", &*etag(&second))];
    clients[2].get(&path, &known).is(304);
    world.compare();
}

/// A session that has seen that a document is gone has a token of that, too.
#[test]
fn a_document_that_was_seen_to_be_gone_is_not_shown_again() {
    let world = World::new();
    let clients = world.clients();
    for round in 0..4 {
        let id = format!("s{round}");
        let made = clients[0].create("carts", &format!(r#"{{"id":"{id}","pk":"a","ttl":1}}"#));
        let path = format!("{DOCS}/{id}");
        let mut seen = token(&made).0;
        let begun = Instant::now();
        loop {
            let headers = [KEY, (LEVEL, "Strong"), (TOKEN, &*seen)];
            let read = clients[round % 3].get(&path, &headers);
            seen = token(&read).0;
            if read.status == 404 {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", read.status);
        }
        for level in ["Eventual", "Session", "Strong"] {
            for client in &clients {
                let read = client.get(&path, &[KEY, (LEVEL, level), (TOKEN, &*seen)]);
                assert_eq!(read.status, 404, "{level}");
            }
        }
    }
    world.compare();
}

#[test]
fn of_writers_with_one_etag_of_a_container_one_wins() {
    let world = World::new();
    let clients = world.clients();
    for round in 1..9 {
        let known = etag(&clients[0].get(CARTS, &[]));
        let replaced = |number: u64| {
            let body = format!(
                r#"{{"id":"carts","partitionKey":{{"paths":["/pk"]}},"defaultTtl":{}}}"#,
                10 * round + number
            );
            clients[number as usize].put(CARTS, &body, &[("if-match", &*known)])
        };
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let asked = [0, 1, 2].map(|number| scope.spawn(move || replaced(number).status));
            asked.map(|asked| asked.join().unwrap()).to_vec()
        });
        let won = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(won, 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 412].contains(status)));
        clients[2]
            .ask("DELETE", CARTS, "", &[("if-match", &*known)])
            .is(412);
        assert_eq!(clients[1].get("/offers", &[]).json()["_count"], 1);
    }
    world.compare();
}

/// A container is made with a throughput while its database goes.
#[test]
fn no_offer_of_what_was_deleted_is_told() {
    let world = World::new();
    let clients = world.clients();
    clients[0].ask("DELETE", "/dbs/shop", "", &[]).is(204);
    for round in 0..8 {
        clients[0].post("/dbs", r#"{"id":"shop"}"#, &[]).is(201);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
                clients[1].post(
                    "/dbs/shop/colls",
                    body,
                    &[("x-ms-offer-throughput", "20000")],
                )
            });
            std::thread::sleep(Duration::from_millis(round));
            clients[2].ask("DELETE", "/dbs/shop", "", &[])
        });
        for client in &clients {
            assert_eq!(client.get("/offers", &[]).json()["_count"], 0, "{round}");
        }
    }
    world.compare();
}

#[test]
fn batches_and_queries_are_of_all_servers() {
    let world = World::new();
    let clients = world.clients();
    let create =
        |id: &str| json!({"operationType":"Create","resourceBody":{"id":id,"pk":"a","n":5}});
    assert_eq!(batch(clients[0], &json!([create("1")])), [201]);
    assert_eq!(
        batch(clients[1], &json!([create("x"), create("1")])),
        [424, 409]
    );
    clients[2].read("carts", "x").is(404);
    assert_eq!(
        batch(clients[1], &json!([create("x"), create("y")])),
        [201, 201]
    );
    for client in &clients {
        let text = "SELECT VALUE c.id FROM c WHERE c.n >= 2 ORDER BY c.id";
        let found = client.query("carts", text, &[]);
        assert_eq!(
            found.json()["Documents"],
            json!(["1", "x", "y"]),
            "{}",
            found.body
        );
    }
    clients[0]
        .ask("DELETE", &format!("{DOCS}/x"), "", &[KEY])
        .is(204);
    clients[1].read("carts", "x").is(404);
    let all = format!("{CARTS}/operations/partitionkeydelete");
    let all = clients[2].post(&all, "", &[KEY]);
    assert_eq!(all.status, 200, "{}", all.body);
    clients[1].read("carts", "y").is(404);
    world.compare();
}

#[test]
fn a_session_goes_on_at_each_server() {
    let world = World::new();
    let clients = world.clients();
    let path = format!("{DOCS}/s");
    let upsert = ("x-ms-documentdb-is-upsert", "true");
    for round in 0..60 {
        let body = format!(r#"{{"id":"s","pk":"a","round":{round}}}"#);
        let written = clients[round % 3].post(DOCS, &body, &[KEY, upsert]);
        let (text, index, at_ms) = token(&written);
        // However little is asked for, it is no less than the session has seen.
        let level = (LEVEL, ["Eventual", "Session"][round % 2]);
        for client in &clients {
            let read = client.get(&path, &[KEY, (TOKEN, &text), level]);
            assert_eq!((read.status, &read.body), (200, &written.body));
            let (_, then, moment) = token(&read);
            assert!(then >= index && moment >= at_ms, "{text}");
        }
    }
    // A token of a database of its own says nothing here: the read is linearizable.
    let last = clients[0].read("carts", "s");
    let other = clients[1].get(&path, &[KEY, (TOKEN, "0:-1#57")]);
    assert_eq!((other.status, &other.body), (200, &last.body));
    // Such have been given by no server.
    let (_, index, at_ms) = token(&last);
    let ahead = format!("0:-1#{}#0={at_ms}", index + 1_000);
    clients[2].get(&path, &[KEY, (TOKEN, &ahead)]).is(429);
    let late = format!("0:-1#{index}#0={}", at_ms + 3_600_000);
    clients[2].get(&path, &[KEY, (TOKEN, &late)]).is(400);
    world.compare();
}

#[test]
fn writers_at_three_servers_lose_no_change_of_each_other() {
    let world = World::new();
    let clients = world.clients();
    clients[0]
        .create("carts", r#"{"id":"c","pk":"a","n":0}"#)
        .is(201);
    let patch = r#"[{"op":"incr","path":"/n","value":1}]"#;
    let kind = ("content-type", "application/json_patch+json");
    let made = std::thread::scope(|scope| {
        let begin = |client: Client| {
            scope.spawn(move || {
                for _ in 0..20 {
                    let path = format!("{DOCS}/c");
                    patiently(|| client.ask("PATCH", &path, patch, &[KEY, kind])).is(200);
                }
                client.post("/dbs", r#"{"id":"raced"}"#, &[]).status
            })
        };
        let running: Vec<_> = clients.iter().map(|client| begin(*client)).collect();
        let ended = running.into_iter().map(|thread| thread.join().unwrap());
        ended.filter(|status| *status == 201).count()
    });
    assert_eq!(made, 1, "one of them has made the database");
    for client in &clients {
        assert_eq!(client.read("carts", "c").json()["n"], json!(60));
    }
    world.compare();
}

#[test]
fn what_has_ended_at_one_server_has_ended_at_all() {
    let world = World::new();
    let clients = world.clients();
    let made = clients[0].create("carts", r#"{"id":"s","pk":"a","ttl":1}"#);
    let end = made.header("x-ebbtide-expires-at").unwrap().to_owned();
    for client in &clients {
        let read = client.read("carts", "s");
        let is_gone = read.status == 404;
        assert!(is_gone || read.header("x-ebbtide-expires-at") == Some(&end));
    }
    while clients[0].read("carts", "s").status == 200 {}
    let count = "SELECT VALUE COUNT(1) FROM c";
    let found = clients[0].query("carts", count, &[]);
    let (text, ..) = token(&found);
    for client in &clients {
        client.read("carts", "s").is(404);
        // A session that has seen its end sees it at each level.
        let seen = [(TOKEN, &*text), (LEVEL, "Eventual")];
        let path = format!("{DOCS}/s");
        client.get(&path, &[KEY, seen[0], seen[1]]).is(404);
        let found = client.query("carts", count, &seen);
        assert_eq!(found.json()["Documents"], json!([0]));
    }
    clients[1].create("carts", r#"{"id":"s","pk":"a"}"#).is(201);
    world.compare();
}

#[test]
fn containers_are_made_changed_and_dropped_for_all() {
    let world = World::new();
    let clients = world.clients();
    let of = |client: &Client| client.get(CARTS, &[]);
    let policy = json!({"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]});
    let key = json!({"paths":["/pk"],"kind":"Hash","version":2});
    let definition =
        json!({"id":"carts","partitionKey":key,"defaultTtl":7200,"indexingPolicy":policy});
    let replaced = clients[2].put(CARTS, &definition.to_string(), &[]).is(200);
    let etag_of = |reply: &Reply| etag(reply);
    for client in &clients {
        let seen = of(client);
        assert_eq!(seen.json(), replaced.json());
        assert_eq!(etag_of(&seen), etag_of(&replaced));
        assert_eq!(
            seen.json()["indexingPolicy"]["includedPaths"],
            policy["includedPaths"]
        );
    }
    clients[0].create("carts", r#"{"id":"1","pk":"a"}"#).is(201);
    clients[1].ask("DELETE", CARTS, "", &[]).is(204);
    clients[2].read("carts", "1").is(404);
    clients[2].container("carts", "");
    for client in &clients {
        let read = client.read("carts", "1");
        assert_eq!(read.status, 404, "it was of the one before");
        assert!(of(client).json()["defaultTtl"].is_null());
    }
    clients[0].ask("DELETE", "/dbs/shop", "", &[]).is(204);
    clients[1].get("/dbs/shop", &[]).is(404);
    world.compare();
}

#[test]
fn throughput_and_partitions_are_those_of_all_servers() {
    let world = World::new();
    let clients = world.clients();
    let body = r#"{"id":"wide","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let throughput = ("x-ms-offer-throughput", "20000");
    let made = clients[0]
        .post("/dbs/shop/colls", body, &[throughput])
        .is(201);
    let offers = |client: &Client| client.get("/offers", &[]).json()["Offers"].clone();
    let of_first = offers(&clients[0]);
    assert_eq!(of_first.as_array().unwrap().len(), 2, "{of_first}");
    for client in &clients {
        let ranges = client.get("/dbs/shop/colls/wide/pkranges", &[]).json();
        assert_eq!(ranges["_count"], json!(2));
        assert_eq!(offers(client), of_first);
        let partition = ("x-ms-documentdb-partitionkeyrangeid", "1");
        let listed = client.get("/dbs/shop/colls/wide/docs", &[partition]);
        assert!(listed.header(TOKEN).unwrap().starts_with("1:-1#"));
    }
    let of_wide = |offer: &&Value| offer["offerResourceId"] == made.json()["_rid"];
    let offer = of_first.as_array().unwrap().iter().find(of_wide).unwrap();
    let path = format!("/offers/{}", offer["id"].as_str().unwrap());
    let changed = r#"{"content":{"offerThroughput":500}}"#;
    clients[1].put(&path, changed, &[]).is(200);
    let seen = clients[2].get(&path, &[]).json();
    assert_eq!(seen["content"]["offerThroughput"], json!(500));
    clients[2]
        .ask("DELETE", "/dbs/shop/colls/wide", "", &[])
        .is(204);
    assert_eq!(offers(&clients[1]).as_array().unwrap().len(), 1);
    world.compare();
}

#[test]
fn what_is_not_offered_over_a_cluster_says_so() {
    let world = World::new();
    let client = world.clients()[1];
    client.post("/_clock", r#"{"advance":"2h"}"#, &[]).is(403);
    assert_eq!(client.get("/", &[]).json()["id"], json!("ebbtide"));
    client.get("/_status", &[]).is(200);
    client.get(&format!("{CARTS}/_due"), &[]).is(200);
    let figures = client.get("/metrics", &[]).body;
    assert!(figures.contains("\nebbtide_cluster_voters 3\n"));
    assert!(figures.contains("\nebbtide_flushes_total{"), "{figures}");
    world.compare();
}

#[test]
fn a_server_that_is_lost_is_lost_alone() {
    let mut world = World::new();
    let clients = world.clients();
    clients[0].create("carts", r#"{"id":"1","pk":"a"}"#).is(201);
    world.servers.remove(0).stop();
    let clients = world.clients();
    for client in &clients {
        patiently(|| client.read("carts", "1")).is(200);
    }
    patiently(|| clients[0].create("carts", r#"{"id":"2","pk":"a"}"#)).is(201);
    world.servers.insert(0, world.start(0));
    for client in world.clients() {
        patiently(|| client.read("carts", "2")).is(200);
    }
    world.compare();
}

/// A process over a node, which is killed at its end, and where it listens.
struct Process(Child, Client);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(folder: &Path, nodes: &[SocketAddr], number: usize) -> Process {
    let mut text = json!({
        "dir": folder.join(number.to_string()), "http": "127.0.0.1:0", "log-level": "error",
        "cluster": nodes[number].to_string(),
    });
    if number > 0 {
        text["join"] = json!(nodes[0].to_string());
    }
    let (process, client) = spawn_as(&folder.join(format!("{number}.json")), &text);
    Process(process, client)
}

/// The number of the node that leads.
fn leader(client: Client, nodes: &[SocketAddr]) -> usize {
    let status = client.get("/_cluster", &[]).json();
    let members = status["members"].as_array().unwrap().iter();
    let leads = |member: &&Value| member["role"] == json!("leader");
    let found = members
        .clone()
        .find(leads)
        .unwrap_or_else(|| panic!("{status}"));
    let is_found = |node: &SocketAddr| found["address"] == json!(node.to_string());
    nodes.iter().position(is_found).unwrap()
}

#[test]
fn a_leader_that_is_killed_takes_no_acknowledged_document_along() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = addresses();
    let begin = |number| spawn(folder.path(), &nodes, number);
    let mut processes: Vec<Process> = (0..3).map(begin).collect();
    let first = processes[0].1;
    first.post("/dbs", r#"{"id":"shop"}"#, &[]).is(201);
    first.container("carts", "");
    let mut acknowledged = vec![];
    for round in 0..2 {
        let leads = leader(processes[0].1, &nodes);
        for number in 0..30 {
            if number == 10 {
                processes[leads].0.kill().unwrap();
                processes[leads].0.wait().unwrap();
            }
            let id = format!("{round}-{number}");
            let body = format!(r#"{{"id":"{id}","pk":"a"}}"#);
            let others: Vec<_> = (0..3).filter(|number| *number != leads).collect();
            let client = processes[others[number % 2]].1;
            let status = patiently(|| client.create("carts", &body)).status;
            // It may have been done by an attempt whose answer was lost.
            assert!([201, 409].contains(&status), "{status}");
            acknowledged.push(id);
        }
        processes[leads] = begin(leads);
    }
    let all = r#"SELECT VALUE c.id FROM c ORDER BY c.id"#;
    acknowledged.sort();
    for Process(_, client) in &processes {
        let found = patiently(|| client.query("carts", all, &[]));
        assert_eq!(found.json()["Documents"], json!(acknowledged));
    }
    drop(processes);
    compare(folder.path(), &nodes);
}
