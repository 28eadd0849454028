//! Random queries over random documents, against the second evaluator.

use std::ops::Bound;

use ebbtide_documents::query::{NoSystem, Query, QueryLimits, Scalar, ValueRange};
use serde_json::{Value, json};
use testkit::random::Random;

use crate::now;
use crate::reference::{Expr, Output, Select, same, sorted};

const NAMES: [&str; 6] = ["a", "b", "x", "id", "pk", "two words"];
const STRINGS: [&str; 8] = ["", "a", "ab", "abc", "b", "B", "é\"", "a%"];

fn scalar(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2..=4 => json!(random.below(5) as i64 - 1),
        5 => json!(random.below(9) as f64 / 2.0),
        _ => json!(random.pick(&STRINGS)),
    }
}

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 6 } else { 10 }) {
        0..=5 => scalar(random),
        6 | 7 => (0..random.below(4))
            .map(|_| value(random, depth - 1))
            .collect(),
        _ => document(random, depth - 1),
    }
}

fn document(random: &mut Random, depth: usize) -> Value {
    let members =
        (0..random.below(6)).map(|_| (random.pick(&NAMES).to_owned(), value(random, depth)));
    Value::Object(members.collect())
}

/// The text of a value as somebody might write it: with blanks, escapes, and numbers in other forms.
fn written(value: &Value, random: &mut Random, out: &mut String) {
    let blank = |random: &mut Random| random.pick(&["", "", "", " ", "\n\t"]);
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                *out += if at == 0 { "" } else { "," };
                *out += blank(random);
                written(item, random, out);
                *out += blank(random);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, item)) in members.iter().enumerate() {
                *out += if at == 0 { "" } else { "," };
                *out += blank(random);
                written(&json!(name), random, out);
                *out += blank(random);
                out.push(':');
                *out += blank(random);
                written(item, random, out);
            }
            *out += blank(random);
            out.push('}');
        }
        Value::Number(number) if random.one_in(3) => {
            *out += &format!("{:.3}", number.as_f64().unwrap())
        }
        Value::Number(number) if random.one_in(3) => {
            *out += &format!("{:E}", number.as_f64().unwrap())
        }
        Value::String(text) if random.one_in(4) => {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
            *out += &format!("\"{}\"", units.collect::<String>());
        }
        _ => *out += &value.to_string(),
    }
}

fn path(random: &mut Random) -> Expr {
    let step = |random: &mut Random| match random.one_in(5) {
        true => json!(random.below(3)),
        false => json!(random.pick(&NAMES)),
    };
    let mut steps = vec![json!(random.pick(&NAMES))];
    while random.one_in(3) {
        steps.push(step(random));
    }
    Expr::Path(steps)
}

fn expr(random: &mut Random, depth: usize) -> Expr {
    if depth == 0 || random.one_in(4) {
        return match random.below(5) {
            0 | 1 => Expr::Literal((!random.one_in(12)).then(|| value(random, 1))),
            _ => path(random),
        };
    }
    let one = |random: &mut Random| Box::new(expr(random, depth - 1));
    match random.below(15) {
        0..=2 => {
            let operator = random.pick(&[
                "=", "!=", "<", "<=", ">", ">=", "??", "||", "+", "-", "*", "/", "%", "&", "|",
            ]);
            Expr::Binary(operator, one(random), one(random))
        }
        3 => Expr::Not(one(random)),
        4 => Expr::Minus(one(random)),
        5 => Expr::And((0..2 + random.below(2)).map(|_| *one(random)).collect()),
        6 => Expr::Or((0..2 + random.below(2)).map(|_| *one(random)).collect()),
        7 => {
            let many = if random.one_in(3) {
                9
            } else {
                1 + random.below(3)
            };
            Expr::In(one(random), (0..many).map(|_| expr(random, 0)).collect())
        }
        8 => Expr::Between(one(random), one(random), one(random)),
        9 => Expr::Like(
            one(random),
            random
                .pick(&["%", "a%", "%b", "_", "a_c", "ab", "%a%b%"])
                .to_owned(),
        ),
        10 => Expr::Conditional(one(random), one(random), one(random)),
        11 => Expr::Array((0..random.below(3)).map(|_| *one(random)).collect()),
        12 => {
            let names = NAMES.into_iter().take(random.below(4));
            Expr::Object(names.map(|name| (name.to_owned(), *one(random))).collect())
        }
        _ => called(random, depth),
    }
}

fn called(random: &mut Random, depth: usize) -> Expr {
    let (name, count) = random.pick(&[
        ("IS_DEFINED", 1),
        ("IS_NULL", 1),
        ("IS_BOOL", 1),
        ("IS_NUMBER", 1),
        ("IS_STRING", 1),
        ("IS_ARRAY", 1),
        ("IS_OBJECT", 1),
        ("IS_PRIMITIVE", 1),
        ("LOWER", 1),
        ("LENGTH", 1),
        ("REVERSE", 1),
        ("ABS", 1),
        ("FLOOR", 1),
        ("CONTAINS", 2),
        ("STARTSWITH", 2),
        ("ENDSWITH", 2),
        ("CONCAT", 2),
        ("LEFT", 2),
        ("SUBSTRING", 3),
        ("ARRAY_LENGTH", 1),
        ("ARRAY_CONTAINS", 2),
    ]);
    Expr::Call(name, (0..count).map(|_| expr(random, depth - 1)).collect())
}

/// A condition as keys and indexes are asked by.
fn condition(random: &mut Random) -> Expr {
    let path = Box::new(match random.below(4) {
        0 => Expr::Path(vec![json!("id")]),
        1 => Expr::Path(vec![json!("pk")]),
        2 => Expr::Path(vec![json!("a"), json!("b")]),
        _ => Expr::Path(vec![json!("a")]),
    });
    let literal = |random: &mut Random| Box::new(Expr::Literal(Some(scalar(random))));
    match random.below(9) {
        0..=2 => Expr::Binary(
            random.pick(&["=", "<", "<=", ">", ">=", "!="]),
            path,
            literal(random),
        ),
        3 => Expr::Binary(
            random.pick(&["=", "<", "<=", ">", ">="]),
            literal(random),
            path,
        ),
        4 => Expr::In(
            path,
            (0..1 + random.below(10))
                .map(|_| *literal(random))
                .collect(),
        ),
        5 if random.one_in(3) => {
            let values = (0..random.below(4)).map(|_| value(random, 1)).collect();
            Expr::Call("ARRAY_CONTAINS", vec![Expr::Literal(Some(values)), *path])
        }
        5 => Expr::Between(path, literal(random), literal(random)),
        6 => {
            let name = random.pick(&["STARTSWITH", "STRINGEQUALS", "CONTAINS"]);
            let mut arguments = vec![*path, Expr::Literal(Some(json!(random.pick(&STRINGS))))];
            if random.one_in(2) {
                arguments.push(Expr::Literal(Some(json!(random.one_in(2)))));
            }
            Expr::Call(name, arguments)
        }
        7 => Expr::Like(path, random.pick(&["a%", "ab_", "%a", "a"]).to_owned()),
        _ => Expr::Or((0..2).map(|_| condition(random)).collect()),
    }
}

fn filter(random: &mut Random) -> Expr {
    match random.below(3) {
        0 => expr(random, 3),
        1 => condition(random),
        _ => Expr::And(
            (0..2 + random.below(2))
                .map(|_| condition(random))
                .collect(),
        ),
    }
}

fn select(random: &mut Random) -> Select {
    let mut select = Select {
        distinct: random.one_in(3),
        top: None,
        output: Output::All,
        filter: (!random.one_in(4)).then(|| filter(random)),
        group: vec![],
        order: vec![],
        window: None,
    };
    match random.below(3) {
        0 => select.top = Some(random.below(8)),
        1 => select.window = Some((random.below(4), random.below(8))),
        _ => (),
    }
    let aggregate = |random: &mut Random| {
        let name = random.pick(&["COUNT", "SUM", "MIN", "MAX", "AVG"]);
        Expr::Aggregate(name, Box::new(expr(random, 1)))
    };
    if random.one_in(4) {
        select.group = (0..random.below(3)).map(|_| path(random)).collect();
        let mut items = vec![
            (aggregate(random), "n".to_owned()),
            (aggregate(random), "m".to_owned()),
        ];
        for (at, key) in select.group.iter().enumerate() {
            items.push((key.clone(), format!("k{at}")));
        }
        select.output = match random.one_in(3) {
            true => Output::Value(items.swap_remove(0).0),
            false => Output::List(items),
        };
        return select;
    }
    select.order = (0..random.below(3))
        .map(|_| (expr(random, 1), random.one_in(2)))
        .collect();
    select.output = match random.below(3) {
        0 => Output::All,
        1 => Output::Value(expr(random, 2)),
        _ => Output::List(
            (0..3)
                .map(|at| (expr(random, 2), format!("m{at}")))
                .collect(),
        ),
    };
    select
}

/// Whether what is said of keys admits a document's value.
fn admits(range: &ValueRange, value: Option<&Value>) -> bool {
    let json = |scalar: &Scalar| match scalar {
        Scalar::Null => json!(null),
        Scalar::Bool(value) => json!(value),
        Scalar::Number(value) => json!(value),
        Scalar::String(text) => json!(text),
    };
    let Some(value) = value else {
        return *range == ValueRange::Any;
    };
    let within = |bound: &Bound<Scalar>, lower: bool| {
        let (bound, open) = match bound {
            Bound::Unbounded => return true,
            Bound::Included(bound) => (json(bound), false),
            Bound::Excluded(bound) => (json(bound), true),
        };
        if std::mem::discriminant(&bound) != std::mem::discriminant(value) {
            return false;
        }
        let order = sorted(Some(value), Some(&bound));
        if lower {
            order.is_gt() || (order.is_eq() && !open)
        } else {
            order.is_lt() || (order.is_eq() && !open)
        }
    };
    match range {
        ValueRange::Any => true,
        ValueRange::OneOf(values) => values.iter().any(|one| same(&json(one), value)),
        ValueRange::Between(from, to) => within(from, true) && within(to, false),
        ValueRange::StartsWith(prefix) => {
            value.as_str().is_some_and(|text| text.starts_with(prefix))
        }
    }
}

fn at<'a>(document: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(document, |at, name| at.get(name))
}

fn rows(text: &str, documents: &[String]) -> Vec<Value> {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let again = Query::parse(&query.to_string()).unwrap_or_else(|error| panic!("{query}: {error}"));
    assert_eq!(again, query, "{text}");
    let query = query
        .bind(&[])
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut execution = query.start(&QueryLimits::default(), now());
    for document in documents {
        execution.push(document.as_bytes(), &NoSystem).unwrap();
    }
    let rows = execution.finish().unwrap();
    let read = |row: &String| {
        serde_json::from_str(row).unwrap_or_else(|error| panic!("{text}: {row}: {error}"))
    };
    rows.iter().map(read).collect()
}

fn check(seed: u64) {
    let random = &mut Random(seed);
    let documents: Vec<Value> = (0..random.below(12)).map(|_| document(random, 2)).collect();
    let texts: Vec<String> = documents
        .iter()
        .map(|document| {
            let mut text = String::new();
            written(document, random, &mut text);
            text
        })
        .collect();
    for _ in 0..4 {
        let select = select(random);
        let text = select.text();
        let (found, expected) = (rows(&text, &texts), select.rows(&documents));
        let equal = found.len() == expected.len()
            && found
                .iter()
                .zip(&expected)
                .all(|(one, other)| same(one, other));
        assert!(
            equal,
            "seed {seed}: {text}\n{}\nfound    {found:?}\nexpected {expected:?}",
            texts.join("\n")
        );
        narrowed(&select, &documents, seed);
    }
}

fn narrowed(select: &Select, documents: &[Value], seed: u64) {
    let text = select.text();
    let query = Query::parse(&text).unwrap().bind(&[]).unwrap();
    let condition = query.key_condition(&["/pk".to_owned(), "/a/b".to_owned()]);
    let indexed = query.indexed("/a/?").unwrap_or_default();
    for document in documents.iter().filter(|document| select.passes(document)) {
        for (range, path) in [
            (&condition.id, &["id"][..]),
            (&condition.partition[0], &["pk"]),
            (&condition.partition[1], &["a", "b"]),
            (&indexed, &["a"]),
        ] {
            assert!(
                admits(range, at(document, path)),
                "seed {seed}: {text}\n{range:?} leaves out {document}"
            );
        }
    }
}

#[test]
fn as_the_second_evaluator() {
    (0..1_500).for_each(check);
}

/// The random queries do narrow: what is checked above is not nothing.
#[test]
fn conditions_narrow() {
    let random = &mut Random(7);
    let narrowing = (0..1_000).filter(|_| {
        let text = format!("SELECT * FROM c WHERE {}", filter(random).text());
        let query = Query::parse(&text).unwrap().bind(&[]).unwrap();
        let condition = query.key_condition(&["/pk".to_owned(), "/a/b".to_owned()]);
        condition.id != ValueRange::Any
            || condition
                .partition
                .iter()
                .any(|range| *range != ValueRange::Any)
    });
    assert!(narrowing.count() > 300);
}
