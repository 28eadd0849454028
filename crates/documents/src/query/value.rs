//! The values that expressions have, how they compare, and their text.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::escape;
use super::scan::Scanner;

/// Arrays and objects stay text, of which nothing is read before it is asked for.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Undefined,
    Null,
    Bool(bool),
    /// With the text that it has in the document or the query.
    Number(f64, Option<&'a str>),
    String(Cow<'a, str>),
    Array(Cow<'a, str>),
    Object(Cow<'a, str>),
}

impl<'a> Value<'a> {
    /// Reads a value of JSON; what is none is undefined.
    pub(super) fn read(text: &'a str) -> Self {
        let whole = Cow::Borrowed(text);
        match text.as_bytes().first() {
            Some(b'"') => {
                let inner = text.get(1..text.len() - 1).unwrap_or_default();
                escape::read(inner, false).map_or(Self::Undefined, Self::String)
            }
            Some(b'[') => Self::Array(whole),
            Some(b'{') => Self::Object(whole),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'n') => Self::Null,
            Some(b'-' | b'0'..=b'9') => match number(text) {
                Some(value) => Self::Number(value, Some(text)),
                None => Self::Undefined,
            },
            _ => Self::Undefined,
        }
    }

    /// A number that was computed: JSON has no text for one that is not finite.
    pub(super) fn number(value: f64) -> Self {
        match value.is_finite() {
            true => Self::Number(value, None),
            false => Self::Undefined,
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined)
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(value, _) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// `=`: undefined where either is; values of different types are not equal.
    pub(super) fn equal(&self, other: &Self) -> Option<bool> {
        Some(match (self, other) {
            (Self::Undefined, _) | (_, Self::Undefined) => return None,
            (Self::Array(one), Self::Array(other)) | (Self::Object(one), Self::Object(other)) => {
                one == other || Tree::parse(one) == Tree::parse(other)
            }
            _ => self.compare(other) == Some(Ordering::Equal),
        })
    }

    /// `<` and its like: of two nulls, booleans, numbers or strings; all else is undefined.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Null, Self::Null) => Some(Ordering::Equal),
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Number(one, _), Self::Number(other, _)) => one.partial_cmp(other),
            (Self::String(one), Self::String(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }

    /// The value apart from its text: `None` is undefined, which is less than all others.
    pub(super) fn tree(&self) -> Option<Tree> {
        Some(match self {
            Self::Undefined => return None,
            Self::Null => Tree::Null,
            Self::Bool(value) => Tree::Bool(*value),
            Self::Number(value, _) => Tree::Number(Number::new(*value)),
            Self::String(text) => Tree::String(text.as_ref().into()),
            Self::Array(text) | Self::Object(text) => return Tree::parse(text),
        })
    }

    /// Appends the value as JSON; nothing where it is undefined.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Undefined => (),
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(_, Some(text)) => out.push_str(text),
            Self::Number(value, None) => out.push_str(&number_text(*value)),
            Self::String(text) => escape::write(text, out),
            Self::Array(text) | Self::Object(text) => out.push_str(text),
        }
    }
}

/// Up to here each integer has a double of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The text of a finite number: an integer has no point.
pub(super) fn number_text(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return (value as i64).to_string();
    }
    // As JavaScript writes them.
    match (1e-6..1e21).contains(&value.abs()) {
        true => format!("{value}"),
        false => format!("{value:e}"),
    }
}

/// Short integers, which most numbers are, need no general parser.
fn number(text: &str) -> Option<f64> {
    let digits = text.as_bytes();
    if digits.len() <= 15 && digits.iter().all(u8::is_ascii_digit) {
        let value = digits
            .iter()
            .fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'));
        return Some(value as f64);
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A value as it sorts, groups and equals, in the order of types: numbers by value and not by text, objects by their
/// members whatever order these have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    String(Box<str>),
    Array(Vec<Tree>),
    Object(Vec<(Box<str>, Tree)>),
}

/// No stored document nests deeper by far.
const MAX_TREE_DEPTH: usize = 300;

impl Tree {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::nested(&mut Scanner::new(text), 0)
    }

    fn nested(scanner: &mut Scanner<'_>, depth: usize) -> Option<Self> {
        if depth == MAX_TREE_DEPTH {
            return None;
        }
        scanner.skip_blanks();
        match scanner.peek()? {
            b'[' => {
                let (mut more, mut elements) = (scanner.open(b']'), vec![]);
                while more {
                    elements.push(Self::nested(scanner, depth + 1)?);
                    more = scanner.more(b']')?;
                }
                Some(Self::Array(elements))
            }
            b'{' => {
                let (mut more, mut members) = (scanner.open(b'}'), vec![]);
                while more {
                    let name = escape::read(scanner.name()?.text, false)?;
                    members.push((name.into(), Self::nested(scanner, depth + 1)?));
                    more = scanner.more(b'}')?;
                }
                Some(Self::Object(sorted(members)))
            }
            _ => Value::read(scanner.value()?).tree(),
        }
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let own = size_of::<Self>();
        match self {
            Self::String(text) => own + text.len(),
            Self::Array(elements) => own + elements.iter().map(Self::bytes).sum::<usize>(),
            Self::Object(members) => {
                let one = |(name, value): &(Box<str>, Self)| name.len() + 16 + value.bytes();
                own + members.iter().map(one).sum::<usize>()
            }
            _ => own,
        }
    }
}

/// By name; of those with one name the last stays.
fn sorted(mut members: Vec<(Box<str>, Tree)>) -> Vec<(Box<str>, Tree)> {
    members.reverse();
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members.dedup_by(|(later, _), (kept, _)| later == kept);
    members
}

/// A finite number, of which there is one zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(f64);

impl Number {
    pub(super) fn new(value: f64) -> Self {
        Self(value + 0.0)
    }

    pub(super) fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}
