//! Queries and their rows.

use serde_json::json;

use crate::{bound, rows, rows_of};

/// Expressions without a document, each with its text; an empty one is undefined.
const CONSTANTS: &[(&str, &str)] = &[
    ("1", "1"),
    ("1.50", "1.50"),
    ("-1.50", "-1.50"),
    (".5", "0.5"),
    ("1e3", "1e3"),
    ("'it''s'", "refused"),
    ("'it\\'s'", "\"it's\""),
    ("\"\\u0041\\n\"", "\"A\\n\""),
    ("'\\ud83d\\ude00'", "\"😀\""),
    ("true", "true"),
    ("NULL", "null"),
    ("undefined", ""),
    ("[1, 'a', undefined, null, [2]]", "[1,\"a\",null,[2]]"),
    (
        "{a: 1, 'b c': [true], d: undefined}",
        "{\"a\":1,\"b c\":[true]}",
    ),
    ("{}", "{}"),
    ("[]", "[]"),
    // Arithmetic
    ("1 + 2 * 3", "7"),
    ("(1 + 2) * 3", "9"),
    ("7 / 2", "3.5"),
    ("7 % 4", "3"),
    ("-7 % 4", "-3"),
    ("1 - 2 - 3", "-4"),
    ("2 * 3 % 4", "2"),
    ("1 / 0", ""),
    ("0 / 0", ""),
    ("1 + 'a'", ""),
    ("1 + null", ""),
    ("1 + undefined", ""),
    ("0.1 + 0.2", "0.30000000000000004"),
    ("1e300 * 1e10", ""),
    ("9007199254740992 + 0", "9007199254740992"),
    ("1e20 + 0", "100000000000000000000"),
    ("1e21 + 0", "1e21"),
    ("0.0000001 * 1", "1e-7"),
    ("-(3)", "-3"),
    ("+3", "3"),
    ("-'a'", ""),
    ("- - 3", "3"),
    ("6 & 3", "2"),
    ("6 | 3", "7"),
    ("6 ^ 3", "5"),
    ("~5", "-6"),
    ("1 << 4", "16"),
    ("-16 >> 2", "-4"),
    ("-1 >>> 28", "15"),
    ("4294967296 | 1", "1"),
    ("1 | 2 = 3", ""),
    // Comparison
    ("1 = 1.0", "true"),
    ("1 = '1'", "false"),
    ("1 != '1'", "true"),
    ("null = null", "true"),
    ("null != 1", "true"),
    ("undefined = undefined", ""),
    ("undefined != 1", ""),
    ("[1, 2] = [1.0, 2]", "true"),
    ("[1, 2] = [2, 1]", "false"),
    ("{a: 1, b: 2} = {b: 2.0, a: 1}", "true"),
    ("{a: 1} != {a: 2}", "true"),
    ("1 < 2", "true"),
    ("2 <= 2", "true"),
    ("'a' < 'b'", "true"),
    ("'B' < 'a'", "true"),
    ("false < true", "true"),
    ("null <= null", "true"),
    ("null < null", "false"),
    ("1 < 'a'", ""),
    ("[1] < [2]", ""),
    ("{} < {}", ""),
    ("null < 1", ""),
    ("1 <> 2", "true"),
    ("1 < 2 = true", "true"),
    // Logic
    ("true AND false", "false"),
    ("true OR false", "true"),
    ("true AND undefined", ""),
    ("false AND undefined", "false"),
    ("undefined AND false", "false"),
    ("true OR undefined", "true"),
    ("undefined OR true", "true"),
    ("false OR undefined", ""),
    ("false OR 1", ""),
    ("true OR 1", "true"),
    ("NOT true", "false"),
    ("NOT undefined", ""),
    ("NOT 1", ""),
    ("NOT 1 = 2", "true"),
    ("NOT NOT true", "true"),
    ("true OR true AND false", "true"),
    ("(true OR true) AND false", "false"),
    // IN, BETWEEN, LIKE
    ("2 IN (1, 2)", "true"),
    ("2 IN (1, 3)", "false"),
    ("2 NOT IN (1, 3)", "true"),
    ("'2' IN (1, 2)", "false"),
    ("undefined IN (1, 2)", ""),
    ("2 IN (undefined, 2)", "true"),
    ("[1] IN ([1], 2)", "true"),
    ("3 IN (1,2,4,5,6,7,8,9,10,3.0)", "true"),
    ("11 IN (1,2,4,5,6,7,8,9,10,3.0)", "false"),
    ("undefined IN (1,2,4,5,6,7,8,9,10,3.0)", ""),
    ("2 BETWEEN 1 AND 3", "true"),
    ("3 BETWEEN 1 AND 3", "true"),
    ("4 BETWEEN 1 AND 3", "false"),
    ("2 BETWEEN 3 AND 1", "false"),
    ("4 NOT BETWEEN 1 AND 3", "true"),
    ("'b' BETWEEN 'a' AND 'c'", "true"),
    ("'b' BETWEEN 1 AND 3", ""),
    ("2 BETWEEN 3 AND 'a'", "false"),
    ("2 BETWEEN 1 AND 3 AND false", "false"),
    ("'abc' LIKE 'a%'", "true"),
    ("'abc' LIKE '%c'", "true"),
    ("'abc' LIKE '%b%'", "true"),
    ("'abc' LIKE 'a_c'", "true"),
    ("'abc' LIKE 'ac'", "false"),
    ("'abc' LIKE 'abc%'", "true"),
    ("'ABC' LIKE 'abc'", "false"),
    ("'abc' NOT LIKE 'x%'", "true"),
    ("'abc' LIKE 'a[a-c]c'", "true"),
    ("'abc' LIKE 'a[^a-c]c'", "false"),
    ("'axc' LIKE 'a[^a-c]c'", "true"),
    ("'20%' LIKE '20^%' ESCAPE '^'", "true"),
    ("'200' LIKE '20^%' ESCAPE '^'", "false"),
    ("'20%' LIKE '20[%]'", "true"),
    ("'a[b' LIKE 'a[[]b'", "true"),
    ("'a]b' LIKE 'a]b'", "true"),
    ("'a[b' LIKE 'a[b'", "true"),
    ("'' LIKE '%'", "true"),
    ("'mississippi' LIKE '%iss%ppi'", "true"),
    ("'mississippi' LIKE '%iss%pp'", "false"),
    ("1 LIKE '1'", ""),
    ("'1' LIKE 1", ""),
    // ?? and ? :
    ("undefined ?? 1", "1"),
    ("null ?? 1", "null"),
    ("undefined ?? undefined ?? 2", "2"),
    ("1 ?? 2", "1"),
    ("true ? 1 : 2", "1"),
    ("false ? 1 : 2", "2"),
    ("undefined ? 1 : 2", "2"),
    ("'x' ? 1 : 2", "2"),
    ("1 < 2 ? 'a' : 'b'", "\"a\""),
    ("true ? false ? 1 : 2 : 3", "2"),
    ("false ? 1 : true ? 2 : 3", "2"),
    // Strings
    ("'a' || 'b' || 'c'", "\"abc\""),
    ("'a' || 1", ""),
    ("'a' || 'b' = 'ab'", "true"),
    ("CONCAT('a', 'b', 'c')", "\"abc\""),
    ("CONCAT('a', 1)", ""),
    ("CONTAINS('abc', 'b')", "true"),
    ("CONTAINS('abc', 'B')", "false"),
    ("CONTAINS('abc', 'B', true)", "true"),
    ("CONTAINS('abc', 'B', false)", "false"),
    ("CONTAINS('abc', 1)", ""),
    ("CONTAINS('abc', '')", "true"),
    ("STARTSWITH('abc', 'ab')", "true"),
    ("STARTSWITH('abc', 'AB', true)", "true"),
    ("ENDSWITH('abc', 'bc')", "true"),
    ("ENDSWITH('abc', 'BC')", "false"),
    ("STRINGEQUALS('abc', 'ABC')", "false"),
    ("StringEquals('abc', 'ABC', true)", "true"),
    ("STRINGEQUALS('abc', undefined)", ""),
    ("LOWER('AbÄ')", "\"abä\""),
    ("UPPER('abä')", "\"ABÄ\""),
    ("LOWER(1)", ""),
    ("LENGTH('abä')", "3"),
    ("LENGTH([1])", ""),
    ("SUBSTRING('abcdef', 1, 3)", "\"bcd\""),
    ("SUBSTRING('abcdef', 4)", "\"ef\""),
    ("SUBSTRING('abcdef', 9, 3)", "\"\""),
    ("SUBSTRING('äöü', 1, 1)", "\"ö\""),
    ("SUBSTRING('abc', 'x', 1)", ""),
    ("INDEX_OF('abcabc', 'c')", "2"),
    ("INDEX_OF('abcabc', 'c', 3)", "5"),
    ("INDEX_OF('abc', 'x')", "-1"),
    ("INDEX_OF('äöü', 'ü')", "2"),
    ("REPLACE('abcabc', 'b', 'XX')", "\"aXXcaXXc\""),
    ("REPLACE('abc', '', 'x')", ""),
    ("REPLICATE('ab', 3)", "\"ababab\""),
    ("REPLICATE('ab', -1)", ""),
    ("REPLICATE('ab', 100000)", ""),
    ("TRIM('  a b ')", "\"a b\""),
    ("LTRIM('  a ')", "\"a \""),
    ("RTRIM('  a ')", "\"  a\""),
    ("LEFT('abc', 2)", "\"ab\""),
    ("LEFT('abc', 9)", "\"abc\""),
    ("LEFT('abc', -1)", "\"\""),
    ("RIGHT('abc', 2)", "\"bc\""),
    ("RIGHT('abc', 9)", "\"abc\""),
    ("RIGHT('abc', 0)", "\"\""),
    ("REVERSE('abä')", "\"äba\""),
    ("ToString(1.5)", "\"1.5\""),
    ("ToString(true)", "\"true\""),
    ("ToString(null)", "\"null\""),
    ("ToString('a')", "\"a\""),
    ("ToString([1, 'a'])", "\"[1,\\\"a\\\"]\""),
    ("ToString(undefined)", ""),
    ("StringToNumber('1.5')", "1.5"),
    ("StringToNumber(' 12 ')", "12"),
    ("StringToNumber('x')", ""),
    ("StringToBoolean('true')", "true"),
    ("StringToBoolean('True')", ""),
    ("StringToNull('null')", "null"),
    // Types
    ("IS_DEFINED(1)", "true"),
    ("IS_DEFINED(undefined)", "false"),
    ("IS_NULL(null)", "true"),
    ("IS_NULL(undefined)", "false"),
    ("IS_BOOL(false)", "true"),
    ("IS_NUMBER(1)", "true"),
    ("IS_NUMBER('1')", "false"),
    ("IS_INTEGER(1.0)", "true"),
    ("IS_INTEGER(1.5)", "false"),
    ("IS_FINITE_NUMBER(1)", "true"),
    ("IS_STRING('')", "true"),
    ("IS_ARRAY([])", "true"),
    ("IS_ARRAY({})", "false"),
    ("IS_OBJECT({})", "true"),
    ("IS_PRIMITIVE(null)", "true"),
    ("IS_PRIMITIVE([])", "false"),
    ("IS_PRIMITIVE(undefined)", "false"),
    // Numbers
    ("ABS(-1.5)", "1.5"),
    ("ABS('a')", ""),
    ("CEILING(1.2)", "2"),
    ("FLOOR(-1.2)", "-2"),
    ("ROUND(2.5)", "3"),
    ("ROUND(-2.5)", "-3"),
    ("TRUNC(-1.7)", "-1"),
    ("SIGN(-3)", "-1"),
    ("SIGN(0)", "0"),
    ("SQRT(9)", "3"),
    ("SQRT(-1)", ""),
    ("SQUARE(3)", "9"),
    ("POWER(2, 10)", "1024"),
    ("POWER(2, 'a')", ""),
    ("LOG(1)", "0"),
    ("LOG(0)", ""),
    ("LOG10(1000)", "3"),
    ("EXP(0)", "1"),
    ("FLOOR(PI() * 100)", "314"),
    ("COS(0)", "1"),
    ("ATN2(0, 1)", "0"),
    ("ROUND(DEGREES(PI()))", "180"),
    ("IIF(true, 1, 2)", "1"),
    ("IIF(1, 1, 2)", "2"),
    // Arrays
    ("ARRAY_LENGTH([1, 2, 3])", "3"),
    ("ARRAY_LENGTH([])", "0"),
    ("ARRAY_LENGTH('abc')", ""),
    ("ARRAY_CONTAINS([1, 2], 2.0)", "true"),
    ("ARRAY_CONTAINS([1, 2], '2')", "false"),
    ("ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1})", "false"),
    ("ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1}, true)", "true"),
    (
        "ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1, c: 1}, true)",
        "false",
    ),
    ("ARRAY_CONTAINS([], 1)", "false"),
    ("ARRAY_CONTAINS({a: 1}, 1)", ""),
    ("ARRAY_CONTAINS([[1, {a: 2}]], [1.0, {a: 2}])", "true"),
    ("ARRAY_CONTAINS('abc', 'a')", ""),
    ("ARRAY_CONTAINS([1], undefined)", ""),
    ("ARRAY_CONCAT([1], [], [2, 3])", "[1,2,3]"),
    ("ARRAY_CONCAT([1], 2)", ""),
    ("ARRAY_SLICE([1, 2, 3, 4], 1)", "[2,3,4]"),
    ("ARRAY_SLICE([1, 2, 3, 4], 1, 2)", "[2,3]"),
    ("ARRAY_SLICE([1, 2, 3, 4], -2, 1)", "[3]"),
    ("ARRAY_SLICE([1, 2, 3, 4], -9, 1)", "[1]"),
    ("ARRAY_SLICE([1, 2, 3, 4], 9)", "[]"),
    ("ARRAY_SLICE([1, 2], 1.5)", ""),
    ("[10, 20, 30][1]", "20"),
    ("[10, 20, 30][3]", ""),
    ("[10, 20, 30][-1]", ""),
    ("[10, 20, 30]['a']", ""),
    ("{a: {b: [5]}}.a.b[0]", "5"),
    ("{a: 1}['a']", "1"),
    ("{a: 1}[0]", ""),
    ("'abc'[0]", ""),
    // Time
    ("GetCurrentTimestamp()", "1772357400250"),
    ("GetCurrentDateTime()", "\"2026-03-01T09:30:00.2500000Z\""),
    ("GetCurrentTicks()", "639079542002500000"),
];

#[test]
fn constants() {
    for (expression, text) in CONSTANTS {
        let found = rows(&format!("SELECT VALUE {expression}"), &["{}"; 0]);
        match found {
            Ok(rows) => assert_eq!(rows.join("|"), *text, "{expression}"),
            Err(error) => assert_eq!("refused", *text, "{expression}: {error}"),
        }
    }
}

const PANTRY: [&str; 6] = [
    r#"{"id":"1","name":"tea","price":4.50,"kind":"drink","tags":["hot","green"],"stock":{"here":3,"there":0}}"#,
    r#"{"id":"2","name":"ink","price":12,"kind":"paper","tags":[],"stock":{"here":1}}"#,
    r#"{"id":"3","name":"milk","price":1.2e0,"kind":"drink","tags":["cold"],"stock":null}"#,
    r#"{"id":"4","name":"gift","price":null,"kind":"other","note":"a \"b\" \u00e9"}"#,
    r#"{"id":"5","name":"book","price":"12","kind":"paper","big":9007199254740993,"tags":[{"a":1},{"a":2,"b":[1]}]}"#,
    r#" { "id" : "6" , "kind" : "drink" , "stock" : { "here" : 2 , "there" : [ 1 , 2 ] } } "#,
];

/// Queries over the pantry, and their rows, under headings.
const QUERIES: &str = r#"
SELECT VALUE c.id FROM c => "1" | "2" | "3" | "4" | "5" | "6"
SELECT VALUE c.id FROM c WHERE c.price = 12 => "2"
SELECT VALUE c.id FROM c WHERE c.price = '12' => "5"
SELECT VALUE c.id FROM c WHERE c.price > 2 => "1" | "2"
SELECT VALUE c.id FROM c WHERE c.price != 12 => "1" | "3" | "4" | "5"
SELECT VALUE c.id FROM c WHERE c.price != null => "1" | "2" | "3" | "5"
SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.price) => "6"
SELECT VALUE c.id FROM c WHERE NOT c.price > 2 => "3"
SELECT VALUE c.id FROM c WHERE c.price < 2 OR c.kind = 'paper' => "2" | "3" | "5"
SELECT VALUE c.id FROM c WHERE c.stock.here >= 2 => "1" | "6"
SELECT VALUE c.id FROM c WHERE c['stock']['there'][1] = 2 => "6"
SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 'cold') => "3"
SELECT VALUE c.id FROM c WHERE c.tags[0] = 'hot' => "1"
SELECT VALUE c.id FROM c WHERE c.tags[c.stock.here - 2] = 'green' => "1"
SELECT VALUE c.id FROM c WHERE c => none
SELECT VALUE c.id FROM c WHERE 1 => none
SELECT VALUE c.name FROM c => "tea" | "ink" | "milk" | "gift" | "book"
SELECT VALUE c.price FROM c => 4.50 | 12 | 1.2e0 | null | "12"
SELECT VALUE c.big FROM c => 9007199254740993
SELECT VALUE c.note FROM c => "a \"b\" \u00e9"
SELECT VALUE c.note FROM c WHERE c.note = 'a "b" é' => "a \"b\" \u00e9"
SELECT VALUE UPPER(c.note) FROM c => "A \"B\" É"
SELECT c.id, c.price AS cost FROM c WHERE c.id > '4' => {"id":"5","cost":"12"} | {"id":"6"}
SELECT c.id, c.price * 2, c.tags[0] FROM c WHERE c.id < '3' => {"id":"1","$1":9,"$2":"hot"} | {"id":"2","$1":24}
SELECT c['stock'], c.stock.here FROM c WHERE c.id = '6' => {"stock":{ "here" : 2 , "there" : [ 1 , 2 ] },"here":2}
SELECT {n: c.name, s: [c.stock.here, c.stock.gone]} AS o FROM c WHERE c.id = '1' => {"o":{"n":"tea","s":[3]}}
SELECT VALUE {n: c.name, p: c.price > 2} FROM c WHERE c.kind = 'drink' => {"n":"tea","p":true} | {"n":"milk","p":false} | {}
SELECT VALUE c.name || '!' FROM c WHERE c.kind = 'drink' => "tea!" | "milk!"
SELECT VALUE c.name ?? 'none' FROM c WHERE c.kind = 'drink' => "tea" | "milk" | "none"
SELECT VALUE c.price > 2 ? 'dear' : 'cheap' FROM c WHERE c.kind = 'drink' => "dear" | "cheap" | "cheap"
SELECT VALUE c.tags[1].b[0] FROM c => 1
-- The system's properties
SELECT VALUE c._ts FROM c WHERE c.id = '1' => 1772357400
SELECT c._etag, c._rid, c._self, c._attachments FROM c WHERE c.id = '1' => {"_etag":"\"00-7\"","_rid":"ridA","_self":"dbs/1/colls/2/docs/3/","_attachments":"attachments/"}
SELECT VALUE c.id FROM c WHERE c._ts > 1772357399 AND c.id = '2' => "2"
SELECT VALUE c._ts.x FROM c => none
SELECT * FROM c WHERE c.id = '2' => {"id":"2","name":"ink","price":12,"kind":"paper","tags":[],"stock":{"here":1},"_rid":"ridA","_self":"dbs/1/colls/2/docs/3/","_etag":"\"00-7\"","_attachments":"attachments/","_ts":1772357400}
SELECT VALUE c FROM c WHERE c.id = '6' =>  { "id" : "6" , "kind" : "drink" , "stock" : { "here" : 2 , "there" : [ 1 , 2 ] } ,"_rid":"ridA","_self":"dbs/1/colls/2/docs/3/","_etag":"\"00-7\"","_attachments":"attachments/","_ts":1772357400}
SELECT VALUE IS_DEFINED(c['_' || 'ts']) FROM c WHERE c.id = '1' => true
SELECT VALUE IS_OBJECT(c) FROM c WHERE c.id = '1' => true
-- FROM
SELECT VALUE s.here FROM c.stock AS s => 3 | 1 | 2
SELECT VALUE stock.here FROM c.stock WHERE stock.here > 1 => 3 | 2
SELECT * FROM c['stock'] s WHERE s = null => null
SELECT VALUE t FROM t IN c.tags => "hot" | "green" | "cold" | {"a":1} | {"a":2,"b":[1]}
SELECT VALUE t.a FROM t IN c.tags WHERE t.a > 0 => 1 | 2
SELECT VALUE COUNT(1) FROM t IN c.tags => 5
SELECT TOP 2 * FROM t IN c.tags => "hot" | "green"
SELECT VALUE t._ts FROM t IN c.tags => none
-- TOP, OFFSET and LIMIT
SELECT TOP 2 VALUE c.id FROM c => "1" | "2"
SELECT TOP 0 VALUE c.id FROM c => none
SELECT TOP 1 VALUE c.id FROM c WHERE c.kind = 'paper' => "2"
SELECT VALUE c.id FROM c OFFSET 1 LIMIT 2 => "2" | "3"
SELECT VALUE c.id FROM c OFFSET 5 LIMIT 10 => "6"
SELECT VALUE c.id FROM c OFFSET 0 LIMIT 0 => none
-- ORDER BY: undefined, null, booleans, numbers, strings
SELECT VALUE c.id FROM c ORDER BY c.price => "6" | "4" | "3" | "1" | "2" | "5"
SELECT VALUE c.id FROM c ORDER BY c.price DESC => "5" | "2" | "1" | "3" | "4" | "6"
SELECT VALUE c.id FROM c ORDER BY c.kind, c.price DESC => "1" | "3" | "6" | "4" | "5" | "2"
SELECT VALUE c.id FROM c ORDER BY c.kind DESC, c.id ASC => "2" | "5" | "4" | "1" | "3" | "6"
SELECT VALUE c.id FROM c ORDER BY c.kind => "1" | "3" | "6" | "4" | "2" | "5"
SELECT TOP 2 VALUE c.id FROM c ORDER BY c.price DESC => "5" | "2"
SELECT VALUE c.id FROM c ORDER BY c.price DESC OFFSET 1 LIMIT 2 => "2" | "1"
SELECT VALUE c.name FROM c ORDER BY c.id DESC => "book" | "gift" | "milk" | "ink" | "tea"
SELECT VALUE c.id FROM c ORDER BY c.tags => "4" | "6" | "2" | "3" | "1" | "5"
SELECT VALUE c.id FROM c ORDER BY c.stock.here DESC, c._ts => "1" | "6" | "2" | "3" | "4" | "5"
-- DISTINCT
SELECT DISTINCT VALUE c.kind FROM c => "drink" | "paper" | "other"
SELECT DISTINCT VALUE c.kind FROM c ORDER BY c.id DESC => "drink" | "paper" | "other"
SELECT DISTINCT TOP 2 VALUE c.kind FROM c => "drink" | "paper"
SELECT DISTINCT VALUE c.kind FROM c OFFSET 1 LIMIT 5 => "paper" | "other"
SELECT DISTINCT c.stock.here FROM c => {"here":3} | {"here":1} | {} | {"here":2}
-- Aggregates
SELECT VALUE COUNT(1) FROM c => 6
SELECT VALUE COUNT(c.price) FROM c => 5
SELECT VALUE COUNT(c.gone) FROM c => 0
SELECT VALUE COUNT(undefined) FROM c => 0
SELECT VALUE SUM(c.price) FROM c => none
SELECT VALUE SUM(c.price) FROM c WHERE IS_NUMBER(c.price) => 17.7
SELECT VALUE AVG(c.stock.here) FROM c => 2
SELECT VALUE MIN(c.price) FROM c => null
SELECT VALUE MAX(c.price) FROM c => "12"
SELECT VALUE MIN(c.price) FROM c WHERE IS_NUMBER(c.price) => 1.2e0
SELECT VALUE MAX(c.tags) FROM c => none
SELECT VALUE SUM(c.gone) FROM c => none
SELECT VALUE MAX(c.price) FROM c WHERE false => none
SELECT VALUE COUNT(1) FROM c WHERE false => 0
SELECT VALUE COUNT(1) => 1
SELECT VALUE SUM(3) => 3
SELECT COUNT(1) AS n, MAX(c.stock.here) AS m, SUM(c.price) AS s FROM c => {"n":6,"m":3}
SELECT VALUE {n: COUNT(1), half: COUNT(1) / 2} FROM c => {"n":6,"half":3}
SELECT VALUE COUNT(1) FROM c ORDER BY c.id => 6
SELECT TOP 1 VALUE COUNT(1) FROM c => 6
SELECT VALUE COUNT(1) FROM c OFFSET 1 LIMIT 1 => none
-- GROUP BY
SELECT c.kind, COUNT(1) AS n FROM c GROUP BY c.kind => {"kind":"drink","n":3} | {"kind":"paper","n":2} | {"kind":"other","n":1}
SELECT VALUE c.kind FROM c GROUP BY c.kind => "drink" | "paper" | "other"
SELECT COUNT(1) AS n, c.stock.there FROM c GROUP BY c.stock.there => {"n":1,"there":0} | {"n":4} | {"n":1,"there":[ 1 , 2 ]}
SELECT UPPER(c.kind) AS k, MAX(c.id) AS m FROM c WHERE c.id < '5' GROUP BY UPPER(c.kind) => {"k":"DRINK","m":"3"} | {"k":"PAPER","m":"2"} | {"k":"OTHER","m":"4"}
SELECT c.kind || '!' AS k, 1 AS one FROM c GROUP BY c.kind OFFSET 1 LIMIT 1 => {"k":"paper!","one":1}
SELECT COUNT(1) AS n FROM c WHERE false GROUP BY c.kind => none
SELECT DISTINCT VALUE COUNT(1) FROM c GROUP BY c.id => 1
"#;

#[test]
fn over_documents() {
    let cases = QUERIES.lines().skip(1);
    for case in cases.filter(|line| !line.starts_with("--")) {
        let (text, expected) = case.split_once(" => ").unwrap();
        let found = rows(text, &PANTRY).unwrap_or_else(|error| panic!("{text}: {error}"));
        let shown = match found.is_empty() {
            true => "none".to_owned(),
            false => found.join(" | "),
        };
        assert_eq!(shown, expected, "{text}");
    }
}

#[test]
fn without_a_source_there_is_one_row() {
    assert_eq!(
        rows("SELECT 1 AS a, 'x'", &PANTRY).unwrap(),
        [r#"{"a":1,"$1":"x"}"#]
    );
    assert_eq!(
        rows("SELECT VALUE 1 WHERE false", &PANTRY).unwrap(),
        [""; 0]
    );
    assert!(!bound("SELECT 1", &[]).unwrap().reads_documents());
}

#[test]
fn parameters() {
    let given = [
        ("@s", json!("tea")),
        ("@o", json!({"here": 1})),
        ("@list", json!(["ink", "milk"])),
        ("@n", json!(2)),
        ("@unused", json!(null)),
    ];
    for (text, expected) in [
        ("SELECT VALUE c.id FROM c WHERE c.name = @s", "\"1\""),
        ("SELECT VALUE c.id FROM c WHERE c.stock = @o", "\"2\""),
        (
            "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@list, c.name)",
            "\"2\" \"3\"",
        ),
        (
            "SELECT VALUE c.id FROM c WHERE c.name IN (@s, @list[0])",
            "\"1\" \"2\"",
        ),
        ("SELECT VALUE c.id FROM c OFFSET @n LIMIT @n", "\"3\" \"4\""),
        ("SELECT VALUE @o.here", "1"),
        (
            "SELECT VALUE {o: @o, s: @s}",
            r#"{"o":{"here":1},"s":"tea"}"#,
        ),
        ("SELECT VALUE c[@key].here FROM c WHERE c.id = '1'", "3"),
    ] {
        let mut given = given.to_vec();
        // A name without its sign is taken, too.
        given.push(("key", json!("stock")));
        let found = rows_of(&bound(text, &given).unwrap(), &PANTRY).unwrap();
        assert_eq!(found.join(" "), expected, "{text}");
    }
}

/// A member that is there twice is taken the second time, as JSON's readers do.
#[test]
fn members_that_are_there_twice() {
    let twice = [r#"{"a":{"b":1},"a":{"c":2},"d":1,"d":2,"\u0065":3}"#];
    assert_eq!(
        rows("SELECT c.a.b, c.a.c, c.d, c.e FROM c", &twice).unwrap(),
        [r#"{"c":2,"d":2,"e":3}"#]
    );
}
