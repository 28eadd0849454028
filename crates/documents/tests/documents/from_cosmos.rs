//! The rules of ttl that docs/guide/from_cosmos.md tells of documents: a test of each, by its number in the page.

use std::time::SystemTime;

use ebbtide::DefaultTtl;
use ebbtide_documents::{Conditions, Documents, QueryLimits, Scope};

use super::*;

fn changed(documents: &Documents, c: &Container, change: impl FnOnce(&mut ContainerDefinition)) {
    let mut definition = (*c.definition()).clone();
    change(&mut definition);
    documents.replace_container("db", definition).unwrap();
}

fn set_default(documents: &Documents, c: &Container, default: &str) {
    changed(documents, c, |definition| {
        definition.default_ttl = default.parse().unwrap()
    });
}

fn lives(c: &Container, id: &str) -> bool {
    match c.read(&key(), id) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.status(), 404, "{error}");
            false
        }
    }
}

fn put(c: &Container, id: &str, members: &str) {
    c.upsert(&key(), &body(id, members), &Conditions::none())
        .unwrap();
}

/// The lifetime of each of three documents: without ttl, with -1, with 2000; `None`: they do not end.
fn ends(default: &str) -> [Option<u64>; 3] {
    let (documents, clock) = documents();
    let c = container(&documents, default);
    put(&c, "absent", "");
    put(&c, "never", ",\"ttl\":-1");
    put(&c, "own", ",\"ttl\":2000");
    ["absent", "never", "own"].map(|id| {
        let end = c.read(&key(), id).unwrap().expires_at?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(START_MS);
        assert_eq!(clock_millis(&clock), START_MS);
        Some(end.duration_since(now).unwrap().as_secs())
    })
}

fn clock_millis(clock: &ManualClock) -> u64 {
    ebbtide::Clock::wall(clock)
}

#[test]
fn rule_01_a_ttl_is_in_seconds_from_the_last_write() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":-1");
    put(&c, "a", ",\"ttl\":10");
    clock.advance(seconds(9));
    put(&c, "a", ",\"ttl\":10");
    clock.advance(seconds(10) - Duration::from_millis(1));
    assert!(lives(&c, "a"));
    clock.advance(Duration::from_millis(1));
    assert!(!lives(&c, "a"));
}

#[test]
fn rule_02_without_a_default_nothing_ends() {
    assert_eq!(ends(""), [None; 3]);
    assert_eq!(ends(",\"defaultTtl\":null"), [None; 3]);
}

#[test]
fn rule_03_with_minus_one_documents_end_by_their_own_ttl() {
    assert_eq!(ends(",\"defaultTtl\":-1"), [None, None, Some(2_000)]);
}

#[test]
fn rule_04_with_n_documents_end_after_n_unless_they_say_otherwise() {
    assert_eq!(
        ends(",\"defaultTtl\":1000"),
        [Some(1_000), None, Some(2_000)]
    );
}

#[test]
fn rule_05_a_ttl_where_it_is_off_counts_when_it_is_turned_on() {
    let (documents, clock) = documents();
    let c = container(&documents, "");
    put(&c, "a", ",\"ttl\":10");
    clock.advance(seconds(20));
    assert!(lives(&c, "a"));
    set_default(&documents, &c, "-1");
    assert!(!lives(&c, "a"));
}

#[test]
fn rule_06_what_is_no_ttl_is_refused() {
    let (documents, _) = documents();
    let c = container(&documents, ",\"defaultTtl\":-1");
    for ttl in [
        "0",
        "-10",
        "null",
        "\"60\"",
        "1.5",
        "2147483648",
        "true",
        "[]",
    ] {
        refused(
            c.create(&key(), &body("a", &format!(",\"ttl\":{ttl}"))),
            400,
        );
        if ttl != "null" {
            let json = format!(
                "{{\"id\":\"d\",\"partitionKey\":{{\"paths\":[\"/p\"]}},\"defaultTtl\":{ttl}}}"
            );
            refused(ContainerDefinition::from_json(json.as_bytes()), 400);
        }
    }
    assert!(!lives(&c, "a"));
    put(&c, "a", ",\"ttl\":2147483647");
    assert!(lives(&c, "a"));
}

#[test]
fn rule_07_an_expired_document_is_in_no_answer() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":5");
    put(&c, "a", "");
    let etag = c.read(&key(), "a").unwrap().version;
    clock.advance(seconds(5));
    assert!(!lives(&c, "a"));
    assert!(
        c.list(&Scope::everything(), 10, None)
            .unwrap()
            .documents
            .is_empty()
    );
    let count = "SELECT VALUE COUNT(1) FROM c";
    let counted = c.query(
        count,
        &[],
        &Scope::everything(),
        &QueryLimits::default(),
        None,
    );
    assert_eq!(counted.unwrap().rows, ["0"]);
    refused(
        c.replace(&key(), "a", &body("a", ""), &Conditions::none()),
        404,
    );
    refused(c.delete(&key(), "a", &Conditions::if_match(etag)), 404);
    c.create(&key(), &body("a", "")).unwrap();
}

#[test]
fn rule_08_a_changed_default_counts_at_once_for_what_is_there() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":-1");
    put(&c, "a", "");
    clock.advance(seconds(60));
    assert!(lives(&c, "a"));
    set_default(&documents, &c, "1m");
    assert!(!lives(&c, "a"));
    // An end is final.
    set_default(&documents, &c, "1h");
    assert!(!lives(&c, "a"));
}

#[test]
fn rule_09_turned_off_what_lives_does_not_end() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":10");
    put(&c, "a", "");
    put(&c, "b", ",\"ttl\":20");
    set_default(&documents, &c, "off");
    clock.advance(seconds(1_000));
    assert!(lives(&c, "a") && lives(&c, "b"));
}

#[test]
fn rule_10_a_replace_without_ttl_inherits_again() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":100");
    put(&c, "a", ",\"ttl\":10");
    c.replace(&key(), "a", &body("a", ""), &Conditions::none())
        .unwrap();
    clock.advance(seconds(99));
    assert!(lives(&c, "a"));
    clock.advance(seconds(1));
    assert!(!lives(&c, "a"));
}

#[test]
fn rule_11_ttl_and_no_index_exclude_each_other() {
    let (documents, _) = documents();
    let none = ",\"indexingPolicy\":{\"indexingMode\":\"none\",\"automatic\":false}";
    let c = container(&documents, none);
    let mut definition = (*c.definition()).clone();
    definition.default_ttl = DefaultTtl::NoDefault;
    refused(documents.replace_container("db", definition), 400);
    let json =
        format!("{{\"id\":\"d\",\"partitionKey\":{{\"paths\":[\"/p\"]}},\"defaultTtl\":60{none}}}");
    let made = ContainerDefinition::from_json(json.as_bytes());
    refused(
        made.and_then(|made| documents.create_container("db", made)),
        400,
    );
}

#[test]
fn rule_12_ts_is_the_last_write_in_seconds() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":-1");
    put(&c, "a", "");
    assert_eq!(c.read(&key(), "a").unwrap().ts(), START_MS / 1_000);
    clock.advance(seconds(7));
    put(&c, "a", "");
    assert_eq!(c.read(&key(), "a").unwrap().ts(), START_MS / 1_000 + 7);
}

/// Each row of the page is a rule above, in this order.
#[test]
fn the_page_tells_these_rules() {
    let page = include_str!("../../../../docs/guide/from_cosmos.md");
    let rows = page.lines().filter(|line| {
        line.strip_prefix("| ")
            .is_some_and(|row| row.starts_with(|c: char| c.is_ascii_digit()))
    });
    let rows: Vec<_> = rows
        .map(|row| row.split(' ').nth(1).unwrap().to_owned())
        .collect();
    let here = include_str!("from_cosmos.rs");
    let rules = here
        .lines()
        .filter_map(|line| line.strip_prefix("fn rule_"));
    let rules: Vec<_> = rules
        .map(|rule| rule[..2].trim_start_matches('0').to_owned())
        .collect();
    assert_eq!(rows, rules);
}
