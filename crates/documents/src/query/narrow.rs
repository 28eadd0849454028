//! The conditions that a filter sets for keys and indexes: it can be true of no other documents. It is still evaluated over
//! each.

use std::cmp::Ordering;
use std::ops::Bound;

use super::ast::{Binary, Step};
use super::compile::Plan;
use super::eval::{Constant, Node};
use super::function::Function;
use super::value::Tree;

/// A value that keys and indexes hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number; zero has no sign.
    Number(f64),
    /// A string, by its bytes.
    String(String),
}

/// The values that a condition can be true of.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ValueRange {
    /// All of them, and documents without one.
    #[default]
    Any,
    /// These alone.
    OneOf(Vec<Scalar>),
    /// Those between, of the type that the bounds have; at least one is bounded, and both are of one type.
    Between(Bound<Scalar>, Bound<Scalar>),
    /// Strings that begin so.
    StartsWith(String),
}

/// The condition that a filter sets for a document's key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyCondition {
    /// Of the values at the partition key's paths, in their order.
    pub partition: Vec<ValueRange>,
    /// Of `id`.
    pub id: ValueRange,
}

pub(super) fn key_condition(plan: &Plan, partition_paths: &[String]) -> KeyCondition {
    let partition = partition_paths
        .iter()
        .map(|path| of_path(plan, &steps(path)));
    KeyCondition {
        partition: partition.collect(),
        id: of_path(plan, &[Step::Member("id".to_owned())]),
    }
}

/// The steps of a path as policies have it: `/a/b`, `/"a b"/c`, `/'a b'/c`, and `/?` or `/*` behind it.
pub(super) fn steps(path: &str) -> Vec<Step> {
    let (mut steps, mut rest) = (vec![], path);
    while let Some(behind) = rest.strip_prefix('/') {
        let quote = behind
            .chars()
            .next()
            .filter(|first| matches!(first, '"' | '\''));
        let (name, next) = match quote.and_then(|quote| behind[1..].split_once(quote)) {
            Some(quoted) => quoted,
            None => behind.split_at(behind.find('/').unwrap_or(behind.len())),
        };
        if !matches!(name, "" | "?" | "*") {
            steps.push(Step::Member(name.to_owned()));
        }
        rest = next;
    }
    steps
}

/// The path as policies have it; `None` where it goes through an array.
pub(super) fn pointer(path: &[Step]) -> Option<String> {
    let names = path.iter().map(|step| match step {
        Step::Member(name) if name.contains(['/', '"']) => Some(format!("/\"{name}\"")),
        Step::Member(name) => Some(format!("/{name}")),
        Step::Element(_) => None,
    });
    names.collect()
}

pub(super) fn of_path(plan: &Plan, path: &[Step]) -> ValueRange {
    let mut found = vec![];
    if let Some(filter) = plan.filter.as_ref().filter(|_| plan.reads_documents()) {
        gather(filter, &mut |node| {
            let range = range(node).filter(|(slot, _)| plan.paths.path(*slot) == path);
            found.extend(range.map(|(_, range)| range));
        });
    }
    found.into_iter().fold(ValueRange::Any, both)
}

/// Each condition that must be true for the filter to be.
fn gather(node: &Node, each: &mut impl FnMut(&Node)) {
    match node {
        Node::And(operands) => operands.iter().for_each(|operand| gather(operand, each)),
        _ => each(node),
    }
}

/// The slot that a condition is about, and what it says of it.
fn range(node: &Node) -> Option<(usize, ValueRange)> {
    match node {
        Node::Chain(first, rest) => {
            let [(operator, second)] = &rest[..] else {
                return None;
            };
            match (&**first, second) {
                (Node::Slot(slot), Node::Constant(constant)) => {
                    Some((*slot, compared(*operator, constant)?))
                }
                (Node::Constant(constant), Node::Slot(slot)) => {
                    Some((*slot, compared(turned(*operator), constant)?))
                }
                _ => None,
            }
        }
        Node::Between(three) => {
            let [Node::Slot(slot), Node::Constant(low), Node::Constant(high)] = &**three else {
                return None;
            };
            let (low, high) = (scalar(low)?, scalar(high)?);
            order(&low, &high)?;
            let range = ValueRange::Between(Bound::Included(low), Bound::Included(high));
            Some((*slot, range))
        }
        Node::In(value, items) => {
            let items = items.iter().map(|item| match item {
                Node::Constant(constant) => scalar(constant),
                _ => None,
            });
            one_of(value, items)
        }
        Node::InSet(value, items) => one_of(value, items.iter().map(of_tree)),
        Node::Like(value, pattern) => {
            let prefix = pattern.prefix().filter(|prefix| !prefix.is_empty())?;
            Some((slot(value)?, ValueRange::StartsWith(prefix)))
        }
        Node::Call(function, arguments) => called(*function, arguments),
        Node::Or(operands) => any(operands),
        _ => None,
    }
}

fn slot(node: &Node) -> Option<usize> {
    match node {
        Node::Slot(slot) => Some(*slot),
        _ => None,
    }
}

fn one_of(
    value: &Node,
    items: impl Iterator<Item = Option<Scalar>>,
) -> Option<(usize, ValueRange)> {
    let items = items.collect::<Option<_>>()?;
    Some((slot(value)?, ValueRange::OneOf(items)))
}

/// Equalities of one path, one of which must be true.
fn any(operands: &[Node]) -> Option<(usize, ValueRange)> {
    let (mut slots, mut values) = (vec![], vec![]);
    for operand in operands {
        let (slot, ValueRange::OneOf(more)) = range(operand)? else {
            return None;
        };
        slots.push(slot);
        values.extend(more);
    }
    let one_slot = slots.windows(2).all(|pair| pair[0] == pair[1]);
    one_slot.then_some((slots[0], ValueRange::OneOf(values)))
}

fn called(function: Function, arguments: &[Node]) -> Option<(usize, ValueRange)> {
    let [
        Node::Slot(slot),
        Node::Constant(Constant::String(text)),
        rest @ ..,
    ] = arguments
    else {
        return None;
    };
    // Where case does not count, the strings are many.
    if !matches!(rest, [] | [Node::Constant(Constant::Bool(false))]) {
        return None;
    }
    let range = match function {
        Function::StartsWith => ValueRange::StartsWith(text.clone()),
        Function::StringEquals => ValueRange::OneOf(vec![Scalar::String(text.clone())]),
        _ => return None,
    };
    Some((*slot, range))
}

fn compared(operator: Binary, constant: &Constant) -> Option<ValueRange> {
    let value = scalar(constant)?;
    let (from, to) = match operator {
        Binary::Equal => return Some(ValueRange::OneOf(vec![value])),
        Binary::Less => (Bound::Unbounded, Bound::Excluded(value)),
        Binary::LessOrEqual => (Bound::Unbounded, Bound::Included(value)),
        Binary::Greater => (Bound::Excluded(value), Bound::Unbounded),
        Binary::GreaterOrEqual => (Bound::Included(value), Bound::Unbounded),
        _ => return None,
    };
    Some(ValueRange::Between(from, to))
}

/// The operator with its operands exchanged.
fn turned(operator: Binary) -> Binary {
    match operator {
        Binary::Less => Binary::Greater,
        Binary::LessOrEqual => Binary::GreaterOrEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterOrEqual => Binary::LessOrEqual,
        _ => operator,
    }
}

fn scalar(constant: &Constant) -> Option<Scalar> {
    of_tree(&constant.value().tree()?)
}

fn of_tree(tree: &Tree) -> Option<Scalar> {
    Some(match tree {
        Tree::Null => Scalar::Null,
        Tree::Bool(value) => Scalar::Bool(*value),
        Tree::Number(value) => Scalar::Number(value.get()),
        Tree::String(text) => Scalar::String(text.to_string()),
        Tree::Array(_) | Tree::Object(_) => return None,
    })
}

/// Of two values of one type.
fn order(one: &Scalar, other: &Scalar) -> Option<Ordering> {
    match (one, other) {
        (Scalar::Null, Scalar::Null) => Some(Ordering::Equal),
        (Scalar::Bool(one), Scalar::Bool(other)) => Some(one.cmp(other)),
        (Scalar::Number(one), Scalar::Number(other)) => one.partial_cmp(other),
        (Scalar::String(one), Scalar::String(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

/// The range of two conditions together, or as much of it as one range can.
fn both(one: ValueRange, other: ValueRange) -> ValueRange {
    match (one, other) {
        (ValueRange::Any, range) | (range, ValueRange::Any) => range,
        (ValueRange::OneOf(one), ValueRange::OneOf(other)) => ValueRange::OneOf(
            one.into_iter()
                .filter(|value| other.contains(value))
                .collect(),
        ),
        (few @ ValueRange::OneOf(_), _) | (_, few @ ValueRange::OneOf(_)) => few,
        (prefix @ ValueRange::StartsWith(_), _) | (_, prefix @ ValueRange::StartsWith(_)) => prefix,
        (ValueRange::Between(from, to), ValueRange::Between(other_from, other_to)) => {
            let known = value(&from).or(value(&to));
            let other = value(&other_from).or(value(&other_to));
            match known
                .zip(other)
                .and_then(|(known, other)| order(known, other))
            {
                // Of two types: the first one's is as good as the other's.
                None => ValueRange::Between(from, to),
                Some(_) => ValueRange::Between(
                    tighter(from, other_from, Ordering::Greater),
                    tighter(to, other_to, Ordering::Less),
                ),
            }
        }
    }
}

fn value(bound: &Bound<Scalar>) -> Option<&Scalar> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
}

/// The bound on the wanted side of the other. Of one value both bounds may be right, and the first is as good.
fn tighter(one: Bound<Scalar>, other: Bound<Scalar>, wanted: Ordering) -> Bound<Scalar> {
    match (value(&one), value(&other)) {
        (_, None) => one,
        (None, Some(_)) => other,
        (Some(known), Some(new)) if order(new, known) == Some(wanted) => other,
        _ => one,
    }
}
