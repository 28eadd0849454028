//! Tokens of a query's text.

use super::{Error, Result, escape, refused};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A keyword, a name, or the name of a function: the parser knows from the place.
    Word(&'a str),
    /// With its `@`.
    Parameter(&'a str),
    Number(&'a str),
    String(String),
    Sign(&'static str),
    End,
}

/// The longer ones first: the first that fits is taken.
const SIGNS: [&str; 33] = [
    ">>>", "!=", "<>", "<=", ">=", "<<", ">>", "||", "??", "=", "<", ">", "+", "-", "*", "/", "%",
    "&", "|", "^", "~", "?", ":", ".", ",", "(", ")", "[", "]", "{", "}", "!", ";",
];

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next token and its position in bytes.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'a>)> {
        self.skip_blanks()?;
        let (start, rest) = (self.at, &self.text[self.at..]);
        let Some(first) = rest.bytes().next() else {
            return Ok((start, Token::End));
        };
        let token = match first {
            b'"' | b'\'' => self.string(first)?,
            b'0'..=b'9' => Token::Number(self.number()),
            b'.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
                Token::Number(self.number())
            }
            b'@' => Token::Parameter(self.word(1)),
            _ if begins_word(first) => Token::Word(self.word(0)),
            _ => self.sign()?,
        };
        Ok((start, token))
    }

    fn skip_blanks(&mut self) -> Result<()> {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}', '\u{a0}']);
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("--") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                let end = comment.find("*/");
                self.at += 4 + end.ok_or_else(|| refused(self.at, "a comment has no end"))?;
            } else {
                return Ok(());
            }
        }
    }

    fn word(&mut self, prefix: usize) -> &'a str {
        let start = self.at;
        let rest = &self.text.as_bytes()[start + prefix..];
        let len = rest.iter().position(|&byte| !continues_word(byte));
        self.at = start + prefix + len.unwrap_or(rest.len());
        &self.text[start..self.at]
    }

    fn number(&mut self) -> &'a str {
        let (start, bytes) = (self.at, self.text.as_bytes());
        let mut end = start;
        let mut before = 0;
        while let Some(&byte) = bytes.get(end) {
            let exponent = matches!(before, b'e' | b'E');
            let signed = exponent && matches!(byte, b'+' | b'-');
            if !(signed || byte == b'.' || continues_word(byte)) {
                break;
            }
            before = byte;
            end += 1;
        }
        self.at = end;
        &self.text[start..end]
    }

    fn string(&mut self, quote: u8) -> Result<Token<'a>> {
        let (start, bytes) = (self.at + 1, self.text.as_bytes());
        let mut end = start;
        loop {
            match bytes.get(end) {
                None => return Err(refused(self.at, "a string has no end")),
                Some(b'\\') => end += 2,
                Some(&byte) if byte == quote => break,
                Some(_) => end += 1,
            }
        }
        let inner = &self.text[start..end];
        let text = escape::read(inner, true);
        let text = text.ok_or_else(|| refused(self.at, "a string has an escape that is none"))?;
        self.at = end + 1;
        Ok(Token::String(text.into_owned()))
    }

    fn sign(&mut self) -> Result<Token<'a>> {
        let rest = &self.text[self.at..];
        let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
        let sign = sign.ok_or_else(|| self.unknown(rest))?;
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }

    fn unknown(&self, rest: &str) -> Error {
        let char = rest.chars().next().unwrap_or_default();
        refused(self.at, format!("{char:?} has no meaning in a query"))
    }
}

fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn continues_word(byte: u8) -> bool {
    begins_word(byte) || byte.is_ascii_digit()
}
