//! The queries that the tests of azure-cosmos 4.17.1 for Python ask, over documents of the same shape.

use serde_json::{Value, json};

use crate::{bound, rows, rows_of};

fn values(text: &str, documents: &[String]) -> Vec<Value> {
    let rows = rows(text, documents).unwrap_or_else(|error| panic!("{text}: {error}"));
    rows.iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

/// test_orderby.py
fn eggs() -> Vec<String> {
    let one = |i: u32| {
        let spam2 = if i == 3 {
            json!(format!("eggs{i}"))
        } else {
            json!(i)
        };
        json!({
            "id": i.to_string(), "name": "sample document", "spam": format!("eggs{i}"), "cnt": i, "key": "value",
            "spam2": spam2, "boolVar": i.is_multiple_of(2), "number": 1.1 * f64::from(i),
        })
        .to_string()
    };
    (0..20).map(one).collect()
}

#[test]
fn order_by() {
    let documents = eggs();
    let mut by_spam: Vec<u32> = (0..20).collect();
    by_spam.sort_by_key(|i| format!("eggs{i}"));
    let by_spam: Vec<String> = by_spam.iter().map(u32::to_string).collect();
    for text in [
        "SELECT * FROM root r order by r.spam",
        "SELECT * FROM root r order by r.spam ASC",
    ] {
        assert_eq!(ids(&values(text, &documents)), by_spam, "{text}");
    }
    let down = values("SELECT * FROM root r order by r.spam DESC", &documents);
    assert!(ids(&down).iter().eq(by_spam.iter().rev()));
    let top = values("SELECT top 9 * FROM root r order by r.spam", &documents);
    assert_eq!(ids(&top), by_spam[..9]);
    let top = values("SELECT top 30 * FROM root r order by r.spam", &documents);
    assert_eq!(ids(&top), by_spam);
    let numbers: Vec<String> = (0..20).map(|i| i.to_string()).collect();
    for key in ["cnt", "number"] {
        let text = format!("SELECT * FROM root r order by r.{key}");
        assert_eq!(ids(&values(&text, &documents)), numbers);
    }
    // The one string is greater than all numbers.
    let mixed = values("SELECT * FROM root r order by r.spam2 DESC", &documents);
    assert_eq!((ids(&mixed)[0], ids(&mixed)[1]), ("3", "19"));
    let bools = values("SELECT * FROM root r order by r.boolVar", &documents);
    assert!(bools[..10].iter().all(|row| row["boolVar"] == false));
    let n = [("@n", json!(9)), ("@cnt", json!(5))];
    let text = "SELECT top @n * FROM root r where r.cnt > @cnt order by r.spam";
    assert_eq!(
        rows_of(&bound(text, &n).unwrap(), &documents)
            .unwrap()
            .len(),
        9
    );
}

/// test_multi_orderby.py
#[test]
fn order_by_several() {
    let one = |i: u32| {
        json!({"id": i.to_string(), "numberField": i % 3, "stringField": (i % 5).to_string(), "nullField": null,
               "boolField": i.is_multiple_of(2)})
        .to_string()
    };
    let documents: Vec<String> = (0..30).map(one).collect();
    let text = "SELECT TOP 10 [root.numberField,root.stringField] FROM root WHERE root.numberField % 2 = 0 ORDER BY \
                root.numberField ASC,root.stringField DESC";
    let found = values(text, &documents);
    let mut expected: Vec<(u32, String)> = (0..30).map(|i| (i % 3, (i % 5).to_string())).collect();
    expected.retain(|(number, _)| number % 2 == 0);
    expected.sort_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
    let expected: Vec<Value> = expected
        .iter()
        .take(10)
        .map(|(number, string)| json!({"$1": [number, string]}))
        .collect();
    assert_eq!(found, expected);
    let text = "SELECT [root.boolField,root.nullField] FROM root ORDER BY root.boolField DESC,root.nullField ASC";
    assert_eq!(values(text, &documents)[0], json!({"$1": [true, null]}));
}

/// test_aggregate.py
#[test]
fn aggregates() {
    let mut documents: Vec<String> = vec![];
    for key in [
        json!(null),
        json!(false),
        json!(true),
        json!("abc"),
        json!("xyz"),
        json!("oo"),
    ] {
        documents.push(json!({ "key": key, "id": "x" }).to_string());
    }
    documents.extend(
        (1..=200).map(|i| json!({"key": "uniquePartitionKey", "field": i, "id": "x"}).to_string()),
    );
    documents.extend((1..=190).map(|i| json!({"key": i, "id": "x"}).to_string()));
    let one = |text: &str| values(text, &documents);
    let sum = 190.0 * 191.0 / 2.0;
    for order in ["", " ORDER BY r.key"] {
        let value = |of: &str, filter: &str| {
            one(&format!(
                "SELECT VALUE {of}(r.key) FROM r WHERE {filter}{order}"
            ))
        };
        assert_eq!(value("AVG", "IS_NUMBER(r.key)"), [json!(sum / 190.0)]);
        assert_eq!(value("SUM", "IS_NUMBER(r.key)"), [json!(sum as u64)]);
        assert_eq!(value("COUNT", "true"), [json!(396)]);
        assert_eq!(value("MAX", "true"), [json!("xyz")]);
        assert_eq!(value("MIN", "true"), [json!(null)]);
        // Undefined, for some keys are no numbers.
        assert!(value("AVG", "true").is_empty() && value("SUM", "true").is_empty());
    }
    let value = |of: &str| {
        one(&format!(
            "SELECT VALUE {of}(r.field) FROM r WHERE r.key = 'uniquePartitionKey'"
        ))
    };
    assert_eq!(value("AVG"), [json!(100.5)]);
    assert_eq!(value("COUNT"), [json!(200)]);
    assert_eq!(value("MAX"), [json!(200)]);
    assert_eq!(value("MIN"), [json!(1)]);
    assert_eq!(value("SUM"), [json!(20_100)]);
    assert_eq!(one("Select top 10 value count(r.id) from r"), [json!(396)]);
    let text = "Select value max(c.version) FROM c where c.isComplete = true and c.lookupVersion = @lookupVersion";
    let query = bound(text, &[("@lookupVersion", json!("console_csat"))]).unwrap();
    assert!(rows_of(&query, &documents).unwrap().is_empty());
    assert!(query.info().one_aggregate);
    let versions = [2, 3, 1]
        .map(|i| json!({"isComplete": true, "version": i, "lookupVersion": "console_csat"}));
    assert_eq!(
        rows_of(&query, &versions.map(|it| it.to_string())).unwrap(),
        ["3"]
    );
}

/// test_query.py
#[test]
fn distinct_and_offset() {
    let documents: Vec<String> = (0..10)
        .map(|i| json!({"pk": i, "id": i.to_string(), "value": i / 3}).to_string())
        .collect();
    let distinct = |window: &str| {
        let text = format!("SELECT DISTINCT c[\"value\"] from c ORDER BY c.pk {window}");
        let found = values(&text, &documents);
        found
            .iter()
            .map(|row| row["value"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(distinct("OFFSET 0 LIMIT 2"), [0, 1]);
    assert_eq!(distinct("OFFSET 2 LIMIT 2"), [2, 3]);
    assert_eq!(distinct("OFFSET 4 LIMIT 3"), [0; 0]);
    let window = |window: &str| {
        let found = values(
            &format!("SELECT * from c ORDER BY c.pk {window}"),
            &documents,
        );
        found
            .iter()
            .map(|row| row["pk"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(window("OFFSET 0 LIMIT 5"), [0, 1, 2, 3, 4]);
    assert_eq!(window("OFFSET 5 LIMIT 10"), [5, 6, 7, 8, 9]);
    assert_eq!(window("OFFSET 10 LIMIT 5"), [0; 0]);
    assert_eq!(window("OFFSET 100 LIMIT 1"), [0; 0]);
}

#[test]
fn distinct_of_types() {
    let documents = [
        r#"{"f1":1,"f2":"value","f3":100000000000000000,"f4":[1,2,"3"],"f5":{"f6":{"f7":2}}}"#,
        r#"{"f2":"'value","f4":[1.0,2,"3"],"f5":{"f6":{"f7":2.0}},"f1":1.0,"f3":100000000000000000.00}"#,
        r#"{"f3":100000000000000000.0,"f5":{"f6":{"f7":2}},"f2":"'value","f1":1,"f4":[1,2.0,"3"]}"#,
    ];
    let one = |text: &str| rows(text, &documents).unwrap();
    assert_eq!(one("Select distinct value c.f1 from c"), ["1"]);
    assert_eq!(
        one("Select distinct value c.f2 from c"),
        ["\"value\"", "\"'value\""]
    );
    assert_eq!(
        one("Select distinct value c.f2 from c order by c.f2"),
        ["\"'value\"", "\"value\""]
    );
    assert_eq!(
        one("Select distinct value c.f3 from c"),
        ["100000000000000000"]
    );
    assert_eq!(one("Select distinct value c.f4 from c"), ["[1,2,\"3\"]"]);
    assert_eq!(one("Select distinct value c.f5.f6 from c"), ["{\"f7\":2}"]);
    for order in ["", " order by c.f1"] {
        let text = format!("Select distinct c.f1, c.f2, c.f3 from c{order}");
        let expected = [
            r#"{"f1":1,"f2":"value","f3":100000000000000000}"#,
            r#"{"f1":1.0,"f2":"'value","f3":100000000000000000.00}"#,
        ];
        assert_eq!(one(&text), expected);
    }
    // Documents without the field are one more value of it.
    assert_eq!(one("SELECT distinct c.missing from c"), ["{}"]);
    assert!(one("SELECT distinct value c.missing from c").is_empty());
}

/// All other queries of the tests, and their rows for one document.
#[test]
fn all_others() {
    let document = json!({
        "id": "doc", "pk": "1", "name": "test document", "tags": [{"name": "python", "n": 1}, {"name": "cosmos"}],
        "timestamp": "2020-01-01T00:00:00Z", "ticks": 0, "ts": 0, "key": "value", "value": 7, "value1": 7, "count": 3,
        "index": 4, "score": 1.5, "amount": 12, "some_value": "2", "flag": false, "code": "a--b", "region": "Z",
        "length": 9, "subDoc": {"searchable": "searchable"}, "productModel": "Model 2", "productName": "Widget",
        "attr1": 1, "zipcode": "93033", "min": 1, "city": "X", "email": "e", "db_group": "GrOuP",
    })
    .to_string();
    let documents = [document];
    let parameters = [
        ("@id", json!("doc")),
        ("@pk", json!("1")),
        ("@name", json!("test document")),
        ("@value", json!(7)),
        ("@v", json!(5)),
        ("@model", json!("Model 2")),
        ("@desiredValue", json!("searchable")),
    ];
    let found = [
        "SELECT * FROM c",
        "select * from c",
        "SELECT * FROM root r WHERE r.id=@id",
        "SELECT * FROM r WHERE r.id=@id",
        "SELECT * FROM c WHERE c.pk = @pk",
        "SELECT * FROM c WHERE c.id = @id AND c.pk = @pk",
        "SELECT * FROM root r WHERE r.name=@name",
        "SELECT * FROM root r WHERE r.key='value'",
        "SELECT * FROM products p WHERE p.productModel <> \"DISCONTINUED\"",
        "SELECT * FROM products p WHERE p.productModel = @model AND p.productName=\"Widget\"",
        "SELECT * FROM c WHERE c.value1 = @value",
        "SELECT * FROM c WHERE c[\"value\"] >= @v AND c.id != ''",
        "SELECT * FROM c WHERE c.ts < GetCurrentTimestamp()",
        "SELECT * FROM c WHERE c.timestamp < GetCurrentDateTime()",
        "SELECT * FROM c WHERE c.ticks < GetCurrentTicks()",
        "SELECT * FROM c WHERE STARTSWITH(c.name, \"TEST\", true)",
        "SELECT * FROM c WHERE ENDSWITH(c.name, \"Document\", true)",
        "SELECT * FROM c WHERE CONTAINS(c.name, \"test\")",
        "SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, {\"name\": \"python\"}, true)",
        "select * from c where c.pk='1' or c.pk='2'",
        "Select * from c order by c._ts offset 0 limit 10",
        "Select * from c where c.some_value='2'",
        "SELECT * FROM c WHERE c.attr1=1 order by c.attr1",
        "Select * from c where c.zipcode = \"93033\"",
        "SELECT * FROM r WHERE r.region >= 'U'",
        "SELECT * FROM r WHERE r.length > 5",
        "SELECT * FROM r WHERE r.subDoc.searchable=@desiredValue",
        "SELECT * FROM c ORDER BY c['value']",
    ];
    let missed = [
        "SELECT * FROM root r WHERE r.id != @id",
        "SELECT * FROM root r WHERE r.id=\"database non-existing\"",
        "SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, {\"name\": \"python\"})",
    ];
    let cases = found.map(|text| (text, 1)).into_iter();
    for (text, count) in cases.chain(missed.map(|text| (text, 0))) {
        let query = bound(text, &parameters).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rows_of(&query, &documents).unwrap().len(), count, "{text}");
    }
    for (text, row) in [
        ("SELECT VALUE COUNT(1) FROM c", "1"),
        ("SELECT VALUE COUNT (1) FROM c", "1"),
        ("SELECT VALUE COUNT(1) > 0 FROM c", "true"),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.code = 'a--b'", "1"),
        ("SELECT VALUE COUNT(1) -- counts all items\nFROM c", "1"),
        ("SELECT VALUE /* FROM d */ COUNT(1) FROM c", "1"),
        ("SELECT /* comment */ VALUE COUNT(1) FROM c", "1"),
        (
            "SELECT VALUE MIN(c.score) FROM c -- trailing, no newline",
            "1.5",
        ),
        ("SELECT VALUE '/* COUNT(1) */' FROM c", "\"/* COUNT(1) */\""),
        ("SELECT VALUE c.COUNT FROM c WHERE false = c.flag", ""),
        ("SELECT VALUE c.value FROM c", "7"),
        ("SELECT VALUE c.min FROM c", "1"),
        ("SELECT VALUE c.flag FROM c", "false"),
        (
            "SELECT VALUE c[\"value\"] > 0 FROM c WHERE IS_DEFINED(c[\"value\"])",
            "true",
        ),
        ("SELECT VALUE SUM(c.amount) * 2 FROM c", "24"),
        ("SELECT VALUE 1 + SUM(c.amount) FROM c", "13"),
        ("SELECT VALUE -MIN(c.value) FROM c", "-7"),
        ("SELECT VALUE SUM(c.value + 1) FROM c", "8"),
        ("SELECT VALUE SUM(c.amount) - SUM(c.value) FROM c", "5"),
        (
            "SELECT VALUE SUM(c.amount) FROM c WHERE IS_NUMBER(c.amount)",
            "12",
        ),
        ("SELECT VALUE LENGTH(c.name) FROM c", "13"),
        ("SELECT VALUE UPPER(c.db_group) FROM c", "\"GROUP\""),
        ("SELECT VALUE POWER(c.value, 2) FROM c", "49"),
        ("SELECT c.id, c.city FROM c", r#"{"id":"doc","city":"X"}"#),
        (
            "SELECT TOP 5 c.index FROM c WHERE c.pk = '1' ORDER BY c.index",
            r#"{"index":4}"#,
        ),
        ("SELECT COUNT(1) FROM c", r#"{"$1":1}"#),
        ("SELECT COUNT(1) + 5 FROM c", r#"{"$1":6}"#),
        (
            "SELECT MIN(c.score) AS Min_score, MAX(c.score) AS MAX_score FROM c",
            r#"{"Min_score":1.5,"MAX_score":1.5}"#,
        ),
    ] {
        let found = rows(text, &documents).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(found.join("\n"), row, "{text}");
    }
}
