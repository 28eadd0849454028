//! One step of a history, as a value and as a line of text.
//!
//! ```text
//! put c k v [ttl=T]            create, replace: the same        T: 10s 250ms 5m 1h 30d, -1 (never), keep, until=+5s, until=-5s
//! touch c k | delete c k       take c k | expire c k [ttl=T]     update c k keep|delete|append v|put v [ttl=T]
//! delete-range c A..B          B is exclusive; either side may be missing
//! batch W ; W ; W              W: put, create, replace, touch, delete, delete-range, set-ttl, expire-* | sync
//!                              require c k absent|present|same|other (the version that it has now, and one that it has not)
//! load c k v [ttl=T] ; + STEP ; c k v ; ...     a bulk load; a step with + comes while the load asks for its next item
//! fill c PREFIX N BYTES [ttl=T]           N puts of PREFIX000, PREFIX001 ... with values of BYTES bytes
//! expire-before c +5s | expire-written-before c -5s | expire-all c         counted from the wall clock of the step
//! set-ttl c off|-1|30s         drop c          open c [off|-1|30s]
//! advance 30s | jump -1h | confirm-clock
//! flush | step [N|all] | compact | sync | checkpoint
//! get c k | item c k | contains c k | scan c [A..B|PREFIX*] [reverse]     get@s, item@s, scan@s: through snapshot s
//! snapshot s | release s       iter i c [A..B]   next i [N]   back i [N]   hold c k
//! crash | power-cut [SEED] | close | reopen [OPTION=VALUE]...
//! containers | stats c | ls | check
//! ```
//!
//! `word*100` stands for the word, filled up with dots to 100 bytes; `\x00` for a byte.

use std::fmt;

use crate::model::{Life, Standard};

pub type Bytes = Vec<u8>;

/// A lifetime as it is written in a step; `Until` counts from the wall clock of that step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepTtl {
    Life(Life),
    Until(i64),
    Keep,
}

pub const INHERIT: StepTtl = StepTtl::Life(Life::Inherit);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Keep,
    Delete,
    Append(Bytes),
    Put(Bytes, StepTtl),
}

/// A command that a container is told; moments count from the wall clock of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepExpire {
    Before(i64),
    WrittenBefore(i64),
    All,
}

impl StepExpire {
    fn show(self, f: &mut fmt::Formatter<'_>, container: &str) -> fmt::Result {
        match self {
            StepExpire::Before(offset) => {
                write!(f, "expire-before {container} {}", show_signed(offset))
            }
            StepExpire::WrittenBefore(offset) => {
                write!(
                    f,
                    "expire-written-before {container} {}",
                    show_signed(offset)
                )
            }
            StepExpire::All => write!(f, "expire-all {container}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOp {
    Put(String, Bytes, Bytes, StepTtl),
    Create(String, Bytes, Bytes, StepTtl),
    Replace(String, Bytes, Bytes, StepTtl),
    Touch(String, Bytes),
    Delete(String, Bytes),
    DeleteRange(String, Span),
    SetTtl(String, Standard),
    ExpireItems(String, StepExpire),
    Require(String, Bytes, Wanted),
    Sync,
}

/// A condition of a batch on a key; the last two concern its current version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Absent,
    Present,
    Same,
    Other,
}

impl Wanted {
    const NAMES: [(Wanted, &str); 4] = [
        (Wanted::Absent, "absent"),
        (Wanted::Present, "present"),
        (Wanted::Same, "same"),
        (Wanted::Other, "other"),
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Span {
    pub from: Bytes,
    pub to: Option<Bytes>,
    pub prefix: bool,
}

/// A part of a bulk load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadPart {
    Item(Bytes, Bytes, StepTtl),
    /// A step that comes in between; none of time, of crashes, or that is of several parts itself.
    Meanwhile(Op),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put(String, Bytes, Bytes, StepTtl),
    Create(String, Bytes, Bytes, StepTtl),
    Replace(String, Bytes, Bytes, StepTtl),
    Touch(String, Bytes),
    Take(String, Bytes),
    Expire(String, Bytes, StepTtl),
    Update(String, Bytes, Change),
    Delete(String, Bytes),
    DeleteRange(String, Span),
    Batch(Vec<BatchOp>),
    Load(String, Vec<LoadPart>),
    Fill(String, String, usize, usize, StepTtl),
    SetTtl(String, Standard),
    ExpireItems(String, StepExpire),
    Drop(String),
    Open(String, Standard),
    Advance(u64),
    Jump(i64),
    ConfirmClock,
    Flush,
    Step(usize),
    Compact,
    Sync,
    Checkpoint,
    Get(Option<String>, String, Bytes),
    Item(Option<String>, String, Bytes),
    Contains(Option<String>, String, Bytes),
    Scan(Option<String>, String, Span, bool),
    Snapshot(String),
    Release(String),
    Iter(String, String, Span),
    Next(String, usize),
    Back(String, usize),
    Hold(String, Bytes),
    Crash,
    PowerCut(u64),
    Close,
    Reopen(Vec<(String, String)>),
    Containers,
    Stats(String),
    Explain(String),
    Ls,
    Check,
}

/// `step all`
pub const ALL: usize = 400;

/// The bytes that a word stands for.
pub fn expand(word: &str) -> Bytes {
    let (text, len) = match word.rsplit_once('*') {
        Some((text, len)) if len.parse::<usize>().is_ok() => (text, len.parse().ok()),
        _ => (word, None),
    };
    let mut bytes = vec![];
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        bytes.push(u8::from_str_radix(&rest[at + 2..at + 4], 16).expect("two hex digits"));
        rest = &rest[at + 4..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes.resize(len.unwrap_or(bytes.len()).max(bytes.len()), b'.');
    bytes
}

/// A word for the bytes.
pub fn shorten(bytes: &[u8]) -> String {
    let head = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == b'.').count();
    let mut word = String::new();
    for &byte in &bytes[..head] {
        match byte {
            b'!'..=b'~' if byte != b'\\' => word.push(char::from(byte)),
            _ => word.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if head < bytes.len() {
        word.push_str(&format!("*{}", bytes.len()));
    }
    word
}

pub fn duration(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("{text} is not a duration")),
    };
    digits
        .parse::<u64>()
        .map(|n| n * unit)
        .map_err(|_| format!("{text} is not a duration"))
}

pub fn show_duration(millis: u64) -> String {
    for (unit, name) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ] {
        if millis >= unit && millis.is_multiple_of(unit) {
            return format!("{}{name}", millis / unit);
        }
    }
    format!("{millis}ms")
}

fn signed(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(rest) => Ok(-(duration(rest)? as i64)),
        None => Ok(duration(text.strip_prefix('+').unwrap_or(text))? as i64),
    }
}

fn show_signed(millis: i64) -> String {
    let sign = if millis < 0 { '-' } else { '+' };
    format!("{sign}{}", show_duration(millis.unsigned_abs()))
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Life::Inherit => write!(f, "inherit"),
            Life::Never => write!(f, "-1"),
            Life::Own(millis) => f.write_str(&show_duration(*millis)),
        }
    }
}

impl fmt::Display for StepTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepTtl::Life(Life::Inherit) => Ok(()),
            StepTtl::Life(life) => write!(f, " ttl={life}"),
            StepTtl::Keep => write!(f, " ttl=keep"),
            StepTtl::Until(offset) => write!(f, " until={}", show_signed(*offset)),
        }
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standard::Off => write!(f, "off"),
            Standard::NoDefault => write!(f, "-1"),
            Standard::After(millis) => f.write_str(&show_duration(*millis)),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix {
            return write!(f, "{}*", shorten(&self.from));
        }
        write!(
            f,
            "{}..{}",
            shorten(&self.from),
            self.to.as_deref().map(shorten).unwrap_or_default()
        )
    }
}

impl fmt::Display for BatchOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchOp::Put(c, k, v, ttl) => write!(f, "put {c} {} {}{ttl}", shorten(k), shorten(v)),
            BatchOp::Create(c, k, v, ttl) => {
                write!(f, "create {c} {} {}{ttl}", shorten(k), shorten(v))
            }
            BatchOp::Replace(c, k, v, ttl) => {
                write!(f, "replace {c} {} {}{ttl}", shorten(k), shorten(v))
            }
            BatchOp::Touch(c, k) => write!(f, "touch {c} {}", shorten(k)),
            BatchOp::Delete(c, k) => write!(f, "delete {c} {}", shorten(k)),
            BatchOp::DeleteRange(c, span) => write!(f, "delete-range {c} {span}"),
            BatchOp::SetTtl(c, standard) => write!(f, "set-ttl {c} {standard}"),
            BatchOp::ExpireItems(c, what) => what.show(f, c),
            BatchOp::Require(c, k, wanted) => {
                let named = Wanted::NAMES.iter().find(|(of, _)| of == wanted);
                write!(
                    f,
                    "require {c} {} {}",
                    shorten(k),
                    named.map_or("", |(_, name)| name)
                )
            }
            BatchOp::Sync => write!(f, "sync"),
        }
    }
}

fn at(snapshot: &Option<String>) -> String {
    snapshot
        .as_ref()
        .map(|name| format!("@{name}"))
        .unwrap_or_default()
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = shorten;
        match self {
            Op::Put(c, k, v, ttl) => write!(f, "put {c} {} {}{ttl}", s(k), s(v)),
            Op::Create(c, k, v, ttl) => write!(f, "create {c} {} {}{ttl}", s(k), s(v)),
            Op::Replace(c, k, v, ttl) => write!(f, "replace {c} {} {}{ttl}", s(k), s(v)),
            Op::Touch(c, k) => write!(f, "touch {c} {}", s(k)),
            Op::Take(c, k) => write!(f, "take {c} {}", s(k)),
            Op::Expire(c, k, ttl) => write!(f, "expire {c} {}{ttl}", s(k)),
            Op::Update(c, k, Change::Keep) => write!(f, "update {c} {} keep", s(k)),
            Op::Update(c, k, Change::Delete) => write!(f, "update {c} {} delete", s(k)),
            Op::Update(c, k, Change::Append(v)) => write!(f, "update {c} {} append {}", s(k), s(v)),
            Op::Update(c, k, Change::Put(v, ttl)) => {
                write!(f, "update {c} {} put {}{ttl}", s(k), s(v))
            }
            Op::Delete(c, k) => write!(f, "delete {c} {}", s(k)),
            Op::DeleteRange(c, span) => write!(f, "delete-range {c} {span}"),
            Op::Batch(ops) => {
                let ops: Vec<String> = ops.iter().map(BatchOp::to_string).collect();
                write!(f, "batch {}", ops.join(" ; "))
            }
            Op::Load(c, parts) => {
                let show = |part: &LoadPart| match part {
                    LoadPart::Item(k, v, ttl) => format!("{c} {} {}{ttl}", s(k), s(v)),
                    LoadPart::Meanwhile(op) => format!("+ {op}"),
                };
                let parts: Vec<String> = parts.iter().map(show).collect();
                write!(f, "load {}", parts.join(" ; "))
            }
            Op::Fill(c, prefix, count, bytes, ttl) => {
                write!(f, "fill {c} {prefix} {count} {bytes}{ttl}")
            }
            Op::SetTtl(c, standard) => write!(f, "set-ttl {c} {standard}"),
            Op::ExpireItems(c, what) => what.show(f, c),
            Op::Drop(c) => write!(f, "drop {c}"),
            Op::Open(c, standard) => write!(f, "open {c} {standard}"),
            Op::Advance(millis) => write!(f, "advance {}", show_duration(*millis)),
            Op::Jump(millis) => write!(f, "jump {}", show_signed(*millis)),
            Op::ConfirmClock => write!(f, "confirm-clock"),
            Op::Flush => write!(f, "flush"),
            Op::Step(ALL) => write!(f, "step all"),
            Op::Step(n) => write!(f, "step {n}"),
            Op::Compact => write!(f, "compact"),
            Op::Sync => write!(f, "sync"),
            Op::Checkpoint => write!(f, "checkpoint"),
            Op::Get(snapshot, c, k) => write!(f, "get{} {c} {}", at(snapshot), s(k)),
            Op::Item(snapshot, c, k) => write!(f, "item{} {c} {}", at(snapshot), s(k)),
            Op::Contains(snapshot, c, k) => write!(f, "contains{} {c} {}", at(snapshot), s(k)),
            Op::Scan(snapshot, c, span, reverse) => {
                write!(
                    f,
                    "scan{} {c} {span}{}",
                    at(snapshot),
                    if *reverse { " reverse" } else { "" }
                )
            }
            Op::Snapshot(name) => write!(f, "snapshot {name}"),
            Op::Release(name) => write!(f, "release {name}"),
            Op::Iter(name, c, span) => write!(f, "iter {name} {c} {span}"),
            Op::Next(name, n) => write!(f, "next {name} {n}"),
            Op::Back(name, n) => write!(f, "back {name} {n}"),
            Op::Hold(c, k) => write!(f, "hold {c} {}", s(k)),
            Op::Crash => write!(f, "crash"),
            Op::PowerCut(seed) => write!(f, "power-cut {seed}"),
            Op::Close => write!(f, "close"),
            Op::Reopen(options) => {
                write!(f, "reopen")?;
                options
                    .iter()
                    .try_for_each(|(name, value)| write!(f, " {name}={value}"))
            }
            Op::Containers => write!(f, "containers"),
            Op::Stats(c) => write!(f, "stats {c}"),
            Op::Explain(c) => write!(f, "explain {c}"),
            Op::Ls => write!(f, "ls"),
            Op::Check => write!(f, "check"),
        }
    }
}

/// The unread words of a line.
struct Words<'a> {
    line: &'a str,
    words: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        self.words
            .next()
            .ok_or_else(|| format!("{:?} breaks off", self.line))
    }

    fn name(&mut self) -> Result<String, String> {
        self.next().map(str::to_owned)
    }

    fn bytes(&mut self) -> Result<Bytes, String> {
        self.next().map(expand)
    }

    fn number(&mut self) -> Result<usize, String> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("{word} is not a number"))
    }

    fn number_or(&mut self, default: usize) -> Result<usize, String> {
        if self.words.peek().is_some() {
            self.number()
        } else {
            Ok(default)
        }
    }

    fn ttl(&mut self) -> Result<StepTtl, String> {
        let Some(word) = self.words.peek().copied() else {
            return Ok(INHERIT);
        };
        let ttl = if let Some(text) = word.strip_prefix("until=") {
            StepTtl::Until(signed(text)?)
        } else if let Some(text) = word.strip_prefix("ttl=") {
            match text {
                "keep" => StepTtl::Keep,
                "-1" => StepTtl::Life(Life::Never),
                text => StepTtl::Life(Life::Own(duration(text)?)),
            }
        } else {
            return Ok(INHERIT);
        };
        self.next()?;
        Ok(ttl)
    }

    fn standard(&mut self) -> Result<Standard, String> {
        Ok(match self.next()? {
            "off" => Standard::Off,
            "-1" => Standard::NoDefault,
            text => Standard::After(duration(text)?),
        })
    }

    fn span(&mut self) -> Result<Span, String> {
        let word = match self.words.peek() {
            Some(word) if *word != "reverse" => self.next()?,
            _ => return Ok(Span::default()),
        };
        if let Some(prefix) = word.strip_suffix('*') {
            return Ok(Span {
                from: expand(prefix),
                to: None,
                prefix: true,
            });
        }
        let (from, to) = word
            .split_once("..")
            .ok_or_else(|| format!("{word} is not a range"))?;
        Ok(Span {
            from: expand(from),
            to: (!to.is_empty()).then(|| expand(to)),
            prefix: false,
        })
    }

    fn end(mut self) -> Result<(), String> {
        self.words.next().map_or(Ok(()), |word| {
            Err(format!("{:?}: what is {word}?", self.line))
        })
    }
}

fn words(line: &str) -> Words<'_> {
    Words {
        line,
        words: line.split_whitespace().peekable(),
    }
}

/// Reads a line.
pub fn parse(line: &str) -> Result<Op, String> {
    let mut w = words(line);
    let command = w.next()?;
    let (command, snapshot) = match command.split_once('@') {
        Some((command, snapshot)) => (command, Some(snapshot.to_owned())),
        None => (command, None),
    };
    let op = match command {
        "put" => Op::Put(w.name()?, w.bytes()?, w.bytes()?, w.ttl()?),
        "create" => Op::Create(w.name()?, w.bytes()?, w.bytes()?, w.ttl()?),
        "replace" => Op::Replace(w.name()?, w.bytes()?, w.bytes()?, w.ttl()?),
        "touch" => Op::Touch(w.name()?, w.bytes()?),
        "take" => Op::Take(w.name()?, w.bytes()?),
        "expire" => Op::Expire(w.name()?, w.bytes()?, w.ttl()?),
        "update" => Op::Update(w.name()?, w.bytes()?, parse_change(&mut w)?),
        "delete" => Op::Delete(w.name()?, w.bytes()?),
        "delete-range" => Op::DeleteRange(w.name()?, w.span()?),
        "batch" => return parse_batch(line),
        "load" => return parse_load(line),
        "fill" => Op::Fill(w.name()?, w.name()?, w.number()?, w.number()?, w.ttl()?),
        "set-ttl" => Op::SetTtl(w.name()?, w.standard()?),
        "expire-before" => Op::ExpireItems(w.name()?, StepExpire::Before(signed(w.next()?)?)),
        "expire-written-before" => {
            Op::ExpireItems(w.name()?, StepExpire::WrittenBefore(signed(w.next()?)?))
        }
        "expire-all" => Op::ExpireItems(w.name()?, StepExpire::All),
        "drop" => Op::Drop(w.name()?),
        "open" => Op::Open(
            w.name()?,
            if w.words.peek().is_some() {
                w.standard()?
            } else {
                Standard::Off
            },
        ),
        "advance" => Op::Advance(duration(w.next()?)?),
        "jump" => Op::Jump(signed(w.next()?)?),
        "confirm-clock" => Op::ConfirmClock,
        "flush" => Op::Flush,
        "step" if w.words.peek() == Some(&"all") => w.next().map(|_| Op::Step(ALL))?,
        "step" => Op::Step(w.number_or(1)?),
        "compact" => Op::Compact,
        "sync" => Op::Sync,
        "checkpoint" => Op::Checkpoint,
        "get" => Op::Get(snapshot, w.name()?, w.bytes()?),
        "item" => Op::Item(snapshot, w.name()?, w.bytes()?),
        "contains" => Op::Contains(snapshot, w.name()?, w.bytes()?),
        "scan" => Op::Scan(
            snapshot,
            w.name()?,
            w.span()?,
            w.words.next_if_eq(&"reverse").is_some(),
        ),
        "snapshot" => Op::Snapshot(w.name()?),
        "release" => Op::Release(w.name()?),
        "iter" => Op::Iter(w.name()?, w.name()?, w.span()?),
        "next" => Op::Next(w.name()?, w.number_or(1)?),
        "back" => Op::Back(w.name()?, w.number_or(1)?),
        "hold" => Op::Hold(w.name()?, w.bytes()?),
        "crash" => Op::Crash,
        "power-cut" => Op::PowerCut(w.number_or(0)? as u64),
        "close" => Op::Close,
        "reopen" => {
            let mut options = vec![];
            while w.words.peek().is_some() {
                let word = w.next()?;
                let (name, value) = word
                    .split_once('=')
                    .ok_or_else(|| format!("{word} is not an option"))?;
                options.push((name.to_owned(), value.to_owned()));
            }
            Op::Reopen(options)
        }
        "containers" => Op::Containers,
        "stats" => Op::Stats(w.name()?),
        "explain" => Op::Explain(w.name()?),
        "ls" => Op::Ls,
        "check" => Op::Check,
        _ => return Err(format!("{line:?} is not a command")),
    };
    w.end()?;
    Ok(op)
}

fn parse_change(w: &mut Words<'_>) -> Result<Change, String> {
    Ok(match w.next()? {
        "keep" => Change::Keep,
        "delete" => Change::Delete,
        "append" => Change::Append(w.bytes()?),
        "put" => Change::Put(w.bytes()?, w.ttl()?),
        word => return Err(format!("{word} is not a change")),
    })
}

fn parse_load(line: &str) -> Result<Op, String> {
    let (mut container, mut parts) = (String::new(), vec![]);
    let line = line.trim().strip_prefix("load").unwrap_or_default();
    for part in line.split(';') {
        if let Some(step) = part.trim().strip_prefix('+') {
            parts.push(LoadPart::Meanwhile(parse(step.trim())?));
            continue;
        }
        let mut w = words(part);
        container = w.name()?;
        parts.push(LoadPart::Item(w.bytes()?, w.bytes()?, w.ttl()?));
        w.end()?;
    }
    Ok(Op::Load(container, parts))
}

fn parse_batch(line: &str) -> Result<Op, String> {
    let mut ops = vec![];
    for part in line
        .trim()
        .strip_prefix("batch")
        .unwrap_or_default()
        .split(';')
    {
        if part.trim().starts_with("require") {
            ops.push(parse_require(part)?);
            continue;
        }
        ops.push(match parse(part)? {
            Op::Put(c, k, v, ttl) => BatchOp::Put(c, k, v, ttl),
            Op::Create(c, k, v, ttl) => BatchOp::Create(c, k, v, ttl),
            Op::Replace(c, k, v, ttl) => BatchOp::Replace(c, k, v, ttl),
            Op::Touch(c, k) => BatchOp::Touch(c, k),
            Op::Delete(c, k) => BatchOp::Delete(c, k),
            Op::DeleteRange(c, span) => BatchOp::DeleteRange(c, span),
            Op::SetTtl(c, standard) => BatchOp::SetTtl(c, standard),
            Op::ExpireItems(c, what) => BatchOp::ExpireItems(c, what),
            Op::Sync => BatchOp::Sync,
            op => return Err(format!("{op} is not a write of a batch")),
        });
    }
    Ok(Op::Batch(ops))
}

fn parse_require(part: &str) -> Result<BatchOp, String> {
    let mut w = words(part);
    w.next()?;
    let (c, k, word) = (w.name()?, w.bytes()?, w.next()?);
    let named = Wanted::NAMES.iter().find(|(_, name)| *name == word);
    let (wanted, _) = named.ok_or_else(|| format!("{word} is not asked of a key"))?;
    w.end()?;
    Ok(BatchOp::Require(c, k, *wanted))
}
