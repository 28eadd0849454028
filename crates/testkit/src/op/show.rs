//! A step as a line of text.

use std::fmt;

use super::*;

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

fn show_signed(millis: i64) -> String {
    let sign = if millis < 0 { '-' } else { '+' };
    format!("{sign}{}", show_duration(millis.unsigned_abs()))
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
            Op::Observe(name, seed) => write!(f, "observe {name} {seed}"),
        }
    }
}
