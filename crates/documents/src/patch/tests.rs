//! Each operation of a patch, on members and elements that are there and that are not.

use super::*;

fn patched(document: &str, operations: &str) -> Result<String> {
    let patched = Patch::from_json(operations.as_bytes())?.apply(document.as_bytes())?;
    assert!(json::value(&patched).is_ok(), "{patched}");
    Ok(patched)
}

/// Document, operations, and what becomes of it; `-`: a refusal.
const TABLE: &[(&str, &str, &str)] = &[
    // Members.
    (
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/b","value":2}]"#,
        r#"{"a":1,"b":2}"#,
    ),
    (
        r#"{}"#,
        r#"[{"op":"add","path":"/b","value":{"c":[]}}]"#,
        r#"{"b":{"c":[]}}"#,
    ),
    (
        r#"{ "a" : 1.50 }"#,
        r#"[{"op":"add","path":"/a","value":2}]"#,
        r#"{ "a" : 2 }"#,
    ),
    (
        r#"{"a":1}"#,
        r#"[{"op":"set","path":"/b","value":null}]"#,
        r#"{"a":1,"b":null}"#,
    ),
    (
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"/a","value":"x"}]"#,
        r#"{"a":"x"}"#,
    ),
    (
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"/b","value":"x"}]"#,
        "-",
    ),
    (
        r#"{"a":1, "b":2, "c":3}"#,
        r#"[{"op":"remove","path":"/b"}]"#,
        r#"{"a":1, "c":3}"#,
    ),
    (
        r#"{"a":1, "b":2}"#,
        r#"[{"op":"remove","path":"/a"}]"#,
        r#"{"b":2}"#,
    ),
    (r#"{"a":1}"#, r#"[{"op":"remove","path":"/a"}]"#, r#"{}"#),
    (r#"{"a":1}"#, r#"[{"op":"remove","path":"/b"}]"#, "-"),
    (
        r#"{"a":1,"b":2,"a":3}"#,
        r#"[{"op":"remove","path":"/a"}]"#,
        r#"{"b":2}"#,
    ),
    // Within.
    (
        r#"{"a":{"b":{"c":1}}}"#,
        r#"[{"op":"set","path":"/a/b/d","value":2}]"#,
        r#"{"a":{"b":{"c":1,"d":2}}}"#,
    ),
    (
        r#"{"a":{}}"#,
        r#"[{"op":"set","path":"/a/b/c","value":2}]"#,
        "-",
    ),
    (
        r#"{"a":7}"#,
        r#"[{"op":"set","path":"/a/b","value":2}]"#,
        "-",
    ),
    (
        r#"{"a/b":1,"c~d":2}"#,
        r#"[{"op":"set","path":"/a~1b","value":3},{"op":"remove","path":"/c~0d"}]"#,
        r#"{"a/b":3}"#,
    ),
    (
        r#"{"\u0061":1}"#,
        r#"[{"op":"set","path":"/a","value":3}]"#,
        r#"{"\u0061":3}"#,
    ),
    (
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/x\"y","value":2}]"#,
        r#"{"a":1,"x\"y":2}"#,
    ),
    // Elements.
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/0","value":0}]"#,
        r#"{"a":[0,1,2]}"#,
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/2","value":3}]"#,
        r#"{"a":[1,2,3]}"#,
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/3","value":3}]"#,
        "-",
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/-","value":3}]"#,
        r#"{"a":[1,2,3]}"#,
    ),
    (
        r#"{"a":[]}"#,
        r#"[{"op":"add","path":"/a/-","value":3}]"#,
        r#"{"a":[3]}"#,
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"set","path":"/a/0","value":0}]"#,
        r#"{"a":[0,2]}"#,
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"set","path":"/a/2","value":0}]"#,
        r#"{"a":[1,2,0]}"#,
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"replace","path":"/a/1","value":0}]"#,
        r#"{"a":[1,0]}"#,
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"replace","path":"/a/2","value":0}]"#,
        "-",
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"replace","path":"/a/-","value":0}]"#,
        "-",
    ),
    (
        r#"{"a":[1,2,3]}"#,
        r#"[{"op":"remove","path":"/a/1"}]"#,
        r#"{"a":[1,3]}"#,
    ),
    (r#"{"a":[1,2]}"#, r#"[{"op":"remove","path":"/a/2"}]"#, "-"),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"set","path":"/a/01","value":0}]"#,
        "-",
    ),
    (
        r#"{"a":[{"b":1}]}"#,
        r#"[{"op":"incr","path":"/a/0/b","value":1}]"#,
        r#"{"a":[{"b":2}]}"#,
    ),
    // Numbers.
    (
        r#"{"a":1}"#,
        r#"[{"op":"incr","path":"/a","value":-3}]"#,
        r#"{"a":-2}"#,
    ),
    (
        r#"{"a":9007199254740993}"#,
        r#"[{"op":"incr","path":"/a","value":1}]"#,
        r#"{"a":9007199254740994}"#,
    ),
    (
        r#"{"a":9223372036854775807}"#,
        r#"[{"op":"incr","path":"/a","value":1}]"#,
        r#"{"a":9.223372036854776e+18}"#,
    ),
    (
        r#"{"a":1.5}"#,
        r#"[{"op":"incr","path":"/a","value":1}]"#,
        r#"{"a":2.5}"#,
    ),
    (
        r#"{"a":1.5}"#,
        r#"[{"op":"incr","path":"/a","value":1.5}]"#,
        r#"{"a":3}"#,
    ),
    (
        r#"{"b":1.50}"#,
        r#"[{"op":"incr","path":"/a","value":1}]"#,
        r#"{"b":1.50,"a":1}"#,
    ),
    (
        r#"{"a":"1"}"#,
        r#"[{"op":"incr","path":"/a","value":1}]"#,
        "-",
    ),
    (
        r#"{"a":null}"#,
        r#"[{"op":"incr","path":"/a","value":1}]"#,
        "-",
    ),
    (
        r#"{"a":1}"#,
        r#"[{"op":"incr","path":"/a","value":"1"}]"#,
        "-",
    ),
    (
        r#"{"a":1e308}"#,
        r#"[{"op":"incr","path":"/a","value":1e308}]"#,
        "-",
    ),
    (
        r#"{"a":[1]}"#,
        r#"[{"op":"incr","path":"/a/-","value":1}]"#,
        "-",
    ),
    // Moves.
    (
        r#"{"a":1.0,"b":{}}"#,
        r#"[{"op":"move","from":"/a","path":"/b/c"}]"#,
        r#"{"b":{"c":1.0}}"#,
    ),
    (
        r#"{"a":1,"b":2}"#,
        r#"[{"op":"move","from":"/a","path":"/b"}]"#,
        r#"{"b":1}"#,
    ),
    (
        r#"{"a":[1,2],"b":3}"#,
        r#"[{"op":"move","from":"/b","path":"/a/0"}]"#,
        r#"{"a":[3,1,2]}"#,
    ),
    (
        r#"{"a":[1,2]}"#,
        r#"[{"op":"move","from":"/a/0","path":"/a/1"}]"#,
        r#"{"a":[2,1]}"#,
    ),
    (
        r#"{"a":1}"#,
        r#"[{"op":"move","from":"/b","path":"/c"}]"#,
        "-",
    ),
    (
        r#"{"a":{"b":1}}"#,
        r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
        "-",
    ),
    // One after the other, or not at all.
    (
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/b","value":{}},{"op":"add","path":"/b/c","value":2}]"#,
        r#"{"a":1,"b":{"c":2}}"#,
    ),
    (
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/b","value":2},{"op":"remove","path":"/c"}]"#,
        "-",
    ),
    // No patches.
    ("{}", "[]", "-"),
    ("{}", "{}", "-"),
    ("{}", r#"[{"op":"add","path":"a","value":1}]"#, "-"),
    ("{}", r#"[{"op":"add","path":"/","value":1}]"#, "-"),
    ("{}", r#"[{"op":"add","path":"","value":1}]"#, "-"),
    ("{}", r#"[{"op":"add","path":"/a"}]"#, "-"),
    ("{}", r#"[{"op":"test","path":"/a","value":1}]"#, "-"),
    ("{}", r#"[{"op":"add","path":"/id","value":"1"}]"#, "-"),
    (r#"{"_ts":1}"#, r#"[{"op":"remove","path":"/_ts"}]"#, "-"),
    ("{}", r#"[{"op":"add","path":"/a","value":"\ud800"}]"#, "-"),
];

#[test]
fn operations() {
    for (document, operations, expected) in TABLE {
        match (patched(document, operations), *expected) {
            (Err(refused), "-") => assert_eq!(refused.status(), 400),
            (done, expected) => assert_eq!(done.unwrap(), expected, "{document} {operations}"),
        }
    }
}

#[test]
fn ten_operations_at_most() {
    let operations = |n: usize| {
        let one = r#"{"op":"incr","path":"/n","value":1}"#;
        format!("{{\"operations\":[{}]}}", vec![one; n].join(","))
    };
    assert_eq!(patched("{}", &operations(10)).unwrap(), r#"{"n":10}"#);
    assert!(patched("{}", &operations(11)).is_err());
}
