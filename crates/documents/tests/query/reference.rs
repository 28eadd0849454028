//! A second evaluator, written from the rules and not from the first one: it has trees of JSON, and sorts all there is.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

/// An expression that random.rs makes; its text is what the query says.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// `None` is undefined.
    Literal(Option<Value>),
    Path(Vec<Value>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Minus(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    In(Box<Expr>, Vec<Expr>),
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    Like(Box<Expr>, String),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    Call(&'static str, Vec<Expr>),
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Aggregate(&'static str, Box<Expr>),
}

#[derive(Clone, Debug)]
pub struct Select {
    pub distinct: bool,
    pub top: Option<usize>,
    pub output: Output,
    pub filter: Option<Expr>,
    pub group: Vec<Expr>,
    pub order: Vec<(Expr, bool)>,
    pub window: Option<(usize, usize)>,
}

#[derive(Clone, Debug)]
pub enum Output {
    All,
    Value(Expr),
    List(Vec<(Expr, String)>),
}

impl Expr {
    pub fn text(&self) -> String {
        let list = |items: &[Expr]| items.iter().map(Expr::text).collect::<Vec<_>>().join(", ");
        let between = |items: &[Expr], with: &str| {
            let texts: Vec<_> = items.iter().map(Expr::text).collect();
            format!("({})", texts.join(with))
        };
        match self {
            Expr::Literal(None) => "undefined".into(),
            Expr::Literal(Some(value)) => value.to_string(),
            Expr::Path(steps) => {
                let steps: String = steps
                    .iter()
                    .map(|step| match step.as_str() {
                        Some(name) if name.len() == 1 => format!(".{name}"),
                        _ => format!("[{step}]"),
                    })
                    .collect();
                format!("c{steps}")
            }
            Expr::Binary(operator, left, right) => {
                format!("({} {operator} {})", left.text(), right.text())
            }
            Expr::Not(of) => format!("(NOT {})", of.text()),
            Expr::Minus(of) => format!("(-({}))", of.text()),
            Expr::And(items) => between(items, " AND "),
            Expr::Or(items) => between(items, " OR "),
            Expr::In(of, items) => format!("({} IN ({}))", of.text(), list(items)),
            Expr::Between(of, low, high) => {
                format!("({} BETWEEN {} AND {})", of.text(), low.text(), high.text())
            }
            Expr::Like(of, pattern) => format!("({} LIKE {})", of.text(), json!(pattern)),
            Expr::Conditional(of, then, otherwise) => {
                format!("({} ? {} : {})", of.text(), then.text(), otherwise.text())
            }
            Expr::Call(name, items) => format!("{name}({})", list(items)),
            Expr::Array(items) => format!("[{}]", list(items)),
            Expr::Object(members) => {
                let texts: Vec<_> = members
                    .iter()
                    .map(|(name, of)| format!("{}: {}", json!(name), of.text()))
                    .collect();
                format!("{{{}}}", texts.join(", "))
            }
            Expr::Aggregate(name, of) => format!("{name}({})", of.text()),
        }
    }

    /// Over one document.
    pub fn value(&self, document: &Value) -> Option<Value> {
        let truth = |of: &Expr| of.value(document).and_then(|value| value.as_bool());
        match self {
            Expr::Literal(value) => value.clone(),
            Expr::Path(steps) => {
                let mut at = document;
                for step in steps {
                    at = match (at, step) {
                        (Value::Object(members), Value::String(name)) => members.get(name)?,
                        (Value::Array(items), step) => {
                            items.get(usize::try_from(step.as_u64()?).ok()?)?
                        }
                        _ => return None,
                    };
                }
                Some(at.clone())
            }
            Expr::Binary("??", left, right) => {
                left.value(document).or_else(|| right.value(document))
            }
            Expr::Binary(operator, left, right) => {
                binary(operator, &left.value(document)?, &right.value(document)?)
            }
            Expr::Not(of) => Some(json!(!truth(of)?)),
            Expr::Minus(of) => Some(json!(-of.value(document)?.as_f64()?)),
            Expr::And(items) => {
                let truths: Vec<_> = items.iter().map(truth).collect();
                match truths.contains(&Some(false)) {
                    true => Some(json!(false)),
                    false => truths
                        .into_iter()
                        .collect::<Option<Vec<_>>>()
                        .map(|_| json!(true)),
                }
            }
            Expr::Or(items) => {
                let truths: Vec<_> = items.iter().map(truth).collect();
                match truths.contains(&Some(true)) {
                    true => Some(json!(true)),
                    false => truths
                        .into_iter()
                        .collect::<Option<Vec<_>>>()
                        .map(|_| json!(false)),
                }
            }
            Expr::In(of, items) => {
                let of = of.value(document)?;
                let found = items
                    .iter()
                    .filter_map(|item| item.value(document))
                    .any(|item| same(&item, &of));
                Some(json!(found))
            }
            Expr::Between(of, low, high) => {
                let least = Expr::Binary(">=", of.clone(), low.clone());
                let most = Expr::Binary("<=", of.clone(), high.clone());
                Expr::And(vec![least, most]).value(document)
            }
            Expr::Like(of, pattern) => {
                let text = of.value(document)?;
                Some(json!(like(text.as_str()?, pattern)))
            }
            Expr::Conditional(of, then, otherwise) => match truth(of) {
                Some(true) => then.value(document),
                _ => otherwise.value(document),
            },
            Expr::Call(name, items) => {
                let values: Vec<_> = items.iter().map(|item| item.value(document)).collect();
                call(name, &values)
            }
            Expr::Array(items) => Some(Value::Array(
                items
                    .iter()
                    .filter_map(|item| item.value(document))
                    .collect(),
            )),
            Expr::Object(members) => {
                let members = members
                    .iter()
                    .filter_map(|(name, of)| Some((name.clone(), of.value(document)?)));
                Some(Value::Object(members.collect()))
            }
            Expr::Aggregate(..) => panic!("an aggregate of one document"),
        }
    }

    /// Over all documents of a group.
    fn of_group(&self, documents: &[&Value]) -> Option<Value> {
        let Expr::Aggregate(name, of) = self else {
            return self.value(documents.first().copied().unwrap_or(&Value::Null));
        };
        let mut values: Vec<_> = documents
            .iter()
            .filter_map(|document| of.value(document))
            .collect();
        let sum = || {
            let numbers: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
            let numbers = numbers.filter(|numbers| !numbers.is_empty())?;
            Some((
                numbers.iter().fold(0.0, |sum, number| sum + number),
                numbers.len() as f64,
            ))
        };
        match *name {
            "COUNT" => Some(json!(values.len())),
            "SUM" => sum().map(|(sum, _)| json!(sum)),
            "AVG" => sum().map(|(sum, count)| json!(sum / count)),
            _ => {
                if values
                    .iter()
                    .any(|value| value.is_array() || value.is_object())
                {
                    return None;
                }
                values.sort_by(|one, other| sorted(Some(one), Some(other)));
                let chosen = if *name == "MIN" {
                    values.first()
                } else {
                    values.last()
                };
                chosen.cloned()
            }
        }
    }
}

impl Select {
    pub fn text(&self) -> String {
        let mut text = String::from("SELECT ");
        if self.distinct {
            text += "DISTINCT ";
        }
        if let Some(top) = self.top {
            text += &format!("TOP {top} ");
        }
        text += &match &self.output {
            Output::All => "*".to_owned(),
            Output::Value(of) => format!("VALUE {}", of.text()),
            Output::List(items) => {
                let texts: Vec<_> = items
                    .iter()
                    .map(|(of, name)| format!("{} AS {name}", of.text()))
                    .collect();
                texts.join(", ")
            }
        };
        text += " FROM c";
        if let Some(filter) = &self.filter {
            text += &format!(" WHERE {}", filter.text());
        }
        if !self.group.is_empty() {
            let keys: Vec<_> = self.group.iter().map(Expr::text).collect();
            text += &format!(" GROUP BY {}", keys.join(", "));
        }
        if !self.order.is_empty() {
            let key = |(of, down): &(Expr, bool)| {
                format!("{}{}", of.text(), if *down { " DESC" } else { "" })
            };
            let keys: Vec<_> = self.order.iter().map(key).collect();
            text += &format!(" ORDER BY {}", keys.join(", "));
        }
        if let Some((offset, limit)) = self.window {
            text += &format!(" OFFSET {offset} LIMIT {limit}");
        }
        text
    }

    pub fn passes(&self, document: &Value) -> bool {
        let passes = |filter: &Expr| filter.value(document) == Some(json!(true));
        self.filter.as_ref().is_none_or(passes)
    }

    pub fn rows(&self, documents: &[Value]) -> Vec<Value> {
        let mut passing: Vec<&Value> = documents
            .iter()
            .filter(|document| self.passes(document))
            .collect();
        passing.sort_by(|one, other| {
            let keys = self.order.iter().map(|(of, down)| {
                let order = sorted(of.value(one).as_ref(), of.value(other).as_ref());
                if *down { order.reverse() } else { order }
            });
            keys.fold(Ordering::Equal, Ordering::then)
        });
        let mut rows = vec![];
        for group in self.groups(passing) {
            rows.extend(self.row(&group));
        }
        if self.distinct {
            let mut kept: Vec<Value> = vec![];
            for row in rows {
                if !kept.iter().any(|known| same(known, &row)) {
                    kept.push(row);
                }
            }
            rows = kept;
        }
        let (offset, limit) = self.window.unwrap_or((0, self.top.unwrap_or(usize::MAX)));
        rows.into_iter().skip(offset).take(limit).collect()
    }

    fn groups<'a>(&self, passing: Vec<&'a Value>) -> Vec<Vec<&'a Value>> {
        if self.group.is_empty() {
            return match self.aggregates() {
                true => vec![passing],
                false => passing.into_iter().map(|document| vec![document]).collect(),
            };
        }
        let mut groups: Vec<Vec<&Value>> = vec![];
        for document in passing {
            let known = groups.iter_mut().find(|group| {
                self.group.iter().all(|key| {
                    sorted(key.value(group[0]).as_ref(), key.value(document).as_ref()).is_eq()
                })
            });
            match known {
                Some(group) => group.push(document),
                None => groups.push(vec![document]),
            }
        }
        groups
    }

    fn aggregates(&self) -> bool {
        let is_one = |of: &Expr| matches!(of, Expr::Aggregate(..));
        match &self.output {
            Output::All => false,
            Output::Value(of) => is_one(of),
            Output::List(items) => items.iter().any(|(of, _)| is_one(of)),
        }
    }

    fn row(&self, group: &[&Value]) -> Option<Value> {
        match &self.output {
            Output::All => Some(group[0].clone()),
            Output::Value(of) => of.of_group(group),
            Output::List(items) => {
                let members = items
                    .iter()
                    .filter_map(|(of, name)| Some((name.clone(), of.of_group(group)?)));
                Some(Value::Object(members.collect::<Map<_, _>>()))
            }
        }
    }
}

fn binary(operator: &str, left: &Value, right: &Value) -> Option<Value> {
    match operator {
        "=" => return Some(json!(same(left, right))),
        "!=" => return Some(json!(!same(left, right))),
        "||" => return Some(json!(format!("{}{}", left.as_str()?, right.as_str()?))),
        "<" | "<=" | ">" | ">=" => {
            let apart = left.is_array() || left.is_object() || kind(left) != kind(right);
            let order = if apart {
                None
            } else {
                Some(sorted(Some(left), Some(right)))
            }?;
            return Some(json!(match operator {
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            }));
        }
        _ => (),
    }
    let (left, right) = (left.as_f64()?, right.as_f64()?);
    let result = match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        "%" => left % right,
        "&" => f64::from(left as i32 & right as i32),
        "|" => f64::from(left as i32 | right as i32),
        _ => panic!("{operator}"),
    };
    result.is_finite().then(|| json!(result))
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

/// The order of ORDER BY.
pub fn sorted(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    let (Some(one), Some(other)) = (one, other) else {
        return one.is_some().cmp(&other.is_some());
    };
    let members = |of: &Map<String, Value>| {
        let mut members: Vec<_> = of
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        members.sort_by(|one, other| one.0.cmp(&other.0));
        members
    };
    kind(one)
        .cmp(&kind(other))
        .then_with(|| match (one, other) {
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (Value::Number(one), Value::Number(other)) => {
                one.as_f64().partial_cmp(&other.as_f64()).unwrap()
            }
            (Value::String(one), Value::String(other)) => one.as_bytes().cmp(other.as_bytes()),
            (Value::Array(one), Value::Array(other)) => {
                let pairs = one
                    .iter()
                    .zip(other)
                    .map(|(one, other)| sorted(Some(one), Some(other)));
                pairs
                    .fold(Ordering::Equal, Ordering::then)
                    .then(one.len().cmp(&other.len()))
            }
            (Value::Object(one), Value::Object(other)) => {
                let (one, other) = (members(one), members(other));
                let pairs = one.iter().zip(&other).map(|(one, other)| {
                    one.0
                        .cmp(&other.0)
                        .then_with(|| sorted(Some(&one.1), Some(&other.1)))
                });
                pairs
                    .fold(Ordering::Equal, Ordering::then)
                    .then(one.len().cmp(&other.len()))
            }
            _ => Ordering::Equal,
        })
}

pub fn same(one: &Value, other: &Value) -> bool {
    sorted(Some(one), Some(other)).is_eq()
}

fn like(text: &str, pattern: &str) -> bool {
    let (Some(first), rest) = (
        pattern.chars().next(),
        pattern.chars().skip(1).collect::<String>(),
    ) else {
        return text.is_empty();
    };
    let mut chars = text.chars();
    let next = chars.next();
    match first {
        '%' => like(text, &rest) || (next.is_some() && like(chars.as_str(), pattern)),
        '_' => next.is_some() && like(chars.as_str(), &rest),
        _ => next == Some(first) && like(chars.as_str(), &rest),
    }
}

fn call(name: &str, values: &[Option<Value>]) -> Option<Value> {
    let first = values[0].as_ref();
    let is = |of: fn(&Value) -> bool| Some(json!(first.is_some_and(of)));
    let text = || first?.as_str().map(str::to_owned);
    let number = || first?.as_f64();
    let other = |at: usize| values[at].as_ref()?.as_str().map(str::to_owned);
    let count = |at: usize| values[at].as_ref()?.as_f64();
    match name {
        "IS_DEFINED" => is(|_| true),
        "IS_NULL" => is(Value::is_null),
        "IS_BOOL" => is(Value::is_boolean),
        "IS_NUMBER" => is(Value::is_number),
        "IS_STRING" => is(Value::is_string),
        "IS_ARRAY" => is(Value::is_array),
        "IS_OBJECT" => is(Value::is_object),
        "IS_PRIMITIVE" => is(|value| !value.is_array() && !value.is_object()),
        "LOWER" => Some(json!(text()?.to_lowercase())),
        "LENGTH" => Some(json!(text()?.chars().count())),
        "REVERSE" => Some(json!(text()?.chars().rev().collect::<String>())),
        "ABS" => Some(json!(number()?.abs())),
        "FLOOR" => Some(json!(number()?.floor())),
        "CONTAINS" | "STARTSWITH" | "ENDSWITH" | "STRINGEQUALS" => {
            let (mut text, mut other) = (text()?, other(1)?);
            if values.len() > 2 && values[2].as_ref()?.as_bool()? {
                (text, other) = (text.to_lowercase(), other.to_lowercase());
            }
            Some(json!(match name {
                "CONTAINS" => text.contains(&other),
                "STARTSWITH" => text.starts_with(&other),
                "ENDSWITH" => text.ends_with(&other),
                _ => text == other,
            }))
        }
        "CONCAT" => Some(json!(text()? + &other(1)?)),
        "LEFT" => Some(json!(
            text()?
                .chars()
                .take(count(1)?.max(0.0) as usize)
                .collect::<String>()
        )),
        "SUBSTRING" => {
            let (from, len) = (count(1)?.max(0.0) as usize, count(2)?.max(0.0) as usize);
            Some(json!(
                text()?.chars().skip(from).take(len).collect::<String>()
            ))
        }
        "ARRAY_LENGTH" => Some(json!(first?.as_array()?.len())),
        "ARRAY_CONTAINS" => {
            let sought = values[1].as_ref()?;
            Some(json!(
                first?.as_array()?.iter().any(|item| same(item, sought))
            ))
        }
        _ => panic!("{name}"),
    }
}
