//! Escapes in strings: of JSON, and of a query, which has `\'` as well.

use std::borrow::Cow;

/// The text between the quotes, without its escapes; `None` where one is none. A half of a surrogate pair that stands
/// alone, which no string of Rust can hold, is read as U+FFFD; in a query it is refused.
pub(super) fn read(inner: &str, of_query: bool) -> Option<Cow<'_, str>> {
    let Some(first) = inner.find('\\') else {
        return Some(Cow::Borrowed(inner));
    };
    let mut out = String::with_capacity(inner.len());
    out.push_str(&inner[..first]);
    let mut rest = &inner[first..];
    while let Some(escaped) = rest.strip_prefix('\\') {
        let letter = escaped.chars().next()?;
        rest = &escaped[letter.len_utf8()..];
        out.push(match letter {
            '"' | '\\' | '/' => letter,
            '\'' if of_query => letter,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => code_point(&mut rest, of_query)?,
            _ => return None,
        });
        let plain = rest.find('\\').unwrap_or(rest.len());
        out.push_str(&rest[..plain]);
        rest = &rest[plain..];
    }
    Some(Cow::Owned(out))
}

fn code_point(rest: &mut &str, of_query: bool) -> Option<char> {
    let high = unit(rest)?;
    if (0xd800..0xdc00).contains(&high) {
        let mut behind = *rest;
        let low = behind.strip_prefix("\\u").and_then(|text| {
            behind = text;
            unit(&mut behind)
        });
        if let Some(low @ 0xdc00..=0xdfff) = low {
            *rest = behind;
            return char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00));
        }
    }
    char::from_u32(high).or((!of_query).then_some(char::REPLACEMENT_CHARACTER))
}

fn unit(rest: &mut &str) -> Option<u32> {
    let digits = rest.get(..4)?;
    *rest = &rest[4..];
    let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hexadecimal.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Writes a string of JSON with its quotes.
pub(super) fn write(text: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => out.push_str(&format!("\\u{byte:04x}")),
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}
