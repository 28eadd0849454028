//! Queries, their plans and their pages.

use serde_json::{Value, json};

use crate::client::{Client, KEY, start};

fn fill(client: Client) {
    client.container("c", "");
    for n in 0..25 {
        client.create(
            "c",
            &json!({ "id": format!("{n:02}"), "pk": if n % 2 == 0 { "a" } else { "b" }, "n": n })
                .to_string(),
        );
    }
}

/// All pages of a query, and how many they were.
fn pages(client: Client, text: &str, rows: &str) -> (Vec<Value>, usize) {
    let (mut all, mut count, mut next) = (Vec::new(), 0, None::<String>);
    loop {
        let mut headers = vec![("x-ms-max-item-count", rows)];
        headers.extend(next.as_deref().map(|next| ("x-ms-continuation", next)));
        let page = client.query("c", text, &headers).is(200);
        let found = page.json()["Documents"].as_array().unwrap().clone();
        assert_eq!(
            page.header("x-ms-item-count"),
            Some(&*found.len().to_string())
        );
        all.extend(found);
        count += 1;
        match page.header("x-ms-continuation") {
            Some(more) => next = Some(more.to_string()),
            None => return (all, count),
        }
    }
}

#[test]
fn pages_together_are_the_whole() {
    let (_server, client) = start();
    fill(client);
    for text in [
        "SELECT VALUE c.n FROM c",
        "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
        "SELECT DISTINCT VALUE c.n % 7 FROM c",
        "SELECT VALUE c.n FROM c OFFSET 3 LIMIT 11",
    ] {
        let (whole, one) = pages(client, text, "-1");
        let (parts, many) = pages(client, text, "4");
        assert_eq!((&parts, one), (&whole, 1), "{text}");
        assert!(many >= whole.len().div_ceil(4), "{text}: {many}");
    }
    assert_eq!(
        pages(client, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", "4").0,
        (0..25).rev().map(Value::from).collect::<Vec<_>>()
    );
}

#[test]
fn a_query_is_of_a_partition_or_of_all() {
    let (_server, client) = start();
    fill(client);
    let count = |headers: &[(&str, &str)]| {
        client
            .query("c", "SELECT VALUE COUNT(1) FROM c", headers)
            .json()["Documents"]
            .clone()
    };
    assert_eq!((count(&[]), count(&[KEY])), (json!([25]), json!([13])));
    // The place of "a" in the range that SDKs divide, as one of them computes it; and one where nothing is.
    let range =
        |from: &'static str, to: &'static str| [("x-ms-start-epk", from), ("x-ms-end-epk", to)];
    let place = "3A5381E1114EB8D3FCC90795045B49B7";
    assert_eq!(
        count(&range(place, "3A5381E1114EB8D3FCC90795045B49B8")),
        json!([13])
    );
    assert_eq!(count(&range("", "FF")), json!([25]));
    assert_eq!(
        count(&range(
            "11622DAA78F835834610ABE56EFF5CB5",
            "11622DAA78F835834610ABE56EFF5CB6"
        )),
        json!([0])
    );
    // Any part, too: "a" is the first of one, and in the other no more.
    assert_eq!(count(&range(place, "FF")), json!([13]));
    assert_eq!(count(&range("", place)), json!([12]));
    assert_eq!(count(&range("20", "10")), json!([0]));
    client
        .query("c", "SELECT * FROM c", &range("x", "FF"))
        .is(400);
    assert_eq!(
        client
            .get(
                "/dbs/shop/colls/c/docs",
                &[KEY, ("x-ms-max-item-count", "3")]
            )
            .rows()
            .len(),
        3
    );
}

#[test]
fn a_plan_asks_for_the_query_as_it_is() {
    let (_server, client) = start();
    fill(client);
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let told = client
        .query("c", "SELECT * FROM c ORDER BY c.n", &[plan])
        .json();
    assert_eq!(
        told["queryRanges"],
        json!([{ "min": "", "max": "FF", "isMinInclusive": true, "isMaxInclusive": false }])
    );
    assert_eq!(
        (
            &told["queryInfo"]["orderBy"],
            &told["queryInfo"]["aggregates"]
        ),
        (&json!([]), &json!([]))
    );
    client.query("c", "SELEC * FROM c", &[plan]).is(400);
}

#[test]
fn what_is_no_query_is_refused_by_its_position() {
    let (_server, client) = start();
    fill(client);
    for (text, word) in [
        ("SELECT * FRM c", "position"),
        ("SELECT * FROM c JOIN d IN c.items", "JOIN"),
        ("SELECT VALUE udf.f(c) FROM c", "user-defined"),
        ("SELECT * FROM c WHERE c.n = @n", "@n"),
    ] {
        let refused = client.query("c", text, &[]);
        assert_eq!(refused.status, 400, "{text}: {}", refused.body);
        assert!(
            refused.body.to_lowercase().contains(&word.to_lowercase()),
            "{text}: {}",
            refused.body
        );
    }
    client
        .query("c", "SELECT * FROM c", &[("x-ms-max-item-count", "0")])
        .is(400);
    client
        .query("c", "SELECT * FROM c", &[("x-ms-continuation", "bm9uZQ")])
        .is(400);
    let plain = |text: &str, headers: &[(&str, &str)]| {
        let headers = [&[("content-type", "application/sql")], headers].concat();
        client.post("/dbs/shop/colls/c/docs", text, &headers)
    };
    let all = plain("SELECT VALUE COUNT(1) FROM c", &[]);
    assert_eq!(all.status, 400, "all partitions are asked by intention");
    assert_eq!(
        plain("SELECT VALUE COUNT(1) FROM c", &[KEY]).json()["Documents"],
        json!([13])
    );
    let named = plain("SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'b'", &[]);
    assert_eq!(named.json()["Documents"], json!([12]));
}

#[test]
fn figures_of_a_query_are_told_where_they_are_wanted() {
    let (_server, client) = start();
    fill(client);
    let told = client.query(
        "c",
        "SELECT * FROM c",
        &[
            KEY,
            ("x-ms-documentdb-populatequerymetrics", "true"),
            ("x-ms-cosmos-populateindexmetrics", "true"),
        ],
    );
    assert!(
        told.header("x-ms-documentdb-query-metrics")
            .unwrap()
            .contains("outputDocumentCount=13")
    );
    let index = data_encoding::BASE64
        .decode(
            told.header("x-ms-cosmos-index-utilization")
                .unwrap()
                .as_bytes(),
        )
        .unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    assert_eq!(index["UtilizedSingleIndexes"][0]["IndexSpec"], "/pk/?");
    assert_eq!(
        client
            .query("c", "SELECT * FROM c", &[])
            .header("x-ms-documentdb-query-metrics"),
        None
    );
}
