//! The functions. An argument of a type that a function does not take makes it undefined.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use super::eval::{Node, Row, truth};
use super::function::Function;
use super::value::Value;
use super::{escape, scan};

pub(super) fn call<'a>(function: Function, arguments: &'a [Node], row: &'a Row<'a>) -> Value<'a> {
    use Function as F;
    let value = |at: usize| arguments.get(at).map(|argument| argument.value(row));
    let first = || value(0).unwrap_or(Value::Undefined);
    let known = match function {
        F::IsDefined => Some(Value::Bool(!first().is_undefined())),
        F::IsNull => Some(Value::Bool(matches!(first(), Value::Null))),
        F::IsBool => Some(Value::Bool(matches!(first(), Value::Bool(_)))),
        F::IsNumber | F::IsFiniteNumber => Some(Value::Bool(first().as_number().is_some())),
        F::IsInteger => {
            let whole = |number: f64| number.fract() == 0.0 && number.abs() < 9.3e18;
            Some(Value::Bool(first().as_number().is_some_and(whole)))
        }
        F::IsString => Some(Value::Bool(matches!(first(), Value::String(_)))),
        F::IsArray => Some(Value::Bool(matches!(first(), Value::Array(_)))),
        F::IsObject => Some(Value::Bool(matches!(first(), Value::Object(_)))),
        F::IsPrimitive => {
            let of_parts = matches!(
                first(),
                Value::Undefined | Value::Array(_) | Value::Object(_)
            );
            Some(Value::Bool(!of_parts))
        }
        F::If => match first() {
            Value::Bool(true) => value(1),
            _ => value(2),
        },
        F::Concat => concat(arguments, row),
        F::ArrayConcat => array_concat(arguments, row),
        F::ArrayContains => {
            let sought = value(1).unwrap_or(Value::Undefined);
            array_contains(&first(), &sought, value(2)).map(Value::Bool)
        }
        F::ArrayLength => array(&first()).map(|text| number(scan::elements(text).count() as f64)),
        F::ArraySlice => array_slice(first(), value(1), value(2)),
        F::ToString => to_string(first()),
        F::CurrentTimestamp => Some(number((ticks(row.now) / 10_000) as f64)),
        F::CurrentTicks => Some(number((ticks(row.now) + TICKS_BEFORE_1970) as f64)),
        F::CurrentDateTime => Some(string(date_time(ticks(row.now)))),
        _ => match first() {
            Value::String(text) => of_string(function, text, value(1), value(2), row),
            Value::Number(one, _) => of_number(function, one, value(1)).map(Value::number),
            _ => (function == F::Pi).then_some(number(std::f64::consts::PI)),
        },
    };
    known.unwrap_or(Value::Undefined)
}

fn number(value: f64) -> Value<'static> {
    Value::number(value)
}

fn string(text: String) -> Value<'static> {
    Value::String(Cow::Owned(text))
}

fn of_number(function: Function, one: f64, second: Option<Value<'_>>) -> Option<f64> {
    use Function as F;
    let second = second.map(|second| second.as_number());
    Some(match (function, second) {
        (F::Abs, _) => one.abs(),
        (F::Ceiling, _) => one.ceil(),
        (F::Floor, _) => one.floor(),
        (F::Round, _) => one.round(),
        (F::Truncate, _) => one.trunc(),
        (F::Sign, _) if one == 0.0 => 0.0,
        (F::Sign, _) => one.signum(),
        (F::SquareRoot, _) => one.sqrt(),
        (F::Square, _) => one * one,
        (F::Power, Some(exponent)) => one.powf(exponent?),
        (F::Exp, _) => one.exp(),
        (F::Log, None) => one.ln(),
        (F::Log, Some(base)) => one.ln() / base?.ln(),
        (F::Log10, _) => one.log10(),
        (F::Sin, _) => one.sin(),
        (F::Cos, _) => one.cos(),
        (F::Tan, _) => one.tan(),
        (F::Cot, _) => one.tan().recip(),
        (F::Asin, _) => one.asin(),
        (F::Acos, _) => one.acos(),
        (F::Atan, _) => one.atan(),
        (F::Atan2, Some(other)) => one.atan2(other?),
        (F::Degrees, _) => one.to_degrees(),
        (F::Radians, _) => one.to_radians(),
        _ => return None,
    })
}

fn of_string<'a>(
    function: Function,
    text: Cow<'a, str>,
    second: Option<Value<'a>>,
    third: Option<Value<'a>>,
    row: &Row<'_>,
) -> Option<Value<'a>> {
    use Function as F;
    if let Some(changed) = changed(function, &text) {
        return Some(changed);
    }
    Some(match (function, second?) {
        (F::Contains | F::StartsWith | F::EndsWith | F::StringEquals, Value::String(other)) => {
            let folds = match third {
                None => false,
                Some(third) => third.as_bool()?,
            };
            truth(Some(match folds {
                true => finds(function, &text.to_lowercase(), &other.to_lowercase()),
                false => finds(function, &text, &other),
            }))
        }
        (F::IndexOf, Value::String(other)) => {
            let from = match third {
                None => 0.0,
                Some(third) => third.as_number()?,
            };
            number(index_of(&text, &other, from))
        }
        (F::Replace, Value::String(other)) => {
            let with = third?;
            string(replace(&text, &other, with.as_str()?, row)?)
        }
        (F::Replicate, Value::Number(times, _)) => {
            let len = text.len() as f64 * times;
            if times < 0.0 || len > 10_000.0 {
                return None;
            }
            string(text.repeat(times as usize))
        }
        (F::Left, Value::Number(len, _)) => part(text, 0.0, len),
        (F::Right, Value::Number(len, _)) => {
            let chars = text.chars().count() as f64;
            part(text, chars - len.max(0.0), chars)
        }
        (F::Substring, Value::Number(from, _)) => {
            let len = match third {
                None => f64::MAX,
                Some(third) => third.as_number()?,
            };
            part(text, from, len)
        }
        _ => return None,
    })
}

/// Functions that take a string alone.
fn changed<'a>(function: Function, text: &Cow<'a, str>) -> Option<Value<'a>> {
    use Function as F;
    let cut = |of: for<'t> fn(&'t str) -> &'t str| match text {
        Cow::Borrowed(text) => Value::String(Cow::Borrowed(of(text))),
        Cow::Owned(text) => string(of(text).to_owned()),
    };
    let read = |text: &str| match Value::read(text) {
        Value::Number(value, _) => number(value),
        Value::Bool(value) if text == "true" || text == "false" => Value::Bool(value),
        Value::Null if text == "null" => Value::Null,
        _ => Value::Undefined,
    };
    let trimmed = read(text.trim());
    Some(match function {
        F::Lower => string(text.to_lowercase()),
        F::Upper => string(text.to_uppercase()),
        F::Length => number(text.chars().count() as f64),
        F::Reverse => string(text.chars().rev().collect()),
        F::Trim => cut(str::trim),
        F::TrimLeft => cut(str::trim_start),
        F::TrimRight => cut(str::trim_end),
        F::StringToNumber if matches!(trimmed, Value::Number(..)) => trimmed,
        F::StringToBoolean if matches!(trimmed, Value::Bool(_)) => trimmed,
        F::StringToNull if matches!(trimmed, Value::Null) => trimmed,
        _ => return None,
    })
}

fn finds(function: Function, text: &str, other: &str) -> bool {
    match function {
        Function::Contains => text.contains(other),
        Function::StartsWith => text.starts_with(other),
        Function::EndsWith => text.ends_with(other),
        _ => text == other,
    }
}

/// Positions are in characters.
fn index_of(text: &str, other: &str, from: f64) -> f64 {
    if from < 0.0 {
        return -1.0;
    }
    let mut chars = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let Some(start) = chars.nth(from as usize) else {
        return -1.0;
    };
    let found = text[start..].find(other);
    found.map_or(-1.0, |found| text[..start + found].chars().count() as f64)
}

fn replace(text: &str, other: &str, with: &str, row: &Row<'_>) -> Option<String> {
    if other.is_empty() {
        return None;
    }
    let count = text.matches(other).count();
    let longer = with.len().saturating_sub(other.len()).saturating_mul(count);
    row.admits(text.len().saturating_add(longer))
        .then(|| text.replace(other, with))
}

fn part<'a>(text: Cow<'a, str>, from: f64, len: f64) -> Value<'a> {
    let (from, len) = (from.max(0.0) as usize, len.max(0.0) as usize);
    let start = text
        .char_indices()
        .nth(from)
        .map_or(text.len(), |(at, _)| at);
    let end = text[start..]
        .char_indices()
        .nth(len)
        .map_or(text.len(), |(at, _)| start + at);
    match text {
        Cow::Borrowed(text) => Value::String(Cow::Borrowed(&text[start..end])),
        Cow::Owned(text) => string(text[start..end].to_owned()),
    }
}

fn concat<'a>(arguments: &'a [Node], row: &'a Row<'a>) -> Option<Value<'a>> {
    let mut out = String::new();
    for argument in arguments {
        let value = argument.value(row);
        let text = value.as_str()?;
        if !row.admits(out.len() + text.len()) {
            return None;
        }
        out.push_str(text);
    }
    Some(string(out))
}

/// A string stays as it is.
fn to_string(value: Value<'_>) -> Option<Value<'_>> {
    match value {
        Value::Undefined => None,
        Value::String(_) => Some(value),
        Value::Array(text) | Value::Object(text) => Some(Value::String(text)),
        _ => {
            let mut out = String::new();
            value.write(&mut out);
            Some(string(out))
        }
    }
}

fn array<'t>(value: &'t Value<'_>) -> Option<&'t str> {
    match value {
        Value::Array(text) => Some(text),
        _ => None,
    }
}

fn array_concat<'a>(arguments: &'a [Node], row: &'a Row<'a>) -> Option<Value<'a>> {
    let mut out = String::from("[");
    for argument in arguments {
        let value = argument.value(row);
        let text = array(&value)?.trim_end().strip_suffix(']')?;
        let inner = text[1..].trim();
        if !row.admits(out.len() + inner.len() + 2) {
            return None;
        }
        if out.len() > 1 && !inner.is_empty() {
            out.push(',');
        }
        out.push_str(inner);
    }
    out.push(']');
    Some(Value::Array(Cow::Owned(out)))
}

/// Partly is an element found that has the sought one's members among its own.
fn array_contains(of: &Value<'_>, sought: &Value<'_>, partly: Option<Value<'_>>) -> Option<bool> {
    let text = array(of)?;
    let partly = match partly {
        None => false,
        Some(partly) => partly.as_bool()?,
    };
    if sought.is_undefined() {
        return None;
    }
    Some(
        scan::elements(text)
            .map(Value::read)
            .any(|element| match (&element, sought) {
                (Value::Object(element), Value::Object(sought)) if partly => {
                    has_members(element, sought)
                }
                _ => element.equal(sought) == Some(true),
            }),
    )
}

fn has_members(object: &str, sought: &str) -> bool {
    scan::members(sought).all(|(name, value)| {
        let known = escape::read(name.text, false).and_then(|name| scan::member(object, &name));
        known.is_some_and(|known| Value::read(known).equal(&Value::read(value)) == Some(true))
    })
}

fn array_slice<'a>(
    of: Value<'a>,
    from: Option<Value<'a>>,
    len: Option<Value<'a>>,
) -> Option<Value<'a>> {
    let text = array(&of)?;
    let whole = |value: Value<'_>| value.as_number().filter(|value| value.fract() == 0.0);
    let from = whole(from?)?;
    let len = match len {
        None => f64::MAX,
        Some(len) => whole(len)?,
    };
    // From the end where it is negative.
    let from = match from < 0.0 {
        true => (scan::elements(text).count() as f64 + from).max(0.0),
        false => from,
    };
    let kept = scan::elements(text)
        .skip(from as usize)
        .take(len.max(0.0) as usize);
    let kept: Vec<&str> = kept.collect();
    Some(Value::Array(Cow::Owned(format!("[{}]", kept.join(",")))))
}

/// 100 nanoseconds each, since 1970.
fn ticks(now: SystemTime) -> u128 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() / 100
}

/// From the first day of the year 1.
const TICKS_BEFORE_1970: u128 = 621_355_968_000_000_000;

/// As in `2026-03-01T09:30:00.0000000Z`.
fn date_time(ticks: u128) -> String {
    let (seconds, fraction) = (ticks / 10_000_000, ticks % 10_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days as i64);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
}

/// The date of a day after 1970, in years that begin in March, so that a leap day is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}
