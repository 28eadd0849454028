//! Indexes by name: what a query answers by one is what a scan answers, row by row, whatever was written, ended, commanded,
//! replaced, killed before. A scan is had by a condition and an order of the same meaning that no index serves.

mod histories;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ebbtide::{DefaultTtl, Options, Quota, WhenFull};
use ebbtide_documents::{
    BatchOperation, Conditions, Container, ContainerDefinition, Continuation, Documents, Scope,
};
use serde_json::{Value, json};

use super::{body, container, documents, key, refused, rows_at_most, seconds};

pub fn definition(policy: &[&str], default: Option<i64>) -> ContainerDefinition {
    let included = policy.iter().map(|path| json!({"path": path}));
    let json = json!({
        "id": "c", "partitionKey": {"paths": ["/p"]}, "defaultTtl": default,
        "indexingPolicy": {"includedPaths": Vec::from_iter(included)},
    });
    ContainerDefinition::from_json(json.to_string().as_bytes()).unwrap()
}

/// A container with these paths of indexes, and this default.
pub fn indexed(documents: &Documents, policy: &[&str], default: Option<i64>) -> Container {
    let made = documents.create_container("db", definition(policy, default));
    made.unwrap()
}

/// The same of one that is there.
pub fn replaced(documents: &Documents, policy: &[&str], default: Option<i64>) -> Container {
    let made = documents.replace_container("db", definition(policy, default));
    made.unwrap()
}

/// All rows, by pages of so many.
fn paged(c: &Container, text: &str, scope: &Scope, rows: usize) -> Vec<String> {
    let limits = rows_at_most(rows);
    let (mut all, mut from): (Vec<String>, Option<Continuation>) = (vec![], None);
    loop {
        let page = c.query(text, &[], scope, &limits, from.as_ref()).unwrap();
        all.extend(page.rows);
        let Some(next) = page.continuation else {
            return all;
        };
        // It is plain data.
        let stored = serde_json::to_string(&next).unwrap();
        from = Some(serde_json::from_str(&stored).unwrap());
    }
}

pub fn whole(c: &Container, text: &str) -> Vec<String> {
    paged(c, text, &Scope::everything(), usize::MAX)
}

/// The engine's container of the entries.
pub fn entries(documents: &Documents, c: &Container) -> ebbtide::Container {
    let name = format!("{}#index", c.rid());
    assert!(documents.engine().containers().contains(&name));
    documents.engine().container(name).unwrap()
}

/// Without their entries they find nothing: a scan would.
#[test]
fn queries_go_by_an_index() {
    let (documents, _) = documents();
    let c = indexed(&documents, &["/a/?"], None);
    for n in 0..2_000 {
        let body = body(&n.to_string(), &format!(",\"a\":{}", n % 500));
        c.create(&key(), &body).unwrap();
    }
    let queries = [
        "SELECT c.id FROM c WHERE c.a = 7",
        "SELECT c.id FROM c WHERE c.a IN (7, 9)",
        "SELECT c.id FROM c WHERE c.a > 7 AND c.a < 30",
        "SELECT VALUE COUNT(1) FROM c WHERE c.a < 9",
        "SELECT c.id FROM c WHERE c.a < 9 ORDER BY c.id",
        "SELECT TOP 3 c.id FROM c ORDER BY c.a DESC",
        "SELECT TOP 3 c.id FROM c ORDER BY c.a",
    ];
    for query in queries {
        assert!(!whole(&c, query).is_empty(), "{query}");
    }
    entries(&documents, &c).clear().unwrap();
    for query in queries {
        let rows = whole(&c, query);
        assert!(rows.is_empty() || rows == ["0"], "{query}");
    }
    // The documents are asked where no index says it.
    for query in [
        "SELECT c.id FROM c WHERE c.a != 1",
        "SELECT c.id FROM c",
        "SELECT c.id FROM c ORDER BY c.a, c.id",
    ] {
        assert!(!whole(&c, query).is_empty(), "{query}");
    }
}

/// One entry of each index for each document, with its life, whatever its value was before.
#[test]
fn each_document_has_its_entries() {
    let (documents, clock) = documents();
    let c = indexed(&documents, &["/a/?", "/b/c/?"], Some(10));
    let entries = entries(&documents, &c);
    let none = Conditions::none();
    let bodies = [
        body("1", ",\"a\":1,\"ttl\":-1"),
        body("1", ",\"a\":2,\"b\":{\"c\":null}"),
        body("1", ",\"b\":{\"c\":[]},\"ttl\":3"),
    ];
    for body in &bodies {
        c.upsert(&key(), body, &none).unwrap();
        let item = c.items().first().unwrap().unwrap();
        let found = Vec::from_iter(entries.iter().map(Result::unwrap));
        assert_eq!(found.len(), 2);
        for entry in found {
            assert!(entry.key().ends_with(item.key()) && entry.value().is_empty());
            let life = (entry.written_at(), entry.ttl(), entry.expires_at());
            assert_eq!(life, (item.written_at(), item.ttl(), item.expires_at()));
        }
    }
    clock.advance(seconds(2));
    c.read_and_touch(&key(), "1").unwrap();
    clock.advance(seconds(2));
    assert_eq!(entries.count(..).unwrap(), 2);
    clock.advance(seconds(1));
    assert!(entries.is_empty().unwrap());
    let again = Vec::from_iter(
        bodies
            .iter()
            .map(|body| BatchOperation::Upsert(body.clone(), none)),
    );
    c.batch(&key(), &again).unwrap();
    assert_eq!(entries.count(..).unwrap(), 2);
    c.delete(&key(), "1", &none).unwrap();
    assert!(entries.is_empty().unwrap());
}

/// A delete by partition key takes the entries along, however many they are.
#[test]
fn a_partition_of_many_documents() {
    let (documents, _) = documents();
    let c = indexed(&documents, &["/a/?"], None);
    for n in 0..2_500 {
        c.create(&key(), &body(&n.to_string(), ",\"a\":1")).unwrap();
    }
    let other = br#"{"id":"1","p":"other","a":1}"#;
    c.create(&"other".into(), other).unwrap();
    c.delete_partition(&key()).unwrap();
    assert_eq!(entries(&documents, &c).count(..).unwrap(), 1);
    assert_eq!(
        whole(&c, "SELECT VALUE c.p FROM c WHERE c.a = 1"),
        ["\"other\""]
    );
}

/// Of long texts an index keeps the beginning, of lists and objects that they are.
#[test]
fn what_an_index_does_not_order_is_sorted() {
    let (documents, _) = documents();
    let c = indexed(&documents, &["/a/?"], None);
    let long = "x".repeat(1_024);
    let values = [
        format!("\"{long}b\""),
        format!("\"{long}a\""),
        format!("\"{long}\""),
    ];
    for (n, value) in values
        .iter()
        .chain(&["[2]".to_owned(), "[1]".to_owned()])
        .enumerate()
    {
        c.create(&key(), &body(&n.to_string(), &format!(",\"a\":{value}")))
            .unwrap();
    }
    let ids = |text: &str| whole(&c, text).concat().replace('"', "");
    assert_eq!(ids("SELECT VALUE c.id FROM c ORDER BY c.a"), "21043");
    assert_eq!(ids("SELECT VALUE c.id FROM c ORDER BY c.a DESC"), "34012");
    assert_eq!(ids("SELECT TOP 1 VALUE c.id FROM c ORDER BY c.a"), "2");
    for (condition, found) in [
        (format!("c.a = '{long}a'"), "1"),
        (format!("c.a > '{long}a'"), "0"),
        (format!("c.a <= '{long}a'"), "12"),
        (format!("STARTSWITH(c.a, '{long}b')"), "0"),
    ] {
        let text = format!("SELECT VALUE c.id FROM c WHERE {condition}");
        assert_eq!(ids(&text), found, "{text}");
    }
}

/// An index of documents that are there is built while others write; each document is in it at the end.
#[test]
fn an_index_is_built_among_writers() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let upsert = |n: usize, a: usize| {
        let body = body(&n.to_string(), &format!(",\"a\":{a},\"b\":{}", n % 7));
        drop(c.upsert(&key(), &body, &Conditions::none()).unwrap());
    };
    (0..3_000).for_each(|n| upsert(n, n % 10));
    // The last ones that are built, which nobody writes again.
    (9_000..9_100).for_each(|n| upsert(n, 77));
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let found = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for at in 0..2 {
            let (is_over, upsert, c) = (&is_over, &upsert, &c);
            scope.spawn(move || {
                let mut n = at;
                while !is_over.load(Ordering::Relaxed) {
                    n = (n * 31 + 7) % 4_000;
                    match n % 5 {
                        0 => drop(c.delete(&key(), &n.to_string(), &Conditions::none())),
                        1 => drop(c.read_and_touch(&key(), &n.to_string())),
                        _ => upsert(n, n % 11),
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let count = whole(&c, "SELECT VALUE COUNT(1) FROM c WHERE c.a = 77");
                let first = whole(&c, "SELECT TOP 1 VALUE c.a FROM c ORDER BY c.a DESC");
                reads.fetch_add(1, Ordering::Relaxed);
                found.lock().unwrap().insert((count, first));
            }
        });
        let replace = |policy: &[&str]| {
            replaced(&documents, policy, None);
            assert!(c.indexes().iter().all(|(_, is_whole)| *is_whole));
        };
        while reads.load(Ordering::Relaxed) < 100 {
            let policies = [&["/a/?"][..], &["/b/?", "/a/?"], &["/b/?"], &["/*"]];
            policies.into_iter().for_each(replace);
        }
        replace(&["/a/?"]);
        is_over.store(true, Ordering::Relaxed);
    });
    let always = (vec!["100".to_owned()], vec!["77".to_owned()]);
    assert_eq!(found.into_inner().unwrap(), BTreeSet::from([always]));
    for a in 0..11 {
        let by_index = whole(&c, &format!("SELECT * FROM c WHERE c.a = {a}"));
        let by_scan = whole(&c, &format!("SELECT * FROM c WHERE NOT (NOT (c.a = {a}))"));
        assert_eq!(by_index, by_scan);
    }
    let entries = entries(&documents, &c).count(..).unwrap();
    assert_eq!(entries, c.items().count(..).unwrap());
}

/// Another one over the same database goes by no index that has become another since.
#[test]
fn indexes_that_another_one_replaced() {
    let (documents, _) = documents();
    let c = indexed(&documents, &["/a/?"], None);
    for n in 0..9 {
        let body = body(&n.to_string(), &format!(",\"a\":{n},\"b\":{}", n + 1));
        c.create(&key(), &body).unwrap();
    }
    let late = Documents::with(documents.engine().clone()).unwrap();
    let late = late.container("db", "c").unwrap();
    for policy in [&["/*"][..], &["/b/?", "/a/?"], &["/b/?"], &["/a/?"]] {
        replaced(&documents, policy, None);
        for c in [&c, &late] {
            assert_eq!(
                whole(c, "SELECT VALUE c.id FROM c WHERE c.a = 7"),
                ["\"7\""]
            );
            assert_eq!(
                whole(c, "SELECT VALUE c.a FROM c ORDER BY c.a DESC")[0],
                "8"
            );
        }
    }
}

/// An operator raises the default of the documents alone: entries would end before their documents.
#[test]
fn a_default_that_an_operator_raises() {
    let (documents, clock) = documents();
    let c = indexed(&documents, &["/a/?"], Some(10));
    c.create(&key(), &body("1", ",\"a\":1")).unwrap();
    c.items()
        .set_default_ttl(DefaultTtl::After(seconds(60)))
        .unwrap();
    clock.advance(seconds(20));
    let query = "SELECT VALUE c.id FROM c WHERE c.a = 1";
    assert_eq!(whole(&c, query), ["\"1\""]);
    assert!(entries(&documents, &c).is_empty().unwrap());
    // The next one that opens it makes the index anew, without what the entries' container has ended.
    let again = Documents::with(documents.engine().clone()).unwrap();
    let c = again.container("db", "c").unwrap();
    assert_eq!(c.indexes(), [(vec!["a".to_owned()], true)]);
    assert_eq!(entries(&documents, &c).count(..).unwrap(), 1);
    assert_eq!(whole(&c, query), ["\"1\""]);
    clock.advance(seconds(40));
    assert!(whole(&c, query).is_empty() && entries(&documents, &c).is_empty().unwrap());
}

/// An operator drops the entries: queries do without, and who opens the container makes them anew.
#[test]
fn entries_that_an_operator_drops() {
    let (documents, _) = documents();
    let c = indexed(&documents, &["/a/?"], None);
    c.create(&key(), &body("1", ",\"a\":1")).unwrap();
    let name = format!("{}#index", c.rid());
    assert!(documents.engine().drop_container(&name).unwrap());
    let query = "SELECT VALUE c.id FROM c WHERE c.a = 1";
    assert_eq!(whole(&c, query), ["\"1\""]);
    refused(c.create(&key(), &body("2", ",\"a\":1")), 404);
    let again = Documents::with(documents.engine().clone()).unwrap();
    let c = again.container("db", "c").unwrap();
    assert_eq!(c.indexes(), [(vec!["a".to_owned()], true)]);
    c.create(&key(), &body("2", ",\"a\":1")).unwrap();
    assert_eq!(entries(&documents, &c).count(..).unwrap(), 2);
    assert_eq!(whole(&c, query).len(), 2);
}

/// Entries whose documents a command has ended go while others write.
#[test]
fn entries_without_documents_are_swept() {
    let (documents, _) = documents();
    let c = indexed(&documents, &["/a/?", "/b/?"], Some(-1));
    let upsert = |n: u32, a: u32| {
        let body = body(&n.to_string(), &format!(",\"a\":{a}"));
        drop(c.upsert(&key(), &body, &Conditions::none()).unwrap());
    };
    (0..500).for_each(|n| upsert(n, n));
    c.items().expire_all().unwrap();
    let entries = entries(&documents, &c);
    assert_eq!(entries.count(..).unwrap(), 1_000);
    // Under other values, of which those from before are no more.
    (0..50).for_each(|n| upsert(n, n + 1));
    assert_eq!(whole(&c, "SELECT VALUE c.a FROM c ORDER BY c.a").len(), 50);
    for _ in 0..20 {
        (0..50).for_each(|n| upsert(n, n + 1));
    }
    assert_eq!(entries.count(..).unwrap(), 100);
    // A quota that expires what ends soonest ends documents alone.
    c.delete_partition(&key()).unwrap();
    assert!(entries.is_empty().unwrap());
    let quota = Quota {
        max_live_bytes: 2_000,
        when_full: WhenFull::ExpireSoonest,
    };
    c.items().set_quota(Some(quota)).unwrap();
    for n in 0..400 {
        let body = body(
            &format!("q{n}"),
            &format!(",\"a\":{},\"ttl\":{}", n % 7, 100 + n),
        );
        c.upsert(&key(), &body, &Conditions::none()).unwrap();
        let by_index = whole(&c, "SELECT VALUE c.id FROM c WHERE c.a = 3");
        let by_scan = whole(&c, "SELECT VALUE c.id FROM c WHERE NOT (NOT (c.a = 3))");
        assert_eq!(by_index, by_scan);
    }
    let (documents, entries) = (c.items().count(..).unwrap(), entries.count(..).unwrap());
    assert!(
        entries <= 2 * (3 * documents + 64),
        "{entries} of {documents}"
    );
}

/// A database that may expire any item to make room keeps no index; without that quota it does.
#[test]
fn a_database_that_expires_what_ends_soonest_keeps_no_index() {
    let folder = testkit::scratch();
    let open = |options: Options| Documents::with(options.open(folder.path()).unwrap()).unwrap();
    let expires = || {
        Options::new()
            .max_live_bytes(1 << 20)
            .when_full(WhenFull::ExpireSoonest)
    };
    let query = "SELECT VALUE c.id FROM c WHERE c.a = 1";
    for (round, options) in [Options::new(), expires(), Options::new()]
        .into_iter()
        .enumerate()
    {
        let documents = open(options);
        let has_entries = documents
            .engine()
            .containers()
            .iter()
            .any(|name| name.ends_with("#index"));
        assert!(!has_entries);
        let c = match round {
            0 => {
                documents.create_database("db").unwrap();
                indexed(&documents, &["/a/?"], None)
            }
            _ => documents.container("db", "c").unwrap(),
        };
        assert_eq!(c.indexes().len(), usize::from(round != 1));
        assert_eq!(whole(&c, query).len(), round);
        c.create(&key(), &body(&round.to_string(), ",\"a\":1"))
            .unwrap();
        assert_eq!(whole(&c, query).len(), round + 1);
        documents.engine().close().unwrap();
    }
}

/// Pages go on in the order of an index, where documents come and go between them, and by sorting where it is gone.
#[test]
fn pages_in_the_order_of_an_index() {
    let (documents, _) = documents();
    let c = indexed(&documents, &["/a/?"], None);
    for n in 0..40 {
        let a = match n % 4 {
            0 => String::new(),
            _ => format!(",\"a\":{}", n % 10),
        };
        c.create(&key(), &body(&format!("{n:02}"), &a)).unwrap();
    }
    let limits = rows_at_most(3);
    let all = Scope::everything();
    for order in ["c.a", "c.a DESC"] {
        let text = format!("SELECT VALUE c.id FROM c ORDER BY {order}");
        let sorted = whole(&c, &format!("{text}, c.none"));
        assert_eq!(paged(&c, &text, &all, 3), sorted);
        let first = c.query(&text, &[], &all, &limits, None).unwrap();
        assert_eq!(first.rows, sorted[..3]);
        let from = first.continuation.as_ref();
        // A document that was told goes; one that comes in front is not told.
        let told: String = serde_json::from_str(&first.rows[0]).unwrap();
        c.delete(&key(), &told, &Conditions::none()).unwrap();
        let second = c.query(&text, &[], &all, &limits, from).unwrap();
        assert_eq!(second.rows, sorted[3..6]);
        c.create(&key(), &body(&told, ",\"a\":\"x\"")).unwrap();
        let others = [
            ("SELECT VALUE c.id FROM c ORDER BY c.b".to_owned(), &all),
            (text.clone(), &Scope::partition("k")),
        ];
        for (text, scope) in others {
            refused(c.query(&text, &[], scope, &limits, from), 400);
        }
        refused(c.list(&all, 2, from), 400);
    }
    // Without the index, behind as many rows.
    let text = "SELECT VALUE c.id FROM c ORDER BY c.a OFFSET 2 LIMIT 9";
    let sorted = whole(&c, &text.replace("c.a ", "c.a, c.none "));
    let first = c.query(text, &[], &all, &limits, None).unwrap();
    replaced(&documents, &["/*"], None);
    let from = first.continuation.as_ref();
    let second = c.query(text, &[], &all, &limits, from).unwrap();
    let rows = [first.rows, second.rows].concat();
    assert_eq!(rows, sorted[..6]);
}

#[test]
fn policies() {
    let (documents, _) = documents();
    let many = |count: usize| {
        let paths = Vec::from_iter((0..count).map(|n| json!({"path": format!("/m{n}/?")})));
        let policy = json!({"includedPaths": paths});
        let json =
            json!({"id": "many", "partitionKey": {"paths": ["/p"]}, "indexingPolicy": policy});
        ContainerDefinition::from_json(json.to_string().as_bytes())
    };
    let message = refused(many(33), 400).to_string();
    assert!(
        message.contains("32") && message.contains("33"),
        "{message}"
    );
    let c = documents.create_container("db", many(32).unwrap()).unwrap();
    assert_eq!(c.indexes().len(), 32);
    c.create(&key(), &body("1", ",\"m31\":5")).unwrap();
    assert_eq!(
        whole(&c, "SELECT VALUE c.id FROM c WHERE c.m31 = 5"),
        ["\"1\""]
    );
    // The policy is told as it was given.
    let told: Value = serde_json::from_str(&c.to_json()).unwrap();
    assert_eq!(
        told["indexingPolicy"]["includedPaths"]
            .as_array()
            .unwrap()
            .len(),
        32
    );
    let entries = format!("{}#index", c.rid());
    documents.delete_container("db", "many").unwrap();
    assert_eq!(documents.engine().containers(), ["documents"]);

    for (mode, paths, count) in [
        ("", &[][..], 0),
        ("", &["/*"], 0),
        ("", &["/_ts/?", "/_etag/?"], 0),
        ("", &["/a/[]/?", "/a/*", "/"], 0),
        ("none", &["/a/?"], 0),
        ("", &["/a/?", "/\"a\"/?", "/\"a\""], 1),
        ("lazy", &["/a/?", "/b/c/?"], 2),
    ] {
        let included = Vec::from_iter(paths.iter().map(|path| json!({"path": path})));
        let mut policy = json!({});
        if !mode.is_empty() {
            policy["indexingMode"] = mode.into();
        }
        if !paths.is_empty() {
            policy["includedPaths"] = included.into();
        }
        let c = container(&documents, &format!(",\"indexingPolicy\":{policy}"));
        assert_eq!(c.indexes().len(), count, "{policy}");
        let containers = documents.engine().containers().len();
        assert_eq!(containers, if count > 0 { 3 } else { 2 }, "{policy}");
        documents.delete_container("db", "c").unwrap();
    }
    assert!(!documents.engine().containers().contains(&entries));
}
