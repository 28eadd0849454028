//! A step from its line of text.

use super::*;

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

fn signed(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(rest) => Ok(-(duration(rest)? as i64)),
        None => Ok(duration(text.strip_prefix('+').unwrap_or(text))? as i64),
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
        "observe" => Op::Observe(w.name()?, w.number()? as u64),
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
