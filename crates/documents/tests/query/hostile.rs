//! Texts and documents that mean harm cost no stack, and no more time or memory than their size says.

use serde_json::json;

use crate::{bound, refusal, rows};

const LONG: usize = 512 << 10;

#[test]
fn deep_texts() {
    let fill = |one: &str| one.repeat((LONG - 100) / one.len());
    for one in [
        "(",
        "NOT ",
        "-(",
        "- ",
        "~",
        "[",
        "{a:",
        "1+(",
        "1 ?",
        "ABS(",
        "c[",
        "c.a IN (",
        "1 ?? (",
        "'a' LIKE (",
    ] {
        let text = format!("SELECT * FROM c WHERE {}", fill(one));
        assert!(refusal(&text).contains("nests more than 100 deep"), "{one}");
    }
    let deep = |count: usize| format!("SELECT VALUE {}1{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(rows(&deep(98), &["{}"; 0]).unwrap(), ["1"]);
    assert!(refusal(&format!("SELECT * FROM c WHERE c{}", fill(".a"))).contains("100 deep"));
    assert!(refusal(&format!("SELECT * FROM c{}", fill(".a"))).contains("100 deep"));
    assert!(refusal(&"(".repeat(LONG + 1)).contains("more than 524288 bytes"));
}

/// As deep as may be, with an operator of each precedence at each level.
#[test]
fn the_deepest_text_runs() {
    let level = "1|2^3&4=5<6<<7+8*(";
    let text = format!("SELECT VALUE {}1{}", level.repeat(11), ")".repeat(11));
    rows(&text, &["{}"; 0]).unwrap();
    let text = format!(
        "SELECT VALUE {}1{}",
        "(1|1^1&1=1<1<<1+1*1 AND ".repeat(49),
        ")".repeat(49)
    );
    rows(&text, &["{}"; 0]).unwrap();
    let text = format!(
        "SELECT VALUE {}1{} FROM c",
        "((((c.a*2)+1)<<1)<1)+".repeat(20),
        ""
    );
    rows(&text, &["{}"]).unwrap();
}

#[test]
fn long_texts() {
    let document = [r#"{"a":1,"s":"x"}"#];
    let chained = |one: &str| one.repeat((LONG - 100) / one.len());
    for (text, row) in [
        (format!("SELECT VALUE 1{} FROM c", chained("+1")), "262095"),
        (
            format!("SELECT VALUE c.a = 1{} FROM c", chained(" OR c.a = 2")),
            "true",
        ),
        (
            format!("SELECT VALUE c.a = 1{} FROM c", chained(" AND c.a < 2")),
            "true",
        ),
        (
            format!("SELECT VALUE c.a IN (7{}) FROM c", chained(",7")),
            "false",
        ),
        (
            format!("SELECT VALUE LENGTH(c.s{}) FROM c", chained("||c.s")),
            "104838",
        ),
        (
            format!("SELECT VALUE c.gone{} FROM c", chained("??c.gone")),
            "",
        ),
        (
            format!("SELECT VALUE c.a[c.a]{} FROM c", chained("[c.a]")),
            "",
        ),
        (
            format!("SELECT VALUE 'x' LIKE '{}' FROM c", chained("[")),
            "false",
        ),
        (
            format!("SELECT VALUE ARRAY_LENGTH([c.a{}]) FROM c", chained(",c.a")),
            "131048",
        ),
        (
            format!("SELECT VALUE LENGTH('{}') FROM c", chained("\\u0041")),
            "87364",
        ),
        (format!("SELECT VALUE 1 /*{}*/ FROM c", chained("*")), "1"),
    ] {
        let found =
            rows(&text, &document).unwrap_or_else(|error| panic!("{}: {error}", &text[..60]));
        assert_eq!(found.join(""), row, "{}", &text[..60]);
    }
    let many: Vec<String> = (0..20_000).map(|at| format!("c.m{at} AS n{at}")).collect();
    assert_eq!(
        rows(&format!("SELECT {} FROM c", many.join(",")), &document).unwrap(),
        ["{}"]
    );
    let names = format!(
        "SELECT VALUE {{{}}} FROM c",
        (0..20_000)
            .map(|at| format!("m{at}:c.a,"))
            .collect::<String>()
            + "z:1"
    );
    assert!(rows(&names, &document).unwrap()[0].starts_with(r#"{"m0":1,"m1":1"#));
    assert!(
        refusal(&format!(
            "SELECT * FROM c ORDER BY {}",
            ["c.a"; 65].join(",")
        ))
        .contains("more than 64 keys")
    );
}

/// Values that grow from small texts are refused, not made.
#[test]
fn values_that_grow() {
    let document = [json!({"s": "x".repeat(1 << 20), "l": vec![1; 1 << 19]}).to_string()];
    for text in [
        format!("SELECT VALUE c.s{} FROM c", "||c.s".repeat(10_000)),
        format!("SELECT VALUE CONCAT(c.s{}) FROM c", ",c.s".repeat(10_000)),
        format!("SELECT VALUE [c{}] FROM c", ",c".repeat(10_000)),
        format!(
            "SELECT VALUE ARRAY_CONCAT(c.l{}) FROM c",
            ",c.l".repeat(10_000)
        ),
        "SELECT VALUE REPLACE(c.s, 'x', c.s) FROM c".to_owned(),
        format!("SELECT * FROM c WHERE c.s{} != ''", "||c.s".repeat(10_000)),
        format!("SELECT * FROM c ORDER BY c.s{}", "||c.s".repeat(10_000)),
    ] {
        let error = rows(&text, &document).unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(
            error.to_string().contains("has more than 16777216 bytes"),
            "{error}"
        );
    }
    let constant = format!(
        "SELECT VALUE REPLACE('{0}', 'x', '{0}')",
        "x".repeat(100_000)
    );
    assert!(
        bound(&constant, &[])
            .unwrap_err()
            .to_string()
            .contains("16777216")
    );
    // A pattern that could be tried in very many ways is given up.
    let pattern = format!("SELECT VALUE c.s LIKE '%{}y%' FROM c", "_x".repeat(2_000));
    assert_eq!(rows(&pattern, &document).unwrap(), [""; 0]);
}

#[test]
fn deep_documents() {
    let deep = |open: &str, close: &str| {
        format!(
            "{{\"a\":{}1{}}}",
            open.repeat(100_000),
            close.repeat(100_000)
        )
    };
    for document in [deep("[", "]"), deep("{\"a\":", "}")] {
        let found = rows(
            "SELECT VALUE IS_DEFINED(c.a) FROM c WHERE c.b != 1 OR true",
            &[&document],
        )
        .unwrap();
        assert_eq!(found, ["true"]);
        // A value that nests so deep is not compared: it is undefined.
        assert_eq!(
            rows("SELECT VALUE c.a = [1] FROM c ORDER BY c.a", &[&document])
                .unwrap()
                .len(),
            1
        );
        rows("SELECT VALUE c.a.a.a.a[0][0] FROM c", &[&document]).unwrap();
    }
}

/// Bytes that are no JSON, which a store would not have, are an error or some answer, and no panic.
#[test]
fn documents_that_are_no_json() {
    for text in [
        "SELECT * FROM c",
        "SELECT c.a, c.b.c, c.d[1] FROM c WHERE c.a != 2",
        "SELECT VALUE t FROM t IN c.d",
    ] {
        let good = r#"{"a":1,"b":{"c":"x\n\ud83d"},"d":[1,{"e":2}],"f":null}"#.as_bytes();
        for cut in 0..good.len() {
            let _ = rows(text, &[&good[..cut]]);
            let mut turned = good.to_vec();
            for byte in [b'"', b'\\', b'{', b']', b',', 0, 0x80, 0xff] {
                turned[cut] = byte;
                let _ = rows(text, &[&turned]);
            }
        }
    }
    let error = rows("SELECT VALUE c.a FROM c", &["{\"a\" 1}"]).unwrap_err();
    assert_eq!(
        (error.status(), error.to_string().as_str()),
        (500, "a document is no JSON")
    );
}
