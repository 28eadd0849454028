//! The state machine of a cluster: what an op does is decided here, on every replica alike.
//!
//! Invariant: an answer is a function of the state and the entry. Conditions are judged by what stands in the state at the entry's
//! time and by the ops before it in the same entry, whose writes have no version that a client knows. A check digests the state
//! beside apply, which neither waits for it nor answers by it.

pub mod body;
pub mod digest;
pub mod judge;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebbtide::{Change, ContainerOptions, Ttl};
use ebbtide_openraft::{Found, Machine, Step, StepError};

use self::body::{
    Act, Body, Command, Held, KeyRead, Life, Limit, RangeRead, ReadSet, Reply, When, Write, millis,
};
use self::digest::Digest;
use self::judge::{holds, judge, missing};
use crate::check::Checks;

/// The container of join tokens (node/tokens.rs), which no program is shown.
pub const TOKENS: &str = "ebbtide-cluster.tokens";
/// The most items that a transaction reads, all its reads together.
pub const MOST_READ: usize = 10_000;

/// Tokens are none of a program's.
pub fn is_shown(change: &mut Change) -> bool {
    match change {
        Change::Containers { names } => {
            names.retain(|name| **name != *TOKENS);
            true
        }
        Change::Created { container, .. }
        | Change::Expiry { container, .. }
        | Change::DeleteRange { container, .. }
        | Change::Put { container, .. }
        | Change::Delete { container, .. } => **container != *TOKENS,
        _ => true,
    }
}

/// See the file's head.
pub struct Containers {
    pub checks: Arc<Checks>,
    /// The newest format that the node speaks.
    pub speaks: u16,
}

impl Machine for Containers {
    type Op = Body;
    type Answer = Reply;

    fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
        vec![]
    }

    fn format(&self) -> u32 {
        self.speaks.into()
    }

    fn format_of(&self, op: &Body) -> u32 {
        op.format().into()
    }

    fn apply(&self, op: &Body, step: &mut Step<'_>) -> Result<Reply, StepError> {
        match op {
            Body::One(write) => one(write, step),
            Body::Batch(writes) => all(writes, step),
            Body::Transaction { reads, writes } => {
                if let Some(stop) = read_again(reads, step)? {
                    return Ok(stop);
                }
                all(writes, step)
            }
            Body::Command { container, what } => command(container, what, step),
            Body::Check => check(&self.checks, step),
            Body::Format { to, members_at } => format(*to, *members_at, step),
            Body::BatchWithCommands { writes, commands } => {
                all_with_commands(writes, commands, step)
            }
        }
    }
}

fn check(checks: &Checks, step: &mut Step<'_>) -> Result<Reply, StepError> {
    if step.commands().is_none() {
        return Err(StepError::refuse("it is to be alone in its entry"));
    }
    let mut defaults = vec![];
    for name in step.containers() {
        let default = step.default_ttl(&name)?;
        defaults.push((name, default));
    }
    checks.begin(step.index(), step.view(), defaults);
    Ok(done(step))
}

fn format(to: u16, members_at: u64, step: &mut Step<'_>) -> Result<Reply, StepError> {
    let Some(mut commands) = step.commands() else {
        return Err(StepError::refuse("it is to be alone in its entry"));
    };
    Ok(match commands.raise_format(to.into(), members_at) {
        true => done(step),
        false => Reply::Missed,
    })
}

fn one(write: &Write, step: &mut Step<'_>) -> Result<Reply, StepError> {
    if let Some(stop) = missing(&write.container, step) {
        return Ok(stop);
    }
    let found = step.get(&write.container, &write.key)?;
    if !holds(write.when, version_of(found.as_ref())) {
        return Ok(Reply::Missed);
    }
    act(write, found, step)
}

/// All of them, or none.
fn all(writes: &[Write], step: &mut Step<'_>) -> Result<Reply, StepError> {
    if let Some(stop) = judge(writes, step)? {
        return Ok(stop);
    }
    act_all(writes, step)
}

/// The same with commands, which come first: versions of writes are the last ones. Reads do not see what a command of the same
/// entry does, so each command is about a container of its own or about one that stays, and writes go by no item that is there.
fn all_with_commands(
    writes: &[Write],
    commands: &[(String, Command)],
    step: &mut Step<'_>,
) -> Result<Reply, StepError> {
    if step.commands().is_none() {
        return Err(StepError::refuse("it is to be alone in its entry"));
    }
    check_commands(writes, commands)?;
    if let Some(stop) = judge(writes, step)? {
        return Ok(stop);
    }
    for (container, what) in commands {
        match (what.creates(), step.has_container(container)) {
            (true, true) => {
                return Ok(Reply::Conflict {
                    container: container.clone(),
                    key: Bytes::new(),
                });
            }
            (true, false) | (false, true) => {}
            (false, false) => return Ok(Reply::NoContainer(container.clone())),
        }
    }
    for (container, what) in commands {
        command(container, what, step)?;
    }
    act_all(writes, step)
}

fn check_commands(writes: &[Write], commands: &[(String, Command)]) -> Result<(), StepError> {
    let goes_by_items =
        |write: &Write| !matches!(write.act, Act::Put(..) | Act::Delete | Act::Require);
    if writes.iter().any(goes_by_items) {
        return Err(StepError::refuse(
            "a batch with commands to containers has puts, deletions and conditions",
        ));
    }
    // Writes are judged by what is there before the commands.
    let is_judged = |write: &Write| {
        let keeps = matches!(write.act, Act::Put(_, Life::Keep));
        write.when != When::Always || keeps
    };
    let judged = writes.iter().filter(|write| is_judged(write));
    for write in judged {
        if commands.iter().any(|(name, _)| *name == write.container) {
            return Err(StepError::refuse(format!(
                "a condition or a kept ttl in {:?}, which the same batch changes as a whole",
                write.container
            )));
        }
    }
    for (place, (container, what)) in commands.iter().enumerate() {
        if !what.creates() && *what != Command::Drop {
            continue;
        }
        let mut others = commands.iter().enumerate();
        let is_named = others.any(|(other, (name, _))| other != place && name == container);
        let is_written =
            |write: &Write| matches!(what, Command::Drop) && write.container == *container;
        if is_named || writes.iter().any(is_written) {
            return Err(StepError::refuse(format!(
                "{container:?} is made or dropped, and the same batch does more with it"
            )));
        }
    }
    Ok(())
}

fn act_all(writes: &[Write], step: &mut Step<'_>) -> Result<Reply, StepError> {
    for write in writes {
        let found = step.get(&write.container, &write.key)?;
        act(write, found, step)?;
    }
    Ok(done(step))
}

fn done(step: &Step<'_>) -> Reply {
    Reply::Done {
        version: step.version().as_u64(),
    }
}

/// One that this entry has written has a version that nobody has seen.
fn version_of(found: Option<&Found>) -> Option<u64> {
    found.map(|found| found.version.map_or(u64::MAX, |version| version.as_u64()))
}

fn act(write: &Write, found: Option<Found>, step: &mut Step<'_>) -> Result<Reply, StepError> {
    let (container, key) = (&write.container, &write.key);
    match (&write.act, found) {
        (Act::Put(value, life), _) => {
            step.put(container, key, value, life.ttl())?;
        }
        (Act::Touch, Some(found)) => {
            let ttl = restarted(&found, step);
            step.put(container, key, &found.value, ttl)?;
        }
        (Act::Expire(life), Some(found)) => {
            step.put(container, key, &found.value, life.ttl())?;
        }
        (Act::Delete, _) => step.delete(container, key)?,
        (Act::Take, Some(found)) => {
            step.delete(container, key)?;
            return Ok(Reply::Taken(held(key, found)));
        }
        (Act::PutLike(value, of, of_key), _) => {
            if !step.put_like(container, key, value, (of, of_key))? {
                return Ok(Reply::Missed);
            }
        }
        (Act::Touch | Act::Expire(_) | Act::Take, None) => return Ok(Reply::Missed),
        (Act::Require, _) => {}
    }
    Ok(done(step))
}

/// The item's own ttl, to be counted from now. An end that this entry has set is kept as the lifetime until then, as it will be
/// stored.
fn restarted(found: &Found, step: &Step<'_>) -> Ttl {
    match found.ttl() {
        Ttl::Until(end) => match end.duration_since(step.time()) {
            Ok(lifetime) if !lifetime.is_zero() => Ttl::After(lifetime),
            _ => Ttl::Until(end),
        },
        ttl => ttl,
    }
}

fn held(key: &Bytes, found: Found) -> Held {
    Held {
        key: key.clone(),
        value: found.value,
        version: found.version.map(|version| version.as_u64()),
        expires_at_ms: found.expires_at.map(millis),
    }
}

/// Whether everything that was read is still what stands there; if not, the answer.
fn read_again(reads: &ReadSet, step: &mut Step<'_>) -> Result<Option<Reply>, StepError> {
    for read in &reads.keys {
        let KeyRead {
            container,
            key,
            version,
        } = read;
        if let Some(stop) = missing(container, step) {
            return Ok(Some(stop));
        }
        let found = step.get(container, key)?;
        if version_of(found.as_ref()) != *version {
            return Ok(Some(Reply::Conflict {
                container: container.clone(),
                key: key.clone(),
            }));
        }
    }
    for read in &reads.ranges {
        if let Some(stop) = missing(&read.container, step) {
            return Ok(Some(stop));
        }
        if !is_same(read, step)? {
            let key = match &read.start {
                std::ops::Bound::Included(key) | std::ops::Bound::Excluded(key) => key.clone(),
                std::ops::Bound::Unbounded => Bytes::new(),
            };
            return Ok(Some(Reply::Conflict {
                container: read.container.clone(),
                key,
            }));
        }
    }
    Ok(None)
}

fn is_same(read: &RangeRead, step: &mut Step<'_>) -> Result<bool, StepError> {
    let items = usize::try_from(read.items).unwrap_or(usize::MAX);
    if items > MOST_READ {
        return Err(StepError::refuse(format!(
            "a transaction that has read {items} items: it reads up to {MOST_READ}"
        )));
    }
    // One more shows an item that has come.
    let range = (read.start.clone(), read.end.clone());
    let found = step.range(&read.container, range, items + 1)?;
    let mut digest = Digest::new();
    for (key, item) in &found {
        digest.add(key, version_of(Some(item)).unwrap_or(u64::MAX));
    }
    Ok(found.len() == items && digest.finish() == read.digest)
}

fn command(container: &str, what: &Command, step: &mut Step<'_>) -> Result<Reply, StepError> {
    let is_there = step.has_container(container);
    if !is_there && !what.creates() && *what != Command::Drop {
        return Ok(Reply::NoContainer(container.to_owned()));
    }
    let Some(mut commands) = step.commands() else {
        return Err(StepError::refuse("it is to be alone in its entry"));
    };
    let is_done = match what {
        Command::Create(default) => commands.create_container(container, default.ttl())?,
        Command::CreateWith {
            default,
            keep_expired_ms,
            quota,
        } => {
            let keep = Duration::from_millis(*keep_expired_ms);
            let quota = quota.map(Limit::quota);
            commands.create_container_with(container, default.ttl(), keep, quota)?
        }
        Command::Drop => commands.drop_container(container)?,
        other => {
            change(container, other, &mut commands)?;
            true
        }
    };
    Ok(if is_done { done(step) } else { Reply::Missed })
}

fn change(
    container: &str,
    what: &Command,
    commands: &mut ebbtide_openraft::Commands<'_, '_>,
) -> Result<(), StepError> {
    match what {
        Command::SetDefault(default) => commands.set_default_ttl(container, default.ttl()),
        Command::DeleteRange(start, end) => {
            commands.delete_range(container, (start.clone(), end.clone()))
        }
        Command::ExpireBefore(ms) => commands.expire_before(container, body::moment(*ms)),
        Command::ExpireWrittenBefore(ms) => {
            commands.expire_written_before(container, body::moment(*ms))
        }
        Command::ExpireAll => commands.expire_all(container),
        Command::KeepExpired(ms) => {
            commands.set_keep_expired(container, Duration::from_millis(*ms))
        }
        Command::Quota(quota) => commands.set_quota(container, quota.map(Limit::quota)),
        Command::Create(_) | Command::CreateWith { .. } | Command::Drop => Ok(()),
    }
}
