//! The change feed.

use serde_json::Value;

use crate::client::{Client, KEY, Reply, start};

const FEED: (&str, &str) = ("a-im", "Incremental Feed");

fn feed(client: Client, headers: &[(&str, &str)]) -> Reply {
    client.get("/dbs/shop/colls/c/docs", &[&[FEED], headers].concat())
}

fn ids(reply: &Reply) -> Vec<String> {
    reply
        .rows()
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn changes_are_told_once_in_their_order() {
    let (_server, client) = start();
    client.container("c", r#","defaultTtl":-1"#);
    let before = feed(client, &[("if-none-match", "*")]).is(304);
    for id in ["1", "2", "3"] {
        client.create("c", &format!("{{\"id\":\"{id}\",\"pk\":\"a\"}}"));
    }
    client.create("c", r#"{"id":"4","pk":"b"}"#);
    client.put(
        "/dbs/shop/colls/c/docs/1",
        r#"{"id":"1","pk":"a","n":1}"#,
        &[KEY],
    );

    assert_eq!(
        ids(&feed(
            client,
            &[("if-none-match", before.header("etag").unwrap())]
        )),
        ["2", "3", "4", "1"],
        "of each its latest version"
    );
    let page = feed(client, &[("x-ms-max-item-count", "2")]);
    assert_eq!(ids(&page), ["2", "3"]);
    let lsn = page.json()["Documents"][1]["_lsn"].as_u64().unwrap();
    assert_eq!(
        page.header("etag").unwrap().trim_matches('"').parse(),
        Ok(lsn)
    );
    let rest = feed(client, &[("if-none-match", page.header("etag").unwrap())]);
    assert_eq!(ids(&rest), ["4", "1"]);
    let end = feed(client, &[("if-none-match", rest.header("etag").unwrap())]);
    assert_eq!((end.status, &*end.body), (304, ""));
    assert!(end.header("etag").is_some());
    assert_eq!(ids(&feed(client, &[KEY])), ["2", "3", "1"]);
    let place = [
        ("x-ms-start-epk", "3A5381E1114EB8D3FCC90795045B49B7"),
        ("x-ms-end-epk", "3A5381E1114EB8D3FCC90795045B49B8"),
    ];
    assert_eq!(ids(&feed(client, &place)), ["2", "3", "1"]);
}

#[test]
fn a_feed_begins_at_a_moment_and_leaves_out_what_has_ended() {
    let (_server, client) = start();
    client.container("c", r#","defaultTtl":-1"#);
    client.create("c", r#"{"id":"1","pk":"a"}"#);
    client.create("c", r#"{"id":"2","pk":"a","ttl":5}"#);
    client.advance("1h");
    client.create("c", r#"{"id":"3","pk":"a"}"#);
    assert_eq!(ids(&feed(client, &[])), ["1", "3"]);
    let now = client.get("/_clock", &[]).json()["now"]
        .as_str()
        .unwrap()
        .to_string();
    let moment = of_http(&now);
    assert_eq!(ids(&feed(client, &[("if-modified-since", &moment)])), ["3"]);
    feed(client, &[("if-none-match", "nonsense")]).is(400);
    let all = client.get("/dbs/shop/colls/c/docs", &[("a-im", "Full-Fidelity Feed")]);
    assert_eq!(
        (all.status, all.json()["code"].clone()),
        (501, Value::from("NotImplemented"))
    );
}

/// `2026-03-01T10:00:00.000Z` as HTTP has it; nobody reads the day of the week.
fn of_http(iso: &str) -> String {
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let month: usize = iso[5..7].parse().unwrap();
    format!(
        "Sun, {} {} {} {} GMT",
        &iso[8..10],
        months[month - 1],
        &iso[..4],
        &iso[11..19]
    )
}

#[test]
fn the_one_partition_is_told_until_it_is_known() {
    let (_server, client) = start();
    client.container("c", "");
    let ranges = client.get("/dbs/shop/colls/c/pkranges", &[]);
    let range = &ranges.json()["PartitionKeyRanges"][0];
    assert_eq!(
        (&range["id"], &range["minInclusive"], &range["maxExclusive"]),
        (&"0".into(), &"".into(), &"FF".into())
    );
    let etag = ranges.header("etag").unwrap();
    let again = client.get(
        "/dbs/shop/colls/c/pkranges",
        &[("if-none-match", etag), ("a-im", "Incremental feed")],
    );
    assert_eq!((again.status, again.header("etag")), (304, Some(etag)));
}
