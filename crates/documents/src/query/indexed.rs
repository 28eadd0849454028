//! The values that indexes keep: of what documents have at their paths, read as a query reads them.

use std::borrow::Cow;

use super::ast::Step;
use super::compile::Plan;
use super::eval::Node;
use super::narrow::{self, ValueRange};
use super::scan::{Paths, Span};
use super::value::Value;
use crate::body::MemberPath;

/// The value of a document at a path.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexValue<'a> {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(Cow<'a, str>),
    Array,
    Object,
}

/// Reads what documents have at some paths.
#[derive(Debug, Default)]
pub struct PathReader {
    paths: Paths,
}

impl PathReader {
    /// `paths` are apart from each other.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p MemberPath>) -> PathReader {
        let mut reader = PathReader::default();
        for path in paths {
            reader.paths.add(&steps(path));
        }
        reader
    }

    /// Gives the value at each path, in their order. A body that is no JSON has none.
    pub fn read(&self, body: &[u8], mut each: impl FnMut(usize, IndexValue<'_>)) {
        let (text, mut spans) = (std::str::from_utf8(body).unwrap_or_default(), vec![]);
        let found: &[Span] = match self.paths.extract(text, &mut spans) {
            Some(()) => &spans,
            None => {
                spans.fill((0, 0));
                &spans
            }
        };
        for (at, (from, to)) in found.iter().enumerate() {
            each(at, kept(Value::read(&text[*from..*to])));
        }
    }
}

fn kept(value: Value<'_>) -> IndexValue<'_> {
    match value {
        Value::Undefined => IndexValue::Undefined,
        Value::Null => IndexValue::Null,
        Value::Bool(is) => IndexValue::Bool(is),
        Value::Number(number, _) => IndexValue::Number(number),
        Value::String(text) => IndexValue::String(text),
        Value::Array(_) => IndexValue::Array,
        Value::Object(_) => IndexValue::Object,
    }
}

fn steps(path: &MemberPath) -> Vec<Step> {
    path.iter().cloned().map(Step::Member).collect()
}

/// As [`BoundQuery::indexed`](super::BoundQuery::indexed) says it.
pub(super) fn condition(plan: &Plan, path: &MemberPath) -> ValueRange {
    narrow::of_path(plan, &steps(path))
}

/// The path that is the one key of ORDER BY, and whether it descends, where each document's rows could be given as it comes.
pub(super) fn order(plan: &Plan) -> Option<(MemberPath, bool)> {
    let [(Node::Slot(slot), descends)] = &plan.order[..] else {
        return None;
    };
    if !plan.reads_documents() || plan.is_grouped() || plan.distinct {
        return None;
    }
    let names = plan.paths.path(*slot).iter().map(|step| match step {
        Step::Member(name) => Some(name.clone()),
        Step::Element(_) => None,
    });
    Some((names.collect::<Option<_>>()?, *descends))
}
