//! Containers of several partitions, and parts of containers.

use serde_json::{Value, json};

use crate::client::{Client, Reply, config, start};
use ebbtide_server::Server;

const PARTITIONS: usize = 3;
const KEYS: usize = 60;

/// A container of three partitions with a document of each key, and one more of each second key.
fn fill(client: Client) {
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let throughput = ("x-ms-offer-throughput", "25000");
    client.post("/dbs/shop/colls", body, &[throughput]).is(201);
    for n in 0..KEYS {
        let body = json!({ "id": format!("{n:02}"), "pk": format!("k{n}"), "n": n });
        client.create("c", &body.to_string());
        if n % 2 == 0 {
            let body = json!({ "id": "second", "pk": format!("k{n}"), "n": n });
            client.create("c", &body.to_string());
        }
    }
}

fn of(partition: &str) -> (&'static str, &str) {
    ("x-ms-documentdb-partitionkeyrangeid", partition)
}

fn ask(client: Client, query: &str, headers: &[(&str, &str)]) -> Reply {
    client.query("c", query, headers)
}

/// All rows of a query of one partition, a page at a time.
fn rows(client: Client, query: &str, partition: &str) -> Vec<Value> {
    let (mut all, mut next) = (Vec::new(), None::<String>);
    loop {
        let mut headers = vec![of(partition), ("x-ms-max-item-count", "7")];
        headers.extend(next.as_deref().map(|next| ("x-ms-continuation", next)));
        let page = ask(client, query, &headers).is(200);
        let found = page.json()["Documents"].as_array().unwrap().clone();
        assert!(found.len() <= 7);
        all.extend(found);
        match page.header("x-ms-continuation") {
            Some(more) => next = Some(more.to_owned()),
            None => return all,
        }
    }
}

/// An SDK that goes by a plan: the query is sent to each partition of its ranges, the rows one behind the other.
fn by_plan(client: Client, query: &str) -> Vec<Value> {
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let plan = ask(client, query, &[plan]).json();
    let info = &plan["queryInfo"];
    let text = match info["rewrittenQuery"].as_str().unwrap() {
        "" => query,
        text => text,
    };
    let until = plan["queryRanges"][0]["max"].as_str().unwrap();
    let ranges = client.get("/dbs/shop/colls/c/pkranges", &[]).json();
    let ranges = ranges["PartitionKeyRanges"].as_array().unwrap();
    assert_eq!(ranges.len(), PARTITIONS);
    let asked = ranges
        .iter()
        .filter(|range| range["minInclusive"].as_str().unwrap() < until);
    let mut all: Vec<Value> = asked
        .flat_map(|range| rows(client, text, range["id"].as_str().unwrap()))
        .collect();
    all.truncate(info["top"].as_u64().map_or(usize::MAX, |top| top as usize));
    all
}

#[test]
fn each_document_is_in_one_partition() {
    let (_server, client) = start();
    fill(client);
    let mut all = Vec::new();
    for partition in ["0", "1", "2"] {
        let own = rows(client, "SELECT VALUE c.n FROM c", partition);
        assert!(own.len() > 10, "{own:?}");
        // Other queries of a partition are of that one alone, too.
        let mut sorted = own.clone();
        sorted.sort_by_key(|n| n.as_u64());
        let order = "SELECT VALUE c.n FROM c ORDER BY c.n";
        assert_eq!(rows(client, order, partition), sorted);
        let count = rows(client, "SELECT VALUE COUNT(1) FROM c", partition);
        assert_eq!(count, [json!(own.len())]);
        let window = "SELECT VALUE c.n FROM c OFFSET 2 LIMIT 9";
        assert_eq!(rows(client, window, partition), own[2..11]);
        let list = client.get(
            "/dbs/shop/colls/c/docs",
            &[of(partition), ("x-ms-max-item-count", "-1")],
        );
        assert_eq!(list.rows().len(), own.len());
        all.extend(own);
    }
    all.sort_by_key(|n| n.as_u64());
    let expected = (0..KEYS).flat_map(|n| vec![json!(n); 2 - n % 2]);
    assert_eq!(all, Vec::from_iter(expected));
    ask(client, "SELECT * FROM c", &[of("3")]).is(410);
}

#[test]
fn a_plan_gives_the_rows_of_all_partitions() {
    let (_server, client) = start();
    fill(client);
    let total = KEYS + KEYS / 2;
    for (query, count) in [
        ("SELECT * FROM c", total),
        ("SELECT TOP 25 * FROM c", 25),
        ("SELECT TOP 25 * FROM c WHERE c.n < 5", 8),
        ("SELECT DISTINCT VALUE c.n FROM c", KEYS),
        (
            "SELECT c.n % 4 AS m, COUNT(1) AS k FROM c GROUP BY c.n % 4",
            4,
        ),
        ("SELECT VALUE c.n FROM c OFFSET 80 LIMIT 20", total - 80),
    ] {
        assert_eq!(by_plan(client, query).len(), count, "{query}");
    }
    let sum: usize = (0..KEYS).map(|n| n * (2 - n % 2)).sum();
    assert_eq!(
        by_plan(client, "SELECT VALUE SUM(c.n) FROM c"),
        [json!(sum)]
    );
    let sorted = by_plan(
        client,
        "SELECT DISTINCT TOP 9 VALUE c.n FROM c ORDER BY c.n DESC",
    );
    assert_eq!(
        sorted,
        Vec::from_iter((KEYS - 9..KEYS).rev().map(Value::from))
    );
    // Without a plan, a query is of a partition key, or one whose rows are those of each partition.
    let (mut all, mut next, few) = (Vec::new(), None::<String>, ("x-ms-max-item-count", "13"));
    loop {
        let mut headers = vec![few];
        headers.extend(next.as_deref().map(|next| ("x-ms-continuation", next)));
        let page = ask(client, "SELECT VALUE c.n FROM c WHERE c.n > 9", &headers);
        all.extend(page.json()["Documents"].as_array().unwrap().clone());
        next = page.header("x-ms-continuation").map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    assert_eq!(
        all,
        by_plan(client, "SELECT VALUE c.n FROM c WHERE c.n > 9")
    );
    assert_eq!(all.len(), total - 15);
    let refused = ask(client, "SELECT TOP 3 * FROM c", &[]);
    refused.is_refused_as(400, "1004");
    let one = ask(client, "SELECT * FROM c WHERE c.pk = 'k2'", &[]);
    assert_eq!(one.rows().len(), 2);
    // An SDK that says so cannot merge aggregates that have no SELECT VALUE.
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    for (features, status) in [
        ("Aggregate, Top", 400),
        ("Aggregate, NonValueAggregate", 200),
    ] {
        let features = ("x-ms-cosmos-supported-query-features", features);
        let plan = ask(client, "SELECT COUNT(1) FROM c", &[plan, features]);
        assert_eq!(plan.status, status, "{}", plan.body);
    }
}

#[test]
fn a_change_feed_of_a_partition() {
    let (_server, client) = start();
    fill(client);
    let (mut all, feed) = (0, ("a-im", "Incremental Feed"));
    for partition in ["0", "1", "2"] {
        let expected = rows(client, "SELECT VALUE c.n FROM c", partition).len();
        let (mut told, mut etag) = (0, None::<String>);
        loop {
            let mut headers = vec![feed, of(partition), ("x-ms-max-item-count", "4")];
            headers.extend(etag.as_deref().map(|etag| ("if-none-match", etag)));
            let page = client.get("/dbs/shop/colls/c/docs", &headers);
            assert_eq!(
                page.header("x-ms-documentdb-partitionkeyrangeid"),
                Some(partition)
            );
            if page.status == 304 {
                break;
            }
            told += page.rows().len();
            etag = page.header("etag").map(str::to_owned);
        }
        assert_eq!(told, expected);
        all += told;
    }
    assert_eq!(all, KEYS + KEYS / 2);
}

#[test]
fn partitions_are_there_after_a_start_and_stay_when_the_throughput_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    (config.temporary, config.dir) = (false, Some(folder.path().join("db")));
    let server = Server::start(&config).unwrap();
    let client = Client(server.address());
    client.post("/dbs", r#"{"id":"shop"}"#, &[]);
    fill(client);
    let offers = client.get("/offers", &[]).json();
    let offer = &offers["Offers"][0];
    let path = format!(
        "/{}",
        offer["_self"].as_str().unwrap().trim_end_matches('/')
    );
    let content = json!({ "content": { "offerThroughput": 400 } });
    client.put(&path, &content.to_string(), &[]).is(200);
    let key = ("x-ms-documentdb-partitionkey", "[\"k7\"]");
    let token = client.get("/dbs/shop/colls/c/docs/07", &[key]);
    let token = token.header("x-ms-session-token").unwrap().to_owned();
    server.stop();
    let server = Server::start(&config).unwrap();
    let client = Client(server.address());
    let own = by_plan(client, "SELECT VALUE c.n FROM c");
    assert_eq!(own.len(), KEYS + KEYS / 2);
    let partition = token.split_once(':').unwrap().0;
    assert!(rows(client, "SELECT VALUE c.n FROM c", partition).contains(&json!(7)));
    server.stop();
}
