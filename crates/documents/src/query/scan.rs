//! Pulls what a query asks for out of a document's text in one pass, without a tree of the rest.
//!
//! A document was checked when it was written, so what is passed over is only measured: brackets are counted, strings are
//! skipped. Text that is no JSON gives no answer or some part of itself, and never a panic.

use std::collections::{BTreeMap, HashMap};

use super::ast::Step;
use super::escape;

/// The paths that a query asks for, as a tree of steps. Each path has a slot.
#[derive(Debug, Default)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    paths: Vec<Vec<Step>>,
    slots: HashMap<Vec<Step>, usize>,
}

#[derive(Debug, Default)]
struct Node {
    slot: Option<usize>,
    members: Members,
    elements: BTreeMap<u64, usize>,
    /// The slots of all longer paths: a member that is there twice is taken the second time, with nothing left of the
    /// first.
    below: Vec<usize>,
}

/// Where a slot's value stands in the text: empty where the document has none.
pub(super) type Span = (usize, usize);

impl Paths {
    /// The path's slot.
    pub(super) fn add(&mut self, path: &[Step]) -> usize {
        if let Some(&slot) = self.slots.get(path) {
            return slot;
        }
        let slot = self.paths.len();
        self.paths.push(path.to_vec());
        self.slots.insert(path.to_vec(), slot);
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        for step in path {
            self.nodes[at].below.push(slot);
            at = self.child(at, step);
        }
        self.nodes[at].slot = Some(slot);
        slot
    }

    fn child(&mut self, at: usize, step: &Step) -> usize {
        let (next, node) = (self.nodes.len(), &mut self.nodes[at]);
        let child = match step {
            Step::Member(name) => node.members.child(name, next),
            Step::Element(index) => *node.elements.entry(*index).or_insert(next),
        };
        if child == next {
            self.nodes.push(Node::default());
        }
        child
    }

    pub(super) fn path(&self, slot: usize) -> &[Step] {
        &self.paths[slot]
    }

    /// Fills a slot for each path; `None` where the text is no JSON.
    pub(super) fn extract(&self, text: &str, slots: &mut Vec<Span>) -> Option<()> {
        slots.clear();
        slots.resize(self.paths.len(), (0, 0));
        if self.nodes.is_empty() {
            return Some(());
        }
        let mut scanner = Scanner::new(text);
        self.value(0, &mut scanner, slots)?;
        scanner.skip_blanks();
        (scanner.at == text.len()).then_some(())
    }

    fn value(&self, at: usize, scanner: &mut Scanner<'_>, slots: &mut [Span]) -> Option<()> {
        let node = &self.nodes[at];
        node.below.iter().for_each(|&slot| slots[slot] = (0, 0));
        scanner.skip_blanks();
        let start = scanner.at;
        match scanner.peek()? {
            b'{' if !node.members.few.is_empty() => self.object(node, scanner, slots)?,
            b'[' if !node.elements.is_empty() => self.array(node, scanner, slots)?,
            _ => scanner.skip_value()?,
        }
        if let Some(slot) = node.slot {
            slots[slot] = (start, scanner.at);
        }
        Some(())
    }

    fn object(&self, node: &Node, scanner: &mut Scanner<'_>, slots: &mut [Span]) -> Option<()> {
        let mut more = scanner.open(b'}');
        while more {
            let name = scanner.name()?;
            match node.members.find(name) {
                Some(child) => self.value(child, scanner, slots)?,
                None => scanner.skip_value()?,
            }
            more = scanner.more(b'}')?;
        }
        Some(())
    }

    fn array(&self, node: &Node, scanner: &mut Scanner<'_>, slots: &mut [Span]) -> Option<()> {
        let (mut more, mut index) = (scanner.open(b']'), 0);
        while more {
            match node.elements.get(&index) {
                Some(&child) => self.value(child, scanner, slots)?,
                None => scanner.skip_value()?,
            }
            index += 1;
            more = scanner.more(b']')?;
        }
        Some(())
    }
}

/// The names that a node asks for.
#[derive(Debug, Default)]
struct Members {
    few: Vec<(String, usize)>,
    /// All of them, where they are many.
    many: HashMap<String, usize>,
}

/// As many names are compared one by one.
const FEW: usize = 12;

impl Members {
    fn child(&mut self, name: &str, next: usize) -> usize {
        if let Some(known) = self.known(name) {
            return known;
        }
        self.few.push((name.to_owned(), next));
        if self.few.len() == FEW {
            self.many.extend(self.few.iter().cloned());
        } else if self.few.len() > FEW {
            self.many.insert(name.to_owned(), next);
        }
        next
    }

    fn known(&self, name: &str) -> Option<usize> {
        if !self.many.is_empty() {
            return self.many.get(name).copied();
        }
        let found = self.few.iter().find(|(known, _)| known == name);
        found.map(|&(_, child)| child)
    }

    #[inline]
    fn find(&self, name: Name<'_>) -> Option<usize> {
        match name.escaped {
            true => self.known(&escape::read(name.text, false)?),
            false => self.known(name.text),
        }
    }
}

/// A member's name, as it is written between its quotes.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    pub text: &'a str,
    escaped: bool,
}

impl Name<'_> {
    fn is(self, name: &str) -> bool {
        match self.escaped {
            true => escape::read(self.text, false).as_deref() == Some(name),
            false => self.text == name,
        }
    }
}

/// The elements of an array, each as it is written; those up to the first that is no JSON.
pub(super) fn elements(text: &str) -> impl Iterator<Item = &str> {
    let mut scanner = Scanner::new(text);
    let mut more = scanner.open(b']');
    std::iter::from_fn(move || {
        let element = if more { scanner.value() } else { None }?;
        more = scanner.more(b']').unwrap_or(false);
        Some(element)
    })
}

/// The members of an object, each as it is written.
pub(super) fn members(text: &str) -> impl Iterator<Item = (Name<'_>, &str)> {
    let mut scanner = Scanner::new(text);
    let mut more = scanner.open(b'}');
    std::iter::from_fn(move || {
        let name = if more { scanner.name() } else { None }?;
        let value = scanner.value()?;
        more = scanner.more(b'}').unwrap_or(false);
        Some((name, value))
    })
}

/// The member of this name: the last, where there are several.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let found = members(object).filter(|(written, _)| written.is(name));
    found.last().map(|(_, value)| value)
}

pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut scanner = Self { text, at: 0 };
        scanner.skip_blanks();
        scanner
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    pub(super) fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Goes over the bracket that opens; tells whether anything stands before the one that closes.
    pub(super) fn open(&mut self, close: u8) -> bool {
        self.at += usize::from(matches!(self.peek(), Some(b'{' | b'[')));
        self.skip_blanks();
        let empty = self.peek() == Some(close);
        self.at += usize::from(empty);
        !empty
    }

    /// Goes over a comma, behind which there is more, or over the bracket that closes.
    #[inline]
    pub(super) fn more(&mut self, close: u8) -> Option<bool> {
        self.skip_blanks();
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            _ => (byte == close).then_some(false),
        }
    }

    /// A member's name; goes over the colon behind it.
    #[inline]
    pub(super) fn name(&mut self) -> Option<Name<'a>> {
        self.skip_blanks();
        let start = self.at + 1;
        if self.peek()? != b'"' {
            return None;
        }
        let escaped = self.skip_string()?;
        let end = self.at - 1;
        self.skip_blanks();
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        let text = &self.text[start..end];
        Some(Name { text, escaped })
    }

    pub(super) fn value(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        let start = self.at;
        self.skip_value()?;
        Some(&self.text[start..self.at])
    }

    fn skip_value(&mut self) -> Option<()> {
        self.skip_blanks();
        match self.peek()? {
            b'"' => self.skip_string().map(|_| ()),
            b'{' | b'[' => self.skip_nested(),
            b',' | b':' | b'}' | b']' => None,
            _ => {
                let rest = &self.text.as_bytes()[self.at..];
                let ends = |byte: &u8| ENDS[usize::from(*byte)];
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
                Some(())
            }
        }
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => (),
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Tells whether it has escapes.
    #[inline]
    fn skip_string(&mut self) -> Option<bool> {
        let bytes = self.text.as_bytes();
        let (mut at, mut escaped) = (self.at + 1, false);
        loop {
            at += quote_or_backslash(bytes.get(at..)?)?;
            if bytes[at] == b'"' {
                self.at = at + 1;
                return Some(escaped);
            }
            escaped = true;
            at += 2;
        }
    }
}

/// The bytes that end a number or a word.
const ENDS: [bool; 256] = {
    let (mut ends, mut at) = ([false; 256], 0);
    while at < 256 {
        ends[at] = matches!(at as u8, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        at += 1;
    }
    ends
};

/// Where the first `"` or `\` is. Eight bytes are looked at in a time: a zero byte of a word that was exclusive-ored with
/// the sought one borrows from its highest bit.
#[inline]
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let zeroes = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut words = bytes.chunks_exact(8);
    let mut at = 0;
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let quotes = zeroes(word ^ (ONES * u64::from(b'"')));
        let found = quotes | zeroes(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = words.remainder().iter();
    let found = rest.clone().position(|&byte| matches!(byte, b'"' | b'\\'));
    found.map(|found| at + found)
}
