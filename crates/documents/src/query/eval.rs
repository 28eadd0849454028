//! Expressions as they are evaluated: names are slots, parameters are values, what is constant is computed already.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::time::SystemTime;

use super::ast::Binary;
use super::function::Function;
use super::like::Pattern;
use super::scan::{self, Span};
use super::value::{Tree, Value};
use super::{System, call, escape};

/// No value that a query makes is longer: two of the longest documents, four times.
pub(super) const MAX_VALUE_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) enum Node {
    Constant(Constant),
    Slot(usize),
    /// The source itself.
    Whole,
    System(Property),
    /// The value of a key of GROUP BY, and of an aggregate.
    Group(usize),
    Result(usize),
    Index(Box<Node>, Vec<Node>),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
    Not(Box<Node>),
    Number(fn(f64) -> f64, Box<Node>),
    Chain(Box<Node>, Vec<(Binary, Node)>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Between(Box<[Node; 3]>),
    In(Box<Node>, Vec<Node>),
    /// Of constants that are many, or an array.
    InSet(Box<Node>, HashSet<Tree>),
    Like(Box<Node>, Pattern),
    Conditional(Box<[Node; 3]>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constant {
    Undefined,
    Null,
    Bool(bool),
    Number(f64, String),
    String(String),
    /// An array or an object.
    Nested(String),
}

/// A property that a document has beside its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    Rid,
    SelfLink,
    Etag,
    Attachments,
    Ts,
}

/// The document, or the group of them, that an expression is evaluated over.
pub(super) struct Row<'a> {
    pub text: &'a str,
    pub slots: &'a [Span],
    /// Where the text is a whole document.
    pub system: Option<&'a dyn System>,
    pub groups: &'a [Option<String>],
    pub results: &'a [Option<String>],
    pub now: SystemTime,
    whole: OnceCell<String>,
    too_long: Cell<bool>,
}

impl<'a> Row<'a> {
    pub(super) fn new(text: &'a str, slots: &'a [Span], now: SystemTime) -> Self {
        Self {
            text,
            slots,
            system: None,
            groups: &[],
            results: &[],
            now,
            whole: OnceCell::new(),
            too_long: Cell::new(false),
        }
    }

    /// The text with the system's properties.
    pub(super) fn whole(&self) -> &str {
        match self.system {
            Some(system) => self.whole.get_or_init(|| system.append_to(self.text)),
            None => self.text,
        }
    }

    pub(super) fn to_whole(&self) -> String {
        match self.system {
            Some(system) => system.append_to(self.text),
            None => self.text.to_owned(),
        }
    }

    /// Whether a value was too long to be made. What was evaluated is then not to be used.
    pub(super) fn is_too_long(&self) -> bool {
        self.too_long.get()
    }

    /// Whether something of this length may be made.
    pub(super) fn admits(&self, len: usize) -> bool {
        let admitted = len <= MAX_VALUE_BYTES;
        if !admitted {
            self.too_long.set(true);
        }
        admitted
    }
}

impl Constant {
    pub(super) fn of(value: &Value<'_>) -> Self {
        match value {
            Value::Undefined => Self::Undefined,
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number, _) => {
                let mut text = String::new();
                value.write(&mut text);
                Self::Number(*number, text)
            }
            Value::String(text) => Self::String(text.to_string()),
            Value::Array(text) | Value::Object(text) => Self::Nested(text.to_string()),
        }
    }

    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Undefined => Value::Undefined,
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(value, text) => Value::Number(*value, Some(text)),
            Self::String(text) => Value::String(Cow::Borrowed(text)),
            Self::Nested(text) => Value::read(text),
        }
    }
}

impl Node {
    pub(super) fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_))
    }

    pub(super) fn value<'a>(&'a self, row: &'a Row<'a>) -> Value<'a> {
        match self {
            Self::Constant(constant) => constant.value(),
            Self::Slot(slot) => slot_text(*slot, row).map_or(Value::Undefined, Value::read),
            Self::Whole => Value::read(row.whole()),
            Self::System(property) => row
                .system
                .map_or(Value::Undefined, |of| of.value(*property)),
            Self::Group(at) => known(&row.groups[*at]),
            Self::Result(at) => known(&row.results[*at]),
            Self::Index(base, steps) => index(base.value(row), steps, row),
            Self::Array(elements) => array(elements, row),
            Self::Object(members) => object(members, row),
            Self::Not(of) => of
                .value(row)
                .as_bool()
                .map_or(Value::Undefined, |is| Value::Bool(!is)),
            Self::Number(of, operand) => {
                let operand = operand.value(row).as_number();
                operand.map_or(Value::Undefined, |operand| Value::number(of(operand)))
            }
            Self::Chain(first, rest) => chain(first.value(row), rest, row),
            Self::And(operands) => logic(operands, row, false),
            Self::Or(operands) => logic(operands, row, true),
            Self::Between(three) => between(three, row),
            Self::In(value, items) => is_in(&value.value(row), items, row),
            Self::InSet(value, items) => {
                let tree = value.value(row).tree();
                tree.map_or(Value::Undefined, |tree| Value::Bool(items.contains(&tree)))
            }
            Self::Like(value, pattern) => match value.value(row) {
                Value::String(text) => truth(pattern.matches(&text, row)),
                _ => Value::Undefined,
            },
            Self::Conditional(three) => match three[0].value(row) {
                Value::Bool(true) => three[1].value(row),
                _ => three[2].value(row),
            },
            Self::Call(function, arguments) => call::call(*function, arguments, row),
        }
    }

    /// Appends the value's JSON, as the document has it where it comes from there; nothing where it is undefined.
    pub(super) fn write(&self, row: &Row<'_>, out: &mut String) {
        match self {
            Self::Slot(slot) => out.push_str(slot_text(*slot, row).unwrap_or_default()),
            Self::Whole => out.push_str(row.whole()),
            _ => self.value(row).write(out),
        }
    }
}

fn slot_text<'a>(slot: usize, row: &Row<'a>) -> Option<&'a str> {
    let (start, end) = row.slots[slot];
    (start < end).then(|| &row.text[start..end])
}

fn known(text: &Option<String>) -> Value<'_> {
    text.as_deref().map_or(Value::Undefined, Value::read)
}

pub(super) fn truth(value: Option<bool>) -> Value<'static> {
    value.map_or(Value::Undefined, Value::Bool)
}

fn index<'a>(base: Value<'a>, steps: &'a [Node], row: &'a Row<'a>) -> Value<'a> {
    steps
        .iter()
        .fold(base, |base, step| match (base, step.value(row)) {
            (Value::Object(Cow::Borrowed(text)), Value::String(name)) => {
                scan::member(text, &name).map_or(Value::Undefined, Value::read)
            }
            (Value::Object(Cow::Owned(text)), Value::String(name)) => {
                owned(scan::member(&text, &name))
            }
            (Value::Array(text), Value::Number(at, _)) if at >= 0.0 && at.fract() == 0.0 => {
                match text {
                    Cow::Borrowed(text) => {
                        let element = scan::elements(text).nth(at as usize);
                        element.map_or(Value::Undefined, Value::read)
                    }
                    Cow::Owned(text) => owned(scan::elements(&text).nth(at as usize)),
                }
            }
            _ => Value::Undefined,
        })
}

fn owned(text: Option<&str>) -> Value<'static> {
    match text.map_or(Value::Undefined, Value::read) {
        Value::Undefined => Value::Undefined,
        Value::Null => Value::Null,
        Value::Bool(value) => Value::Bool(value),
        Value::Number(value, _) => Value::Number(value, None),
        Value::String(text) => Value::String(Cow::Owned(text.into_owned())),
        Value::Array(text) => Value::Array(Cow::Owned(text.into_owned())),
        Value::Object(text) => Value::Object(Cow::Owned(text.into_owned())),
    }
}

/// Elements that are undefined are left out.
fn array<'a>(elements: &'a [Node], row: &'a Row<'a>) -> Value<'a> {
    let mut out = String::from("[");
    for element in elements {
        let before = out.len();
        if before > 1 {
            out.push(',');
        }
        let value_at = out.len();
        element.write(row, &mut out);
        if out.len() == value_at {
            out.truncate(before);
        }
        if !row.admits(out.len()) {
            return Value::Undefined;
        }
    }
    out.push(']');
    Value::Array(Cow::Owned(out))
}

fn object<'a>(members: &'a [(String, Node)], row: &'a Row<'a>) -> Value<'a> {
    match object_text(members, row) {
        Some(text) => Value::Object(Cow::Owned(text)),
        None => Value::Undefined,
    }
}

/// The text of an object without the members that are undefined; `None` where it is too long.
pub(super) fn object_text(members: &[(String, Node)], row: &Row<'_>) -> Option<String> {
    let mut out = String::from("{");
    for (name, member) in members {
        let before = out.len();
        if before > 1 {
            out.push(',');
        }
        escape::write(name, &mut out);
        out.push(':');
        let value_at = out.len();
        member.write(row, &mut out);
        if out.len() == value_at {
            out.truncate(before);
        }
        if !row.admits(out.len()) {
            return None;
        }
    }
    out.push('}');
    Some(out)
}

/// AND and OR of three truth values: one operand of the value that decides is enough, and what is no boolean is
/// undefined.
fn logic<'a>(operands: &'a [Node], row: &'a Row<'a>, deciding: bool) -> Value<'a> {
    let mut known = true;
    for operand in operands {
        match operand.value(row).as_bool() {
            Some(value) if value == deciding => return Value::Bool(deciding),
            Some(_) => (),
            None => known = false,
        }
    }
    truth(known.then_some(!deciding))
}

/// As of `low <= value AND value <= high`.
fn between<'a>(three: &'a [Node; 3], row: &'a Row<'a>) -> Value<'a> {
    let value = three[0].value(row);
    let above = value.compare(&three[1].value(row)).map(Ordering::is_ge);
    let below = value.compare(&three[2].value(row)).map(Ordering::is_le);
    truth(match (above, below) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    })
}

fn is_in<'a>(value: &Value<'a>, items: &'a [Node], row: &'a Row<'a>) -> Value<'a> {
    if value.is_undefined() {
        return Value::Undefined;
    }
    let mut items = items.iter();
    Value::Bool(items.any(|item| value.equal(&item.value(row)) == Some(true)))
}

fn chain<'a>(first: Value<'a>, rest: &'a [(Binary, Node)], row: &'a Row<'a>) -> Value<'a> {
    let mut left = first;
    for (operator, operand) in rest {
        // Either the left operand decides, or it is undefined and so is the rest.
        if left.is_undefined() != (*operator == Binary::Coalesce) {
            break;
        }
        let right = operand.value(row);
        left = match operator {
            Binary::Coalesce => right,
            _ => binary(*operator, left, right, row),
        };
    }
    left
}

fn binary<'a>(operator: Binary, left: Value<'a>, right: Value<'a>, row: &Row<'_>) -> Value<'a> {
    let order = || left.compare(&right);
    match operator {
        Binary::Equal => truth(left.equal(&right)),
        Binary::NotEqual => truth(left.equal(&right).map(|equal| !equal)),
        Binary::Less => truth(order().map(Ordering::is_lt)),
        Binary::LessOrEqual => truth(order().map(Ordering::is_le)),
        Binary::Greater => truth(order().map(Ordering::is_gt)),
        Binary::GreaterOrEqual => truth(order().map(Ordering::is_ge)),
        Binary::Concat => match (left, right) {
            (Value::String(left), Value::String(right)) if row.admits(left.len() + right.len()) => {
                Value::String(left + right)
            }
            _ => Value::Undefined,
        },
        _ => match (left, right) {
            (Value::Number(left, _), Value::Number(right, _)) => {
                Value::number(arithmetic(operator, left, right))
            }
            _ => Value::Undefined,
        },
    }
}

fn arithmetic(operator: Binary, left: f64, right: f64) -> f64 {
    let bits = |of: fn(i32, i32) -> i32| f64::from(of(int32(left), int32(right)));
    match operator {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::Divide => left / right,
        Binary::Remainder => left % right,
        Binary::BitAnd => bits(|left, right| left & right),
        Binary::BitOr => bits(|left, right| left | right),
        Binary::BitXor => bits(|left, right| left ^ right),
        Binary::ShiftLeft => bits(|left, right| left.wrapping_shl(right as u32)),
        Binary::ShiftRight => bits(|left, right| left.wrapping_shr(right as u32)),
        Binary::ShiftRightUnsigned => {
            f64::from((int32(left) as u32).wrapping_shr(int32(right) as u32))
        }
        _ => f64::NAN,
    }
}

/// The low 32 bits of a number's integer part, as JavaScript takes them.
pub(super) fn int32(value: f64) -> i32 {
    const TWO_TO_32: f64 = 4_294_967_296.0;
    (value.trunc() % TWO_TO_32) as i64 as i32
}
