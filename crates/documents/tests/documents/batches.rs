//! Transactional batches.

use ebbtide_documents::{BatchOperation, BatchResult, Conditions, PartitionKey, Patch};

use super::{body, container, documents, key, refused};

fn create(id: &str) -> BatchOperation {
    BatchOperation::Create(body(id, ""))
}

fn statuses(results: &[BatchResult]) -> Vec<u16> {
    results.iter().map(|result| result.status).collect()
}

#[test]
fn all_or_nothing() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let stale = c.create(&key(), &body("old", "")).unwrap();
    let old = c
        .replace(&key(), "old", &body("old", ",\"n\":1"), &Conditions::none())
        .unwrap();
    let none = Conditions::none;
    let patch = || Patch::from_json(br#"[{"op":"incr","path":"/n","value":1}]"#).unwrap();
    let all = vec![
        create("a"),
        BatchOperation::Upsert(body("a", ",\"n\":5"), none()),
        BatchOperation::Upsert(body("b", ""), none()),
        BatchOperation::Read("old".into(), none()),
        BatchOperation::Patch("old".into(), patch(), Conditions::if_match(old.version)),
        BatchOperation::Read("old".into(), none()),
        BatchOperation::Patch("a".into(), patch(), none()),
        BatchOperation::Replace("b".into(), body("b", ",\"x\":1"), none()),
        BatchOperation::Delete("b".into(), none()),
        create("b"),
    ];
    let refusals = [
        (create("old"), 409),
        (BatchOperation::Read("none".into(), none()), 404),
        (
            BatchOperation::Replace("none".into(), body("none", ""), none()),
            404,
        ),
        (BatchOperation::Delete("none".into(), none()), 404),
        (BatchOperation::Patch("none".into(), patch(), none()), 404),
        (
            BatchOperation::Replace(
                "old".into(),
                body("old", ""),
                Conditions::if_match(stale.version),
            ),
            412,
        ),
        (
            BatchOperation::Delete("old".into(), Conditions::if_match(old.version)),
            412,
        ),
        (
            BatchOperation::Create(b"{\"id\":\"x\",\"p\":\"other\"}".to_vec()),
            400,
        ),
        (BatchOperation::Create(body("x", ",\"ttl\":0")), 400),
        (BatchOperation::Create(b"[]".to_vec()), 400),
        (
            BatchOperation::Replace("old".into(), body("a", ""), none()),
            409,
        ),
        (
            BatchOperation::Replace("y".into(), body("x", ""), none()),
            404,
        ),
    ];
    let before = c.list(&Default::default(), 10, None).unwrap().documents;
    for (refusal, status) in refusals {
        let mut operations = all.clone();
        operations.push(refusal);
        operations.push(create("z"));
        let results = c.batch(&key(), &operations).unwrap();
        let mut expected = vec![424; operations.len()];
        expected[all.len()] = status;
        assert_eq!(statuses(&results), expected);
        assert!(
            results
                .iter()
                .all(|result| result.document.is_none() && result.message.is_some())
        );
        let after = c.list(&Default::default(), 10, None).unwrap().documents;
        assert_eq!(after.len(), before.len());
        assert_eq!(after[0].version, before[0].version);
    }
    let results = c.batch(&key(), &all).unwrap();
    assert_eq!(
        statuses(&results),
        [201, 200, 201, 200, 200, 200, 200, 200, 204, 201]
    );
    let version = |at: usize| results[at].document.as_ref().unwrap().version;
    // Each result has the etag that its document has.
    assert_eq!(version(3), old.version);
    assert_eq!(version(4), version(5));
    let stored = |id: &str| c.read(&key(), id).unwrap();
    assert_eq!(
        (
            stored("old").version,
            stored("a").version,
            stored("b").version
        ),
        (version(5), version(6), version(9))
    );
    assert_eq!(stored("a").body(), body("a", ",\"n\":6"));
    assert_eq!(
        results[5].document.as_ref().unwrap().body(),
        body("old", ",\"n\":2")
    );
    assert_eq!(
        stored("b").written_at,
        results[9].document.as_ref().unwrap().written_at
    );
}

#[test]
fn limits() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    refused(c.batch(&key(), &[]), 400);
    let many: Vec<_> = (0..101).map(|n| create(&n.to_string())).collect();
    refused(c.batch(&key(), &many), 400);
    assert_eq!(
        statuses(&c.batch(&key(), &many[..100]).unwrap()),
        [201; 100]
    );
    let long =
        |id: &str| BatchOperation::Create(body(id, &format!(",\"x\":\"{}\"", "x".repeat(1 << 20))));
    refused(c.batch(&key(), &[long("x"), long("y")]), 413);
    let value = format!(
        "[{{\"op\":\"set\",\"path\":\"/x\",\"value\":\"{}\"}}]",
        "x".repeat(1 << 20)
    );
    let patch = Patch::from_json(value.as_bytes()).unwrap();
    let patch = BatchOperation::Patch("0".into(), patch, Conditions::none());
    refused(c.batch(&key(), &[patch.clone(), patch]), 413);
    refused(c.batch(&PartitionKey::default(), &[create("x")]), 400);
    assert_eq!(c.items().count(..).unwrap(), 100);
}

#[test]
fn as_json() {
    let text = r#"[
        {"operationType":"Create","resourceBody":{"id":"1","p":"k","n":1.50}},
        {"operationType":"Patch","id":"1","resourceBody":{"operations":[{"op":"set","path":"/m","value":2.0}]}},
        {"operationType":"Read","id":"1","ifNoneMatch":"\"0\"","partitionKey":"[\"k\"]"},
        {"operationType":"Upsert","resourceBody":{"id":"2","p":"k"},"ifMatch":null},
        {"operationType":"Replace","id":"2","resourceBody":{"id":"2","p":"k"},"ifMatch":"*"},
        {"operationType":"Delete","id":"2"}
    ]"#;
    let (documents, _) = documents();
    let c = container(&documents, "");
    let results = c
        .batch(&key(), &BatchOperation::from_json(text.as_bytes()).unwrap())
        .unwrap();
    assert_eq!(statuses(&results), [201, 200, 200, 201, 200, 204]);
    assert_eq!(
        c.read(&key(), "1").unwrap().body(),
        body("1", ",\"n\":1.50,\"m\":2.0")
    );
    for wrong in [
        "",
        "{}",
        "[1]",
        "[{}]",
        r#"[{"operationType":"Create"}]"#,
        r#"[{"operationType":"Burn","id":"1"}]"#,
        r#"[{"operationType":"Read"}]"#,
    ] {
        refused(BatchOperation::from_json(wrong.as_bytes()), 400);
    }
    // The document that is read is known already.
    let read = c.read(&key(), "1").unwrap();
    let known = Conditions {
        if_none_match: Some(read.etag().parse().unwrap()),
        ..Conditions::none()
    };
    let results = c
        .batch(&key(), &[BatchOperation::Read("1".into(), known)])
        .unwrap();
    assert_eq!(statuses(&results), [304]);
}
