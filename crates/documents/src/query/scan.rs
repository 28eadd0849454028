//! Pulls what a query asks for out of a document's text in one pass, without a tree of the rest.
//!
//! A document was checked when it was written, so what is passed over is only measured: brackets are counted, strings are
//! skipped. Text that is no JSON gives no answer or some part of itself, and never a panic.

use super::ast::Step;
use super::escape;

/// The paths that a query asks for, as a tree of steps. Each path has a slot.
#[derive(Debug, Default)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    paths: Vec<Vec<Step>>,
}

#[derive(Debug, Default)]
struct Node {
    slot: Option<usize>,
    members: Vec<(String, usize)>,
    elements: Vec<(u64, usize)>,
    /// The slots of all longer paths: a member that is there twice is taken the second time, with nothing left of the
    /// first.
    below: Vec<usize>,
}

/// Where a slot's value stands in the text: empty where the document has none.
pub(super) type Span = (usize, usize);

impl Paths {
    /// The path's slot.
    pub(super) fn add(&mut self, path: &[Step]) -> usize {
        if let Some(slot) = self.paths.iter().position(|known| known == path) {
            return slot;
        }
        let slot = self.paths.len();
        self.paths.push(path.to_vec());
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
        let found = match step {
            Step::Member(name) => {
                let found = node.members.iter().find(|(known, _)| known == name);
                let found = found.map(|&(_, child)| child);
                if found.is_none() {
                    node.members.push((name.clone(), next));
                }
                found
            }
            Step::Element(index) => {
                let found = node.elements.iter().find(|(known, _)| known == index);
                let found = found.map(|&(_, child)| child);
                if found.is_none() {
                    node.elements.push((*index, next));
                }
                found
            }
        };
        found.unwrap_or_else(|| {
            self.nodes.push(Node::default());
            next
        })
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
            b'{' if !node.members.is_empty() => self.object(node, scanner, slots)?,
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
            match node
                .members
                .iter()
                .find(|(known, _)| is_called(name, known))
            {
                Some(&(_, child)) => self.value(child, scanner, slots)?,
                None => scanner.skip_value()?,
            }
            more = scanner.more(b'}')?;
        }
        Some(())
    }

    fn array(&self, node: &Node, scanner: &mut Scanner<'_>, slots: &mut [Span]) -> Option<()> {
        let (mut more, mut index) = (scanner.open(b']'), 0);
        while more {
            match node.elements.iter().find(|(wanted, _)| *wanted == index) {
                Some(&(_, child)) => self.value(child, scanner, slots)?,
                None => scanner.skip_value()?,
            }
            index += 1;
            more = scanner.more(b']')?;
        }
        Some(())
    }
}

/// Whether a name as it is written, without its quotes, is this one.
fn is_called(written: &str, name: &str) -> bool {
    written == name
        || (written.contains('\\') && escape::read(written, false).as_deref() == Some(name))
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

/// The members of an object: each name as it is written between its quotes, and the value.
pub(super) fn members(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut scanner = Scanner::new(text);
    let mut more = scanner.open(b'}');
    std::iter::from_fn(move || {
        let name = if more { scanner.name() } else { None }?;
        let value = scanner.value()?;
        more = scanner.more(b'}').unwrap_or(false);
        Some((name, value))
    })
}

/// What an object has by this name: the last, where there are several.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let found = members(object).filter(|(written, _)| is_called(written, name));
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

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

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
    pub(super) fn more(&mut self, close: u8) -> Option<bool> {
        self.skip_blanks();
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            _ => (byte == close).then_some(false),
        }
    }

    /// A member's name, as it is written between its quotes; goes over the colon behind it.
    pub(super) fn name(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        let start = self.at + 1;
        if self.peek()? != b'"' {
            return None;
        }
        self.skip_string()?;
        let end = self.at - 1;
        self.skip_blanks();
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(&self.text[start..end])
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
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_nested(),
            b',' | b':' | b'}' | b']' => None,
            _ => {
                let rest = &self.text.as_bytes()[self.at..];
                let end = rest.iter().position(|byte| {
                    matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')
                });
                self.at += end.unwrap_or(rest.len());
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

    fn skip_string(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut at = self.at + 1;
        loop {
            at += quote_or_backslash(bytes.get(at..)?)?;
            if bytes[at] == b'"' {
                self.at = at + 1;
                return Some(());
            }
            at += 2;
        }
    }
}

/// Where the first `"` or `\` is. Eight bytes are looked at in a time: a zero byte of a word that was exclusive-ored with
/// the sought one borrows from its highest bit.
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
