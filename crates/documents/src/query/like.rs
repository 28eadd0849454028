//! Patterns of LIKE: `%` is any text, `_` any character, `[a-f]` and `[^a-f]` one of these or one that is none of them.

use super::eval::{Node, Row};
use super::value::Value;

/// A pattern that is known before any document is, or is computed for each.
#[derive(Debug)]
pub(super) enum Pattern {
    Fixed(Vec<Part>),
    Of(Box<Node>, Option<char>),
}

#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Text,
    One,
    Char(char),
    /// Of these ranges, or of none of them.
    Of(Vec<(char, char)>, bool),
}

/// The steps that comparing may take: characters of the text times parts of the pattern, about.
const MAX_STEPS: u64 = 20_000_000;

impl Pattern {
    /// Undefined where the pattern is no string.
    pub(super) fn matches(&self, text: &str, row: &Row<'_>) -> Option<bool> {
        match self {
            Self::Fixed(parts) => matches(parts, text),
            Self::Of(node, escape) => match node.value(row) {
                Value::String(pattern) => matches(&parts(&pattern, *escape), text),
                _ => None,
            },
        }
    }

    /// The text that every match begins with.
    pub(super) fn prefix(&self) -> Option<String> {
        let Self::Fixed(parts) = self else {
            return None;
        };
        let chars = parts.iter().map_while(|part| match part {
            Part::Char(char) => Some(*char),
            _ => None,
        });
        Some(chars.collect())
    }
}

pub(super) fn parts(pattern: &str, escape: Option<char>) -> Vec<Part> {
    let (mut parts, mut rest) = (vec![], pattern.chars());
    // Where one set has no end, none behind it has.
    let mut sets = true;
    while let Some(char) = rest.next() {
        let part = if Some(char) == escape {
            Part::Char(rest.next().unwrap_or(char))
        } else {
            match char {
                '%' if parts.last() == Some(&Part::Text) => continue,
                '%' => Part::Text,
                '_' => Part::One,
                '[' if sets => match set(rest.as_str()) {
                    Some((set, behind)) => {
                        rest = behind.chars();
                        set
                    }
                    None => {
                        sets = false;
                        Part::Char('[')
                    }
                },
                _ => Part::Char(char),
            }
        };
        parts.push(part);
    }
    parts
}

/// A set, behind its bracket, and the pattern behind it.
fn set(text: &str) -> Option<(Part, &str)> {
    let (inner, negated) = match text.strip_prefix('^') {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    // A bracket that closes is of the set where it comes first.
    let first = inner.chars().next()?.len_utf8();
    let end = first + inner[first..].find(']')?;
    let mut ranges = vec![];
    let mut chars = inner[..end].chars();
    while let Some(from) = chars.next() {
        let mut ahead = chars.clone();
        let to = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(to)) => {
                chars = ahead;
                to
            }
            _ => from,
        };
        ranges.push((from, to));
    }
    Some((Part::Of(ranges, negated), &inner[end + 1..]))
}

/// Each `%` takes as little as can be, and more where the rest fails; the last one that failed is enough to go back to.
fn matches(parts: &[Part], text: &str) -> Option<bool> {
    let mut steps = 0;
    let (mut part, mut rest) = (0, text);
    let mut again: Option<(usize, &str)> = None;
    loop {
        steps += match parts.get(part) {
            Some(Part::Of(ranges, _)) => ranges.len() as u64,
            _ => 1,
        };
        if steps > MAX_STEPS {
            return None;
        }
        let next = rest.chars().next();
        match (parts.get(part), next) {
            (Some(Part::Text), _) => {
                again = Some((part, rest));
                part += 1;
                continue;
            }
            (Some(one), Some(char)) if fits(one, char) => {
                part += 1;
                rest = &rest[char.len_utf8()..];
                continue;
            }
            (None, None) => return Some(true),
            _ => (),
        }
        let Some((text_at, from)) = again else {
            return Some(false);
        };
        let Some(char) = from.chars().next() else {
            return Some(false);
        };
        rest = &from[char.len_utf8()..];
        again = Some((text_at, rest));
        part = text_at + 1;
    }
}

fn fits(part: &Part, char: char) -> bool {
    match part {
        Part::Text => false,
        Part::One => true,
        Part::Char(is) => *is == char,
        Part::Of(ranges, negated) => {
            let among = ranges
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&char));
            among != *negated
        }
    }
}
