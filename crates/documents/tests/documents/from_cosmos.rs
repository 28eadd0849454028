//! The rules of ttl that docs/guide/from_cosmos.md tells of documents: a test of each, by its number in the page; and what else
//! there is to time to live.

use ebbtide::DefaultTtl;
use ebbtide_documents::{Conditions, Documents, Indexing, IndexingMode, Patch, QueryLimits, Scope};

use super::*;

fn set_default(documents: &Documents, c: &Container, default: &str) {
    let mut definition = (*c.definition()).clone();
    definition.default_ttl = default.parse().unwrap();
    documents.replace_container("db", definition).unwrap();
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

/// `defaultTtl`, the document's `ttl`, and the seconds that it lives; `None`: for ever.
type Row = (&'static str, &'static str, Option<u64>);

fn each_lives_as_long_as_it_says(rows: &[Row]) {
    for (default, own, lives) in rows {
        let (documents, clock) = documents();
        let c = container(&documents, default);
        let written = c.create(&key(), &body("1", own)).unwrap();
        let ends = lives.map(|lives| written.written_at + seconds(lives));
        assert_eq!(written.expires_at, ends, "{default} {own}");
        assert_eq!(c.read(&key(), "1").unwrap().expires_at, ends);
        let lives = lives.unwrap_or(2_147_483_648 * 2);
        clock.advance(seconds(lives) - Duration::from_millis(1));
        assert!(c.read(&key(), "1").is_ok(), "{default} {own}");
        clock.advance(Duration::from_millis(1));
        assert_eq!(
            c.read(&key(), "1").is_err(),
            ends.is_some(),
            "{default} {own}"
        );
    }
}

/// Every write restarts the countdown; a read does not, unless it touches.
#[test]
fn rule_01_a_ttl_is_in_seconds_from_the_last_write() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":10");
    c.create(&key(), &body("1", "")).unwrap();
    let none = Conditions::none();
    let patch = Patch::from_json(br#"[{"op":"set","path":"/a","value":1}]"#).unwrap();
    for write in 0..6 {
        clock.advance(seconds(9));
        c.read(&key(), "1").unwrap();
        let before = c.read(&key(), "1").unwrap();
        let written = match write {
            0 => c.upsert(&key(), &body("1", ""), &none).unwrap().0,
            1 => c.replace(&key(), "1", &body("1", ""), &none).unwrap(),
            2 => c.patch(&key(), "1", &patch, &none).unwrap(),
            3 => c.touch(&key(), "1", &none).unwrap(),
            4 => c
                .touch(&key(), "1", &Conditions::if_match(before.version))
                .unwrap(),
            _ => c.read_and_touch(&key(), "1").unwrap(),
        };
        assert!(written.version > before.version);
        assert_eq!(
            written.expires_at,
            Some(documents.engine().now() + seconds(10)),
            "{write}"
        );
        let read = c.read(&key(), "1").unwrap();
        assert_eq!(
            (read.version, read.written_at, read.expires_at),
            (written.version, written.written_at, written.expires_at)
        );
        assert_eq!(read.body(), written.body());
        assert_eq!(read.ts(), (START_MS + 9_000 * (write + 1)) / 1_000);
    }
    clock.advance(seconds(10));
    refused(c.read(&key(), "1"), 404);
}

#[test]
fn rule_02_without_a_default_nothing_ends() {
    each_lives_as_long_as_it_says(&[
        ("", "", None),
        ("", ",\"ttl\":-1", None),
        ("", ",\"ttl\":20", None),
        (",\"defaultTtl\":null", "", None),
        (",\"defaultTtl\":null", ",\"ttl\":20", None),
    ]);
}

#[test]
fn rule_03_with_minus_one_documents_end_by_their_own_ttl() {
    each_lives_as_long_as_it_says(&[
        (",\"defaultTtl\":-1", "", None),
        (",\"defaultTtl\":-1", ",\"ttl\":-1", None),
        (",\"defaultTtl\":-1", ",\"ttl\":20", Some(20)),
    ]);
}

#[test]
fn rule_04_with_n_documents_end_after_n_unless_they_say_otherwise() {
    each_lives_as_long_as_it_says(&[
        (",\"defaultTtl\":10", "", Some(10)),
        (",\"defaultTtl\":10", ",\"ttl\":-1", None),
        (",\"defaultTtl\":10", ",\"ttl\":5", Some(5)),
        (",\"defaultTtl\":10", ",\"ttl\":20", Some(20)),
        (
            ",\"defaultTtl\":10",
            ",\"ttl\":2147483647",
            Some(2_147_483_647),
        ),
        (",\"defaultTtl\":2147483647", "", Some(2_147_483_647)),
    ]);
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
    let c = container(&documents, ",\"defaultTtl\":10");
    let kept = c.create(&key(), &body("kept", ",\"ttl\":7")).unwrap();
    let none = Conditions::none();
    for wrong in [
        "null",
        "0",
        "-10",
        "\"60\"",
        "1.5",
        "2147483648",
        "true",
        "[1]",
        "{}",
    ] {
        let ttl = format!(",\"ttl\":{wrong}");
        refused(c.create(&key(), &body("1", &ttl)), 400);
        refused(c.upsert(&key(), &body("1", &ttl), &none), 400);
        refused(c.upsert(&key(), &body("kept", &ttl), &none), 400);
        refused(c.replace(&key(), "kept", &body("kept", &ttl), &none), 400);
        let patch = format!("[{{\"op\":\"set\",\"path\":\"/ttl\",\"value\":{wrong}}}]");
        let patch = Patch::from_json(patch.as_bytes()).unwrap();
        refused(c.patch(&key(), "kept", &patch, &none), 400);
    }
    refused(c.read(&key(), "1"), 404);
    assert_eq!(c.read(&key(), "kept").unwrap().version, kept.version);
}

#[test]
fn rule_07_an_expired_document_is_in_no_answer() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":10");
    let old = c.create(&key(), &body("1", "")).unwrap();
    clock.advance(seconds(10));
    let (matches, any) = (
        Conditions::if_match(old.version),
        Conditions {
            if_match: Some("*".parse().unwrap()),
            ..Conditions::none()
        },
    );
    let patch = Patch::from_json(br#"[{"op":"set","path":"/a","value":1}]"#).unwrap();
    for conditions in [Conditions::none(), matches, any] {
        refused(c.touch(&key(), "1", &conditions), 404);
        refused(c.replace(&key(), "1", &body("1", ""), &conditions), 404);
        refused(c.patch(&key(), "1", &patch, &conditions), 404);
        refused(c.delete(&key(), "1", &conditions), 404);
    }
    refused(c.read(&key(), "1"), 404);
    refused(c.read_and_touch(&key(), "1"), 404);
    assert!(c.try_read(&key(), "1").is_err());
    refused(c.upsert(&key(), &body("1", ""), &matches), 412);
    refused(c.upsert(&key(), &body("1", ""), &any), 412);
    assert!(
        c.list(&Scope::everything(), 10, None)
            .unwrap()
            .documents
            .is_empty()
    );
    let count = c.query(
        "SELECT VALUE COUNT(1) FROM c",
        &[],
        &Scope::everything(),
        &QueryLimits::default(),
        None,
    );
    assert_eq!(count.unwrap().rows, ["0"]);
    refused(c.id_of(&key(), &old.rid()), 404);
    let none_there = Conditions {
        if_none_match: any.if_match,
        ..Conditions::none()
    };
    assert!(c.upsert(&key(), &body("1", ""), &none_there).unwrap().1);
    clock.advance(seconds(10));
    c.create(&key(), &body("1", "")).unwrap();
}

/// Documents that have expired stay gone.
#[test]
fn rule_08_a_changed_default_counts_at_once_for_what_is_there() {
    let (documents, clock) = documents();
    let c = container(&documents, "");
    c.create(&key(), &body("inherits", "")).unwrap();
    c.create(&key(), &body("own", ",\"ttl\":5")).unwrap();
    c.create(&key(), &body("never", ",\"ttl\":-1")).unwrap();
    let ids = || {
        let page = c.list(&Scope::everything(), 10, None).unwrap();
        page.documents
            .into_iter()
            .map(|document| document.id)
            .collect::<Vec<_>>()
    };
    let set = |default: &str| set_default(&documents, &c, default);
    clock.advance(seconds(8));
    assert_eq!(ids(), ["inherits", "never", "own"]);
    set("20s");
    assert_eq!(ids(), ["inherits", "never"]);
    set("8s");
    assert_eq!(ids(), ["never"]);
    set("1h");
    assert_eq!(ids(), ["never"]);
    set("off");
    assert_eq!(ids(), ["never"]);
    assert_eq!(c.items().default_ttl(), DefaultTtl::Off);
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
    let definition = |mode, default_ttl| {
        let mut definition = ContainerDefinition::new("c", "/p");
        definition.indexing = Indexing {
            mode,
            ..Indexing::default()
        };
        definition.default_ttl = default_ttl;
        definition
    };
    let ten = DefaultTtl::After(seconds(10));
    for default in [DefaultTtl::NoDefault, ten] {
        let none = definition(IndexingMode::None, default);
        refused(documents.create_container("db", none.clone()), 400);
        for mode in [IndexingMode::Consistent, IndexingMode::Lazy] {
            let c = documents
                .create_container("db", definition(mode, default))
                .unwrap();
            // None where a default stands, and a default where None does.
            refused(documents.replace_container("db", none.clone()), 400);
            assert_eq!(
                (c.definition().indexing.mode, c.items().default_ttl()),
                (mode, default)
            );
            documents
                .replace_container("db", definition(mode, DefaultTtl::Off))
                .unwrap();
            documents
                .replace_container("db", definition(IndexingMode::None, DefaultTtl::Off))
                .unwrap();
            refused(documents.replace_container("db", none.clone()), 400);
            assert_eq!(
                (c.definition().indexing.mode, c.items().default_ttl()),
                (IndexingMode::None, DefaultTtl::Off)
            );
            documents.delete_container("db", "c").unwrap();
        }
    }
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

#[test]
fn what_is_no_default_ttl_is_refused_and_nothing_is_made() {
    let (documents, _) = documents();
    for name in ["defaultTtl", "analyticalStorageTtl"] {
        for wrong in ["0", "-10", "\"60\"", "1.5", "2147483648", "true", "[]"] {
            let json = format!(
                "{{\"id\":\"c\",\"partitionKey\":{{\"paths\":[\"/p\"]}},\"{name}\":{wrong}}}"
            );
            let error = refused(ContainerDefinition::from_json(json.as_bytes()), 400);
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
    let mut definition = ContainerDefinition::new("c", "/p");
    definition.default_ttl = DefaultTtl::After(Duration::from_millis(1_500));
    refused(documents.create_container("db", definition), 400);
    assert!(documents.containers("db").unwrap().is_empty());
}

/// A touch keeps the ttl of the document.
#[test]
fn a_touch_keeps_the_ttl() {
    let (documents, clock) = documents();
    let c = container(&documents, ",\"defaultTtl\":10");
    for (own, lives) in [("5", Some(5)), ("20", Some(20)), ("-1", None)] {
        let mut last = c
            .upsert(
                &key(),
                &body("1", &format!(",\"ttl\":{own}")),
                &Conditions::none(),
            )
            .unwrap()
            .0;
        for conditions in [Conditions::none(), Conditions::if_match(last.version)] {
            clock.advance(seconds(4));
            let conditions = conditions
                .if_match
                .map_or(conditions, |_| Conditions::if_match(last.version));
            last = c.touch(&key(), "1", &conditions).unwrap();
            let ends = lives.map(|lives| documents.engine().now() + seconds(lives));
            assert_eq!(
                (last.expires_at, c.read(&key(), "1").unwrap().expires_at),
                (ends, ends)
            );
        }
    }
}

/// Settings and documents are there after the database is opened again.
#[test]
fn settings_last() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(START_MS);
    let open = || {
        Documents::with(
            Options::new()
                .clock(clock.clone())
                .open(folder.path())
                .unwrap(),
        )
        .unwrap()
    };
    let documents = open();
    documents.create_database("db").unwrap();
    let c = container(
        &documents,
        ",\"defaultTtl\":10,\"x\":1,\"maxLiveBytes\":1000000",
    );
    c.create(&key(), &body("1", "")).unwrap();
    let (json, info) = (c.to_json(), documents.database("db").unwrap());
    drop((c, documents));
    let documents = open();
    let c = documents.container("db", "c").unwrap();
    assert_eq!(
        (c.to_json(), documents.database("db").unwrap()),
        (json, info)
    );
    assert_eq!(c.items().quota().unwrap().max_live_bytes, 1_000_000);
    clock.advance(seconds(9));
    c.read(&key(), "1").unwrap();
    clock.advance(seconds(1));
    refused(c.read(&key(), "1"), 404);
}
