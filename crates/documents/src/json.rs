//! JSON as text: checked, and cut where its members are, so that what is not asked for stays as it was written.
//!
//! Invariant: a text that [`document`] has accepted is parsed by any JSON parser that allows [`MAX_DEPTH`] levels: its strings
//! have no half of a surrogate pair, and its numbers are finite doubles.

use std::borrow::Cow;
use std::ops::Range;

/// Objects and arrays within each other, the outermost one included.
pub const MAX_DEPTH: u32 = 128;

/// The reason why a text is none that is accepted, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    pub at: usize,
    pub what: &'static str,
}

/// Bytes of a string that are looked at together.
const MANY: usize = 32;

type Result<T, E = Broken> = std::result::Result<T, E>;

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    pub name: Cow<'a, str>,
    /// The text of the value.
    pub value: &'a str,
    /// From the name's quotation mark to the value's end, in the object's text.
    pub span: Range<usize>,
}

/// Gives the members of a text that is one object and nothing else.
pub fn document<'a>(text: &'a str, mut each: impl FnMut(Member<'a>)) -> Result<()> {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    if scan.peek() != Some(b'{') {
        return Err(scan.broken("an object"));
    }
    scan.members(&mut each)?;
    scan.space();
    match scan.peek() {
        None => Ok(()),
        Some(_) => Err(scan.broken("the end")),
    }
}

/// The elements of a text that is one array, if it is one.
pub fn elements(text: &str) -> Result<Option<Vec<&str>>> {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    if scan.peek() != Some(b'[') {
        return Ok(None);
    }
    scan.at += 1;
    let mut elements = vec![];
    scan.space();
    if scan.peek() == Some(b']') {
        scan.at += 1;
    } else {
        loop {
            scan.space();
            let from = scan.at;
            scan.value(1)?;
            elements.push(&text[from..scan.at]);
            scan.space();
            match scan.take()? {
                b',' => {}
                b']' => break,
                _ => return Err(scan.back("a comma or `]`")),
            }
        }
    }
    scan.space();
    match scan.peek() {
        None => Ok(Some(elements)),
        Some(_) => Err(scan.broken("the end")),
    }
}

/// Checks a text that is one value.
pub fn value(text: &str) -> Result<()> {
    let mut scan = Scan { text, at: 0 };
    scan.value(0)?;
    scan.space();
    match scan.peek() {
        None => Ok(()),
        Some(_) => Err(scan.broken("the end")),
    }
}

/// The members of a text that was accepted, if it is an object.
pub fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let mut members = vec![];
    document(text, |member| members.push(member)).ok()?;
    Some(members)
}

/// The string that the text of a value is.
pub fn string(value: &str) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(value).ok().map(Cow::Owned)
}

/// Any type from a text that was accepted, whose depth needs no other limit.
pub fn parse<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> serde_json::Result<T> {
    let mut from = serde_json::Deserializer::from_slice(text);
    from.disable_recursion_limit();
    let parsed = T::deserialize(&mut from)?;
    from.end()?;
    Ok(parsed)
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn take(&mut self) -> Result<u8> {
        let byte = self.peek().ok_or_else(|| self.broken("more"))?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn broken(&self, what: &'static str) -> Broken {
        Broken { at: self.at, what }
    }

    /// The same for the byte that was taken.
    fn back(&self, what: &'static str) -> Broken {
        let at = self.at - 1;
        Broken { at, what }
    }

    /// Gives the members of the object that begins here.
    fn members(&mut self, each: &mut impl FnMut(Member<'a>)) -> Result<()> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            let from = self.at;
            let name = match self.key()? {
                true => string(&self.text[from..self.at]),
                false => Some(Cow::Borrowed(&self.text[from + 1..self.at - 1])),
            };
            self.colon()?;
            self.space();
            let value_from = self.at;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.string()?;
                }
                _ => self.value(1)?,
            }
            each(Member {
                name: name.ok_or(Broken {
                    at: from,
                    what: "a name",
                })?,
                value: &self.text[value_from..self.at],
                span: from..self.at,
            });
            self.space();
            match self.take()? {
                b',' => {}
                b'}' => return Ok(()),
                _ => return Err(self.back("a comma or `}`")),
            }
        }
    }

    /// As [`Scan::string`].
    #[inline]
    fn key(&mut self) -> Result<bool> {
        self.space();
        match self.take()? {
            b'"' => self.string(),
            _ => Err(self.back("a name in quotation marks")),
        }
    }

    #[inline]
    fn colon(&mut self) -> Result<()> {
        self.space();
        match self.take()? {
            b':' => Ok(()),
            _ => Err(self.back("a colon")),
        }
    }

    /// Goes over a value, which is within this many others. It does not recurse: a bit of a number says of each level
    /// whether it is an object.
    fn value(&mut self, outer: u32) -> Result<()> {
        let (mut levels, mut depth) = (0u128, 0u32);
        loop {
            self.space();
            let first = self.take()?;
            match first {
                b'{' | b'[' => {
                    if outer + depth == MAX_DEPTH {
                        return Err(self.back("no more than 128 levels"));
                    }
                    let is_object = first == b'{';
                    self.space();
                    if self.peek() == Some(if is_object { b'}' } else { b']' }) {
                        self.at += 1;
                    } else {
                        (levels, depth) = (levels << 1 | u128::from(is_object), depth + 1);
                        if is_object {
                            self.key()?;
                            self.colon()?;
                        }
                        continue;
                    }
                }
                b'"' => drop(self.string()?),
                b't' => self.word("rue")?,
                b'f' => self.word("alse")?,
                b'n' => self.word("ull")?,
                b'-' | b'0'..=b'9' => self.number()?,
                _ => return Err(self.back("a value")),
            }
            loop {
                if depth == 0 {
                    return Ok(());
                }
                self.space();
                match (self.take()?, levels & 1 == 1) {
                    (b',', true) => {
                        self.key()?;
                        self.colon()?;
                        break;
                    }
                    (b',', false) => break,
                    (b'}', true) | (b']', false) => (levels, depth) = (levels >> 1, depth - 1),
                    (_, true) => return Err(self.back("a comma or `}`")),
                    (_, false) => return Err(self.back("a comma or `]`")),
                }
            }
        }
    }

    fn word(&mut self, rest: &'static str) -> Result<()> {
        if !self.text.as_bytes()[self.at..].starts_with(rest.as_bytes()) {
            return Err(self.back("true, false or null"));
        }
        self.at += rest.len();
        Ok(())
    }

    /// Goes over the rest of a string, whose first quotation mark was taken. True: it has escapes.
    #[inline(always)]
    fn string(&mut self) -> Result<bool> {
        // Most names end within eight bytes.
        if let Some(eight) = self.text.as_bytes()[self.at..].first_chunk() {
            let end = special(u64::from_le_bytes(*eight)).trailing_zeros() as usize / 8;
            if eight.get(end) == Some(&b'"') {
                self.at += end + 1;
                return Ok(false);
            }
        }
        self.long_string()
    }

    /// Eight bytes at a time where none is special, and [`MANY`] where the string is longer.
    fn long_string(&mut self) -> Result<bool> {
        let bytes = self.text.as_bytes();
        let mut has_escapes = false;
        loop {
            while let Some(eight) = bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
                let special = special(u64::from_le_bytes(*eight));
                if special != 0 {
                    self.at += special.trailing_zeros() as usize / 8;
                    break;
                }
                self.at += 8;
                let rest = |at| bytes.get(at..).and_then(<[u8]>::first_chunk);
                while rest(self.at).is_some_and(|many| !has_special(many)) {
                    self.at += MANY;
                }
            }
            match self.take()? {
                b'"' => return Ok(has_escapes),
                b'\\' => {
                    has_escapes = true;
                    self.escape()?;
                }
                0..=0x1f => return Err(self.back("an escape for a control character")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<()> {
        match self.take()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let from = self.at;
                let is_whole = match self.hex()? {
                    0xd800..=0xdbff => {
                        let follows = self.text.as_bytes()[self.at..].starts_with(b"\\u");
                        self.at += 2;
                        follows && matches!(self.hex()?, 0xdc00..=0xdfff)
                    }
                    0xdc00..=0xdfff => false,
                    _ => true,
                };
                let what = "both halves of a surrogate pair";
                is_whole.then_some(()).ok_or(Broken { at: from, what })
            }
            _ => Err(self.back("an escape")),
        }
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.ok_or_else(|| self.broken("four hexadecimal digits"))?;
        let mut number = 0;
        for digit in digits {
            let digit = char::from(*digit).to_digit(16);
            let digit = digit.ok_or_else(|| self.broken("four hexadecimal digits"))?;
            number = number << 4 | digit;
        }
        self.at += 4;
        Ok(number)
    }

    /// Goes over a number, whose first byte was taken.
    fn number(&mut self) -> Result<()> {
        let from = self.at - 1;
        self.at = from + usize::from(self.text.as_bytes()[from] == b'-');
        match self.take()? {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return Err(self.back("a digit")),
        }
        let mut may_be_infinite = self.at - from > 300;
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.some_digits()?;
            may_be_infinite = true;
        }
        let number = &self.text[from..self.at];
        if may_be_infinite && !number.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(Broken {
                at: from,
                what: "a number that a double can hold",
            });
        }
        Ok(())
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<()> {
        let from = self.at;
        self.digits();
        match self.at > from {
            true => Ok(()),
            false => Err(self.broken("a digit")),
        }
    }
}

/// Whether one of these bytes is a quotation mark, a backslash or a control character. In numbers and not with `||`, so that the
/// compiler takes many at a time.
#[inline]
fn has_special(bytes: &[u8; MANY]) -> bool {
    let special = bytes
        .iter()
        .map(|byte| u8::from(*byte == b'"') | u8::from(*byte == b'\\') | u8::from(*byte < 0x20));
    special.fold(0, |any, special| any | special) != 0
}

/// The lowest set bit is in the first byte that is a quotation mark, a backslash or a control character.
#[inline]
fn special(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let is = |byte: u8| {
        let differs = eight ^ (ONES * u64::from(byte));
        differs.wrapping_sub(ONES) & !differs
    };
    let is_control = eight.wrapping_sub(ONES * 0x20) & !eight;
    (is(b'"') | is(b'\\') | is_control) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> bool {
        let (mine, theirs) = (
            value(text).is_ok(),
            parse::<serde_json::Value>(text.as_bytes()).is_ok(),
        );
        assert_eq!(mine, theirs, "{text}");
        mine
    }

    /// The other parser has the same opinion of texts of all kinds, whatever single byte is changed.
    #[test]
    fn accepts_what_the_other_parser_does() {
        let texts = [
            r#"{"a":1,"b":[true,false,null,{}],"c":{"d":[]},"e":"x\n\u00e9\ud83d\ude00"}"#,
            r#" [ -0 , 1.5e3, 0.25E-2 ,"a long string without anything special in it" ] "#,
            r#"{"a":"1234567\"","b":"\\","c":1e308,"d":[[[[1]]]]}"#,
        ];
        let mut accepted = 0;
        for text in texts {
            assert!(accepts(text));
            for at in 0..text.len() {
                for byte in [
                    b' ', b'"', b'\\', b',', b'}', b']', b'[', b'{', b':', b'0', b'e', b'-', b'u',
                    b'd', 1, b'9',
                ] {
                    let mut changed = text.as_bytes().to_vec();
                    changed[at] = byte;
                    accepted += u32::from(accepts(std::str::from_utf8(&changed).unwrap()));
                    changed.truncate(at);
                    accepts(std::str::from_utf8(&changed).unwrap());
                }
            }
        }
        assert!(accepted > 500);
    }

    #[test]
    fn refuses_what_a_double_cannot_hold_and_halves_of_pairs() {
        for text in [
            "1e309",
            "-1e999",
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800\u0041""#,
        ] {
            assert!(!accepts(text));
        }
        assert!(!accepts(&"9".repeat(310)));
        assert!(accepts(&"9".repeat(308)) && accepts("1e-999"));
    }

    #[test]
    fn allows_128_levels() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(value(&nested(128)).is_ok() && value(&nested(129)).is_err());
        let within = |n: usize| format!("{{\"a\":{}}}", nested(n));
        assert!(document(&within(127), |_| {}).is_ok() && document(&within(128), |_| {}).is_err());
    }
}
