//! Texts that are no queries of the dialect are refused with the position, and by the name of what is not supported.

use serde_json::json;

use crate::{bound, refusal};

/// Texts, and what their refusals say.
const REFUSED: &str = r#"
SELECT * FROM c JOIN t IN c.tags => position 16 of the query: JOIN is not supported
SELECT * FROM c, d => position 15 of the query: FROM with several sources is not supported
SELECT VALUE (SELECT VALUE 1) FROM c => position 14 of the query: a subquery is not supported
SELECT * FROM (SELECT * FROM c) => position 14 of the query: a subquery is not supported
SELECT * FROM c WHERE c.a IN (SELECT VALUE 1) => position 30 of the query: a subquery is not supported
SELECT * FROM c WHERE EXISTS(SELECT VALUE 1) => position 22 of the query: EXISTS of a subquery is not supported
SELECT VALUE ARRAY(SELECT VALUE 1) FROM c => position 13 of the query: ARRAY of a subquery is not supported
SELECT udf.tax(c.a) FROM c => position 7 of the query: a user-defined function is not supported
SELECT ST_DISTANCE(c.a, c.b) FROM c => position 7 of the query: the function ST_DISTANCE is not supported
SELECT VectorDistance(c.a, [1]) FROM c => the function VectorDistance is not supported
SELECT * FROM c WHERE FullTextContains(c.a, 'x') => position 22 of the query: the function FullTextContains is not supported
SELECT * FROM c ORDER BY RANK FullTextScore(c.a, ['x']) => position 25 of the query: ORDER BY RANK is not supported
SELECT * FROM c WHERE RegexMatch(c.a, 'x') => the function RegexMatch is not supported
SELECT * FROM c WHERE ABS(1, 2) = 1 => position 22 of the query: ABS does not take 2 arguments
SELECT * FROM c WHERE d.a = 1 => position 22 of the query: 'd' is no name that FROM gives
SELECT c.a => position 7 of the query: 'c' is no name that FROM gives
SELECT * FROM root r WHERE root.a = 1 => 'root' is no name that FROM gives
SELECT * => position 7 of the query: SELECT * needs a FROM
SELECT c.a, c.b.a FROM c => position 12 of the query: two members are called 'a'
SELECT {x: 1, x: 2} FROM c => position 14 of the query: two members are called 'x'
SELECT c.a, COUNT(1) FROM c => r["a"] (r is the source) is neither a key of GROUP BY nor in an aggregate
SELECT c.a, c.b FROM c GROUP BY c.a => r["b"] (r is the source)
SELECT * FROM c GROUP BY c.a => position 7 of the query: SELECT * does not go with GROUP BY
SELECT c.a FROM c GROUP BY c.a ORDER BY c.a => position 31 of the query: ORDER BY does not go with GROUP BY
SELECT TOP 1 * FROM c OFFSET 1 LIMIT 1 => position 22 of the query: OFFSET does not go with TOP
SELECT * FROM c WHERE COUNT(1) = 1 => position 22 of the query: COUNT stands where no aggregate can
SELECT SUM(MAX(c.a)) FROM c => position 11 of the query: MAX stands where no aggregate can
SELECT * FROM c WHERE c.a =  => position 28 of the query: the end of the query stands where a value is expected
SELECT * FROM c WHERE c.a == 1 => position 27 of the query: '=' stands where a value is expected
SELECT * FROM c WHERE (c.a = 1 => position 30 of the query: the end of the query stands where ')' is expected
SELECT * FROM c WHERE c.a NOT = 1 => '=' stands where IN, LIKE or BETWEEN is expected
SELECT * FROM c WHERE c.a IN () => ')' stands where a value is expected
SELECT * FROM c c.a => position 17 of the query: '.' stands where the end of the query is expected
SELECT * FROM c WHERE c.a = 'x => position 28 of the query: a string has no end
SELECT * FROM c WHERE c.a = '\q' => position 28 of the query: a string has an escape that is none
SELECT * FROM c /* no end => position 16 of the query: a comment has no end
SELECT VALUE 1e999 => '1e999' stands where a number is expected
SELECT VALUE 0x12 => '0x12' stands where a number is expected
SELECT TOP 1.5 * FROM c => '1.5' stands where a count is expected
SELECT TOP -1 * FROM c => '-' stands where a count is expected
SELECT * FROM c OFFSET 1 => the end of the query stands where LIMIT is expected
SELECT * FROM c WHERE c.a LIKE 'x' ESCAPE 'ab' => a string stands where a string of one character is expected
SELECT # FROM c => position 7 of the query: '#' has no meaning in a query
UPDATE c SET a = 1 => position 0 of the query: 'UPDATE' stands where SELECT is expected
 => position 0 of the query: the end of the query stands where SELECT is expected
SELECT * FROM c WHERE c.a = @p => position 28 of the query: the parameter @p has no value
SELECT TOP @n * FROM c => position 11 of the query: the parameter @n has no value
SELECT * FROM c; SELECT * FROM c => position 17 of the query: 'SELECT' stands where the end of the query is expected
"#;

#[test]
fn named_with_their_positions() {
    for case in REFUSED.lines().skip(1) {
        let (text, error) = case.split_once(" => ").unwrap();
        let found = refusal(text);
        assert!(found.contains(error), "{text}: {found}");
    }
}

#[test]
fn half_a_surrogate_pair_is_no_string() {
    for (text, is_one) in [
        (r"SELECT VALUE '\ud83d\ude00'", true),
        (r"SELECT VALUE '\ud800'", false),
        (r"SELECT VALUE '\ude00\ud83d'", false),
        (r"SELECT * FROM c WHERE c.a = '\ud83dx'", false),
    ] {
        assert_eq!(bound(text, &[]).is_ok(), is_one, "{text}");
    }
}

#[test]
fn a_count_that_is_none() {
    for value in [json!(-1), json!("1"), json!(1.5), json!(null)] {
        let error = bound("SELECT TOP @n * FROM c", &[("@n", value)]).unwrap_err();
        assert_eq!(
            (error.status(), error.to_string().as_str()),
            (400, "the parameter @n is no count")
        );
    }
}
