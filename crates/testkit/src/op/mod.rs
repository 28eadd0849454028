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
//! containers | stats c | ls | check | observe NAME SEED
//! ```
//!
//! `word*100` stands for the word, filled up with dots to 100 bytes; `\x00` for a byte.

use crate::model::{Life, Standard};

mod parse;
mod show;

pub use parse::{duration, parse};
pub use show::show_duration;

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
    /// An observer acts, by choices that begin with this number (observed/mod.rs).
    Observe(String, u64),
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
