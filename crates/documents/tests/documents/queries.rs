//! Queries: by key and by scan the same, page by page, and of one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide::{Clock, Options};
use ebbtide_documents::{
    Container, ContainerDefinition, Continuation, Documents, PartitionKey, QueryLimits, Scope,
};
use testkit::random::Random;

use super::{START_MS, body, container, documents, key, refused, rows_at_most};

fn rows(c: &Container, text: &str, scope: &Scope, limits: &QueryLimits) -> Vec<String> {
    let (mut rows, mut from): (Vec<String>, Option<Continuation>) = (vec![], None);
    loop {
        let page = c.query(text, &[], scope, limits, from.as_ref()).unwrap();
        rows.extend(page.rows);
        let Some(next) = page.continuation else {
            return rows;
        };
        from = Some(serde_json::from_str(&serde_json::to_string(&next).unwrap()).unwrap());
    }
}

/// Conditions that go by key give the rows that the same condition gives where it cannot (`OR false` in a call of its own).
#[test]
fn by_key_and_by_scan() {
    let (documents, _) = documents();
    let mut definition = ContainerDefinition::new("h", "/t");
    definition.partition_key.push("/u".into());
    let c = documents.create_container("db", definition).unwrap();
    let values = [
        "", "null", "true", "false", "-1", "0", "2.5", "\"\"", "\"a\"", "\"ab\"", "\"b\"",
    ];
    let mut random = Random(7);
    for t in values {
        for u in values {
            for id in ["1", "2", "a", "ab"].iter().filter(|_| random.one_in(2)) {
                let member = |name, value: &str| match value {
                    "" => String::new(),
                    value => format!(",\"{name}\":{value}"),
                };
                let body = format!("{{\"id\":\"{id}\"{}{}}}", member("t", t), member("u", u));
                c.create(
                    &c.partition_key_of(body.as_bytes()).unwrap(),
                    body.as_bytes(),
                )
                .unwrap();
            }
        }
    }
    let limits = rows_at_most(7);
    let operators = ["=", "<", "<=", ">", ">=", "!="];
    let (mut by_key, mut found) = (0, 0);
    for at in 0..600 {
        let mut condition = || {
            let path = random.pick(&["c.t", "c.u", "c.id"]);
            let value = random.pick(&values[1..]);
            match random.below(5) {
                0 => format!("{path} IN ({value}, {})", random.pick(&values[1..])),
                1 => format!("STARTSWITH({path}, \"a\")"),
                2 => format!("{path} BETWEEN {value} AND {}", random.pick(&values[1..])),
                _ => format!("{path} {} {value}", random.pick(&operators)),
            }
        };
        let conditions: Vec<_> = (0..1 + at % 3).map(|_| condition()).collect();
        let condition = conditions.join(" AND ");
        let scope = match random.below(4) {
            0 => Scope::partition("a"),
            1 => Scope::partition(PartitionKey::from_json("[\"a\",\"b\"]").unwrap()),
            _ => Scope::everything(),
        };
        let narrowed = format!("SELECT c.t, c.u, c.id FROM c WHERE {condition}");
        let scanned = format!("SELECT c.t, c.u, c.id FROM c WHERE NOT (NOT ({condition}))");
        let (narrowed, scanned) = (
            rows(&c, &narrowed, &scope, &limits),
            rows(&c, &scanned, &scope, &limits),
        );
        assert_eq!(narrowed, scanned, "{condition}");
        found += narrowed.len();
        by_key += usize::from(!narrowed.is_empty());
    }
    assert!(found > 1_000 && by_key > 100, "{found} {by_key}");
}

#[test]
fn pages_together_are_the_whole() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    for n in 0..50 {
        c.create(
            &key(),
            &body(&format!("{n:02}"), &format!(",\"n\":{}", n % 7)),
        )
        .unwrap();
    }
    for text in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.n > 2",
        "SELECT VALUE c.id FROM c OFFSET 5 LIMIT 20",
        "SELECT TOP 13 VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c ORDER BY c.n DESC, c.id",
        "SELECT TOP 0 VALUE c.id FROM c ORDER BY c.n DESC, c.id",
        "SELECT DISTINCT VALUE c.n FROM c",
        "SELECT c.n, COUNT(1) AS m FROM c GROUP BY c.n",
        "SELECT VALUE SUM(c.n) FROM c",
        "SELECT VALUE 7",
        "SELECT VALUE c.id FROM c WHERE c.id IN ('03', '40', '05')",
        "SELECT VALUE c.id FROM c WHERE c.p = 'none'",
    ] {
        let whole = rows(&c, text, &Scope::everything(), &QueryLimits::default());
        for n in [1, 3, 13] {
            let limits = rows_at_most(n);
            assert_eq!(
                rows(&c, text, &Scope::everything(), &limits),
                whole,
                "{text}"
            );
            assert!(
                c.query(text, &[], &Scope::everything(), &limits, None)
                    .unwrap()
                    .rows
                    .len()
                    <= n,
                "{text}"
            );
        }
    }
    let ids: Vec<String> = c
        .query_as(
            "SELECT VALUE c.id FROM c WHERE c.n = @n",
            &[("@n".into(), 6.into())],
            &Scope::partition("k"),
        )
        .unwrap();
    assert_eq!(ids, ["06", "13", "20", "27", "34", "41", "48"]);
    refused(
        c.query(
            "SELECT",
            &[],
            &Scope::everything(),
            &QueryLimits::default(),
            None,
        ),
        400,
    );
    refused(
        c.query_as::<u8>("SELECT VALUE c.id FROM c", &[], &Scope::everything()),
        400,
    );
}

/// A clock that goes on by a millisecond each time it is asked.
#[derive(Clone)]
struct Ticking(Arc<AtomicU64>);

impl Clock for Ticking {
    fn wall(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn uptime(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Documents that end together are counted together, however the end falls into the query.
#[test]
fn a_query_is_of_one_moment() {
    let clock = Ticking(Arc::new(AtomicU64::new(START_MS)));
    let engine = Options::new()
        .clock(clock.clone())
        .open_temporary()
        .unwrap();
    let documents = Documents::with(engine).unwrap();
    documents.create_database("db").unwrap();
    let c = container(&documents, ",\"defaultTtl\":-1");
    let (mut all, mut none) = (0, 0);
    for ahead in 0..60 {
        c.delete_partition(&key()).unwrap();
        let create =
            |n: u32| ebbtide_documents::BatchOperation::Create(body(&n.to_string(), ",\"ttl\":1"));
        c.batch(&key(), &Vec::from_iter((0..10).map(create)))
            .unwrap();
        let written = c.read(&key(), "0").unwrap().written_at;
        let end = written
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64
            + 1_000;
        clock.0.store(end - ahead, Ordering::Relaxed);
        match &rows(
            &c,
            "SELECT VALUE COUNT(1) FROM c",
            &Scope::partition("k"),
            &QueryLimits::default(),
        )[..]
        {
            [count] if count == "10" => all += 1,
            [count] if count == "0" => none += 1,
            half => panic!("{half:?}"),
        }
    }
    assert!(all > 0 && none > 0, "{all} {none}");
}

#[test]
fn a_continuation_is_of_one_query_alone() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let other = ContainerDefinition::new("other", "/p");
    let other = documents.create_container("db", other).unwrap();
    for n in 0..9 {
        let body = body(&n.to_string(), &format!(",\"n\":{n}"));
        c.create(&key(), &body).unwrap();
        other.create(&key(), &body).unwrap();
    }
    let limits = rows_at_most(2);
    let (all, one) = (Scope::everything(), Scope::partition("k"));
    let least = |n: u64| [("@n".to_owned(), n.into())];
    for text in [
        "SELECT * FROM c WHERE c.n >= @n",
        "SELECT * FROM c WHERE c.n >= @n ORDER BY c.n DESC",
    ] {
        let page = c.query(text, &least(1), &all, &limits, None).unwrap();
        let from = page.continuation.as_ref();
        assert!(from.is_some());
        let next = c.query(text, &least(1), &all, &limits, from).unwrap();
        assert_ne!(next.rows, page.rows);
        let longer = format!("{text} ");
        refused(c.query(&longer, &least(1), &all, &limits, from), 400);
        refused(c.query(text, &least(2), &all, &limits, from), 400);
        refused(c.query(text, &least(1), &one, &limits, from), 400);
        refused(other.query(text, &least(1), &all, &limits, from), 400);
        refused(c.list(&all, 2, from), 400);
    }
    let listed = c.list(&all, 2, None).unwrap().continuation;
    assert!(c.list(&all, 2, listed.as_ref()).is_ok());
    refused(c.list(&one, 2, listed.as_ref()), 400);
    refused(other.list(&all, 2, listed.as_ref()), 400);
    refused(
        c.query("SELECT * FROM c", &[], &all, &limits, listed.as_ref()),
        400,
    );
}
