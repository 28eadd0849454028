//! Transactions, several at once, held open over other steps: those that commit are as if each had run alone at its stamp,
//! those that do not have done nothing.
//!
//! Each call and its answer are kept. When the transaction commits, the calls are played on the model at that moment, and each
//! answer has to be the same. One that only read may be of the moment of its begin as well. A conflict has to have a reason:
//! something that was read was written, time has passed, or settings were changed.

use std::collections::BTreeSet;

use ebbtide::{Database, Error, Item, Result as EngineResult, Transaction, Ttl, Update};

use super::{Counts, KEYS, Observer, ends};
use crate::model::{Expire, Given, Life, Model, Write};
use crate::op::{Bytes, Op, StepTtl};
use crate::random::{Random, key_of};
use crate::world::{Outcome, World, failed, millis, same};

#[derive(Clone, Debug)]
enum Call {
    Get(Bytes),
    /// From, to, backwards, how many.
    Scan(Bytes, Bytes, bool, usize),
    Put(Bytes, Bytes, StepTtl),
    /// True: only where an item is.
    PutIf(bool, Bytes, Bytes, StepTtl),
    Touch(Bytes),
    Expire(Bytes, StepTtl),
    Take(Bytes),
    /// Puts the value, and keeps the lifetime where an item is.
    Update(Bytes, Bytes),
    Delete(Bytes),
    DeleteRange(Bytes, Bytes),
    ExpireAll,
    Many(Vec<Bytes>),
    Count(Bytes, Bytes),
    /// True: the last item.
    End(bool),
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Value(Option<Bytes>),
    Values(Vec<Option<Bytes>>),
    Count(usize),
    Items(Vec<(Bytes, Bytes)>),
    Is(bool),
    Done,
}

/// A key, and what comes first behind it.
fn whole(key: &[u8]) -> (Bytes, Bytes) {
    (key.to_vec(), [key, &[0]].concat())
}

/// Beyond all keys.
fn beyond() -> Bytes {
    vec![0xff; 200]
}

impl Call {
    /// The ranges that it reads.
    fn reads(&self) -> Vec<(Bytes, Bytes)> {
        match self {
            Call::Scan(from, to, ..) | Call::Count(from, to) => vec![(from.clone(), to.clone())],
            Call::End(_) => vec![(vec![], beyond())],
            Call::Many(keys) => keys.iter().map(|key| whole(key)).collect(),
            Call::Get(key)
            | Call::Put(key, _, StepTtl::Keep)
            | Call::PutIf(_, key, ..)
            | Call::Expire(key, _)
            | Call::Take(key)
            | Call::Update(key, _)
            | Call::Touch(key) => vec![whole(key)],
            Call::Put(..) | Call::Delete(_) | Call::DeleteRange(..) | Call::ExpireAll => vec![],
        }
    }

    /// Whether it wrote, by its answer.
    fn writes(&self, answer: &Answer) -> bool {
        match self {
            Call::Get(_) | Call::Scan(..) | Call::Many(_) | Call::Count(..) | Call::End(_) => false,
            Call::DeleteRange(from, to) => from < to,
            Call::Take(_) => *answer != Answer::Value(None),
            _ => *answer != Answer::Is(false),
        }
    }
}

const UPDATED: StepTtl = StepTtl::Life(Life::Own(5_000));

fn ttl_of(ttl: StepTtl) -> (Ttl, Given) {
    let millis = std::time::Duration::from_millis;
    match ttl {
        StepTtl::Life(Life::Inherit) => (Ttl::Inherit, Given::Life(Life::Inherit)),
        StepTtl::Life(Life::Never) => (Ttl::Never, Given::Life(Life::Never)),
        StepTtl::Life(Life::Own(n)) => (Ttl::After(millis(n)), Given::Life(Life::Own(n))),
        StepTtl::Keep => (Ttl::Keep, Given::Keep),
        StepTtl::Until(_) => unreachable!("no call has it"),
    }
}

/// A commit on the model.
struct Serial<'a> {
    model: &'a mut Model,
    name: &'a str,
    writes: &'a mut Vec<Write>,
}

impl Serial<'_> {
    fn find(&mut self, key: &[u8]) -> Option<(Bytes, Life)> {
        let seen = self.model.find(self.name, key, u64::MAX)?;
        Some((seen.value, seen.life))
    }

    fn write(&mut self, write: Write) {
        let write = self.model.part(write);
        self.writes.push(write);
    }

    fn put(&mut self, key: &[u8], value: &[u8], ttl: Given) {
        self.write(Write::Put {
            container: self.name.to_owned(),
            key: key.to_vec(),
            value: value.to_vec(),
            ttl,
        });
    }

    fn delete(&mut self, key: &[u8]) {
        self.write(Write::Delete {
            container: self.name.to_owned(),
            key: key.to_vec(),
        });
    }

    fn scan(&mut self, from: &[u8], to: &[u8], backwards: bool, most: usize) -> Answer {
        let seen = self.model.scan(self.name, from, Some(to), u64::MAX);
        let pairs = seen.into_iter().map(|seen| (seen.key, seen.value));
        Answer::Items(match backwards {
            false => pairs.take(most).collect(),
            true => pairs.rev().take(most).collect(),
        })
    }

    fn answer(&mut self, call: &Call) -> Answer {
        let value = |found: Option<(Bytes, Life)>| found.map(|(value, _)| value);
        match call {
            Call::Get(key) => Answer::Value(value(self.find(key))),
            Call::Many(keys) => {
                Answer::Values(keys.iter().map(|key| value(self.find(key))).collect())
            }
            Call::Scan(from, to, backwards, most) => self.scan(from, to, *backwards, *most),
            Call::End(is_last) => self.scan(&[], &beyond(), *is_last, 1),
            Call::Count(from, to) => {
                let found = self.model.scan(self.name, from, Some(to), u64::MAX);
                Answer::Count(found.len())
            }
            _ => self.answer_write(call),
        }
    }

    fn answer_write(&mut self, call: &Call) -> Answer {
        match call {
            Call::Put(key, value, ttl) => {
                self.put(key, value, ttl_of(*ttl).1);
                Answer::Done
            }
            Call::PutIf(is_there, key, value, ttl) => {
                let holds = self.find(key).is_some() == *is_there;
                if holds {
                    self.put(key, value, ttl_of(*ttl).1);
                }
                Answer::Is(holds)
            }
            Call::Touch(key) | Call::Expire(key, _) => {
                let found = self.find(key);
                if let Some((value, life)) = &found {
                    let ttl = match call {
                        Call::Expire(_, ttl) => ttl_of(*ttl).1,
                        _ => Given::Life(*life),
                    };
                    self.put(key, value, ttl);
                }
                Answer::Is(found.is_some())
            }
            Call::Take(key) => {
                let found = self.find(key);
                if found.is_some() {
                    self.delete(key);
                }
                Answer::Value(found.map(|(value, _)| value))
            }
            Call::Update(key, value) => {
                let found = self.find(key);
                let ttl = found.as_ref().map_or(UPDATED, |_| StepTtl::Keep);
                self.put(key, value, ttl_of(ttl).1);
                Answer::Value(found.map(|(value, _)| value))
            }
            Call::Delete(key) => {
                self.delete(key);
                Answer::Done
            }
            Call::DeleteRange(from, to) => {
                if from < to {
                    self.write(Write::DeleteRange {
                        container: self.name.to_owned(),
                        from: from.clone(),
                        to: Some(to.clone()),
                    });
                }
                Answer::Done
            }
            Call::ExpireAll => {
                self.write(Write::Expire {
                    container: self.name.to_owned(),
                    what: Expire::All,
                });
                Answer::Done
            }
            _ => unreachable!("{call:?} reads"),
        }
    }
}

fn on_engine(tx: &Transaction, c: &ebbtide::Container, call: &Call) -> EngineResult<Answer> {
    let value = |item: Option<Item>| item.map(|item| item.value().to_vec());
    let pair = |item: Item| (item.key().to_vec(), item.value().to_vec());
    Ok(match call {
        Call::Get(key) => Answer::Value(tx.get(c, key)?.map(|value| value.to_vec())),
        Call::Many(keys) => {
            let found = tx.get_many(c, keys)?.into_iter();
            Answer::Values(found.map(|value| Some(value?.to_vec())).collect())
        }
        Call::Scan(from, to, backwards, most) => {
            let iter = tx.range(c, &from[..]..&to[..]);
            let items: EngineResult<Vec<Item>> = match backwards {
                false => iter.take(*most).collect(),
                true => iter.rev().take(*most).collect(),
            };
            Answer::Items(items?.into_iter().map(pair).collect())
        }
        Call::End(is_last) => {
            let found = if *is_last { tx.last(c)? } else { tx.first(c)? };
            Answer::Items(found.map(pair).into_iter().collect())
        }
        Call::Count(from, to) => {
            let keys = tx.keys(c, &from[..]..&to[..]);
            let keys = keys.collect::<EngineResult<Vec<_>>>()?.len();
            assert_eq!(tx.count(c, &from[..]..&to[..])?, keys as u64, "a count");
            Answer::Count(keys)
        }
        Call::Put(key, value, ttl) => {
            tx.put_with_ttl(c, key, value, ttl_of(*ttl).0)?;
            Answer::Done
        }
        Call::PutIf(true, key, value, ttl) => {
            Answer::Is(tx.replace(c, key, value, ttl_of(*ttl).0)?)
        }
        Call::PutIf(false, key, value, ttl) => {
            Answer::Is(tx.create(c, key, value, ttl_of(*ttl).0)?)
        }
        Call::Touch(key) => Answer::Is(tx.touch(c, key)?),
        Call::Expire(key, ttl) => Answer::Is(tx.expire(c, key, ttl_of(*ttl).0)?),
        Call::Take(key) => Answer::Value(value(tx.take(c, key)?)),
        Call::Update(key, put) => {
            let updated = tx.fetch_update(c, key, |found| {
                let ttl = found.map_or(UPDATED, |_| StepTtl::Keep);
                Update::Put(put.clone(), ttl_of(ttl).0)
            })?;
            assert!(updated.written.is_some(), "an update that puts has written");
            Answer::Value(value(updated.before))
        }
        Call::Delete(key) => {
            tx.delete(c, key)?;
            Answer::Done
        }
        Call::DeleteRange(from, to) => {
            tx.delete_range(c, &from[..]..&to[..])?;
            Answer::Done
        }
        Call::ExpireAll => {
            tx.expire_all(c)?;
            Answer::Done
        }
    })
}

fn random_call(random: &mut Random) -> Call {
    let key = |random: &mut Random| key_of(random, KEYS / 3);
    let ttl = |random: &mut Random| match random.below(6) {
        0 => StepTtl::Life(Life::Inherit),
        1 => StepTtl::Life(Life::Never),
        2 => StepTtl::Keep,
        _ => StepTtl::Life(Life::Own(random.pick(&[500, 2_000, 8_000]))),
    };
    let value = format!("{:.<200}", random.below(1 << 20)).into_bytes();
    match random.below(18) {
        0..=3 => Call::Get(key(random)),
        4 | 5 => {
            let (from, to) = (key(random), key(random));
            Call::Scan(from, to, random.one_in(2), random.pick(&[1, 2, 100]))
        }
        6 | 7 => Call::Put(key(random), value, ttl(random)),
        8 => Call::PutIf(random.one_in(2), key(random), value, ttl(random)),
        9 => Call::Touch(key(random)),
        10 => Call::Delete(key(random)),
        11 => Call::Expire(
            key(random),
            StepTtl::Life(random.pick(&[Life::Never, Life::Own(500), Life::Own(2_000)])),
        ),
        12 => Call::Take(key(random)),
        13 => Call::Update(key(random), value),
        14 => Call::Many((0..3).map(|_| key(random)).collect()),
        15 => Call::Count(key(random), key(random)),
        16 if random.one_in(4) => Call::ExpireAll,
        16 => Call::End(random.one_in(2)),
        _ if random.one_in(4) => Call::DeleteRange(key(random), key(random)),
        _ => Call::Get(key(random)),
    }
}

/// A transaction under way.
struct Open {
    tx: Transaction,
    calls: Vec<(String, Call, Answer)>,
    /// As it began.
    model: Model,
    began: u64,
}

impl Open {
    /// Each call, at this moment, has the same answer; then the model after them, and what they write.
    fn explains(&self, model: &Model) -> Result<(Model, Vec<Write>), String> {
        let (mut model, mut writes) = (model.clone(), vec![]);
        for (name, call, answer) in &self.calls {
            let mut serial = Serial {
                model: &mut model,
                name,
                writes: &mut writes,
            };
            let alone = serial.answer(call);
            same(&format!("{call:?} in {name}"), answer, &alone)?;
        }
        Ok((model, writes))
    }

    /// Something may have changed that it read.
    fn has_reason(&self, model: &mut Model) -> bool {
        let Some(written) = model.written_since(self.model.order) else {
            return true;
        };
        let met = |name: &str, (from, to): &(Bytes, Bytes)| {
            written.iter().any(|write| match write {
                Write::Put { container, key, .. } | Write::Delete { container, key } => {
                    container == name && from <= key && key < to
                }
                Write::DeleteRange {
                    container,
                    from: first,
                    to: end,
                } => container == name && first < to && end.as_ref().is_none_or(|end| from < end),
                Write::SetStandard { .. } | Write::Expire { .. } => true,
            })
        };
        let mut calls = self.calls.iter();
        calls.any(|(name, call, _)| call.reads().iter().any(|read| met(name, read)))
            || model.time.now() != self.began
    }
}

#[derive(Default)]
pub struct Transactions {
    open: Vec<Open>,
    commits: usize,
    conflicts: usize,
}

impl Transactions {
    fn begin(&mut self, world: &mut World) -> Result<(), String> {
        let tx = world.db()?.begin();
        let began = world.model.time.now();
        same("the now of a transaction", &millis(tx.now()), &began)?;
        self.open.push(Open {
            tx,
            calls: vec![],
            model: world.model.clone(),
            began,
        });
        Ok(())
    }

    fn call(&mut self, world: &mut World, random: &mut Random) -> Result<(), String> {
        let mut names = world.names();
        names.retain(|name| !super::QUOTAS.contains(&&**name));
        if names.is_empty() {
            return Ok(());
        }
        let (which, name) = (random.below(self.open.len()), random.pick(&names));
        let (call, container) = (random_call(random), world.container(&name)?);
        let open = &mut self.open[which];
        if open.model.born(&name) != world.model.born(&name) {
            return Ok(());
        }
        match on_engine(&open.tx, &container, &call) {
            Ok(answer) => open.calls.push((name, call, answer)),
            Err(Error::ClockUnsettled { .. }) if matches!(call, Call::ExpireAll) => {}
            Err(error) if error.is_conflict() => {
                let open = self.open.swap_remove(which);
                let changed = world.model.written_since(open.model.order).is_none();
                if world.model.time.now() == open.began && !changed {
                    return Err(format!("{call:?}, without a reason: {error}"));
                }
                match open.tx.commit() {
                    Err(error) if error.is_conflict() => self.conflicts += 1,
                    other => return Err(format!("after a conflict commit answers {other:?}")),
                }
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }

    fn commit(&mut self, world: &mut World, db: &Database, random: &mut Random) -> Outcome {
        let which = random.below(self.open.len());
        let mut open = self.open.swap_remove(which);
        let has_written = |(_, call, answer): &(String, Call, Answer)| call.writes(answer);
        let writes = open.calls.iter().any(has_written);
        let tx = std::mem::replace(&mut open.tx, db.begin());
        match tx.commit() {
            Ok(_) if !writes => {
                if let (Err(began), Err(ended)) =
                    (open.explains(&open.model), open.explains(&world.model))
                {
                    return Err(format!("reads of no moment: {began}; {ended}"));
                }
                self.commits += 1;
            }
            Ok(written) => {
                let serial = open.explains(&world.model);
                let (mut model, writes) =
                    serial.map_err(|what| format!("not serializable: {what}"))?;
                let before = world.model.order;
                let stamp = model.parts_done(writes);
                world.model = model;
                world.committed(before);
                same("the stamp", &millis(written.written_at()), &stamp)?;
                self.commits += 1;
            }
            Err(Error::ClockUnsettled { .. }) if world.model.time.unsettled() => {
                let expires =
                    |(_, call, _): &(String, Call, Answer)| matches!(call, Call::ExpireAll);
                if !open.calls.iter().any(expires) {
                    return Err("no command is in it".into());
                }
            }
            Err(error) if error.is_conflict() && open.has_reason(&mut world.model) => {
                self.conflicts += 1;
            }
            Err(error) => return Err(format!("commit of {:?}: {error}", open.calls)),
        }
        Ok(String::new())
    }
}

impl Observer for Transactions {
    fn name(&self) -> &'static str {
        "transactions"
    }

    fn act(&mut self, world: &mut World, random: &mut Random) -> Result<(), String> {
        match random.below(10) {
            0..2 if self.open.len() < 4 => self.begin(world),
            _ if self.open.is_empty() => self.begin(world),
            2..4 => world
                .step(|world, db| self.commit(world, db, random))
                .map(drop),
            _ => (0..3).try_for_each(|_| match self.open.is_empty() {
                true => Ok(()),
                false => self.call(world, random),
            }),
        }
    }

    /// Those that hold what goes go as well.
    fn before(&mut self, _: &mut World, op: &Op) -> Result<(), String> {
        if ends(op) {
            self.open.clear();
        }
        if let Op::Drop(dropped) = op {
            let uses = |open: &Open| {
                let names: BTreeSet<_> = open.calls.iter().map(|(name, ..)| name).collect();
                names.contains(dropped)
            };
            self.open.retain(|open| !uses(open));
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        vec![("commits", self.commits), ("conflicts", self.conflicts)]
    }
}
