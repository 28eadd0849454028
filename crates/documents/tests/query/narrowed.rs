//! Conditions, and how they narrow the keys that are read.

use ebbtide_documents::query::ValueRange;

use crate::bound;

const CONDITIONS: &[(&str, &str)] = &[
    ("c.id = 'a'", "OneOf([String(\"a\")])"),
    ("'a' = c['id']", "OneOf([String(\"a\")])"),
    ("c.id = 'a' AND c.x > 1", "OneOf([String(\"a\")])"),
    (
        "c.x > 1 AND (c.y OR c.z) AND (c.w = 2 AND c.id = 'a')",
        "OneOf([String(\"a\")])",
    ),
    (
        "c.id = 'a' OR c.id = 'b'",
        "OneOf([String(\"a\"), String(\"b\")])",
    ),
    (
        "c.id = 'a' OR c.id IN ('b', 1.0)",
        "OneOf([String(\"a\"), String(\"b\"), Number(1.0)])",
    ),
    (
        "c.id IN ('a', 'b') AND c.id IN ('b', 'c')",
        "OneOf([String(\"b\")])",
    ),
    (
        "c.id IN (null, true, -0.0)",
        "OneOf([Null, Bool(true), Number(0.0)])",
    ),
    ("ARRAY_CONTAINS(['a'], c.id)", "OneOf([String(\"a\")])"),
    ("STRINGEQUALS(c.id, 'a')", "OneOf([String(\"a\")])"),
    ("STRINGEQUALS(c.id, 'a', false)", "OneOf([String(\"a\")])"),
    ("STARTSWITH(c.id, 'a')", "StartsWith(\"a\")"),
    ("STARTSWITH(c.id, 'a', false)", "StartsWith(\"a\")"),
    ("c.id LIKE 'ab%c'", "StartsWith(\"ab\")"),
    ("c.id LIKE 'a^%b_' ESCAPE '^'", "StartsWith(\"a%b\")"),
    ("c.id > 'a'", "Between(Excluded(String(\"a\")), Unbounded)"),
    ("'a' > c.id", "Between(Unbounded, Excluded(String(\"a\")))"),
    (
        "c.id >= 1 AND c.id < 5 AND c.id > 0 AND c.id <= 7",
        "Between(Included(Number(1.0)), Excluded(Number(5.0)))",
    ),
    (
        "c.id BETWEEN 1 AND 2",
        "Between(Included(Number(1.0)), Included(Number(2.0)))",
    ),
    ("c.id > 'a' AND c.id = 'b'", "OneOf([String(\"b\")])"),
    ("c.id > 'a' AND STARTSWITH(c.id, 'b')", "StartsWith(\"b\")"),
    ("c.id = 'x' || 'y'", "OneOf([String(\"xy\")])"),
    // Nothing follows for the key of one.
    ("c.x = 'a'", "Any"),
    ("c.id != 'a'", "Any"),
    ("NOT c.id = 'a'", "Any"),
    ("NOT (c.id = 'a' AND c.x = 1)", "Any"),
    ("c.id = 'a' OR c.x = 'b'", "Any"),
    ("c.id = 'a' OR c.id > 'b'", "Any"),
    ("c.id NOT IN ('a')", "Any"),
    ("c.id = undefined", "Any"),
    ("c.id = ['a']", "Any"),
    ("c.id IN ('a', ['b'])", "Any"),
    ("c.id = c.x", "Any"),
    ("c.id.x = 'a'", "Any"),
    ("c.id[0] = 'a'", "Any"),
    ("c.id = 'a' = true", "Any"),
    ("(c.id = 'a') = false", "Any"),
    ("c.id BETWEEN 1 AND 'a'", "Any"),
    ("STARTSWITH(c.id, 'a', true)", "Any"),
    ("STRINGEQUALS(c.id, 'a', true)", "Any"),
    ("STARTSWITH('a', c.id)", "Any"),
    ("CONTAINS(c.id, 'a')", "Any"),
    ("c.id LIKE '%a'", "Any"),
    ("c.id LIKE c.x", "Any"),
    ("c.id = 'a' ? true : c.x", "Any"),
    ("c.id = 'a' ?? true", "Any"),
    ("LOWER(c.id) = 'a'", "Any"),
];

#[test]
fn by_id() {
    for (filter, range) in CONDITIONS {
        let query = bound(&format!("SELECT * FROM c WHERE {filter}"), &[]).unwrap();
        assert_eq!(
            format!("{:?}", query.key_condition(&[]).id),
            *range,
            "{filter}"
        );
        let indexed = query.indexed("/id/?").unwrap_or_default();
        assert_eq!(format!("{indexed:?}"), *range, "{filter}");
    }
}

#[test]
fn by_partition() {
    let query = bound(
        "SELECT * FROM c WHERE c.a.b = 1 AND c['x/y'] > 'k' AND c.id = 'i'",
        &[],
    )
    .unwrap();
    let condition =
        query.key_condition(&["/a/b".to_owned(), "/\"x/y\"".to_owned(), "/z".to_owned()]);
    let ranges = "[OneOf([Number(1.0)]), Between(Excluded(String(\"k\")), Unbounded), Any]";
    assert_eq!(format!("{:?}", condition.partition), ranges);
    assert_ne!(condition.id, ValueRange::Any);
}

/// Where the name stands for a part of a document, its members are none of the document's.
#[test]
fn parts_of_documents_narrow_nothing() {
    for text in [
        "SELECT * FROM c.x AS r WHERE r.id = 'a'",
        "SELECT * FROM r IN c.x WHERE r.id = 'a'",
        "SELECT * FROM c",
    ] {
        assert_eq!(
            bound(text, &[]).unwrap().key_condition(&[]).id,
            ValueRange::Any,
            "{text}"
        );
    }
}
